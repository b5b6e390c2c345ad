"""Keep the last of what an image's processes print beside their replies: the only witness of some deaths."""

from __future__ import annotations

import os
import selectors
import threading
from collections import deque

KEPT = 16 * 1024
CHUNK = 1 << 16


class Log:
    """The tail of a pipe, read by one thread that all images share."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        _drain.add(self)

    def tail(self, most: int = 4096) -> str:
        """Return the last characters printed."""
        with self._lock:
            return b"".join(self._chunks)[-most:].decode("utf-8", "replace")

    def take(self, most: int = 4096) -> str:
        """Return the last characters printed and forget them: the next death has its own."""
        text = self.tail(most)
        with self._lock:
            self._chunks.clear()
            self._size = 0
        return text

    def keep(self, chunk: bytes) -> None:
        """Remember a chunk and forget the oldest beyond the limit."""
        with self._lock:
            self._chunks.append(chunk)
            self._size += len(chunk)
            while self._size - len(self._chunks[0]) >= KEPT:
                self._size -= len(self._chunks.popleft())

    def close_writer(self) -> None:
        """Give up this side's writing end once the processes have theirs."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def end(self) -> None:
        """Note that no process writes any more."""
        self._ended.set()

    def wait_for_end(self, seconds: float) -> None:
        """Wait until the last process has ended and all it said has been read, but not for ever."""
        self._ended.wait(seconds)


class _Drain:
    """Reads every log; started with the first one."""

    def __init__(self) -> None:
        self._selector: selectors.BaseSelector | None = None
        self._lock = threading.Lock()
        self._wake = -1

    def add(self, log: Log) -> None:
        with self._lock:
            if self._selector is None:
                self._start()
            assert self._selector is not None  # noqa: S101 - just started; this tells mypy
            self._selector.register(log.reader, selectors.EVENT_READ, log)
        os.write(self._wake, b"+")

    def _start(self) -> None:
        self._selector = selectors.DefaultSelector()
        wake_reader, self._wake = os.pipe()
        self._selector.register(wake_reader, selectors.EVENT_READ, None)
        threading.Thread(target=self._run, args=(self._selector,), name="gramercy-log", daemon=True).start()

    def _run(self, selector: selectors.BaseSelector) -> None:
        while True:
            for key, _ in selector.select():
                chunk = _read(key.fd)
                if key.data is not None and chunk:
                    key.data.keep(chunk)
                elif key.data is not None:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    key.data.end()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, CHUNK)
    except OSError:
        return b""


_drain = _Drain()
