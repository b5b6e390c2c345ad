"""Names in directories of a project, reached step by step through descriptors.

Code in an image may write to the project and could swap a directory for a symlink between a check and its
use. Here no step follows a symlink, so such a swap leads to an error and never out of the project.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Without O_NONBLOCK opening a FIFO would wait for a writer.
READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
MAKING = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NOREPLACE, _EXCHANGE = 1, 2
# The errors of a kernel, a C library or a file system without such a rename.
_UNKNOWN = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


@contextlib.contextmanager
def directory(root: Path, parts: Sequence[str], *, create: bool = False, reads: bool = True) -> Iterator[int]:
    """Open the directory at the end of these steps. With `create`, make missing ones.

    Without `reads`, the directory can only be used to rename or remove names.
    """
    flags = DIRECTORY if reads else DIRECTORY | os.O_PATH
    current = opened_root(root, flags)
    try:
        for part in parts:
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=current)
            following = os.open(part, flags | os.O_NOFOLLOW, dir_fd=current)
            os.close(current)
            current = following
        yield current
    finally:
        os.close(current)


def opened_root(root: Path | str, flags: int = DIRECTORY) -> int:
    """Open the directory of a project, which is a real path. Refuse one that leads elsewhere now.

    A project may lie inside that of another image, whose code can replace it or a parent by a link.
    """
    descriptor = os.open(root, flags)
    try:
        is_there = os.readlink(f"/proc/self/fd/{descriptor}") == os.fspath(root)  # noqa: PTH115 - a text is wanted
    except OSError:
        # Without /proc only a link of the last name is detected.
        is_there = os.path.samestat(os.lstat(root), os.fstat(descriptor))
    if not is_there:
        os.close(descriptor)
        raise OSError(errno.ELOOP, "the project directory leads elsewhere by now, through a link", str(root))
    return descriptor


def exists(folder: int, name: str) -> bool:
    """Return whether a name exists, also as a dangling symlink."""
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def exchange(folder: int, one: str, other: str) -> bool:
    """Exchange two names atomically. False where the file system cannot."""
    return _renamed(folder, one, other, _EXCHANGE)


def move(folder: int, old: str, new: str) -> None:
    """Rename without replacing: an existing file of the new name stays, with FileExistsError."""
    if _renamed(folder, old, new, _NOREPLACE):
        return
    if not stat.S_ISDIR(os.stat(old, dir_fd=folder, follow_symlinks=False).st_mode):
        # A hard link never replaces a file. After it the first name is removed.
        with contextlib.suppress(PermissionError, NotImplementedError):
            os.link(old, new, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            os.unlink(old, dir_fd=folder)
            return
    if exists(folder, new):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
    os.rename(old, new, src_dir_fd=folder, dst_dir_fd=folder)


def remove(folder: int, name: str) -> None:
    """Remove a file, a link or an empty directory."""
    if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        os.rmdir(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)


def set_mode(folder: int, name: str, mode: int, kind: int) -> None:
    """Set the mode of a file or directory, never through a symlink. `kind` as stat.S_IFREG, S_IFDIR."""
    # O_PATH needs no read permission. Its number below /proc names exactly the opened file.
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        if stat.S_IFMT(os.fstat(descriptor).st_mode) != kind:
            raise OSError(errno.EINVAL, "it is something else now", name)
        os.chmod(f"/proc/self/fd/{descriptor}", mode)  # noqa: PTH101 - it is no path of a file
    finally:
        os.close(descriptor)


def _renamed(folder: int, old: str, new: str, flag: int) -> bool:
    call, last_error = _renameat2()
    if call is None:
        return False
    if call(folder, os.fsencode(old), folder, os.fsencode(new), flag) == 0:
        return True
    number = last_error()
    if number in _UNKNOWN:
        return False
    raise OSError(number, os.strerror(number), new)


@cache
def _renameat2() -> tuple[Any, Callable[[], int]]:
    # Imported here: most callers that read files need no such rename.
    import ctypes

    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None), ctypes.get_errno
