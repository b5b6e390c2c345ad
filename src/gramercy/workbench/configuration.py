"""Join what the command line, the user's own file and the project's file say about images.

A project comes from anywhere, so its file may choose and lower, never raise: nothing in it may give evaluated
code more than it has without the file. What it may not say is refused, told, and left to the user.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from gramercy.directories import config_home
from gramercy.images.environment import DEFAULT_DEBUG, DISK_MB, Environment, Files, Network, Reload, Sandbox
from gramercy.text import reason_of
from gramercy.workbench.settings import SPELLINGS, Settings, read_environment, read_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

T = TypeVar("T")

NAME = "gramercy.toml"
PROJECTS = "projects"
# Some lines of TOML are expected; a larger file is a mistake, and would be parsed at every start.
LARGEST_FILE = 1 << 20
# Long enough for a build or a test suite; what loops is interrupted before a person gives up.
DEFAULT_TIMEOUT = 60.0
# What a call may ask for itself: long enough for most trainings and suites that are waited for.
DEFAULT_LIMIT = 600.0
# What the programs read that start an image, before they are in its sandbox.
_OF_PROGRAMS = re.compile(
    r"(LD|LC|LOC|LANG|NLS|TZ|GLIBC|GCONV|MALLOC|RES|BASH|PYTHON|SBCL).*|PATH|HOME|ENV|IFS|TMPDIR",
    re.IGNORECASE,
)


class Source(msgspec.Struct, frozen=True):
    """Where settings come from, and what it says."""

    name: str
    settings: Settings


class Refusal(msgspec.Struct, frozen=True):
    """What a project's own file may not say."""

    key: str
    value: Any
    where: str
    reason: str


class Configuration(msgspec.Struct, frozen=True):
    """What holds for the images of a project; `remarks` tell what of the files is not used, and why.

    `settings` are all sources together; `sources` what each of them says, the nearest first.
    """

    environment: Environment = msgspec.field(default_factory=Environment)
    timeout: float = DEFAULT_TIMEOUT
    timeout_limit: float = DEFAULT_LIMIT
    images: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    remarks: tuple[str, ...] = ()
    settings: Settings = Settings()
    sources: tuple[Source, ...] = ()
    refused: tuple[Refusal, ...] = ()

    @property
    def language(self) -> str | None:
        """The language of the first image, if the files name one."""
        return self.images[0].rpartition("=")[2] if self.images else None


class _Reading:
    """The files as they are read, with what is wrong in them."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.files: list[Path] = []
        self.remarks: list[str] = []
        self.refused: list[Refusal] = []
        self.own = ""

    def table(self, file: Path, place: str = "") -> dict[str, Any]:
        """Return a table of a file, an empty one where there is none."""
        import tomllib

        try:
            data: Any = tomllib.loads(_text(file))
        except OSError as error:
            self.remarks.append(f"{file} cannot be read: {reason_of(error)}")
            return {}
        except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
            self.remarks.append(f"{file} is not TOML, so nothing of it is used: {error}")
            return {}
        for part in filter(None, place.split(".")):
            data = data.get(part, {}) if isinstance(data, dict) else {}
        if data:
            self.files.append(file)
        return self.checked(data, f"{file} [{place}]")

    def checked(self, table: Any, where: str) -> dict[str, Any]:
        """Return the table, or say that it is none."""
        if isinstance(table, dict):
            return table
        self.remarks.append(f"{where} must be a table")
        return {}

    def settings(self, table: dict[str, Any], where: str, base: Path, allowed: str = "") -> Settings:
        """Return what a table sets."""
        found, wrong = read_settings(table, base, allowed)
        self.remarks += [f"{where}: {line}" for line in wrong]
        return found


def read_configuration(project: str | Path, told: Settings | None = None) -> Configuration:
    """Return what holds for a project, `told` being the word of the command line."""
    reading = _Reading(_directory(project))
    told, variables = told or Settings(), _of_environment(reading)
    general, special = _of_user(reading)
    if general.python and _has_environment(reading.project):
        # In general means: for projects that have no environment of their own.
        general = msgspec.structs.replace(general, python=None)
    own = _of_project(reading, _over(special, general))
    joined = _joined(_over(told, variables), special, own, general)
    environment = Environment(
        python=joined.python,
        paths=joined.paths,
        registries=joined.registries,
        init=joined.init,
        memory_mb=joined.memory,
        disk_mb=joined.disk,
        variables=joined.env,
        publish=joined.publish or (),
        network=joined.network or Network.NONE,
        files=joined.files or Files.WRITE,
        require_sandbox=joined.require_sandbox,
        reload=joined.reload or Reload.AUTO,
        debug=DEFAULT_DEBUG if joined.debug_quality is None else joined.debug_quality,
        notes=tuple(remark if remark.endswith("?") else f"{remark}." for remark in reading.remarks),
    )
    timeout = joined.timeout or DEFAULT_TIMEOUT
    sources = (
        Source("the command line", told),
        Source("the environment", variables),
        Source(f'{user_file()} [{PROJECTS}."{reading.project}"]', special),
        Source(reading.own, own),
        Source(str(user_file()), general),
    )
    return Configuration(
        environment,
        timeout,
        # Never below what every call has anyway.
        max(joined.timeout_limit or DEFAULT_LIMIT, timeout),
        joined.image,
        tuple(reading.files),
        tuple(reading.remarks),
        joined,
        sources,
        tuple(reading.refused),
    )


def _directory(project: str | Path) -> Path:
    """Return the real path of a project; of a working directory that is gone, one that cannot be there."""
    try:
        return Path(project).expanduser().resolve()
    except OSError:
        return Path(os.devnull, "gone")


def _has_environment(project: Path) -> bool:
    from gramercy.images.interpreters import is_environment

    return any(is_environment(project / name) for name in (".venv", "venv"))


def user_file() -> Path:
    """Return where the user's own file is."""
    return config_home() / "gramercy" / NAME


