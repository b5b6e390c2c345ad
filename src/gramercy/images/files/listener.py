"""Report every file change before a process of an image makes it, by seccomp user notification.

A filter in the zygote, inherited by all its descendants, stops the few system calls that create, change or
remove names or open for writing. Reading is never stopped. A thread of this process reads the paths of the
call, reports them, and lets the call continue. The caller can change its memory after that, so the report
serves undo, not security. Refusing every call of a process, as for a preview, needs none of its memory: that
is secure.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import select
import struct
import threading
from typing import TYPE_CHECKING, NamedTuple

from gramercy.errors import FileStoreError
from gramercy.images.confine.seccomp import MACHINES, NUMBERS
from gramercy.images.files.resolving import Memory, Places

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
# The Python zygote loads its modules first.
START_SECONDS = 30.0

# The arguments of a call that name a file: (directory or None for the current one, path or None for none).
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
    "link": ((None, 0), (None, 1)),
    "linkat": ((0, 1), (2, 3)),
    "mknod": _HERE,
    "mknodat": ((0, 1),),
    "truncate": _HERE,
    "ftruncate": ((0, None),),
    "chmod": _HERE,
    "fchmod": ((0, None),),
    "fchmodat": ((0, 1),),
    "fchmodat2": ((0, 1),),
    # Binding a socket to a path creates a name. Its address is read separately.
    "bind": (),
    # After these some writes are not seen, or paths mean other files, which is reported. A sandbox refuses
    # them.
    "io_uring_setup": (),
    "inotify_init": (),
    "inotify_init1": (),
    "chroot": (),
    "pivot_root": (),
    "unshare": (),
    "setns": (),
    "mount": (),
    "move_mount": (),
    "open_by_handle_at": (),
    "pidfd_getfd": (),
    "fork": (),
    "vfork": (),
    "clone": (),
}
OPENS = {"open": 1, "openat": 2}
# Calls that act on the target of a link, not on the link.
FOLLOWING = frozenset(
    ("open", "openat", "openat2", "creat", "truncate", "chmod", "fchmodat", "fchmodat2", "mknod", "mknodat")
)
# Calls that create a process. `clone` with this bit creates a thread, and is not stopped.
FORKS = frozenset(("fork", "vfork", "clone"))
THREAD = 0x10000
# Calls that take one of the few instances of a user.
WATCHERS = frozenset(("inotify_init", "inotify_init1"))
RENAMES = frozenset(("rename", "renameat", "renameat2"))
LINKS = frozenset(("link", "linkat"))
EXCHANGE, FOLLOW = 2, 0x400
# Calls that write a file by any of its names.
WRITERS = frozenset(
    (
        "open",
        "openat",
        "openat2",
        "creat",
        "truncate",
        "ftruncate",
        "chmod",
        "fchmod",
        "fchmodat",
        "fchmodat2",
    )
)
ASTRAY = {
    "io_uring_setup": "it used io_uring, whose writes are not seen",
    "open_by_handle_at": "it opened a file without a path",
    "pidfd_getfd": "it took a descriptor of another process",
} | dict.fromkeys(
    ("chroot", "pivot_root", "unshare", "setns", "mount", "move_mount"),
    "it changed what paths mean to it (namespaces or mounts)",
)
UNREAD = "a system call could not be read"
_UNIX = 1
_LONGEST_ADDRESS = 110


class Stop(NamedTuple):
    """A call that is about to change files: the caller's thread, the call's name, and the absolute paths.

    `paths` has a link and its target. `opens` means that the call returns a descriptor for writing,
    `exchanges` that a rename swaps two names. `doubt` says why there may be more paths.
    """

    pid: int
    call: str
    paths: tuple[str, ...]
    opens: bool = False
    exchanges: bool = False
    doubt: str = ""


def _ignore(_told: object) -> None:
    """Ignore a report of a listener."""


def _refuse_none(_pid: int) -> bool:
    return False


def watching_filter(machine: str = "") -> tuple[int, list[int]] | None:
    """Return the number of seccomp(2) and the filter, one number for each instruction. None if unknown."""
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


class Host(NamedTuple):
    """The callbacks of a listener, on its own thread.

    `before` gets the thread of a caller before its memory is read, `tell` its stop before the call continues.
    The calls of a thread fail if `refuses` says so. `may_fork` is called before a process forks: that bound
    takes effect at once, for root too. `may_watch` is called before a process creates an inotify instance.
    """

    may_fork: Callable[[int], bool]
    may_watch: Callable[[], bool]
    before: Callable[[int], object] = _ignore
    tell: Callable[[Stop], object] = _ignore
    refuses: Callable[[int], bool] = _refuse_none


def listen(zygote: Connection, host: Host) -> Listener | str:
    """Let the zygote install the filter, and receive its stops. Return a reason if that is impossible."""
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
    listener = Listener(descriptor, host)
    listener.start()
    return listener


def is_listener(descriptor: int) -> bool:
    """Return whether a descriptor from a zygote is that of a filter."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}") == NOTICE_LINK
    except OSError:
        return False


