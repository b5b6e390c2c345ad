"""Kinds of values that settings have: how a file says them, how an option does, and which of two counts.

Knows neither where a value comes from nor the library that reads the command line.
"""

from __future__ import annotations

import os
import re
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gramercy.errors import ImageError, InvalidSettingError, SpecificationError
from gramercy.gram.suggestion import did_you_mean
from gramercy.images.environment import LANGUAGES
from gramercy.journal.base import MEMORY, SERVERS
from gramercy.workbench.plugins import load_plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from enum import StrEnum

# A hundred years, in days: more is a slip.
LONGEST_RETENTION = 36_525
# What a program can be given as a number.
LARGEST = (1 << 31) - 1
# Names of images are part of addresses and are repeated in every listing.
LONGEST_NAME = 40
# Who writes one of these wants no journal, and would get a file of that name.
NO_JOURNAL = frozenset({"none", "no", "off", "false", "null"})


class Takes(Enum):
    """What a word of the command line must be."""

    TEXT = "text"
    WHOLE = "whole number"
    NUMBER = "number above 0"
    FILE = "file that is there"
    DIRECTORY = "directory that is there"


def nearest(nearer: Any, farther: Any) -> Any:
    """Return the nearer of two values."""
    return farther if nearer is None else nearer


def united(nearer: Iterable[Any], farther: Iterable[Any]) -> tuple[Any, ...]:
    """Return both lists as one, the nearer first."""
    return tuple(dict.fromkeys((*nearer, *farther)))


def added(nearer: Mapping[str, str], farther: Mapping[str, str]) -> dict[str, str]:
    """Return both tables as one, in which the nearer counts."""
    return {**farther, **nearer}


def lower(allowed: Any, asked: Any) -> Any:
    """Return the lower of two numbers; None is no number."""
    return min((each for each in (allowed, asked) if each is not None), default=None)


def only(least: Any) -> Callable[[Any, Any], Any]:
    """Return what lets a project ask for the least and nothing else."""
    return lambda allowed, asked: least if asked == least else allowed


class Kind(NamedTuple):
    """A kind of values.

    `read` makes one of what a file says, with paths relative to a directory, and `told` of one word of an
    option; `gather` joins the words of an option that can be given several times. `separator` parts the
    values of a list where it comes from the environment. `over` tells which of two sources counts. What is a
    place is written as it holds in every directory.
    """

    read: Callable[[Any, Path], Any]
    type: str
    told: Callable[[Any], Any] = lambda word: word
    gather: Callable[[Iterable[Any]], Any] | None = None
    separator: str = ""
    over: Callable[[Any, Any], Any] = nearest
    takes: Takes = Takes.TEXT
    choices: tuple[str, ...] = ()
    range: tuple[int, int | None] = (0, None)
    metavar: str | None = None
    unit: str = ""
    is_place: bool = False

    @property
    def is_number(self) -> bool:
        """Whether a word is read as a number before it is looked at."""
        return self.takes in (Takes.WHOLE, Takes.NUMBER)


def text(value: object) -> str:
    """Return a text that says something."""
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise InvalidSettingError("must be a text that is not empty")
    return value


def listed(value: object) -> list[Any]:
    """Return a list."""
    if not isinstance(value, list):
        raise InvalidSettingError("must be a list: [...]")
    return value


def _directories(value: object, base: Path) -> tuple[Path, ...]:
    found = tuple(Path(base, Path(text(each)).expanduser()).resolve() for each in listed(value))
    for path in found:
        if not path.is_dir():
            raise InvalidSettingError(f"there is no directory {path}")
    return found


def _file(value: object, base: Path) -> Path:
    path = Path(base, Path(text(value)).expanduser()).resolve()
    if not path.is_file():
        raise InvalidSettingError(f"there is no file {path}")
    return path


def _number_of(what: str, end: float) -> Callable[[object, Path], float]:
    def read(value: object, _base: Path) -> float:
        if type(value) not in (int, float) or not 0 < value < end:  # type: ignore[operator]  # a number
            raise InvalidSettingError(f"must be a number of {what} above 0")
        return float(value)  # type: ignore[arg-type]  # as above

    return read


def _resolved(word: str) -> Path:
    return Path(word).resolve()


