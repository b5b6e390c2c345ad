"""The options of an agent's run, its events, and its response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from gramercy.errors import AgentError
from gramercy.execution.calls import ToolResult  # noqa: TC001 - msgspec reads the types
from gramercy.providers.base import Message, ModelCall, StopReason, TextPart, ThoughtPart, Usage
from gramercy.tools.values import is_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gramercy.agents.prices import Prices

# As in pattern-agent and Agent-Q: ten questions to the model for one message.
MOST_TURNS = 10
# Five calls per turn; a model that makes more is looping.
MOST_CALLS = 50
# A tool that takes longer is cancelled, unless it has a deadline of its own.
TOOL_SECONDS = 30.0
# Ten questions of 30,000 tokens each at three dollars per million tokens: a run seldom costs more.
MOST_COST = 1.0


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one run may use, including its nested agents; None means no limit.

    `seconds` is wall-clock time, including waits for a person. `tokens` counts input and output, `cost` is in
    US dollars; both are checked before each question, so that one answer may exceed them. `session_cost` is
    for the whole conversation, if it is recorded. `turns` counts for each agent separately. `tool_seconds` is
    for tools that have no deadline of their own.
    """

    turns: int = MOST_TURNS
    calls: int | None = MOST_CALLS
    seconds: float | None = None
    tokens: int | None = None
    cost: float | None = MOST_COST
    tool_seconds: float | None = TOOL_SECONDS
    session_cost: float | None = None

    def __post_init__(self) -> None:
        """Refuse limits that would otherwise fail in the middle of a run."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            wanted = "a whole number" if name in WHOLE else "a number"
            if value is None and name != "turns":
                continue
            if not is_duration(value) or (name in WHOLE and not isinstance(value, int)):
                or_none = "" if name == "turns" else ", or None"
                raise AgentError(f"the limit {name} is {value!r:.50}: expected {wanted} above 0{or_none}")


WHOLE = frozenset({"turns", "calls", "tokens"})


class CallBegun(msgspec.Struct, frozen=True):
    """A call is about to go through the guard; `agent` made it, `depth` agents deep."""

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
    """The model has answered one question; usage, seconds and cost are for this turn.

    `cost` is in US dollars, None if the price of the model is unknown.
    """

    number: int
    usage: Usage
    agent: str = ""
    depth: int = 0
    model: str = ""
    stop: StopReason = "end"
    elapsed: float = 0.0
    cost: float | None = None


class Warned(msgspec.Struct, frozen=True):
    """A message for the person that does not end the run."""

    text: str
    agent: str = ""
    depth: int = 0


class CallMade(msgspec.Struct, frozen=True):
    """A call of a run with its result, in the order in which the model made the calls."""

    call: ModelCall
    result: ToolResult


class Response(msgspec.Struct, frozen=True):
    """The response to a message: the final text, the calls in order, and the whole conversation.

    Usage and cost are for the whole run, including nested agents. With `stop` at `length` the text was cut
    off at the model's limit of tokens.
    """

    content: str
    calls: tuple[CallMade, ...] = ()
    usage: Usage = Usage()
    conversation: tuple[Message, ...] = ()
    turns: int = 0
    elapsed: float = 0.0
    # In US dollars; None if a price is unknown.
    cost: float | None = None
    session: str = ""
    stop: StopReason = "end"
    warnings: tuple[str, ...] = ()


class Finished(msgspec.Struct, frozen=True):
    """The run is over; always the last event."""

    response: Response


# The text of nested agents is not among them: it is the result of their call.
AgentEvent: TypeAlias = TextPart | ThoughtPart | CallBegun | CallEnded | TurnEnded | Warned | Finished


class Talk(Protocol):
    """Records a conversation: every message is recorded before anything is done about it.

    Before it asks, a run sets `model` to the model that answers and `prices` to its prices.
    """

    model: str
    prices: Prices | None

    @property
    def session(self) -> str:
        """The id of the conversation, which its calls name in the journal."""

    def add(self, message: Message, usage: Usage | None = None) -> None:
        """Record the next message, with its usage."""

    def spent(self) -> float:
        """Return the cost of the conversation so far, in US dollars, as far as prices are known."""

    def identity(self, call: ModelCall) -> str:
        """Return the identity by which the journal finds this call after a restart; empty if it need not.

        No other call has it, not even the same call made again, also after messages were taken back:
        otherwise the journal would return the answer of the first call.
        """

    def nested(self, call: ModelCall, agent: str) -> tuple[Talk | None, tuple[Message, ...]]:
        """Return the talk of the nested agent that this call asks, and its earlier messages.

        A run that resumes after a kill also resumes inside the nested agent.
        """

    def waited(self) -> Sequence[tuple[ModelCall, int]]:
        """Return the calls whose result says that they wait for a person, with their keys in the journal.

        This includes calls that a summary has replaced: the model no longer sees them, but they may still
        run.
        """

    def called_at(self) -> float:
        """Return when the latest message with calls was recorded: none of its calls has begun before."""

    def asked(self) -> Iterable[tuple[str, Talk]]:
        """Return the names of nested agents that this conversation has called, each with its talk.

        Return none if no call of theirs can be open.
        """


def history_of(conversation: Sequence[Message] | Response | None) -> tuple[Message, ...]:
    """Return the messages that a run continues from."""
    if isinstance(conversation, Response):
        return conversation.conversation
    messages = tuple(conversation or ())
    others = [type(message).__name__ for message in messages if type(message) is not Message]
    if others:
        raise AgentError(f"a conversation is a Response or a list of Messages; in this one is {others[0]}")
    return messages


def unanswered(messages: Sequence[Message]) -> tuple[ModelCall, ...]:
    """Return the calls of the last answer that have no result, left by a run that was killed."""
    answered = set()
    for message in reversed(messages):
        if message.role == "assistant":
            return tuple(call for call in message.calls if call.id not in answered)
        if message.role != "tool":
            break
        answered.add(message.call_id)
    return ()


def awaited(messages: Iterable[Message]) -> list[tuple[ModelCall, int]]:
    """Return the calls whose result says that they wait for a person, with their keys in the journal."""
    found, calls = [], {}
    for message in messages:
        # Ids come from the model, which may reuse one in a later answer.
        if message.calls:
            calls = {call.id: call for call in message.calls}
        elif message.awaiting and message.call_id in calls:
            found.append((calls[message.call_id], message.awaiting))
    return found
