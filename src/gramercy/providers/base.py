"""The questions to a model and its answers, the same for every provider.

A provider streams text as it comes, complete calls, and at last why the model stopped. Without that last
event an answer is incomplete, and none of its calls may run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Role: TypeAlias = Literal["user", "assistant", "tool"]
# `length`: the model was cut off by its limit of tokens, so its last call may be incomplete.
StopReason: TypeAlias = Literal["end", "calls", "length", "refused", "other"]


class ModelCall(msgspec.Struct, frozen=True):
    """A call as the model wrote it: its arguments are text, which may not be JSON."""

    id: str
    name: str
    arguments: str = "{}"


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a conversation.

    A message of the assistant may have `calls`. A message of a tool answers the call with `call_id`, and says
    whether it failed. If that call still waited for a person, `awaiting` is its key in the journal.
    """

    role: Role
    text: str = ""
    calls: tuple[ModelCall, ...] = ()
    call_id: str = ""
    is_error: bool = False
    awaiting: int = 0


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens as the provider counts them.

    Of the tokens in `input`, `cached` were read from the provider's cache and `cache_written` were written to
    it.
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
    """A tool in the form that a model gets."""

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
    """The next piece of a model's reasoning; it is not part of its answer."""

    text: str


class CallPart(msgspec.Struct, frozen=True):
    """A complete call."""

    call: ModelCall


class UsagePart(msgspec.Struct, frozen=True):
    """The tokens of the answer so far; the last part counts."""

    usage: Usage


class StopPart(msgspec.Struct, frozen=True):
    """The model has stopped; always the last part."""

    reason: StopReason


Part: TypeAlias = TextPart | ThoughtPart | CallPart | UsagePart | StopPart


class Provider(Protocol):
    """A service that runs models. It may be asked several questions concurrently, on one event loop."""

    @property
    def name(self) -> str:
        """The name before the slash of a model's name, as a person writes it."""

    def chat(self, request: Request) -> AsyncIterator[Part]:
        """Stream the answer to one question; ProviderError says what went wrong.

        The provider retries by itself, and only before the first part, so that no text comes twice.
        """

    async def aclose(self) -> None:
        """Close the connections."""
