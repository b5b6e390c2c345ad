"""Shorten a long conversation: a summary by the model replaces its earlier messages.

The messages stay in the journal; only the model no longer gets them. The latest messages are kept as they
are. Nothing changes unless the summary is complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gramercy.agents.limits import about_tokens, size_of
from gramercy.errors import AgentError
from gramercy.providers.base import Message, Request, StopPart, TextPart, Usage, UsagePart

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gramercy.agents.talks import SessionTalk
    from gramercy.gram.agents import ModelName
    from gramercy.providers.base import Provider

# Messages of the user that are kept, with their answers: the present work.
KEPT_TURNS = 2
# The characters of one message and one result: the rest of a long one is seldom important.
LONGEST_TOLD = 8_000
LONGEST_RESULT = 2_000
LONGEST_ARGUMENTS = 500
# About 125,000 tokens, which the windows of most models have room for; the oldest messages are dropped first.
LONGEST_TRANSCRIPT = 400_000
INSTRUCTION = (
    "You summarize a conversation between a person and an assistant who works with tools, so that the "
    "assistant can go on without the messages. Keep what is needed for that: what the person wants, what was "
    "decided and why, what was done with which result, exact names of files, definitions and commands, "
    "errors that are not solved, and what comes next. Leave out greetings and what was replaced later. "
    "Do not answer the messages and do not add anything. Write plain Markdown of at most a page."
)
ASKED = "Summarize this conversation:\n\n"


class Compacted(msgspec.Struct, frozen=True):
    """The result: the summary, how many messages it replaces, and about how many tokens there are."""

    summary: str
    messages: int
    tokens_before: int
    tokens_after: int
    usage: Usage = Usage()


async def compact(
    talk: SessionTalk, provider: Provider, model: ModelName, *, keep: int = KEPT_TURNS
) -> Compacted:
    """Have the model summarize all but the latest turns of a talk; AgentError if there is no summary."""
    until, older = talk.earlier(keep)
    if not older:
        raise AgentError("there is nothing to summarize yet")
    before = tokens_of(talk.conversation)
    asked = Message("user", ASKED + transcript(older))
    summary, usage = await _asked(provider, Request(model.id, (asked,), INSTRUCTION))
    talk.summarize(summary, until, usage)
    return Compacted(summary, len(older), before, tokens_of(talk.conversation), usage)


async def _asked(provider: Provider, request: Request) -> tuple[str, Usage]:
    parts: list[str] = []
    usage, stop = Usage(), ""
    async for part in provider.chat(request):
        if isinstance(part, TextPart):
            parts.append(part.text)
        elif isinstance(part, UsagePart):
            usage = part.usage
        elif isinstance(part, StopPart):
            stop = part.reason
    text = "".join(parts).strip()
    if stop != "end" or not text:
        why = "it was cut off" if stop in {"", "length"} else "the model gave none"
        raise AgentError(f"the conversation stays as it is: there is no summary, {why}")
    return text, usage


def transcript(messages: Sequence[Message]) -> str:
    """Write messages as a text, long ones cut; the oldest are left out if all would be too long."""
    names = {call.id: call.name for message in messages for call in message.calls}
    told: list[str] = []
    room = LONGEST_TRANSCRIPT
    for message in reversed(messages):
        piece = "\n".join(_lines(message, names))
        room -= len(piece)
        if room < 0:
            told.append(f"[{len(messages) - len(told)} earlier messages are left out]")
            break
        told.append(piece)
    return "\n\n".join(reversed(told))


def _lines(message: Message, names: dict[str, str]) -> Iterable[str]:
    if message.role == "tool":
        failed = ", which failed" if message.is_error else ""
        name = names.get(message.call_id, "a tool")
        yield f"Result of {name}{failed}: {_cut(message.text, LONGEST_RESULT)}"
        return
    if message.text:
        yield f"{message.role.capitalize()}: {_cut(message.text, LONGEST_TOLD)}"
    for call in message.calls:
        yield f"Assistant calls {call.name} with {_cut(call.arguments, LONGEST_ARGUMENTS)}"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}… [{len(text) - longest:,} characters more]"


def tokens_of(messages: Iterable[Message]) -> int:
    """Estimate how many tokens messages take."""
    return about_tokens(sum(map(size_of, messages)))
