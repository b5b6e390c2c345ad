"""Resolve a path of a call once: step by step through descriptors from the project's own.

A link is read and resolved here, never followed by the kernel. The tool reads and writes by the open
directory and the last name, so the opened file is the one that was judged, shown and sealed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from gramercy.errors import GramercyError, WorkspaceError
from gramercy.images.census import reader_in
from gramercy.images.files import places
from gramercy.images.guarded import reader_of
from gramercy.text import hide, reason_of, reveal_line
from gramercy.tools.tool import Likeness, Paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from gramercy.tools.tool import Place

# Well below PATH_MAX (4096 bytes), which includes the project's own path.
LONGEST_PATH = 2_000
# The limit of Linux for one path.
MOST_LINKS = 40
# Directories on the way. Each keeps a descriptor open, and many systems allow a process 1,024.
DEEPEST = 200
GIT = ".git"
# The name of the project directory itself.
TOP = "."
# The errors of Linux when a step is a link or a file.
_NO_DIRECTORY = (errno.ENOTDIR, errno.ELOOP)
_STEP = places.DIRECTORY | os.O_NOFOLLOW
# Tools that show files and tools that write them, each with its path argument and its categories. A rule
# about a path of one tool holds for the others.
READERS = {
    "read_file": ("path", ("buffer",)),
    "read_buffer": ("buffer", ("buffer",)),
    "search_in_buffer": ("buffer", ("buffer",)),
    "search_files": ("path", ("filesystem",)),
    "list_files": ("path", ("filesystem",)),
    "check_syntax": ("path", ("filesystem",)),
}
WRITERS = {
    "write_file": ("path", ("buffer", "filesystem")),
    "edit_file": ("path", ("filesystem",)),
    "edit_definition": ("path", ("filesystem",)),
    "propose_file_edit": ("path", ("diff",)),
}
# These show a file's content when they fail, but a rule about them is not a rule about reading.
ALSO_READ = ("load_file", "edit_file", "edit_definition", "propose_file_edit")


class Opened:
    """A descriptor of a directory, closed when the last place in it is gone.

    It is not closed explicitly: a cancelled call may still run on a thread, and its number must not come to
    mean another directory.
    """

    __slots__ = ("descriptor",)

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.descriptor)


class RealPlace(str):
    """A path as it was given, with its real place in the project.

    `folder` is the nearest existing directory above, open. `missing` lists the missing directories below it,
    and `last` is the name in them, empty for the project itself. `found` is the state of that name, None
    where there was nothing. `sealed` is the state of the file that an approval was given for.
    """

    __slots__ = (
        *("_control", "_via", "folder", "found", "is_link", "last", "missing", "name", "root"),
        *("sealed", "trouble", "withheld"),
    )

    root: str
    name: str
    folder: Opened | None
    missing: tuple[str, ...]
    last: str
    found: os.stat_result | None
    is_link: bool
    trouble: str
    sealed: str | None
    withheld: Callable[[str], bool] | None
    _via: tuple[str, ...]
    _control: str | None

    def __new__(cls, given: str, root: str, name: str, via: tuple[str, ...] = ()) -> Self:
        """Make the place of a real name. `via` are the names of links that led there."""
        made = super().__new__(cls, given)
        made.root, made.name, made._via = root, name, via
        made.folder, made.missing, made.found, made.sealed, made.withheld = None, (), None, None, None
        made.last = "" if name == TOP else name.rpartition("/")[2]
        made.is_link, made.trouble, made._control = bool(via), "", None
        return made

    def __format__(self, spec: str) -> str:
        """Return the path as given for a message, on one line with hidden characters escaped."""
        return format(reveal_line(str(self)), spec)

    @property
    def absolute(self) -> str:
        """The real path from the root of the file system."""
        return self.root if self.name == TOP else f"{self.root.rstrip('/')}/{self.name}"

    @property
    def parts(self) -> tuple[str, ...]:
        """The steps from the project."""
        return () if self.name == TOP else tuple(self.name.split("/"))

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every spelling that a rule may mean: the real name, the text as given, links on the way."""
        real = () if self.trouble else (self.name, self.absolute)
        return tuple(dict.fromkeys((*real, str(self), *self._via)))

    @property
    def identity(self) -> str:
        """The identity for an approval: the name, its directory, and the file itself."""
        if self.folder is None:
            return f"{self} cannot be used: {self.trouble}"
        above, own = os.fstat(self.folder.descriptor), self.found
        file = "nothing" if own is None else f"{own.st_dev}:{own.st_ino}"
        return f"{self.name} in {above.st_dev}:{above.st_ino} is {file}"

    @property
    def control(self) -> str:
        """The program that reads commands from the file, by its real name or that of a link. Else empty."""
        if self._control is None:
            tell = reader_of if self.trouble else partial(reader_in, self.root)
            self._control = next(filter(None, map(tell, (self.name, *self._via))), "")
        return self._control

    @property
    def hidden_control(self) -> str:
        """The program that runs the file behind a link whose own name does not tell that. Else ""."""
        if any(map(reader_of, self._via)):
            return reader_of(self.name)
        return reader_in(self.root, self.name)

    @property
    def shown(self) -> str:
        """The real name on one line with hidden characters escaped."""
        return reveal_line(self.name)

    @property
    def told(self) -> str:
        """The path as given, and the real name where a link led there."""
        return f"{self} (which is {self.shown})" if self.is_link else f"{self}"

    def beside(self, name: str) -> RealPlace:
        """Return the place of another real name of the same project. Nothing is opened for it."""
        return RealPlace(name, self.root, name)

    def unopened(self) -> RealPlace:
        """Return the same without the open directory."""
        made = RealPlace(self, self.root, self.name, self._via)
        made.trouble = self.trouble
        return made

    def names_in(self, folder: int) -> list[str] | None:
        """Return the names in the directory of this name in an open one; None for a link or another file."""
        try:
            own = Opened(os.open(self.last or TOP, _STEP, dir_fd=folder))
        except OSError as error:
            if error.errno in _NO_DIRECTORY:
                return None
            raise
        return os.listdir(own.descriptor)  # noqa: PTH208 - of a descriptor

    def without_withheld(self, names: list[str], above: str) -> list[str]:
        """Return the names in a directory that no rule withholds. `above` is its name with a slash."""
        is_withheld = self.withheld
        return sorted(name for name in names if is_withheld is None or not is_withheld(above + name))

    @contextlib.contextmanager
    def opened(self, *, create: bool = False) -> Iterator[int]:
        """Yield the directory of the last name. A missing directory is an error unless `create` is true.

        Created directories are removed again when nothing was put into them.
        """
        assert self.folder is not None  # noqa: S101 - only what was found is opened; this tells mypy
        current, made = self.folder, []
        if self.missing and not create:
            raise FileNotFoundError
        try:
            for part in self.missing:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=current.descriptor)
                    made.append((current, part))
                current = Opened(os.open(part, _STEP, dir_fd=current.descriptor))
            yield current.descriptor
        except BaseException:
            for above, part in reversed(made):
                with contextlib.suppress(OSError):
                    os.rmdir(part, dir_fd=above.descriptor)
            raise


