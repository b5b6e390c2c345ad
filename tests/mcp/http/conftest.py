"""A real server on a free loopback port around a small receiver, and clients that never wait for ever."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import threading
import tracemalloc
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
import pytest

from gramercy.errors import InvalidFrameError, SilentFrameError
from gramercy.mcp.http import HttpApp, HttpServer, HttpSettings, OpenGate
from gramercy.mcp.jsonrpc import failure, read_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gramercy.mcp.base import Answer, Channel, Peer
    from gramercy.mcp.jsonrpc import Received

PATIENCE = 30.0
BOTH = "application/json, text/event-stream"
MODERN = "2026-07-28"


def message(method: str | None, request_id: object = 1, **params: Any) -> dict[str, Any]:
    """Return a message; an id of None makes a notification."""
    found: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    return found if request_id is None else {**found, "id": request_id}


class Toy:
    """A receiver of few words, which remembers what happened to it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.started = threading.Event()
        self.cancelled = threading.Event()
        self.closed: list[Peer] = []
        self.taken: list[Received] = []
        self.channels: list[Channel | None] = []
        self._gate: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def handle(self, peer: Peer, frame: bytes, channel: Channel | None = None) -> Answer:
        return self.take(peer, read_frame(frame), channel)

    def take(self, peer: Peer, received: Received, channel: Channel | None = None) -> Answer:
        self._loop = asyncio.get_running_loop()
        self.taken.append(received)
        self.channels.append(channel)
        if isinstance(received, list):
            answers = (self.take(peer, one, channel) for one in received)
            return b"[" + b",".join(answer for answer in answers if isinstance(answer, bytes)) + b"]"
        if isinstance(received, InvalidFrameError):
            return None if isinstance(received, SilentFrameError) else failure(received, received.id)
        request = msgspec.to_builtins(received)
        if "method" not in request or "id" not in request:
            return None
        return self._answer(peer, request, channel)

    def close(self, peer: Peer) -> None:
        self.closed.append(peer)

    def release(self) -> None:
        """Let what waits go on."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._open)

    def _open(self) -> None:
        self._waiting().set()

    def _waiting(self) -> asyncio.Event:
        if self._gate is None:
            self._gate = asyncio.Event()
        return self._gate

    def _answer(self, peer: Peer, request: dict[str, Any], channel: Channel | None) -> Answer:
        method, params = request["method"], request.get("params") or {}
        result: dict[str, Any] = {"echo": params.get("text", ""), "size": len(json.dumps(params))}
        if method == "explode":
            raise RuntimeError("secret details")
        if method == "wait":
            return self._wait(request, params, channel)
        if method == "fail" or (method == "initialize" and "protocolVersion" not in params):
            return self._error(request["id"], params.get("code", -32602), params.get("data"))
        if method == "initialize":
            peer.version = params["protocolVersion"]
            result = {"protocolVersion": peer.version}
        if method == "whoami":
            result = {"principal": peer.principal, "ceiling": str(peer.ceiling)}
        for number in range(params.get("count", 0)):
            assert channel is not None
            channel.send(json.dumps({"jsonrpc": "2.0", "method": "told", "params": number}).encode())
        return self._result(request["id"], result)

    async def _wait(self, request: dict[str, Any], params: dict[str, Any], channel: Any) -> bytes | None:
        try:
            for number in range(params.get("count", 0)):
                channel.send(json.dumps({"jsonrpc": "2.0", "method": "told", "params": number}).encode())
            if params.get("release"):
                channel.close_stream()
            self.started.set()
            await self._waiting().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        if params.get("silent"):
            return None
        if params.get("broken"):
            raise RuntimeError("secret details")
        return self._result(request["id"], {"waited": True})

    @staticmethod
    def _result(request_id: object, result: object) -> bytes:
        return json.dumps(
            {"jsonrpc": "2.0", "id": request_id, "result": result}, separators=(",", ":")
        ).encode()

    @staticmethod
    def _error(request_id: object, code: int, data: object = None) -> bytes:
        # As the engine writes them: the error first.
        error = {"code": code, "message": "no", **({} if data is None else {"data": data})}
        tail = {} if request_id is None else {"id": request_id}
        return json.dumps({"jsonrpc": "2.0", "error": error, **tail}, separators=(",", ":")).encode()


class Site:
    """A running server and a client of it."""

    def __init__(self, server: HttpServer, toy: Any, client: httpx.Client) -> None:
        self.server = server
        self.toy = toy
        self.client = client
        self.url = server.url
        self.headers = {"accept": BOTH}

    def post(self, body: object, **headers: str) -> httpx.Response:
        """Post a message (or bytes as they are) with more headers; underscores stand for dashes."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {**self.headers, "content-type": "application/json", **_dashed(headers)}
        return self.client.post(self.url, content=content, headers={k: v for k, v in sent.items() if v})

    def post_modern(self, method: str, about: str | None = None, /, **params: Any) -> httpx.Response:
        """Post a request of the modern era with all its headers."""
        return self.post(modern_message(method, **params), **modern_headers(method, about))

    def initialize(self, version: str = "2025-11-25", **headers: str) -> dict[str, str]:
        """Begin a session; return the headers that belong to it."""
        answer = self.post(message("initialize", protocolVersion=version), **headers)
        assert answer.status_code == 200, answer.text
        return {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": version}

    def stream(self, method: str, body: object = None, **headers: str) -> Any:
        """Begin a request whose answer is read piece by piece."""
        sent = {**self.headers, "content-type": "application/json", **_dashed(headers)}
        content = None if body is None else json.dumps(body).encode()
        return self.client.stream(method, self.url, content=content, headers=sent)

    def connect(self) -> socket.socket:
        """Open a plain connection."""
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=PATIENCE)

    def raw(self, body: object, **headers: str) -> bytes:
        """Return a request as bytes, with header values exactly as given."""
        content = json.dumps(body).encode()
        sent = {"host": "localhost", "content-type": "application/json", **_dashed(headers)}
        head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        return f"POST /mcp HTTP/1.1\r\n{head}content-length: {len(content)}\r\n\r\n".encode() + content

    def until(self, is_so: Callable[[], bool]) -> None:
        """Look again and again, for a bounded time."""
        pause = threading.Event()
        for _ in range(int(PATIENCE / 0.02)):
            if is_so():
                return
            pause.wait(0.02)
        raise AssertionError("it did not come to pass")


