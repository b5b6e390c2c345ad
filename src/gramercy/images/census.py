"""Find the paths of a project that evaluated code must not change, since the person's programs run them.

These are control files at any depth, git repositories, Python environments under any name, the targets of
links with such names, and the source of gramercy itself if it lies in the project. The walk is bounded.
Deeper paths are reported, and `sentry` protects them where writes of evaluated code are heard. Nothing is
run.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections import deque
from pathlib import Path
from time import monotonic, time_ns
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gramercy.images.files.places import directory, move
from gramercy.images.guarded import (
    GIT,
    INSTRUCTIONS,
    OF_GIT,
    OF_PYTHON,
    OF_SELF,
    SERVICES,
    SIGNS,
    UNTRUSTED,
    Kind,
    kind_of,
    reader_of,
)
from gramercy.images.own import known_places, own_places
from gramercy.images.project import (
    COMMON,
    HEAD,
    HOOKS,
    ends_of,
    is_empty,
    is_repository,
    links_in,
    named_by_git,
    submodules,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# Few projects reach either limit: a walk of 10,000 files takes some ten milliseconds.
MOST_ENTRIES = 100_000
MOST_SECONDS = 0.5
# Each is a mount and takes a third of a millisecond. Further paths are left to `sentry`.
MOST_HELD = 200
# Projects whose directories are remembered.
MOST_KNOWN = 8
# File times tick every 4 to 10 ms on older kernels: a change within a tick of the last check is not seen.
TICK_NS = 30_000_000
# The limit of the kernel.
MOST_LINKS = 40
# Tools fill these with thousands of files. Editors and shells are not started in them.
PASSED_OVER = frozenset(("node_modules", "__pycache__"))
# The names to protect where the project is itself an environment.
PROGRAMS = ("bin", "lib", "lib64", "etc", *SIGNS)


class Census(msgspec.Struct, frozen=True):
    """The paths that were found, relative to the project directory.

    `held` can be mounted read-only. `loose` are control files and links that cannot. `folders` are the
    visited directories, with the time of their last change. `bound` names the limit that was reached, if any.
    """

    held: dict[str, Kind]
    loose: dict[str, Kind]
    folders: dict[str, int]
    bound: str = ""


def census(project: Path) -> Census:
    """Search a project for paths that evaluated code must not change."""
    walk = _Walk(project)
    for name, kind in own_places(project).items():
        walk.hold(name, kind)
    if _is_placeholder(project):
        walk.hold(COMMON, OF_GIT)
    walk.run()
    for name in submodules(project):
        place = project / name / GIT
        if place.exists() and place.resolve() == place:
            walk.hold(f"{name.strip('/')}/{GIT}", OF_GIT)
    for name in named_by_git(project):
        walk.follow(name, OF_GIT)
    walk.follow_inner()
    return walk.census()


def reader_in(project: str | Path, name: str) -> str:
    """Name the program that reads a file for something to run, like `reader_of`, also by its place alone.

    Such a place is an environment of any name, the source of gramercy itself, a path in git's config, a
    repository without a work tree, or the target of a link with the name of a control file, or in a directory
    with such a name, if it lies on the way.
    """
    found = reader_of(name)
    if found:
        return found
    top, places = str(project), (name, *above(name))
    if any(os.path.lexists(f"{top}/{place}/{sign}") for place in places for sign in SIGNS):
        return OF_PYTHON.reader
    own = known_places(Path(top))
    if own and (kind := next((own[place] for place in places if place in own), None)) is not None:
        return kind.reader
    if _is_of_git(top, places):
        return OF_GIT.reader
    return next((kind.reader for folder in ("", *above(name)) for kind in _linked(top, folder, places)), "")


def _is_of_git(top: str, places: tuple[str, ...]) -> bool:
    """Return whether git runs the first of these places: by its config, or for a bare repository."""
    if places[0].rpartition("/")[2].casefold() == HEAD.casefold():
        return True
    if any(os.path.lexists(f"{top}/{each}/{HEAD}") and is_repository(Path(top, each)) for each in places):
        return True
    return not named_by_git(Path(top)).isdisjoint(places)


def _linked(top: str, folder: str, places: tuple[str, ...]) -> list[Kind]:
    """Return the kinds of a directory's control files that are links to one of these places, or hold one."""
    found = []
    with contextlib.suppress(OSError), os.scandir(f"{top}/{folder}") as entries:
        for entry in entries:
            kind = kind_of(entry.name, folder.rpartition("/")[2])
            if kind is None:
                continue
            links = [entry.path] if entry.is_symlink() else _inner_links(entry.path, kind)
            ends = {end for link in links for end in ends_of(link)}
            if any(f"{top}/{each}" in ends for each in places):
                found.append(kind)
    return found


