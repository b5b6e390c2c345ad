"""Walk the files of a project, except for those that git ignores, step by step through descriptors.

No symlink is followed and nothing outside of the project is shown, whatever evaluated code does to the
directories meanwhile. The rules are those of every .gitignore on the way and of .git/info/exclude. If the
project is part of a larger repository, the way begins at its top. A Python environment is excluded even
without a rule: `python -m venv` writes none before 3.13, and its files would hide the project's.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gramercy.errors import WorkspaceError
from gramercy.images.files import places
from gramercy.images.project import has_repository
from gramercy.toolsets import storage
from gramercy.toolsets.ignoring import Rules
from gramercy.toolsets.paths import DEEPEST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Larger than any hand-written file.
LARGEST_RULES = 1 << 20
RULES = ".gitignore"
# The file at the top of every virtual environment.
ENVIRONMENT = "pyvenv.cfg"
GIT = ".git"
EXCLUDED = (GIT, "info")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Chain(NamedTuple):
    """The rules for a directory: those of the nearest file first, each with the start of its paths.

    `above` is the path from there to the project, for a file that lies above it.
    """

    rules: Rules
    start: int
    farther: Chain | None = None
    above: str = ""


@dataclass(slots=True)
class Folder:
    """One directory, open while it is visited. Names are sorted. `path` ends with a slash or is empty."""

    descriptor: int
    path: str
    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Tally:
    """Counts of a walk: names that git ignores, Python environments, unreadable directories."""

    ignored: int = 0
    unreadable: int = 0
    environments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Level:
    """A directory on the way, with its remaining subdirectories, the next one last."""

    folder: Folder
    chain: Chain | None
    heeds_rules: bool
    coming: list[str]


def walk(root: Path, parts: Sequence[str], tally: Tally) -> Iterator[Folder]:
    """Yield every directory below a start: its files, then its subdirectories, in the order of the names.

    A caller that starts in an excluded directory wants to see it: no rules apply there.
    """
    chain, is_out = _rules_above(root, parts)
    path = "".join(f"{part}/" for part in parts)
    levels: list[_Level] = []
    try:
        with places.directory(root, parts) as start:
            levels.append(_look(os.dup(start), path, chain, tally, heeds_rules=not is_out))
        yield levels[0].folder
        while levels:
            level = levels[-1]
            if not level.coming:
                os.close(levels.pop().folder.descriptor)
                continue
            name = level.coming.pop()
            below = _below(level, name, tally) if len(levels) < DEEPEST else None
            if below is None:
                tally.unreadable += 1
                continue
            if below.heeds_rules and ENVIRONMENT in below.folder.files:
                tally.environments.append(below.folder.path[:-1])
                os.close(below.folder.descriptor)
                continue
            levels.append(below)
            yield below.folder
    finally:
        for level in levels:
            os.close(level.folder.descriptor)


def _below(level: _Level, name: str, tally: Tally) -> _Level | None:
    """Open a directory. None when it cannot be read, or has become a symlink."""
    try:
        descriptor = os.open(name, _FOLDER, dir_fd=level.folder.descriptor)
    except OSError:
        return None
    try:
        path = f"{level.folder.path}{name}/"
        return _look(descriptor, path, level.chain, tally, heeds_rules=level.heeds_rules)
    except OSError:
        os.close(descriptor)
        return None


def _look(descriptor: int, path: str, chain: Chain | None, tally: Tally, *, heeds_rules: bool) -> _Level:
    """List a directory without excluded names."""
    folder = Folder(descriptor, path)
    with os.scandir(descriptor) as found:
        entries = list(found)
    if heeds_rules and any(entry.name == RULES for entry in entries):
        chain = _with_rules(descriptor, RULES, len(path), chain)
    rules = list(_links(chain, path))
    for entry in entries:
        name, is_folder = entry.name, entry.is_dir(follow_symlinks=False)
        if name[0] == "." and name.casefold() == GIT:
            continue
        if rules and _leaves_out(rules, name, is_folder):
            tally.ignored += 1
        elif is_folder:
            folder.folders.append(name)
        elif entry.is_file(follow_symlinks=False):
            folder.files.append(name)
        elif entry.is_symlink():
            folder.links.append(name)
    for names in (folder.files, folder.folders, folder.links):
        names.sort()
    return _Level(folder, chain, heeds_rules, folder.folders[::-1])


def _links(chain: Chain | None, path: str) -> Iterator[tuple[Rules, str]]:
    """Yield the rules for a directory, the nearest first, with its path relative to each."""
    while chain is not None:
        yield chain.rules, chain.above + path[chain.start :]
        chain = chain.farther


def _leaves_out(rules: list[tuple[Rules, str]], name: str, is_folder: bool) -> bool:  # noqa: FBT001 - called often
    """Return whether an entry is excluded: the nearest file with a matching rule decides."""
    for each, place in rules:
        verdict = each.ignores(name, place, is_folder=is_folder)
        if verdict is not None:
            return verdict
    return False


def _rules_above(root: Path, parts: Sequence[str]) -> tuple[Chain | None, bool]:
    """Return the rules above a directory, and whether they exclude the directory itself."""
    chain = None if has_repository(root) else _rules_of_repository(root)
    with contextlib.suppress(OSError), places.directory(root, EXCLUDED) as folder:
        chain = _with_rules(folder, "exclude", 0, chain)
    path = ""
    for depth, part in enumerate(parts):
        with places.directory(root, parts[:depth]) as folder:
            chain = _with_rules(folder, RULES, len(path), chain)
        if _leaves_out(list(_links(chain, path)), part, True):  # noqa: FBT003 - as above
            return None, True
        path += f"{part}/"
    return chain, False


def _names_above(name: str) -> Iterator[str]:
    while name != "/":
        name = name.rpartition("/")[0] or "/"
        yield name


def _rules_of_repository(root: Path) -> Chain | None:
    """Return the rules of the repository around a project, from its top to above the project.

    None where they exclude the project itself: its user wants to see it.
    """
    # Check by name first, since hardly any directory has one: a path object for each would cost more.
    above = _names_above(os.fspath(root))
    top = next((Path(each) for each in above if has_repository(each)), None)
    if top is None:
        return None
    parts = root.relative_to(top).parts
    chain: Chain | None = None
    with contextlib.suppress(OSError), places.directory(top, EXCLUDED) as folder:
        chain = _with_rules(folder, "exclude", 0, None)
    path = ""
    for depth, part in enumerate(parts):
        with contextlib.suppress(OSError), places.directory(top, parts[:depth]) as folder:
            chain = _with_rules(folder, RULES, len(path), chain)
        if _leaves_out(list(_links(chain, path)), part, True):  # noqa: FBT003 - as above
            return None
        path += f"{part}/"
    return _seen_from(chain, path)


def _seen_from(chain: Chain | None, path: str) -> Chain | None:
    """Return rules relative to a directory at a path below them."""
    if chain is None:
        return None
    return Chain(chain.rules, 0, _seen_from(chain.farther, path), path[chain.start :])


def _with_rules(folder: int, name: str, start: int, chain: Chain | None) -> Chain | None:
    """Put the rules of a file before the existing ones. An unreadable file has no rules."""
    with contextlib.suppress(OSError, WorkspaceError):
        rules = Rules(storage.read(folder, name, LARGEST_RULES).data)
        return Chain(rules, start, chain) if rules else chain
    return chain
