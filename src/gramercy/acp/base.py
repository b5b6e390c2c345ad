"""What the protocol needs of those who join it to an agent, and how the messages of an editor are read.

Nothing here knows how an agent gets its tools, or what an editor shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from gramercy.mcp.jsonrpc import invalid_params

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
    from contextlib import AbstractContextManager

    from gramercy.agents.agent import Agent
    from gramercy.agents.base import AgentEvent, Limits, Response, Talk
    from gramercy.agents.mentions import Mentions
    from gramercy.execution.approval import ApprovalHandler
    from gramercy.gram.agents import ModelName
    from gramercy.journal.sessions import Sessions
    from gramercy.providers.base import Message, Provider
    from gramercy.tools.library import ToolLibrary
    from gramercy.tools.tool import Tool
    from gramercy.toolsets.workspace import Workspace

# The only version that there is of the stable protocol.
PROTOCOL = 1
# The code for a request that its sender has called off.
CANCELLED = -32800
S = TypeVar("S", bound=msgspec.Struct)


class Mode(Protocol):
    """How much a person wants to be asked: `ask`, `plan` and others."""

    @property
    def value(self) -> str:
        """The name of the mode."""

    @property
    def does(self) -> str:
        """What the mode does, in one line."""


class Place(Protocol):
    """An agent at work in one directory, with its tools, the guard and a model."""

    @property
    def project(self) -> str:
        """The directory that it works in."""

    @property
    def agent(self) -> Agent:
        """The agent as it runs now."""

    @property
    def library(self) -> ToolLibrary:
        """The implementations of tools."""

    @property
    def workspace(self) -> Workspace | None:
        """The files that the tools work on, if they do."""

    def provider(self, model: ModelName) -> Provider:
        """Return the provider of a model."""

    def use_model(self, name: str) -> None:
        """Let another model answer from now on; a GramercyError says why it cannot."""

    def mentions(self, conversation: Callable[[], Sequence[Message]]) -> Mentions:
        """Return what resolves the mentions of a message."""

    def use_mode(self, mode: Any) -> None:
        """Ask as much as a mode of the host says from now on."""

    def add_tools(self, tools: Iterable[Tool]) -> list[str]:
        """Let the agent use tools of other servers too; return what cannot be used, and why."""

    def stream(
        self,
        message: str | None,
        conversation: Sequence[Message] | Response | None = None,
        *,
        talk: Talk | None = None,
        limits: Limits | None = None,
    ) -> AsyncGenerator[AgentEvent, None]:
        """Run the agent on a message; the last event is Finished."""

    async def aclose(self) -> None:
        """Let the providers go."""


class Rewinding(Protocol):
    """The points of a conversation that can be gone back to, with image and files."""

    def mark(self, messages: int) -> None:
        """Note where things stand before a message; that may start an image."""

    def forget(self) -> None:
        """Begin with another conversation."""

    def back(self, left: int, said: Sequence[Message], states: dict[str, str]) -> list[str]:
        """Take back what came of the last message, after the talk; return what is to be told."""


class Host(Protocol):
    """Who opens places for the sessions of an editor, and remembers what was said in them."""

    @property
    def agent(self) -> str:
        """The name of the agent."""

    @property
    def sessions(self) -> Sessions:
        """The conversations of all places."""

    @property
    def modes(self) -> Sequence[Mode]:
        """The modes that a person can choose from, the usual one first."""

    def rewinding(self, place: Any) -> Rewinding:
        """Return what takes back what was done in a place."""

    def open(
        self, project: str, approver: ApprovalHandler, tell: Callable[[str], object]
    ) -> AbstractContextManager[Place]:
        """Give a place in this directory, whose calls this handler is asked about; it ends with the block.

        `tell` gets what the person should know about it.
        """


class EnvVariable(msgspec.Struct, frozen=True):
    """A variable for the program of a server; also a header for the address of one."""

    name: str
    value: str


class ServerWords(msgspec.Struct, frozen=True):
    """An MCP server that the editor hands over: a program, or an address."""

    name: str
    type: str = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[EnvVariable, ...] = ()
    url: str = ""
    headers: tuple[EnvVariable, ...] = ()


class InitializeParams(msgspec.Struct, frozen=True, rename="camel"):
    """`initialize`; versions are numbers from 0 to 65535."""

    protocol_version: int
    client_capabilities: dict[str, Any] | None = None
    client_info: dict[str, Any] | None = None


class NewParams(msgspec.Struct, frozen=True, rename="camel"):
    """`session/new`."""

    cwd: str
    mcp_servers: tuple[ServerWords, ...] = ()


class LoadParams(msgspec.Struct, frozen=True, rename="camel"):
    """`session/load`, `session/resume` and `session/fork`."""

    session_id: str
    cwd: str
    mcp_servers: tuple[ServerWords, ...] = ()


class SessionParams(msgspec.Struct, frozen=True, rename="camel"):
    """`session/cancel`, `session/close` and `session/delete`."""

    session_id: str


class ListParams(msgspec.Struct, frozen=True, rename="camel"):
    """`session/list`; `cursor` is where the last page ended."""

    cwd: str | None = None
    cursor: str | None = None


class PromptParams(msgspec.Struct, frozen=True, rename="camel"):
    """`session/prompt`."""

    session_id: str
    prompt: tuple[dict[str, Any], ...]


class ModeParams(msgspec.Struct, frozen=True, rename="camel"):
    """`session/set_mode`."""

    session_id: str
    mode_id: str


def read_params(params: Any, kind: type[S]) -> S:
    """Return parameters as their type has them, or raise ProtocolError saying what is wrong."""
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        raise invalid_params(str(error)) from None
