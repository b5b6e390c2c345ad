"""The tables of a journal: calls, events and contents, written one transaction at a time.

A dialect (`sqlite.py`, `postgres.py`) gives connections, transactions and errors. Statements have `?` for
parameters. All events written through one object belong to one chain, which its first event opens. This
module does not know what a call may do next.
"""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from contextlib import contextmanager
from threading import RLock
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from gramercy.errors import JournalError, MovedError
from gramercy.journal.base import MOVES, NOTHING, CallRecord, Entry, NewCall, State
from gramercy.journal.chain import (
    Content,
    Event,
    Head,
    Told,
    kept_text,
    linked,
    opened,
    read_facts,
    read_kept,
    read_told,
    salted,
    text_of,
    told_text,
)
from gramercy.journal.masking import Masking
from gramercy.journal.memory import joined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gramercy.journal.base import Facts

    # SQL with its parameters.
    Statement = tuple[str, Sequence[Any]]

T = TypeVar("T")
log = logging.getLogger("gramercy.journal")
# Parameters in one statement: every build of SQLite takes 999.
MOST_PARAMETERS = 500
# If a caller has not returned for an answer with secrets after a week, it gets the masked answer.
LONGEST_AWAITED = 7 * 86_400.0
_TEXTS = ("call_id", "tool", "level", "principal", "client", "session", "project", "identity")
# PostgreSQL takes no NUL in a text, and UTF-8 no half of a surrogate pair.
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")


class CallRow(NamedTuple):
    """A row of the table `calls`, its columns in this order."""

    key: int
    call_id: str
    tool: str
    level: str
    principal: str
    client: str
    session: str
    project: str
    identity: str
    state: str
    step: int
    at: float
    changed_at: float
    asked_at: float
    expires_at: float
    seal: str
    owner: str
    fence: int
    delivered: int

    @property
    def is_awaited(self) -> bool:
        """Whether its whole answer may be kept for a caller that returns."""
        return bool(self.identity) and not self.delivered and self.state not in MOVES

    def moved(self, state: State, facts: Facts, now: float) -> CallRow:
        """Return the row after a move."""
        row = self._replace(state=state.value, step=self.step + 1, changed_at=now)
        if state is State.AWAITING:
            seal = facts.question.seal if facts.question else ""
            return row._replace(asked_at=now, expires_at=facts.expires_at, seal=seal)
        if state is State.EXECUTING:
            return row._replace(owner=facts.owner, fence=facts.fence)
        return row


COLUMNS = ", ".join(CallRow._fields)
_INSERT_CALL = (
    f"INSERT INTO calls ({COLUMNS.partition(', ')[2]}) "  # noqa: S608 - names of our own columns
    f"VALUES ({', '.join('?' * (len(CallRow._fields) - 1))})"
)
_UPDATE_CALL = (
    "UPDATE calls SET state = ?, step = ?, changed_at = ?, asked_at = ?, expires_at = ?, seal = ?, "
    "owner = ?, fence = ?, delivered = ? WHERE key = ? AND step = ?"
)
INSERT_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_CONTENT = "INSERT INTO contents (key, step, salt, text) VALUES (?, ?, ?, ?)"
CONTENTS_OF = "SELECT step, text FROM contents WHERE key = ?"
_UPDATE_CONTENT = "UPDATE contents SET salt = ?, text = ? WHERE key = ? AND step = ?"
UPDATE_CHAIN = "UPDATE chains SET number = ?, hash = ? WHERE chain = ? AND number = ?"
CALL_AT = f"SELECT {COLUMNS} FROM calls WHERE key = ?"  # noqa: S608 - names of our own columns
_STORY = (
    "SELECT e.key, e.facts, c.text FROM events e LEFT JOIN contents c ON c.key = e.key AND c.step = e.step "
    "WHERE e.key IN ({}) AND e.key > 0 ORDER BY e.key, e.step"
)
# The ends of chains that have grown since the last chain was opened, according to the latest events. Reading
# all events would delay a process after a busy day. A chain left out is included when it has grown again.
_GROWN = (
    "SELECT chain, number, hash FROM chains WHERE chain = ? OR chain IN (SELECT chain FROM "
    "(SELECT e.chain, e.at FROM events e ORDER BY {} LIMIT 2000) AS latest WHERE at >= ?) ORDER BY chain"
)
_ANSWERS = "SELECT key, text FROM answers WHERE key IN ({})"
_ENTRIES = (
    "SELECT e.key, k.call_id, k.tool, e.state, e.at, e.step, e.facts, c.text FROM events e "
    "JOIN calls k ON k.key = e.key LEFT JOIN contents c ON c.key = e.key AND c.step = e.step "
    "WHERE e.key {} ORDER BY {} LIMIT ? OFFSET ?"
)


