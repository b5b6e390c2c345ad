"""Hear of every change to a file before a process of an image makes it: seccomp user notification.

A filter in the zygote, inherited by all that it forks and runs, stops the few system calls that make, change
or remove names or open for writing; reading is never stopped. A thread of this process reads which paths the
call names, tells them, and lets the call go on. The caller can change its memory after that, so what is told
is for undo. To refuse every call of a process, a preview, needs none of its memory: that is a wall.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import select
import struct
import threading
from typing import TYPE_CHECKING, NamedTuple

from gramercy.images.confine.seccomp import MACHINES, NUMBERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.images.connection import Connection

# Numbers of seccomp(2), by column of NUMBERS.
SECCOMP = (317, 277)
LOAD, EQUAL, ANY_BIT, ANSWER = 0x20, 0x15, 0x45, 0x06
ALLOW, NOTIFY = (ANSWER, 0, 0, 0x7FFF0000), (ANSWER, 0, 0, 0x7FC00000)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
ARGUMENTS = 16  # offset of the first in the description of a call, eight bytes each
RECEIVE, SEND, IS_VALID, SET_FLAGS = 0xC0502100, 0xC0182101, 0x80082102, 0x40082104
CONTINUE, WAKE_AT_ONCE = 1, 1
NOTICE, VERDICT = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
NOTICE_LINK = "anon_inode:seccomp notify"
PAGE, LONGEST_PATH = 4096, 4096
IN_ROOT = 0x10
OPENAT2 = 437
CURRENT_DIRECTORY = 0xFFFFFF9C
# The zygote of Python loads its modules first.
START_SECONDS = 30.0
# A chain of links longer than this is refused by the kernel too (ELOOP at 40); ours are read one by one.
MOST_LINKS = 16

# Which arguments of a call name a file: (directory or None for the current one, path or None for none).
_HERE = ((None, 0),)
CALLS: dict[str, tuple[tuple[int | None, int | None], ...]] = {
    "open": _HERE,
    "openat": ((0, 1),),
    "openat2": ((0, 1),),
    "creat": _HERE,
    "unlink": _HERE,
    "unlinkat": ((0, 1),),
    "rename": ((None, 0), (None, 1)),
    "renameat": ((0, 1), (2, 3)),
    "renameat2": ((0, 1), (2, 3)),
    "mkdir": _HERE,
    "mkdirat": ((0, 1),),
    "rmdir": _HERE,
    "symlink": ((None, 1),),
    "symlinkat": ((1, 2),),
    "link": ((None, 1),),
    "linkat": ((2, 3),),
    "mknod": _HERE,
    "mknodat": ((0, 1),),
    "truncate": _HERE,
    "ftruncate": ((0, None),),
    "chmod": _HERE,
    "fchmod": ((0, None),),
    "fchmodat": ((0, 1),),
    "fchmodat2": ((0, 1),),
    # Files that are written through its rings are not seen: it is told as such.
    "io_uring_setup": (),
    "fork": (),
    "vfork": (),
    "clone": (),
}
OPENS = {"open": 1, "openat": 2}
# Those that mean what a link leads to, not the link.
FOLLOWING = frozenset(
    ("open", "openat", "openat2", "creat", "truncate", "chmod", "fchmodat", "fchmodat2", "mknod", "mknodat")
)
# Those that make a process; `clone` with this bit makes a thread, and is not stopped.
FORKS = frozenset(("fork", "vfork", "clone"))
THREAD = 0x10000
RENAMES = frozenset(("rename", "renameat", "renameat2"))


class Stop(NamedTuple):
    """A call that is about to change files: the caller's thread, the call's name, and the absolute paths.

    `paths` has a link and what it leads to. `opens` tells that a descriptor for writing comes of it.
    """

    pid: int
    call: str
    paths: tuple[str, ...]
    opens: bool = False


def watching_filter(machine: str = "") -> tuple[int, list[int]] | None:
    """Return the number of seccomp(2) and the filter, one number for each instruction; None if unknown."""
    known = MACHINES.get(machine or platform.machine())
    if known is None:
        return None
    architecture, column = known
    program = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, architecture), ALLOW, (LOAD, 0, 0, 0)]
    for name in CALLS:
        number = NUMBERS[name][column]
        if number is None:
            continue
        if name in OPENS:
            flags = (LOAD, 0, 0, ARGUMENTS + 8 * OPENS[name])
            program += [(EQUAL, 0, 4, number), flags, (ANY_BIT, 0, 1, WRITING), NOTIFY, ALLOW]
        elif name == "clone":
            flags = (LOAD, 0, 0, ARGUMENTS)
            program += [(EQUAL, 0, 4, number), flags, (ANY_BIT, 1, 0, THREAD), NOTIFY, ALLOW]
        else:
            program += [(EQUAL, 0, 1, number), NOTIFY]
    program.append(ALLOW)
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    return SECCOMP[column], list(struct.unpack(f"={len(program)}Q", code))


def listen(
    zygote: Connection,
    tell: Callable[[Stop | None], object],
    refuses: Callable[[int], bool],
    may_fork: Callable[[int], bool],
) -> Listener | str:
    """Have the zygote install the filter, and hear its stops; return why where that is not possible."""
    program = watching_filter()
    if program is None:
        return f"no filter of system calls is known for {platform.machine()}"
    call, instructions = program
    answer, descriptor = zygote.request_descriptor(
        START_SECONDS, "watch_files", call=call, filter=instructions
    )
    if descriptor is None:
        return answer.reason or "the image does not say why"
    if not is_listener(descriptor):
        os.close(descriptor)
        return "the image sent another descriptor"
    listener = Listener(descriptor, tell, refuses, may_fork)
    listener.start()
    return listener


def is_listener(descriptor: int) -> bool:
    """Tell whether a descriptor that a zygote sent is that of a filter."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}") == NOTICE_LINK
    except OSError:
        return False


