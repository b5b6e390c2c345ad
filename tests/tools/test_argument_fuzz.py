"""Generated schemas and arguments: only a checked dictionary or InvalidArgumentsError may come out."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gramercy import InvalidArgumentsError, create_tool
from gramercy.gram.json_schema import compile_schema

NAMES = st.sampled_from(["a", "b", "path", "pth", "content", "ключ", "x y", "a.b", ""])
NUMBERS = st.integers(-20, 20) | st.floats(-20, 20, allow_nan=False).map(lambda x: round(x, 2))

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(NAMES | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


class Strange:
    """A value that answers nothing."""

    def __eq__(self, other):
        raise RuntimeError

    __hash__ = object.__hash__

    def __bool__(self):
        raise RuntimeError


class Huge(int):
    """An integer that can be reported when the test fails."""

    def __repr__(self):
        return "Huge(10**5000)"


def endless():
    value: list[Any] = [{}]
    value[0]["again"] = value
    return value


HOSTILE = st.one_of(
    st.just(math.nan),
    st.just(-math.inf),
    st.just(Huge(10**5000)),
    st.just("\ud800"),
    st.builds(Strange),
    st.builds(endless),
    st.just((1, 2)),
    st.just({1: 2}),
    st.just({"\udfff": 1}),
    st.binary(max_size=3),
    st.sets(st.integers(), max_size=2),
    st.just(2**64),
)
PYTHON = st.recursive(
    JSON | HOSTILE,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(NAMES | st.integers() | st.none() | st.tuples(), inner, max_size=4)
    ),
    max_leaves=12,
)


def scalars():
    texts = st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={
            "minLength": st.integers(0, 4),
            "maxLength": st.integers(4, 9),
            "pattern": st.sampled_from(["^a", "[0-9]+", "^(a+)+$", r"^\w{2}-\d$", "(?=b)b"]),
            "format": st.sampled_from(["date", "date-time", "email", "uuid", "ipv4", "nonsense"]),
            "examples": st.just(["a1"]),
        },
    )
    numbers = st.fixed_dictionaries(
        {"type": st.sampled_from(["number", "integer"])},
        optional={
            "minimum": NUMBERS,
            "maximum": NUMBERS,
            "exclusiveMinimum": NUMBERS,
            "exclusiveMaximum": NUMBERS,
            "multipleOf": st.sampled_from([1, 2, 7, 0.5]),
        },
    )
    others = st.sampled_from(
        [{"type": "boolean"}, {"type": "null"}, {}, True, False, {"type": ["string", "null"]}]
    )
    choices = st.lists(JSON, min_size=1, max_size=3).map(lambda options: {"enum": options})
    return texts | numbers | others | choices | JSON.map(lambda value: {"const": value})


def objects(inner):
    return st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(NAMES, inner, max_size=4)},
        optional={
            "required": st.lists(NAMES, unique=True, max_size=3),
            "additionalProperties": st.booleans() | inner,
            "minProperties": st.integers(0, 2),
            "maxProperties": st.integers(2, 5),
            "propertyNames": st.just({"maxLength": 5}),
            "dependentRequired": st.just({"a": ["b"]}),
            "patternProperties": st.fixed_dictionaries({"^p": inner}),
        },
    )


def objects_of(inner):
    """Describe objects by their names alone, as most tools do."""
    return st.dictionaries(NAMES, inner, max_size=4).flatmap(
        lambda properties: st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.just(properties)},
            optional={
                "required": st.lists(st.sampled_from(sorted(properties)), unique=True)
                if properties
                else st.just([]),
                "additionalProperties": st.booleans(),
            },
        )
    )


def larger(inner):
    arrays = st.fixed_dictionaries(
        {"type": st.just("array")},
        optional={
            "items": inner,
            "minItems": st.integers(0, 3),
            "maxItems": st.integers(1, 4),
            "uniqueItems": st.booleans(),
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "contains": inner,
        },
    )
    several = st.lists(inner, min_size=1, max_size=3)
    unions = st.sampled_from(["anyOf", "oneOf", "allOf"]).flatmap(
        lambda word: several.map(lambda parts: {word: parts})
    )
    return arrays | objects(inner) | unions | inner.map(lambda part: {"not": part})


SCHEMAS = objects(st.recursive(scalars(), larger, max_leaves=8))


def outcome(schema, arguments):
    """Return the result or the error of checking arguments; anything else that is raised fails the test."""
    checker = create_tool("it", "It.", schema, dict).checker
    try:
        return checker.check(arguments)
    except InvalidArgumentsError as error:
        return error


def check_error(schema, error):
    text = str(error)
    text.encode()
    assert error.faults
    assert "Traceback" not in text
    assert "://" not in text
    for fault in error.faults:
        assert fault.path in text
        assert fault.expected
        assert fault.received
    if error.example is not None:
        arguments = json.loads(error.example.removeprefix("it(").removesuffix(")"))
        assert compile_schema(schema).is_valid(arguments)
    assert len(text) < 20_000


@given(SCHEMAS, st.dictionaries(NAMES, JSON, max_size=4))
def test_json_arguments_are_checked_or_explained_with_an_example_that_fits(schema, arguments):
    """Decision 8: faults with paths and a corrected example that really is correct."""
    before = json.dumps(arguments)
    result = outcome(schema, arguments)
    assert json.dumps(arguments) == before
    if isinstance(result, dict):
        assert result == arguments
        assert compile_schema(schema).is_valid(result)
    else:
        assert not compile_schema(schema).is_valid(arguments)
        check_error(schema, result)


@given(SCHEMAS, PYTHON | st.dictionaries(NAMES, PYTHON, max_size=4))
@example({"type": "object", "properties": {}}, {"a": Strange()})
@example({"type": "object", "properties": {}}, endless())
def test_any_python_value_is_checked_or_explained(schema, arguments):
    """Seed 002, Invariant 5: nothing but a result or a refusal, whatever is thrown at it."""
    result = outcome(schema, arguments)
    if isinstance(result, dict):
        json.dumps(result, allow_nan=False).encode()
    else:
        check_error(schema, result)


PLAIN_SCHEMAS = st.fixed_dictionaries(
    {
        "type": st.just("object"),
        "properties": st.dictionaries(
            NAMES,
            st.sampled_from([
                {"type": "string"}, {"type": "integer"}, {"type": "boolean"},
                {"type": "integer", "title": "n"},
                {"type": "string", "default": "d"}, {"type": "boolean", "default": True}, {"type": "number"},
                {"type": "string", "maxLength": 1}, {"type": "array", "default": []},
            ]),
            max_size=4,
        ),
        "required": st.lists(NAMES, unique=True, max_size=3),
        "additionalProperties": st.booleans(),
    }
)  # fmt: skip
PLAIN_VALUES = st.sampled_from(["a", "é", "\ud800", 0, -1, 10**12, 10**10, True, False, 3.0, None, [1]])


VALUES = {
    "string": st.text(max_size=3),
    "integer": st.integers(),
    "number": st.floats(-1e9, 1e9) | st.integers(),
    "boolean": st.booleans(),
    "null": st.none(),
}
NESTED_SCHEMAS = objects_of(
    st.recursive(
        st.sampled_from([
            *({"type": kind} for kind in (*VALUES, "object", "array")),
            *({"type": [kind, "null"]} for kind in ("string", "integer", "number", "boolean")),
            {"type": "string", "enum": ["a", "é"]}, {"type": "integer", "minimum": 0},
            {"title": "Any"}, {}, True,
        ]),
        lambda inner: objects_of(inner) | inner.map(lambda item: {"type": "array", "items": item}),
        max_leaves=8,
    )
)  # fmt: skip


def fitting(draw, schema):
    """Return a value that fits a schema of these, nearly always."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    kind = draw(st.sampled_from(kind)) if isinstance(kind, list) else kind
    if kind == "object" and "properties" in schema:
        optional = schema["properties"].keys() - schema.get("required", ())
        left_out = draw(st.sets(st.sampled_from(sorted(optional)))) if optional else set()
        names = draw(st.permutations([name for name in schema["properties"] if name not in left_out]))
        return {name: fitting(draw, schema["properties"][name]) for name in names}
    if kind == "array" and "items" in schema:
        return [fitting(draw, schema["items"]) for _ in range(draw(st.integers(0, 3)))]
    choices = schema.get("enum") if isinstance(schema, dict) else None
    return draw(st.sampled_from(choices) if choices else VALUES.get(str(kind), JSON))


