"""How a Python image is started: a bare interpreter without site-packages, unless the user grants them."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gramercy.errors import ImageStartError
from gramercy.images.family import Program
from gramercy.images.limits import memory_for
from gramercy.images.requests import as_json
from gramercy.images.sandbox import Confinement, Grants

if TYPE_CHECKING:
    from gramercy.images.environment import Environment

SOURCE = Path(__file__).parent / "python"
ASK_SECONDS = 10.0
OLDEST = (3, 11)
_ASK = (
    "import sys, json; print(json.dumps([getattr(sys, '_base_executable', sys.executable), "
    "sys.base_prefix, sys.base_exec_prefix, list(sys.version_info[:2])]))"
)


class Interpreter(msgspec.Struct, frozen=True, array_like=True):
    """Where an interpreter really lives, whatever environment it was found through."""

    executable: str
    prefix: str
    exec_prefix: str
    version: tuple[int, int]


def python_program(project: Path | None, environment: Environment, *, confinement: Confinement) -> Program:
    """Return how to start a Python image."""
    interpreter = _interpreter(environment.python or sys.executable)
    executable = os.path.realpath(interpreter.executable)
    packages = [path.expanduser().resolve() for path in environment.paths]
    for path in packages:
        if not path.is_dir():
            raise ImageStartError(f"{path} cannot be added to the image: there is no such directory")
    homes = {Path(interpreter.prefix).resolve(), Path(interpreter.exec_prefix).resolve(), Path(executable)}
    # What is in the project can be read already, and shall stay writable.
    homes |= {path for path in packages if project is None or not path.is_relative_to(project)}
    readable = (*sorted(home for home in homes if not _is_system(home)), SOURCE.resolve())
    command = [executable, "-I", "-S", "-X", "utf8", str(SOURCE.resolve() / "__main__.py")]
    for path in packages:
        command += ["--path", str(path)]
    memory_mb = memory_for("python", environment.memory_mb)
    grants = Grants(readable=readable, project=project, memory_mb=memory_mb)
    return Program("python", command, as_json, grants, confinement, memory_mb=memory_mb)


def _is_system(path: Path) -> bool:
    return path == Path("/") or path.is_relative_to("/usr")


@cache
def _interpreter(python: str) -> Interpreter:
    if python == sys.executable:
        base = getattr(sys, "_base_executable", None) or sys.executable
        return Interpreter(base, sys.base_prefix, sys.base_exec_prefix, sys.version_info[:2])
    try:
        done = subprocess.run(  # noqa: S603 - the user's own interpreter
            [python, "-I", "-S", "-c", _ASK], capture_output=True, timeout=ASK_SECONDS, check=True
        )
        found = msgspec.json.decode(done.stdout, type=Interpreter)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        raise ImageStartError(f"{python} is not a Python that can be used: {error}") from None
    if found.version < OLDEST:
        raise ImageStartError(
            f"{python} is Python {found.version[0]}.{found.version[1]}: 3.11 or newer is needed"
        )
    return found
