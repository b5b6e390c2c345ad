"""What an SBCL image gets beside its project: where systems are, what is compiled, what to load first.

Two variables tell ASDF all of it; the rest are options of the program inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gramercy.images import fasls
from gramercy.images.asdf import VARIABLE, lisp_string
from gramercy.images.environment import Network
from gramercy.images.findings import Finding, Status
from gramercy.images.sandbox import Confinement
from gramercy.images.systems import Systems, find_systems, why_unusable

if TYPE_CHECKING:
    from pathlib import Path

    from gramercy.images.environment import Environment


@dataclass(frozen=True, slots=True)
class Libraries:
    """What to grant, what to say to the program, and what to tell the user."""

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
    """Find what an image may load and make its compile cache ready. Nothing that is missing is fatal.

    An image that is not fresh goes on with a state in which the init file was loaded already.
    """
    systems = find_systems(project, environment)
    notes = [*systems.problems]
    options = ["--quicklisp", str(systems.quicklisp)] if systems.quicklisp else []
    variables = {VARIABLE: systems.registry()}
    readable, writable = [*systems.readable], []
    cache = cache_directory(systems, environment, confinement=confinement, build=build)
    strange = why_unusable(cache)
    reason = f"{cache}: {strange}" if strange else fasls.open_cache(cache, project)
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


def cache_directory(
    systems: Systems, environment: Environment, *, confinement: Confinement, build: str
) -> Path:
    """Return where compiled files of an image with these systems and rights are kept."""
    rights = "free" if confinement is Confinement.NONE else "confined"
    if confinement is not Confinement.NONE and environment.network is not Network.NONE:
        rights = f"{rights}-{environment.network}"
    return fasls.fasl_directory(systems.project, build, rights, systems.outside())


def _translations(cache: Path) -> str:
    place = lisp_string(f"{cache}/")
    return f"(:output-translations (t ({place} :**/ :*.*.*)) :ignore-inherited-configuration)"


def _init(systems: Systems, environment: Environment, notes: list[str]) -> Path | None:
    """Return the file to load at the start; one that is not there is told."""
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


def findings(
    project: Path | None, environment: Environment, *, confinement: Confinement, build: str
) -> list[Finding]:
    """Return what an image of the project would find, for people to read. Makes and changes nothing."""
    systems = find_systems(project, environment)
    found = [_well("system", file) for file in systems.definitions]
    found += [
        _well("registry", source.path, f"{source.origin}{', with all below it' if source.is_tree else ''}")
        for source in systems.sources
        if source.origin != "the project"
    ]
    if systems.quicklisp is not None:
        found.append(_well("quicklisp", systems.quicklisp.parent))
    cache = cache_directory(systems, environment, confinement=confinement, build=build)
    found.append(_well("compile cache", cache, f"{fasls.size(cache) / 1e6:.1f} MB"))
    return found + [Finding("systems", Status.WARNING, problem) for problem in systems.problems]


def _well(name: str, path: Path, more: str = "") -> Finding:
    return Finding(name, Status.OK, f"{path} ({more})" if more else str(path))
