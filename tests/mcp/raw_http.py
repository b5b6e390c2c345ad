"""A client that knows nothing but bytes on sockets, in both eras; and one on pipes that looks the same."""

from __future__ import annotations

import asyncio
import json
import sys
from itertools import count
from pathlib import Path
from typing import Any

from tests.mcp import raw_client

BOUND = raw_client.BOUND

LEGACY, MODERN = "2025-11-25", "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
ABOUT = {"name": "raw", "version": "1"}
ASKABLE: dict[str, object] = {"elicitation": {}}
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


def meta(capabilities):
    """Return what every request of the newer era says about its client."""
    about = {"protocolVersion": MODERN, "clientCapabilities": capabilities, "clientInfo": ABOUT}
    return {f"{PREFIX}{key}": value for key, value in about.items()}


def head(body, **headers):
    """Return the head of a request; underscores stand for dashes, None leaves a header out."""
    given = {
        "host": "127.0.0.1",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "content-length": len(body),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = [f"{name}: {value}\r\n" for name, value in given.items() if value is not None]
    return f"POST /mcp HTTP/1.1\r\n{''.join(lines)}\r\n".encode()


class Response:
    """An answer whose body is read message by message."""

    def __init__(self, reader, status, headers):
        self.status, self.headers, self._reader = status, headers, reader

    @property
    def is_stream(self):
        return self.headers.get("content-type") == "text/event-stream"

    async def body(self):
        """Return the whole body."""
        if self.headers.get("transfer-encoding") == "chunked":
            return b"".join([chunk async for chunk in self._chunks()])
        return await self._reader.readexactly(int(self.headers.get("content-length", 0)))

    async def messages(self):
        """Give the messages of the body, whether it is one of JSON or a stream of events."""
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

    async def _chunks(self):
        while size := int(await self._reader.readline(), 16):
            yield await self._reader.readexactly(size)
            await self._reader.readline()
        await self._reader.readline()


class Wire:
    """One connection, for one request after the other."""

    def __init__(self, port):
        self._port = port
        self.reader: Any = None
        self.writer: Any = None

    async def send(self, data):
        """Send bytes as they are and return the head of the answer."""
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
        self.writer.write(data)
        await self.writer.drain()
        return await self.read()

    async def read(self):
        """Return the head of the next answer."""
        async with asyncio.timeout(BOUND):
            text = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = text.strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return Response(self.reader, int(first.split()[1]), headers)

    def close(self):
        """Let go of the connection at once."""
        if self.writer is not None:
            self.writer.transport.abort()
            self.writer = None


class Conversation:
    """A client of either era; `reply` is the person at it, who is shown questions and answers them."""

    def __init__(self, era, *, reply=None, capabilities=None):
        self.era, self.reply = era, reply
        self.capabilities = capabilities if capabilities is not None else ASKABLE if reply else {}
        self.questions = []
        self.states = []
        self._numbers = count(1)

    @property
    def is_modern(self):
        return self.era == MODERN

    def message(self, method, params, number):
        """Return a request."""
        if self.is_modern:
            params = {**params, "_meta": meta(self.capabilities)}
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}

    async def ask(self, method, **params):
        """Send a request and return its answer; what is asked in between is answered by the person."""
        async with asyncio.timeout(BOUND * 2):
            answer = await self.round(method, params)
            while answer.get("result", {}).get("resultType") == "input_required":
                answer = await self.round(method, {**params, **self.retry(answer["result"])})
        return answer

    def retry(self, result):
        """Answer the questions of a result; return what the request is sent again with."""
        self.states.append(result["requestState"])
        replies = {key: self.show(one["params"]) for key, one in result["inputRequests"].items()}
        return {"inputResponses": replies, "requestState": result["requestState"]}

    def show(self, params):
        """Let the person see a question and return the answer."""
        self.questions.append(params)
        return self.reply(params)

    def replied(self, question):
        """Return the answer to a question of the older era as a message."""
        return {"jsonrpc": "2.0", "id": question["id"], "result": self.show(question["params"])}

    async def call(self, tool, **arguments):
        """Call a tool and return its result."""
        return (await self.ask("tools/call", name=tool, arguments=arguments))["result"]

    async def greet(self):
        """Begin a session of the older era; the newer one has none."""
        if not self.is_modern:
            params = {"protocolVersion": self.era, "capabilities": self.capabilities, "clientInfo": ABOUT}
            assert "result" in await self.round("initialize", params)
            await self.tell("notifications/initialized")

    async def round(self, method, params):
        """Send one request and return its answer."""
        raise NotImplementedError

    async def say(self, message):
        """Send what has no answer."""
        raise NotImplementedError

    async def tell(self, method, **params):
        """Send a notification."""
        await self.say({"jsonrpc": "2.0", "method": method, "params": params})

    def close(self):
        """Let go of the server."""


class StdioConversation(Conversation):
    """The conversation on the pipes of a server process of its own."""

    def __init__(self, client, era, **options):
        super().__init__(era, **options)
        self.client = client

    async def round(self, method, params):
        number = next(self._numbers)
        self.client.send(self._line(self.message(method, params, number)))
        while (message := self.client.message()).get("id") != number or "method" in message:
            if "id" in message:
                await self.say(self.replied(message))
        return message

    async def say(self, message):
        self.client.send(self._line(message))

    @staticmethod
    def _line(message):
        return json.dumps(message).encode() + b"\n"


class HttpConversation(Conversation):
    """The conversation over HTTP: one connection for requests, one for what is said meanwhile."""

    def __init__(self, port, era, *, token=None, **options):
        super().__init__(era, **options)
        self.wire, self._aside = Wire(port), Wire(port)
        self._session = {} if token is None else {"authorization": f"Bearer {token}"}

    def headers(self, message):
        """Return the headers that belong to a message."""
        if not self.is_modern:
            return self._session
        method = message["method"]
        found = {**self._session, "mcp-protocol-version": MODERN, "mcp-method": method}
        named = message["params"].get(NAMED.get(method, ""))
        return found if named is None else {**found, "mcp-name": named}

    async def post(self, message, wire=None):
        """Post a message as it is and return the response."""
        body = json.dumps(message).encode()
        return await (wire or self.wire).send(head(body, **self.headers(message)) + body)

    async def round(self, method, params):
        number = next(self._numbers)
        response = await self.post(self.message(method, params, number))
        self._session.update(
            {name: response.headers[name] for name in ("mcp-session-id",) if name in response.headers}
        )
        answer = None
        async for message in response.messages():
            if "method" not in message:
                assert answer is None, "two answers to one request"
                answer = message
            elif "id" in message:
                await self.say(self.replied(message))
        assert answer is not None, f"no answer, but {response.status}"
        assert answer["id"] == number, "the answer of somebody else"
        return answer

    async def say(self, message):
        assert (await self.post(message, self._aside)).status == 202

    def close(self):
        self.wire.close()
        self._aside.close()


def start_server(*options, cwd, **environment):
    """Start `gramercy serve` and return its client on pipes."""
    return raw_client.RawClient(
        sys.executable, "-m", "gramercy", "serve", *options, cwd=cwd, NO_COLOR="1", **environment
    )


def port_of(server):
    """Wait until a server listens and return its port."""
    raw_client.until(lambda: server.process.poll() is not None or "serves MCP at " in server.errors())
    said = server.errors()
    assert "serves MCP at " in said, said
    return int(said.partition("127.0.0.1:")[2].partition("/")[0])


def memory(pid):
    """Return the megabytes that a process has resident."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024
