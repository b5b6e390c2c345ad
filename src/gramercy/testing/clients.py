"""Clients of MCP that know nothing but bytes, on pipes and on a socket, and hide no fault of a server.

They follow no redirection, open no second connection and repair nothing: a test sees what was sent.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
from time import monotonic
from typing import IO, TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from gramercy.mcp.jsonrpc import CAPABILITIES_KEY, CLIENT_KEY, LATEST_LEGACY, MODERN, VERSION_KEY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

CLIENT = {"name": "raw", "version": "1"}
# Longer than a busy machine takes to start an image; shorter than a person waits for a failed test.
DEFAULT_SECONDS = 20.0
# A pipe takes at least this much before a write blocks (PIPE_BUF).
AT_ONCE = 4096


class StdioClient:
    """A server process and both ends of its pipes. Every wait ends after `seconds` with a TimeoutError.

    `env` is added to the environment of this process. What the server writes to standard error is kept.
    """

    def __init__(
        self,
        *command: str,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        seconds: float = DEFAULT_SECONDS,
    ) -> None:
        self.seconds = seconds
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the client
        self.process = subprocess.Popen(  # noqa: S603 - the command of the test
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=cwd,
            env={**os.environ, **(env or {})},
        )
        self.stdin, self.stdout = _opened(self.process.stdin), _opened(self.process.stdout)
        self._reader = self.stdout.fileno()
        self._buffer = b""
        self._last_id = 0

    @classmethod
    def serve(
        cls, *options: str, cwd: str | os.PathLike[str] | None = None, env: Mapping[str, str] | None = None
    ) -> Self:
        """Start `gramercy serve` with some options."""
        return cls(sys.executable, "-m", "gramercy", "serve", *options, cwd=cwd, env=env)

    def send(self, *frames: bytes) -> None:
        """Write bytes as they are; what may not fit into the pipe is written on a thread."""
        data = b"".join(frames)
        if len(data) < AT_ONCE:
            self.stdin.write(data)
            self.stdin.flush()
            return
        threading.Thread(target=self._write, args=(data,), daemon=True).start()

    def line(self) -> bytes | None:
        """Return the next line without its newline; None at the end of the output."""
        end = monotonic() + self.seconds
        parts, chunk = [], self._buffer
        while b"\n" not in chunk:
            parts.append(chunk)
            if not select.select([self._reader], [], [], max(0.0, end - monotonic()))[0]:
                raise TimeoutError(f"no line came within {self.seconds:g} s. {self._told()}")
            chunk = os.read(self._reader, 1 << 20)
            if not chunk:
                self._buffer = b""
                if any(parts):
                    raise EOFError(f"the output ended within a line: {b''.join(parts)[:200]!r}")
                return None
        line, _, self._buffer = chunk.partition(b"\n")
        return b"".join([*parts, line])

    def message(self) -> dict[str, Any]:
        """Return the next message; raise EOFError when there are no more."""
        line = self.line()
        if line is None:
            raise EOFError(f"the server has closed its output. {self._told()}")
        return json.loads(line)  # type: ignore[no-any-return]

    def tell(self, method: str, **params: Any) -> None:
        """Send a notification."""
        self.send(frame({"method": method, "params": params}))

    def begin(self, method: str, **params: Any) -> int:
        """Send a request and return its id, without waiting for the answer."""
        self._last_id += 1
        self.send(frame({"id": self._last_id, "method": method, "params": params}))
        return self._last_id

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request and return its answer; messages that come before it are dropped."""
        number = self.begin(method, **params)
        while (message := self.message()).get("id") != number or "method" in message:
            pass
        return message

    def initialize(self, version: str = LATEST_LEGACY, **capabilities: Any) -> dict[str, Any]:
        """Make the handshake of the revisions that have one; return what the server says of itself."""
        answer = self.ask("initialize", protocolVersion=version, capabilities=capabilities, clientInfo=CLIENT)
        self.tell("notifications/initialized")
        return answer["result"]  # type: ignore[no-any-return]

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its result."""
        return self.ask("tools/call", name=tool, arguments=arguments)["result"]  # type: ignore[no-any-return]

    def rest(self) -> list[dict[str, Any]]:
        """Return all messages until the end of the output."""
        found = []
        while (line := self.line()) is not None:
            found.append(json.loads(line))
        return found

    def hang_up(self) -> tuple[float, int]:
        """Close the server's input; return the seconds it takes to exit, and its exit code."""
        begun = monotonic()
        self.stdin.close()
        code = self.process.wait(self.seconds)
        return monotonic() - begun, code

    def errors(self) -> str:
        """Return what the server has written to standard error so far."""
        # Not by seek: the server writes at the same position, and would overwrite its own lines.
        file = self._errors.fileno()
        return os.pread(file, os.fstat(file).st_size, 0).decode("utf-8", "replace")

    def close(self) -> None:
        """Kill the process if it has not exited, and close the pipes."""
        self.process.kill()
        self.process.wait(self.seconds)
        for file in (self.stdin, self.stdout, self._errors):
            try:
                file.close()
            except BrokenPipeError:  # what was still in the buffer
                continue

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self.stdin.fileno(), left) :]
        except (OSError, ValueError):  # the server has exited, or the client was closed
            return

    def _told(self) -> str:
        said = self.errors().strip()[-2_000:]
        return f"Its standard error ends with: {said}" if said else "Its standard error is empty."


