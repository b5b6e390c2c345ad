"""Resources, prompts, completions, and who hears of changes."""

import asyncio
import threading

import pytest

from gramercy import Executor, Registry, tool
from gramercy.errors import InvalidToolError, WorkspaceError
from gramercy.mcp.catalogue import Catalog, PromptArgument, PromptMessage
from gramercy.mcp.engine import Engine
from gramercy.tools.content import ImageBlock, ResourceBlock, TextBlock

MODERN, LEGACY = "2026-07-28", "2025-11-25"
KEY = "io.modelcontextprotocol/"


@tool(inline=True)
def echo(text: str) -> str:
    """Return the text."""
    return text


def broken():
    """Fail as our own errors do."""
    raise WorkspaceError("the disk is gone")


def buggy():
    """Fail as bugs do."""
    raise ZeroDivisionError("secret")


@pytest.fixture
def catalog():
    found = Catalog()
    found.resource("test://text", "text", lambda: "héllo", mime_type="text/plain", description="A text.")
    found.resource("test://bytes", "bytes", lambda: b"\x00\x01", mime_type="application/octet-stream")
    found.resource("test://many", "many", lambda: [ResourceBlock("test://many/1", "one"), "two"], inline=True)
    found.resource("test://broken", "broken", broken)
    found.resource("test://buggy", "buggy", buggy)
    found.template("test://item/{id}/data", "item", lambda v: f"item {v['id']}")
    found.template("test://path/{+path}", "path", lambda v: v["path"])
    found.prompt(
        "review",
        lambda a: [
            PromptMessage("user", TextBlock(f"Review {a['file']}")),
            PromptMessage("assistant", ImageBlock(b"x", "image/png")),
        ],
        arguments=[PromptArgument("file", "Which file", required=True), PromptArgument("style")],
        description="Review a file.",
    )
    found.prompt("plain", lambda _: "Say hello.")
    found.complete("review", "file", lambda typed, known: [f"{typed}{n}" for n in range(150)] + [str(known)])
    found.complete("test://item/{id}/data", "id", lambda typed, _: [typed + "1"])
    return found


@pytest.fixture
def client(serve, desk, catalog, version):
    return desk(serve(echo, catalog=catalog), version)


def test_resources_and_templates_are_listed_in_order(client):
    """MCP specification, Resources."""
    listed = client.now("resources/list")["resources"]
    assert [entry["name"] for entry in listed] == ["broken", "buggy", "bytes", "many", "text"]
    assert listed[-1] == {
        "uri": "test://text",
        "name": "text",
        "description": "A text.",
        "mimeType": "text/plain",
    }
    templates = client.now("resources/templates/list")["resourceTemplates"]
    assert [entry["uriTemplate"] for entry in templates] == ["test://item/{id}/data", "test://path/{+path}"]


@pytest.mark.parametrize(
    ("uri", "contents"),
    [
        ("test://text", [{"uri": "test://text", "mimeType": "text/plain", "text": "héllo"}]),
        ("test://bytes", [{"uri": "test://bytes", "mimeType": "application/octet-stream", "blob": "AAE="}]),
        ("test://many", [{"uri": "test://many/1", "text": "one"}, {"uri": "test://many", "text": "two"}]),
        ("test://item/a%20b/data", [{"uri": "test://item/a%20b/data", "text": "item a b"}]),
        ("test://path/a/b", [{"uri": "test://path/a/b", "text": "a/b"}]),
    ],
)
def test_a_resource_is_read_as_text_or_bytes(client, version, uri, contents):
    """MCP specification, Reading Resources; caching hints of 2026-07-28."""
    result = asyncio.run(client.ask("resources/read", {"uri": uri}))
    assert result["contents"] == contents
    assert ("ttlMs" in result) is (version == MODERN)


@pytest.mark.parametrize("uri", ["test://none", "test://item/a/b/data", "", "x" * 10_000, 5])
def test_what_is_not_there_is_not_found(client, version, uri):
    """MCP specification, Resources, Error Handling."""
    error = client.now("resources/read", {"uri": uri})["error"]
    is_shaped = isinstance(uri, str) and len(uri) < 5_000
    assert error["code"] == (-32602 if version == MODERN or not is_shaped else -32002)
    if is_shaped:
        assert error["data"] == {"uri": uri}


