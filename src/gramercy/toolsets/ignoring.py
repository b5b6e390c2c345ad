"""Git's patterns for file names: which files a .gitignore excludes, and which files a glob selects.

Git compares bytes, so names are compared here as texts in which each character stands for one byte. The
engine for regular expressions takes linear time: evaluated code may write any .gitignore.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from gramercy.errors import InvalidSchemaError
from gramercy.gram.json_schema import compile_cached

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# Many times what any kind of project has.
MOST_RULES = 5_000
# An alternation of some hundred patterns stays far below the engine's limit for one expression.
IN_ONE = 200
_SPECIAL = frozenset("*?[\\")
_SLASH = ord("/")
_BACKSLASH = "\\"
# The length of "**" in a pattern.
_TWO = 2


def _ascii(wanted: Callable[[str], bool]) -> frozenset[int]:
    return frozenset(code for code in range(128) if wanted(chr(code)))


_CLASSES = {
    "alnum": _ascii(str.isalnum),
    "alpha": _ascii(str.isalpha),
    "blank": frozenset(b" \t"),
    "cntrl": frozenset({*range(32), 127}),
    "digit": _ascii(str.isdigit),
    "graph": frozenset(range(33, 127)),
    "lower": _ascii(str.islower),
    "print": frozenset(range(32, 127)),
    "punct": frozenset(range(33, 127)) - _ascii(str.isalnum),
    "space": frozenset(b" \t\n\r\v\f"),
    "upper": _ascii(str.isupper),
    "xdigit": frozenset(b"0123456789abcdefABCDEF"),
}


def as_bytes(name: str) -> str:
    """Return a name as a text in which each character is one byte of it."""
    return name if name.isascii() else os.fsencode(name).decode("latin-1")


class _MalformedError(Exception):
    """A pattern that cannot match anything. It never leaves this module."""


def expression(pattern: str) -> str | None:
    """Return a regular expression for a pattern without slashes at its ends. None when it matches nothing."""
    # Git compares the part without wildcards first and treats the rest as if it were the beginning.
    plain = _plain_length(pattern)
    try:
        rest = "".join(_pieces(pattern[plain:]))
    except _MalformedError:
        return None
    return "".join(map(_literal, pattern[:plain])) + rest


def _literal(character: str) -> str:
    return character if character.isalnum() and character.isascii() else f"\\x{ord(character):02x}"


def _pieces(pattern: str) -> Iterator[str]:
    place = 0
    while place < len(pattern):
        character = pattern[place]
        if character == "*":
            end = place
            while pattern[end : end + 1] == "*":
                end += 1
            piece, place = _stars(pattern, place, end)
            yield piece
        elif character == "[":
            piece, place = _bracket(pattern, place)
            yield piece
        elif character == "?":
            yield "[^/]"
            place += 1
        else:
            place += character == _BACKSLASH
            if place == len(pattern):
                raise _MalformedError
            yield _literal(pattern[place])
            place += 1


def _stars(pattern: str, start: int, end: int) -> tuple[str, int]:
    """Return the expression of stars and the next position. Two stars between slashes cross directories."""
    is_free = start == 0 or pattern[start - 1] == "/"
    rest = pattern[end : end + 2]
    if end - start < _TWO or not is_free or (rest and rest[0] != "/" and rest != "\\/"):
        return "[^/]*", end
    return ("(?:[\\x00-\\xff]*/)?", end + 1) if rest[:1] == "/" else ("[\\x00-\\xff]*", end)


def _bracket(pattern: str, start: int) -> tuple[str, int]:
    """Return the expression of a character set and the next position."""
    place = start + 1
    is_negated = pattern[place : place + 1] in {"!", "^"}
    place += is_negated
    chosen, place = _members(pattern, place)
    codes = (set(range(256)) - chosen if is_negated else chosen) - {_SLASH}
    if not codes:
        raise _MalformedError
    return "[" + "".join(f"\\x{code:02x}" for code in sorted(codes)) + "]", place


def _members(pattern: str, place: int) -> tuple[set[int], int]:
    """Return the characters of a set and the position after it. The first may be a closing bracket."""
    chosen: set[int] = set()
    before, is_first = -1, True
    while is_first or _at(pattern, place) != "]":
        is_first, character = False, _at(pattern, place)
        if character == "-" and before >= 0 and pattern[place + 1 : place + 2] not in {"", "]"}:
            place += 1 + (pattern[place + 1] == _BACKSLASH)
            chosen |= set(range(before, ord(_at(pattern, place)) + 1))
            before = -1
        elif (name := _class_at(pattern, place)) is not None:
            if name not in _CLASSES:
                raise _MalformedError
            chosen |= _CLASSES[name]
            before, place = -1, place + len(name) + 3
        else:
            place += character == _BACKSLASH
            before = ord(_at(pattern, place))
            chosen.add(before)
        place += 1
    return chosen, place + 1


def _at(pattern: str, place: int) -> str:
    if place >= len(pattern):
        raise _MalformedError
    return pattern[place]


def _class_at(pattern: str, place: int) -> str | None:
    """Return the name of a class such as [:alpha:], None where there is no class."""
    if not pattern.startswith("[:", place):
        return None
    end = pattern.find("]", place + 2)
    if end < 0:
        raise _MalformedError
    return pattern[place + 2 : end - 1] if end > place + 2 and pattern[end - 1] == ":" else None


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a .gitignore. `by_name` rules match the name alone, the others the path from the file."""

    pattern: str
    negated: bool = False
    directories: bool = False
    by_name: bool = True

    @classmethod
    def read(cls, line: bytes) -> Rule | None:
        """Parse a line. None for an empty line or a comment."""
        text = _untrailed(line.partition(b"\0")[0].decode("latin-1"))
        if not text or text.startswith("#"):
            return None
        negated = text.startswith("!")
        text = text[negated:]
        directories = text.endswith("/")
        text = text[: len(text) - directories]
        return cls(text.removeprefix("/"), negated, directories, "/" not in text)


