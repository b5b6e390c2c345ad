"""How an SBCL image is started: from a core out of the cache, or from source where that cannot be written."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gramercy.errors import ImageStartError
from gramercy.images.connection import as_plist
from gramercy.images.cores import SOURCE, find_core
from gramercy.images.fasls import build_key
from gramercy.images.libraries import findings, prepare_libraries
from gramercy.images.limits import BESIDE_HEAP_MB, memory_for
from gramercy.images.processes import FORK_SECONDS, Program
from gramercy.images.sandbox import Confinement, Grants

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.images.environment import Environment
    from gramercy.images.findings import Finding

VERSION_SECONDS = 10.0
# A little more than the image itself gives to the user's init file.
INIT_SECONDS = 130.0
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
    libraries = prepare_libraries(
        project,
        environment,
        confinement=confinement,
        build=build_key(sbcl, sbcl_version(sbcl)),
        is_fresh=saved is None,
    )
    grants = Grants(
        readable=(*_installation(sbcl), core or SOURCE.resolve(), *libraries.readable),
        writable=libraries.writable,
        project=project,
        environment=libraries.variables,
        memory_mb=heap_mb + BESIDE_HEAP_MB,
    )
    command = [*_command(sbcl, core, heap_mb), *libraries.options]

    def again(core: Path) -> Program:
        return sbcl_program(project, environment, confinement=confinement, saved=core)

    return Program(
        "sbcl",
        command,
        as_plist,
        grants,
        confinement,
        again,
        memory_mb=heap_mb,
        notes=libraries.notes,
        start_seconds=INIT_SECONDS if "--init" in libraries.options else FORK_SECONDS,
    )


def _command(sbcl: str, core: Path | None, heap_mb: int) -> list[str]:
    runtime = ["--noinform", "--disable-ldb", "--dynamic-space-size", f"{heap_mb}MB", "--end-runtime-options"]
    if core is not None:
        return [sbcl, "--core", str(core), *runtime]
    toplevel = ["--no-sysinit", "--no-userinit", "--disable-debugger"]
    toplevel += ["--load", str(SOURCE.resolve() / "build.lisp"), "--eval", "(gramercy.image:main)"]
    return [sbcl, *runtime, *toplevel, "--end-toplevel-options"]


def lisp_findings(project: Path, environment: Environment) -> list[Finding]:
    """Tell of the Lisp systems, registries and the cache that a confined image of the project would use."""
    sbcl = find_sbcl()
    build = build_key(sbcl, sbcl_version(sbcl))
    return findings(project.resolve(), environment, confinement=Confinement.BUBBLEWRAP, build=build)


def _installation(sbcl: str) -> tuple[Path, ...]:
    """Return the directories of an SBCL that does not belong to the system."""
    binary = Path(sbcl).resolve()
    if binary.is_relative_to("/usr"):
        return ()
    library = binary.parent.parent / "lib" / "sbcl"
    return (binary, library) if library.is_dir() else (binary,)
