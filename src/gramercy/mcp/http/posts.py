"""What is posted: one message in, its answer out, as JSON when it stands alone and as a stream when not.

A modern request has a fresh peer and is cancelled when the client goes; a legacy one has a session, and a
stream to come back to.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from gramercy.errors import HttpError
from gramercy.mcp.base import Peer
from gramercy.mcp.http.headers import (
    check_legacy_version,
    check_modern,
    is_modern,
    require_single,
)
from gramercy.mcp.http.requests import Envelope, lacks_metadata
from gramercy.mcp.http.responses import (
    end_stream,
    internal_error,
    refusal_body,
    send_empty,
    send_json,
    start_stream,
)
from gramercy.mcp.http.streams import Delivery, Stream
from gramercy.mcp.jsonrpc import Code, error_code
from gramercy.mcp.versions import MODERN

if TYPE_CHECKING:
    from gramercy.mcp.base import Answer, MessageReceiver
    from gramercy.mcp.http.headers import RepeatedArguments
    from gramercy.mcp.http.requests import Exchange
    from gramercy.mcp.http.sessions import HttpSession, Sessions
    from gramercy.mcp.http.settings import HttpSettings
    from gramercy.mcp.http.streams import Ground

log = logging.getLogger("gramercy.mcp")
# Modern clients are told some errors by the status too; legacy ones only what is no message at all. A client
# of both kinds takes other errors with such a status for a server that is not modern.
MODERN_STATUS: dict[int, int] = {
    Code.PARSE_ERROR: 400,
    Code.INVALID_REQUEST: 400,
    Code.METHOD_NOT_FOUND: 404,
    Code.HEADER_MISMATCH: 400,
    Code.MISSING_CAPABILITY: 400,
    Code.UNSUPPORTED_VERSION: 400,
}
LEGACY_STATUS: dict[int, int] = {Code.PARSE_ERROR: 400, Code.INVALID_REQUEST: 400}
# All of it is kept as long as the session.
LONGEST_HANDSHAKE = 64 << 10


class Posts:
    """Hands messages to the engine and brings back what it says."""

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
            body = answer or refusal_body(internal_error(), exchange.request_id)
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
        finally:
            delivery.end()
            if not is_kept:
                stream.abandon()


def _lost(exchange: Exchange, error: BaseException) -> bytes:
    """Answer a request whose answer failed."""
    log.error("the answer to request %r was lost", exchange.request_id, exc_info=error)
    return refusal_body(internal_error(), exchange.request_id)


async def _send_whole(exchange: Exchange, stream: Stream, session: HttpSession | None) -> None:
    if stream.answer is None:
        # A request that was cancelled has no answer, yet its response has to be one of the two kinds.
        await start_stream(exchange.send)
        await end_stream(exchange.send)
    else:
        await send_json(exchange.send, _status(stream.answer, session), stream.answer)


def _status(answer: bytes, session: HttpSession | None) -> int:
    code = error_code(answer)
    if code is None:
        return 200
    if code == Code.INVALID_PARAMS and session is None and lacks_metadata(answer):
        return 400
    return (MODERN_STATUS if session is None else LEGACY_STATUS).get(code, 200)
