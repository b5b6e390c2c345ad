"""Find the Lisp systems that an image may load: those of the project, of its tools, and of the user.

Each source has an origin, to be shown. Directories that the user names are granted for reading. Directories
that a file of the project names are granted only inside the project, since the file comes with the
repository.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gramercy.images.asdf import VARIABLE, is_directory, lisp_string, user_registry
from gramercy.images.project import SYSTEM_DIRECTORIES
from gramercy.text import reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gramercy.images.environment import Environment

# Levels below the project that are searched for .asd files: `project/systems/name/name.asd`.
DEEPEST = 2
# A walk of this size takes about a tenth of a second. The user is told if it was cut.
MOST_DIRECTORIES = 1000
MOST_ENTRIES = 100_000
# The kernel takes at most 128 KB for one variable (MAX_ARG_STRLEN).
LONGEST_REGISTRY = 100_000
# Each granted link becomes a bind mount.
MOST_LINKS = 1000
VENDORED = frozenset(
    ("__pycache__", "bower_components", "node_modules", "site-packages", "third_party", "vendor", "venv")
)
# ASDF reads these in a path as patterns or as an escape, even when they are escaped.
WILD = "\\*?["
# Directories where ocicl, and an older release of it, keep systems, and the lists beside them.
TOOL_LISTS = {"ocicl": "ocicl.csv", "systems": "systems.csv"}
QUICKLISP_HOMES = ("quicklisp", ".quicklisp", ".roswell/lisp/quicklisp")
SETUP = "setup.lisp"


class Source(msgspec.Struct, frozen=True):
    """A directory with systems. `is_tree` includes everything below it."""

    path: Path
    is_tree: bool
    origin: str


class Systems(msgspec.Struct):
    """The findings. `quicklisp` is its setup.lisp, `definitions` are the .asd files of the project."""

    project: Path | None
    sources: list[Source] = msgspec.field(default_factory=list)
    definitions: list[Path] = msgspec.field(default_factory=list)
    readable: list[Path] = msgspec.field(default_factory=list)
    excluded: list[str] = msgspec.field(default_factory=list)
    problems: list[str] = msgspec.field(default_factory=list)
    quicklisp: Path | None = None

    def outside(self) -> list[Path]:
        """Return the paths of libraries outside of the project."""
        paths = [source.path for source in self.sources]
        paths += [self.quicklisp.parent] if self.quicklisp else []
        return sorted({path for path in paths if not self.is_inside(path)})

    def is_inside(self, path: Path) -> bool:
        """Tell whether a path is in the project."""
        return self.project is not None and path.is_relative_to(self.project)

    def registry(self) -> str:
        """Return the list that ASDF reads from CL_SOURCE_REGISTRY: these sources and no others."""
        words = ["(:source-registry"]
        if self.excluded:
            words.append(f"(:also-exclude {' '.join(map(lisp_string, self.excluded))})")
        for source in self.sources:
            kind = ":tree" if source.is_tree else ":directory"
            words.append(f"({kind} {lisp_string(f'{source.path}/')})")
        return " ".join([*words, ":ignore-inherited-configuration)"])


def find_systems(project: Path | None, environment: Environment) -> Systems:
    """Search for systems. An error becomes a problem in the result, never an exception."""
    found = Systems(project)
    if project is not None:
        _add_project(found, project)
        _add_tools(found, project)
    for path in environment.registries:
        _add(found, path.expanduser(), "--registry", is_tree=True)
    user = user_registry({**os.environ, **environment.variables}, Path.home())
    found.problems += user.problems
    found.excluded = user.excluded
    for place in user.places:
        _add(found, place.path, place.origin, is_tree=place.is_tree)
    _add_quicklisp(found)
    _shorten(found)
    return found


def _add_project(found: Systems, project: Path) -> None:
    """Add the directories of the project with an .asd file, and its top, where one may be written later."""
    strange = why_unusable(project)
    if strange is not None:
        found.problems.append(f"the systems of the project {project} are not found by ASDF: {strange}")
        return
    found.sources.append(Source(project, is_tree=False, origin="the project"))
    for directory, definitions in _walk(found, project):
        outside = [file for file in definitions if not found.is_inside(_real(file))]
        found.problems += [_points_outside(file) for file in outside]
        found.definitions += [file for file in definitions if file not in outside]
        strange = why_unusable(directory)
        if strange is not None:
            found.problems.append(f"{directory} is left out: {strange}")
        elif directory != project and len(outside) < len(definitions):
            found.sources.append(Source(directory, is_tree=False, origin="the project"))


def _points_outside(path: Path) -> str:
    there = _real(path)
    directory = there if is_directory(there) else there.parent
    return f"{path} is left out: it is a link out of the project. To read it, give --registry {directory}"


def _walk(found: Systems, project: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Yield the directories with .asd files, not deeper than two levels, not hidden, not vendored."""
    level, seen, entries = [str(project)], 0, 0
    skipped = VENDORED | {name for name in TOOL_LISTS if not _is_plain(project, name)}
    for depth in range(DEEPEST + 1):
        below: list[str] = []
        for directory in level:
            if seen >= MOST_DIRECTORIES or entries >= MOST_ENTRIES:
                found.problems.append(
                    f"the project has many files: .asd files were looked for in {seen} directories only. "
                    "For those of another directory, give --registry DIRECTORY"
                )
                return
            definitions, inner, count = _look(found, directory, skipped if depth == 0 else VENDORED)
            seen, entries = seen + 1, entries + count
            if definitions:
                yield Path(directory), [Path(directory, name) for name in definitions]
            below += [f"{directory}/{name}" for name in inner] if depth < DEEPEST else []
        level = below