class _Part(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Memory:
    """Reads texts out of other processes; used by one thread."""

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
        """Return so many octets, fewer where the memory ends."""
        self._here.length = self._there.length = min(length, LONGEST_PATH)
        self._there.base = address
        got = self._copy(pid, self._ours, 1, self._theirs, 1, 0)
        if got < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        return ctypes.string_at(self._buffer, got)

    def text(self, pid: int, address: int) -> bytes:
        """Return the octets up to the first zero; page by page, since the next may not be there."""
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
    """Finds which file outside a path of a process means: links are followed in the root of that process."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._syscall = libc.syscall
        self._syscall.restype = ctypes.c_long
        number, text, size = ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t
        self._syscall.argtypes = (ctypes.c_long, number, text, text, size)
        self._directory = struct.pack("=QQQ", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, 0, IN_ROOT)
        self._root = -1

    def close(self) -> None:
        """Let go of the root."""
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def absolute(self, pid: int, folder: int | None, name: bytes) -> bytes:
        """Return a name of a process as an absolute path in its root, links not followed yet."""
        if not name.startswith(b"/"):
            at = (
                "cwd"
                if folder is None or folder & 0xFFFFFFFF == CURRENT_DIRECTORY
                else f"fd/{folder & 0xFFFFFFFF}"
            )
            base = os.fsencode(os.readlink(f"/proc/{pid}/{at}"))
            return base + b"/" + name if name else base
        for prefix in (b"/proc/self/", b"/proc/thread-self/"):
            if name.startswith(prefix):
                return self._through_proc(pid, name[len(prefix) :])
        if name.startswith(b"/dev/fd/"):
            return self._through_proc(pid, name[5:])
        return name

    @staticmethod
    def _through_proc(pid: int, rest: bytes) -> bytes:
        """Follow a link of the caller's own directory below /proc: its files, directory and root."""
        head, _, tail = rest.partition(b"/")
        if head == b"fd":
            number, _, tail = tail.partition(b"/")
            head = b"fd/" + number
        with contextlib.suppress(OSError):
            found = os.readlink(b"/proc/%d/%s" % (pid, head))
            return found + b"/" + tail if tail else found
        return b"/proc/%d/%s" % (pid, rest)

    def real(self, pid: int, path: bytes) -> list[str]:
        """Return where a path leads: itself, with the links in its directories followed, then its targets.

        Nothing where its directory does not exist: the call will fail.
        """
        found: list[str] = []
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for _ in range(MOST_LINKS):
                place, target = self._step(pid, path.rstrip(b"/") or b"/")
                found.append(place)
                if target is None:
                    break
                path = (
                    target if target.startswith(b"/") else os.fsencode(os.path.dirname(place)) + b"/" + target
                )
        return found

    def _step(self, pid: int, path: bytes) -> tuple[str, bytes | None]:
        """Return the real path, but for its last part, and what that leads to where it is a link."""
        head, _, tail = path.rpartition(b"/")
        if tail in (b".", b"..", b""):
            head, tail = path, b""
        folder = self._folder(pid, head or b"/")
        try:
            place = os.readlink(f"/proc/self/fd/{folder}")
            if not tail:
                return place, None
            try:
                target = os.readlink(tail, dir_fd=folder)
            except OSError:
                target = None
            return f"{place if place != '/' else ''}/{os.fsdecode(tail)}", target
        finally:
            os.close(folder)

    def _folder(self, pid: int, path: bytes) -> int:
        """Open a directory as the process sees it."""
        if self._root < 0:
            self._root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        opened = self._syscall(OPENAT2, self._root, path, self._directory, len(self._directory))
        if opened < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), os.fsdecode(path))
        return int(opened)


