"""Fits pieces of text into lines: a group stands on one line if it can, else its breaks become newlines.

Knows nothing of gram; comments are the only thing that forces a new line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

# A signature with a few parameters stands on one line, and two files still fit side by side on a screen.
WIDTH: Final = 100
INDENT: Final = "  "
# The width of what can never stand on one line; sums of it stay comparable.
_TOO_WIDE: Final = 10**9


@dataclass(frozen=True, slots=True)
class Text:
    """Words that are never broken; `blank` asks for an empty line if a comment puts them on a new line."""

    text: str
    blank: bool = False


@dataclass(frozen=True, slots=True)
class Break:
    """A newline in a broken group, `flat` in one that fits; `blank` asks for an empty line as well."""

    flat: str = " "
    blank: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """A comment: behind what stands before it, or on a line of its own. The line ends after it."""

    text: str
    own_line: bool = False
    blank: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Pieces that break together or not at all; an indented group does what the group around it does."""

    parts: tuple[Piece, ...]
    indented: bool = False
    width: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", min(sum(map(_width, self.parts)), _TOO_WIDE))


Piece: TypeAlias = Text | Break | Note | Group
_Task: TypeAlias = tuple[int, bool, Piece]


def fit(pieces: list[Piece]) -> str:
    """Write pieces as text, in lines of at most WIDTH characters wherever breaks allow it."""
    page = _Page()
    tasks: list[_Task] = [(0, True, piece) for piece in reversed(pieces)]
    while tasks:
        level, broken, piece = tasks.pop()
        if isinstance(piece, Text):
            page.write(piece.text, level, blank=piece.blank)
        elif isinstance(piece, Note):
            page.note(piece, level)
        elif isinstance(piece, Group):
            if not piece.indented and broken:
                broken = not _fits(WIDTH - page.next_column(level) - piece.width, tasks)
            tasks.extend((level + piece.indented, broken, part) for part in reversed(piece.parts))
        elif broken:
            page.newline(level, blank=piece.blank)
        elif not page.ended:
            page.write(piece.flat, level)
    return page.text()


def _width(piece: Piece) -> int:
    if isinstance(piece, Text):
        return _TOO_WIDE if "\n" in piece.text else len(piece.text)
    if isinstance(piece, Break):
        return len(piece.flat)
    return piece.width if isinstance(piece, Group) else _TOO_WIDE


def _fits(room: int, tasks: list[_Task]) -> bool:
    # What follows a group up to the next possible break must fit behind it as well.
    following = tasks[-1:]
    below = len(tasks) - 1
    while room >= 0 and (following or below > 0):
        if not following:
            below -= 1
            following = [tasks[below]]
        level, broken, piece = following.pop()
        if isinstance(piece, Note) or (isinstance(piece, Break) and broken):
            return True
        if isinstance(piece, Group):
            following.extend((level, True, part) for part in reversed(piece.parts))
        elif isinstance(piece, Text) and "\n" in piece.text:
            return piece.text.index("\n") <= room
        else:
            room -= _width(piece)
    return room >= 0


class _Page:
    """The lines written so far; `ended` means that a comment forbids more on the current one."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.column = 0
        self.indent = ""
        self.fresh = True
        self.ended = False

    def write(self, text: str, level: int, *, blank: bool = False) -> None:
        if not text or (text == " " and (self.ended or self.fresh)):
            return
        if self.ended:
            self.newline(level, blank=blank)
        if self.fresh:
            self.pieces.append(self.indent)
            self.fresh = False
        self.pieces.append(text)
        newline = text.rfind("\n")
        self.column = self.column + len(text) if newline < 0 else len(text) - newline - 1

    def note(self, note: Note, level: int) -> None:
        if self.ended or (note.own_line and not self.fresh):
            self.newline(level, blank=note.blank)
        self.write(note.text if self.fresh else f" {note.text}", level)
        self.ended = True

    def next_column(self, level: int) -> int:
        return len(INDENT) * level if self.ended else self.column

    def newline(self, level: int, *, blank: bool) -> None:
        while self.pieces and self.pieces[-1] == " ":
            self.pieces.pop()
        self.pieces.append("\n\n" if blank else "\n")
        self.indent = INDENT * level
        self.column = len(self.indent)
        self.fresh = True
        self.ended = False

    def text(self) -> str:
        return "".join([*self.pieces, "\n"] if self.pieces else [])
