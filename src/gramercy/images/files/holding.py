"""The files that an image's processes hold open: they can be written without another stopped call.

They are collected at the end of a call, so that the next one starts with their states. A descriptor can also
belong to a process that never opened a file, be in transit in a socket, or have a deleted name.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from gramercy.images.files import places
from gramercy.images.files.resolving import DELETED

if TYPE_CHECKING:
    from collections.abc import Callable

_WRITING = os.O_WRONLY | os.O_RDWR
# pidfd_getfd(2), which has this number on every machine.
_GET_DESCRIPTOR = 438
# F_SETSIG, which the module does not define.
_SET_SIGNAL = 10
# The last field of a line of `maps`.
_PATH = 5
# Processes of one call that are remembered at a time: more than a sandbox allows to live.
MOST_PROCESSES = 2_000
# Positions by descriptor and path. Copies of a process share them: restoring a file restores them too.
Positions = dict[tuple[int, str], int]


class Held:
    """The files below a directory that processes of an image can write without another stop.

    `files` tells for each whether the live process has it open. `adrift` are those that some process can
    write although no process of the image has them open: it may be another program, too. `is_nameless` means
    that one is open under a deleted name, while it has another.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.files: dict[str, bool] = {}
        self.adrift: set[str] = set()
        self.is_nameless = False
        # Whether there ever were any.
        self.is_known = False
        self._writers: set[int] = set()
        self._opened: set[str] = set()
        # Files that the live process had open at the end of a call: the kept states have them open for ever.
        self._lasting: set[str] = set()
        # Returns the processes that evaluated code has started.
        self.workers: Callable[[], set[int]] = set

    def __bool__(self) -> bool:
        return bool(self.files or self.adrift or self.is_nameless)

    def note(self, pid: int, path: str) -> None:
        """Remember a process that may have a file open. Of very many processes, keep the living ones."""
        self._opened.add(path)
        self._writers.add(pid)
        if len(self._writers) > MOST_PROCESSES:
            self._writers = {each for each in self._writers if os.path.exists(f"/proc/{each}")}

    def look(self, own: int) -> None:
        """Find the files that are still open, if any was opened since the last search."""
        opened, self._opened = self._opened, set()
        if not self._writers and not self:
            return
        others = {leader for leader in map(leader_of, self._writers) if leader not in (0, own)}
        others |= self.workers() - {own}
        self.is_nameless = False
        self.files = {path: False for pid in others for path in self._open_in(pid)}
        if own:
            self.add(own)
        self._writers = others if self.files else set()
        self.is_known = self.is_known or bool(self.files)
        self._lasting.update(path for path, is_live in self.files.items() if is_live)
        drifting = (self.adrift | opened) - self.files.keys() - self._lasting
        self.adrift = {path for path in drifting if is_written(path)}

    def add(self, own: int) -> None:
        """Add the open files of the live process."""
        self.files |= dict.fromkeys(self._open_in(own), True)

    def _open_in(self, pid: int) -> set[str]:
        found = {path for path in written_by(pid) if path.startswith(self._prefix)}
        self.is_nameless = self.is_nameless or any(is_nameless(pid, path) for path in found)
        return found


def leader_of(pid: int) -> int:
    """Return the process of a thread, 0 where it has ended."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_bytes().splitlines():
            if line.startswith(b"Tgid:"):
                return int(line[5:])
    return 0


def written_by(pid: int) -> set[str]:
    """Return the files that a process has open or mapped for writing. Empty where it has ended."""
    found = {path for _, path, flags, _ in _descriptors(pid) if flags & _WRITING}
    with contextlib.suppress(OSError, ValueError):
        # A shared mapping outlives its descriptor.
        for line in Path(f"/proc/{pid}/maps").read_text("utf-8", "surrogateescape").splitlines():
            fields = line.split(None, _PATH)
            if len(fields) > _PATH and fields[1][1:] == "w-s":
                found.add(fields[_PATH])
    return found


def is_nameless(pid: int, path: str) -> bool:
    """Return whether a process has a file open under a deleted name, and the file has another one."""
    if not path.endswith(DELETED):
        return False
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            link = f"/proc/{pid}/fd/{name}"
            with contextlib.suppress(OSError):
                if os.readlink(link) == path and os.stat(link).st_nlink:
                    return True
    return False


def is_written(path: str) -> bool:
    """Return whether any process can still write a file: it has it open, or a socket has it in transit.

    Otherwise the kernel grants a read lease. It is released at once.
    """
    try:
        descriptor = os.open(path, places.READING)
    except OSError:
        return False
    try:
        # If the lease is broken in this instant, an ignored signal arrives. The default one would kill.
        fcntl.fcntl(descriptor, _SET_SIGNAL, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    except OSError:
        # Not a regular file, another owner's, or a file system without leases.
        return False
    finally:
        os.close(descriptor)
    return False


def positions(pid: int, paths: set[str]) -> Positions:
    """Return the positions of a process in these files, by descriptor and path."""
    return {(number, path): at for number, path, _, at in _descriptors(pid) if path in paths}


def set_positions(pid: int, wanted: Positions) -> None:
    """Restore the positions of a process, in the descriptors that still belong to these files."""
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
