"""The models of pydantic-ai behind our protocol, for services whose format our own client does not have.

The extra `pydantic-ai` installs it; the package of the service itself comes with an extra of pydantic-ai,
such as `pydantic-ai-slim[google]`. Keys are where pydantic-ai looks for them.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import CutStreamError, ModelUnavailableError, ProviderError
from gramercy.providers.base import (
    CallPart,
    ModelCall,
    Part,
    StopPart,
    StopReason,
    TextPart,
    ThoughtPart,
    Usage,
    UsagePart,
)
from gramercy.providers.bodies import reason_of
from gramercy.providers.http import FORBIDDEN, NOT_FOUND, UNAUTHORIZED, Kept
from gramercy.providers.naming import told_arguments, told_id, told_name, told_value

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence

    from gramercy.providers.base import Message, Request

_REASONS: dict[str | None, StopReason] = {
    "stop": "end",
    "tool_call": "calls",
    "length": "length",
    "content_filter": "refused",
}


class PydanticProvider:
    """Asks the models of one service of pydantic-ai, such as `google`; `model` answers for every id."""

    def __init__(self, kind: str, *, name: str | None = None, model: Any = None) -> None:
        self.name = name or kind
        self._kind = kind
        self._given = model
        self._models: dict[str, Any] = {}
        self._entered: list[Any] = []
        self._kept = Kept()

    def model(self, model_id: str) -> Any:
        """Return the model of pydantic-ai, or raise ModelUnavailableError with what is missing."""
        if self._given is not None:
            return self._given
        if model_id not in self._models:
            self._models[model_id] = _inferred(f"{self._kind}:{model_id}" if self._kind else model_id)
        return self._models[model_id]

    async def chat(self, request: Request) -> AsyncIterator[Part]:
        """Stream the answer to one question; retries are left to the service's package."""
        has_begun = False
        try:
            model = await self._opened(request.model)
            async with aclosing(_streamed(model, request)) as parts:
                async for part in parts:
                    has_begun = True
                    yield part
        except ProviderError:
            raise
        except Exception as error:  # noqa: BLE001 - each service has its own errors; all of them are its
            raise self._failure(error, has_begun=has_begun) from None

    async def aclose(self) -> None:
        """Close the connections."""
        self._models.clear()
        await self._kept.aclose()

    def __repr__(self) -> str:
        return f"<PydanticProvider {self.name}>"

    async def _opened(self, model_id: str) -> Any:
        """Return a model for this event loop: connections belong to the loop that opened them."""
        if not self._kept.is_here:
            if self._entered:
                self._models.clear()
            entered: list[Any] = []
            self._entered = entered
            await self._kept.keep(lambda: _left(entered))
        model = self.model(model_id)
        if model not in self._entered:
            self._entered.append(model)
            await model.__aenter__()
        return model

    def _failure(self, error: Exception, *, has_begun: bool) -> ProviderError:
        status = getattr(error, "status_code", None)
        said = _said(error)
        if status in (UNAUTHORIZED, FORBIDDEN, NOT_FOUND):
            return ModelUnavailableError(f"{self.name} refuses the question ({status}): {said}", status)
        if isinstance(status, int):
            wait = getattr(error, "retry_after", None)
            return ProviderError(f"{self.name} refuses the question ({status}): {said}", status, wait)
        if has_begun:
            return CutStreamError(f"the answer of {self.name} broke off: {said}")
        return ProviderError(f"{self.name} does not answer: {said}")


def _inferred(name: str) -> Any:
    try:
        from pydantic_ai.models import infer_model
    except ImportError:
        raise ModelUnavailableError(
            f"{name:.100} is reached through pydantic-ai: pip install 'gramercy[pydantic-ai]'"
        ) from None
    try:
        return infer_model(name)
    except Exception as error:  # noqa: BLE001 - a package or a key is missing, as each service says it
        hint = "" if ":" in name else "; write pydantic-ai/NAME:ID, as in pydantic-ai/google:gemini-2.5-flash"
        raise ModelUnavailableError(f"pydantic-ai cannot open {name:.100}: {_said(error)}{hint}") from None


async def _left(models: list[Any]) -> None:
    for model in models:
        await model.__aexit__(None, None, None)


