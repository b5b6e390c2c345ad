"""The protocol with the parent: command line, connection, frames, hello, ends, and fields of a request.

A frame is four bytes of length, then JSON in UTF-8. Everything called here is bound at start: evaluated code
may replace `os.write` or `json.dumps`, or close every small descriptor, and the frames stay intact. The
module is light on purpose, since the parent waits for the hello. It knows no operations.
"""

import _socket
import errno
import fcntl
import json
import os
import re
import resource
import sys
import time
from collections.abc import Callable
from json.encoder import c_make_encoder, encode_basestring  # type: ignore[attr-defined]  # the C encoder
from typing import Any, NamedTuple, NoReturn

# The longest request. A larger length is treated as a broken stream.
LARGEST = 64 * 1024 * 1024
# The longest reply: the parent ends a process that announces more.
LARGEST_REPLY = 16 * 1024 * 1024
# Bytes of one read: nearly every request fits, and a long one comes in pieces.
_USUAL = 8192
_CHUNK = 1024 * 1024
_HEADER = 4

_read, _write, _close, _fstat = os.read, os.write, os.close, os.fstat
_exit, _getpid = os._exit, os.getpid
_clock, _sleep = time.monotonic, time.sleep
_pidfd_open: Callable[[int], int] | None = getattr(os, "pidfd_open", None)
_RIGHTS = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS)
# Room for the ends that come with a request: one for a checkpoint, one for a moment, one for an input.
_ROOM = _socket.CMSG_SPACE(4 * 4)
_CLOSING, _SILENT = _socket.MSG_CMSG_CLOEXEC, _socket.MSG_NOSIGNAL
# The kernel limits the descriptors in transit of all processes of a user together. Other processes may
# exhaust that for a moment. The parent waits longer than this.
_TOO_MANY = errno.ETOOMANYREFS
_PATIENCE, _PAUSE = 5.0, 0.01
# Linux 6.5: the parent can let the kernel attach a pidfd of the sender to a message.
_NAMES_SENDERS = 76
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # C
_lone = re.compile("[\ud800-\udfff]").sub
Request = dict[str, object]
PROTOCOL = 1
_USAGE = (
    "Expected: --connection DESCRIPTOR [--path DIRECTORY]... [--mirror DESCRIPTOR] [--site] "
    "[--first DIRECTORY]... [--outside DIRECTORY]... [--init FILE] [--reload auto|tell|off]"
)
_LISTS = ("--connection", "--path", "--first", "--outside", "--mirror", "--init", "--reload")
CAPABILITIES = ("fork", "preview", "compile", "xref", "macroexpand", "inspect", "await", "undo_definitions")


def _unknown(value: object) -> str:
    return f"<{type(value).__name__}>"


def _encoder() -> object:
    if c_make_encoder is None:
        return None
    sort_keys, skip_odd_keys, allow_nan = False, True, False
    return c_make_encoder(
        None, _unknown, encode_basestring, None, ": ", ", ", sort_keys, skip_odd_keys, allow_nan
    )


_pieces = _encoder()
_dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, skipkeys=True, default=_unknown).encode


def encode(record: dict[str, object]) -> bytes:
    """Return the record as JSON bytes. A lone surrogate becomes U+FFFD."""
    text = "".join(_pieces(record, 0)) if callable(_pieces) else _dumps(record)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _lone("\ufffd", text).encode()


def decode(body: bytes) -> dict[str, object]:
    """Return the request in the frame, or raise ValueError with its fault."""
    try:
        text = body.decode().strip()
        value, end = _scan(text, 0)
    except StopIteration:
        raise ValueError("The request is not JSON: expected one object.") from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"The request is not JSON: {error}.") from None
    if end != len(text) or type(value) is not dict:
        raise ValueError("The request must be one JSON object and nothing after it.")
    return value


