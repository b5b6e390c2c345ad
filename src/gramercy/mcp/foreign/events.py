"""Read server-sent events from a stream of bytes, within bounds. Knows nothing of what they carry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gramercy.mcp.foreign.failures import ServerGoneError
from gramercy.mcp.pipes import LARGEST_FRAME

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class EventReader:
    """Collects the data of events; remembers the last id and how soon the server wants to be asked again."""

    def __init__(self) -> None:
        self.last_id: str | None = None
        self.retry_ms = 1_000
        self._begun = bytearray()
        self._data: list[bytes] = []
        self._size = 0

    async def read(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Give the data of each event that has any."""
        async for chunk in chunks:
            self._begun += chunk
            if b"\n" not in chunk and b"\r" not in chunk:
                self._check(len(self._begun))
                continue
            # A carriage return at the end may be half of a line's end, and alone it is a whole one.
            held = b"\r" if self._begun.endswith(b"\r") else b""
            whole = self._begun.removesuffix(held) if held else self._begun
            *lines, rest = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
            self._begun = rest + held
            for line in lines:
                event = self._take(bytes(line))
                if event:
                    yield event

    def _take(self, line: bytes) -> bytes:
        """Take one line; return the data of the event that it ends."""
        if not line:
            event, self._data, self._size = b"\n".join(self._data), [], 0
            return event
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._size += len(value) + 1
            self._check(self._size)
            self._data.append(value)
        elif field == b"id" and len(value) <= 1_000 and b"\0" not in value:  # noqa: PLR2004 - longer is abuse
            self.last_id = value.decode("utf-8", "replace")
        elif field == b"retry" and value.isdigit():
            self.retry_ms = min(int(value[:6]), 30_000)
        return b""

    @staticmethod
    def _check(size: int) -> None:
        if size > LARGEST_FRAME:
            raise ServerGoneError(f"it sent a message of more than {LARGEST_FRAME:,} bytes")
