"""The files of a journal under a process that uses them: whether they are still those that it has opened.

Also who else could replace them. What is in them, and what to do about a loss, is not known here.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from enum import Enum
from pathlib import Path
from time import time_ns

from gramercy.journal.bells import TICK_NS, run_directory


class Loss(Enum):
    """What has happened to the files of a journal under a process that uses them."""

    FILE = "the journal that was here was removed or replaced while a process used it"
    LOG = "the log of the journal was removed or replaced while a process used it"
    INDEX = "the index of the log was removed or replaced while a process used it"
    DAMAGE = "the journal was found to be damaged while a process used it"


class Files:
    """The files of a journal as this process has opened them, by device and inode.

    A name that appears or goes changes the time of its directory: as long as that stands still, one look at
    it tells that all are there.
    """

    def __init__(self, path: Path) -> None:
        self._directory = os.fspath(path.parent)
        self._names = {Loss.FILE: f"{path}", Loss.LOG: f"{path}-wal", Loss.INDEX: f"{path}-shm"}
        self._known: dict[Loss, tuple[int, int]] = {}
        self._stamp = 0
        self.is_damaged = False

    def note(self) -> None:
        """Take the files that are there now for those that were opened."""
        self.is_damaged, self._stamp = False, 0
        self._known = {}
        for kind, name in self._names.items():
            with suppress(FileNotFoundError):
                self._known[kind] = identity(name)

    def is_of(self, found: tuple[int, int]) -> bool:
        """Tell whether this is the file that was opened."""
        return self._known.get(Loss.FILE) == found

    def loss(self) -> Loss | None:
        """Return what has happened to the files since; None if nothing has."""
        if self.is_damaged:
            return Loss.DAMAGE
        try:
            stamp = os.stat(self._directory).st_mtime_ns  # noqa: PTH116 - every call does it
        except FileNotFoundError:
            # Gone with its directory: both are made anew.
            return Loss.FILE
        if stamp == self._stamp:
            return None
        for kind, name in self._names.items():
            try:
                found = identity(name)
            except FileNotFoundError:
                found = None
            # SQLite makes the log with the first statement: then it is known from now on.
            known = self._known.get(kind)
            if known is not None and known != found:
                return kind
            if found is not None:
                self._known[kind] = found
        # Within a tick of the clock of the file system a second change leaves the same time.
        self._stamp = stamp if time_ns() - stamp > TICK_NS else 0
        return None

    def is_log_free(self) -> bool:
        """Tell whether no other process has begun a log under the name of the one that was removed."""
        try:
            return os.stat(self._names[Loss.LOG]).st_size == 0  # noqa: PTH116 - as above
        except FileNotFoundError:
            return True

    def remark(self) -> str:
        """Return what the audit should know of a file that is there, and is none yet."""
        path = Path(self._names[Loss.FILE])
        if path.stat().st_size or not run_directory(path).exists():
            return ""
        return "the journal was found empty, though one was used here before: what it held is gone"


def what_instead(path: Path) -> str:
    """Say what stands in the place of a file; empty where it is one, or nothing is there.

    To open a pipe would wait for a writer, and a device must not be made private.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return ""
    if stat.S_ISREG(mode):
        return ""
    return f"it is {_OTHERS.get(stat.S_IFMT(mode), 'no regular file')}, not a file"


_OTHERS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def identity(name: str) -> tuple[int, int]:
    """Return device and inode of a file."""
    found = os.stat(name)  # noqa: PTH116 - as above
    return found.st_dev, found.st_ino


def exposed(path: Path) -> str:
    """Return how other users could replace a file, and what to do about that; empty if they cannot."""
    parent = Path(os.path.realpath(path)).parent
    found = parent.stat()
    mode = stat.S_IMODE(found.st_mode)
    if mode & stat.S_ISVTX:
        return ""
    if found.st_uid not in {os.getuid(), 0}:
        return f"belongs to another user (uid {found.st_uid}), who can replace it: name a journal elsewhere"
    if mode & 0o002 or (mode & 0o020 and found.st_gid != os.getgid()):
        return f"other users can write (mode {mode:o}), so that they can replace it: chmod go-w {parent}"
    return ""
