"""Signatures derived from JSON Schemas."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramercy.errors import GramError, InvalidSchemaError, TypeSignatureError
from gramercy.gram.json_schema import canonical_schema
from gramercy.gram.signatures.signature import json_schema_to_signature, type_signature_to_json_schema
from gramercy.gram.syntax.reader import read

keys = st.text(st.characters(codec="utf-8"), max_size=6)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | keys,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=5,
)
simple = st.sampled_from(["string", "integer", "number", "boolean", "object", "array", "null"])


def _schemas(inner):
    extras = {
        "description": keys,
        "title": keys,
        "default": json_values,
        "examples": st.lists(json_values, max_size=2),
        "enum": st.lists(json_values, min_size=1, max_size=3),
        "minimum": st.integers(-5, 5) | st.floats(-5, 5),
        "maxLength": st.integers(0, 5),
        "format": st.sampled_from(["date", "made-up"]),
        "pattern": st.sampled_from(["^a", "`", "\\d+"]),
        "items": inner,
        "additionalProperties": st.booleans() | inner,
        "anyOf": st.lists(inner, min_size=1, max_size=2),
        "properties": st.dictionaries(keys, inner, max_size=3),
        "required": st.lists(keys, unique=True, max_size=2),
    }
    kinds = simple | st.lists(simple, min_size=1, max_size=2, unique=True)
    return st.fixed_dictionaries({}, optional={"type": kinds, **extras})


plain = st.fixed_dictionaries(
    {"type": simple.filter(lambda kind: kind != "null")}, optional={"description": keys}
)
objects = st.builds(
    lambda fields, required: {
        "type": "object",
        "properties": fields,
        "required": [k for k in fields if required],
    },
    st.dictionaries(keys, plain, max_size=3),
    st.booleans(),
)
parts = st.recursive(plain | objects | st.booleans(), _schemas, max_leaves=4)


@st.composite
def tool_schemas(draw):
    properties = draw(st.dictionaries(keys, parts, max_size=4))
    required = [key for key in properties if draw(st.booleans())]
    schema = {"type": "object", "properties": properties, "required": required}
    if draw(st.integers(0, 3)) == 0:
        schema.pop(draw(st.sampled_from(["properties", "required", "type"])))
    if draw(st.integers(0, 3)) == 0:
        schema["additionalProperties"] = False
    return schema


@given(tool_schemas())
def test_a_schema_comes_back_from_its_signature_unchanged(schema):
    """Design of the gram layer: expressible, or the schema:json escape; never something else."""
    text = json_schema_to_signature(schema)
    read(text, strict=True)
    back = type_signature_to_json_schema(text)
    assert canonical_schema(back) == canonical_schema(schema)
    assert json.dumps(canonical_schema(back), sort_keys=True) == json.dumps(
        canonical_schema(schema), sort_keys=True
    )
    assert list(back.get("properties", {})) == list(schema.get("properties", {}))


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "object", "properties": {}, "required": []}, "()==>(::String)"),
        (
            {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
            '(::Text {paramName:"name"})==>(::String)',
        ),
        (
            {
                "type": "object",
                "properties": {
                    "n": {"type": "integer", "minimum": 1, "default": 2},
                    "o": {"type": "object", "properties": {"x": {"type": "number"}}, "required": []},
                },
                "required": ["o"],
            },
            (
                '(::Int {paramName:"n", minimum:1, default:2})'
                '==>(::Object {paramName:"o", fields:{x:"Double?"}})==>(::String)'
            ),
        ),
        (
            {"type": "object", "properties": {"u": {"type": ["string", "null"]}}, "required": []},
            '(::Object {paramName:"u", optional:true, schema:json`{"type":["string","null"]}`})==>(::String)',
        ),
        (
            {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
            '({schema:json`{"type":"object","properties":{},"required":[],"additionalProperties":false}`})==>(::String)',
        ),
    ],
)
def test_the_portable_form_is_taken_where_it_exists(schema, expected):
    """People read derived signatures, so the escape is the last resort."""
    assert json_schema_to_signature(schema) == expected


def test_the_result_type_is_checked_and_written():
    """`returns` is a type expression."""
    schema = {"type": "object", "properties": {}, "required": []}
    assert json_schema_to_signature(schema, returns="[Int]") == "()==>(::`[Int]`)"
    with pytest.raises(TypeSignatureError, match="unknown type 'Foo'"):
        json_schema_to_signature(schema, returns="Foo")


@pytest.mark.parametrize(
    "schema", [None, True, [], "x", {"type": "strin"}, {"$ref": "https://example.org/s"}]
)
def test_what_is_no_schema_is_refused(schema):
    """Only JSON Schemas that compile offline are translated."""
    with pytest.raises(InvalidSchemaError):
        json_schema_to_signature(schema)


@pytest.mark.parametrize("schema", [{"type": "string"}, {"type": "object", "default": float("nan")}])
def test_what_no_signature_can_say_is_refused(schema):
    """Arguments are an object, and JSON has no NaN."""
    with pytest.raises(GramError):
        json_schema_to_signature(schema)
