"""Streams of events to one client, as server-sent events, and the connections that read them.

The buffer of a stream is bounded. A stream with a number can be resumed after the last event that arrived; a
stream without one forgets what was sent. This module does not know what the messages mean.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from gramercy.mcp.base import note_sent
from gramercy.mcp.http.exchange import end_stream, send_piece, start_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.mcp.http.exchange import Receive, Send
    from gramercy.mcp.http.settings import HttpSettings

# How soon a client should reconnect: a person just notices a pause of half a second.
RETRY_MS = 500
# Events in one write to the connection, so that a full stream does not delay the loop.
CHUNK = 256


class Ground:
    """The shared parts of all streams of a server: the event loop and their limits."""

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
        """Let the client return for the rest: end the connection, not the request (legacy only)."""
        if threading.get_ident() != self._ground.thread:
            self._elsewhere(self.close_stream)
        elif not self.is_finished and self.number is not None and (self._primes or self.place):
            self.is_released = True
            self.wake()

    def run(self, task: asyncio.Future[bytes | None], lost: Callable[[BaseException], bytes]) -> None:
        """Take the answer of a request from its task; if the task fails, use the answer that `lost` makes."""
        self._task = task

        def settle(done: asyncio.Future[bytes | None]) -> None:
            if done.cancelled():
                self.finish(None)
                return
            error = done.exception()
            self.finish(done.result() if error is None else lost(error))

        task.add_done_callback(settle)

    def sent(self) -> None:
        """Note that the answer has been written to the client."""
        note_sent(self._task)

    def finish(self, answer: bytes | None) -> None:
        """End the stream with an answer, or without one."""
        if not self.is_finished:
            self.is_finished = True
            self.answer = answer
            self.wake()

    def abandon(self) -> None:
        """Cancel the request of the stream and drop everything."""
        task, self._task = self._task, None
        if task is not None and not task.done():
            task.cancel()
        self.finish(None)
        self._events = None
        self._size = 0

    def prime(self) -> None:
        """Begin with the empty event that makes a stream resumable from its start, if the client knows it."""
        if self._primes:
            self._primes = False
            self.place += 1
            self._add(encode_priming(f"{self.number}-{self.place}", RETRY_MS))

    def attach(self) -> int:
        """Count a new reading connection, and detach the previous one."""
        if self._attached:
            self.is_released = False
        self._attached += 1
        self.detached_at = None
        self.wake()
        return self._attached

    def is_read_by(self, attachment: int) -> bool:
        """Tell whether a connection is still the reading one."""
        return self._attached == attachment

    def detach(self, attachment: int) -> None:
        """Note that a connection has gone; the stream waits for the next one."""
        if self._attached == attachment:
            self.detached_at = self._ground.loop.time()

    def take(self, cursor: int) -> tuple[bytes, int]:
        """Return the next events after a position as bytes (maybe empty), and the new position."""
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
        """Tell whether everything after a position is still there."""
        kept = 0 if self._events is None else len(self._events)
        return self.place - kept <= cursor <= self.place

    def wake(self) -> None:
        """Wake the connection that waits in `stir`."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def stir(self, seconds: float) -> bool:
        """Wait until something happens; False after a timeout."""
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


class Delivery:
    """Reads one stream for one connection; `end` must always be called."""

    __slots__ = ("_attachment", "_open", "_stream", "_watch", "is_gone")

    def __init__(self, stream: Stream, receive: Receive, is_open: set[Delivery]) -> None:
        self.is_gone = False
        self._stream = stream
        self._attachment = stream.attach()
        self._watch = asyncio.get_running_loop().create_task(self._watch_connection(receive))
        self._open = is_open
        is_open.add(self)

    def stop(self) -> None:
        """Let the connection end as if its client had disconnected."""
        self.is_gone = True
        self._stream.wake()

    def end(self) -> None:
        """Leave the stream."""
        self._open.discard(self)
        self._watch.cancel()
        self._stream.detach(self._attachment)

    async def wait(self, seconds: float) -> None:
        """Wait until there is something to send, the client has disconnected, or the time is over."""
        stream = self._stream
        while not (stream.place or stream.is_finished or stream.is_released or self.is_gone):
            if not await stream.stir(seconds):
                return

    async def pump(self, send: Send, cursor: int, keepalive: float) -> None:
        """Write the events after a position as they come, until the stream or the connection ends."""
        stream = self._stream
        await start_stream(send)
        while not self._is_over():
            events, cursor = stream.take(cursor)
            if events:
                await send_piece(send, events)
            elif stream.is_finished:
                stream.sent()
                break
            elif stream.is_released:
                await send_piece(send, encode_retry(RETRY_MS))
                break
            elif not await stream.stir(keepalive) and not self._is_over():
                await send_piece(send, KEEPALIVE)
        await end_stream(send)

    def _is_over(self) -> bool:
        return self.is_gone or not self._stream.is_read_by(self._attachment)

    async def _watch_connection(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.stop()


KEEPALIVE = b": still here\n\n"


def encode_event(message: bytes, event_id: str | None = None) -> bytes:
    """Return a message as one event."""
    head = f"id: {event_id}\n".encode() if event_id is not None else b""
    if b"\n" in message or b"\r" in message:
        # JSON needs no line breaks, so the ones in the message are whitespace between tokens.
        message = message.replace(b"\r", b" ").replace(b"\n", b" ")
    return head + b"data: " + message + b"\n\n"


def encode_priming(event_id: str, retry_ms: int) -> bytes:
    """Return the empty event that tells a client from where, and how soon, to resume."""
    return f"id: {event_id}\nretry: {retry_ms}\ndata: \n\n".encode()


def encode_retry(retry_ms: int) -> bytes:
    """Return the field that tells a client how soon to reconnect."""
    return f"retry: {retry_ms}\n\n".encode()


def split_event_id(text: bytes) -> tuple[int, int] | None:
    """Return the stream and position of an event id, or None for an invalid id."""
    stream, dash, place = text.partition(b"-")
    if not (dash and stream.isdigit() and place.isdigit() and len(text) <= 40):  # noqa: PLR2004 - two numbers
        return None
    return int(stream), int(place)
