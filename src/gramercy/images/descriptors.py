"""The cost of open descriptors: kernel memory behind those of an image, and room for our own.

The memory of a socket, or of a file without a name, belongs to no process: the memory of each process does
not include it. It is found by the open descriptors of the processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import resource
import socket
import struct
import threading
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, Self, cast

from gramercy.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# The same numbers on x86-64 and arm64, but for kcmp(2).
PIDFD_GETFD = 438
KCMP = {"x86_64": 312, "aarch64": 272}
SAME_FILE = 0
# The memory of a socket: received, to be sent (counted in two ways), reserved, behind. The rest are limits.
SO_MEMINFO = 55
_MEMORY = struct.Struct("9I")
INOTIFY = "anon_inode:inotify"
IN_MEMORY, DELETED = "/memfd:", " (deleted)"
# For a socket that cannot be measured: more than most have, so that many of them are noticed.
UNKNOWN_BYTES = 256 << 10
# Closing the last descriptor of a TCP socket can take as long as its owner has set (SO_LINGER).
MOST_CLOSING = 16
UNOPENED = -2
# A user has 128 on most systems. These are enough for the watchers of a program and its states.
MOST_WATCHERS = 16
# With fewer descriptors left, no more images are started. They are enough to end calls in order.
RESERVE = 64
# More is never needed: a hundred images with all their states.
MOST_OURS = 65_536


class Held(NamedTuple):
    """The memory behind the descriptors of some processes that is not counted elsewhere."""

    memory: int = 0
    deleted: int = 0


def held(processes: Iterable[int], seen: set[str], project: str = "") -> Held:
    """Return the memory of sockets and files in memory, and the size of deleted files of a project.

    Entries in `seen` are left out, and new ones are added to it: copies of a process share descriptors.
    """
    memory = deleted = 0
    for process in processes:
        with _Handle(process) as handle:
            for number, link in links(process):
                if link.startswith("socket:") and link not in seen:
                    seen.add(link)
                    memory += handle.socket_bytes(number)
                elif link.startswith(IN_MEMORY):
                    memory += _size(process, number, seen)
                elif project and link.endswith(DELETED) and link.startswith(project):
                    deleted += _size(process, number, seen)
    return Held(memory, deleted)


def links(process: int) -> Iterator[tuple[int, str]]:
    """Yield the descriptors of a process with their targets. Empty where it has ended."""
    try:
        numbers = os.listdir(f"/proc/{process}/fd")  # noqa: PTH208 - in the loop of a look, where paths cost more
    except OSError:
        return
    for number in numbers:
        with contextlib.suppress(OSError):
            yield int(number), os.readlink(f"/proc/{process}/fd/{number}")  # noqa: PTH115 - as above


def _size(process: int, number: int, seen: set[str]) -> int:
    """Return the space of an open file that has not been seen yet."""
    with contextlib.suppress(OSError):
        found = os.stat(f"/proc/{process}/fd/{number}")  # noqa: PTH116 - as above
        key = f"{found.st_dev}:{found.st_ino}"
        if key not in seen:
            seen.add(key)
            return found.st_blocks * 512
    return 0


class _Handle:
    """A process whose sockets are measured."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._pidfd = UNOPENED

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)

    def socket_bytes(self, number: int) -> int:
        """Return the memory of a socket, by a temporary descriptor of our own."""
        if self._pidfd == UNOPENED:
            self._pidfd = _pidfd(self._process)
        if self._pidfd < 0 or _closer.is_held_up():
            return UNKNOWN_BYTES
        ours = _syscall()(PIDFD_GETFD, self._pidfd, number, 0, 0, 0)
        return _socket_bytes(ours) if ours >= 0 else UNKNOWN_BYTES


