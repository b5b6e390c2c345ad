"""Describe Python functions and annotations as JSON Schema, in the words that type signatures use.

A parameter `T | None = None` is what gram calls `Maybe T`: it has the schema of T and may be left out.
Descriptions come out of docstrings in the three usual styles: Google, NumPy and reST.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import inspect
import json
import pathlib
import re
import sys
import types
import typing
import uuid
from collections import abc
from enum import Enum
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from gramercy.errors import SpecificationError
from gramercy.gram.json_schema import nullable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gramercy.gram.json_schema import Schema

_REFUSED_KINDS = {
    inspect.Parameter.VAR_POSITIONAL: "takes any number of arguments: name each one, or take a list",
    inspect.Parameter.VAR_KEYWORD: "takes arguments of any name: name each one, or take a dict",
    inspect.Parameter.POSITIONAL_ONLY: "cannot be given by name: remove the / from the parameters",
}

# What is no schema itself inside of one.
_DATA = frozenset(("default", "enum", "const", "examples"))


def function_to_schema(function: Callable[..., Any]) -> Schema:
    """Return the JSON Schema of a function's parameters, with descriptions from annotations and docstring."""
    described = described_parameters(inspect.getdoc(function))
    properties, required = {}, []
    for parameter in _signature(function).parameters.values():
        schema = _parameter_schema(function, parameter)
        if parameter.name in described:
            schema = _with_description(schema, described[parameter.name])
        properties[parameter.name] = schema
        if parameter.default is inspect.Parameter.empty:
            required.append(parameter.name)
    return {"type": "object", "properties": properties, "required": required}


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        raise SpecificationError(
            f"{_name(function)} has no signature that Python can show: wrap it in a function with annotations"
        ) from None


def _parameter_schema(function: Callable[..., Any], parameter: inspect.Parameter) -> Schema:
    which = f"the parameter {parameter.name!r} of {_name(function)}"
    if parameter.kind in _REFUSED_KINDS:
        raise SpecificationError(f"{which} {_REFUSED_KINDS[parameter.kind]}")
    if parameter.annotation is inspect.Parameter.empty:
        raise SpecificationError(f"{which} has no annotation: write {parameter.name}: str, or another type")
    try:
        return field_schema(resolve_annotation(function, parameter.annotation), parameter.default)
    except SpecificationError as error:
        raise SpecificationError(f"{which}: {error}") from None


def _with_description(schema: Schema, description: str) -> Schema:
    if "description" in schema:
        return schema
    described = {**schema, "description": description}
    # The default stands last, as it does in the schema of a type signature.
    if "default" in described:
        described["default"] = described.pop("default")
    return described


def resolve_annotation(function: Callable[..., Any], annotation: Any) -> Any:
    """Evaluate one annotation; the others of the function may be unresolvable without harm."""
    holder = SimpleNamespace(__annotations__={"annotation": annotation})
    namespace = getattr(_innermost(function), "__globals__", {})
    try:
        return typing.get_type_hints(holder, namespace, include_extras=True)["annotation"]
    except Exception as error:  # noqa: BLE001 - annotations are code, which may fail in any way
        raise SpecificationError(
            f"the annotation {annotation!r} cannot be resolved ({error}): import or define it at module level"
        ) from None