def _inner_links(place: str, kind: Kind) -> list[str]:
    """Return links in a control directory: a program there reads their targets.

    Environments are full of links to programs of the system, and of a repository only the hooks are run. A
    link back to the place of the directory adds no file.
    """
    if kind is OF_PYTHON or kind is OF_SELF:
        return []
    found = links_in(f"{place}/{HOOKS}") if place.endswith(f"/{GIT}") else links_in(place, deeper=True)
    return [link for link in found if not link.startswith(f"{os.path.realpath(link)}/")]


def _is_placeholder(project: Path) -> bool:
    """Return whether a directory stands where git would look for the shared files of worktrees."""
    place = project / COMMON
    return place.is_dir() and not place.is_symlink() and not (project / GIT / "HEAD").exists()


class _Folder(NamedTuple):
    """The content of one directory: its last change, names with their kinds, and subdirectories to visit.

    `whole` is its own kind where all of it is protected: an environment, or a repository without a work tree.
    """

    changed: int
    size: int
    found: tuple[tuple[str, Kind, bool], ...]
    deeper: tuple[str, ...]
    whole: Kind | None = None


# Directories already read, per project, for its next image: only changed ones are read again.
_known: dict[str, dict[str, _Folder]] = {}


def _read(top: str, folder: str) -> _Folder:
    """Read a directory. A link counts by its own name."""
    place = f"{top}/{folder}"
    changed = os.lstat(place).st_ctime_ns
    with os.scandir(place) as found:
        entries = {entry.name: entry for entry in found}
    above = folder.rpartition("/")[2]
    kinds, deeper = [], []
    for name, entry in entries.items():
        kind = kind_of(name, above)
        if kind is not None:
            kinds.append((joined(folder, name), kind, entry.is_symlink()))
        elif entry.is_dir(follow_symlinks=False) and is_looked_into(name):
            deeper.append(joined(folder, name))
    whole = OF_PYTHON if any(sign in entries for sign in SIGNS) else None
    if "HEAD" in entries and is_repository(Path(place)):
        whole = OF_GIT
    return _Folder(changed, len(entries), tuple(kinds), tuple(deeper), whole)


class _Walk:
    """A walk from the top, breadth first, so that the limit cuts off the deepest paths."""

    def __init__(self, project: Path) -> None:
        self._top = str(project)
        self._held: dict[str, Kind] = {}
        self._loose: dict[str, Kind] = {}
        self._folders: dict[str, int] = {}
        self._before = _known.pop(self._top, {})
        self._now: dict[str, _Folder] = {}
        self._left = MOST_ENTRIES
        self._deadline = monotonic() + MOST_SECONDS
        self._bound = ""

    def census(self) -> Census:
        """Return the result. Of nested paths it has the outermost.

        Programs that run on this machine come first: every directory may hold instructions.
        """
        held = [name for name in self._held if not any(each in self._held for each in above(name))]
        held.sort(key=lambda name: self._held[name] in (INSTRUCTIONS, SERVICES))
        beyond = {name: self._held[name] for name in held[MOST_HELD:]}
        kept = {name: self._held[name] for name in held[:MOST_HELD]}
        bound = self._bound or (f"has more than {MOST_HELD} control files" if beyond else "")
        return Census(kept, {**self._loose, **beyond}, self._folders, bound)

    def hold(self, name: str, kind: Kind) -> None:
        """Note a path to be mounted read-only."""
        self._held.setdefault(name, kind)

    def run(self) -> None:
        """Walk until everything is visited or a limit is reached."""
        waiting = deque([""])
        while waiting and not self._bound:
            name = waiting.popleft()
            if name in self._held:
                continue
            with contextlib.suppress(OSError):
                waiting.extend(self._into(name))
            if waiting and (self._left <= 0 or monotonic() > self._deadline):
                self._bound = "is too large to be looked through for control files before it is used"
        _known[self._top] = self._now
        while len(_known) > MOST_KNOWN:
            _known.pop(next(iter(_known)))

    def _into(self, name: str) -> tuple[str, ...]:
        """Note the content of a directory. Return its subdirectories to visit."""
        folder = self._before.get(name)
        if folder is None or os.lstat(f"{self._top}/{name}").st_ctime_ns != folder.changed:
            folder = _read(self._top, name)
        if time_ns() - folder.changed > TICK_NS:
            self._now[name] = folder
        self._left -= folder.size
        if folder.whole is not None and name:
            self.hold(name, folder.whole)
            return ()
        self._folders[name] = folder.changed
        for each, kind, is_link in folder.found:
            self._note(each, kind, is_link=is_link)
        if folder.whole is OF_PYTHON:
            for each in PROGRAMS:
                place = Path(self._top, each)
                if place.exists() and not place.is_symlink():
                    self.hold(each, OF_PYTHON)
        return folder.deeper

    def _note(self, name: str, kind: Kind, *, is_link: bool) -> None:
        if is_link:
            # The link can be replaced, so it is left to `sentry`, and its target is protected.
            self.follow(name, kind)
        else:
            self.hold(name, kind)

    def follow(self, name: str, kind: Kind) -> None:
        """Note a link, the links on its way, and its target, as far as they are in the project.

        A missing target is left to `sentry`.
        """
        place = f"{self._top}/{name}"
        for _ in range(MOST_LINKS):
            within = self._within(place)
            if within is None:
                return
            if not os.path.islink(place):  # noqa: PTH114 - a text
                if os.path.exists(place):  # noqa: PTH110 - a text
                    self.hold(within, kind)
                else:
                    self._loose[within] = kind
                return
            self._loose[within] = kind
            place = _next(place)

    def follow_inner(self) -> None:
        """Note the targets of links in control directories. The links themselves are read-only with those."""
        for name, kind in list(self._held.items()):
            for link in _inner_links(f"{self._top}/{name}", kind):
                if (within := self._within(_next(link))) is not None:
                    self.follow(within, kind)

    def _within(self, place: str) -> str | None:
        return place[len(self._top) + 1 :] if place.startswith(f"{self._top}/") else None