def declared(
    tool: str,
    find_place: Callable[[str], RealPlace],
    *,
    argument: str = "path",
    default: Callable[[], str | None] = lambda: None,
    walks: bool = False,
) -> Paths:
    """Declare the path argument of one of the tools above. `default` gives the path where it is missing."""
    reads, writes = tool in READERS or tool in ALSO_READ, tool in WRITERS

    def found(arguments: Mapping[str, Any]) -> dict[str, Place]:
        given = arguments.get(argument)
        # A tool that walks starts at the top, without a path or with an empty one.
        is_given = isinstance(given, str) and (given != "" or not walks)
        path = given if is_given else TOP if walks else default()
        return {} if path is None else {argument: _usable(path, find_place, writes=writes)}

    fellows = {**(READERS if reads else {}), **(WRITERS if writes else {})}
    like = [
        Likeness(name, categories, {theirs: argument})
        for name, (theirs, categories) in fellows.items()
        if name != tool
    ]
    own = (argument,)
    return Paths(found, own if reads else (), own if writes else (), tuple(like), walks)


def _usable(given: str, find_place: Callable[[str], RealPlace], *, writes: bool = False) -> RealPlace:
    """Return a place, or one that holds the reason why it is unusable: the caller does not resolve again."""
    try:
        place = find_place(given)
    except GramercyError as error:
        place = RealPlace(given, "/", given)
        place.trouble = str(error)
        return place
    if writes and place.is_link and (reader := place.hidden_control):
        place.trouble = (
            f"{reveal_line(given)} is a link to {place.shown}, which {reader}: it is not written through a "
            f"link, give {place.shown} itself"
        )
    return place


