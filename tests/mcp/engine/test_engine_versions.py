"""Handshake and discovery: which requests are legacy and which modern, and what they are told."""

import asyncio
import json

import pytest

from gramercy import tool
from gramercy.mcp.base import Peer
from gramercy.mcp.catalogue import Catalog
from gramercy.mcp.jsonrpc import error_code

MODERN = "2026-07-28"
KEY = "io.modelcontextprotocol/"
META = {f"{KEY}protocolVersion": MODERN, f"{KEY}clientCapabilities": {}}


@tool(inline=True)
def echo(text: str) -> str:
    """Return the text."""
    return text


def send(engine, peer, method, params=None, **more):
    message = {"jsonrpc": "2.0", "id": 1, "method": method, **more}
    if params is not None:
        message["params"] = params
    return json.loads(engine.handle(peer, json.dumps(message).encode()))


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
def test_a_handshake_agrees_on_the_version_that_the_client_wants(serve, desk, version):
    """MCP specification, Lifecycle, Version Negotiation."""
    client = desk(serve(echo, instructions="Use echo."), version)
    assert client.peer.version == version
    result = client.now("initialize", client.greeting())
    assert result["protocolVersion"] == version
    assert result["serverInfo"] == {"name": "desk-server", "version": "1"}
    assert result["instructions"] == "Use echo."
    assert ("tasks" in result["capabilities"]) is (version == "2025-11-25")
    client.tell("notifications/initialized")
    assert client.now("ping") == {}


@pytest.mark.parametrize("wanted", ["1999-01-01", MODERN, "", "latest"])
def test_a_handshake_for_an_unknown_version_offers_the_latest_that_has_one(serve, wanted):
    """MCP specification, Lifecycle, Version Negotiation."""
    params = {"protocolVersion": wanted, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    assert send(serve(echo), Peer(), "initialize", params)["result"]["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize(
    "params", [None, {}, {"protocolVersion": 5}, {"protocolVersion": "x", "capabilities": 1}]
)
def test_a_failed_handshake_leaves_no_trace(serve, params):
    """What the HTTP transport relies on: a version means a session."""
    peer = Peer()
    engine = serve(echo)
    assert send(engine, peer, "initialize", params)["error"]["code"] == -32602
    assert (peer.version, len(engine._clients.all())) == (None, 0)


def test_discovery_names_all_versions_and_capabilities(serve, desk):
    """MCP specification 2026-07-28, Discovery."""
    result = desk(serve(echo, catalog=Catalog()), MODERN).now("server/discover")
    assert result["supportedVersions"][0] == MODERN
    assert len(result["supportedVersions"]) == 5
    assert result["_meta"][f"{KEY}serverInfo"] == {"name": "desk-server", "version": "1"}
    assert set(result["capabilities"]) == {"tools", "resources", "prompts", "completions", "extensions"}
    assert result["capabilities"]["extensions"] == {f"{KEY}tasks": {}}


def test_what_is_not_offered_is_neither_declared_nor_answered(serve, desk, version):
    """MCP specification 2026-07-28: a server that supports prompts must declare them."""
    client = desk(serve(echo), version)
    for method in ("prompts/list", "resources/list", "resources/read", "completion/complete", "prompts/get"):
        assert client.now(method)["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        (None, -32602),
        ({}, -32602),
        ({f"{KEY}protocolVersion": MODERN}, -32602),
        ({f"{KEY}clientCapabilities": {}}, -32602),
        ({**META, f"{KEY}clientCapabilities": []}, -32602),
        ({**META, f"{KEY}protocolVersion": 5}, -32602),
        ({**META, f"{KEY}protocolVersion": "v999"}, -32022),
        ({**META, f"{KEY}protocolVersion": "2025-11-25"}, -32022),
        ([], -32602),
    ],
)
def test_a_modern_request_must_say_so_completely(serve, meta, code):
    """MCP specification 2026-07-28, _meta and Protocol Version Negotiation."""
    params = {} if meta is None else {"_meta": meta}
    error = send(serve(echo), Peer(), "server/discover", params)["error"]
    assert error["code"] == code
    if code == -32022:
        assert error["data"]["requested"] == meta[f"{KEY}protocolVersion"]
        assert MODERN in error["data"]["supported"]


def test_a_transport_can_say_that_a_request_is_modern(serve):
    """The HTTP header MCP-Protocol-Version, before _meta is looked at."""
    error = send(serve(echo), Peer(version=MODERN), "tools/list", {})["error"]
    assert (error["code"], "missing" in error["data"]) == (-32602, True)


