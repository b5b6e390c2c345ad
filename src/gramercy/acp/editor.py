"""The editor at the other end: what it can do, what it is told, and what it is asked."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from gramercy.errors import ExecutionError
from gramercy.mcp.jsonrpc import notification, request

if TYPE_CHECKING:
    from gramercy.mcp.base import Channel
    from gramercy.mcp.jsonrpc import Message

# Of a name or an error of the editor's, in our own sentences.
LONGEST_NAME = 80
LONGEST_TROUBLE = 300


class Editor:
    """One client of the protocol. Everything happens on the thread of its event loop."""

    def __init__(self) -> None:
        self.channel: Channel | None = None
        self.capabilities: dict[str, Any] = {}
        self.name = "the editor"
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    def introduce(self, info: dict[str, Any] | None, capabilities: dict[str, Any] | None) -> None:
        """Take in what the editor says of itself."""
        named = (info or {}).get("title") or (info or {}).get("name")
        if isinstance(named, str) and named.strip():
            self.name = " ".join(named.split())[:LONGEST_NAME]
        self.capabilities = capabilities or {}

    def can(self, *path: str) -> bool:
        """Tell whether the editor has declared a capability: `fs readTextFile`, `elicitation form`."""
        found: Any = self.capabilities
        for word in path:
            found = found.get(word) if isinstance(found, dict) else None
        return found is not None and found is not False

    def update(self, session: str, update: dict[str, Any]) -> None:
        """Tell what happens in a session."""
        self._send(notification("session/update", {"sessionId": session, "update": update}))

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the editor's answer, or raise ExecutionError when it has none.

        A question that is given up is withdrawn, so that nobody answers it any more.
        """
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._send(request(number, method, params))
        try:
            found = await answer
        except asyncio.CancelledError:
            self._send(notification("$/cancel_request", {"requestId": number}))
            raise
        finally:
            del self._waiting[number]
        if not isinstance(found, dict):
            raise ExecutionError(f"{self.name} answered {method} with {type(found).__name__}, not an object")
        return found

    def answered(self, message: Message) -> None:
        """Take in an answer; one to a question that was given up is dropped."""
        answer = self._waiting.get(message.id) if isinstance(message.id, int) else None
        if answer is None or answer.done():
            return
        if message.error is UNSET:
            answer.set_result(message.result)
        else:
            answer.set_exception(ExecutionError(f"{self.name} cannot be asked: {_told(message.error)}"))

    def leave(self) -> None:
        """Let those go who wait for an answer: the editor is gone."""
        self.channel = None
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ExecutionError(f"{self.name} has gone"))

    def _send(self, frame: bytes) -> None:
        if self.channel is not None:
            self.channel.send(frame)


def _told(error: Any) -> str:
    text = error.get("message") if isinstance(error, dict) else error
    return str(text)[:LONGEST_TROUBLE]
