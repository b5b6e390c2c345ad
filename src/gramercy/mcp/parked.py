"""Questions of the newer era: the request is answered with them, and the handler waits, parked, for a retry.

What the client gets to bring back names the parked call and nothing else. It is signed, works once, and only
for the same request of the same principal.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from dataclasses import dataclass
from secrets import token_bytes, token_urlsafe
from typing import TYPE_CHECKING, Any

from gramercy.errors import ExecutionError
from gramercy.execution.seal import canonical_text
from gramercy.mcp import jsonrpc
from gramercy.mcp.jsonrpc import invalid_params

if TYPE_CHECKING:
    import asyncio

    from gramercy.mcp.conversation import Question, Work
    from gramercy.mcp.versions import Request, Shaper

MOST_PARKED = 1_000
MOST_PARKED_OF_ONE = 200
# What a retry may have that its first try had not.
_CHANGING = frozenset({"_meta", "inputResponses", "requestState"})


@dataclass(frozen=True, slots=True)
class _Parked:
    work: Work
    digest: str
    principal: str
    timer: asyncio.TimerHandle


class Parking:
    """The calls that wait for the answers of a person or a model at the client."""

    def __init__(self, shaper: Shaper, patience: float) -> None:
        self._shaper = shaper
        self._patience = patience
        self._key = token_bytes(32)
        self._parked: dict[str, _Parked] = {}
        self._owned: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._parked)

    def asked(self, work: Work, question: Question) -> None:
        """Answer the request with this question, and with all others that are asked at the same time."""
        if len(self._parked) >= MOST_PARKED or self._owned[work.call.principal] >= MOST_PARKED_OF_ONE:
            raise ExecutionError("too many calls already wait for an answer: try again later")
        del question  # it is among the work's
        work.loop.call_soon(self._flush, work)

    def _flush(self, work: Work) -> None:
        if work.turn is None or not work.questions or work.is_over:
            return
        request = work.call.request
        result = {
            "resultType": "input_required",
            "inputRequests": {key: asked.as_input_request() for key, asked in work.questions.items()},
            "requestState": self._park(work, request),
            "_meta": self._shaper.meta,
        }
        work.give(jsonrpc.success(request.id, result))

    def _park(self, work: Work, request: Request) -> str:
        name = token_urlsafe(16)
        timer = work.loop.call_later(self._patience, self._expire, name)
        self._parked[name] = _Parked(work, digest_of(request), request.peer.principal, timer)
        self._owned[request.peer.principal] += 1
        return f"{name}.{self._signature(name)}"

    def _expire(self, name: str) -> None:
        parked = self._unpark(name)
        if parked is not None:
            for question in list(parked.work.questions.values()):
                question.give_up(f"nobody answered within {self._patience:g} s")

    def _unpark(self, name: str) -> _Parked | None:
        parked = self._parked.pop(name, None)
        if parked is not None:
            parked.timer.cancel()
            self._owned[parked.principal] -= 1
            if not self._owned[parked.principal]:
                del self._owned[parked.principal]
        return parked

    def _signature(self, name: str) -> str:
        return hmac.digest(self._key, name.encode(), "sha256").hex()

    def resume(self, request: Request) -> Work:
        """Return the parked call that a request goes on with, its answers taken; raise when there is none."""
        state = request.text("requestState")
        answers = input_responses(request)
        name, _, signature = state.partition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(name).encode()):
            raise invalid_params("requestState was not made by this server")
        parked = self._parked.get(name)
        if parked is None:
            raise invalid_params(
                "requestState was used before or has expired; send the request without it",
            )
        if parked.principal != request.peer.principal or parked.digest != digest_of(request):
            raise invalid_params("requestState belongs to another request")
        self._unpark(name)
        self._take(parked.work, answers)
        return parked.work

    def _take(self, work: Work, answers: dict[str, Any]) -> None:
        for key, question in list(work.questions.items()):
            if key in answers:
                del work.questions[key]
                question.take(answers[key])
        # What was not answered is asked again, once the handler had time to ask for more.
        if work.questions:
            work.loop.call_soon(self._flush, work)

    def close(self) -> None:
        """Give up everything."""
        for name, parked in list(self._parked.items()):
            self._unpark(name)
            parked.work.cancel()


def digest_of(request: Request) -> str:
    """Identify what a request wants, whoever sends it and however often."""
    wanted = {name: value for name, value in request.params.items() if name not in _CHANGING}
    return hashlib.sha256(canonical_text([request.method, wanted]).encode()).hexdigest()


def input_responses(request: Request) -> dict[str, Any]:
    """Return the answers that came with a request; raise ProtocolError when they are no objects."""
    answers = request.mapping("inputResponses")
    for key, answer in answers.items():
        if type(answer) is not dict:
            raise invalid_params(f"inputResponses.{key[:100]} must be an object")
    return answers
