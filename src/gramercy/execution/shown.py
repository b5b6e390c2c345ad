"""The text of a call for a person: nothing in it is hidden, and it is checked that nothing is missing.

The shown text can be converted back to the character: hidden characters are written as `⟦U+202E⟧`, long lines
are folded, and the lines of values have marks, so that no value can pass for a line of the question.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from gramercy.text import reveal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# As wide as the terminals in which people answer; some clients cut a line at the edge.
LINE_WIDTH = 100
# A value that is read at a glance is on the line of its name.
LONGEST_VALUE = 60
# The mark before each line of a value, and the mark of a folded line.
BAR, FOLD = "| ", "↪"
# Code points are written in brackets that code rarely has: questions are full of backslashes, and are
# converted back.
_OPEN, _CLOSE = "⟦", "⟧"
_OWN = re.compile(f"[{_OPEN}{FOLD}]")
_ESCAPED = re.compile(rf"{_OPEN}U\+([0-9A-F]{{4,6}}){_CLOSE}")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]+")
DIFFERENCE = "--- "
_MARKS = (BAR, "+", "-", " ", "@", "\\")


def revealed(text: str) -> str:
    """Return a text with invisible and misleading characters, and our own marks, written as code points."""
    if text.isascii() and text.isprintable():
        return text
    return reveal(_OWN.sub(lambda found: _escape(found[0]), text), write=_escape)


def _escape(character: str) -> str:
    return f"{_OPEN}U+{ord(character):04X}{_CLOSE}"


def folded(text: str) -> str:
    """Fold the lines that are too long for a screen; nothing is left out."""
    if len(text) <= LINE_WIDTH:
        return text
    return "\n".join(_folded_line(line) if len(line) > LINE_WIDTH else line for line in text.split("\n"))


def _folded_line(line: str) -> str:
    step = LINE_WIDTH - 1
    pieces = [line[start : start + step] for start in range(LINE_WIDTH, len(line), step)]
    return f"\n{FOLD}".join([line[:LINE_WIDTH], *pieces])


def read_back(text: str) -> str:
    """Undo `folded` and `revealed`."""
    plain = text.replace(f"\n{FOLD}", "")
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), plain) if _OPEN in plain else plain


def on_one_line(name: str, value: Any) -> str:
    """Format an argument as `name: value`."""
    return f"{_named(name)}: {json.dumps(value, ensure_ascii=False, sort_keys=True)}"


def is_short(value: Any) -> bool:
    """Tell whether a value fits on the line of its name."""
    if isinstance(value, str):
        return len(value) <= LONGEST_VALUE and "\n" not in value
    return len(json.dumps(value, ensure_ascii=False)) <= LONGEST_VALUE


def written(name: str, value: Any) -> str:
    """Format an argument in full: on one line if short, else with all lines of its text or JSON below."""
    if is_short(value):
        return on_one_line(name, value)
    if isinstance(value, str):
        kind, text = "text", value
    else:
        kind, text = "JSON", json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)
    lines = text.split("\n")
    size = f"{len(lines):,} lines" if len(lines) > 1 else f"{len(text):,} characters"
    return "\n".join([f"{_named(name)}, {kind} of {size}:", *(f"{BAR}{line}" for line in lines)])


def _named(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def barred(text: str) -> str:
    """Put a bar before every line of a text that is not ours."""
    return "\n".join(f"{BAR}{line}" for line in text.split("\n"))


def changed_lines(difference: str) -> list[str]:
    """Return the added and removed lines of a diff."""
    # The first two lines name the file; further on, such a line is part of the text.
    lines = difference.partition(DIFFERENCE)[2].split("\n")[2:] if DIFFERENCE in difference else []
    return [line for line in lines if line[:1] in {"+", "-"}]


def is_difference(effect: str) -> bool:
    """Tell whether an effect is the diff of a text."""
    return effect.startswith(DIFFERENCE) and effect.split("\n", 2)[1:2] != []


def told_by(effect: str, arguments: Mapping[str, Any], edited: Iterable[str]) -> frozenset[str]:
    """Return the names of the arguments that the effect shows in full, so that they need not be repeated.

    Those are the texts of an edit that the effect is the diff of, and a text that it adds line for line.
    """
    if DIFFERENCE not in effect:
        return frozenset()
    found = set(edited) if is_difference(effect) else set()
    added = "".join(f"{line[1:]}\n" for line in changed_lines(effect))
    if added and not any(line.startswith("-") for line in changed_lines(effect)):
        found |= {name for name, value in arguments.items() if value == added or value == added[:-1]}
    return frozenset(found & set(arguments))


def unshown(text: str, effect: str, arguments: Mapping[str, Any], edited: Iterable[str]) -> str | None:
    """Name the first part of a call that a text does not show in full; None when all of it is there."""
    plain = f"\n{read_back(text)}\n"
    # Lines of values have marks before them, so that none of them counts as the line of another argument.
    unmarked = "\n".join(line for line in plain.split("\n") if not line.startswith(_MARKS))
    told = told_by(effect, arguments, edited)
    for name, value in arguments.items():
        if name not in told and not _stands_in(plain, unmarked, name, value):
            return f"the argument {name[:100]}"
    if told and not _come_in_order(changed_lines(effect), plain):
        return "the difference"
    return None


def _stands_in(plain: str, unmarked: str, name: str, value: Any) -> bool:
    if f"\n{written(name, value)}\n" in plain:
        return True
    line = on_one_line(name, value)
    return any(f"{before}{line}{after}" in unmarked for before in " \n" for after in ",\n")


def _come_in_order(lines: list[str], plain: str) -> bool:
    rest = iter([line.removeprefix(BAR) for line in plain.split("\n")])
    return all(line in rest for line in lines)
