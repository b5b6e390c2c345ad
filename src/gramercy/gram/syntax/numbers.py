"""The spelling of gram numbers, in both directions; knows single tokens only."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

from gramercy.errors import GramError
from gramercy.gram.syntax.tree import Measurement, Number

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
