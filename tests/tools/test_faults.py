"""The texts of faults: every keyword, did-you-mean, corrected example, and their bounds."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from gramercy import InvalidArgumentsError, create_tool, validate_tool_args
from gramercy.tools.examples import text_matching


def error_for(properties, arguments, **more):
    schema = {"type": "object", "properties": properties, "additionalProperties": False} | more
    with pytest.raises(InvalidArgumentsError) as caught:
        validate_tool_args(schema, arguments)
    return caught.value


def fault_for(schema, value):
    return str(error_for({"it": schema}, {"it": value}).faults[0])


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        ({"type": "string"}, 5, 'it: expected string, received integer 5; did you mean "5" (in quotes)?'),
        ({"type": "integer"}, "5", 'it: expected integer, received string "5"; did you mean 5 (without'),
        ({"type": "number"}, "5", 'it: expected number, received string "5"; did you mean 5 (without'),
        ({"type": "boolean"}, "true", 'received string "true"; did you mean true (without quotes)?'),
        ({"type": "array"}, "[1]", 'received string "[1]"; did you mean [1] (without quotes)?'),
        ({"type": "object"}, '{"a": 1}', 'did you mean {"a": 1} (without quotes)?'),
        ({"type": "integer"}, "five", 'it: expected integer, received string "five"'),
        ({"type": "integer"}, True, "it: expected integer, received boolean true"),
        ({"type": "string"}, True, "it: expected string, received boolean true"),
        ({"type": ["string", "null"]}, 5.5, "it: expected null or string, received number 5.5"),
        ({"type": "string"}, None, "it: expected string, received null"),
        ({"const": [1, 2]}, 5, "it: expected exactly [1, 2], received integer 5"),
        ({"enum": ["red", "up"]}, "rde", 'one of "red", "up", received string "rde"; did you mean "red"?'),
        ({"enum": [1, None]}, 2, "it: expected one of 1, null, received integer 2"),
        ({"enum": list(range(50))}, 99, "18, 19 and 30 more, received integer 99"),
        ({"minimum": 3}, 1, "it: expected at least 3, received integer 1"),
        ({"maximum": 3}, 5, "it: expected at most 3, received integer 5"),
        ({"exclusiveMinimum": 3}, 3, "it: expected more than 3, received integer 3"),
        ({"exclusiveMaximum": 3}, 3.0, "it: expected less than 3, received number 3.0"),
        ({"multipleOf": 2}, 3, "it: expected a multiple of 2, received integer 3"),
        ({"minLength": 3}, "a", 'it: expected at least 3 characters, received string "a"'),
        ({"maxLength": 1}, "ab", 'it: expected at most 1 characters, received string "ab"'),
        ({"pattern": "^a"}, "b", 'it: expected text that matches ^a, received string "b"'),
        ({"format": "date"}, "b", 'it: expected text in the format date, received string "b"'),
        ({"format": "uri"}, "%%", "it: expected text in the format uri"),
        ({"minItems": 2}, [1], "it: expected at least 2 items, received array [1]"),
        ({"maxItems": 0}, [1], "it: expected at most 0 items, received array [1]"),
        ({"uniqueItems": True}, [1, 1], "it: expected items that are all different, received array [1, 1]"),
        ({"contains": {"type": "string"}}, [1], "it: expected another number of items of the kind"),
        ({"prefixItems": [{}], "items": False}, [1, 2], "it[1]: expected nothing here, received integer 2"),
        ({"prefixItems": [{}], "unevaluatedItems": False}, [1, 2], "it: expected fewer items, received"),
        ({"minProperties": 1}, {}, "it: expected at least 1 names, received object {}"),
        ({"maxProperties": 0}, {"a": 1}, 'it: expected at most 0 names, received object {"a": 1}'),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "it: expected other names (at most 1 characters)"),
        ({"additionalProperties": {"type": "string"}}, {"a": 1}, "it.a: expected string, received integer 1"),
        ({"patternProperties": {"^a": {"type": "string"}}}, {"ab": 1}, "it.ab: expected string, received"),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "it.b: expected a value, received nothing"),
        ({"not": {"type": "string"}}, "a", 'it: expected something that does not fit {"type": "string"}'),
        ({"if": {"type": "string"}, "then": {"minLength": 3}}, "a", "it: expected at least 3 characters"),
        (False, 1, "it: expected nothing here, received integer 1"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 5, "it: expected string or null, received"),
        ({"oneOf": [{"type": "string"}, {"minLength": 1}]}, "abc", "it: expected a value that fits exactly"),
        ({"anyOf": [{"type": "string"}, {"type": "object", "required": ["a"]}]}, {}, "it.a: expected"),
        ({"anyOf": [{"minimum": 3}, {"minimum": 5}]}, 1, "it: expected at least 3"),
        ({"allOf": [{"minimum": 3}]}, 1, "it: expected at least 3"),
        ({"properties": {}, "additionalProperties": False}, {"a": 1}, "it.a: expected no arguments"),
        ({"additionalProperties": False}, {"a": 1}, "it: expected no names at all, received an unknown"),
        ({"unevaluatedProperties": False}, {"a": 1}, "it.a: expected no arguments, received an unknown name"),
        ({"maximum": 5}, 10**40, f"it: expected at most 5, received integer {10**40}"),
        ({"const": "x" * 500}, 1, 'it: expected exactly "xxx'),
    ],
)  # fmt: skip
def test_every_keyword_says_what_it_wants_and_what_it_got(schema, value, text):
    """Decision 8: every fault with path, expected, received, did-you-mean."""
    found = fault_for(schema, value)
    assert text in found
    assert "://" not in found
    assert len(found) < 700


def test_a_missing_argument_shows_its_description_and_the_name_given_instead():
    """Decision 8: did-you-mean for names."""
    properties = {"path": {"type": "string", "description": "The file"}, "mode": {"enum": ["r", "w"]}}
    error = error_for(properties, {"pth": "a"}, required=["path", "mode"])
    assert [str(fault) for fault in error.faults] == [
        'path: expected string (The file), received nothing: it is required, but "pth" was given',
        'mode: expected one of "r", "w", received nothing: it is required',
        (
            'pth: expected only these names: path, mode, received an unknown name with string "a"; '
            "did you mean path?"
        ),
    ]
    assert error.example == '{"path": "a", "mode": "r"}'


def test_every_fault_is_named_with_its_path():
    """Decision 8: every fault."""
    item = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    error = error_for(
        {"list": {"type": "array", "items": item}, "flag": {"type": "boolean"}},
        {"list": [{"n": 1}, {"n": "x"}, {}], "flag": 1},
    )
    assert {fault.path for fault in error.faults} == {"list[1].n", "list[2].n", "flag"}
    assert str(error).startswith("Invalid arguments (3 faults):\n- ")


def test_the_tool_is_named_and_the_example_is_a_call():
    """Decision 8: a corrected example call."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tool = create_tool("roll", "Roll.", schema, str)
    with pytest.raises(InvalidArgumentsError) as caught:
        tool.checker.check({"n": "6"})
    assert str(caught.value) == (
        "Invalid arguments for roll (1 fault):\n"
        '- n: expected integer, received string "6"; did you mean 6 (without quotes)?\n'
        'Corrected example: roll({"n": 6})'
    )


