"""`gramercy approvals`: another process decides about calls that wait, with or without a terminal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from time import monotonic, thread_time, time

import pytest

from gramercy import Executor, Registry, tool
from gramercy.execution.seal import digest_of_text
from gramercy.journal.base import Facts, NewCall, Question, Ruling, State
from gramercy.journal.opening import open_journal
from gramercy.journal.tables import MOST_PARAMETERS
from gramercy.ui.cli.inbox import code_of, label, waiting_calls, waiting_table
from gramercy.ui.cli.review import person
from gramercy.workbench.configuration import user_file
from gramercy.workbench.control import Control, Desk

BOUND = 60
SEAL = "3f2a91bc" + "0" * 56
TEXT = 'launch (dangerous)\ntarget: "the moon"\nAsked because dangerous tools ask'
SCHEMA = {
    "type": "object",
    "properties": {"target": {"type": "string"}, "speed": {"type": "integer"}},
    "required": ["target"],
}


@pytest.fixture
def journal(tmp_path, monkeypatch):
    """Return the user's own journal, as the command finds it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("GRAMERCY_JOURNAL", raising=False)
    opened = open_journal()
    yield opened
    opened.close()


def ask(journal, seal=SEAL, tool="launch", text=TEXT, effect=None, **arguments):
    """Put a call into the journal that waits for a decision."""
    arguments = arguments or {"target": "the moon"}
    question = Question(text, seal, {}, "dangerous tools ask", effect or {}, (), SCHEMA)
    call = NewCall("c1", tool, "dangerous", arguments, client="claude-code", project="/home/ada/garden")
    return journal.begin(call, State.AWAITING, Facts(question=question, expires_at=time() + 3_600))


def doubtful(journal):
    key = ask(journal)
    journal.move(key, State.READY, Facts(ruling=Ruling(approved=True, by="person", seal=SEAL)))
    fence = journal.claim(key)
    journal.move(key, State.IN_DOUBT, Facts(fence=fence, detail="its process has ended"))
    return key


@pytest.mark.contract("journal.desk.list")
def test_what_waits_is_listed_with_who_asked_and_what_for(inside, journal):
    first, second = ask(journal), ask(journal, target="mars\nand back")
    done = inside("approvals", "list")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["key", "age", "state", "asked", "by", "tool", "what"]
    assert re.fullmatch(rf"{first} +(now|\d s) +waits +claude-code +launch +the moon", lines[1])
    assert lines[2].startswith(str(second))
    assert lines[2].endswith("mars…")
    assert done.stderr == ""


@pytest.mark.usefixtures("journal")
def test_where_nothing_waits_that_is_told(inside):
    done = inside("approvals", "list")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "nothing waits for a decision\n"
    assert json.loads(inside("approvals", "list", "--json").stdout) == []


def test_a_list_for_programs_has_all_that_is_needed_to_decide(inside, journal):
    key = ask(journal)
    [found] = json.loads(inside("approvals", "list", "--json").stdout)
    assert found["key"] == key
    assert (found["state"], found["tool"], found["level"]) == ("awaiting", "launch", "dangerous")
    assert (found["client"], found["project"]) == ("claude-code", "/home/ada/garden")
    assert found["code"] == "3F2A-91BC"
    assert found["expires_at"] > found["asked_at"] > 0


def test_only_the_calls_of_a_project_are_listed_on_request(inside, journal):
    ask(journal)
    assert "launch" in inside("approvals", "list", "--project", "/home/ada/garden").stdout
    assert inside("approvals", "list", "--project", "/elsewhere").stdout == ""
    # As a person types it, in whatever directory.
    typed = os.path.relpath("/home/ada/garden")
    assert "launch" in inside("approvals", "list", "--project", typed).stdout
    assert "launch" in inside("audit", "show", "--project", f"{typed}/").stdout


@pytest.mark.contract("journal.desk.show")
def test_a_call_is_shown_whole_and_the_code_stands_below_it(inside, journal):
    long = "\n".join([TEXT, *(f"| line {number}" for number in range(500))])
    key = ask(journal, text=long)
    done = inside("approvals", "show", str(key))
    assert done.returncode == 0
    head, place, *_ = done.stdout.splitlines()
    assert head.startswith(f"call {key}, asked by claude-code at ")
    assert place == "in /home/ada/garden"
    assert long in done.stdout
    assert done.stdout.splitlines()[-1] == "That is all of it. To approve exactly this: --seal 3F2A-91BC"


