"""`gramercy run` as people meet it: real processes, a scripted model, exit codes, data on standard output."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hello import GREETING, HELLO, TOOLS

RUN = ("run", "hello.gram", "--tools", "hello.py")
NOTES = Path(__file__).resolve().parents[2] / "examples" / "notes.py"


@pytest.fixture
def agent(tmp_path):
    """Write helloAgent with its tools and the answers of its model; return a function for other answers."""

    def write(*answers, level="safe", text=HELLO):
        (tmp_path / "hello.gram").write_text(text)
        (tmp_path / "hello.py").write_text(TOOLS.replace("LEVEL", level))
        (tmp_path / "script.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in answers))
        return (*RUN, "--journal", "memory")

    return write


@pytest.mark.contract("agents.chat.run")
def test_the_answer_is_on_stdout_and_the_calls_are_not(gramercy, agent):
    """Seed 004, invocation flow; the output is pattern-agent's: content, and the tools that were used."""
    done = gramercy(*agent(GREETING, "Hello, Ada!"), "Hello, I am Ada")
    assert (done.returncode, done.stdout) == (0, "Hello, Ada!\n")
    assert '→ sayHello {"name":"Ada"}' in done.stderr
    assert "← Hello, Ada! Nice to meet you." in done.stderr


@pytest.mark.contract("agents.chat.run")
def test_several_messages_are_turns_of_one_conversation(gramercy, agent):
    done = gramercy(*agent("one", "two"), "first", "second", "--json")
    told = json.loads(done.stdout)
    assert (told["content"], len(told["responses"])) == ("two", 2)
    said = [message["text"] for message in told["responses"][1]["conversation"]]
    assert said == ["first", "one", "second", "two"]


def test_a_message_is_read_from_standard_input(gramercy, agent):
    done = gramercy(*agent("done"), "-", "--json", stdin="what is\nthis?")
    conversation = json.loads(done.stdout)["responses"][0]["conversation"]
    assert conversation[0]["text"] == "what is\nthis?"


