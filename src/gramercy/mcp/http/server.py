"""MCP on a socket: a server that is created, announced, run, and stopped within bounded time."""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING

from gramercy.errors import ServingError
from gramercy.mcp.http.app import HttpApp
from gramercy.mcp.http.settings import HttpSettings

if TYPE_CHECKING:
    import uvicorn

    from gramercy.mcp.base import MessageReceiver
    from gramercy.mcp.http.headers import SchemaSource

# Connections that the kernel queues until they are accepted; uvicorn's default is 2048, asyncio's 100.
BACKLOG = 512


class HttpServer:
    """A server that listens as soon as it is created; `run` serves, `stop` ends that from any thread."""

    def __init__(
        self,
        engine: MessageReceiver,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        settings: HttpSettings | None = None,
        schema_of: SchemaSource | None = None,
    ) -> None:
        self.settings = (settings or HttpSettings()).for_address(host)
        if schema_of is None:
            schema_of = getattr(engine, "tool_schema", None)
        self.app = HttpApp(engine, self.settings, schema_of=schema_of)
        self._server = _make_server(self.app, self.settings)
        self._socket = _listen(host, port)
        self._host = host
        self.port: int = self._socket.getsockname()[1]

    @property
    def url(self) -> str:
        """The address of the endpoint."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}{self.settings.path}"

    def announce(self) -> None:
        """Print the server's address and how to get access on stderr, never on stdout."""
        print(f"gramercy serves MCP at {self.url}", file=sys.stderr)  # noqa: T201 - the point of it
        print(self.settings.gate.describe(), file=sys.stderr, flush=True)  # noqa: T201 - the point of it

    def run(self) -> None:
        """Serve until a signal or `stop`; then end within bounded time."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def stop(self) -> None:
        """Ask the server to end; `run` returns soon after."""
        self._server.should_exit = True


def serve_http(
    engine: MessageReceiver, host: str = "127.0.0.1", port: int = 0, *, settings: HttpSettings | None = None
) -> None:
    """Serve MCP over HTTP until SIGINT or SIGTERM; tell URL (with the port taken) and token on stderr."""
    server = HttpServer(engine, host, port, settings=settings)
    server.announce()
    server.run()


def _make_server(app: HttpApp, settings: HttpSettings) -> uvicorn.Server:
    try:
        from gramercy.mcp.http.connections import BoundedServer
    except ImportError:
        raise ServingError(
            "serving over HTTP needs uvicorn and httptools: pip install 'gramercy[http]'"
        ) from None
    return BoundedServer(app, settings)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        raise ServingError(
            f"cannot listen on {host}:{port}: {error}. Take another port (0 takes a free one)"
        ) from None