def find(root: Path, given: str) -> RealPlace:
    """Resolve a path. Refuse one that leads out of the project, also by a link, or into git."""
    try:
        place = _walked(root, given, given)
        return place if place.found is not None else _as_written_out(root, given) or place
    except UnicodeError:
        raise WorkspaceError(f"{given!r:.200} is not a usable path: it is not valid Unicode") from None
    except OSError as error:
        raise WorkspaceError(f"{reveal_line(given):.300} cannot be looked at: {reason_of(error)}") from None


def _as_written_out(root: Path, given: str) -> RealPlace | None:
    """Return the place of a name that is given as lists show it, with hidden characters escaped."""
    if (path := hide(given)) == given:
        return None
    with contextlib.suppress(WorkspaceError, OSError, UnicodeError):
        place = _walked(root, given, path)
        return place if place.found is not None else None
    return None


def _walked(root: Path, given: str, path: str) -> RealPlace:
    _check_text(path)
    return _Walk(os.fspath(root), given, path).place()


def _check_text(given: str) -> None:
    if not given:
        raise WorkspaceError("the path is empty: give a path inside the project")
    if "\0" in given:
        raise WorkspaceError(
            "the path has a NUL in it, which no file name has: give a path inside the project"
        )
    if len(given) > LONGEST_PATH:
        raise WorkspaceError(
            f"the path is too long, {len(given):,} characters: {LONGEST_PATH:,} are the most"
        )


