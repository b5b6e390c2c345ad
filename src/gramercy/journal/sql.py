"""The journal on an SQL database: the life of calls as compare-and-set moves, for every dialect.

Every decision here is made inside a transaction that locks the call's row, and its event is written in the
same transaction. How rows and events are written is in `tables.py`.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from threading import Event as Signal
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ref

import msgspec

from gramercy.errors import JournalError, MovedError
from gramercy.journal import owners
from gramercy.journal.base import FINAL, MOVES, NOTHING, CallRecord, Facts, Ruling, State, check_move
from gramercy.journal.chain import LATE, Told, kept_text
from gramercy.journal.story import check_story, story_of
from gramercy.journal.tables import CALL_AT, CONTENTS_OF, CallRow, Tables, marks, new_row, over_row, writable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gramercy.journal.base import Entry, NewCall
    from gramercy.journal.bells import Bell

log = logging.getLogger("gramercy.journal")
_AWAITING, _READY, _DENIED, _EXECUTING = State.AWAITING, State.READY, State.DENIED, State.EXECUTING
_REQUESTED, _FAILED, _IN_DOUBT = State.REQUESTED, State.FAILED, State.IN_DOUBT
_DECISIONS = frozenset({_READY, _DENIED})
_DANGEROUS = "dangerous"
# With this condition the database can use the index of calls that are not done.
UNDONE = "state <> 'done'"
T = TypeVar("T")
# Long enough for a starved process or a restarting database to renew it twice over. A person who waits for a
# dead worker on another machine waits no longer than this.
LEASE_SECONDS = 30.0
# A call of a process that cannot be checked from here, and that never moved on: after a day it never will.
FORGOTTEN_SECONDS = 86_400.0


class SqlJournal(Tables):
    """The part that both stores share; a dialect adds connections, transactions, errors and a doorbell."""

    # A question to a person, their decision, and the fact that a call may have run must outlive a power cut.
    LASTING = frozenset({_AWAITING, _READY})

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.owner = owners.new_owner()
        # The fences of the calls that run in this process, by key.
        self._claims: dict[int, int] = {}
        # Ends of calls that could not be recorded, by key. They are recorded as soon as that is possible.
        self._owed: dict[int, tuple[State, Facts]] = {}
        self._renewer: Signal | None = None

    def begin(self, call: NewCall, state: State = State.REQUESTED, facts: Facts = NOTHING) -> int:
        """Record a new call; return its key."""
        is_lasting = state in self.LASTING or (state is _EXECUTING and call.level == _DANGEROUS)
        self._settle()
        # Under one lock: the thread that renews the lease must never see a running call without its claim.
        with self._lock:
            key = self._write(lambda: self._begin(writable(call), state, facts), is_lasting=is_lasting)
            if state is _EXECUTING:
                self._claims[key] = 1
        return key

    def move(self, key: int, state: State, facts: Facts = NOTHING, *, expected: Sequence[State] = ()) -> None:
        """Record that a call has reached a state; MovedError if its present state does not lead there."""
        if state is _EXECUTING:
            self._take(key, facts, expected)
            return
        is_lasting = state in self.LASTING
        try:
            refusal = self._write(lambda: self._move(key, state, facts, expected), is_lasting=is_lasting)
        except JournalError as error:
            if state in FINAL and key in self._claims and not isinstance(error, MovedError):
                self._owed[key] = state, facts
            raise
        if state in FINAL:
            self._claims.pop(key, None)
        if refusal is not None:
            raise refusal

    def claim(self, key: int, facts: Facts = NOTHING) -> int:
        """Take a ready call in order to run it; return the fence."""
        return self._take(key, facts, ())

    def note(self, call: NewCall, state: State, facts: Facts = NOTHING) -> None:
        """Record a whole call at once, after it is over."""
        self._settle()
        self._write(lambda: self._note(writable(call), state, facts), is_lasting=state in self.LASTING)

    def deliver(self, key: int) -> None:
        """Record that the caller has got the answer."""
        self._write(lambda: self._deliver(key), is_lasting=False)

    def recover(self, is_idempotent: Callable[[str], bool]) -> list[CallRecord]:
        """Recover calls whose process has ended, and deny those whose time to be decided is over."""
        self._settle()
        if not self._read(lambda: self._stale(self._now())):
            return []
        keys = self._write(lambda: self._recover(is_idempotent), is_lasting=True)
        return self._read(lambda: self._records(f"key IN ({marks(keys)})", keys)) if keys else []

    def record(self, key: int) -> CallRecord | None:
        """Return how a call stands."""
        found = self._read(lambda: self._record_at(key))
        return found[0] if found else None

    def find(self, identity: str, *, delivered: bool = False) -> CallRecord | None:
        """Return the latest call of this identity that is not over or whose answer was not delivered."""
        return self._read(lambda: self._found(identity, delivered=delivered)) if identity else None

    def _found(self, identity: str, *, delivered: bool) -> CallRecord | None:
        # The index leaves out calls without an identity. It is used only if the statement does so too.
        wanted = "identity = ? AND identity <> ''"
        if not delivered:
            wanted += " AND (delivered = 0 OR state NOT IN ('done', 'failed', 'denied'))"
        found = self._records(wanted, [identity], 1)
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
        """Return how calls stand, latest first; with `below`, only calls with smaller keys."""
        wanted: list[str] = [f"state IN ({marks(states)})"] if states else []
        if states and State.DONE not in states:
            wanted.append(UNDONE)
        values: list[Any] = [state.value for state in states]
        filters = {
            "tool = ?": tool,
            "principal = ?": principal,
            "session = ?": session,
            "project = ?": project,
            "changed_at >= ?": since,
            "key < ?": below,
        }
        for condition, value in filters.items():
            if value:
                wanted.append(condition)
                values.append(value)
        return self._read(lambda: self._records(" AND ".join(wanted) or "key > 0", values, most))

    def entries(self, key: int = 0, *, after: int = 0, most: int = 10_000) -> list[Entry]:
        """Return the moves of all calls or of one, oldest first; `after` is how many to skip."""
        return self._read(lambda: self._entries(key, most, after))

    def close(self) -> None:
        """Close the connection. Calls that still run are left to `recover`."""
        self._settle()
        with self._lock:
            owners.leave(self.owner)
            if self._renewer is not None:
                self._renewer.set()
            self._disconnect()

    @abstractmethod
    def bell(self) -> Bell:
        """Return a bell that rings after each move of any process."""

    @property
    @abstractmethod
    def run_directory(self) -> Path | None:
        """The directory for the sockets of the processes of this machine that use this journal."""

    # What happens inside a transaction.

    def _begin(self, call: NewCall, state: State, facts: Facts) -> int:
        if call.is_unique and call.identity:
            self._check_unique(call.identity)
        now = self._now()
        if state is _EXECUTING:
            self._keep_lease(now)
            facts = msgspec.structs.replace(facts, owner=self.owner, fence=1)
        moves = [(state, facts)]
        if state not in MOVES[None]:
            check_move(0, _REQUESTED, state)
            moves.insert(0, (_REQUESTED, NOTHING))
        row = new_row(call, self.owner, now)
        for each, told in moves:
            row = row.moved(each, told, now)
        key = self._add_call(row)
        calls = (call, None)
        texts = [kept_text(told, calls[step]) for step, (_, told) in enumerate(moves)]
        if state not in MOVES:
            # It was refused at once, so it is over.
            texts = self.masking(call.tool, texts)
        for step, (each, told) in enumerate(moves):
            self._tell((key, step + 1), each, now, told, call=calls[step], kept=texts[step])
        return key

    def _check_unique(self, identity: str) -> None:
        """Refuse a call that exists already; other processes that begin it wait for this transaction."""
        self._alone_with(identity)
        found = self._found(identity, delivered=True)
        if found is not None:
            raise MovedError(f"it was begun as call {found.key} already", found)

    def _alone_with(self, identity: str) -> None:
        """Keep other processes from beginning a call of this identity until the transaction ends."""

    def _note(self, call: NewCall, state: State, facts: Facts) -> None:
        now = self._now()
        row = over_row(call, self.owner, now, state)
        self._tell((self._add_call(row), 1), state, now, facts, call=call, tool=call.tool)

    def _take(self, key: int, facts: Facts, expected: Sequence[State]) -> int:
        with self._lock:
            fence = self._write(lambda: self._claim(key, facts, expected), is_lasting=True)
            self._claims[key] = fence
        return fence

    def _claim(self, key: int, facts: Facts, expected: Sequence[State]) -> int:
        held, story = self._held(key, *story_of(key))
        row = _known(held, key, _EXECUTING)
        self._check(row, _EXECUTING, facts, expected)
        # An approved call may have waited for days in a database that other programs can write.
        check_story(row, *story)
        fence = row.fence + 1
        self._keep_lease(self._now())
        self._advance(row, _EXECUTING, msgspec.structs.replace(facts, owner=self.owner, fence=fence))
        return fence

    def _move(
        self, key: int, state: State, facts: Facts, expected: Sequence[State] = ()
    ) -> MovedError | None:
        """Make a move; return the refusal of an end that comes too late, which is itself recorded."""
        # A finished call has its secrets masked. An approved call must be the one that was recorded: the
        # question may have waited for days in a database that other programs can write.
        more = story_of(key) if state is _READY else () if state in MOVES else ((CONTENTS_OF, (key,)),)
        held, kept = self._held(key, *more)
        row = _known(held, key, state)
        # A caller that names an expected state does not act for the run that was claimed here: a person
        # resolves a doubt.
        own = 0 if expected else self._claims.get(key, 0)
        fence = (facts.fence or own) if state in FINAL else 0
        if fence and fence != row.fence:
            return self._late(row, state, msgspec.structs.replace(facts, fence=fence))
        self._check(row, state, facts, expected)
        if row.state == _EXECUTING.value and not fence and row.owner != self.owner:
            raise MovedError(f"call {key} is run by another process", self._record(row))
        if state is _READY:
            check_story(row, *kept)
        self._advance(row, state, facts, earlier=kept[0] if kept and state not in MOVES else None)
        return None

    def check(self, key: int) -> None:
        """Raise ForgedRecordError unless the rows of an unfinished call are what was recorded."""
        rows, *story = self._read(lambda: self._run_all((CALL_AT, (key,)), *story_of(key)))
        check_story(_known(CallRow._make(rows[0]) if rows else None, key, _AWAITING), *story)

    def _settle(self) -> None:
        """Record ends that could not be recorded before; those that still cannot stay owed."""
        for key in list(self._owed):
            # Another thread may record it: the thread of the lease, or a thread that begins a call.
            owed = self._owed.pop(key, None)
            if owed is None:
                continue
            state, facts = owed
            try:
                self.move(key, state, facts)
            except MovedError:
                # Another process has recovered the call, and the late end is recorded.
                continue
            except JournalError:
                return

    def _late(self, row: CallRow, state: State, facts: Facts) -> MovedError:
        """Record the late end of a run that was taken over or is in doubt; the call stays as it is."""
        reason = f"call {row.key} ended as {state.value} in a process that had lost it"
        told = Told(
            owner=self.owner,
            fence=facts.fence,
            elapsed_ms=facts.elapsed_ms or None,
            size=facts.size,
            digest=facts.digest,
            failure=facts.failure,
            reason=reason,
        )
        self._tell_own(LATE, self._now(), told)
        return MovedError(
            f"call {row.key} is {row.state} now, and no longer this process's", self._record(row)
        )

    def _check(self, row: CallRow, state: State, facts: Facts, expected: Sequence[State]) -> None:
        """Raise MovedError unless the move comes from where the call is."""
        before, ruling = State(row.state), facts.ruling
        if state not in MOVES.get(before, ()):
            check_move(row.key, before, state, self._record(row))
        if expected and before not in expected:
            wanted = " or ".join(word.value for word in expected)
            raise MovedError(f"call {row.key} is {before.value}, no longer {wanted}", self._record(row))
        if before is not _AWAITING or state not in _DECISIONS:
            return
        if row.seal and (ruling.seal != row.seal if ruling else state is _READY):
            text = f"call {row.key} is asked about anew: what was shown has changed"
            raise MovedError(text, self._record(row))
        if state is _READY and 0 < row.expires_at < self._now():
            raise MovedError(f"call {row.key} was approved after its time was over", self._record(row))

    def _advance(
        self,
        row: CallRow,
        state: State,
        facts: Facts,
        *,
        earlier: Sequence[Sequence[Any]] | None = None,
        **changed: Any,
    ) -> None:
        now = self._now()
        after = row.moved(state, facts, now)._replace(**changed)
        if row.state == _IN_DOUBT.value:
            # The caller was told that the outcome is unknown; now there is an answer to deliver.
            after = after._replace(delivered=0)
        self._change_call(row, after)
        tool, is_awaited = ("", False) if state in MOVES else (row.tool, bool(row.identity))
        place = row.key, after.step
        self._tell(place, state, now, facts, tool=tool, is_awaited=is_awaited, earlier=earlier)

    def _deliver(self, key: int) -> None:
        over = "state IN ('done', 'failed', 'denied', 'in_doubt')"
        if self._change(f"UPDATE calls SET delivered = 1 WHERE key = ? AND {over}", (key,)):  # noqa: S608 - our own
            self._run("DELETE FROM answers WHERE key = ?", (key,))

    # Calls of processes that are gone.

    def _stale(self, now: float, locking: str = "") -> list[CallRow]:
        wanted = (
            f"{UNDONE} AND state IN ('executing', 'requested', 'awaiting') "
            "AND (state <> 'awaiting' OR (expires_at > 0 AND expires_at <= ?))"
        )
        rows = self._rows(wanted, [now], None, locking)
        alive: dict[str, bool | None] = {}
        for row in rows:
            if row.owner not in alive:
                alive[row.owner] = self._is_alive(row.owner, now)
        return [row for row in rows if _is_stale(row, now, is_alive=alive[row.owner])]

    def _is_alive(self, owner: str, now: float) -> bool | None:
        """Tell whether a process lives, by its id or its lease; None if neither can tell."""
        if owner == self.owner:
            return True
        here = self._is_alive_here(owner)
        if here is not None:
            return here
        found = self._run("SELECT until FROM leases WHERE owner = ?", (owner,))
        return found[0][0] > now if found else None

    def _is_alive_here(self, owner: str) -> bool | None:
        """Tell whether a process of this machine lives; None if it belongs to another machine."""
        return owners.is_alive(owner)

    def _write(self, work: Callable[[], T], *, is_lasting: bool) -> T:
        try:
            return super()._write(work, is_lasting=is_lasting)
        except BaseException:
            # The transaction that was rolled back may have renewed the lease.
            self._leased_until = 0.0
            raise

    def _recover(self, is_idempotent: Callable[[str], bool]) -> list[int]:
        stale = self._stale(self._now(), self.SKIPPING)
        for row in stale:
            state = State(row.state)
            if state is _AWAITING:
                ruling = Ruling(approved=False, by="", seal=row.seal, refuser="timeout")
                self._advance(row, _DENIED, Facts(detail="nobody decided in time", ruling=ruling))
            elif state is _REQUESTED:
                # It never ran, so a caller that returns makes a new call.
                told = Facts(detail="its process ended before anybody was asked", failure="interrupted")
                self._advance(row, _FAILED, told, delivered=1)
            else:
                # The process may only seem to be gone. With a new fence it can no longer end this call.
                told = Facts(detail="the process that ran it is gone", fence=row.fence + 1)
                after = _READY if is_idempotent(row.tool) else _IN_DOUBT
                self._advance(row, after, told, fence=row.fence + 1)
        self._run("DELETE FROM leases WHERE until < ?", (self._now() - FORGOTTEN_SECONDS,))
        return [row.key for row in stale]

    def _keep_lease(self, now: float) -> None:
        """Tell other machines that this process lives, before it runs a call."""
        if self._leased_until - now < LEASE_SECONDS / 2:
            until = now + LEASE_SECONDS
            statement = (
                "INSERT INTO leases (owner, until) VALUES (?, ?) "
                "ON CONFLICT (owner) DO UPDATE SET until = excluded.until"
            )
            self._run(statement, (self.owner, until))
            self._leased_until = until
        if self._renewer is None:
            self._renewer = Signal()
            arguments = (ref(self), self._renewer)
            Thread(target=_renew, args=arguments, name="gramercy-lease", daemon=True).start()

    def _renew(self) -> bool:
        """Renew the lease while a call runs here; False when none does."""
        with self._lock:
            if not self._claims:
                self._renewer = None
                return False
            self._leased_until = 0.0
        self._settle()
        self._write(lambda: self._keep_lease(self._now()), is_lasting=False)
        return True

    def _record(self, row: CallRow) -> CallRecord:
        return self._record_at(row.key)[0]


def _known(row: CallRow | None, key: int, state: State) -> CallRow:
    if row is None:
        raise MovedError(f"call {key} is unknown: it cannot be {state.value}")
    return row


def _is_stale(row: CallRow, now: float, *, is_alive: bool | None) -> bool:
    if row.state == _AWAITING.value:
        return True
    if row.state == _REQUESTED.value and is_alive is None:
        return now - row.changed_at > FORGOTTEN_SECONDS
    return not is_alive


def _renew(journal: ref[SqlJournal], stopped: Signal) -> None:
    while not stopped.wait(LEASE_SECONDS / 3):
        found = journal()
        try:
            if found is None or not found._renew():  # noqa: SLF001 - a part of it, on a thread of its own
                return
        except Exception as error:  # noqa: BLE001 - the thread must outlive whatever the store meets
            if stopped.is_set():
                return
            # Another machine may now take this process for dead; the fence keeps its moves out.
            log.warning("the lease of this process was not renewed: %s", error)
        del found
