"""What the running evaluation has printed so far, in memory that the parent shares.

The parent may read it at any moment, also when this process does not answer or has been killed. It knows
nothing of streams and replies. Only one process of a family evaluates at a time, so nobody locks.
"""

import ctypes
import os
import stat
from typing import NamedTuple

AREA = 128 * 1024
_HEADER = 4096
_SIZE = _HEADER + 2 * AREA
# The request that wrote last, the octets in each area, the characters of each stream.
_COUNTS, _ID, _OCTETS, _CHARACTERS = 20, 0, 1, 3
_NOTHING = bytes(_COUNTS - 4)
_WORD = 0xFFFFFFFF
_READ_WRITE, _SHARED, _WRITABLE = 3, 1, 0x200
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


class Device(NamedTuple):
    """How `/proc/self/maps` names a file."""

    number: str
    inode: str


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
        # Threads of the user's may be here as well: everything is measured against this one reading.
        at = self._at
        if at < AREA:
            octets = _encode(str.__getitem__(text, slice(AREA - at)))
            fitting = len(octets) if len(octets) <= AREA - at else _whole(octets, AREA - at)
            end = at + fitting
            self._memory[at:end] = octets[:fitting]
            # Full is full: a later character must not stand where an earlier one found no room.
            self._at = end if fitting == len(octets) else AREA
            self._counts[_OCTETS + self._place] = end
        self._counts[_CHARACTERS + self._place] = total & _WORD


class Mirror:
    """The memory shared with the parent: a header and an area for each stream."""

    def __init__(self, memory: memoryview, device: Device) -> None:
        self._memory = memory
        self._id = memory[:4].cast("I")
        self.device = device
        self.stdout = Area(memory, 0)
        self.stderr = Area(memory, 1)

    def begin(self, number: int) -> None:
        """Empty both areas and say which request they belong to from now on."""
        self.stdout.begin()
        self.stderr.begin()
        self._memory[4:_COUNTS] = _NOTHING
        self._id[_ID] = number & _WORD


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
    try:
        if status.st_size < _SIZE:
            raise ValueError(f"descriptor {fd} has {status.st_size} octets, expected {_SIZE}.")
        # Not by the module `mmap`, which keeps a copy of the descriptor where user code would find it.
        address = _libc.mmap(None, _SIZE, _READ_WRITE, _SHARED, fd, 0)
        if address == _FAILED:
            raise OSError(ctypes.get_errno(), f"descriptor {fd} cannot be mapped")
    finally:
        os.close(fd)
    number = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    return Mirror(_view(address, _SIZE, _WRITABLE), Device(number, str(status.st_ino)))
