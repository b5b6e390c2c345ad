"""Type expressions: what a type label says, such as `Text`, `[Maybe Int]` or `{name: Text, age: Int?}`.

An expression is read from its own text and turned into JSON Schema; nodes and properties are not known here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from gramercy.errors import TypeSignatureError
from gramercy.gram.json_schema import nullable
from gramercy.gram.suggestion import suggest
from gramercy.text import cut

if TYPE_CHECKING:
    from gramercy.gram.json_schema import Schema

JSON_TYPES = {
    "Text": "string",
    "String": "string",
    "Int": "integer",
    "Integer": "integer",
    "Double": "number",
    "Number": "number",
    "Float": "number",
    "Bool": "boolean",
    "Boolean": "boolean",
    "Object": "object",
    "Array": "array",
}
# Deeper types are not written by people; the bound keeps every later walk off the stack's end.
DEEPEST_TYPE = 32

_TOKEN = re.compile(
    r"""\s*(?:(?P<name>[A-Za-z_][\w.\-@]*)|"(?P<quoted>(?:[^"\\]|\\[\s\S])+)"|(?P<sign>[\[\](){}:,?]))"""
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_PLAIN_NAME = re.compile(r"[A-Za-z_][\w.\-@]*\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Named:
    """One of the named types; `Object` and `Array` alone say nothing about their inside."""

    name: str


@dataclass(frozen=True, slots=True)
class ListOf:
    """`[T]`."""

    item: Type


@dataclass(frozen=True, slots=True)
class Maybe:
    """`Maybe T` or `T?`: a parameter or field that may be left out, a list item that may be null."""

    item: Type


@dataclass(frozen=True, slots=True)
class RecordOf:
    """`{name: T, name: T}`: an object with these fields."""

    fields: tuple[tuple[str, Type], ...]


Type: TypeAlias = Named | ListOf | Maybe | RecordOf


def parse_type(text: str) -> Type:
    """Read a type expression, or raise TypeSignatureError with the place inside the expression."""
    return _TypeReader(text).read()


def format_type(kind: Type) -> str:
    """Write a type expression that `parse_type` reads back as the same type."""
    match kind:
        case Named(name):
            return name
        case ListOf(item):
            return f"[{format_type(item)}]"
        case Maybe(item):
            return f"{format_type(item)}?"
        case RecordOf(fields):
            written = (f"{_format_name(name)}: {format_type(item)}" for name, item in fields)
            return f"{{{', '.join(written)}}}"


def type_schema(kind: Type, inside: Schema | None = None) -> Schema:
    """Return the JSON Schema of a type; `inside` describes its innermost `Object`."""
    match kind:
        case Named("Object"):
            return {"type": "object", **(inside or {})}
        case Named(name):
            return {"type": JSON_TYPES[name]}
        case ListOf(Maybe(item)):
            return {"type": "array", "items": nullable(type_schema(item, inside))}
        case ListOf(item):
            return {"type": "array", "items": type_schema(item, inside)}
        case Maybe(item):
            return type_schema(item, inside)
        case RecordOf(fields):
            required = [name for name, item in fields if not isinstance(item, Maybe)]
            properties = {name: type_schema(item) for name, item in fields}
            return {"type": "object", "properties": properties, "required": required}


def innermost(kind: Type) -> Type:
    """Return what is left of a type without its lists and maybes."""
    while isinstance(kind, ListOf | Maybe):
        kind = kind.item
    return kind


def _format_name(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return name if _PLAIN_NAME.match(name) else f'"{escaped}"'


class _TypeReader:
    """Recursive descent over one expression."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.offset = 0
        self.depth = 0

    def read(self) -> Type:
        kind = self.type()
        if self.text[self.offset :].strip():
            self.refuse("unexpected text after the type")
        return kind

    def type(self) -> Type:
        self.depth += 1
        if self.depth > DEEPEST_TYPE:
            self.refuse(f"the type is nested deeper than {DEEPEST_TYPE} levels")
        kind = self.atom()
        while self.accept("?"):
            kind = _maybe(kind)
        self.depth -= 1
        return kind

    def atom(self) -> Type:
        if self.accept("["):
            return ListOf(self.closed("]"))
        if self.accept("("):
            return self.closed(")")
        if self.accept("{"):
            return self.record()
        start = self.offset
        name = self.name("a type")
        if name == "Maybe":
            return _maybe(self.type())
        if name not in JSON_TYPES:
            raise TypeSignatureError(f"unknown type {name!r}", self.text, start, hint=_known_types(name))
        return Named(name)

    def closed(self, sign: str) -> Type:
        kind = self.type()
        self.expect(sign)
        return kind

    def record(self) -> RecordOf:
        fields: dict[str, Type] = {}
        while not self.accept("}"):
            if fields:
                self.expect(",")
            name = self.name("a field name")
            if name in fields:
                self.refuse(f"the field {name!r} is written twice")
            self.expect(":")
            fields[name] = self.type()
        return RecordOf(tuple(fields.items()))

    def name(self, wanted: str) -> str:
        match = _TOKEN.match(self.text, self.offset)
        if match is None or not (match["name"] or (match["quoted"] and wanted != "a type")):
            self.refuse(f"expected {wanted}")
        self.offset = match.end()
        return match["name"] or _ESCAPED.sub(r"\1", match["quoted"])

    def accept(self, sign: str) -> bool:
        match = _TOKEN.match(self.text, self.offset)
        if match is None or match["sign"] != sign:
            return False
        self.offset = match.end()
        return True

    def expect(self, sign: str) -> None:
        if not self.accept(sign):
            self.refuse(f"expected {sign!r}")

    def refuse(self, reason: str) -> NoReturn:
        shown = cut(self.text, 60)
        hint = "types are Text, Int, Double, Bool, Object, Array, `Maybe T`, `[T]`, `{field: T}`"
        raise TypeSignatureError(f"{reason} in the type {shown!r}", self.text, self.offset, hint=hint)


def _maybe(kind: Type) -> Maybe:
    return kind if isinstance(kind, Maybe) else Maybe(kind)


def _known_types(name: str) -> str:
    close = suggest(name, JSON_TYPES)
    guess = f"did you mean {close[0]}? " if close else ""
    return f"{guess}types are {', '.join(JSON_TYPES)}, `Maybe T`, `[T]`, `{{field: T}}`"
