"""The editor at the other end: what it can do, what it is told, and what it is asked."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError
from itertools import count
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from gramercy.errors import ExecutionError
from gramercy.mcp.jsonrpc import notification, request

if TYPE_CHECKING:
    from pathlib import Path

    from gramercy.mcp.base import Channel
    from gramercy.mcp.jsonrpc import Message

# An editor has the text at hand; one that does not answer must not hold up a tool.
READ_SECONDS = 5.0
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
        if self.channel is None:
            raise ExecutionError(f"{self.name} has gone")
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


class EditorFiles:
    """The files of a project as the editor has them in one session, with what is not saved yet.

    Made on the thread of the event loop; tools ask from threads of their own.
    """

    def __init__(self, editor: Editor, session: str) -> None:
        self._editor = editor
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    @property
    def name(self) -> str:
        """The editor, as a person calls it."""
        return self._editor.name

    async def read(self, path: Path) -> str | None:
        """Return the text of a file; None where the editor does not tell."""
        params = {"sessionId": self._session, "path": str(path)}
        try:
            async with asyncio.timeout(READ_SECONDS):
                found = (await self._editor.ask("fs/read_text_file", params)).get("content")
        except (ExecutionError, TimeoutError):
            # There is no such file, or it is no text: then the tools say so themselves.
            return None
        return found if isinstance(found, str) else None

    def text(self, path: Path) -> str | None:
        """Return the same to a thread that waits for it."""
        if threading.get_ident() == self._thread or self._loop.is_closed():
            return None
        reading = asyncio.run_coroutine_threadsafe(self.read(path), self._loop)
        try:
            return reading.result(2 * READ_SECONDS)
        except (TimeoutError, CancelledError):
            return None


def _told(error: Any) -> str:
    text = error.get("message") if isinstance(error, dict) else error
    return str(text)[:LONGEST_TROUBLE]
