"""The project of an image: its directory, its language, its git repository.

`census` finds the paths that evaluated code must never write.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import stat
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from gramercy.directories import config_home
from gramercy.errors import SandboxError
from gramercy.images.guarded import GIT
from gramercy.text import reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator

# The place where git looks for files that worktrees share. A directory of this name ends its search.
COMMON = "commondir"
# This makes a directory a repository, together with objects and refs.
HEAD = "HEAD"
HOOKS = "hooks"
# Programs that run beside the image watch these and read them at once. Where one is missing, a placeholder
# takes its place, since a check after the call would come too late.
HELD = (".vscode", ".cursor", ".claude")
# Files at the top of a Python project, by the tools that make them.
PYTHON_SIGNS = frozenset(
    ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "Pipfile", "uv.lock", ".venv", "venv")
)
# Entries that are checked to find the language, in a few milliseconds.
MOST_ENTRIES = 5_000
# The limit of .gitmodules, which comes with the repository: no real one is larger. Each entry is a mount.
LARGEST_MODULES_FILE = 1 << 20
MOST_MODULES = 200
# Limits of git's config: files that include each other, bytes of one, and words in total.
MOST_CONFIGS, LARGEST_CONFIG, MOST_WORDS = 20, 1 << 20, 10_000
# Git knows some thirty hooks. They call others in the directory.
MOST_HOOKS = 300
# The value of a line. If it names hooks or another config, it counts even while that is missing.
_VALUE = re.compile(r"(?im)^[ \t]*(?:\[[^\]\n]*\][ \t]*)?([\w-]+)[ \t]*=[ \t]*(.*?)[ \t]*$")
_READ_BY_GIT = frozenset(("hookspath", "path"))
_TOP = (
    "bin",
    "boot",
    "dev",
    "etc",
    "home",
    "lib",
    "lib64",
    "media",
    "mnt",
    "opt",
    "proc",
    "root",
    "run",
    "sbin",
)
# Directories that images of this process may write, or could write.
PROJECTS: set[Path] = set()
SYSTEM_DIRECTORIES = frozenset(Path("/", name) for name in ("", *_TOP, "srv", "sys", "tmp", "usr", "var"))


def check_project(project: str | Path) -> Path:
    """Return the real path of a project directory, or raise why it cannot be one."""
    path = project_directory(project)
    if is_too_wide(path):
        raise SandboxError(
            f"{path} cannot be the project of an image, since evaluated code could write all that is in it: "
            "choose a directory below it"
        )
    if (path / GIT).is_symlink():
        raise SandboxError(
            f"{path / GIT} is a symbolic link, which cannot be protected from evaluated code. "
            "Replace it by a file with the line 'gitdir: <where it points to>'"
        )
    if is_repository(path) and not (path / GIT).exists():
        raise SandboxError(
            f"{path} is a bare git repository, or was made one by a file HEAD: evaluated code could write "
            "its config, which names programs that git runs. Choose a work tree of it, or remove HEAD if it "
            "is not yours"
        )
    PROJECTS.add(path)
    return path


def is_too_wide(path: Path) -> bool:
    """Return whether a directory contains the user's home or belongs to the system."""
    home = Path.home().resolve()
    return path in SYSTEM_DIRECTORIES or path == home or path in home.parents


def is_repository(top: Path) -> bool:
    """Return whether git would treat a directory as a repository by its top entries."""
    if not os.path.lexists(top / HEAD):
        return False
    if (top / COMMON).is_file() or (top / COMMON).is_symlink():
        return True
    return (top / "objects").exists() and (top / "refs").exists()


def has_repository(project: str | Path) -> bool:
    """Return whether git finds a repository in the project, and so does not take its top for a bare one."""
    return os.path.lexists(f"{project}/{GIT}") and not is_empty(Path(project, GIT))


def is_empty(path: Path) -> bool:
    """Return whether a path is a directory without entries, and not a link to one."""
    try:
        if path.is_symlink():
            return False
        with os.scandir(path) as entries:
            return next(entries, None) is None
    except OSError:
        return False


