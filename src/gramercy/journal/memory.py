"""A journal that lives as long as the process: bounded, and fast enough to be always there."""

from __future__ import annotations

import os
from collections import OrderedDict, deque
from itertools import count
from threading import Lock
from time import time
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from gramercy.errors import MovedError
from gramercy.journal.base import (
    FINAL,
    MOVES,
    NOTHING,
    CallRecord,
    Entry,
    Facts,
    NewCall,
    State,
    check_move,
)
from gramercy.journal.bells import Bells
from gramercy.journal.texts import canonical_text
from gramercy.text import cut

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gramercy.journal.bells import Bell

# Ten thousand details of ten megabytes would fill any machine. A durable journal keeps them whole.
LONGEST_DETAIL = 2_000
_EXECUTING, _AWAITING, _DONE = State.EXECUTING, State.AWAITING, State.DONE
_SMALL = frozenset({int, float, bool, type(None)})
_DECIDED = frozenset({State.READY, State.DENIED})
_Row: TypeAlias = tuple[int, NewCall, State, float, Facts, int]
_Jotted: TypeAlias = tuple[int, str, str, str, "Mapping[str, Any]", float, float, int]
# The length of a row that is not jotted.
_WHOLE: Final = 6


class MemoryJournal:
    """A bounded journal in memory. The oldest calls are evicted first, and long details are cut."""

    # No other process can read a journal in memory.
    run_directory = None

    def __init__(self, limit: int = 10_000) -> None:
        self._lock = Lock()
        self._limit = limit
        # Moves are plain tuples: most are never read, and every call makes one.
        self._rows: deque[_Row | _Jotted] = deque(maxlen=limit)
        self._keys = count(1)
        self._records: OrderedDict[int, CallRecord] = OrderedDict()
        # Created for the first waiter: most journals in memory have none.
        self._bells: Bells | None = None

    def begin(self, call: NewCall, state: State = State.REQUESTED, facts: Facts = NOTHING) -> int:
        """Record a new call; return its key."""
        key = next(self._keys)
        is_first = state in MOVES[None]
        if not is_first:
            check_move(key, State.REQUESTED, state)
        if state is _EXECUTING:
            facts = _fenced(facts, 1)
        with self._lock:
            first, told = (state, facts) if is_first else (State.REQUESTED, NOTHING)
            record = _record(key, call, first, told)
            self._put(record, told)
            if not is_first:
                self._put(moved(record, state, facts), facts)
        return key

    def move(self, key: int, state: State, facts: Facts = NOTHING, *, expected: Sequence[State] = ()) -> None:
        """Record a move; refuse a move that the life of a call does not have."""
        with self._lock:
            before = self._found(key, state)
            check_move(key, before.state, state, before)
            check_expected(before, state, facts, expected)
            self._put(moved(before, state, facts), facts)

    def claim(self, key: int, facts: Facts = NOTHING) -> int:
        """Take a call that is ready to run it; return the fence."""
        with self._lock:
            before = self._found(key, _EXECUTING)
            check_move(key, before.state, _EXECUTING, before)
            facts = _fenced(facts, before.facts.fence + 1)
            self._put(moved(before, _EXECUTING, facts), facts)
            return facts.fence

    def note(self, call: NewCall, state: State, facts: Facts = NOTHING) -> None:
        """Record a whole call at once."""
        if facts.detail or facts.content:
            facts = _cut(facts)
        # Appending to a deque is atomic, so this needs no lock.
        self._rows.append((next(self._keys), _light(call), state, time(), facts, 1))

    def jot(  # noqa: PLR0913, PLR0917 - what is told of most calls, in the order of the structs
        self, call_id: str, tool: str, level: str, arguments: Mapping[str, Any], elapsed_ms: float, size: int
    ) -> None:
        """Record a finished call of this program, as `note` does; its structs are made when it is read."""
        for value in arguments.values():
            if type(value) is str:
                if len(value) > LONGEST_DETAIL:
                    arguments = _short(arguments)
                    break
            elif type(value) is not int and type(value) not in _SMALL:
                arguments = _short(arguments)
                break
        self._rows.append((next(self._keys), call_id, tool, level, arguments, time(), elapsed_ms, size))

    def deliver(self, key: int) -> None:
        """Record that the caller has got the answer."""
        with self._lock:
            found = self._records.get(key)
            if found is not None and found.state in FINAL:
                self._records[key] = msgspec.structs.replace(found, delivered=True)

    def recover(self, is_idempotent: Callable[[str], bool]) -> list[CallRecord]:
        """Return nothing: processes that have ended had journals of their own."""
        del is_idempotent
        return []

    def record(self, key: int) -> CallRecord | None:
        """Return how a call stands; a safe call has only its entry."""
        return self._records.get(key)

    def find(self, identity: str, *, delivered: bool = False) -> CallRecord | None:
        """Return the latest call of this identity that is not over or whose answer was not delivered."""
        if not identity:
            return None
        for record in reversed(self._records.copy().values()):
            is_over = record.delivered and record.state is not State.IN_DOUBT and not delivered
            if record.call.identity == identity and not is_over:
                return record
        return None

    def records(  # noqa: PLR0913 - each is a filter of its own
        self,
        states: Sequence[State] = (),
        *,
        tool: str = "",
        principal: str = "",
        session: str = "",
        project: str = "",
        since: float = 0.0,
        below: int = 0,
        most: int = 1_000,
    ) -> list[CallRecord]:
        """Return how calls stand, latest first."""
        wanted = {"tool": tool, "principal": principal, "session": session, "project": project}
        given = {name: value for name, value in wanted.items() if value}
        with self._lock:
            known = dict(self._records)
        for key, call, state, at, facts, step in map(_read, self._rows.copy()):
            if key not in known:
                known[key] = CallRecord(key, call, state, step, at, at, facts)
        found = [
            record
            for key, record in sorted(known.items(), reverse=True)
            if (not states or record.state in states)
            and record.changed_at >= since
            and (not below or key < below)
            and all(getattr(record.call, name) == value for name, value in given.items())
        ]
        return found[:most]

    def entries(self, key: int = 0, *, after: int = 0, most: int = 10_000) -> list[Entry]:
        """Return the recorded moves, oldest first; `after` is how many to skip."""
        rows = [row for row in self._rows.copy() if not key or row[0] == key]
        return [_entry(row) for row in rows[after : after + most]]

    def bell(self) -> Bell:
        """Return a bell that rings after each move except those of `note`, which no caller waits for."""
        with self._lock:
            self._bells = bells = self._bells or Bells()
        return bells.bell()

    def close(self) -> None:
        """Wake the waiters; nothing outside of this process has to be released."""
        if self._bells is not None:
            self._bells.close()

    def _found(self, key: int, state: State) -> CallRecord:
        found = self._records.get(key)
        if found is None:
            raise MovedError(f"call {key} is unknown or forgotten: it cannot be {state.value}")
        return found

    def _put(self, record: CallRecord, facts: Facts) -> None:
        """Store how a call stands, and the move that led there with its facts."""
        if record.state in FINAL:
            # The call will not run any more, so keep only a short form of it.
            record = msgspec.structs.replace(record, call=_light(record.call), facts=_over(record.facts))
        self._records[record.key] = record
        row = (record.key, record.call, record.state, record.changed_at, _cut(facts), record.step)
        self._rows.append(row)
        if self._bells is not None:
            self._bells.strike()
        while len(self._records) > self._limit:
            self._forget()

    def _forget(self) -> None:
        """Evict the oldest finished call, or the oldest of all."""
        for key, record in self._records.items():
            if record.state in FINAL:
                del self._records[key]
                return
        self._records.popitem(last=False)


