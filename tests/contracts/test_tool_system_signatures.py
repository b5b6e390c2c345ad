"""Seed 004, the tool system, as tests: type signatures, validation of arguments and serialization."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

from gramercy import (
    GramercyError,
    InvalidArgumentsError,
    ToolSpecification,
    create_tool_specification,
    parse_type_signature,
    type_signature_to_json_schema,
    validate_tool_args,
)
from gramercy.errors import InvalidSchemaError, TypeSignatureError

Schema = dict[str, Any]

SIGNATURE = '(::Text {paramName:"name"})==>(::String)'
GRAM = """\
[sayHello:ToolSpecification {
  description: "Returns a friendly greeting message for the given name"
} |
  (::Text {paramName:"name"})==>(::String)
]"""
JSON = r"""
{
  "name": "sayHello",
  "description": "Returns a friendly greeting message for the given name",
  "typeSignature": "(::Text {paramName:\"name\"})==>(::String)",
  "schema": {
    "type": "object",
    "properties": {
      "name": {
        "type": "string"
      }
    },
    "required": ["name"]
  }
}
"""


def an_object(required: list[str], **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": required}


TEXT = {"type": "string"}
INT = {"type": "integer"}


# Type Signature Format


@pytest.mark.parametrize(
    ("signature", "schema"),
    [
        pytest.param(
            "(::Text)==>(::String)",
            an_object(["input"], input=TEXT),
            marks=pytest.mark.contract("004.signature.simple"),
        ),
        pytest.param(
            '(::Text {paramName:"name"})==>(::String)',
            an_object(["name"], name=TEXT),
            marks=pytest.mark.contract("004.signature.named"),
        ),
        pytest.param(
            '(::Text {paramName:"name"})==>(::Int {paramName:"age"})==>(::String)',
            an_object(["name", "age"], name=TEXT, age=INT),
            marks=pytest.mark.contract("004.signature.multiple"),
        ),
        pytest.param(
            '(::Text {paramName:"name"})==>(::Int {paramName:"age", optional:true})==>(::String)',
            an_object(["name"], name=TEXT, age=INT),
            marks=pytest.mark.contract("004.signature.optional"),
        ),
        pytest.param(
            '(::Object {paramName:"params", fields:[{name:"name", type:"Text"}, {name:"age", type:"Int"}]})'
            "==>(::String)",
            an_object(["params"], params=an_object(["name", "age"], name=TEXT, age=INT)),
            marks=pytest.mark.contract("004.signature.record"),
        ),
    ],
)
def test_every_form_of_type_signature_makes_a_specification(signature: str, schema: Schema) -> None:
    """Seed 004, Type Signature Format: the five forms of the contract."""
    made = create_tool_specification("example", "Show a form.", signature)
    assert made.schema == schema
    assert made.type_signature == signature
    assert list(made.schema["properties"]) == list(schema["properties"])


# Type Signature Processing


@pytest.mark.contract("004.to-schema.valid", "004.to-schema.example")
def test_the_example_signature_gives_its_schema() -> None:
    """Seed 004, typeSignatureToJSONSchema: the example of the contract."""
    type_signature = '(::Text {paramName:"name"})==>(::String)'
    assert type_signature_to_json_schema(type_signature) == json.loads(JSON)["schema"]


@pytest.mark.parametrize(
    ("label", "schema", "required"),
    [
        pytest.param("Text", TEXT, ["x"], marks=pytest.mark.contract("004.to-schema.text")),
        pytest.param("Int", INT, ["x"], marks=pytest.mark.contract("004.to-schema.int")),
        pytest.param("Double", {"type": "number"}, ["x"], marks=pytest.mark.contract("004.to-schema.double")),
        pytest.param("Bool", {"type": "boolean"}, ["x"], marks=pytest.mark.contract("004.to-schema.bool")),
        pytest.param("`Maybe Int`", INT, [], marks=pytest.mark.contract("004.to-schema.maybe")),
        pytest.param(
            "`{field1: Text, field2: Int}`",
            an_object(["field1", "field2"], field1=TEXT, field2=INT),
            ["x"],
            marks=pytest.mark.contract("004.to-schema.record"),
        ),
        pytest.param(
            "`[Text]`",
            {"type": "array", "items": TEXT},
            ["x"],
            marks=pytest.mark.contract("004.to-schema.list"),
        ),
    ],
)
def test_every_type_of_the_mapping_gives_its_schema(label: str, schema: Schema, required: list[str]) -> None:
    """Seed 004, Type Mapping; types that are no plain word are quoted, as gram wants it."""
    signature = f'(::{label} {{paramName:"x"}})==>(::String)'
    assert type_signature_to_json_schema(signature) == an_object(required, x=schema)


@pytest.mark.contract("004.to-schema.invalid", "004.parse.invalid")
@pytest.mark.parametrize(
    "text", ["", "not a signature", "(::Text", "(::Text)==>(::String", "(::Text)==>", "[x]"]
)
@pytest.mark.parametrize("read", [type_signature_to_json_schema, parse_type_signature])
def test_an_invalid_signature_gives_an_error_message(read: Any, text: str) -> None:
    """Seed 004, typeSignatureToJSONSchema and parseTypeSignature, Postconditions."""
    with pytest.raises(TypeSignatureError) as caught:
        read(text)
    assert str(caught.value)


@pytest.mark.contract("004.to-schema.inconvertible")
@pytest.mark.parametrize(
    "text",
    [
        "(::Text)",
        "(::Teext)==>(::String)",
        "(::Text)<==(::String)",
        "(::Text)==(::String)",
        "(::Text::Int)==>(::String)",
        '(::Text {paramName:"a"})==>(::Int {paramName:"a"})==>(::String)',
    ],
)
def test_gram_that_is_no_usable_signature_gives_an_error_message(text: str) -> None:
    """Seed 004, typeSignatureToJSONSchema, Postconditions."""
    with pytest.raises(TypeSignatureError) as caught:
        type_signature_to_json_schema(text)
    assert caught.value.hint


@pytest.mark.contract("004.parse.valid")
def test_a_valid_signature_gives_its_parameters_and_its_result() -> None:
    """Seed 004, parseTypeSignature."""
    text = '(::Text {paramName:"name"})==>(::Int {paramName:"age", optional:true})==>(::Bool)'
    parsed = parse_type_signature(text)
    assert [(p.name, p.optional) for p in parsed.parameters] == [("name", False), ("age", True)]
    assert parsed.to_gram() == text
    assert parsed.to_schema() == an_object(["name"], name=TEXT, age=INT)
    assert parse_type_signature("(::Text)==>(::Bool)").returns == parsed.returns
    assert parse_type_signature("(::Text)==>(::Text)").returns != parsed.returns


# Parameter Validation


@pytest.mark.contract("004.validate.passes")
@pytest.mark.parametrize("arguments", [{"name": "Ada"}, {"name": "Ada", "age": 36}])
def test_arguments_that_fit_are_returned(arguments: dict[str, Any]) -> None:
    """Seed 004, validateToolArgs, Postconditions."""
    assert validate_tool_args(an_object(["name"], name=TEXT, age=INT), arguments) == arguments


@pytest.mark.contract("004.validate.fails", "004.validate.required")
def test_a_missing_required_field_gives_an_error_message() -> None:
    """Seed 004, validateToolArgs, Validation Rules."""
    with pytest.raises(InvalidArgumentsError, match="name"):
        validate_tool_args(an_object(["name"], name=TEXT), {})


@pytest.mark.contract("004.validate.schema-valid")
@pytest.mark.parametrize("schema", [{"type": "text"}, {"type": "object", "required": "name"}, "string", None])
def test_validation_against_something_that_is_no_schema_is_refused(schema: Any) -> None:
    """Seed 004, validateToolArgs, Preconditions."""
    with pytest.raises(InvalidSchemaError):
        validate_tool_args(schema, {})


@pytest.mark.contract("004.validate.json-value")
@pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}, b"bytes", "\ud800"])
def test_a_value_that_is_not_json_gives_an_error_message(value: Any) -> None:
    """Seed 004, validateToolArgs, Preconditions."""
    with pytest.raises(InvalidArgumentsError, match="value"):
        validate_tool_args({"type": "object", "properties": {"value": {}}}, {"value": value})


@pytest.mark.parametrize(
    ("kind", "fitting", "others"),
    [
        pytest.param(
            "string",
            ["", "a"],
            [1, True, None, [], {}],
            marks=pytest.mark.contract("004.validate.type-string"),
        ),
        pytest.param(
            "number", [0, -1.5], ["1", True, None, []], marks=pytest.mark.contract("004.validate.type-number")
        ),
        pytest.param(
            "boolean",
            [True, False],
            [0, 1, "true", None],
            marks=pytest.mark.contract("004.validate.type-boolean"),
        ),
        pytest.param(
            "object", [{}, {"a": 1}], [[], "{}", None], marks=pytest.mark.contract("004.validate.type-object")
        ),
        pytest.param(
            "array", [[], [1]], [{}, "[]", None], marks=pytest.mark.contract("004.validate.type-array")
        ),
    ],
)
def test_a_field_takes_values_of_its_type_only(kind: str, fitting: list[Any], others: list[Any]) -> None:
    """Seed 004, validateToolArgs, Validation Rules."""
    schema = an_object(["field"], field={"type": kind})
    for value in fitting:
        assert validate_tool_args(schema, {"field": value}) == {"field": value}
    for value in others:
        with pytest.raises(InvalidArgumentsError, match="field"):
            validate_tool_args(schema, {"field": value})


@pytest.mark.contract("004.validate.nested")
@pytest.mark.parametrize("street", [7, None, {"name": 7}])
def test_nested_objects_are_validated_too(street: Any) -> None:
    """Seed 004, validateToolArgs, Validation Rules."""
    schema = an_object(["address"], address=an_object(["street"], street=an_object(["name"], name=TEXT)))
    fitting = {"address": {"street": {"name": "High Street"}}}
    assert validate_tool_args(schema, fitting) == fitting
    with pytest.raises(InvalidArgumentsError, match=r"address\.street"):
        validate_tool_args(schema, {"address": {"street": street}})


# Serialization


@pytest.mark.contract("004.serialize.gram-read", "004.serialize.name-is-identity")
def test_the_gram_of_the_contract_is_read_with_the_name_as_its_identity() -> None:
    """Seed 004, ToolSpecification Serialization, Serialization Format."""
    read = ToolSpecification.from_gram(GRAM)
    assert read.name == "sayHello"
    assert read.description == "Returns a friendly greeting message for the given name"
    assert read.type_signature == SIGNATURE
    named_inside = GRAM.replace("sayHello:", ":").replace("{\n", '{\n  name: "sayHello",\n', 1)
    with pytest.raises(GramercyError, match="name"):
        ToolSpecification.from_gram(named_inside)


@pytest.mark.contract("004.serialize.gram-written")
def test_the_gram_of_the_contract_is_written() -> None:
    """Seed 004, ToolSpecification Serialization, Serialization Format."""
    made = create_tool_specification(
        "sayHello", "Returns a friendly greeting message for the given name", SIGNATURE
    )
    assert made.to_gram() == GRAM


@pytest.mark.contract("004.serialize.schema-not-stored")
def test_the_schema_is_not_in_the_gram_but_made_when_it_is_read() -> None:
    """Seed 004, ToolSpecification Serialization."""
    read = ToolSpecification.from_gram(GRAM)
    assert read.schema == json.loads(JSON)["schema"]
    assert "schema" not in read.to_gram()
    assert "properties" not in read.to_gram()


@pytest.mark.contract("004.serialize.json-read", "004.serialize.json-written")
def test_the_json_of_the_contract_is_read_and_written() -> None:
    """Seed 004, ToolSpecification Serialization, JSON Format."""
    read = ToolSpecification.from_json(json.loads(JSON))
    assert read == ToolSpecification.from_gram(GRAM)
    assert read.to_json() == json.loads(JSON)
    assert list(read.to_json()) == list(json.loads(JSON))


@pytest.mark.contract("004.serialize.fully")
@pytest.mark.parametrize(
    "signature",
    [
        SIGNATURE,
        "()==>(::Int)",
        '(::Object {paramName:"p", fields:[{name:"a", type:"Text"}, {name:"b", type:"[Int]"}]})==>(::Bool)',
        '(::Text {paramName:"name", default:"world"})==>(::`Maybe Int` {paramName:"age"})==>(::String)',
    ],
)
def test_what_is_written_and_read_again_is_the_same(signature: str) -> None:
    """Seed 004, ToolSpecification Serialization."""
    made = create_tool_specification("example", 'With "quotes", a \\ and\na second line.', signature)
    for again in (
        ToolSpecification.from_gram(made.to_gram()),
        ToolSpecification.from_json(json.loads(json.dumps(made.to_json()))),
    ):
        assert again == made
        assert again.schema == made.schema


@pytest.mark.contract("004.serialize.signature-is-truth")
def test_a_stored_schema_that_differs_does_not_count() -> None:
    """Seed 004, ToolSpecification Serialization: the type signature is the source of truth."""
    data = json.loads(JSON)
    data["schema"]["properties"]["name"]["type"] = "integer"
    with pytest.warns(UserWarning, match="differs"):
        read = ToolSpecification.from_json(data)
    assert read.schema == json.loads(JSON)["schema"]


@pytest.mark.contract("004.serialize.schema-convenience")
def test_json_without_a_schema_is_read_as_well() -> None:
    """Seed 004, ToolSpecification Serialization: the schema is there for convenience."""
    data = {key: value for key, value in json.loads(JSON).items() if key != "schema"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ToolSpecification.from_json(data).schema == json.loads(JSON)["schema"]
