"""One tool call through each peer's own public paths, arguments validated. Knows nothing of gramercy.

Contexts, managers and servers are made once and reused, which favours the peers: in a real run most of them
are made per call. Asynchronous functions avoid their thread pools; the synchronous rows show that price.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from bench.measure import Contender, repeat_await, repeat_call
from bench.peers import FASTMCP, LANGCHAIN, OPENAI_AGENTS, PYDANTIC_AI

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from bench.peers import Peer

    Loop = asyncio.AbstractEventLoop

ARGUMENTS: dict[str, Any] = {"city": "Lyon", "days": 3}
ANSWER = "Lyon: 3 days"


async def forecast(city: str, days: int) -> str:
    """Tell the weather."""
    return f"{city}: {days} days"


def forecast_sync(city: str, days: int) -> str:
    """Tell the weather."""
    return f"{city}: {days} days"


def openai_agents_calls(loop: Loop) -> list[Contender]:
    """FunctionTool.on_invoke_tool with the arguments as JSON text, the only form it takes."""
    from agents import function_tool
    from agents.tool_context import ToolContext

    text = json.dumps(ARGUMENTS)

    def contender(name: str, function: Callable[..., Any]) -> Contender:
        tool = function_tool(function)
        context = ToolContext(None, tool_name=tool.name, tool_call_id="1", tool_arguments=text)
        assert loop.run_until_complete(tool.on_invoke_tool(context, text)) == ANSWER
        return Contender(name, repeat_await(loop, lambda: tool.on_invoke_tool(context, text)))

    return [
        contender("openai-agents on_invoke_tool", forecast),
        contender("openai-agents on_invoke_tool, sync function", forecast_sync),
    ]


def pydantic_ai_calls(loop: Loop) -> list[Contender]:
    """Use the bare toolset with its validator, and ToolManager: look-up, hooks, retries counted."""
    from pydantic_ai import FunctionToolset, RunContext, RunUsage
    from pydantic_ai.messages import ToolCallPart
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.tool_manager import ToolManager

    toolset: Any = FunctionToolset([forecast, forecast_sync])
    context: Any = RunContext(deps=None, model=TestModel(), usage=RunUsage())
    tools = loop.run_until_complete(toolset.get_tools(context))
    manager = loop.run_until_complete(ToolManager(toolset).for_run_step(context))

    def through_toolset() -> Contender:
        tool = tools["forecast"]

        async def call() -> Any:
            validated = tool.args_validator.validate_python(ARGUMENTS)
            return await toolset.call_tool("forecast", validated, context, tool)

        assert loop.run_until_complete(call()) == ANSWER
        return Contender("pydantic-ai validator + toolset.call_tool", repeat_await(loop, call))

    def through_manager(label: str, name: str) -> Contender:
        part = ToolCallPart(name, ARGUMENTS)

        async def call() -> Any:
            return await manager.execute_tool_call(await manager.validate_tool_call(part))

        assert loop.run_until_complete(call()) == ANSWER
        return Contender(label, repeat_await(loop, call))

    return [
        through_toolset(),
        through_manager("pydantic-ai ToolManager", "forecast"),
        through_manager("pydantic-ai ToolManager, sync function", "forecast_sync"),
    ]


def langchain_calls(loop: Loop) -> list[Contender]:
    """StructuredTool.invoke and ainvoke."""
    from langchain_core.tools import StructuredTool

    tool = StructuredTool.from_function(
        func=forecast_sync, coroutine=forecast, name="forecast", description="Tell the weather."
    )
    assert tool.invoke(ARGUMENTS) == ANSWER
    return [
        Contender("langchain-core StructuredTool.invoke", repeat_call(lambda: tool.invoke(ARGUMENTS))),
        Contender(
            "langchain-core StructuredTool.ainvoke", repeat_await(loop, lambda: tool.ainvoke(ARGUMENTS))
        ),
    ]


def fastmcp_calls(loop: Loop) -> list[Contender]:
    """FunctionTool.run without a server, and FastMCP.call_tool; an in-memory client costs still more."""
    from fastmcp import FastMCP

    logging.getLogger("fastmcp").setLevel(logging.CRITICAL)
    server: Any = FastMCP("bench")
    for function in (forecast, forecast_sync):
        server.tool(function)
    tool = loop.run_until_complete(server.get_tool("forecast"))
    assert loop.run_until_complete(tool.run(ARGUMENTS)).content[0].text == ANSWER

    def call(name: str) -> Callable[[int], None]:
        return repeat_await(loop, lambda: server.call_tool(name, ARGUMENTS))

    return [
        Contender("fastmcp FunctionTool.run", repeat_await(loop, lambda: tool.run(ARGUMENTS))),
        Contender("fastmcp server.call_tool", call("forecast")),
        Contender("fastmcp server.call_tool, sync function", call("forecast_sync")),
    ]


CALLS: dict[Peer, Callable[[Loop], list[Contender]]] = {
    OPENAI_AGENTS: openai_agents_calls,
    PYDANTIC_AI: pydantic_ai_calls,
    LANGCHAIN: langchain_calls,
    FASTMCP: fastmcp_calls,
}
