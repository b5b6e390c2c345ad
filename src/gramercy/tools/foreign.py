"""Find what JSON cannot carry inside Python values: NaN, lone surrogates, odd keys, objects, cycles, depth.

The walk is bounded: values that refer to themselves or share parts a thousandfold end it with a fault.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from gramercy.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

# Deeper values are not arguments; they only serve to exhaust the stack of whoever walks them next.
DEEPEST = 64
MOST_VALUES = 1_000_000
# Python cannot print integers of more than 4300 digits, so nobody could be shown such a call.
HUGE = 10**4000


def find_foreign_values(value: Any) -> list[Fault]:
    """List every part of the value that is not plain, finite, bounded JSON."""
    walk = _Walk()
    try:
        return list(walk.visit(value, "", 0))
    except _TooManyValuesError:
        return [Fault("(arguments)", f"at most {MOST_VALUES:,} values", "more than that")]


def is_unicode(text: str) -> bool:
    """Tell whether text can be encoded; lone surrogates cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def join_path(path: str, step: str | int) -> str:
    """Extend a path the way people write it: `a.b[0]`."""
    if isinstance(step, int):
        return f"{path}[{step}]"
    return f"{path}.{step}" if path else step


class _TooManyValuesError(Exception):
    pass


class _Walk:
    def __init__(self) -> None:
        self.budget = MOST_VALUES
        self.open: set[int] = set()

    def visit(self, value: Any, path: str, depth: int) -> Iterator[Fault]:
        self.budget -= 1
        if self.budget < 0:
            raise _TooManyValuesError
        if isinstance(value, dict | list):
            yield from self.visit_container(value, path, depth)
        else:
            fault = _scalar_fault(value)
            if fault:
                yield Fault(path or "(arguments)", *fault)

    def visit_container(self, value: Any, path: str, depth: int) -> Iterator[Fault]:
        where = path or "(arguments)"
        if id(value) in self.open:
            yield Fault(where, "a finite value", "a value that contains itself")
        elif depth >= DEEPEST:
            yield Fault(where, f"at most {DEEPEST} levels of nesting", "a deeper value")
        else:
            self.open.add(id(value))
            steps = value.items() if isinstance(value, dict) else enumerate(value)
            for step, item in steps:
                yield from self.visit_entry(step, item, path, depth)
            self.open.discard(id(value))

    def visit_entry(self, step: Any, item: Any, path: str, depth: int) -> Iterator[Fault]:
        if not isinstance(step, str | int) or isinstance(step, bool):
            yield Fault(path or "(arguments)", "names that are text", f"a name that is a {type(step).__name__}")
        elif isinstance(step, str) and not is_unicode(step):
            yield Fault(path or "(arguments)", "names of valid Unicode text", "a name with a lone surrogate")
        else:
            yield from self.visit(item, join_path(path, step), depth + 1)


def _scalar_fault(value: Any) -> tuple[str, str] | None:
    if value is None:
        return None
    if isinstance(value, int):
        return None if -HUGE < value < HUGE else ("a number of at most 4000 digits", "a longer one")
    if isinstance(value, str):
        return None if is_unicode(value) else ("valid Unicode text", "text with a lone surrogate")
    if isinstance(value, float):
        return None if isfinite(value) else ("a finite number", f"{value} (JSON has no such number)")
    return "a JSON value", f"a Python {type(value).__name__}"
