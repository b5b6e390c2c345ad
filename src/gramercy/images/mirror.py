"""What the running evaluation has printed so far: shared memory that its process writes and this one reads.

It can be read at any moment, also after a process had to be killed. Nothing that is in it can be trusted to
be more than some octets.
"""

from __future__ import annotations

import fcntl
import os
import struct
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from typing import Self

AREA = 128 * 1024
HEADER = 4096
SIZE = HEADER + 2 * AREA
# The request that wrote last, the octets in each area, the characters of each stream.
_COUNTS = struct.Struct("=5I")


class Printed(msgspec.Struct, frozen=True):
    """The beginning of what was printed, and how many characters there were of what does not end here."""

    stdout: str = ""
    stderr: str = ""
    truncated: dict[str, int] = {}


class Mirror:
    """A piece of memory that all processes of an image share with this one; `fd` is what they inherit."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def make(cls) -> Self | None:
        """Make one, or none where the system has no such memory."""
        if not hasattr(os, "memfd_create"):
            return None
        fd = os.memfd_create("gramercy-mirror", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, SIZE)
        # Whoever maps memory that another cuts off is killed when it looks there.
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        return cls(fd)

    def read(self, request: int) -> Printed:
        """Return what a request has printed; nothing, when another one wrote last."""
        number, *figures = _COUNTS.unpack(os.pread(self.fd, _COUNTS.size, 0))
        if number != request & 0xFFFFFFFF:
            return Printed()
        stdout, stderr = self._text(0, figures[0]), self._text(1, figures[1])
        totals = {"stdout": (stdout, figures[2]), "stderr": (stderr, figures[3])}
        cut = {name: total for name, (text, total) in totals.items() if total > len(text)}
        return Printed(stdout, stderr, cut)

    def _text(self, area: int, size: int) -> str:
        return os.pread(self.fd, min(size, AREA), HEADER + AREA * area).decode("utf-8", "replace")

    def close(self) -> None:
        """Let go of this side's end."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
