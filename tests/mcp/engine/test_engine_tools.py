"""tools/list and tools/call in every revision."""

import asyncio
import json

import pytest

from gramercy import Executor, Policy, Registry, ToolOutput, define_tool, tool
from gramercy.mcp.engine import Engine
from gramercy.tools.content import AudioBlock, ImageBlock, ResourceBlock, ResourceLink, TextBlock
from gramercy.tools.safety import Safety

MODERN = "2026-07-28"


@tool(inline=True)
def echo(text: str) -> str:
    """Return the text."""
    return text


@tool
async def slow_echo(text: str) -> str:
    """Return the text, a moment later."""
    await asyncio.sleep(0)
    return text


@tool
def threaded_echo(text: str) -> str:
    """Return the text from a thread."""
    return text


@tool(safety_level="cautious", categories=["files"])
def touch(path: str) -> str:
    """Touch a file."""
    return path


@tool(safety_level="dangerous", categories=["files"])
def wipe(path: str) -> str:
    """Wipe a file."""
    return path


@pytest.mark.parametrize("name", ["echo", "slow_echo", "threaded_echo"])
def test_a_call_returns_its_text_in_every_revision(serve, desk, version, text_of, name):
    """Seed 003, Success Response Format."""

    async def main():
        client = desk(serve(echo, slow_echo, threaded_echo), version)
        return await client.call(name, {"text": "=> 6"})

    result = asyncio.run(main())
    assert text_of(result) == "=> 6"
    assert result["isError"] is False
    assert result.get("resultType") == ("complete" if version == MODERN else None)


def test_a_call_that_needs_not_wait_is_answered_without_a_task(serve, desk, version):
    """performance.md: no task on the fast path."""

    async def main():
        client = desk(serve(echo), version)
        before = asyncio.all_tasks()
        result = client.now("tools/call", {"name": "echo", "arguments": {"text": "hi"}})
        assert asyncio.all_tasks() == before
        return result

    assert asyncio.run(main())["content"] == [{"type": "text", "text": "hi"}]


def test_the_answer_to_the_seeds_example_is_the_seeds_example(serve, desk):
    """Seed 003, Example Request and Success Response Format."""
    evaluate = define_tool(
        "evaluate_lisp",
        "Evaluate.",
        [{"name": "code", "type": "string", "description": "Code"}],
        required=["code"],
        handler=lambda a: "=> 6" if a["code"] == "(+ 1 2 3)" else "",
        inline=True,
    )
    client = desk(serve(evaluate), "2025-11-25")
    request = {
        "jsonrpc": "2.0",
        "id": 3,
        "method": "tools/call",
        "params": {"name": "evaluate-lisp", "arguments": {"code": "(+ 1 2 3)"}},
    }
    assert json.loads(client.raw(json.dumps(request))) == {
        "jsonrpc": "2.0",
        "id": 3,
        "result": {"content": [{"type": "text", "text": "=> 6"}], "isError": False},
    }


def test_an_unknown_tool_is_invalid_params(serve, desk, version):
    """Seed 003, Protocol Errors."""
    error = desk(serve(echo), version).now("tools/call", {"name": "ecko", "arguments": {}})["error"]
    assert (error["code"], error["message"]) == (-32602, "Unknown tool: ecko\nDid you mean echo?")
    assert error["data"] == {"didYouMean": ["echo"]}


def test_invalid_arguments_are_an_error_that_the_model_can_repair(serve, desk, version, text_of):
    """Decision 8."""
    result = desk(serve(echo), version).now("tools/call", {"name": "echo", "arguments": {"txt": 1}})
    assert result["isError"] is True
    assert "did you mean text?" in text_of(result)


def test_a_strict_server_answers_invalid_arguments_with_invalid_params(serve, desk, version):
    """Seed 003, Protocol Errors; decision 8."""
    error = desk(serve(echo, strict=True), version).now("tools/call", {"name": "echo", "arguments": {}})
    assert error["error"]["code"] == -32602
    assert error["error"]["message"].startswith("Invalid arguments for echo (1 fault)")


def test_a_strict_server_still_shows_the_failures_of_tools(serve, desk):
    """Seed 003, Tool Execution Errors."""
    broken = define_tool("broken", "Fail.", [], handler=lambda _: ToolOutput(None, error="no"), inline=True)
    result = desk(serve(broken, strict=True), MODERN).now("tools/call", {"name": "broken"})
    assert result["isError"] is True


@pytest.mark.parametrize("params", [{}, {"name": 5}, {"name": ""}, {"name": "echo", "arguments": []}])
def test_a_call_of_the_wrong_shape_is_invalid_params(serve, desk, version, params):
    """Decision 8."""
    assert desk(serve(echo), version).now("tools/call", params)["error"]["code"] == -32602


def test_listings_are_alphabetical_and_say_what_the_guard_will_do(serve, desk, version):
    """mcp.md, checklist 3 and 6."""
    listed = desk(serve(wipe, echo, touch), version).now("tools/list")["tools"]
    assert [entry["name"] for entry in listed] == ["echo", "touch", "wipe"]
    assert listed[0]["annotations"] == {
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }
    assert listed[1]["_meta"] == {
        "gramercy/safety": "cautious",
        "gramercy/approval": "allow",
        "gramercy/categories": ["files"],
    }
    assert listed[2]["_meta"]["gramercy/approval"] == "ask"
    assert listed[2]["annotations"]["destructiveHint"] is True


