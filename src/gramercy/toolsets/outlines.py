"""An outline of a source text: the common result of the readers of each language.

They read text and evaluate nothing. Offsets count characters from 0, lines and columns from 1.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from gramercy.text import cut
from gramercy.toolsets.documents import lines

if TYPE_CHECKING:
    from collections.abc import Callable


# Twenty names of a list fit into an error of 4,000 characters, the limit of the guard.
LONGEST_NAME = 150


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition, or another top-level form, and its place.

    The form itself is from `start` to `end`. Its decorators or conditionals such as `#+sbcl` begin at
    `outer`, and the comments right above it at `lead`. `exact` names it where `name` is ambiguous. `keys` are
    the names under which it is found. `weak_keys` count only when no definition has the name as a key.
    `parent` is the name of the enclosing definition. `is_alone` tells that its lines hold nothing else.
    """

    kind: str
    name: str
    exact: str
    lead: int
    outer: int
    start: int
    end: int
    line: int
    last_line: int
    keys: frozenset[str] = frozenset()
    weak_keys: frozenset[str] = frozenset()
    package: str = ""
    parent: str = ""
    is_alone: bool = True
    is_documented: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at a place. `hint` says where the cause may be."""

    line: int
    column: int
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Outline:
    """The definitions of a text in their order, the number of its top-level forms, and its faults.

    `unchecked` lists parts that were not checked, such as reader macros of libraries. `suspicions` lists text
    that can be parsed but was hardly meant.
    """

    definitions: list[Definition] = field(default_factory=list)
    forms: int = 0
    faults: list[Fault] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    suspicions: list[str] = field(default_factory=list)


class Lines:
    """The lines of a text by number, and the line numbers of offsets."""

    def __init__(self, text: str) -> None:
        self.all = lines(text)
        self.starts = [0, *accumulate(map(len, self.all))]

    def number(self, offset: int) -> int:
        """Return the line number of an offset. The end of the text is in the last line."""
        return min(bisect_right(self.starts, offset), max(1, len(self.all)))

    def start(self, offset: int) -> int:
        """Return the start of an offset's line."""
        return self.starts[self.number(offset) - 1]

    def place(self, offset: int) -> tuple[int, int]:
        """Return the line and column of an offset."""
        number = self.number(offset)
        return number, offset - self.starts[number - 1] + 1

    def text(self, number: int) -> str:
        """Return a line without its end."""
        return self.all[number - 1].rstrip("\r\n") if 0 < number <= len(self.all) else ""


@dataclass(frozen=True, slots=True)
class Language:
    """The functions for texts in a language.

    `outline` reads a whole text and `part` a piece of one. `key` turns the name that a caller gives into a
    key of definitions. `fitted` indents code for its place in a file: it takes the code, the indentation, and
    the text of the file. `comment` begins a comment. `gap` is the number of blank lines between definitions,
    at top level and further in, where a file does not show it.
    """

    name: str
    outline: Callable[[str], Outline]
    part: Callable[[str], Outline]
    key: Callable[[str], str]
    fitted: Callable[[str, str, str], str]
    comment: str
    gap: tuple[int, int]


def indentation(line: str) -> str:
    """Return the leading blanks of a line."""
    return line[: len(line) - len(line.lstrip(" \t\f"))]


def shortened(name: str) -> str:
    """Return a name short enough for a list of names."""
    return cut(name, LONGEST_NAME)
