"""One connection to one process of an image: frames out, frames in, each within a time."""

from __future__ import annotations

import os
import select
import socket
import struct
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from gramercy.errors import ImageGoneError, ImageProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

LARGEST_FRAME = 64 * 1024 * 1024
CHUNK = 1 << 16
_HEADER = struct.Struct(">I")


class Hello(msgspec.Struct, frozen=True):
    """The first frame of every process."""

    hello: int
    role: str
    language: str
    version: str
    pid: int
    token: str
    capabilities: list[str] = []
    tag: str | None = None


class Numbered(msgspec.Struct, frozen=True):
    """The one thing that every reply has."""

    id: int | None = None


class Connection:
    """A process of an image, by its socket. `pid` is the process as this side sees it."""

    def __init__(self, channel: socket.socket, encode: Callable[[dict[str, Any]], bytes]) -> None:
        self._channel = channel
        self._fd = channel.fileno()
        self._encode = encode
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)
        self._buffer = bytearray()
        self._last_id = 0
        # The kernel says who is at the other end; a process may know only its inner pid, or lie.
        self.pid = struct.unpack("3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        self.hello: Hello | None = None

    def read_hello(self, seconds: float) -> Hello:
        """Return the first frame."""
        frame = self.receive(seconds)
        if frame is None:
            raise ImageProtocolError("a process of the image connected but said nothing")
        self.hello = _decode(frame, Hello)
        return self.hello

    def send(self, op: str, **fields: Any) -> int:
        """Send a request and return its id."""
        self._last_id += 1
        try:
            payload = self._encode({"op": op, "id": self._last_id, **fields})
        except UnicodeEncodeError:
            raise ImageProtocolError("the code has a lone surrogate in it, which is no character") from None
        if len(payload) > LARGEST_FRAME:
            raise ImageProtocolError(
                f"the request has {len(payload):,} bytes: at most {LARGEST_FRAME:,} can be sent"
            )
        try:
            self._channel.sendall(_HEADER.pack(len(payload)) + payload)
        except OSError as error:
            raise ImageGoneError(f"the image cannot be reached ({error.strerror})") from None
        return self._last_id

    def receive(self, seconds: float | None) -> bytes | None:
        """Return the next frame, or None when none came in time; what has come so far is kept."""
        deadline = None if seconds is None else monotonic() + seconds
        while True:
            frame = self._take_frame()
            if frame is not None:
                return frame
            left = None if deadline is None else max(0.0, deadline - monotonic())
            if not self._poll.poll(None if left is None else left * 1000):
                return None
            self._fill()

    def _fill(self) -> None:
        try:
            chunk = os.read(self._fd, CHUNK)
        except OSError:
            chunk = b""
        if not chunk:
            raise ImageGoneError("the image has ended")
        self._buffer += chunk

    def _take_frame(self) -> bytes | None:
        buffer = self._buffer
        if len(buffer) < _HEADER.size:
            return None
        size = _HEADER.unpack_from(buffer)[0]
        if size > LARGEST_FRAME:
            raise ImageProtocolError(f"the image announced a frame of {size:,} bytes")
        end = _HEADER.size + size
        if len(buffer) < end:
            return None
        frame = bytes(buffer[_HEADER.size : end])
        del buffer[:end]
        return frame

    def receive_reply(self, seconds: float | None) -> bytes | None:
        """Return the reply to the last request; what answers an earlier one is dropped.

        There is one request at a time, but a copy of the process that user code forked may answer too.
        """
        deadline = None if seconds is None else monotonic() + seconds
        while True:
            frame = self.receive(None if deadline is None else max(0.0, deadline - monotonic()))
            if frame is None or _decode(frame, Numbered).id == self._last_id:
                return frame

    def request(self, reply: type[T], seconds: float, op: str, **fields: Any) -> T:
        """Send a request and return its reply; a late one raises ImageGoneError, for small requests only."""
        self.send(op, **fields)
        frame = self.receive_reply(seconds)
        if frame is None:
            raise ImageGoneError(f"the image did not answer {op} within {seconds:g} s")
        return _decode(frame, reply)

    def has_ended(self) -> bool:
        """Tell whether the process at the other end has hung up, without waiting."""
        if not self._poll.poll(0):
            return False
        try:
            return not self._channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Hang up; the process at the other end exits when it notices."""
        self._channel.close()


_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {}


def _decode(frame: bytes, kind: type[T]) -> T:
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    try:
        return decoder.decode(frame)  # type: ignore[no-any-return]
    except msgspec.MsgspecError as error:
        raise ImageProtocolError(f"the image sent something that is not a {kind.__name__}: {error}") from None


decode = _decode
