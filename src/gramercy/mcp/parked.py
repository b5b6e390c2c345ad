"""Modern calls that wait for a person: the client got their questions as a result, and must come back.

What it brings back names the parked call and nothing else. It is signed, works once, and only for the same
request of the same principal.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from secrets import token_bytes, token_urlsafe
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import ExecutionError
from gramercy.journal.texts import canonical_text
from gramercy.mcp.jsonrpc import invalid_params

if TYPE_CHECKING:
    import asyncio

    from gramercy.mcp.conversation import Conversation
    from gramercy.mcp.jsonrpc import Request

# Each has a task of the event loop and what its handler holds, some kilobytes, until a person decides.
MOST_PARKED = 1_000
# One principal must leave room for others.
MOST_PARKED_OF_ONE = 200
# What a retry may have that its first try had not.
_CHANGING = frozenset({"_meta", "inputResponses", "requestState"})


class _Parked(msgspec.Struct, frozen=True):
    conversation: Conversation
    digest: str
    principal: str
    timer: asyncio.TimerHandle


class ParkedCalls:
    """The conversations that wait for another request; each is given up when its time is over."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._key = token_bytes(32)
        self._parked: dict[str, _Parked] = {}
        self._owned: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._parked)

    def check_room(self, principal: str) -> None:
        """Raise ExecutionError when no more calls can be parked."""
        if len(self._parked) >= MOST_PARKED or self._owned[principal] >= MOST_PARKED_OF_ONE:
            raise ExecutionError("too many calls already wait for an answer: try again later")

    def keep(self, conversation: Conversation) -> str:
        """Keep a conversation; return what names it to the client."""
        name = token_urlsafe(16)
        request = conversation.request
        principal = request.peer.principal
        timer = conversation.loop.call_later(self._patience, self._expire, name)
        self._parked[name] = _Parked(conversation, digest_of(request), principal, timer)
        self._owned[principal] += 1
        return f"{name}.{self._signature(name)}"

    def find(self, request: Request) -> tuple[str, Conversation]:
        """Return the conversation that a request goes on with, by its name; raise ProtocolError if none."""
        name, _, signature = request.text("requestState").partition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(name).encode()):
            raise invalid_params("requestState was not made by this server")
        parked = self._parked.get(name)
        if parked is None:
            raise invalid_params("requestState was used before or has expired; send the request without it")
        if parked.principal != request.peer.principal or parked.digest != digest_of(request):
            raise invalid_params("requestState belongs to another request")
        return name, parked.conversation

    def release(self, name: str) -> Conversation | None:
        """Keep a conversation no longer; its name works only once."""
        parked = self._parked.pop(name, None)
        if parked is None:
            return None
        parked.timer.cancel()
        self._owned[parked.principal] -= 1
        if not self._owned[parked.principal]:
            del self._owned[parked.principal]
        return parked.conversation

    def _expire(self, name: str) -> None:
        conversation = self.release(name)
        if conversation is not None:
            conversation.expire(f"nobody answered within {self._patience:g} s")

    def _signature(self, name: str) -> str:
        return hmac.digest(self._key, name.encode(), "sha256").hex()

    def close(self) -> None:
        """Cancel all."""
        for name in list(self._parked):
            conversation = self.release(name)
            if conversation is not None:
                conversation.cancel()


def digest_of(request: Request) -> str:
    """Identify what a request wants, the same for every client and every retry."""
    wanted = {name: value for name, value in request.params.items() if name not in _CHANGING}
    return hashlib.sha256(canonical_text([request.method, wanted]).encode()).hexdigest()


def input_responses(request: Request) -> dict[str, Any]:
    """Return the answers that came with a request; raise ProtocolError when they are no objects."""
    answers = request.mapping("inputResponses")
    for key, answer in answers.items():
        if type(answer) is not dict:
            raise invalid_params(f"inputResponses.{key[:100]} must be an object")
    return answers
