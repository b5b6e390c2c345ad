"""A model with a script: for tests of agents, and for showing what would happen."""

from __future__ import annotations

from inspect import isawaitable
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
    ThoughtPart,
    Usage,
    UsagePart,
)
from gramercy.text import counted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable


class ScriptedProvider:
    """Returns one prepared answer for each question, in order.

    An answer is a text, a call (`{"name": …, "arguments": {…}}` or a ModelCall), an exception to raise, a
    list of these, or a function of the request that returns one of these, or an awaitable of one. A list may
    also hold parts such as StopPart("length"), functions without arguments that are awaited before the answer
    continues, and as its last element `...`: the stream is cut there. `requests` has the questions. As a
    context manager it fails at the end unless exactly all answers were used.
    """

    def __init__(self, *answers: Any, name: str = "scripted", usage: Usage | None = None) -> None:
        self.name = name
        self.requests: list[Request] = []
        self._answers = answers
        self._usage = usage

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a script from a file: one answer per line, as JSON (a text, a call, or a list of them)."""
        try:
            # `splitlines` would also end a line at U+2028 and others that a JSON text may hold.
            lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
            return cls(*(msgspec.json.decode(line) for line in lines if line.strip()))
        except (OSError, ValueError) as error:
            raise ModelUnavailableError(f"the script {path} cannot be read: {error}") from None

    async def chat(self, request: Request) -> AsyncIterator[Part]:
        """Stream the next answer."""
        place = len(self.requests)
        self.requests.append(request)
        if place >= len(self._answers):
            said = request.messages[-1].text if request.messages else ""
            raise ProviderError(
                f"the script has {self._told()}, and question {place + 1} came: {said!r:.200}"
            )
        answer = self._answers[place]
        given = answer(request) if callable(answer) else answer
        stop = StopPart("end")
        for number, each in enumerate(_listed(await given if isawaitable(given) else given)):
            if each is ...:
                return
            part = await _part(each, f"call_{place + 1}_{number + 1}")
            if isinstance(part, StopPart):
                stop = part
            elif part is not None:
                stop = StopPart("calls") if isinstance(part, CallPart) else stop
                yield part
        if self._usage is not None:
            yield UsagePart(self._usage)
        yield stop

    async def aclose(self) -> None:
        """Do nothing."""

    def check(self) -> None:
        """Raise AssertionError unless exactly as many questions came as the script has answers."""
        if len(self.requests) != len(self._answers):
            raise AssertionError(f"the script has {self._told()}, but {len(self.requests)} were asked for")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # The first failure explains more than its consequences.
        if kind is None:
            self.check()

    def _told(self) -> str:
        return counted(len(self._answers), "answer")


def _listed(given: Any) -> Iterable[Any]:
    return given if isinstance(given, list | tuple) else (given,)


async def _part(given: Any, name: str) -> Part | None:
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
    if isinstance(given, TextPart | ThoughtPart | CallPart | UsagePart | StopPart):
        return given
    if callable(given):
        await given()
        return None
    raise ProviderError(f"a script has texts, calls and errors, not {type(given).__name__}")
