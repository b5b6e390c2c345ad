"""The private directory of an image, and what those left behind that were killed before they could tidy."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

PREFIX = "gramercy-image-"
# The path of a unix socket has room for 107 bytes.
LONGEST_DIRECTORY = 100
LOCK = "lock"


class PrivateDirectory:
    """A directory for a socket and for temporary files. It is locked as long as this process lives."""

    def __init__(self) -> None:
        _tidy_up(os.getpid())
        self.path = _make()
        (self.path / "tmp").mkdir(mode=0o700)
        # Locked before it gets its name: an unlocked one is taken for left behind.
        unnamed = self.path / f"{LOCK}.new"
        self._lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unnamed.rename(self.path / LOCK)

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _make() -> Path:
    directory = Path(tempfile.mkdtemp(prefix=PREFIX))
    if len(os.fsencode(directory)) > LONGEST_DIRECTORY:
        directory.rmdir()
        directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir="/tmp"))
    return directory


@cache
def _tidy_up(process: int) -> None:
    """Remove, once for each process, the directories that nobody holds a lock on."""
    del process
    for directory in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            _remove_if_left(directory)


def _remove_if_left(directory: Path) -> None:
    if directory.is_symlink() or directory.stat().st_uid != os.getuid():
        return
    # Without a lock file it is being made at this very moment.
    lock = os.open(directory / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(lock)
