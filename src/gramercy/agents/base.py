"""What a run of an agent is given, what it tells while it goes on, and what it gives in the end."""

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

# As pattern-agent and Agent-Q have it: ten questions to the model for one message.
MOST_TURNS = 10
# Five calls a turn; a model that makes more of them goes in circles.
MOST_CALLS = 50
# A tool that takes longer than this is given up, unless it has a deadline of its own.
TOOL_SECONDS = 30.0
# Ten questions of 30,000 tokens each at three dollars for a million of them: a run that costs more is rare.
MOST_COST = 1.0


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one run may use, its nested agents included; None is without limit.

    `seconds` is the time on the clock, with the waits for a person. `tokens` are those that go in and come
    out, `cost` is in US dollars; both are checked before each question, so that one answer may go beyond.
    `session_cost` is that of the whole conversation, where it is kept. `turns` counts for each agent by
    itself. `tool_seconds` is for tools that have no deadline of their own.
    """

    turns: int = MOST_TURNS
    calls: int | None = MOST_CALLS
    seconds: float | None = None
    tokens: int | None = None
    cost: float | None = MOST_COST
    tool_seconds: float | None = TOOL_SECONDS
    session_cost: float | None = None

    def __post_init__(self) -> None:
        """Refuse limits that would only show their fault in the middle of a run."""
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
    """The model has answered one question; usage, seconds and cost are those of this turn.

    `cost` is in US dollars, None when the price of the model is not known.
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
    """Something that the person should know and that does not end the run."""

    text: str
    agent: str = ""
    depth: int = 0


class CallMade(msgspec.Struct, frozen=True):
    """A call of a run with what became of it, in the order in which the model asked."""

    call: ModelCall
    result: ToolResult


class Response(msgspec.Struct, frozen=True):
    """What came of a message: the final text, the calls in order, and the whole conversation.

    Usage and cost are those of the whole run, nested agents included. With `stop` at `length` the text was
    cut off at the model's limit of tokens.
    """

    content: str
    calls: tuple[CallMade, ...] = ()
    usage: Usage = Usage()
    conversation: tuple[Message, ...] = ()
    turns: int = 0
    elapsed: float = 0.0
    # In US dollars; None when a price is not known.
    cost: float | None = None
    session: str = ""
    stop: StopReason = "end"
    warnings: tuple[str, ...] = ()


class Finished(msgspec.Struct, frozen=True):
    """The run is over; always the last event."""

    response: Response


# The text of nested agents is not among them: it comes as the result of their call.
AgentEvent: TypeAlias = TextPart | ThoughtPart | CallBegun | CallEnded | TurnEnded | Warned | Finished


class Talk(Protocol):
    """Who keeps a conversation: every message is there before anything follows from it.

    A run says in `model` who answers and in `prices` what that costs, before it asks.
    """

    model: str
    prices: Prices | None

    @property
    def session(self) -> str:
        """The id of the conversation, which its calls name in the journal."""

    def add(self, message: Message, usage: Usage | None = None) -> None:
        """Keep the next message, with what it cost."""

    def spent(self) -> float:
        """Return what the conversation has cost so far, in US dollars, as far as prices are known."""

    def identity(self, call: ModelCall) -> str:
        """Return by what the journal knows this call again after a restart; empty if it need not.

        No other call has it, nor the same one made again, also when messages were taken back: the journal
        would give it the answer of the first.
        """

    def nested(self, call: ModelCall, agent: str) -> tuple[Talk | None, tuple[Message, ...]]:
        """Return who keeps the talk of a nested agent that this call asks, and what was said in it before.

        A run that goes on after a kill goes on inside of the nested agent as well.
        """

    def waited(self) -> Sequence[tuple[ModelCall, int]]:
        """Return the calls whose result says that they wait for a person, with their keys in the journal.

        Also those that a summary stands for by now: a model is no longer told them, and they still may run.
        """

    def called_at(self) -> float:
        """Return when the latest message with calls was kept: none of them has begun before."""

    def asked(self) -> Iterable[tuple[str, Talk]]:
        """Return the names of nested agents that this conversation has asked, each with its talk.

        None where no call of theirs can be open.
        """


def history_of(conversation: Sequence[Message] | Response | None) -> tuple[Message, ...]:
    """Return the messages that a run goes on from."""
    if isinstance(conversation, Response):
        return conversation.conversation
    messages = tuple(conversation or ())
    others = [type(message).__name__ for message in messages if type(message) is not Message]
    if others:
        raise AgentError(f"a conversation is a Response or a list of Messages; in this one is {others[0]}")
    return messages


def unanswered(messages: Sequence[Message]) -> tuple[ModelCall, ...]:
    """Return the calls of the last answer that have no result: what a run that was killed has left behind."""
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
        # Ids are those of the model, which may give one out again in a later answer.
        if message.calls:
            calls = {call.id: call for call in message.calls}
        elif message.awaiting and message.call_id in calls:
            found.append((calls[message.call_id], message.awaiting))
    return found
