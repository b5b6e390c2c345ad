"""Modern calls that wait for a person: the client got the questions as a result, and must return.

The state that it brings back names the parked call and the requested approvals, and holds nothing else. It is
signed, works once, and only for the same request of the same principal. If the journal outlives the process,
a state of an earlier process lets the call be made again: the journal has the call, and an answer counts if
it answers the very question that is still open.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from gramercy.errors import ExecutionError
from gramercy.journal.texts import canonical_text
from gramercy.mcp.jsonrpc import invalid_params

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from gramercy.mcp.conversation import Conversation
    from gramercy.mcp.jsonrpc import Request
    from gramercy.mcp.signing import Signer

# Each holds a task of the event loop and the memory of its handler, some kilobytes, until a person decides.
MOST_PARKED = 1_000
# One principal must leave room for others.
MOST_PARKED_OF_ONE = 200
# Parameters of a retry that its first try did not have.
_CHANGING = frozenset({"_meta", "inputResponses", "requestState"})


# Hexadecimal digits of a digest in a state: 128 bits.
DIGITS = 32
# The purpose of a signature, so that no other signed name of ours passes for it.
PURPOSE = "parked"
# Identifies an answer as the answer to a question of an earlier process.
Stamps: TypeAlias = frozenset[str]


class _Parked(msgspec.Struct, frozen=True):
    conversation: Conversation
    principal: str
    timer: asyncio.TimerHandle


class ParkedCalls:
    """The conversations that wait for another request; each expires when its time is over."""

    def __init__(self, patience: float, signer: Signer, *, is_durable: bool = False) -> None:
        self._patience = patience
        self._signer = signer
        self._is_durable = is_durable
        self._parked: dict[str, _Parked] = {}
        self._owned: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._parked)

    def check_room(self, principal: str) -> None:
        """Raise ExecutionError when no more calls can be parked."""
        if len(self._parked) >= MOST_PARKED or self._owned[principal] >= MOST_PARKED_OF_ONE:
            raise ExecutionError("too many calls already wait for an answer: try again later")

    def keep(self, conversation: Conversation) -> str:
        """Keep a conversation; return its name for the client."""
        name = token_urlsafe(16)
        request = conversation.request
        principal = request.peer.principal
        timer = conversation.loop.call_later(self._patience, self._expire, name)
        self._parked[name] = _Parked(conversation, principal, timer)
        self._owned[principal] += 1
        stamps = (question.stamp for question in conversation.questions.values())
        text = ".".join((name, self._signer.process, *_of_call(request, stamps)))
        return self._signer.signed(PURPOSE, text)

    def find(self, request: Request) -> tuple[str, Conversation] | Stamps:
        """Return the conversation that a request resumes, and its name; raise ProtocolError if there is none.

        For a call that an earlier process has parked, return the stamps of its questions.
        """
        text = self._signer.read(PURPOSE, request.text("requestState"))
        if text is None:
            raise invalid_params("requestState was not made by this server")
        name, process, bound, *stamps = text.split(".")
        parked = self._parked.get(name)
        if parked is None and (process == self._signer.process or not self._is_durable):
            raise invalid_params("requestState was used before or has expired; send the request without it")
        if bound != _of_call(request, ())[0]:
            raise invalid_params("requestState belongs to another request")
        return frozenset(stamps) if parked is None else (name, parked.conversation)

    def release(self, name: str) -> Conversation | None:
        """Remove a conversation; its name works only once."""
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

    def close(self) -> None:
        """Cancel all."""
        for name in list(self._parked):
            conversation = self.release(name)
            if conversation is not None:
                conversation.cancel()


def digest_of(request: Request) -> str:
    """Identify the content of a request, equally for every client and every retry."""
    wanted = {name: value for name, value in request.params.items() if name not in _CHANGING}
    return hashlib.sha256(canonical_text([request.method, wanted]).encode()).hexdigest()


def _of_call(request: Request, stamps: Iterable[str]) -> tuple[str, ...]:
    """Return the digests that bind a state to its request and principal, and the stamps of the questions."""
    whose = canonical_text([request.peer.principal, digest_of(request)])
    return hashlib.sha256(whose.encode()).hexdigest()[:DIGITS], *filter(None, stamps)


def stamp_of(question: Any) -> str:
    """Identify a question by everything that it shows and is about."""
    return hashlib.sha256(canonical_text(question).encode()).hexdigest()[:DIGITS]


def input_responses(request: Request) -> dict[str, Any]:
    """Return the answers that came with a request; raise ProtocolError if they are not objects."""
    answers = request.mapping("inputResponses")
    for key, answer in answers.items():
        if type(answer) is not dict:
            raise invalid_params(f"inputResponses.{key[:100]} must be an object")
    return answers
