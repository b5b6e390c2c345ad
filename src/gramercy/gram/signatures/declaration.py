"""Read one parameter of a type signature: a node, or one entry of the `fields` of an object.

The record type `{field1: T1, field2: T2}` is written in one of three ways that mean the same: as a flat map
`(::Object {fields:{field1:"T1", field2:"T2?"}})`, as a quoted label ``(::`{field1: T1, field2: T2?}`)``, or
as a list of maps `{name, type, …}` where fields need more than a type.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from gramercy.errors import InvalidSchemaError, TypeSignatureError
from gramercy.gram.json_schema import compile_cached, compile_schema
from gramercy.gram.signatures.parameters import ABSENT, Parameter
from gramercy.gram.signatures.properties import Place, Properties, read_constraints
from gramercy.gram.signatures.types import (
    JSON_TYPES,
    ListOf,
    Maybe,
    Named,
    Type,
    innermost,
    parse_type,
    type_schema,
)
from gramercy.gram.syntax.tree import NO_SPAN, Tagged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gramercy.gram.json_schema import Schema
    from gramercy.gram.signatures.parameters import Naming
    from gramercy.gram.syntax.tree import Node, Span, Value


def read_parameter(node: Node, source: str, fallback: str) -> Parameter:
    """Read a node as a parameter; `fallback` is the name of one that has none."""
    place = Place(source, node.span[0])
    name, naming = _name(node, place, fallback)
    properties = Properties(node.subject.properties, name, place)
    properties.refuse_unknown("paramName")
    kind = read_type_label(node, source)
    return _parameter(kind, properties, naming=naming, span=node.span)


def read_type_label(node: Node, source: str) -> Type:
    """Read the one type label that a parameter or a return node has."""
    labels = node.subject.labels
    if len(labels) != 1:
        raise _label_fault(node, source)
    return parse_type_at(labels[0].name, Place(source, labels[0].span[0]))


def parse_type_at(text: str, place: Place) -> Type:
    """Read a type expression, with errors that point into the signature."""
    try:
        return parse_type(text)
    except TypeSignatureError as error:
        raise place.fault(error.reason, error.hint) from None


def default_faults(parameter: Parameter, source: str) -> Iterator[TypeSignatureError]:
    """Yield an error for each default, the fields' included, that does not fit its own type."""
    for item in parameter.fields or ():
        yield from default_faults(item, source)
    if not parameter.has_default:
        return
    fault = _first_fault(parameter, parameter.default)
    if fault:
        reason = f"the default of {parameter.name!r} does not fit its type: {fault}"
        hint = "leave the default out and write optional:true" if parameter.default is None else None
        yield Place(source, parameter.default_span[0]).fault(reason, hint)


def _name(node: Node, place: Place, fallback: str) -> tuple[str, Naming]:
    identity = node.subject.identity
    if "paramName" not in node.subject.properties:
        return (identity, "identity") if identity else (fallback, "position")
    properties = Properties(node.subject.properties, identity or fallback, place)
    name = properties.text("paramName")
    if not name.strip():
        raise properties.fault("paramName", "is empty", 'give the parameter a name: paramName:"name"')
    if identity and identity != name:
        raise place.fault(
            f"the parameter has two names, {identity!r} and paramName {name!r}", "keep one of the two"
        )
    return name, "property"


def _label_fault(node: Node, source: str) -> TypeSignatureError:
    subject = node.subject
    if subject.labels:
        reason = f"a node has one type, not {' and '.join(subject.label_names)}"
        return Place(source, subject.labels[1].span[0]).fault(reason, "keep one label")
    if subject.identity in JSON_TYPES:
        hint = f"a type is a label: (::{subject.identity})"
    else:
        hint = f"write ({subject.identity or ''}::Text)"
    return Place(source, node.span[0]).fault("a node of a type signature needs a type", hint)


def _parameter(
    kind: Type, properties: Properties, *, naming: Naming = "property", span: Span = NO_SPAN
) -> Parameter:
    optional = isinstance(kind, Maybe) or "default" in properties or properties.flag("optional") is True
    if optional and properties.flag("optional") is False:
        raise properties.fault("optional", "contradicts the Maybe type or the default", "leave optional out")
    kind = kind.item if isinstance(kind, Maybe) else kind
    if "schema" in properties:
        schema = _escaped_schema(kind, properties)
        return Parameter(properties.owner, kind, optional, schema=schema, naming=naming, span=span)
    kind, fields = _inside(kind, properties)
    parameter = Parameter(
        properties.owner,
        kind,
        optional,
        default=properties.json("default") if "default" in properties else ABSENT,
        constraints=read_constraints(properties, type_schema(kind)["type"]),
        fields=fields,
        naming=naming,
        span=span,
        default_span=properties.span_of("default"),
    )
    _check_constraints(parameter, properties)
    return parameter


