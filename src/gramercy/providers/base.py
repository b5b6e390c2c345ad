"""What is said to a model and what comes back, the same for every provider.

A provider streams: text as it comes, calls whole, and at last why the model stopped. What came without that
last event is half an answer, and none of its calls may run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Role: TypeAlias = Literal["user", "assistant", "tool"]
# `length`: the model was cut off by its limit of tokens, so that its last call may be half of one.
StopReason: TypeAlias = Literal["end", "calls", "length", "refused", "other"]


class ModelCall(msgspec.Struct, frozen=True):
    """A call as the model wrote it: its arguments are text, which may not be JSON."""

    id: str
    name: str
    arguments: str = "{}"


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a conversation.

    An assistant's may have `calls`; a tool's answers the one with `call_id`, and says whether it failed. If
    that one still waited for a person, `awaiting` is its key in the journal.
    """

    role: Role
    text: str = ""
    calls: tuple[ModelCall, ...] = ()
    call_id: str = ""
    is_error: bool = False
    awaiting: int = 0


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens as the provider counts them.

    Of those of `input`, `cached` were read from its cache and `cache_written` were written there.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_written: int = 0

    @property
    def total(self) -> int:
        """All tokens, in and out."""
        return self.input + self.output

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.cache_written + other.cache_written,
        )


class OfferedTool(msgspec.Struct, frozen=True):
    """A tool as a model is told of it."""

    name: str
    description: str
    parameters: dict[str, Any]


class Request(msgspec.Struct, frozen=True):
    """One question to a model; `model` is the id without its provider."""

    model: str
    messages: tuple[Message, ...]
    instruction: str = ""
    tools: tuple[OfferedTool, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None


class TextPart(msgspec.Struct, frozen=True):
    """The next piece of text."""

    text: str


class ThoughtPart(msgspec.Struct, frozen=True):
    """The next piece of what a model thinks aloud; it is no part of its answer."""

    text: str


class CallPart(msgspec.Struct, frozen=True):
    """A whole call."""

    call: ModelCall


class UsagePart(msgspec.Struct, frozen=True):
    """What the answer has cost so far, in tokens; the last one counts."""

    usage: Usage


class StopPart(msgspec.Struct, frozen=True):
    """The model has stopped; always the last one."""

    reason: StopReason


Part: TypeAlias = TextPart | ThoughtPart | CallPart | UsagePart | StopPart


class Provider(Protocol):
    """Who runs models. It may be asked several questions at the same time, on one event loop."""

    @property
    def name(self) -> str:
        """The name before the slash of a model's name, as a person writes it."""

    def chat(self, request: Request) -> AsyncIterator[Part]:
        """Stream the answer to one question; ProviderError says what went wrong.

        Trying again is the provider's own business, and only before the first part: nothing is said twice.
        """

    async def aclose(self) -> None:
        """Let connections go."""
