"""Watchers of questions: `gramercy approvals watch` keeps a locked file beside the doorbells.

The lock ends with its process, however that ends, so a file without a lock is a leftover.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from gramercy.journal.bells import own_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SUFFIX = ".watch"
# The longest path that is read.
LONGEST_PROJECT = 4_096


@contextmanager
def watching(directory: Path | None, project: str = "") -> Iterator[None]:
    """Let other processes know that a person is shown the questions of a project, or of all of them."""
    made: tuple[int, Path] | None = None
    # If no file can be made, servers do not wait for this watcher; the questions can be decided all the same.
    with suppress(OSError):
        made = _made(directory, project) if directory is not None else None
    try:
        yield
    finally:
        if made is not None:
            made[1].unlink(missing_ok=True)
            os.close(made[0])


def _made(directory: Path, project: str) -> tuple[int, Path]:
    """Create the file; it gets its name only once it is locked, since a file without a lock is removed."""
    own_directory(directory)
    path = directory / f"{os.getpid()}-{os.urandom(4).hex()}{SUFFIX}"
    early = path.with_suffix(".begun")
    descriptor = os.open(early, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, os.fsencode(project))
        early.rename(path)
    except OSError:
        os.close(descriptor)
        early.unlink(missing_ok=True)
        raise
    return descriptor, path


def is_watched(directory: Path | None, project: str) -> bool:
    """Tell whether a living process on this machine shows the questions of a project to a person."""
    if directory is None:
        return False
    with suppress(OSError):
        return any(_shows(path, project) for path in directory.iterdir() if path.name.endswith(SUFFIX))
    return False


def _shows(path: Path, project: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # A shared lock, so that another process that checks at the same moment does not look like a watcher.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        # Its process lives.
        watched = os.fsdecode(os.pread(descriptor, LONGEST_PROJECT, 0))
        return watched in {"", project}
    else:
        path.unlink(missing_ok=True)
        return False
    finally:
        os.close(descriptor)
