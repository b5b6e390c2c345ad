"""Type signatures: what they mean as JSON Schema, and what is refused with which advice."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramercy.errors import TypeSignatureError
from gramercy.gram.signatures.parameters import ABSENT, Parameter
from gramercy.gram.signatures.signature import (
    TypeSignature,
    parse_type_signature,
    signature_of_path,
    type_signature_to_json_schema,
)
from gramercy.gram.signatures.types import ListOf, Maybe, Named, RecordOf, format_type, parse_type
from gramercy.gram.syntax.reader import read
from gramercy.gram.syntax.tree import Bracket

if TYPE_CHECKING:
    from gramercy.gram.json_schema import Schema


def properties_of(text: str) -> Schema:
    return dict(type_signature_to_json_schema(text)["properties"])


def refusal_of(text: Any) -> TypeSignatureError:
    with pytest.raises(TypeSignatureError) as caught:
        parse_type_signature(text)
    return caught.value


def test_a_simple_signature_has_one_parameter_called_input():
    """Seed 004, Type Signature Format, Simple."""
    assert type_signature_to_json_schema("(::Text)==>(::String)") == {
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
    }


def test_a_named_parameter_is_a_property_of_that_name():
    """Seed 004, Type Signature Format, Named parameter, and the example of typeSignatureToJSONSchema."""
    assert type_signature_to_json_schema('(::Text {paramName:"name"})==>(::String)') == {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    }


def test_a_described_parameter_has_the_schema_of_the_seed():
    """Seed 004, Schema Format."""
    text = '(::String {paramName:"paramName", description:"Parameter description"})==>(::String)'
    assert type_signature_to_json_schema(text) == json.loads("""
{
  "type": "object",
  "properties": {
    "paramName": {
      "type": "string",
      "description": "Parameter description"
    }
  },
  "required": ["paramName"]
}
""")


def test_several_parameters_are_properties_in_order_and_all_required():
    """Seed 004, Multiple parameters; the reference implementation gives an empty schema here."""
    schema = type_signature_to_json_schema(
        '(::Text {paramName:"name"})==>(::Int {paramName:"age"})==>(::String)'
    )
    assert json.dumps(schema) == (
        '{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, '
        '"required": ["name", "age"]}'
    )


def test_an_optional_parameter_is_not_required():
    """Seed 004, Type Signature Format, Optional parameter."""
    schema = type_signature_to_json_schema(
        '(::Text {paramName:"name"})==>(::Int {paramName:"age", optional:true})==>(::String)'
    )
    assert list(schema["properties"]) == ["name", "age"]
    assert schema["required"] == ["name"]


def test_a_record_parameter_is_an_object_with_its_fields():
    """Seed 004, Type Signature Format, Record parameter."""
    fields = '[{name:"name", type:"Text"}, {name:"age", type:"Int"}]'
    text = f'(::Object {{paramName:"params", fields:{fields}}})==>(::String)'
    assert properties_of(text) == {
        "params": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
            "required": ["name", "age"],
        }
    }


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("Text", {"type": "string"}),
        ("String", {"type": "string"}),
        ("Int", {"type": "integer"}),
        ("Integer", {"type": "integer"}),
        ("Double", {"type": "number"}),
        ("Number", {"type": "number"}),
        ("Float", {"type": "number"}),
        ("Bool", {"type": "boolean"}),
        ("Boolean", {"type": "boolean"}),
        ("Object", {"type": "object"}),
        ("Array", {"type": "array"}),
        ("`[Int]`", {"type": "array", "items": {"type": "integer"}}),
        ("`[[Int]]`", {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}),
        ("`[Maybe Int]`", {"type": "array", "items": {"type": ["integer", "null"]}}),
        ("`[Int?]`", {"type": "array", "items": {"type": ["integer", "null"]}}),
        (
            "`{field1: Text, field2: Int}`",
            {
                "type": "object",
                "properties": {"field1": {"type": "string"}, "field2": {"type": "integer"}},
                "required": ["field1", "field2"],
            },
        ),
    ],
)
def test_every_type_has_its_json_schema(label, expected):
    """Seed 004, Type Mapping; the reference implementation crashes on Text, Int, Double and Bool."""
    schema = type_signature_to_json_schema(f"(x::{label})==>(::String)")
    assert schema == {"type": "object", "properties": {"x": expected}, "required": ["x"]}


@pytest.mark.parametrize("label", ["`Maybe Int`", "`Int?`", "`Maybe (Maybe Int)`", "`(Int)?`"])
def test_maybe_makes_a_parameter_optional_and_leaves_its_type(label):
    """Seed 004, Type Mapping, `Maybe T`: optional parameter, not in the required list."""
    schema = type_signature_to_json_schema(f"(age::{label})==>(::String)")
    assert schema == {"type": "object", "properties": {"age": {"type": "integer"}}, "required": []}


@pytest.mark.parametrize(
    "node",
    [
        '(p::Object {fields:{name:"Text", age:"Int?", tags:"[Text]"}})',
        "(p::`{name: Text, age: Maybe Int, tags: [Text]}`)",
        (
            '(p::Object {fields:[{name:"name", type:"Text"}, {name:"age", type:"Int?"}, '
            '{name:"tags", type:"[Text]"}]})'
        ),
        (
            "(p::Object {fields:[{name:name, type:Text}, {name:age, type:Int, optional:true}, "
            '{name:tags, type:"[Text]"}]})'
        ),
    ],
)
def test_the_ways_to_write_an_object_mean_the_same(node):
    """Seed 004, Type Mapping, `{field1: T1, field2: T2}`: a flat map, a quoted type or a list of maps."""
    assert properties_of(f"{node}==>(::String)") == {
        "p": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "age": {"type": "integer"},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["name", "tags"],
        }
    }


def test_fields_may_be_described_and_nested():
    """Design of the gram layer, `fields` as a list of maps."""
    text = (
        '(p::Object {fields:[{name:"inner", type:"Object", description:"deep", '
        'fields:[{name:"n", type:"Int", default:4}]}]})==>(::String)'
    )
    inner = {
        "type": "object",
        "properties": {"n": {"type": "integer", "default": 4}},
        "required": [],
        "description": "deep",
    }
    assert properties_of(text)["p"]["properties"] == {"inner": inner}


def test_a_list_of_objects_takes_fields_too():
    """Design of the gram layer, Object and Array."""
    item = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    expected = {"type": "array", "items": item}
    assert properties_of('(a::`[Object]` {fields:{x:"Int"}})==>(::Text)')["a"] == expected
    assert properties_of("(a::`[{x: Int}]`)==>(::Text)")["a"] == expected
    assert properties_of('(a::Array {elementType:"Object", fields:{x:"Int"}})==>(::Text)')["a"] == expected


def test_an_array_takes_the_type_of_its_elements_as_a_property():
    """Design of the gram layer, Array."""
    assert (
        properties_of('(a::Array {elementType:"Int"})==>(::Text)')["a"]
        == properties_of("(a::`[Int]`)==>(::Text)")["a"]
    )


def test_constraints_go_into_the_schema():
    """Design of the gram layer, node properties."""
    text = (
        '(s::Text {description:"d", minLength:1, maxLength:9, pattern:"^a", format:"hostname", '
        'enum:[ab, "abc"], examples:["ab"]})==>(::String)'
    )
    assert properties_of(text)["s"] == {
        "type": "string",
        "description": "d",
        "minLength": 1,
        "maxLength": 9,
        "pattern": "^a",
        "format": "hostname",
        "enum": ["ab", "abc"],
        "examples": ["ab"],
    }


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("range:1..10", {"minimum": 1, "maximum": 10}),
        ("range:0.5...", {"minimum": 0.5}),
        ("range:...-2", {"maximum": -2}),
        ("minimum:1, maximum:1", {"minimum": 1, "maximum": 1}),
    ],
)
def test_a_range_is_a_minimum_and_a_maximum(written, expected):
    """Design of the gram layer, `range:1..10`."""
    assert properties_of(f"(n::Double {{{written}}})==>(::String)")["n"] == {"type": "number", **expected}


@pytest.mark.parametrize(
    ("label", "written", "value"),
    [
        ("String", '"world"', "world"),
        ("String", "world", "world"),
        ("Int", "-3", -3),
        ("Double", "2.5", 2.5),
        ("Double", "2", 2),
        ("Bool", "false", False),
        ("`[Int]`", "[1, 2]", [1, 2]),
        ("`[Text]`", "[]", []),
        ("Object", "{a: 1}", {"a": 1}),
        ("Object", '{a: {b: [1, "x"]}}', {"a": {"b": [1, "x"]}}),
        ("Object", 'json`{"a": null}`', {"a": None}),
    ],
)
def test_a_default_is_kept_and_makes_the_parameter_optional(label, written, value):
    """The reference implementation drops decimal, array and map defaults."""
    schema = type_signature_to_json_schema(f"(x::{label} {{default:{written}}})==>(::String)")
    assert schema["properties"]["x"]["default"] == value
    assert type(schema["properties"]["x"]["default"]) is type(value)
    assert schema["required"] == []


def test_no_parameters_are_written_as_an_empty_node():
    """Design of the gram layer, `()` as the only source."""
    empty = {"type": "object", "properties": {}, "required": []}
    assert type_signature_to_json_schema("()==>(::String)") == empty


def test_the_identifier_names_a_parameter():
    """Design of the gram layer, later form of pattern-agent."""
    signature = parse_type_signature('(personName::String {default:"world"})==>(::String)')
    assert [parameter.name for parameter in signature.parameters] == ["personName"]
    assert signature.to_gram() == '(personName::String {default:"world"})==>(::String)'


def test_nameless_parameters_are_numbered():
    """Design of the gram layer, arg1 to argN."""
    assert list(properties_of("(::Text)==>(::Int)==>(b::Bool)==>(::String)")) == ["arg1", "arg2", "b"]


@pytest.mark.parametrize("arrow", ["==>", "-->", "~~>", "=[f:Func]=>", " --> // a comment\n"])
def test_every_family_of_right_arrows_means_the_same(arrow):
    """Design of the gram layer, all arrow families are equal in meaning."""
    assert parse_type_signature(f"(a::Text){arrow}(::String)") == parse_type_signature(
        "(a::Text)==>(::String)"
    )


def test_an_escaped_schema_is_taken_as_it_stands():
    """Design of the gram layer, the `schema: json` escape."""
    schema = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
    text = f"(x::Object {{optional:true, schema: json`{json.dumps(schema)}`}})==>(::String)"
    assert type_signature_to_json_schema(text) == {
        "type": "object",
        "properties": {"x": schema},
        "required": [],
    }


def test_one_nameless_and_typeless_source_gives_the_schema_of_all_arguments():
    """The escape for schemas that are more than a list of parameters."""
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/t"}},
        "$defs": {"t": {"type": "string"}},
    }
    assert type_signature_to_json_schema(f"({{schema: json`{json.dumps(schema)}`}})==>(::String)") == schema


def test_the_schema_of_a_signature_can_be_changed_without_changing_the_signature():
    """A schema is handed out as a copy."""
    signature = parse_type_signature("(c::Text {enum:[a, b]})==>(::String)")
    signature.to_schema()["properties"]["c"]["enum"].append("x")
    assert signature.to_schema()["properties"]["c"]["enum"] == ["a", "b"]


def test_an_element_of_a_document_is_read_with_positions_of_the_document():
    """Specifications read their signatures in place."""
    source = '[t:Tool {description:"d"} |\n  (a::Txt)==>(::String)]'
    bracket = read(source).patterns[0]
    assert isinstance(bracket, Bracket)
    with pytest.raises(TypeSignatureError) as caught:
        signature_of_path(bracket.elements[0], source)
    assert (caught.value.line, caught.value.column) == (2, 5)


@pytest.mark.parametrize(
    ("text", "reason", "hint", "column"),
    [
        ("(::Txt)==>(::String)", "unknown type 'Txt'", "did you mean Text?", 2),
        ("(a::string)==>(::String)", "unknown type 'string'", "did you mean String?", 3),
        ("(a::Text)==>(::Strng)", "unknown type 'Strng'", "did you mean String?", 14),
        ('(p::Object {fields:{x:"Inte"}})==>(::Text)', "unknown type 'Inte'", "did you mean Int", 20),
        ("(a::`List Int`)==>(::Text)", "unknown type 'List'", "`[T]`", 3),
        ("(::Text)<==(::String)", "points left", "turn it round", 9),
        ("(::Text)==(::String)", "no direction", "==>", 9),
        ("(::Text)<--(::Int)-->(::String)", "points left", "turn it round", 9),
        ("(::Text)<==>(::String)", "both ways", "==>", 9),
        ("(a::Text)==>(a::Int)==>(::String)", "two parameters are named 'a'", "own name", 13),
        ('(a::Text {paramName:"b"})==>(::String)', "two names", "keep one", 1),
        ("(a::Text)", "no arrow", "==>", 1),
        ("(a::Text)==>()", "needs a type", "::", 13),
        ("(Text)==>(::String)", "needs a type", "(::Text)", 1),
        ("(a::Text:Int)==>(::String)", "one type, not Text and Int", "keep one", 9),
        ("(a::Text)==>(::String) (b)", "exactly one path", "==>", 24),
        ("[x | a]", "a path of nodes", "==>", 1),
        ("", "exactly one path", "==>", 1),
        ("(a::Text", "expected ')'", "==>", 9),
        ('(a::Int {default:"x"})==>(::String)', "default of 'a' does not fit", None, 18),
        ("(a::Int {default:2.5})==>(::String)", "default of 'a' does not fit", None, 18),
        ("(a::Int {default:true})==>(::String)", "default of 'a' does not fit", None, 18),
        ("(a::Int {default:null})==>(::String)", "default of 'a' does not fit", "optional:true", 18),
        ("(a::Int {range:1..5, default:6})==>(::String)", "default of 'a' does not fit", None, 30),
        ('(a::`[Int]` {default:[1, "x"]})==>(::String)', "(at 1)", None, 22),
        ("(a::Int {default:5kg})==>(::String)", "measurement", None, 18),
        ("(a::Int {default:1..2})==>(::String)", "a range is not a value", None, 18),
        ('(a::Text {pattern:"("})==>(::String)', "pattern of 'a' cannot be used", None, 19),
        ('(a::Int {enum:["a"]})==>(::String)', "enum of 'a' has a value", None, 15),
        ("(a::Int {enum:[]})==>(::String)", "at least one value", "enum:[", 15),
        ("(a::Text {examples:[1]})==>(::String)", "examples of 'a' has a value", None, 20),
        ("(a::Int {range:10..1})==>(::String)", "allows nothing", None, 16),
        ("(a::Int {minimum:2, maximum:1})==>(::String)", "allows nothing", None, 18),
        ("(a::Int {range:1kg..2kg})==>(::String)", "plain numbers", "unit", 16),
        ("(a::Int {range:5})==>(::String)", "must be a range", "range:1..10", 16),
        ("(a::Int {range:1..2, minimum:1})==>(::String)", "says the same", "keep one", 16),
        ("(a::Text {range:1..2})==>(::String)", "no meaning for string", "integer or number", 17),
        ("(a::Int {minLength:2})==>(::String)", "no meaning for integer", "string", 20),
        ("(a::Text {minLength:-1})==>(::String)", "not negative", None, 21),
        ('(a::Int {minimum:"1"})==>(::String)', "must be a number", None, 18),
        ("(a::Int {description:5})==>(::String)", "must be text", "quotes", 22),
        ('(a::Int {optional:"true"})==>(::String)', "true or false", "optional:true", 19),
        ("(a::Int {default:1, optional:false})==>(::String)", "contradicts", "leave optional out", 30),
        ("(a::Int {defualt:1})==>(::String)", "unknown property 'defualt'", "did you mean default?", 10),
        ('(a::Int {fields:{x:"Int"}})==>(::String)', "belongs to the type Object", "::Object", 17),
        ('(a::Int {elementType:"Int"})==>(::String)', "belongs to the type Array", "::Array", 22),
        ("(a::Object {fields:5})==>(::String)", "a map or a list of maps", "fields:{", 20),
        ('(a::Object {fields:[{name:"x"}]})==>(::String)', "a name and a type", "type:", 20),
        ("(a::Object {fields:[{name:x, type:Int}, {name:x, type:Int}]})==>(::String)", "'x' twice", None, 20),
        ('(a::Text {paramName:" "})==>(::String)', "is empty", "paramName:", 21),
        ("(a::Object {schema:json`{`})==>(::String)", "not valid JSON", None, 20),
        ("(a::Object {schema:json`[]`})==>(::String)", "must be a JSON object", "json`", 20),
        ('(a::Object {schema:json`{"minimum":NaN}`})==>(::String)', "NaN", None, 20),
        ('(a::Object {schema:json`{"minimum":1e999}`})==>(::String)', "too large", None, 20),
        (
            '(a::Object {schema:json`{"type":"object","type":"object"}`})==>(::String)',
            "each name once",
            None,
            20,
        ),
        (
            '(a::Object {schema:json`{"$ref":"https://example.org/x"}`})==>(::String)',
            "nothing is fetched",
            None,
            1,
        ),
        (
            '(a::Object {schema:json`{"$ref":"file:///etc/passwd"}`})==>(::String)',
            "nothing is fetched",
            None,
            1,
        ),
        ('(a::Object {schema:json`{"$ref":"#/$defs/none"}`})==>(::String)', "does not exist", None, 1),
        ('(a::Text {schema:json`{"type":"integer"}`})==>(::String)', "the label says 'string'", None, 18),
        ("(a::Object {schema:json`{}`, default:1})==>(::String)", "default must go into it", None, 20),
        ('({schema:json`{"type":"string"}`})==>(::String)', "arguments are an object", None, 10),
        ("(a::Text)=[{x:1}]=>(::String)", "no properties", "node", 10),
    ],
)
def test_what_is_refused_is_refused_with_its_place_and_advice(text, reason, hint, column):
    """Seed 004, Left error: an invalid signature cannot be converted."""
    error = refusal_of(text)
    assert reason in error.reason
    assert (error.line, error.column) == (1, column)
    assert hint is None or hint in (error.hint or "")


@pytest.mark.parametrize(
    "text", ["[" * 5000 + "Int" + "]" * 5000, "Maybe " * 5000 + "Int", "(" * 5000, "{a: " * 5000]
)
def test_hostile_nesting_of_types_is_refused_and_not_followed(text):
    """A type cannot exhaust the stack."""
    assert "deeper than" in refusal_of(f"(a::`{text}`)==>(::String)").reason


def test_a_hostile_pattern_cannot_hang_the_check_of_a_default():
    """The number of steps of a match is bounded."""
    text = f'(a::Text {{pattern:"^(a+)+$", default:"{"a" * 60}!"}})==>(::String)'
    assert "does not fit" in refusal_of(text).reason


def test_a_field_that_refers_outside_of_itself_is_refused_and_not_followed():
    """References of an escaped schema start at the root of the whole."""
    field = '{name:"a", type:"Object", schema: json`{"$ref":"#/properties/none"}`}'
    assert refusal_of(f"(p::Object {{fields:[{field}], default:{{}}}})==>(::String)")


def test_text_that_is_no_text_is_refused():
    """Seed 004, preconditions."""
    assert "expected text" in refusal_of(None).reason


def test_many_parameters_take_linear_time():
    """No quadratic walk over parameters or fields."""
    count = 3000
    nodes = "==>".join(f"(a{number}::Int)" for number in range(count))
    assert len(properties_of(f"{nodes}==>(::Text)")) == count
    fields = ", ".join(f'{{name:"f{number}", type:"Int"}}' for number in range(count))
    assert len(properties_of(f"(o::Object {{fields:[{fields}]}})==>(::Text)")["o"]["properties"]) == count


scalars = st.sampled_from(
    ["Text", "String", "Int", "Integer", "Double", "Number", "Float", "Bool", "Boolean"]
)
names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=8).filter(
    str.strip
)
field_names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)


def _containers(inner):
    fields = st.dictionaries(field_names, inner, max_size=3).map(lambda found: RecordOf(tuple(found.items())))
    lists = inner.map(ListOf)
    maybes = inner.filter(lambda kind: not isinstance(kind, Maybe)).map(Maybe)
    return st.one_of(lists, maybes, fields)


types = st.recursive(
    st.one_of(scalars, st.sampled_from(["Object", "Array"])).map(Named), _containers, max_leaves=6
)
definite_types = types.filter(lambda kind: not isinstance(kind, Maybe))
texts = st.text(st.characters(codec="utf-8"), max_size=12)


@st.composite
def parameters(draw):
    constraints = {}
    kind = draw(definite_types)
    if draw(st.booleans()):
        constraints["description"] = draw(texts)
    default = ABSENT
    if kind in (Named("Text"), Named("String")) and draw(st.booleans()):
        default = draw(texts)
    if kind in (Named("Int"), Named("Double")) and draw(st.booleans()):
        low = draw(st.integers(-1000, 1000))
        constraints |= {"minimum": low, "maximum": low + draw(st.integers(0, 10))}
    optional = default is not ABSENT or draw(st.booleans())
    return Parameter(draw(names), kind, optional, default, constraints)


signatures = st.builds(
    TypeSignature, st.lists(parameters(), max_size=4, unique_by=lambda item: item.name).map(tuple), types
)


@given(types)
def test_a_type_reads_back_as_itself(kind):
    """`format_type` and `parse_type` are inverse."""
    assert parse_type(format_type(kind)) == kind


@given(signatures)
def test_a_signature_reads_back_as_itself(signature):
    """Seed 004, parseTypeSignature: text and structure say the same."""
    read_back = parse_type_signature(signature.to_gram())
    assert read_back == signature
    assert read_back.to_schema() == signature.to_schema()


PIECES = (
    *("(", ")", "==>", "-->", "<==", "==", "::", "a", "b", "{", "}", ", ", "[", "]"),
    *("::Text", "::Int", "::Object", "::`[Int]`", "::`Maybe Text`", "::`{x: Int}`", "::Txt", "::`[`"),
    *("default:1", 'default:"x"', "optional:true", "range:1..2", "range:2..1", "enum:[1, 2]", 'pattern:"("'),
    *('fields:{x:"Int"}', "schema:json`{}`", "schema:json`{`", 'paramName:"n"', "(a::Int)==>", "==>(::Text)"),
)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_any_text_is_read_or_refused_as_a_signature(text):
    """No text makes anything but a TypeSignatureError, and what is read is written back."""
    try:
        signature = parse_type_signature(text)
    except TypeSignatureError:
        return
    assert parse_type_signature(signature.to_gram()) == signature
