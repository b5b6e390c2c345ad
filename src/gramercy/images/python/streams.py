"""What evaluated code sees as stdin, stdout and stderr, and the mirror in which the parent reads along.

The three objects live as long as the process. During an evaluation they keep the first characters, count the
rest, and copy what is printed to shared memory, which the parent may read at any moment, also after this
process was killed. At any other time what threads print goes to the log. They know no forms and no replies.
"""

import codecs
import ctypes
import io
import os
import stat
import sys

# Bytes of the area of each stream and of the header, a page; the parent maps the same.
AREA = 128 * 1024
_HEADER = 4096
_SIZE = _HEADER + 2 * AREA
# The request that wrote last, the octets in each area, the characters of each stream.
_COUNTS, _ID, _OCTETS, _CHARACTERS = 20, 0, 1, 3
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
        """Write what there is room for; `total` counts the characters so far, also those without room."""
        # Threads of the user's may write at once, so the position is read only once.
        at = self._at
        if at < AREA:
            octets = _encode(str.__getitem__(text, slice(AREA - at)))
            fitting = len(octets) if len(octets) <= AREA - at else _whole(octets, AREA - at)
            end = at + fitting
            self._memory[at:end] = octets[:fitting]
            # Once full it stays full: a short character must not follow a longer one that found no room.
            self._at = end if fitting == len(octets) else AREA
            self._counts[_OCTETS + self._place] = end
        self._counts[_CHARACTERS + self._place] = total & _WORD


class Mirror:
    """The memory shared with the parent: a header and an area for each stream."""

    def __init__(self, address: int) -> None:
        self._address = address
        self._memory = memory = _view(address, _SIZE, _WRITABLE)
        self._id = memory[:4].cast("I")
        self.stdout = Area(memory, 0)
        self.stderr = Area(memory, 1)

    def begin(self, number: int) -> None:
        """Empty both areas and say which request they belong to from now on."""
        self.stdout.begin()
        self.stderr.begin()
        self._memory[4:_COUNTS] = _NOTHING
        self._id[_ID] = number & _WORD

    def move(self, fd: int) -> None:
        """Write to another file from now on; this one stays with the process that this is a copy of."""
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
    """Return the octets of the whole characters that fit."""
    while octets[room] & 0xC0 == 0x80:  # noqa: PLR2004 - the mark of an octet inside of a character
        room -= 1
    return room


def open_mirror(word: str | None) -> Mirror | None:
    """Map the descriptor that the command line names and close it; one that is of no use means no mirror."""
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
        """Say no: it is not a terminal."""
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
