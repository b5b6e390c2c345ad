"""Write whatever a handler returned as text for a model. Bounded, and never fails: cycles and bad printers too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

WIDTH = 80
DEEPEST = 50
# Enough for any result that is worth sending; the executor's own cap is smaller and announced.
MOST_CHARACTERS = 1_000_000

_Tree: TypeAlias = "str | list[_Tree]"


def format_tool_result(value: Any) -> str:
    """Format a handler's result: text unchanged, None as `nil`, lists as s-expressions, mappings as JSON."""
    if type(value) is str:
        return value
    if value is None:
        return "nil"
    if isinstance(value, str):
        return str.__str__(value)
    return _Writer().write(value)


class _Writer:
    """One pass over a value with a budget of characters, so that a huge value costs what is shown of it."""

    def __init__(self) -> None:
        self.budget = MOST_CHARACTERS
        self.open: set[int] = set()

    def write(self, value: Any) -> str:
        if isinstance(value, list | tuple):
            return _layout(self.tree(value), 0)
        if isinstance(value, Mapping):
            return _json_text(self.plain(value))
        return printed(value)

    def tree(self, value: Any) -> _Tree:
        """Turn nested lists into nested lists of finished texts."""
        if isinstance(value, list | tuple):
            return self.guarded(value, lambda: self._items(value, self.tree), "#<cycle>")
        text = self._atom(value)
        self.budget -= len(text)
        return text

    def _atom(self, value: Any) -> str:
        if value is None:
            return "nil"
        if isinstance(value, str):
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        if isinstance(value, Mapping):
            return json.dumps(self.plain(value), ensure_ascii=False)
        return printed(value)

    def plain(self, value: Any) -> Any:
        """Turn a value into one that JSON can write; what it cannot becomes its printed text."""
        if isinstance(value, Mapping):
            pairs = list(_entries(value))
            return self.guarded(value, lambda: dict(self._items(pairs, self._entry)), "#<cycle>")
        if isinstance(value, list | tuple):
            return self.guarded(value, lambda: self._items(value, self.plain), "#<cycle>")
        self.budget -= 8
        if value is None or isinstance(value, bool) or type(value) in {int, float} and _is_json_number(value):
            return value
        text = value if isinstance(value, str) else printed(value)
        self.budget -= len(text)
        return text

    def _entry(self, entry: tuple[Any, Any]) -> tuple[str, Any]:
        key, value = entry
        return key if isinstance(key, str) else printed(key), self.plain(value)

    def _items(self, items: Any, convert: Any) -> list[Any]:
        converted = []
        for item in items:
            if self.budget <= 0:
                converted.append(convert("…") if not isinstance(item, tuple) else ("…", "…"))
                break
            converted.append(convert(item))
        return converted

    def guarded(self, value: Any, convert: Any, marker: str) -> Any:
        """Convert a container unless it is already being converted or too deep."""
        if id(value) in self.open:
            return marker
        if len(self.open) >= DEEPEST:
            return "#<deeper>"
        self.open.add(id(value))
        try:
            return convert()
        finally:
            self.open.discard(id(value))


def _entries(mapping: Mapping[Any, Any]) -> Any:
    try:
        yield from mapping.items()
    except Exception as error:  # noqa: BLE001 - a stranger's mapping may do anything
        yield f"#<unreadable: {type(error).__name__}>", None


def _is_json_number(value: float) -> bool:
    # NaN is not JSON, and Python refuses to print integers beyond 4300 digits.
    return abs(value) < 10**300


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
    """Return the printed form of any object, or a stand-in that names what went wrong."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - a broken printer must not lose the result
        return f"#<{type(value).__name__}: cannot be printed ({type(error).__name__})>"
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + "…"
