"""`gramercy compare` and `gramercy traces` as people meet them: real files, exit codes."""

from __future__ import annotations

import html
import json
import os
import signal
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from gramercy.agents.differences import Difference
from gramercy.providers.base import Usage
from gramercy.providers.scripted import ScriptedProvider
from gramercy.ui.cli.traces import MOST_TOLD, told_differences

AGENT = """\
[greeter:Agent {
  instruction: "Greet whoever tells you a name, with the tool say_hello.",
  model: "OpenAI/gpt-4o-mini"
} |
  [say_hello:Tool {description: "Return a greeting for a name."} | (name::Text)==>(::String)]
]
"""
LIBRARY = '''\
from gramercy import tool


@tool(safety_level="LEVEL")
def say_hello(name: str) -> str:
    """Return a greeting for a name."""
    return f"GREETING, {name}!"
'''
CASES = [
    {
        "name": "by name",
        "message": "Hello, I am Ada",
        "script": [{"name": "say_hello", "arguments": {"name": "Ada"}}, "Greeted."],
        "expect": {"results": "Hello, Ada!", "calls": ["say_hello"]},
    },
    {"name": "no name", "message": "Hello", "script": ["Who are you?"], "expect": {"calls": []}},
]
WORDS = ("compare", "greeter.gram", "--journal", "memory", "--cases", "cases.jsonl")
BOTH = (*WORDS, "--library", "plain.py", "--library", "warm=dear.py")


@pytest.fixture(autouse=True)
def files(tmp_path):
    """Write an agent, two libraries and cases with the answers of their model."""
    (tmp_path / "greeter.gram").write_text(AGENT)
    for name, greeting, level in (
        ("plain", "Hello", "safe"),
        ("dear", "My dear", "safe"),
        ("wild", "Hello", "dangerous"),
    ):
        (tmp_path / f"{name}.py").write_text(LIBRARY.replace("GREETING", greeting).replace("LEVEL", level))
    (tmp_path / "cases.jsonl").write_text("".join(f"{json.dumps(case)}\n" for case in CASES))
    return tmp_path


@pytest.mark.contract("agents.compare.terminal")
def test_a_table_tells_successes_times_and_what_differs(inside):
    done = inside(*BOTH, "--repeat", "2")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0].split()[:2] == ["library", "success"]
    assert lines[1].startswith("plain    4 of 4   51% to 100%")
    assert lines[2].startswith("warm     2 of 4")
    assert "by name: plain and warm differ in 2 of 2 runs" in lines
    assert "    - Hello, Ada!" in lines
    assert "    + My dear, Ada!" in lines
    assert "warm, 2 of 2: no call gave 'Hello, Ada!'" in done.stdout
    assert "too few runs to tell it from chance" in done.stdout
    assert "8 runs: 2 cases, 2 sides, 2 times" in done.stderr


def test_a_comparison_in_which_all_is_as_expected_exits_with_0(inside):
    done = inside(*WORDS, "--library", "plain.py", "--library", "again=plain.py")
    assert (done.returncode, "differ" in done.stdout) == (0, False)
    assert "2 of 2 pairs of runs made the same calls" in done.stdout


def test_programs_get_all_of_it(inside):
    done = inside(*BOTH, "--json")
    told = json.loads(done.stdout)
    assert [each["successes"] for each in told["variants"]] == [2, 1]
    assert len(told["runs"]) == 4
    assert told["pairs"][0]["only_one"] == 1


@pytest.mark.contract("agents.compare.unattended")
def test_a_dangerous_tool_is_not_run_where_nobody_can_be_asked(inside):
    done = inside(*WORDS, "--library", "wild.py", "--json")
    (call,) = json.loads(done.stdout)["runs"][0]["trace"]["turns"][0]["calls"]
    assert (done.returncode, call["outcome"]) == (1, "denied")
    assert "asks nobody" in call["result"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ((*WORDS, "--library", "none.py"), 3, "none.py does not exist"),
        ((*WORDS, "--library", "plain.py", "--library", "./plain.py"), 2, "two libraries are named 'plain'"),
        ((*WORDS, "--library", "=plain.py"), 2, "is not [NAME=]FILE.py"),
        ((*WORDS, "--library", "plain.py", "--image", "python"), 2, "keeps state between runs"),
        (("compare", "greeter.gram", "--library", "plain.py", "--cases", "none"), 2, "does not exist"),
        (("compare", "greeter.gram", "--library", "plain.py", "--cases", "plain.py"), 2, "plain.py:1: "),
        (
            ("compare", "greeter.gram", "--library", "plain.py", "--cases", "greeter.gram"),
            1,
            "there is no trace",
        ),
        (("traces", "show", "greeter.gram"), 1, "there is no trace in this text"),
        (("traces", "replay", "greeter.gram", "--model", "OpenAI/x"), 2, "No such option"),
        (("traces", "replay", "greeter.gram", "--max-turns", "2"), 2, "No such option"),
        (
            ("traces", "replay", "greeter.gram", "--memory", "512", "--journal", "memory"),
            2,
            "--memory and --journal: without --tools, --image or --foreign a replay makes no calls",
        ),
        ((*BOTH, "--html", "none/page.html"), 2, "there is no directory none"),
        ((*BOTH, "--traces", "none/runs"), 2, "there is no directory none"),
    ],
)
def test_wrong_words_are_answered_with_a_clear_line(inside, words, code, says):
    done = inside(*words)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr


def test_libraries_that_do_not_fit_are_all_named(inside, files):
    for name in ("plain", "dear"):
        place = files / f"{name}.py"
        place.write_text(place.read_text().replace("Return a greeting for", "Greet by"))
    done = inside(*BOTH)
    assert done.returncode == 3
    assert "with plain:" in done.stderr
    assert "with warm:" in done.stderr
    assert done.stderr.count("A109") == 2


@pytest.mark.contract("agents.compare.replay-cli")
def test_traces_are_shown_compared_and_run_again(inside, files):
    assert inside(*BOTH, "--traces", "runs").returncode == 1
    assert sorted(place.name for place in (files / "runs").iterdir()) == ["plain.gram", "warm.gram"]
    shown = inside("traces", "show", "runs/warm.gram", "--run", "1")
    assert '→ say_hello {"name":"Ada"}\n← My dear, Ada!' in shown.stdout
    assert len(json.loads(inside("traces", "show", "runs/warm.gram", "--json").stdout)) == 2
    different = inside("traces", "diff", "runs/plain.gram", "runs/warm.gram")
    assert (different.returncode, "+ My dear, Ada!" in different.stdout) == (1, True)
    same = inside("traces", "diff", "runs/plain.gram", "runs/plain.gram")
    assert (same.returncode, same.stderr) == (0, "the same calls, results and answers in 2 runs\n")
    again = inside("traces", "replay", "runs/warm.gram")
    assert (again.returncode, again.stdout) == (0, "")
    words = ("traces", "replay", "runs/warm.gram", "--tools", "plain.py", "--journal", "memory")
    other = inside(*words, "--output", "new.gram")
    assert (other.returncode, "- My dear, Ada!" in other.stdout) == (1, True)
    assert inside("traces", "diff", "runs/plain.gram", "new.gram").returncode == 0
    found = json.loads(inside(*words, "--json").stdout)
    assert found["pairs"][0]["differences"][0]["kind"] == "result"
    assert inside("traces", "show", "runs/warm.gram", "--run", "3").returncode == 1


def test_traces_are_cases(inside):
    inside(*BOTH, "--traces", "runs")
    done = inside(
        *("compare", "greeter.gram", "--journal", "memory", "--cases", "runs/plain.gram"),
        *("--library", "plain.py", "--library", "dear.py"),
    )
    assert done.returncode == 0
    assert "case 1: plain and dear differ" in done.stdout


class Page(HTMLParser):
    """Collects the tags of a page, and which of them were not closed in their order."""

    EMPTY = frozenset({"meta", "br", "line", "circle"})

    def __init__(self):
        super().__init__()
        self.tags, self.open, self.attributes, self.wrong = [], [], [], []

    def handle_starttag(self, tag, attrs):
        """Note a tag with its attributes."""
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.EMPTY or tag == "circle":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        """Note a tag that is closed at once."""
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        """Note a tag that does not close the last one."""
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