def test_a_call_is_shown_to_programs_with_arguments_and_schema(inside, journal):
    key = ask(journal, effect={"would_touch": ["the moon"]})
    found = json.loads(inside("approvals", "show", str(key), "--json").stdout)
    assert found["arguments"] == {"target": "the moon"}
    assert found["effect"] == {"would_touch": ["the moon"]}
    assert found["schema"] == SCHEMA
    assert (found["text"], found["seal"]) == (TEXT, SEAL)


@pytest.mark.usefixtures("journal")
@pytest.mark.parametrize("verb", ["show", "approve", "deny", "edit"])
def test_a_call_that_is_unknown_is_told(inside, verb):
    done = inside("approvals", verb, "4711")
    assert done.returncode == 1
    assert "there is no call 4711 in this journal" in done.stderr


@pytest.mark.contract("journal.desk.approve")
def test_a_call_is_approved_with_the_code_of_what_was_shown(inside, journal):
    key = ask(journal)
    done = inside("approvals", "approve", str(key), "--seal", "3f2a-91bc", "--reason", "go on")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"call {key} is approved; it runs when its caller goes on, or comes back\n"
    record = journal.record(key)
    assert record.state is State.READY
    ruling = record.facts.ruling
    assert (ruling.approved, ruling.by, ruling.seal) == (True, person(), SEAL)
    assert re.fullmatch(r"person at the terminal \(\S+@\S+\)", ruling.by)
    assert (ruling.reason, ruling.shown) == ("go on", digest_of_text(TEXT))


@pytest.mark.contract("journal.desk.seal")
def test_without_a_terminal_nothing_is_approved_without_the_code(inside, journal):
    key = ask(journal)
    done = inside("approvals", "approve", str(key))
    assert done.returncode == 2
    assert "nobody can be asked here" in done.stderr
    done = inside("approvals", "approve", str(key), "--seal", "0000-0000")
    assert done.returncode == 1
    assert f"0000-0000 is not the code of call {key} as it is asked about now" in done.stderr
    assert journal.record(key).state is State.AWAITING


@pytest.mark.contract("journal.desk.seal")
def test_the_code_of_an_earlier_question_approves_nothing(inside, journal):
    key = ask(journal)
    question = Question(TEXT.replace("moon", "sun"), "1" * 64, {}, "asked again")
    journal.move(key, State.AWAITING, Facts(question=question))
    done = inside("approvals", "approve", str(key), "--seal", code_of(SEAL))
    assert done.returncode == 1
    assert journal.record(key).state is State.AWAITING


def test_what_has_expired_is_not_decided_any_more(inside, journal):
    question = Question(TEXT, SEAL, {}, "dangerous tools ask")
    call = NewCall("c1", "launch", "dangerous", {"target": "the moon"})
    key = journal.begin(call, State.AWAITING, Facts(question=question, expires_at=time() - 1))
    assert "expired" in inside("approvals").stdout
    done = inside("approvals", "approve", str(key), "--seal", code_of(SEAL))
    assert done.returncode == 1
    assert f"call {key} could be decided until " in done.stderr
    assert journal.record(key).state is State.AWAITING


def test_a_call_that_is_over_is_shown_with_who_decided_and_what_came_of_it(inside, journal):
    key = doubtful(journal)
    inside("approvals", "resolve", str(key), "done", "--reason", "I looked")
    *_, ruling, standing, detail = inside("approvals", "show", str(key)).stdout.splitlines()
    assert ruling == f"approved by {person()}: I looked"
    assert standing.startswith(f"call {key} is done since ")
    assert detail == f"{person()} says that it happened: I looked"