def _socket_bytes(ours: int) -> int:
    """Return the memory of a socket, and close it."""
    try:
        plug = socket.socket(fileno=ours)
    except OSError:  # the number was reused for something else
        _closer.close(ours)
        return 0
    try:
        used = _MEMORY.unpack(plug.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, _MEMORY.size))
    except (OSError, struct.error):
        return UNKNOWN_BYTES
    finally:
        if plug.family == socket.AF_UNIX:
            plug.close()
        else:
            _closer.close(plug.detach())
    received, _, sent, _, reserved, queued, _, behind, _ = map(int, used)
    return received + max(sent, queued) + reserved + behind


class _Closer:
    """Closes descriptors on a separate thread, since closing a TCP socket may take long."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[int] = SimpleQueue()
        self._is_running = False

    def is_held_up(self) -> bool:
        """Return whether a close takes long at present."""
        return self._waiting.qsize() > MOST_CLOSING

    def close(self, descriptor: int) -> None:
        """Close a descriptor soon. Called by one thread, the watch."""
        self._waiting.put(descriptor)
        if not self._is_running:
            self._is_running = True
            threading.Thread(target=self._run, name="gramercy-close", daemon=True).start()

    def _run(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                os.close(self._waiting.get())


_closer = _Closer()


def watchers(processes: Iterable[int]) -> int:
    """Count the inotify instances of processes, shared ones once. The count is higher where some are hidden.

    An instance in transit in a message belongs to no process. Then many are assumed.
    """
    found: list[tuple[int, int]] = []
    for process in processes:
        for number, link in links(process):
            if link == INOTIFY and not any(_is_same(process, number, *other) for other in found):
                found.append((process, number))
            elif link.startswith("socket:") and _is_carrying(process, number):
                return MOST_WATCHERS
    return len(found)


def _is_same(process: int, number: int, other: int, other_number: int) -> bool:
    call = KCMP.get(platform.machine())
    return call is not None and _syscall()(call, process, other, SAME_FILE, number, other_number) == 0


def _is_carrying(process: int, number: int) -> bool:
    """Return whether descriptors wait in a socket to be received."""
    try:
        told = Path(f"/proc/{process}/fdinfo/{number}").read_bytes()
    except OSError:
        return False
    return any(line.startswith(b"scm_fds:") and int(line[8:]) > 0 for line in told.splitlines())


def _pidfd(process: int) -> int:
    try:
        return os.pidfd_open(process)
    except OSError:
        return -1


@cache
def _syscall() -> Callable[..., int]:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    call.argtypes = (ctypes.c_long,) * 6
    return cast("Callable[..., int]", call)


def is_scarce(newest: int) -> bool:
    """Return whether few descriptors are left, by the number of a new one: the kernel gives the lowest."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most != resource.RLIM_INFINITY and newest >= most - RESERVE


def check_room() -> None:
    """Raise if one more image would take the last descriptors, which running images need."""
    try:
        newest = os.dup(2)
    except OSError as error:
        raise ImageError(told_scarcity(error)) from None
    os.close(newest)
    if is_scarce(newest):
        raise ImageError(told_scarcity(OSError(errno.EMFILE, os.strerror(errno.EMFILE))))


class Turn:
    """A lock in which a system error, such as a lack of descriptors, becomes one of ours."""

    def __init__(self) -> None:
        lock = threading.Lock()
        self.acquire, self.release, self.locked = lock.acquire, lock.release, lock.locked

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.release()
        if isinstance(error, OSError):
            raise ImageError(told_scarcity(error)) from error


def raise_limit() -> None:
    """Raise this process's limit of descriptors as far as allowed: each kept state takes two.

    Only for a program of ours: another program may use select(2), which fails above 1,023.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_OURS if hard == resource.RLIM_INFINITY else min(hard, MOST_OURS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def told_scarcity(error: Exception) -> str:
    """If too few descriptors are left, say how many there are and what to do. Else return the error."""
    if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
        return str(error)
    if error.errno == errno.ENFILE:
        return "the machine has no file descriptor left: end other programs, or close images"
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        f"this process has too few file descriptors left ({most} are allowed): close images that are not "
        "used, or raise the limit with 'ulimit -n' before it starts"
    )
