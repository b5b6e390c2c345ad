"""Make visible what hides in a text: control characters, zero width, bidirectional marks, tag characters.

People see the rendering of a text from another server, models see every code point. Both must see the same.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

# Categories that have no shape of their own: control, format, surrogate, private, unassigned, separators.
_SHAPELESS = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
# The ideographic space is as wide as a letter of the scripts that use it.
_HARMLESS = frozenset("\n\t \u3000")
# Letters and marks by category that are blank on the screen nevertheless.
_BLANK = frozenset(
    map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164, 0xFFA0))
)
_VARIATIONS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
# Of what tools return only this is changed: emoji and the scripts that need joiners must come through.
_UNRULY = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)
_NAMES = {
    "Cc": "control character",
    "Co": "private use character",
    "Cs": "surrogate",
    "Cn": "unassigned character",
}
# A text full of hidden characters is told by its most frequent ones, on one screen.
MOST_FINDINGS = 8


def is_hidden(character: str) -> bool:
    """Tell whether a character cannot be seen for what it is."""
    if character in _HARMLESS:
        return False
    return (
        unicodedata.category(character) in _SHAPELESS
        or character in _BLANK
        or _VARIATIONS.match(character) is not None
    )


def reveal(text: str) -> str:
    r"""Return the text with everything hidden written as `\u{…}`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(character) if is_hidden(character) else character for character in text)


def reveal_name(text: str) -> str:
    r"""Return a name as `reveal` does, on one line: line breaks and tabs are written as `\u{…}` too."""
    return "".join(_escaped(c) if c in "\n\t" else c for c in reveal(text))


def tame(text: str) -> str:
    """Return the text without the power to steer a terminal, turn its direction, or carry hidden tags."""
    return _UNRULY.sub(lambda found: _escaped(found[0]), text)


def hidden_in(text: str) -> list[str]:
    """Describe what is hidden in a text, such as `U+200B ZERO WIDTH SPACE (3 times)`."""
    found = Counter(character for character in text if is_hidden(character))
    described = [
        f"{_name(character)} ({_times(count)})" for character, count in found.most_common(MOST_FINDINGS)
    ]
    if len(found) > MOST_FINDINGS:
        described.append(f"and {len(found) - MOST_FINDINGS} other hidden characters")
    return described


def _escaped(character: str) -> str:
    return f"\\u{{{ord(character):x}}}"


def _name(character: str) -> str:
    otherwise = _NAMES.get(unicodedata.category(character), "hidden character")
    return f"U+{ord(character):04X} {unicodedata.name(character, otherwise)}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
