"""One connection that reads a stream: it waits, writes, keeps alive, and notices that its client went."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gramercy.mcp.http import sse
from gramercy.mcp.http.responses import end_stream, send_piece, start_stream
from gramercy.mcp.http.streams import RETRY_MS

if TYPE_CHECKING:
    from gramercy.mcp.http.responses import Receive, Send
    from gramercy.mcp.http.streams import Stream


class Delivery:
    """Reads one stream for one connection; `end` must be called, whatever happens."""

    __slots__ = ("_attachment", "_open", "_stream", "_watch", "is_gone")

    def __init__(self, stream: Stream, receive: Receive, is_open: set[Delivery]) -> None:
        self.is_gone = False
        self._stream = stream
        self._attachment = stream.attach()
        self._watch = asyncio.get_running_loop().create_task(self._watch_connection(receive))
        self._open = is_open
        is_open.add(self)

    def stop(self) -> None:
        """Let the connection end as if its client had gone."""
        self.is_gone = True
        self._stream.wake()

    def end(self) -> None:
        """Leave the stream."""
        self._open.discard(self)
        self._watch.cancel()
        self._stream.detach(self._attachment)

    async def wait(self, seconds: float) -> None:
        """Wait until there is something to tell, the client has gone, or the time is over."""
        stream = self._stream
        while not (stream.place or stream.is_finished or stream.is_released or self.is_gone):
            if not await stream.stir(seconds):
                return

    async def pump(self, send: Send, cursor: int, keepalive: float) -> None:
        """Write the events after a place as they come, until the stream or the connection ends."""
        stream = self._stream
        await start_stream(send)
        while not self._is_over():
            events, cursor = stream.take(cursor)
            if events:
                await send_piece(send, events)
            elif stream.is_finished:
                break
            elif stream.is_released:
                await send_piece(send, sse.encode_retry(RETRY_MS))
                break
            elif not await stream.stir(keepalive) and not self._is_over():
                await send_piece(send, sse.KEEPALIVE)
        await end_stream(send)

    def _is_over(self) -> bool:
        return self.is_gone or not self._stream.is_read_by(self._attachment)

    async def _watch_connection(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.stop()
