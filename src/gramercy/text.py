"""Text that people and models read: hidden characters written out, and the small habits of our sentences.

Code inside of images cannot import this; what an image sends is revealed where the host reads it.
"""

from __future__ import annotations

import re
import sys
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Sequence

# Letters and marks that print by their category and are blank on the screen nevertheless, such as HANGUL
# FILLER and BRAILLE PATTERN BLANK, and the variation selectors, which can carry a text of their own.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
# What acts on a screen or on a reader of code points: controls, directions, tags.
_UNRULY = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)
LINES = "\n\t"
# Prose has emoji, whose selectors say how they look, and plots have blanks of braille.
PROSE = f"{LINES}\ufe00-\ufe0f\u2800"
_ESCAPED = re.compile(r"\\u\{([0-9a-f]{1,6})\}")


def is_hidden(character: str) -> bool:
    """Tell whether a character cannot be seen for what it is."""
    if character.isprintable():
        return _BLANK.match(character) is not None
    # The ideographic space is as wide as a letter of the scripts that use it.
    return character != "\u3000"


def escape(character: str) -> str:
    r"""Write a character as `\u{202e}`: its digits have an end, unlike those of `\u202e`."""
    return f"\\u{{{ord(character):x}}}"


def reveal(text: str, spared: str = LINES, write: Callable[[str], str] = escape) -> str:
    """Return a text with everything hidden written out.

    `spared` characters stay as they are; they are written as inside of the brackets of a regular expression.
    """
    # Nearly every text is clean, which is known many times faster than what is to be written out.
    plain = text.replace("\n", "").replace("\t", "") if spared else text
    if plain.isprintable() and (text.isascii() or _BLANK.search(text) is None):
        return text
    return re.sub(f"[^{spared} -~]", lambda found: write(found[0]) if is_hidden(found[0]) else found[0], text)


def hide(text: str) -> str:
    """Return a text as it was before `reveal_line`: the hidden characters that it writes out are back."""

    def written_back(found: re.Match[str]) -> str:
        code = int(found[1], 16)
        return chr(code) if code <= sys.maxunicode and is_hidden(chr(code)) else found[0]

    return _ESCAPED.sub(written_back, text) if "\\u{" in text else text


def reveal_line(text: str) -> str:
    """Return a text as `reveal` does, on one line: a line break of a name must not begin a line of ours."""
    return reveal(text, "")


def tame(text: str) -> str:
    """Return a text without the power to steer a terminal, turn its direction, or carry hidden tags.

    For what tools return: emoji and the scripts that need joiners must come through.
    """
    return _UNRULY.sub(lambda found: escape(found[0]), text)


def reason_of(error: BaseException) -> str:
    """Return why something failed, without the number and the name that the system puts around it."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def cut(text: str, most: int) -> str:
    """Return the beginning of a text, with an ellipsis where more than `most` characters are there."""
    return text if len(text) <= most else f"{text[:most]}…"


def cut_line(text: str, most: int) -> str:
    """Return a text on one line, cut like `cut`."""
    return cut(" ".join(text.split()), most)


def listed(words: Collection[str], most: int, *, counts: bool = False) -> str:
    """Return words with commas between them; of more than `most` the others are dots, or their number."""
    left = len(words) - most
    more = f" and {left:,} more" if counts else ", …"
    return ", ".join(islice(words, most)) + (more if left > 0 else "")


def counted(count: int, noun: str) -> str:
    """Write a number of things: `1 entry`, `2 entries`, `1,234 files`."""
    if count != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith(("py", "ry")) else f"{noun}s"
    return f"{count:,} {noun}"


def table(rows: Sequence[Sequence[str]], rights: Container[int] = ()) -> str:
    """Lay rows out in columns, those of `rights` flush right; no cell can pass for another line."""
    rows = [[reveal_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.rjust(width) if column in rights else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
