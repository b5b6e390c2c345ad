"""The journal on a PostgreSQL server: for processes of several machines, and for more than one person.

One connection writes. When it is lost, work that was not committed is done again. The head of this writer's
own chain tells whether it was committed. A second connection, on a thread, notifies other processes; a third
listens while a caller waits in this process. The tables are in a schema of their own, `gramercy`.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

from gramercy.errors import JournalError
from gramercy.journal import owners, schema
from gramercy.journal.base import State
from gramercy.journal.bells import Bells
from gramercy.journal.opening import default_place
from gramercy.journal.sql import SqlJournal
from gramercy.journal.tables import INSERT_CONTENT, INSERT_EVENT, UPDATE_CHAIN

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    from gramercy.journal.notices import LISTEN, UNHURRIED, Ear, Messenger
    from gramercy.journal.pipeline import LONG_SILENCE_SECONDS, SILENCE_SECONDS, Pipeline
except ImportError as missing:
    raise JournalError(
        f"a journal on PostgreSQL needs psycopg ({missing}): pip install 'gramercy[postgres]'"
    ) from missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from psycopg.pq.abc import PGresult

    from gramercy.journal.base import CallRecord
    from gramercy.journal.bells import Bell
    from gramercy.journal.chain import Content, Event, Head
    from gramercy.journal.tables import Statement

# A server is back within seconds after a restart; a client cancels a call after a minute.
PATIENCE_SECONDS = 20.0
PAUSE_SECONDS = 0.1
# One lock for all processes that create tables or open a chain; any number that no other program uses.
LOCK = 0x6772616D
# A network that fails silently is detected within 25 seconds; a local socket ignores these settings.
NETWORK = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "application_name": "gramercy",
}
# Our transactions take milliseconds: a process that holds a row for longer has stopped.
SESSION = """
SET search_path = gramercy;
SET client_min_messages = warning;
SET lock_timeout = '10s';
SET idle_in_transaction_session_timeout = '30s';
SET default_transaction_isolation = 'read committed';
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'
"""
_CLOCK = "SELECT extract(epoch FROM clock_timestamp())::float8"
_HELLO = (
    "SELECT current_setting('synchronous_commit'), system_identifier || '/' || datid, pid, backend_start "
    "FROM pg_stat_activity, pg_control_system() WHERE pid = pg_backend_pid()"
)
# Rules and policies can hide rows or rewrite them.
_OBJECTS = (
    "SELECT CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' ELSE 'table of another kind' END, "
    "c.relname::text FROM pg_class c WHERE c.relnamespace = 'gramercy'::regnamespace "
    "AND c.relkind IN ('r', 'v', 'm', 'f', 'p') "
    "UNION ALL SELECT 'trigger', t.tgname::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid "
    "WHERE c.relnamespace = 'gramercy'::regnamespace AND NOT t.tgisinternal "
    "UNION ALL SELECT 'rule', rulename::text FROM pg_rules WHERE schemaname = 'gramercy' "
    "UNION ALL SELECT 'policy', policyname::text FROM pg_policies WHERE schemaname = 'gramercy' ORDER BY 1, 2"
)
_END_OTHER = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = ? AND backend_start = ?"
_BEGIN, _COMMIT = ("BEGIN", ()), ("COMMIT", ())
# A commit that may be lost when the server crashes need not wait for the server's disk.
_UNHURRIED = ("SET LOCAL synchronous_commit = off", ())
# The server's code for a division by zero, which means that the rows to change are not there.
_NONE_CHANGED = "22012"
# The most events of one call; recovering many calls is sent in parts.
MOST_AT_ONCE = 8
# The server has aborted this transaction to end a deadlock, or could not serialize it.
_AGAIN = frozenset({"40001", "40P01"})
T = TypeVar("T")


class _LostError(JournalError):
    """No part of a transaction was committed, and it may be retried."""


class PostgresJournal(SqlJournal):
    """A journal on a server, named by an address: postgresql://user:password@host:port/database?options."""

    LOCKING = " FOR UPDATE"
    SKIPPING = " FOR UPDATE SKIP LOCKED"
    LOOKING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    # A server can crash while this process lives on and its caller already has an answer.
    LASTING = frozenset(State)
    WORDS = schema.POSTGRES_WORDS

    def __init__(self, address: str, *, patience: float = PATIENCE_SECONDS) -> None:
        self._settings = _settings(address)
        super().__init__(_shown(self._settings))
        self._patience = patience
        self._connection: Pipeline | None = None
        # The server processes behind lost connections and, last, behind the present one: id and start time.
        self._backends: list[tuple[int, Any]] = []
        # The offset of the server's time from a clock of this machine that is never set.
        self._offset = 0.0
        self._synchronous = "on"
        self._database = ""
        self._head_before: Head | None = None
        self._is_closed = False
        # The statements that begin the transaction, until its first statement is sent.
        self._beginning: list[Statement] = []
        # The statements that the transaction writes at its end.
        self._inserts: list[tuple[str, Sequence[Any]]] = []
        self._changes: list[tuple[str, Sequence[Any]]] = []
        self._end: tuple[int, str, int, int] | None = None
        self._bells = Bells(lambda: Ear(self._open(LISTEN)))
        self._messenger = Messenger(lambda: self._open(UNHURRIED))
        with self._lock:
            try:
                self._connect()
                self._migrate()
            except BaseException:
                self._disconnect()
                raise

    def bell(self) -> Bell:
        """Return a bell that rings after each commit of any process."""
        return self._bells.bell()

    @cached_property
    def run_directory(self) -> Path:
        """The directory for the sockets of the processes of this machine that use this journal."""
        name = sha256(self._database.encode()).hexdigest()[:16]
        return default_place().parent / f"postgres-{name}.run"

    def recover(self, is_idempotent: Callable[[str], bool]) -> list[CallRecord]:
        """Recover calls whose process has ended, by the server's present time."""
        self._read(self._set_clock)
        return super().recover(is_idempotent)

    @contextmanager
    def looking(self) -> Iterator[Callable[[str, Sequence[Any]], list[Sequence[Any]]]]:
        """Give a function that queries the server, always in the state of this moment."""
        # Detect and replace a lost connection before the look begins.
        self._read(self._set_clock)
        with super().looking() as ask, self._unhurried():
            yield ask

    @contextmanager
    def _unhurried(self) -> Iterator[None]:
        """Allow the server more time for an answer."""
        connection = self._connection
        if connection is None:
            yield
            return
        connection.silence = LONG_SILENCE_SECONDS
        try:
            yield
        finally:
            connection.silence = SILENCE_SECONDS

    def close(self) -> None:
        """Close the connections and release the lease. Calls that still run are left to `recover`."""
        # Do this while the journal can still be written and other processes can be notified.
        self._settle()
        self._bells.close()
        self._messenger.close()
        with self._lock:
            self._is_closed = True
            # If the server is gone, the lease expires by itself.
            with suppress(JournalError):
                self._run("DELETE FROM leases WHERE owner = ?", (self.owner,))
            super().close()

    def strangers(self, ask: Callable[[str, Sequence[Any]], list[Sequence[Any]]]) -> list[str]:
        """Name the objects of the schema that the migrations have not created."""
        known = [name for (name,) in ask("SELECT name FROM migrations", ())]
        ours = schema.tables(known, schema.POSTGRES_WORDS)
        return [f"{kind} {name}" for kind, name in ask(_OBJECTS, ()) if kind != "table" or name not in ours]

    # Connections.

    def _open(self, *first: str) -> psycopg.Connection[Any]:
        """Return a new connection on which `first` was run; JournalError if the server cannot be reached."""
        connection: psycopg.Connection[Any] | None = None
        try:
            connection = psycopg.connect(**self._settings, autocommit=True, cursor_factory=psycopg.RawCursor)
            first_words = Pipeline(connection)
            for statement in (SESSION, *first):
                first_words.run([(statement, ())])
        except BaseException as error:
            if connection is not None:
                connection.close()
            if not isinstance(error, (psycopg.Error, OSError)):
                raise
            raise JournalError(f"the journal {self.where} cannot be reached: {_line(error)}") from error
        return connection

    def _connect(self) -> None:
        """Connect again. The end of this writer's chain has to be read again."""
        self._disconnect()
        self._head = None
        try:
            self._connection = Pipeline(self._open())
            self._set_clock()
            ((self._synchronous, self._database, pid, began),) = self._run(_HELLO, ())
            self._backends.append((pid, began))
            self._end_others(time.monotonic() + self._patience)
        except BaseException:
            # The remains of the previous connection may not be settled.
            self._disconnect()
            raise

    def _end_others(self, end: float) -> None:
        """Terminate the server processes of lost connections; the server may not have noticed the loss yet.

        Only then is it certain what was committed, and no lock that the next transaction needs is held.
        """
        while len(self._backends) > 1:
            if not self._run(_END_OTHER, self._backends[0]):
                del self._backends[0]
            elif time.monotonic() > end:
                raise JournalError(f"the journal {self.where} does not let go of a connection that was lost")
            else:
                time.sleep(PAUSE_SECONDS / 10)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()

    def _reconnect(self, end: float) -> None:
        while True:
            try:
                self._connect()
            except JournalError:
                if time.monotonic() > end:
                    raise
                time.sleep(PAUSE_SECONDS)
            else:
                return

    def _persist(self, act: Callable[[], T]) -> T:
        """Do something, and retry it after its transaction was lost, until the server is back."""
        with self._lock:
            end = time.monotonic() + self._patience
            while not self._is_closed:
                try:
                    if self._connection is None:
                        self._reconnect(end)
                    return act()
                except _LostError:
                    if time.monotonic() > end:
                        raise
                    # Pause, in case the server ends one connection after the other.
                    time.sleep(PAUSE_SECONDS / 10)
        raise JournalError(f"the journal {self.where} is closed")

    # Transactions.

    def _alone_with(self, identity: str) -> None:
        # Other transactions write concurrently, and do not see the rows of this one.
        self._run("SELECT pg_advisory_xact_lock(?, hashtext(?))", (LOCK, identity))

    def _migrate(self) -> None:
        self._start(is_lasting=True)
        try:
            self._run("SELECT pg_advisory_xact_lock(?)", (LOCK,))
            for name in schema.missing(self._migrated(), self.where):
                for statement in schema.statements(name, schema.POSTGRES_WORDS):
                    self._run(statement, ())
                self._run("INSERT INTO migrations VALUES (?, ?)", (name, self._now()))
            self._commit()
        except BaseException:
            self._roll_back()
            raise

    def _migrated(self) -> list[str]:
        """Return the migrations made so far. Create the schema only if missing: users may lack the right."""
        ((register,),) = self._run("SELECT to_regclass('gramercy.migrations')::text", ())
        if register is None:
            self._run("CREATE SCHEMA IF NOT EXISTS gramercy", ())
            self._run(schema.REGISTER, ())
        return [name for (name,) in self._run("SELECT name FROM migrations", ())]

    def _write(self, work: Callable[[], T], *, is_lasting: bool) -> T:
        make = super()._write
        return self._persist(lambda: make(work, is_lasting=is_lasting))

    def _read(self, work: Callable[[], T]) -> T:
        make = super()._read
        return self._persist(lambda: make(work))

    def _start(self, *, is_lasting: bool) -> None:
        self._head_before = self._head
        # They are sent with the first statement, as the last statement is sent with the commit.
        self._beginning = [_BEGIN] if is_lasting else [_BEGIN, _UNHURRIED]

    def _commit(self) -> None:
        try:
            self._execute(*self._put_off(), _COMMIT)
        except _LostError:
            # If the server is still connected, it has said itself that the commit failed.
            if self._connection is not None or not self._was_committed():
                raise

    def _was_committed(self) -> bool:
        """Tell whether a transaction whose answer was lost was committed: then its event ends our chain."""
        made = self._head
        if made is None or made == self._head_before:
            # It recorded no event, and can be made twice.
            return False
        chain, self._chain = self._chain, made.chain
        try:
            is_made = self._persist(self._found_head) == made
        except JournalError as error:
            raise JournalError(f"{error}; whether the last move was recorded is not known") from error
        finally:
            self._chain = chain
        self._head = made if is_made else None
        return is_made

    def _roll_back(self) -> None:
        self._beginning, self._inserts, self._changes, self._end = [], [], [], None
        if self._connection is None:
            return
        with suppress(Exception):
            if not self._connection.is_idle:
                self._run("ROLLBACK", ())
            if self._connection.is_idle:
                return
        # A transaction that cannot be ended would include every later statement.
        self._disconnect()

    def _run(self, statement: str, values: Sequence[Any]) -> list[Sequence[Any]]:
        return self._run_all((statement, values))[0]

    def _run_all(self, *statements: Statement) -> list[list[Sequence[Any]]]:
        results, connection = self._execute(*statements), self._connection
        assert connection is not None  # noqa: S101 - it has just answered; this tells mypy
        try:
            return [connection.rows(result) for result in results]
        except Exception as error:
            raise self._told(connection, error) from error

    def _change(self, statement: str, values: Sequence[Any]) -> int:
        return self._execute((statement, values))[0].command_tuples or 0

    def _insert(self, statement: str, values: Sequence[Any]) -> int:
        ((key,),) = self._run(f"{statement} RETURNING key", values)
        return int(key)

    def _change_one(self, statement: str, values: Sequence[Any]) -> bool:
        self._changes.append((statement, values))
        return True

    def _put(self, event: Event, content: Content | None, end: tuple[int, str, int, int]) -> bool:
        self._inserts.append((INSERT_EVENT, event))
        if content is not None:
            self._inserts.append((INSERT_CONTENT, (event.key, event.step, *content)))
        # The chain ends with the last event, and started from the end that the first event found.
        self._end = end if self._end is None else (*end[:3], self._end[3])
        if len(self._inserts) > MOST_AT_ONCE:
            self._execute(*self._put_off())
        return True

    def _put_off(self) -> list[Statement]:
        """Return the deferred writes as one statement, which fails unless every change finds its row.

        A transaction reads none of these rows back.
        """
        if self._end is not None:
            self._changes.append((UPDATE_CHAIN, self._end))
        inserts, changes = self._inserts, self._changes
        self._inserts, self._changes, self._end = [], [], None
        if not changes and not inserts:
            return []
        parts = [f"i{number} AS ({each})" for number, (each, _) in enumerate(inserts)]
        parts += [f"c{number} AS ({each} RETURNING 1)" for number, (each, _) in enumerate(changes)]
        found = " * ".join(f"(SELECT count(*) FROM c{number})" for number in range(len(changes)))  # noqa: S608
        values = [value for _, each in (*inserts, *changes) for value in each]
        return [(f"WITH {', '.join(parts)} SELECT 1 / ({found})", values)]

    def _execute(self, *statements: Statement) -> list[PGresult]:
        """Run statements in one round trip, after those that begin the transaction."""
        connection = self._connection
        if connection is None:
            raise _LostError(f"the journal {self.where} is not connected")
        beginning, self._beginning = self._beginning, []
        try:
            return connection.run((*beginning, *statements))[len(beginning) :]
        except Exception as error:
            # Catch every kind of error: an error that is not a JournalError would not be retried.
            raise self._told(connection, error) from error

    def _told(self, connection: Pipeline, error: Exception) -> JournalError:
        if connection.is_closed:
            self._disconnect()
            return _LostError(f"the journal {self.where} was lost: {_line(error)}")
        code = error.sqlstate if isinstance(error, psycopg.Error) else None
        if code == _NONE_CHANGED:
            return JournalError(f"what this process wrote in {self.where} was changed by another")
        kind = _LostError if code in _AGAIN else JournalError
        return kind(f"the journal {self.where} cannot be used: {_line(error)}")

    # Clocks, chains, leases and notices.

    def _set_clock(self) -> None:
        asked = _ticks()
        ((clock,),) = self._run(_CLOCK, ())
        self._offset = clock - (asked + _ticks()) / 2

    def _now(self) -> float:
        """Return the time of the server: the clocks of its clients may differ."""
        return _ticks() + self._offset

    def _wipe(self) -> None:
        # Until a VACUUM, deleted and changed rows stay in the files of the server.
        with self._unhurried():
            self._run("VACUUM contents", ())
            self._run("VACUUM answers", ())

    def _lock_chains(self) -> None:
        # The opening of a chain must outlive a crash of the server: else another chain would get its number.
        self._run(f"SET LOCAL synchronous_commit = {self._synchronous}", ())
        self._run("SELECT pg_advisory_xact_lock(?)", (LOCK,))

    def _renew(self) -> bool:
        self._read(self._set_clock)
        return super()._renew()

    def _is_alive_here(self, owner: str) -> bool | None:
        # Several machines may have the same host name here, each with its own boot.
        return owners.is_alive(owner) if owners.is_here(owner) else None

    def _ring(self) -> None:
        self._bells.strike()
        self._messenger.notify()


def _settings(address: str) -> dict[str, Any]:
    """Return the settings for libpq: the address overrides our defaults."""
    try:
        told = conninfo_to_dict(address)
    except psycopg.Error as error:
        raise JournalError(f"the address of the journal cannot be read: {_line(error)}") from error
    return {**NETWORK, **told, "client_encoding": "utf8"}


def _shown(settings: dict[str, Any]) -> str:
    """Return an address for messages, without the password."""
    user, host, port = (str(settings.get(name) or "") for name in ("user", "host", "port"))
    at = f"{user}@" if user else ""
    if host.startswith("/"):
        return f"postgresql://{at}/{settings.get('dbname', '')}?host={host}"
    return f"postgresql://{at}{host}{f':{port}' if port else ''}/{settings.get('dbname', '')}"


def _line(error: Exception) -> str:
    """Return the first line of an error of the server or libpq."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _ticks() -> float:
    """Return the seconds since this machine started, including those in which it slept."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