@pytest.mark.parametrize("name", ["a\nCorrected example: x", "a b", "a.b", "a[0]", "", "\x1b[31m", 'q"', "é"])
def test_a_strange_name_cannot_forge_the_text(name):
    """The names come from a model or from whoever feeds it."""
    error = error_for({"it": {}}, {name: 1})
    first = str(error).splitlines()[1]
    assert first.endswith("received an unknown name with integer 1")
    assert error.faults[0].path in first
    assert "\x1b" not in str(error)


def test_the_number_of_faults_is_bounded_and_the_rest_announced():
    """A million wrong items are one mistake."""
    numbers = {"type": "array", "items": {"type": "integer"}}
    for count, more in ((20, None), (21, "1 more faults"), (100, "80 more faults"), (3_000, "possibly more")):
        error = error_for({"it": numbers}, {"it": ["x"] * count})
        assert len(error.faults) == 20 + (more is not None)
        assert more is None or more in str(error.faults[-1])
    error = error_for({"it": {}}, {"it": [object()] * 500})
    assert "480 more faults" in str(error.faults[-1])
    error = error_for({"it": {}}, {f"name{number}": 1 for number in range(300)})
    assert len(error.faults) == 21
    assert len(str(error)) < 5_000


def test_ten_thousand_names_are_compared_in_bounded_work():
    """Looking for what was meant must not take longer than the call itself would have."""
    error = error_for({"wanted": {}}, {f"wnted{number}": 1 for number in range(4_000)}, required=["wanted"])
    assert any(fault.path == "wanted" for fault in error.faults)


