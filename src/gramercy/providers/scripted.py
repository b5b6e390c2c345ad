"""A model with a script: for tests of agents, and for showing what would happen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from gramercy.errors import ModelUnavailableError, ProviderError
from gramercy.providers.base import (
    CallPart,
    ModelCall,
    Part,
    Request,
    StopPart,
    TextPart,
    Usage,
    UsagePart,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable


class ScriptedProvider:
    """Gives one prepared answer for each question, in order.

    An answer is a text, a call (`{"name": …, "arguments": {…}}` or a ModelCall), a list of texts and calls,
    an exception to raise, a list that ends with one, or a function of the request that returns one of these.
    What it was asked is in `requests`.
    """

    def __init__(self, *answers: Any, name: str = "scripted", usage: Usage | None = None) -> None:
        self.name = name
        self.requests: list[Request] = []
        self._answers = answers
        self._usage = usage

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a script from a file: one answer a line, as JSON (a text, a call, or a list of them)."""
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
            return cls(*(msgspec.json.decode(line) for line in lines if line.strip()))
        except (OSError, ValueError) as error:
            raise ModelUnavailableError(f"the script {path} cannot be read: {error}") from None

    async def chat(self, request: Request) -> AsyncIterator[Part]:
        """Stream the next answer."""
        place = len(self.requests)
        self.requests.append(request)
        if place >= len(self._answers):
            raise ProviderError(
                f"the script has {len(self._answers)} answers, and question {place + 1} came: "
                f"{request.messages[-1].text!r:.200}"
            )
        answer = self._answers[place]
        given = answer(request) if callable(answer) else answer
        has_calls = False
        for number, each in enumerate(_listed(given)):
            part = _part(each, f"call_{place + 1}_{number + 1}")
            has_calls = has_calls or isinstance(part, CallPart)
            yield part
        if self._usage is not None:
            yield UsagePart(self._usage)
        yield StopPart("calls" if has_calls else "end")

    async def aclose(self) -> None:
        """Do nothing."""


def _listed(given: Any) -> Iterable[Any]:
    if isinstance(given, list | tuple):
        return given
    return (given,)


def _part(given: Any, name: str) -> Part:
    if isinstance(given, BaseException):
        raise given
    if isinstance(given, str):
        return TextPart(given)
    if isinstance(given, ModelCall):
        return CallPart(given)
    if isinstance(given, dict) and isinstance(given.get("name"), str):
        arguments = given.get("arguments", {})
        text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        return CallPart(ModelCall(given.get("id", name), given["name"], text))
    if isinstance(given, TextPart | CallPart | UsagePart):
        return given
    raise ProviderError(f"a script has texts, calls and errors, not {type(given).__name__}")
