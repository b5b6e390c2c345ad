"""Read a descriptor as bytes come, with a way to pause; a file, which is always ready, a part at a time."""

from __future__ import annotations

import asyncio
import os
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 1 << 16
# How often a paused box looks whether there is still somebody at the other end.
LOOK_SECONDS = 0.2


class Inbox:
    """Calls `on_chunk` with what was read, and at the end once with nothing.

    The end cannot be read while the box is paused: `on_left` is called when it is seen to be near.
    """

    def __init__(
        self, descriptor: int, on_chunk: Callable[[bytes], None], *, on_left: Callable[[], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._on_chunk = on_chunk
        self._on_left = on_left
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLRDHUP)
        self._is_file = self._is_open = self._has_ended = False

    def resume(self) -> None:
        """Read on."""
        if self._is_open or self._has_ended:
            return
        self._is_open = True
        if not self._is_file:
            try:
                self._loop.add_reader(self._descriptor, self._read)
            except OSError:  # what cannot be waited for need not be
                self._is_file = True
        if self._is_file:
            self._loop.call_soon(self._read)

    def pause(self) -> None:
        """Leave what comes where it is, so that its sender has to wait."""
        if self._is_open and not self._is_file:
            self._loop.remove_reader(self._descriptor)
            self._loop.call_later(LOOK_SECONDS, self._look)
        self._is_open = False

    def _look(self) -> None:
        if self._is_open or self._has_ended:
            return
        if self._poll.poll(0):
            self._on_left()
        else:
            self._loop.call_later(LOOK_SECONDS, self._look)

    def close(self) -> None:
        """Read no more."""
        self.pause()
        self._has_ended = True

    def _read(self) -> None:
        if not self._is_open:
            return
        try:
            chunk = os.read(self._descriptor, CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            chunk = b""
        if not chunk:
            self.close()
        elif self._is_file:
            self._loop.call_soon(self._read)
        self._on_chunk(chunk)
