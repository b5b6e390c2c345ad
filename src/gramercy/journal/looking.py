"""Read a journal in an SQLite file: nothing is created, renamed or changed, in the file or beside it.

So the file can be on read-only media, or damaged: the damage is reported and the file stays as it is. This
module does not know what the tables mean.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from gramercy.errors import JournalError
from gramercy.journal import schema
from gramercy.journal.files import exposed
from gramercy.journal.sqlite import APPLICATION, MAGIC, SqliteJournal, is_open_here
from gramercy.text import reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

log = logging.getLogger("gramercy.journal")
# Where the header of a database has its page size and its number of pages; SQLite writes 1 for 65,536.
_HEADER, _PAGE_SIZE, _PAGES, _LARGEST = 100, slice(16, 18), slice(28, 32), 65_536
LEFT = "it was left as it is"


class SqliteLook(SqliteJournal):
    """A journal that a person only reads; writing through it raises JournalError."""

    def _open(self) -> None:
        self._copy: TemporaryDirectory[str] | None = None
        self._settled: tuple[int, int, int] | None = None
        # Closing a file releases the locks that all connections of this process have on it.
        self._check_regular()
        self._is_in_use_here = is_open_here(self.path)
        if not self._is_in_use_here:
            self._check_file()
        try:
            self._connection = sqlite3.connect(
                self._address(), uri=True, timeout=self._busy_seconds, isolation_level=None
            )
        except sqlite3.Error as error:
            raise self._told(error) from error
        try:
            self._check_kind()
            schema.missing(self._migrations(), self.where)
        except BaseException as error:
            self._disconnect()
            if isinstance(error, sqlite3.Error):
                raise self._refused(str(error)) from error
            raise

    def _check_file(self) -> None:
        """Refuse a file that is empty, cut off, or not a database, even if SQLite would accept it."""
        try:
            with self.path.open("rb") as file:
                head, found = file.read(_HEADER), os.fstat(file.fileno())
        except OSError as error:
            raise JournalError(f"the journal {self.path} cannot be read: {reason_of(error)}") from error
        size = found.st_size
        if found.st_uid != os.getuid():
            log.warning("the journal %s belongs to another user (uid %d)", self.path, found.st_uid)
        if told := exposed(self.path):
            log.warning("the journal %s is in a directory that %s", self.path, told)
        if not size:
            raise self._refused("it is empty: it was cut off, or nothing was ever recorded in it")
        if not head.startswith(MAGIC):
            raise self._refused("it is no database")
        page = int.from_bytes(head[_PAGE_SIZE]) or _LARGEST
        pages = int.from_bytes(head[_PAGES]) * (_LARGEST if page == 1 else page)
        if size < pages and not _size(self._log):
            raise self._refused(f"it was cut off: it has {size:,} of {pages:,} bytes")

    @property
    def _log(self) -> Path:
        return self.path.with_name(f"{self.path.name}-wal")

    def _address(self) -> str:
        """Return the address that opens the file without creating anything beside it."""
        index = self.path.with_name(f"{self.path.name}-shm")
        is_in_use = os.access(self._log, os.R_OK) and os.access(index, os.R_OK | os.W_OK)
        if is_in_use or self._is_in_use_here:
            # A process uses the file, or was killed while it did: read it with its log and its locks.
            return f"{self.path.absolute().as_uri()}?mode=ro"
        if not _size(self._log):
            # Everything is in the file. A process that begins to write now writes to a log first.
            self._settled = self._state()
            return f"{self.path.absolute().as_uri()}?immutable=1"
        # Reading a log needs an index, which must not be created beside the file. So read a copy.
        self._copy = TemporaryDirectory(prefix="gramercy-look-")
        for each in (self.path, self._log):
            shutil.copyfile(each, os.path.join(self._copy.name, each.name))  # noqa: PTH118 - names as given
        return f"file:{self._copy.name}/{self.path.name}?mode=ro"

    def _state(self) -> tuple[int, int, int]:
        found = self.path.stat()
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _check_kind(self) -> None:
        ((kind,),) = self._connection.execute("PRAGMA application_id")
        if kind != APPLICATION:
            raise self._refused("it is no journal of gramercy")

    @contextmanager
    def looking(self) -> Iterator[Callable[[str, Sequence[Any]], list[Sequence[Any]]]]:
        """Give a function that queries the file, always in the state of this moment."""
        with super().looking() as ask:
            yield ask
        if self._settled is not None and self._settled != self._state():
            raise JournalError(f"the journal {self.where} was written to while it was read: look again")

    def _start(self, *, is_lasting: bool) -> None:  # noqa: ARG002 - that of the journal
        raise JournalError(f"the journal {self.where} was opened for a look: nothing is written")

    def _look_around(self) -> None:
        """Keep using the file that was opened."""

    def _refused(self, what: str) -> JournalError:
        return JournalError(f"the journal {self.where} cannot be looked at: {what}; {LEFT}")

    def _meet_damage(self) -> None:
        """Leave no mark: the next process that writes detects the damage itself."""

    def _disconnect(self) -> None:
        super()._disconnect()
        if self._copy is not None:
            self._copy.cleanup()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
