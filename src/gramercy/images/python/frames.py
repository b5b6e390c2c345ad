"""One connection to the parent and its frames: four bytes of length, then JSON in UTF-8.

Everything it calls is bound here, at start: evaluated code may replace `os.write`, `json.dumps` or close
every small descriptor and the frames stay whole. It knows nothing of what the frames mean.
"""

import _socket
import fcntl
import json
import os
import re
import resource
from collections.abc import Callable
from json.encoder import c_make_encoder, encode_basestring  # type: ignore[attr-defined]  # the C encoder
from typing import Any, NoReturn

LARGEST = 64 * 1024 * 1024
_CHUNK = 1024 * 1024
_USUAL = 8192
_HEADER = 4

_read, _write, _close, _fstat = os.read, os.write, os.close, os.fstat
_exit, _getpid = os._exit, os.getpid
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # C
_lone = re.compile("[\ud800-\udfff]").sub


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
    """Move the descriptor above the soft limit, where closerange() and new files do not come."""
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
        """Let go of the inherited socket, in a copy of the process."""
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

        It is `sure` that the socket is ours where no user code can have run since the last frame.
        """
        body = encode(record)
        if len(body) > LARGEST:
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
    message = f"The reply has {size} bytes; at most {LARGEST} fit a frame. Ask with a smaller limit."
    return {"type": "FRAME-TOO-LARGE", "message": message}
