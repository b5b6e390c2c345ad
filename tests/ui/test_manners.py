"""Manners of prompt and commands: a near name is told, advice works, nothing is asked twice in silence."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest

from gramercy.providers.services import SERVICES
from gramercy.toolsets.hunks import split
from gramercy.ui.cli.approval import Review
from gramercy.ui.cli.main import COMMANDS, cli
from tests.hello import GREETING, HELLO, TOOLS
from tests.providers.service import Service, stream
from tests.ui.conftest import BOUND


@pytest.mark.contract("day.manners.near-names")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("rnu",), "No such command 'rnu'. Did you mean run?"),
        (("tools", "lits"), "No such command 'lits'. Did you mean list?"),
        (("run", "--tool", "x", "a.gram"), "No such option '--tool'. Did you mean --tools?"),
        (("--verison",), "No such option '--verison'. Did you mean --version?"),
        (("zzzz",), "No such command 'zzzz'."),
        (("models", "zzzz"), "No such command 'zzzz'. There are install, list."),
        (("eval", "1", "--image", "python"), "No such option '--image'. Did you mean --language?"),
        (("serve", "--language", "python"), "No such option '--language'. Did you mean --image?"),
        (("eval", "1", "--timeout", "abc"), "Invalid value for '--timeout': 'abc' is not a number."),
        (("approvals", "show", "x"), "Invalid value for 'KEY': 'x' is not a whole number."),
        (("trust", "zzzz"), "Path 'zzzz' does not exist."),
    ],
)
def test_an_unknown_command_or_option_is_answered_with_one_that_is_near(inside, words, says):
    """Releases of click differ; what is told does not."""
    done = inside(*words)
    assert done.returncode == 2
    assert done.stderr.rstrip().endswith(says)


@pytest.mark.parametrize("word", ["none", "off", "False"])
def test_a_journal_that_is_to_be_none_is_no_file_of_that_name(inside, tmp_path, monkeypatch, word):
    """Who writes `--journal none` wants no file at all."""
    monkeypatch.chdir(tmp_path)
    done = inside("audit", "verify", "--journal", word)
    assert done.returncode == 2
    assert "a journal cannot be switched off: `memory` keeps calls only while" in done.stderr
    assert f"./{word}" in done.stderr
    assert not (tmp_path / word).exists()


@pytest.mark.contract("day.manners.near-names")
def test_every_command_is_found_from_a_slip_of_two_letters(inside):
    """Two letters that changed places are the most common slip."""
    for name in COMMANDS:
        slip = name[:-2] + name[-1] + name[-2]
        if slip != name and len(name) > 3:
            assert f"Did you mean {name}" in inside(slip).stderr, name


@pytest.mark.contract("day.manners.near-names")
@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (":rollback", ":rollback needs a state: :rollback c2; :checkpoints lists them"),
        (":checkpoint", ":checkpoint needs a name: :checkpoint planted"),
        (":redo", "there is no command :redo: :rollback with the state that :undo names goes forward again"),
    ],
)
def test_the_prompt_says_what_a_command_lacks(gramercy, typed, says):
    """What a person types is no call of a tool."""
    assert gramercy("repl", "--language", "python", stdin=f"{typed}\n").stderr.startswith(says)


@pytest.mark.contract("day.manners.near-names")
def test_a_python_file_in_the_place_of_an_agent_is_said_to_be_none(inside, tmp_path):
    """It was said to lie beside an agent."""
    file = tmp_path / "tools.py"
    file.write_text(TOOLS)
    done = inside("run", str(file), "hello")
    assert done.returncode != 0
    assert "beside the agent" not in done.stderr
    assert f"{file}:1:1: " in done.stderr


@pytest.mark.contract("day.manners.undo-words")
@pytest.mark.parametrize("way", ["replay", "definitions"])
def test_the_prompt_undoes_in_the_ways_that_it_advises(gramercy, way):
    """Where no state is kept, the answer to :undo names these two."""
    typed = "def f():\n    return 1\n\ndef f():\n    return 2\n\n:undo " + way + "\nf()\n"
    done = gramercy("repl", "--language", "python", stdin=typed)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "=> 1"
    told = {"replay": "run again", "definitions": "Definitions are put back"}
    assert told[way] in done.stdout


@pytest.mark.contract("day.manners.undo-words")
def test_an_unknown_word_behind_undo_takes_nothing_back(gramercy):
    """A word that is not understood must not be taken for a plain undo."""
    done = gramercy("repl", "--language", "python", stdin="x = 1\n:undo relpay\nx\n")
    assert ":undo knows no relpay: say :undo, or :undo replay" in done.stderr
    assert done.stdout.splitlines()[-1] == "=> 1"


@pytest.mark.contract("day.manners.hunk-words")
def test_yes_accepts_a_hunk_and_a_next_that_is_not_there_is_told(capsys):
    """People type y and n; n is the next hunk, and where there is none that is said."""
    before = "".join(f"{number}\n" for number in range(30))
    found = split(before, before.replace("3\n", "three\n", 1).replace("25\n", "25!\n"))
    review = Review(found)
    assert len(found) == 2
    assert review.press("p")
    assert "this is the first hunk: a accepts it, r rejects it" in capsys.readouterr().err
    assert review.press("y")
    assert review.press("n")
    assert "this is the last hunk" in capsys.readouterr().err
    assert review.press("no")
    assert review.accepted == {found[0].number}
    only = Review(found[:1])
    assert only.press("n")
    assert "this is the only hunk" in capsys.readouterr().err


@pytest.mark.contract("day.manners.latest")
def test_the_latest_conversation_is_shown_where_none_is_named(inside, tmp_path, monkeypatch):
    """Most often it is the one that was just left."""
    from gramercy.journal.opening import open_journal
    from gramercy.journal.sessions import sessions_of

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("GRAMERCY_JOURNAL", raising=False)
    none = inside("sessions", "show")
    assert none.returncode != 0
    assert "there are no conversations yet" in none.stderr
    journal = open_journal()
    sessions = sessions_of(journal)
    names = [sessions.begin(title) for title in ("Mend the fence", "Paint it")]
    for name in names:
        sessions.add(name, "user", "hello")
    journal.close()
    done = inside("sessions", "show")
    assert (done.returncode, done.stdout.splitlines()[0].partition(",")[0]) == (0, "Paint it")
    assert f"{names[1]} is the latest" in done.stderr


@pytest.mark.contract("day.manners.tools-option")
def test_an_agent_that_is_run_without_its_tools_names_the_option(inside, tmp_path):
    """What is missing is known; the person should not have to look it up."""
    (tmp_path / "a.gram").write_text(
        '[greeter:Agent {instruction: "Greet.", model: "Scripted/s.jsonl"} |\n'
        '  [greet:Tool {description: "Greet."} | (name::Text)==>(::String)]\n]\n'
    )
    done = inside("run", "a.gram", "hello")
    assert done.returncode == 3
    assert done.stderr.endswith("--tools FILE.py says where the tools of a.gram are defined\n")


@pytest.mark.contract("day.manners.replay-options")
def test_an_option_that_always_fails_is_not_offered(inside):
    """A replay asks no model, runs all recorded agents, and takes as many turns as were recorded."""
    offered = set(re.findall(r"^  (--[\w-]+)", inside("traces", "replay", "--help").stdout, re.MULTILINE))
    assert {"--tools", "--image", "--policy", "--output"} <= offered
    assert (
        offered & {"--agent", "--model", "--budget", "--session-budget", "--max-turns", "--max-tokens"}
        == set()
    )


def filtered():
    """Return an answer that a filter has broken off."""
    half = {"choices": [{"index": 0, "delta": {"content": "Half an"}}]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "content_filter"}]}
    return stream(half, end, done="[DONE]")


@pytest.mark.contract("day.manners.filtered")
@pytest.mark.parametrize("words", [("run", "hello.gram", "hi"), ("chat", "hello.gram", "--message", "hi")])
def test_an_answer_that_a_filter_broke_off_is_told_and_fails(gramercy, tmp_path, words):
    """Half an answer with status 0 would be taken for the whole by a script."""
    (tmp_path / "hello.gram").write_text(HELLO)
    (tmp_path / "hello.py").write_text(TOOLS.replace("LEVEL", "safe"))
    with Service(filtered()) as service:
        done = gramercy(
            *(*words, "--tools", "hello.py", "--model", "OpenAI/gpt-4o-mini", "--journal", "memory"),
            OPENAI_BASE_URL=f"{service.address}/v1",
            OPENAI_API_KEY="sk-not-a-key",
        )
    assert (done.returncode, done.stdout) == (1, "Half an\n")
    assert "warning: OpenAI/gpt-4o-mini refused or was broken off by its filter" in done.stderr


@pytest.mark.contract("day.manners.missing-extra")
def test_a_provider_that_lacks_only_a_package_is_told_with_what_installs_it(inside, monkeypatch):
    """Advice to fetch a small model misleads a person who has a key."""
    for service in SERVICES:
        monkeypatch.delenv(service.key_variable, raising=False)
        monkeypatch.setenv(service.address_variable, "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://api.example.org/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-key")
    for package in ("httpx", "xllamacpp", "pydantic_ai"):
        # Python's own way to say that a module cannot be imported.
        monkeypatch.setitem(sys.modules, package, None)
    done = inside("models", "list")
    line = next(line for line in done.stdout.splitlines() if line.startswith("OpenAI "))
    assert line.split()[1] == "missing"
    assert line.endswith("to ask it: pip install 'gramercy[agents]'")
    assert "for OpenAI only a package is missing: pip install 'gramercy[agents]'" in done.stderr


ROOT = Path(__file__).resolve().parents[2]
CONSOLE = re.compile(r"^```console.*?^```", re.MULTILINE | re.DOTALL)
# Named on a page, and tried by no test yet: another MCP server with a variable of its own; the slow attack.
UNTRIED = {"--foreign-env", "--attack"}


def every_option():
    """Yield the long names of each option of each command, the spellings of one together."""

    def walk(command):
        yield from ((*each.opts, *each.secondary_opts) for each in command.params if not is_left_out(each))
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                yield from walk(command.get_command(context, name))

    def is_left_out(parameter):
        return (
            not isinstance(parameter, click.Option)
            or parameter.hidden
            or parameter.name in ("help", "version")
        )

    return {tuple(name for name in names if name.startswith("--")) for names in walk(cli)}


@pytest.mark.contract("day.manners.options")
def test_every_option_is_on_a_page_and_in_a_test():
    """The list of all options is made from the parser: it says that there is one, not what it is good for."""
    pages = [file.read_text() for file in (ROOT / "docs").glob("**/*.md") if file.name != "cli.md"]
    written = "\n".join([*pages, (ROOT / "README.md").read_text()])
    tried = "\n".join(
        [*CONSOLE.findall(written), *(file.read_text() for file in (ROOT / "tests").glob("**/*.py"))]
    )
    options = every_option()
    assert len(options) > 100

    def missing(text):
        words = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))
        return {names[0] for names in options if not words & set(names)}

    assert missing(written) == set()
    assert missing(tried.replace(str(UNTRIED), "")) - UNTRIED == set()


@pytest.mark.contract("day.manners.options")
def test_code_is_evaluated_in_the_package_that_is_named(gramercy):
    """`eval --package`."""
    done = gramercy("eval", "--language", "python", "--package", "json", "dumps([1])")
    assert (done.returncode, done.stdout) == (0, "'[1]'\n")


@pytest.mark.contract("day.manners.options")
def test_what_an_image_may_do_is_shown_as_it_was_asked_for(inside):
    """`config show --network --debug-quality`."""
    shown = inside("config", "show", "--network", "open", "--debug-quality", "2").stdout
    assert re.search(r"network\W+open", shown)
    assert re.search(r"debug.quality\W+2", shown)


@pytest.mark.contract("day.manners.options")
def test_calls_are_counted_by_day_and_found_by_who_made_them(inside, tmp_path, monkeypatch):
    """`tools stats --by-day`, `audit show --principal`, `policy try --days`."""
    from gramercy.journal.base import NewCall, State
    from gramercy.journal.opening import open_journal

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("GRAMERCY_JOURNAL", raising=False)
    journal = open_journal()
    for name, principal in (("read_file", "ada"), ("write_file", "ben")):
        journal.note(NewCall("1", name, "safe", {}, principal), State.DONE)
    journal.close()
    assert re.search(r"20\d\d-\d\d-\d\d", inside("tools", "stats", "--by-day").stdout)
    shown = inside("audit", "show", "--principal", "ada").stdout
    assert "read_file" in shown
    assert "write_file" not in shown
    assert inside("policy", "try", "--days", "1").returncode == 0


@pytest.mark.contract("day.manners.options")
@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--max-calls", "1", "calls"),
        ("--max-seconds", "0.000001", "seconds"),
        ("--session-budget", "1", ""),
    ],
)
def test_a_run_is_bounded_as_the_options_say(gramercy, tmp_path, option, value, says):
    """Each bound ends a run that goes beyond it, and no other."""
    (tmp_path / "hello.gram").write_text(HELLO)
    (tmp_path / "hello.py").write_text(TOOLS.replace("LEVEL", "safe"))
    answers = [GREETING, GREETING, "Hello, Ada!"]
    (tmp_path / "script.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in answers))
    done = gramercy("run", "hello.gram", "hi", "--tools", "hello.py", "--journal", "memory", option, value)
    if says:
        assert done.returncode == 1
        assert says in done.stderr
    else:
        assert (done.returncode, done.stdout) == (0, "Hello, Ada!\n")


def reached(url, **headers):
    """Send a request that a server answers only to callers whom it knows; return the status."""
    place = urlsplit(url)
    wire = HTTPConnection(place.hostname, place.port, timeout=BOUND)
    wire.request("POST", place.path, b"{}", {"Content-Type": "application/json", **headers})
    status = wire.getresponse().status
    wire.close()
    return status


@pytest.mark.contract("day.manners.options")
def test_a_server_is_reached_under_the_names_and_from_the_pages_that_are_allowed(terminal):
    """`serve --allow-host --allow-origin`: all others are refused, so that no page of the web can call."""
    words = ("--allow-host", "garden.example", "--allow-origin", "https://garden.example")
    opened = terminal("serve", "--http", "127.0.0.1:0", "--no-auth", *words)
    opened.expect("http://")
    url = f"http://{opened.expect('/mcp')}/mcp"
    assert (
        reached(url) == reached(url, Host="garden.example") == reached(url, Origin="https://garden.example")
    )
    assert reached(url, Host="evil.example") in (403, 421)
    assert reached(url, Origin="https://evil.example") == 403


@pytest.mark.contract("day.manners.options")
def test_a_caller_may_choose_a_time_limit_where_the_server_allows_one(tmp_path):
    """`serve --max-timeout`."""
    command = [sys.executable, "-m", "gramercy", "serve", "--image", "python", "--max-timeout", "90"]
    begin = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    }
    sent = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    lines = "".join(f"{json.dumps(each)}\n" for each in sent)
    done = subprocess.run(
        command, input=lines, capture_output=True, text=True, timeout=BOUND, check=False, cwd=tmp_path
    )
    answer = next(each for each in map(json.loads, done.stdout.splitlines()) if each.get("id") == 2)
    tools = {tool["name"]: tool["inputSchema"]["properties"] for tool in answer["result"]["tools"]}
    assert tools["evaluate-python"]["timeout"]["maximum"] == 90