def _innermost(function: Any) -> Any:
    """Return the plain function behind partials, bound methods, decorators and callable objects."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.isroutine(function) and not inspect.isclass(function):
        function = type(function).__call__
    return inspect.unwrap(getattr(function, "__func__", function))


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


_GOOGLE_HEADING: Final = re.compile(
    r"(?:Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments):\s*\Z"
)
_GOOGLE_ENTRY: Final = re.compile(
    r"\*{0,2}(?P<name>\w+)\s*(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?\s*:(?:\s+(?P<text>.*))?\Z"
)
_NUMPY_HEADING: Final = re.compile(r"(?:Other )?Parameters\Z")
_NUMPY_ENTRY: Final = re.compile(r"(?P<names>\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?\Z")
_REST_ENTRY: Final = re.compile(
    r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(?P<name>\w+)\s*:\s*(?P<text>.*)\Z"
)
_UNDERLINE: Final = re.compile(r"-{3,}\s*\Z")


def described_parameters(docstring: str | None) -> dict[str, str]:
    """Return what a docstring says about each parameter; a part that is not understood is left out."""
    if not docstring:
        return {}
    lines = inspect.cleandoc(docstring).expandtabs().splitlines()
    found: dict[str, list[str]] = {}
    for entries in (_google(lines), _numpy(lines), _rest(lines)):
        for name, words in entries:
            found.setdefault(name, words)
    described = {name: " ".join(filter(None, map(str.strip, words))) for name, words in found.items()}
    return {name: words for name, words in described.items() if words}


def _starts_section(lines: list[str], number: int) -> bool:
    line = lines[number]
    underlined = number + 1 < len(lines) and _UNDERLINE.match(lines[number + 1])
    return bool(_GOOGLE_HEADING.match(line) or _REST_ENTRY.match(line) or underlined)


def _google(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(lines):
        if _GOOGLE_HEADING.match(line):
            yield from _indented_entries(lines[number + 1 :])


def _indented_entries(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the entries of one indented section; deeper lines continue an entry."""
    depth: int | None = None
    words: list[str] = []
    for line in lines:
        indent = _indent(line)
        if not line.strip():
            continue
        if indent == 0:
            return
        depth = indent if depth is None else depth
        entry = _GOOGLE_ENTRY.match(line.strip()) if indent <= depth else None
        if entry:
            words = [entry["text"] or ""]
            yield entry["name"], words
        else:
            words.append(line)


