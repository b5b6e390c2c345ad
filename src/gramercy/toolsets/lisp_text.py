"""Scan Common Lisp text for its objects and syntax errors. Evaluates nothing.

A scanner of the standard syntax. It knows no packages and no features: both branches of a conditional are
read, `#.` is not run, and a reader macro of a library is treated as a prefix and reported as unchecked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from gramercy.toolsets.outlines import Fault, Lines

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLANK = r" \t\n\r\f\x7f"
_ESCAPED = r"\\.|\|(?:[^|\\]++|\\.)*+\|"
_CONSTITUENTS = rf"""(?:[^{_BLANK}()"';`,|\\]|{_ESCAPED})*+"""
_ATOM = rf"""(?:[^{_BLANK}()"';`,|\\\#]|{_ESCAPED}){_CONSTITUENTS}"""
_STRING = r'"(?:[^"\\]++|\\.)*+"'
# One alternative for each kind of token. Text that matches no alternative is an unfinished escape.
_TOKEN = re.compile(
    rf"""(?P<space>[{_BLANK}]++)
    |(?P<comment>;[^\n]*+)
    |(?P<open>\()
    |(?P<close>\))
    |(?P<string>{_STRING})
    |(?P<quote>'|`|,[@.]?)
    |(?P<character>\#[0-9]*\\.{_CONSTITUENTS})
    |(?P<block>\#[0-9]*\|)
    |(?P<conditional>\#[0-9]*[+-])
    |(?P<vector>\#[0-9]*\()
    |(?P<token>\#[0-9]*[:boxrBOXR*]{_CONSTITUENTS}|\#[0-9]+\#)
    |(?P<prefix>\#[0-9]*['.=acspACSP])
    |(?P<bad>\#[0-9]*(?:[<){_BLANK}]|\Z))
    |(?P<unknown>\#[0-9]*.)
    |(?P<atom>{_ATOM})""",
    re.VERBOSE | re.DOTALL,
)
# Inside of a list these do not affect where the list ends.
_PLAIN = re.compile(rf"(?:[{_BLANK}'`,]++|;[^\n]*+|{_STRING}|{_ATOM})++", re.DOTALL)
_BLOCK = re.compile(r"#\||\|#")
_SHEBANG = re.compile(r"#![^\n]*")
_COLUMN_0 = re.compile(r"^\(", re.MULTILINE)
_PREFIXES = frozenset({"quote", "prefix", "conditional", "unknown", "bad"})
# Missing parentheses are searched one at a time, each over the rest of the text. Later faults mostly follow
# from the first few.
_MOST_FAULTS = 10
# A docstring rarely has more lines that begin with a parenthesis.
_MOST_TRIES = 20


class Item(NamedTuple):
    """One object of a text: with its prefixes from `outer`, itself from `start`, to `end`.

    `is_plain` means that its prefixes, if any, are conditionals.
    """

    outer: int
    start: int
    end: int
    kind: str
    is_plain: bool


@dataclass(slots=True)
class Scan:
    """One pass over a text, and its findings."""

    text: str
    # Comments outside of all forms.
    comments: list[tuple[int, int]] = field(default_factory=list)
    faults: list[tuple[int, str]] = field(default_factory=list)
    # Parentheses without a partner. The open ones are listed from the outermost inwards.
    unclosed: list[int] = field(default_factory=list)
    surplus: list[int] = field(default_factory=list)
    # Reader macros of libraries, and the places of #. forms, which are not run.
    unknown: dict[str, int] = field(default_factory=dict)
    evaluated: list[int] = field(default_factory=list)

    def items(self, position: int = 0, end: int | None = None) -> Iterator[Item]:
        """Read the objects between two offsets."""
        outer, wanted, is_plain = -1, 1, True
        for kind, start, after in self._tokens(position, len(self.text) if end is None else end):
            if kind == "close":
                self.surplus.append(start)
                continue
            outer = start if outer < 0 else outer
            if kind in _PREFIXES:
                # A prefix before the feature of a conditional is not part of the object.
                is_plain = is_plain and (kind == "conditional" or wanted > 1)
                wanted += kind == "conditional"
                continue
            wanted -= 1
            if wanted == 0:
                yield Item(outer, start, after, kind, is_plain)
                outer, wanted, is_plain = -1, 1, True
        if outer >= 0 and end is None and not self.faults:
            self.faults.append((outer, "nothing follows what begins here"))

    def _tokens(self, position: int, stop: int) -> Iterator[tuple[str, int, int]]:
        """Yield the first tokens of objects, a list as one token. Blanks and comments are skipped."""
        text = self.text
        if position == 0 and (shebang := _SHEBANG.match(text)):
            position = shebang.end()
        while position < stop:
            found = _TOKEN.match(text, position, stop)
            if found is None:
                self.faults.append((position, _unended(text[position])))
                return
            kind, start, position = found.lastgroup or "", position, found.end()
            if kind == "block":
                position = self._after_block(start, position, stop)
            if kind in {"block", "comment"}:
                self.comments.append((start, position))
            elif kind != "space":
                if kind in {"open", "vector"}:
                    position = self._after_list(start, position, stop)
                elif kind in _PREFIXES:
                    self._note(kind, start, found.group())
                yield kind, start, position

    def _after_list(self, start: int, position: int, stop: int) -> int:
        """Return the end of the list whose first parenthesis is at `start`."""
        text, stack = self.text, [start]
        while position < stop:
            found = _PLAIN.match(text, position, stop)
            position = found.end() if found is not None else position
            found = _TOKEN.match(text, position, stop)
            if found is None:
                if position < stop:
                    self.faults.append((position, _unended(text[position])))
                break
            kind, begin, position = found.lastgroup or "", position, found.end()
            if kind == "close":
                stack.pop()
                if not stack:
                    return position
            elif kind in {"open", "vector"}:
                stack.append(begin)
            elif kind == "block":
                position = self._after_block(begin, position, stop)
            elif kind in _PREFIXES:
                self._note(kind, begin, found.group())
        self.unclosed = stack
        return stop

    def _after_block(self, start: int, position: int, stop: int) -> int:
        """Return the end of a block comment. They nest."""
        depth = 1
        for mark in _BLOCK.finditer(self.text, position, stop):
            depth += 1 if mark.group() == "#|" else -1
            if depth == 0:
                return mark.end()
        self.faults.append((start, "the comment that begins here with #| is not closed by |#"))
        return stop

    def _note(self, kind: str, start: int, written: str) -> None:
        if kind == "bad":
            self.faults.append((start, f"{written.strip()} cannot be read"))
        elif kind == "unknown":
            self.unknown.setdefault(f"#{written[-1]}", start)
        elif written.endswith(".") and kind == "prefix":
            self.evaluated.append(start)


def _unended(mark: str) -> str:
    if mark == '"':
        return "the string that begins here is not closed"
    return (
        "the symbol that begins here is not closed by |" if mark == "|" else f"{mark} has nothing to escape"
    )


class Reading:
    """The top-level objects of a text, and its faults.

    An unclosed form is assumed to end before the next parenthesis in the first column: in indented Lisp text
    the next form begins there.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = Lines(text)
        self.items: list[Item] = []
        self.faults: list[Fault] = []
        self.comments: list[tuple[int, int]] = []
        self.unknown: dict[str, int] = {}
        self.evaluated: list[int] = []
        position = 0
        while position < len(text) and len(self.faults) < _MOST_FAULTS:
            position = self._read_from(position)

    def _read_from(self, position: int) -> int:
        """Read to the end, or to the form after an unclosed one. Return the position."""
        scan = Scan(self.text, self.comments, unknown=self.unknown, evaluated=self.evaluated)
        for item in scan.items(position):
            if scan.unclosed:
                break
            self.items.append(item)
        for place in scan.surplus:
            hint = self._surplus_hint(place) if len(self.faults) < _MOST_FAULTS else ""
            self._tell(place, "this ) closes nothing", hint)
        if not scan.unclosed:
            for place, message in scan.faults:
                self._tell(place, message, self._swallowed_hint(place))
            return len(self.text)
        return self._recovered(scan.unclosed[0], scan.faults)

    def _recovered(self, start: int, faults: list[tuple[int, str]]) -> int:
        """Report an unclosed form. Return the position where reading resumes."""
        for following in islice(_COLUMN_0.finditer(self.text, start + 1), _MOST_TRIES):
            piece = Scan(self.text)
            found = list(piece.items(start, following.start()))
            # A parenthesis in the first column may stand in a string.
            if not piece.faults:
                self._tell_unclosed(piece, following.start())
                self.items.append(
                    found[-1]._replace(kind="unclosed", end=self._content_end(following.start()))
                )
                return following.start()
        if faults:
            for place, message in faults:
                self._tell(place, message, self._swallowed_hint(place))
        else:
            piece = Scan(self.text)
            list(piece.items(start))
            self._tell_unclosed(piece, len(self.text))
        self.items.append(Item(start, start, self._content_end(len(self.text)), "unclosed", is_plain=True))
        return len(self.text)

    def _content_end(self, end: int) -> int:
        """Return the end of the text before an offset, without blanks."""
        return len(self.text[:end].rstrip())

    def _tell(self, place: int, message: str, hint: str = "") -> None:
        self.faults.append(Fault(*self.lines.place(place), message, hint))

    def _tell_unclosed(self, piece: Scan, end: int) -> None:
        missing = len(piece.unclosed)
        marks = f"{missing} )" if missing > 1 else "a )"
        last = self.lines.number(self._content_end(end) - 1)
        hint = (
            self._misindented(piece.unclosed[0], end) or f"{marks} may be missing at the end of line {last}"
        )
        verb = "are" if missing > 1 else "is"
        self._tell(
            piece.unclosed[0], f"the form that begins here is not closed: {marks} {verb} missing", hint
        )

    def _misindented(self, start: int, end: int) -> str:
        """Describe which list should have ended before a line, by the indentation of that line."""
        stack: list[int] = []
        last = self.lines.number(start)
        for kind, begin, _ in tokens(self.text, start, end):
            line, column = self.lines.place(begin)
            if line != last and stack and kind != "close" and column <= self.lines.place(stack[-1])[1]:
                opened = self.lines.place(stack[-1])[0]
                return (
                    f"by the indentation of line {line}, the list that begins on line {opened} "
                    f"({_beginning(self.text, stack[-1])}) should end on line {last}"
                )
            last = line
            if kind in {"open", "vector"}:
                stack.append(begin)
            elif kind == "close" and stack:
                stack.pop()
        return ""

    def _surplus_hint(self, place: int) -> str:
        """Describe which form may have ended too early, where later lines are indented as its own."""
        before = [item for item in self.items if item.end <= place]
        tops = [item for item in before if item.outer == self.lines.start(item.outer)]
        if not tops:
            return ""
        first, last = self.lines.number(tops[-1].outer), self.lines.number(tops[-1].end - 1)
        if before[-1] is tops[-1]:
            return f"the form that begins on line {first} has ended before it, on line {last}"
        following = self.lines.number(before[before.index(tops[-1]) + 1].outer)
        return (
            f"the form that begins on line {first} ends already on line {last}, "
            f"and line {following} is indented as if it went on"
        )

    def _swallowed_hint(self, place: int) -> str:
        """Describe which earlier string may lack its end, where one covers the beginning of a form."""
        for found in re.finditer(_STRING, self.text[:place], re.DOTALL):
            if "\n(" in found.group():
                line = self.lines.number(found.start())
                return f"the string from line {line} on goes over the start of a form: it may lack its end"
        return ""


def tokens(text: str, position: int, stop: int) -> Iterator[tuple[str, int, int]]:
    """Yield the tokens between two offsets, each parenthesis as one, without blanks and comments."""
    while position < stop:
        found = _TOKEN.match(text, position, stop)
        if found is None:
            return
        kind, start, position = found.lastgroup or "", position, found.end()
        if kind == "block":
            position = Scan(text)._after_block(start, position, stop)  # noqa: SLF001 - of this module
        elif kind not in {"space", "comment"}:
            yield kind, start, position


def _beginning(text: str, start: int) -> str:
    """Return the first word of a list."""
    word = re.compile(r"\(\s*[^\s()]*").match(text, start)
    return word.group()[:40] if word else "("


def ends_in_comment(text: str) -> bool:
    """Return whether text appended to this one would be in a comment."""
    last = text.rpartition("\n")[2]
    if ";" not in last:
        return False
    kinds = [token.lastgroup for token in _TOKEN.finditer(text)]
    return bool(kinds) and kinds[-1] == "comment"


def string_of(text: str) -> str:
    """Format a text as a Lisp string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