def _of_environment(reading: _Reading) -> Settings:
    """Return what variables of the environment say, which are the user's own word."""
    found, wrong = read_environment(os.environ, _directory("."))
    reading.remarks += [f"the environment: {line}" for line in wrong]
    return found


def _of_user(reading: _Reading) -> tuple[Settings, Settings]:
    """Return what the user's file says in general, and for this project."""
    file = user_file()
    if not file.exists():
        return Settings(), Settings()
    table = reading.table(file)
    general, special = reading.settings(table, str(file), file.parent, PROJECTS), Settings()
    for name, each in reading.checked(table.get(PROJECTS, {}), f"{file} [{PROJECTS}]").items():
        if Path(name).expanduser().resolve() == reading.project:
            where = f"{file} [{PROJECTS}.{name}]"
            special = reading.settings(reading.checked(each, where), where, reading.project)
    return general, special


def _of_project(reading: _Reading, limits: Settings) -> Settings:
    """Return what the project's file says, without what only the user may say."""
    file, shared = reading.project / NAME, reading.project / "pyproject.toml"
    where, place = str(file), ""
    if not _is_own(file, reading):
        if not _is_own(shared, reading) or "gramercy" not in _peeked(shared):
            return Settings()
        file, place = shared, "tool.gramercy"
        where = f"{shared} [{place}]"
    elif _is_own(shared, reading) and "[tool.gramercy" in _peeked(shared):
        reading.remarks.append(f"{shared} [tool.gramercy] is not used, since there is {file}")
    table = reading.table(file, place)
    # Rules are read by those who judge by them (policies.py), and only from our own files.
    settings = reading.settings(table, where, reading.project, "" if place else "policy")
    reading.own = where
    for key, kept, reason in raised(settings, table, reading.project, limits):
        reading.refused.append(Refusal(key, table.get(key), where, reason))
        option = SPELLINGS.get(key, key)
        reading.remarks.append(
            f"{where}: {key} is refused, since {reason}: say --{option}, or put it into {user_file()} "
            f'under [{PROJECTS}."{reading.project}"]'
        )
        settings = msgspec.structs.replace(settings, **{key: kept})
    return settings


def _is_own(file: Path, reading: _Reading) -> bool:
    """Tell whether a file is there and in the project: nothing else may be read because a project says so."""
    # Unlike a path's own method it does not raise where the directory cannot be searched.
    if not os.path.exists(file):  # noqa: PTH110
        return False
    if file.resolve().is_relative_to(reading.project):
        return True
    reading.remarks.append(f"{file} is not read, since it leads out of the project")
    return False