def test_a_reader_that_fails_says_only_what_was_meant_to_be_said(client):
    """style.md, Errors; an internal error has no details."""
    errors = [
        asyncio.run(client.ask("resources/read", {"uri": f"test://{name}"}))["error"]
        for name in ("broken", "buggy")
    ]
    assert [error["code"] for error in errors] == [-32603, -32603]
    assert [error["message"] for error in errors] == ["the disk is gone", "Internal error"]


def test_prompts_are_listed_and_filled_in(client):
    """MCP specification, Prompts."""
    listed = client.now("prompts/list")["prompts"]
    assert [entry["name"] for entry in listed] == ["plain", "review"]
    assert listed[1]["arguments"][0] == {"name": "file", "required": True, "description": "Which file"}
    result = asyncio.run(client.ask("prompts/get", {"name": "review", "arguments": {"file": "a.py"}}))
    assert result["description"] == "Review a file."
    assert [message["role"] for message in result["messages"]] == ["user", "assistant"]
    assert result["messages"][0]["content"] == {"type": "text", "text": "Review a.py"}
    plain = asyncio.run(client.ask("prompts/get", {"name": "plain"}))
    assert plain["messages"] == [{"role": "user", "content": {"type": "text", "text": "Say hello."}}]


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"name": "none"},
        {"name": "review"},
        {"name": "review", "arguments": {"file": 5}},
        {"name": "review", "arguments": []},
    ],
)
def test_a_prompt_needs_its_arguments(client, params):
    """MCP specification, Prompts, Error Handling."""
    assert client.now("prompts/get", params)["error"]["code"] == -32602


def test_completions_are_bounded_and_know_the_other_arguments(client):
    """MCP specification, Completion: at most 100 values."""
    reference = {"type": "ref/prompt", "name": "review"}
    params = {
        "ref": reference,
        "argument": {"name": "file", "value": "x"},
        "context": {"arguments": {"a": "b"}},
    }
    found = asyncio.run(client.ask("completion/complete", params))["completion"]
    assert (len(found["values"]), found["total"], found["hasMore"]) == (100, 151, True)
    template = {"type": "ref/resource", "uri": "test://item/{id}/data"}
    params = {"ref": template, "argument": {"name": "id", "value": "4"}}
    assert asyncio.run(client.ask("completion/complete", params))["completion"]["values"] == ["41"]
    params = {"ref": reference, "argument": {"name": "style", "value": ""}}
    assert asyncio.run(client.ask("completion/complete", params))["completion"]["values"] == []


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"ref": {"type": "ref/prompt", "name": "none"}, "argument": {"name": "a", "value": "b"}},
        {"ref": {"type": "ref/x", "name": "review"}, "argument": {"name": "a", "value": "b"}},
        {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "a"}},
        {"ref": 5, "argument": {}},
    ],
)
def test_a_completion_of_nothing_is_invalid_params(client, params):
    """MCP specification, Completion, Error Handling."""
    assert client.now("completion/complete", params)["error"]["code"] == -32602


@pytest.mark.parametrize(
    "template", ["test://plain", "test://{a}{b}", "test://{a}/{a}", "test://{a}/{b", "{"]
)
def test_a_template_that_could_be_read_in_many_ways_is_refused(template):
    """Refused when it is offered, not when it is read."""
    with pytest.raises(InvalidToolError, match=r"template|between"):
        Catalog().template(template, "x", lambda _: "")


@pytest.mark.parametrize("version", [LEGACY])
def test_a_session_hears_of_the_resources_it_watches(client, catalog):
    """MCP specification 2025-11-25, Subscriptions."""

    async def main():
        assert client.now("resources/subscribe", {"uri": "test://text"}) == {}
        catalog.updated("test://text")
        catalog.updated("test://bytes")
        thread = threading.Thread(target=catalog.updated, args=("test://text",))
        thread.start()
        await asyncio.to_thread(thread.join)
        await asyncio.sleep(0)
        assert client.now("resources/unsubscribe", {"uri": "test://text"}) == {}
        catalog.updated("test://text")
        return client.of("notifications/resources/updated")

    assert asyncio.run(main()) == [{"uri": "test://text"}] * 2


