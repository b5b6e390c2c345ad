"""Resolve a path of another process as the kernel does for that process.

The fast way asks the kernel for the directory in the root of the process. If that fails, or leads through
/proc, the path is walked part by part: there a link may lead to something that only the process itself has,
such as its directory or an open file. A step that cannot be followed is an error, and never an empty answer.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from gramercy.errors import FileStoreError
from gramercy.text import reason_of

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE, LONGEST_PATH = 4096, 4096
IN_ROOT = 0x10
OPENAT2 = 437
CURRENT_DIRECTORY = 0xFFFFFF9C
# The kernel refuses a longer chain of links too, with ELOOP.
MOST_LINKS = 40
# A path has at most 2,048 parts, and so has the target of each link. Few have more than 20.
MOST_STEPS = 4_000
PROC = 0x9FA0
PROC_ROOT_INODE = 1
HELD = os.O_PATH | os.O_CLOEXEC
DELETED = " (deleted)"
_STATFS_BYTES = 256


class _Part(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Memory:
    """Reads texts out of other processes. Used by one thread."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._copy = libc.process_vm_readv
        self._copy.restype = ctypes.c_ssize_t
        number, place, size = ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong
        self._copy.argtypes = (number, place, size, place, size, size)
        self._buffer = ctypes.create_string_buffer(LONGEST_PATH)
        self._here, self._there = _Part(ctypes.addressof(self._buffer), 0), _Part()
        self._ours, self._theirs = ctypes.addressof(self._here), ctypes.addressof(self._there)

    def octets(self, pid: int, address: int, length: int) -> bytes:
        """Return this many octets, fewer where the memory ends."""
        self._here.length = self._there.length = min(length, LONGEST_PATH)
        self._there.base = address
        got = self._copy(pid, self._ours, 1, self._theirs, 1, 0)
        if got < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        return ctypes.string_at(self._buffer, got)

    def text(self, pid: int, address: int) -> bytes:
        """Return the octets up to the first zero, page by page: the next page may not be mapped."""
        found = b""
        while len(found) < LONGEST_PATH:
            part = self.octets(pid, address, PAGE - address % PAGE)
            end = part.find(b"\0")
            if end >= 0:
                return found + part[:end]
            found += part
            address += len(part)
        raise OSError("a path without an end")


class Places:
    """Resolves paths of a process to files outside: links are followed in the root of that process.

    Used by one thread.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._syscall = self._libc.syscall
        self._syscall.restype = ctypes.c_long
        number, text, size = ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t
        self._syscall.argtypes = (ctypes.c_long, number, text, text, size)
        self._readlink = self._libc.readlinkat
        self._readlink.restype = ctypes.c_ssize_t
        self._readlink.argtypes = (number, text, ctypes.c_void_p, size)
        self._buffer = ctypes.create_string_buffer(LONGEST_PATH)
        self._directory = struct.pack("=QQQ", HELD | os.O_DIRECTORY, 0, IN_ROOT)
        self._root = -1

    def close(self) -> None:
        """Close the root."""
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def named(self, pid: int, folder: int | None, name: bytes) -> list[str]:
        """Return the path of a name with links in its directories resolved, and its targets if it is a link.

        `folder` is the descriptor that it is relative to. Empty where its directory does not exist: the call
        will fail.
        """
        if self._root < 0:
            self._root = os.open(f"/proc/{pid}/root", HELD | os.O_DIRECTORY)
        at = "" if name.startswith(b"/") else _base(folder)
        try:
            if not name:
                return [self.held(pid, at)]
            path = (
                name if name.startswith(b"/") else os.fsencode(os.readlink(f"/proc/{pid}/{at}")) + b"/" + name
            )
            found = self._plainly(path)
        except OSError:
            found = None
        return self._walked(pid, at, name) if found is None else found

    def held(self, pid: int, at: str) -> str:
        """Return the path of a process's directory or open file."""
        return _place(f"/proc/{pid}/{at}")

    def _plainly(self, path: bytes) -> list[str] | None:
        """Return the resolved path, as the kernel follows it. None where it leads through /proc."""
        found: list[str] = []
        for _ in range(MOST_LINKS + 1):
            place, target = self._step(path.rstrip(b"/") or b"/")
            if place.startswith("/proc/"):
                return None
            found.append(place)
            if target is None:
                break
            path = target if target.startswith(b"/") else os.fsencode(os.path.dirname(place)) + b"/" + target
        return found

    def _step(self, path: bytes) -> tuple[str, bytes | None]:
        """Return the real path except for its last part, and the target of that if it is a link."""
        head, _, tail = path.rpartition(b"/")
        if tail in (b".", b"..", b""):
            head, tail = path, b""
        folder = self._folder(head or b"/")
        try:
            place = os.readlink(f"/proc/self/fd/{folder}")
            if not tail:
                return place, None
            return f"{place if place != '/' else ''}/{os.fsdecode(tail)}", self._target(folder, tail)
        finally:
            os.close(folder)

    def _target(self, folder: int, name: bytes) -> bytes | None:
        """Return the target of a link in a directory. None where it is not a link, the usual case.

        os.readlink would raise an exception for each of those, while the caller waits.
        """
        size = self._readlink(folder, name, self._buffer, LONGEST_PATH)
        return self._buffer.raw[:size] if size >= 0 else None

    def _folder(self, path: bytes) -> int:
        """Open a directory as the process sees it."""
        opened = self._syscall(OPENAT2, self._root, path, self._directory, len(self._directory))
        if opened < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), os.fsdecode(path))
        return int(opened)

    def _walked(self, pid: int, at: str, name: bytes) -> list[str]:
        """Follow a path part by part."""
        try:
            start = os.dup(self._root) if name.startswith(b"/") else os.open(f"/proc/{pid}/{at}", HELD)
        except OSError as error:
            raise FileStoreError(f"its directory cannot be reached: {reason_of(error)}") from None
        walk = _Walk(pid, self._root, start, name, self._is_proc)
        try:
            return walk.run()
        except OSError as error:
            raise FileStoreError(f"a path cannot be followed: {reason_of(error)}") from None
        finally:
            os.close(walk.here)

    def _is_proc(self, descriptor: int) -> bool:
        """Return whether a file belongs to /proc."""
        told = ctypes.create_string_buffer(_STATFS_BYTES)
        if self._libc.fstatfs(descriptor, told) != 0:
            raise FileStoreError("a file system does not say what it is")
        return int.from_bytes(told.raw[:8], "little") == PROC


