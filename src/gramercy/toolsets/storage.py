"""Read and replace files in open directories, without following a symlink. It knows bytes only."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gramercy.errors import FileTooLargeError, NotAFileError
from gramercy.images.files import places
from gramercy.images.files.whole import placed

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import FileIO

# A file that changes three times while it is read is being written constantly.
TRIES = 3
# Larger than most files of a project, so that one call reads them.
AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a file at one moment, and the attributes to keep when it is replaced."""

    data: bytes
    mode: int
    owner: tuple[int, int]


def read(folder: int, name: str, most: int) -> Content:
    """Read a whole file. Repeat when another process writes to it meanwhile."""
    for _ in range(TRIES):
        descriptor = os.open(name, places.READING, dir_fd=folder)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise NotAFileError(f"{name} is not a regular file")
            data = _bytes(file, most)
            if len(data) > most:
                raise FileTooLargeError(f"it has more than {most:,} bytes")
            # The clocks of file systems are too coarse to detect a write. Two equal readings are proof.
            if data == _bytes(file, most):
                return Content(data, stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid))
    raise OSError("it changes while it is read")


def glance(folder: int, name: str, most: int) -> bytes:
    """Read a file once, quickly. Concurrent writes may be missed."""
    descriptor = os.open(name, places.READING, dir_fd=folder)
    try:
        data = os.read(descriptor, AT_ONCE)
        if len(data) < AT_ONCE:
            return data
        parts, size = [data], len(data)
        while data and size <= most:
            data = os.read(descriptor, 1 << 20)
            parts.append(data)
            size += len(data)
    finally:
        os.close(descriptor)
    if size > most:
        raise FileTooLargeError(f"it has more than {most:,} bytes")
    return b"".join(parts)


def _bytes(file: FileIO, most: int) -> bytes:
    file.seek(0)
    parts = []
    room = most + 1
    while room and (part := file.read(min(room, 1 << 20))):
        parts.append(part)
        room -= len(part)
    return b"".join(parts)


def replace(folder: int, name: str, data: bytes, old: Content | None, check: Callable[[], None]) -> Content:
    """Replace a file atomically and return the new content. `check` runs last before that."""
    with placed(folder, name) as file:
        file.write(data)
        file.flush()
        if old is not None:
            _resemble(file.fileno(), old)
        os.fsync(file.fileno())
        made = os.fstat(file.fileno())
        check()
    os.fsync(folder)
    return Content(data, stat.S_IMODE(made.st_mode), (made.st_uid, made.st_gid))


def _resemble(descriptor: int, old: Content) -> None:
    # Only root may change a file's owner. For other users it is already the same, or cannot be kept.
    with contextlib.suppress(OSError):
        os.fchown(descriptor, *old.owner)
    os.fchmod(descriptor, old.mode)
