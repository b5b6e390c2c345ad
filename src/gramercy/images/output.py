"""The output of an image's processes: shared memory for the running evaluation, a pipe for the rest.

Both can be read at any moment, even after a process was killed. Evaluated code can write anything into them,
so their content is only used as bytes to show.
"""

from __future__ import annotations

import fcntl
import os
import re
import selectors
import struct
import termios
import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from typing import Self

# The layout is that of the writers inside the image (`streams`): a page of counters, then an area for each
# stream, with room for the part that a reply shows.
HEADER = 4096
AREA = 128 * 1024
# Of each job: a header, the ring for its output, and room for its reply.
JOBS, RING, ROOM = 4, 128 * 1024, 64 * 1024
JOB = HEADER + RING + ROOM
FIRST_JOB = HEADER + 2 * AREA
SIZE = FIRST_JOB + JOBS * JOB
# Of a job: its number, whether it runs (1) or is over (2), the bytes of its reply, the total of its output.
_JOB_HEAD = struct.Struct("=4IQ")
_OVER = 2
# The number of the request that wrote last, the bytes in each area, the characters printed to each stream,
# and the bytes of the text after these counters about the edited file that is being loaded.
_COUNTS = struct.Struct("=6I")


_ERASE = re.compile(r"\x1b\[[0-2]?K")


def folded(text: str) -> str:
    """Return the text that a terminal would finally show: a carriage return overwrites its line."""
    if "\r" not in text:
        return text
    return "\n".join(_folded_line(line) if "\r" in line else line for line in text.split("\n"))


def _folded_line(line: str) -> str:
    shown = ""
    # From the end: of earlier text only the longer part shows, so the work stays linear.
    for part in reversed(line.split("\r")):
        plain = _ERASE.sub("", part)
        shown += plain[len(shown) :]
        if plain != part:
            break
    return shown


class Printed(msgspec.Struct, frozen=True):
    """The beginning of the output. `truncated` has the whole length of a stream that was cut."""

    stdout: str = ""
    stderr: str = ""
    truncated: dict[str, int] = {}

    def folded(self) -> Printed:
        """Return the same as a terminal would show it."""
        texts = {name: folded(getattr(self, name)) for name in ("stdout", "stderr")}
        cut = {
            name: total - len(getattr(self, name)) + len(texts[name])
            for name, total in self.truncated.items()
        }
        return Printed(**texts, truncated=cut)


class JobOutput(NamedTuple):
    """The latest output of a job, its total, the lost part, and its reply at the end."""

    text: bytes
    written: int
    dropped: int
    reply: bytes | None


class OutputMirror:
    """Memory that the processes of an image share with this one. They inherit `fd`."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def make(cls) -> Self | None:
        """Make one. None where the system has no memfd."""
        if not hasattr(os, "memfd_create"):
            return None
        fd = os.memfd_create("gramercy-mirror", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, SIZE)
        # Sealed: evaluated code could shrink the file, and a process that maps it would get SIGBUS.
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        return cls(fd)

    def read(self, request: int) -> Printed:
        """Return the output of a request. Empty when another request wrote last."""
        number, *figures = _COUNTS.unpack(os.pread(self.fd, _COUNTS.size, 0))
        if number != request & 0xFFFFFFFF:
            return Printed()
        stdout, stderr = self._text(0, figures[0]), self._text(1, figures[1])
        totals = {"stdout": (stdout, figures[2]), "stderr": (stderr, figures[3])}
        cut = {name: total for name, (text, total) in totals.items() if total > len(text)}
        return Printed(stdout, stderr, cut)

    def read_attempt(self, request: int) -> bytes:
        """Return the text of a request about the edited file that it loads. Empty if there is none."""
        data = os.pread(self.fd, HEADER, 0)
        number, *_, size = _COUNTS.unpack_from(data)
        return data[_COUNTS.size :][:size] if number == request & 0xFFFFFFFF else b""

    def read_job(self, slot: int, number: int, since: int) -> JobOutput | None:
        """Return the output of a job from an offset on, and its reply. None where it has not begun."""
        start = FIRST_JOB + slot * JOB
        found, state, length, _, written = _JOB_HEAD.unpack(os.pread(self.fd, _JOB_HEAD.size, start))
        if found != number & 0xFFFFFFFF:
            return None
        since = min(since, written)
        kept = min(written - since, RING)
        at = (written - kept) % RING
        ring = start + HEADER
        first = os.pread(self.fd, min(kept, RING - at), ring + at)
        rest = os.pread(self.fd, kept - len(first), ring)
        reply = os.pread(self.fd, min(length, ROOM), ring + RING) if state == _OVER else None
        return JobOutput(first + rest, written, written - since - kept, reply)

    def _text(self, area: int, size: int) -> str:
        return os.pread(self.fd, min(size, AREA), HEADER + AREA * area).decode("utf-8", "replace")

    def close(self) -> None:
        """Close the descriptor of this process."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


