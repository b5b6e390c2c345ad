"""List the files of a project with their sizes, as deep as an answer allows, and select files by globs."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from gramercy.errors import WorkspaceError
from gramercy.images.files import places
from gramercy.text import counted, cut, listed, reason_of, reveal_line
from gramercy.tools.definition import create_tool
from gramercy.toolsets.factory import text, whole
from gramercy.toolsets.ignoring import Rules
from gramercy.toolsets.paths import TOP
from gramercy.toolsets.walking import Folder, Tally, walk

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from gramercy.tools.tool import Tool
    from gramercy.toolsets.workspace import Workspace

# The limit of every tool here: clients cut longer answers somewhere in the middle.
LONGEST_ANSWER = 7_900
# A person or a model does not read more lines.
MOST_LINES = 250
# Twenty times the duration for 50,000 files.
LIST_SECONDS = 10.0
# A few levels of names of 255 bytes each, the limit of file systems.
LONGEST_NAME = 1_000
# Braces multiply: {a,b}{c,d} are four patterns.
MOST_GLOBS = 100
# Excluded Python environments that are named. The others are counted.
MOST_NAMED = 3
_WILD = frozenset("*?[\\")
KILOBYTE = 1_000
GLOB = text("Only files that fit, as src/**/*.{c,h}; !*.txt leaves out")


def list_files(workspace: Workspace) -> Tool:
    """Make the tool."""
    properties = {
        "path": text("Directory to list; by default the project"),
        "glob": GLOB,
        "depth": whole("Levels of directories to show; deeper ones are counted", minimum=1),
    }
    return create_tool(
        "list_files",
        "List the files of the project with their sizes; of too many the directories with counts. Use it to "
        "get to know a project. What git ignores is left out unless path is in it.",
        {"type": "object", "properties": properties, "required": [], "additionalProperties": False},
        lambda a: _list(Selection(workspace, a.get("path"), a.get("glob")), a.get("depth")),
        title="List files",
        paths=workspace.declared("list_files", walks=True),
        categories=["filesystem"],
        open_world=False,
    )


class Selection:
    """The files below a directory, or the one file, that match a glob."""

    def __init__(self, workspace: Workspace, path: str | None, glob: str | None) -> None:
        # Not `path or TOP`: a place knows the names that rules withhold, and a place may be an empty text.
        place = workspace.place(TOP if path is None else path)
        self.root = workspace.root
        self.parts = place.parts
        self._withheld = place.withheld
        self.withheld = 0
        self.glob = glob
        self._glob = Glob(glob) if glob else None
        self._only = None
        if place.found is None or not stat.S_ISDIR(place.found.st_mode):
            # This reports a missing file, or something that is not a file, as read_file does.
            workspace.data(place)
            *folders, self._only = self.parts
            self.parts = tuple(folders)

    @property
    def path(self) -> str:
        """The directory or the file, relative to the root of the project."""
        return "/".join([*self.parts, *([self._only] if self._only else [])])

    def folders(self, tally: Tally) -> Generator[Folder]:
        """Yield the directories. For a single file, yield its own."""
        try:
            if self._only is None:
                yield from walk(self.root, self.parts, tally)
            else:
                with places.directory(self.root, self.parts) as descriptor:
                    yield Folder(descriptor, "".join(f"{part}/" for part in self.parts), [self._only])
        except OSError as error:
            # Only the first directory raises an error. Others are counted.
            where = self.path or "the project"
            raise WorkspaceError(f"{where} cannot be read: {reason_of(error)}") from None

    def files(self, tally: Tally) -> Iterator[tuple[Folder, str]]:
        """Yield the matching files, each with its open directory."""
        for folder in self.folders(tally):
            for name in self.fitting(folder):
                yield folder, name

    def fitting(self, folder: Folder) -> Sequence[str]:
        """Return the files of a directory that match the glob, relative to the root or to the start."""
        names: list[str] = folder.files
        if self._glob is not None:
            start = sum(len(part) + 1 for part in self.parts)
            names = self._glob.fitting(names, folder.path, folder.path[start:])
        if self._withheld is not None:
            shown = [name for name in names if not self._withheld(folder.path + name)]
            self.withheld += len(names) - len(shown)
            names = shown
        return names

    @property
    def told_withheld(self) -> str:
        """Say how many files are withheld by rules. Empty where there are none."""
        return f"{counted(self.withheld, 'file')} withheld by rules" if self.withheld else ""


class Glob:
    """A git pattern, with {a,b} for alternatives and ! for negation. A directory selects all files in it."""

    def __init__(self, glob: str) -> None:
        self._is_negated = glob.startswith("!")
        patterns = [each.rstrip("/") for each in _unbraced(glob.removeprefix("!").removeprefix("./"))]
        plain = [each.removeprefix("/") for each in patterns if not _WILD.intersection(each)]
        self._folders = tuple(f"{each}/" for each in plain if each)
        # These two begin comments and exceptions in a .gitignore.
        escaped = [f"\\{each}" if each.startswith(("#", "!")) else each for each in patterns]
        self._rules = Rules(os.fsencode("\n".join(escaped)))

    def fitting(self, names: list[str], *folders: str) -> list[str]:
        """Return the matching names in a directory. Its path may be relative to several places."""
        if any(folder.startswith(self._folders) for folder in folders):
            return [] if self._is_negated else names
        found = {name for folder in dict.fromkeys(folders) for name in self._rules.chosen(names, folder)}
        return [name for name in names if (name in found) is not self._is_negated]


def _unbraced(glob: str) -> list[str]:
    found, done = [glob], []
    while found:
        each = found.pop()
        head, brace, tail = each.partition("{")
        inside, end, rest = tail.partition("}")
        if not brace or not end:
            done.append(each)
            continue
        found += [f"{head}{choice}{rest}" for choice in reversed(inside.split(","))]
        if len(found) + len(done) > MOST_GLOBS:
            raise WorkspaceError(f"the glob stands for more than {MOST_GLOBS} patterns: make it simpler")
    return done


def shown_name(path: str) -> str:
    """Return a path on one line with hidden characters escaped, in full unless it would fill an answer."""
    return reveal_line(cut(path, LONGEST_NAME))


def told_environments(tally: Tally) -> str:
    """List the Python environments that were excluded, and say how to see one."""
    names = listed([*map(shown_name, tally.environments)], MOST_NAMED, counts=True)
    return f"without the Python environment {names}: name it as path to look into it"


@dataclass(slots=True)
class _Node:
    """A directory of the list: its entries, and the totals below it."""

    path: str
    files: list[tuple[str, str]] = field(default_factory=list)
    below: list[_Node] = field(default_factory=list)
    count: int = 0
    size: int = 0


def _list(selection: Selection, depth: int | None) -> str:
    tally = Tally()
    top, directories, is_cut = _tree(selection, tally)
    notes = []
    if tally.ignored:
        notes.append(f"git ignores {counted(tally.ignored, 'more entry')}")
    if tally.environments:
        notes.append(told_environments(tally))
    if tally.unreadable:
        notes.append(f"{tally.unreadable:,} directories cannot be read")
    if selection.withheld:
        notes.append(selection.told_withheld)
    if is_cut:
        notes.append(f"stopped after {LIST_SECONDS:g} s: there are more")
    note = f" ({'; '.join(notes)})" if notes else ""
    where = f" below {shown_name(selection.path)}" if selection.path else ""
    if not top.count:
        glob = f" fits {selection.glob:.200}" if selection.glob else " is there"
        return f"No file{glob}{where}{note}."
    counts = f"{counted(top.count, 'file')} in {counted(directories, 'directory')}"
    head = f"{counts}{where}, {sized(top.size)}{note}"
    return "\n".join([head, *_lines(top, depth, LONGEST_ANSWER - len(head) - 200)])


def _tree(selection: Selection, tally: Tally) -> tuple[_Node, int, bool]:
    """Return the directories with their entries, how many have files, and whether the time ran out."""
    until = monotonic() + LIST_SECONDS
    nodes: dict[str, _Node] = {}
    top = None
    directories = 0
    is_cut = False
    for folder in selection.folders(tally):
        node = nodes[folder.path] = _Node(folder.path)
        if top is None:
            top = node
        else:
            nodes[f"{folder.path[:-1].rpartition('/')[0]}/".removeprefix("/")].below.append(node)
        _fill(node, folder, selection)
        directories += bool(node.files)
        is_cut = monotonic() > until
        if is_cut:
            break
    assert top is not None  # noqa: S101 - a walk gives at least where it begins
    for node in reversed(nodes.values()):
        node.below = [below for below in node.below if below.count]
        node.count += sum(below.count for below in node.below)
        node.size += sum(below.size for below in node.below)
    return top, directories, is_cut


def _fill(node: _Node, folder: Folder, selection: Selection) -> None:
    for name in selection.fitting(folder):
        try:
            size = os.stat(name, dir_fd=folder.descriptor, follow_symlinks=False).st_size
        except OSError:
            continue
        node.size += size
        node.files.append((name, sized(size)))
    if selection.glob is None:
        for name in folder.links:
            node.files.append((f"{name} -> {_target(folder, name)}", "symlink"))
        node.files.sort()
    node.count = len(node.files)


def _target(folder: Folder, name: str) -> str:
    try:
        return os.readlink(name, dir_fd=folder.descriptor)
    except OSError:
        return "?"


def _lines(top: _Node, depth: int | None, room: int) -> list[str]:
    """Format the list as deep as fits: at least the first level, of which some entries may be counted."""
    best: list[str] | None = None
    deepest, level = depth or 1_000, 1
    while level <= deepest:
        lines = list(_level(top, level))
        if len(lines) > MOST_LINES or sum(map(len, lines)) + len(lines) > room:
            break
        if lines == best:
            return lines
        best, level = lines, level + 1
    if best is not None:
        if level <= deepest:
            best.append("Directories with counts have more: give one as path, or a glob.")
        return best
    lines = sorted(_level(top, 1), key=lambda line: "/  " not in line)
    return _cut(lines, room)


def _cut(lines: list[str], room: int) -> list[str]:
    shown = []
    for line in lines[:MOST_LINES]:
        room -= len(line) + 1
        if room < 0:
            break
        shown.append(line)
    return [*shown, f"… {len(lines) - len(shown):,} more here: give a glob, or a path below."]


def _level(node: _Node, levels: int) -> Iterator[str]:
    """Yield the lines of a directory, and of those below it up to a depth."""
    for name, size in node.files:
        yield f"{shown_name(node.path + name)}  {size}"
    for below in node.below:
        if levels > 1:
            yield from _level(below, levels - 1)
        else:
            yield f"{shown_name(below.path)}  {counted(below.count, 'file')}, {sized(below.size)}"


def sized(count: int) -> str:
    """Format a number of bytes."""
    amount, unit = float(count), "B"
    for larger in ("KB", "MB", "GB"):
        if amount < KILOBYTE:
            break
        amount, unit = amount / KILOBYTE, larger
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
