"""Serve one client on standard input and output, and keep everything but frames off these two.

From then on print(), C code and child processes write to standard error, and read EOF. This module does not
know the contents of a frame.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections import deque
from fcntl import F_DUPFD_CLOEXEC, fcntl
from typing import TYPE_CHECKING

import msgspec

from gramercy.mcp.base import Peer, note_sent
from gramercy.mcp.jsonrpc import busy, too_long
from gramercy.mcp.pipes import LARGEST_FRAME, Inbox, Outbox, Overlong, Splitter

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from gramercy.mcp.base import Answer, Receiver
    from gramercy.mcp.pipes import Frame

# Each has a task and maybe a thread; a client with more pending requests does not wait for answers.
MOST_RUNNING = 256
# After the end of the input: for calls to finish, for cancelled calls to notice, for the rest to be written.
# Together with closing the images this must stay below a second.
LINGER_SECONDS = 0.2
CANCEL_SECONDS = 0.1
DRAIN_SECONDS = 0.1
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run_stdio(receiver: Receiver, wire: Descriptors | None = None) -> None:
    """Serve until the client leaves or a signal comes, on the fastest available event loop."""
    # Do this first: a loop has descriptors of its own, which must not get the numbers of the standard three.
    wire = wire or claim_descriptors()
    loop = _new_loop()
    try:
        loop.run_until_complete(serve_stdio(receiver, wire))
        loop.run_until_complete(_end_tasks())
    finally:
        # asyncio.run would wait without limit for tasks and threads that tools have started.
        loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = new_event_loop()
    return loop


async def _end_tasks() -> None:
    """Cancel work without a client, such as a task whose result was to be fetched later."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    if rest:
        await asyncio.wait(rest, timeout=CANCEL_SECONDS)


async def serve_stdio(receiver: Receiver, wire: Descriptors) -> None:
    """Serve until the client leaves or a signal comes; pending requests are cancelled then."""
    client = StdioConnection(receiver, wire)
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, client.hang_up)
    try:
        await client.serve()
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


class StdioConnection:
    """The client at the other end: its frames, its answers, and the channel of its requests."""

    def __init__(self, receiver: Receiver, wire: Descriptors) -> None:
        self._receiver = receiver
        self._peer = Peer(channel=self)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._inbox = Inbox(wire.reader, self._take, on_left=self.hang_up)
        self._outbox = Outbox(wire.writer, on_room=self._answer, on_broken=self.hang_up)
        self._splitter = Splitter()
        self._frames: deque[Frame] = deque()
        self._running: set[asyncio.Future[bytes | None]] = set()
        self._is_over = asyncio.Event()
        self._linger = 0.0

    def send(self, message: bytes) -> None:
        """Send one message, from any thread; dropped if the client has left or does not read at all."""
        if threading.get_ident() == self._thread:
            self._send(message)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._send, message)

    def _send(self, message: bytes) -> None:
        if not self._outbox.is_overfull:
            self._outbox.write(message + b"\n")

    def hang_up(self) -> None:
        """Stop serving at once."""
        self._inbox.close()
        self._frames.clear()
        self._is_over.set()

    async def serve(self) -> None:
        """Answer frames until the client leaves, then end the pending requests."""
        self._inbox.resume()
        try:
            await self._is_over.wait()
            await self._settle(self._linger)
        finally:
            self._inbox.close()
            self._receiver.close(self._peer)
            for future in self._running:
                future.cancel()
            await self._settle(CANCEL_SECONDS)
            await self._outbox.drain(DRAIN_SECONDS)

    async def _settle(self, seconds: float) -> None:
        """Wait for the pending answers, at most `seconds`."""
        if self._running and seconds:
            await asyncio.wait(self._running, timeout=seconds)

    def _take(self, chunk: bytes) -> None:
        if chunk:
            self._frames += self._splitter.feed(chunk)
        else:
            # `printf ... | gramercy serve` sends EOF at once and still wants its answers.
            self._frames += self._splitter.finish()
            self._linger = LINGER_SECONDS
            self._is_over.set()
        self._answer()

    def _answer(self) -> None:
        """Answer the frames that have come; stop reading while the client reads no answers (backpressure)."""
        frames, outbox = self._frames, self._outbox
        while frames and not outbox.is_full:
            frame = frames.popleft()
            answer: Answer
            if isinstance(frame, Overlong):
                answer = too_long(LARGEST_FRAME, frame.beginning)
            elif len(self._running) < MOST_RUNNING:
                answer = self._receiver.handle(self._peer, frame, self)
            else:
                answer = busy(frame, MOST_RUNNING) or self._receiver.handle(self._peer, frame, self)
            if type(answer) is bytes:
                outbox.write(answer + b"\n")
            elif answer is not None:
                self._await(answer)  # type: ignore[arg-type]
        if outbox.is_full:
            self._inbox.pause()
        elif not self._inbox.is_open:
            self._inbox.resume()

    def _await(self, answer: Awaitable[bytes | None]) -> None:
        future = asyncio.ensure_future(answer)
        self._running.add(future)
        future.add_done_callback(self._finish)

    def _finish(self, future: asyncio.Future[bytes | None]) -> None:
        self._running.discard(future)
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            _complain(f"an answer was lost: {type(error).__name__}: {error}")
            return
        answer = future.result()
        if answer is not None:
            self._outbox.write(answer + b"\n")
            note_sent(future)


def _complain(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # stderr may be closed
        sys.stderr.write(f"gramercy: {text}\n")


# The numbers below are stdin, stdout and stderr.
FIRST_PRIVATE = 3


class Descriptors(msgspec.Struct, frozen=True):
    """The two ends of a wire, which no child process inherits."""

    reader: int
    writer: int


def claim_descriptors() -> Descriptors:
    """Return private copies of standard input and output, and point the public ones elsewhere."""
    opened = os.open(os.devnull, os.O_RDWR)
    nowhere = _copy(opened)
    os.close(opened)
    if sys.stdout is not None:
        sys.stdout.flush()
    for public in (0, 1, 2):
        # A process may be started without any of the three; the next open() must not get their numbers.
        if not _is_open(public):
            os.dup2(nowhere, public)
    wire = Descriptors(_copy(0), _copy(1))
    os.dup2(nowhere, 0)
    os.dup2(2, 1)
    os.close(nowhere)
    # The old stdout would write printed lines in blocks, long after they were printed.
    sys.stdout = sys.stderr
    return wire


def _copy(descriptor: int) -> int:
    return fcntl(descriptor, F_DUPFD_CLOEXEC, FIRST_PRIVATE)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