def test_a_call_is_denied_with_the_reason_that_the_model_reads(inside, journal):
    key = ask(journal)
    done = inside("approvals", "deny", str(key), "--reason", "not on a Friday", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["state"] == "denied"
    ruling = journal.record(key).facts.ruling
    assert (ruling.approved, ruling.reason, ruling.by) == (False, "not on a Friday", person())


@pytest.mark.contract("journal.desk.race")
def test_who_decides_second_is_told_who_was_first(inside, journal):
    key = ask(journal)
    inside("approvals", "deny", str(key), "--reason", "no")
    done = inside("approvals", "approve", str(key), "--seal", code_of(SEAL))
    assert done.returncode == 1
    assert f"call {key} was denied by {person()} at " in done.stderr


@pytest.mark.contract("journal.desk.race")
def test_of_several_processes_that_decide_exactly_one_wins(gramercy, journal):
    key = ask(journal)
    words = [("approve", "--seal", code_of(SEAL)), ("deny",)] * 2
    ended = []
    threads = [
        threading.Thread(target=lambda w=w: ended.append(gramercy("approvals", w[0], str(key), *w[1:])))
        for w in words
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    assert sorted(done.returncode for done in ended) == [0, 1, 1, 1]
    assert all(f"call {key} " in done.stdout + done.stderr for done in ended)
    assert len(journal.entries(key)) == 3


def test_edited_arguments_are_held_against_the_schema_where_no_process_serves_the_tool(inside, journal):
    key = ask(journal)
    code = code_of(SEAL)
    done = inside("approvals", "edit", str(key), "--arguments", '{"target": 5}', "--seal", code)
    assert done.returncode == 1
    assert "target" in done.stderr
    assert journal.record(key).state is State.AWAITING
    done = inside("approvals", "edit", str(key), "--arguments", '{"target": "mars"}', "--seal", code)
    assert done.returncode == 0
    assert journal.record(key).facts.ruling.arguments == {"target": "mars"}


def test_an_edit_needs_a_terminal_or_the_arguments_and_the_code(inside, journal):
    key = ask(journal)
    assert inside("approvals", "edit", str(key)).returncode == 2
    assert inside("approvals", "edit", str(key), "--arguments", "{}").returncode == 2
    assert journal.record(key).state is State.AWAITING


@pytest.mark.contract("journal.desk.resolve")
@pytest.mark.parametrize(("word", "state"), [("done", State.DONE), ("failed", State.FAILED)])
def test_a_person_says_what_became_of_a_call_in_doubt(inside, journal, word, state):
    key = doubtful(journal)
    assert "in doubt" in inside("approvals", "list").stdout
    assert inside("approvals", "resolve", str(key), word).returncode == 2
    done = inside("approvals", "resolve", str(key), word, "--reason", "I looked")
    assert done.returncode == 0
    record = journal.record(key)
    assert record.state is state
    assert "I looked" in record.facts.detail


@pytest.mark.contract("journal.desk.resolve")
def test_a_call_whose_process_is_gone_is_in_doubt_before_a_server_has_looked(inside, journal):
    other = open_journal(journal.path)
    key = other.begin(NewCall("1", "pay", "dangerous", {}), State.EXECUTING)
    assert "pay" not in inside("approvals", "list").stdout
    other.close()
    assert "in doubt" in inside("approvals", "list").stdout
    done = inside("approvals", "resolve", str(key), "failed", "--reason", "not on the statement")
    assert (done.returncode, journal.record(key).state) == (0, State.FAILED)


def test_what_is_not_in_doubt_is_not_resolved(inside, journal):
    key = ask(journal)
    done = inside("approvals", "resolve", str(key), "done", "--reason", "because")
    assert done.returncode == 1
    assert journal.record(key).state is State.AWAITING


@pytest.mark.usefixtures("journal")
def test_what_waits_in_another_journal_is_found_there(inside, tmp_path):
    other = open_journal(tmp_path / "other.db")
    ask(other)
    other.close()
    assert "launch" in inside("approvals", "list", "--journal", str(tmp_path / "other.db")).stdout
    assert inside("approvals", "list").stdout == ""


@pytest.mark.usefixtures("journal")
def test_what_the_user_has_configured_is_where_is_looked(inside, tmp_path, monkeypatch):
    other = open_journal(tmp_path / "other.db")
    ask(other)
    other.close()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    user_file().parent.mkdir(parents=True)
    user_file().write_text(f'journal = "{tmp_path / "other.db"}"\n')
    assert "launch" in inside("approvals", "list").stdout
    # A file of the project has no say in it.
    user_file().unlink()
    (tmp_path / "gramercy.toml").write_text(f'journal = "{tmp_path / "other.db"}"\n')
    assert inside("approvals", "list").stdout == ""


@pytest.mark.contract("journal.desk.terminal")
@pytest.mark.parametrize(
    ("typed", "told", "code"),
    [("a: fine\n", "is approved;", 0), ("d not today\n", "was denied", 4)],
)
def test_a_person_at_another_terminal_sees_all_of_a_call_and_decides(terminal, journal, typed, told, code):
    key = ask(journal)
    screen = terminal("approvals", "approve", str(key))
    screen.expect(TEXT)
    screen.expect("approve, deny or edit? [a/d/e]: ")
    screen.send(typed)
    screen.expect(f"call {key} {told} ")
    assert screen.end() == code
    assert journal.record(key).state is (State.DENIED if code else State.READY)


@pytest.mark.contract("journal.desk.withdrawn")
def test_a_question_at_the_terminal_is_withdrawn_when_another_decides(terminal, journal, inside):
    key = ask(journal)
    screen = terminal("approvals", "approve", str(key))
    screen.expect("[a/d/e]: ")
    inside("approvals", "deny", str(key), "--reason", "no")
    screen.expect("it was decided elsewhere")
    screen.expect(f"call {key} was denied by person at the terminal")
    assert screen.end() == 4


@tool(safety_level="dangerous", edits=("before", "after"))
def rewrite(path: str, before: str, after: str) -> str:
    """Change a text."""
    return f"{path}: {before} -> {after}"


BEFORE = "".join(f"line {number}\n" for number in range(30))
AFTER = BEFORE.replace("line 2\n", "line two\n").replace("line 20\n", "line twenty\n")


@pytest.fixture
def edit(journal):
    """Serve a tool that changes texts; return the key of a call of it that waits."""
    executor = Executor(Registry([rewrite]), journal=journal)
    control = Control(journal.run_directory, Desk(executor, list, lambda: "/home/ada/garden").operations())
    arguments = {"path": "a", "before": BEFORE, "after": AFTER}
    yield ask(journal, tool="rewrite", effect={"difference": "--- a\n+++ b\n"}, **arguments)
    control.close()


@pytest.mark.contract("journal.desk.hunks")
def test_hunks_are_picked_at_another_terminal(terminal, journal, edit):
    screen = terminal("approvals", "approve", str(edit))
    screen.expect("approve, deny, edit or hunks? [a/d/e/h]: ")
    screen.send("h\n")
    screen.expect("+line two")
    screen.expect("[n p a r SPC A K v q ?] ")
    screen.send("r\n")
    screen.expect("+line twenty")
    screen.expect("[n p a r SPC A K v q ?] ")
    screen.send("a\n")
    screen.expect("1/2 accepted, 1 rejected")
    screen.expect("[n p a r SPC A K v q ?] ")
    screen.send("q\n")
    screen.expect("reason for the rejected ones: ")
    screen.send("keep two\n")
    assert screen.end() == 0
    ruling = journal.record(edit).facts.ruling
    assert ruling.arguments["after"] == BEFORE.replace("line 20\n", "line twenty\n")
    assert "rejected hunk 1 (keep two)" in ruling.note


@pytest.mark.contract("journal.desk.hunks")
def test_hunks_are_picked_without_a_terminal(inside, journal, edit):
    done = inside("approvals", "approve", str(edit), "--seal", code_of(SEAL), "--hunks", "1,2,9")
    assert done.returncode == 1
    assert "there is no hunk 9" in done.stderr
    assert inside("approvals", "approve", str(edit), "--seal", code_of(SEAL), "--hunks", "x").returncode == 2
    done = inside("approvals", "approve", str(edit), "--seal", code_of(SEAL), "--hunks", "1")
    assert done.returncode == 0
    assert journal.record(edit).facts.ruling.arguments["after"] == BEFORE.replace("line 2\n", "line two\n")


def test_hunks_are_shown_by_their_numbers(inside, edit):
    done = inside("approvals", "show", str(edit), "--hunks")
    assert done.returncode == 0
    assert done.stdout.startswith("@@ hunk 1, line 3 @@\n-line 2\n+line two\n@@ hunk 2, line 21 @@\n")
    found = json.loads(inside("approvals", "show", str(edit), "--hunks", "--json").stdout)
    assert [each["number"] for each in found] == [1, 2]


def test_without_its_process_the_hunks_of_a_call_cannot_be_had(inside, journal):
    key = ask(journal)
    done = inside("approvals", "show", str(key), "--hunks")
    assert done.returncode == 1
    assert "no process that serves it is running" in done.stderr


def test_a_server_refuses_edited_arguments_before_anything_is_decided(inside, journal, edit):
    words = ["--arguments", '{"path": "b"}', "--seal", code_of(SEAL)]
    done = inside("approvals", "edit", str(edit), *words)
    assert done.returncode == 1
    assert "the edited arguments cannot be used" in done.stderr
    assert journal.record(edit).state is State.AWAITING


@pytest.fixture
def watching():
    """Follow what waits, in another process; what a test leaves is ended."""
    started = []

    def start(*words):
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "gramercy", "approvals", "watch", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        )
        return started[-1].stdout

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=BOUND)