def _look(found: Systems, directory: str, skipped: frozenset[str]) -> tuple[list[str], list[str], int]:
    """Return the .asd files of a directory, its subdirectories, and how many entries it has."""
    definitions, inner, count = [], [], 0
    try:
        with os.scandir(directory) as entries:
            for count, entry in enumerate(entries, 1):
                name = entry.name
                if count > MOST_ENTRIES:
                    break
                if name.startswith(".") or name in skipped:
                    continue
                if name.endswith(".asd"):
                    definitions.append(name)
                elif entry.is_dir(follow_symlinks=False):
                    inner.append(name)
    except OSError as error:
        found.problems.append(f"{directory} is left out: it cannot be read ({reason_of(error)})")
    # One more than the limit, so that the walk notices the cut.
    return sorted(definitions), sorted(inner)[: MOST_DIRECTORIES + 1], count


def _is_plain(project: Path, name: str) -> bool:
    """Return whether a directory belongs to no tool: those are added by `_add_tools`."""
    return not _is_file(project / TOOL_LISTS[name])


def _add_tools(found: Systems, project: Path) -> None:
    """Add the systems that qlot and ocicl have installed into the project."""
    qlot = project / ".qlot"
    if qlot.is_symlink():
        found.problems.append(_points_outside(qlot))
    elif _is_file(qlot / SETUP):
        found.quicklisp = qlot / SETUP
        _add(found, qlot / "local-projects", "qlot", is_tree=True, is_needed=False)
    else:
        _add(found, qlot / "dists", "qlot", is_tree=True, is_needed=False)
    if is_directory(qlot) and not qlot.is_symlink():
        # Bound read-only over the writable project: the user's own tools run its content, unconfined.
        found.readable.append(qlot)
    for name in TOOL_LISTS:
        if not _is_plain(project, name):
            _add(found, project / name, "ocicl", is_tree=True, is_needed=False)


def _add_quicklisp(found: Systems) -> None:
    """Add the user's Quicklisp, unless the project has its own."""
    if found.quicklisp is not None:
        return
    for name in QUICKLISP_HOMES:
        home = _real(Path.home() / name)
        if _is_file(home / SETUP) and _why_refused(home) is None:
            found.quicklisp = home / SETUP
            _grant(found, home)
            _add(found, home / "local-projects", "Quicklisp", is_tree=True, is_needed=False)
            return


def _add(found: Systems, path: Path, origin: str, *, is_tree: bool, is_needed: bool = True) -> None:
    """Add a source, or the reason why it cannot be one."""
    real = _real(path)
    if not is_directory(real) and not is_needed:
        return
    reason = _why_refused(real)
    if reason is None and origin in ("qlot", "ocicl") and not found.is_inside(real):
        reason = f"it is a link out of the project. To read it, give --registry {real}"
    if reason is not None:
        found.problems.append(f"{path} ({origin}) is left out: {reason}")
    elif all(source.path != real or source.is_tree < is_tree for source in found.sources):
        found.sources.append(Source(real, is_tree, origin))
        if origin not in ("qlot", "ocicl"):
            _grant(found, real)
            _grant_links(found, real)


def _why_refused(path: Path) -> str | None:
    """Return why a directory cannot be read by an image, or None when it can."""
    if not is_directory(path):
        return "there is no such directory"
    home = _real(Path.home())
    if path in SYSTEM_DIRECTORIES or path == home or path in home.parents:
        return "evaluated code could read all that is in it. Name a directory below it"
    try:
        os.scandir(path).close()
    except OSError as error:
        return f"it cannot be read ({reason_of(error)})"
    return why_unusable(path)


def why_unusable(path: Path) -> str | None:
    """Return why ASDF cannot use a path, or None when it can."""
    strange = [sign for sign in WILD if sign in str(path)]
    if strange:
        return f"ASDF cannot use a path with {' or '.join(strange)} in it. Give it another name"
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8. Give it another name"
    return None


def _real(path: Path) -> Path:
    """Return a path without links. Unlike for Path.resolve, a loop is not an error."""
    return Path(os.path.realpath(path))


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 - EACCES is no error


def _grant(found: Systems, path: Path) -> None:
    if not found.is_inside(path) and not path.is_relative_to("/usr") and path not in found.readable:
        found.readable.append(path)


def _grant_links(found: Systems, tree: Path) -> None:
    """Grant the targets of links in a directory of the user, as is common in local-projects."""
    if found.is_inside(tree) or tree.is_relative_to("/usr"):
        return
    try:
        with os.scandir(tree) as entries:
            links = [Path(e.path) for e, _ in zip(entries, range(MOST_LINKS), strict=False) if e.is_symlink()]
    except OSError:
        return
    for link in links:
        there = _real(link)
        if is_directory(there) and not there.is_relative_to(tree):
            reason = _why_refused(there)
            if reason is None:
                _grant(found, there)
            else:
                found.problems.append(f"{link} is left out: {reason}")


def _shorten(found: Systems) -> None:
    """Drop the last sources until the registry fits into one variable."""
    count = len(found.sources)
    while len(found.registry().encode()) > LONGEST_REGISTRY:
        del found.sources[-max(1, len(found.sources) // 10) :]
    if len(found.sources) < count:
        left = count - len(found.sources)
        found.problems.append(
            f"{left} of {count} directories with systems are left out: {VARIABLE} would be too long"
        )
