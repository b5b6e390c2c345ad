"""A service on a loopback port that answers questions with prepared bytes, and keeps what it was asked."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Reply:
    """One answer: pieces of the body. Without `is_whole` the connection is cut at its end.

    With `is_silent` nothing comes at all, with `hang` nothing more after the pieces.
    """

    pieces: list[bytes] = field(default_factory=list)
    status: int = 200
    kind: str = "text/event-stream"
    headers: dict[str, str] = field(default_factory=dict)
    is_whole: bool = True
    is_silent: bool = False
    hang: bool = False


def stream(*events: Any, done: str | None = None, **options: Any) -> Reply:
    """Return an answer of events; those that are bytes go as they are."""
    pieces = [
        each if isinstance(each, bytes) else b"data: " + json.dumps(each).encode() + b"\n\n"
        for each in events
    ]
    return Reply([*pieces, f"data: {done}\n\n".encode()] if done else pieces, **options)


def refusal(status: int, body: Any, **headers: str) -> Reply:
    """Return an error of a service."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply([json.dumps(body).encode()], status, "application/json", named)


@dataclass
class Asked:
    """A question as the service has seen it."""

    path: str
    headers: dict[str, str]
    body: Any


class Service:
    """Gives its replies in order, the last one again and again; it has a thread and an event loop of its own.

    A reply may also be a function of the question. `left` is set when a client goes away in mid-answer.
    """

    def __init__(self, *replies: Reply | Callable[[Asked], Reply]) -> None:
        self.replies = list(replies)
        self.asked: list[Asked] = []
        self.connections = 0
        self.left = threading.Event()
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._held = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(self._served(), self._loop).result(60)
        self.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._ended(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    async def _served(self) -> asyncio.Server:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        return self._server

    async def _ended(self) -> None:
        self._held.set()
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.asked.append(Asked(first.split()[1], headers, json.loads(body) if body else None))
        given = self.replies[min(len(self.asked), len(self.replies)) - 1]
        reply = given if isinstance(given, Reply) else given(self.asked[-1])
        if reply.is_silent:
            await self._hold(reader)
        named = {"content-type": reply.kind, "transfer-encoding": "chunked", **reply.headers}
        told = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        writer.write(f"HTTP/1.1 {reply.status} Because\r\n{told}\r\n".encode())
        await writer.drain()
        for piece in reply.pieces:
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
        if reply.hang:
            await self._hold(reader)
        if reply.is_whole:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        return reply.is_whole

    async def _hold(self, reader: asyncio.StreamReader) -> None:
        """Say nothing more until the end, and notice a client that goes away."""
        gone = asyncio.ensure_future(reader.read(1))
        gone.add_done_callback(lambda _: self.left.set())
        await self._held.wait()