@pytest.mark.contract("agents.compare.page")
def test_the_page_has_plots_and_loads_nothing_from_elsewhere(inside, files):
    evil = '<script>alert(1)</script>"&'
    case = {"name": evil, "message": evil, "script": [evil], "expect": {"equals": evil + "x"}}
    with (files / "cases.jsonl").open("a") as file:
        file.write(json.dumps(case) + "\n")
    done = inside(*BOTH, "--html", "page.html", "--repeat", "2")
    text = (files / "page.html").read_text()
    page = Page()
    page.feed(text)
    assert (page.open, page.wrong) == ([], [])
    assert page.tags.count("svg") == 3
    assert "script" not in page.tags
    assert {name for name, _ in page.attributes} & {"src", "href", "onload", "onclick", "action"} == set()
    assert "default-src 'none'" in text
    assert "url(" not in text
    assert "plain" in text
    assert "My dear, Ada!" in text
    assert evil not in text
    assert "&lt;script&gt;" in text
    # Every mark of a plot is within it.
    places = [float(value) for name, value in page.attributes if name in ("cx", "x1", "x2")]
    assert places
    assert all(0 <= place <= 760 for place in places)
    sentence = done.stdout.splitlines()[-4]
    assert sentence.startswith("warm succeeds less often")
    assert sentence in html.unescape(text)


