"""Markdown on a terminal as it streams: headings, emphasis, code and lists are styled while the text comes.

Nothing waits but the few characters that may still become a mark. What is styled is what models write most;
all else is shown as it was written.
"""

from __future__ import annotations

import re

from gramercy.ui.cli.terminal import visible

BOLD, DIM, CODE, HEADING = "1", "2", "36", "1;35"
_END = "\x1b[0m"
# What may stand before the first word of a line: indentation, then a mark.
_LEAD = re.compile(r"[ \t]*(#{1,6} |[-*+] |> ?|```|~~~)?")
# A mark of a line that has begun and may not be whole yet.
_OPEN = re.compile(r"[ \t]*(#{0,6}|[-*+>]|`{0,2}|~{0,2})")
_FENCES = ("```", "~~~")


class Markdown:
    """Turns the pieces of one answer into pieces of text with colours, in the order in which they come."""

    def __init__(self) -> None:
        self._waiting = ""
        self._is_at_start = True
        # Of the rest of the line, and inside of it.
        self._line_style = ""
        self._is_bold = False
        self._is_code = False
        # The fence that ends the code block that we are in.
        self._fence = ""

    def feed(self, text: str) -> str:
        """Return what can be shown now; the text of a model is made safe for a terminal first."""
        self._waiting += visible(text)
        made: list[str] = []
        while (step := self._step()) is not None:
            made.append(step)
        return "".join(made)

    def end(self) -> str:
        """Return the rest, at the end of an answer."""
        text, self._waiting = self._waiting, ""
        return self._styled(text)

    def _step(self) -> str | None:
        """Take the next part whose meaning is clear; None when more must come first."""
        if not self._waiting:
            return None
        if self._fence:
            return self._in_fence()
        return self._lead() if self._is_at_start else self._inline()

    def _in_fence(self) -> str | None:
        """Show code as it is; only the beginning of a line may be its end."""
        line, newline, rest = self._waiting.partition("\n")
        begun = line.lstrip(" ")
        if self._is_at_start and self._fence.startswith(begun) and not newline and begun != self._fence:
            return None
        if self._is_at_start and begun.rstrip() == self._fence:
            if not newline:
                return None
            self._waiting, self._fence = rest, ""
            return f"{_painted(line, DIM)}\n"
        self._waiting, self._is_at_start = rest, bool(newline)
        return _painted(line, CODE) + newline

    def _lead(self) -> str | None:
        """Read the mark at the beginning of a line."""
        if _OPEN.fullmatch(self._waiting):
            return None
        found = _LEAD.match(self._waiting)
        mark = found[1] if found else None
        if mark in _FENCES:
            return self._open_fence(mark)
        lead = found[0] if found else ""
        self._waiting, self._is_at_start = self._waiting[len(lead) :], False
        space = lead[: len(lead) - len(mark or "")]
        if mark is None:
            return space
        if mark.startswith("#"):
            self._line_style = HEADING
            return space
        return f"{space}{_painted('│ ', DIM)}" if mark.startswith(">") else f"{space}• "

    def _open_fence(self, mark: str) -> str | None:
        line, newline, rest = self._waiting.partition("\n")
        if not newline:
            return None
        self._waiting, self._fence = rest, mark
        return f"{_painted(line, DIM)}\n"

    def _inline(self) -> str | None:
        """Show text up to the next mark or line end."""
        place = next((n for n, c in enumerate(self._waiting) if c in "*`\n"), len(self._waiting))
        if place:
            text, self._waiting = self._waiting[:place], self._waiting[place:]
            return self._styled(text)
        return self._mark()

    def _mark(self) -> str | None:
        mark, rest = self._waiting[0], self._waiting[1:]
        if mark == "\n":
            self._waiting, self._is_at_start = rest, True
            self._line_style, self._is_bold, self._is_code = "", False, False
            return mark
        if mark == "`":
            self._waiting, self._is_code = rest, not self._is_code
            return ""
        if self._is_code:
            self._waiting = rest
            return self._styled(mark)
        if not rest:
            return None
        if rest[0] == "*":
            self._waiting, self._is_bold = rest[1:], not self._is_bold
            return ""
        self._waiting = rest
        return self._styled(mark)

    def _styled(self, text: str) -> str:
        styles = (self._line_style, BOLD if self._is_bold else "", CODE if self._is_code else "")
        return _painted(text, ";".join(filter(None, styles)))


def _painted(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}{_END}" if style and text else text