# Bytes kept of a log. A reply and the report of a death show less.
KEPT = 16 * 1024
# The capacity of a pipe: one read empties it.
CHUNK = 1 << 16
# A program that prints without end would otherwise keep the reader in its loop.
MOST_READS = 64
_ZERO = bytes(4)
# Messages of SBCL's runtime, not of the user: guard pages, and the collector's tables at heap exhaustion. The
# error of the evaluation says that in a sentence.
_NOISE = re.compile(
    r"^(?:INFO: (?:Control|Binding|Alien) stack guard page (?:un|re)protected|"
    r"(?:Unable to |)Re-?protecting .* guard page|"
    r"Heap exhausted during |\s+Immobile Object Counts| Gen +(?:layout|Boxed)|(?:Tot| +\d)(?: +[\d.]+){5}|"
    r"GC control variables:| +\*(?:GC-INHIBIT|GC-PENDING|STOP-FOR-GC-PENDING)\*).*\n?",
    re.MULTILINE,
)


class Log:
    """The tail of a pipe, read by one thread for all images and by the thread that asks for news."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._size = 0
        # Bytes at the end that `news` has not returned yet, and the number of bytes dropped unread.
        self._new = self._dropped = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        _drain.add(self)

    def tail(self, most: int = 4096) -> str:
        """Return the last characters printed."""
        with self._lock:
            return self._joined()[-most:].decode("utf-8", "replace")

    def news(self, *, clean: bool = True) -> str:
        """Return the output since the last call, as far as kept. `clean` drops SBCL's own messages."""
        if self._is_waiting():
            self.pump()
        if not self._new:
            return ""
        with self._lock:
            data = self._joined()[-self._new :]
            dropped, self._dropped, self._new = self._dropped, 0, 0
        text = data.decode("utf-8", "replace")
        text = folded(_NOISE.sub("", text) if clean else text)
        return f"… [{dropped:,} bytes before this were not kept]\n{text}" if dropped else text

    def _is_waiting(self) -> bool:
        """Return whether there is input: FIONREAD costs less than a read that raises EAGAIN."""
        try:
            return fcntl.ioctl(self.reader, termios.FIONREAD, _ZERO) != _ZERO
        except (OSError, ValueError):  # closed after EOF, perhaps during this call
            return False

    def pump(self) -> bool:
        """Read the available output without blocking. Return False at EOF."""
        with self._lock:
            try:
                for _ in range(MOST_READS if self.reader >= 0 else 0):
                    chunk = os.read(self.reader, CHUNK)
                    if not chunk:
                        return False
                    self._keep(chunk)
            except BlockingIOError:
                pass
            return self.reader >= 0

    def _joined(self) -> bytes:
        return b"".join(self._chunks)

    def _keep(self, chunk: bytes) -> None:
        """Append a chunk and drop the oldest bytes beyond the limit."""
        self._chunks.append(chunk)
        self._size += len(chunk)
        self._new += len(chunk)
        while self._size - len(self._chunks[0]) >= KEPT:
            self._size -= len(self._chunks.popleft())
        if self._new > self._size:
            self._dropped += self._new - self._size
            self._new = self._size

    def close_writer(self) -> None:
        """Close the writing end of this process, so that EOF comes when the image's processes have ended."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def end(self) -> None:
        """Close the reading end after EOF."""
        with self._lock:
            os.close(self.reader)
            self.reader = -1
        self._ended.set()

    def wait_for_end(self, seconds: float) -> None:
        """Wait for EOF: the last process has ended and all its output was read."""
        self._ended.wait(seconds)


class _Drain:
    """The thread that reads every log. It starts with the first one."""

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
                if key.data is None:
                    os.read(key.fd, CHUNK)
                elif not key.data.pump():
                    selector.unregister(key.fd)
                    key.data.end()


_drain = _Drain()
