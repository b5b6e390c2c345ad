"""The stdin, stdout and stderr of evaluated code, and the mirror in which the parent reads along.

The three objects live as long as the process. During an evaluation they keep the first characters, count the
rest, and copy the output to shared memory. The parent may read that at any moment, even after this process
was killed. At any other time output of threads goes to the log. They know no forms and no replies.
"""

import _thread
import codecs
import ctypes
import io
import os
import stat
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .typed import TypedBytes

# Bytes of the area of each stream and of the header, a page; the parent maps the same.
AREA = 128 * 1024
_HEADER = 4096
# Of each job: a header, the ring for its output, and room for its reply.
JOBS, RING, ROOM = 4, 128 * 1024, 64 * 1024
_JOB = _HEADER + RING + ROOM
_FIRST_JOB = _HEADER + 2 * AREA
_SIZE = _FIRST_JOB + JOBS * _JOB
# Its number, whether it is over, the octets of its reply; separately, the total of its output.
_NUMBER, _STATE, _LENGTH, _WRITTEN = 0, 1, 2, 2
_RUNS, _OVER = 1, 2
# The request that wrote last, the octets in each area, the characters of each stream, the octets of the text
# about edited files, which follows the counts.
_COUNTS, _ID, _OCTETS, _CHARACTERS, _ATTEMPT = 24, 0, 1, 3, 5
_NOTHING = bytes(_COUNTS - 4)
_WORD = 0xFFFFFFFF
_READ_WRITE, _SHARED, _FIXED, _WRITABLE = 3, 1, 0x10, 0x200
_STANDARD = 2
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_ssize_t
]  # fmt: skip
_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.restype = ctypes.py_object
_view.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]
_write = os.write
_ident = _thread.get_ident
_decoder = codecs.getincrementaldecoder("utf-8")


class Area:
    """The part of the mirror that one stream is written to."""

    __slots__ = ("_at", "_counts", "_memory", "_place")

    def __init__(self, memory: memoryview, place: int) -> None:
        start = _HEADER + place * AREA
        self._memory = memory[start : start + AREA]
        self._counts = memory[:_COUNTS].cast("I")
        self._place = place
        self._at = AREA

    def begin(self) -> None:
        """Start at the beginning again."""
        self._at = 0

    def add(self, text: str, total: int) -> None:
        """Write as much as there is room for. `total` counts all characters so far."""
        # Several user threads may write at once, so the position is read only once.
        at = self._at
        if at < AREA:
            octets = _encode(str.__getitem__(text, slice(AREA - at)))
            fitting = len(octets) if len(octets) <= AREA - at else _whole(octets, AREA - at)
            end = at + fitting
            self._memory[at:end] = octets[:fitting]
            # Once full it stays full: a short character must not follow a longer one that did not fit.
            self._at = end if fitting == len(octets) else AREA
            self._counts[_OCTETS + self._place] = end
        self._counts[_CHARACTERS + self._place] = total & _WORD


class Ring:
    """The ring for the output of a job: the latest octets, and their total. Only its thread writes."""

    room = ROOM

    def __init__(self, memory: memoryview, slot: int, number: int) -> None:
        start = _FIRST_JOB + slot * _JOB
        self._head = memory[start : start + 16].cast("I")
        self._written = memory[start : start + 24].cast("Q")
        self._memory = memory[start + _HEADER : start + _HEADER + RING]
        self._reply = memory[start + _HEADER + RING : start + _JOB]
        self._at = 0
        self._written[_WRITTEN] = 0
        self._head[_LENGTH] = 0
        self._head[_NUMBER] = number & _WORD
        self._head[_STATE] = _RUNS

    def write(self, text: str) -> None:
        """Overwrite the oldest octets."""
        octets = _encode(text)
        total = self._at + len(octets)
        latest = octets[-RING:]
        at = (total - len(latest)) % RING
        first = latest[: RING - at]
        self._memory[at : at + len(first)] = first
        self._memory[: len(latest) - len(first)] = latest[len(first) :]
        self._at = self._written[_WRITTEN] = total

    def end(self, reply: bytes) -> None:
        """Store the reply and mark the job as over."""
        self._reply[: len(reply)] = reply
        self._head[_LENGTH] = len(reply)
        self._head[_STATE] = _OVER


