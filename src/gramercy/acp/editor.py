"""The editor at the other end: its capabilities, updates to it, and questions to it."""

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

# An editor has the text at hand; if it does not answer, a tool must not wait for it.
READ_SECONDS = 5.0
# The length of the editor's name or error in our own sentences.
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
        """Store the editor's description of itself."""
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
        """Tell the editor what happens in a session."""
        self._send(notification("session/update", {"sessionId": session, "update": update}))

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the editor's answer, or raise ExecutionError if it has none.

        A cancelled question is withdrawn, so that the person no longer sees it.
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
        """Take an answer; an answer to a cancelled question is dropped."""
        answer = self._waiting.get(message.id) if isinstance(message.id, int) else None
        if answer is None or answer.done():
            return
        if message.error is UNSET:
            answer.set_result(message.result)
        else:
            answer.set_exception(ExecutionError(f"{self.name} cannot be asked: {_told(message.error)}"))

    def leave(self) -> None:
        """Fail the pending questions: the editor is gone."""
        self.channel = None
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ExecutionError(f"{self.name} has gone"))

    def _send(self, frame: bytes) -> None:
        if self.channel is not None:
            self.channel.send(frame)


class EditorFiles:
    """The files of a project as the editor has them in one session, including unsaved changes.

    It is made on the thread of the event loop; tools call it from threads of their own.
    """

    def __init__(self, editor: Editor, session: str) -> None:
        self._editor = editor
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    @property
    def name(self) -> str:
        """The name of the editor for people."""
        return self._editor.name

    async def read(self, path: Path) -> str | None:
        """Return the text of a file; None if the editor does not have it."""
        params = {"sessionId": self._session, "path": str(path)}
        try:
            async with asyncio.timeout(READ_SECONDS):
                found = (await self._editor.ask("fs/read_text_file", params)).get("content")
        except (ExecutionError, TimeoutError):
            # There is no such file, or it is not text: then the tools say so themselves.
            return None
        return found if isinstance(found, str) else None

    def text(self, path: Path) -> str | None:
        """Return the same from a thread, blocking it."""
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