def bounded_content(file: Path) -> bytes:
    """Read a file that may be anything but a file; what is too long is not read at all."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as source:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("it is not a file")
        data = source.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise OSError(f"it is longer than {LARGEST_FILE:,} bytes")
    return data


def _text(file: Path) -> str:
    return bounded_content(file).decode("utf-8")


def _peeked(file: Path) -> str:
    try:
        return _text(file)
    except (OSError, UnicodeDecodeError):
        return ""


def _over(nearer: Settings, farther: Settings) -> Settings:
    """Join two sources of the same kind: the nearer one counts, and what adds up is added up."""
    return Settings(
        python=nearer.python or farther.python,
        paths=_united(nearer.paths, farther.paths),
        registries=_united(nearer.registries, farther.registries),
        init=nearer.init or farther.init,
        memory=nearer.memory or farther.memory,
        disk=nearer.disk or farther.disk,
        timeout=nearer.timeout or farther.timeout,
        timeout_limit=nearer.timeout_limit or farther.timeout_limit,
        env={**farther.env, **nearer.env},
        publish=farther.publish if nearer.publish is None else nearer.publish,
        network=nearer.network or farther.network,
        files=nearer.files or farther.files,
        require_sandbox=nearer.require_sandbox or farther.require_sandbox,
        reload=nearer.reload or farther.reload,
        debug_quality=farther.debug_quality if nearer.debug_quality is None else nearer.debug_quality,
        image=nearer.image or farther.image,
        journal=nearer.journal or farther.journal,
        approval_wait=nearer.approval_wait or farther.approval_wait,
        approval_expiry=nearer.approval_expiry or farther.approval_expiry,
        mask=tuple(dict.fromkeys((*nearer.mask, *farther.mask))),
        mask_patterns=tuple(dict.fromkeys((*nearer.mask_patterns, *farther.mask_patterns))),
        retention=nearer.retention or farther.retention,
        model=nearer.model or farther.model,
    )


def _joined(told: Settings, special: Settings, own: Settings, general: Settings) -> Settings:
    """Join the sources, nearest first. For limits a project may ask for less than the user allows."""
    of_user = _over(special, general)
    choices = _over(_over(special, own), general)
    lowered = Settings(
        memory=_lower(of_user.memory, own.memory),
        disk=_lower(of_user.disk, own.disk),
        timeout=_lower(of_user.timeout, own.timeout),
        timeout_limit=_lower(of_user.timeout_limit, own.timeout_limit),
        publish=() if own.publish == () else of_user.publish,
        network=Network.NONE if own.network is Network.NONE else of_user.network,
        files=Files.READ if own.files is Files.READ else of_user.files,
        require_sandbox=_stronger(of_user.require_sandbox, own.require_sandbox),
    )
    limits = _over(told, lowered)
    joined = _over(told, choices)
    return msgspec.structs.replace(
        joined,
        memory=limits.memory,
        disk=limits.disk,
        timeout=limits.timeout,
        timeout_limit=limits.timeout_limit,
        publish=limits.publish,
        network=limits.network,
        files=limits.files,
        require_sandbox=limits.require_sandbox,
    )


def _stronger(first: Sandbox | None, second: Sandbox | None) -> Sandbox | None:
    return Sandbox.BUBBLEWRAP if Sandbox.BUBBLEWRAP in (first, second) else first or second


def _lower(first: T | None, second: T | None) -> T | None:
    given = [each for each in (first, second) if each is not None]
    return min(given) if given else None  # type: ignore[type-var]  # numbers


def _united(*parts: Sequence[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(each for part in parts for each in part))


_RECORDS = "how calls are recorded and approved"
_OF_THE_USER = {
    **dict.fromkeys(("journal", "approval_wait", "approval_expiry"), _RECORDS),
    **dict.fromkeys(("mask", "mask_patterns", "retention"), _RECORDS),
    "model": "who reads along and is paid",
}


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
    for key, what in _OF_THE_USER.items():
        if getattr(settings, key) not in (None, ()):
            rest = () if key.startswith("mask") else None
            yield key, rest, f"a file of the project has no say in {what}"
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
    if settings.disk is not None and settings.disk > (most := limits.disk or DISK_MB):
        yield "disk", None, f"a file of the project may only lower it, and it is {most} MB"
    for key, default in (("timeout", DEFAULT_TIMEOUT), ("timeout_limit", DEFAULT_LIMIT)):
        wanted, seconds = getattr(settings, key), getattr(limits, key) or default
        if wanted is not None and wanted > seconds:
            yield key, None, f"a file of the project may only lower it, and it is {seconds:g} s"
    if settings.files is Files.WRITE and limits.files is Files.READ:
        yield "files", None, "a file of the project may only lower it, and it is read"


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