def frame(message: Mapping[str, Any]) -> bytes:
    """Return a JSON-RPC message as one line."""
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def _opened(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # noqa: S101 - asked for with PIPE; this tells mypy
    return pipe


# The parameter that the header Mcp-Name repeats, by method.
NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
# Of one read; heads of responses are far shorter, and bodies come in pieces.
STREAM_LIMIT = 1 << 20


class HttpResponse:
    """The head of a response, and its body, which is read from the connection when asked for."""

    def __init__(self, reader: asyncio.StreamReader, status: int, headers: dict[str, str]) -> None:
        self.status = status
        self.headers = headers
        self._reader = reader

    @property
    def is_stream(self) -> bool:
        """Whether the body is a stream of events."""
        return self.headers.get("content-type") == "text/event-stream"

    async def body(self) -> bytes:
        """Return the whole body."""
        if self.headers.get("transfer-encoding") == "chunked":
            return b"".join([chunk async for chunk in self._chunks()])
        return await self._reader.readexactly(int(self.headers.get("content-length", 0)))

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        """Give the messages of the body as they come, whether it is JSON or a stream of events."""
        if not self.is_stream:
            text = await self.body()
            if text:
                yield json.loads(text)
            return
        rest = b""
        async for chunk in self._chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.startswith(b"data: {"):
                    yield json.loads(line[6:])

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self._reader.readline(), 16):
            yield await self._reader.readexactly(size)
            await self._reader.readline()
        await self._reader.readline()


