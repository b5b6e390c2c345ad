"""The table of settings: an entry makes the key of a file, the variable, the option, and the page.

An entry says too which of several sources counts, and what a project's own file may say. Where the files are
is the business of `configuration`.
"""

from __future__ import annotations

import os
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from gramercy.errors import InvalidSettingError
from gramercy.gram.suggestion import did_you_mean
from gramercy.images.environment import (
    DEFAULT_DEBUG,
    DISK_MB,
    LISP_MB,
    MOST_DEBUG,
    PYTHON_MB,
    Files,
    Network,
    PublishedPort,
    Reload,
    Sandbox,
)
from gramercy.text import cut
from gramercy.workbench import values
from gramercy.workbench.values import DIRECTORIES, SECONDS, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

T = TypeVar("T")

LAST_PORT = 65535
_NUMBER = re.compile("[0-9]{1,5}")
# Less leaves hardly anything beside the runtime itself.
LEAST_MEMORY_MB = 64
SPOKEN = {"sbcl": "Common Lisp (SBCL)", "python": "Python"}
# Long enough for a build or a test suite; what loops is interrupted before a person gives up.
DEFAULT_TIMEOUT = 60.0
# What a call may ask for itself: long enough for most trainings and suites that are waited for.
DEFAULT_LIMIT = 600.0


def read_port(word: str) -> PublishedPort:
    """Read PORT or OUTER:INNER."""
    outer, _, inner = word.partition(":")
    ports = [int(part) if _NUMBER.fullmatch(part) else 0 for part in (outer, inner or outer)]
    if not all(1 <= port <= LAST_PORT for port in ports):
        raise InvalidSettingError(f"{word!r:.40} is not PORT or OUTER:INNER")
    return PublishedPort(*ports)


def read_variable(word: str) -> tuple[str, str]:
    """Read NAME=VALUE, or NAME of a variable that is set here."""
    name, equals, value = word.partition("=")
    if not name.isidentifier() or not name.isascii():
        raise InvalidSettingError(f"{word!r:.60} is not NAME or NAME=VALUE")
    if "\0" in value:
        raise InvalidSettingError(f"the value of {name} has a NUL in it")
    if not equals and name not in os.environ:
        raise InvalidSettingError(f"{name} is not set here: give it as {name}=VALUE")
    return name, value if equals else os.environ[name]


def _variables(value: object, _base: Path) -> dict[str, str]:
    if isinstance(value, list):
        return dict(read_variable(values.text(each)) for each in value)
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise InvalidSettingError('must be a table of texts, { NAME = "value" }, or a list, ["NAME"]')
    return dict(read_variable(f"{name}={each}") for name, each in value.items())


def _ports(value: object, _base: Path) -> tuple[PublishedPort, ...]:
    return tuple(read_port(each if isinstance(each, str) else str(each)) for each in values.listed(value))


def _stronger(allowed: Sandbox | None, asked: Sandbox | None) -> Sandbox | None:
    return Sandbox.BUBBLEWRAP if Sandbox.BUBBLEWRAP in (allowed, asked) else allowed or asked


class May(StrEnum):
    """What of a setting a project's own file may say, in the words of the page and the order of refusals."""

    INSIDE_OR_VERSION = "what is in the project, or a version"
    INSIDE = "what is in the project"
    LESS = "less than you allow"
    NOTHING = "nothing"
    NO_PORTS = "only `[]`"
    NO_NETWORK = 'only `"none"`'
    VALUES = "values, but no variable that programs of the system read"
    MORE = "more than you ask for"
    ANYTHING = "anything"


class Setting(NamedTuple):
    """An entry of the table: what a setting is, and what people are told about it.

    One that has a `help` becomes an option, which every command with an image takes unless it is `apart`.
    `names` are its spellings, the usual one first; without a `help`, options of some commands that say the
    same. `place` is where a help shows it, small numbers first. What a project asks for is `lowered` to what
    the user allows: where that is not said it is `most`, or what holds `otherwise`. `subject` is what a
    project has no say in.
    """

    kind: Kind
    default: str
    does: str
    example: str
    help: str = ""
    project: May = May.NOTHING
    subject: str = "it"
    lowered: Callable[[Any, Any], Any] | None = None
    most: Any = None
    otherwise: Any = None
    names: tuple[str, ...] = ()
    place: int = 1
    apart: bool = False

    def unsaid(self, value: T) -> T:
        """Enter this into the table, and return the value of a source that does not say it."""
        _ENTRIES.append(self)
        return value


_RECORDS = "how calls are recorded and approved"
# In the order of the fields, which give them their names.
_ENTRIES: list[Setting] = []


