"""Our tools for agents of pydantic-ai: `Agent(…, toolsets=[Toolset(executor)])`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gramercy.interop.guarding import Guarded
from gramercy.tools.safety import Safety

try:
    from pydantic_ai import ToolFailed
    from pydantic_ai.tools import ToolDefinition
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
except ImportError as missing:
    raise ImportError(f"this needs pydantic-ai ({missing}): pip install 'gramercy[pydantic-ai]'") from None

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic_ai import RunContext

    from gramercy.execution.executor import Executor
    from gramercy.tools.registry import Registry
    from gramercy.tools.tool import Tool

# The key of arguments that are not a JSON object; no schema has such a name.
RAW = "\0raw"


class Toolset(AbstractToolset[Any]):  # type: ignore[misc]  # the library is not read by mypy
    """The tools of an executor, or of a registry or library, with every call going through its guard.

    A denied, refused or failed call gives a failed result that the model reads.
    """

    def __init__(
        self,
        tools: Executor | Registry | Mapping[str, Tool] | Iterable[Tool],
        *,
        id: str | None = "gramercy",  # noqa: A002 - as every toolset of the library has it
    ) -> None:
        self._guarded = Guarded(tools, "pydantic-ai")
        self._id = id

    @property
    def id(self) -> str | None:
        """The id of the toolset, unique among those of one agent."""
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Describe the tools that the policy lets an agent see."""
        del ctx
        return {
            each.name: ToolsetTool(
                toolset=self, tool_def=_definition(each), max_retries=0, args_validator=_Unchecked()
            )
            for each in self._guarded.tools()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> str:
        """Send a call through the guard."""
        del tool
        arguments = tool_args.get(RAW, tool_args)
        result = await self._guarded.acall(ctx.tool_call_id or "", name, arguments, ctx.run_id or "")
        if not result.success:
            raise ToolFailed(result.content)
        return result.content


def _definition(tool: Tool) -> ToolDefinition:
    return ToolDefinition(
        name=tool.name,
        description=tool.description,
        parameters_json_schema=tool.to_schema("anthropic")["input_schema"],
        # Calls that are not safe run alone and in the order of the model's answer, as in our own loop.
        sequential=tool.safety_level is not Safety.SAFE,
        metadata={"safety_level": tool.level_word},
    )


class _Unchecked:
    """Lets arguments pass as the model wrote them: the guard validates them and says what is wrong."""

    def validate_json(self, input: str | bytes | bytearray, **_: Any) -> Any:  # noqa: A002 - a protocol's name
        return {RAW: input if isinstance(input, str) else bytes(input)}

    def validate_python(self, input: Any, **_: Any) -> Any:  # noqa: A002 - a protocol's name
        return input if isinstance(input, dict) else {RAW: input}
