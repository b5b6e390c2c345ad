"""Tells whether the text an author wrote still spells the value or name beside it in a tree.

Programs change trees with `dataclasses.replace` and leave old texts behind, which must not be printed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gramercy.errors import GramSyntaxError
from gramercy.gram.syntax.tree import Measurement, Range
from gramercy.gram.syntax.values import ValueScanner

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.gram.syntax.tree import Value


def spells_value(text: str, value: Value) -> bool:
    """Tell whether a text reads as exactly this value, of this type."""
    read = _read_all(text, ValueScanner.value)
    return read is not None and is_same_value(read, value)


def spells_identity(text: str, name: str) -> bool:
    """Tell whether a text reads as this identity."""
    return _read_all(text, ValueScanner.identity) == name


def spells_label(text: str, name: str) -> bool:
    """Tell whether a text reads as this label."""
    return _read_all(text, ValueScanner.name) == name


def spells_key(text: str, key: str) -> bool:
    """Tell whether a text reads as this property name."""
    return _read_all(text, ValueScanner.key) == key


def is_same_value(one: Value, other: Value) -> bool:
    """Compare values by type as well, so that 1, 1.0 and true differ, and 0.0 differs from -0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same_value, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(map(is_same_value, one.values(), other.values()))
    if isinstance(one, float | Range | Measurement):
        return repr(one) == repr(other)
    return one == other


def _read_all(text: str, read: Callable[[ValueScanner], Value | None]) -> Value | None:
    try:
        scanner = ValueScanner(text, strict=False)
        value = read(scanner)
    except GramSyntaxError:
        return None
    return value if scanner.pos == len(text) else None
