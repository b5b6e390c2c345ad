"""Give up rights: to signal outsiders, for a live process; to change anything outside of it, for a preview.

Landlock covers files that are opened from now on, the filter of system calls the rest. Things that a copy
shares with its original become its own: open files, whose offsets are shared, and memory. An audit hook
records and refuses the attempts of a preview, even where user code catches the error. It serves as a record,
not as protection. The parent sends the filter and the places of shared memory, and checks the result from
outside.
"""

import ctypes
import errno
import fcntl
import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from .landlock import SIGNALS, install_filter, landlock_version, restrict_scopes, restrict_writes
from .printing import preview, shorten
from .protocol import Request, RequestError, text
from .threads import count

# Bound at start: evaluated code may replace them, even in good faith (a file system for tests, say).
_open, _close, _dup2, _lseek, _fstat, _listdir = os.open, os.close, os.dup2, os.lseek, os.fstat, os.listdir
_stat = os.stat
_fcntl = fcntl.fcntl
_FILES = "/proc/self/fd"
# null, zero, full, random and urandom: reading them is not shared with any process.
_MEMORY_DEVICES = frozenset((1, minor) for minor in (3, 5, 7, 8, 9))
_READ_WRITE, _PRIVATE_ANONYMOUS, _MOVE_TO = 3, 0x22, 3
_FAILED = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = _libc.mremap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_ssize_t
]  # fmt: skip
_libc.mremap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
]  # fmt: skip
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
# Enough to see the attempts of a preview. A loop of attempts must not fill the reply.
_KEPT = 100
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_WRITES = (
    *("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"),
    *("os.chmod", "os.chown", "os.utime", "os.setxattr", "os.removexattr", "os.chflags", "os.lchflags"),
)
_CONNECTS = (
    *("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"),
    *("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"),
)
_PROCESSES = (
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn"),
    *("os.fork", "os.forkpty", "os.kill", "os.killpg", "pty.spawn"),
)
_KINDS = {
    **dict.fromkeys(_WRITES, "write"),
    **dict.fromkeys(_CONNECTS, "connect"),
    **dict.fromkeys(_PROCESSES, "process"),
    "open": "open",
}
_PROBE = "gramercy.effects"
Effect = dict[str, object]
_VERBS = {
    "read": "read a pipe, which would empty it",
    "write": "write",
    "connect": "connect",
    "process": "start or signal processes",
}


class NotConfinedError(Exception):
    """Confinement is not complete, with the reason."""


class Area(NamedTuple):
    """Memory that is shared with other processes. `rights` are the PROT_ bits of mprotect."""

    start: int
    size: int
    rights: int


def confine(keep: int, request: Request) -> str:
    """Give up the rights of this process except its connection. Return the level, or raise."""
    program, areas = _limits(request)
    version = landlock_version()
    if not version:
        raise NotConfinedError("This kernel has no Landlock: writes of evaluated code cannot be held back.")
    if count() > 1:
        # One thread gives up rights, and later threads inherit that.
        raise NotConfinedError("Other threads are running in the copy.")
    sys.dont_write_bytecode = True
    _own_descriptors(keep)
    for area in areas:
        _own_memory(area)
    restrict_writes()
    install_filter(program)
    return f"landlock-{version}+seccomp"


def _limits(request: Request) -> "tuple[bytes, list[Area]]":
    """Return the filter of system calls and the shared memory that a request names."""
    numbers = request.get("areas") or []
    if type(numbers) is not list or not all(type(number) is int for number in numbers) or len(numbers) % 3:
        raise RequestError("INVALID-REQUEST", '"areas" must be a list of addresses, sizes and rights.')
    try:
        program = bytes.fromhex(text(request, "filter"))
    except ValueError:
        raise RequestError("INVALID-REQUEST", '"filter" must be in hexadecimal.') from None
    return program, [Area(*numbers[place : place + 3]) for place in range(0, len(numbers), 3)]


def shield() -> None:
    """Give up signalling processes outside: a live process must not kill the zygote, nor its siblings."""
    with suppress(OSError):
        restrict_scopes(SIGNALS)


def _own_descriptors(keep: int) -> None:
    """Open files again, and point all other descriptors at the null device.

    A copy shares offsets and queues with its original: data that the copy reads would be missing there.
    """
    null = _open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        for name in _listdir(_FILES):
            if int(name) not in (null, keep):
                _own_descriptor(int(name), null)
    finally:
        _close(null)