class Tables(ABC):
    """The tables in one database. A dialect fills in the methods at the end."""

    # Follows a SELECT and locks its rows until the commit.
    LOCKING = ""
    # The same, but skips rows that another transaction has locked.
    SKIPPING = ""
    # Begins a transaction that only reads and sees one snapshot.
    LOOKING = "BEGIN"
    # The order in which events were written.
    OLDEST_FIRST = "e.at, e.chain, e.number"
    LATEST_FIRST = "e.at DESC"
    # The words in which statements of the schema and of the sessions differ.
    WORDS: Mapping[str, str]

    def __init__(self, where: str) -> None:
        self.where = where
        self.owner = ""
        self._lock = RLock()
        self._leased_until = 0.0
        # The end of this writer's chain; None when it has to be read or opened first.
        self._head: Head | None = None
        self._chain = 0
        # The last end that was seen to be committed. A journal without it was restored to an older state.
        self._known: Head | None = None
        # What the audit should know about the start of this journal.
        self._remark = ""
        # Secrets are masked when a call is over; until then the call may have to be run or decided on.
        self.masking = Masking()

    # Reading.

    def _rows(
        self, wanted: str, values: Sequence[Any], most: int | None = None, locking: str = ""
    ) -> list[CallRow]:
        ending = "" if most is None else f" LIMIT {int(most)}"
        statement = f"SELECT {COLUMNS} FROM calls WHERE {wanted} ORDER BY key DESC{ending}{locking}"  # noqa: S608 - values are parameters
        return [CallRow._make(row) for row in self._run(statement, values)]

    def _records(self, wanted: str, values: Sequence[Any], most: int | None = None) -> list[CallRecord]:
        rows = self._rows(wanted, values, most)
        found: list[CallRecord] = []
        for first in range(0, len(rows), MOST_PARAMETERS):
            part = rows[first : first + MOST_PARAMETERS]
            keys = [row.key for row in part]
            found += self._joined(part, self._run(_STORY.format(marks(keys)), keys))
        return found

    def _record_at(self, key: int) -> list[CallRecord]:
        """Return how a call stands; nothing if there is none."""
        rows, story = self._run_all((CALL_AT, (key,)), (_STORY.format("?"), (key,)))
        return self._joined([CallRow._make(row) for row in rows], story)

    def _joined(self, rows: Sequence[CallRow], story: Iterable[Sequence[Any]]) -> list[CallRecord]:
        """Return how calls stand, from their rows and from (key, facts, contents) of their steps."""
        stories: dict[int, list[Sequence[Any]]] = {row.key: [] for row in rows}
        for key, told, kept in story:
            if key in stories:
                stories[key].append((told, kept))
        awaited = [row.key for row in rows if row.is_awaited]
        if awaited:
            for key, kept in self._run(_ANSWERS.format(marks(awaited)), awaited):
                stories[key][-1] = (stories[key][-1][0], kept)
        # Leave out the steps that were added after the rows were read.
        return [_read_record(row, stories[row.key][: row.step]) for row in rows]

    def _held(self, key: int, *others: Statement) -> tuple[CallRow | None, list[list[Sequence[Any]]]]:
        """Return the row of a call, locked until the commit; None if there is none.

        Also return the rows of other statements, which are run once the row is locked.
        """
        rows, *found = self._run_all((CALL_AT + self.LOCKING, (key,)), *others)
        return (CallRow._make(rows[0]) if rows else None), found

    def _entries(self, key: int, most: int, after: int) -> list[Entry]:
        # Without "> 0" the index, which leaves out events that belong to no call, would not be used.
        which, order = ("= ? AND e.key > 0", "e.step") if key else ("> ?", self.OLDEST_FIRST)
        rows = self._run(_ENTRIES.format(which, order), (key, most, after))
        return [_read_entry(row) for row in rows]

    @contextmanager
    def looking(self) -> Iterator[Callable[[str, Sequence[Any]], list[Sequence[Any]]]]:
        """Give a function that queries the database, always in the state of this moment."""
        with self._lock:
            self._run(self.LOOKING, ())
            try:
                yield self._run
            finally:
                self._roll_back()

    def amend(self, state: str, work: Callable[[Callable[..., int]], Told | None]) -> None:
        """Change contents as `work` does, and record the facts that it returns, if any."""
        self._write(lambda: self._amend(state, work), is_lasting=True)
        self._read(self._wipe)

    def _amend(self, state: str, work: Callable[[Callable[..., int]], Told | None]) -> None:
        told = work(self._change)
        if told is not None:
            self._tell_own(state, self._now(), told)

    # Writing, inside a transaction.

    def _add_call(self, row: CallRow) -> int:
        return self._insert(_INSERT_CALL, row[1:])

    def _change_call(self, before: CallRow, after: CallRow) -> None:
        values = (after.state, after.step, *after[12:], before.key, before.step)
        if not self._change_one(_UPDATE_CALL, values):
            raise MovedError(f"call {before.key} was moved meanwhile")

    def _tell(  # noqa: PLR0913 - the columns of an event
        self,
        place: tuple[int, int],
        state: State,
        at: float,
        facts: Facts,
        *,
        call: NewCall | None = None,
        tool: str = "",
        is_awaited: bool = False,
        kept: str | None = None,
        earlier: Sequence[Sequence[Any]] | None = None,
    ) -> None:
        """Add the event of a move at (key, step) and its contents, or the text in `kept`.

        `tool` is given when the call is over: then its secrets are masked, also those of `earlier` steps,
        which are read if they are not given. The whole answer is kept apart while a caller may return for it.
        """
        kept = kept_text(facts, call) if kept is None else kept
        masked: dict[str, str] = {}
        if tool:
            whole = kept
            kept, masked = self._mask(place, tool, kept, earlier)
            if is_awaited and kept != whole:
                self._run("INSERT INTO answers (key, at, text) VALUES (?, ?, ?)", (place[0], at, whole))
                self._run("DELETE FROM answers WHERE at < ?", (at - LONGEST_AWAITED,))
        told = told_text(facts, call, masked)
        self._link(place, state.value, at, told, salted(kept) if kept else None)

    def _tell_own(self, state: str, at: float, told: Told) -> None:
        """Add an event that is not a move: the journal itself did or refused something."""
        self._link((0, 0), state, at, text_of(told))

    def _link(
        self, place: tuple[int, int], state: str, at: float, facts: str, content: Content | None = None
    ) -> None:
        head = self._head or self._resumed_head() or self._open_chain(at)
        digest = content.digest if content else ""
        self._append(head.number, *linked(head, *place, state, at, facts, digest), content)

    def _found_head(self) -> Head | None:
        """Return the end of the chain in the database, which tells whether a commit has happened."""
        found = self._run("SELECT chain, number, hash FROM chains WHERE chain = ?", (self._chain,))
        return Head(*found[0]) if found else None

    def _resumed_head(self) -> Head | None:
        """Return the end of this writer's chain; None if it has to open a new one.

        It opens one at the beginning, and if its events are gone; in that case the new chain says so.
        """
        known = self._known
        found = self._found_head() if self._chain else None
        if known is None or known.chain != self._chain:
            return found
        place = known.chain, known.number
        rows = self._run("SELECT hash FROM events WHERE chain = ? AND number = ?", place)
        if found is not None and rows and rows[0][0] == known.hash:
            self._remark = ""
            return found
        self._remark = (
            f"the journal was put back to an older state while a process used it: event {known.chain}."
            f"{known.number}, which that process had recorded, is gone"
        )
        log.warning("the journal %s: %s; gramercy audit verify tells more", self.where, self._remark)
        return None

    def _open_anew(self, remark: str, *, is_same: bool) -> None:
        """Have the next event open a new chain, which records why; `is_same` if it is the same journal."""
        self._head, self._chain, self._leased_until = None, 0, 0.0
        known = self._known
        if known is not None and not is_same:
            # The head is of another journal: its numbers mean nothing in this one.
            remark += f"; its chain {known.chain} ended with event {known.chain}.{known.number}, {known.hash}"
            self._known = None
        self._remark = remark

    def _open_chain(self, at: float) -> Head:
        self._lock_chains()
        ((last,),) = self._run("SELECT COALESCE(MAX(chain), 0) FROM chains", ())
        found = self._run("SELECT hash, at FROM events WHERE chain = ? AND number = 1", (last,))
        before, since = found[0] if found else ("", at)
        heads = [Head(*row) for row in self._run(_GROWN.format(self.LATEST_FIRST), (last, since - 1.0))]
        heads += [self._known] if self._known is not None else []
        event, head = opened(last + 1, at, self.owner, before, reason=self._remark, heads=heads)
        self._run("INSERT INTO chains (chain, number, hash) VALUES (?, 0, '')", (head.chain,))
        self._append(0, event, head)
        return head

    def _append(self, number: int, event: Event, head: Head, content: Content | None = None) -> None:
        """Write an event after number `number` of its chain, and its contents."""
        if not self._put(event, content, (head.number, head.hash, head.chain, number)):
            raise JournalError(f"the chain of this process in {self.where} was changed by another")
        self._head = head

    def _put(self, event: Event, content: Content | None, end: tuple[int, str, int, int]) -> bool:
        """Write an event, its contents and the end of its chain; False if the chain had another end."""
        if content:
            self._run(INSERT_CONTENT, (event.key, event.step, *content))
        self._run(INSERT_EVENT, event)
        return self._change_one(UPDATE_CHAIN, end)

    def _change_one(self, statement: str, values: Sequence[Any]) -> bool:
        """Change one row; False if there is none. A dialect may defer it to the commit, which then fails."""
        return self._change(statement, values) == 1

    def _mask(
        self, place: tuple[int, int], tool: str, kept: str, found: Sequence[Sequence[Any]] | None
    ) -> tuple[str, dict[str, str]]:
        """Mask the secrets of a finished call; return its last contents, and digests of the earlier ones."""
        key, step = place
        if found is None:
            found = self._run(CONTENTS_OF, (key,)) if step > 1 else []
        *earlier, kept = self.masking(tool, [*(text for _, text in found), kept])
        changed = {}
        for (number, before), after in zip(found, earlier, strict=True):
            if after != before:
                content = salted(after)
                self._run(_UPDATE_CONTENT, (*content, key, number))
                changed[f"{key}.{number}"] = content.digest
        return kept, changed

    def _write(self, work: Callable[[], T], *, is_lasting: bool) -> T:
        """Run `work` in one transaction: either all of it is committed or nothing."""
        with self._lock:
            head = self._head
            try:
                self._start(is_lasting=is_lasting)
                done = work()
                self._commit()
            except BaseException as error:
                self._head = head if isinstance(error, MovedError) else None
                self._roll_back()
                raise
            if self._head is not None and self._head is not head:
                self._chain, self._known, self._remark = self._head.chain, self._head, ""
        self._ring()
        return done

    def _read(self, work: Callable[[], T]) -> T:
        """Run `work` to read; a missing row may appear a moment later."""
        with self._lock:
            return work()

    # What a dialect has of its own.

    @abstractmethod
    def strangers(self, ask: Callable[[str, Sequence[Any]], list[Sequence[Any]]]) -> list[str]:
        """Name triggers, views and tables that no migration has created: they could forge rows or act."""

    def _now(self) -> float:
        """Return the time used for events, leases and expiry."""
        return time()

    def _wipe(self) -> None:  # noqa: B027 - a database may do that by itself
        """Remove deleted rows from the files of the database."""

    def _lock_chains(self) -> None:  # noqa: B027 - where one transaction at a time writes, nothing is to do
        """Keep other writers from opening a chain until the commit."""

    def _ring(self) -> None:  # noqa: B027 - a server may tell of commits by itself
        """Wake the waiters after the commit; it never raises."""

    @abstractmethod
    def _start(self, *, is_lasting: bool) -> None:
        """Begin a transaction that writes; with `is_lasting`, its commit outlives a power cut."""

    @abstractmethod
    def _commit(self) -> None:
        """End the transaction."""

    @abstractmethod
    def _roll_back(self) -> None:
        """Roll the transaction back, if there is one; never raises."""

    @abstractmethod
    def _run(self, statement: str, values: Sequence[Any]) -> list[Sequence[Any]]:
        """Run a statement; return its rows."""

    def _run_all(self, *statements: Statement) -> list[list[Sequence[Any]]]:
        """Run statements one after the other; return the rows of each."""
        return [self._run(*each) for each in statements]

    @abstractmethod
    def _change(self, statement: str, values: Sequence[Any]) -> int:
        """Run a statement; return how many rows it has changed."""

    @abstractmethod
    def _insert(self, statement: str, values: Sequence[Any]) -> int:
        """Insert a call; return its key."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Close the connection."""