def project_directory(project: str | Path) -> Path:
    """Return the real path of a readable directory, or raise why it is not one."""
    try:
        path = Path(project).expanduser().resolve()
        is_there = path.is_dir()
    except FileNotFoundError:
        # Resolving a path fails only if the working directory is missing.
        raise SandboxError(
            f"the project {project} is gone: the directory that this was started in was removed"
        ) from None
    except (OSError, RuntimeError) as error:
        raise SandboxError(f"the project {project} cannot be found: {reason_of(error)}") from None
    if not is_there:
        raise SandboxError(f"the project {path} is not a directory")
    if not os.access(path, os.R_OK | os.X_OK):
        raise SandboxError(f"the project {path} cannot be read: you have no right to")
    return path


def default_language(project: str | Path) -> str:
    """Return the language of the project's files, else SBCL if it is installed, else Python."""
    found, written = set(), set()
    with contextlib.suppress(OSError), os.scandir(project) as entries:
        for entry in itertools.islice(entries, MOST_ENTRIES):
            if entry.name in PYTHON_SIGNS:
                found.add("python")
            elif entry.name.endswith(".asd"):
                found.add("sbcl")
            elif entry.name.endswith((".py", ".lisp")):
                written.add("python" if entry.name.endswith(".py") else "sbcl")
    # The build files of a project say more than a script that lies in it.
    if (found or written) == {"python"}:
        return "python"
    # Imported here: that module needs this one.
    from gramercy.images.programs import find_program

    return "sbcl" if find_program("sbcl") else "python"


def work_tree(project: Path) -> Path | None:
    """Return the git work tree of a project, unless that contains the user's home or the system."""
    for place in _places_above(project, os.environ.get("HOME", "")):
        # An empty directory is a Placeholder, not a repository. Strings for speed: a call of a file tool
        # needs this.
        if os.path.isfile(f"{place}/{GIT}") or os.path.isfile(f"{place}/{GIT}/{HEAD}"):  # noqa: PTH113
            return Path(place)
    return None


@lru_cache(maxsize=64)
def _places_above(project: Path, home: str) -> tuple[str, ...]:
    """Return a project and the directories above it that are not too wide to be a work tree."""
    del home  # part of the cache key
    return tuple(
        map(str, itertools.takewhile(lambda place: not is_too_wide(place), (project, *project.parents)))
    )


def submodules(project: Path) -> list[str]:
    """Return the paths in .gitmodules, as far as they can be in the project."""
    try:
        with (project / ".gitmodules").open(encoding="utf-8", errors="replace") as file:
            text = file.read(LARGEST_MODULES_FILE)
    except OSError:
        return []
    names = re.findall(r"^\s*path\s*=\s*(\S.*?)\s*$", text, re.MULTILINE)
    return [name for name in names[:MOST_MODULES] if not name.startswith("/") and ".." not in name.split("/")]


def named_by_git(project: Path) -> set[str]:
    """Return the paths in the project that git's config names to run or to read, relative to it.

    Those are the directory of hooks and included configs, also missing ones, the targets of links among the
    hooks, and every file that a word of a value means: a filter, a driver, an alias. Each word is tried,
    since git has many settings that run a program.
    """
    top = _tops.get(project) or work_tree(project)
    if top is None:
        return set()
    _tops[project] = top
    waiting = [*_configs(top)]
    seen: set[str] = set()
    found: set[str] = set()
    prefix = f"{project}/"
    hooks = [f"{os.path.dirname(waiting[0])}/{HOOKS}"]  # noqa: PTH120 - a text
    while waiting and len(seen) < MOST_CONFIGS:
        config = waiting.pop()
        if config in seen:
            continue
        seen.add(config)
        for place, is_read in _named_in(config, str(top)):
            if is_read:
                waiting.append(place)
                hooks.append(place)
            if place.startswith(prefix):
                found.add(place[len(prefix) :])
    linked = {place for folder in hooks for link in links_in(folder) for place in ends_of(link)}
    found |= {place[len(prefix) :] for place in linked if place.startswith(prefix)}
    return {name for name in found if GIT not in name.split("/")}


