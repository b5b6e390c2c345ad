"""A stand-in for the server of xllamacpp: it tells prepared answers as the real one was seen to tell them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gramercy.providers.local import Engine, LocalProvider

if TYPE_CHECKING:
    from collections.abc import Callable

USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 0}}


def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def said(*pieces: str, reason: str = "stop") -> list[dict[str, Any]]:
    """Return what is told of an answer in these pieces."""
    texts = [chunk({"content": piece}) for piece in pieces]
    return [
        chunk({"role": "assistant", "content": None}),
        *texts,
        chunk({}, reason),
        {"choices": [], "usage": USAGE},
    ]


class Library:
    """Gives one prepared answer for each question, in order; `gate` holds it before its last chunk."""

    def __init__(
        self, *answers: list[dict[str, Any]] | Exception, gate: threading.Event | None = None
    ) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.told = 0
        self.threads: list[threading.Thread] = []
        self._answers = list(answers)
        self._gate = gate

    def handle_chat_completions(self, body: dict[str, Any], take: Callable[[dict[str, Any]], bool]) -> None:
        """Answer as the real one does: on the thread that asks, until it is told to stop."""
        self.bodies.append(body)
        self.threads.append(threading.current_thread())
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        for place, each in enumerate(answer):
            if self._gate is not None and place == len(answer) - 1:
                self._gate.wait(60)
            self.told += 1
            if take(each):
                return

    def provider(self) -> LocalProvider:
        """Return a provider that asks it, whatever the model."""
        engine = Engine(Path("demo.gguf"), self)
        return LocalProvider(find=lambda _: engine)
