"""Frames over descriptors: read with a way to pause, cut at newlines, write without blocking.

This module knows neither JSON nor where the bytes come from.
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from gramercy.mcp.salvage import BEGINNING

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 1 << 16  # what a pipe of Linux holds
# How often a paused reader polls for POLLRDHUP: EOF cannot be read while it is paused.
LOOK_SECONDS = 0.2


class Inbox:
    """Calls `on_chunk` with the data that was read, and once with empty data at the end.

    The end cannot be read while the reader is paused: `on_left` is called when a hang-up is detected.
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
        self._is_file = self.is_open = self._has_ended = False

    def resume(self) -> None:
        """Continue reading."""
        if self.is_open or self._has_ended:
            return
        self.is_open = True
        if not self._is_file:
            try:
                self._loop.add_reader(self._descriptor, self._read)
            except OSError:  # what cannot be waited for need not be
                self._is_file = True
        if self._is_file:
            self._loop.call_soon(self._read)

    def pause(self) -> None:
        """Stop reading, so that the sender has to wait."""
        if self.is_open and not self._is_file:
            self._loop.remove_reader(self._descriptor)
            self._loop.call_later(LOOK_SECONDS, self._look)
        self.is_open = False

    def _look(self) -> None:
        if self.is_open or self._has_ended:
            return
        if self._poll.poll(0):
            self._on_left()
        else:
            self._loop.call_later(LOOK_SECONDS, self._look)

    def close(self) -> None:
        """Stop reading for good."""
        self.pause()
        self._has_ended = True

    def _read(self) -> None:
        if not self.is_open:
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


# A file that a tool writes, or an image in base64, fits; a stream without newlines must not fill the memory.
LARGEST_FRAME = 10 * 1024 * 1024
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Overlong(NamedTuple):
    """The beginning of a line that is too long."""

    beginning: bytes


Frame: TypeAlias = "bytes | Overlong"


class Splitter:
    """Collects chunks and returns complete frames.

    Empty lines, a carriage return before the newline and a byte order mark are dropped. For a line longer
    than the limit the beginning is returned once; the rest of the line is dropped without being stored.
    """

    __slots__ = ("_begun", "_is_skipping", "_limit")

    def __init__(self, limit: int = LARGEST_FRAME) -> None:
        self._limit = limit
        self._begun = bytearray()
        self._is_skipping = False

    def feed(self, chunk: bytes) -> list[Frame]:
        """Take a chunk and return the frames that it completes."""
        is_whole = chunk.find(b"\n") == len(chunk) - 1 <= self._limit
        if is_whole and not self._begun and not self._is_skipping:
            # One frame, as nearly always, and an object with nothing around it.
            return [chunk[:-1]] if chunk[:1] == b"{" and chunk[-2:] == b"}\n" else _cleaned(chunk)
        *lines, rest = chunk.split(b"\n")
        found: list[Frame] = []
        for line in lines:
            found += self._add(line)
            found += self._take()
        found += self._add(rest)
        return found

    def finish(self) -> list[Frame]:
        """Return the text after the last newline, now that no more data comes."""
        return self._take()

    def _add(self, part: bytes) -> list[Frame]:
        """Store a part of a line; report a line that gets too long at once, before its end has come."""
        if self._is_skipping or not part:
            return []
        self._begun += part
        if len(self._begun) <= self._limit:
            return []
        # At most as much as the limit, so that it does not matter how the line was split into chunks.
        told = Overlong(bytes(self._begun[: min(BEGINNING, self._limit)]))
        self._begun = bytearray()
        self._is_skipping = True
        return [told]

    def _take(self) -> list[Frame]:
        """End the line."""
        line, self._begun = bytes(self._begun), bytearray()
        self._is_skipping = False
        return _cleaned(line)


def _cleaned(line: bytes) -> list[Frame]:
    frame = line.strip()
    if frame.startswith(BYTE_ORDER_MARK):
        frame = frame[len(BYTE_ORDER_MARK) :].lstrip()
    return [frame] if frame else []


# High-water mark: above it no more frames are read (backpressure). Above the second mark, which only messages
# beside the answers can reach, these messages are dropped.
FULL = 1 << 20
OVERFULL = 64 << 20


class Outbox:
    """Writes frames at once if there is room, and the rest later.

    `on_room` is called when a full outbox has room again, `on_broken` once on EPIPE or another error.
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
        # Whether the other side falls behind. An attribute, because every answer reads it.
        self.is_full = False
        self._size = 0
        # Only for pipes and sockets: O_NONBLOCK belongs to the open file, and other processes may share that
        # of a file or terminal.
        if waits_for_reader(descriptor):
            os.set_blocking(descriptor, False)

    @property
    def is_overfull(self) -> bool:
        """Whether the other side does not read at all."""
        return self._size > OVERFULL

    def write(self, frames: bytes) -> None:
        """Write, or buffer for later; dropped when the pipe is broken."""
        written = 0 if self._size or self._is_broken else self._write_some(frames)
        if written == len(frames) or self._is_broken:
            return
        if not self._size:
            self._emptied.clear()
            self._loop.add_writer(self._descriptor, self._write_more)
        self._waiting.append(memoryview(frames)[written:])
        self._size += len(frames) - written
        self.is_full = self._size > FULL

    async def drain(self, seconds: float) -> None:
        """Wait until everything is written, at most `seconds`."""
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
        self.is_full = self._size > FULL
        if was_full and not self.is_full:
            self._on_room()

    def _break(self) -> None:
        self._is_broken = True
        self._loop.remove_writer(self._descriptor)
        self._waiting.clear()
        self._size, self.is_full = 0, False
        self._emptied.set()
        self._on_broken()


def waits_for_reader(descriptor: int) -> bool:
    """Tell whether a full descriptor blocks its writer: pipes and sockets do."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
