"""Chat completions, the format of OpenAI, which most other services and servers use too."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import CutStreamError
from gramercy.providers.base import StopPart, TextPart, ThoughtPart, Usage, UsagePart
from gramercy.providers.bodies import count, reason_of, taken
from gramercy.providers.http import WireProvider, drained
from gramercy.providers.naming import CallPieces, told_arguments_text, told_id, told_name
from gramercy.providers.services import OPENAI

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from gramercy.providers.base import Message, Part, Request, StopReason
    from gramercy.providers.http import Wire
    from gramercy.providers.services import Service

_REASONS: dict[str, StopReason] = {
    "stop": "end",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "content_filter": "refused",
    # Words of other services: Together, Mistral, Zhipu.
    "eos": "end",
    "model_length": "length",
    "sensitive": "refused",
}
_STATUS = re.compile(r"[45]\d\d\Z")
# The service itself was interrupted: the words of OpenRouter, vLLM, DeepSeek and Zhipu for it.
_BROKEN_OFF = frozenset({"error", "abort", "insufficient_system_resource", "network_error"})


class OpenAIProvider(WireProvider):
    """Asks OpenAI, or any service with its format: give another service, or another address."""

    SERVICE = OPENAI

    async def _attempt(self, request: Request) -> AsyncIterator[Part]:
        access = self._wire.access
        answer = _Answer(request, self._wire)
        events = self._wire.events("/chat/completions", _body(request, access.service))
        try:
            async for data in events:
                if data.strip() == b"[DONE]":
                    answer.is_done = True
                    await drained(events)
                    break
                for part in taken(answer.take, data, access.hide):
                    yield part
        except CutStreamError:
            # With its stop reason an answer is complete: only the count of its tokens is lost.
            if answer.stop is None:
                raise
        finally:
            await events.aclose()  # type: ignore[attr-defined]
        for part in answer.end():
            yield part


class _Answer:
    """The state of one answer."""

    def __init__(self, request: Request, wire: Wire) -> None:
        self.calls = CallPieces(request.tools)
        self.usage: Usage | None = None
        self.stop: str | None = None
        self.is_done = False
        self._has_refused = False
        self._model, self._wire = request.model, wire

    def take(self, chunk: dict[str, Any]) -> Iterator[Part]:
        """Take one event and yield its parts."""
        if chunk.get("error") or chunk.get("object") == "error":
            raise self._failure(chunk)
        choices = chunk.get("choices") or [{}]
        # Moonshot puts the count into the choice, other services beside it.
        usage = chunk.get("usage") or choices[0].get("usage")
        if isinstance(usage, dict):
            self.usage = _usage(usage)
        # An answer that comes at once has a message where streams have a delta.
        delta = choices[0].get("delta") or choices[0].get("message") or {}
        if thought := delta.get("reasoning_content") or delta.get("reasoning"):
            yield ThoughtPart(str(thought))
        if refusal := delta.get("refusal"):
            self._has_refused = True
            yield TextPart(str(refusal))
        if text := _text(delta.get("content")):
            yield TextPart(text)
        for piece in delta.get("tool_calls") or ():
            self._take_call(piece)
        self.stop = str(choices[0].get("finish_reason") or "") or self.stop

    def _take_call(self, piece: dict[str, Any]) -> None:
        function = piece.get("function") or {}
        arguments = function.get("arguments") or ""
        text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        self.calls.add(piece.get("index"), piece.get("id") or "", function.get("name") or "", text)

    def _failure(self, chunk: dict[str, Any]) -> Exception:
        error = chunk.get("error") or chunk
        code, kind = (str(error.get(name)) if isinstance(error, dict) else "" for name in ("code", "type"))
        said = reason_of(msgspec.json.encode(chunk), self._wire.access.hide)
        # A question that cannot be answered is not retried; any other error may pass.
        status = 400 if kind.startswith("invalid_request") else 500
        return self._wire.refusal(int(code) if _STATUS.match(code) else status, said, self._model)

    def end(self) -> Iterator[Part]:
        """Yield the calls and why the model stopped, or raise CutStreamError."""
        name = self._wire.access.service.name
        if self.stop is None and (self.calls or not self.is_done):
            raise CutStreamError(f"{name} ended its answer without saying why: none of its calls was run")
        if self.stop in _BROKEN_OFF:
            raise CutStreamError(
                f"{name} broke its answer off and says {self.stop!r}: none of its calls was run"
            )
        yield from self.calls.whole()
        if self.usage is not None:
            yield UsagePart(self.usage)
        reason = _REASONS.get(self.stop or "stop", "other")
        if self.calls and reason == "end":
            # Several servers say so although the model has made calls.
            reason = "calls"
        yield StopPart("refused" if self._has_refused else reason)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(each.get("text") or "") for each in content if isinstance(each, dict))
    return content if isinstance(content, str) else ""


def _usage(given: dict[str, Any]) -> Usage:
    details = given.get("prompt_tokens_details") or {}
    return Usage(
        count(given.get("prompt_tokens")),
        count(given.get("completion_tokens")),
        count(details.get("cached_tokens")),
    )


def _body(request: Request, service: Service) -> dict[str, Any]:
    messages = [{"role": "system", "content": request.instruction}] if request.instruction else []
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [*messages, *map(_message, request.messages)],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": told_name(tool.name),
                    "description": tool.description,
                    "parameters": tool.parameters,
                },
            }
            for tool in request.tools
        ]
    if request.max_tokens is not None:
        # OpenAI's newer models refuse the old name, which is the only one that other services know.
        body["max_completion_tokens" if service is OPENAI else "max_tokens"] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    return body


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": told_id(message.call_id), "content": message.text}
    if not message.calls:
        return {"role": message.role, "content": message.text}
    calls = [
        {
            "id": told_id(call.id),
            "type": "function",
            "function": {
                "name": told_name(call.name),
                # Servers that parse the arguments refuse text that is not JSON.
                "arguments": told_arguments_text(call.arguments),
            },
        }
        for call in message.calls
    ]
    return {"role": "assistant", "content": message.text or None, "tool_calls": calls}
