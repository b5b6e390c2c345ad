"""Messages, the format of Anthropic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import CutStreamError
from gramercy.providers.base import StopPart, TextPart, ThoughtPart, Usage, UsagePart
from gramercy.providers.bodies import count, reason_of, taken
from gramercy.providers.http import WireProvider, drained
from gramercy.providers.models import longest_answer
from gramercy.providers.naming import CallPieces, told_arguments, told_id, told_name
from gramercy.providers.services import ANTHROPIC

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from gramercy.providers.base import Message, Part, Request, StopReason
    from gramercy.providers.http import Wire

_REASONS: dict[str, StopReason] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}
# Errors inside of a stream have a name instead of a status.
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
# The service caches everything before this mark for five minutes: the next turn pays a tenth for it.
_KEPT = {"cache_control": {"type": "ephemeral"}}


class AnthropicProvider(WireProvider):
    """Asks Anthropic, or another service with its format, at another address."""

    SERVICE = ANTHROPIC

    async def _attempt(self, request: Request) -> AsyncIterator[Part]:
        access = self._wire.access
        answer = _Answer(request, self._wire)
        events = self._wire.events("/v1/messages", _body(request))
        try:
            async for data in events:
                for part in taken(answer.take, data, access.hide):
                    yield part
                if answer.is_done:
                    await drained(events)
                    break
        finally:
            await events.aclose()  # type: ignore[attr-defined]
        for part in answer.end():
            yield part


class _Answer:
    """The state of one answer."""

    def __init__(self, request: Request, wire: Wire) -> None:
        self.calls = CallPieces(request.tools)
        self.is_done = False
        self._stop: str | None = None
        self._counts: dict[str, int] = {}
        self._called: set[object] = set()
        self._has_told_usage = False
        self._model, self._wire = request.model, wire

    def take(self, event: dict[str, Any]) -> Iterator[Part]:
        """Take one event and yield its parts."""
        kind = event.get("type")
        if kind == "content_block_delta":
            yield from self._delta(event)
        elif kind == "content_block_start":
            yield from self._block(event.get("index"), event.get("content_block") or {})
        elif kind == "message_start":
            self._count(event.get("message") or {})
        elif kind == "message_delta":
            self._count(event)
            self._stop = str((event.get("delta") or {}).get("stop_reason") or "") or self._stop
        elif kind == "message_stop":
            self.is_done = True
        elif kind == "message":
            yield from self._whole(event)
        elif kind == "error":
            raise self._failure(event)

    def end(self) -> Iterator[Part]:
        """Yield the calls and why the model stopped, or raise CutStreamError."""
        if not self.is_done or self._stop is None:
            name = self._wire.access.service.name
            raise CutStreamError(f"{name} ended its answer without saying why: none of its calls was run")
        yield from self.calls.whole()
        yield UsagePart(self._usage())
        reason = _REASONS.get(self._stop, "other")
        # Servers that imitate the format say so although the model has made calls.
        yield StopPart("calls" if self.calls and reason == "end" else reason)

    def _block(self, place: object, block: dict[str, Any]) -> Iterator[Part]:
        if block.get("type") == "tool_use":
            given = block.get("input")
            text = msgspec.json.encode(given).decode() if given else ""
            self.calls.add(place, block.get("id") or "", block.get("name") or "", text)
            self._called.add(place)
        elif block.get("thinking"):
            yield from self._spoken(ThoughtPart(str(block["thinking"])))
        elif block.get("text"):
            yield from self._spoken(TextPart(str(block["text"])))

    def _delta(self, event: dict[str, Any]) -> Iterator[Part]:
        delta = event.get("delta") or {}
        if delta.get("text"):
            yield from self._spoken(TextPart(str(delta["text"])))
        elif delta.get("thinking"):
            yield from self._spoken(ThoughtPart(str(delta["thinking"])))
        elif delta.get("partial_json") and event.get("index") in self._called:
            # Other calls are of tools that the service itself has and runs.
            self.calls.add(event.get("index"), "", "", delta["partial_json"])

    def _spoken(self, part: Part) -> Iterator[Part]:
        """Yield the cost of the question with the first words: it is charged even if the rest is lost."""
        if not self._has_told_usage and self._counts:
            self._has_told_usage = True
            yield UsagePart(self._usage())
        yield part

    def _whole(self, message: dict[str, Any]) -> Iterator[Part]:
        """Take an answer that comes as a whole."""
        self._count(message)
        for place, block in enumerate(message.get("content") or ()):
            yield from self._block(place, block)
        self._stop, self.is_done = str(message.get("stop_reason") or "") or None, True

    def _count(self, given: dict[str, Any]) -> None:
        # Each event has the counts so far; unknown counts are null, or 0.
        for name, value in (given.get("usage") or {}).items():
            self._counts[name] = max(count(value), self._counts.get(name, 0))

    def _usage(self) -> Usage:
        read = self._counts.get("cache_read_input_tokens", 0)
        written = self._counts.get("cache_creation_input_tokens", 0)
        # Here the tokens of the cache are not part of the input; in our counts they are.
        whole = self._counts.get("input_tokens", 0) + read + written
        return Usage(whole, self._counts.get("output_tokens", 0), read, written)

    def _failure(self, event: dict[str, Any]) -> Exception:
        error = event.get("error")
        kind = error.get("type") if isinstance(error, dict) else None
        said = reason_of(msgspec.json.encode(event), self._wire.access.hide)
        return self._wire.refusal(_STATUS.get(str(kind), 500), said, self._model)


def _body(request: Request) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_tokens or longest_answer(request.model),
        "messages": _messages(request.messages),
        "stream": True,
    }
    if request.instruction.strip():
        body["system"] = [{"type": "text", "text": request.instruction, **_KEPT}]
    if request.tools:
        body["tools"] = [
            {"name": told_name(tool.name), "description": tool.description, "input_schema": tool.parameters}
            for tool in request.tools
        ]
    if request.temperature is not None:
        body["temperature"] = request.temperature
    return body


def _messages(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """Return the conversation in turns; the results of one turn belong into one message."""
    told: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message)
        if told and told[-1]["role"] == role:
            told[-1]["content"] += blocks
        elif blocks:
            told.append({"role": role, "content": blocks})
    if told:
        told[-1]["content"][-1] |= _KEPT
    return told


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        result: dict[str, Any] = {
            "type": "tool_result",
            "tool_use_id": told_id(message.call_id),
            "is_error": message.is_error,
        }
        return [{**result, "content": message.text} if message.text else result]
    # A block of only whitespace is refused.
    blocks: list[dict[str, Any]] = [{"type": "text", "text": message.text}] if message.text.strip() else []
    return blocks + [
        {
            "type": "tool_use",
            "id": told_id(call.id),
            "name": told_name(call.name),
            "input": told_arguments(call.arguments),
        }
        for call in message.calls
    ]
