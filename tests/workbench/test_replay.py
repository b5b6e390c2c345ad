"""Rules tried on calls of the past: what they would have said, beside what was decided then."""

import pytest

from gramercy import Policy, Registry, Rule, create_tool
from gramercy.execution.policy import Action
from gramercy.journal.base import Facts, NewCall, Question, Ruling, State
from gramercy.journal.memory import MemoryJournal
from gramercy.journal.opening import open_journal
from gramercy.workbench.replay import Past, let_through, recorded, replay, tallied, told_let_through

WRITE = create_tool("write_file", "It.", {"type": "object"}, dict, safety_level="dangerous")


@pytest.fixture(name="journal", params=["memory", "sqlite"])
def journal_fixture(request, tmp_path):
    """Return an empty journal."""
    journal = MemoryJournal() if request.param == "memory" else open_journal(tmp_path / "journal.db")
    yield journal
    journal.close()


def ask(journal, path, ruling, *, tool="write_file", project="/garden"):
    """Record a call that somebody was asked about, and how that ended."""
    call = NewCall("1", tool, "dangerous", {"path": path}, project=project)
    key = journal.begin(call)
    journal.move(key, State.AWAITING, Facts(question=Question("?", "seal", {}, "")))
    if ruling is None:
        return
    if not ruling.approved:
        journal.move(key, State.DENIED, Facts(ruling=ruling))
        return
    journal.move(key, State.READY, Facts(ruling=ruling))
    fence = journal.claim(key)
    journal.move(key, State.DONE, Facts(fence=fence))


YES = Ruling(approved=True, by="ann", seal="seal")
NO = Ruling(approved=False, by="ann", seal="seal", refuser="person")
LATE = Ruling(approved=False, by="", seal="seal", refuser="timeout")


def fill(journal):
    for path, ruling in (("a/1", YES), ("a/2", YES), ("a/3", NO), ("b/1", NO), ("b/2", LATE), ("c/1", None)):
        ask(journal, path, ruling)
    denied = Ruling(approved=False, by="", refuser="rule")
    journal.note(
        NewCall("2", "write_file", "dangerous", {"path": "d/1"}, project="/garden"),
        State.DENIED,
        Facts(ruling=denied),
    )
    journal.note(NewCall("3", "read_file", "safe", {"path": "a/1"}, project="/garden"), State.DONE)
    ask(journal, "a/9", YES, project="/elsewhere")


def rule(action, glob):
    return {"action": action, "tools": ["write_*"], "arguments": {"path": glob}}


@pytest.mark.contract("journal.policy.try")
def test_what_would_be_done_is_counted_by_what_was_decided(journal):
    """Guard, Policy: a rule change can be tried on recorded traffic."""
    fill(journal)
    policy = Policy([rule("allow", "a/**"), rule("deny", "c/**"), {"action": "ask", "safety": "safe"}])
    found = list(replay(recorded(journal, project="/garden"), Registry([WRITE]), policy))
    assert {past: dict(counts) for past, counts in tallied(found).items()} == {
        Past.UNASKED: {Action.ASK: 1},
        Past.APPROVED: {Action.ALLOW: 2},
        Past.DENIED: {Action.ALLOW: 1, Action.ASK: 1},
        Past.REFUSED: {Action.ASK: 1},
        Past.UNDECIDED: {Action.ASK: 1, Action.DENY: 1},
    }
    surprises = {
        (each.record.call.tool, each.record.call.arguments["path"]) for each in found if each.is_surprise
    }
    assert surprises == {("write_file", "a/3"), ("write_file", "d/1"), ("read_file", "a/1")}
    assert [each.record.call.tool for each in found if not each.is_known] == ["read_file"]


def test_every_page_of_a_journal_is_read_up_to_the_bound(journal, monkeypatch):
    monkeypatch.setattr("gramercy.workbench.replay.PAGE", 2)
    fill(journal)
    assert len(list(recorded(journal, project="/garden", most=5))) == 5
    assert len(list(recorded(journal, project="/garden", most=100))) == 8
    assert len(list(recorded(journal, most=100))) == 9
    assert len(list(recorded(journal, tool="read_file", most=100))) == 1


@pytest.mark.contract("journal.policy.always-past")
def test_what_a_rule_would_have_let_through_is_told(journal):
    fill(journal)
    offered = Rule(Action.ALLOW, ("write_file",), arguments={"path": "a/**"})
    found, total = let_through(journal, offered, WRITE, "/garden")
    assert sorted(record.call.arguments["path"] for record in found) == ["a/1", "a/2", "a/3"]
    assert told_let_through(found, total) == (
        "it would have let through 3 of 7 recorded calls: 1 denied by a person, 2 approved by a person"
    )
    assert told_let_through([], 7) == "it would have let through 0 of 7 recorded calls"
    assert told_let_through([], 0) == "no such call is recorded yet"
