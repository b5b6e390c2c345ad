"""Parameters of a type signature: plain values, their JSON Schema and their node in gram.

How a parameter is read from a node is the business of `declaration`; types are the business of `types`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal

from gramercy.errors import GramError
from gramercy.gram.signatures.types import Maybe, Type, format_type, type_schema
from gramercy.gram.syntax.tree import NO_SPAN, Label, Node, Record, Span, Subject, Tagged

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gramercy.gram.json_schema import Schema
    from gramercy.gram.syntax.tree import Value

# The properties of a node that go into the schema unchanged, in the order in which they are written.
CONSTRAINTS: Final = (
    "description",
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "examples",
)


class Absent(Enum):
    """The default of a parameter that has none; null is a value."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent.ABSENT
Naming = Literal["property", "identity", "position"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter, or one field of an object: the type never is a Maybe, `optional` says that instead.

    `fields` describes the innermost Object of the type. `schema` replaces everything that the type would say.
    """

    name: str
    type: Type
    optional: bool = False
    default: Any = ABSENT
    constraints: Mapping[str, Any] = field(default_factory=dict)
    fields: tuple[Parameter, ...] | None = None
    schema: Schema | None = None
    naming: Naming = field(default="property", compare=False)
    span: Span = field(default=NO_SPAN, compare=False)
    default_span: Span = field(default=NO_SPAN, compare=False)

    @property
    def has_default(self) -> bool:
        """Whether a default was given."""
        return self.default is not ABSENT

    @property
    def is_escaped(self) -> bool:
        """Whether the parameter or a field inside it gives its schema whole."""
        return self.schema is not None or any(item.is_escaped for item in self.fields or ())

    def to_schema(self) -> Schema:
        """Return the JSON Schema of the parameter's value."""
        if self.schema is not None:
            return self.schema
        inside = None if self.fields is None else fields_schema(self.fields)
        schema = {**type_schema(self.type, inside), **self.constraints}
        return {**schema, "default": self.default} if self.has_default else schema

    def to_node(self) -> Node:
        """Return the node that stands for the parameter in a path."""
        identity = self.name if self.naming == "identity" else None
        values: dict[str, Value] = {"paramName": self.name} if self.naming == "property" else {}
        values |= _own_properties(self)
        return Node(Subject(identity, (type_label(self.type),), Record.of(values) if values else None))


def fields_schema(parameters: Iterable[Parameter]) -> Schema:
    """Return the properties and the required names that parameters or fields make."""
    properties, required = {}, []
    for parameter in parameters:
        properties[parameter.name] = parameter.to_schema()
        if not parameter.optional:
            required.append(parameter.name)
    return {"properties": properties, "required": required}


def type_label(kind: Type) -> Label:
    """Return the label that says a type."""
    return Label(format_type(kind), "::")


def from_json(value: Any) -> Value:
    """Return a JSON value in gram, as tagged JSON when the strict language has no other way."""
    if isinstance(value, str | int | float):
        return value
    items = value.values() if isinstance(value, dict) else value
    if (
        value
        and isinstance(value, list | dict)
        and all(isinstance(item, str | int | float) for item in items)
    ):
        return value
    return tagged_json(value)


def tagged_json(value: Any) -> Tagged:
    """Return a JSON value as a tagged string."""
    try:
        return Tagged("json", json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
    except (TypeError, ValueError, RecursionError) as error:
        raise GramError(f"the value is not JSON: {error}") from None


def _own_properties(parameter: Parameter) -> dict[str, Value]:
    values: dict[str, Value] = {}
    if parameter.optional and not parameter.has_default:
        values["optional"] = True
    if parameter.schema is not None:
        return {**values, "schema": tagged_json(parameter.schema)}
    if parameter.fields is not None:
        values["fields"] = _fields_value(parameter.fields)
    ordered = (key for key in CONSTRAINTS if key in parameter.constraints)
    values |= {key: from_json(parameter.constraints[key]) for key in ordered}
    return {**values, "default": from_json(parameter.default)} if parameter.has_default else values


def _fields_value(fields: tuple[Parameter, ...]) -> Value:
    if all(map(_is_plain, fields)):
        types = ((item.name, Maybe(item.type) if item.optional else item.type) for item in fields)
        return {name: format_type(kind) for name, kind in types}
    return [{"name": item.name, "type": format_type(item.type), **_own_properties(item)} for item in fields]


def _is_plain(item: Parameter) -> bool:
    return not item.has_default and not item.constraints and item.fields is None and item.schema is None
