"""Read descriptions out of docstrings in the three usual styles: Google, NumPy and reST.

Knows text only; which parameters a function has is the business of `annotations`.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_GOOGLE_HEADING: Final = re.compile(
    r"(?:Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments):\s*\Z"
)
_GOOGLE_ENTRY: Final = re.compile(
    r"\*{0,2}(?P<name>\w+)\s*(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?\s*:(?:\s+(?P<text>.*))?\Z"
)
_NUMPY_HEADING: Final = re.compile(r"(?:Other )?Parameters\Z")
_NUMPY_ENTRY: Final = re.compile(r"(?P<names>\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?\Z")
_REST_ENTRY: Final = re.compile(
    r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(?P<name>\w+)\s*:\s*(?P<text>.*)\Z"
)
_SECTION: Final = re.compile(r"[A-Z][\w ]*:\s*\Z")
_UNDERLINE: Final = re.compile(r"-{3,}\s*\Z")


@dataclass(frozen=True, slots=True)
class Docstring:
    """What a docstring says: its first paragraph, and a description for each parameter it names."""

    summary: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)


def read_docstring(text: str | None) -> Docstring:
    """Read a docstring; a part that is not understood is left out."""
    if not text:
        return Docstring()
    lines = inspect.cleandoc(text).expandtabs().splitlines()
    found: dict[str, list[str]] = {}
    for entries in (_google(lines), _numpy(lines), _rest(lines)):
        for name, words in entries:
            found.setdefault(name, words)
    described = {name: " ".join(filter(None, map(str.strip, words))) for name, words in found.items()}
    return Docstring(_summary(lines), {name: words for name, words in described.items() if words})


def _summary(lines: list[str]) -> str:
    paragraph = []
    for number, line in enumerate(lines):
        if not line.strip() or _starts_section(lines, number):
            break
        paragraph.append(line.strip())
    return " ".join(paragraph)


def _starts_section(lines: list[str], number: int) -> bool:
    line = lines[number]
    underlined = number + 1 < len(lines) and _UNDERLINE.match(lines[number + 1])
    return bool(_GOOGLE_HEADING.match(line) or _REST_ENTRY.match(line) or underlined)


def _google(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(lines):
        if _GOOGLE_HEADING.match(line):
            yield from _indented_entries(lines[number + 1 :])


def _indented_entries(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the entries of one indented section; deeper lines continue an entry."""
    depth: int | None = None
    words: list[str] = []
    for line in lines:
        indent = _indent(line)
        if not line.strip():
            continue
        if indent == 0:
            return
        depth = indent if depth is None else depth
        entry = _GOOGLE_ENTRY.match(line.strip()) if indent <= depth else None
        if entry:
            words = [entry["text"] or ""]
            yield entry["name"], words
        else:
            words.append(line)


def _numpy(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(lines[:-1]):
        if _NUMPY_HEADING.match(line) and _UNDERLINE.match(lines[number + 1]):
            yield from _underlined_entries(lines[number + 2 :])


def _underlined_entries(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the entries of one underlined section; indented lines describe the entry above."""
    words: list[str] = []
    for number, line in enumerate(lines):
        if _starts_section(lines, number):
            return
        entry = _NUMPY_ENTRY.match(line) if line.strip() and _indent(line) == 0 else None
        if entry:
            words = []
            for name in entry["names"].split(","):
                yield name.strip(" *"), words
        else:
            words.append(line)


def _rest(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    words: list[str] = []
    for line in lines:
        entry = _REST_ENTRY.match(line.strip())
        if entry:
            words = [entry["text"]]
            yield entry["name"], words
        elif _indent(line):
            words.append(line)
        else:
            words = []


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