@pytest.mark.parametrize(
    "method",
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "tasks/list", "tasks/result", "x/y"],
)
def test_methods_that_an_era_does_not_have_are_not_found(serve, method):
    """MCP specification 2026-07-28, changelog."""
    engine = serve(echo, catalog=Catalog())
    assert send(engine, Peer(), method, {"_meta": META})["error"]["code"] == -32601


@pytest.mark.parametrize("method", ["subscriptions/listen", "tasks/update", "x/y"])
def test_modern_methods_are_not_found_by_legacy_clients(serve, desk, method):
    """MCP specification 2025-11-25, schema."""
    assert desk(serve(echo), "2025-11-25").now(method)["error"]["code"] == -32601


def test_one_connection_may_speak_both_eras(serve, desk):
    """MCP specification 2026-07-28, Backward Compatibility: a dual-era server may serve both concurrently."""
    client = desk(serve(echo), "2025-06-18")
    modern = send(client.engine, client.peer, "tools/list", {"_meta": META})["result"]
    assert (modern["resultType"], modern["cacheScope"]) == ("complete", "private")
    assert "resultType" not in client.now("tools/list")


def test_a_client_without_a_handshake_is_served_all_the_same(serve):
    """The seed's examples have no handshake."""
    params = {"name": "echo", "arguments": {"text": "hi"}}
    assert send(serve(echo), Peer(), "tools/call", params)["result"]["isError"] is False


def test_messages_that_are_only_faulty_frames_are_answered_as_the_standard_says(serve):
    """JSON-RPC 2.0, Error object; MCP: never an answer to a notification or a response."""
    engine, peer = serve(echo), Peer()
    cases = {
        b"": -32700,
        b"{": -32700,
        b"\xff\xfe": -32700,
        b'{"jsonrpc":"2.0","id":1,"method":"ping"} x': -32700,
        b"[" * 100_000: -32700,
        b'{"a":' * 50_000: -32700,
        b"null": -32600,
        b"5": -32600,
        b'"x"': -32600,
        b"{}": -32600,
        b"[]": -32600,
        b'{"jsonrpc":"1.0","id":1,"method":"ping"}': -32600,
        b'{"jsonrpc":"2.0","id":null,"method":"ping"}': -32600,
        b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}': -32600,
        b'{"jsonrpc":"2.0","id":true,"method":"ping"}': -32600,
        b'{"jsonrpc":"2.0","id":[],"method":"ping"}': -32600,
        b'{"jsonrpc":"2.0","id":1,"method":5}': -32600,
        b'{"jsonrpc":"2.0","id":1}': -32600,
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}': -32602,
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":5}}': -32602,
        b'{"jsonrpc":"2.0","id":"' + b"x" * 2_000 + b'","method":"ping"}': -32600,
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}': -32600,
    }
    for frame, code in cases.items():
        assert error_code(engine.handle(peer, frame)) == code, frame[:80]
    silent = [
        b'{"jsonrpc":"2.0","method":"ping"}',
        b'{"jsonrpc":"2.0","method":"no/such","params":{}}',
        b'{"jsonrpc":"2.0","method":"ping","params":5}',
        b'{"jsonrpc":"1.0","method":"ping"}',
        b'{"jsonrpc":"2.0","id":9,"result":{}}',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
    ]
    assert [engine.handle(peer, frame) for frame in silent] == [None] * len(silent)


def test_an_error_keeps_the_id_that_could_be_read(serve):
    """JSON-RPC 2.0, Response object."""
    answer = serve(echo).handle(Peer(), b'{"id":"a","method":"ping"}')
    assert json.loads(answer)["id"] == "a"
    assert "id" not in json.loads(serve(echo).handle(Peer(), b"{"))


def test_a_batch_is_answered_by_an_array_of_its_answers(serve):
    """MCP specification 2025-03-26, batching."""

    @tool
    async def slow() -> str:
        """Wait."""
        await asyncio.sleep(0)
        return "done"

    async def main():
        engine, peer = serve(echo, slow), Peer()
        parts = [
            {"jsonrpc": "2.0", "id": 1, "method": "ping"},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "slow"}},
            5,
            [{"jsonrpc": "2.0", "id": 3, "method": "ping"}],
        ]
        answers = json.loads(await engine.handle(peer, json.dumps(parts).encode()))
        assert engine.handle(peer, json.dumps(parts[1:2]).encode()) is None
        at_once = json.loads(engine.handle(peer, json.dumps(parts[:2]).encode()))
        return [answer.get("id") for answer in answers], at_once

    assert asyncio.run(main()) == ([1, 2, None, None], [{"jsonrpc": "2.0", "id": 1, "result": {}}])
