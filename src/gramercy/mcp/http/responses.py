"""Answers as ASGI messages: JSON, an empty body, a refusal, the beginning and the pieces of a stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, TypeAlias

from gramercy.errors import HttpError, ProtocolError
from gramercy.mcp.jsonrpc import Code, failure

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

Header: TypeAlias = tuple[bytes, bytes]

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
    # A 204 may not even say that its length is none.
    length = () if status == HTTPStatus.NO_CONTENT else ((b"content-length", b"0"),)
    headers = [*length, *extra]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def send_refusal(send: Send, refusal: HttpError, request_id: object = None) -> None:
    """Send what the transport itself answers."""
    await send_json(send, refusal.status, refusal_body(refusal, request_id), refusal.headers)


async def start_stream(send: Send) -> None:
    """Begin a response of events."""
    await send({"type": "http.response.start", "status": 200, "headers": EVENT_STREAM})


async def send_piece(send: Send, piece: bytes) -> None:
    """Send a piece of a stream."""
    await send({"type": "http.response.body", "body": piece, "more_body": True})


async def end_stream(send: Send) -> None:
    """End a response of events."""
    await send({"type": "http.response.body", "body": b""})


def with_headers(send: Send, extra: list[Header]) -> Send:
    """Return a sender that adds headers to the response."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *extra]
        await send(message)

    return sending


def refusal_body(refusal: HttpError, request_id: object = None) -> bytes:
    """Return the JSON-RPC error of a refusal; an id that is not known is left out, as the protocol wants."""
    named = request_id if type(request_id) is str or type(request_id) is int else None
    return failure(ProtocolError(refusal.code, refusal.reason, refusal.data), named)


def internal_error() -> HttpError:
    """Return the answer for a fault of our own, which tells nothing of it."""
    return HttpError(500, "Internal error", code=Code.INTERNAL_ERROR)
