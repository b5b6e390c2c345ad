"""One HTTP request within the transport, and its answer as ASGI messages.

Only the method, subject and revision of a body are read here. Its meaning is the engine's business, and a
body that is not even JSON is passed to the engine unparsed.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from secrets import token_hex
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import UNSET

from gramercy.errors import HttpError, InvalidFrameError, ProtocolError
from gramercy.mcp.jsonrpc import VERSION_KEY, Code, Message, Params, Received, failure, read_frame

if TYPE_CHECKING:
    from gramercy.mcp.http.auth import Caller

Scope: TypeAlias = MutableMapping[str, Any]
# A message of ASGI, not of JSON-RPC.
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]

log = logging.getLogger("gramercy.mcp")
# The frames of a fault in the log: its place and its callers.
MOST_FRAMES = 3
# The key of a scope with the function to call when the caller is admitted.
ADMITTED = "gramercy.admitted"
# Digits of a Content-Length: a 64-bit number has no more, and int() of a long text is slow.
LONGEST_NUMBER = 18


@dataclass(slots=True, eq=False)
class Exchange:
    """A request with its caller; the received message, its size and its envelope come with the body."""

    headers: dict[bytes, bytes]
    receive: Receive
    send: Send
    caller: Caller
    size: int = 0
    received: Received = field(default_factory=list)
    envelope: Envelope | list[Envelope] | None = None

    @property
    def request_id(self) -> object:
        """The id of the answer; None if it is unknown or the message is not a request."""
        envelope = self.envelope
        if envelope is None or isinstance(envelope, list) or not envelope.is_request:
            return None
        return envelope.id

    async def read_body(self, limit: int) -> bool:
        """Read the body; False if the client disconnected. A body that is too long is refused (413)."""
        self._check_length(limit)
        message = await self.receive()
        body: bytes = message.get("body", b"")
        if message["type"] == "http.request" and not message.get("more_body"):
            if len(body) > limit:
                raise _too_long(limit)
            self._read(bytes(body))
            return True
        return message["type"] == "http.request" and await self._read_pieces(body, limit)

    async def _read_pieces(self, first: bytes, limit: int) -> bool:
        pieces = bytearray(first)
        while len(pieces) <= limit:
            message = await self.receive()
            if message["type"] != "http.request":
                return False
            pieces += message.get("body", b"")
            if not message.get("more_body"):
                break
        if len(pieces) > limit:
            raise _too_long(limit)
        self._read(bytes(pieces))
        return True

    def _read(self, frame: bytes) -> None:
        self.size = len(frame)
        self.received = read_frame(frame)
        self.envelope = envelope_of(self.received)

    def _check_length(self, limit: int) -> None:
        length = self.headers.get(b"content-length", b"0")
        if not length.isdigit():
            raise HttpError(400, f"Content-Length is {length.decode('latin-1')!r:.40}: expected a number")
        if len(length) > LONGEST_NUMBER or int(length) > limit:
            raise _too_long(limit)


def _too_long(limit: int) -> HttpError:
    return HttpError(413, f"the body is too long: at most {limit} bytes are read")


class Envelope(msgspec.Struct):
    """A message without its contents: of the parameters only the revision and those that headers repeat."""

    method: Any = None
    id: Any = UNSET
    params: Params | None = None

    @property
    def is_request(self) -> bool:
        """Whether an answer is expected."""
        return self.method is not None and self.id is not UNSET

    @property
    def version(self) -> Any:
        """The revision that the message itself declares; None if it does not."""
        meta = None if self.params is None else self.params.get("_meta")
        return meta.get(VERSION_KEY) if isinstance(meta, dict) else None


def envelope_of(received: Received) -> Envelope | list[Envelope] | None:
    """Return the envelope of a message, a list of them for a batch, or None if it is not even JSON."""
    if type(received) is Message:
        method = None if received.method is UNSET else received.method
        return Envelope(method, received.id, None if received.params is UNSET else received.params)
    found = received.found if isinstance(received, InvalidFrameError) else received
    if isinstance(found, list):
        return [Envelope()]
    if not isinstance(found, dict):
        return None
    # JSON of a wrong shape, as in "params": 3: still return its revision and id, if it has them.
    params = found.get("params")
    return Envelope(found.get("method"), found.get("id", UNSET), params if isinstance(params, dict) else None)


class _Details(msgspec.Struct):
    missing: Any = None


class _Error(msgspec.Struct):
    data: _Details | None = None


class _Failure(msgspec.Struct):
    error: _Error | None = None


_failures = msgspec.json.Decoder(_Failure)


def lacks_metadata(answer: bytes) -> bool:
    """Tell whether an error is about the metadata that every modern request must declare."""
    try:
        error = _failures.decode(answer).error
    except msgspec.DecodeError:
        return False
    return error is not None and error.data is not None and error.data.missing is not None


JSON = (b"content-type", b"application/json")
EVENT_STREAM = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


async def send_json(send: Send, status: int, body: bytes, extra: tuple[Header, ...] = ()) -> None:
    """Send a whole JSON answer."""
    headers = [JSON, (b"content-length", b"%d" % len(body)), *extra]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_empty(send: Send, status: int, extra: tuple[Header, ...] = ()) -> None:
    """Send a status without a body."""
    # A 204 must not even have a Content-Length of 0.
    length = () if status == HTTPStatus.NO_CONTENT else ((b"content-length", b"0"),)
    headers = [*length, *extra]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def send_refusal(send: Send, refusal: HttpError, request_id: object = None) -> None:
    """Send an answer of the transport itself."""
    await send_json(send, refusal.status, refusal_body(refusal, request_id), refusal.headers)


async def start_stream(send: Send) -> None:
    """Begin an event stream."""
    await send({"type": "http.response.start", "status": 200, "headers": EVENT_STREAM})


async def send_piece(send: Send, piece: bytes) -> None:
    """Send a piece of a stream."""
    await send({"type": "http.response.body", "body": piece, "more_body": True})


async def end_stream(send: Send) -> None:
    """End an event stream."""
    await send({"type": "http.response.body", "body": b""})


def with_headers(send: Send, extra: list[Header]) -> Send:
    """Return a sender that adds headers to the response."""

    async def sending(message: Event) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *extra]
        await send(message)

    return sending


def refusal_body(refusal: HttpError, request_id: object = None) -> bytes:
    """Return the JSON-RPC error of a refusal; an unknown id is left out, as the protocol wants."""
    named = request_id if type(request_id) is str or type(request_id) is int else None
    return failure(ProtocolError(refusal.code, refusal.reason, refusal.data), named)


def internal_error(reference: str) -> HttpError:
    """Return the answer for a fault of our own, which tells only its reference in the log."""
    text = f"Internal error: the log of the server has it under {reference}"
    return HttpError(500, text, code=Code.INTERNAL_ERROR)


def logged(what: str, error: BaseException | None) -> HttpError:
    """Log a fault of our own on one line, without the request's contents; return the answer for it."""
    reference = token_hex(4)
    frames = [] if error is None else extract_tb(error.__traceback__)[-MOST_FRAMES:]
    places = (f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in frames)
    where = "; ".join(places) or "no answer"
    log.error("%s failed, reference %s: %s at %s", what, reference, type(error).__name__, where)
    return internal_error(reference)
