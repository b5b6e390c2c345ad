"""The interface between the protocol and an agent's host, and the parsing of an editor's messages.

This module knows neither how an agent gets its tools nor what an editor shows.
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

# The only version of the stable protocol.
PROTOCOL = 1
# The code for a request that its sender has cancelled.
CANCELLED = -32800
S = TypeVar("S", bound=msgspec.Struct)


class Mode(Protocol):
    """How much a person wants to be asked: `ask`, `plan` and others."""

    @property
    def value(self) -> str:
        """The name of the mode."""

    @property
    def does(self) -> str:
        """A description of the mode in one line."""


class Place(Protocol):
    """A working agent in one directory, with its tools, the guard and a model."""

    @property
    def project(self) -> str:
        """The directory that it works in."""

    @property
    def agent(self) -> Agent:
        """The agent in its present form."""

    @property
    def library(self) -> ToolLibrary:
        """The implementations of tools."""

    @property
    def workspace(self) -> Workspace | None:
        """The files that the tools work on, if any."""

    def provider(self, model: ModelName) -> Provider:
        """Return the provider of a model."""

    def use_model(self, name: str) -> None:
        """Use another model from now on; a GramercyError says why it cannot."""

    def mentions(self, conversation: Callable[[], Sequence[Message]]) -> Mentions:
        """Return the resolver of a message's mentions."""

    def use_mode(self, mode: Any) -> None:
        """Ask for approval as this mode of the host says, from now on."""

    def add_tools(self, tools: Iterable[Tool]) -> list[str]:
        """Add tools of other servers; return which cannot be used, and why."""

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
        """Close the providers."""


class Rewinding(Protocol):
    """The points of a conversation that can be restored, with image and files."""

    def mark(self, messages: int) -> None:
        """Note the present state before a message; that may start an image."""

    def forget(self) -> None:
        """Switch to another conversation."""

    def back(self, left: int, said: Sequence[Message], states: dict[str, str]) -> list[str]:
        """Undo the effects of the last message, after the talk was cut; return messages for the person."""


class Host(Protocol):
    """Opens places for the sessions of an editor, and stores their conversations."""

    @property
    def agent(self) -> str:
        """The name of the agent."""

    @property
    def sessions(self) -> Sessions:
        """The conversations of all places."""

    @property
    def modes(self) -> Sequence[Mode]:
        """The modes that a person can choose from, the default first."""

    def rewinding(self, place: Any) -> Rewinding:
        """Return the object that undoes changes in a place."""

    def open(
        self, project: str, approver: ApprovalHandler, tell: Callable[[str], object]
    ) -> AbstractContextManager[Place]:
        """Open a place in this directory, with this approval handler; it ends with the block.

        `tell` gets messages for the person about it.
        """


class EnvVariable(msgspec.Struct, frozen=True):
    """An environment variable for a server's program; also a header for a server's address."""

    name: str
    value: str


class ServerWords(msgspec.Struct, frozen=True):
    """An MCP server that the editor passes on: a program, or an address."""

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
    """`session/list`; `cursor` is the end of the last page."""

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
    """Decode parameters into their type, or raise ProtocolError saying what is wrong."""
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        raise invalid_params(str(error)) from None