def _own_descriptor(number: int, null: int) -> None:
    try:
        flags, status = _fcntl(number, fcntl.F_GETFL), _fstat(number)
    except OSError:
        return  # the listing itself, closed already
    mode, device = status.st_mode, status.st_rdev
    if flags & os.O_PATH or (stat.S_ISCHR(mode) and (os.major(device), os.minor(device)) in _MEMORY_DEVICES):
        return
    is_file = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
    # A write-only descriptor goes to the null device. One for reading and writing can be read.
    again = _opened_again(number) if is_file and flags & os.O_ACCMODE != os.O_WRONLY else None
    _dup2(null if again is None else again, number, inheritable=number <= 2)  # noqa: PLR2004 - the standard three
    if again is not None:
        _close(again)


def _opened_again(number: int) -> "int | None":
    """Return a descriptor of the same file with its own offset. None where it may not be opened."""
    with suppress(OSError):
        again = _open(f"{_FILES}/{number}", os.O_RDONLY | os.O_CLOEXEC)
        with suppress(OSError):  # without offsets nothing is shared
            _lseek(again, _lseek(number, 0, os.SEEK_CUR), os.SEEK_SET)
        return again
    return None


def _own_memory(area: Area) -> None:
    """Replace shared memory by a private copy. Nothing else keeps it from being written to."""
    copy = _libc.mmap(None, area.size, _READ_WRITE, _PRIVATE_ANONYMOUS, -1, 0)
    if copy != _FAILED:
        ctypes.memmove(copy, area.start, area.size)
        _libc.mprotect(copy, area.size, area.rights)
        copy = _libc.mremap(copy, area.size, area.size, _MOVE_TO, area.start)
    if copy == _FAILED:
        raise NotConfinedError(f"Shared memory cannot be copied: {os.strerror(ctypes.get_errno())}.")


class Witness:
    """The attempts of the running evaluation."""

    def __init__(self, is_evaluating: Callable[[], bool]) -> None:
        self._is_evaluating = is_evaluating
        self._found: list[Effect] = []
        self._heard = False

    def install(self) -> bool:
        """Start watching. Return whether the interpreter allowed it."""
        sys.addaudithook(self._hear)
        sys.audit(_PROBE)
        return self._heard

    def take(self) -> list[Effect]:
        """Return the attempts since the last call of this."""
        found, self._found = self._found, []
        return found

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        kind = _KINDS.get(event)
        if kind is None:
            self._heard = self._heard or event == _PROBE
            return
        if not self._is_evaluating():
            return
        kind = _opening(arguments) if kind == "open" else kind
        if not kind:
            return
        target = _target(event, arguments)
        effect: Effect = {"kind": kind, "target": target, "outcome": "refused"}
        if len(self._found) < _KEPT and effect not in self._found:
            self._found.append(effect)
        raise PermissionError(errno.EACCES, f"A preview may not {_VERBS[kind]}", target)


def _opening(arguments: tuple[object, ...]) -> str:
    """Return the purpose of an open that a preview may not make. Empty for others."""
    path, _mode, flags = (*arguments, None, None, None)[:3]
    if type(path) is int or type(flags) is not int:
        return ""
    if flags & _WRITING:
        return "write"
    # Data read from a pipe is gone for all other readers. A path relative to a descriptor is not known here.
    with suppress(OSError, ValueError):
        if (type(path) is str or type(path) is bytes) and stat.S_ISFIFO(_stat(path).st_mode):
            return "read"
    return ""


def _target(event: str, arguments: tuple[object, ...]) -> str:
    if event in ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"):
        return _address(arguments[1] if len(arguments) > 1 else None)
    if event in ("socket.getaddrinfo", "os.kill", "os.killpg"):
        return ":".join(_word(argument) for argument in arguments[:2])
    if event == "subprocess.Popen":
        return shorten(_word(arguments[1] if len(arguments) > 1 else arguments[0]), 300)
    if event in ("os.rename", "os.link", "os.symlink"):
        return " -> ".join(_word(argument) for argument in arguments[:2])
    return _word(arguments[0]) if arguments else event


def _address(address: object) -> str:
    if type(address) is tuple:
        return ":".join(_word(part) for part in address[:2])
    return _word(address)


def _word(value: object) -> str:
    if type(value) is str:
        return shorten(value, 300)
    if type(value) is bytes:
        return shorten(value.decode("utf-8", "replace"), 300)
    if type(value) is list or type(value) is tuple:
        return shorten(" ".join(part if type(part) is str else preview(part, 40) for part in value), 300)
    return preview(value, 100)
