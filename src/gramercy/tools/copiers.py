"""Write, for one schema, the Python function that copies arguments of the usual shape and checks their types.

Most arguments are plain JSON of the types that the schema names. One pass over those does what a copy by
`values` and the validator do in two, at a tenth of the price: every value is of exactly its type, finite,
valid Unicode, and their number is bounded. Anything unusual (a subclass, 3.0 for an integer, a name that the
schema does not have) ends the pass with None, and the thorough check decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gramercy.tools.values import LEAST_EXACT, MOST_EXACT, MOST_VALUES, copy_exactly, is_unicode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gramercy.gram.json_schema import Schema

# What makes a value of each type unusual.
_UNUSUAL: Final = {
    "string": "type(x) is not str or not (x.isascii() or is_unicode(x))",
    "integer": "type(x) is not int or not LEAST < x < MOST",
    "number": "not (type(x) is float and -INF < x < INF) and not (type(x) is int and LEAST < x < MOST)",
    "boolean": "x is not True and x is not False",
    "null": "x is not None",
}
_NAMES: Final = {
    "copy_exactly": copy_exactly,
    "is_unicode": is_unicode,
    "LEAST": LEAST_EXACT,
    "MOST": MOST_EXACT,
    "INF": float("inf"),
}
# Keywords that ask nothing more of a value than the function makes sure of; all others need the validator.
_SILENT: Final = frozenset({"type", "description", "title", "default", "examples"})
_OBJECT: Final = _SILENT | {"properties", "required", "additionalProperties"}
_ARRAY: Final = _SILENT | {"items"}
# Python takes 20 loops inside each other, and a long function is compiled longer than many calls would save.
# What is deeper or comes later is copied by the function for any value.
DEEPEST_WRITTEN: Final = 8
MOST_WRITTEN: Final = 300


class Copier:
    """The source of one function. `decides`: what it returns fits the schema; `flat`: it has no inside."""

    def __init__(self, schema: Schema) -> None:
        self.decides = True
        self.flat = True
        self._written = 0
        self._names: dict[str, Any] = dict(_NAMES)
        self._body = list(self._value(schema, "whole", "  ", 0))

    def compiled(self) -> Callable[[Any], dict[str, Any] | None]:
        """Return the function: it gives the copy of its argument, or None, which says nothing."""
        counts = any("left" in line for line in self._body)
        lines = [
            "def copy(x):",
            *([f" left = [{MOST_VALUES - MOST_WRITTEN}]"] if counts else []),
            " try:",
            "  if type(x) is not dict: return None",
            *self._body,
            "  return whole",
            " except (KeyError, ValueError, RecursionError): return None",
        ]
        exec("\n".join(lines), self._names)  # noqa: S102 - of the schema it holds numbers and reprs of names
        return self._names["copy"]  # type: ignore[no-any-return]

    def _value(self, schema: Any, place: str, indent: str, depth: int) -> Iterator[str]:
        """Write what checks `x`, and puts the copy of an x that has an inside into its place."""
        described = schema if isinstance(schema, dict) else {} if schema is True else {"not": {}}
        kind = described.get("type")
        self._written += 1
        if isinstance(kind, list) and kind[1:] == ["null"] and str(kind[0]) in _UNUSUAL:
            self._need_validator(not described.keys() <= _SILENT)
            yield f"{indent}if x is not None and ({_UNUSUAL[str(kind[0])]}): return None"
        elif isinstance(kind, str) and kind in _UNUSUAL:
            yield f"{indent}if {_UNUSUAL[kind]}{self._choice(described)}: return None"
        elif kind == "object" and self._has_room(depth, _known_names(described)):
            self._need_validator(not described.keys() <= _OBJECT)
            yield from self._object(described, place, indent, depth)
        elif kind == "array" and described.get("items") and self._has_room(depth, 1):
            self._need_validator(not described.keys() <= _ARRAY)
            yield from self._array(described["items"], place, indent, depth)
        else:
            self.flat = False
            container = {"object": "dict", "array": "list"}.get(str(kind))
            self._need_validator(not described.keys() <= _SILENT or (kind is not None and container is None))
            if container is not None:
                yield f"{indent}if type(x) is not {container}: return None"
            yield f"{indent}{place} = copy_exactly(x, left, {depth})"

    def _object(self, schema: Schema, place: str, indent: str, depth: int) -> Iterator[str]:
        self.flat &= depth == 0
        copied = f"c{self._written}"
        properties, required = schema["properties"], set(schema.get("required", ()))
        count = str(len(required))
        yield f"{indent}if type(x) is not dict: return None"
        yield f"{indent}{place} = {copied} = x.copy()"
        yield f"{indent}for name in {copied}:"
        yield f"{indent} if type(name) is not str: return None"
        if required != properties.keys():
            count = f"n{self._written}"
            yield f"{indent}{count} = {len(required)}"
        for name in properties:
            where = f"{copied}[{name!r}]"
            if name in required:
                yield f"{indent}x = {where}"
                yield from self._value(properties[name], where, indent, depth + 1)
            else:
                yield f"{indent}x = {copied}.get({name!r}, {copied})"
                yield f"{indent}if x is not {copied}:"
                yield f"{indent} {count} += 1"
                yield from self._value(properties[name], where, indent + " ", depth + 1)
        yield f"{indent}if len({copied}) != {count}: return None"

    def _array(self, items: Any, place: str, indent: str, depth: int) -> Iterator[str]:
        self.flat = False
        copied, index = f"c{self._written}", f"i{self._written}"
        before = self._written
        inside = list(self._value(items, f"{copied}[{index}]", indent + " ", depth + 1))
        yield f"{indent}if type(x) is not list: return None"
        yield f"{indent}{place} = {copied} = x.copy()"
        yield f"{indent}left[0] -= len({copied}) * {self._written - before}"
        yield f"{indent}if left[0] < 0: return None"
        yield f"{indent}for {index}, x in enumerate({copied}):"
        yield from inside

    def _choice(self, schema: Schema) -> str:
        """Write the further condition of an enum of texts; other keywords are left to the validator."""
        options = schema.get("enum")
        if not schema.keys() <= _SILENT | {"enum"} or not _are_texts(options):
            self._need_validator(not schema.keys() <= _SILENT)
            return ""
        name = f"e{self._written}"
        self._names[name] = frozenset(options or ())
        return f" or x not in {name}"

    def _need_validator(self, needed: bool) -> None:  # noqa: FBT001 - the one question that it answers
        self.decides = self.decides and not needed

    def _has_room(self, depth: int, values: int | None) -> bool:
        return depth < DEEPEST_WRITTEN and values is not None and self._written + values <= MOST_WRITTEN


def _are_texts(options: Any) -> bool:
    return isinstance(options, list) and all(type(option) is str for option in options)


def _known_names(schema: Schema) -> int | None:
    """Count the names of an object when all that are usual are in its schema; None when they are not."""
    properties, required = schema.get("properties"), schema.get("required", [])
    others = schema.get("additionalProperties", True)
    named = (
        isinstance(properties, dict)
        and isinstance(others, bool)
        and bool(properties or not others)
        and all(type(name) is str and is_unicode(name) for name in properties)
        and _are_texts(required)
        and all(name in properties for name in required)
    )
    return len(properties or ()) if named else None
