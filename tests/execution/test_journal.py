"""The journal: legal moves only, nothing unrecorded runs, nothing recorded is lost."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from gramercy import Executor, Registry, define_tool
from gramercy.errors import ExecutionError
from gramercy.execution.journal import FINAL, LONGEST_DETAIL, MOVES, MemoryJournal, State

CALL = {"id": "call_1", "name": "it", "arguments": {"text": "hi"}}


def executor_with(handler=lambda _: "done", level="dangerous", journal=None, **settings):
    parameters = [{"name": "text", "type": "string"}]
    tool = define_tool("it", "It.", parameters, safety_level=level, handler=handler)
    return Executor(Registry([tool]), lambda *_: "approved", journal=journal, **settings)


def move(journal, key, state):
    journal.move(key, state, call_id="c", tool="it")


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
    key = journal.open()
    for state in ways[before]:
        move(journal, key, state)
    recorded = len(journal.entries())
    if before not in FINAL and after in MOVES[before]:
        move(journal, key, after)
        assert journal.entries()[-1].state is after
    else:
        with pytest.raises(ExecutionError, match=r"cannot go from|is finished"):
            move(journal, key, after)
        assert len(journal.entries()) == recorded


def test_a_call_that_was_never_opened_cannot_move():
    """Every key is given by the journal."""
    with pytest.raises(ExecutionError, match="was never opened"):
        move(MemoryJournal(), 7, State.EXECUTING)


def test_nothing_approved_can_skip_the_approval():
    """Guard design: from awaiting there is no way to executing but through ready."""
    assert State.EXECUTING not in MOVES[State.AWAITING]
    assert MOVES.keys() & FINAL == set()


def test_entries_say_which_call_which_tool_and_when(run):
    """Guard design, Journal."""
    executor = executor_with()
    run(executor, CALL)
    entries = executor.journal.entries()
    assert {(entry.call_id, entry.tool, entry.key) for entry in entries} == {("call_1", "it", 1)}
    assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)
    assert entries[0].detail == entries[3].detail == '{"text":"hi"}'
    assert len(entries[2].detail) == 64


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
    assert executor.journal._open == {}


class Failing(MemoryJournal):
    """A journal that fails at one state, or when it is opened."""

    def __init__(self, at):
        super().__init__()
        self.at = at

    def open(self):
        if self.at == "open":
            raise OSError("disk full")
        return super().open()

    def move(self, key, state, **given):
        if state == self.at:
            raise OSError("disk full")
        super().move(key, state, **given)

    def note(self, state, *given, **more):
        if self.at == "note":
            raise OSError("disk full")
        super().note(state, *given, **more)


@pytest.mark.parametrize(
    ("level", "at"),
    [
        ("cautious", "open"),
        ("cautious", State.EXECUTING),
        ("dangerous", "open"),
        ("dangerous", State.REQUESTED),
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
        journal.note(State.DONE, str(number), "it", "x" * 10_000)
    entries = journal.entries()
    assert [entry.call_id for entry in entries] == ["15", "16", "17", "18", "19"]
    assert {len(entry.detail) for entry in entries} == {LONGEST_DETAIL}
    key = journal.open()
    journal.move(key, State.EXECUTING, call_id="c", tool="it", detail="y" * 10_000)
    assert len(journal.entries()[-1].detail) == LONGEST_DETAIL
