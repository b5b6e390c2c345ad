"""The transport as an ASGI application: which requests it lets in, how many, and which part answers.

Runs in any ASGI server; what only the server can bound (slow senders and readers) is in connections.py.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from http import HTTPStatus
from typing import TYPE_CHECKING

from gramercy.errors import HttpError
from gramercy.mcp.http.auth import Origins, Refusal
from gramercy.mcp.http.headers import (
    RepeatedArguments,
    check_accept,
    check_content,
    check_legacy_version,
    collect,
    is_modern,
)
from gramercy.mcp.http.posts import Posts
from gramercy.mcp.http.requests import Exchange
from gramercy.mcp.http.responses import internal_error, send_empty, send_json, send_refusal, with_headers
from gramercy.mcp.http.sessions import Sessions
from gramercy.mcp.http.streams import Delivery, Ground
from gramercy.mcp.jsonrpc import Code

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.mcp.base import MessageReceiver
    from gramercy.mcp.http.headers import SchemaSource
    from gramercy.mcp.http.responses import Receive, Scope, Send
    from gramercy.mcp.http.settings import HttpSettings

METHODS = (b"allow", b"POST, GET, DELETE, OPTIONS")
# Callers whose rate is counted; one that was dropped starts anew with a full bucket. About 500 kB.
REMEMBERED_CALLERS = 4096


class HttpApp:
    """The MCP endpoint. `schema_of` tells a tool's input schema, for arguments repeated in headers."""

    def __init__(
        self, engine: MessageReceiver, settings: HttpSettings, *, schema_of: SchemaSource | None = None
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._gate = settings.gate
        self._origins = Origins(settings)
        self._repeated = RepeatedArguments(schema_of)
        self._load = Load(settings.concurrency, settings.total_concurrency)
        self._documents = settings.gate.documents
        self._parts: _Parts | None = None
        self._is_closed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or take part in the start and the end of the server."""
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1003})

    @property
    def session_count(self) -> int:
        """How many sessions there are."""
        return 0 if self._parts is None else len(self._parts.sessions)

    def close(self) -> None:
        """End all sessions and streams, cancel what is running, and refuse what still comes."""
        self._is_closed = True
        if self._parts is not None:
            self._parts.close()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange: Exchange | None = None
        try:
            headers = collect(scope["headers"])
            self._origins.check(headers)
            readable = self._origins.readable_by(headers.get(b"origin"))
            send = with_headers(send, readable) if readable else send
            if scope["path"] != self._settings.path or scope["method"] == "OPTIONS":
                await self._serve_elsewhere(scope, headers, send)
                return
            exchange = await self._admit(headers, receive, send)
            await self._count(scope["method"], exchange)
        except HttpError as refusal:
            await send_refusal(send, refusal, None if exchange is None else exchange.request_id)
        except Exception:  # noqa: BLE001 - one of the doors: whatever happens inside is an answer without details
            await send_refusal(send, internal_error(), None if exchange is None else exchange.request_id)

    async def _admit(self, headers: dict[bytes, bytes], receive: Receive, send: Send) -> Exchange:
        caller = await self._gate.admit(headers.get(b"authorization"))
        if isinstance(caller, Refusal):
            challenge = (b"www-authenticate", caller.challenge.encode("latin-1", "replace"))
            raise HttpError(caller.status, caller.reason, code=Code.DENIED, headers=(challenge,))
        if self._is_closed:
            raise HttpError(503, "the server is being stopped", code=Code.BUSY)
        return Exchange(headers, receive, send, caller)

    async def _count(self, method: str, exchange: Exchange) -> None:
        principal = exchange.caller.principal
        parts = self._parts or self._start()
        parts.rate.take(principal)
        self._load.enter(principal)
        try:
            await self._route(method, exchange, parts)
        finally:
            self._load.leave(principal)

    async def _route(self, method: str, exchange: Exchange, parts: _Parts) -> None:
        if method == "POST":
            check_content(exchange.headers)
            check_accept(exchange.headers)
            if await exchange.read_body(self._settings.body_limit):
                await parts.posts.answer(exchange)
        elif method not in {"GET", "DELETE"} or _is_modern(exchange):
            allow = (b"allow", b"POST") if _is_modern(exchange) else METHODS
            raise HttpError(405, f"{method:.20} is not part of this protocol here", headers=(allow,))
        elif method == "GET":
            await self._listen(exchange, parts)
        else:
            parts.sessions.close(exchange.headers.get(b"mcp-session-id"), exchange.caller.principal)
            await send_empty(exchange.send, HTTPStatus.NO_CONTENT)

    async def _listen(self, exchange: Exchange, parts: _Parts) -> None:
        check_accept(exchange.headers, stream_only=True)
        check_legacy_version(exchange.headers)
        session = parts.sessions.find(exchange.headers.get(b"mcp-session-id"), exchange.caller.principal)
        last = exchange.headers.get(b"last-event-id")
        if last is None:
            stream = session.listen(parts.ground)
            cursor = stream.delivered
            stream.prime()
        else:
            stream, cursor = session.resume(last)
        delivery = Delivery(stream, exchange.receive, parts.posts.deliveries)
        session.busy += 1
        try:
            await delivery.pump(exchange.send, cursor, self._settings.keepalive_seconds)
        finally:
            session.busy -= 1
            delivery.end()

    async def _serve_elsewhere(self, scope: Scope, headers: dict[bytes, bytes], send: Send) -> None:
        document = self._documents.get(scope["path"])
        if scope["method"] == "OPTIONS":
            await send_empty(
                send, HTTPStatus.NO_CONTENT, tuple(self._origins.preflight(headers.get(b"origin")))
            )
        elif document is not None and scope["method"] == "GET":
            await send_json(send, 200, document)
        else:
            raise HttpError(404, f"nothing is here: the endpoint is {self._settings.path}")

    def _start(self) -> _Parts:
        self._parts = _Parts(self._engine, self._settings, self._repeated)
        return self._parts

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self.close()
        await send({"type": "lifespan.shutdown.complete"})


class _Parts:
    """What needs a running event loop, made with the first request."""

    def __init__(self, engine: MessageReceiver, settings: HttpSettings, repeated: RepeatedArguments) -> None:
        loop = asyncio.get_running_loop()
        self.ground = Ground(settings)
        self.sessions = Sessions(engine, settings, loop.time)
        self.rate = Rate(settings.rate or 0.0, settings.burst, loop.time)
        self.posts = Posts(engine, settings, self.sessions, repeated, self.ground)
        self._pause = min(5.0, max(0.02, min(settings.session_seconds, settings.resume_seconds) / 4))
        self._timer = loop.call_later(self._pause, self._sweep)

    def close(self) -> None:
        """End everything."""
        self._timer.cancel()
        self.sessions.close_all()
        for delivery in list(self.posts.deliveries):
            delivery.stop()

    def _sweep(self) -> None:
        self.sessions.sweep()
        self._timer = self.ground.loop.call_later(self._pause, self._sweep)


def _is_modern(exchange: Exchange) -> bool:
    return is_modern(exchange.headers, None)


class Rate:
    """A bucket of requests per principal, refilled at a steady rate."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, principal: str) -> None:
        """Count one request; raise HttpError (429) with the time to wait when there were too many."""
        if self._per_second <= 0:
            return
        now = self._clock()
        left, since = self._buckets.get(principal, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._per_second)
        if left < 1.0:
            wait = max(1, round((1.0 - left) / self._per_second + 0.5))
            raise HttpError(
                429,
                f"more than {self._per_second:g} requests per second: wait {wait} s and go slower",
                code=Code.BUSY,
                headers=((b"retry-after", str(wait).encode()),),
            )
        self._buckets[principal] = (left - 1.0, now)
        self._buckets.move_to_end(principal)
        if len(self._buckets) > REMEMBERED_CALLERS:
            self._buckets.popitem(last=False)


class Load:
    """How many requests are being answered, of one principal and of all."""

    def __init__(self, each: int, total: int) -> None:
        self._each = each
        self._total = total
        self._running: dict[str, int] = {}
        self.count = 0

    def enter(self, principal: str) -> None:
        """Count a request that begins; raise HttpError when too many are running (429, 503 for all)."""
        mine = self._running.get(principal, 0)
        if mine >= self._each:
            raise _refusal(429, f"{mine} requests of yours are running")
        if self.count >= self._total:
            raise _refusal(503, f"the server is answering {self.count} requests")
        self._running[principal] = mine + 1
        self.count += 1

    def leave(self, principal: str) -> None:
        """Count a request that ended."""
        self.count -= 1
        mine = self._running[principal] - 1
        if mine:
            self._running[principal] = mine
        else:
            del self._running[principal]


def _refusal(status: int, reason: str) -> HttpError:
    return HttpError(
        status,
        f"{reason}, which is the limit: wait for one to end, or end a stream",
        code=Code.BUSY,
        headers=((b"retry-after", b"1"),),
    )
