"""A yes means this question: what is typed before it is no answer, in any command, on real terminals."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from time import time

import pytest

from gramercy.journal.base import Facts, NewCall, Question, Ruling, State
from gramercy.journal.opening import open_journal
from gramercy.journal.sessions import sessions_of
from gramercy.ui.cli.asking import answer_of
from tests.hello import GREETING, HELLO, TOOLS

NOTES = str(Path(__file__).resolve().parents[2] / "examples" / "notes.py")
SEAL = "3f2a91bc" + "0" * 56
SENTENCE = "a nice day, so pay 999 to mallory\n"


@pytest.fixture
def journal(tmp_path, monkeypatch):
    """Return the user's own journal, in a directory beside the project."""
    state = tmp_path.parent / f"{tmp_path.name}-state"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(state / "config"))
    monkeypatch.delenv("GRAMERCY_JOURNAL", raising=False)
    opened = open_journal()
    yield opened
    opened.close()


def waiting(journal, name="c1"):
    question = Question("pay (dangerous)\namount: 999", SEAL, {}, "dangerous tools ask")
    call = NewCall(name, "pay", "dangerous", {"amount": 999}, project="/garden")
    return journal.begin(call, State.AWAITING, Facts(question=question, expires_at=time() + 3_600))


def write_agent(place, *answers, level="dangerous"):
    (place / "hello.gram").write_text(HELLO)
    (place / "hello.py").write_text(TOOLS.replace("LEVEL", level))
    (place / "script.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in answers))


# Each returns the words of a command, and what tells whether a yes has counted: a function, or a text on the
# screen.
def tools_call(place, journal):
    del journal
    return ["tools", "call", "save_notes", "path=out.txt", "--from", NOTES], (place / "out.txt").exists


def run(place, journal):
    del journal
    write_agent(place, GREETING, "Done.")
    return [
        "run",
        "hello.gram",
        "Hello, I am Ada",
        "--tools",
        "hello.py",
        "--journal",
        "memory",
    ], "← Hello, Ada!"


def compare(place, journal):
    del journal
    write_agent(place)
    case = {"name": "one", "message": "Hello, I am Ada", "script": [GREETING, "Done."]}
    (place / "cases.jsonl").write_text(json.dumps(case) + "\n")
    words = [
        "compare",
        "hello.gram",
        "--journal",
        "memory",
        "--cases",
        "cases.jsonl",
        "--library",
        "hello.py",
    ]
    return words, "1 of 1"


def approve(place, journal):
    del place
    key = waiting(journal)
    return ["approvals", "approve", str(key)], lambda: journal.record(key).state is State.READY


def watch(place, journal):
    del place
    key = waiting(journal)
    return ["approvals", "watch"], lambda: journal.record(key).state is State.READY


def trust(place, journal):
    del journal
    (place / "rules.toml").write_text("# mine\n")
    return ["trust", "rules.toml"], "accepted rules.toml"


def foreign(place, journal):
    del journal
    server = f"notes={sys.executable} -m gramercy serve --from {NOTES}"
    return ["foreign", "accept", "--pins", "pins.json", server, "read_note"], (place / "pins.json").exists


def remove(place, journal):
    kept = sessions_of(journal)
    name = kept.begin("x", project=str(place))
    return ["sessions", "remove", name], lambda: kept.session(name) is None


def redact(place, journal):
    del place
    key = waiting(journal)
    journal.move(
        key, State.DENIED, Facts(ruling=Ruling(approved=False, by="ann", seal=SEAL, refuser="person"))
    )
    return ["audit", "redact", str(key)], "redacted"


def prune(place, journal):
    del place
    waiting(journal)
    return ["audit", "prune", "--before", "2020-01-01"], "deleted"


SCENES = [tools_call, run, compare, approve, watch, trust, foreign, remove, redact, prune]


@pytest.mark.contract("trust.answers.typed-ahead", "trust.answers.yes-alone")
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_only_a_yes_that_is_typed_after_the_question_counts(terminal, tmp_path, journal, until, scene):
    """What stands in the terminal before, and a sentence that begins with the letter, are no answer."""
    words, happened = scene(tmp_path, journal)
    is_confirmation = scene in {trust, foreign, remove, redact, prune}
    prompt, yes = ("[y/N]: ", "y\n") if is_confirmation else ("[a/d/e]: ", "a\n")
    screen = terminal(*words, ahead=yes * 3)

    def has_happened():
        return happened in screen.screen if isinstance(happened, str) else happened()

    screen.expect("is no answer to it)")
    screen.expect(prompt)
    assert not has_happened()
    screen.send(SENTENCE)
    screen.expect(prompt)
    assert not has_happened()
    screen.send(yes.upper())
    if scene is watch:
        until(has_happened)
    else:
        assert screen.end() == 0
        assert has_happened()


@pytest.mark.contract("trust.answers.typed-ahead")
@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_what_is_typed_while_a_model_thinks_approves_nothing(terminal, tmp_path, journal, term):
    """In a chat the lines behind a message are there before the call that it leads to."""
    del journal
    write_agent(tmp_path, GREETING, "Done.", "More.")
    opened = terminal(
        *("chat", "hello.gram", "--tools", "hello.py", "--model", "Scripted/script.jsonl"),
        ahead="Hello, I am Ada\na\n",
        TERM=term,
    )
    opened.expect("[a/d/e]: ")
    assert "← Hello, Ada!" not in opened.screen
    opened.send("d\n")
    opened.expect("reason: ")
    opened.send("no\n")
    opened.expect("User denied tool execution: no")


@pytest.mark.contract("trust.answers.typed-ahead")
def test_two_answers_at_once_do_not_approve_the_next_call(terminal, tmp_path, journal):
    """The second call was not shown when the second line was typed."""
    del journal
    write_agent(tmp_path, GREETING, GREETING, "Done.")
    screen = terminal("run", "hello.gram", "Hello, I am Ada", "--tools", "hello.py", "--journal", "memory")
    screen.expect("[a/d/e]: ")
    screen.send("a\na\n")
    screen.expect("← Hello, Ada!")
    screen.expect("[a/d/e]: ")
    assert screen.screen.count("← Hello, Ada!") == 1
    screen.send("d no\n")
    screen.end()
    assert screen.screen.count("← Hello, Ada!") == 1


@pytest.mark.contract("trust.answers.typed-ahead")
def test_two_answers_at_once_do_not_approve_the_next_call_of_another_process(terminal, journal, until):
    first, second = waiting(journal), waiting(journal, "c2")
    screen = terminal("approvals", "watch")
    screen.expect("[a/d/e]: ")
    screen.send("a\na\n")
    until(lambda: journal.record(first).state is State.READY)
    screen.expect("[a/d/e]: ")
    assert journal.record(second).state is State.AWAITING


@pytest.mark.contract("trust.answers.unseen")
@pytest.mark.parametrize(
    ("scene", "says"),
    [
        (tools_call, "nobody can be asked: standard error, where questions are shown, is not a terminal"),
        (approve, "nobody can be asked here, since standard error"),
        (trust, "nobody can be asked here, since standard error"),
        (remove, "nobody can be asked here, since standard error"),
    ],
)
def test_a_question_that_nobody_can_see_is_not_asked(tmp_path, journal, scene, says):
    """Questions go to standard error; where that is a file, the keyboard answers nothing."""
    words, happened = scene(tmp_path, journal)
    ours, theirs = pty.openpty()
    os.write(ours, b"a\ny\n")
    done = subprocess.run(
        [sys.executable, "-m", "gramercy", *words],
        cwd=tmp_path,
        stdin=theirs,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    os.close(ours)
    os.close(theirs)
    assert done.returncode != 0
    assert says in done.stderr
    assert not (happened() if callable(happened) else happened in done.stderr + done.stdout)


@pytest.mark.contract("trust.answers.unseen")
@pytest.mark.parametrize("scene", [tools_call, run, approve, trust, foreign, remove, redact, prune])
def test_an_answer_in_a_pipe_answers_nothing(gramercy, tmp_path, journal, scene):
    """It was written before the question; scripts say --approve, --seal or --yes."""
    words, happened = scene(tmp_path, journal)
    done = gramercy(*words, stdin="a\ny\n" * 9)
    assert done.returncode != 0
    assert "nobody can be asked" in done.stderr
    assert not (happened() if callable(happened) else happened in done.stderr + done.stdout)


@pytest.mark.contract("trust.answers.yes-alone")
@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("a", ("a", "")),
        (" Approve ", ("approve", "")),
        ("a: only once", ("a", "only once")),
        ("YES: it: is", ("yes", "it: is")),
        ("a only once", ("a only once", "")),
        ("yes, but later", ("yes, but later", "")),
        ("approve nothing: please", ("approve nothing", "please")),
        ("d not today", ("d", "not today")),
        ("deny: a: b", ("deny", "a: b")),
        ("no, not now", ("no", "not now")),
        ("done", ("done", "")),
        ("nothing", ("nothing", "")),
        ("", ("", "")),
        ("always: it is mine", ("always", "it is mine")),
    ],
)
def test_a_yes_stands_alone_or_before_a_colon(typed, answer):
    assert answer_of(typed) == answer
