"""Late binding: find every tool that an agent and its nested agents specify in a library before they run.

A nested agent is a tool as well, from one text to another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import AgentError, BindingError
from gramercy.gram.agents import DEEPEST_AGENT, AgentSpecification
from gramercy.text import cut
from gramercy.tools.library import ToolLibrary, bound
from gramercy.tools.safety import Safety
from gramercy.tools.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

# The length of the description of an agent that does not describe itself.
LONGEST_DESCRIPTION = 300
# The limits of a run end its nested agents; the tool itself waits for a day, as an open question does.
NESTED_SECONDS = 86_400.0
MESSAGE_SCHEMA = {
    "type": "object",
    "properties": {"message": {"type": "string", "description": "What you ask of the agent."}},
    "required": ["message"],
    "additionalProperties": False,
}


class BoundAgent(msgspec.Struct, frozen=True):
    """An agent with the implementations of its tools, and its nested agents likewise."""

    agent: AgentSpecification
    tools: tuple[Tool, ...]
    agents: tuple[BoundAgent, ...] = ()

    @property
    def is_safe(self) -> bool:
        """Whether everything that it can do is safe."""
        own = all(tool.safety_level is Safety.SAFE for tool in self.tools)
        return own and all(agent.is_safe for agent in self.agents)

    def all_agents(self) -> Iterator[AgentSpecification]:
        """Yield the agent and all agents nested in it."""
        yield self.agent
        for nested in self.agents:
            yield from nested.all_agents()


def bind_agent(agent: AgentSpecification, library: ToolLibrary) -> BoundAgent:
    """Bind an agent and everything inside of it, or raise BindingError with every mismatch."""
    faults = list(_faults(agent, library, (agent.name,)))
    if faults:
        raise BindingError("\n".join(["not every tool can be bound:", *(f"- {fault}" for fault in faults)]))
    return _bound(agent, library)


def _faults(agent: AgentSpecification, library: ToolLibrary, path: tuple[str, ...]) -> Iterator[str]:
    if len(path) > DEEPEST_AGENT:
        raise AgentError(f"agents are nested deeper than {DEEPEST_AGENT} levels: {' > '.join(path[:3])} > …")
    where = "".join(f"{name} > " for name in path[1:])
    for specification in agent.tools:
        for mismatch in library.explain_binding(specification):
            yield f"{where}{specification.name}: {mismatch}"
    for nested in agent.agents:
        if nested.name in path:
            raise AgentError(f"agents use each other in a circle: {' > '.join((*path, nested.name))}")
        yield from _faults(nested, library, (*path, nested.name))


def _bound(agent: AgentSpecification, library: ToolLibrary) -> BoundAgent:
    tools = tuple(bound(specification, library[specification.name]) for specification in agent.tools)
    return BoundAgent(agent, tools, tuple(_bound(nested, library) for nested in agent.agents))


def agent_tool(agent: AgentSpecification, ask: Callable[[str], Awaitable[str]]) -> Tool:
    """Make the tool that asks a nested agent: safe itself, since each call of the agent is guarded."""
    described = agent.description or f"Ask the agent {agent.name}, who is told: {agent.instruction}"

    async def handler(arguments: dict[str, Any]) -> str:
        return await ask(arguments["message"])

    return Tool(
        agent.name,
        cut(described, LONGEST_DESCRIPTION),
        MESSAGE_SCHEMA,
        handler,
        deadline=NESTED_SECONDS,
        open_world=True,
    )
