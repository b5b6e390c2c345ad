"""What can be set about an image, as a file of TOML or the command line says it: names, types, values.

Knows neither where the files are nor whose word counts more.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gramercy.errors import ImageError, InvalidSettingError, SpecificationError
from gramercy.gram.suggestion import did_you_mean
from gramercy.images.environment import (
    DISK_MB,
    LANGUAGES,
    MOST_DEBUG,
    Files,
    Network,
    PublishedPort,
    Reload,
    Sandbox,
)
from gramercy.journal.base import MEMORY, SERVERS
from gramercy.text import cut
from gramercy.workbench.plugins import load_plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

LAST_PORT = 65535
_NUMBER = re.compile("[0-9]{1,5}")
# Less leaves hardly anything beside the runtime itself.
LEAST_MEMORY_MB = 64
SPOKEN = {"sbcl": "Common Lisp (SBCL)", "python": "Python"}
# Names of images are part of addresses and are repeated in every listing.
LONGEST_NAME = 40
# A hundred years, in days: more is a slip.
LONGEST_RETENTION = 36_525
# Keys whose option is in the singular, since it is given once for each value.
SPELLINGS = {
    "paths": "path",
    "registries": "registry",
    "timeout_limit": "timeout-limit",
    "debug_quality": "debug-quality",
    "require_sandbox": "require-sandbox",
    "approval_wait": "approval-wait",
    "approval_expiry": "approval-expiry",
}
# Who writes one of these wants no journal, and would get a file of that name.
NO_JOURNAL = frozenset({"none", "no", "off", "false", "null"})


class Settings(msgspec.Struct, frozen=True):
    """What one source says; None is nothing said, while no ports at all can be said too."""

    python: str | None = None
    paths: tuple[Path, ...] = ()
    registries: tuple[Path, ...] = ()
    init: Path | None = None
    memory: int | None = None
    disk: int | None = None
    timeout: float | None = None
    timeout_limit: float | None = None
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    publish: tuple[PublishedPort, ...] | None = None
    network: Network | None = None
    files: Files | None = None
    require_sandbox: Sandbox | None = None
    debug_quality: int | None = None
    reload: Reload | None = None
    image: tuple[str, ...] = ()
    journal: str | None = None
    approval_wait: float | None = None
    approval_expiry: float | None = None
    mask: tuple[str, ...] = ()
    mask_patterns: tuple[str, ...] = ()
    retention: float | None = None
    model: str | None = None


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
            found[key] = KEYS[key].read(value, base)
        except InvalidSettingError as error:
            wrong.append(f"{key} is {_shown(value)}, but {error}")
    return Settings(**found), wrong


def _shown(value: object) -> str:
    return cut(repr(value), 60)


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


def read_image_names(words: Iterable[str]) -> dict[str, str]:
    """Read `LANGUAGE` or `NAME=LANGUAGE`, several times, into languages by name; no name may come twice."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, language = word.partition("=")
        language = language if equals else name
        _check_language(language, word)
        _check_name(name)
        if name in found:
            raise ImageError(
                f"two images are named {name}: give them names, "
                f"as in --image first={language} --image second={language}"
            )
        found[name] = language
    return found


def _check_language(language: str, word: str) -> None:
    if language not in LANGUAGES and language not in load_plugins().images():
        names = (*LANGUAGES, *load_plugins().images())
        hint = did_you_mean(language[:60], names, f"there are {' and '.join(names)}")
        raise ImageError(f"there is no image language {language!r:.60} in {word!r:.80}: {hint}")


def _check_name(name: str) -> None:
    letters = name.replace("-", "").replace("_", "")
    if not (name[:1].isalpha() and letters.isalnum() and name.isascii() and len(name) <= LONGEST_NAME):
        raise ImageError(
            f"{name!r:.60} cannot name an image: expected letters, digits, - and _, at most {LONGEST_NAME}, "
            "beginning with a letter"
        )


