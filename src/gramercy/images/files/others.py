"""Detect saves by other programs while a call runs: these belong to the person, and stay.

Every open for writing by the image is a stop, and ends in one close event, as for any other program. Every
rename is a stop and one event. More events than stops for a path mean that another program saved it too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MODIFIED, CLOSED, MOVED, OVERFLOW, IGNORED = 0x2, 0x8, 0x80, 0x4000, 0x8000
# The kernel merges equal consecutive events. Between two saves there is a write event.
WATCHED = MODIFIED | CLOSED | MOVED
_EVENT = struct.Struct("iIII")
_CHUNK = 1 << 16
# The kernel keeps 16,384 events. They are read long before that.
MOST_UNREAD = 4_000
# Directories that are watched at a time. Each takes about 1 KB of kernel memory.
MOST_WATCHED = 1_000
# Four times the limit of undo for one call. Beyond that the result is not certain.
MOST_COUNTED = 20_000


class Others:
    """Counts the saves by an image and all saves, by path and kind of event."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._inotify = -1
        self._folders: dict[int, str] = {}
        self._watched: set[str] = set()
        self._expected: Counter[tuple[str, int]] = Counter()
        self._seen: Counter[tuple[str, int]] = Counter()
        # Opens of earlier calls that have not been closed yet.
        self._owed: Counter[tuple[str, int]] = Counter()
        self._unread = 0
        self.is_sure = True

    def begin(self) -> None:
        """Discard the events between two calls."""
        self._read()
        self._expected.clear()
        self._seen.clear()
        self.is_sure = True

    def expect(self, path: str, *, is_rename: bool) -> None:
        """Count a save that the image is about to make."""
        if len(self._expected) >= MOST_COUNTED:
            self.is_sure = False
            return
        folder = os.path.dirname(path)
        if folder not in self._watched:
            self._watch(folder)
        self._expected[path, MOVED if is_rename else CLOSED] += 1
        self._unread += 1
        if self._unread > MOST_UNREAD:
            self._read()

    def savers(self, still_open: Iterable[str]) -> set[str]:
        """Return the paths that others have saved too since the call began."""
        if not self._expected:
            return set()
        self._read()
        opened = Counter((path, CLOSED) for path in still_open)
        found = set()
        for key, count in self._seen.items():
            mine = self._expected[key] - min(opened[key], self._expected[key])
            if count > mine + self._owed[key]:
                found.add(key[0])
        for key in opened | self._owed:
            self._owed[key] = max(0, self._owed[key] + self._expected[key] - self._seen[key])
        self._owed = +self._owed
        return found

    def _watch(self, folder: str) -> None:
        if self._inotify < 0 or len(self._watched) >= MOST_WATCHED:
            self.close()
            self._inotify = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        number = self._libc.inotify_add_watch(self._inotify, os.fsencode(folder), WATCHED)
        if number < 0:
            # The directory does not exist, so the call fails, or there are no watches left.
            self.is_sure = self.is_sure and not os.path.isdir(folder)
            return
        self._watched.add(folder)
        self._folders[number] = folder

    def _read(self) -> None:
        """Read the pending events."""
        self._unread = 0
        if self._inotify < 0:
            return
        with contextlib.suppress(OSError):  # none left
            while data := os.read(self._inotify, _CHUNK):
                self._take(data)

    def _take(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            number, mask, _, size = _EVENT.unpack_from(data, at)
            name = os.fsdecode(data[at + _EVENT.size : at + _EVENT.size + size].rstrip(b"\0"))
            at += _EVENT.size + size
            if mask & OVERFLOW:
                self.is_sure = False
            elif mask & IGNORED:
                # The directory is gone. Another may get its name.
                self._watched.discard(self._folders.pop(number, ""))
            elif mask & (CLOSED | MOVED) and number in self._folders:
                self._seen[f"{self._folders[number]}/{name}", mask & (CLOSED | MOVED)] += 1

    def close(self) -> None:
        """Stop watching."""
        if self._inotify >= 0:
            os.close(self._inotify)
            self._inotify = -1
        self._folders.clear()
        self._watched.clear()
