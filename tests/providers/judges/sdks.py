"""The official SDKs, unmodified, as our providers would be on top of them: what they make of an answer."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

from gramercy.providers.base import CallPart, StopPart, TextPart, UsagePart


@dataclass
class Heard:
    """What came of an answer, whoever has read it."""

    text: str = ""
    pieces: int = 0
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    tokens: tuple[int, int] = (0, 0)
    reason: str | None = None
    error: str | None = None


TOOLS = {name: {"type": "object", "properties": {}} for name in ("sayHello", "add")}


async def ours(provider: Any, request: Any) -> Heard:
    """Ask with our own client."""
    heard = Heard()
    try:
        async for part in provider.chat(request):
            if isinstance(part, TextPart):
                heard.text += part.text
                heard.pieces += 1
            elif isinstance(part, CallPart):
                heard.calls.append((part.call.id, part.call.name, part.call.arguments))
            elif isinstance(part, UsagePart):
                heard.tokens = (part.usage.input, part.usage.output)
            elif isinstance(part, StopPart):
                heard.reason = part.reason
    except Exception as error:  # noqa: BLE001 - what a user would see
        heard.error = f"{type(error).__name__}: {error}"
    finally:
        await provider.aclose()
    return heard


async def openai(address: str, key: str, said: str) -> Heard:
    """Ask with openai."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from openai import AsyncOpenAI
    heard, slots = Heard(), dict[int, list[str]]()
    reasons = {"stop": "end", "tool_calls": "calls", "length": "length"}
    async with AsyncOpenAI(api_key=key, base_url=f"{address}/v1", max_retries=3) as client:
        try:
            stream: Any = await client.chat.completions.create(
                model="demo",
                messages=[{"role": "user", "content": said}],
                tools=[
                    {"type": "function", "function": {"name": n, "parameters": s}} for n, s in TOOLS.items()
                ],
                stream=True,
                stream_options={"include_usage": True},
            )
            async for chunk in stream:
                if chunk.usage:
                    heard.tokens = (chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
                for choice in chunk.choices:
                    if choice.delta.content:
                        heard.text += choice.delta.content
                        heard.pieces += 1
                    for piece in choice.delta.tool_calls or ():
                        slot = slots.setdefault(piece.index, [piece.id, piece.function.name, ""])
                        slot[2] += piece.function.arguments or ""
                    heard.reason = reasons.get(choice.finish_reason, heard.reason)
        except Exception as error:  # noqa: BLE001 - what a user would see
            heard.error = f"{type(error).__name__}: {error}"
    heard.calls = [(slot[0], slot[1], slot[2]) for slot in slots.values()]
    return heard


async def anthropic(address: str, key: str, said: str) -> Heard:
    """Ask with anthropic."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from anthropic import AsyncAnthropic
    heard, slots = Heard(), dict[int, list[str]]()
    reasons = {"end_turn": "end", "tool_use": "calls", "max_tokens": "length"}
    counts: dict[str, int] = {}
    async with AsyncAnthropic(api_key=key, base_url=address, max_retries=3) as client:
        try:
            stream: Any = await client.messages.create(
                model="demo",
                max_tokens=4096,
                messages=[{"role": "user", "content": said}],
                tools=[{"name": n, "input_schema": s} for n, s in TOOLS.items()],
                stream=True,
            )
            async for event in stream:
                if event.type == "message_start":
                    counts |= event.message.usage.model_dump(exclude_none=True)
                elif event.type == "content_block_start" and event.content_block.type == "tool_use":
                    slots[event.index] = [event.content_block.id, event.content_block.name, ""]
                elif event.type == "content_block_delta" and event.delta.type == "text_delta":
                    heard.text += event.delta.text
                    heard.pieces += 1
                elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                    slots[event.index][2] += event.delta.partial_json
                elif event.type == "message_delta":
                    counts |= event.usage.model_dump(exclude_none=True)
                    heard.reason = reasons.get(event.delta.stop_reason, heard.reason)
        except Exception as error:  # noqa: BLE001 - what a user would see
            heard.error = f"{type(error).__name__}: {error}"
    heard.calls = [(slot[0], slot[1], slot[2]) for slot in slots.values()]
    heard.tokens = (counts.get("input_tokens", 0), counts.get("output_tokens", 0))
    return heard