def _python(value: object, base: Path) -> str:
    word = _text(value)
    path = Path(base, Path(word).expanduser())
    # A name without a slash may be a version; a directory of that name is nearer.
    return str(path) if "/" in word or path.exists() else word


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise InvalidSettingError("must be a text that is not empty")
    return value


def _directories(value: object, base: Path) -> tuple[Path, ...]:
    found = tuple(Path(base, Path(_text(each)).expanduser()).resolve() for each in _list(value))
    for path in found:
        if not path.is_dir():
            raise InvalidSettingError(f"there is no directory {path}")
    return found


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidSettingError("must be a list: [...]")
    return value


def _file(value: object, base: Path) -> Path:
    path = Path(base, Path(_text(value)).expanduser()).resolve()
    if not path.is_file():
        raise InvalidSettingError(f"there is no file {path}")
    return path


def _memory(value: object, _base: Path) -> int:
    if type(value) is not int or not LEAST_MEMORY_MB <= value < 1 << 31:
        raise InvalidSettingError(f"must be a number of MB, {LEAST_MEMORY_MB} or more")
    return value


def _disk(value: object, _base: Path) -> int:
    if type(value) is not int or not 1 <= value < 1 << 31:
        raise InvalidSettingError("must be a number of MB, 1 or more")
    return value


def _seconds(value: object, _base: Path) -> float:
    if type(value) not in (int, float) or not 0 < value < float("inf"):  # type: ignore[operator]  # a number
        raise InvalidSettingError("must be a number of seconds above 0")
    return float(value)  # type: ignore[arg-type]  # as above


def _variables(value: object, _base: Path) -> dict[str, str]:
    if isinstance(value, list):
        return dict(read_variable(_text(each)) for each in value)
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise InvalidSettingError('must be a table of texts, { NAME = "value" }, or a list, ["NAME"]')
    return dict(read_variable(f"{name}={each}") for name, each in value.items())


def _ports(value: object, _base: Path) -> tuple[PublishedPort, ...]:
    return tuple(read_port(each if isinstance(each, str) else str(each)) for each in _list(value))


def _network(value: object, _base: Path) -> Network:
    try:
        return Network(_text(value))
    except ValueError:
        raise InvalidSettingError(f"must be one of {', '.join(Network)}") from None


def _files(value: object, _base: Path) -> Files:
    try:
        return Files.parse(_text(value))
    except ValueError:
        raise InvalidSettingError(f"must be one of {', '.join(Files)}") from None


def _sandbox(value: object, _base: Path) -> Sandbox:
    try:
        return Sandbox(_text(value))
    except ValueError:
        raise InvalidSettingError(f"must be one of {', '.join(Sandbox)}") from None


def _reload(value: object, _base: Path) -> Reload:
    try:
        return Reload(_text(value))
    except ValueError:
        raise InvalidSettingError(f"must be one of {', '.join(Reload)}") from None


def _debug(value: object, _base: Path) -> int:
    if type(value) is not int or not 0 <= value <= MOST_DEBUG:
        raise InvalidSettingError(f"must be a whole number from 0 to {MOST_DEBUG}")
    return value


def read_place(value: object, base: Path) -> str:
    """Read where a journal is: a file, the address of a database, or `memory`."""
    word = _text(value)
    if word == MEMORY or word.startswith(SERVERS):
        return word
    if word.lower() in NO_JOURNAL:
        raise InvalidSettingError(
            f"a journal cannot be switched off: `{MEMORY}` keeps calls only while the process lives, and a "
            f"file of the name {word} is ./{word}"
        )
    path = Path(base, Path(word).expanduser()).absolute()
    if path.is_dir():
        raise InvalidSettingError("it is a directory: name a file in it")
    return str(path)


def _images(value: object, _base: Path) -> tuple[str, ...]:
    words = tuple(map(_text, value if isinstance(value, list) else [value]))
    try:
        read_image_names(words)
    except ImageError as error:
        raise InvalidSettingError(str(error)) from None
    return words