def check_expected(before: CallRecord, state: State, facts: Facts, expected: Sequence[State]) -> None:
    """Raise MovedError unless the call is in an expected state and the fence and seal are its own."""
    if expected and before.state not in expected:
        wanted = " or ".join(word.value for word in expected)
        raise MovedError(f"call {before.key} is {before.state.value}, no longer {wanted}", before)
    if before.state is _EXECUTING and facts.fence and facts.fence != before.facts.fence:
        raise MovedError(f"call {before.key} is run by another process now", before)
    question, ruling = before.facts.question, facts.ruling
    is_decided = before.state is _AWAITING and state in _DECIDED
    if is_decided and ruling and question and ruling.seal != question.seal:
        raise MovedError(f"call {before.key} is asked about anew: what was shown has changed", before)


def moved(before: CallRecord, state: State, facts: Facts) -> CallRecord:
    """Return how a call stands after a move: the new facts are added to the known ones."""
    now = time()
    return CallRecord(
        before.key,
        before.call,
        state,
        before.step + 1,
        before.at,
        now,
        joined(before.facts, facts),
        now if state is _AWAITING else before.asked_at,
        # The caller of a call in doubt was told that the outcome is unknown; now there is an answer.
        before.delivered and before.state is not State.IN_DOUBT,
    )


