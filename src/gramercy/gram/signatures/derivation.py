"""Derive a type signature from what already exists: a JSON Schema or a Python function.

The derived signature always gives the same schema back. What the portable notation cannot say goes into a
``schema: json`…` `` escape: of one parameter when that is enough, of all arguments otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gramercy.errors import GramError, InvalidSchemaError, TypeSignatureError
from gramercy.gram.functions import function_to_schema, result_to_schema
from gramercy.gram.json_schema import canonical_schema, compile_schema
from gramercy.gram.signatures.parameters import ABSENT, CONSTRAINTS, Parameter
from gramercy.gram.signatures.signature import TypeSignature, parse_type_signature
from gramercy.gram.signatures.types import (
    JSON_TYPES,
    ListOf,
    Maybe,
    Named,
    RecordOf,
    Type,
    format_type,
    parse_type,
)
from gramercy.gram.syntax.reader import read

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.gram.json_schema import Schema

# The seed's own word for each JSON type.
_NAMES: Final = {
    "string": "Text",
    "integer": "Int",
    "number": "Double",
    "boolean": "Bool",
    "object": "Object",
    "array": "Array",
}
_OBJECT_KEYS: Final = frozenset({"type", "properties", "required"})


def json_schema_to_signature(schema: Schema, *, returns: str = "String") -> str:
    """Return a portable signature whose schema is the given one; raise InvalidSchemaError when it is none."""
    if not isinstance(schema, dict):
        raise InvalidSchemaError(f"the schema of a tool is a JSON object, not {type(schema).__name__}")
    compile_schema(schema)
    result = parse_type(returns)
    for signature in (_by_parameters(schema, result), TypeSignature((), result, schema)):
        text = _faithful_text(signature, schema) if signature else None
        if text is not None:
            return text
    # Both attempts failed, so the arguments cannot be an object at all: let the reader say why.
    text = TypeSignature((), result, schema).to_gram()
    parse_type_signature(text)
    raise TypeSignatureError("no type signature can say this schema", text, 0)


def function_to_signature(function: Callable[..., Any]) -> TypeSignature:
    """Return the type signature of an annotated Python function."""
    result = _type_of(result_to_schema(function)) or Named("String")
    text = json_schema_to_signature(function_to_schema(function), returns=format_type(result))
    return parse_type_signature(text)


def _faithful_text(signature: TypeSignature, schema: Schema) -> str | None:
    """Return the text of a signature when strict readers accept it and it gives the schema back."""
    try:
        text = signature.to_gram()
        read(text, strict=True)
        same = canonical_schema(parse_type_signature(text).to_schema()) == canonical_schema(schema)
    except GramError:
        return None
    return text if same else None


def _by_parameters(schema: Schema, returns: Type) -> TypeSignature | None:
    properties, required = schema.get("properties"), schema.get("required")
    if schema.keys() != _OBJECT_KEYS or schema["type"] != "object":
        return None
    if not isinstance(properties, dict) or not isinstance(required, list):
        return None
    parameters = (_parameter(name, part, name not in required) for name, part in properties.items())
    return TypeSignature(tuple(parameters), returns)


def _parameter(name: str, schema: Any, optional: bool) -> Parameter:  # noqa: FBT001 - a field, not a mode
    parameter = _portable_parameter(name, schema, optional) if isinstance(schema, dict) else None
    if parameter is not None and _faithful_text(
        TypeSignature((parameter,), Named("String")), _alone(parameter)
    ):
        return parameter
    label = _NAMES.get(schema["type"], "Object") if _has_one_type(schema) else "Object"
    return Parameter(name, Named(label), optional, schema=schema)


def _alone(parameter: Parameter) -> Schema:
    return TypeSignature((parameter,), Named("String")).to_schema()


def _portable_parameter(name: str, schema: Schema, optional: bool) -> Parameter | None:  # noqa: FBT001 - as above
    constraints: Schema = {key: schema[key] for key in CONSTRAINTS if key in schema}
    default = schema.get("default", ABSENT)
    kind = _type_of({key: part for key, part in schema.items() if key not in {"default", *constraints}})
    if kind is None or isinstance(kind, Maybe) or (default is not ABSENT and not optional):
        return None
    fields = None
    if isinstance(kind, RecordOf):
        fields = tuple(_field(*entry) for entry in kind.fields)
        kind = Named("Object")
    parameter = Parameter(name, kind, optional, default, constraints, fields)
    return parameter if canonical_schema(parameter.to_schema()) == canonical_schema(schema) else None


def _field(name: str, kind: Type) -> Parameter:
    if isinstance(kind, Maybe):
        return Parameter(name, kind.item, optional=True)
    return Parameter(name, kind)


def _type_of(schema: Any) -> Type | None:
    """Return the type expression that says exactly this schema, or None."""
    if not isinstance(schema, dict):
        return None
    kind = schema.get("type")
    if isinstance(kind, list) and len(kind) == 2 and kind[1] == "null":  # noqa: PLR2004 - T and null
        inner = _type_of({**schema, "type": kind[0]})
        return None if inner is None or isinstance(inner, Maybe) else Maybe(inner)
    if not _has_one_type(schema):
        return None
    if schema.keys() == {"type"}:
        return Named(_NAMES[schema["type"]])
    if kind == "array" and schema.keys() == {"type", "items"}:
        item = _type_of(schema["items"])
        return None if item is None else ListOf(item)
    return _record_of(schema) if kind == "object" and schema.keys() == _OBJECT_KEYS else None


def _record_of(schema: Schema) -> RecordOf | None:
    fields = []
    required = set(schema["required"])
    if not required <= schema["properties"].keys():
        return None
    for name, part in schema["properties"].items():
        kind = _type_of(part)
        if kind is None or isinstance(kind, Maybe):
            return None
        fields.append((name, kind if name in required else Maybe(kind)))
    return RecordOf(tuple(fields))


def _has_one_type(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") in JSON_TYPES.values()