def _as_listed(part: str, folder: int) -> str:
    """Return a name as its directory lists it: a case-folding mount finds the file by other spellings."""
    other = part.swapcase()
    if other == part:
        return part
    try:
        os.stat(other, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return part
    names = os.listdir(folder)
    if part in names:
        return part
    folded = part.casefold()
    return next((name for name in names if name.casefold() == folded), part)


class _Walk:
    """The resolution of a path to its place.

    `names` are real names below the project, and `folders` their open directories, the project's first.
    `above` is the path from the root of the file system while the walk is outside, else None.
    """

    def __init__(self, root: str, given: str, path: str) -> None:
        self.root, self.given = root, given
        # The path in messages.
        self.told = reveal_line(given)
        self.names: list[str] = []
        self.missing = self.links = 0
        self.via: list[str] = []
        self.above: list[str] | None = None
        self.found: os.stat_result | None = None
        self.folders = [Opened(places.opened_root(root))]
        self.pending = self._parts(path)

    def _parts(self, text: str) -> list[str]:
        """Return the steps of a text, the next one last. An absolute path begins outside."""
        if text.startswith("/"):
            inside = f"{self.root.rstrip('/')}/"
            # The root is a real path: it contains no link.
            if text.startswith(inside):
                text = text[len(inside) :]
                self._enter()
            else:
                self._leave([])
        return [part for part in reversed(text.split("/")) if part not in ("", TOP)]

    def _enter(self) -> None:
        self.above, self.names, self.missing = None, [], 0
        del self.folders[1:]

    def _leave(self, above: list[str]) -> None:
        self._enter()
        self.above = above

    def place(self) -> RealPlace:
        while self.pending:
            part = self.pending.pop()
            if self.above is not None:
                self._step_outside(self.above, part)
            elif part == "..":
                self._step_up()
            elif self.missing:
                self.names.append(part)
                self.missing += 1
            else:
                self._step(part)
        if self.above is not None:
            raise WorkspaceError(
                f"{self.told} is outside the project: only files below its directory can be used"
            )
        return self._made()

    def _made(self) -> RealPlace:
        if any(part.casefold() == GIT for part in self.names):
            raise WorkspaceError(f"{self.told} belongs to git: its files are neither read nor written")
        name = "/".join(self.names) or TOP
        if len(self.names) > DEEPEST or len(name) > LONGEST_PATH:
            raise WorkspaceError(
                f"{self.told:.300} cannot be used: it leads {len(self.names):,} directories deep, and "
                f"{DEEPEST} and {LONGEST_PATH:,} characters are the most"
            )
        if not name.isascii():
            _check_name(name, self.given)
        made = RealPlace(self.given, self.root, name, tuple(self.via))
        # For a path that ends in `..` the last directory is already open: its own name is in the one above.
        depth = len(self.names) - max(1, self.missing) if self.names else 0
        made.folder = self.folders[depth]
        made.missing = tuple(self.names[depth:-1])
        made.found = self.found if self.names else os.fstat(made.folder.descriptor)
        if self.names and not self.missing and made.found is None:
            with contextlib.suppress(FileNotFoundError):
                made.found = os.stat(made.last, dir_fd=made.folder.descriptor, follow_symlinks=False)
        return made

    def _step_up(self) -> None:
        self.found = None
        if not self.names:
            self._leave(self.root.strip("/").split("/")[:-1])
            return
        self.names.pop()
        if self.missing:
            self.missing -= 1
        else:
            del self.folders[len(self.names) + 1 :]

    def _step(self, part: str) -> None:
        """Take one step below the project, where evaluated code may have put anything."""
        folder = self.folders[len(self.names)].descriptor
        if self.pending:
            try:
                self.folders.append(Opened(os.open(part, _STEP, dir_fd=folder)))
            except FileNotFoundError:
                self.missing = 1
            except OSError as error:
                if error.errno not in _NO_DIRECTORY:
                    raise
                self._follow(part, folder)
                return
        else:
            try:
                self.found = os.stat(part, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                self.missing = 1
            if self.found is not None and stat.S_ISLNK(self.found.st_mode):
                self.found = None
                self._follow(part, folder)
                return
        self.names.append(part if self.missing else _as_listed(part, folder))

    def _follow(self, part: str, folder: int) -> None:
        """Continue where a link leads. Refuse anything that is neither a link nor a directory."""
        try:
            target = os.readlink(part, dir_fd=folder)
        except OSError:
            there = "/".join([*self.names, part])
            raise WorkspaceError(
                f"{self.told} cannot be used: {reveal_line(there)} is not a directory"
            ) from None
        self.via.append("/".join([*self.names, part, *reversed(self.pending)]))
        self._count()
        self.pending += self._parts(target)
        # Each link can bring 2,000 steps. Together they would take minutes, and thousands of directories.
        if len(self.pending) > LONGEST_PATH:
            raise WorkspaceError(f"{self.told:.300} cannot be used: its links lead through too many steps")

    def _count(self) -> None:
        self.links += 1
        if self.links > MOST_LINKS:
            raise WorkspaceError(f"{self.told} cannot be used: its links lead in a circle, or are too many")

    def _step_outside(self, above: list[str], part: str) -> None:
        """Take one step outside of the project. The path must lead into it in the end."""
        if part == "..":
            self.above = above[:-1]
            return
        there = [*above, part]
        way = "/" + "/".join(there)
        if way == self.root:
            self._enter()
            return
        try:
            target = os.readlink(way)  # noqa: PTH115 - a text is wanted
        except OSError:
            self.above = there
            return
        self._count()
        if target.startswith("/"):
            self.above = []
        self.pending += [each for each in reversed(target.split("/")) if each not in ("", TOP)]


def _check_name(name: str, given: str) -> None:
    """Refuse a name that a question cannot show or a record cannot keep."""
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(name).decode("ascii", "backslashreplace")
        raise WorkspaceError(
            f"{given!a:.300} has a name that is not UTF-8, {shown:.300}: rename it, or use it by evaluation"
        ) from None
