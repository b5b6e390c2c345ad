"""The transport as an ASGI application: which requests it admits, how many, and how it answers each.

A posted message is answered with JSON if the answer is a single message, else with a stream. A modern request
has a peer of its own and is cancelled when its client disconnects; a legacy one has a session, and a stream
that can be resumed. Limits that only the server can enforce are in connections.py.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING

from gramercy.errors import HttpError
from gramercy.mcp.base import Peer
from gramercy.mcp.http.auth import Origins, Refusal
from gramercy.mcp.http.exchange import (
    ADMITTED,
    Envelope,
    Exchange,
    end_stream,
    lacks_metadata,
    logged,
    refusal_body,
    send_empty,
    send_json,
    send_refusal,
    start_stream,
    with_headers,
)
from gramercy.mcp.http.headers import (
    RepeatedArguments,
    check_accept,
    check_content,
    check_legacy_version,
    check_modern,
    collect,
    is_modern,
    require_single,
)
from gramercy.mcp.http.sessions import Sessions
from gramercy.mcp.http.settings import Load, Rate
from gramercy.mcp.http.streams import Delivery, Ground, Stream
from gramercy.mcp.jsonrpc import MODERN, Code, error_code

if TYPE_CHECKING:
    from gramercy.mcp.base import Answer, MessageReceiver
    from gramercy.mcp.http.exchange import Receive, Scope, Send
    from gramercy.mcp.http.headers import SchemaSource
    from gramercy.mcp.http.sessions import HttpSession
    from gramercy.mcp.http.settings import HttpSettings

METHODS = (b"allow", b"POST, GET, DELETE, OPTIONS")
# Modern clients are told some errors by the status too; legacy clients only if the body is not a message. A
# client that speaks both takes other errors with such a status for a server that is not modern.
MODERN_STATUS: dict[int, int] = {
    Code.PARSE_ERROR: 400,
    Code.INVALID_REQUEST: 400,
    Code.METHOD_NOT_FOUND: 404,
    Code.HEADER_MISMATCH: 400,
    Code.MISSING_CAPABILITY: 400,
    Code.UNSUPPORTED_VERSION: 400,
}
LEGACY_STATUS: dict[int, int] = {Code.PARSE_ERROR: 400, Code.INVALID_REQUEST: 400}
# Kept as long as the session; a client's description of itself has some hundred bytes.
LONGEST_HANDSHAKE = 64 << 10


class HttpApp:
    """The MCP endpoint. `schema_of` returns a tool's input schema, for arguments repeated in headers."""

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
        """Answer one request, or handle the start and the end of the server."""
        if scope["type"] == "http":
            try:
                await self._serve(scope, receive, send)
            except Exception as error:  # noqa: BLE001 - the server below would swallow it
                logged("an answer over HTTP", error)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1003})

    @property
    def session_count(self) -> int:
        """How many sessions there are."""
        return 0 if self._parts is None else len(self._parts.sessions)

    def close(self) -> None:
        """End all sessions and streams, cancel running requests, and refuse new ones."""
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
            state = scope.get("state")
            if state and ADMITTED in state:
                state[ADMITTED]()
            await self._count(scope["method"], exchange)
        except HttpError as refusal:
            await send_refusal(send, refusal, None if exchange is None else exchange.request_id)
        except Exception as error:  # noqa: BLE001 - one of the doors
            # A fault of ours is answered without details, and logged without the body.
            fault = logged(f"the HTTP request {scope['method']!a:.20} {scope['path']!a:.100}", error)
            await send_refusal(send, fault, None if exchange is None else exchange.request_id)

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
    """The parts that need a running event loop, made with the first request."""

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


