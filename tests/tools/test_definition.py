"""What define_tool and create_tool accept, and how they refuse."""

from __future__ import annotations

import math
from collections import OrderedDict
from types import MappingProxyType
from typing import Any

import pytest

from gramercy import Safety, create_tool, define_tool
from gramercy.errors import InvalidToolError

PATH = {"name": "path", "type": "string", "description": "File to read"}


def handle(arguments):
    return arguments


def define(**changes):
    definition: dict[str, Any] = {
        "name": "read_file",
        "description": "Read a file.",
        "parameters": [PATH],
        "required": ["path"],
        "handler": handle,
    }
    return define_tool(**(definition | changes))


def refusal(**changes):
    with pytest.raises(InvalidToolError) as caught:
        define(**changes)
    return str(caught.value)


def test_a_definition_has_every_slot_of_the_contract():
    """Seed 000, Tool Object Slots."""
    tool = define(safety_level=":cautious", categories=[":buffer", "files", "buffer"])
    assert (tool.name, tool.description, tool.required) == ("read_file", "Read a file.", ("path",))
    assert (tool.safety_level, tool.categories, tool.handler) == (
        Safety.CAUTIOUS,
        ("buffer", "files"),
        handle,
    )
    (parameter,) = tool.parameters
    assert (parameter.name, parameter.type, parameter.description, parameter.required) == (
        "path",
        "string",
        "File to read",
        True,
    )


def test_the_defaults_of_a_definition_are_harmless():
    """Seed 000, Parameters: required nil, safety-level :safe, no categories."""
    tool = define(parameters=[], required=())
    assert (tool.safety_level, tool.required, tool.categories, tool.parameters) == (Safety.SAFE, (), (), ())
    assert tool.schema == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


@pytest.mark.parametrize(
    "kind", ["string", "boolean", "number", "integer", "object", "array", ":string", "String"]
)
def test_every_parameter_type_is_accepted_also_as_a_keyword(kind):
    """Seed 000, Parameter Types, and decision 3."""
    tool = define(parameters=[{"name": "it", "type": kind}], required=())
    assert tool.schema["properties"]["it"]["type"] == kind.removeprefix(":").lower()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": ""}, "the name is empty: expected snake_case such as 'read_file'"),
        ({"name": 7}, "the name is int: expected text"),
        ({"name": "readFile"}, "expected snake_case such as 'read_file'; try 'read_file'"),
        ({"name": "read-file"}, "try 'read_file'"),
        ({"name": "read file"}, "try 'read_file'"),
        ({"name": "Read"}, "try 'read'"),
        ({"name": "9lives"}, "the name '9lives' has the wrong form"),
        ({"name": "read_file\n"}, "has the wrong form"),
        ({"name": "x" * 10_000 + "!"}, "has the wrong form"),
        ({"description": ""}, "the description is empty: tell the model what the tool does"),
        ({"description": " \n"}, "the description is empty"),
        ({"description": None}, "the description is empty"),
        ({"description": "half a pair: \ud83d"}, "the description has a lone surrogate"),
        ({"handler": None}, "there is no handler: pass a function that takes one dictionary"),
        ({"handler": "open"}, "the handler is str: expected a function"),
        ({"handler": lambda: 1}, "the handler must take exactly one argument"),
        ({"handler": lambda _a, _b: 1}, "the handler must take exactly one argument"),
        ({"handler": lambda _a, *, _b: 1}, "the handler must take exactly one argument"),
        (
            {"safety_level": "dangerus"},
            "unknown safety level 'dangerus': expected safe, cautious or dangerous; did you",
        ),
        ({"safety_level": 3}, "a safety level is a word, not int"),
        ({"categories": "files"}, "categories must be a list of words"),
        ({"categories": 3}, "categories must be a list of words"),
        ({"categories": ["files", 3]}, "every category must be a word"),
        ({"categories": [""]}, "every category must be a word"),
        ({"deadlin": 3}, "unknown option 'deadlin'; did you mean 'deadline'?"),
        ({"colour": 3}, "unknown option 'colour': expected safety_level, categories, deadline, inline, "),
        ({"function": handle}, "unknown option 'function'"),
        ({"judged_as": ("eval_form",)}, "judged_as is ('eval_form',): expected a tuple of Likeness"),
        ({"deadline": 0}, "the deadline is 0: expected a positive number of seconds or None"),
        ({"deadline": "1"}, "the deadline is '1'"),
        ({"deadline": True}, "the deadline is True"),
        ({"deadline": math.inf}, "the deadline is inf"),
        ({"deadline": math.nan}, "the deadline is nan"),
        ({"inline": 1}, "inline is 1: expected True or False"),
        ({"idempotent": "yes"}, "idempotent is 'yes'"),
        ({"edits": "text"}, "edits is 'text': expected the names of two parameters"),
        ({"edits": ("old", 2)}, "edits is ('old', 2)"),
        ({"target_state": "file"}, "target_state must be a function of one argument"),
        ({"target_state": lambda: 1}, "target_state must be a function of one argument"),
    ],
)
def test_a_faulty_definition_is_refused_with_what_to_change(changes, text):
    """Seed 000, Invariants 2, 4, 5; guard design: errors say what to try."""
    assert text in refusal(**changes)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (None, "parameters must be a list such as"),
        ("path", "parameters must be a list such as"),
        ({"path": "string"}, "parameters must be a list such as"),
        ([PATH, PATH], "parameter 'path' is there twice: remove or rename one"),
        (["path"], 'parameter 1 has no name: expected an object with "name" and "type"'),
        ([PATH, {"type": "string"}], "parameter 2 has no name"),
        ([{"name": "", "type": "string"}], "parameter 1 has no name"),
        ([{"name": 3, "type": "string"}], "parameter 1 has no name"),
        ([{"name": "path"}], "parameter 'path' has the unknown type None: expected string, boolean, number"),
        ([{"name": "path", "type": "strin"}], "did you mean 'string'?"),
        ([{"name": "path", "type": ["string", "null"]}], "unknown type ['string', 'null']"),
        ([{"name": "path", "type": "string", "descripton": "x"}], "did you mean 'description'?"),
        (
            [{"name": "path", "type": "string", "required": True}],
            "pass required=['path'] to the tool instead",
        ),
    ],
)
def test_faulty_parameters_are_refused_with_what_to_change(parameters, text):
    """Seed 000, Parameters: a list of plists with name, type and description."""
    assert text in refusal(parameters=parameters, required=())


