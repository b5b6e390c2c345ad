"""Whatever is sent, there is an answer, and it is never a fault of ours."""

import asyncio
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gramercy import Executor, Registry, tool
from gramercy.mcp.engine import Engine
from gramercy.mcp.http import HttpApp, HttpSettings, OpenGate

METHODS = [
    "tools/call",
    "tools/list",
    "initialize",
    "server/discover",
    "ping",
    "notifications/x",
    "tasks/get",
]
VERSIONS = ["2026-07-28", "2025-11-25", "2025-03-26", "x"]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
meta = st.fixed_dictionaries(
    {},
    optional={
        "io.modelcontextprotocol/protocolVersion": st.sampled_from(VERSIONS) | json_values,
        "io.modelcontextprotocol/clientCapabilities": st.just({}) | json_values,
        "progressToken": json_values,
    },
)
params = st.fixed_dictionaries(
    {},
    optional={
        "name": st.just("echo") | json_values,
        "arguments": st.just({"text": "x"}) | json_values,
        "uri": json_values,
        "taskId": json_values,
        "protocolVersion": st.sampled_from(VERSIONS) | json_values,
        "_meta": meta | json_values,
    },
)
messages = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | json_values,
        "id": st.integers() | st.text(max_size=5) | json_values,
        "method": st.sampled_from(METHODS) | json_values,
        "params": params | json_values,
        "result": json_values,
        "error": json_values,
    },
)
bodies = st.binary(max_size=60) | (messages | st.lists(messages, max_size=3) | json_values).map(
    lambda value: json.dumps(value).encode()
)
header_values = st.binary(max_size=30)
headers = st.fixed_dictionaries(
    {},
    optional={
        b"mcp-protocol-version": st.sampled_from([v.encode() for v in VERSIONS]) | header_values,
        b"mcp-method": st.sampled_from([m.encode() for m in METHODS]) | header_values,
        b"mcp-name": st.sampled_from([b"echo", b"=?base64?ZWNobw==?="]) | header_values,
        b"mcp-session-id": st.just(b"SESSION") | header_values,
        b"last-event-id": header_values,
        b"accept": st.just(b"*/*") | header_values,
        b"content-length": st.just(b"9") | header_values,
        b"origin": st.just(b"http://localhost") | header_values,
    },
)


def make_app():
    @tool(inline=True)
    def echo(text: str) -> str:
        """Say it again."""
        return text

    engine = Engine(Executor(Registry([echo])), name="test", version="1")
    return HttpApp(engine, HttpSettings(gate=OpenGate(), sessions=5), schema_of=engine.tool_schema)


async def ask(app, method, sent, body):
    """Send one request and return its status; the client leaves when it has said everything."""
    coming = [{"type": "http.request", "body": body}, {"type": "http.disconnect"}]
    said = []

    async def receive():
        return coming.pop(0) if coming else {"type": "http.disconnect"}

    async def send(message):
        said.append(message)

    base = {b"host": b"localhost", b"content-type": b"application/json"}
    scope = {"type": "http", "path": "/mcp", "method": method, "headers": list({**base, **sent}.items())}
    await asyncio.wait_for(app(scope, receive, send), 10)
    return said


@pytest.mark.slow
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(body=bodies, sent=headers, method=st.sampled_from(["POST", "POST", "POST", "GET", "DELETE"]))
def test_nothing_that_is_sent_is_a_fault_of_ours(body, sent, method):
    """Bytes, JSON, messages and headers at random, with and without a session."""

    async def talk():
        app = make_app()
        hello = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {"protocolVersion": "2025-11-25"},
        }
        begun = await ask(app, "POST", {}, json.dumps(hello).encode())
        session = dict(begun[0]["headers"])[b"mcp-session-id"]
        mine = {name: session if value == b"SESSION" else value for name, value in sent.items()}
        answer = await ask(app, method, mine, body)
        app.close()
        return answer, app._load.count

    said, running = asyncio.run(talk())
    assert said[0]["status"] < 500
    assert running == 0
    kind = dict(said[0]["headers"]).get(b"content-type")
    if kind == b"application/json":
        json.loads(said[1]["body"])
