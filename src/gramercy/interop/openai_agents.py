"""Our tools for agents of the OpenAI Agents SDK: `Agent(…, tools=function_tools(executor))`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gramercy.interop.guarding import Guarded

try:
    from agents import FunctionTool
except ImportError as missing:
    raise ImportError(
        f"this needs openai-agents ({missing}): pip install 'gramercy[openai-agents]'"
    ) from None

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agents.tool_context import ToolContext

    from gramercy.execution.executor import Executor
    from gramercy.tools.registry import Registry
    from gramercy.tools.tool import Tool


def function_tools(
    tools: Executor | Registry | Mapping[str, Tool] | Iterable[Tool],
) -> list[FunctionTool]:
    """Return the tools of an executor, or of a registry or library; every call goes through its guard.

    A denied, refused or failed call gives a text that the model reads.
    """
    guarded = Guarded(tools, "openai-agents")
    return [_function_tool(guarded, each) for each in guarded.tools()]


def _function_tool(guarded: Guarded, tool: Tool) -> FunctionTool:
    async def invoke(context: ToolContext[Any], arguments: str) -> str:
        result = await guarded.acall(context.tool_call_id, tool.name, arguments)
        return result.content

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=tool.to_schema("anthropic")["input_schema"],
        on_invoke_tool=invoke,
        # The strict form has no optional arguments; the guard validates all arguments anyway.
        strict_json_schema=False,
    )
