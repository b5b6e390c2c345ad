"""The start of an SBCL image: from a core or from source, with its systems and its compile cache.

Two environment variables tell ASDF where systems are and where compiled files go. The rest are options of the
program inside.
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from gramercy.errors import ImageStartError
from gramercy.images.asdf import VARIABLE, lisp_string
from gramercy.images.caches import (
    BUILDING,
    SOURCE,
    WAITING,
    build_key,
    fasl_directory,
    find_core,
    on_standard_error,
    open_cache,
    size_of,
)
from gramercy.images.connection import as_plist
from gramercy.images.environment import BESIDE_HEAP_MB, Finding, Network, Status, memory_for
from gramercy.images.processes import FORK_SECONDS, Program
from gramercy.images.programs import find_program, none_on_path
from gramercy.images.sandbox import Confinement, Grants
from gramercy.images.systems import Systems, find_systems, why_unusable

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.images.environment import Environment

# `sbcl --version` takes milliseconds.
VERSION_SECONDS = 10.0
# A little more than the timeout for the user's init file inside the image.
INIT_SECONDS = 130.0
INSTALL = "apt-get install sbcl"


def find_sbcl() -> str:
    """Return the path of SBCL, or raise with how to install it."""
    found = find_program("sbcl")
    if found is None:
        raise ImageStartError(f"{none_on_path('sbcl')}: install it with '{INSTALL}', or use the python image")
    return found


@cache
def sbcl_version(sbcl: str) -> str:
    """Return the version that a runtime reports."""
    try:
        done = subprocess.run(  # noqa: S603 - found on PATH
            [sbcl, "--version"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=True
        )
        return done.stdout.split()[1]
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        raise ImageStartError(f"{sbcl} does not tell its version: {error}") from None


def shared_core(tell: Callable[[str], object] | None = None) -> Path | None:
    """Return the core that all images start from. It is built when there is none for this version yet.

    `tell` gets a line about a slow step or a failure. Without it, the line goes to standard error.
    """
    sbcl = find_sbcl()
    return find_core(sbcl, sbcl_version(sbcl), tell)


def _core_with_notes(tell: Callable[[str], object] | None) -> tuple[Path | None, tuple[str, ...]]:
    """Return the core that all images start from, and notes for the first caller if that took long."""
    begun, lines = monotonic(), list[str]()

    def heard(line: str) -> None:
        lines.append(line)
        (tell or on_standard_error)(line)

    core = shared_core(heard)
    if core is None or not {BUILDING, WAITING}.intersection(lines):
        return core, ()
    told = f"The SBCL core was built first, once, which took {monotonic() - begun:.0f} s"
    return core, (f"{told}: later images start at once.",)


def sbcl_program(
    project: Path | None,
    environment: Environment,
    *,
    confinement: Confinement,
    saved: Path | None = None,
    tell: Callable[[str], object] | None = None,
) -> Program:
    """Return the program for an SBCL image, from a saved core or from the shared one.

    Builds the shared core when there is none for this version yet, and reports that by `tell`.
    """
    heap_mb = memory_for("sbcl", environment.memory_mb)
    sbcl = find_sbcl()
    core, notes = (saved, ()) if saved else _core_with_notes(tell)
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
    return Program(
        "sbcl",
        [*_command(sbcl, core, heap_mb), *libraries.options],
        as_plist,
        grants,
        confinement,
        saved=lambda core: sbcl_program(project, environment, confinement=confinement, saved=core),
        memory_mb=heap_mb,
        notes=(*notes, *libraries.notes),
        start_seconds=INIT_SECONDS if "--init" in libraries.options else FORK_SECONDS,
    )


def _command(sbcl: str, core: Path | None, heap_mb: int) -> list[str]:
    runtime = ["--noinform", "--disable-ldb", "--dynamic-space-size", f"{heap_mb}MB", "--end-runtime-options"]
    if core is not None:
        return [sbcl, "--core", str(core), *runtime]
    toplevel = ["--no-sysinit", "--no-userinit", "--disable-debugger"]
    toplevel += ["--load", str(SOURCE.resolve() / "build.lisp"), "--eval", "(gramercy.image:main)"]
    return [sbcl, *runtime, *toplevel, "--end-toplevel-options"]


def _installation(sbcl: str) -> tuple[Path, ...]:
    """Return the directories of an SBCL that does not belong to the system."""
    binary = Path(sbcl).resolve()
    if binary.is_relative_to("/usr"):
        return ()
    library = binary.parent.parent / "lib" / "sbcl"
    return (binary, library) if library.is_dir() else (binary,)


class Libraries(msgspec.Struct, frozen=True):
    """Variables, options, and readable and writable paths of the program inside, and notes for the user."""

    variables: dict[str, str]
    options: list[str]
    readable: tuple[Path, ...]
    writable: tuple[Path, ...]
    notes: tuple[str, ...]


def prepare_libraries(
    project: Path | None,
    environment: Environment,
    *,
    confinement: Confinement,
    build: str,
    is_fresh: bool = True,
) -> Libraries:
    """Find the libraries of an image and prepare its compile cache. A missing one becomes a note.

    An image that is not fresh starts from a saved core, which has loaded its init file already.
    """
    systems = find_systems(project, environment)
    notes = [*systems.problems]
    options = ["--quicklisp", str(systems.quicklisp)] if systems.quicklisp else []
    # A saved core contains the user's own declaration.
    options += ["--debug", str(environment.debug)] if is_fresh else []
    variables = {VARIABLE: systems.registry()}
    readable, writable = [*systems.readable], []
    cache = compile_cache(systems, environment, confinement=confinement, build=build)
    strange = why_unusable(cache)
    reason = f"{cache}: {strange}" if strange else open_cache(cache, project)
    if reason is None:
        writable.append(cache)
        variables["ASDF_OUTPUT_TRANSLATIONS"] = _translations(cache)
    else:
        notes.append(f"What is compiled is not kept for the next image: {reason}.")
    init = _init(systems, environment, notes) if is_fresh else None
    if init is not None:
        options += ["--init", str(init)]
        readable += [] if systems.is_inside(init) else [init]
    return Libraries(variables, options, tuple(readable), tuple(writable), tuple(notes))


def compile_cache(
    systems: Systems, environment: Environment, *, confinement: Confinement, build: str
) -> Path:
    """Return the compile cache of an image with these systems and rights."""
    rights = "free" if confinement is Confinement.NONE else "confined"
    if confinement is not Confinement.NONE and environment.network is not Network.NONE:
        rights = f"{rights}-{environment.network}"
    return fasl_directory(systems.project, build, rights, systems.outside())


def _translations(cache: Path) -> str:
    place = lisp_string(f"{cache}/")
    return f"(:output-translations (t ({place} :**/ :*.*.*)) :ignore-inherited-configuration)"


def _init(systems: Systems, environment: Environment, notes: list[str]) -> Path | None:
    """Return the init file. Add a note where it does not exist."""
    if environment.init is None:
        return None
    init = environment.init.expanduser()
    if not init.is_absolute() and systems.project is not None:
        init = systems.project / init
    init = init.resolve()
    if not init.is_file():
        notes.append(f"The init file {init} is not loaded: there is no such file.")
        return None
    return init


def lisp_findings(project: Path, environment: Environment) -> list[Finding]:
    """Report the Lisp systems, registries and the cache that a confined image of the project would use.

    Creates and changes nothing.
    """
    sbcl = find_sbcl()
    build = build_key(sbcl, sbcl_version(sbcl))
    systems = find_systems(project.resolve(), environment)
    found = [_well("system", file) for file in systems.definitions]
    found += [
        _well("registry", source.path, f"{source.origin}{', with all below it' if source.is_tree else ''}")
        for source in systems.sources
        if source.origin != "the project"
    ]
    if systems.quicklisp is not None:
        found.append(_well("quicklisp", systems.quicklisp.parent))
    cache = compile_cache(systems, environment, confinement=Confinement.BUBBLEWRAP, build=build)
    found.append(_well("compile cache", cache, f"{size_of(cache) / 1e6:.1f} MB"))
    return found + [Finding("systems", Status.WARNING, problem) for problem in systems.problems]


def _well(name: str, path: Path, more: str = "") -> Finding:
    return Finding(name, Status.OK, f"{path} ({more})" if more else str(path))
