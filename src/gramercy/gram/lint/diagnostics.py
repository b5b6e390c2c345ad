"""Diagnostics: what a linter found and where, in the shape that editors and other gram programs understand.

Positions are those of the Language Server Protocol: lines and UTF-16 units, both counted from 0.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gramercy.gram.syntax.tree import Span

# The `schema_version` of the JSON report that gram programs share.
REPORT_VERSION: Final = 1
_NEWLINE: Final = re.compile("\n")
# Characters that take two UTF-16 units.
_WIDE: Final = re.compile("[\U00010000-\U0010ffff]")


class Severity(StrEnum):
    """How much a finding matters; information alone does not make a text unclean."""

    ERROR = "error"
    WARNING = "warning"
    INFORMATION = "information"


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of finding."""

    code: str
    severity: Severity
    summary: str


_ERROR, _WARNING, _INFORMATION = Severity.ERROR, Severity.WARNING, Severity.INFORMATION
RULES: Final = {
    rule.code: rule
    for rule in (
        Rule("syntax-error", _ERROR, "the text is not gram"),
        Rule("missing-node", _ERROR, "the text ends before something is closed"),
        Rule("duplicate-element", _ERROR, "a name is defined twice"),
        Rule("duplicate-key", _ERROR, "a record has the same key twice"),
        Rule("A101", _ERROR, "an agent has no instruction or no usable model"),
        Rule("A102", _ERROR, "an agent has two tools of one name"),
        Rule("A103", _ERROR, "a tool has no usable signature, or an unknown type"),
        Rule("A104", _ERROR, "a default does not fit its type"),
        Rule("A105", _ERROR, "a tool has no description"),
        Rule("A106", _WARNING, "a parameter has no name"),
        Rule("A107", _ERROR, "an agent refers to a tool that is not defined"),
        Rule("A108", _WARNING, "the syntax is not portable"),
        Rule("A109", _ERROR, "no implementation fits the tool"),
        Rule("A110", _WARNING, "a stored schema differs from the signature"),
        Rule("A111", _INFORMATION, "a tool name is not snake_case"),
        Rule("A112", _ERROR, "a tool is specified as safer than its implementation"),
        Rule("A113", _INFORMATION, "fields in a list are not portable"),
    )
}


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place between two characters: 0-based line, 0-based UTF-16 unit in the line."""

    line: int
    character: int


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding."""

    code: str
    message: str
    start: Position
    end: Position

    @property
    def severity(self) -> Severity:
        """How much the finding matters."""
        return RULES[self.code].severity

    def moved(self, lines: int) -> Diagnostic:
        """Return the same finding further down, for text that stands inside another."""
        start, end = self.start, self.end
        return replace(
            self, start=replace(start, line=start.line + lines), end=replace(end, line=end.line + lines)
        )

    def to_json(self) -> dict[str, Any]:
        """Return the finding in the shape of a report."""
        places = {"start": self.start, "end": self.end}
        return {
            "severity": self.severity.value,
            "message": self.message,
            "range": {key: {"line": at.line, "character": at.character} for key, at in places.items()},
            "code": self.code,
        }


class Lines:
    """The lines of a text, to turn offsets into positions; made once for many lookups."""

    def __init__(self, text: str) -> None:
        self.length = len(text)
        self.starts = [0, *(match.end() for match in _NEWLINE.finditer(text))]
        self.wide = [match.start() for match in _WIDE.finditer(text)]

    def position(self, offset: int) -> Position:
        """Return the position of an offset; one outside of the text is moved to its edge."""
        offset = min(max(0, offset), self.length)
        line = bisect_right(self.starts, offset) - 1
        start = self.starts[line]
        wide = bisect_left(self.wide, offset) - bisect_left(self.wide, start)
        return Position(line, offset - start + wide)

    def diagnostic(self, code: str, message: str, span: Span) -> Diagnostic:
        """Make the finding for a span."""
        return Diagnostic(code, message, self.position(span[0]), self.position(span[1]))


def is_clean(diagnostics: Iterable[Diagnostic]) -> bool:
    """Tell whether nothing was found that should be corrected."""
    return all(item.severity is Severity.INFORMATION for item in diagnostics)


def make_report(
    files: Iterable[tuple[str, Sequence[Diagnostic]]], *, tool: str = "gramercy"
) -> dict[str, Any]:
    """Return the findings of several files as one JSON object."""
    entries = [
        {"path": path, "diagnostics": [item.to_json() for item in diagnostics]} for path, diagnostics in files
    ]
    return {"schema_version": REPORT_VERSION, "tool": tool, "files": entries}
