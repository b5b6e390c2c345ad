"""The journal in an SQLite file: for the processes of one person on one machine.

A file that cannot be read as a database is set aside under another name, never overwritten, and a new one is
begun. When a method returns, its record is in the file or in the write-ahead log.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import stat
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Lock, RLock
from time import gmtime, monotonic, sleep, strftime
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from gramercy.errors import JournalError
from gramercy.journal import owners, schema
from gramercy.journal.bells import Doorbell, run_directory
from gramercy.journal.files import Files, Loss, exposed, identity, what_instead
from gramercy.journal.sql import SqlJournal
from gramercy.text import reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gramercy.journal.bells import Bell

T = TypeVar("T")
log = logging.getLogger("gramercy.journal")
# Longer than our transactions take on a busy machine, shorter than a client waits for an answer.
BUSY_SECONDS = 10.0
# SQLite waits longer each time it finds the file locked, up to 100 ms, so that one of several writers waits
# for seconds. So let SQLite wait only briefly, and retry here.
SHORT_WAIT_MS = 3
# Every commit writes whole pages, one for each table and index it touches; a row has a few hundred bytes.
PAGE_BYTES = 2_048
# Pages in the log before a checkpoint, which costs two fsyncs, writes them to the file: 8 MB, some 500 calls.
CHECKPOINT_PAGES = 4_000
# The log grows while a process reads for long, for instance to verify; then it is truncated to this.
LARGEST_LOG = 32 << 20
# Marks the file as ours: "gram", in the header field that SQLite has for it.
APPLICATION = int.from_bytes(b"gram")
MAGIC = b"SQLite format 3\0"
# The tables of ANALYZE are SQLite's own.
_OBJECTS = "SELECT type, name, tbl_name FROM sqlite_master WHERE name NOT LIKE 'sqlite!_stat%' ESCAPE '!'"
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_REASONS = {
    sqlite3.SQLITE_BUSY: "another process has locked it and does not let go; end that one, and try again",
    sqlite3.SQLITE_FULL: "the disk is full; make room, and try again",
    sqlite3.SQLITE_READONLY: "it is read-only; allow writing there, or name another journal",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; look at the rights of the directory",
    sqlite3.SQLITE_IOERR: "the disk cannot be read or written",
    sqlite3.SQLITE_CORRUPT: "it is damaged; it is set aside when a journal is opened there next",
    sqlite3.SQLITE_NOTADB: "it is not a database",
}
_open_here: WeakSet[SqliteJournal] = WeakSet()
# Only one thread of this process opens a journal at a time: the thread that creates the file closes its
# descriptor again, which would end the locks of any connection that another thread has opened meanwhile.
_opening = Lock()
# Connections that a fork has copied. Closing them would act on the parent's files.
_inherited: list[object] = []


class SqliteJournal(SqlJournal):
    """A journal in a file that only its owner can read, with a write-ahead log beside it.

    If a damaged file was found, `set_aside` is its new path; without `sets_aside` it is refused.
    """

    OLDEST_FIRST = "e.rowid"
    LATEST_FIRST = "e.rowid DESC"
    WORDS = schema.SQLITE_WORDS

    def __init__(
        self, path: str | Path, *, busy_seconds: float = BUSY_SECONDS, sets_aside: bool = True
    ) -> None:
        self.path = Path(path)
        super().__init__(str(path))
        self.set_aside: Path | None = None
        self._sets_aside = sets_aside
        self._files = Files(self.path)
        self._has_new_lock = False
        self._busy_seconds = busy_seconds
        self._watcher: sqlite3.Connection | None = None
        self._watching = Lock()
        self._is_closed = False
        self._doorbell = Doorbell(self.run_directory, self._version)
        try:
            self._open()
        except BaseException:
            owners.leave(self.owner)
            raise
        _open_here.add(self)

    def bell(self) -> Bell:
        """Return a bell that rings after each commit of any process."""
        return self._doorbell.bell()

    @property
    def run_directory(self) -> Path:
        """The directory for the sockets of processes that use this file."""
        return run_directory(self.path)

    def _ring(self) -> None:
        self._doorbell.ring()

    def _version(self) -> int:
        """Return a value that changes after a commit of another connection, for the thread of the bells."""
        # If another thread closes the connection during the query, the process crashes.
        with self._watching:
            if self._watcher is None:
                if self._is_closed:
                    raise JournalError(f"the journal {self.where} is closed")
                # Use a connection that never writes: a connection does not see its own commits as changes.
                self._watcher = sqlite3.connect(self.path, timeout=0.0, check_same_thread=False)
            found: int = self._watcher.execute("PRAGMA data_version").fetchone()[0]
            return found

    # Opening.

    def _open(self) -> None:
        """Open the file, or set it aside and open a new one if it is damaged."""
        self._check_regular()
        for _ in range(3):
            # No process may be connecting while the file is renamed: SQLite finds the log by its name.
            with _opening, self._locked(fcntl.LOCK_SH):
                inode = self._prepare_file()
                damage = self._damage_found()
            if damage is None:
                self._files.note()
                return
            if not self._sets_aside:
                raise JournalError(f"the journal {self.where} is damaged ({damage}): it was left as it is")
            self._put_aside(inode, damage)
        raise JournalError(f"the journal {self.where} is damaged again and again; look at the disk")

    def _check_regular(self) -> None:
        """Refuse what is not a regular file before anything is created beside it."""
        if told := what_instead(self.path):
            raise JournalError(f"the journal {self.path} cannot be used: {told}; name another file")

    def _prepare_file(self) -> int:
        """Create the file, readable only for its owner, if it does not exist; return its inode."""
        try:
            # Do not open an existing file: closing it would end the locks of all connections of this process,
            # and another process would then remove the log that they write to.
            try:
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            except FileExistsError:
                self._remark = self._remark or self._files.remark()
            return self.path.stat().st_ino
        except OSError as error:
            raise JournalError(f"the journal {self.path} cannot be written: {reason_of(error)}") from error

    def _damage_found(self) -> sqlite3.Error | None:
        """Connect; return the error of a file that cannot be read as a database."""
        try:
            self._connection = sqlite3.connect(
                self.path,
                timeout=self._busy_seconds,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
        except sqlite3.Error as error:
            raise self._told(error) from error
        try:
            self._prepare()
        except BaseException as error:
            self._connection.close()
            if not isinstance(error, sqlite3.Error):
                raise
            if _code(error) in _DAMAGED:
                return error
            raise self._told(error) from error
        return None

    def _prepare(self) -> None:
        self._is_lasting: bool | None = None
        self._pid = os.getpid()
        self._connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        self._check_kind()
        self._make_private()
        self._use_log()
        # Masked and deleted contents are overwritten with zeros; otherwise they could be read in the file.
        self._connection.execute("PRAGMA secure_delete = ON")
        self._connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        self._connection.execute(f"PRAGMA journal_size_limit = {LARGEST_LOG}")
        self._migrate()
        self._connection.execute(f"PRAGMA busy_timeout = {SHORT_WAIT_MS}")

    def _check_kind(self) -> None:
        """Refuse the database of another program, and look closely where damage was met before."""
        # In this order, since a file that is being created gets both in one transaction.
        ((tables,),) = self._connection.execute("SELECT COUNT(*) FROM sqlite_master")
        ((kind,),) = self._connection.execute("PRAGMA application_id")
        if kind != APPLICATION and (kind or tables):
            raise self._mistaken(f"{self.path} is a database of another program: name another file")
        suspect = self._suspect
        if suspect.exists():
            ((found,),) = self._connection.execute("PRAGMA quick_check(1)")
            if found != "ok":
                error = sqlite3.DatabaseError(found)
                error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
                raise error
            suspect.unlink(missing_ok=True)

    def _make_private(self) -> None:
        """Let only its owner read a journal, which may come from a backup; warn if others could write it."""
        found = self.path.stat()
        if found.st_uid != os.getuid():
            raise JournalError(
                f"the journal {self.path} belongs to another user (uid {found.st_uid}), who can change it: "
                f"name another one, or make it yours with chown {os.getuid()}"
            )
        if stat.S_IMODE(found.st_mode) & 0o022:
            log.warning(
                "the journal %s could be written by other users (mode %o): it is yours alone from now on; "
                "gramercy audit verify tells whether what was recorded fits together",
                *(self.path, stat.S_IMODE(found.st_mode)),
            )
        if stat.S_IMODE(found.st_mode) & 0o077:
            self.path.chmod(0o600)
        if told := exposed(self.path):
            log.warning("the journal %s is in a directory that %s", self.path, told)

    def _mistaken(self, text: str) -> JournalError:
        """Return the error for a file that was named by mistake; the file is left as it was found."""
        # No process can have that file open as a journal, so no process relies on the lock. A lock file that
        # existed before belongs to another program.
        if self._has_new_lock:
            self._lock_path.unlink(missing_ok=True)
        return JournalError(text)

    def _use_log(self) -> None:
        """Use a write-ahead log; of several processes that create the file at once, one waits for another."""
        ends = monotonic() + self._busy_seconds
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                # SQLite does not wait here by itself.
                if _code(error) != sqlite3.SQLITE_BUSY or monotonic() > ends:
                    raise
                sleep(0.01)
            else:
                return

    def _migrate(self) -> None:
        known = self._migrations()
        if known and not schema.missing(known, self.where):
            return
        run = self._connection.execute
        # With SQLite's default this outlives a power cut. A failure is rolled back by closing the connection.
        run("BEGIN IMMEDIATE")
        run(schema.REGISTER)
        for name in schema.missing(self._migrations(), self.where):
            for statement in schema.statements(name, schema.SQLITE_WORDS):
                run(statement)
            run("INSERT INTO migrations VALUES (?, ?)", (name, self._now()))
        run(f"PRAGMA application_id = {APPLICATION}")
        run("COMMIT")

    def _migrations(self) -> list[str]:
        found = self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'migrations'").fetchall()
        if not found:
            return []
        return [name for (name,) in self._connection.execute("SELECT name FROM migrations")]

    def strangers(self, ask: Callable[[str, Sequence[Any]], list[Sequence[Any]]]) -> list[str]:
        """Name the objects of the file that a new database does not have after the migrations."""
        known = [name for (name,) in ask("SELECT name FROM migrations", ())]
        with closing(sqlite3.connect(":memory:")) as plain:
            plain.execute(schema.REGISTER)
            for name in known:
                for statement in schema.statements(name, schema.SQLITE_WORDS):
                    plain.execute(statement)
            ours = plain.execute(_OBJECTS).fetchall()
        found = {tuple(row) for row in ask(_OBJECTS, ())}
        return [f"{kind} {name}" for kind, name, _ in sorted(found.difference(ours))]

    # Damage.

    @property
    def _lock_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.lock")

    @property
    def _suspect(self) -> Path:
        """The mark that damage was met while the journal was used: the next opening checks the whole file."""
        return self.path.with_name(f"{self.path.name}.suspect")

    def _put_aside(self, inode: int, error: sqlite3.Error) -> None:
        """Rename a damaged file with its log, unless another process has already done it."""
        with self._locked(fcntl.LOCK_EX):
            if not self.path.exists() or self.path.stat().st_ino != inode:
                return
            if not self._is_likely_ours():
                text = f"{self.path} is not a journal, and not empty: name another file"
                raise self._mistaken(text) from error
            time = strftime("%Y%m%d-%H%M%S", gmtime())
            self.set_aside = self.path.with_name(f"{self.path.name}.damaged-{time}-{os.getpid()}")
            for ending in ("-wal", "-shm", ""):
                with suppress(FileNotFoundError):
                    os.rename(f"{self.path}{ending}", f"{self.set_aside}{ending}")  # noqa: PTH104 - endings of names
            self._suspect.unlink(missing_ok=True)
            # The new file has none of the events known before.
            self._known = None
            self._remark = f"a damaged journal was set aside as {self.set_aside.name}"
        log.warning(
            "the journal %s is damaged (%s): it is set aside as %s, and a new one is begun",
            *(self.path, error, self.set_aside),
        )

    def _is_likely_ours(self) -> bool:
        """Tell a damaged journal from a file that was named by mistake."""
        with self.path.open("rb") as file:
            begins = file.read(len(MAGIC))
        beside = (f"{self.path}-wal", f"{self.path}-shm", str(self._suspect), str(self.run_directory))
        return begins == MAGIC or not any(begins) or any(map(os.path.lexists, beside))

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        """Keep the file in place while it is opened, or other processes away while it is set aside."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._has_new_lock = self._has_new_lock or not self._lock_path.exists()
            descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise JournalError(f"the journal {self.path} cannot be written: {reason_of(error)}") from error
        try:
            fcntl.flock(descriptor, kind)
            yield
        finally:
            os.close(descriptor)

    # What the tables need.

    def _start(self, *, is_lasting: bool) -> None:
        self._look_around()
        if self._is_lasting is not is_lasting:
            self._run(f"PRAGMA synchronous = {'FULL' if is_lasting else 'NORMAL'}", ())
            self._is_lasting = is_lasting
        self._run("BEGIN IMMEDIATE", ())

    def _read(self, work: Callable[[], T]) -> T:
        with self._lock:
            self._look_around()
            return work()

    def _look_around(self) -> None:
        """Reopen the file after a fork, or if the file or its log was removed, replaced or damaged."""
        if self._pid != os.getpid():
            self._open()
            return
        if self._is_closed:
            return
        try:
            loss = self._files.loss()
        except OSError as error:
            raise JournalError(f"the journal {self.path} cannot be reached: {reason_of(error)}") from error
        if loss is not None:
            self._reopen(loss)

    def _reopen(self, loss: Loss) -> None:
        """Close files that were unlinked or replaced, and continue with the present ones."""
        told = loss.value
        if loss is Loss.LOG and self._files.is_log_free():
            # Committed rows are in the removed log, which is still open here. Write them into the file before
            # another process opens the file and continues without them.
            with _opening, self._locked(fcntl.LOCK_EX), suppress(sqlite3.Error):
                ((busy, *_),) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                told += "" if busy else "; all that was in it was written back"
        log.warning("the journal %s: %s; it is opened anew", self.path, told)
        self._let_go()
        self._open_anew(told, is_same=loss is not Loss.FILE)
        self._open()

    def _let_go(self) -> None:
        # SQLite shares its locks among the connections of a process: while one is open, all use the files
        # that it found.
        with self._watching:
            watcher, self._watcher = self._watcher, None
            if watcher is not None:
                watcher.close()
        self._connection.close()

    def _commit(self) -> None:
        self._run("COMMIT", ())

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.rollback()

    def _run(self, statement: str, values: Sequence[Any]) -> list[Sequence[Any]]:
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            # Retry only outside of a transaction: inside our own, no other connection writes.
            if _code(error) == sqlite3.SQLITE_BUSY and not self._connection.in_transaction:
                return self._run_patiently(statement, values)
            raise self._told(error) from error

    def _run_patiently(self, statement: str, values: Sequence[Any]) -> list[Sequence[Any]]:
        """Retry a statement that finds the file locked, until the time is over."""
        ends = monotonic() + self._busy_seconds
        while True:
            try:
                return self._connection.execute(statement, values).fetchall()
            except sqlite3.Error as error:
                if _code(error) != sqlite3.SQLITE_BUSY or monotonic() > ends:
                    raise self._told(error) from error
            # A random pause, so that the writers do not all retry at the same moment.
            sleep(os.urandom(1)[0] / 255 * SHORT_WAIT_MS / 1_000)

    def _change(self, statement: str, values: Sequence[Any]) -> int:
        try:
            return self._connection.execute(statement, values).rowcount
        except sqlite3.Error as error:
            raise self._told(error) from error

    def _insert(self, statement: str, values: Sequence[Any]) -> int:
        try:
            return self._connection.execute(statement, values).lastrowid or 0
        except sqlite3.Error as error:
            raise self._told(error) from error

    def _wipe(self) -> None:
        # The log still has the old versions of the pages.
        self._run("PRAGMA wal_checkpoint(TRUNCATE)", ())

    def _disconnect(self) -> None:
        self._is_closed = True
        self._doorbell.close()
        with self._watching:
            watcher, self._watcher = self._watcher, None
            if watcher is not None:
                watcher.close()
        self._connection.close()

    def _told(self, error: sqlite3.Error) -> JournalError:
        """Return an error that says what is wrong with the journal and how to fix it."""
        if self._is_closed:
            return JournalError(f"the journal {self.where} is closed")
        code = _code(error)
        if code in _DAMAGED:
            self._meet_damage()
        reason = _REASONS.get(code, "SQLite refuses")
        return JournalError(f"the journal {self.where} cannot be used: {reason} ({error})")

    def _meet_damage(self) -> None:
        """Have the next opening check the whole file, and the next call reopen it."""
        with suppress(OSError):
            self._suspect.touch()
        self._files.is_damaged = True

    def _be_born(self) -> None:
        """Start over in the child of a fork: locks, connections and running calls belong to the parent."""
        _inherited.extend((self._connection, self._watcher, self._doorbell))
        self._lock = RLock()
        self._watcher, self._renewer = None, None
        self._watching = Lock()
        self._head, self._chain, self._leased_until = None, 0, 0.0
        self._known, self._remark = None, ""
        self._claims = {}
        self.owner = owners.new_owner()
        self._doorbell = Doorbell(self.run_directory, self._version)
        self._pid = 0


def is_open_here(path: Path) -> bool:
    """Tell whether this process uses a journal in this file."""
    with suppress(FileNotFoundError):
        found = identity(os.fspath(path))
        return any(journal._files.is_of(found) for journal in list(_open_here) if not journal._is_closed)  # noqa: SLF001 - our own
    return False


def _code(error: sqlite3.Error) -> int:
    # The lower eight bits are the primary code; the upper bits are details.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _after_fork() -> None:
    global _opening  # noqa: PLW0603 - another thread of the parent may hold it
    _opening = Lock()
    for journal in list(_open_here):
        journal._be_born()  # noqa: SLF001 - one of our own


os.register_at_fork(after_in_child=_after_fork)
