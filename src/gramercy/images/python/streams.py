"""What evaluated code sees as stdin, stdout and stderr.

The three objects live as long as the process. During an evaluation they keep the first characters and count
the rest, and show it to the parent as it comes; at any other time what threads print goes to the log. They
know nothing of forms or replies.
"""

import codecs
import io
import os
import sys

from .mirror import Area, Mirror

_write = os.write
_decoder = codecs.getincrementaldecoder("utf-8")


class CappedText(io.TextIOBase):
    """A text stream that keeps at most `limit` characters, however many are written."""

    def __init__(self, fd: int, name: str) -> None:
        self.name = name
        self.mode = "w"
        self.buffer = CappedBytes(self)
        self._fd = fd
        self._parts: list[str] | None = None
        self._room = 0
        self._area: Area | None = None
        self.total = 0

    encoding = "utf-8"
    errors = "backslashreplace"
    line_buffering = True

    def begin(self, limit: int, area: Area | None) -> None:
        """Start keeping what is written, in the area too."""
        self.buffer.reset()
        self._parts, self._room, self.total = [], limit, 0
        self._area = area

    def end(self) -> str:
        """Stop keeping and return what was kept."""
        self.buffer.finish()
        parts, self._parts = self._parts, None
        self.leave_mirror()
        return "".join(parts or ())

    def leave_mirror(self) -> None:
        """Show nothing to the parent from now on."""
        self._area = None

    def write(self, text: str) -> int:
        """Keep what there is room for and count all of it."""
        if not issubclass(type(text), str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        size = str.__len__(text)
        parts = self._parts
        if parts is None:
            self._log(text)
        elif self._room > 0:
            parts.append(str.__getitem__(text, slice(self._room)))
            self._room -= size
            self.total += size
            if len(parts) > 4096:  # noqa: PLR2004 - a million one-letter writes must not cost a million objects
                parts[:] = ["".join(parts)]
        else:
            self.total += size
        area = self._area
        if area is not None:
            area.add(text, self.total)
        return size

    def _log(self, text: str) -> None:
        try:
            _write(self._fd, text.encode("utf-8", "backslashreplace"))
        except OSError:
            return

    def writable(self) -> bool:
        """Say yes: that is what it is for."""
        return True

    def isatty(self) -> bool:
        """Say no: nobody is looking."""
        return False

    def fileno(self) -> int:
        """Return the descriptor of the log, for child processes that inherit it."""
        return self._fd

    def flush(self) -> None:
        """Do nothing; there is nothing between the writer and the buffer."""

    def close(self) -> None:
        """Stay open: the next evaluation prints here too."""

    def reconfigure(self, **_options: object) -> None:
        """Accept what programs ask of a terminal, and keep UTF-8."""


class CappedBytes(io.BufferedIOBase):
    """The binary side of a capped stream: bytes are read as UTF-8, with marks where they are not."""

    def __init__(self, text: CappedText) -> None:
        self._text = text
        self.raw = self
        self.reset()

    def reset(self) -> None:
        """Forget an unfinished character."""
        self._decode: codecs.IncrementalDecoder | None = None

    def finish(self) -> None:
        """Pass on what is left of an unfinished character."""
        if self._decode is not None:
            rest = self._decode.decode(b"", final=True)
            if rest:
                self._text.write(rest)

    def write(self, data: object) -> int:
        """Write bytes to the text stream, a piece at a time."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]  # any buffer; others raise TypeError here
        # Most evaluations write no bytes at all.
        decode = self._decode = self._decode or _decoder("replace")
        for start in range(0, len(view), 65536):
            self._text.write(decode.decode(bytes(view[start : start + 65536])))
        return len(view)

    def writable(self) -> bool:
        """Say yes: that is what it is for."""
        return True

    def fileno(self) -> int:
        """Return the descriptor of the log."""
        return self._text.fileno()

    def flush(self) -> None:
        """Do nothing; every write has been passed on."""

    def close(self) -> None:
        """Stay open, as the text stream does."""


class EmptyInput(io.TextIOBase):
    """A stdin at its end."""

    name = "<stdin>"
    encoding = "utf-8"

    def __init__(self) -> None:
        self.buffer = io.BytesIO()

    def readable(self) -> bool:
        """Say yes: the end can be read."""
        return True

    def read(self, _size: int | None = -1) -> str:
        """Return the end."""
        return ""

    def readline(self, _size: int = -1) -> str:  # type: ignore[override]  # the stubs name the parameter
        """Return the end."""
        return ""

    def fileno(self) -> int:
        """Return the descriptor of the null device."""
        return 0

    def close(self) -> None:
        """Stay open; exit() closes stdin before it raises."""


class Console:
    """The three streams of this process."""

    def __init__(self, mirror: Mirror | None) -> None:
        self._mirror = mirror
        self.stdin = EmptyInput()
        self.stdout = CappedText(1, "<stdout>")
        self.stderr = CappedText(2, "<stderr>")

    def install(self) -> None:
        """Put the streams back where user code may have put others."""
        sys.stdin, sys.stdout, sys.stderr = self.stdin, self.stdout, self.stderr
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = self.stdin, self.stdout, self.stderr  # type: ignore[misc,assignment]  # final for others

    def begin(self, limit: int, number: object) -> None:
        """Install the streams and start keeping output; that of a request with a number is mirrored."""
        self.install()
        mirror = self._mirror
        if mirror is None or type(number) is not int:
            self.stdout.begin(limit, None)
            self.stderr.begin(limit, None)
        else:
            mirror.begin(number)
            self.stdout.begin(limit, mirror.stdout)
            self.stderr.begin(limit, mirror.stderr)

    def leave_mirror(self) -> None:
        """Leave the mirror to the process this one is a copy of, until the next request."""
        self.stdout.leave_mirror()
        self.stderr.leave_mirror()

    def end(self, reply: dict[str, object], truncated: dict[str, object]) -> None:
        """Write what was kept, if anything, into the reply, and how much there was where some was cut."""
        for stream, key in ((self.stdout, "stdout"), (self.stderr, "stderr")):
            kept = stream.end()
            if kept:
                reply[key] = kept
            if stream.total > len(kept):
                truncated[key] = stream.total