def joined(before: Facts, after: Facts) -> Facts:
    """Return the facts after a move; `detail` is that of the latest move."""
    told: dict[str, Any] = {
        name: value
        for name in Facts.__struct_fields__
        if (value := getattr(after, name)) != getattr(NOTHING, name)
    }
    return msgspec.structs.replace(before, **{"detail": "", **told})


def _fenced(facts: Facts, fence: int) -> Facts:
    return msgspec.structs.replace(facts, fence=fence, owner=facts.owner or str(os.getpid()))


def _record(key: int, call: NewCall, state: State, facts: Facts) -> CallRecord:
    now = time()
    return CallRecord(key, call, state, 1, now, now, facts)


def _entry(row: _Row | _Jotted) -> Entry:
    key, call, state, at, facts, step = _read(row)
    return Entry(key, call.call_id, call.tool, state, at, facts.detail, step, facts)


def _cut(facts: Facts) -> Facts:
    """Return facts with a short detail; questions and contents are in the record."""
    if len(facts.detail) <= LONGEST_DETAIL and not facts.content and not facts.question:
        return facts
    return msgspec.structs.replace(facts, detail=facts.detail[:LONGEST_DETAIL], content="", question=None)


def _over(facts: Facts) -> Facts:
    """Return the facts that are kept of a finished call."""
    if facts.question is None and facts.arguments is None:
        return facts
    return msgspec.structs.replace(facts, question=None, arguments=_short(facts.arguments or {}) or None)


def _read(row: _Row | _Jotted) -> _Row:
    """Return a row with its structs, which are made only when the row is read."""
    if len(row) == _WHOLE:
        return row
    key, call_id, tool, level, arguments, at, elapsed_ms, size = row
    call = NewCall(call_id, tool, level, arguments)
    return key, call, _DONE, at, Facts(elapsed_ms=elapsed_ms, size=size), 1


def _light(call: NewCall) -> NewCall:
    """Return a call without the long texts of its arguments."""
    arguments = call.arguments
    return call if _is_light(arguments) else msgspec.structs.replace(call, arguments=_short(arguments))


def _is_light(arguments: Mapping[str, Any]) -> bool:
    """Tell whether no argument is long; a container counts as long, since its size is unknown."""
    for value in arguments.values():
        if type(value) is str:
            if len(value) > LONGEST_DETAIL:
                return False
        elif type(value) not in _SMALL:
            return False
    return True


def _short(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _shortened(value) for name, value in arguments.items()}


def _shortened(value: Any) -> Any:
    text = value if isinstance(value, str) else canonical_text(value)
    return value if len(text) <= LONGEST_DETAIL else cut(text, LONGEST_DETAIL)
