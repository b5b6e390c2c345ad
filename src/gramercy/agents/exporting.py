"""Conversations as documents: Markdown to read, an object of JSON for programs.

Texts that look like secrets are replaced by dots, unless everything is requested.
"""

from __future__ import annotations

from time import localtime, strftime
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.agents.context import fenced
from gramercy.agents.talks import SUMMARY, calls_of
from gramercy.agents.totals import usage_of
from gramercy.journal.texts import masked

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gramercy.journal.sessions import Message, SessionRecord

# The version of the format; it changes when programs that read it have to change.
FORMAT = 1


def export_json(record: SessionRecord, said: Sequence[Message], *, is_masked: bool = True) -> dict[str, Any]:
    """Return a conversation with all of its messages as plain data."""
    whole = {
        "format": FORMAT,
        **msgspec.structs.asdict(record),
        "said": [msgspec.structs.asdict(message) for message in said],
    }
    return plain_without_secrets(whole) if is_masked else whole


def export_markdown(record: SessionRecord, said: Sequence[Message], *, is_masked: bool = True) -> str:
    """Return a conversation as a document: a heading for each message, calls and results as code."""
    names = call_names(said)
    parts = [f"# {record.title or record.id}", about(record)]
    for message in said:
        parts += [f"## {_heading(message, names)}", *_body(message)]
    text = "\n\n".join(part for part in parts if part) + "\n"
    return masked(text) if is_masked else text


def about(record: SessionRecord) -> str:
    """Say in a sentence who talked with whom, where and since when."""
    with_whom = " ".join(filter(None, [record.agent, f"({record.model})" if record.model else ""]))
    parts = [f"Session {record.id}", f"with {with_whom}" if with_whom else ""]
    parts += [f"in {record.project}" if record.project else "", f"since {_moment(record.at)}"]
    return ", ".join(filter(None, parts))


def call_names(said: Sequence[Message]) -> dict[str, str]:
    """Return the tools of the calls in a conversation, by the ids of the calls."""
    return {call.id: call.name for message in said for call in calls_of(message)}


def speaker(message: Message, names: Mapping[str, str]) -> str:
    """Name the speaker of a message: the person, the model, or a called tool."""
    if message.role == "tool":
        failed = " (failed)" if message.data.get("is_error") else ""
        return f"result of {names.get(message.data.get('call_id', ''), 'a call')}{failed}"
    if message.role == SUMMARY:
        return f"summary of the messages up to {message.data.get('until', 0)}"
    return message.role


def _heading(message: Message, names: Mapping[str, str]) -> str:
    return ", ".join([f"{message.number}. {speaker(message, names)}", _moment(message.at), *_costs(message)])


def _costs(message: Message) -> Iterable[str]:
    if message.data.get("model"):
        yield str(message.data["model"])
    if message.data.get("usage"):
        usage = usage_of(message)
        yield f"{usage.input:,} tokens in, {usage.output:,} out"


def _body(message: Message) -> Iterable[str]:
    if message.fault:
        yield f"(damaged: {message.fault})"
    # Results of tools and pasted texts may contain anything; only models write Markdown on purpose.
    yield fenced(message.text) if message.role == "tool" else message.text
    for call in calls_of(message):
        yield f"calls `{call.name}`\n\n{fenced(call.arguments, 'json')}"


def _moment(at: float) -> str:
    return strftime("%Y-%m-%d %H:%M:%S", localtime(at))


def plain_without_secrets(value: Any) -> Any:
    """Return plain data with dots for texts that look like secrets."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, dict):
        return {name: plain_without_secrets(each) for name, each in value.items()}
    return [plain_without_secrets(each) for each in value] if isinstance(value, list) else value