def _numpy(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(lines[:-1]):
        if _NUMPY_HEADING.match(line) and _UNDERLINE.match(lines[number + 1]):
            yield from _underlined_entries(lines[number + 2 :])


def _underlined_entries(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the entries of one underlined section; indented lines describe the entry above."""
    words: list[str] = []
    for number, line in enumerate(lines):
        if _starts_section(lines, number):
            return
        entry = _NUMPY_ENTRY.match(line) if line.strip() and _indent(line) == 0 else None
        if entry:
            words = []
            for name in entry["names"].split(","):
                yield name.strip(" *"), words
        else:
            words.append(line)


def _rest(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    words: list[str] = []
    for line in lines:
        entry = _REST_ENTRY.match(line.strip())
        if entry:
            words = [entry["text"]]
            yield entry["name"], words
        elif _indent(line):
            words.append(line)
        else:
            words = []


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


_SCALARS: Final[dict[Any, Schema]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    types.NoneType: {"type": "null"},
    Any: {},
    object: {},
    dt.datetime: {"type": "string", "format": "date-time"},
    dt.date: {"type": "string", "format": "date"},
    dt.time: {"type": "string", "format": "time"},
    dt.timedelta: {"type": "string", "format": "duration"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    pathlib.Path: {"type": "string"},
}
_LISTS: Final = (list, abc.Sequence, abc.MutableSequence, abc.Iterable, abc.Collection)
_SETS: Final = (set, frozenset, abc.Set, abc.MutableSet)
_MAPS: Final = (dict, abc.Mapping, abc.MutableMapping)
_WRAPPERS: Final = (typing.Required, typing.NotRequired, typing.Final)
_UNIONS: Final = (typing.Union, types.UnionType)

# Classes being described further out: one that comes again would never end.
_Open = tuple[Any, ...]


def annotation_to_schema(annotation: Any) -> Schema:
    """Return the JSON Schema of an annotation, or raise SpecificationError saying what to write instead."""
    return _describe(annotation, ())


def field_schema(annotation: Any, default: Any = inspect.Parameter.empty, within: _Open = ()) -> Schema:
    """Return the schema of something that may have a default; None means that it may be left out."""
    if default is inspect.Parameter.empty:
        return _describe(annotation, within)
    if default is None:
        return _describe(_without_none(annotation), within)
    schema = _describe(annotation, within)
    try:
        plain = json.loads(
            json.dumps(default.value if isinstance(default, Enum) else default, allow_nan=False)
        )
    except (TypeError, ValueError, RecursionError):
        return schema
    return {**schema, "default": plain}


def _describe(annotation: Any, within: _Open) -> Schema:
    scalar = _scalar(annotation)
    if scalar is not None:
        return scalar
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _annotated(arguments, within)
    if origin is typing.Literal:
        return _choices([item.value if isinstance(item, Enum) else item for item in arguments], annotation)
    if origin in _UNIONS:
        return _union(arguments, within)
    if origin in _WRAPPERS:
        return _describe(arguments[0], within)
    return _container(origin or annotation, arguments, within) or _named(annotation, within)


def _scalar(annotation: Any) -> Schema | None:
    try:
        found = _SCALARS.get(annotation)
    except TypeError:  # What stands in an annotation need not be hashable.
        return None
    return None if found is None else dict(found)


def _annotated(arguments: tuple[Any, ...], within: _Open) -> Schema:
    """Take a string beside the type as its description and a mapping as further keywords of the schema."""
    inner, *notes = arguments
    schema = _describe(inner, within)
    for note in notes:
        if isinstance(note, str):
            schema["description"] = note
        elif isinstance(note, abc.Mapping):
            schema.update(note)
    return schema


def _union(members: tuple[Any, ...], within: _Open) -> Schema:
    schemas = [_describe(member, within) for member in members if member is not types.NoneType]
    distinct = [schema for number, schema in enumerate(schemas) if schema not in schemas[:number]]
    schema = distinct[0] if len(distinct) == 1 else {"anyOf": distinct}
    if types.NoneType not in members or not schema:
        return schema
    return {"anyOf": [*distinct, {"type": "null"}]} if len(distinct) > 1 else nullable(schema)


def _container(kind: Any, arguments: tuple[Any, ...], within: _Open) -> Schema | None:
    if kind in _LISTS:
        return {"type": "array", **_items(arguments, within)}
    if kind in _SETS:
        return {"type": "array", **_items(arguments, within), "uniqueItems": True}
    if kind is tuple:
        return _tuple(arguments, within)
    return _mapping(arguments, within) if kind in _MAPS else None


def _items(arguments: tuple[Any, ...], within: _Open) -> Schema:
    item = _describe(arguments[0], within) if arguments else {}
    return {"items": item} if item else {}


def _tuple(arguments: tuple[Any, ...], within: _Open) -> Schema:
    if not arguments or arguments[-1] is Ellipsis:
        return {"type": "array", **_items(arguments, within)}
    places = [_describe(argument, within) for argument in arguments if argument != ()]
    return {"type": "array", "prefixItems": places, "minItems": len(places), "maxItems": len(places)}


def _mapping(arguments: tuple[Any, ...], within: _Open) -> Schema:
    if not arguments:
        return {"type": "object"}
    key, value = arguments
    if _describe(key, within).get("type", "string") != "string":
        raise SpecificationError(f"the keys of a JSON object are text, not {_shown(key)}: write dict[str, …]")
    schema = _describe(value, within)
    return {"type": "object", "additionalProperties": schema} if schema else {"type": "object"}


def _named(annotation: Any, within: _Open) -> Schema:
    """Describe what has a definition of its own: aliases, enums and classes."""
    if annotation in within:
        raise SpecificationError(
            f"{_shown(annotation)} contains itself: give it as dict and check it in the tool"
        )
    within = (*within, annotation)
    if isinstance(annotation, typing.NewType):
        return _describe(annotation.__supertype__, within)
    if type(annotation).__name__ == "TypeAliasType":
        return _describe(annotation.__value__, within)
    if inspect.isclass(annotation) and issubclass(annotation, Enum):
        return _choices([member.value for member in annotation], annotation)
    if typing.is_typeddict(annotation):
        return _typed_dict(annotation, within)
    if inspect.isclass(annotation) and dataclasses.is_dataclass(annotation):
        return _dataclass(annotation, within)
    if is_pydantic_model(annotation):
        return _pydantic_model(annotation)
    raise SpecificationError(
        f"{_shown(annotation)} has no JSON Schema: use str, int, float, bool, list[…], dict[str, …], "
        "Literal, an Enum, a TypedDict, a dataclass, a pydantic model or Any"
    )


def _choices(values: list[Any], annotation: Any) -> Schema:
    for value in values:
        if not isinstance(value, str | int | float | None):
            raise SpecificationError(
                f"{_shown(annotation)} has the value {value!r}, which is not JSON: use text or numbers"
            )
    described = [_SCALARS.get(type(value), {}) for value in values]
    same = described[:1] if all(schema == described[0] for schema in described) else []
    return {**(same[0] if same else {}), "enum": values}


def _typed_dict(kind: Any, within: _Open) -> Schema:
    properties, required = {}, []
    for name, hint in _hints(kind).items():
        properties[name] = _describe(hint, within)
        # The wrapper counts first: with postponed annotations __required_keys__ does not know of it.
        origin = typing.get_origin(hint)
        if origin is typing.Required or (origin is not typing.NotRequired and name in kind.__required_keys__):
            required.append(name)
    return {"type": "object", "properties": properties, "required": required}


def _dataclass(kind: Any, within: _Open) -> Schema:
    properties, required = {}, []
    hints = _hints(kind)
    for item in dataclasses.fields(kind):
        if not item.init:
            continue
        optional = item.default_factory is not dataclasses.MISSING or item.default is not dataclasses.MISSING
        default = inspect.Parameter.empty if item.default is dataclasses.MISSING else item.default
        properties[item.name] = field_schema(hints[item.name], default, within)
        if not optional:
            required.append(item.name)
    return {"type": "object", "properties": properties, "required": required}


def is_pydantic_model(annotation: Any) -> bool:
    """Tell whether an annotation is a model of pydantic, which is loaded then and not for our sake."""
    base = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    return inspect.isclass(base) and inspect.isclass(annotation) and issubclass(annotation, base)


def _pydantic_model(kind: Any) -> Schema:
    try:
        schema = kind.model_json_schema()
    except Exception as error:  # noqa: BLE001 - fields may have validators and schemas of their own
        raise SpecificationError(f"pydantic has no JSON Schema for {_shown(kind)}: {error}") from None
    found: Schema = _inlined(schema, schema.get("$defs", {}), ())
    return found


def _inlined(schema: Any, definitions: Schema, within: tuple[str, ...]) -> Any:
    """Put definitions where they are referred to, and leave out the titles that pydantic makes of names."""
    if isinstance(schema, list):
        return [_inlined(item, definitions, within) for item in schema]
    if not isinstance(schema, dict):
        return schema
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if name in within:
        raise SpecificationError(f"{name} contains itself: give it as dict and check it in the tool")
    if name in definitions:
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return {**_inlined(definitions[name], definitions, (*within, name)), **rest}
    found = {
        key: value if key in _DATA else _inlined(value, definitions, within)
        for key, value in schema.items()
        if key not in {"title", "$defs", "properties"}
    }
    # Any word can be the name of a field.
    fields = schema.get("properties", {})
    named = {field: _inlined(value, definitions, within) for field, value in fields.items()}
    return {**found, "properties": named} if named else found


def _hints(kind: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except Exception as error:  # noqa: BLE001 - annotations are code, which may fail in any way
        raise SpecificationError(f"the annotations of {_shown(kind)} cannot be resolved: {error}") from None


def _without_none(annotation: Any) -> Any:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return typing.Annotated[(_without_none(arguments[0]), *arguments[1:])]
    left = tuple(member for member in arguments if member is not types.NoneType)
    return typing.Union[left] if origin in _UNIONS and left else annotation  # noqa: UP007 - built at run time


def _shown(annotation: Any) -> str:
    return annotation.__name__ if inspect.isclass(annotation) else str(annotation)
