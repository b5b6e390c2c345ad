"""The protocol with the parent: command line, connection, frames, hello, and the fields of a request.

A frame is four bytes of length, then JSON in UTF-8. Everything called here is bound at start: evaluated code
may replace `os.write` or `json.dumps`, or close every small descriptor, and the frames stay whole. Light on
purpose, since the parent waits for the hello. It does not know what an operation does.
"""

import _socket
import fcntl
import json
import os
import re
import resource
import sys
from collections.abc import Callable
from json.encoder import c_make_encoder, encode_basestring  # type: ignore[attr-defined]  # the C encoder
from typing import Any, NamedTuple, NoReturn

# The longest request: a length beyond it is taken for a broken stream.
LARGEST = 64 * 1024 * 1024
# The longest reply: the parent ends a process that announces more.
LARGEST_REPLY = 16 * 1024 * 1024
# Bytes of one read: what nearly every request fits, and pieces of a long one.
_USUAL = 8192
_CHUNK = 1024 * 1024
_HEADER = 4

_read, _write, _close, _fstat = os.read, os.write, os.close, os.fstat
_exit, _getpid = os._exit, os.getpid
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # C
_lone = re.compile("[\ud800-\udfff]").sub
Request = dict[str, object]
PROTOCOL = 1
_USAGE = (
    "Expected: SOCKET TOKEN [--path DIRECTORY]... [--mirror DESCRIPTOR] [--site] [--first DIRECTORY]... "
    "[--outside DIRECTORY]... [--init FILE]"
)
_LISTS = ("--path", "--first", "--outside", "--mirror", "--init")
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
    """Return the record as JSON bytes; a lone surrogate becomes U+FFFD."""
    text = "".join(_pieces(record, 0)) if callable(_pieces) else _dumps(record)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _lone("\ufffd", text).encode()


def decode(body: bytes) -> dict[str, object]:
    """Return the request in the frame, or raise ValueError saying what is wrong with it."""
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


def _raise_out_of_reach(fd: int) -> int:
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


class Connection:
    """A socket that belongs to this process alone and ends the process when it ends."""

    def __init__(self, path: str) -> None:
        plug = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        plug.connect(path)
        self.fd = _raise_out_of_reach(plug.detach())
        self._mark = self._identity()
        self._owner = _getpid()
        self._closed = False
        self._rest = b""
        self.at_end: Callable[[], object] | None = None

    def _identity(self) -> tuple[int, int]:
        status = _fstat(self.fd)
        return status.st_dev, status.st_ino

    def require(self) -> None:
        """End the process when it is a copy made by user code, or when the socket is no longer ours."""
        try:
            if not self._closed and _getpid() == self._owner and self._identity() == self._mark:
                return
        except OSError:
            pass
        _exit(0)

    def close(self) -> None:
        """Close the inherited socket, in a copy of the process."""
        if not self._closed:
            self._closed = True
            try:
                _close(self.fd)
            except OSError:
                return

    def receive(self) -> bytes:
        """Wait for the next frame; the end of the stream is the end of the process."""
        # Nearly always one read brings one whole frame.
        come = self._rest or self._part(_USUAL)
        while len(come) < _HEADER:
            come += self._part(_USUAL)
        end = _HEADER + int.from_bytes(come[:_HEADER], "big")
        if end > _HEADER + LARGEST:
            _exit(3)
        if len(come) < end:
            come += self._exactly(end - len(come))
        self._rest = come[end:]
        return come[_HEADER:end]

    def send(self, record: dict[str, object], *, sure: bool = False) -> None:
        """Write one frame; a record too large for a frame is answered by an error of its own.

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


def _too_large(size: int) -> dict[str, object]:
    message = f"The reply has {size} bytes; at most {LARGEST_REPLY} fit a frame. Ask with a smaller limit."
    return {"type": "FRAME-TOO-LARGE", "message": message}


class RequestError(Exception):
    """A request that cannot be answered: the type, the message and what the caller may have meant."""

    def __init__(self, kind: str, message: str, suggestions: list[str] | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.suggestions = suggestions or []

    def record(self) -> dict[str, object]:
        """Return the error as it stands in a reply."""
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
class Address(NamedTuple):
    """Where the parent listens, and how it knows its children."""

    path: str
    token: str


class Options(NamedTuple):
    """The command line.

    `--path` adds a directory to the import path, `--first` puts one at its beginning; with `--site` the live
    process has the packages of its environment; `--outside` names a directory that the environment leads to
    and that is not granted; `--init` is a file to run first.
    """

    address: Address
    paths: tuple[str, ...]
    mirror: str | None
    site: bool = False
    first: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    init: str | None = None


def read_options(arguments: list[str]) -> Options:
    """Read the command line, or end the program with a message on the log."""
    words: list[str] = []
    site = False
    told: dict[str, list[str]] = {name: [] for name in _LISTS}
    rest = iter(arguments)
    for word in rest:
        name, equals, value = word.partition("=")
        if name in told:
            told[name].append(value if equals else next(rest, ""))
        elif word == "--site":
            site = True
        elif word.startswith("--"):
            sys.exit(f"Unknown option {word}. {_USAGE}")
        else:
            words.append(word)
    # An empty --mirror means no mirror; an empty path would only be noticed at the first import.
    empty = any("" in values for name, values in told.items() if name != "--mirror")
    if len(words) != 2 or empty:  # noqa: PLR2004 - socket and token
        sys.exit(_USAGE)
    address = Address(os.path.abspath(words[0]), words[1])  # noqa: PTH100 - pathlib costs 10 ms
    paths, first, outside = (tuple(told[name]) for name in ("--path", "--first", "--outside"))
    mirror, init = (told[name][-1] if told[name] else None for name in ("--mirror", "--init"))
    return Options(address, paths, mirror, site, first, outside, init)


def greet(address: Address, role: str, tag: str | None) -> Connection:
    """Connect to the parent and say who this is."""
    connection = Connection(address.path)
    connection.send(
        {
            "hello": PROTOCOL,
            "role": role,
            "language": "python",
            "version": "{}.{}.{}".format(*sys.version_info),
            "pid": os.getpid(),
            "prefix": sys.prefix,
            "capabilities": list(CAPABILITIES),
            "token": address.token,
            "tag": tag,
        }
    )
    return connection
