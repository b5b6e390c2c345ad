"""Check whether the files of a journal are still the ones that this process has opened.

Also check which other users could replace them. This module knows neither their contents nor what to do about
a loss.
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
    """What happened to the files of a journal while a process used them."""

    FILE = "the journal that was here was removed or replaced while a process used it"
    LOG = "the log of the journal was removed or replaced while a process used it"
    INDEX = "the index of the log was removed or replaced while a process used it"
    DAMAGE = "the journal was found to be damaged while a process used it"


class Files:
    """The files of a journal as this process has opened them, by device and inode.

    A name that appears or disappears changes the time stamp of its directory. While the stamp is unchanged,
    all files are still there.
    """

    def __init__(self, path: Path) -> None:
        self._directory = os.fspath(path.parent)
        self._names = {Loss.FILE: f"{path}", Loss.LOG: f"{path}-wal", Loss.INDEX: f"{path}-shm"}
        self._known: dict[Loss, tuple[int, int]] = {}
        self._stamp = 0
        self.is_damaged = False

    def note(self) -> None:
        """Remember the files that are there now as the opened ones."""
        self.is_damaged, self._stamp = False, 0
        self._known = {}
        for kind, name in self._names.items():
            with suppress(FileNotFoundError):
                self._known[kind] = identity(name)

    def is_of(self, found: tuple[int, int]) -> bool:
        """Tell whether this is the file that was opened."""
        return self._known.get(Loss.FILE) == found

    def loss(self) -> Loss | None:
        """Return what has happened to the files since they were opened; None if nothing has."""
        if self.is_damaged:
            return Loss.DAMAGE
        try:
            stamp = os.stat(self._directory).st_mtime_ns  # noqa: PTH116 - every call does it
        except FileNotFoundError:
            # The file is gone together with its directory: both are made anew.
            return Loss.FILE
        if stamp == self._stamp:
            return None
        for kind, name in self._names.items():
            try:
                found = identity(name)
            except FileNotFoundError:
                found = None
            # SQLite creates the log with the first statement, so remember it once it appears.
            known = self._known.get(kind)
            if known is not None and known != found:
                return kind
            if found is not None:
                self._known[kind] = found
        # A second change within one tick of the file system's clock leaves the same time stamp.
        self._stamp = stamp if time_ns() - stamp > TICK_NS else 0
        return None

    def is_log_free(self) -> bool:
        """Tell whether no other process has begun a new log under the name of the removed one."""
        try:
            return os.stat(self._names[Loss.LOG]).st_size == 0  # noqa: PTH116 - as above
        except FileNotFoundError:
            return True

    def remark(self) -> str:
        """Return a remark for the audit if the file is empty although a journal was used here before."""
        path = Path(self._names[Loss.FILE])
        if path.stat().st_size or not run_directory(path).exists():
            return ""
        return "the journal was found empty, though one was used here before: what it held is gone"


def what_instead(path: Path) -> str:
    """Say what is at a path instead of a regular file; empty for a regular file or for nothing.

    Opening a pipe would wait for a writer, and the mode of a device must not be changed.
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
    """Return how other users could replace a file, and how to prevent it; empty if they cannot."""
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
