"""Read and replace files below a directory, step by step through descriptors.

Code in an image may write to the project and could swap a directory for a symlink between a check and
its use. Here no step follows a symlink, so that such a swap leads to an error and never out of the project.
It knows bytes only.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gramercy.errors import FileTooLargeError, NotAFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from io import FileIO
    from pathlib import Path

# A file that changes three times while it is read is being written all the time.
TRIES = 3
# Larger than most files of a project, so that one call reads them.
AT_ONCE = 1 << 16
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Without O_NONBLOCK opening a FIFO would wait for a writer.
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKING = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Content:
    """What a file held at one moment, and what is kept of it when it is replaced."""

    data: bytes
    mode: int
    owner: tuple[int, int]


@contextlib.contextmanager
def directory(root: Path, parts: Sequence[str], *, create: bool = False) -> Iterator[int]:
    """Open the directory that these steps lead to, making what is missing when told to."""
    current = os.open(root, _DIRECTORY)
    try:
        for part in parts:
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=current)
            following = os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=current)
            os.close(current)
            current = following
        yield current
    finally:
        os.close(current)


def read(folder: int, name: str, most: int) -> Content:
    """Read a file whole, and again when another process wrote to it meanwhile."""
    for _ in range(TRIES):
        descriptor = os.open(name, _READING, dir_fd=folder)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise NotAFileError(f"{name} is not a regular file")
            data = _bytes(file, most)
            if len(data) > most:
                raise FileTooLargeError(f"it has more than {most:,} bytes")
            # Clocks of file systems tick too slowly to tell; two equal readings do.
            if data == _bytes(file, most):
                return Content(data, stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid))
    raise OSError("it changes while it is read")


def glance(folder: int, name: str, most: int) -> bytes:
    """Read a file once, as quickly as can be: what is written to it meanwhile may be missed."""
    descriptor = os.open(name, _READING, dir_fd=folder)
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


def replace(folder: int, name: str, data: bytes, old: Content | None, check: Callable[[], None]) -> None:
    """Put a file in the place of another in one step; `check` has the last word before it."""
    temporary = f".gramercy-{secrets.token_hex(8)}"
    descriptor = os.open(temporary, _MAKING, 0o666, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if old is not None:
                _resemble(descriptor, old)
            os.fsync(descriptor)
        check()
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


def _resemble(descriptor: int, old: Content) -> None:
    # Only root may change a file's owner; for other users it is the same already, or cannot be kept.
    with contextlib.suppress(OSError):
        os.fchown(descriptor, *old.owner)
    os.fchmod(descriptor, old.mode)


def remove(folder: int, name: str) -> None:
    """Remove a file."""
    os.unlink(name, dir_fd=folder)
    os.fsync(folder)
