"""Format any result of a handler as text for a model: bounded, and without ever failing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias

from gramercy.text import cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# Longer lists and objects are formatted on several lines.
WIDTH = 80
# Deeper values are shown as #<deeper>; the bound keeps the walk from exhausting the stack.
DEEPEST = 50
# Enough for any result that is worth sending; the executor's own cap is smaller and announced.
MOST_CHARACTERS = 400_000
# Python refuses to print integers of more than 4300 digits.
LONGEST_INTEGER_BITS = 14_000
# Items of a list that are examined to choose its form.
MOST_LOOKED_AT = 100

_Tree: TypeAlias = "str | list[_Tree]"


def format_tool_result(value: Any, *, s_expressions: bool = False) -> str:
    """Format a handler's result: text unchanged, None as `nil`, lists as s-expressions, mappings as JSON.

    A list of mappings is JSON as a whole, unless all lists are requested as s-expressions.
    """
    if type(value) is str:
        return value
    if value is None:
        return "nil"
    if isinstance(value, str):
        return str.__str__(value)
    try:
        return _Writer().write(value, s_expressions=s_expressions)
    except Exception as error:  # noqa: BLE001 - a container of any class may raise anything
        return _stand_in(value, error)


class _Writer:
    """One pass over a value with a budget of characters, so that a huge value costs what is shown of it."""

    def __init__(self) -> None:
        self.budget = MOST_CHARACTERS
        self.open: set[int] = set()

    def write(self, value: Any, *, s_expressions: bool) -> str:
        if isinstance(value, list | tuple) and (s_expressions or not _is_table(value)):
            return _layout(self.tree(value), 0)
        if isinstance(value, Mapping | list | tuple):
            return _json_text(self.plain(value))
        return printed(value)

    def tree(self, value: Any) -> _Tree:
        """Turn nested lists into nested lists of finished texts."""
        if isinstance(value, list | tuple):
            inside: _Tree = self.guarded(value, lambda: self.each(value, self.tree, "…"))
            return inside
        return self.spent(self.atom(value))

    def atom(self, value: Any) -> str:
        if value is None:
            return "nil"
        if isinstance(value, str):
            return '"' + str.replace(value, "\\", "\\\\").replace('"', '\\"') + '"'
        if isinstance(value, Mapping):
            return json.dumps(self.plain(value), ensure_ascii=False)
        return printed(value)

    def plain(self, value: Any) -> Any:
        """Convert a value to one that JSON can write; other objects become their printed text."""
        if isinstance(value, Mapping):
            return self.guarded(value, lambda: dict(self.each(_entries(value), self.entry, ("…", "…"))))
        if isinstance(value, list | tuple):
            return self.guarded(value, lambda: self.each(value, self.plain, "…"))
        if isinstance(value, str):
            return self.spent(str.__str__(value))
        if value is None or isinstance(value, bool) or _is_json_number(value):
            self.budget -= 1
            return value
        return self.spent(printed(value))

    def entry(self, entry: tuple[Any, Any]) -> tuple[str, Any]:
        key, value = entry
        name = str.__str__(key) if isinstance(key, str) else printed(key)
        return self.spent(name), self.plain(value)

    def spent(self, text: str) -> str:
        self.budget -= len(text)
        return text

    def each(self, items: Iterable[Any], convert: Callable[[Any], Any], rest: Any) -> list[Any]:
        """Convert items while there is budget; `rest` replaces the remaining ones."""
        converted = []
        for item in items:
            # Empty parts cost budget too; otherwise nested empty lists would never end.
            self.budget -= 2
            if self.budget <= 0:
                converted.append(rest)
                break
            converted.append(convert(item))
        return converted

    def guarded(self, value: Any, convert: Callable[[], Any]) -> Any:
        """Convert a container unless it is already being converted or too deep."""
        if id(value) in self.open:
            return "#<cycle>"
        if len(self.open) >= DEEPEST:
            return "#<deeper>"
        self.open.add(id(value))
        try:
            return convert()
        finally:
            self.open.discard(id(value))


def _entries(mapping: Mapping[Any, Any]) -> Iterable[tuple[Any, Any]]:
    try:
        yield from mapping.items()
    except Exception as error:  # noqa: BLE001 - a mapping of any class may raise anything
        yield f"#<unreadable: {type(error).__name__}>", None


def _is_table(value: Any) -> bool:
    """Tell whether the items are mappings, by the first of them: the rows of a table are alike."""
    first = list(islice(value, MOST_LOOKED_AT))
    return bool(first) and all(isinstance(item, Mapping) for item in first)


def _is_json_number(value: Any) -> bool:
    if type(value) is int:
        return value.bit_length() <= LONGEST_INTEGER_BITS
    return type(value) is float and isfinite(value)


def _json_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= WIDTH else json.dumps(value, ensure_ascii=False, indent=2)


def _layout(tree: _Tree, indent: int) -> str:
    if isinstance(tree, str):
        return tree
    parts = [_layout(part, indent + 1) for part in tree]
    flat = f"({' '.join(parts)})"
    if len(flat) + indent <= WIDTH and "\n" not in flat:
        return flat
    separator = "\n" + " " * (indent + 1)
    return f"({separator.join(parts)})"


def printed(value: Any) -> str:
    """Return the printed form of any object, or a substitute that names the error."""
    if isinstance(value, int) and int.bit_length(value) > LONGEST_INTEGER_BITS:
        return f"#<integer of about {int.bit_length(value) * 3 // 10:,} digits>"
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - a broken printer must not lose the result
        return _stand_in(value, error)
    return cut(text, MOST_CHARACTERS)


def _stand_in(value: Any, error: Exception) -> str:
    return f"#<{type(value).__name__}: cannot be printed ({type(error).__name__})>"