# The rings of the running jobs, by their threads.
rings: dict[int, Ring] = {}


class Mirror:
    """The memory shared with the parent: a header and an area for each stream."""

    def __init__(self, address: int) -> None:
        self._address = address
        self._memory = memory = _view(address, _SIZE, _WRITABLE)
        self._id = memory[:4].cast("I")
        self._counts = memory[:_COUNTS].cast("I")
        self.stdout = Area(memory, 0)
        self.stderr = Area(memory, 1)

    def ring(self, slot: int, number: int) -> Ring:
        """Return the ring of a job that begins."""
        return Ring(self._memory, slot % JOBS, number)

    def begin(self, number: int) -> None:
        """Empty both areas and set the request that they belong to from now on."""
        self.stdout.begin()
        self.stderr.begin()
        self._memory[4:_COUNTS] = _NOTHING
        self._id[_ID] = number & _WORD

    def attempt(self, told: bytes) -> None:
        """Record the edit that is being applied, for the parent if this process ends. Empty after it."""
        fitting = told if len(told) <= _HEADER - _COUNTS else b""
        self._counts[_ATTEMPT] = 0
        self._memory[_COUNTS : _COUNTS + len(fitting)] = fitting
        self._counts[_ATTEMPT] = len(fitting)

    def move(self, fd: int) -> None:
        """Write to another file from now on. This one stays with the original of this copy."""
        _map(self._address, _SHARED | _FIXED, fd)


def _map(address: "int | None", flags: int, fd: int) -> int:
    """Map a file, close its descriptor, and return where it is mapped."""
    try:
        # Not by the module `mmap`, which keeps a duplicate of the descriptor open for user code to find.
        found = _libc.mmap(address, _SIZE, _READ_WRITE, flags, fd, 0)
        if found == _FAILED:
            raise OSError(ctypes.get_errno(), f"descriptor {fd} cannot be mapped")
    finally:
        os.close(fd)
    return int(found)


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= mark <= "\udfff" else mark for mark in text).encode()


def _whole(octets: bytes, room: int) -> int:
    """Return the octets of the complete characters that fit."""
    while octets[room] & 0xC0 == 0x80:  # noqa: PLR2004 - the mark of an octet inside of a character
        room -= 1
    return room


def open_mirror(word: str | None) -> Mirror | None:
    """Map the descriptor of the command line and close it. An unusable one means no mirror."""
    if word is None:
        return None
    try:
        return _mapped(int(word))
    except (OSError, ValueError, OverflowError) as error:
        os.write(2, f"No mirror of the output: {error}\n".encode("utf-8", "backslashreplace"))
        return None


def _mapped(fd: int) -> Mirror:
    status = os.fstat(fd)
    if fd <= _STANDARD or not stat.S_ISREG(status.st_mode):
        raise ValueError(f"descriptor {fd} is not a file made for it.")
    if status.st_size < _SIZE:
        os.close(fd)
        raise ValueError(f"descriptor {fd} has {status.st_size} octets, expected {_SIZE}.")
    return Mirror(_map(None, _SHARED, fd))


def _last_shown(line: str) -> str:
    """Return the text that a terminal shows of a line with carriage returns."""
    shown = ""
    for part in reversed(line.split("\r")):
        shown += part[len(shown) :]
    return shown


