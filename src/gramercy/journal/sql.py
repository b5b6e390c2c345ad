"""The journal on an SQL database: moves, claims, recovery and the chain, in words that every dialect has.

A dialect (`sqlite.py`, `postgres.py`) gives connections, transactions and errors. Statements have `?` for
parameters. All that is written through one journal object belongs to one chain, opened with its first event.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from threading import RLock
from time import time
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from gramercy.errors import JournalError, MovedError
from gramercy.journal import owners
from gramercy.journal.base import FINAL, MOVES, NOTHING, CallRecord, Facts, Ruling, State, check_move
from gramercy.journal.chain import Head, kept_text, linked, opened, salted, told_text
from gramercy.journal.rows import COLUMNS, CallRow, new_row, read_entry, read_record, writable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gramercy.journal.base import Entry, NewCall
    from gramercy.journal.chain import Event

_AWAITING, _READY, _DENIED = State.AWAITING, State.READY, State.DENIED
_EXECUTING, _FAILED, _IN_DOUBT = State.EXECUTING, State.FAILED, State.IN_DOUBT
_REQUESTED = State.REQUESTED
_DECISIONS = frozenset({_READY, _DENIED})
# What a person has been asked or has decided must outlive a power cut, and so must that it may have run.
_LASTING = frozenset({_AWAITING, _READY})
_DANGEROUS = "dangerous"
# Parameters in one statement: every SQLite takes 999.
MOST_PARAMETERS = 500

_INSERT_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT_CONTENT = "INSERT INTO contents (key, step, salt, text) VALUES (?, ?, ?, ?)"
_UPDATE_CALL = (
    "UPDATE calls SET state = ?, step = ?, changed_at = ?, asked_at = ?, expires_at = ?, seal = ?, "
    "owner = ?, fence = ?, delivered = ? WHERE key = ? AND step = ?"
)
_STORY = (
    "SELECT e.key, e.facts, c.text FROM events e LEFT JOIN contents c ON c.key = e.key AND c.step = e.step "
    "WHERE e.key IN ({}) AND e.key > 0 ORDER BY e.key, e.step"
)
_ENTRIES = (
    "SELECT e.key, k.call_id, k.tool, e.state, e.at, e.step, e.facts, c.text FROM events e "
    "JOIN calls k ON k.key = e.key "
    "LEFT JOIN contents c ON c.key = e.key AND c.step = e.step WHERE e.key {} "
)
INSERT_CALL = (
    f"INSERT INTO calls ({COLUMNS.partition(', ')[2]}) "  # noqa: S608 - names of our own columns
    f"VALUES ({', '.join('?' * (len(CallRow._fields) - 1))})"
)
T = TypeVar("T")


class SqlJournal(ABC):
    """What both stores share. A dialect fills in the few methods at the end.

    `bell` is called after every commit; what it raises is its own affair and must be nothing.
    """

    # What follows a SELECT so that nobody else changes its rows before the commit.
    LOCKING = ""

    def __init__(self, where: str) -> None:
        self.where = where
        self.owner = owners.new_owner()
        self.bell: Callable[[], None] | None = None
        self._lock = RLock()
        # The end of this writer's chain; None when it has to be read or opened first.
        self._head: Head | None = None
        self._chain = 0
        # The fences of the calls that run here, by key.
        self._claims: dict[int, int] = {}

    def begin(self, call: NewCall, state: State = State.REQUESTED, facts: Facts = NOTHING) -> int:
        """Record a new call; return its key."""
        is_lasting = state in _LASTING or (state is _EXECUTING and call.level == _DANGEROUS)
        return self._write(lambda: self._begin(writable(call), state, facts), is_lasting=is_lasting)

    def move(self, key: int, state: State, facts: Facts = NOTHING, *, expected: Sequence[State] = ()) -> None:
        """Record that a call has come to a state; MovedError if it is not in one that leads there."""
        if state is _EXECUTING:
            self._write(lambda: self._claim(key, facts, expected), is_lasting=True)
            return
        refusal = self._write(lambda: self._move(key, state, facts, expected), is_lasting=state in _LASTING)
        if state in FINAL:
            self._claims.pop(key, None)
        if refusal is not None:
            raise refusal

    def claim(self, key: int, facts: Facts = NOTHING) -> int:
        """Take a call that is ready to run it; return the fence."""
        return self._write(lambda: self._claim(key, facts, ()), is_lasting=True)

    def note(self, call: NewCall, state: State, facts: Facts = NOTHING) -> None:
        """Record a whole call at once, after it is over."""
        self._write(lambda: self._note(writable(call), state, facts), is_lasting=False)

    def deliver(self, key: int) -> None:
        """Record that the caller has got the answer."""
        self._write(
            lambda: self._run("UPDATE calls SET delivered = 1 WHERE key = ?", (key,)), is_lasting=False
        )

    def recover(self, is_idempotent: Callable[[str], bool]) -> list[CallRecord]:
        """Look after calls whose process is gone, and those whose time to be decided is over."""
        keys = self._write(lambda: self._recover(is_idempotent), is_lasting=True)
        return self._read(lambda: self._records(f"key IN ({_marks(keys)})", keys)) if keys else []

    def record(self, key: int) -> CallRecord | None:
        """Return how a call stands."""
        found = self._read(lambda: self._records("key = ?", [key]))
        return found[0] if found else None

    def find(self, identity: str) -> CallRecord | None:
        """Return the latest call of this identity that is not over, or whose answer nobody has got."""
        if not identity:
            return None
        wanted = "identity = ? AND (delivered = 0 OR state NOT IN ('done', 'failed', 'denied'))"
        found = self._read(lambda: self._records(wanted, [identity], 1))
        return found[0] if found else None

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
        """Return how calls stand, latest first; `below` is the key from which to go on."""
        wanted: list[str] = []
        values: list[Any] = []
        if states:
            wanted.append(f"state IN ({_marks(states)})")
            values += [state.value for state in states]
        equal = {"tool": tool, "principal": principal, "session": session, "project": project}
        for name, value in equal.items():
            if value:
                wanted.append(f"{name} = ?")
                values.append(value)
        if since:
            wanted.append("changed_at >= ?")
            values.append(since)
        if below:
            wanted.append("key < ?")
            values.append(below)
        return self._read(lambda: self._records(" AND ".join(wanted) or "key > 0", values, most))

    def entries(self, key: int = 0, *, after: int = 0, most: int = 10_000) -> list[Entry]:
        """Return the moves of all calls or of one, oldest first; `after` is how many to leave out."""
        which, order = ("= ?", "e.step") if key else ("> ?", "e.at, e.chain, e.number")
        statement = _ENTRIES.format(which) + f"ORDER BY {order} LIMIT ? OFFSET ?"
        return self._read(lambda: [read_entry(row) for row in self._run(statement, (key, most, after))])

    def close(self) -> None:
        """Let go of the connection; calls that run are left to `recover`."""
        with self._lock:
            owners.leave(self.owner)
            self._disconnect()

    # What happens inside a transaction.

    def _begin(self, call: NewCall, state: State, facts: Facts) -> int:
        now = self._now()
        if state is _EXECUTING:
            facts = msgspec.structs.replace(facts, owner=self.owner, fence=1)
        moves = [(state, facts)]
        if state not in MOVES[None]:
            check_move(0, _REQUESTED, state)
            moves.insert(0, (_REQUESTED, NOTHING))
        row = new_row(call, self.owner, now)
        for step, told in moves:
            row = row.moved(step, told, now)
        key = self._insert(INSERT_CALL, row[1:])
        for number, (step, told) in enumerate(moves, 1):
            self._tell(key, number, step, now, told, None if number > 1 else call)
        if state is _EXECUTING:
            self._claims[key] = 1
        return key

    def _note(self, call: NewCall, state: State, facts: Facts) -> None:
        now = self._now()
        # Nobody comes back for it: it was answered before it was recorded.
        row = new_row(call, self.owner, now).moved(state, facts, now)._replace(delivered=1)
        self._tell(self._insert(INSERT_CALL, row[1:]), 1, state, now, facts, call)

    def _move(
        self, key: int, state: State, facts: Facts, expected: Sequence[State] = ()
    ) -> MovedError | None:
        """Make a move; return the refusal of an end that comes too late, which is recorded itself."""
        row = self._locked(key, state)
        before = State(row.state)
        fence = (facts.fence or self._claims.get(key, 0)) if state in FINAL else 0
        if fence and fence != row.fence:
            return MovedError(f"call {key} is run by another process now", self._record(row))
        self._check(row, state, facts, expected)
        if before is _EXECUTING and not fence and row.owner != self.owner:
            raise MovedError(f"call {key} is run by another process", self._record(row))
        self._advance(row, state, facts)
        return None

    def _check(self, row: CallRow, state: State, facts: Facts, expected: Sequence[State]) -> None:
        """Raise MovedError unless the move comes from where the call is."""
        before = State(row.state)
        if state not in MOVES.get(before, ()):
            check_move(row.key, before, state, self._record(row))
        if expected and before not in expected:
            wanted = " or ".join(word.value for word in expected)
            raise MovedError(f"call {row.key} is {before.value}, no longer {wanted}", self._record(row))
        if before is not _AWAITING or state not in _DECISIONS or not row.seal:
            return
        if (state is _READY or facts.ruling) and (not facts.ruling or facts.ruling.seal != row.seal):
            text = f"call {row.key} is asked about anew: what was shown has changed"
            raise MovedError(text, self._record(row))
        if state is _READY and row.expires_at and self._now() > row.expires_at:
            raise MovedError(f"call {row.key} could be decided until then only", self._record(row))

    def _claim(self, key: int, facts: Facts, expected: Sequence[State]) -> int:
        row = self._locked(key, _EXECUTING)
        self._check(row, _EXECUTING, facts, expected)
        fence = row.fence + 1
        self._advance(row, _EXECUTING, msgspec.structs.replace(facts, owner=self.owner, fence=fence))
        self._claims[key] = fence
        return fence

    def _advance(self, row: CallRow, state: State, facts: Facts, **changed: Any) -> None:
        now = self._now()
        after = row.moved(state, facts, now)._replace(**changed)
        if row.state == _IN_DOUBT.value:
            # The caller has been told that nobody knows; now there is an answer.
            after = after._replace(delivered=0)
        self._run(_UPDATE_CALL, (after.state, after.step, *after[12:], row.key, row.step))
        self._tell(row.key, after.step, state, now, facts)

    def _recover(self, is_idempotent: Callable[[str], bool]) -> list[int]:
        found = self._rows("state IN ('executing', 'requested', 'awaiting')", [])
        now = self._now()
        moved = []
        for row in found:
            state = State(row.state)
            if state is _AWAITING:
                if not row.expires_at or row.expires_at > now:
                    continue
                ruling = Ruling(approved=False, by="", seal=row.seal, refuser="timeout")
                self._advance(row, _DENIED, Facts(detail="nobody decided in time", ruling=ruling))
            elif self._is_alive(row.owner):
                continue
            elif state is _REQUESTED:
                self._advance(
                    row, _FAILED, Facts(detail="its process ended before anybody was asked"), delivered=1
                )
            else:
                again = is_idempotent(row.tool)
                detail = "the process that ran it is gone"
                fence = row.fence + 1
                self._advance(
                    row, _READY if again else _IN_DOUBT, Facts(detail=detail, fence=fence), fence=fence
                )
            moved.append(row.key)
        return moved

    def _is_alive(self, owner: str) -> bool:
        return owner == self.owner or bool(owners.is_alive(owner))

    # Rows and events.

    def _rows(self, wanted: str, values: Sequence[Any], most: int = 0, locking: str = "") -> list[CallRow]:
        ending = f" LIMIT {most}" if most else ""
        statement = f"SELECT {COLUMNS} FROM calls WHERE {wanted} ORDER BY key DESC{ending}{locking}"  # noqa: S608
        return [CallRow(*row) for row in self._run(statement, values)]

    def _locked(self, key: int, state: State) -> CallRow:
        found = self._rows("key = ?", [key], 0, self.LOCKING)
        if not found:
            raise MovedError(f"call {key} is unknown: it cannot be {state.value}")
        return found[0]

    def _records(self, wanted: str, values: Sequence[Any], most: int = 0) -> list[CallRecord]:
        rows = self._rows(wanted, values, most)
        stories: dict[int, list[Sequence[Any]]] = {row.key: [] for row in rows}
        keys = list(stories)
        for first in range(0, len(keys), MOST_PARAMETERS):
            part = keys[first : first + MOST_PARAMETERS]
            for key, told, kept in self._run(_STORY.format(_marks(part)), part):
                stories[key].append((told, kept))
        return [read_record(row, stories[row.key]) for row in rows]

    def _record(self, row: CallRow) -> CallRecord:
        return self._records("key = ?", [row.key])[0]

    def _tell(  # noqa: PLR0913, PLR0917 - the columns of an event
        self, key: int, step: int, state: State, at: float, facts: Facts, call: NewCall | None = None
    ) -> None:
        """Add the event of a move, and its contents beside it."""
        kept, digest = kept_text(facts, call), ""
        if kept:
            content = salted(kept)
            digest = content.digest
            self._run(_INSERT_CONTENT, (key, step, *content))
        head = self._head or self._found_head() or self._open_chain(at)
        self._append(head.number, *linked(head, key, step, state.value, at, told_text(facts, call), digest))

    def _found_head(self) -> Head | None:
        """Return the end of the chain as the database has it; it knows whether a commit has happened."""
        found = self._run("SELECT chain, number, hash FROM chains WHERE chain = ?", (self._chain,))
        return Head(*found[0]) if found else None

    def _open_chain(self, at: float) -> Head:
        self._lock_chains()
        ((last,),) = self._run("SELECT COALESCE(MAX(chain), 0) FROM chains", ())
        found = self._run("SELECT hash FROM events WHERE chain = ? AND number = 1", (last,))
        event, head = opened(last + 1, at, self.owner, found[0][0] if found else "")
        self._run("INSERT INTO chains (chain, number, hash) VALUES (?, 0, '')", (head.chain,))
        self._append(0, event, head)
        return head

    def _append(self, number: int, event: Event, head: Head) -> None:
        self._run(_INSERT_EVENT, event)
        statement = "UPDATE chains SET number = ?, hash = ? WHERE chain = ? AND number = ?"
        if self._change(statement, (head.number, head.hash, head.chain, number)) != 1:
            raise JournalError(f"the chain of this process in {self.where} was changed by another")
        self._head = head

    def _write(self, work: Callable[[], T], *, is_lasting: bool) -> T:
        """Do something in one transaction; nothing of it is there unless all of it is."""
        with self._lock:
            head = self._head
            self._start(is_lasting=is_lasting)
            try:
                done = work()
                self._commit()
            except BaseException as error:
                self._roll_back()
                self._head = head if isinstance(error, MovedError) else None
                raise
            if self._head is not None:
                self._chain = self._head.chain
        if self.bell is not None:
            self.bell()
        return done

    def _read(self, work: Callable[[], T]) -> T:
        with self._lock:
            return work()

    # What a dialect has of its own.

    def _now(self) -> float:
        """Return the time of events, leases and expiry."""
        return time()

    def _lock_chains(self) -> None:  # noqa: B027 - where one transaction at a time writes, nothing is to do
        """Keep others from opening a chain until the commit."""

    @abstractmethod
    def _start(self, *, is_lasting: bool) -> None:
        """Begin a transaction that writes; its commit outlives a power cut if it is to last."""

    @abstractmethod
    def _commit(self) -> None:
        """End the transaction."""

    @abstractmethod
    def _roll_back(self) -> None:
        """Give the transaction up, if there is one."""

    @abstractmethod
    def _run(self, statement: str, values: Sequence[Any]) -> list[Sequence[Any]]:
        """Run a statement; return its rows."""

    @abstractmethod
    def _change(self, statement: str, values: Sequence[Any]) -> int:
        """Run a statement; return how many rows it has changed."""

    @abstractmethod
    def _insert(self, statement: str, values: Sequence[Any]) -> int:
        """Insert a call; return its key."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Close the connection."""


def _marks(values: Iterable[Any]) -> str:
    return ", ".join("?" for _ in values)