def _inside(kind: Type, properties: Properties) -> tuple[Type, tuple[Parameter, ...] | None]:
    """Return the type with its elements known, and the fields of its object."""
    if "elementType" in properties:
        if kind != Named("Array"):
            hint = 'write (::Array {elementType:"Int"})'
            raise properties.fault("elementType", "belongs to the type Array", hint)
        kind = ListOf(parse_type_at(properties.text("elementType"), properties.place_of("elementType")))
    if "fields" not in properties:
        return kind, None
    if innermost(kind) != Named("Object"):
        raise properties.fault("fields", "belongs to the type Object", "write (::Object {fields:{…}})")
    return kind, _fields(properties)


def _fields(properties: Properties) -> tuple[Parameter, ...]:
    value, place = properties.values["fields"], properties.place_of("fields")
    if isinstance(value, dict):
        fields = [_flat_field(name, kind, place) for name, kind in value.items()]
    elif isinstance(value, list):
        fields = [_listed_field(item, place) for item in value]
    else:
        hint = 'write fields:{name:"Text", age:"Int?"}'
        raise properties.fault("fields", "must be a map or a list of maps", hint)
    counts = Counter(item.name for item in fields)
    for name, count in counts.items():
        if count > 1:
            raise properties.fault("fields", f"has the name {name!r} twice")
    return tuple(fields)


def _flat_field(name: str, kind: Value, place: Place) -> Parameter:
    text = Properties({name: kind}, name, place).text(name)
    return _parameter(parse_type_at(text, place), Properties({}, name, place))


def _listed_field(item: Value, place: Place) -> Parameter:
    if not isinstance(item, dict) or "name" not in item or "type" not in item:
        raise place.fault("a field needs a name and a type", 'write {name:"age", type:"Int"}')
    name = Properties(item, "field", place).text("name")
    properties = Properties(item, name, place)
    properties.refuse_unknown("name", "type")
    return _parameter(parse_type_at(properties.text("type"), place), properties)


def _escaped_schema(kind: Type, properties: Properties) -> Schema:
    """Return the schema that was given whole; nothing else may describe the same value."""
    others = properties.values.keys() - {"schema", "optional", "paramName", "name", "type"}
    if others:
        raise properties.fault("schema", f"says everything about the value; {min(others)} must go into it")
    schema = read_schema(properties)
    said, labelled = schema.get("type"), type_schema(kind)["type"]
    if said in JSON_TYPES.values() and said != labelled:
        raise properties.fault("schema", f"is of type {said!r}, but the label says {labelled!r}")
    return schema


def read_schema(properties: Properties) -> Schema:
    """Return the JSON object of a `schema` property."""
    value = properties.values["schema"]
    schema = properties.json("schema")
    if not isinstance(value, Tagged | dict) or not isinstance(schema, dict):
        raise properties.fault("schema", "must be a JSON object", "write schema: json`{…}`")
    return schema


def _check_constraints(parameter: Parameter, properties: Properties) -> None:
    """Refuse constraints that are no JSON Schema, and values in them that do not fit the type."""
    for key, value in parameter.constraints.items():
        try:
            compile_schema({key: value})
        except InvalidSchemaError as error:
            raise properties.fault(key, f"cannot be used: {error}") from None
    for key, without in (("enum", ("enum", "examples")), ("examples", ("examples",))):
        for value in parameter.constraints.get(key, ()):
            fault = _first_fault(parameter, value, without)
            if fault:
                raise properties.fault(key, f"has a value that does not fit the type: {fault}")


def _first_fault(parameter: Parameter, value: Any, without: tuple[str, ...] = ()) -> str | None:
    left_out = {"default", *without}
    schema = {key: part for key, part in parameter.to_schema().items() if key not in left_out}
    try:
        errors = compile_cached(schema).iter_errors(value)
    except InvalidSchemaError as error:
        return str(error)
    for fault in errors:
        where = "/".join(map(str, fault.instance_path))
        return f"{fault.message} (at {where})" if where else fault.message
    return None
