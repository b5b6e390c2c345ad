"""A client of either era with a person at it, on pipes and over HTTP: what it does is the same on both."""

from __future__ import annotations

import asyncio
import json
from itertools import count

from gramercy.mcp.jsonrpc import CLIENT_KEY
from gramercy.testing.clients import NAMED_BY, modern_meta, request_head
from tests.support import BOUND, wire_to

LEGACY, MODERN = "2025-11-25", "2026-07-28"
ASKABLE: dict[str, object] = {"elicitation": {}}


class Conversation:
    """A client of either era; `reply` is the person at it, who is shown questions and answers them."""

    def __init__(self, era, *, reply=None, capabilities=None, name="raw"):
        self.era, self.reply = era, reply
        self.info = {"name": name, "version": "1"}
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
            params = {**params, "_meta": {**modern_meta(self.capabilities), CLIENT_KEY: self.info}}
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
            params = {"protocolVersion": self.era, "capabilities": self.capabilities, "clientInfo": self.info}
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
        self.wire, self._aside = wire_to(port), wire_to(port)
        self._session = {} if token is None else {"authorization": f"Bearer {token}"}

    def headers(self, message):
        """Return the headers that belong to a message."""
        if not self.is_modern:
            return self._session
        method = message["method"]
        found = {**self._session, "mcp-protocol-version": MODERN, "mcp-method": method}
        named = message["params"].get(NAMED_BY.get(method, ""))
        return found if named is None else {**found, "mcp-name": named}

    async def post(self, message, wire=None):
        """Post a message as it is and return the response."""
        body = json.dumps(message).encode()
        return await (wire or self.wire).send(request_head(body, **self.headers(message)) + body)

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