def _masks(value: object, _base: Path) -> tuple[str, ...]:
    words = tuple(map(_text, _list(value)))
    for word in words:
        if not all(word.rpartition(".")[::2]):
            raise InvalidSettingError(f"{word!r:.60} is not TOOL.ARGUMENT, in which * stands for anything")
    return words


def _patterns(value: object, _base: Path) -> tuple[str, ...]:
    words = tuple(map(_text, _list(value)))
    for word in words:
        try:
            re.compile(word)
        except re.error as error:
            raise InvalidSettingError(f"{word!r:.60} is no regular expression: {error}") from None
    return words


def _days(value: object, _base: Path) -> float:
    if type(value) not in (int, float) or not 0 < value < LONGEST_RETENTION:  # type: ignore[operator]  # a number
        raise InvalidSettingError("must be a number of days above 0")
    return float(value)  # type: ignore[arg-type]  # as above


def _model(value: object, _base: Path) -> str:
    from gramercy.gram.agents import ModelName

    try:
        return str(ModelName.parse(_text(value)))
    except SpecificationError as error:
        raise InvalidSettingError(str(error)) from None


class Key(NamedTuple):
    """One setting: how it is read, and what people are told about it.

    `project` says what of it a project's own file may say. `separator` parts the values of a list where it
    comes from the environment.
    """

    read: Callable[[Any, Path], Any]
    type: str
    default: str
    does: str
    example: str
    project: str = "less than you allow"
    separator: str = ""


