"""Generated schemas and arguments: only a checked dictionary or InvalidArgumentsError may come out."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import example, given
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


@given(PLAIN_SCHEMAS | SCHEMAS, st.dictionaries(NAMES | st.integers(0, 1), PLAIN_VALUES, max_size=4))
def test_the_quick_check_agrees_with_the_thorough_one(schema, arguments):
    """Performance design: the validator decides; whoever decides faster must decide the same."""
    checker = create_tool("it", "It.", schema, dict).checker
    quick = checker.check_flat(arguments)
    if quick is not None:
        thorough = checker.check_thoroughly(arguments)
        assert {n: (type(v), v) for n, v in quick.items()} == {n: (type(v), v) for n, v in thorough.items()}
        assert compile_schema(schema).is_valid(arguments)


@given(SCHEMAS)
def test_a_missing_argument_always_names_itself(schema):
    """Decision 8: every fault."""
    result = outcome(schema, {})
    if not isinstance(result, dict):
        for name in schema.get("required", ()):
            assert json.dumps(name, ensure_ascii=False)[1:-1] in str(result)
