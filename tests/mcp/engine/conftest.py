"""A client that talks to an engine without any transport, and checks every message against the schemas."""

from __future__ import annotations

import asyncio
import json
from functools import cache
from pathlib import Path

import jsonschema_rs
import pytest

from gramercy import Executor, Registry
from gramercy.mcp.base import Peer
from gramercy.mcp.engine import Engine

SCHEMAS = Path(__file__).parent / "schemas"
MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
KEY = "io.modelcontextprotocol/"
TASKS = f"{KEY}tasks"
RESULTS = {
    "initialize": "InitializeResult",
    "server/discover": "DiscoverResult",
    "ping": "EmptyResult",
    "logging/setLevel": "EmptyResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "resources/list": "ListResourcesResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/read": "ReadResourceResult",
    "resources/subscribe": "EmptyResult",
    "resources/unsubscribe": "EmptyResult",
    "prompts/list": "ListPromptsResult",
    "prompts/get": "GetPromptResult",
    "completion/complete": "CompleteResult",
    "subscriptions/listen": "SubscriptionsListenResult",
}
LEGACY_TASK_RESULTS = {
    "tasks/get": "GetTaskResult",
    "tasks/list": "ListTasksResult",
    "tasks/cancel": "CancelTaskResult",
    "tasks/result": "CallToolResult",
}


@cache
def validator(version, name):
    schema = json.loads((SCHEMAS / f"{version}.json").read_text("utf-8"))
    home = "$defs" if "$defs" in schema else "definitions"
    return jsonschema_rs.validator_for({**schema, "$ref": f"#/{home}/{name}"})


def check(version, name, message):
    problems = [str(error) for error in validator(version, name).iter_errors(message)]
    assert problems == [], (name, message)


class Desk:
    """One client of one engine; as a channel it keeps what it is sent."""

    def __init__(self, engine, version, capabilities=None, *, name="desk", **peer):
        self.engine = engine
        self.info = {"name": name, "version": "1"}
        self.version = version
        self.capabilities = capabilities or {}
        self.peer = Peer(channel=self, **peer)
        self.sent = []
        self.answers = {}
        self.numbers = iter(range(1, 1_000_000))
        if version != MODERN:
            self.now("initialize", self.greeting())

    def greeting(self):
        return {"protocolVersion": self.version, "capabilities": self.capabilities, "clientInfo": self.info}

    def send(self, message):
        """Take a message beside the answers, as a channel does."""
        found = json.loads(message)
        self.sent.append(found)
        if "id" in found:
            check(self.version, "ServerRequest", found)
            self.reply(found)
        elif found["method"] != "notifications/tasks":  # the extension has a schema of its own
            check(self.version, "ServerNotification", found)

    def reply(self, question):
        """Answer a question of the server, if this client knows how."""
        answer = self.answers.get(question["method"])
        if callable(answer):
            answer = answer(question["params"])
        if answer is not None:
            self.raw(json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": answer}))

    def raw(self, frame):
        """Hand over a frame; return its answer or what can be awaited."""
        return self.engine.handle(self.peer, frame.encode() if isinstance(frame, str) else frame)

    def begin(self, method, params=None, *, id=None):  # noqa: A002 - its wire name
        """Send a request; return its answer as it comes: bytes, or something to await."""
        params = dict(params or {})
        if self.version == MODERN:
            meta = {f"{KEY}protocolVersion": MODERN, f"{KEY}clientCapabilities": self.capabilities}
            params["_meta"] = {**meta, f"{KEY}clientInfo": self.info, **params.get("_meta", {})}
        number = next(self.numbers) if id is None else id
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        return self.raw(json.dumps(message))

    def now(self, method, params=None):
        """Send a request that must be answered at once; return its result or error."""
        answer = self.begin(method, params)
        assert isinstance(answer, bytes), f"{method} was not answered at once"
        return self.read(method, answer)

    async def ask(self, method, params=None):
        """Send a request and wait for its result or error."""
        answer = self.begin(method, params)
        if not isinstance(answer, bytes | None):
            answer = await asyncio.wait_for(answer, 10)
        return self.read(method, answer)

    async def call(self, name, arguments=None, **params):
        """Call a tool."""
        return await self.ask("tools/call", {"name": name, "arguments": arguments or {}, **params})

    def tell(self, method, params=None):
        """Send a notification."""
        assert self.raw(json.dumps({"jsonrpc": "2.0", "method": method, "params": params or {}})) is None

    def read(self, method, answer):
        """Check an answer against the schema of its method; return its result, or the whole if an error."""
        found = json.loads(answer)
        if "error" in found:
            check(
                self.version,
                "JSONRPCErrorResponse" if self.version >= "2025-11-25" else "JSONRPCError",
                found,
            )
            return found
        check(
            self.version,
            "JSONRPCResultResponse" if self.version >= "2025-11-25" else "JSONRPCResponse",
            found,
        )
        name = RESULTS.get(method)
        if found["result"].get("resultType") == "input_required":
            name = "InputRequiredResult"
        elif "task" in found["result"]:
            name = "CreateTaskResult"
        elif self.version != MODERN:
            name = name or LEGACY_TASK_RESULTS[method]
        elif found["result"].get("resultType") == "task":
            name = None
        if name is not None:
            check(self.version, name, found["result"])
        return found["result"]

    def of(self, method):
        """List the parameters of all notifications of a method that came."""
        return [message.get("params", {}) for message in self.sent if message["method"] == method]


def text(result):
    """Return the text of a result that is one text."""
    assert [block["type"] for block in result["content"]] == ["text"], result
    return result["content"][0]["text"]


@pytest.fixture
def serve():
    """Make an engine of some tools; options go to the engine, `executor` to the guard."""

    def make(*tools, executor=None, **options):
        guard = Executor(Registry(tools), **(executor or {}))
        return Engine(guard, name="desk-server", version="1", **options)

    return make


@pytest.fixture
def desk():
    """Make a client of an engine, legacy or modern."""
    return Desk


@pytest.fixture
def text_of():
    """Return the text of a result."""
    return text


@pytest.fixture(params=[MODERN, *LEGACY])
def version(request):
    """Every revision of the protocol."""
    return request.param