class Settings(msgspec.Struct, frozen=True):
    """What one source says; None is nothing said, while no ports at all can be said too."""

    image: tuple[str, ...] = Setting(
        values.IMAGES,
        "the language of the project, else SBCL where it is installed",
        "The language of the image, or `NAME=LANGUAGE`; a list gives a server several images.",
        'image = ["sbcl", "helper=python"]',
        project=May.ANYTHING,
        names=("--image", "--language"),
    ).unsaid(())
    python: str | None = Setting(
        values.PYTHON,
        "the environment of the project, else the one that is active",
        "The interpreter or virtual environment of a Python image: a path, or a version.",
        'python = "3.12"',
        "The interpreter or virtual environment of a Python image; by default that of the project.",
        May.INSIDE_OR_VERSION,
        place=0,
    ).unsaid(None)
    paths: tuple[Path, ...] = Setting(
        DIRECTORIES,
        "none",
        "Directories outside of the project to import from.",
        'paths = ["lib"]',
        "A directory outside of the project to import from; may be given several times.",
        May.INSIDE,
        names=("--path",),
        place=0,
    ).unsaid(())
    registries: tuple[Path, ...] = Setting(
        DIRECTORIES,
        "none",
        "Trees of Lisp systems outside of the project, to be read.",
        'registries = ["systems"]',
        "A tree of Lisp systems outside of the project, to be read; may be given several times.",
        May.INSIDE,
        names=("--registry",),
        place=0,
    ).unsaid(())
    init: Path | None = Setting(
        values.FILE,
        "none",
        "A file to load when an image starts.",
        'init = "setup.py"',
        "A file to load when the image starts.",
        May.INSIDE,
        place=0,
    ).unsaid(None)
    memory: int | None = Setting(
        values.megabytes(LEAST_MEMORY_MB),
        "half of what is free, 2048 or more where there is that much, for Python; 1024 for the heap of SBCL",
        "What each process of an image may use.",
        "memory = 512",
        "What each process may use.",
        May.LESS,
        lowered=values.lower,
        most=min(LISP_MB, PYTHON_MB),
    ).unsaid(None)
    disk: int | None = Setting(
        values.megabytes(1),
        str(DISK_MB),
        "What one call may write to the project; what writes more is ended, and its files are named.",
        "disk = 256",
        "What one call may write to the project.",
        May.LESS,
        lowered=values.lower,
        most=DISK_MB,
        place=0,
    ).unsaid(None)
    timeout: float | None = Setting(
        SECONDS,
        "60",
        "After this an evaluation is interrupted; what it has changed by then stays.",
        "timeout = 30",
        "After this an evaluation is interrupted; what it has changed by then stays.",
        May.LESS,
        lowered=values.lower,
        otherwise=DEFAULT_TIMEOUT,
        apart=True,
    ).unsaid(None)
    timeout_limit: float | None = Setting(
        SECONDS,
        "600",
        "What a call may ask for with its argument `timeout`.",
        "timeout_limit = 120",
        "What a call may ask for with its argument timeout.",
        May.LESS,
        lowered=values.lower,
        otherwise=DEFAULT_LIMIT,
        names=("--timeout-limit", "--max-timeout"),
        apart=True,
    ).unsaid(None)
    env: Mapping[str, str] = Setting(
        Kind(
            _variables,
            "table of texts, or list of names",
            read_variable,
            gather=dict,
            separator=",",
            over=values.added,
            metavar="NAME|NAME=VALUE",
        ),
        "none",
        "Environment variables for the image: values, or names of variables that are set where it starts.",
        'env = { GARDEN_MODE = "test" }',
        "An environment variable for the image; may be given several times.",
        May.VALUES,
    ).unsaid({})
    publish: tuple[PublishedPort, ...] | None = Setting(
        Kind(_ports, "list of ports", read_port, gather=tuple, separator=",", metavar="PORT|OUTER:INNER"),
        "none",
        "Ports inside of the image that programs of this machine may reach: `PORT` or `OUTER:INNER`.",
        'publish = [8080, "8081:80"]',
        "Let programs of this machine reach a port inside the image; may be given several times.",
        May.NO_PORTS,
        lowered=values.only(()),
        otherwise=(),
    ).unsaid(None)
    network: Network | None = Setting(
        values.one_of(Network, '`"none"` or `"open"`'),
        '`"none"`',
        "What evaluated code may connect to.",
        'network = "open"',
        "What evaluated code may connect to; by default nothing.",
        May.NO_NETWORK,
        lowered=values.only(Network.NONE),
        otherwise=Network.NONE,
    ).unsaid(None)
    files: Files | None = Setting(
        values.one_of(Files, '`"write"` or `"read"`', Files.parse, "read-only"),
        '`"write"`',
        "What evaluated code may do with the files of the project; `read-only` is `read`.",
        'files = "read"',
        "What evaluated code may do with the files of the project; by default write. read-only is read.",
        May.LESS,
        lowered=values.only(Files.READ),
        otherwise=Files.WRITE,
        names=("--files", "--project-access"),
    ).unsaid(None)
    require_sandbox: Sandbox | None = Setting(
        values.one_of(Sandbox, '`"bubblewrap"` or `"landlock"`'),
        "none: the best that works here, and the start says which",
        "The least sandbox that an image is started in; without it none is started.",
        'require_sandbox = "bubblewrap"',
        "Start no image in a weaker sandbox than this.",
        May.MORE,
        lowered=_stronger,
        place=3,
    ).unsaid(None)
    debug_quality: int | None = Setting(
        values.whole(0, MOST_DEBUG, f"whole number from 0 to {MOST_DEBUG}"),
        "2",
        "How well SBCL keeps frames and variables for errors; at 3 each tail call keeps its frame.",
        "debug_quality = 1",
        "How well SBCL keeps frames and variables for errors; by default 2.",
        May.ANYTHING,
        otherwise=DEFAULT_DEBUG,
        place=2,
    ).unsaid(None)
    reload: Reload | None = Setting(
        values.one_of(Reload, '`"auto"`, `"tell"` or `"off"`'),
        '`"auto"`',
        "What a Python image does with edited files that it has loaded: take them up, tell it, or neither.",
        'reload = "tell"',
        "What a Python image does with edited files that it has loaded; by default it takes them up.",
        May.ANYTHING,
        otherwise=Reload.AUTO,
    ).unsaid(None)
    journal: str | None = Setting(
        values.JOURNAL,
        "`$XDG_STATE_HOME/gramercy/journal.db`",
        "Where calls and approvals are recorded. What is in memory ends with the process.",
        'journal = "/srv/gramercy/journal.db"',
        "Where calls and approvals are recorded; by default in your state directory.",
        subject=_RECORDS,
        apart=True,
    ).unsaid(None)
    approval_wait: float | None = Setting(
        SECONDS,
        "50 in a server while `gramercy approvals watch` is open, else 0",
        "How long a call waits for a person who decides elsewhere before its caller is told to come back.",
        "approval_wait = 20",
        "How long a call waits for a person elsewhere before its caller is told to come back; by default 50 "
        "in a server while `gramercy approvals watch` shows its question, else not at all.",
        subject=_RECORDS,
        apart=True,
    ).unsaid(None)
    approval_expiry: float | None = Setting(
        SECONDS,
        "86400, a day",
        "How long a call can be approved; after that it is denied.",
        "approval_expiry = 3600",
        "How long a call can be approved; by default a day.",
        subject=_RECORDS,
        apart=True,
    ).unsaid(None)
    mask: tuple[str, ...] = Setting(
        values.MASKS,
        "none beside what sounds like a secret",
        "Arguments that the journal masks when a call is over; `*` stands for anything.",
        'mask = ["deploy.key", "*.pin"]',
        subject=_RECORDS,
    ).unsaid(())
    mask_patterns: tuple[str, ...] = Setting(
        values.PATTERNS,
        "none beside the forms of common tokens",
        "Texts that the journal masks wherever they stand.",
        'mask_patterns = ["ACME-[0-9]{8}"]',
        subject=_RECORDS,
    ).unsaid(())
    retention: float | None = Setting(
        values.DAYS,
        "none: contents are kept",
        "How long the contents of a call are kept after it is over; a server deletes them when it starts.",
        "retention = 90",
        subject=_RECORDS,
    ).unsaid(None)
    model: str | None = Setting(
        values.MODEL,
        "the one that an agent names",
        "The model that answers for all agents.",
        'model = "Ollama/qwen3"',
        subject="who reads along and is paid",
        names=("--model",),
    ).unsaid(None)