def _dashed(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def modern_meta(version: str = MODERN) -> dict[str, Any]:
    return {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    }


def modern_message(method: str, **params: Any) -> dict[str, Any]:
    return message(method, **{"_meta": modern_meta(), **params})


def modern_headers(method: str, name: str | None = None) -> dict[str, str]:
    found = {"mcp-protocol-version": MODERN, "mcp-method": method}
    return found if name is None else {**found, "mcp-name": name}


@contextmanager
def serve(engine: Any, settings: HttpSettings, schema_of: Any = None) -> Iterator[Site]:
    """Run a server in a thread for a while; whatever happens, it is ended within bounded time."""
    server = HttpServer(engine, settings=settings, schema_of=schema_of)
    thread = threading.Thread(target=server.run, name="http server", daemon=True)
    thread.start()
    try:
        with httpx.Client(timeout=PATIENCE) as client:
            yield Site(server, engine, client)
    finally:
        server.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the server does not end"


@pytest.fixture
def start():
    """Return a function that starts a server with the given settings."""
    with ExitStack() as stack:

        def starting(engine: Any = None, schema_of: Any = None, **settings: Any) -> Site:
            chosen = HttpSettings(**{"gate": OpenGate(), **settings})
            return stack.enter_context(serve(engine or Toy(), chosen, schema_of))

        yield starting


@pytest.fixture(scope="module")
def site():
    """Run a server that asks for nothing, one for all tests of a file."""
    with serve(Toy(), HttpSettings(gate=OpenGate())) as site:
        yield site


async def bytes_of_a_session(engine: Any, count: int = 500) -> float:
    """Return how much memory each of so many sessions takes that were begun and are idle."""
    app = HttpApp(engine, HttpSettings(gate=OpenGate()))
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {}},
        "clientInfo": {"name": "measuring", "version": "1.0"},
    }
    body = json.dumps(message("initialize", **params)).encode()
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope: Any = {"type": "http", "path": "/mcp", "method": "POST", "headers": headers}

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(_: Any) -> None:
        pass

    await app(scope, receive, send)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(count):
        await app(scope, receive, send)
    if isinstance(engine, Toy):
        # What it remembers is no part of a session.
        engine.taken.clear()
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    app.close()
    return grown / count


@pytest.fixture
def tools():
    """Return the makers of messages, since this file cannot be imported."""

    class Makers:
        message = staticmethod(message)
        modern_message = staticmethod(modern_message)
        modern_headers = staticmethod(modern_headers)
        modern_meta = staticmethod(modern_meta)
        bytes_of_a_session = staticmethod(bytes_of_a_session)
        Toy = Toy
        BOTH = BOTH
        PATIENCE = PATIENCE

    return Makers
