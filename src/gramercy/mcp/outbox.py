"""What waits to be written on a descriptor: in order, without ever blocking, and bounded."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import TYPE_CHECKING

from gramercy.mcp.descriptors import waits_for_reader

if TYPE_CHECKING:
    from collections.abc import Callable

# Beyond the first nothing more should be asked for; beyond the second, what nobody waits for is dropped.
FULL = 1 << 20
OVERFULL = 64 << 20


class Outbox:
    """Writes frames at once where there is room, and the rest when there is.

    `on_room` is called when a full box has room again, `on_broken` once when nobody can read any more.
    """

    def __init__(
        self, descriptor: int, *, on_room: Callable[[], None], on_broken: Callable[[], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._on_room = on_room
        self._on_broken = on_broken
        self._waiting: deque[memoryview] = deque()
        self._emptied = asyncio.Event()
        self._is_broken = False
        self._size = 0
        # Whoever shares an open file or a terminal would be surprised; a pipe has one writer.
        if waits_for_reader(descriptor):
            os.set_blocking(descriptor, False)

    @property
    def is_full(self) -> bool:
        """Whether the other side does not keep up."""
        return self._size > FULL

    @property
    def is_overfull(self) -> bool:
        """Whether the other side does not read at all."""
        return self._size > OVERFULL

    def write(self, frames: bytes) -> None:
        """Write, or keep for later; what nobody can read is dropped."""
        written = 0 if self._size or self._is_broken else self._write_some(frames)
        if written == len(frames) or self._is_broken:
            return
        if not self._size:
            self._emptied.clear()
            self._loop.add_writer(self._descriptor, self._write_more)
        self._waiting.append(memoryview(frames)[written:])
        self._size += len(frames) - written

    async def drain(self, seconds: float) -> None:
        """Wait until everything is written, at most so long."""
        if self._size:
            await asyncio.wait([asyncio.ensure_future(self._emptied.wait())], timeout=seconds)

    def _write_some(self, data: bytes | memoryview) -> int:
        try:
            return os.write(self._descriptor, data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self._break()
            return 0

    def _write_more(self) -> None:
        was_full = self.is_full
        while self._waiting:
            first = self._waiting[0]
            written = self._write_some(first)
            if self._is_broken:
                return
            self._size -= written
            if written < len(first):
                self._waiting[0] = first[written:]
                break
            self._waiting.popleft()
        else:
            self._loop.remove_writer(self._descriptor)
            self._emptied.set()
        if was_full and not self.is_full:
            self._on_room()

    def _break(self) -> None:
        self._is_broken = True
        self._loop.remove_writer(self._descriptor)
        self._waiting.clear()
        self._size = 0
        self._emptied.set()
        self._on_broken()
