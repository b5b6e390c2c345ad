"""Turn a failed validation into faults a model can repair: path, expected, received, did-you-mean, example."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any

from gramercy.errors import Fault, InvalidArgumentsError
from gramercy.gram.suggestion import suggest
from gramercy.tools.example import NOTHING, corrected_arguments
from gramercy.tools.foreign import join_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jsonschema_rs import Draft202012Validator

    from gramercy.gram.json_schema import Schema

WHOLE = "(arguments)"
# A million wrong items are one mistake: the first faults teach it, the rest would bury it.
MOST_FAULTS = 20
LONGEST_SHOWN = 60


def explain_faults(
    validator: Draft202012Validator,
    schema: Schema,
    arguments: Any,
    *,
    foreign: Sequence[Fault] = (),
    tool: str | None = None,
) -> InvalidArgumentsError:
    """Build the error that names every fault of the arguments and shows a call that would fit."""
    faults = list(foreign[:MOST_FAULTS])
    if foreign:
        # What JSON cannot carry, the validator must not see either: it may be endless.
        arguments = NOTHING
    else:
        errors = islice(validator.iter_errors(arguments), MOST_FAULTS)
        faults = list(dict.fromkeys(f for e in errors for f in _faults_of(e, schema)))
    if not faults:
        faults = [Fault(WHOLE, "an object with named arguments", describe_value(arguments))]
    return InvalidArgumentsError(faults, tool=tool, example=_example(validator, schema, arguments, tool))


def _example(validator: Draft202012Validator, schema: Schema, arguments: Any, tool: str | None) -> str | None:
    fixed = corrected_arguments(schema, arguments, validator.is_valid)
    if fixed is None:
        return None
    text = json.dumps(fixed, ensure_ascii=False)
    return f"{tool}({text})" if tool else text


def describe_value(value: Any) -> str:
    """Name the JSON type of a value and show the value, cut when long."""
    if value is None:
        return "null"
    return f"{json_type(value)} {shown(value)}"


def shown(value: Any) -> str:
    """Write a value as JSON, cut when long; never fails."""
    if isinstance(value, str):
        value = value[: LONGEST_SHOWN + 1]
    elif isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 4 * LONGEST_SHOWN:
        return f"of about {value.bit_length() * 3 // 10} digits"
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return f"(a {type(value).__name__} that JSON cannot show)"
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "…"


def json_type(value: Any) -> str:
    """Name the JSON type of a Python value."""
    for kinds, name in _JSON_TYPES:
        if isinstance(value, kinds):
            return name
    return f"Python {type(value).__name__}"


# bool before int: Python's True is an int, JSON's true is not.
_JSON_TYPES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    ((list, tuple), "array"),
    (dict, "object"),
)


def _path_of(error: Any) -> str:
    path = ""
    for step in error.instance_path:
        path = join_path(path, step)
    return path


def _faults_of(error: Any, schema: Schema) -> Iterator[Fault]:
    detail = error.kind.as_dict()
    name = error.kind.name
    if name == "required":
        yield _missing(error, detail["property"], schema)
    elif name in {"additionalProperties", "unevaluatedProperties"}:
        yield from _unexpected(error, detail["unexpected"], schema)
    elif name in {"anyOf", "oneOf"} and detail.get("context"):
        yield from _alternatives(error, detail["context"], schema)
    elif name == "type":
        yield _wrong_type(error, detail["types"])
    elif name == "enum":
        yield _wrong_choice(error, detail["options"])
    else:
        yield Fault(_path_of(error) or WHOLE, _limit(name, detail, error), describe_value(error.instance))


def _missing(error: Any, missing: str, schema: Schema) -> Fault:
    given = error.instance if isinstance(error.instance, dict) else {}
    known = _properties_at(schema, error.instance_path)
    strangers = [name for name in given if name not in known]
    close = suggest(missing, strangers) if strangers else []
    received = f"nothing: it is required, but {json.dumps(close[0])} was given" if close else "nothing: it is required"
    return Fault(join_path(_path_of(error), missing), _expected_of(known.get(missing)), received)


def _unexpected(error: Any, names: Sequence[str], schema: Schema) -> Iterator[Fault]:
    known = list(_properties_at(schema, error.instance_path))
    listed = ", ".join(known[:MOST_FAULTS]) if known else "no arguments"
    for name in names[:MOST_FAULTS]:
        free = [k for k in known if not (isinstance(error.instance, dict) and k in error.instance)]
        close = suggest(name, free) or suggest(name, known)
        path = join_path(_path_of(error), name[:LONGEST_SHOWN])
        received = f"an unknown name with {describe_value(error.instance.get(name))}"
        yield Fault(path, f"only these names: {listed}", received, close[0] if close else None)


def _wrong_type(error: Any, types: Sequence[str]) -> Fault:
    suggestion = _unquoted(error.instance, types)
    return Fault(_path_of(error) or WHOLE, " or ".join(types), describe_value(error.instance), suggestion)


def _unquoted(value: Any, types: Sequence[str]) -> str | None:
    """Suggest the value itself when only quotes (or missing quotes) are wrong."""
    if isinstance(value, str):
        try:
            plain = json.loads(value[:1000])
        except (ValueError, RecursionError):
            return None
        fits = json_type(plain) in types or (json_type(plain) == "integer" and "number" in types)
        return f"{shown(plain)} (without quotes)" if fits else None
    if "string" in types and isinstance(value, int | float) and not isinstance(value, bool):
        return f'"{shown(value)}" (in quotes)'
    return None


def _wrong_choice(error: Any, options: Sequence[Any]) -> Fault:
    words = [option for option in options if isinstance(option, str)]
    close = suggest(error.instance, words) if isinstance(error.instance, str) else []
    listed = ", ".join(shown(option) for option in options[:MOST_FAULTS])
    more = f" and {len(options) - MOST_FAULTS} more" if len(options) > MOST_FAULTS else ""
    suggestion = shown(close[0]) if close else None
    return Fault(_path_of(error) or WHOLE, f"one of {listed}{more}", describe_value(error.instance), suggestion)


def _alternatives(error: Any, context: Sequence[Any], schema: Schema) -> Iterator[Fault]:
    """Report the alternative that came nearest; when only types differ, name them all in one fault."""
    branches = [list(branch) for branch in context]
    depth = len(error.instance_path)
    if all(b and b[0].kind.name == "type" and len(b[0].instance_path) == depth for b in branches):
        types = dict.fromkeys(t for b in branches for t in b[0].kind.as_dict()["types"])
        yield _wrong_type(error, list(types))
        return
    fitting = [b for b in branches if b and not (b[0].kind.name == "type" and len(b[0].instance_path) == depth)]
    nearest = min(fitting or branches, key=len, default=[])
    for inner in nearest[:MOST_FAULTS]:
        yield from _faults_of(inner, schema)


_LIMITS: dict[str, Callable[[Any], str]] = {
    "const": lambda d: f"exactly {shown(d['expected_value'])}",
    "minimum": lambda d: f"at least {d['limit']}",
    "maximum": lambda d: f"at most {d['limit']}",
    "exclusiveMinimum": lambda d: f"more than {d['limit']}",
    "exclusiveMaximum": lambda d: f"less than {d['limit']}",
    "multipleOf": lambda d: f"a multiple of {d['multiple_of']}",
    "minLength": lambda d: f"at least {d['limit']} characters",
    "maxLength": lambda d: f"at most {d['limit']} characters",
    "pattern": lambda d: f"text that matches {d['pattern']}",
    "format": lambda d: f"text in the format {d['format']}",
    "minItems": lambda d: f"at least {d['limit']} items",
    "maxItems": lambda d: f"at most {d['limit']} items",
    "uniqueItems": lambda _: "items that are all different",
    "minProperties": lambda d: f"at least {d['limit']} names",
    "maxProperties": lambda d: f"at most {d['limit']} names",
    "not": lambda d: f"something that does not fit {shown(d['schema'])}",
    "falseSchema": lambda _: "nothing here",
    "oneOf": lambda _: "a value that fits exactly one alternative (this one fits several)",
    "propertyNames": lambda d: f"other names ({d['error'].message})",
}


def _limit(name: str, detail: dict[str, Any], error: Any) -> str:
    describe = _LIMITS.get(name)
    return describe(detail) if describe else f"a value that satisfies {name} ({error.message[:200]})"


def _properties_at(schema: Schema, path: Sequence[str | int]) -> dict[str, Any]:
    """Return the properties known at a place, following plain nesting; empty where it is not plain."""
    here: Any = schema
    for step in path:
        if not isinstance(here, dict):
            return {}
        here = here.get("items") if isinstance(step, int) else here.get("properties", {}).get(step)
    properties = here.get("properties") if isinstance(here, dict) else None
    return properties if isinstance(properties, dict) else {}


def _expected_of(schema: Any) -> str:
    """Say in a few words what a schema wants."""
    if not isinstance(schema, dict):
        return "a value"
    if "enum" in schema:
        return f"one of {', '.join(shown(option) for option in schema['enum'][:MOST_FAULTS])}"
    kind = schema.get("type", "a value")
    text = kind if isinstance(kind, str) else " or ".join(kind)
    about = schema.get("description")
    return f"{text} ({about[:LONGEST_SHOWN]})" if about else text