@pytest.mark.parametrize(
    "schema",
    [
        {
            "type": "object",
            "required": list("abcdefghij"),
            "properties": {c: {"$ref": "#"} for c in "abcdefghij"},
        },
        {"type": "object", "required": ["a"], "properties": {"a": {"enum": []}}},
        {"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#/properties/a"}}},
        {"type": "object", "required": ["a"], "properties": {"a": {"not": {}}}},
        {"type": "object", "required": ["a"], "properties": {"a": {"type": "string", "minLength": 10**9}}},
        {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "multipleOf": 1e308}}},
        {"type": "object", "required": ["a"], "properties": {"a": {"pattern": "(?=x)y", "type": "string"}}},
        {
            "type": "object",
            "required": ["a"],
            "properties": {"a": {"pattern": "(a{90}){90}", "type": "string"}},
        },
    ],
)
def test_a_schema_that_no_example_can_be_made_for_costs_nothing(schema):
    """An example is a courtesy: its lack is no failure, its search never a hang."""
    with pytest.raises(InvalidArgumentsError) as caught:
        validate_tool_args(schema, {})
    assert caught.value.example is None or json.loads(caught.value.example) is not None


def test_deep_lists_of_many_items_make_no_endless_example():
    """MinItems multiplies at every level."""
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(10):
        schema = {"type": "array", "minItems": 100, "items": schema}
    assert error_for({"it": schema}, {}, required=["it"]).example is None


@pytest.mark.parametrize(
    ("schema", "value", "example"),
    [
        ({"type": "integer"}, "7", 7),
        ({"type": "integer", "minimum": 3, "maximum": 9}, 20, 9),
        ({"type": "integer", "exclusiveMinimum": 3}, 1, 4),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 5, 0.5),
        ({"type": "integer", "multipleOf": 7, "minimum": 8}, 9, 14),
        ({"type": "number"}, "x", 1),
        ({"type": "boolean"}, "no", False),
        ({"type": "boolean"}, "yes", True),
        ({"type": "string"}, 5, "5"),
        ({"type": "string", "maxLength": 3}, "abcdef", "ab…"),
        ({"type": "string", "minLength": 3}, "a", "axx"),
        ({"type": "string", "format": "date"}, "tomorrow", "2026-01-31"),
        ({"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$"}, "x", "AA-0"),
        ({"type": "string", "examples": ["blue"]}, 5, "5"),
        ({"enum": ["red", "blue"]}, "bleu", "blue"),
        ({"const": 3}, 4, 3),
        ({"type": "array", "items": {"type": "integer"}}, ["1", "2"], [1, 2]),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [1], [1, 1]),
        (
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2},
            [1],
            [1, "…"],
        ),
        ({"type": "array", "uniqueItems": True}, [1, 1, 2], [1, 2]),
        ({"type": ["integer", "null"]}, "x", 1),
        ({"anyOf": [{"type": "integer"}, {"type": "string", "minLength": 2}]}, "a", "ax"),
        ({"allOf": [{"type": "integer"}, {"minimum": 5}]}, 1, 5),
        (
            {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"b": 1},
            {"a": 1, "b": 1},
        ),
        ({"$ref": "#/$defs/n"}, "3", 3),
    ],
)
def test_the_example_stays_near_what_was_given(schema, value, example):
    """Decision 8: a corrected example call, not just any call."""
    definitions = {"n": {"type": "integer"}}
    error = error_for({"it": schema, "kept": {}}, {"it": value, "kept": [1]}, **{"$defs": definitions})
    assert json.loads(error.example) == {"it": example, "kept": [1]}


@pytest.mark.parametrize(
    "pattern",
    [
        r"^[A-Z]{2}[0-9]{8}$",
        r"^\+?[0-9]{7,15}$",
        r"^(foo|bar)-[\w.]+@x\.(?:com|org)$",
        r"[]a]",
        r"^[^/a]+\.txt$",
        r"a{2,}?b+c*?",
        r"^#[0-9a-fA-F]{6}$",
        r"^\d{4}-\d{2}$",
        "",
    ],
)
def test_simple_patterns_get_a_text_that_matches(pattern):
    """Decision 8: the example fits."""
    assert re.search(pattern, text_matching(pattern))


@pytest.mark.parametrize(
    "pattern", ["(?=a)b", "(", "[", "[a", r"\p{L}", r"(a)\1", "a)", "x" * 201, "((a{999}){999})"]
)
def test_other_patterns_are_left_alone(pattern):
    """An example is a courtesy."""
    with pytest.raises(ValueError, match=r"."):
        text_matching(pattern)
