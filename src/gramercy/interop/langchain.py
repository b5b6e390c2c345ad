"""Our tools for agents of LangChain and LangGraph: `create_agent(model, structured_tools(executor))`."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from gramercy.interop.guarding import Guarded

try:
    from langchain_core.tools import StructuredTool, ToolException
    from pydantic import Field
except ImportError as missing:
    raise ImportError(f"this needs langchain-core ({missing}): pip install 'gramercy[langchain]'") from None

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gramercy.execution.calls import ToolResult
    from gramercy.execution.executor import Executor
    from gramercy.tools.registry import Registry
    from gramercy.tools.tool import Tool

# The model's id of a call; LangChain passes it to `run` and not to the function of a tool.
_call_id: ContextVar[str] = ContextVar("gramercy_langchain_call", default="")


class GuardedTool(StructuredTool):  # type: ignore[misc]  # the library is not read by mypy
    """A tool of ours; its message has the whole result of the call as artifact."""

    # Not part of LangChain's serialized form of a tool.
    guarded: Any = Field(exclude=True, repr=False)

    def run(self, tool_input: Any, *args: Any, tool_call_id: str | None = None, **options: Any) -> Any:
        """Run the tool, and remember the model's id of the call."""
        token = _call_id.set(tool_call_id or "")
        try:
            return super().run(tool_input, *args, tool_call_id=tool_call_id, **options)
        finally:
            _call_id.reset(token)

    async def arun(self, tool_input: Any, *args: Any, tool_call_id: str | None = None, **options: Any) -> Any:
        """Do the same on an event loop."""
        token = _call_id.set(tool_call_id or "")
        try:
            return await super().arun(tool_input, *args, tool_call_id=tool_call_id, **options)
        finally:
            _call_id.reset(token)

    # Neither method names `config` or `run_manager`: a tool of ours may have arguments of these names.
    def _run(self, /, **arguments: Any) -> tuple[str, ToolResult]:
        return _told(self.guarded.call(_call_id.get(), self.name, arguments))

    async def _arun(self, /, **arguments: Any) -> tuple[str, ToolResult]:
        return _told(await self.guarded.acall(_call_id.get(), self.name, arguments))


def _told(result: ToolResult) -> tuple[str, ToolResult]:
    if not result.success:
        raise ToolException(result.content)
    return result.content, result


def structured_tools(
    tools: Executor | Registry | Mapping[str, Tool] | Iterable[Tool],
) -> list[StructuredTool]:
    """Return the tools of an executor, or of a registry or library; every call goes through its guard.

    A denied, refused or failed call gives a message with status `error`, which the model reads.
    """
    guarded = Guarded(tools, "langchain")
    return [
        GuardedTool(
            name=each.name,
            description=each.description,
            args_schema=each.to_schema("anthropic")["input_schema"],
            metadata={"safety_level": each.level_word},
            response_format="content_and_artifact",
            handle_tool_error=True,
            guarded=guarded,
        )
        for each in guarded.tools()
    ]
