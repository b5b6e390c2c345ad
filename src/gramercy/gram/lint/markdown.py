"""Find the gram texts inside Markdown: the contents of fenced code blocks marked `gram`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

MARKDOWN_SUFFIXES: Final = (".md", ".markdown")
# A backtick fence takes no backtick after its signs; otherwise it is a code span in running text.
_FENCE: Final = re.compile(r"\s*(?P<signs>`{3,}(?=[^`]*\Z)|~{3,})\s*(?P<language>[^\s{`]*)")


@dataclass(frozen=True, slots=True)
class GramSource:
    """A gram text and the 0-based line at which it starts in its file."""

    text: str
    first_line: int = 0


def gram_sources(text: str, path: str) -> list[GramSource]:
    """Return the gram texts of a file: all of it, or the marked blocks when it is Markdown."""
    if not path.lower().endswith(MARKDOWN_SUFFIXES):
        return [GramSource(text)]
    return list(_fenced_sources(text.split("\n")))


def _fenced_sources(lines: list[str]) -> Iterator[GramSource]:
    signs, language, start = "", "", 0
    for number, line in enumerate([*lines, None]):
        fence = _FENCE.match(line) if line is not None else None
        if not signs:
            if fence:
                signs, language, start = fence["signs"], fence["language"], number + 1
        elif line is None or (fence and _closes(line, signs)):
            if language.lower() == "gram":
                end = "" if line is None else "\n"
                yield GramSource("\n".join(lines[start:number]) + end, start)
            signs = ""


def _closes(line: str, signs: str) -> bool:
    found = line.strip()
    return len(found) >= len(signs) and set(found) == {signs[0]}
