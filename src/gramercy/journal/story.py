"""Check, before a call runs, that the journal's rows about it are what was recorded.

This checks one call and its neighbours in the chain, in microseconds; `verify.py` proves the whole journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gramercy.errors import ForgedRecordError
from gramercy.journal.base import MOVES, State
from gramercy.journal.chain import Event, content_digest, event_hash, read_told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gramercy.journal.chain import Told
    from gramercy.journal.tables import CallRow, Statement

# Each event with the hash of the event before it, and the `previous` of the event after it or the hash of the
# head. It is one statement, since the chains of other processes grow between two.
_EVENTS = (
    "SELECT e.*, b.hash, COALESCE(a.previous, h.hash) FROM events e "
    "LEFT JOIN events b ON b.chain = e.chain AND b.number = e.number - 1 "
    "LEFT JOIN events a ON a.chain = e.chain AND a.number = e.number + 1 "
    "LEFT JOIN chains h ON h.chain = e.chain AND h.number = e.number "
    "WHERE e.key = ? AND e.key > 0 ORDER BY e.step"
)
_CONTENTS = "SELECT step, salt, text FROM contents WHERE key = ?"
_NAMES = ("call_id", "tool", "level", "principal", "client", "session", "project", "identity")


def story_of(key: int) -> tuple[Statement, Statement]:
    """Return the statements that `check_story` needs, to be run while the row of the call is locked."""
    return (_EVENTS, (key,)), (_CONTENTS, (key,))


def check_story(row: CallRow, found: Sequence[Sequence[Any]], texts: Sequence[Sequence[Any]]) -> None:
    """Raise ForgedRecordError unless the row, the events and the contents of a call belong together."""
    events = [Event(*columns) for *columns, _, _ in found]
    contents = {step: (salt, text) for step, salt, text in texts}
    for event, (*_, before, after) in zip(events, found, strict=True):
        _check_event(event, before, after)
        kept = contents.pop(event.step, None)
        if (content_digest(*kept) if kept else "") != event.contents:
            raise _forged(row.key, f"the contents of step {event.step} are not those that were recorded")
    if contents:
        raise _forged(row.key, "it has contents of no step")
    _check_steps(row, events)
    _check_decision(row, events)


def _check_event(event: Event, before: str | None, after: str | None) -> None:
    """Check the hash of an event, the hash of the event before it, and the link of the event after it."""
    place = f"event {event.chain}.{event.number}"
    if event_hash(*event[:-1]) != event.hash:
        raise _forged(event.key, f"{place} was changed")
    if before != event.previous:
        raise _forged(event.key, f"{place} does not follow from the one before it")
    if after != event.hash:
        raise _forged(event.key, f"{place} is not in its chain")


def _check_steps(row: CallRow, events: list[Event]) -> None:
    """Compare the record of the call with its recorded moves."""
    before: State | None = None
    for number, event in enumerate(events, 1):
        if event.step != number or event.state not in MOVES.get(before, ()):
            raise _forged(row.key, f"step {number} is missing or cannot be")
        before = State(event.state)
    if not events or (row.step, row.state) != (events[-1].step, events[-1].state):
        raise _forged(row.key, f"it is {row.state} without a step that led there")
    call = read_told(events[0].facts).call
    if call is None or any(getattr(call, name) != getattr(row, name) for name in _NAMES):
        raise _forged(row.key, "it is not the call that was requested")


def _check_decision(row: CallRow, events: list[Event]) -> None:
    """Check that a call with a question was approved, by a decision that names the question."""
    seal = ""
    for event in events:
        told = read_told(event.facts)
        if event.state == State.AWAITING:
            seal = told.seal
        elif event.state == State.READY and seal and not _approves(told, seal):
            raise _forged(row.key, "its approval is for something else")
    if row.seal != seal:
        raise _forged(row.key, "its question is not the one that was recorded")


def _approves(told: Told, seal: str) -> bool:
    # With a fence it is ready again after its process died, and it was approved before.
    return bool(told.fence) or (told.approved is True and told.named == seal)


def _forged(key: int, what: str) -> ForgedRecordError:
    return ForgedRecordError(
        f"what the journal holds about call {key} was changed from outside: {what}. "
        "`gramercy audit verify` tells what else was"
    )
