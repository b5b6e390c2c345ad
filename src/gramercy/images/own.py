"""The parts of gramercy that lie in a project: if they are changed there, the next start runs the changes.

Read from this process: the places of its package and its environment, and other modules loaded from the
project.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gramercy.images.environment import Finding, Status
from gramercy.images.guarded import OF_PYTHON, OF_SELF, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator


def own_findings(project: Path) -> Iterator[Finding]:
    """Report the parts of gramercy that lie in a project, for the doctor."""
    told = own_notes(project)
    for place in _import_paths(project):
        told.append(
            f"gramercy imports from {place} too, by an editable install in its environment or by PYTHONPATH: "
            "a module that evaluated code adds there may run at its next start"
        )
    advice = "install gramercy in an environment of its own: uv tool install gramercy"
    for line in told:
        yield Finding("gramercy itself", Status.WARNING, line, advice)


def own_notes(project: Path) -> list[str]:
    """Describe the parts of gramercy that lie in a project, and their protection."""
    own = [name for name, kind in own_places(project).items() if kind is OF_SELF]
    if not own:
        return []
    what = f"gramercy itself runs from {', '.join(own)} in this project"
    return [f"{what}: evaluated code can only read that, and file tools ask before they write it"]


def _import_paths(project: Path) -> list[str]:
    """Return directories of the project, outside of an environment, that this process imports from."""
    environment = Path(sys.prefix).resolve()
    # The first entry is the directory of the start or of the script. It is skipped: each start chooses it.
    places = [Path(entry).resolve() for entry in sys.path[1:] if entry]
    own = {project / name for name in own_places(project)}
    return [
        str(place)
        for place in dict.fromkeys(places)
        if place.is_relative_to(project) and place.is_dir() and not place.is_relative_to(environment)
        if not any(place.is_relative_to(each) for each in own)
    ]


@cache
def known_places(project: Path) -> dict[str, Kind]:
    """Return the same as `own_places`, cached: every call of a file tool needs it."""
    return own_places(project)


def own_places(project: Path) -> dict[str, Kind]:
    """Return the parts of gramercy in the project: the next start would run them again.

    These are its package, its environment, and required packages that are installed from sources in the
    project.
    """
    package = Path(__file__).resolve().parents[1]
    found = [(package, OF_SELF), (Path(sys.prefix).resolve(), OF_PYTHON)]
    found += [(Path(sys.base_prefix).resolve(), OF_PYTHON)]
    found += [(place, OF_SELF) for place in _loaded(project, package)]
    return {
        str(place.relative_to(project)): kind
        for place, kind in found
        if place != project and place.is_relative_to(project)
    }


def _loaded(project: Path, package: Path) -> list[Path]:
    """Return packages in the project, outside of its environment, that this process needs and has loaded."""
    prefix, environment = f"{project}/", f"{Path(sys.prefix).resolve()}/"
    found: dict[str, Path] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) if "." not in name else None
        if isinstance(file, str) and file.startswith(prefix) and not file.startswith(environment):
            place = Path(os.path.realpath(file))
            found[name] = place.parent if place.name == "__init__.py" else place
    found.pop(package.name, None)
    if not found:
        return []
    needed = _needed()
    return [place for name, place in found.items() if name.casefold().replace("-", "_") in needed]


def _needed() -> set[str]:
    """Return the modules that gramercy and its plug-ins need, by the names of their packages."""
    # Imported only in the rare case: it takes tens of milliseconds.
    from importlib.metadata import PackageNotFoundError, distribution, entry_points

    waiting, seen = ["gramercy"], set()
    needed = {point.module.partition(".")[0].casefold() for point in entry_points(group="gramercy")}
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        needed.add(name.replace("-", "_"))
        with contextlib.suppress(PackageNotFoundError, OSError):
            there = distribution(name)
            needed |= set((there.read_text("top_level.txt") or "").casefold().split())
            waiting += [_package(each) for each in there.requires or ()]
    return needed


def _package(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[._-]+", "-", found.group()).casefold() if found is not None else ""