KEYS: dict[str, Setting] = dict(zip(Settings.__struct_fields__, _ENTRIES, strict=True))


def options_of(key: str) -> tuple[str, ...]:
    """Return the options that say the same as a key, the usual one first."""
    about = KEYS[key]
    return about.names or ((f"--{key.replace('_', '-')}",) if about.help else ())


def spelling(key: str) -> str:
    """Return how a key is said on the command line."""
    return next(iter(options_of(key)), f"--{key}")


def read_settings(table: Mapping[str, Any], base: Path, allowed: str = "") -> tuple[Settings, list[str]]:
    """Read a table, with paths relative to `base`; what cannot be used is left out and told."""
    found: dict[str, Any] = {}
    wrong: list[str] = []
    for key, value in table.items():
        if key == allowed:
            continue
        if key not in KEYS:
            hint = did_you_mean(key, KEYS, f"there are {', '.join(KEYS)}")
            wrong.append(f"there is no key {key!r:.60}: {hint}")
            continue
        try:
            found[key] = KEYS[key].kind.read(value, base)
        except InvalidSettingError as error:
            wrong.append(f"{key} is {_shown(value)}, but {error}")
    return Settings(**found), wrong


def _shown(value: object) -> str:
    return cut(repr(value), 60)


def variable(key: str) -> str:
    """Return the variable of the environment that sets a key."""
    return f"GRAMERCY_{key.upper()}"


def read_environment(variables: Mapping[str, str], base: Path) -> tuple[Settings, list[str]]:
    """Read what variables of the environment set; lists are parted by `:` (paths) or a comma."""
    table: dict[str, Any] = {}
    for key, about in KEYS.items():
        word = variables.get(variable(key))
        if word:
            table[key] = _number(word) if about.kind.is_number else word
            if about.kind.separator:
                table[key] = [each for each in word.split(about.kind.separator) if each]
    return read_settings(table, base)


def _number(word: str) -> object:
    """Return a number where it is one; what else it is the reader of the key refuses."""
    try:
        return int(word)
    except ValueError:
        pass
    try:
        return float(word)
    except ValueError:
        return word
