"""The providers of the conformance suite: each is given the same answers, in the form that it reads."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from gramercy.errors import ProviderError
from gramercy.providers.anthropic import AnthropicProvider
from gramercy.providers.base import ModelCall, Usage
from gramercy.providers.http import Patience
from gramercy.providers.openai import OpenAIProvider
from gramercy.providers.scripted import ScriptedProvider
from tests.providers.library import Library, said
from tests.providers.service import Reply, Service, refusal, stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gramercy.providers.base import Provider, StopReason

KEY = "sk-conformance-0123456789"
QUICK = Patience(first_wait=0.01, silence=5)


@dataclass(frozen=True)
class Answer:
    """What a model says: pieces of text, calls, why it stopped. `is_cut` ends it before that."""

    pieces: tuple[str, ...] = ()
    calls: tuple[ModelCall, ...] = ()
    reason: StopReason = "end"
    is_cut: bool = False


@dataclass(frozen=True)
class Trouble:
    """What a service says instead."""

    status: int
    message: str = "not now"


USAGE = Usage(11, 7)


def openai_reply(answer: Answer | Trouble) -> Reply:
    """Return the answer in chat completions."""
    if isinstance(answer, Trouble):
        return refusal(answer.status, {"error": {"message": answer.message, "type": "x", "code": None}})
    common = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "demo"}

    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {**common, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    events = [chunk({"role": "assistant", "content": ""}), *(chunk({"content": p}) for p in answer.pieces)]
    for place, call in enumerate(answer.calls):
        named = {"name": call.name, "arguments": ""}
        events.append(
            chunk({"tool_calls": [{"index": place, "id": call.id, "type": "function", "function": named}]})
        )
        halves = _halves(call.arguments, cut=answer.is_cut)
        events += [chunk({"tool_calls": [{"index": place, "function": {"arguments": h}}]}) for h in halves]
    if answer.is_cut:
        return stream(*events)
    words = {"end": "stop", "calls": "tool_calls", "length": "length", "refused": "content_filter"}
    events.append(chunk({}, words[answer.reason]))
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    return stream(*events, {**common, "choices": [], "usage": usage}, done="[DONE]")


def anthropic_reply(answer: Answer | Trouble) -> Reply:
    """Return the answer in messages."""
    if isinstance(answer, Trouble):
        return refusal(answer.status, {"type": "error", "error": {"type": "x", "message": answer.message}})
    usage = {"input_tokens": 11, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "demo",
    }
    message |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if answer.pieces:
        deltas = [{"type": "text_delta", "text": piece} for piece in answer.pieces]
        blocks.append(({"type": "text", "text": ""}, deltas))
    for call in answer.calls:
        halves = _halves(call.arguments, cut=answer.is_cut)
        deltas = [{"type": "input_json_delta", "partial_json": half} for half in halves]
        blocks.append(({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, deltas))
    for place, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": place, "content_block": block})
        events += [{"type": "content_block_delta", "index": place, "delta": delta} for delta in deltas]
        if not answer.is_cut:
            events.append({"type": "content_block_stop", "index": place})
    if not answer.is_cut:
        words = {"end": "end_turn", "calls": "tool_use", "length": "max_tokens", "refused": "refusal"}
        delta = {"stop_reason": words[answer.reason], "stop_sequence": None}
        events += [
            {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}},
            {"type": "message_stop"},
        ]
    named = (f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events)
    return stream(*named)


def _halves(text: str, *, cut: bool) -> list[str]:
    middle = len(text) // 2
    return [text[:middle]] if cut else [text[:middle], text[middle:]]


@dataclass
class Backend:
    """A provider with prepared answers, and what can be asked of it."""

    name: str
    needs: str = ""
    has_wire: bool = False
    counts: bool = True
    # A model with a grammar writes one call or an answer, never both, and no call that is malformed.
    has_grammar: bool = False

    @contextlib.contextmanager
    def serving(
        self, *answers: Answer | Trouble
    ) -> Iterator[tuple[Provider, Service | ScriptedProvider | None]]:
        """Give a provider whose questions get these answers, in order."""
        if self.needs and importlib.util.find_spec(self.needs) is None:
            pytest.skip(f"{self.needs} is not installed: scripts/setup dev")
        if not self.has_wire:
            yield self._inside(answers)
            return
        reply = anthropic_reply if "anthropic" in self.name else openai_reply
        with Service(*map(reply, answers)) as service:
            yield self._outside(service.address), service

    def _inside(self, answers: tuple[Answer | Trouble, ...]) -> tuple[Any, Any]:
        if self.name == "scripted":
            provider = ScriptedProvider(*map(_script, answers), usage=USAGE)
            return provider, provider
        if self.has_grammar:
            return Library(*map(_written, answers)).provider(), None
        return _function_model(answers), None

    def _outside(self, address: str) -> Provider:
        if self.name == "openai":
            return OpenAIProvider(address=f"{address}/v1", key=KEY, patience=QUICK)
        if self.name == "anthropic":
            return AnthropicProvider(address=address, key=KEY, patience=QUICK)
        return _pydantic(self.name, address)


BACKENDS = [
    Backend("scripted"),
    Backend("local", has_grammar=True),
    Backend("openai", has_wire=True),
    Backend("anthropic", has_wire=True),
    Backend("pydantic-ai function", needs="pydantic_ai", counts=False),
    Backend("pydantic-ai openai", needs="pydantic_ai", has_wire=True),
    Backend("pydantic-ai anthropic", needs="pydantic_ai", has_wire=True),
]


def _written(answer: Answer | Trouble) -> list[dict[str, Any]]:
    if isinstance(answer, Trouble):
        return [{"error": {"code": answer.status, "message": answer.message}}]
    if answer.calls:
        (call,) = answer.calls
        return said(f'{{"tool": "{call.name}", "arguments": {call.arguments}}}')
    return said('{"answer": "', *(json.dumps(piece)[1:-1] for piece in answer.pieces), '"}')


def _script(answer: Answer | Trouble) -> Any:
    if isinstance(answer, Trouble):
        return ProviderError(answer.message, answer.status)
    if answer.is_cut:
        return [*answer.pieces, ProviderError("cut")]
    return [*answer.pieces, *answer.calls]


def _pydantic(name: str, address: str) -> Provider:
    from gramercy.providers.pydantic_models import PydanticProvider

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if "anthropic" in name:
            pytest.importorskip("anthropic")
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider as Door

            model: Any = AnthropicModel("demo", provider=Door(api_key=KEY, base_url=address))
        else:
            pytest.importorskip("openai")
            from pydantic_ai.models.openai import OpenAIChatModel
            from pydantic_ai.providers.openai import OpenAIProvider as Door

            model = OpenAIChatModel("demo", provider=Door(api_key=KEY, base_url=f"{address}/v1"))
    model.client.max_retries = 1
    return PydanticProvider("", name="demo", model=model)


def _function_model(answers: tuple[Answer | Trouble, ...]) -> Provider:
    from gramercy.providers.pydantic_models import PydanticProvider

    left = iter(answers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pydantic_ai.exceptions import ModelHTTPError
        from pydantic_ai.models.function import DeltaToolCall, FunctionModel

    async def streamed(messages: Any, info: Any) -> Any:  # noqa: ARG001 - as pydantic-ai calls it
        answer = next(left)
        if isinstance(answer, Trouble):
            raise ModelHTTPError(answer.status, "demo", {"error": {"message": answer.message}})
        for piece in answer.pieces:
            yield piece
        for place, call in enumerate(answer.calls):
            yield {place: DeltaToolCall(call.name, call.arguments, tool_call_id=call.id)}

    return PydanticProvider("", name="demo", model=FunctionModel(stream_function=streamed))