@pytest.mark.parametrize(
    ("required", "text"),
    [
        (["paht"], "required names 'paht', which is no parameter; did you mean 'path'?"),
        (["zzz"], "required names 'zzz', which is no parameter; the parameters are path"),
        ("path", "required must be a list of names"),
        (None, "required must be a list of names"),
        ([["path"]], "required names ['path'], which is no text"),
        ([{}], "required names {}, which is no text"),
    ],
)
def test_required_names_must_be_parameters(required, text):
    """Seed 000, Invariant 3."""
    assert text in refusal(required=required)


@pytest.mark.parametrize(
    ("parameter", "text"),
    [
        ({"type": "integer", "default": "ten"}, "the default of 'it' does not fit its own schema: 'ten'"),
        ({"type": "integer", "default": True}, "the default of 'it' does not fit its own schema: True"),
        ({"type": "string", "default": None}, "does not fit its own schema: None"),
        ({"type": "integer", "default": 5, "maximum": 4}, "does not fit its own schema: 5"),
        ({"type": "array", "items": {"type": "string"}, "default": ["a", 1]}, "does not fit its own schema"),
        (
            {"type": "number", "default": math.nan},
            "properties.it.default: expected a finite number, received nan",
        ),
        ({"type": "object", "default": {"a": object()}}, "properties.it.default.a: expected a JSON value"),
        (
            {"type": "string", "enum": {"a", "b"}},
            "properties.it.enum: expected a JSON value, received a Python set",
        ),
        (
            {"type": "string", "description": "\ud800"},
            "properties.it.description: expected valid Unicode text",
        ),
        ({"type": "string", "minLength": -1}, "not a valid JSON Schema at properties/it/minLength"),
        ({"type": "string", "pattern": "("}, "not a valid JSON Schema at properties/it/pattern"),
        ({"type": "string", "pattern": "((a{1000}){1000}){1000}"}, "properties/it/pattern"),
        ({"type": "array", "items": {"$ref": "#/$defs/no"}}, "Pointer '/$defs/no' does not exist"),
        (
            {"type": "array", "items": {"$ref": "https://example.org/s.json"}},
            "nothing is fetched: put the definition",
        ),
        ({"type": "array", "items": {"$ref": "file:///etc/passwd"}}, "nothing is fetched"),
    ],
)
def test_a_parameter_that_is_no_sound_schema_is_refused(parameter, text):
    """Decision 11 and gram design: schemas are compiled offline, defaults must fit."""
    assert text in refusal(parameters=[{"name": "it", **parameter}], required=())