class Posts:
    """Passes messages to the engine and returns its answers."""

    def __init__(
        self,
        engine: MessageReceiver,
        settings: HttpSettings,
        sessions: Sessions,
        repeated: RepeatedArguments,
        ground: Ground,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._sessions = sessions
        self._repeated = repeated
        self._ground = ground
        self.deliveries: set[Delivery] = set()

    async def answer(self, exchange: Exchange) -> None:
        """Answer one message."""
        envelope = exchange.envelope
        single = envelope if isinstance(envelope, Envelope) else None
        if envelope is None:
            await self._answer_alone(exchange)
        elif is_modern(exchange.headers, single):
            require_single(envelope)
            if single is not None:
                self._check_modern(exchange, single)
            await self._answer_alone(exchange)
        else:
            await self._answer_in_session(exchange, single)

    def _check_modern(self, exchange: Exchange, envelope: Envelope) -> None:
        if envelope.is_request:
            check_modern(exchange.headers, envelope)
            if envelope.method == "tools/call" and envelope.params is not None:
                self._repeated.check(envelope.params, exchange.headers)
        elif envelope.method is None:
            raise HttpError(400, "clients send requests and notifications in this revision, no responses")

    async def _answer_alone(self, exchange: Exchange) -> None:
        caller = exchange.caller
        version = MODERN if is_modern(exchange.headers, None) else None
        peer = Peer(principal=caller.principal, ceiling=caller.ceiling, version=version)
        stream = Stream(self._ground)
        is_quick = False
        try:
            answer = self._engine.take(peer, exchange.received, stream)
            is_quick = isinstance(answer, bytes) or answer is None
            await self._deliver(exchange, answer, stream, None)
        finally:
            if not is_quick or peer.on_close:
                self._engine.close(peer)

    async def _answer_in_session(self, exchange: Exchange, envelope: Envelope | None) -> None:
        check_legacy_version(exchange.headers)
        name = exchange.headers.get(b"mcp-session-id")
        if name is None and envelope is not None and envelope.is_request and envelope.method == "initialize":
            await self._open_session(exchange)
            return
        session = self._sessions.find(name, exchange.caller.principal)
        # The newest token decides what the client may do from now on.
        session.peer.ceiling = exchange.caller.ceiling
        stream = session.begin_stream(self._ground)
        session.busy += 1
        try:
            answer = self._engine.take(session.peer, exchange.received, stream)
            await self._deliver(exchange, answer, stream, session)
        finally:
            session.busy -= 1

    async def _open_session(self, exchange: Exchange) -> None:
        if exchange.size > LONGEST_HANDSHAKE:
            raise HttpError(413, f"this initialize is too long: at most {LONGEST_HANDSHAKE} bytes are read")
        peer = Peer(principal=exchange.caller.principal, ceiling=exchange.caller.ceiling)
        answer = self._engine.take(peer, exchange.received)
        if answer is not None and not isinstance(answer, bytes):
            answer = await answer
        if answer is None or peer.version is None:
            self._engine.close(peer)
            body = answer or refusal_body(logged("initialize", None), exchange.request_id)
            await send_json(exchange.send, 400 if error_code(body) == Code.INVALID_REQUEST else 200, body)
            return
        name = self._sessions.open(peer)
        await send_json(exchange.send, 200, answer, ((b"mcp-session-id", name.encode()),))

    async def _deliver(
        self, exchange: Exchange, answer: Answer, stream: Stream, session: HttpSession | None
    ) -> None:
        if isinstance(answer, bytes):
            if not stream.place:
                await send_json(exchange.send, _status(answer, session), answer)
                return
            stream.finish(answer)
        elif answer is None:
            await send_empty(exchange.send, 202)
            return
        else:
            stream.run(asyncio.ensure_future(answer), lambda error: _lost(exchange, error))
        await self._deliver_later(exchange, stream, session)

    async def _deliver_later(self, exchange: Exchange, stream: Stream, session: HttpSession | None) -> None:
        delivery = Delivery(stream, exchange.receive, self.deliveries)
        is_kept = False
        try:
            await delivery.wait(self._settings.commit_seconds)
            if stream.is_finished and not stream.place:
                await _send_whole(exchange, stream, session)
            elif not delivery.is_gone:
                stream.prime()
                if session is not None:
                    session.keep(stream)
                    is_kept = True
                await delivery.pump(exchange.send, 0, self._settings.keepalive_seconds)
            else:
                # Either the client has gone and does not get this, or the server is ending.
                raise HttpError(503, "the server is being stopped", code=Code.BUSY)
        finally:
            delivery.end()
            if not is_kept:
                stream.abandon()


def _lost(exchange: Exchange, error: BaseException) -> bytes:
    """Answer a request whose answer failed."""
    return refusal_body(logged("the answer to a request", error), exchange.request_id)


async def _send_whole(exchange: Exchange, stream: Stream, session: HttpSession | None) -> None:
    if stream.answer is None:
        # A cancelled request has no answer, yet its response must be JSON or a stream.
        await start_stream(exchange.send)
        await end_stream(exchange.send)
    else:
        await send_json(exchange.send, _status(stream.answer, session), stream.answer)
        stream.sent()


def _status(answer: bytes, session: HttpSession | None) -> int:
    code = error_code(answer)
    if code is None:
        return 200
    if code == Code.INVALID_PARAMS and session is None and lacks_metadata(answer):
        return 400
    return (MODERN_STATUS if session is None else LEGACY_STATUS).get(code, 200)
