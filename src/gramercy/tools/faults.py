"""Turn a failed validation into faults a model can repair: path, expected, received, suggestion, example."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any

from gramercy.errors import Fault, InvalidArgumentsError
from gramercy.gram.suggestion import suggest
from gramercy.tools.examples import corrected_arguments
from gramercy.tools.values import (
    LONGEST_SHOWN,
    MOST_FAULTS,
    WHOLE,
    PlainCopy,
    describe_value,
    join_path,
    json_type,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jsonschema_rs import Draft202012Validator

    from gramercy.gram.json_schema import Schema

# The validator makes an object for every fault before it returns the first. Beyond this many values that
# would take seconds and gigabytes, so only the first fault is requested.
MOST_VALUES_EXPLAINED = 5_000
# Beyond this many the message says "possibly more" instead of a number: counting costs a Fault each.
MOST_COUNTED = 1_000
# Unknown names compared with a missing one; each comparison is a few microseconds.
MOST_UNKNOWN = 200
# Longer examples and patterns would bury the faults.
LONGEST_EXAMPLE = 2_000
LONGEST_PATTERN = 200
UNKNOWN_NAMES = frozenset({"additionalProperties", "unevaluatedProperties"})


def explain_faults(
    validator: Draft202012Validator, schema: Schema, arguments: PlainCopy, *, tool: str | None = None
) -> InvalidArgumentsError:
    """Build the error that names every fault of the arguments and shows a call that would fit."""
    if arguments.faults:
        # The validator must not see values that JSON cannot carry: they may be endless.
        faults = arguments.faults + _more(arguments.fault_count - len(arguments.faults))
    else:
        faults = _validation_faults(validator, schema, arguments)
    if not faults:
        faults = [Fault(WHOLE, "an object with named arguments", describe_value(arguments.value))]
    example = _example(validator, schema, arguments.value, tool)
    return InvalidArgumentsError(faults, tool=tool, example=example)


def _validation_faults(validator: Draft202012Validator, schema: Schema, arguments: PlainCopy) -> list[Fault]:
    if arguments.size > MOST_VALUES_EXPLAINED:
        first = _first_error(validator, arguments.value)
        faults = list(_faults_of(first, schema)) if first else []
        return [*faults[:MOST_FAULTS], *_more(max(0, len(faults) - MOST_FAULTS), or_more=True)]
    # Unknown names last: there may be thousands, and a missing name explains them.
    errors = sorted(validator.iter_errors(arguments.value), key=lambda e: e.kind.name in UNKNOWN_NAMES)
    found = (fault for error in errors for fault in _faults_of(error, schema))
    unique = list(dict.fromkeys(islice(found, MOST_COUNTED)))
    unlisted = len(unique) - MOST_FAULTS
    return unique[:MOST_FAULTS] + _more(unlisted, or_more=next(found, None) is not None)


def _first_error(validator: Draft202012Validator, value: Any) -> Any:
    import jsonschema_rs

    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        return error
    return None


def _more(count: int, *, or_more: bool = False) -> list[Fault]:
    """Say that faults are left out: a model that repairs the listed ones should expect more."""
    if count <= 0 and not or_more:
        return []
    text = (
        f"{count} more faults" if count > 0 and not or_more else "possibly more faults, which are not listed"
    )
    return [Fault(WHOLE, "no further faults", text)]


def _example(validator: Draft202012Validator, schema: Schema, arguments: Any, tool: str | None) -> str | None:
    def is_presentable(candidate: Any) -> bool:
        return validator.is_valid(candidate) and len(json.dumps(candidate)) <= LONGEST_EXAMPLE

    fixed = corrected_arguments(schema, arguments, is_presentable)
    if fixed is None:
        return None
    text = json.dumps(fixed, ensure_ascii=False)
    return f"{tool}({text})" if tool else text


def _path_of(error: Any) -> str:
    path = ""
    for step in error.instance_path:
        path = join_path(path, step)
    return path


def _faults_of(error: Any, schema: Schema) -> Iterator[Fault]:
    name, detail = error.kind.name, error.kind.as_dict()
    if name == "required":
        yield _missing(error, detail["property"], schema)
    elif name in UNKNOWN_NAMES:
        yield from _unexpected(error, detail["unexpected"], schema)
    elif name in {"anyOf", "oneOf"} and all(detail["context"]):
        yield from _alternatives(error, detail["context"], schema)
    elif name == "type":
        yield _wrong_type(error, detail["types"])
    elif name == "enum":
        yield _wrong_choice(error, detail["options"])
    elif name == "falseSchema" and error.schema_path[-1:] == ["additionalProperties"]:
        received = f"an unknown name with {describe_value(error.instance)}"
        yield Fault(_path_of(error) or WHOLE, "no names at all", received)
    else:
        yield Fault(_path_of(error) or WHOLE, expected_text(name, detail), describe_value(error.instance))


def _missing(error: Any, missing: str, schema: Schema) -> Fault:
    given = error.instance
    known = _properties_at(schema, error.instance_path)
    unknown = [name for name in given if name not in known][:MOST_UNKNOWN]
    close = suggest(missing, unknown)
    received = f"nothing: it is required{f', but {json.dumps(close[0])} was given' if close else ''}"
    return Fault(join_path(_path_of(error), missing), expected_of(known.get(missing)), received)


def _unexpected(error: Any, names: Sequence[str], schema: Schema) -> Iterator[Fault]:
    given = error.instance
    known = list(_properties_at(schema, error.instance_path))
    free = [name for name in known if name not in given]
    listed = f"only these names: {', '.join(known[:MOST_FAULTS])}" if known else "no arguments"
    for name in names:
        close = suggest(name, free) or suggest(name, known)
        received = f"an unknown name with {describe_value(given.get(name))}"
        yield Fault(join_path(_path_of(error), name), listed, received, close[0] if close else None)


def _wrong_type(error: Any, types: Sequence[str]) -> Fault:
    suggestion = _requoted(error.instance, types)
    return Fault(_path_of(error) or WHOLE, " or ".join(types), describe_value(error.instance), suggestion)


def _requoted(value: Any, types: Sequence[str]) -> str | None:
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
    suggestion = shown(close[0]) if close else None
    return Fault(
        _path_of(error) or WHOLE, expected_of({"enum": options}), describe_value(error.instance), suggestion
    )


def _alternatives(error: Any, context: Sequence[Any], schema: Schema) -> Iterator[Fault]:
    """Report the alternative that comes nearest; if only types differ, name them all in one fault."""
    branches = [list(branch) for branch in context]
    depth = len(error.instance_path)
    if all(_is_other_type(branch, depth) for branch in branches):
        types = dict.fromkeys(t for branch in branches for t in branch[0].kind.as_dict()["types"])
        yield _wrong_type(error, list(types))
        return
    nearest = min((branch for branch in branches if not _is_other_type(branch, depth)), key=len)
    for inner in nearest[:MOST_FAULTS]:
        yield from _faults_of(inner, schema)


def _is_other_type(branch: Sequence[Any], depth: int) -> bool:
    return branch[0].kind.name == "type" and len(branch[0].instance_path) == depth


def _properties_at(schema: Schema, path: Sequence[str | int]) -> dict[str, Any]:
    """Return the properties known at a place, following plain nesting; empty if it is not plain."""
    here: Any = schema
    for step in path:
        if not isinstance(here, dict):
            return {}
        here = here.get("items") if isinstance(step, int) else here.get("properties", {}).get(step)
    properties = here.get("properties") if isinstance(here, dict) else None
    return properties if isinstance(properties, dict) else {}


_WORDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "const": lambda d: f"exactly {shown(d['expected_value'])}",
    "minimum": lambda d: f"at least {shown(d['limit'])}",
    "maximum": lambda d: f"at most {shown(d['limit'])}",
    "exclusiveMinimum": lambda d: f"more than {shown(d['limit'])}",
    "exclusiveMaximum": lambda d: f"less than {shown(d['limit'])}",
    "multipleOf": lambda d: f"a multiple of {shown(d['multiple_of'])}",
    "minLength": lambda d: f"at least {d['limit']} characters",
    "maxLength": lambda d: f"at most {d['limit']} characters",
    "pattern": lambda d: f"text that matches {_pattern(d)}",
    "format": lambda d: f"text in the format {d['format'][:LONGEST_SHOWN]}",
    "minItems": lambda d: f"at least {d['limit']} items",
    "maxItems": lambda d: f"at most {d['limit']} items",
    "uniqueItems": lambda _: "items that are all different",
    "contains": lambda _: "another number of items of the kind that the schema asks for",
    "unevaluatedItems": lambda _: "fewer items",
    "minProperties": lambda d: f"at least {d['limit']} names",
    "maxProperties": lambda d: f"at most {d['limit']} names",
    "propertyNames": lambda d: f"other names ({_inner(d['error'].kind)})",
    "not": lambda d: f"something that does not fit {shown(d['schema'])}",
    "falseSchema": lambda _: "nothing here",
    "oneOf": lambda _: "a value that fits exactly one alternative (this one fits several)",
    "type": lambda d: " or ".join(d["types"]),
    "enum": lambda d: expected_of({"enum": d["options"]}),
}


def _pattern(detail: dict[str, Any]) -> str:
    # If matching took too many steps, the validator returns an error instead of the pattern.
    return str(detail.get("pattern", "the schema's pattern within reasonable time"))[:LONGEST_PATTERN]


def _inner(kind: Any) -> str:
    return expected_text(kind.name, kind.as_dict())


def expected_text(keyword: str, detail: dict[str, Any]) -> str:
    """Say what a violated keyword requires."""
    describe = _WORDS.get(keyword)
    return describe(detail) if describe else f"a value that satisfies {keyword}"


def expected_of(schema: Any) -> str:
    """Say what a schema requires."""
    if not isinstance(schema, dict):
        return "a value"
    if "enum" in schema:
        options = schema["enum"]
        more = f" and {len(options) - MOST_FAULTS} more" if len(options) > MOST_FAULTS else ""
        return f"one of {', '.join(map(shown, options[:MOST_FAULTS]))}{more}"
    kind = schema.get("type", "a value")
    text = kind if isinstance(kind, str) else " or ".join(kind)
    about = schema.get("description")
    return f"{text} ({about[:LONGEST_SHOWN]})" if about else text