@pytest.fixture(name="scripted")
def scripted_fixture(files):
    """Return the words of a run with a model that greets Ada."""
    answers = [{"name": "say_hello", "arguments": {"name": "Ada"}}, "Greeted.", "And now?"]
    (files / "script.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in answers))
    (files / "other.py").write_text(LIBRARY.replace("Return a", "Give a").replace("LEVEL", "safe"))
    words = ("run", "greeter.gram", "--model", "Scripted/script.jsonl", "--journal", "memory")
    return (*words, "--tools", "plain.py")


@pytest.mark.contract("agents.compare.run-trace")
def test_a_run_is_recorded_and_replayed_with_another_library(inside, files, scripted):
    done = inside(*scripted, "--trace", "run.gram", "I am Ada", "Hello again")
    assert (done.returncode, done.stdout) == (0, "Greeted.\nAnd now?\n")
    assert (files / "run.gram").read_text().count(":Trace {") == 2
    assert inside("traces", "replay", "run.gram").returncode == 0
    other = inside("traces", "replay", "run.gram", "--tools", "dear.py", "--journal", "memory")
    assert (other.returncode, "+ My dear, Ada!" in other.stdout) == (1, True)
    assert inside(*scripted, "--trace", "none/run.gram", "I am Ada").returncode == 2
    # The agent is in the file, too.
    again = inside("run", "run.gram", *scripted[2:], "I am Ada")
    assert (again.returncode, again.stdout) == (0, "Greeted.\n")


def test_a_run_that_fails_is_recorded_too(inside, scripted):
    done = inside(*scripted, "--trace", "run.gram", *["I am Ada"] * 4)
    assert done.returncode == 1
    *_, last = json.loads(inside("traces", "show", "run.gram", "--json").stdout)
    assert last["outcome"] == "failed"
    assert "script" in last["error"]


@pytest.mark.contract("agents.compare.run-shadow")
def test_a_shadow_beside_a_run_tells_what_differs_and_changes_nothing(inside, scripted):
    done = inside(*scripted, "--shadow", "dear.py", "I am Ada")
    assert (done.returncode, done.stdout) == (0, "Greeted.\n")
    assert "shadow: 0 of 1 calls alike" in done.stderr
    assert "  - Hello, Ada!\n  + My dear, Ada!\n" in done.stderr
    none = inside(*scripted, "--shadow", "wild.py", "I am Ada")
    assert "shadow: no call compared\nshadow: 1 not: the second say_hello is dangerous" in none.stderr
    other = inside(*scripted, "--shadow", "other.py", "I am Ada")
    assert "warning: no shadow of say_hello: description: specified" in other.stderr
    assert "shadow: 1 not: say_hello has no second implementation" in other.stderr


@pytest.mark.contract("agents.compare.broken-off")
def test_what_was_done_before_ctrl_c_is_reported(files):
    """A comparison may take an hour; nothing that it has found is lost."""
    slow = LIBRARY.replace("GREETING", "Hello").replace("LEVEL", "safe")
    slow = slow.replace("    return", "    import time\n\n    time.sleep(60)\n    return")
    (files / "slow.py").write_text(slow)
    first = {"message": "Hello", "name": "quick", "script": ["Who are you?"]}
    (files / "cases.jsonl").write_text(f"{json.dumps(first)}\n{json.dumps(CASES[0])}\n")
    with subprocess.Popen(
        [sys.executable, "-m", "gramercy", *WORDS, "--library", "slow.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=files,
    ) as process:
        try:
            assert process.stderr is not None
            while "1/2  quick" not in process.stderr.readline():
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            told, said = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "interrupted after 1 of 2 runs" in said
    assert "quick    1 of 1" in told
    assert "by name  0 of 0" in told


@pytest.mark.contract("agents.compare.broken-off")
def test_a_budget_for_all_runs_ends_them(inside, files, monkeypatch):
    (files / "prices.toml").write_text('["Scripted/x"]\ninput = 200.0\noutput = 0.0\n')
    monkeypatch.setenv("GRAMERCY_PRICES", str(files / "prices.toml"))
    monkeypatch.setattr(ScriptedProvider, "load", lambda _: ScriptedProvider(*["yes"] * 9, usage=Usage(1000)))
    (files / "cases.jsonl").write_text("".join(json.dumps({"message": str(n)}) + "\n" for n in range(5)))
    (files / "greeter.gram").write_text(AGENT.replace("OpenAI/gpt-4o-mini", "Scripted/x"))
    done = inside(*WORDS, "--library", "plain.py", "--total-budget", "0.3")
    assert done.returncode == 5
    assert "the budget of 0.3 $ is used up after 2 of 5 runs" in done.stderr
    line = done.stdout.splitlines()[1]
    assert line.startswith("plain    2 of 2")
    assert line.endswith("2,000 + 0  $0.4000")


@pytest.mark.contract("agents.compare.models")
def test_models_are_compared_as_libraries_are(inside, files):
    for name, answer in (("bright", "I am bright."), ("dim", "What?")):
        (files / f"{name}.jsonl").write_text(f"{json.dumps(answer)}\n" * 4)
    (files / "cases.jsonl").write_text(json.dumps({"message": "Hi", "expect": {"contains": "bright"}}) + "\n")
    words = (*WORDS, "--library", "plain.py", "--model", "Scripted/bright.jsonl", "--against")
    done = inside(*words, "Scripted/dim.jsonl", "--traces", "runs")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[1].startswith("plain of Scripted/bright.jsonl  1 of 1")
    assert lines[2].startswith("plain of Scripted/dim.jsonl     0 of 1")
    assert len(list((files / "runs").iterdir())) == 2
    assert inside(*words, "Nonsense/x").returncode == 3
    assert inside(*words, "nonsense").returncode == 2


def test_of_many_differences_the_first_are_told_and_the_others_counted():
    many = [Difference("call", f"call {number}", "", "again {}") for number in range(20)]
    lines = list(told_differences(many))
    assert lines[:2] == ["call 0:", "  + again {}"]
    assert lines[-1] == f"and {20 - MOST_TOLD} more differences: --json has them all"


def test_names_that_are_alike_as_files_get_a_file_each(inside, tmp_path):
    """The traces of `a b` were lost: those of `a_b` took their file."""
    sides = [word for name in ("a b", "a_b", "a:b") for word in ("--library", f"{name}=plain.py")]
    done = inside(*WORDS, *sides, "--traces", "runs")
    assert done.returncode == 0, done.stderr
    assert sorted(each.name for each in (tmp_path / "runs").iterdir()) == [
        "a_b-2.gram",
        "a_b-3.gram",
        "a_b.gram",
    ]


def test_a_place_for_traces_that_cannot_be_had_is_told_before_anything_runs(inside, tmp_path):
    done = inside(*BOTH, "--traces", "/proc/none")
    assert (done.returncode, done.stdout) == (2, "")
    assert "/proc/none cannot be made: No such file or directory" in done.stderr
    os.mkfifo(tmp_path / "pipe")
    for words in (
        ("run", "greeter.gram", "--tools", "plain.py", "hi", "--trace", "pipe"),
        ("traces", "replay", "greeter.gram", "--output", "pipe"),
        ("eval", "1", "--save", "pipe"),
    ):
        done = inside(*words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "pipe is no regular file" in done.stderr
    assert (tmp_path / "pipe").is_fifo()


def test_lines_of_cases_and_scripts_end_at_newlines_alone(inside, tmp_path):
    """U+2028 ended one: JSON may hold it as it is."""
    answer = "Hi\u2028there"
    case = {"message": "Hello\u2028you", "script": [answer], "expect": {"equals": answer}}
    text = json.dumps(case, ensure_ascii=False)
    (tmp_path / "cases.jsonl").write_text(f"\ufeff{text}\r\n", newline="")
    assert inside(*BOTH).returncode == 0
    (tmp_path / "script.jsonl").write_text(f"\ufeff{json.dumps(answer, ensure_ascii=False)}\n")
    done = inside("run", "greeter.gram", "--tools", "plain.py", "--model", "Scripted/script.jsonl", "hi")
    assert (done.returncode, "there" in done.stdout) == (0, True), done.stderr
