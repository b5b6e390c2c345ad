"""Write files whole: beside their name and then renamed, so that no reader or crash sees a part of one.

What a tool has written is known to the images of its project: no call of theirs has changed it.
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

# What the umask leaves of it.
NEW_MODE = 0o666
# Paths that tools have written, the latest: a doubt reaches back to the beginning of a call at most.
MOST_OWN = 1_000
# How long to wait for a tool that is writing before its write is taken for that of another program.
WRITE_SECONDS = 5.0


class OwnWrites:
    """What the tools of this program have last made of paths of a project, and when, in nanoseconds."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[int, State | None]] = {}
        self._turn = threading.Lock()

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        """Write and note in this block: a call may see the new file, and end, before it is noted."""
        with self._turn:
            yield

    def note(self, root: Path, name: str, left: State) -> None:
        """Take a path for known in the state that a tool has left it in, and the directories above it."""
        for place in (name, *map(str, PurePath(name).parents[:-1])):
            with contextlib.suppress(OSError):
                changed = (root / place).lstat().st_ctime_ns
                self._left.pop(place, None)
                self._left[place] = changed, left if place == name else None
        for place in list(self._left)[:-MOST_OWN]:
            self._left.pop(place, None)

    def has_left(self, name: str, changed: int, look: Callable[[str, int], State]) -> bool:
        """Tell whether a path that changed then is as a tool left it.

        The time alone does not tell: the clock of a file system is slow, so a file is read with `look`.
        """
        if self._left.get(name, (0, None))[0] != changed and self._turn.acquire(timeout=WRITE_SECONDS):
            self._turn.release()
        known, left = self._left.get(name, (0, None))
        return known == changed and (left is None or look(name, left.size) == left)


_projects: weakref.WeakValueDictionary[str, OwnWrites] = weakref.WeakValueDictionary()


def own_writes(root: Path) -> OwnWrites:
    """Return what tools have written in a project, the same to all that ask while one keeps it."""
    return _projects.setdefault(str(root), OwnWrites())


@contextlib.contextmanager
def placed(folder: int, name: str, *, mode: int = NEW_MODE, is_new: bool = False) -> Iterator[BinaryIO]:
    """Give a file that takes a name in an open directory when the block ends well.

    It replaces what has the name; one that is to be `new` fails with FileExistsError instead.
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
    """Give a file that takes the place of another, or of none, when the block ends well; raise OSError.

    Without a `mode` it keeps that of the other. A link is followed, unless `check` looks at the directory
    first: then it is replaced. What is no regular file is refused, since a rename would destroy it.
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
    """Write a file for the user; into a pipe or a device it is written as it is."""
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
