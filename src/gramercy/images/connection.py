"""One connection to one process of an image: length-prefixed frames out and in, each with a timeout.

Requests are written in the syntax that the image reads: a property list for Lisp, JSON for Python.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from gramercy.errors import ImageGoneError, ImageProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

# The limit of the programs inside the image too; a longer frame is an error, or an attack on our memory.
LARGEST_FRAME = 64 * 1024 * 1024
# Nearly every reply fits into one read of this size.
CHUNK = 1 << 16
_HEADER = struct.Struct(">I")
_HEADER_SIZE = _HEADER.size
_WAITING_TIME = struct.Struct("ll")
# The shortest SO_RCVTIMEO: zero would mean no timeout.
_SHORTEST = 1e-6


class Hello(msgspec.Struct, frozen=True):
    """The first frame of every process; `notes` are for the user, about how a live process started."""

    hello: int
    role: str
    language: str
    version: str
    pid: int
    token: str
    capabilities: list[str] = []
    tag: str | None = None
    # Of Python: sys.prefix, the environment in force.
    prefix: str = ""
    notes: list[str] = []


class Connection:
    """A process of an image, by its socket. `pid` is its number in the pid namespace of this process."""

    def __init__(
        self,
        channel: socket.socket,
        encode: Callable[[dict[str, Any]], bytes],
        numbers: Iterator[int] | None = None,
    ) -> None:
        self._channel = channel
        self._encode = encode
        self._numbers = count(1) if numbers is None else numbers
        self._buffer = bytearray()
        self._patience: float | None = None
        self.last_id = 0
        # From the kernel: a process in a pid namespace knows only its inner pid, and evaluated code may lie.
        self.pid = struct.unpack("3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        self.hello: Hello | None = None
        self.parent: Connection | None = None
        self._handle = -1

    def hold(self) -> None:
        """Open a pidfd, so that a signal can never reach another process with a recycled pid."""
        if self._handle < 0 and hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._handle = os.pidfd_open(self.pid)

    def signal(self, number: int) -> None:
        """Send the process a signal; nothing happens when it has ended."""
        with contextlib.suppress(OSError):
            if self._handle >= 0:
                signal.pidfd_send_signal(self._handle, number)
            elif not self.has_ended():
                os.kill(self.pid, number)

    def read_hello(self, seconds: float) -> Hello:
        """Return the first frame."""
        frame = self.receive(seconds)
        if frame is None:
            raise ImageProtocolError("a process of the image connected but said nothing")
        self.hello = _decode(frame, Hello)
        return self.hello

    def send(self, op: str, **fields: Any) -> None:
        """Send a request; fields that are None are left out."""
        self.post({"op": op, **fields})

    def post(self, fields: dict[str, Any]) -> None:
        """Send a request that has all its fields but `id`."""
        fields["id"] = self.last_id = next(self._numbers)
        try:
            payload = self._encode(fields)
        except UnicodeEncodeError:
            raise ImageProtocolError("the code has a lone surrogate in it, which is no character") from None
        if len(payload) > LARGEST_FRAME:
            raise ImageProtocolError(
                f"the request has {len(payload):,} bytes: at most {LARGEST_FRAME:,} can be sent"
            )
        frame = _HEADER.pack(len(payload)) + payload
        try:
            sent = self._channel.send(frame, socket.MSG_NOSIGNAL)
            if sent < len(frame):
                self._channel.sendall(memoryview(frame)[sent:], socket.MSG_NOSIGNAL)
        except OSError as error:
            raise ImageGoneError(f"the image cannot be reached ({error.strerror})") from None

    def receive(self, seconds: float) -> bytes | None:
        """Return the next frame, or None at the timeout; a part of a frame stays in the buffer."""
        return self._receive_until(monotonic() + seconds, seconds)

    def _receive_until(self, deadline: float, seconds: float) -> bytes | None:
        frame = self._take_frame() if self._buffer else None
        while frame is None:
            if seconds != self._patience:
                self._be_patient(seconds)
            try:
                chunk = self._channel.recv(CHUNK)
            except BlockingIOError:
                return None
            except OSError:
                chunk = b""
            if not chunk:
                raise ImageGoneError("the image has ended")
            # Nearly always one read brings one frame, which then skips the buffer.
            if not self._buffer and int.from_bytes(chunk[:_HEADER_SIZE]) == len(chunk) - _HEADER_SIZE:
                return chunk[_HEADER_SIZE:]
            self._buffer += chunk
            frame = self._take_frame()
            seconds = max(0.0, deadline - monotonic())
        return frame

    def _be_patient(self, seconds: float) -> None:
        """Set SO_RCVTIMEO: the kernel waits, which saves the poll that a Python timeout makes."""
        exact = max(seconds, _SHORTEST)
        whole = int(exact)
        value = _WAITING_TIME.pack(whole, int((exact - whole) * 1e6))
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
        self._patience = seconds

    def _take_frame(self) -> bytes | None:
        buffer = self._buffer
        if len(buffer) < _HEADER_SIZE:
            return None
        size = _HEADER.unpack_from(buffer)[0]
        if size > LARGEST_FRAME:
            raise ImageProtocolError(f"the image announced a frame of {size:,} bytes")
        end = _HEADER_SIZE + size
        if len(buffer) < end:
            return None
        frame = bytes(buffer[_HEADER_SIZE:end])
        del buffer[:end]
        return frame

    def receive_reply(self, kind: type[T], seconds: float) -> T | None:
        """Return the reply to the last request, or None at the timeout; other replies are dropped.

        There is one request at a time, but a process that evaluated code has forked may reply too.
        """
        deadline = monotonic() + seconds
        while True:
            frame = self._receive_until(deadline, seconds)
            if frame is None:
                return None
            reply: Any = _decode(frame, kind)
            if (reply.get("id") if type(reply) is dict else reply.id) == self.last_id:
                return reply  # type: ignore[no-any-return]  # it was decoded as that kind
            seconds = max(0.0, deadline - monotonic())

    def request(self, reply: type[T], seconds: float, op: str, **fields: Any) -> T:
        """Send a request and return its reply; raise ImageGoneError at the timeout, as at a death."""
        self.send(op, **fields)
        answer = self.receive_reply(reply, seconds)
        if answer is None:
            raise ImageGoneError(f"the image did not answer {op} within {seconds:g} s")
        return answer

    def has_ended(self) -> bool:
        """Tell whether the other end has closed the socket (EOF), without waiting."""
        try:
            return not self._channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Close the socket; the process at the other end exits at EOF."""
        self._channel.close()
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {}