class HttpClient:
    """One connection to an MCP endpoint. Every wait ends after `seconds` with a TimeoutError.

    With `version` set to a revision that has a handshake, begin with `initialize`; its session id is sent
    from then on. All methods belong to one event loop.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        version: str = MODERN,
        seconds: float = DEFAULT_SECONDS,
    ) -> None:
        parts = urlsplit(url)
        self._host, self._port, self._path = parts.hostname or "127.0.0.1", parts.port or 80, parts.path
        self.version = version
        self.seconds = seconds
        self.headers: dict[str, str] = {} if token is None else {"authorization": f"Bearer {token}"}
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None
        self._last_id = 0

    async def send(self, data: bytes) -> HttpResponse:
        """Send bytes as they are and return the head of the response."""
        async with asyncio.timeout(self.seconds):
            if self.writer is None:
                self.reader, self.writer = await asyncio.open_connection(
                    self._host, self._port, limit=STREAM_LIMIT
                )
            self.writer.write(data)
            await self.writer.drain()
        return await self.read()

    async def read(self) -> HttpResponse:
        """Return the head of the next response."""
        if self.reader is None:
            raise ConnectionError("nothing was sent yet: send a request first")
        async with asyncio.timeout(self.seconds):
            text = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = text.strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return HttpResponse(self.reader, int(first.split()[1]), headers)

    async def post(self, message: Mapping[str, Any] | bytes, **headers: Any) -> HttpResponse:
        """Post a message, or bytes as they are; `headers` as in `request_head`."""
        if isinstance(message, bytes):
            body, named = message, {}
        else:
            body, named = json.dumps(message).encode(), self.headers_for(message)
        head = request_head(body, path=self._path, host=self._host, **{**self.headers, **named, **headers})
        return await self.send(head + body)

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request and return its answer; messages that come before it are dropped."""
        self._last_id += 1
        answer = None
        async with asyncio.timeout(self.seconds):
            response = await self.post(self.request(method, params, self._last_id))
            # Read to its end, so that the connection can take the next request.
            async for message in response.messages():
                if message.get("id") == self._last_id and "method" not in message:
                    answer = message
        if answer is None:
            raise EOFError(f"the response ended without an answer to {method}: status {response.status}")
        self._learn_session(response)
        return answer

    async def tell(self, method: str, **params: Any) -> HttpResponse:
        """Send a notification; return the response, whose body is empty when all is well."""
        response = await self.post({"jsonrpc": "2.0", "method": method, "params": params})
        await response.body()
        return response

    async def initialize(self, **capabilities: Any) -> dict[str, Any]:
        """Make the handshake of the revisions that have one; return what the server says of itself."""
        version = LATEST_LEGACY if self.version == MODERN else self.version
        self.version = version
        answer = await self.ask(
            "initialize", protocolVersion=version, capabilities=capabilities, clientInfo=CLIENT
        )
        await self.tell("notifications/initialized")
        return answer["result"]  # type: ignore[no-any-return]

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its result."""
        return (await self.ask("tools/call", name=tool, arguments=arguments))["result"]  # type: ignore[no-any-return]

    def request(self, method: str, params: Mapping[str, Any], number: int) -> dict[str, Any]:
        """Return a request, with what the revision wants every request to say of its client."""
        if self.version == MODERN:
            params = {"_meta": modern_meta(), **params}
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}

    def headers_for(self, message: Mapping[str, Any]) -> dict[str, str]:
        """Return the headers that repeat a message's method and subject, where the revision wants them."""
        if self.version != MODERN:
            return {}
        method, params = message.get("method", ""), message.get("params", {})
        found = {"mcp-protocol-version": MODERN, "mcp-method": method}
        name = params.get(NAMED_BY.get(method, ""))
        return found if name is None else {**found, "mcp-name": name}

    def close(self) -> None:
        """Abort the connection."""
        if self.writer is not None:
            self.writer.transport.abort()
            self.reader = self.writer = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        # The transport closes its socket in the next turn of the loop.
        await asyncio.sleep(0)

    def _learn_session(self, response: HttpResponse) -> None:
        if "mcp-session-id" in response.headers:
            self.headers["mcp-session-id"] = response.headers["mcp-session-id"]


def modern_meta(capabilities: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the `_meta` that the newest revision wants in every request."""
    return {VERSION_KEY: MODERN, CAPABILITIES_KEY: dict(capabilities or {}), CLIENT_KEY: CLIENT}


def request_head(body: bytes, *, path: str = "/mcp", host: str = "127.0.0.1", **headers: Any) -> bytes:
    """Return the head of a POST; `_` in a name stands for `-`, the value None leaves a header out."""
    given = {
        "host": host,
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "content-length": len(body),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = [f"{name}: {value}\r\n" for name, value in given.items() if value is not None]
    return f"POST {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode()
