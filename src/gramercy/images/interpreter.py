"""This program's own interpreter, for the few programs of ours that run inside a sandbox before the image.

An SBCL image has no Python, and that of a project need not be one that we know.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def inner_command(program: Path) -> list[str]:
    """Return the words that run a program which needs the standard library alone."""
    return [_executable(), "-I", "-S", str(program.resolve())]


def inner_places(program: Path) -> tuple[Path, ...]:
    """Return what must be readable inside for that: the program, the interpreter and its library."""
    executable = Path(_executable())
    library = Path(os.__file__).resolve().parent
    found = [executable, library, *(executable.parents[1] / "lib").glob("libpython3*.so*")]
    return (*(path for path in found if not path.is_relative_to("/usr")), program.resolve())


def _executable() -> str:
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
