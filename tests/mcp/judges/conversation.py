"""Talk to a server with the official Python client and print what it said, as one JSON object.

Usage: python conversation.py legacy|modern URL | COMMAND ARGUMENT…; it is run by the judges' own Python, and
the answers are the ones that conversation.mjs gives.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters

BOUND = 30
REPLIES: dict[str, dict[str, Any]] = {
    "approved": {"action": "accept", "content": {"decision": "approve"}},
    "denied": {"action": "accept", "content": {"decision": "deny", "reason": "it is full"}},
    "declined": {"action": "decline"},
    "dismissed": {"action": "cancel"},
}


class Judge:
    """A person at a client: answers what is asked and notices what changes."""

    def __init__(self) -> None:
        self.reply: dict[str, Any] | None = None
        self.noticed = asyncio.Event()
        self.progress: list[float] = []

    async def elicit(self, _context: Any, params: Any) -> types.ElicitResult:
        filled = {
            "action": "accept",
            "content": dict.fromkeys(params.requested_schema["properties"], "Alice"),
        }
        return types.ElicitResult(**(self.reply or filled))

    async def sample(self, _context: Any, _params: Any) -> types.CreateMessageResult:
        text = types.TextContent(type="text", text="Paris")
        return types.CreateMessageResult(role="assistant", content=text, model="judge", stop_reason="endTurn")

    async def roots(self, _context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///home", name="home")])

    async def note(self, step: float, _total: float | None, _message: str | None) -> None:
        self.progress.append(step)

    async def hear(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.noticed.set()


def text(result: types.CallToolResult) -> str:
    return "|".join(getattr(block, "text", getattr(block, "mime_type", "")) for block in result.content)


async def refused(waited: Any) -> dict[str, Any] | None:
    try:
        await waited
    except MCPError as error:
        return {"code": error.error.code, "message": error.error.message}
    return None


async def dangerous(client: Client) -> list[Any]:
    result = await client.call_tool("test_dangerous_tool", {"what": "the moon"})
    return [result.is_error, text(result)]


async def look(client: Client) -> dict[str, Any]:
    """Read everything that is no tool."""
    prompt = await client.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
    reference = types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
    completion = await client.complete(reference, {"name": "arg1", "value": "pa"})
    return {
        "version": client.protocol_version,
        "tools": [tool.name for tool in (await client.list_tools()).tools],
        "resource": (await client.read_resource("test://static-text")).contents[0].text,
        "template": (await client.read_resource("test://template/7/data")).contents[0].text,
        "missing": await refused(client.read_resource("test://nowhere")),
        "prompt": prompt.messages[0].content.text,
        "completion": completion.completion.values,
    }


async def use(client: Client, judge: Judge) -> dict[str, Any]:
    """Call tools of every kind."""

    async def call(name: str, arguments: dict[str, Any] | None = None, **options: Any) -> Any:
        return await client.call_tool(name, arguments or {}, **options)

    return {
        "text": text(await call("test_simple_text")),
        "picture": text(await call("test_image_content")),
        "mixed": [block.type for block in (await call("test_multiple_content_types")).content],
        "failed": (await call("test_error_handling")).is_error,
        "invalid": (await call("test_sampling", {"prompt": 7})).is_error,
        "unknown": await refused(call("no_such_tool")),
        "greeting": text(await call("test_input_required_result_elicitation")),
        "capital": text(await call("test_input_required_result_sampling")),
        "roots": text(await call("test_input_required_result_list_roots")),
        "rounds": text(await call("test_input_required_result_multi_round")),
        "worked": text(await call("test_tool_with_progress", progress_callback=judge.note)),
        "progress": judge.progress,
    }


async def watch(client: Client, judge: Judge, era: str) -> bool:
    """Change the list of tools and wait for the news of it."""
    if era == "legacy":
        await client.call_tool("test_trigger_tool_change")
        await asyncio.wait_for(judge.noticed.wait(), BOUND)
    else:
        async with client.listen(tools_list_changed=True) as news:
            await client.call_tool("test_trigger_tool_change")
            await asyncio.wait_for(anext(aiter(news)), BOUND)
    return any(tool.name == "test_changing_tool" for tool in (await client.list_tools()).tools)


async def main(era: str, target: str, *arguments: str) -> None:
    is_address = target.startswith("http")
    server = target if is_address else StdioServerParameters(command=target, args=list(arguments))
    mode = "2026-07-28" if era == "modern" else "legacy"
    judge = Judge()
    async with Client(
        server,
        mode=mode,
        elicitation_callback=judge.elicit,
        sampling_callback=judge.sample,
        list_roots_callback=judge.roots,
        message_handler=judge.hear,
    ) as client:
        said = {**await look(client), **await use(client, judge)}
        for name, reply in REPLIES.items():
            judge.reply = reply
            said[name] = await dangerous(client)
        said["noticed"] = await watch(client, judge, era)
    async with Client(server, mode=mode) as mute:
        said["unasked"] = await dangerous(mute)
    print(json.dumps(said))  # noqa: T201 - this is what the test reads


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