KEYS: dict[str, Key] = {
    "image": Key(
        _images,
        "text, or list of texts",
        "the language of the project, else SBCL where it is installed",
        "The language of the image, or `NAME=LANGUAGE`; a list gives a server several images.",
        'image = ["sbcl", "helper=python"]',
        "anything",
        ",",
    ),
    "python": Key(
        _python,
        "text",
        "the environment of the project, else the one that is active",
        "The interpreter or virtual environment of a Python image: a path, or a version.",
        'python = "3.12"',
        "what is in the project, or a version",
    ),
    "paths": Key(
        _directories,
        "list of directories",
        "none",
        "Directories outside of the project to import from.",
        'paths = ["lib"]',
        "what is in the project",
        os.pathsep,
    ),
    "registries": Key(
        _directories,
        "list of directories",
        "none",
        "Trees of Lisp systems outside of the project, to be read.",
        'registries = ["systems"]',
        "what is in the project",
        os.pathsep,
    ),
    "init": Key(
        _file,
        "file",
        "none",
        "A file to load when an image starts.",
        'init = "setup.py"',
        "what is in the project",
    ),
    "memory": Key(
        _memory,
        f"whole number of MB, {LEAST_MEMORY_MB} or more",
        "half of what is free, 2048 or more where there is that much, for Python; 1024 for the heap of SBCL",
        "What each process of an image may use.",
        "memory = 512",
    ),
    "disk": Key(
        _disk,
        "whole number of MB, 1 or more",
        str(DISK_MB),
        "What one call may write to the project; what writes more is ended, and its files are named.",
        "disk = 256",
    ),
    "timeout": Key(
        _seconds,
        "number of seconds",
        "60",
        "After this an evaluation is interrupted; what it has changed by then stays.",
        "timeout = 30",
    ),
    "timeout_limit": Key(
        _seconds,
        "number of seconds",
        "600",
        "What a call may ask for with its argument `timeout`.",
        "timeout_limit = 120",
    ),
    "env": Key(
        _variables,
        "table of texts, or list of names",
        "none",
        "Environment variables for the image: values, or names of variables that are set where it starts.",
        'env = { GARDEN_MODE = "test" }',
        "values, but no variable that programs of the system read",
        ",",
    ),
    "publish": Key(
        _ports,
        "list of ports",
        "none",
        "Ports inside of the image that programs of this machine may reach: `PORT` or `OUTER:INNER`.",
        'publish = [8080, "8081:80"]',
        "only `[]`",
        ",",
    ),
    "network": Key(
        _network,
        '`"none"` or `"open"`',
        '`"none"`',
        "What evaluated code may connect to.",
        'network = "open"',
        'only `"none"`',
    ),
    "files": Key(
        _files,
        '`"write"` or `"read"`',
        '`"write"`',
        "What evaluated code may do with the files of the project; `read-only` is `read`.",
        'files = "read"',
    ),
    "require_sandbox": Key(
        _sandbox,
        '`"bubblewrap"` or `"landlock"`',
        "none: the best that works here, and the start says which",
        "The least sandbox that an image is started in; without it none is started.",
        'require_sandbox = "bubblewrap"',
        "more than you ask for",
    ),
    "debug_quality": Key(
        _debug,
        f"whole number from 0 to {MOST_DEBUG}",
        "2",
        "How well SBCL keeps frames and variables for errors; at 3 each tail call keeps its frame.",
        "debug_quality = 1",
        "anything",
    ),
    "reload": Key(
        _reload,
        '`"auto"`, `"tell"` or `"off"`',
        '`"auto"`',
        "What a Python image does with edited files that it has loaded: take them up, tell it, or neither.",
        'reload = "tell"',
        "anything",
    ),
    "journal": Key(
        read_place,
        "file, `postgresql://…` or `memory`",
        "`$XDG_STATE_HOME/gramercy/journal.db`",
        "Where calls and approvals are recorded. What is in memory ends with the process.",
        'journal = "/srv/gramercy/journal.db"',
        "nothing",
    ),
    "approval_wait": Key(
        _seconds,
        "number of seconds",
        "50 in a server while `gramercy approvals watch` is open, else 0",
        "How long a call waits for a person who decides elsewhere before its caller is told to come back.",
        "approval_wait = 20",
        "nothing",
    ),
    "approval_expiry": Key(
        _seconds,
        "number of seconds",
        "86400, a day",
        "How long a call can be approved; after that it is denied.",
        "approval_expiry = 3600",
        "nothing",
    ),
    "mask": Key(
        _masks,
        "list of `TOOL.ARGUMENT`",
        "none beside what sounds like a secret",
        "Arguments that the journal masks when a call is over; `*` stands for anything.",
        'mask = ["deploy.key", "*.pin"]',
        "nothing",
        ",",
    ),
    "mask_patterns": Key(
        _patterns,
        "list of regular expressions",
        "none beside the forms of common tokens",
        "Texts that the journal masks wherever they stand.",
        'mask_patterns = ["ACME-[0-9]{8}"]',
        "nothing",
        # No character is never part of a pattern; a line break is the least likely.
        "\n",
    ),
    "retention": Key(
        _days,
        "number of days",
        "none: contents are kept",
        "How long the contents of a call are kept after it is over; a server deletes them when it starts.",
        "retention = 90",
        "nothing",
    ),
    "model": Key(
        _model,
        "`Provider/id`",
        "the one that an agent names",
        "The model that answers for all agents.",
        'model = "Ollama/qwen3"',
        "nothing",
    ),
}
NUMBERS = (
    "memory",
    "disk",
    "timeout",
    "timeout_limit",
    "debug_quality",
    "approval_wait",
    "approval_expiry",
    "retention",
)


def variable(key: str) -> str:
    """Return the variable of the environment that sets a key."""
    return f"GRAMERCY_{key.upper()}"


def read_environment(variables: Mapping[str, str], base: Path) -> tuple[Settings, list[str]]:
    """Read what variables of the environment set; lists are parted by `:` (paths) or a comma."""
    table: dict[str, Any] = {}
    for key, about in KEYS.items():
        word = variables.get(variable(key))
        if word:
            table[key] = _number(word) if key in NUMBERS else word
            if about.separator:
                table[key] = [each for each in word.split(about.separator) if each]
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
