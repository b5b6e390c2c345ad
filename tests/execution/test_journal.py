"""The journal: legal moves only, nothing unrecorded runs, nothing recorded is lost."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from gramercy import Executor, Registry, define_tool
from gramercy.errors import ExecutionError
from gramercy.journal.base import FINAL, MOVES, NOTHING, Facts, NewCall, State
from gramercy.journal.memory import LONGEST_DETAIL, MemoryJournal

CALL = {"id": "call_1", "name": "it", "arguments": {"text": "hi"}}


def executor_with(handler=lambda _: "done", level="dangerous", journal=None, **settings):
    parameters = [{"name": "text", "type": "string"}]
    tool = define_tool("it", "It.", parameters, safety_level=level, handler=handler)
    return Executor(Registry([tool]), lambda *_: "approved", journal=journal, **settings)


NEW = NewCall("c", "it", "dangerous", {"text": "hi"})


def move(journal, key, state):
    """Move a call; without a key it is a new one, which has to begin where calls begin."""
    if not key and state not in MOVES[None]:
        raise ExecutionError(f"it cannot go from nothing to {state}")
    return journal.move(key, state) or key if key else journal.begin(NEW, state)


@pytest.mark.parametrize(("before", "after"), list(itertools.product([None, *State], State)))
def test_only_the_moves_of_a_calls_life_are_recorded(before, after):
    """Guard design, Journal: requested, awaiting, ready or denied, executing, done, failed or in doubt."""
    ways = {
        None: [],
        State.REQUESTED: [State.REQUESTED],
        State.AWAITING: [State.REQUESTED, State.AWAITING],
        State.READY: [State.REQUESTED, State.AWAITING, State.READY],
        State.EXECUTING: [State.EXECUTING],
        State.DENIED: [State.REQUESTED, State.DENIED],
        State.DONE: [State.EXECUTING, State.DONE],
        State.FAILED: [State.EXECUTING, State.FAILED],
        State.IN_DOUBT: [State.EXECUTING, State.IN_DOUBT],
    }
    journal = MemoryJournal()
    key = 0
    for state in ways[before]:
        key = move(journal, key, state)
    recorded = len(journal.entries())
    if after in MOVES.get(before, ()):
        move(journal, key, after)
        assert journal.entries()[-1].state is after
    else:
        with pytest.raises(ExecutionError, match=r"cannot go from|is finished"):
            move(journal, key, after)
        assert len(journal.entries()) == recorded


def test_a_call_that_was_never_opened_cannot_move():
    """Every key is given by the journal."""
    with pytest.raises(ExecutionError, match="unknown or forgotten"):
        move(MemoryJournal(), 7, State.EXECUTING)


def test_nothing_approved_can_skip_the_approval():
    """Guard design: from awaiting there is no way to executing but through ready."""
    assert State.EXECUTING not in MOVES[State.AWAITING]
    assert MOVES.keys() & FINAL == {State.IN_DOUBT}


def test_entries_say_which_call_which_tool_and_when(run):
    """Guard design, Journal."""
    executor = executor_with()
    run(executor, CALL)
    entries = executor.journal.entries()
    assert {(entry.call_id, entry.tool, entry.key) for entry in entries} == {("call_1", "it", 1)}
    assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)
    assert entries[3].facts.arguments == {"text": "hi"}
    assert len(entries[2].facts.ruling.seal) == 64


@pytest.mark.parametrize(
    ("handler", "level", "states"),
    [
        (lambda _: "fine", "safe", ["done"]),
        (lambda _: 1 / 0, "safe", ["failed"]),
        (lambda _: "fine", "cautious", ["executing", "done"]),
        (lambda _: 1 / 0, "cautious", ["executing", "failed"]),
        (lambda _: "fine", "dangerous", ["requested", "awaiting", "ready", "executing", "done"]),
        (lambda _: 1 / 0, "dangerous", ["requested", "awaiting", "ready", "executing", "failed"]),
    ],
)
def test_every_call_leaves_its_states(run, handler, level, states):
    """Guard design, Journal: safe calls are recorded once, when they are over."""
    executor = executor_with(handler, level)
    for _ in range(2):
        run(executor, CALL)
    assert [entry.state.value for entry in executor.journal.entries()] == states * 2
    assert not executor.journal.records([state for state in State if state not in FINAL])


class Failing(MemoryJournal):
    """A journal that fails at one state, or when a call begins."""

    def __init__(self, at):
        super().__init__()
        self.at = at

    def begin(self, call, state=State.REQUESTED, facts=NOTHING):
        if self.at in ("begin", state):
            raise OSError("disk full")
        return super().begin(call, state, facts)

    def move(self, key, state, facts=NOTHING, *, expected=()):
        if state == self.at:
            raise OSError("disk full")
        super().move(key, state, facts, expected=expected)

    def claim(self, key, facts=NOTHING):
        if self.at == State.EXECUTING:
            raise OSError("disk full")
        return super().claim(key, facts)

    def note(self, call, state, facts=NOTHING):
        if self.at == "note":
            raise OSError("disk full")
        super().note(call, state, facts)


@pytest.mark.parametrize(
    ("level", "at"),
    [
        ("cautious", "begin"),
        ("cautious", State.EXECUTING),
        ("dangerous", "begin"),
        ("dangerous", State.AWAITING),
        ("dangerous", State.READY),
        ("dangerous", State.EXECUTING),
    ],
)
def test_what_cannot_be_recorded_before_it_runs_does_not_run(run, at, level):
    """Guard design: a move that cannot be recorded stops the call."""
    ran: list[Any] = []
    executor = executor_with(ran.append, level, journal=Failing(at))
    result = run(executor, CALL)
    assert (ran, result.success) == ([], False)
    assert "was not run" in result.error
    assert "disk full (OSError)" in result.error


@pytest.mark.parametrize("at", [State.DONE, "note"])
def test_a_result_is_kept_when_it_cannot_be_recorded_any_more(run, at):
    """Guard design: the handler has run; losing its result would invite a second run."""
    level = "safe" if at == "note" else "dangerous"
    for handler, success in ((lambda _: "done", True), (lambda _: 1 / 0, False)):
        executor = executor_with(
            handler, level, journal=Failing(at if success or at == "note" else State.FAILED)
        )
        for _ in range(2):
            result = run(executor, CALL)
            assert result.success is success
            assert result.metadata["journal_error"] == "disk full (OSError)"


def test_the_journal_forgets_the_oldest_and_cuts_the_longest():
    """Style: never unbounded memory."""
    journal = MemoryJournal(limit=5)
    for number in range(20):
        journal.note(NewCall(str(number), "it", "safe", {}), State.DONE, Facts(detail="x" * 10_000))
    entries = journal.entries()
    assert [entry.call_id for entry in entries] == ["15", "16", "17", "18", "19"]
    assert {len(entry.detail) for entry in entries} == {LONGEST_DETAIL}
    journal.begin(NEW, State.EXECUTING, Facts(detail="y" * 10_000))
    assert len(journal.entries()[-1].detail) == LONGEST_DETAIL