@pytest.mark.parametrize("depth", [101, 500, 100_000])
def test_a_schema_nested_beyond_use_is_refused(depth):
    """Style: never a crash, whatever the input."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    text = refusal(parameters=[{"name": "it", **schema}], required=())
    assert "levels of nesting" in text or "too deep" in text
    assert len(text) < 10_000


def test_a_schema_that_contains_itself_is_refused():
    """Style: never a hang."""
    schema: dict[str, Any] = {"name": "it", "type": "array"}
    schema["items"] = schema
    assert "a value that contains itself" in refusal(parameters=[schema], required=())


def test_all_problems_are_reported_together():
    """Style: the message says everything that is wrong."""
    parameters = [{"name": "a", "type": "x"}]
    text = refusal(
        name="readFile", description="", parameters=parameters, required="a", handler=None, deadline=-1
    )
    assert text.startswith("tool 'readFile' is refused:\n")
    for part in (
        "try 'read_file'",
        "description is empty",
        "type 'x'",
        "list of names",
        "no handler",
        "is -1",
    ):
        assert part in text
    assert text.count("\n- ") == 6


def test_a_default_may_refer_to_definitions_and_other_properties():
    """JSON Schema 2020-12: references point anywhere into the document."""
    schema: dict[str, Any] = {
        "type": "object",
        "definitions": {"level": {"enum": ["low", "high"]}},
        "properties": {
            "level": {"$ref": "#/definitions/level", "default": "low"},
            "other": {"$ref": "#/properties/level", "default": "high"},
        },
        "required": ["level", "missing"],
    }
    assert create_tool("setLevel", "Set it.", schema, handle).schema == schema
    schema["properties"]["other"]["default"] = "middle"
    with pytest.raises(InvalidToolError, match="the default of 'other' does not fit"):
        create_tool("setLevel", "Set it.", schema, handle)


def test_a_tool_does_not_notice_when_its_definition_is_changed_later():
    """Style: values are immutable."""
    parameter: dict[str, Any] = {"name": "it", "type": "array", "default": ["a"], "enum": [["a"], ["b"]]}
    tool = define(parameters=[parameter], required=())
    parameter["default"].append("b")
    parameter["enum"].clear()
    assert tool.schema["properties"]["it"] == {"type": "array", "default": ["a"], "enum": [["a"], ["b"]]}


def test_any_mapping_and_tuples_are_taken_as_their_plain_json():
    """Python writes lists as tuples where JSON has only lists."""
    parameter = MappingProxyType(OrderedDict(name="it", type="string", enum=("a", "b")))
    tool = define(parameters=(parameter,), required=("it", "it"))
    assert tool.schema["properties"]["it"]["enum"] == ["a", "b"]
    assert tool.required == ("it",)


def test_builtins_and_callable_objects_are_handlers():
    """Seed 000, Invariant 5: a handler accepts one hash table."""

    class Counter:
        def __call__(self, arguments):
            return len(arguments)

    assert define(handler=len).handler is len
    assert define(handler=Counter()).handler({"a": 1}) == 1
    assert define(handler={"a": 1}.get).name == "read_file"


def test_create_tool_takes_any_gram_symbol_and_schema():
    """Seed 004, createTool; decision 4."""
    schema = {"type": "object", "properties": {"personName": {"type": "string"}}, "required": ["personName"]}
    tool = create_tool("sayHello", "Greet somebody.", schema, handle, safety_level="cautious", deadline=2)
    assert (tool.name, tool.schema, tool.deadline) == ("sayHello", schema, 2)
    assert tool.safety_level is Safety.CAUTIOUS
    assert create_tool("evaluate-lisp", "Evaluate.", schema, handle).name == "evaluate-lisp"


@pytest.mark.parametrize(
    ("name", "schema", "text"),
    [
        ("say hello", {"type": "object"}, "expected a gram symbol such as 'sayHello'; try 'say_hello'"),
        ("sayHello", {}, 'add "type": "object" and "properties"'),
        ("sayHello", {"type": "string"}, "the schema describes no object"),
        ("sayHello", [], "the schema is list: expected a JSON Schema object"),
        ("sayHello", None, "the schema is NoneType"),
        ("sayHello", {"type": "object", "properties": {1: {}}}, "a name that is a int"),
        ("sayHello", {"type": "object", "required": "a"}, "not a valid JSON Schema at required"),
    ],
)
def test_create_tool_refuses_what_cannot_be_called(name, schema, text):
    """Seed 004, createTool."""
    with pytest.raises(InvalidToolError) as caught:
        create_tool(name, "Greet.", schema, handle)
    assert text in str(caught.value)
