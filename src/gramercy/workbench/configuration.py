"""Join what the command line, the user's own file and the project's file say about images.

A project comes from anywhere, so its file may choose and lower, never raise: nothing in it may give evaluated
code more than it has without the file. What it may not say is refused, told, and left to the user.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.directories import config_home
from gramercy.images.environment import DEFAULT_DEBUG, Environment, Files, Network, Reload
from gramercy.text import reason_of
from gramercy.workbench.settings import (
    DEFAULT_LIMIT,
    DEFAULT_TIMEOUT,
    KEYS,
    May,
    Settings,
    read_environment,
    read_settings,
    spelling,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gramercy.workbench.settings import Setting

NAME = "gramercy.toml"
PROJECTS = "projects"
# Some lines of TOML are expected; a larger file is a mistake, and would be parsed at every start.
LARGEST_FILE = 1 << 20
_OUTSIDE = "a file of the project may name only what is in the project"
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
        reading.remarks.append(
            f"{where}: {key} is refused, since {reason}: say {spelling(key)}, or put it into {user_file()} "
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
        **{key: each.kind.over(getattr(nearer, key), getattr(farther, key)) for key, each in KEYS.items()}
    )


def _joined(told: Settings, special: Settings, own: Settings, general: Settings) -> Settings:
    """Join the sources, nearest first. For limits a project may ask for less than the user allows."""
    allowed = _over(special, general)
    lowered = {
        key: about.lowered(getattr(allowed, key), getattr(own, key))
        for key, about in KEYS.items()
        if about.lowered
    }
    chosen = _over(_over(special, own), general)
    return _over(told, msgspec.structs.replace(chosen, **lowered))


def raised(
    settings: Settings, table: dict[str, Any], project: Path, limits: Settings
) -> Iterator[tuple[str, Any, str]]:
    """Yield each key by which a project would raise rights, with what may be kept of it, and the reason."""
    for key, about in sorted(KEYS.items(), key=_order_of_refusals):
        value, nothing = getattr(settings, key), getattr(Settings(), key)
        if value in (None, (), {}):
            continue
        match about.project:
            case May.INSIDE_OR_VERSION if "/" in value and not _is_inside(Path(value), project):
                yield key, nothing, f"{_OUTSIDE}, or a version"
            case May.INSIDE:
                yield from _outside(key, value, project)
            case May.LESS:
                yield from _above(key, value, getattr(limits, key))
            case May.NOTHING:
                yield key, nothing, f"a file of the project has no say in {about.subject}"
            case May.NO_PORTS:
                yield key, nothing, "a file of the project may open no ports"
            case May.NO_NETWORK if value is Network.OPEN:
                yield key, nothing, "a file of the project may not open the network"
            case May.VALUES:
                yield from _unsafe(key, value, table.get(key))


def _order_of_refusals(entry: tuple[str, Setting]) -> tuple[int, bool]:
    """Put what can be said once before what is a list."""
    about = entry[1]
    return list(May).index(about.project), about.kind.gather is not None


def _outside(key: str, value: Path | tuple[Path, ...], project: Path) -> Iterator[tuple[str, Any, str]]:
    if isinstance(value, tuple):
        kept = tuple(path for path in value if path.is_relative_to(project))
        if kept != value:
            lost = ", ".join(str(path) for path in value if path not in kept)
            yield key, kept, f"{_OUTSIDE} ({lost})"
    elif not value.is_relative_to(project):
        yield key, None, _OUTSIDE


def _above(key: str, value: Any, allowed: Any) -> Iterator[tuple[str, None, str]]:
    about = KEYS[key]
    most = next(each for each in (allowed, about.most, about.otherwise) if each is not None)
    if about.lowered and about.lowered(most, value) != value:
        told = f"{most:g}" if isinstance(most, float) else most
        yield key, None, f"a file of the project may only lower it, and it is {told}{about.kind.unit}"


def _unsafe(key: str, value: dict[str, str], written: object) -> Iterator[tuple[str, Any, str]]:
    words = written if isinstance(written, list) else []
    borrowed = {word for word in words if isinstance(word, str) and "=" not in word}
    lost = [name for name in value if name in borrowed or _OF_PROGRAMS.fullmatch(name)]
    if lost:
        reason = "a file of the project may take nothing from your environment, and set nothing of the system"
        safe = {name: each for name, each in value.items() if name not in lost}
        yield key, safe, f"{reason} ({', '.join(lost)})"


def _is_inside(path: Path, project: Path) -> bool:
    """Tell whether a Python is in the project; that its program is a link to another place is usual."""
    place = path if path.is_dir() else path.parent
    return place.resolve().is_relative_to(project)