def links_in(folder: str, *, deeper: bool = False) -> list[str]:
    """Return the links in a directory, or one level `deeper`, and itself if it is a link."""
    try:
        status = os.lstat(folder)
        # The times of a link to a directory do not show when that directory has changed.
        own, reached = ([], status) if stat.S_ISDIR(status.st_mode) else ([folder], os.stat(folder))  # noqa: PTH116
        links, below = _listed(folder, reached.st_ino, reached.st_ctime_ns)
    except OSError:
        return []
    return [*own, *links, *(link for each in below if deeper for link in links_in(each))]


@lru_cache(maxsize=256)
def _listed(folder: str, *state: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the links and the directories in a directory. It is read again when its state differs."""
    del state
    with os.scandir(folder) as found:
        entries = list(itertools.islice(found, MOST_HOOKS))
    links = tuple(entry.path for entry in entries if entry.is_symlink())
    return links, tuple(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))


def ends_of(link: str) -> tuple[str, str]:
    """Return the direct target of a link, and its final target. The directories above are resolved."""
    folder, name = os.path.split(os.path.join(os.path.dirname(link), os.readlink(link)).rstrip("/"))  # noqa: PTH115, PTH118, PTH120
    end = os.path.realpath(link)
    return (f"{os.path.realpath(folder)}/{name}" if name not in (".", "..") else end), end


# The work trees of projects, which do not move.
_tops: dict[Path, Path] = {}


@cache
def _configs(top: Path) -> tuple[str, ...]:
    """Return the files from which git takes settings in a work tree."""
    place = top / GIT
    with contextlib.suppress(OSError, UnicodeDecodeError):
        place = Path(top, place.read_text().removeprefix("gitdir:").strip())
    shared = place
    with contextlib.suppress(OSError, UnicodeDecodeError):
        shared = Path(place, (place / COMMON).read_text().strip())
    users = (Path.home() / ".gitconfig", config_home() / "git" / "config")
    return tuple(map(str, (shared / "config", place / "config.worktree", *users)))


def _named_in(config: str, top: str) -> Iterator[tuple[str, bool]]:
    """Yield the real paths that values of a config may mean, and whether git reads or runs them."""
    try:
        status = os.stat(config)  # noqa: PTH116 - a text
        words = _words(config, status.st_ino, status.st_size, status.st_ctime_ns)
    except OSError:
        return
    for (word, is_read), base in itertools.product(words, (top, os.path.dirname(config))):  # noqa: PTH120 - a text
        place = os.path.join(base, word)  # noqa: PTH118 - a text
        if is_read or os.path.isfile(place):  # noqa: PTH113 - a text
            # Git opens the link, and reads its target.
            folder, name = os.path.split(place.rstrip("/"))
            yield os.path.realpath(place), is_read
            if name not in (".", ".."):
                yield f"{os.path.realpath(folder)}/{name}", is_read


@lru_cache(maxsize=64)
def _words(config: str, *state: int) -> tuple[tuple[str, bool], ...]:
    """Return words of a config that may be paths, and whether git reads or runs them.

    The config is read again when its state differs.
    """
    del state
    with Path(config).open(encoding="utf-8", errors="surrogateescape") as file:
        values = _VALUE.findall(file.read(LARGEST_CONFIG))
    words: dict[tuple[str, bool], None] = {}
    for key, value in values:
        is_read = key.casefold() in _READ_BY_GIT
        words[re.split(r"[ \t][#;]", value)[0].strip().strip('"'), is_read] = None
        parts = [] if is_read else re.split(r"[\s\"'\\;|&<>()=!]+", value)
        words |= dict.fromkeys((part, False) for part in parts)
    home = str(Path.home())
    # A word without a dot or a slash is a program on PATH, or not a file at all.
    paths = [(word, is_read) for word, is_read in words if is_read or "." in word or "/" in word]
    found = [(f"{home}{word[1:]}" if word.startswith("~/") else word, is_read) for word, is_read in paths]
    return tuple(each for each in found if each[0] and "\0" not in each[0])[:MOST_WORDS]
