"""Attempts to have something run that nobody has approved: each is refused, and the journal says so."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from gramercy import Approved, Executor, Modified, Policy, Registry, define_tool
from gramercy.errors import ForgedRecordError, MovedError
from gramercy.execution.approval import decide
from gramercy.execution.results import Attempt, Recorder
from gramercy.journal.audit import verify_journal
from gramercy.journal.base import Facts, Ruling, State
from gramercy.journal.sqlite import SqliteJournal
from gramercy.tools.context import Call, enter_call, leave_call

CALL = {"id": "call_1", "name": "write", "arguments": {"path": "notes", "text": "harmless"}}
PARAMETERS = [{"name": "path", "type": "string"}, {"name": "text", "type": "string"}]


class Returning(Call):
    """A caller who comes back."""

    @property
    def identity(self):
        return "the writer"


class Desk:
    """A tool that writes files of memory, its journal, and the attacker who can do all but decide."""

    def __init__(self, place):
        self.place = place
        self.files = {"notes": "old"}
        self.ran = []
        self.journals = []
        self.tool = self.make(self.write)
        self.registry = Registry([self.tool])

    def make(self, handler):
        return define_tool(
            "write",
            "Write.",
            PARAMETERS,
            safety_level="dangerous",
            handler=handler,
            target_state=lambda arguments: self.files.get(arguments["path"]),
        )

    def write(self, arguments):
        self.ran.append(arguments)
        self.files[arguments["path"]] = arguments["text"]
        return "written"

    def executor(self, person=None, **options):
        journal = SqliteJournal(self.place)
        self.journals.append(journal)
        return Executor(self.registry, person, journal=journal, approval_wait=0.0, **options)

    def ask(self):
        """Have a call wait for a person, and end its process; return its record."""
        executor = self.executor()
        executor.execute(CALL)
        (record,) = executor.journal.records([State.AWAITING])
        executor.journal.close()
        return record

    def approve(self, record):
        journal = SqliteJournal(self.place)
        decide(journal, record.key, record.facts.question.seal, Approved("person"))
        journal.close()

    def attack(self, statement, *values):
        with closing(sqlite3.connect(self.place)) as database, database:
            assert database.execute(statement, values).rowcount > 0

    def contents(self, record, state):
        """Return the step of a state, and what is kept of it."""
        with closing(sqlite3.connect(self.place)) as database:
            found = database.execute(
                "SELECT e.step, c.text FROM events e JOIN contents c ON c.key = e.key AND c.step = e.step "
                "WHERE e.key = ? AND e.state = ? ORDER BY e.step DESC",
                (record.key, state),
            ).fetchone()
        return found[0], json.loads(found[1])

    def come_back(self, **options):
        """Make the call again, in another process; return its result and the states of the call."""
        executor = self.executor(**options)
        result = executor.execute(CALL)
        return result, executor.journal

    def flaws(self):
        return [str(flaw) for flaw in verify_journal(self.journals[-1]).flaws]


@pytest.fixture
def desk(tmp_path):
    made = Desk(tmp_path / "journal.db")
    token = enter_call(Returning())
    yield made
    leave_call(token)
    for journal in made.journals:
        journal.close()


@pytest.mark.contract("journal.guard.hook")
def test_a_hook_that_rewrites_the_arguments_after_the_approval_changes_nothing(desk):
    """Attack: an observer that changes what it is shown, in every phase."""

    def rewrite(_phase, _tool, arguments, _result):
        arguments["text"] = "harmful"

    result = desk.executor(lambda *_: "approved", hooks=[rewrite]).execute(CALL)
    assert result.success
    assert desk.ran == [CALL["arguments"]]


@pytest.mark.contract("journal.guard.hook")
@pytest.mark.parametrize("answer", [Approved(), Modified({"path": "notes", "text": "mine"})])
def test_code_that_reaches_behind_the_guard_after_the_approval_is_refused_and_recorded(
    desk, monkeypatch, answer
):
    """Attack: the arguments are replaced between the approval and the run."""
    started = Recorder.started

    def sly(self: Recorder, attempt: Attempt) -> None:
        started(self, attempt)
        attempt.arguments = {"path": "notes", "text": "harmful"}

    monkeypatch.setattr(Recorder, "started", sly)
    executor = desk.executor(lambda *_: answer)
    result = executor.execute(CALL)
    assert "these are not the arguments that were approved" in result.error
    assert desk.ran == []
    record = executor.journal.record(result.metadata["journal_key"])
    assert record.state is State.FAILED
    assert "these are not the arguments that were approved" in record.facts.detail


@pytest.mark.contract("journal.guard.stale")
def test_a_file_that_changes_between_the_look_and_the_decision_is_asked_about_again(desk):
    """Attack: the person approves a change of what is no longer there; also before the process died."""
    record = desk.ask()
    desk.files["notes"] = "changed by somebody"
    desk.approve(record)
    result, journal = desk.come_back()
    assert "waits for a person's approval" in result.error
    question = journal.record(record.key).facts.question
    assert question.changes == ("what the call acts on has changed",)
    assert "Asked again: what the call acts on has changed" in question.text
    assert (desk.ran, [entry.state.value for entry in journal.entries(record.key)]) == (
        [],
        ["requested", "awaiting", "ready", "awaiting"],
    )


@pytest.mark.contract("journal.guard.stale")
def test_a_definition_that_changes_is_asked_about_again(desk):
    """Attack: other code under the name of what was approved."""
    record = desk.ask()
    desk.approve(record)
    desk.registry.register(desk.make(lambda _: "harmful"))
    result, journal = desk.come_back()
    assert "waits for a person's approval" in result.error
    changes = journal.record(record.key).facts.question.changes
    assert changes == ("the tool's implementation has changed",)


@pytest.mark.contract("journal.guard.once")
def test_an_approval_is_good_for_one_run(desk):
    """Attack: the call is made again after it ran, and run again by its key."""
    record = desk.ask()
    desk.approve(record)
    result, journal = desk.come_back()
    assert result.success
    executor = desk.executor()
    assert "was not run again" in executor.resume(record.key).content
    executor.delivered(result)
    again, _ = desk.come_back()
    assert "waits for a person's approval" in again.error
    assert len(desk.ran) == 1
    with pytest.raises(MovedError, match="is done since"):
        decide(journal, record.key, record.facts.question.seal, Approved())


@pytest.mark.contract("journal.guard.once")
def test_the_answer_to_one_question_is_no_answer_to_another(desk):
    """Attack: an approval is replayed on the next call, which is the same in every word."""
    first = desk.ask()
    desk.approve(first)
    result, journal = desk.come_back()
    journal.deliver(first.key)
    second = desk.ask()
    assert second.key != first.key
    assert second.facts.question.text == first.facts.question.text
    with pytest.raises(MovedError, match="asked about anew"):
        decide(journal, second.key, first.facts.question.seal, Approved())
    replayed = Facts(ruling=Ruling(approved=True, by="forger", seal=first.facts.question.seal))
    with pytest.raises(MovedError):
        journal.move(second.key, State.READY, replayed)
    assert journal.record(second.key).state is State.AWAITING
    assert result.success
    assert len(desk.ran) == 1


@pytest.mark.contract("journal.guard.forged")
def test_a_row_that_is_edited_into_an_approval_is_refused(desk):
    """Attack: UPDATE calls SET state = 'ready'."""
    record = desk.ask()
    desk.attack("UPDATE calls SET state = 'ready' WHERE key = ?", record.key)
    executor = desk.executor()
    assert desk.flaws() == [f"call {record.key}: its record was changed: state"]
    result = executor.execute(CALL)
    assert result.error == "write was not run: nobody has approved it, though it is ready"
    assert desk.ran == []
    last = executor.journal.entries(record.key)[-1]
    assert (last.state, last.detail) == (State.DENIED, result.error)


@pytest.mark.contract("journal.guard.forged")
@pytest.mark.parametrize("column", ["tool", "identity", "seal", "step", "expires_at"])
def test_a_record_that_is_edited_does_not_run(desk, column):
    """Attack: what was approved becomes the record of something else."""
    desk.registry.register(
        define_tool("other", "O.", PARAMETERS, safety_level="dangerous", handler=desk.write)
    )
    record = desk.ask()
    desk.approve(record)
    values = {"tool": "other", "identity": "x", "seal": "0" * 64, "step": 7, "expires_at": 0.0}
    desk.attack(f"UPDATE calls SET {column} = ? WHERE key = ?", values[column], record.key)
    executor = desk.executor()
    result = executor.resume(record.key)
    if column == "expires_at":
        # Not read from there: the events have it.
        assert result.success
    else:
        assert not result.success
        assert desk.ran == []
    assert desk.flaws()


@pytest.mark.contract("journal.guard.forged")
@pytest.mark.parametrize("state", ["requested", "awaiting", "ready"])
def test_arguments_question_and_ruling_cannot_be_exchanged(desk, state):
    """Attack: the contents of an event are replaced by others."""
    record = desk.ask()
    desk.approve(record)
    step, kept = desk.contents(record, state) if state != "ready" else (3, None)
    if kept is None:
        desk.attack(
            "INSERT INTO contents (key, step, salt, text) VALUES (?, 3, 's', ?)",
            record.key,
            json.dumps({"approved": {"path": "notes", "text": "harmful"}, "note": "n", "shown": "s"}),
        )
    else:
        text = json.dumps(kept).replace("harmless", "harmful")
        assert "harmful" in text
        desk.attack("UPDATE contents SET text = ? WHERE key = ? AND step = ?", text, record.key, step)
    result, _ = desk.come_back()
    assert not result.success
    assert desk.ran == []
    assert desk.flaws()


@pytest.mark.contract("journal.guard.forged")
def test_an_event_that_is_forged_approves_nothing(desk):
    """Attack: a row is put into the table of events, as the approval would be."""
    record = desk.ask()
    told = json.dumps({"approved": True, "by": "person", "named": record.facts.question.seal})
    desk.attack(
        "INSERT INTO events SELECT chain, number + 1, key, step + 1, 'ready', at, ?, '', hash, ? FROM events "
        "WHERE key = ? AND state = 'awaiting'",
        told,
        "f" * 64,
        record.key,
    )
    desk.attack("UPDATE calls SET state = 'ready', step = step + 1 WHERE key = ?", record.key)
    result, journal = desk.come_back()
    assert not result.success
    assert "was changed from outside" in result.error
    assert desk.ran == []
    assert journal.record(record.key).state is State.FAILED
    assert desk.flaws()


@pytest.mark.contract("journal.guard.forged")
def test_a_question_that_hides_what_runs_is_not_approved_and_asked_again(desk):
    """Attack: the journal shows another text than that of the call, and a person would approve it."""
    record = desk.ask()
    step, kept = desk.contents(record, "awaiting")
    kept["question"]["text"] = kept["question"]["text"].replace("harmless", "nothing at all")
    desk.attack("UPDATE contents SET text = ? WHERE key = ? AND step = ?", json.dumps(kept), record.key, step)
    with pytest.raises(ForgedRecordError, match="was changed from outside"):
        desk.approve(record)
    result, journal = desk.come_back()
    assert "waits for a person's approval" in result.error
    changes = journal.record(record.key).facts.question.changes
    assert changes == ("what the journal has of the question does not fit together",)
    assert desk.ran == []


@pytest.mark.contract("journal.guard.stale")
def test_a_policy_that_denies_meanwhile_is_obeyed(desk):
    """Attack: an old approval against a new rule."""
    record = desk.ask()
    desk.approve(record)
    result, _ = desk.come_back(policy=Policy([{"action": "deny", "reason": "no more writing"}]))
    assert "no more writing" in result.error
    assert desk.ran == []
