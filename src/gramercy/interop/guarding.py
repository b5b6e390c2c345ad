"""The part that agents of other libraries share when they call our tools: the guard, and who calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gramercy.execution.executor import Executor
from gramercy.tools.context import Call, current_call, enter_call, leave_call
from gramercy.tools.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gramercy.execution.calls import ToolResult
    from gramercy.tools.tool import Tool


class LibraryCall(Call):
    """A call by the agent of another library; everything else is as for the code around the agent."""

    __slots__ = ("_client", "_outer", "_session")

    def __init__(self, client: str, session: str) -> None:
        self._client, self._session, self._outer = client, session, current_call()

    @property
    def client(self) -> str:
        """The name of the library."""
        return self._client

    @property
    def session(self) -> str:
        """The library's name of the run."""
        return self._session or self._outer.session

    @property
    def principal(self) -> str:
        """The person or program for whom the agent runs."""
        return self._outer.principal

    @property
    def project(self) -> str:
        """The directory that the call is about."""
        return self._outer.project


class Guarded:
    """Tools behind the guard of an executor.

    If it is given tools instead of an executor, dangerous tools are denied: no person can be asked.
    """

    def __init__(self, tools: Executor | Registry | Mapping[str, Tool] | Iterable[Tool], client: str) -> None:
        self.executor = executor_of(tools)
        self.client = client

    def tools(self) -> list[Tool]:
        """List the tools that an agent may see."""
        return self.executor.tools()

    def call(self, call_id: str, name: str, arguments: Any, session: str = "") -> ToolResult:
        """Make a call; arguments may be JSON text."""
        token = enter_call(LibraryCall(self.client, session))
        try:
            return self.executor.execute({"id": call_id, "name": name, "arguments": arguments})
        finally:
            leave_call(token)

    async def acall(self, call_id: str, name: str, arguments: Any, session: str = "") -> ToolResult:
        """Make a call without blocking the event loop."""
        token = enter_call(LibraryCall(self.client, session))
        try:
            return await self.executor.aexecute({"id": call_id, "name": name, "arguments": arguments})
        finally:
            leave_call(token)


def executor_of(tools: Executor | Registry | Mapping[str, Tool] | Iterable[Tool]) -> Executor:
    """Return the executor, or a new one for the given tools."""
    if isinstance(tools, Executor):
        return tools
    if isinstance(tools, Registry):
        return Executor(tools)
    return Executor(Registry(tools.values() if isinstance(tools, Mapping) else tools))