def _decode(frame: bytes, kind: type[T]) -> T:
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    try:
        return decoder.decode(frame)  # type: ignore[no-any-return]
    except msgspec.MsgspecError as error:
        raise ImageProtocolError(f"the image sent something that is not a {kind.__name__}: {error}") from None


as_json = msgspec.json.Encoder().encode


class _Keywords(dict[str, str]):
    """Lisp keywords by field name, each made once."""

    def __missing__(self, name: str) -> str:
        keyword = self[name] = f":{name.replace('_', '-')}"
        return keyword


_KEYWORDS = _Keywords()


def as_plist(request: dict[str, Any]) -> bytes:
    """Write a request as one property list, in standard syntax and without read-time evaluation."""
    if len(request) == _MEMBERS and "code" in request and request.get("then_fork") is not None:
        code, tag = request["code"], request["then_fork"]
        if '"' in code or "\\" in code:
            code = _escaped(code)
        return f'(:op "{request["op"]}" :code "{code}" :then-fork "{tag}" :id {request["id"]})'.encode()
    words = [f"{_KEYWORDS[name]} {_datum(value)}" for name, value in request.items() if value is not None]
    return f"({' '.join(words)})".encode()


# `id`, `op`, `code` and `then_fork`: an evaluation, as nearly all requests are. A template writes it in a
# third of the time.
_MEMBERS = 4


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _datum(value: Any) -> str:
    if value is None or value is False:
        return "NIL"
    if value is True:
        return "T"
    if isinstance(value, str):
        return f'"{_escaped(value)}"'
    if isinstance(value, list | tuple):
        return f"({' '.join(map(_datum, value))})"
    return repr(value)
