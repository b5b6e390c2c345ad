"""Give up rights: to signal outsiders, for a live process; to write, connect and signal, for a preview.

Landlock covers what is opened from now on. Open descriptors are pointed at the null device, and an open
writable shared mapping, but for the mirror of the output, means: not confined. An audit hook records and
refuses what a preview tries, also where user code catches the error; it is the witness, not the wall.
"""

import errno
import fcntl
import os
import sys
from collections.abc import Callable
from contextlib import suppress

from .landlock import SIGNALS, landlock_version, restrict_scopes, restrict_writes
from .printing import preview, shorten
from .streams import Device

# Enough to see what a preview tries; a loop of attempts must not fill the reply.
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
_VERBS = {"write": "write", "connect": "connect", "process": "start or signal processes"}


class NotConfinedError(Exception):
    """Confinement is not complete, with the reason."""


def confine(keep: int, mirror: Device | None) -> str:
    """Give up the rights of this process except its connection and its mirror; return the level, or raise."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    sys.dont_write_bytecode = True
    try:
        _silence_descriptors(null, keep)
    finally:
        os.close(null)
    version = landlock_version()
    if not version:
        raise NotConfinedError("This kernel has no Landlock: writes of evaluated code cannot be held back.")
    try:
        restrict_writes()
    except OSError as error:
        raise NotConfinedError(f"Landlock refused: {os.strerror(error.errno or 0)}.") from None
    shared = _shared_mapping(mirror)
    if shared is not None:
        raise NotConfinedError(f"Evaluated code has mapped {shared} for shared writing before the fork.")
    return f"landlock-{version}"


def shield() -> None:
    """Give up signalling processes outside: a live process must not kill the zygote, nor its siblings."""
    with suppress(OSError):
        restrict_scopes(SIGNALS)


def _silence_descriptors(null: int, keep: int) -> None:
    """Point every descriptor that can be written to at the null device."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - pathlib is not loaded here
        number = int(name)
        if number in (null, keep):
            continue
        try:
            mode = fcntl.fcntl(number, fcntl.F_GETFL)
        except OSError:
            continue
        if mode & os.O_ACCMODE != os.O_RDONLY:
            os.dup2(null, number, inheritable=number <= 2)  # noqa: PLR2004 - the standard three


def _shared_mapping(mirror: Device | None) -> str | None:
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123 - no pathlib here
        for line in lines:
            words = line.split(None, 5)
            if len(words) < 6 or not words[1].startswith("rw") or not words[1].endswith("s"):  # noqa: PLR2004 - unnamed
                continue
            if mirror is None or (words[3], words[4]) != mirror:
                return words[5].strip()
    return None


class Witness:
    """The attempts of the evaluation under way."""

    def __init__(self, is_evaluating: Callable[[], bool]) -> None:
        self._is_evaluating = is_evaluating
        self._found: list[Effect] = []
        self._heard = False

    def install(self) -> bool:
        """Start watching; say whether the interpreter let us."""
        sys.addaudithook(self._hear)
        sys.audit(_PROBE)
        return self._heard

    def take(self) -> list[Effect]:
        """Return what was seen since the last time."""
        found, self._found = self._found, []
        return found

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        kind = _KINDS.get(event)
        if kind is None:
            self._heard = self._heard or event == _PROBE
            return
        if not self._is_evaluating() or (kind == "open" and not _is_write(arguments)):
            return
        kind = "write" if kind == "open" else kind
        target = _target(event, arguments)
        effect: Effect = {"kind": kind, "target": target, "outcome": "refused"}
        if len(self._found) < _KEPT and effect not in self._found:
            self._found.append(effect)
        raise PermissionError(errno.EACCES, f"A preview may not {_VERBS[kind]}", target)


def _is_write(arguments: tuple[object, ...]) -> bool:
    path, _mode, flags = (*arguments, None, None, None)[:3]
    return type(path) is not int and type(flags) is int and bool(flags & _WRITING)


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
