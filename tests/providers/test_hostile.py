"""Whatever a service sends, what comes of it is whole parts or an error that says so."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramercy.errors import ProviderError
from gramercy.providers.anthropic import AnthropicProvider
from gramercy.providers.base import CallPart, Message, Request, StopPart, TextPart, ThoughtPart, UsagePart
from gramercy.providers.http import Patience
from gramercy.providers.openai import OpenAIProvider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HELLO = Request("demo", (Message("user", "hi"),))
# The words of both formats, so that what is made up gets far.
WORDS = [
    "choices",
    "delta",
    "message",
    "content",
    "text",
    "tool_calls",
    "function",
    "name",
    "arguments",
    "index",
    "id",
    "finish_reason",
    "usage",
    "prompt_tokens",
    "completion_tokens",
    "prompt_tokens_details",
    "cached_tokens",
    "error",
    "refusal",
    "reasoning",
    "type",
    "content_block",
    "input",
    "partial_json",
    "thinking",
    "stop_reason",
    "code",
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
]
TYPES = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "message_delta",
    "message_stop",
    "message",
    "error",
    "tool_use",
    "text",
    "stop",
    "tool_calls",
    "end_turn",
]
ATOMS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(TYPES)
)
VALUES = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=25,
)
EVENTS = st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=5)


@pytest.mark.contract("agents.wire.hostile")
@pytest.mark.parametrize("kind", [OpenAIProvider, AnthropicProvider])
@given(events=st.lists(EVENTS, max_size=5))
def test_events_of_any_form_are_parts_or_an_error(kind, events):
    provider = kind(key="sk-0123456789", address="http://127.0.0.1:9", patience=Patience(tries=1))

    async def sent(*_: Any) -> AsyncIterator[bytes]:
        for event in events:
            yield json.dumps(event).encode()

    provider._wire.events = sent

    async def asked() -> list[Any]:
        return [part async for part in provider.chat(HELLO)]

    try:
        parts = asyncio.run(asked())
    except ProviderError:
        return
    assert isinstance(parts[-1], StopPart)
    for part in parts:
        if isinstance(part, TextPart | ThoughtPart):
            assert isinstance(part.text, str)
        elif isinstance(part, CallPart):
            assert all(isinstance(each, str) for each in (part.call.id, part.call.name, part.call.arguments))
        elif isinstance(part, UsagePart):
            assert all(type(each) is int for each in (part.usage.input, part.usage.output, part.usage.cached))