def raise_out_of_reach(fd: int) -> int:
    """Move the descriptor above the soft limit, out of reach of closerange() and of new files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(max(soft + 64, 4096), 60000)
    unlimited = hard == resource.RLIM_INFINITY
    try:
        if not unlimited and hard <= wanted:
            wanted = max(hard - 8, 3)
        if soft != resource.RLIM_INFINITY and soft <= wanted:
            above = wanted + 8 if unlimited else min(wanted + 8, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (above, hard))
        moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, wanted)
    except (OSError, ValueError):
        return fd
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    _close(fd)
    return moved


def _identity(fd: int) -> tuple[int, int]:
    status = _fstat(fd)
    return status.st_dev, status.st_ino


def close_quietly(fd: int) -> None:
    """Close a descriptor that user code may have closed before."""
    try:
        _close(fd)
    except OSError:
        return


def send_with(
    plug: _socket.socket, frame: bytes, descriptor: int, *, is_needed: bool = True, seconds: float = _PATIENCE
) -> int:
    """Send a frame with a descriptor, if there is one (-1: none). Return the number of sent bytes.

    If too many are in transit, wait up to a timeout. A descriptor that is not needed is left out instead.
    """
    rights = [(*_RIGHTS, descriptor.to_bytes(4, sys.byteorder))] if descriptor >= 0 else []
    until = _clock() + seconds
    while True:
        try:
            return plug.sendmsg([frame], rights, _SILENT)
        except OSError as error:
            if error.errno != _TOO_MANY or _clock() > until:
                raise
        if is_needed:
            _sleep(_PAUSE)
        else:
            rights = []


def _names_senders(plug: _socket.socket) -> bool:
    """Return whether the kernel itself can name the sending process to the parent."""
    try:
        plug.getsockopt(_socket.SOL_SOCKET, _NAMES_SENDERS)
    except OSError:
        return False
    return True


class Connection:
    """A socket that belongs to this process alone and ends the process when it ends."""

    def __init__(self, end: int) -> None:
        self.fd = raise_out_of_reach(end)
        self._plug = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, self.fd)
        # A default timeout of the user must not apply here.
        self._plug.settimeout(None)
        # Descriptors that came with the frame.
        self.come: list[int] = []
        self._mark = _identity(self.fd)
        self._owner = _getpid()
        self._closed = False
        self._rest = b""
        self.at_end: Callable[[], object] | None = None

    def require(self) -> None:
        """End the process if it is a copy made by user code, or if the socket is no longer ours."""
        try:
            if not self._closed and _getpid() == self._owner and _identity(self.fd) == self._mark:
                return
        except OSError:
            pass
        _exit(0)

    def close(self) -> None:
        """Close the inherited socket, in a copy of the process."""
        if not self._closed:
            self._closed = True
            self._plug.detach()
            close_quietly(self.fd)

    def receive(self) -> bytes:
        """Wait for the next frame. The end of the stream ends the process."""
        # Nearly always one read brings one whole frame.
        come = self._rest or self._first_part()
        while len(come) < _HEADER:
            come += self._first_part()
        end = _HEADER + int.from_bytes(come[:_HEADER], "big")
        if end > _HEADER + LARGEST:
            _exit(3)
        if len(come) < end:
            come += self._exactly(end - len(come))
        self._rest = come[end:]
        return come[_HEADER:end]

    def send(self, record: dict[str, object], *, sure: bool = False) -> None:
        """Write one frame. A record too large for a frame is replaced by an error.

        `sure`: no user code can have run since the last frame, so the socket is still ours.
        """
        body = encode(record)
        if len(body) > LARGEST_REPLY:
            body = encode({"id": record.get("id"), "ok": False, "error": _too_large(len(body))})
        if not sure or _getpid() != self._owner:
            self.require()
        left = memoryview(len(body).to_bytes(4, "big") + body)
        try:
            while left:
                left = left[_write(self.fd, left) :]
        except BaseException:  # noqa: BLE001 - half a frame was written: the only clean end is the end
            _exit(1)

    def introduce(self, record: dict[str, object]) -> None:
        """Say hello, with a handle of this process by which the parent can signal it."""
        body = encode(record)
        frame = len(body).to_bytes(4, "big") + body
        try:
            handle = _pidfd_open(_getpid()) if _pidfd_open is not None else -1
        except OSError:
            handle = -1  # no descriptor is left: a newer kernel names the sender by itself
        try:
            if send_with(self._plug, frame, handle, is_needed=not _names_senders(self._plug)) != len(frame):
                _exit(1)
        finally:
            if handle >= 0:
                _close(handle)

    def _first_part(self) -> bytes:
        """Read the beginning of a frame, with its descriptors. A plain read would drop them."""
        try:
            part, found, _, _ = self._plug.recvmsg(_USUAL, _ROOM, _CLOSING)
        except OSError:
            part, found = b"", []
        for level, kind, data in found:
            if (level, kind) == _RIGHTS:
                places = range(0, len(data) - 3, 4)
                self.come += [int.from_bytes(data[place : place + 4], sys.byteorder) for place in places]
        if not part:
            self._end()
        return part

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            parts.append(self._part(min(size, _CHUNK)))
            size -= len(parts[-1])
        return b"".join(parts)

    def _part(self, most: int) -> bytes:
        try:
            part = _read(self.fd, most)
        except OSError:
            part = b""
        if not part:
            self._end()
        return part

    def _end(self) -> NoReturn:
        if self.at_end is not None:
            self.at_end()
        _exit(0)


class Ends:
    """Ends of sockets from the parent, by the tags of the copies that will say hello on them."""

    def __init__(self) -> None:
        self._ends: dict[str, tuple[int, tuple[int, int]]] = {}

    def keep(self, request: Request, come: list[int]) -> None:
        """Keep the ends that came with a request. An evaluation names all that are still wanted."""
        if "then_fork" in request or "keep_moment" in request:
            self._keep_only((request.get("then_fork"), request.get("keep_moment"), request.get("input")))
        tags = request.get("ends")
        named = [tag for tag in tags if type(tag) is str] if type(tags) is list else []
        for place, fd in enumerate(come):
            if place < len(named):
                moved = raise_out_of_reach(fd)
                self._ends[named[place]] = moved, _identity(moved)
            else:
                close_quietly(fd)

    def _keep_only(self, wanted: tuple[object, ...]) -> None:
        for tag in [tag for tag in self._ends if tag not in wanted]:
            fd = self.take(tag)
            if fd is not None:
                close_quietly(fd)

    def take(self, tag: object) -> "int | None":
        """Return the end for a copy, which now belongs to the caller. None where there is none any more."""
        fd, mark = self._ends.pop(str(tag), (-1, (0, 0)))
        return fd if fd >= 0 and _is(fd, mark) else None

    def has(self, tag: str) -> bool:
        """Return whether there is an end for a copy that user code has not closed."""
        fd, mark = self._ends.get(tag, (-1, (0, 0)))
        return fd >= 0 and _is(fd, mark)

    def close(self) -> None:
        """Close them all."""
        self._keep_only(())


def _is(fd: int, mark: tuple[int, int]) -> bool:
    try:
        return _identity(fd) == mark
    except OSError:
        return False


def _too_large(size: int) -> dict[str, object]:
    message = f"The reply has {size} bytes; at most {LARGEST_REPLY} fit a frame. Ask with a smaller limit."
    return {"type": "FRAME-TOO-LARGE", "message": message}


class RequestError(Exception):
    """A request that cannot be answered: the type, the message and suggestions for the caller."""

    def __init__(self, kind: str, message: str, suggestions: list[str] | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.suggestions = suggestions or []

    def record(self) -> dict[str, object]:
        """Return the error for a reply."""
        return {"type": self.kind, "message": self.message, "suggestions": self.suggestions}


def text(request: Request, key: str) -> str:
    """Return a field that must be a string."""
    value = request.get(key)
    if type(value) is not str:
        raise RequestError("INVALID-REQUEST", f'"{key}" must be a string, not {type(value).__name__}.')
    return value


def optional_text(request: Request, key: str) -> str | None:
    """Return a field that may be a string or absent."""
    return None if request.get(key) is None else text(request, key)


def flag(request: Request, key: str) -> bool:
    """Return a field that may be true, false or absent."""
    value = request.get(key)
    if value is None or type(value) is bool:
        return bool(value)
    raise RequestError("INVALID-REQUEST", f'"{key}" must be a boolean, not {type(value).__name__}.')


def count(request: Request, key: str, default: int, most: int) -> int:
    """Return a field that may be a count or absent, never more than `most`."""
    value = request.get(key)
    if value is None:
        return default
    if type(value) is not int or value < 0:
        raise RequestError("INVALID-REQUEST", f'"{key}" must be a whole number of 0 or more.')
    return min(value, most)


# Not dataclasses: they load `inspect`, 7 ms before the hello.
class Options(NamedTuple):
    """The command line.

    `--connection` is the end of a socket pair to the parent. `--path` adds a directory to the import path,
    `--first` puts one at its beginning. With `--site` the live process has the packages of its environment.
    `--outside` names a directory of the environment that is not granted. `--init` is a file to run first.
    `--reload` says how to treat edited files of modules.
    """

    connection: int
    paths: tuple[str, ...]
    mirror: str | None
    site: bool = False
    first: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    init: str | None = None
    reload: str = "off"


def read_options(arguments: list[str]) -> Options:
    """Parse the command line, or end the program with a message on the log."""
    site = False
    told: dict[str, list[str]] = {name: [] for name in _LISTS}
    rest = iter(arguments)
    for word in rest:
        name, equals, value = word.partition("=")
        if name in told:
            told[name].append(value if equals else next(rest, ""))
        elif word == "--site":
            site = True
        else:
            sys.exit(f"Unknown option {word}. {_USAGE}")
    # An empty --mirror means no mirror. An empty path would only be noticed at the first import.
    empty = any("" in values for name, values in told.items() if name != "--mirror")
    connections = told["--connection"]
    if len(connections) != 1 or not connections[0].isdecimal() or empty:
        sys.exit(_USAGE)
    paths, first, outside = (tuple(told[name]) for name in ("--path", "--first", "--outside"))
    mirror, init, reload = (
        told[name][-1] if told[name] else None for name in ("--mirror", "--init", "--reload")
    )
    return Options(int(connections[0]), paths, mirror, site, first, outside, init, reload or "off")


def greet(connection: Connection, role: str, fork_us: int = 0) -> None:
    """Identify this process to the parent, for a copy with the duration of its fork."""
    connection.introduce(
        {
            "hello": PROTOCOL,
            "role": role,
            "language": "python",
            "version": "{}.{}.{}".format(*sys.version_info),
            "prefix": sys.prefix,
            "capabilities": list(CAPABILITIES),
            "fork_us": fork_us,
        }
    )
