"""How an SBCL image is started: from a core out of the cache, or from source where that cannot be written."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gramercy.errors import ImageStartError
from gramercy.images.cores import SOURCE, find_core
from gramercy.images.family import Program
from gramercy.images.limits import BESIDE_HEAP_MB, memory_for
from gramercy.images.requests import as_plist
from gramercy.images.sandbox import Confinement, Grants

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.images.environment import Environment

VERSION_SECONDS = 10.0
INSTALL = "apt-get install sbcl"


def find_sbcl() -> str:
    """Return the path of SBCL, or say how to get it."""
    found = shutil.which("sbcl")
    if found is None:
        raise ImageStartError(
            f"there is no sbcl on PATH: install it with '{INSTALL}', or use the python image"
        )
    return found


@cache
def sbcl_version(sbcl: str) -> str:
    """Return the version a runtime tells."""
    try:
        done = subprocess.run(  # noqa: S603 - found on PATH
            [sbcl, "--version"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=True
        )
        return done.stdout.split()[1]
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        raise ImageStartError(f"{sbcl} does not tell its version: {error}") from None


def shared_core(tell: Callable[[str], object] | None = None) -> Path | None:
    """Return the core that all images share, built when there is none for this version yet.

    `tell` gets a line about what takes long or cannot be done; without it standard error does.
    """
    sbcl = find_sbcl()
    return find_core(sbcl, sbcl_version(sbcl), tell)


def sbcl_program(
    project: Path | None,
    environment: Environment,
    *,
    confinement: Confinement,
    saved: Path | None = None,
    tell: Callable[[str], object] | None = None,
) -> Program:
    """Return how to start an SBCL image, from a core that was saved or from the one that all share.

    Builds the latter when there is none for this version yet, and says so by `tell`.
    """
    heap_mb = memory_for("sbcl", environment.memory_mb)
    sbcl = find_sbcl()
    core = saved or shared_core(tell)
    grants = Grants(
        readable=(*_installation(sbcl), core or SOURCE.resolve()),
        project=project,
        memory_mb=heap_mb + BESIDE_HEAP_MB,
    )
    runtime = ["--noinform", "--disable-ldb", "--dynamic-space-size", f"{heap_mb}MB", "--end-runtime-options"]
    if core is not None:
        command = [sbcl, "--core", str(core), *runtime]
    else:
        toplevel = ["--no-sysinit", "--no-userinit", "--disable-debugger"]
        toplevel += ["--load", str(SOURCE.resolve() / "build.lisp"), "--eval", "(gramercy.image:main)"]
        command = [sbcl, *runtime, *toplevel, "--end-toplevel-options"]

    def again(core: Path) -> Program:
        return sbcl_program(project, environment, confinement=confinement, saved=core)

    return Program("sbcl", command, as_plist, grants, confinement, again, memory_mb=heap_mb)


def _installation(sbcl: str) -> tuple[Path, ...]:
    """Return the directories of an SBCL that does not belong to the system."""
    binary = Path(sbcl).resolve()
    if binary.is_relative_to("/usr"):
        return ()
    library = binary.parent.parent / "lib" / "sbcl"
    return (binary, library) if library.is_dir() else (binary,)
