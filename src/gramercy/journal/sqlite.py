"""The journal in an SQLite file: for the processes of one person on one machine."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gramercy.errors import JournalError
from gramercy.journal import schema
from gramercy.journal.bells import Doorbell, run_directory
from gramercy.journal.sql import SqlJournal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gramercy.journal.bells import Bell

# Longer than any transaction of ours takes on a busy machine, shorter than a client waits for an answer.
BUSY_SECONDS = 10.0


class SqliteJournal(SqlJournal):
    """A journal in a file that only its owner can read, with a write-ahead log beside it."""

    def __init__(self, path: str | Path, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self.path = Path(path)
        super().__init__(str(path))
        self._busy_seconds = busy_seconds
        self._is_lasting: bool | None = None
        self._doorbell = Doorbell(self.run_directory, self._version)
        self._watcher: sqlite3.Connection | None = None
        self._is_closed = False
        self._prepare_file()
        try:
            self._connect()
            self._migrate()
        except sqlite3.Error as error:
            raise self._told(error) from error

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
        if self._watcher is None:
            if self._is_closed:
                raise JournalError(f"the journal {self.where} is closed")
            # That of a connection that never writes: it does not see its own commits as changes.
            self._watcher = sqlite3.connect(self.path, timeout=0.0, check_same_thread=False)
        found: int = self._watcher.execute("PRAGMA data_version").fetchone()[0]
        return found

    def _prepare_file(self) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise JournalError(f"the journal {self.path} cannot be written: {error.strerror}") from error

    def _connect(self) -> None:
        self._connection = sqlite3.connect(
            self.path,
            timeout=self._busy_seconds,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        self._pid = os.getpid()
        self._run("PRAGMA journal_mode = WAL", ())
        # What is masked or deleted is overwritten with zeros; else it could be read in the file.
        self._run("PRAGMA secure_delete = ON", ())

    def _migrate(self) -> None:
        self._start(is_lasting=True)
        try:
            self._run(schema.REGISTER, ())
            known = [name for (name,) in self._run("SELECT name FROM migrations", ())]
            for name in schema.missing(known, self.where):
                for statement in schema.statements(name, schema.SQLITE_WORDS):
                    self._run(statement, ())
                self._run("INSERT INTO migrations VALUES (?, ?)", (name, self._now()))
            self._commit()
        except BaseException:
            self._roll_back()
            raise

    def _start(self, *, is_lasting: bool) -> None:
        if self._is_lasting is not is_lasting:
            self._run(f"PRAGMA synchronous = {'FULL' if is_lasting else 'NORMAL'}", ())
            self._is_lasting = is_lasting
        self._run("BEGIN IMMEDIATE", ())

    def _commit(self) -> None:
        self._run("COMMIT", ())

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.rollback()

    def _run(self, statement: str, values: Sequence[Any]) -> list[Sequence[Any]]:
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._told(error) from error

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
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.close()
        self._connection.close()

    def _told(self, error: sqlite3.Error) -> JournalError:
        return JournalError(f"the journal {self.where} cannot be used: {error}")