def test_pages_of_a_listing_hold_everything_once(serve, desk, version):
    """MCP specification, Pagination."""
    tools = [define_tool(f"tool_{n:03}", "Do.", [], handler=lambda _: "") for n in range(25)]
    client = desk(serve(*tools, page_size=10), version)
    names: list[str] = []
    params: dict[str, str] = {}
    pages = 0
    while pages < 10:
        page = client.now("tools/list", params)
        names += [entry["name"] for entry in page["tools"]]
        pages += 1
        if "nextCursor" not in page:
            break
        params = {"cursor": page["nextCursor"]}
    assert (pages, names) == (3, [f"tool_{n:03}" for n in range(25)])


@pytest.mark.parametrize("cursor", ["", "x", "LTE=", "MA==", "OTk5OTk5OQ==", 5, {}, "é"])
def test_a_cursor_that_was_never_given_is_refused(serve, desk, cursor):
    """MCP specification, Pagination, Error Handling."""
    error = desk(serve(echo), "2025-11-25").now("tools/list", {"cursor": cursor})["error"]
    assert error["code"] == -32602


def test_a_listing_is_encoded_once_until_something_changes(desk):
    """performance.md: a pre-encoded tool list invalidated by a generation counter."""
    registry = Registry([echo])
    executor = Executor(registry)
    client = desk(Engine(executor, name="s", version="1"), "2025-11-25")
    assert len(client.now("tools/list")["tools"]) == 1
    registry.register(wipe)
    assert client.now("tools/list")["tools"][1]["_meta"]["gramercy/approval"] == "ask"
    executor.policy = Policy([{"action": "allow", "tools": ["wipe"]}])
    assert client.now("tools/list")["tools"][1]["_meta"]["gramercy/approval"] == "allow"
    executor.policy = Policy([{"action": "allow", "tools": ["wipe"], "arguments": {"path": "x*"}}])
    assert client.now("tools/list")["tools"][1]["_meta"]["gramercy/approval"] == "depends"


def test_a_ceiling_hides_tools_and_refuses_their_calls(serve, desk, version):
    """guard.md, Policy: a ceiling hides and refuses what is above it."""
    engine = serve(echo, touch, wipe, max_safety="cautious")
    client = desk(engine, version, ceiling=Safety.SAFE)
    assert [entry["name"] for entry in client.now("tools/list")["tools"]] == ["echo"]
    error = client.now("tools/call", {"name": "touch", "arguments": {"path": "x"}})["error"]
    reason = "touch is cautious, and this client may use tools up to safe"
    assert (error["code"], error["message"]) == (-32602, f"Unknown tool: touch\n{reason}")
    assert error["data"] == {"reason": reason}
    names = [entry["name"] for entry in desk(engine, version).now("tools/list")["tools"]]
    assert names == ["echo", "touch"]


def test_only_tools_of_the_chosen_categories_are_served(serve, desk):
    """contracts.md, get-agent-q-tools."""
    client = desk(serve(echo, touch, categories=[":files"]), MODERN)
    assert [entry["name"] for entry in client.now("tools/list")["tools"]] == ["touch"]
    said = client.now("tools/call", {"name": "echo"})["error"]["message"]
    assert said == "Unknown tool: echo\necho is in none of the categories that this server shows"


PICTURE = ToolOutput(
    "shown",
    blocks=(
        ImageBlock(b"\x89PNG", "image/png"),
        AudioBlock(b"RIFF", "audio/wav"),
        ResourceBlock("test://a", "text", "text/plain"),
        ResourceBlock("test://b", b"\x00"),
        ResourceLink("test://c", "c", "the third"),
        TextBlock("end", {"priority": 1.0}),
    ),
    structured={"n": 1},
)


def test_blocks_follow_the_text_in_the_words_of_each_revision(serve, desk, version):
    """mcp.md, checklist 5: the text is always sufficient."""
    show = define_tool("show", "Show.", [], handler=lambda _: PICTURE, inline=True)
    result = desk(serve(show), version).now("tools/call", {"name": "show"})
    kinds = [block["type"] for block in result["content"]]
    audio = "audio" if version >= "2025-03-26" else "text"
    link = "resource_link" if version >= "2025-06-18" else "text"
    assert kinds == ["text", "image", audio, "resource", "resource", link, "text"]
    assert result["content"][1]["data"] == "iVBORw=="
    assert result["content"][4]["resource"] == {"uri": "test://b", "blob": "AA=="}
    assert ("structuredContent" in result) is (version >= "2025-06-18")


def test_a_value_of_none_leaves_only_the_blocks(serve, desk, version):
    """gramercy.tools.content, ToolOutput."""
    output = ToolOutput(None, blocks=(ImageBlock(b"\x89PNG", "image/png"),))
    show = define_tool("show", "Show.", [], handler=lambda _: output, inline=True)
    result = desk(serve(show), version).now("tools/call", {"name": "show"})
    assert [block["type"] for block in result["content"]] == ["image"]


def test_blocks_do_not_change_the_text_of_other_callers():
    """Decision 5: content is always a string."""
    show = define_tool("show", "Show.", [], handler=lambda _: PICTURE)
    result = Executor(Registry([show])).execute({"id": "1", "name": "show", "arguments": {}})
    assert result.content == "shown"
    assert result.metadata["structured"] == {"n": 1}


def test_a_result_that_cannot_be_written_is_an_internal_error(serve, desk, version):
    """style.md, the MCP server's door: never a traceback, never silence."""
    output = ToolOutput("x", structured={"a": object()})
    odd = define_tool("odd", "Be odd.", [], handler=lambda _: output, inline=True)

    @tool
    async def later() -> ToolOutput:
        """Be odd later."""
        return output

    async def main():
        client = desk(serve(odd, later), version)
        return [(await client.call(name)).get("error") for name in ("odd", "later")]

    expected = {"code": -32603, "message": "Internal error"} if version >= "2025-06-18" else None
    assert asyncio.run(main()) == [expected, expected]
