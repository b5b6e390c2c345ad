"""Always allow this, by a person at a terminal: what is offered, what is told, and what is written."""

from __future__ import annotations

import tomllib
from pathlib import Path
from time import time

import pytest

from gramercy.execution.approval import Approved
from gramercy.journal.base import Facts, NewCall, Question, Ruling, State
from gramercy.journal.opening import open_journal
from gramercy.tools.definition import create_tool
from gramercy.toolsets import hunks
from gramercy.ui.cli.always import Always
from gramercy.ui.cli.approval import Screen, pick_hunks, read_answer
from gramercy.workbench.policies import read_policies, user_policy_file

ROOT = Path(__file__).resolve().parents[2]
SEAL = "3f2a91bc" + "0" * 56
CODE = "3F2A-91BC"
SAVE = create_tool("save_notes", "Save.", {"type": "object"}, dict, safety_level="dangerous")


@pytest.fixture(name="journal")
def journal_fixture(tmp_path, monkeypatch):
    """Return the user's own journal, beside rules of the user that a test may write."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("GRAMERCY_JOURNAL", raising=False)
    (tmp_path / "garden").mkdir()
    (tmp_path / "notes").mkdir()
    opened = open_journal()
    yield opened
    opened.close()


def ask(journal, project, path="notes/a.md", ruling=None):
    question = Question("save_notes (dangerous)", SEAL, {}, "dangerous tools ask")
    call = NewCall("c1", "save_notes", "dangerous", {"path": path}, project=str(project))
    key = journal.begin(call, State.AWAITING, Facts(question=question, expires_at=time() + 3_600))
    if ruling is not None:
        journal.move(key, State.READY if ruling.approved else State.DENIED, Facts(ruling=ruling))
    return key


def verdict(project, path):
    return read_policies(project).policy.why(SAVE, {"path": path}).action


YES = Ruling(approved=True, by="ann", seal=SEAL)
NO = Ruling(approved=False, by="ann", seal=SEAL, refuser="person")


@pytest.mark.contract("journal.policy.always")
def test_a_call_is_approved_and_a_rule_written_with_one_command(inside, journal, tmp_path):
    project = tmp_path / "garden"
    key = ask(journal, project)
    done = inside("approvals", "approve", str(key), "--seal", CODE, "--always", "directory")
    assert done.returncode == 0, done.stderr
    assert journal.record(key).state is State.READY
    assert f"{user_policy_file()}:3 says from now on: " in done.stderr
    assert [verdict(project, path) for path in ("notes/b.md", "b.md")] == ["allow", "ask"]
    assert verdict(tmp_path, "notes/b.md") == "ask"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--always", "path"), "--always goes with --seal CODE"),
        (("--seal", CODE, "--always", "arguments"), "there are path, directory, tool"),
    ],
)
def test_what_cannot_be_allowed_is_told_and_nothing_decided(inside, journal, tmp_path, options, told):
    key = ask(journal, tmp_path / "garden")
    done = inside("approvals", "approve", str(key), *options)
    assert (done.returncode, told in done.stderr) == (2, True)
    assert journal.record(key).state is State.AWAITING
    assert not user_policy_file().exists()


@pytest.mark.contract("journal.policy.always-past")
def test_the_person_is_told_what_each_rule_would_have_let_through(terminal, journal, tmp_path):
    project = tmp_path / "garden"
    ask(journal, project, "notes/b.md", YES)
    denied = ask(journal, project, "notes/c.md", NO)
    key = ask(journal, project)
    screen = terminal("approvals", "approve", str(key))
    screen.expect("always: approve it, and write a rule")
    screen.expect("[a/d/e]: ")
    screen.send("always\n")
    screen.expect("Enter: none of them]: ")
    assert "1  save_notes where path is notes/a.md\n     it would have let through 0 of 2" in screen.screen
    assert "2  save_notes where path is notes/**\n     it would have let through 2 of 2" in screen.screen
    assert f"(denied: call {denied})" in screen.screen.replace("\n", "")
    screen.send("2\n")
    assert screen.end() == 0
    assert journal.record(key).facts.ruling.reason == f"(always, by {user_policy_file()}:3)"
    assert verdict(project, "notes/z.md") == "allow"


def test_who_chooses_none_of_them_is_asked_again(terminal, journal, tmp_path):
    key = ask(journal, tmp_path / "garden")
    screen = terminal("approvals", "approve", str(key))
    screen.expect("[a/d/e]: ")
    screen.send("always\n")
    screen.expect("Enter: none of them]: ")
    screen.send("\n")
    screen.expect("[a/d/e]: ")
    screen.send("d no\n")
    assert screen.end() == 4
    assert not user_policy_file().exists()


class Scripted(Screen):
    """A screen on which a person types lines."""

    def __init__(self, *lines):
        super().__init__()
        self._lines = list(lines)
        self._shown = ["shown"]

    def read(self, prompt, *, goes_on=False):
        del prompt, goes_on
        return self._lines.pop(0) if self._lines else None


def test_a_change_by_hunks_is_allowed_only_when_all_of_it_is(journal, tmp_path, capsys):
    """A rule allows whole calls."""
    found = hunks.split("a\nb\nc\nd\ne\nf\ng\nh\ni\n", "A\nb\nc\nd\ne\nf\ng\nh\nI\n")
    assert len(found) == 2
    chosen = Always(SAVE, {"path": "a.md"}, str(tmp_path / "garden"), past=journal).choose
    picked = pick_hunks(found, Scripted("a", "always", "A", "A", "always", "1"), chosen)
    assert picked is not None
    assert picked.numbers == {1, 2}
    assert picked.reason.startswith("always, by ")
    assert "accept all hunks first" in capsys.readouterr().err
    (rule,) = tomllib.loads(user_policy_file().read_text())["projects"][str(tmp_path / "garden")]["rules"]
    assert rule["arguments"] == {"path": "a.md"}


def test_where_a_rule_would_not_help_the_person_is_told(journal, tmp_path, capsys):
    nowhere = Always(SAVE, {"path": "a.md"}, "", past=journal).choose
    answer = read_answer({}, Scripted("always", "a: fine"), always=nowhere)
    assert answer == Approved("person at the terminal", "fine", "shown")
    assert "a rule would not help: it is not known which project" in capsys.readouterr().err
    assert not (tmp_path / "config").exists()


@pytest.mark.contract("journal.policy.always")
@pytest.mark.usefixtures("journal")
def test_a_call_from_the_shell_is_asked_once_and_then_allowed(terminal):
    """The rule is for the project that the command names."""
    notes = str(ROOT / "examples" / "notes.py")
    screen = terminal(
        "tools", "call", "save_notes", "path=notes/a.md", "--project", "garden", "--from", notes
    )
    screen.expect("always: approve it, and write a rule")
    screen.expect("[a/d/e]: ")
    screen.send("always\n")
    screen.expect("Enter: none of them]: ")
    screen.send("1\n")
    assert screen.end() == 0
    assert f"{user_policy_file()}:3 says from now on: " in screen.screen.replace("\n", "")
    again = terminal("tools", "call", "save_notes", "path=notes/a.md", "--project", "garden", "--from", notes)
    assert again.end() == 0
    assert "asks because" not in again.screen
