"""A stream of events to one client: what a request or a session says besides its answers.

Bounded in what it keeps; with a number it can be resumed after the last event that arrived, without one it
forgets what was sent. Knows nothing of HTTP: connections come, read, and go.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from gramercy.mcp.http.sse import encode_event, encode_priming

if TYPE_CHECKING:
    from gramercy.mcp.http.settings import HttpSettings

RETRY_MS = 500
# What is handed to the connection at a time.
CHUNK = 256


class Ground:
    """What all streams of a server stand on: its event loop, and their limits."""

    __slots__ = ("loop", "settings", "thread")

    def __init__(self, settings: HttpSettings) -> None:
        self.settings = settings
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()


class Stream:
    """One stream; a Channel for the engine."""

    __slots__ = (
        "_attached",
        "_events",
        "_ground",
        "_primes",
        "_size",
        "_task",
        "_waiter",
        "answer",
        "delivered",
        "detached_at",
        "is_finished",
        "is_released",
        "number",
        "place",
    )

    def __init__(self, ground: Ground, number: int | None = None, *, primes: bool = False) -> None:
        self.number = number
        self.place = 0
        self.delivered = 0
        self.answer: bytes | None = None
        self.is_finished = False
        self.is_released = False
        self.detached_at: float | None = None
        self._ground = ground
        self._primes = primes
        self._events: deque[bytes] | None = None
        self._size = 0
        self._attached = 0
        self._task: asyncio.Future[bytes | None] | None = None
        self._waiter: asyncio.Future[None] | None = None

    def send(self, message: bytes) -> None:
        """Add a message, from any thread; dropped when the stream has ended or its reader is too slow."""
        if threading.get_ident() != self._ground.thread:
            self._elsewhere(self.send, message)
        elif not self.is_finished and not self._is_full():
            self.prime()
            self._append(message)

    def close_stream(self) -> None:
        """Let the client come back for the rest: ends the connection, not the request (older era only)."""
        if threading.get_ident() != self._ground.thread:
            self._elsewhere(self.close_stream)
        elif not self.is_finished and self.number is not None and (self._primes or self.place):
            self.is_released = True
            self.wake()

    def run(self, task: asyncio.Future[bytes | None], failure: bytes) -> None:
        """Take the answer of a request from its task, the given one if that fails."""
        self._task = task

        def settle(done: asyncio.Future[bytes | None]) -> None:
            if done.cancelled():
                self.finish(None)
            else:
                self.finish(failure if done.exception() is not None else done.result())

        task.add_done_callback(settle)

    def finish(self, answer: bytes | None) -> None:
        """End the stream with an answer, or without one."""
        if not self.is_finished:
            self.is_finished = True
            self.answer = answer
            self.wake()

    def abandon(self) -> None:
        """Cancel the request of the stream and forget everything."""
        task, self._task = self._task, None
        if task is not None and not task.done():
            task.cancel()
        self.finish(None)
        self._events = None
        self._size = 0

    def prime(self) -> None:
        """Begin with the empty event that makes the stream resumable from its start, where that is known."""
        if self._primes:
            self._primes = False
            self.place += 1
            self._add(encode_priming(f"{self.number}-{self.place}", RETRY_MS))

    def attach(self) -> int:
        """Count a connection that reads from now on, and send away the one before it."""
        if self._attached:
            self.is_released = False
        self._attached += 1
        self.detached_at = None
        self.wake()
        return self._attached

    def is_read_by(self, attachment: int) -> bool:
        """Tell whether a connection is still the one that reads."""
        return self._attached == attachment

    def detach(self, attachment: int) -> None:
        """Count a connection that went; the stream waits for the next one."""
        if self._attached == attachment:
            self.detached_at = self._ground.loop.time()

    def take(self, cursor: int) -> tuple[bytes, int]:
        """Return the next events after a place, as bytes, and the place they reach; no bytes for none."""
        if self.is_finished and self.answer is not None:
            answer, self.answer = self.answer, None
            self.prime()
            self._append(answer)
        if self._events is None or cursor >= self.place:
            return b"", self.place
        first = self.place - len(self._events)
        start = max(0, cursor - first)
        chosen = list(islice(self._events, start, start + CHUNK))
        reached = first + start + len(chosen)
        self.delivered = max(self.delivered, reached)
        self._trim()
        return b"".join(chosen), reached

    def holds(self, cursor: int) -> bool:
        """Tell whether everything after a place is still there."""
        kept = 0 if self._events is None else len(self._events)
        return self.place - kept <= cursor <= self.place

    def wake(self) -> None:
        """Make whoever waits in `stir` look again."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def stir(self, seconds: float) -> bool:
        """Wait until something happens; tell whether it did, or the time was over."""
        loop = self._ground.loop
        waiter = self._waiter = loop.create_future()
        until = loop.time() + seconds
        timer = loop.call_later(seconds, self.wake)
        try:
            await waiter
        finally:
            timer.cancel()
        return loop.time() < until

    def _append(self, message: bytes) -> None:
        self.place += 1
        self._add(encode_event(message, None if self.number is None else f"{self.number}-{self.place}"))
        self.wake()

    def _add(self, event: bytes) -> None:
        if self._events is None:
            self._events = deque()
        self._events.append(event)
        self._size += len(event)

    def _trim(self) -> None:
        events = self._events
        if events is None:
            return
        settings = self._ground.settings
        first = self.place - len(events) + 1
        while events and first <= self.delivered:
            is_over = self._size > settings.stream_limit or len(events) > settings.stream_events
            if self.number is not None and not is_over:
                break
            self._size -= len(events.popleft())
            first += 1

    def _is_full(self) -> bool:
        if self._events is None:
            return False
        self._trim()
        settings = self._ground.settings
        return self._size > settings.stream_limit or len(self._events) >= settings.stream_events

    def _elsewhere(self, function: object, *given: object) -> None:
        try:
            self._ground.loop.call_soon_threadsafe(function, *given)  # type: ignore[arg-type]
        except RuntimeError:
            # The server has ended.
            return