class Listener(threading.Thread):
    """Tells of every stop and lets the caller go on; ends when the last process with the filter has ended.

    `tell` gets a stop before its call goes on, on this thread; None means that some stop could not be read.
    The calls of a thread that `refuses` names fail. `may_fork` is asked before a process makes another: a
    bound that holds at once, whoever the user is.
    """

    def __init__(
        self,
        descriptor: int,
        tell: Callable[[Stop | None], object],
        refuses: Callable[[int], bool],
        may_fork: Callable[[int], bool],
    ) -> None:
        super().__init__(name="gramercy-files", daemon=True)
        self._descriptor = descriptor
        self._tell = tell
        self._refuses = refuses
        self._may_fork = may_fork
        # No fork goes on: what forks and exits at once would slip through the hands of whoever ends it.
        self.holds_forks = False
        self._memory, self._places = Memory(), Places()
        column = MACHINES[platform.machine()][1]
        self._names = {NUMBERS[name][column]: name for name in CALLS}
        self.stops = 0
        with contextlib.suppress(OSError):
            # Since Linux 6.6: the caller goes on at once on the processor of this thread.
            fcntl.ioctl(descriptor, SET_FLAGS, WAKE_AT_ONCE)

    def run(self) -> None:
        """Answer until nobody has the filter any more."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        try:
            while True:
                events = poll.poll()
                # Without this look RECEIVE would fail with ENOENT at once, for ever.
                if events[0][1] & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
                    return
                self._hear()
        finally:
            self._places.close()
            os.close(self._descriptor)

    def _hear(self) -> None:
        notice = bytearray(NOTICE.size)  # the kernel wants it zeroed
        try:
            fcntl.ioctl(self._descriptor, RECEIVE, notice)
        except OSError:
            return  # the caller has died meanwhile
        ident, pid, _, number, _, _, *arguments = NOTICE.unpack(notice)
        call = self._names.get(number, "")
        if call in FORKS:
            if self._asked(pid):
                self._answer(ident)
            return
        self.stops += 1
        try:
            stop = self._read(pid, call, arguments)
            # What was read is the caller's only if it still waits: else its number may be another's by now.
            fcntl.ioctl(self._descriptor, IS_VALID, notice[:8])
            if stop is not None:
                self._tell(stop)
        except Exception:  # noqa: BLE001 - whatever it is, the caller waits, and the next ones
            with contextlib.suppress(Exception):
                self._tell(None)
        self._answer(ident, self._refused(pid))

    def _asked(self, pid: int) -> bool:
        """Tell whether a fork goes on; else it is never answered, and its caller is about to end."""
        try:
            return not self.holds_forks and self._may_fork(pid)
        except Exception:  # noqa: BLE001 - the processes changed while they were counted; the caller waits
            return True

    def _refused(self, pid: int) -> int:
        """Return the error with which the call of a thread fails."""
        try:
            return -errno.EACCES if self._refuses(pid) else 0
        except Exception:  # noqa: BLE001 - this thread must not end: without it no process could write any more
            return -errno.EACCES

    def _answer(self, ident: int, error: int = 0) -> None:
        """Let the caller go on, or let its call fail."""
        verdict = VERDICT.pack(ident, 0, error, 0 if error else CONTINUE)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._descriptor, SEND, verdict)

    def _read(self, pid: int, call: str, arguments: list[int]) -> Stop | None:
        flags = arguments[OPENS[call]] if call in OPENS else os.O_WRONLY if call == "creat" else 0
        if call == "openat2":
            flags = int.from_bytes(self._memory.octets(pid, arguments[2], 8), "little")
            if not flags & WRITING:
                return None
        paths: list[str] = []
        for folder, place in CALLS[call]:
            at = None if folder is None else arguments[folder]
            if place is None:
                paths.append(os.readlink(f"/proc/{pid}/fd/{arguments[folder or 0] & 0xFFFFFFFF}"))
                continue
            name = self._memory.text(pid, arguments[place])
            if name == b"/dev/null":
                continue
            found = self._places.real(pid, self._places.absolute(pid, at, name))
            paths += found if call in FOLLOWING else found[:1]
        return Stop(pid, call, tuple(paths), bool(flags & (os.O_WRONLY | os.O_RDWR)))
