"""Learn from the kernel whether anything changed in the folders of the loaded modules.

It says whether to check the files, never what changed. A copy of the process shares the queue with the
original, and an event that one reads is lost for the other: so each process opens its own. Where the kernel
may not report changes, as on a network file system, the answer is always that something may have changed.

The kernel watches a folder, not its path. So after each change the paths are watched again: another folder
may stand there, as after git has removed one and created it again.
"""

import ctypes
import errno
import os
import select
from collections.abc import Callable, Iterable

from .protocol import raise_out_of_reach

# Modified, attributes changed, closed after writing, moved, created, deleted, or the folder itself.
_WATCHED = 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
_CHUNK = 1 << 16
# Folders: a large project has some hundred. Each takes about 1 KB of kernel memory.
_MOST = 1_000
# File systems on which the kernel reports each change of this machine.
_HEARD = frozenset(
    ("ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "overlay", "f2fs", "zfs", "bcachefs", "jfs", "ramfs")
)
_read, _close, _link, _encode = os.read, os.close, os.readlink, os.fsencode
_Poll, _READABLE = select.poll, select.POLLIN
_errno = ctypes.get_errno
_open = open


class Folders:
    """The folders that are watched by this process."""

    def __init__(self) -> None:
        self._inotify = -1
        self._add: Callable[[int, bytes, int], int] = lambda *_: -1
        self._poll: Callable[[int], list[tuple[int, int]]] = lambda _: []
        # The kind of file behind the descriptor, and whether the descriptor certainly still leads there.
        self._mark = ""
        self._is_certain = False
        self._watched: set[str] = set()
        self._is_deaf = False
        self._must_look = True

    def forget(self) -> None:
        """Leave the queue to the original of this copy, and check all files once."""
        if self._inotify >= 0 and self._is_ours():
            _close(self._inotify)
        self._inotify, self._is_deaf, self._must_look = -1, False, True
        self._is_certain = False
        self._watched.clear()

    def add(self, folders: Iterable[str]) -> None:
        """Watch more folders. Their files must be checked once, since they may have changed before."""
        new = [each for each in folders if each not in self._watched]
        if not new or self._is_deaf:
            return
        self._must_look = True
        if self._inotify < 0:
            self._start()
        for folder in new:
            self._watch(folder)

    def doubt(self) -> None:
        """Note that user code may have run, which can close any descriptor and reuse its number."""
        self._is_certain = False

    def is_still(self) -> bool:
        """Return whether nothing changed since the last check. The queue is not read, so `stirred` agrees.

        This is called before each call. So it makes one system call, and raises no exception inside: on the
        usual path each costs some microseconds.
        """
        if self._must_look or self._is_deaf:
            return False
        if not self._is_certain:
            self._is_certain = self._is_ours()
        # The poll also returns a closed descriptor.
        return self._is_certain and not self._poll(0)

    def stirred(self) -> bool:
        """Return whether something may have changed since the last check."""
        if self._is_deaf:
            return True
        if self._must_look:
            self._listen_anew()
            return True
        if not self._watched:
            return False
        try:
            heard = _read(self._inotify, _CHUNK) if self._is_ours() else b""
        except BlockingIOError:
            return False
        except OSError:
            heard = b""
        if not heard:
            # Evaluated code has closed it, or put another file in its place.
            self._inotify = -1
            self.forget()
            self._is_deaf = True
        self._listen_anew()
        return True

    def _listen_anew(self) -> None:
        self._must_look = False
        for folder in self._watched:
            self._listen(folder)

    def _is_ours(self) -> bool:
        # Not by fstat: it shows queues, timers, counters and the like as the same file.
        return self._mark != "" and _kind(self._inotify) == self._mark

    def _start(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._add = libc.inotify_add_watch
        made = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if made < 0:
            self._is_deaf = True
            return
        self._inotify = raise_out_of_reach(made)
        self._mark = _kind(self._inotify)
        poll = _Poll()
        poll.register(self._inotify, _READABLE)
        self._poll = poll.poll

    def _watch(self, folder: str) -> None:
        if self._is_deaf:
            return
        if len(self._watched) < _MOST and _is_heard(folder):
            self._listen(folder)
        else:
            self._is_deaf = True
        self._watched.add(folder)

    def _listen(self, folder: str) -> None:
        """Watch the folder that has this path now. If there is none, check each time until there is."""
        if self._add(self._inotify, _encode(folder), _WATCHED) >= 0:
            return
        if _errno() in (errno.ENOENT, errno.ENOTDIR):
            self._must_look = True
        else:
            self._is_deaf = True


def _kind(descriptor: int) -> str:
    """Return the system's description of a descriptor. Empty where there is none."""
    try:
        return _link(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


def _is_heard(folder: str) -> bool:
    """Return whether the kernel reports changes on the file system of a folder."""
    kind, longest = "", -1
    try:
        with _open("/proc/self/mountinfo", "rb") as stream:
            lines = stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return False
    for line in lines:
        left, _, right = line.partition(" - ")
        place = left.split(" ")[4].replace("\\040", " ").rstrip("/")
        if (folder == place or folder.startswith(place + "/")) and len(place) >= longest:
            kind, longest = right.partition(" ")[0], len(place)
    return kind in _HEARD
