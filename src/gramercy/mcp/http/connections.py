"""Limits that only the HTTP server can enforce: connections, endless heads, late requests, stalled readers.

The only module that knows uvicorn and its internals; imported when a server is made.
"""

from __future__ import annotations

import asyncio
import resource
from typing import TYPE_CHECKING, Any, ClassVar

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gramercy.mcp.http.exchange import ADMITTED
from gramercy.mcp.http.settings import is_loopback

if TYPE_CHECKING:
    import socket

    from gramercy.mcp.http.app import HttpApp
    from gramercy.mcp.http.settings import HttpSettings

# The head is bounded, as nginx (4 x 8 KiB) and Apache (100 x 8 KiB) do: httptools has no limit of its own.
LONGEST_HEAD = 64 << 10
# Longer than the pause between two calls of a model, so that a client needs only one connection.
IDLE_CONNECTION_SECONDS = 60
# uvicorn ticks ten times a second.
TICKS_PER_CHECK = 10
# Descriptors left for the rest of the server: an image takes some ten, each file one.
RESERVE = 256


def room_for(connections: int) -> int:
    """Return the maximum number of connections, so that descriptors are left for the work."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return connections
    return max(1, min(connections, limit - min(RESERVE, limit // 2)))


class Strangers:
    """Connections without an admitted caller yet. If there are too many, the oldest is closed.

    A caller with a token is admitted within milliseconds, so silent connections that come in numbers only
    displace each other. Programs on this machine share one address; every other address has its own limit.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._most_of_one = max(16, most // 8)
        self._found: dict[BoundedConnection, str] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, connection: BoundedConnection) -> None:
        """Count a new connection."""
        address = connection.client[0] if connection.client else ""
        self._found[connection] = address
        if len(self._found) > self._most:
            self._drop(next(iter(self._found)))
        elif not is_loopback(address):
            same = [other for other, of in self._found.items() if of == address]
            if len(same) > self._most_of_one:
                self._drop(same[0])

    def remove(self, connection: BoundedConnection) -> None:
        """Stop counting a connection: its caller was admitted, or it is closed."""
        self._found.pop(connection, None)

    def _drop(self, connection: BoundedConnection) -> None:
        self.remove(connection)
        connection.transport.abort()


class BoundedConnection(HttpToolsProtocol):
    """An HTTP connection with limits; `check` is called about once a second."""

    settings: ClassVar[HttpSettings]
    strangers: ClassVar[Strangers]
    most: ClassVar[int]

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._is_admitted = False
        # When the incomplete request began, and the size of its head so far.
        self._awaited_since: float | None = self.loop.time()
        self._head: int | None = 0
        # When the reader was last seen reading, and how much it had left to read.
        self._stalled_since: float | None = None
        self._unread = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Turn connections away when there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
        else:
            self.strangers.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection."""
        self.strangers.remove(self)
        super().connection_lost(exc)

    def admitted(self) -> None:
        """Note that the caller was admitted."""
        self._is_admitted = True
        self.strangers.remove(self)

    def data_received(self, data: bytes) -> None:
        """Refuse an endless head."""
        super().data_received(data)
        if self._head is not None:
            self._head += len(data)
            if self._head > LONGEST_HEAD and not self.transport.is_closing():
                self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        """Note that a request has begun."""
        self._awaited_since = self.loop.time()
        self._head = 0
        super().on_message_begin()
        if not self._is_admitted:
            self.scope["state"][ADMITTED] = self.admitted

    def on_headers_complete(self) -> None:
        """Note that the head is complete."""
        self._head = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that the request is complete."""
        self._awaited_since = None
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Note that the reader falls behind."""
        self._stalled_since = self.loop.time()
        self._unread = self.transport.get_write_buffer_size()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the reader has caught up."""
        self._stalled_since = None
        super().resume_writing()

    def check(self, now: float) -> None:
        """Abort the connection if its request is late or its reader has stalled."""
        settings = self.settings
        seconds = settings.request_seconds
        if self._head is not None:
            seconds = min(seconds, settings.head_seconds)
        if self._awaited_since is not None and now - self._awaited_since > seconds:
            self.transport.abort()
        elif self._stalled_since is not None:
            self._check_reader(now, self._stalled_since)

    def _check_reader(self, now: float, since: float) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread < self._unread:
            self._stalled_since = now
        elif now - since > self.settings.write_seconds:
            self.transport.abort()
        self._unread = unread


def bounded_by(limits: HttpSettings) -> type[BoundedConnection]:
    """Return the connection class with the given limits."""
    room = room_for(limits.connections)

    class Connection(BoundedConnection):
        settings = limits
        # The other half is for admitted callers.
        strangers = Strangers(max(1, room // 2))
        most = room

    return Connection


class BoundedServer(uvicorn.Server):
    """A uvicorn server that ends streams before it waits for connections, and handles the ending signal."""

    def __init__(self, app: HttpApp, settings: HttpSettings) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=bounded_by(settings),
                loop="auto",
                ws="none",
                lifespan="off",
                access_log=False,
                # Malformed requests must not fill the log; internal failures are answered.
                log_config=None,
                log_level="critical",
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=IDLE_CONNECTION_SECONDS,
                timeout_graceful_shutdown=max(1, round(settings.shutdown_seconds)),
            )
        )
        self._app = app

    def handle_exit(self, sig: int, frame: Any) -> None:  # noqa: ARG002 - given by signal
        """End at a signal, at once at the second one; uvicorn would raise the signal again afterwards."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Check the connections."""
        if counter % TICKS_PER_CHECK == 0:
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                connection.check(now)  # type: ignore[union-attr]
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then the connections."""
        self._app.close()
        await super().shutdown(sockets)
