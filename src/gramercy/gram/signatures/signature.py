"""Type signatures: `(::Text {paramName:"name"})==>(::String)` as values, and the JSON Schema they stand for.

A signature is a path of parameter nodes that ends in the node of the result; every arrow points right.
`()` as the only source takes nothing, and ``({schema: json`…`})`` as the only source gives the whole schema.
A signature that is derived from a schema always gives the same schema back: what the portable
notation cannot say goes into such an escape, of one parameter when that is enough, of all otherwise.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gramercy.errors import GramError, GramSyntaxError, InvalidSchemaError, TypeSignatureError
from gramercy.gram.json_schema import canonical_schema, compile_schema
from gramercy.gram.signatures.declaration import default_faults, read_parameter, read_schema, read_type_label
from gramercy.gram.signatures.parameters import (
    ABSENT,
    CONSTRAINTS,
    Parameter,
    fields_schema,
    tagged_json,
    type_label,
)
from gramercy.gram.signatures.properties import Place, Properties
from gramercy.gram.signatures.types import (
    JSON_TYPES,
    ListOf,
    Maybe,
    Named,
    RecordOf,
    Type,
    parse_type,
)
from gramercy.gram.syntax.printer import print_gram
from gramercy.gram.syntax.reader import read
from gramercy.gram.syntax.tree import EMPTY_SUBJECT, Arrow, Edge, Node, Path, Record, Subject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gramercy.gram.json_schema import Schema
    from gramercy.gram.syntax.tree import Annotated, Bracket, Reference

_EXAMPLE = "write it like (name::Text)==>(::String)"


@dataclass(frozen=True, slots=True)
class TypeSignature:
    """What a tool takes and gives; `arguments` is a whole schema that no list of parameters could say."""

    parameters: tuple[Parameter, ...]
    returns: Type
    arguments: Schema | None = None

    def to_schema(self) -> Schema:
        """Return the JSON Schema of the arguments: an object with its properties in order."""
        if self.arguments is not None:
            return deepcopy(self.arguments)
        return deepcopy({"type": "object", **fields_schema(self.parameters)})

    def to_gram(self) -> str:
        """Write the signature in curried form."""
        nodes = [parameter.to_node() for parameter in self.parameters] or [Node()]
        if self.arguments is not None:
            nodes = [Node(Subject(record=Record.of({"schema": tagged_json(self.arguments)})))]
        edges = tuple(Edge(Arrow()) for _ in nodes)
        return print_gram(Path((*nodes, Node(Subject(labels=(type_label(self.returns),)))), edges))


def parse_type_signature(text: str) -> TypeSignature:
    """Read a type signature, or raise TypeSignatureError with line, column and hint."""
    return signature_of_path(path_of_signature(text), text)


def path_of_signature(text: str) -> Path:
    """Return the one path that a text must consist of."""
    try:
        document = read(text)
    except GramSyntaxError as error:
        source = text if isinstance(text, str) else ""
        raise TypeSignatureError(error.reason, source, error.offset, hint=error.hint or _EXAMPLE) from None
    patterns = document.patterns
    if document.record is not None or len(patterns) != 1:
        offset = patterns[1].span[0] if len(patterns) > 1 else 0
        raise TypeSignatureError("a type signature is exactly one path", text, offset, hint=_EXAMPLE)
    return _as_path(patterns[0], text)


def signature_of_path(path: Path | Node | Bracket | Reference, source: str) -> TypeSignature:
    """Read the signature that a parsed element of a text stands for, with every default checked."""
    signature = read_signature(path, source)
    for parameter in signature.parameters:
        for fault in default_faults(parameter, source):
            raise fault
    return signature


def read_signature(path: Path | Node | Bracket | Reference, source: str) -> TypeSignature:
    """Read a signature but leave its defaults unchecked, so that a linter can report each of them."""
    path = _as_path(path, source)
    for edge in path.edges:
        _check_arrow(edge, source)
    *sources, target = path.nodes
    returns = read_type_label(target, source)
    if len(sources) == 1 and not sources[0].subject.labels:
        whole = _whole_source(sources[0], source, returns)
        if whole is not None:
            return whole
    parameters = _parameters(sources, source)
    _check_escapes(parameters, source)
    return TypeSignature(parameters, returns)


def _as_path(pattern: Path | Node | Bracket | Reference | Annotated, source: str) -> Path:
    if isinstance(pattern, Path):
        return pattern
    if isinstance(pattern, Node):
        reason, hint = "the signature has no arrow and no result", "write (name::Text)==>(::String)"
    else:
        reason, hint = "a type signature is a path of nodes", _EXAMPLE
    raise Place(source, pattern.span[0]).fault(reason, hint)


def _check_arrow(edge: Edge, source: str) -> None:
    place = Place(source, edge.span[0])
    if edge.arrow.points_left and not edge.arrow.points_right:
        raise place.fault("the arrow points left", "turn it round: parameters ==> result")
    if edge.arrow.points_left or not edge.arrow.points_right:
        kind = "points both ways" if edge.arrow.points_left else "has no direction"
        raise place.fault(f"the arrow {kind}", "arrows of a signature point right: ==>")
    if edge.subject is not None and edge.subject.properties:
        raise place.fault("an arrow of a signature has no properties", "put them into a node")


def _whole_source(node: Node, source: str, returns: Type) -> TypeSignature | None:
    """Read the only source when it is not a parameter: nothing at all, or the schema of all arguments."""
    if node.subject.record is None and node.subject == EMPTY_SUBJECT:
        return TypeSignature((), returns)
    if node.subject.identity is not None or set(node.subject.properties) != {"schema"}:
        return None
    properties = Properties(node.subject.properties, "arguments", Place(source, node.span[0]))
    schema = read_schema(properties)
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise properties.fault("schema", f"is of type {kind!r}, but arguments are an object")
    _compile(schema, properties.place_of("schema"))
    return TypeSignature((), returns, schema)


def _parameters(nodes: Sequence[Node], source: str) -> tuple[Parameter, ...]:
    found: dict[str, Parameter] = {}
    for number, node in enumerate(nodes, 1):
        parameter = read_parameter(node, source, "input" if len(nodes) == 1 else f"arg{number}")
        if parameter.name in found:
            raise Place(source, node.span[0]).fault(
                f"two parameters are named {parameter.name!r}", "give each parameter its own name"
            )
        found[parameter.name] = parameter
    return tuple(found.values())


def _check_escapes(parameters: tuple[Parameter, ...], source: str) -> None:
    # References inside an escaped schema start at the root, so only the whole can be compiled.
    escaped = [parameter for parameter in parameters if parameter.is_escaped]
    if escaped:
        _compile({"type": "object", **fields_schema(parameters)}, Place(source, escaped[0].span[0]))


def _compile(schema: Schema, place: Place) -> None:
    try:
        compile_schema(schema)
    except InvalidSchemaError as error:
        raise place.fault(f"the schema cannot be used: {error}") from None


def type_signature_to_json_schema(text: str) -> Schema:
    """Return the JSON Schema that a type signature stands for, or raise TypeSignatureError."""
    return parse_type_signature(text).to_schema()


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