def whole(least: int, most: int | None, what: str, fault: str = "", unit: str = "") -> Kind:
    """Return the kind of whole numbers in a range; without an end, those that a program can be given."""

    def read(value: object, _base: Path) -> int:
        if type(value) is not int or not least <= value <= (LARGEST if most is None else most):
            raise InvalidSettingError(f"must be a {fault or what}")
        return value

    return Kind(read, what, takes=Takes.WHOLE, range=(least, most), metavar=unit.strip() or None, unit=unit)


def megabytes(least: int) -> Kind:
    """Return the kind of sizes that are not below the least."""
    fault = f"number of MB, {least} or more"
    return whole(least, None, f"whole {fault}", fault, " MB")


def one_of(
    names: type[StrEnum], what: str, parse: Callable[[str], StrEnum] | None = None, *further: str
) -> Kind:
    """Return the kind of some words; `further` are other spellings that `parse` knows."""
    told = parse or names

    def read(value: object, _base: Path) -> StrEnum:
        try:
            return told(text(value))
        except ValueError:
            raise InvalidSettingError(f"must be one of {', '.join(names)}") from None

    return Kind(read, what, told, choices=(*(each.value for each in names), *further))


def list_of(check: Callable[[str], None], what: str, separator: str) -> Kind:
    """Return the kind of lists of words, each of which is checked."""

    def read(value: object, _base: Path) -> tuple[str, ...]:
        found = tuple(map(text, listed(value)))
        for word in found:
            check(word)
        return found

    return Kind(read, what, separator=separator, over=united)


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
    word = text(value)
    path = Path(base, Path(word).expanduser())
    # A name without a slash may be a version; a directory of that name is nearer.
    return str(path) if "/" in word or path.exists() else word


def _told_python(word: str) -> str:
    """Make a path absolute as long as it is known where the command was given; a version stays one."""
    if not (Path(word).expanduser().exists() or "/" in word):
        return word
    # The name is kept: a link to an interpreter tells which environment is meant.
    return str(Path(word).expanduser().absolute())


def _place(value: object, base: Path) -> str:
    """Read where a journal is: a file, the address of a database, or `memory`."""
    word = text(value)
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


def _told_place(word: str) -> str:
    return _place(word, Path.cwd())


def _images(value: object, _base: Path) -> tuple[str, ...]:
    words = tuple(map(text, value if isinstance(value, list) else [value]))
    try:
        read_image_names(words)
    except ImageError as error:
        raise InvalidSettingError(str(error)) from None
    return words


def _check_mask(word: str) -> None:
    if not all(word.rpartition(".")[::2]):
        raise InvalidSettingError(f"{word!r:.60} is not TOOL.ARGUMENT, in which * stands for anything")


def _check_pattern(word: str) -> None:
    try:
        re.compile(word)
    except re.error as error:
        raise InvalidSettingError(f"{word!r:.60} is no regular expression: {error}") from None


def _model(value: object, _base: Path) -> str:
    from gramercy.gram.agents import ModelName

    try:
        return str(ModelName.parse(text(value)))
    except SpecificationError as error:
        raise InvalidSettingError(str(error)) from None


DIRECTORIES = Kind(
    _directories,
    "list of directories",
    _resolved,
    gather=tuple,
    separator=os.pathsep,
    over=united,
    takes=Takes.DIRECTORY,
    is_place=True,
)
FILE = Kind(_file, "file", _resolved, takes=Takes.FILE, metavar="FILE", is_place=True)
SECONDS = Kind(
    _number_of("seconds", float("inf")), "number of seconds", takes=Takes.NUMBER, metavar="SECONDS", unit=" s"
)
DAYS = Kind(_number_of("days", LONGEST_RETENTION), "number of days", takes=Takes.NUMBER)
IMAGES = Kind(
    _images, "text, or list of texts", separator=",", over=lambda nearer, farther: nearer or farther
)
PYTHON = Kind(_python, "text", _told_python, metavar="PROGRAM|DIRECTORY|VERSION", is_place=True)
JOURNAL = Kind(
    _place,
    "file, `postgresql://…` or `memory`",
    _told_place,
    metavar="FILE|postgresql://…|memory",
    is_place=True,
)
MASKS = list_of(_check_mask, "list of `TOOL.ARGUMENT`", ",")
# No character is never part of a pattern; a line break is the least likely.
PATTERNS = list_of(_check_pattern, "list of regular expressions", "\n")
MODEL = Kind(_model, "`Provider/id`")
