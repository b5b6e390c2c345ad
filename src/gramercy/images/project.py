"""The project of an image: its directory, its language, and what of it evaluated code must never write.

A file in .git can name a program that the user's next git command runs outside of any sandbox, and a Python
environment is full of programs and of code that runs when one of them starts; the files of editors and agents
name programs too. Where there is none yet, `walls` takes the place. A repository deeper in the project is not
protected, nor is a Makefile or a test: what a person runs by name is theirs to read first.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from pathlib import Path
from types import MappingProxyType

from gramercy.errors import SandboxError

GIT = ".git"
# Where git looks for what worktrees share; a directory of this name ends its search.
COMMON = "commondir"
# Read by programs that run beside the image and watch them: where absent, a placeholder takes the place,
# since a look after the call would come too late.
HELD = (".vscode", ".cursor", ".claude")
_AGENT = "an agent reads for programs to run"
_EDITOR = "an editor reads for programs to run"
_HOOKS = "names programs that run at a commit"
_PROGRAMS = "editors, shells and install_packages run programs from"
# Read when a person opens a folder, enters a directory or commits, without being told to run anything: held
# where they are there, else looked for. Not .github, .env or build files: what they do is asked for by name,
# or shows in a review before it runs.
LOOKED_AT = MappingProxyType(
    {
        **dict.fromkeys((".vscode", ".idea", ".zed", ".devcontainer", ".devcontainer.json"), _EDITOR),
        **dict.fromkeys((".cursor", ".claude", ".mcp.json", ".gemini", ".codex", ".windsurf"), _AGENT),
        **dict.fromkeys((".continue", ".opencode", "opencode.json", ".kiro", ".roo", ".amazonq"), _AGENT),
        **dict.fromkeys((".envrc", "mise.toml", ".mise.toml"), "a shell reads when it enters the directory"),
        **dict.fromkeys((".venv", "venv"), _PROGRAMS),
        **dict.fromkeys((".husky", ".pre-commit-config.yaml", "lefthook.yml"), _HOOKS),
    }
)
# Told and left where they are: they run nothing by themselves, and people and agents edit them all day.
INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md", "GEMINI.md", ".cursorrules", ".windsurfrules")
OWN = "gramercy.toml"
OWN_POLICY = "gramercy-policy.toml"
# Files at the top of a Python project, by the tools that make them.
PYTHON_SIGNS = frozenset(
    ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "Pipfile", "uv.lock", ".venv", "venv")
)
# Entries looked at to tell the language, in a few milliseconds.
MOST_ENTRIES = 5_000
# Of .gitmodules, which comes with the repository: no real one is bigger, and each entry is a bind mount.
LARGEST_MODULES_FILE = 1 << 20
MOST_MODULES = 200
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
    if is_repository(path) and not (path / GIT).exists():
        raise SandboxError(
            f"{path} is a bare git repository, or was made one by a file HEAD: evaluated code could write "
            "its config, which names programs that git runs. Choose a work tree of it, or remove HEAD if it "
            "is not yours"
        )
    return path


def is_repository(top: Path) -> bool:
    """Tell whether git would take a directory for a repository by what lies at its top."""
    if not os.path.lexists(top / "HEAD"):
        return False
    if (top / COMMON).is_file() or (top / COMMON).is_symlink():
        return True
    return (top / "objects").exists() and (top / "refs").exists()


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
    """Return what an image must not write: .git, also of submodules, control files, Python environments."""
    try:
        with os.scandir(project) as entries:
            # A link can be replaced, so that nothing is held by it.
            found = {entry.name: entry for entry in entries if not entry.is_symlink()}
    except OSError:
        return []
    names = [GIT, *LOOKED_AT, OWN, OWN_POLICY]
    if GIT not in found or not (project / GIT / "HEAD").exists():
        names.append(COMMON)
    kept = [project / name for name in names if name in found and (name != COMMON or found[name].is_dir())]
    modules = [project / name / GIT for name in _submodules(project)]
    kept += [path for path in modules if path.exists() and path.resolve() == path]
    kept += [Path(each.path) for each in found.values() if each.is_dir() and _is_environment(each.path)]
    return list(dict.fromkeys(kept))


def _is_environment(place: str) -> bool:
    return os.path.exists(f"{place}/pyvenv.cfg") or os.path.isdir(f"{place}/conda-meta")  # noqa: PTH110, PTH112


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
