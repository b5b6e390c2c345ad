"""Read the user's own ASDF configuration: the directories of Lisp systems outside of any project.

ASDF would read it itself, but inside an image HOME is another directory, and the directories have to be
granted before the start. Nothing is evaluated: of the Lisp syntax only lists, strings and keywords are
parsed.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from gramercy.directories import config_home, data_directories, data_home
from gramercy.text import reason_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VARIABLE = "CL_SOURCE_REGISTRY"
# A real configuration has a few lines.
LARGEST_FILE = 1 << 20
# A configuration may include itself.
DEEPEST_INCLUSION = 5
_TOKEN = re.compile(
    r'(?:\s|;[^\n]*|#\|.*?\|#)*(?:([()])|(?:#[pP])?"((?:[^"\\]|\\.)*)"|([^\s()";]+))', re.DOTALL
)
_BLANK = re.compile(r"(?:\s|;[^\n]*|#\|.*?\|#)*\Z", re.DOTALL)

Datum: TypeAlias = "str | Word | list[Datum]"


class Word(msgspec.Struct, frozen=True):
    """A symbol or keyword, in lower case and without its package."""

    name: str


class Place(msgspec.Struct, frozen=True):
    """A directory that the user names. `is_tree` includes everything below it."""

    path: Path
    is_tree: bool
    origin: str


class Registry(msgspec.Struct):
    """The content of a configuration. `inherits` tells whether the next configuration counts too."""

    places: list[Place] = msgspec.field(default_factory=list)
    excluded: list[str] = msgspec.field(default_factory=list)
    problems: list[str] = msgspec.field(default_factory=list)
    inherits: bool = True


def user_registry(environ: Mapping[str, str], home: Path) -> Registry:
    """Return the configuration that ASDF would read for this user, in its order of preference."""
    found = Registry()
    _read_variable(found, environ.get(VARIABLE, ""), home)
    _read_files(found, config_home(environ, home) / "common-lisp", home)
    if found.inherits:
        _add_present(found, [home / "common-lisp", data_home(environ, home) / "common-lisp/source"])
        _read_files(found, Path("/etc/common-lisp"), home)
    if found.inherits:
        _add_present(found, [shared / "common-lisp/source" for shared in data_directories(environ)])
    return found


def is_directory(path: Path) -> bool:
    """Return whether a directory exists. Unlike for Path.is_dir, EACCES is not an error."""
    return os.path.isdir(path)  # noqa: PTH112 - see above


def _add_present(found: Registry, paths: Iterable[Path]) -> None:
    """Add the default directories that exist."""
    found.places += [Place(path, is_tree=True, origin="by default") for path in paths if is_directory(path)]


def _read_files(found: Registry, directory: Path, home: Path) -> None:
    """Read source-registry.conf, and then the files of source-registry.conf.d."""
    if found.inherits:
        _read_file(found, directory / "source-registry.conf", home)
    if found.inherits:
        with suppress(OSError):
            for file in sorted((directory / "source-registry.conf.d").iterdir()):
                if file.suffix == ".conf":
                    _read_file(found, file, home)


def _read_file(found: Registry, file: Path, home: Path, depth: int = 0) -> None:
    try:
        with file.open(encoding="utf-8") as opened:
            data = read_data(opened.read(LARGEST_FILE))
    except FileNotFoundError:
        return
    except OSError as error:
        found.problems.append(f"{file} is left out: it cannot be read ({reason_of(error)})")
        return
    except ValueError as error:
        found.problems.append(f"{file} is left out: {error}")
        return
    for each in data:
        directives = each[1:] if isinstance(each, list) and each[:1] == [Word("source-registry")] else [each]
        for directive in directives:
            _add(found, directive, str(file), home, depth)


def _read_variable(found: Registry, text: str, home: Path) -> None:
    """Parse the variable: a list in parentheses, or paths separated by colons. An empty one inherits."""
    if text.lstrip().startswith("("):
        try:
            (whole,) = read_data(text)
        except ValueError as error:
            found.problems.append(f"{VARIABLE} is left out: {error}")
            return
        for directive in whole[1:] if isinstance(whole, list) else [whole]:
            _add(found, directive, VARIABLE, home, 0)
        return
    if not text:
        return
    parts = text.split(":")
    found.inherits = "" in parts
    for part in filter(None, parts):
        path = Path(part).expanduser()
        if path.is_absolute():
            found.places.append(Place(path, is_tree=part.endswith("//"), origin=VARIABLE))
        else:
            found.problems.append(f"{part!r} of {VARIABLE} is left out: it is not an absolute path")


def _add(found: Registry, directive: Datum, origin: str, home: Path, depth: int) -> None:
    """Add the directories of one directive."""
    match directive:
        case Word("ignore-inherited-configuration"):
            found.inherits = False
        case Word("inherit-configuration" | "ignore-invalid-entries" | "default-registry"):
            pass
        case [Word("directory" | "tree" as kind), place]:
            path = _location(place, origin, home)
            if path is None:
                found.problems.append(
                    f"an entry of {origin} is left out: {_shown(directive)} is not understood"
                )
            else:
                found.places.append(Place(path, kind == "tree", origin))
        case [Word("exclude" | "also-exclude"), *names]:
            found.excluded += [name for name in names if isinstance(name, str)]
        case [Word("include"), place] if depth < DEEPEST_INCLUSION:
            path = _location(place, origin, home)
            if path is not None:
                _read_file(found, path, home, depth + 1)
        case _:
            found.problems.append(f"an entry of {origin} is left out: {_shown(directive)} is not understood")


def _location(datum: Datum, origin: str, home: Path) -> Path | None:
    """Return the path of a location, None for one that only ASDF can resolve."""
    parts = datum if isinstance(datum, list) else [datum]
    starts = {"home": home, "root": Path("/"), "here": Path(origin).parent}
    path: Path | None = None
    for part in parts:
        if path is None and isinstance(part, Word) and part.name in starts:
            path = starts[part.name]
        elif isinstance(part, str) and (path is not None or part.startswith(("/", "~/"))):
            path = Path(part).expanduser() if path is None else path / part
        else:
            return None
    return path if path is not None and path.is_absolute() else None


def _shown(datum: Datum) -> str:
    if isinstance(datum, list):
        return f"({' '.join(map(_shown, datum))})"
    return f":{datum.name}" if isinstance(datum, Word) else lisp_string(datum)


def read_data(text: str) -> list[Datum]:
    """Parse lists, strings and symbols. Raise ValueError for anything else."""
    stack: list[list[Datum]] = [[]]
    place = 0
    while not _BLANK.match(text, place):
        token = _TOKEN.match(text, place)
        if token is None:
            raise ValueError(f"a string is not closed in line {_line(text, place)}")
        mark, string, word = token.groups()
        place = token.end()
        if mark == "(":
            stack.append([])
        elif mark == ")":
            if len(stack) == 1:
                raise ValueError(f"there is a parenthesis too many in line {_line(text, place)}")
            closed = stack.pop()
            stack[-1].append(closed)
        elif word is not None:
            stack[-1].append(Word(word.rpartition(":")[2].lower()))
        else:
            stack[-1].append(re.sub(r"\\(.)", r"\1", string, flags=re.DOTALL))
    if len(stack) > 1:
        raise ValueError("a parenthesis is not closed")
    return stack[0]


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def lisp_string(text: str) -> str:
    """Format a text as a Lisp string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
