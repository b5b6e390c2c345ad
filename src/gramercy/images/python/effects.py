"""Record what evaluated code tried to do to the world outside, and refuse it.

An audit hook sees the attempt even when user code catches the error. It is not the wall (Landlock is); it is
the witness, so it covers what Python reports: files, sockets, processes, signals.
"""

import errno
import os
import sys
from collections.abc import Callable

from .printing import preview, shorten

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


_VERBS = {"write": "write", "connect": "connect", "process": "start or signal processes"}


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
