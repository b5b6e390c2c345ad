"""Copy Python values as plain JSON, list the parts that are not JSON, and show values in messages.

NaN, lone surrogates, names that are not text, foreign objects, cycles and very deep nesting are faults. The
walk is bounded, since values that share parts can be exponentially larger than they look.
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any, TypeAlias

import msgspec

from gramercy.errors import Fault
from gramercy.text import cut

WHOLE = "(arguments)"
# Deeper values are not arguments; they only serve to exhaust the stack of the next function that walks them.
DEEPEST = 64
# Many times the largest file or table that a model sends, and still copied within a second.
MOST_VALUES = 250_000
# A million wrong items are one mistake: the first faults explain it, the rest would bury it.
MOST_FAULTS = 20
# Python cannot print integers of more than 4300 digits, so such a call could not be shown for approval.
HUGE = 10**4000
# Names in paths and values in messages are cut here: enough to recognise, short enough for one line.
LONGEST_STEP = 60
LONGEST_SHOWN = 60
# Integers of 64 bits need no count of their digits.
LEAST_EXACT, MOST_EXACT = -(2**63), 2**63
# Types that a copy can share with its original.
SCALARS = frozenset({str, int, float, bool, type(None)})

# The path to a value, innermost step first; it becomes text only when there is a fault to report.
_Path: TypeAlias = "tuple[_Path, str | int] | None"
_PLAIN_STEP = re.compile(r"[\w$@-]+")


class PlainCopy(msgspec.Struct):
    """A copy in plain dicts, lists and scalars, and the faults of the original; `size` counts values."""

    value: Any = None
    faults: list[Fault] = msgspec.field(default_factory=list)
    fault_count: int = 0
    size: int = 0


def copy_plain(value: Any, *, deepest: int = DEEPEST, tuples: bool = False) -> PlainCopy:
    """Copy a value so that the copy shares nothing with it, and list the parts that are not JSON."""
    walk = _Walk(deepest, tuples=tuples)
    try:
        walk.result.value = walk.copy(value, None, 0)
    except OverflowError:
        fault = Fault(WHOLE, f"at most {MOST_VALUES:,} values", "more than that")
        return PlainCopy(None, [fault], 1, walk.result.size)
    except RecursionError:
        fault = Fault(WHOLE, "a value that fits on the stack", "one that is too deep for this caller")
        return PlainCopy(None, [fault], 1, walk.result.size)
    return walk.result


def copy_json(value: Any) -> Any:
    """Copy a value that is already known to be plain JSON."""
    if type(value) in SCALARS:
        return value
    copied = value.copy()
    for place, item in copied.items() if type(copied) is dict else enumerate(copied):
        if type(item) is dict or type(item) is list:
            copied[place] = copy_json(item)
    return copied


def copy_exactly(value: Any, left: list[int], depth: int = 0) -> Any:
    """Copy a value of exactly the types that JSON has, or raise ValueError for an unusual value.

    This is a faster `copy_plain` for usual values. `left` holds how many more values may come. Whole floats
    count as unusual, since a schema may want them as integers.
    """
    kind = type(value)
    if kind is str:
        if value.isascii() or is_unicode(value):
            return value
    elif kind is int:
        if LEAST_EXACT < value < MOST_EXACT:
            return value
    elif kind is bool or value is None:
        return value
    elif kind is float:
        if isfinite(value) and not value.is_integer():
            return value
    elif (kind is dict or kind is list) and depth < DEEPEST:
        # Check the copy, since another thread may be changing the original.
        copied = value.copy()
        left[0] -= len(copied)
        if left[0] >= 0:
            return _copied_inside(copied, left, depth + 1)
    raise ValueError("an unusual value")


def _copied_inside(copied: Any, left: list[int], depth: int) -> Any:
    if type(copied) is list:
        return [copy_exactly(item, left, depth) for item in copied]
    for name, item in copied.items():
        if type(name) is not str or not (name.isascii() or is_unicode(name)):
            raise ValueError("an unusual name")
        copied[name] = copy_exactly(item, left, depth)
    return copied


def is_unicode(text: str) -> bool:
    """Tell whether text can be encoded; lone surrogates cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_duration(value: object) -> bool:
    """Tell whether a value is a usable number of seconds."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value > 0


def join_path(path: str, step: str | int) -> str:
    """Extend a path the way people write it: `a.b[0]`; ambiguous names are quoted."""
    if isinstance(step, int):
        return f"{path}[{step}]"
    if len(step) <= LONGEST_STEP and _PLAIN_STEP.fullmatch(step):
        return f"{path}.{step}" if path else step
    short = cut(step, LONGEST_STEP)
    return f"{path}[{json.dumps(short, ensure_ascii=not short.isprintable())}]"


def _text_of(path: _Path) -> str:
    steps = []
    while path is not None:
        path, step = path
        steps.append(step)
    text = ""
    for step in reversed(steps):
        text = join_path(text, step)
    return text or WHOLE


class _Walk:
    def __init__(self, deepest: int, *, tuples: bool) -> None:
        self.result = PlainCopy()
        self.deepest = deepest
        self.containers = (dict, list, tuple) if tuples else (dict, list)
        self.open: set[int] = set()

    def copy(self, value: Any, path: _Path, depth: int) -> Any:
        self.result.size += 1
        if self.result.size > MOST_VALUES:
            raise OverflowError
        if isinstance(value, str):
            return self.text(value, path)
        if value is None or value is True or value is False:
            return value
        if isinstance(value, int | float):
            return self.number(value, path)
        if isinstance(value, self.containers):
            return self.container(value, path, depth)
        return self.fault(path, "a JSON value", f"a Python {type(value).__name__}")

    def text(self, value: str, path: _Path) -> Any:
        plain = str.__str__(value)
        if is_unicode(plain):
            return plain
        return self.fault(path, "valid Unicode text", "text with a lone surrogate")

    def number(self, value: float, path: _Path) -> Any:
        # Use the base classes' own methods: a subclass may return anything.
        if isinstance(value, int):
            whole = int.__int__(value)
            if -HUGE < whole < HUGE:
                return whole
            return self.fault(path, "a number of at most 4000 digits", "a longer one")
        plain = float.__float__(value)
        if isfinite(plain):
            return plain
        return self.fault(path, "a finite number", f"{plain} (JSON has no such number)")

    def container(self, value: Any, path: _Path, depth: int) -> Any:
        if id(value) in self.open:
            return self.fault(path, "a finite value", "a value that contains itself")
        if depth >= self.deepest:
            return self.fault(path, f"at most {self.deepest} levels of nesting", "a deeper value")
        self.open.add(id(value))
        inside = self.entries if isinstance(value, dict) else self.items
        copied = inside(value, path, depth)
        self.open.discard(id(value))
        return copied

    def items(self, value: Any, path: _Path, depth: int) -> list[Any]:
        # A snapshot, since another thread may be changing the original.
        items = list.copy(value) if isinstance(value, list) else list(tuple.__iter__(value))
        return [self.copy(item, (path, index), depth + 1) for index, item in enumerate(items)]

    def entries(self, value: dict[Any, Any], path: _Path, depth: int) -> dict[str, Any]:
        copied = {}
        for name, item in dict.copy(value).items():
            if not isinstance(name, str):
                self.fault(path, "names that are text", f"a name that is a {type(name).__name__}")
                continue
            plain = str.__str__(name)
            if not is_unicode(plain):
                self.fault(path, "names of valid Unicode text", "a name with a lone surrogate")
                continue
            copied[plain] = self.copy(item, (path, plain), depth + 1)
        return copied

    def fault(self, path: _Path, expected: str, received: str) -> Any:
        """Note a fault and return the substitute for the faulty value in the copy."""
        self.result.fault_count += 1
        if len(self.result.faults) < MOST_FAULTS:
            self.result.faults.append(Fault(_text_of(path), expected, received))
        return None


_encoder = json.JSONEncoder(ensure_ascii=False)


def describe_value(value: Any) -> str:
    """Name the JSON type of a value and show the value, cut when long."""
    return "null" if value is None else f"{json_type(value)} {shown(value)}"


def shown(value: Any) -> str:
    """Write a value as JSON, cut if long; the cost depends on the shown part, and it never fails."""
    if isinstance(value, str):
        value = value[: LONGEST_SHOWN + 1]
    elif isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 4 * LONGEST_SHOWN:
        return f"of about {value.bit_length() * 3 // 10} digits"
    text = ""
    try:
        for piece in _encoder.iterencode(value):
            text += piece[: LONGEST_SHOWN + 1]
            if len(text) > LONGEST_SHOWN:
                return text[:LONGEST_SHOWN] + "…"
    except (TypeError, ValueError, RecursionError):
        return f"(a {type(value).__name__} that JSON cannot show)"
    return text


def json_type(value: Any) -> str:
    """Name the JSON type of a Python value."""
    for kinds, name in _JSON_TYPES:
        if isinstance(value, kinds):
            return name
    return f"Python {type(value).__name__}"


# bool before int: Python's True is an int, JSON's true is not.
_JSON_TYPES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (type(None), "null"),
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    ((list, tuple), "array"),
    (dict, "object"),
)