@pytest.mark.contract("journal.desk.watch")
def test_who_watches_is_told_of_questions_and_decisions_at_once(watching, journal):
    first = ask(journal)
    told = watching()
    assert told.readline() == f"call {first} waits: launch the moon\n"
    began = monotonic()
    second = ask(journal, target="mars")
    assert told.readline() == f"call {second} waits: launch mars\n"
    journal.move(second, State.DENIED)
    assert told.readline().startswith(f"call {second} is denied since ")
    assert monotonic() - began < BOUND


def test_a_program_that_watches_gets_all_that_waits_after_each_change(watching, journal):
    told = watching("--json")
    assert json.loads(told.readline()) == {"pending": []}
    key = ask(journal)
    assert [each["key"] for each in json.loads(told.readline())["pending"]] == [key]
    journal.move(key, State.DENIED)
    assert json.loads(told.readline()) == {"pending": []}


def test_questions_are_asked_at_the_terminal_as_they_come(terminal, journal):
    screen = terminal("approvals", "watch")
    screen.expect("waiting for questions; Ctrl-C ends")
    key = ask(journal)
    screen.expect(TEXT)
    screen.expect("[a/d/e]: ")
    screen.send("a\n")
    screen.expect(f"call {key} is approved;")
    screen.send("\x03")
    assert screen.end() == 130


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"code": "(defun area (x)\n  (* x x))"}, "(defun area (x)…"),
        ({"count": 3, "flag": True}, '{"count":3,"flag":true}'),
        ({"path": "a\u202eb"}, "a⟦U+202E⟧b"),
        ({"header": "Authorization: Bearer abcdefghijklmnop"}, "Authorization: Bearer …"),
        ({"code": "x" * 100}, "x" * 60 + "…"),
        ({}, "{}"),
    ],
)
def test_a_call_is_told_in_few_words_by_its_first_text(arguments, text):
    assert label(arguments) == text