class CappedText(io.TextIOBase):
    """A text stream that keeps at most `limit` characters, however many are written."""

    def __init__(self, fd: int, name: str) -> None:
        self.name = name
        self.mode = "w"
        self.buffer = CappedBytes(self)
        self._fd = fd
        self._parts: list[str] | None = None
        self._room = self._limit = 0
        self._area: Area | None = None
        # Characters written, and how many of them were overwritten.
        self.total = self.hidden = 0

    encoding = "utf-8"
    errors = "backslashreplace"
    line_buffering = True

    def begin(self, limit: int, area: Area | None) -> None:
        """Start keeping output, in the area too."""
        self.buffer.reset()
        self._parts, self._room, self._limit = [], limit, limit
        self.total = self.hidden = 0
        self._area = area

    def end(self) -> str:
        """Stop keeping and return the kept text."""
        self.buffer.finish()
        parts, self._parts = self._parts, None
        self.leave_mirror()
        return "".join(parts or ())

    def leave_mirror(self) -> None:
        """Show nothing to the parent from now on."""
        self._area = None

    def write(self, text: str) -> int:
        """Keep as much as there is room for and count all of it."""
        if not issubclass(type(text), str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        size = str.__len__(text)
        if rings and (ring := rings.get(_ident())) is not None:
            ring.write(text)
            return size
        parts = self._parts
        if parts is None:
            self._log(text)
        elif self._room > 0:
            if size > self._room and "\r" in text:
                self._fold(parts)
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

    def _fold(self, parts: list[str]) -> None:
        """Drop the overwritten text of a progress bar, so that the end of a long one is kept."""
        kept = "".join(parts)
        lines = [line if "\r" not in line else _last_shown(line) for line in kept.split("\n")]
        shown = "\n".join(lines)
        # Less is not worth the work, which would be repeated soon.
        if len(shown) <= self._limit // 2:
            parts[:] = [shown]
            self.hidden += len(kept) - len(shown)
            self._room = self._limit - len(shown)

    def _log(self, text: str) -> None:
        try:
            _write(self._fd, text.encode("utf-8", "backslashreplace"))
        except OSError:
            return

    def writable(self) -> bool:
        """Return True: it is an output stream."""
        return True

    def isatty(self) -> bool:
        """Return False: it is not a terminal."""
        return False

    def fileno(self) -> int:
        """Return the descriptor of the log, for child processes that inherit it."""
        return self._fd

    def flush(self) -> None:
        """Do nothing; there is nothing between the writer and the buffer."""

    def close(self) -> None:
        """Stay open: the next evaluation prints here too."""

    def reconfigure(self, **_options: object) -> None:
        """Accept the settings of a terminal, and keep UTF-8."""


class CappedBytes(io.BufferedIOBase):
    """The binary side of a capped stream: bytes are decoded as UTF-8, with marks for invalid ones."""

    def __init__(self, text: CappedText) -> None:
        self._text = text
        self.raw = self
        self.reset()

    def reset(self) -> None:
        """Drop an unfinished character."""
        self._decode: codecs.IncrementalDecoder | None = None

    def finish(self) -> None:
        """Pass on the rest of an unfinished character."""
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
        """Return True: it is an output stream."""
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
        """Return True: the end can be read."""
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
        self.mirror = mirror
        self._empty = EmptyInput()
        self.stdin: io.TextIOBase = self._empty
        # Asks a person for lines, while an evaluation runs that may read them: see `typed`.
        self.typed: TypedBytes | None = None
        self.stdout = CappedText(1, "<stdout>")
        self.stderr = CappedText(2, "<stderr>")

    def install(self) -> None:
        """Restore the streams where user code may have replaced them."""
        sys.stdin, sys.stdout, sys.stderr = self.stdin, self.stdout, self.stderr
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = self.stdin, self.stdout, self.stderr  # type: ignore[misc,assignment]  # final for others

    def begin(self, limit: int, number: object) -> None:
        """Install the streams and start keeping output. That of a request with a number is mirrored."""
        self.install()
        mirror = self.mirror
        if mirror is None or type(number) is not int:
            self.stdout.begin(limit, None)
            self.stderr.begin(limit, None)
        else:
            mirror.begin(number)
            self.stdout.begin(limit, mirror.stdout)
            self.stderr.begin(limit, mirror.stderr)

    def listen(self, typed: "TypedBytes") -> None:
        """Let code read the lines that a person types, until `hang_up`."""
        self.typed = typed
        self.stdin = io.TextIOWrapper(io.BufferedReader(typed), "utf-8", "surrogateescape", newline="\n")

    def hang_up(self) -> None:
        """Let code read nothing any more."""
        typed, self.typed, self.stdin = self.typed, None, self._empty
        if typed is not None:
            typed.hang_up()

    def leave_mirror(self) -> None:
        """Leave the mirror to the original of this copy, until the next request."""
        rings.clear()
        self.stdout.leave_mirror()
        self.stderr.leave_mirror()

    def end(self, reply: dict[str, object], truncated: dict[str, object]) -> None:
        """Write the kept output, if any, into the reply, and the total where some was cut."""
        for stream, key in ((self.stdout, "stdout"), (self.stderr, "stderr")):
            kept = stream.end()
            if kept:
                reply[key] = kept
            total = stream.total - stream.hidden
            if total > len(kept):
                truncated[key] = total
