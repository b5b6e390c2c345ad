"""The journal in an SQLite file: for the processes of one person on one machine.

A file that cannot be read as a database is set aside under another name, never overwritten, and a new one is
begun. What is recorded is in the file or its write-ahead log when a method returns.
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
# Longer than any transaction of ours takes on a busy machine, shorter than a client waits for an answer.
BUSY_SECONDS = 10.0
# SQLite waits longer each time it finds the file locked, up to 100 ms, so that of several writers one waits
# for seconds. It is to wait a little only, and we try again.
SHORT_WAIT_MS = 3
# Every commit writes whole pages, one for each table and index it touches; a row has some hundred bytes.
PAGE_BYTES = 2_048
# Pages of the log before they are written into the file, which costs two fsyncs: 8 MB, some 500 calls.
CHECKPOINT_PAGES = 4_000
# While somebody reads for long, as to verify, the log grows; then it is cut to this.
LARGEST_LOG = 32 << 20
# By what the file is known as ours: "gram", in the place that SQLite has for it.
APPLICATION = int.from_bytes(b"gram")
MAGIC = b"SQLite format 3\0"
# What ANALYZE makes is SQLite's own.
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
# Of the threads of this process one opens a journal at a time: that which makes the file closes it again, and
# nobody may be connected to it by then.
_opening = Lock()
# Connections that a fork has copied. To close them would do things to files that are the parent's.
_inherited: list[object] = []


class SqliteJournal(SqlJournal):
    """A journal in a file that only its owner can read, with a write-ahead log beside it.

    `set_aside` is where a damaged file went that was found instead; without `sets_aside` it is refused.
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
        """Return what rings after each commit of any process."""
        return self._doorbell.bell()

    @property
    def run_directory(self) -> Path:
        """Where processes that use this file have their sockets."""
        return run_directory(self.path)

    def _ring(self) -> None:
        self._doorbell.ring()

    def _version(self) -> int:
        """Return what differs after a commit of another connection; called by the thread behind the bells."""
        # A connection that is closed by another thread while it looks takes the process with it.
        with self._watching:
            if self._watcher is None:
                if self._is_closed:
                    raise JournalError(f"the journal {self.where} is closed")
                # That of a connection that never writes: it does not see its own commits as changes.
                self._watcher = sqlite3.connect(self.path, timeout=0.0, check_same_thread=False)
            found: int = self._watcher.execute("PRAGMA data_version").fetchone()[0]
            return found

    # Opening.

    def _open(self) -> None:
        """Open the file, or set it aside and open a new one if it is damaged."""
        self._check_regular()
        for _ in range(3):
            # Nobody may be connecting to a file that is renamed: SQLite finds the log by its name.
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
        """Refuse what is no file before anything is made beside it."""
        if told := what_instead(self.path):
            raise JournalError(f"the journal {self.path} cannot be used: {told}; name another file")

    def _prepare_file(self) -> int:
        """Make the file, readable for its owner only, if it is not there; return its inode."""
        try:
            # One that is there is not opened: closing it would end the locks of all connections of this
            # process, and another process would remove the log in which they write.
            try:
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            except FileExistsError:
                self._remark = self._remark or self._files.remark()
            return self.path.stat().st_ino
        except OSError as error:
            raise JournalError(f"the journal {self.path} cannot be written: {reason_of(error)}") from error

    def _damage_found(self) -> sqlite3.Error | None:
        """Connect; return what is wrong with a file that cannot be read as a database."""
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
        # What is masked or deleted is overwritten with zeros; else it could be read in the file.
        self._connection.execute("PRAGMA secure_delete = ON")
        self._connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        self._connection.execute(f"PRAGMA journal_size_limit = {LARGEST_LOG}")
        self._migrate()
        self._connection.execute(f"PRAGMA busy_timeout = {SHORT_WAIT_MS}")

    def _check_kind(self) -> None:
        """Refuse the database of another program, and look closely where damage was met before."""
        # In this order, for one that is being made gets both in one transaction.
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
        """Let only its owner read a journal, which may have come back from a backup; tell who could write."""
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
        """Return what is told about a file that was named by mistake, which is left as it was found."""
        # Nobody can have that file open as a journal, so nobody relies on the lock; but one that was there
        # before is another program's.
        if self._has_new_lock:
            self._lock_path.unlink(missing_ok=True)
        return JournalError(text)

    def _use_log(self) -> None:
        """Have a write-ahead log; of several processes that make the file at once, one waits for another."""
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
        # The default of SQLite lets this outlive a power cut. What fails is rolled back by closing.
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
        """Name what the file has beside what the migrations make, as a database made now has it."""
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
        """The mark that damage was met while the journal was used: opening looks at all of it then."""
        return self.path.with_name(f"{self.path.name}.suspect")

    def _put_aside(self, inode: int, error: sqlite3.Error) -> None:
        """Rename a damaged file with its log, unless another process has done it meanwhile."""
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
            # Of what was known before nothing is in the new one.
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
        """Keep the file where it is while it is opened, or others away while it is set aside."""
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
        """Open the file again after a fork, and where it or its log was removed, replaced or damaged."""
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
        """Close files that were unlinked or replaced, and go on with those that are there."""
        told = loss.value
        if loss is Loss.LOG and self._files.is_log_free():
            # What was committed is in the log that was removed, which is still open here: into the file with
            # it, before a process that opens the file now goes on without it.
            with _opening, self._locked(fcntl.LOCK_EX), suppress(sqlite3.Error):
                ((busy, *_),) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                told += "" if busy else "; all that was in it was written back"
        log.warning("the journal %s: %s; it is opened anew", self.path, told)
        self._let_go()
        self._open_anew(told, is_same=loss is not Loss.FILE)
        self._open()

    def _let_go(self) -> None:
        # SQLite shares its locks among the connections of a process: as long as one is open, all use the
        # files that it found.
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
            # In a transaction of ours nobody else writes.
            if _code(error) == sqlite3.SQLITE_BUSY and not self._connection.in_transaction:
                return self._run_patiently(statement, values)
            raise self._told(error) from error

    def _run_patiently(self, statement: str, values: Sequence[Any]) -> list[Sequence[Any]]:
        """Run a statement that finds the file locked, again and again for a while."""
        ends = monotonic() + self._busy_seconds
        while True:
            try:
                return self._connection.execute(statement, values).fetchall()
            except sqlite3.Error as error:
                if _code(error) != sqlite3.SQLITE_BUSY or monotonic() > ends:
                    raise self._told(error) from error
            # Not all at the same moments.
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
        # The log still has the pages as they were before.
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
        """Say what is wrong with the journal and what to do about it."""
        if self._is_closed:
            return JournalError(f"the journal {self.where} is closed")
        code = _code(error)
        if code in _DAMAGED:
            self._meet_damage()
        reason = _REASONS.get(code, "SQLite refuses")
        return JournalError(f"the journal {self.where} cannot be used: {reason} ({error})")

    def _meet_damage(self) -> None:
        """Have the next opening look at all of the file, and the next call open it."""
        with suppress(OSError):
            self._suspect.touch()
        self._files.is_damaged = True

    def _be_born(self) -> None:
        """Begin anew in the child of a fork: locks, connections and calls that run are the parent's."""
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
    # The lower eight bits; those above tell it more closely.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _after_fork() -> None:
    global _opening  # noqa: PLW0603 - another thread of the parent may hold it
    _opening = Lock()
    for journal in list(_open_here):
        journal._be_born()  # noqa: SLF001 - one of our own


os.register_at_fork(after_in_child=_after_fork)