def test_a_resource_that_is_not_there_cannot_be_watched(client, version):
    """A subscriber to what does not exist would wait for ever; the message says what there is."""
    uri = "test://txet"
    if version == MODERN:
        wanted = {"resourceSubscriptions": ["test://text", uri]}
        error = client.now("subscriptions/listen", {"notifications": wanted})["error"]
    else:
        error = client.now("resources/subscribe", {"uri": uri})["error"]
    assert error["code"] == (-32602 if version == MODERN else -32002)
    assert error["message"].startswith(f"Resource not found: {uri}; did you mean test://text")
    assert error["data"] == {"uri": uri}
    assert client.engine._subscriptions._open == []


def changing(registry, catalog):
    """Make a tool that registers another one."""

    @tool(inline=True)
    def change() -> str:
        """Change the listings."""
        registry.register(echo)
        catalog.prompt("new", lambda _: "x")
        catalog.resource("test://new", "new", lambda: "x")
        return "changed"

    registry.register(change)
    return Engine(Executor(registry), name="desk-server", version="1", catalog=catalog)


def test_a_session_hears_that_listings_have_changed(desk, catalog):
    """MCP specification 2025-11-25, List Changed Notification."""

    async def main():
        client = desk(changing(Registry(), catalog), LEGACY)
        client.now("tools/call", {"name": "change"})
        client.now("tools/call", {"name": "echo", "arguments": {"text": ""}})
        return [message["method"] for message in client.sent]

    assert sorted(asyncio.run(main())) == [
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/tools/list_changed",
    ]


def test_a_listener_hears_what_it_asked_for_and_nothing_else(desk, catalog):
    """MCP specification 2026-07-28, Subscriptions."""

    async def main():
        engine = changing(Registry(), catalog)
        client = desk(engine, MODERN)
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["test://text"], "nonsense": True}
        stream = client.begin("subscriptions/listen", {"notifications": wanted}, id="s")
        client.now("tools/call", {"name": "change"})
        catalog.updated("test://text")
        catalog.updated("test://bytes")
        client.tell("notifications/cancelled", {"requestId": "s"})
        assert await stream is None
        catalog.updated("test://text")
        return client.sent, engine._subscriptions._open

    sent, left = asyncio.run(main())
    assert [message["method"] for message in sent] == [
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
        "notifications/resources/updated",
    ]
    assert sent[0]["params"]["notifications"] == {
        "toolsListChanged": True,
        "resourceSubscriptions": ["test://text"],
    }
    assert all(message["params"]["_meta"] == {f"{KEY}subscriptionId": "s"} for message in sent)
    assert left == []


@pytest.mark.parametrize("how", ["cancel", "close", "shutdown"])
def test_a_stream_can_be_ended_from_either_side(serve, desk, how):
    """MCP specification 2026-07-28, Graceful Closure."""

    async def main():
        client = desk(serve(echo), MODERN)
        stream = client.begin("subscriptions/listen", {"notifications": {}})
        if how == "cancel":
            stream.cancel()
        elif how == "close":
            client.engine.close(client.peer)
        else:
            client.engine.shutdown()
        await asyncio.sleep(0)
        answer = None if stream.cancelled() else stream.result()
        if how == "shutdown":
            result = client.read("subscriptions/listen", answer)
            assert result["_meta"][f"{KEY}subscriptionId"] == 1
        else:
            assert answer is None
        return client.engine._subscriptions._open, client.engine._clients.all()

    assert asyncio.run(main()) == ([], [])


@pytest.mark.parametrize(
    "notifications",
    [
        5,
        {"resourceSubscriptions": 5},
        {"resourceSubscriptions": [5]},
        {"resourceSubscriptions": ["x"] * 2_000},
    ],
)
def test_a_listener_with_odd_wishes_is_refused(serve, desk, catalog, notifications):
    """style.md: bounded; MCP specification 2026-07-28, schema."""
    client = desk(serve(echo, catalog=catalog), MODERN)
    assert client.now("subscriptions/listen", {"notifications": notifications})["error"]["code"] == -32602
