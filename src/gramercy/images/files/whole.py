"""Write files atomically: under a temporary name, then renamed. No reader or crash sees a part of one.

The images of the project learn of writes by tools, so that no call is blamed for them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import threading
import weakref
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, BinaryIO

from gramercy.images.files import places
from gramercy.images.files.states import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gramercy.images.files.states import State

# The mode before the umask.
NEW_MODE = 0o666
# The latest paths that tools have written: a doubt reaches back to the beginning of a call at most.
MOST_OWN = 1_000
# How long to wait for a tool that is writing. After that its write counts as that of another program.
WRITE_SECONDS = 5.0


class OwnWrites:
    """The last writes of this program's tools to paths of a project, with their times in nanoseconds."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[int, State | None]] = {}
        self._turn = threading.Lock()

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        """Write and note in this block: else a call could see the new file, and end, before it is noted."""
        with self._turn:
            yield

    def note(self, root: Path, name: str, left: State) -> None:
        """Record the state in which a tool left a path and its parents as known."""
        for place in (name, *map(str, PurePath(name).parents[:-1])):
            with contextlib.suppress(OSError):
                changed = (root / place).lstat().st_ctime_ns
                self._left.pop(place, None)
                self._left[place] = changed, left if place == name else None
        for place in list(self._left)[:-MOST_OWN]:
            self._left.pop(place, None)

    def has_left(self, name: str, changed: int, look: Callable[[str, int], State]) -> bool:
        """Return whether a path that changed then is as a tool left it.

        The time alone does not tell: the clock of a file system is coarse, so the file is read with `look`.
        """
        if self._left.get(name, (0, None))[0] != changed and self._turn.acquire(timeout=WRITE_SECONDS):
            self._turn.release()
        known, left = self._left.get(name, (0, None))
        return known == changed and (left is None or look(name, left.size) == left)


_projects: weakref.WeakValueDictionary[str, OwnWrites] = weakref.WeakValueDictionary()


def own_writes(root: Path) -> OwnWrites:
    """Return the writes of tools in a project. All callers share one object while any of them keeps it."""
    return _projects.setdefault(str(root), OwnWrites())


@contextlib.contextmanager
def placed(folder: int, name: str, *, mode: int = NEW_MODE, is_new: bool = False) -> Iterator[BinaryIO]:
    """Yield a file that gets a name in an open directory when the block succeeds.

    It replaces a file of that name. With `is_new` it fails with FileExistsError instead.
    """
    temporary = f"{TEMPORARY}{secrets.token_hex(8)}"
    descriptor = os.open(temporary, places.MAKING, mode, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        if is_new:
            places.move(folder, temporary, name)
        else:
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


@contextlib.contextmanager
def whole_file(
    path: Path,
    *,
    mode: int | None = None,
    is_new: bool = False,
    check: Callable[[int], None] | None = None,
) -> Iterator[BinaryIO]:
    """Yield a file that replaces another, or is new, when the block succeeds. Raise OSError.

    Without a `mode` it keeps that of the old file. A link is followed, unless `check` looks at the directory
    first: then it is replaced. Other file types are refused, since a rename would destroy them.
    """
    place = path if check is not None else Path(os.path.realpath(path))
    folder = os.open(place.parent, places.DIRECTORY)
    try:
        if check is not None:
            check(folder)
        old = _mode_of(folder, place.name)
        given = NEW_MODE if mode is None else mode
        with placed(folder, place.name, mode=given, is_new=is_new) as file:
            if mode is not None or old is not None:
                os.fchmod(file.fileno(), mode if mode is not None else old or 0)
            yield file
            file.flush()
            os.fsync(file.fileno())
    finally:
        os.close(folder)


def write_whole(path: Path, data: str | bytes, *, mode: int | None = None) -> None:
    """Write a file for the user atomically. A pipe or a device is written directly."""
    content = data.encode("utf-8") if isinstance(data, str) else data
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_bytes(content)
        return
    with whole_file(path, mode=mode) as file:
        file.write(content)


def _mode_of(folder: int, name: str) -> int | None:
    """Return the mode of a file that is to be replaced, None where there is none."""
    try:
        found = os.stat(name, dir_fd=folder).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if not stat.S_ISREG(found):
        raise OSError(errno.EINVAL, "it is no regular file", name)
    return stat.S_IMODE(found)