class _Walk:
    """One path in progress: the current directory, and the remaining parts, the next one last."""

    def __init__(self, pid: int, root: int, start: int, name: bytes, is_proc: Callable[[int], bool]) -> None:
        self._pid, self._root, self._is_proc = pid, root, is_proc
        self.here = start
        self._left = _parts(name)
        self._links = 0
        self._found: list[str] = []

    def run(self) -> list[str]:
        """Return the links at the end of the path and their targets. Empty where the call will fail."""
        for _ in range(MOST_STEPS):
            if not self._left:
                self._found.append(_place(f"/proc/self/fd/{self.here}"))
                return self._found
            if not self._go(self._left.pop()):
                return self._found
        raise FileStoreError("a path has too many parts")

    def _go(self, part: bytes) -> bool:
        """Take one step. Return whether to continue."""
        if part == b".." and os.path.samestat(os.fstat(self.here), os.fstat(self._root)):
            return True
        try:
            following = os.open(part, HELD | os.O_NOFOLLOW, dir_fd=self.here)
        except (FileNotFoundError, NotADirectoryError):
            if not self._left:
                self._found.append(self._beside(part))
            return False
        kind = os.fstat(following).st_mode
        if stat.S_ISLNK(kind):
            try:
                return self._through(part, following)
            finally:
                os.close(following)
        if not self._left and part != b"..":
            self._found.append(self._beside(part))
            os.close(following)
            return False
        self._step_to(following)
        return stat.S_ISDIR(kind)

    def _through(self, part: bytes, link: int) -> bool:
        """Follow a link."""
        self._links += 1
        if self._links > MOST_LINKS:
            return False
        if self._is_proc(link):
            return self._through_proc(part, link)
        if not self._left:
            self._found.append(self._beside(part))
        self._take(os.readlink(b"", dir_fd=link))
        return True

    def _through_proc(self, part: bytes, link: int) -> bool:
        """Follow a link of /proc: to the caller's own directory there, or to a file of a process."""
        if os.fstat(self.here).st_ino == PROC_ROOT_INODE:
            if part in (b"self", b"thread-self"):
                self._take(_own_directory(self._pid, is_thread=part != b"self"))
            else:
                self._take(os.readlink(b"", dir_fd=link))
            return True
        try:
            # The kernel opens the directory or file itself, even if it was renamed.
            following = os.open(part, HELD, dir_fd=self.here)
        except FileNotFoundError:
            return False
        self._step_to(following)
        return True

    def _take(self, target: bytes) -> None:
        if target.startswith(b"/"):
            self._step_to(os.dup(self._root))
        self._left += _parts(target)

    def _step_to(self, following: int) -> None:
        os.close(self.here)
        self.here = following

    def _beside(self, part: bytes) -> str:
        """Return the path of a name in the current directory."""
        folder = _place(f"/proc/self/fd/{self.here}")
        return f"{folder if folder != '/' else ''}/{os.fsdecode(part)}"


def _base(folder: int | None) -> str:
    """Return the base of a relative path, below the process's directory in /proc."""
    number = CURRENT_DIRECTORY if folder is None else folder & 0xFFFFFFFF
    return "cwd" if number == CURRENT_DIRECTORY else f"fd/{number}"


def _parts(path: bytes) -> list[bytes]:
    return [part for part in reversed(path.split(b"/")) if part not in (b"", b".")]


def _place(link: str) -> str:
    """Return the path behind a link below /proc. A deleted one keeps its old name.

    If the file has other names, the path does not tell which file is written.
    """
    place = os.readlink(link)
    if place.endswith(DELETED) and not os.path.lexists(place):
        if os.stat(link).st_nlink and place.startswith("/") and not place.startswith("/memfd:"):
            raise FileStoreError("a file was written by a name that it no longer has, and it has others")
        return place.removesuffix(DELETED)
    return place


def _own_directory(thread: int, *, is_thread: bool) -> bytes:
    """Return the path of a thread below /proc, by its numbers in its own namespace."""
    lines = Path(f"/proc/{thread}/status").read_bytes().splitlines()
    fields = dict(line.split(b":", 1) for line in lines if b":" in line)
    process = fields[b"NStgid"].split()[-1]
    return process + b"/task/" + fields[b"NSpid"].split()[-1] if is_thread else process