async def _streamed(model: Any, request: Request) -> AsyncGenerator[Part, None]:
    from pydantic_ai.direct import model_request_stream

    opened = model_request_stream(
        model,
        _messages(request),
        model_settings=_settings(request),
        model_request_parameters=_parameters(request),
    )
    async with opened as stream:
        async for event in stream:
            # An event begins a part or adds to one; other events concern agents of pydantic-ai.
            if event.event_kind in ("part_start", "part_delta"):
                piece = event.part if event.event_kind == "part_start" else event.delta
                for part in _spoken(piece):
                    yield part
        for part in _ended(stream.get(), model, request):
            yield part


def _spoken(piece: Any) -> Iterator[Part]:
    kind = getattr(piece, "part_kind", None) or getattr(piece, "part_delta_kind", None)
    text = getattr(piece, "content", None) or getattr(piece, "content_delta", None)
    if text and kind == "text":
        yield TextPart(text)
    elif text and kind == "thinking":
        yield ThoughtPart(text)


def _ended(response: Any, model: Any, request: Request) -> Iterator[Part]:
    """Yield the calls and why the model stopped, or raise CutStreamError."""
    calls = [part for part in response.parts if part.part_kind == "tool-call"]
    if not _is_whole(response, model):
        raise CutStreamError("the answer ended without saying why: none of its calls was run")
    names = {told_name(tool.name): tool.name for tool in request.tools}
    for call in calls:
        name = names.get(call.tool_name, call.tool_name)
        yield CallPart(ModelCall(call.tool_call_id, name, _arguments_text(call.args)))
    usage = response.usage
    yield UsagePart(
        Usage(usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
    )
    reason = _REASONS.get(response.finish_reason or "stop", "other")
    yield StopPart("calls" if calls and reason == "end" else reason)


def _is_whole(response: Any, model: Any) -> bool:
    """Whether the service itself has given a stop reason.

    pydantic-ai fills in a reason if an OpenAI-compatible stream has none, so that half a call would look
    complete; the service's own reason is in its details. The test doubles give no reason, and are never cut.
    """
    if (response.provider_details or {}).get("finish_reason") or model.system in ("function", "test"):
        return True
    if response.finish_reason == "content_filter":
        return True
    return model.system == "xai" and response.finish_reason is not None


def _arguments_text(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments or "{}"
    return msgspec.json.encode(arguments or {}).decode()


def _settings(request: Request) -> Any:
    given = {"max_tokens": request.max_tokens, "temperature": request.temperature}
    return {name: value for name, value in given.items() if value is not None}


def _parameters(request: Request) -> Any:
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    tools = [
        ToolDefinition(
            name=told_name(tool.name), description=tool.description, parameters_json_schema=tool.parameters
        )
        for tool in request.tools
    ]
    return ModelRequestParameters(function_tools=tools)


def _messages(request: Request) -> list[Any]:
    """Return the conversation in pydantic-ai's form: questions and results are parts of requests."""
    from pydantic_ai.messages import ModelRequest, ModelResponse

    told: list[Any] = []
    names = {call.id: told_name(call.name) for message in request.messages for call in message.calls}
    for message in request.messages:
        if message.role == "assistant":
            parts = _said_parts(message)
            told += [ModelResponse(parts)] if parts else []
        elif told and told[-1].kind == "request":
            told[-1].parts.append(_asked_part(message, names))
        else:
            told.append(ModelRequest([_asked_part(message, names)]))
    if request.instruction and told and told[-1].kind == "request":
        told[-1].instructions = told_value(request.instruction)
    return told


def _said_parts(message: Message) -> Sequence[Any]:
    from pydantic_ai import messages

    text = [messages.TextPart(told_value(message.text))] if message.text.strip() else []
    return text + [
        messages.ToolCallPart(
            told_name(call.name), told_value(told_arguments(call.arguments)), told_id(call.id)
        )
        for call in message.calls
    ]


def _asked_part(message: Message, names: dict[str, str]) -> Any:
    from pydantic_ai.messages import ToolReturnPart, UserPromptPart

    if message.role == "user":
        return UserPromptPart(told_value(message.text))
    name = names.get(message.call_id, "tool")
    outcome = "failed" if message.is_error else "success"
    return ToolReturnPart(name, told_value(message.text), told_id(message.call_id), outcome=outcome)


def _said(error: Exception) -> str:
    """Return the service's own message on one line, without keys."""
    body = getattr(error, "body", None)
    given = (
        msgspec.json.encode(body) if isinstance(body, dict | list) else str(error).encode("utf-8", "replace")
    )
    return reason_of(given) or type(error).__name__
