"""The sessions of legacy clients: their owners, their streams, and when they end.

An idle session costs a few hundred bytes. It ends when its client says so, when it was idle for long, or when
there are too many sessions: then the least recently used one ends first.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING

from gramercy.errors import HttpError
from gramercy.mcp.http.streams import Stream, split_event_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.mcp.base import MessageReceiver, Peer
    from gramercy.mcp.http.settings import HttpSettings
    from gramercy.mcp.http.streams import Ground

# The revision that begins streams with an empty event; older clients would take it for a broken message.
PRIMING = "2025-11-25"
# Requests of one client that can be resumed at a time; the oldest one without a connection is dropped.
MOST_STREAMS = 64
STANDALONE = 0


class HttpSession:
    """One client between its handshake and its end."""

    __slots__ = ("_count", "_streams", "busy", "peer", "used")

    def __init__(self, peer: Peer, now: float) -> None:
        self.peer = peer
        self.used = now
        # Pending requests and connections.
        self.busy = 0
        self._count = 0
        self._streams: dict[int, Stream] | None = None

    def begin_stream(self, ground: Ground) -> Stream:
        """Make the stream of one request; it is kept only if it turns out to be needed."""
        self._count += 1
        return Stream(ground, self._count, primes=(self.peer.version or "") >= PRIMING)

    def keep(self, stream: Stream) -> None:
        """Remember a stream, so that it can be resumed."""
        if self._streams is None:
            self._streams = {}
        if len(self._streams) >= MOST_STREAMS:
            self._forget_oldest()
        self._streams[stream.number or STANDALONE] = stream

    def listen(self, ground: Ground) -> Stream:
        """Return the stream for messages that belong to no request."""
        stream = None if self._streams is None else self._streams.get(STANDALONE)
        if stream is None:
            stream = Stream(ground, STANDALONE, primes=(self.peer.version or "") >= PRIMING)
            self.keep(stream)
            self.peer.channel = stream
        return stream

    def resume(self, event_id: bytes) -> tuple[Stream, int]:
        """Return the stream of an event and the event's place, or raise HttpError (400)."""
        found = split_event_id(event_id)
        stream = None if found is None or self._streams is None else self._streams.get(found[0])
        if found is None or stream is None or not stream.holds(found[1]):
            raise HttpError(
                400,
                "nothing can be resumed after this Last-Event-ID: its stream is unknown or too old. Repeat "
                "the request, or listen without the header",
            )
        return stream, found[1]

    def sweep(self, before: float) -> None:
        """Drop the streams that were not resumed in time."""
        for number, stream in list((self._streams or {}).items()):
            if stream.detached_at is not None and stream.detached_at <= before:
                self._drop(number)
        if self._streams == {}:
            self._streams = None

    def end(self) -> None:
        """Cancel and end all streams."""
        for number in list(self._streams or ()):
            self._drop(number)
        self._streams = None

    def _drop(self, number: int) -> None:
        if self._streams is not None:
            stream = self._streams.pop(number)
            stream.abandon()
            if self.peer.channel is stream:
                self.peer.channel = None

    def _forget_oldest(self) -> None:
        waiting = [
            number for number, stream in (self._streams or {}).items() if stream.detached_at is not None
        ]
        self._drop(waiting[0] if waiting else next(iter(self._streams or ())))


class Sessions:
    """All sessions, the least recently used first."""

    def __init__(self, engine: MessageReceiver, settings: HttpSettings, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._settings = settings
        self._clock = clock
        self._sessions: OrderedDict[str, HttpSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, peer: Peer) -> str:
        """Begin a session for a client after its handshake; return its unguessable id."""
        while len(self._sessions) >= self._settings.sessions:
            self._end(next(iter(self._sessions)))
        name = secrets.token_urlsafe(24)
        self._sessions[name] = HttpSession(peer, self._clock())
        return name

    def find(self, name: bytes | None, principal: str) -> HttpSession:
        """Return the caller's session, or raise HttpError: 400 without an id, 404 for an unknown id."""
        if name is None:
            raise HttpError(400, "the header Mcp-Session-Id is missing: initialize first, then send it")
        key = name.decode("latin-1")
        session = self._sessions.get(key)
        # The session of another caller gets the same answer as one that never existed.
        if session is None or session.peer.principal != principal:
            raise HttpError(404, "Session not found: it has ended or never was. Initialize a new one")
        session.used = self._clock()
        self._sessions.move_to_end(key)
        return session

    def close(self, name: bytes | None, principal: str) -> None:
        """End the caller's session, or raise HttpError as `find` does."""
        self.find(name, principal)
        self._end((name or b"").decode("latin-1"))

    def sweep(self) -> None:
        """End idle sessions, and streams that were not resumed in time."""
        now = self._clock()
        idle_since = now - self._settings.session_seconds
        for name, session in list(self._sessions.items()):
            session.sweep(now - self._settings.resume_seconds)
            if session.busy:
                session.used = now
            elif session.used <= idle_since:
                self._end(name)

    def close_all(self) -> None:
        """End everything."""
        for name in list(self._sessions):
            self._end(name)

    def _end(self, name: str) -> None:
        session = self._sessions.pop(name)
        session.end()
        self._engine.close(session.peer)
