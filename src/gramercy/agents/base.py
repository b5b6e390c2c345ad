"""What a run of an agent is given, what it tells while it goes on, and what it gives in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from gramercy.execution.calls import ToolResult  # noqa: TC001 - msgspec reads the types
from gramercy.providers.base import Message, ModelCall, TextPart, ThoughtPart, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

# As pattern-agent and Agent-Q have it: ten questions to the model for one message.
MOST_TURNS = 10
# Five calls a turn; a model that makes more of them goes in circles.
MOST_CALLS = 50
# A tool that takes longer than this is given up, unless it has a deadline of its own.
TOOL_SECONDS = 30.0


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one run may use; None is without limit. `cost` is in US dollars, for this run alone."""

    turns: int = MOST_TURNS
    calls: int | None = MOST_CALLS
    seconds: float | None = None
    tokens: int | None = None
    cost: float | None = None
    tool_seconds: float | None = TOOL_SECONDS


class CallBegun(msgspec.Struct, frozen=True):
    """A call is about to go through the guard; `agent` asked for it, nested so deep."""

    call: ModelCall
    agent: str = ""
    depth: int = 0


class CallEnded(msgspec.Struct, frozen=True):
    """A call is over: run, refused or failed."""

    call: ModelCall
    result: ToolResult
    agent: str = ""
    depth: int = 0


class TurnEnded(msgspec.Struct, frozen=True):
    """The model has answered one question; `usage` is that of this turn."""

    number: int
    usage: Usage
    agent: str = ""
    depth: int = 0


class CallMade(msgspec.Struct, frozen=True):
    """A call of a run with what became of it, in the order in which the model asked."""

    call: ModelCall
    result: ToolResult


class Response(msgspec.Struct, frozen=True):
    """What came of a message: the final text, the calls in order, and the whole conversation."""

    content: str
    calls: tuple[CallMade, ...] = ()
    usage: Usage = Usage()
    conversation: tuple[Message, ...] = ()
    turns: int = 0
    elapsed: float = 0.0
    # In US dollars; None when a price is not known.
    cost: float | None = None
    session: str = ""


class Finished(msgspec.Struct, frozen=True):
    """The run is over; always the last event."""

    response: Response


AgentEvent: TypeAlias = TextPart | ThoughtPart | CallBegun | CallEnded | TurnEnded | Finished


class Talk(Protocol):
    """Who keeps a conversation: every message is there before anything follows from it."""

    @property
    def session(self) -> str:
        """The id of the conversation, which its calls name in the journal."""

    def add(self, message: Message, usage: Usage | None = None) -> None:
        """Keep the next message, with what it cost."""

    def identity(self, call: ModelCall) -> str:
        """Return by what the journal knows this call again after a restart; empty if it need not."""


def history_of(conversation: Sequence[Message] | Response | None) -> tuple[Message, ...]:
    """Return the messages that a run goes on from."""
    if conversation is None:
        return ()
    return conversation.conversation if isinstance(conversation, Response) else tuple(conversation)
