"""Possible causes of unheard file changes, and a check afterwards that settles them.

A path is read before the kernel reads it: another thread can change the text in between, another process the
links on the way. Some steps cannot be followed at all. In such a case the whole project is checked once after
the call: the kernel sets the change time of a file, and no program can set it back.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from gramercy.images.files import places
from gramercy.images.files.listener import ASTRAY, RENAMES
from gramercy.images.files.states import REPOSITORIES, TEMPORARY
from gramercy.images.files.store import DEEPEST, MADE_AGAIN, MOST_FILES, SIGNS_OF_ENVIRONMENTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gramercy.images.files.listener import Stop

MOVES = RENAMES | {"symlink", "symlinkat"}
# The clock of a file system ticks every 10 ms at most.
TICK_NS = 10_000_000
CACHE = "__pycache__"
_LOSING = ("unlink", "rmdir", "rename")
# Links of a directory in /proc, beside one for each thread.
_OWN_LINKS = 2


@dataclass(slots=True)
class Sight:
    """The result of a walk through a project, by path: files, directories, and whether it is complete.

    `caches` has the directories of compiled Python files, by their parent: creating one changes the parent.
    """

    files: dict[str, os.stat_result] = field(default_factory=dict)
    folders: dict[str, os.stat_result] = field(default_factory=dict)
    caches: dict[str, os.stat_result] = field(default_factory=dict)
    is_whole: bool = True

    def changed_since(self, moment: int) -> Sight:
        """Return the paths that changed since a time in nanoseconds."""
        return Sight(
            {path: found for path, found in self.files.items() if found.st_ctime_ns >= moment},
            {path: found for path, found in self.folders.items() if found.st_ctime_ns >= moment},
            {path: found for path, found in self.caches.items() if found.st_ctime_ns >= moment},
            self.is_whole,
        )


def look_through(root: Path) -> Sight:
    """Visit every path of a project, up to a limit. Skipped generated directories make it incomplete."""
    sight = Sight()
    with places.directory(root, ()) as folder:
        sight.folders[""] = os.fstat(folder)
        _look_into(folder, "", sight)
    return sight


def _look_into(folder: int, path: str, sight: Sight) -> None:
    with os.scandir(folder) as listed:
        entries = list(listed)
    if path and not SIGNS_OF_ENVIRONMENTS.isdisjoint(entry.name for entry in entries):
        sight.is_whole = False
        return
    for entry in entries:
        name = entry.name
        if name == CACHE:
            with contextlib.suppress(OSError):
                sight.caches[path.removesuffix("/")] = entry.stat(follow_symlinks=False)
            continue
        if name.casefold() in REPOSITORIES or name.startswith(TEMPORARY):
            continue
        # A path that was removed meanwhile cannot be named any more.
        with contextlib.suppress(OSError):
            found = entry.stat(follow_symlinks=False)
            if not stat.S_ISDIR(found.st_mode):
                sight.files[path + name] = found
            elif name in MADE_AGAIN or path.count("/") >= DEEPEST:
                sight.is_whole = False
            else:
                sight.folders[path + name] = found
                _look_below(folder, path, name, sight)
        if len(sight.files) > MOST_FILES:
            sight.is_whole = False
            return


def _look_below(folder: int, path: str, name: str, sight: Sight) -> None:
    inner = os.open(name, places.DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    try:
        _look_into(inner, f"{path}{name}/", sight)
    finally:
        os.close(inner)


class Doubts:
    """The doubts of one call.

    A reason stands for a write that is not known. A suspicion only means that there could be one: if the
    check afterwards finds none, nothing is reported.
    """

    def __init__(self, threads: int = 1) -> None:
        # The number of threads of an image's process without user code.
        self.threads = threads
        # The time of the first doubt in nanoseconds, 0 for none.
        self.since = 0
        self._reason = ""
        self._loses_names = False
        self._call: object = None
        # Threads that have renamed paths in this call.
        self._movers: set[int] = set()
        # Whether others could change the path that is about to be read.
        self._is_open = False
        # An untraceable process stays so.
        self._lasting = ""
        self._settled = 0

    def __bool__(self) -> bool:
        return self.since != 0 or bool(self._lasting)

    def expect(self, pid: int, call: object) -> None:
        """Check for other threads in a `call` that could change paths, before those of a stop are read.

        Afterwards would be too late: a thread that changes the path may have ended by then.
        """
        if call is not self._call:
            self._call = call
            self._movers.clear()
        self._is_open = not self.since and (self._is_shared(pid) or self._is_moved(pid))

    def hear(self, stop: Stop) -> None:
        """Check whether the paths of a stop are certain. Called for each before it continues."""
        if stop.call in MOVES:
            self._movers.add(stop.pid)
        if stop.doubt:
            self._begin()
            self._reason = stop.doubt
            if stop.call in ASTRAY:
                self._lasting, self._settled = stop.doubt, self.since
            self._loses_names = self._loses_names or stop.call.startswith(_LOSING)
        elif self._is_open:
            self._begin()

    def suspect(self) -> None:
        """Request a walk through the project after this call."""
        self._begin()

    def _begin(self) -> None:
        # Each unheard write comes after its stop.
        self.since = self.since or time.time_ns() - TICK_NS

    def _is_shared(self, pid: int) -> bool:
        """Return whether a process has more threads than usual, which can change the path that was read."""
        try:
            return os.stat(f"/proc/{pid}/task").st_nlink - _OWN_LINKS > self.threads
        except OSError:
            return False

    def _is_moved(self, pid: int) -> bool:
        """Return whether another living thread renames paths, so that a path may lead elsewhere."""
        self._movers = {each for each in self._movers if each == pid or os.path.exists(f"/proc/{each}")}
        return not self._movers <= {pid}

    def take(self) -> Doubt | None:
        """Return the doubts since the last call of this, if any, and start again."""
        taken = None
        if self:
            taken = Doubt(self.since or self._settled, self._reason or self._lasting, self._loses_names)
            self.since, self._reason, self._loses_names = 0, "", False
        self._settled = time.time_ns() - TICK_NS
        return taken


class Doubt(NamedTuple):
    """Since when there may be unheard writes, a certain reason for them, and whether names may be lost."""

    since: int
    reason: str
    loses_names: bool


@dataclass(frozen=True, slots=True)
class Findings:
    """The paths with unheard changes, and the reason why there may be more. Empty if there are none."""

    paths: tuple[str, ...]
    reason: str


NOTHING_FOUND = Findings((), "")


def settled(doubt: Doubt | None, root: Path, is_heard: Callable[[str, os.stat_result], bool]) -> Findings:
    """Walk the project if there is a doubt. Return the unheard changes, and the remaining doubt."""
    if doubt is None:
        return NOTHING_FOUND
    try:
        changed = look_through(root).changed_since(doubt.since)
    except OSError:
        return Findings((), doubt.reason)
    # In the top directory the guard of control files also creates and removes names.
    explained = {"", *map(os.path.dirname, (*changed.files, *changed.folders)), *changed.caches}
    folders = {path: found for path, found in changed.folders.items() if path not in explained}
    unheard = [path for path, found in (changed.files | folders).items() if not is_heard(path, found)]
    is_settled = changed.is_whole and not (doubt.loses_names and changed.folders)
    return Findings(tuple(sorted(unheard)), "" if is_settled else doubt.reason)
