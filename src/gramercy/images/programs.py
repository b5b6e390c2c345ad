"""Find programs on PATH that this process may start, never one that evaluated code could have put there.

An entry of PATH is skipped if it lies in a project, is relative or empty, or can be written by every user of
the machine. So is a program that is a link to such a place.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from gramercy.images.environment import Finding, Status
from gramercy.images.project import PROJECTS, is_too_wide

if TYPE_CHECKING:
    from collections.abc import Iterator


# The programs that gramercy starts by name.
STARTED = ("bwrap", "sbcl", "git", "uv", "uvx", "pip", "pip3", "setpriv")


def find_program(name: str, path: str | None = None) -> str | None:
    """Return the first program of a name on PATH, or on another list of directories, that may be started."""
    return next((place for place, why in _candidates(name, path) if not why), None)


def passed_over(name: str, path: str | None = None) -> list[str]:
    """List the programs of a name on PATH that are not started, each with its reason."""
    return [f"{place} is passed over: {why}" for place, why in _candidates(name, path) if why]


def none_on_path(name: str, path: str | None = None) -> str:
    """Return a message that there is no program of a name, with the skipped ones."""
    return "; ".join([f"there is no {name} on PATH", *passed_over(name, path)])


def path_findings() -> Iterator[Finding]:
    """Report the programs on PATH that are skipped, for the doctor."""
    for name in STARTED:
        for line in passed_over(name):
            yield Finding("PATH", Status.WARNING, line, "take its directory out of PATH")


def _candidates(name: str, path: str | None) -> Iterator[tuple[str, str]]:
    """Yield the programs of a name in the order of PATH, with the reason why each may not be started."""
    places = os.environ.get("PATH", os.defpath) if path is None else path
    for entry in dict.fromkeys(places.split(os.pathsep)):
        place = os.path.join(entry, name)  # noqa: PTH118 - an empty entry has to stay one
        if os.path.isfile(place) and os.access(place, os.X_OK):  # noqa: PTH113 - a text
            yield place, _why_not(entry, place)


def _why_not(entry: str, place: str) -> str:
    if not entry.startswith("/"):
        return "its directory is named in PATH without a slash at its beginning"
    real = Path(os.path.realpath(place))
    for project in _projects():
        if real.is_relative_to(project) or Path(os.path.realpath(entry)).is_relative_to(project):
            return "it lies in the project, where evaluated code could have put it"
    try:
        if any(each.stat().st_mode & stat.S_IWOTH for each in (Path(entry), real.parent, real)):
            return "every user of this machine can write it or its directory"
    except OSError:
        return "it cannot be looked at"
    return ""


def _projects() -> set[Path]:
    """Return the projects of this process, including the working directory: most are used from inside."""
    try:
        here = Path.cwd()
    except OSError:
        return PROJECTS
    return PROJECTS if is_too_wide(here) else PROJECTS | {here}