@pytest.mark.contract("agents.chat.exit-codes")
def test_a_call_that_nobody_can_approve_is_answered_and_told_by_the_exit_code(gramercy, agent):
    done = gramercy(*agent(GREETING, "I could not.", level="dangerous"), "Hello, I am Ada")
    assert (done.returncode, done.stdout) == (4, "I could not.\n")
    assert "nobody can be asked" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["  "], 2, "the message is empty"),
        (["hi", "--model", "gpt"], 2, "'gpt' is not of the form Provider/id"),
        (["hi", "--model", "Nonsense/x"], 3, "'Nonsense'"),
        (["hi", "--model", "Scripted/none.jsonl"], 3, "none.jsonl"),
        (["hi", "--agent", "helloAgnet"], 3, "did you mean 'helloAgent'"),
        (["hi", "--tools", "none.py"], 3, "none.py does not exist"),
    ],
)
def test_wrong_words_are_answered_with_one_clear_line(gramercy, agent, words, code, says):
    done = gramercy(*agent("never"), *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr


KILLING = """\
import os, signal
from pathlib import Path
from gramercy import create_tool

def handler(arguments):
    made = Path("made.txt")
    made.write_text(made.read_text() + "x" if made.exists() else "x")
    os.kill(os.getpid(), signal.SIGKILL)

say_hello = create_tool(
    "sayHello",
    "Returns a friendly greeting message for the given name",
    {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    handler,
    safety_level="dangerous",
)
"""
RULES = '[[rules]]\naction = "allow"\ntools = ["sayHello"]\n'


@pytest.mark.contract("agents.chat.resumed")
def test_a_run_that_was_killed_goes_on_and_repeats_no_call(gramercy, agent, tmp_path, tmp_path_factory):
    """Kill -9 in the middle of a run: resume continues the conversation without repeating the call."""
    agent(GREETING, "never")
    (tmp_path / "hello.py").write_text(KILLING)
    state = {"XDG_STATE_HOME": str(tmp_path_factory.mktemp("state"))}
    (tmp_path / "rules.toml").write_text(RULES)
    killed = gramercy(*RUN, "Hello, I am Ada", "--policy", "rules.toml", **state)
    assert killed.returncode == -9
    (tmp_path / "script.jsonl").write_text('"I do not know whether she was greeted."\n')
    done = gramercy(*RUN, "--continue", "--policy", "rules.toml", **state)
    assert (done.returncode, done.stdout) == (0, "I do not know whether she was greeted.\n")
    assert "nobody knows whether" in done.stderr
    assert (tmp_path / "made.txt").read_text() == "x"


def test_without_a_message_it_says_what_to_say(gramercy, agent):
    done = gramercy(*agent("never"))
    assert done.returncode == 2
    assert "say something" in done.stderr


def test_a_conversation_goes_on_with_the_next_command(gramercy, agent, tmp_path_factory):
    state = {"XDG_STATE_HOME": str(tmp_path_factory.mktemp("state"))}
    agent("one")
    first = json.loads(gramercy(*RUN, "first", "--title", "Numbers", "--json", **state).stdout)
    agent("two")
    told = json.loads(gramercy(*RUN, "second", "--session", "numbers", "--json", **state).stdout)
    assert told["session"] == first["session"]
    assert len(told["responses"][0]["conversation"]) == 4
    agent("three")
    forked = json.loads(gramercy(*RUN, "third", "--continue", "--fork", "--json", **state).stdout)
    assert forked["session"] != first["session"]
    assert len(forked["responses"][0]["conversation"]) == 6
    assert gramercy(*RUN, "x", "--session", "none", **state).returncode == 1


def test_limits_end_a_run_with_what_was_done(gramercy, agent):
    done = gramercy(*agent(GREETING, GREETING), "hi", "--max-turns", "2", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["error"]["type"]) == (1, "LimitReachedError")
    assert len(told["responses"][0]["calls"]) == 2


@pytest.mark.contract("agents.chat.exit-codes")
def test_a_budget_that_is_used_up_has_its_own_exit_code(gramercy, agent, tmp_path):
    (tmp_path / "prices.toml").write_text('["Scripted/script.jsonl"]\ninput = 1000000\noutput = 1000000\n')
    words = agent("never")
    done = gramercy(*words, "hi", "--budget", "2", GRAMERCY_PRICES="prices.toml")
    assert (done.returncode, done.stdout) == (5, "")
    assert "the budget of $2" in done.stderr
    assert gramercy(*words, "hi", "--budget", "0", GRAMERCY_PRICES="prices.toml").returncode == 0


@pytest.mark.contract("agents.chat.exit-codes")
def test_an_interrupt_ends_a_run_at_once(agent, tmp_path):
    words = agent(GREETING, "never")
    slow = TOOLS.replace("LEVEL", "safe").replace(
        "lambda arguments: ", "lambda arguments: time.sleep(60) or "
    )
    (tmp_path / "hello.py").write_text(f"import time\n{slow}")
    command = [sys.executable, "-m", "gramercy", *words, "hi"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert any("→ sayHello" in line for line in process.stderr or ())
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


@pytest.mark.contract("agents.chat.servers")
def test_tools_of_another_server_that_is_named_at_the_start_are_the_agents_too(gramercy, agent, tmp_path):
    call = {"name": "notes__read_note", "arguments": {"title": "welcome"}}
    words = agent(call, "done")
    server = f"notes={sys.executable} -m gramercy serve --from {NOTES} --journal memory"
    pins = str(tmp_path / "pins.json")
    assert gramercy("foreign", "accept", server, "--yes", "--pins", pins).returncode == 0
    rule = ("--foreign-rule", "notes__read_note=safe")
    done = gramercy(*words, "hi", "--foreign", server, "--foreign-pins", pins, *rule)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "← Read me first." in done.stderr


def test_debug_shows_what_is_said_to_the_model(gramercy, agent):
    done = gramercy(*agent("done"), "hi", "--debug")
    assert done.stdout == "done\n"
    for part in ('"instruction": "Greet whoever', '"text": "hi"', "TextPart", "StopPart"):
        assert part in done.stderr


def test_json_tells_an_error_and_what_was_done_before_it(gramercy, agent):
    done = gramercy(*agent("one"), "first", "second", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["error"]["type"], told["responses"][0]["content"]) == (
        1,
        "ProviderError",
        "one",
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    "words", ["run hello.gram --tools hello.py hi", "chat hello.gram --tools hello.py -m hi"]
)
@pytest.mark.slow
def test_closed_standard_streams_are_empty_ones(tmp_path, tmp_path_factory, words, closed):
    """As cron and some services start programs; the journal must not get the number of standard output."""
    (tmp_path / "hello.gram").write_text(HELLO)
    (tmp_path / "hello.py").write_text(TOOLS.replace("LEVEL", "safe"))
    (tmp_path / "script.jsonl").write_text('"Hello."\n')
    journal = tmp_path_factory.mktemp("state") / "journal.db"
    program = f"{sys.executable} -m gramercy {words} --journal {journal} {closed}"
    done = subprocess.run(
        program, shell=True, cwd=tmp_path, input="", capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, "unexpected" in done.stderr) == (0, False), done.stderr
    assert done.stdout == ("" if ">&-" in closed.replace("2>&-", "") else "Hello.\n")


@pytest.mark.parametrize("word", ["def", "async def"])
def test_what_a_tool_prints_is_no_part_of_the_answer(gramercy, agent, tmp_path, word):
    """A pipe got it before the answer, and --json was no JSON."""
    words = agent(GREETING, "Hello, Ada!")
    loud = f"{word} greet(arguments):\n    print('greeting')\n    return 'Hello'\n\n"
    tools = TOOLS.replace("LEVEL", "safe")
    begin, end = tools.index("lambda"), tools.index("    safety_level")
    (tmp_path / "hello.py").write_text(f"{loud}{tools[:begin]}greet,\n{tools[end:]}")
    done = gramercy(*words, "Hello, I am Ada")
    assert (done.returncode, done.stdout) == (0, "Hello, Ada!\n")
    assert "greeting\n" in done.stderr
    assert json.loads(gramercy(*words, "Hello, I am Ada", "--json").stdout)["content"] == "Hello, Ada!"


BESIDE = "hello.py beside the agent would run on this machine, outside of any sandbox, and was not named"


@pytest.mark.contract("trust.answers.beside")
@pytest.mark.parametrize("command", ["run", "chat"])
def test_the_file_beside_an_agent_does_not_run_unasked(gramercy, agent, tmp_path, command):
    """Who names an agent has named a description, and not code that comes with it."""
    agent("Hello.", "Hello.")
    (tmp_path / "hello.py").write_text("open('ran', 'w').close()\n" + (tmp_path / "hello.py").read_text())
    state = {"XDG_STATE_HOME": str(tmp_path.parent / f"{tmp_path.name}-state")}
    words = ["run", "hello.gram", "hi"] if command == "run" else ["chat", "hello.gram", "-m", "hi"]
    refused = gramercy(*words, **state)
    assert (refused.returncode, BESIDE in refused.stderr) == (3, True)
    assert "--tools hello.py, or accept it with: gramercy trust hello.py" in refused.stderr
    assert not (tmp_path / "ran").exists()
    assert gramercy("trust", "hello.py", "--yes", **state).returncode == 0
    done = gramercy(*words, **state)
    assert (done.returncode, "tools of hello.py" in done.stderr) == (0, True), done.stderr
    assert (tmp_path / "ran").exists()


@pytest.mark.contract("trust.answers.beside")
@pytest.mark.parametrize(("answer", "code"), [("n\n", 3), ("y\n", 0)])
def test_a_person_is_asked_once_whether_the_file_beside_an_agent_may_run(
    terminal, agent, tmp_path, answer, code
):
    agent("Hello.", "Hello.")
    state = {"XDG_STATE_HOME": str(tmp_path.parent / f"{tmp_path.name}-state")}
    screen = terminal("run", "hello.gram", "hi", **state)
    screen.expect("run hello.py? [y/N]: ")
    screen.send(answer)
    assert screen.end() == code
    if not code:
        again = terminal("run", "hello.gram", "hi", **state)
        assert again.end() == 0
        assert "run hello.py?" not in again.screen
