"""Check the arguments of a call against a tool's schema: fast when they fit, thorough when they do not.

Most arguments are plain JSON of the types that the schema names. For those a Python function is generated,
once for each schema. Its one pass does the work of the copy in `values` and of the validator, at a tenth of
the cost: every value has exactly its type and is finite, valid Unicode, and their number is bounded. Anything
unusual (a subclass, 3.0 for an integer, a name that the schema does not have) ends the pass with None, and
the thorough check decides.
"""

from __future__ import annotations

from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gramercy.errors import InvalidSchemaError
from gramercy.gram.json_schema import compile_schema
from gramercy.tools.values import (
    LEAST_EXACT,
    MOST_EXACT,
    MOST_VALUES,
    SCALARS,
    copy_exactly,
    copy_json,
    copy_plain,
    is_unicode,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from jsonschema_rs import Draft202012Validator

    from gramercy.gram.json_schema import Schema

# The condition that makes a value of each type unusual.
_UNUSUAL: Final = {
    "string": "type(x) is not str or not (x.isascii() or is_unicode(x))",
    # Numbers of one 30-bit digit, Python's own unit, are compared in a fifth of the time.
    "integer": "type(x) is not int or not (-1073741823 < x < 1073741823 or LEAST < x < MOST)",
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
# Keywords that require no more of a value than the function checks; all others need the validator.
_SILENT: Final = frozenset({"type", "description", "title", "default", "examples"})
# The comparison that a number must not satisfy, by the keyword that bounds it.
_BOUNDS: Final = {"minimum": "<", "maximum": ">", "exclusiveMinimum": "<=", "exclusiveMaximum": ">="}
_OBJECT: Final = _SILENT | {"properties", "required", "additionalProperties"}
_ARRAY: Final = _SILENT | {"items"}
# Python allows 20 nested loops, and compiling a long function takes longer than many calls would save. Values
# that are deeper or come later are copied by the function for any value.
DEEPEST_WRITTEN: Final = 8
MOST_WRITTEN: Final = 300


class Copier:
    """The source of one function. `decides`: its result fits the schema; `flat`: it has no containers."""

    def __init__(self, schema: Schema) -> None:
        self.decides = True
        self.flat = True
        self._written = 0
        self._names: dict[str, Any] = dict(_NAMES)
        self._body = list(self._value(schema, "whole", "  ", 0))

    def compiled(self) -> Callable[[Any], dict[str, Any] | None]:
        """Return the function: it returns a copy of its argument, or None, which means undecided."""
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
        """Generate the check of `x`, and the copy of a container `x` into its place."""
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
        """Generate the further condition of an enum of texts or of a number; the validator has the others."""
        bounds = schema.keys() & _BOUNDS.keys()
        if bounds and schema["type"] in {"integer", "number"} and schema.keys() <= _SILENT | bounds:
            return self._bounded({word: schema[word] for word in sorted(bounds)})
        options = schema.get("enum")
        if not schema.keys() <= _SILENT | {"enum"} or not _are_texts(options):
            self._need_validator(not schema.keys() <= _SILENT)
            return ""
        name = f"e{self._written}"
        self._names[name] = frozenset(options or ())
        return f" or x not in {name}"

    def _bounded(self, bounds: Mapping[str, Any]) -> str:
        if not all(
            type(bound) is int or (type(bound) is float and isfinite(bound)) for bound in bounds.values()
        ):
            self._need_validator(True)  # noqa: FBT003 - as above
            return ""
        conditions = ""
        for word, bound in bounds.items():
            name = f"b{self._written}_{word}"
            self._names[name] = bound
            conditions += f" or x {_BOUNDS[word]} {name}"
        return conditions

    def _need_validator(self, needed: bool) -> None:  # noqa: FBT001 - the one question that it answers
        self.decides = self.decides and not needed

    def _has_room(self, depth: int, values: int | None) -> bool:
        return depth < DEEPEST_WRITTEN and values is not None and self._written + values <= MOST_WRITTEN


def _are_texts(options: Any) -> bool:
    return isinstance(options, list) and all(type(option) is str for option in options)


def _known_names(schema: Schema) -> int | None:
    """Count the names of an object if its schema names them all; None if it does not."""
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


class ArgumentChecker:
    """The arguments of one tool: validation and defaults. The schema is compiled when first needed."""

    __slots__ = ("_copy", "_defaults", "_fits", "_validator", "check_quickly", "flat", "schema", "tool")

    def __init__(
        self, tool: str | None, schema: Schema, validator: Draft202012Validator | None = None
    ) -> None:
        self.tool = tool
        self.schema = schema
        self._validator = validator
        self._defaults = _defaults_of(schema)
        self._copy: Callable[[Any], dict[str, Any] | None] = self._first
        self._fits: Callable[[Any], bool] | None = None
        # Does the same as `check` for arguments of the usual shape; None means undecided.
        self.check_quickly: Callable[[Any], dict[str, Any] | None] = self._first
        # Whether the result of `check_quickly` has no containers, so that a shallow copy of it is complete.
        self.flat = False

    @property
    def defaults(self) -> Mapping[str, Any]:
        """The default values of arguments."""
        return self._defaults

    @property
    def validator(self) -> Draft202012Validator:
        """The compiled schema."""
        if self._validator is None:
            self._validator = compile_schema(self.schema)
        return self._validator

    def check(self, arguments: Any) -> dict[str, Any]:
        """Return a copy of the arguments with defaults filled in, or raise InvalidArgumentsError.

        The copy is made first and shares nothing with the original, which may change after the check.
        """
        quick = self.check_quickly(arguments)
        return self.check_thoroughly(arguments) if quick is None else quick

    def _first(self, arguments: Any) -> dict[str, Any] | None:
        """Compile the schema, and check the arguments of the first call."""
        copier = Copier(self.schema)
        self._fits = None if copier.decides else self.validator.is_valid
        self.flat = copier.flat and all(type(default) in SCALARS for default in self._defaults.values())
        self._copy = copier.compiled()
        # Nearly always the function alone decides, and then the executor calls it directly.
        self.check_quickly = self._copy if copier.decides and not self._defaults else self._completed
        return self.check_quickly(arguments)

    def _completed(self, arguments: Any) -> dict[str, Any] | None:
        copied = self._copy(arguments)
        if copied is None or (self._fits is not None and not self._fits(copied)):
            return None
        for name, default in self._defaults.items():
            if name not in copied:
                copied[name] = copy_json(default)
        return copied

    def check_thoroughly(self, arguments: Any) -> dict[str, Any]:
        """Check any arguments, also unusual ones."""
        plain = copy_plain(arguments)
        if not plain.faults and type(plain.value) is dict and self.validator.is_valid(plain.value):
            for name, default in self._defaults.items():
                plain.value.setdefault(name, copy_json(default))
            return whole_numbers(plain.value, self.schema)  # type: ignore[no-any-return]  # as it came: a dict
        # Imported here: a program whose calls all fit never needs to explain a fault.
        from gramercy.tools.faults import explain_faults

        raise explain_faults(self.validator, self.schema, plain, tool=self.tool)


def whole_numbers(value: Any, schema: Any) -> Any:
    """Convert whole numbers to int where a schema wants integers: for JSON 3.0 and 3 are the same.

    It changes the value, which must be the caller's own copy, and returns it.
    """
    if type(value) is float:
        wanted = schema.get("type") if isinstance(schema, dict) else None
        return int(value) if wanted == "integer" and value.is_integer() else value
    if not isinstance(schema, dict):
        return value
    if type(value) is dict:
        described = schema.get("properties")
        properties = described if isinstance(described, dict) else {}
        for name in value.keys() & properties.keys():
            value[name] = whole_numbers(value[name], properties[name])
    elif type(value) is list and "items" in schema:
        value[:] = [whole_numbers(item, schema["items"]) for item in value]
    return value


_TYPES: dict[str, type] = {"string": str, "integer": int, "boolean": bool}


def _plain_types_of(schema: Mapping[str, Any]) -> Mapping[str, type] | None:
    """Return the Python type of every property, or None if the types alone do not decide."""
    if not schema.keys() <= {
        "type",
        "properties",
        "required",
        "additionalProperties",
        "description",
        "title",
    }:
        return None
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        return None
    if not all(isinstance(name, str) and name in properties for name in required):
        return None  # no value can fit such a schema, which the types alone would not show
    types = {}
    for name, wanted in properties.items():
        kind = wanted.get("type") if isinstance(wanted, dict) and wanted.keys() <= _SILENT else None
        if not isinstance(kind, str) or kind not in _TYPES:
            return None
        types[name] = _TYPES[kind]
    return types if schema.get("type") == "object" else None


def _defaults_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {name: s["default"] for name, s in properties.items() if isinstance(s, dict) and "default" in s}


def validate_tool_args(schema: Schema, arguments: Any) -> dict[str, Any]:
    """Return the arguments with defaults filled in, or raise InvalidArgumentsError naming every fault."""
    try:
        text = msgspec.json.encode(schema) if isinstance(schema, dict) else None
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        text = None  # the compiler says what is wrong with it
    if text is None:
        described = schema if isinstance(schema, dict) else {}
        return ArgumentChecker(None, described, compile_schema(schema)).check_thoroughly(arguments)
    return _checker_of(text).check(arguments)


@lru_cache(maxsize=1024)
def _checker_of(text: bytes) -> ArgumentChecker:
    """Return the checker of a schema that may come again; schemas with the same text share one."""
    schema = msgspec.json.decode(text)
    return ArgumentChecker(None, schema, compile_schema(schema))


def check_definition(schema: Schema) -> list[str]:
    """List what is wrong with a tool's schema: not a schema, or a default that does not fit."""
    if _is_plainly_right(schema):
        return []
    try:
        validator = compile_schema(schema)
    except InvalidSchemaError as error:
        return [str(error)]
    return [
        f"the default of {name!r} does not fit its own schema: {default!r:.60}"
        for name, default in _defaults_of(schema).items()
        if not _default_fits(validator, name, default)
    ]


def _is_plainly_right(schema: Schema) -> bool:
    """Tell whether a schema is so plain that nothing can be wrong with it; False means undecided.

    The schemas of most tools are plain; a program with only such schemas starts without loading the
    validator.
    """
    schema = _without_bounds(schema) if isinstance(schema, dict) else schema
    types = _plain_types_of(schema) if isinstance(schema, dict) else None
    if types is None or not isinstance(schema.get("additionalProperties", False), bool):
        return False
    required, parts = schema.get("required", []), [schema, *schema.get("properties", {}).values()]
    return (
        len(set(required)) == len(required)
        and all(isinstance(part.get(word, ""), str) for part in parts for word in ("description", "title"))
        and all(isinstance(part.get("examples", []), list) for part in parts)
        and all(type(default) is types[name] for name, default in _defaults_of(schema).items())
    )


def _without_bounds(schema: Schema) -> Schema:
    """Return a schema without the plain bounds of its properties that their defaults satisfy."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema
    needed = schema.get("required", [])
    if not isinstance(needed, list):
        return schema
    kept = {name: each for name, each in properties.items() if name in needed or not _is_plain_number(each)}
    return {**schema, "properties": {name: _unbounded(each) for name, each in kept.items()}}


def _is_plain_number(wanted: Any) -> bool:
    """Tell whether a schema is that of a number with plain bounds, a description, and nothing else."""
    if not isinstance(wanted, dict) or wanted.get("type") != "number":
        return False
    bounds = [each for word, each in wanted.items() if word in _BOUNDS]
    is_bare = wanted.keys() <= {"type", "description", *_BOUNDS}
    return (
        is_bare
        and all(type(each) in (int, float) for each in bounds)
        and isinstance(wanted.get("description", ""), str)
    )


def _unbounded(wanted: Any) -> Any:
    """Return the schema of a value without its bounds; unchanged if one of them is not plain."""
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    # Most have no bounds, and a server may define thousands of tools while a client waits.
    if not isinstance(kind, str) or kind not in _RANGES or wanted.keys().isdisjoint((*_RANGES[kind], "enum")):
        return wanted
    low, high = _RANGES[kind]
    least, most, chosen = wanted.get(low, 0), wanted.get(high, 0), wanted.get("enum", [""])
    if not (type(least) is type(most) is int and type(chosen) is list and chosen):
        return wanted
    if kind == "string" and (min(least, most) < 0 or not all(type(each) is str for each in chosen)):
        return wanted
    if len(set(chosen)) < len(chosen) or ("enum" in wanted and kind != "string"):
        return wanted
    default = wanted.get("default")
    if type(default) is _TYPES[kind] and not _keeps(default, wanted, low, high):
        return wanted
    return {name: value for name, value in wanted.items() if name not in {low, high, "enum"}}


def _keeps(value: Any, wanted: Mapping[str, Any], low: str, high: str) -> bool:
    size = len(value) if isinstance(value, str) else value
    is_within = wanted.get(low, size) <= size <= wanted.get(high, size)
    return is_within and value in wanted.get("enum", [value])


# The bounds of a value whose type decides the rest.
_RANGES: Final = {"string": ("minLength", "maxLength"), "integer": ("minimum", "maximum")}


def _default_fits(validator: Draft202012Validator, name: str, default: Any) -> bool:
    """Tell whether the only faults of the default alone are the missing other arguments."""
    errors = validator.iter_errors({name: default})
    return not any(error.instance_path and error.instance_path[0] == name for error in errors)