def _untrailed(text: str) -> str:
    """Return a line without trailing spaces, except for those that a backslash protects."""
    end, place = 0, 0
    while place < len(text):
        if text[place] != " ":
            place += text[place] == _BACKSLASH
            end = place + 1
        place += 1
    return text[:end]


class Rules:
    """The rules of one file. The last rule that matches decides.

    Nearly all rules are a name, an ending or a path, and nearly all files match no rule. Those cases need no
    regular expression.
    """

    def __init__(self, data: bytes) -> None:
        lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")[:MOST_RULES]
        read = (Rule.read(line.removesuffix(b"\r")) for line in lines)
        self._rules = [rule for rule in read if rule is not None and rule.pattern]
        named = [each for rule in self._rules if rule.by_name for each in _spelled(rule.pattern)]
        paths = [rule.pattern for rule in self._rules if not rule.by_name]
        self._names = frozenset(filter(_is_plain, named))
        self._endings = tuple(name[1:] for name in named if name[0] == "*" and _is_plain(name[1:]))
        self._others = [name for name in named if not _is_plain(name.removeprefix("*"))]
        self._places = frozenset(filter(_is_plain, paths))
        self._wild = [path for path in paths if not _is_plain(path)]
        self._beginnings = tuple(path[: _plain_length(path)] for path in self._wild)
        self._has_paths = bool(paths)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def ignores(self, name: str, folder: str, *, is_folder: bool) -> bool | None:
        """Return whether a file is excluded, None without a rule. `folder` is relative to the rules' file."""
        if not (
            name in self._names
            or name.endswith(self._endings)
            or (self._others and self._fits_name(as_bytes(name)))
            or (self._has_paths and self._may_fit(folder + name))
        ):
            return None
        texts = as_bytes(folder + name), as_bytes(name)
        for rule, fits in self._matchers:
            if (is_folder or not rule.directories) and fits(texts[rule.by_name]):
                return not rule.negated
        return None

    def chosen(self, names: list[str], folder: str) -> list[str]:
        """Return the names in a directory that the rules match. As globs they select files."""
        if not self._others and not self._has_paths:
            known, endings = self._names, self._endings
            return [name for name in names if name in known or name.endswith(endings)]
        return [name for name in names if self.ignores(name, folder, is_folder=False)]

    def _may_fit(self, path: str) -> bool:
        if path in self._places:
            return True
        text = as_bytes(path)
        return text.startswith(self._beginnings) and self._fits_path(text)

    @cached_property
    def _fits_name(self) -> Callable[[str], bool]:
        return any_of(self._others)

    @cached_property
    def _fits_path(self) -> Callable[[str], bool]:
        return any_of(self._wild)

    @cached_property
    def _matchers(self) -> list[tuple[Rule, Callable[[str], bool]]]:
        return [(rule, any_of([rule.pattern])) for rule in reversed(self._rules)]


def _spelled(pattern: str) -> list[str]:
    """Expand one set of letters, such as *.py[cod], to one pattern for each. Else return the pattern."""
    head, bracket, tail = pattern.partition("[")
    letters, end, rest = tail.partition("]")
    if bracket and end and letters.isalnum() and letters.isascii() and _is_plain(rest):
        return [f"{head}{letter}{rest}" for letter in letters]
    return [pattern]


def _plain_length(pattern: str) -> int:
    return next((n for n, character in enumerate(pattern) if character in _SPECIAL), len(pattern))


def _is_plain(pattern: str) -> bool:
    return pattern.isascii() and not _SPECIAL.intersection(pattern)


def any_of(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Return a function that tests whether a whole text matches one of the patterns."""
    found = [made for made in map(expression, patterns) if made is not None]
    tests = [_compiled(found[start : start + IN_ONE]) for start in range(0, len(found), IN_ONE)]
    if len(tests) == 1:
        return tests[0]
    return lambda text: any(test(text) for test in tests)


def _compiled(expressions: list[str]) -> Callable[[str], bool]:
    try:
        pattern = f"^(?:{'|'.join(expressions)})$"
        return compile_cached({"type": "string", "pattern": pattern}).is_valid
    except InvalidSchemaError:
        # The pattern is too large for the engine. Skip it rather than exclude all files.
        return lambda _: False
