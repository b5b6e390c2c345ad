"""The spelling of gram strings and numbers: quotes, escapes, fences and digits, in both directions.

Knows single tokens only: where one may stand is the business of `scanner` and `values`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final, TypeAlias, cast

from gramercy.errors import GramError
from gramercy.gram.syntax.tree import Measurement, Number

Matcher: TypeAlias = Callable[[str, int], re.Match[str]]


def total(pattern: str) -> Matcher:
    """Compile a pattern that matches everywhere, if only the empty string; every one of ours is linear."""
    return cast("Matcher", re.compile(pattern).match)


# Content up to the closing quote, a newline or a backslash that starts no escape.
match_content: Final = {
    quote: total(rf"(?:[^{quote}\\\n]++|\\[{quote}bfnrt/\\])*+") for quote in ('"', "'", "`")
}
# The same with the escapes that only the default mode knows: other quotes and \uXXXX.
match_wide_content: Final = {
    quote: total(rf"(?:[^{quote}\\\n]++|\\(?:u[0-9a-fA-F]{{4}}|['\"`bfnrt/\\]))*+") for quote in match_content
}
match_fence_content: Final = total(r"(?:[^`]++|`{1,2}+(?=[^`]))*+")
# The strict language takes slashes at the start of a string for a comment, which swallows the closing quote.
COMMENT_START: Final = re.compile(r"[\t\v\f\r ]*+//")
SURROGATE: Final = re.compile("[\ud800-\udfff]")

_ESCAPE: Final = re.compile(
    r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\(u[0-9a-fA-F]{4}|.)"
)
_MEANT: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WRITTEN: Final = str.maketrans(
    {char: "\\" + letter for letter, char in _MEANT.items()} | {"\\": r"\\", "\0": r"\u0000"}
)


def unescape(content: str) -> str:
    """Return the text that a string's content stands for; an escaped surrogate pair makes one character."""
    return _ESCAPE.sub(_unescaped, content)


def _unescaped(match: re.Match[str]) -> str:
    high, low, single = match.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + (int(low, 16) - 0xDC00))
    return chr(int(single[1:], 16)) if len(single) > 1 else _MEANT.get(single, single)


def quote_text(text: str, quote: str = '"') -> str:
    """Write text as a quoted string that every gram parser reads back; only NUL needs an extension."""
    refuse_surrogates(text)
    content = text.translate(_WRITTEN).replace(quote, "\\" + quote)
    slashes = COMMENT_START.match(content)
    if slashes:
        content = content[: slashes.end() - 2] + "\\" + content[slashes.end() - 2 :]
    return quote + content + quote


def refuse_surrogates(text: str) -> None:
    """Raise GramError when text holds half of a surrogate pair, which no file could store."""
    found = SURROGATE.search(text)
    if found:
        raise GramError(
            f"text has a lone surrogate U+{ord(found[0]):04X} at index {found.start()}; remove it"
        )


def trim_fence(body: str) -> str:
    """Return a fenced body without its last newline and the blanks before the closing fence."""
    newline = body.rfind("\n")
    if body[newline + 1 :].strip(" \t"):
        return body
    return body[: max(newline, 0)].removesuffix("\r")


# Converting digits takes quadratic time, and Python itself may be told to stop at 640.
MAX_NUMBER_LENGTH: Final = 500

INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]*+)")
# The longest match counts, so 0xAB is hexadecimal but 0xABz is a measurement in the unit xABz.
NUMBER: Final = re.compile(
    r"(?P<hexadecimal>0x(?:[a-fA-F]*+[0-9][0-9a-fA-F]*+|[a-fA-F]++(?![a-zA-Z])))"
    r"|(?P<octal>0[0-7]++)"
    r"|(?P<digits>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+)(?:(?P<exponent>[eE][+-]?[0-9]++)|(?P<unit>[a-zA-Z]++))?+"
)


def number_of(match: re.Match[str]) -> Number:
    """Convert a NUMBER match; raise OverflowError when no finite float can hold it."""
    kind = match.lastgroup
    if kind == "hexadecimal":
        return int(match[0], 16)
    if kind == "octal":
        return int(match[0], 8)
    if kind == "unit":
        return Measurement(_decimal(match["digits"]), match["unit"])
    return _decimal(match[0])


def _decimal(text: str) -> int | float:
    if "." not in text and "e" not in text and "E" not in text:
        return int(text)
    value = float(text)
    if math.isinf(value):
        raise OverflowError
    return value


def number_extension(match: re.Match[str]) -> str | None:
    """Say which extension a NUMBER match uses, or None when it is strict gram."""
    if match.lastgroup == "exponent":
        return "an exponent"
    if match.lastgroup == "unit" and "." in match["digits"]:
        return "a measurement with a decimal point"
    return None


def number_text(value: float) -> str:
    """Write a number in the portable spelling, without exponent."""
    if isinstance(value, int):
        return _integer_text(int(value))
    if not math.isfinite(value):
        raise GramError(f"gram has no number for {value}; use a string or leave the property out")
    text = format(Decimal(repr(float(value))), "f")
    return text if "." in text else text + ".0"


def _integer_text(value: int) -> str:
    if abs(value) < 10 ** (MAX_NUMBER_LENGTH - 1):
        return str(value)
    if 0 < value < 16 ** (MAX_NUMBER_LENGTH - 2):
        return hex(value)
    raise GramError(f"an integer of more than {MAX_NUMBER_LENGTH} digits cannot be read back; use a string")