class Word(str):
    """A text that could answer anything."""

    __slots__ = ()


ODD = HOSTILE | st.sampled_from([3.0, 1e300, 10**20, Word("a"), {Word("a"): 1}, "é", [3.0]]) | JSON


def spoilt(draw, value):
    """Return a value of which a few parts are odd."""
    if draw(st.integers(0, 12)) == 0:
        return draw(ODD)
    if type(value) is dict:
        return {name: spoilt(draw, item) for name, item in value.items()}
    return [spoilt(draw, item) for item in value] if type(value) is list else value


def anatomy(value):
    """Return everything that can be seen of a value: types, order, and NaN as equal to itself."""
    if type(value) is dict:
        return [(type(name), name, anatomy(item)) for name, item in value.items()]
    return (type(value), [anatomy(i) for i in value] if type(value) is list else repr(value))


@given(PLAIN_SCHEMAS | SCHEMAS, st.dictionaries(NAMES | st.integers(0, 1), PLAIN_VALUES, max_size=4))
def test_the_quick_check_agrees_with_the_thorough_one(schema, arguments):
    """Performance design: the validator decides; whoever decides faster must decide the same."""
    check_agreement(schema, arguments)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_the_quick_check_agrees_with_the_thorough_one_on_nested_values(data):
    """Performance design: one pass over usual values finds what several passes find."""
    schema = data.draw(NESTED_SCHEMAS)
    check_agreement(schema, spoilt(data.draw, fitting(data.draw, schema)))


def check_agreement(schema, arguments):
    checker = create_tool("it", "It.", schema, dict).checker
    quick = checker.check_quickly(arguments)
    if quick is not None:
        assert anatomy(quick) == anatomy(checker.check_thoroughly(arguments))
        assert compile_schema(schema).is_valid(arguments)
        assert not checker.flat or not any(isinstance(value, dict | list) for value in quick.values())


@given(SCHEMAS)
def test_a_missing_argument_always_names_itself(schema):
    """Decision 8: every fault."""
    result = outcome(schema, {})
    if not isinstance(result, dict):
        for name in schema.get("required", ()):
            assert json.dumps(name, ensure_ascii=False)[1:-1] in str(result)
