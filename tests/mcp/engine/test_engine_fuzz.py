"""No frame, however odd, makes the engine raise, hang, answer a notification, or keep what it was sent."""

import asyncio
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gramercy import Executor, Registry, define_tool, tool
from gramercy.mcp.base import Peer
from gramercy.mcp.catalogue import Catalog
from gramercy.mcp.engine import Engine
from gramercy.tools.context import current_call

MODERN = "2026-07-28"
KEY = "io.modelcontextprotocol/"
FORM = {"type": "object", "properties": {"n": {"type": "string"}}}
METHODS = [
    "initialize", "ping", "tools/list", "tools/call", "resources/list", "resources/templates/list",
    "resources/read", "resources/subscribe", "resources/unsubscribe", "prompts/list", "prompts/get",
    "completion/complete", "logging/setLevel", "server/discover", "subscriptions/listen", "tasks/get",
    "tasks/update", "tasks/cancel", "tasks/list", "tasks/result", "notifications/cancelled",
    "notifications/initialized", "notifications/progress", "no/such", "",
]  # fmt: skip
FUZZ = settings(max_examples=200, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@tool(inline=True)
def echo(text: str) -> str:
    """Return the text."""
    return text


@tool(categories=["task"])
async def ask() -> str:
    """Ask something."""
    return str(await current_call().ask("?", FORM, key="k"))


danger = define_tool("danger", "Be dangerous.", [], safety_level="dangerous", handler=lambda _: "ran")


def engine():
    catalog = Catalog()
    catalog.resource("test://a", "a", lambda: "a", inline=True)
    catalog.template("test://t/{x}", "t", lambda v: v["x"], inline=True)
    catalog.prompt("p", str, inline=True)
    catalog.complete("p", "x", lambda typed, _: [typed])
    return Engine(
        Executor(Registry([echo, ask, danger])), name="f", version="1", catalog=catalog, patience=0.01
    )


words = st.sampled_from(
    [
        "echo",
        "ask",
        "danger",
        "p",
        "test://a",
        "test://t/1",
        "x",
        "",
        "2025-11-25",
        MODERN,
        "info",
        "ref/prompt",
    ]
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | words,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | words, inner, max_size=3)
    ),
    max_leaves=8,
)
meta: st.SearchStrategy = st.fixed_dictionaries(
    {},
    optional={
        f"{KEY}protocolVersion": st.just(MODERN) | json_values,
        f"{KEY}clientCapabilities": st.just({})
        | st.just({"elicitation": {}, "extensions": {f"{KEY}tasks": {}}})
        | json_values,
        f"{KEY}logLevel": words | json_values,
        "progressToken": st.integers() | st.text(max_size=5) | json_values,
    },
)
params: st.SearchStrategy = st.fixed_dictionaries(
    {},
    optional={
        "_meta": meta | json_values,
        "name": words | json_values,
        "arguments": st.just({"text": "a"}) | st.just({}) | json_values,
        "uri": words | json_values,
        "cursor": words | json_values,
        "protocolVersion": words | json_values,
        "capabilities": st.just({"elicitation": {}}) | json_values,
        "clientInfo": json_values,
        "level": words | json_values,
        "ref": st.fixed_dictionaries({"type": words, "name": words}) | json_values,
        "argument": st.fixed_dictionaries({"name": words, "value": words}) | json_values,
        "notifications": st.just({"toolsListChanged": True}) | json_values,
        "taskId": words | json_values,
        "task": st.just({"ttl": 1}) | json_values,
        "requestId": st.integers(0, 5) | json_values,
        "inputResponses": st.just({"k": {"action": "accept", "content": {}}}) | json_values,
        "requestState": words | json_values,
    },
)
messages = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0")},
    optional={
        "id": st.integers(0, 5) | st.text(max_size=3) | json_values,
        "method": st.sampled_from(METHODS) | json_values,
        "params": params | json_values,
        "result": json_values,
        "error": json_values,
    },
)
frames = st.one_of(
    messages.map(lambda message: json.dumps(message).encode()),
    st.lists(messages, max_size=4).map(lambda batch: json.dumps(batch).encode()),
    json_values.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=40),
    st.tuples(messages, st.integers(0, 200)).map(lambda pair: json.dumps(pair[0]).encode()[: pair[1]]),
)


def is_silent(message):
    """Tell whether a message must not be answered: a notification or a response."""
    if not isinstance(message, dict):
        return False
    if isinstance(message.get("method"), str):
        return "id" not in message
    return "method" not in message and ("result" in message) is not ("error" in message)


async def settle(answer):
    if isinstance(answer, bytes | None):
        return answer
    waiting = asyncio.ensure_future(answer)
    done, _ = await asyncio.wait({waiting}, timeout=0.1)
    if not done:  # a listener
        waiting.cancel()
        await asyncio.wait({waiting}, timeout=1)
        return None
    return None if waiting.cancelled() else waiting.result()


def check_answer(frame, answer):
    try:
        message = json.loads(frame)
    except ValueError:
        message = None
    if answer is None:
        return
    assert b"\n" not in answer
    found = json.loads(answer)
    if is_silent(message):
        pytest.fail(f"{frame!r} was answered with {answer!r}")
    for one in found if isinstance(found, list) else [found]:
        assert one["jsonrpc"] == "2.0"
        assert ("result" in one) is not ("error" in one)
        if "error" in one:
            assert isinstance(one["error"]["code"], int)
            assert one["error"]["message"] != "Internal error"  # nothing here is meant to break
        elif isinstance(message, dict):
            assert one["id"] == message["id"]


@FUZZ
@given(st.lists(frames, min_size=1, max_size=6), st.sampled_from([None, MODERN, "2025-11-25", "2024-11-05"]))
def test_every_frame_is_answered_as_the_protocol_wants_or_not_at_all(sent, version):
    """style.md, Errors: the MCP server is one of three doors where everything is caught."""

    async def main():
        server = engine()
        peer = Peer(channel=None, version=version)
        for frame in sent:
            check_answer(frame, await settle(server.handle(peer, frame)))
        server.close(peer)
        server.shutdown()
        for _ in range(3):
            await asyncio.sleep(0)
        assert server._clients.all() == []
        assert (len(server._tasks), len(server._conversations.parked)) == (0, 0)

    asyncio.run(main())


@FUZZ
@given(json_values)
def test_arguments_of_any_kind_never_break_a_call(value):
    """Decision 8: an error that the model can repair."""

    async def main():
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "echo", "arguments": value},
        }
        return json.loads(await settle(engine().handle(Peer(), json.dumps(message).encode())))

    answer = asyncio.run(main())
    assert (
        answer["result"]["isError"] in {True, False}
        if isinstance(value, dict)
        else answer["error"]["code"] == -32602
    )
