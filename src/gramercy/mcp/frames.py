"""Cut a stream of bytes into frames, one a line. Knows neither JSON nor where the bytes come from."""

from __future__ import annotations

LARGEST_FRAME = 10 * 1024 * 1024
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Splitter:
    """Collects chunks and gives the frames that are complete.

    Empty lines, a carriage return before the newline and a byte order mark are nobody's fault and left out. A
    line longer than the limit is given as None once, and thrown away up to its end without being kept.
    """

    __slots__ = ("_begun", "_is_skipping", "_limit")

    def __init__(self, limit: int = LARGEST_FRAME) -> None:
        self._limit = limit
        self._begun = bytearray()
        self._is_skipping = False

    def feed(self, chunk: bytes) -> list[bytes | None]:
        """Take what was read and return the frames that it completes."""
        is_whole = chunk.find(b"\n") == len(chunk) - 1 <= self._limit
        if is_whole and not self._begun and not self._is_skipping:
            # One frame, as nearly always.
            return _cleaned(chunk)
        *lines, rest = chunk.split(b"\n")
        found: list[bytes | None] = []
        for line in lines:
            found += self._add(line)
            found += self._take()
        found += self._add(rest)
        return found

    def finish(self) -> list[bytes | None]:
        """Return what stands after the last newline, now that nothing comes any more."""
        return self._take()

    def _add(self, part: bytes) -> list[bytes | None]:
        """Keep a part of a line; one that makes it too long is told at once, so that nobody waits."""
        if self._is_skipping or not part:
            return []
        self._begun += part
        if len(self._begun) <= self._limit:
            return []
        self._begun = bytearray()
        self._is_skipping = True
        return [None]

    def _take(self) -> list[bytes | None]:
        """End the line."""
        line, self._begun = bytes(self._begun), bytearray()
        self._is_skipping = False
        return _cleaned(line)


def _cleaned(line: bytes) -> list[bytes | None]:
    frame = line.strip()
    if frame.startswith(BYTE_ORDER_MARK):
        frame = frame[len(BYTE_ORDER_MARK) :].lstrip()
    return [frame] if frame else []
