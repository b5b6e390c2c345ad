"""The project of an image: its directory, its language, and what of it evaluated code must never write.

A file in .git can name a program that the user's next git command runs outside of any sandbox, and a Python
environment is full of programs and of code that runs when one of them starts. Where there is no .git yet, an
empty directory takes its place while images run. A repository deeper in the project is not protected, nor is
a Makefile.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
from pathlib import Path

from gramercy.errors import SandboxError

GIT = ".git"
# Files at the top of a Python project, by the tools that make them.
PYTHON_SIGNS = frozenset(
    ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "Pipfile", "uv.lock", ".venv", "venv")
)
# Entries looked at to tell the language, in a few milliseconds.
MOST_ENTRIES = 5_000
# Of .gitmodules, which comes with the repository: no real one is bigger, and each entry is a bind mount.
LARGEST_MODULES_FILE = 1 << 20
MOST_MODULES = 200
# Each try fails only if another image removes the directory at that moment.
TRIES = 50
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
SYSTEM_DIRECTORIES = frozenset(Path("/", name) for name in ("", *_TOP, "srv", "sys", "tmp", "usr", "var"))


def check_project(project: str | Path) -> Path:
    """Return the real path of a project directory, or say why it cannot be one."""
    path = project_directory(project)
    home = Path.home().resolve()
    if path in SYSTEM_DIRECTORIES or path == home or path in home.parents:
        raise SandboxError(
            f"{path} cannot be the project of an image, since evaluated code could write all that is in it: "
            "choose a directory below it"
        )
    if (path / GIT).is_symlink():
        raise SandboxError(
            f"{path / GIT} is a symbolic link, which cannot be protected from evaluated code. "
            "Replace it by a file with the line 'gitdir: <where it points to>'"
        )
    return path


def project_directory(project: str | Path) -> Path:
    """Return the real path of a directory that can be read, or say why it is none."""
    try:
        path = Path(project).expanduser().resolve()
        is_there = path.is_dir()
    except FileNotFoundError:
        # Only the working directory has to be there to resolve a path.
        raise SandboxError(
            f"the project {project} is gone: the directory that this was started in was removed"
        ) from None
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SandboxError(f"the project {project} cannot be found: {reason}") from None
    if not is_there:
        raise SandboxError(f"the project {path} is not a directory")
    if not os.access(path, os.R_OK | os.X_OK):
        raise SandboxError(f"the project {path} cannot be read: you have no right to")
    return path


def default_language(project: str | Path) -> str:
    """Return the language that the project's files tell; else SBCL if it is installed, else Python."""
    found, written = set(), set()
    with contextlib.suppress(OSError), os.scandir(project) as entries:
        for entry in itertools.islice(entries, MOST_ENTRIES):
            if entry.name in PYTHON_SIGNS:
                found.add("python")
            elif entry.name.endswith(".asd"):
                found.add("sbcl")
            elif entry.name.endswith((".py", ".lisp")):
                written.add("python" if entry.name.endswith(".py") else "sbcl")
    # What a project is made with tells more than a script that lies in it.
    if (found or written) == {"python"}:
        return "python"
    # Imported here: shutil loads the compressors, 5 ms that a server with named images saves.
    from shutil import which

    return "sbcl" if which("sbcl") else "python"


def protected_paths(project: Path) -> list[Path]:
    """Return what an image must not write: .git, also of submodules, and Python environments."""
    candidates = [project / GIT, *(project / name / GIT for name in _submodules(project))]
    candidates += _environments(project)
    return [path for path in candidates if path.exists() and path.resolve() == path]


def _environments(project: Path) -> list[Path]:
    try:
        with os.scandir(project) as entries:
            places = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [place for place in places if (place / "pyvenv.cfg").exists() or (place / "conda-meta").is_dir()]


def work_tree(project: Path) -> Path | None:
    """Return the git work tree that a project is in, unless that contains the user's home or the system."""
    home = Path.home().resolve()
    for place in (project, *project.parents):
        if place in SYSTEM_DIRECTORIES or place == home or place in home.parents:
            return None
        # An empty directory is a Placeholder, not a repository.
        if (place / GIT).is_file() or (place / GIT / "HEAD").is_file():
            return place
    return None


def _submodules(project: Path) -> list[str]:
    try:
        with (project / ".gitmodules").open(encoding="utf-8", errors="replace") as file:
            text = file.read(LARGEST_MODULES_FILE)
    except OSError:
        return []
    names = re.findall(r"^\s*path\s*=\s*(\S.*?)\s*$", text, re.MULTILINE)
    return [name for name in names[:MOST_MODULES] if not name.startswith("/") and ".." not in name.split("/")]


class Placeholder:
    """An empty .git in a project without one, shared by all images there and removed by the last."""

    def __init__(self, project: Path) -> None:
        self._path = project / GIT
        self._descriptor = self._hold() if self._is_ours_to_make(project) else None

    def _is_ours_to_make(self, project: Path) -> bool:
        if self._path.exists():
            return self._is_empty()
        return os.access(project, os.W_OK)

    def _is_empty(self) -> bool:
        return self._path.is_dir() and next(self._path.iterdir(), None) is None

    def _hold(self) -> int | None:
        """Take a shared lock on the directory; try again if another image has removed it meanwhile."""
        for _ in range(TRIES):
            with contextlib.suppress(OSError):
                self._path.mkdir(exist_ok=True)
                descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                fcntl.flock(descriptor, fcntl.LOCK_SH)
                if self._path.exists() and os.path.samestat(os.fstat(descriptor), self._path.stat()):
                    return descriptor
                os.close(descriptor)
        return None

    def close(self) -> None:
        """Remove the directory if it is empty and no other image holds the lock, and unlock it."""
        if self._descriptor is None:
            return
        with contextlib.suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._path.rmdir()
        os.close(self._descriptor)
        self._descriptor = None