def _fill(journal, calls):
    text = "\n".join([TEXT, *("+ a line of the difference" for _ in range(40))])
    for number in range(calls):
        ask(journal, f"{number:064x}", text=text, path=f"a{number}.txt", content="line\n" * 40)


def _listing(journal, calls):
    """Return how many statements one listing takes, and the best of its CPU times."""
    statements: list[str] = []
    took = []
    journal._connection.set_trace_callback(statements.append)
    assert waiting_table(waiting_calls(journal)).count("\n") == calls
    journal._connection.set_trace_callback(None)
    for _ in range(3):
        began = thread_time()
        waiting_table(waiting_calls(journal))
        took.append(thread_time() - began)
    return len(statements), min(took)


@pytest.mark.contract("journal.desk.list-speed")
def test_no_call_that_is_listed_costs_a_statement_of_its_own(journal):
    """Five hundred are read by one. The figure itself is a target of the benchmark of the journal.

    Ten times the calls take ten times as long, on a busy machine up to twice that; the square is a hundred.
    """
    _fill(journal, 100)
    few, short = _listing(journal, 100)
    _fill(journal, 900)
    many, long = _listing(journal, 1_000)
    assert few <= 3
    assert many <= few + 1_000 // MOST_PARAMETERS - 1
    assert long <= 30 * short
