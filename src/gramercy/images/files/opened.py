"""What other processes have open: files that they can write without another system call that is stopped.

Copies of a process share the positions in its open files, so that a file that goes back takes them along.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

_WRITING = os.O_WRONLY | os.O_RDWR
_GET_DESCRIPTOR = 438
# The last field of a line of `maps`.
_PATH = 5
Positions = dict[tuple[int, str], int]


def written_by(pid: int) -> set[str]:
    """Return the files that a process has open for writing, or mapped so; none where it has ended."""
    found = {path for _, path, flags, _ in _descriptors(pid) if flags & _WRITING}
    with contextlib.suppress(OSError, ValueError):
        # A shared mapping outlives its descriptor.
        for line in Path(f"/proc/{pid}/maps").read_text("utf-8", "surrogateescape").splitlines():
            fields = line.split(None, _PATH)
            if len(fields) > _PATH and fields[1][1:] == "w-s":
                found.add(fields[_PATH])
    return found


def positions(pid: int, paths: set[str]) -> Positions:
    """Return the positions of a process in these files, by descriptor and path."""
    return {(number, path): at for number, path, _, at in _descriptors(pid) if path in paths}


def set_positions(pid: int, wanted: Positions) -> None:
    """Put the positions of a process where they were, in the descriptors that are still for these files."""
    with contextlib.suppress(OSError):
        process = os.pidfd_open(pid)
        try:
            for (number, path), at in wanted.items():
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{number}") == path:
                        _seek(process, number, at)
        finally:
            os.close(process)


def inodes(pid: int) -> set[tuple[int, int]]:
    """Return device and inode of all files that a process has open or mapped."""
    found: set[tuple[int, int]] = set()
    for folder in ("fd", "map_files"):
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/{folder}"):
                with contextlib.suppress(OSError):
                    status = os.stat(f"/proc/{pid}/{folder}/{name}")
                    found.add((status.st_dev, status.st_ino))
    return found


def _descriptors(pid: int) -> list[tuple[int, str, int, int]]:
    """Return number, path, flags and position of each open file of a process."""
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                path = os.readlink(f"/proc/{pid}/fd/{name}")
                if path.startswith("/"):
                    lines = Path(f"/proc/{pid}/fdinfo/{name}").read_text("ascii", "replace").splitlines()
                    fields = dict(line.split(":", 1) for line in lines if ":" in line)
                    found.append((int(name), path, int(fields["flags"], 8), int(fields["pos"])))
    return found


def _seek(process: int, number: int, at: int) -> None:
    """Move the position of another process's open file, by a copy of its descriptor."""
    libc = ctypes.CDLL(None, use_errno=True)
    copy = libc.syscall(_GET_DESCRIPTOR, process, number, 0)
    if copy >= 0:
        try:
            os.lseek(copy, at, os.SEEK_SET)
        finally:
            os.close(copy)
