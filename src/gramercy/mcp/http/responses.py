"""Answers as ASGI messages: JSON, nothing, a refusal, the beginning and the pieces of a stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeAlias

from gramercy.mcp.http import sse

if TYPE_CHECKING:
    from gramercy.mcp.http.refusals import Header, RefusedError

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

JSON = (b"content-type", b"application/json")


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


async def send_refusal(send: Send, refusal: RefusedError, request_id: object = None) -> None:
    """Send what the transport itself answers."""
    await send_json(send, refusal.status, refusal.body(request_id), refusal.headers)


async def start_stream(send: Send) -> None:
    """Begin a response of events."""
    await send({"type": "http.response.start", "status": 200, "headers": sse.HEADERS})


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