def _next(link: str) -> str:
    """Return the target of a link, with the links above it resolved."""
    target = os.path.join(os.path.dirname(link), os.readlink(link)).rstrip("/")  # noqa: PTH115, PTH118, PTH120
    above, name = os.path.split(target)
    if name in (".", ".."):
        return os.path.realpath(target)
    return os.path.join(os.path.realpath(above), name)  # noqa: PTH118


def joined(folder: str, name: str) -> str:
    """Return the name of an entry relative to the project directory."""
    return f"{folder}/{name}" if folder else name


def is_looked_into(name: str) -> bool:
    """Return whether to visit a directory that no program reads."""
    return name not in PASSED_OVER and not (name.startswith(".") and "cache" in name)


def above(name: str) -> Iterator[str]:
    """Yield the directories above a name, the nearest first."""
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


Seen = tuple[int, int, int, int]


class Entries:
    """The current names in a project, relative to its directory. No link is followed."""

    def __init__(self, project: Path, folders: dict[str, int]) -> None:
        self.top = project
        self.prefix = f"{project}/"
        # The top is read again at the first check.
        self.folders = {**folders, "": 0}

    def state(self, name: str, *, whole: bool = False) -> Seen | None:
        """Return a value that distinguishes a file from another and from a later version.

        An empty directory does not exist yet, unless it counts as a `whole`.
        """
        place = f"{self.prefix}{name}"
        try:
            status = os.lstat(place)
        except OSError:
            return None
        if not whole and stat.S_ISDIR(status.st_mode) and is_empty(Path(place)):
            return None
        return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns

    def identity(self, name: str) -> tuple[int, int]:
        """Return a value that distinguishes a file from another."""
        seen = self.state(name, whole=True)
        return seen[:2] if seen is not None else (0, 0)

    def changed(self, folder: str) -> dict[str, bool] | None:
        """Return the entries of a directory, and which are directories, if it may have changed."""
        place = f"{self.prefix}{folder}"
        try:
            status = os.lstat(place)
            # Not the modification time, which evaluated code can set.
            if status.st_ctime_ns == self.folders.get(folder) or not stat.S_ISDIR(status.st_mode):
                return None
            with os.scandir(place) as found:
                entries = {entry.name: entry.is_dir(follow_symlinks=False) for entry in found}
        except OSError:
            self.folders.pop(folder, None)
            return None
        is_young = time_ns() - status.st_ctime_ns < TICK_NS
        self.folders[folder] = 0 if is_young else status.st_ctime_ns
        return entries

    def is_new(self, name: str) -> bool:
        """Note a directory to visit from now on. Return whether it was not known."""
        is_known = name in self.folders or not is_looked_into(name.rpartition("/")[2])
        if is_known or len(self.folders) >= MOST_ENTRIES:
            return False
        self.folders[name] = 0
        return True

    def put_aside(self, name: str) -> str:
        """Rename an entry to a free name, and return that."""
        folder, _, last = name.rpartition("/")
        new = f"{last}{UNTRUSTED}"
        # Without read permission, which evaluated code can remove.
        with directory(self.top, folder.split("/") if folder else (), reads=False) as place:
            try:
                move(place, last, new)
            except FileExistsError:
                new = f"{new}-{secrets.token_hex(4)}"
                move(place, last, new)
        return joined(folder, new)
