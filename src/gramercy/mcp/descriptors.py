"""Take standard input and output away from everybody else, so that nothing but frames is on the wire.

A print() anywhere, C code and child processes write to standard error from then on, and read nothing.
"""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from fcntl import F_DUPFD_CLOEXEC, fcntl

FIRST_PRIVATE = 3


@dataclass(frozen=True, slots=True)
class Descriptors:
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
        # A process may be started without any of the three; their places must not go to somebody else.
        if not _is_open(public):
            os.dup2(nowhere, public)
    wire = Descriptors(_copy(0), _copy(1))
    os.dup2(nowhere, 0)
    os.dup2(2, 1)
    os.close(nowhere)
    # What is printed would be written in blocks, long after it was said.
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


def waits_for_reader(descriptor: int) -> bool:
    """Tell whether writing waits until somebody reads: that of pipes and sockets does."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