def marks(values: Iterable[Any]) -> str:
    """Return a `?` for each value."""
    return ", ".join("?" for _ in values)


def new_row(call: NewCall, owner: str, now: float) -> CallRow:
    """Return the row of a call before its first move."""
    return CallRow._make((0, *_names(call), "", 0, now, now, 0.0, 0.0, "", owner, 0, 0))


def over_row(call: NewCall, owner: str, now: float, state: State) -> CallRow:
    """Return the row of a call that is recorded when it is over and its answer was delivered."""
    return CallRow._make((0, *_names(call), state.value, 1, now, now, 0.0, 0.0, "", owner, 0, 1))


def _names(call: NewCall) -> tuple[str, ...]:
    # Written out, since it runs for every call.
    who = (call.principal, call.client, call.session, call.project, call.identity)
    return (call.call_id, call.tool, call.level, *who)


def writable(call: NewCall) -> NewCall:
    """Return a call whose names every database can store; a client may have sent any text."""
    joint = f"{call.call_id}{call.principal}{call.client}{call.session}{call.project}"
    if joint.isascii() and "\0" not in joint:
        return call
    texts = {name: _UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", getattr(call, name)) for name in _TEXTS}
    return msgspec.structs.replace(call, **texts)


def _read_record(row: CallRow, moves: Iterable[Sequence[Any]]) -> CallRecord:
    """Return how a call stands, from its row and its (facts, contents) in the order of its steps."""
    facts: Facts = NOTHING
    arguments: dict[str, Any] = {}
    for number, (told, kept) in enumerate(moves):
        contents = read_kept(kept or "")
        now = read_facts(read_told(told), contents)
        # Most calls are requested without further facts, and comparing is quicker than joining.
        facts = now if facts == NOTHING else joined(facts, now)
        if not number:
            arguments = contents.arguments or {}
    call = NewCall(
        row.call_id,
        row.tool,
        row.level,
        arguments,
        row.principal,
        row.client,
        row.session,
        row.project,
        row.identity,
    )
    return CallRecord(
        row.key,
        call,
        State(row.state),
        row.step,
        row.at,
        row.changed_at,
        facts,
        row.asked_at,
        bool(row.delivered),
    )


def _read_entry(row: Sequence[Any]) -> Entry:
    key, call_id, tool, state, at, step, told, kept = row
    facts = read_facts(read_told(told), read_kept(kept or ""))
    return Entry(key, call_id, tool, State(state), at, facts.detail, step, facts)
