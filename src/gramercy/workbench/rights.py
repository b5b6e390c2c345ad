"""What a file of the project may not say about images.

A project comes from anywhere, so its file may choose and lower, never raise: nothing in it may give evaluated
code more than it has without the file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gramercy.images.environment import Network

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gramercy.workbench.settings import Settings

DEFAULT_TIMEOUT = 60.0
# What the programs read that start an image, before they are in its sandbox.
_OF_PROGRAMS = re.compile(
    r"(LD|LC|LOC|LANG|NLS|TZ|GLIBC|GCONV|MALLOC|RES|BASH|PYTHON|SBCL).*|PATH|HOME|ENV|IFS|TMPDIR",
    re.IGNORECASE,
)


def raised(
    settings: Settings, table: dict[str, Any], project: Path, limits: Settings
) -> Iterator[tuple[str, Any, str]]:
    """Yield each key by which a project would raise rights, with what may be kept of it, and the reason."""
    outside = "a file of the project may name only what is in the project"
    if settings.python and "/" in settings.python and not _is_inside(Path(settings.python), project):
        yield "python", None, f"{outside}, or a version"
    if settings.init and not settings.init.is_relative_to(project):
        yield "init", None, outside
    for key in ("paths", "registries"):
        paths = getattr(settings, key)
        kept = tuple(path for path in paths if path.is_relative_to(project))
        if kept != paths:
            lost = ", ".join(str(path) for path in paths if path not in kept)
            yield key, kept, f"{outside} ({lost})"
    yield from _raised_limits(settings, limits)
    if settings.publish:
        yield "publish", None, "a file of the project may open no ports"
    if settings.network is Network.OPEN:
        yield "network", None, "a file of the project may not open the network"
    borrowed = {word for word in _words(table.get("env")) if "=" not in word}
    safe = {name: value for name, value in settings.env.items() if name not in borrowed}
    safe = {name: value for name, value in safe.items() if not _OF_PROGRAMS.fullmatch(name)}
    if len(safe) < len(settings.env):
        lost = ", ".join(name for name in settings.env if name not in safe)
        reason = "a file of the project may take nothing from your environment, and set nothing of the system"
        yield "env", safe, f"{reason} ({lost})"


def _raised_limits(settings: Settings, limits: Settings) -> Iterator[tuple[str, None, str]]:
    if settings.memory is not None and settings.memory > (most := limits.memory or _default_memory()):
        yield "memory", None, f"a file of the project may only lower it, and it is {most} MB"
    seconds = limits.timeout or DEFAULT_TIMEOUT
    if settings.timeout is not None and settings.timeout > seconds:
        yield "timeout", None, f"a file of the project may only lower it, and it is {seconds:g} s"


def _words(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _default_memory() -> int:
    """Return what every image has at least; only a file that names a number pays for these imports."""
    from gramercy.images.environment import LISP_MB, PYTHON_MB

    return min(LISP_MB, PYTHON_MB)


def _is_inside(path: Path, project: Path) -> bool:
    """Tell whether a Python is in the project; that its program is a link to another place is usual."""
    place = path if path.is_dir() else path.parent
    return place.resolve().is_relative_to(project)
