"""What may have changed a file without being heard of, and a look afterwards that settles it.

A path is read before the kernel reads it: another thread can change the text in between, another process the
links on the way. Some steps cannot be followed at all. Then the project is looked through once after the
call: the time of the last change of a file is the kernel's, and no program can set it back.
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
# Of a directory in /proc, beside one for each thread.
_OWN_LINKS = 2


@dataclass(slots=True)
class Sight:
    """What a look through a project found, by path: files, directories, and whether it saw all of them.

    `caches` has the directories of compiled Python files, by the directory that each lies in: to make one
    changes that directory.
    """

    files: dict[str, os.stat_result] = field(default_factory=dict)
    folders: dict[str, os.stat_result] = field(default_factory=dict)
    caches: dict[str, os.stat_result] = field(default_factory=dict)
    is_whole: bool = True

    def changed_since(self, moment: int) -> Sight:
        """Return what has changed since a time in nanoseconds."""
        return Sight(
            {path: found for path, found in self.files.items() if found.st_ctime_ns >= moment},
            {path: found for path, found in self.folders.items() if found.st_ctime_ns >= moment},
            {path: found for path, found in self.caches.items() if found.st_ctime_ns >= moment},
            self.is_whole,
        )


def look_through(root: Path) -> Sight:
    """Look at every path of a project, up to a number; what tools make again is left out and not whole."""
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
        # What went away meanwhile is no longer there to be named.
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

    A reason stands for a write that is not known. A suspicion is only that there could be one: as long as the
    look afterwards finds none, nothing is said.
    """

    def __init__(self, threads: int = 1) -> None:
        # What a process of the image has without code of the user's.
        self.threads = threads
        # When the first doubt came, in nanoseconds; 0 for none.
        self.since = 0
        self._reason = ""
        self._loses_names = False
        self._call: object = None
        # Threads that have moved names in this call.
        self._movers: set[int] = set()
        # Whether others could change the path that is about to be read.
        self._is_open = False
        # A process that is astray stays so.
        self._lasting = ""
        self._settled = 0

    def __bool__(self) -> bool:
        return self.since != 0 or bool(self._lasting)

    def expect(self, pid: int, call: object) -> None:
        """Look who else lives in a `call`, before the paths of a stop are read.

        Afterwards would be too late: a thread that changes the path may have ended by then.
        """
        if call is not self._call:
            self._call = call
            self._movers.clear()
        self._is_open = not self.since and (self._is_shared(pid) or self._is_moved(pid))

    def hear(self, stop: Stop) -> None:
        """Look whether the paths of a stop are certain; called for each, before it goes on."""
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
        """Look through the project after this call."""
        self._begin()

    def _begin(self) -> None:
        # Each unheard write comes after its stop.
        self.since = self.since or time.time_ns() - TICK_NS

    def _is_shared(self, pid: int) -> bool:
        """Tell whether a process has more threads than usual, which can change the path that was read."""
        try:
            return os.stat(f"/proc/{pid}/task").st_nlink - _OWN_LINKS > self.threads
        except OSError:
            return False

    def _is_moved(self, pid: int) -> bool:
        """Tell whether another thread that lives is moving names, by which a path may lead elsewhere."""
        self._movers = {each for each in self._movers if each == pid or os.path.exists(f"/proc/{each}")}
        return not self._movers <= {pid}

    def take(self) -> Doubt | None:
        """Return the doubts since the last time, if there are any, and begin anew."""
        taken = None
        if self:
            taken = Doubt(self.since or self._settled, self._reason or self._lasting, self._loses_names)
            self.since, self._reason, self._loses_names = 0, "", False
        self._settled = time.time_ns() - TICK_NS
        return taken


class Doubt(NamedTuple):
    """Since when there may be unheard writes, why there surely may, and whether names may be gone by them."""

    since: int
    reason: str
    loses_names: bool


@dataclass(frozen=True, slots=True)
class Findings:
    """The paths that changed unheard, and why there may be more; empty if there are none."""

    paths: tuple[str, ...]
    reason: str


NOTHING_FOUND = Findings((), "")


def settled(doubt: Doubt | None, root: Path, is_heard: Callable[[str, os.stat_result], bool]) -> Findings:
    """Look through the project where there is a doubt; tell what changed unheard, and what is left of it."""
    if doubt is None:
        return NOTHING_FOUND
    try:
        changed = look_through(root).changed_since(doubt.since)
    except OSError:
        return Findings((), doubt.reason)
    # Of the top, names come and go by the guard of control files too.
    explained = {"", *map(os.path.dirname, (*changed.files, *changed.folders)), *changed.caches}
    folders = {path: found for path, found in changed.folders.items() if path not in explained}
    unheard = [path for path, found in (changed.files | folders).items() if not is_heard(path, found)]
    is_settled = changed.is_whole and not (doubt.loses_names and changed.folders)
    return Findings(tuple(sorted(unheard)), "" if is_settled else doubt.reason)