class Listener(threading.Thread):
    """Reports every stop and resumes the caller. Ends with the last process that has the filter."""

    def __init__(self, descriptor: int, host: Host) -> None:
        super().__init__(name="gramercy-files", daemon=True)
        self._descriptor = descriptor
        self._host = host
        # While set, no fork continues: a process that forks and exits at once would escape being killed.
        self.holds_forks = False
        self._memory, self._places = Memory(), Places()
        column = MACHINES[platform.machine()][1]
        self._names = {NUMBERS[name][column]: name for name in CALLS}
        self.stops = 0
        with contextlib.suppress(OSError):
            # Since Linux 6.6: the caller resumes at once on the processor of this thread.
            fcntl.ioctl(descriptor, SET_FLAGS, WAKE_AT_ONCE)

    def run(self) -> None:
        """Answer until no process has the filter any more."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        try:
            while True:
                events = poll.poll()
                # Without this check RECEIVE would fail with ENOENT at once, endlessly.
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
        if call in WATCHERS:
            self._answer(ident, 0 if self._allowed() else -errno.EMFILE)
            return
        self.stops += 1
        try:
            self._host.before(pid)
            stop = self._read(pid, call, arguments)
            # The data belongs to the caller only if it still waits. Otherwise its number may be reused.
            fcntl.ioctl(self._descriptor, IS_VALID, notice[:8])
            if stop is not None:
                self._host.tell(stop)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller waits, and the next ones
            with contextlib.suppress(Exception):
                doubt = str(error) if isinstance(error, FileStoreError) else UNREAD
                self._host.tell(Stop(pid, call, (), doubt=doubt))
        self._answer(ident, self._refused(pid))

    def _asked(self, pid: int) -> bool:
        """Return whether a fork continues. Else it is never answered, and its caller is about to end."""
        try:
            return not self.holds_forks and self._host.may_fork(pid)
        except Exception:  # noqa: BLE001 - the processes changed while they were counted; the caller waits
            return True

    def _allowed(self) -> bool:
        """Return whether one more inotify instance may be created."""
        try:
            return self._host.may_watch()
        except Exception:  # noqa: BLE001 - as above: the caller waits
            return False

    def _refused(self, pid: int) -> int:
        """Return the error with which the call of a thread fails."""
        try:
            return -errno.EACCES if self._host.refuses(pid) else 0
        except Exception:  # noqa: BLE001 - this thread must not end: without it no process could write any more
            return -errno.EACCES

    def _answer(self, ident: int, error: int = 0) -> None:
        """Let the caller continue, or let its call fail."""
        verdict = VERDICT.pack(ident, 0, error, 0 if error else CONTINUE)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._descriptor, SEND, verdict)

    def _read(self, pid: int, call: str, arguments: list[int]) -> Stop | None:
        flags = arguments[OPENS[call]] if call in OPENS else os.O_WRONLY if call == "creat" else 0
        if call == "openat2":
            flags = int.from_bytes(self._memory.octets(pid, arguments[2], 8), "little")
            if not flags & WRITING:
                return None
        if call in ASTRAY:
            return Stop(pid, call, (), doubt=ASTRAY[call])
        paths = self._paths(pid, call, arguments) if call != "bind" else self._bound(pid, arguments)
        exchanges = call == "renameat2" and bool(arguments[4] & EXCHANGE)
        return Stop(pid, call, tuple(paths), bool(flags & (os.O_WRONLY | os.O_RDWR)), exchanges)

    def _paths(self, pid: int, call: str, arguments: list[int]) -> list[str]:
        """Return the paths that a call names."""
        paths: list[str] = []
        for folder, place in CALLS[call]:
            at = None if folder is None else arguments[folder]
            if place is None:
                paths += self._places.named(pid, at, b"")
                continue
            name = self._memory.text(pid, arguments[place])
            if name == b"/dev/null":
                continue
            found = self._places.named(pid, at, name)
            follows = call in FOLLOWING or (call == "linkat" and not folder and arguments[4] & FOLLOW)
            paths += found if follows else found[:1]
        return paths

    def _bound(self, pid: int, arguments: list[int]) -> list[str]:
        """Return the path that a socket is about to be bound to, if any."""
        address = self._memory.octets(pid, arguments[1], min(arguments[2], _LONGEST_ADDRESS))
        name = address[2:].split(b"\0")[0]
        if int.from_bytes(address[:2], "little") != _UNIX or not name:
            return []
        return self._places.named(pid, None, name)[:1]
