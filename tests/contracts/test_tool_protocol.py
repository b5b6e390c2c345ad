"""Seed 000, the tool protocol, as tests: read the two side by side."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

import gramercy
from gramercy import Executor, Registry, Safety, Tool, ToolOutput, ToolResult, define_tool
from gramercy.errors import InvalidToolError

Arguments = dict[str, Any]


def tool_with(handler: Any, *parameters: Arguments, **options: Any) -> Tool:
    return define_tool("example", "Do what the test needs.", parameters, handler=handler, **options)


def run(tool: Tool, arguments: Arguments | None = None, approve: Any = None) -> ToolResult:
    """Call a tool the way a model does."""
    executor = Executor(Registry([tool]), approve)
    [result] = executor.execute_tool_calls(
        [{"id": "call_1", "name": tool.name, "arguments": arguments or {}}]
    )
    return result


def answer(_: Arguments) -> str:
    return "done"


# Purpose, and Tool Definition Macro


@pytest.mark.contract("000.purpose.callable-by-model")
def test_a_model_calls_a_tool_by_name(describe_symbol: Tool) -> None:
    """Seed 000, Purpose."""
    executor = Executor(Registry([describe_symbol]))
    [result] = executor.execute_tool_calls(
        [{"id": "call_1", "name": "describe_symbol", "arguments": {"symbol": "len"}}]
    )
    assert (result.id, result.success, result.error) == ("call_1", True, None)
    assert result.content == f"len is a builtin_function_or_method: {len.__doc__}"


@pytest.mark.contract("000.define-tool.positional", "000.define-tool.returns-tool")
def test_define_tool_takes_name_description_and_parameters_and_returns_a_tool() -> None:
    """Seed 000, Tool Definition Macro, Signature."""
    tool = define_tool("greet", "Greet somebody.", [{"name": "who", "type": "string"}], handler=answer)
    assert isinstance(tool, Tool)
    assert (tool.name, tool.description, tool.parameters[0].name) == ("greet", "Greet somebody.", "who")


@pytest.mark.contract("000.define-tool.keywords")
def test_the_other_parts_are_given_by_keyword_only() -> None:
    """Seed 000, Tool Definition Macro, Signature."""
    parameters = [{"name": "who", "type": "string"}]
    tool = define_tool(
        "greet",
        "Greet.",
        parameters,
        required=["who"],
        safety_level="cautious",
        categories=["x"],
        handler=answer,
    )
    assert (tool.required, tool.safety_level, tool.categories) == (("who",), "cautious", ("x",))
    with pytest.raises(TypeError):
        define_tool("greet", "Greet.", parameters, ["who"], handler=answer)  # type: ignore[call-arg]


@pytest.mark.contract("000.parameter.name-is-text", "000.parameter.name-is-needed")
@pytest.mark.parametrize("name", ["", None, 7, ["greet"]])
def test_a_tool_without_a_textual_name_is_refused(name: Any) -> None:
    """Seed 000, Parameters."""
    with pytest.raises(InvalidToolError, match="name"):
        define_tool(name, "Greet.", [], handler=answer)


@pytest.mark.contract("000.parameter.description-is-needed")
@pytest.mark.parametrize("description", ["", "  \n", None])
def test_a_tool_without_a_description_is_refused(description: Any) -> None:
    """Seed 000, Parameters."""
    with pytest.raises(InvalidToolError, match="description"):
        define_tool("greet", description, [], handler=answer)


@pytest.mark.contract("000.parameter.parameters-are-needed")
def test_the_parameters_must_be_given_even_when_there_are_none() -> None:
    """Seed 000, Parameters."""
    with pytest.raises(TypeError, match="parameters"):
        define_tool("greet", "Greet.", handler=answer)  # type: ignore[call-arg]
    assert define_tool("greet", "Greet.", [], handler=answer).parameters == ()


@pytest.mark.contract("000.parameter.parameters-form")
def test_a_parameter_has_a_name_a_type_and_a_description() -> None:
    """Seed 000, Parameters."""
    [parameter] = tool_with(
        answer, {"name": "param", "type": "string", "description": "Some text"}
    ).parameters
    assert (parameter.name, parameter.type, parameter.description) == ("param", "string", "Some text")
    with pytest.raises(InvalidToolError, match="name"):
        tool_with(answer, {"type": "string", "description": "Nameless"})


@pytest.mark.contract("000.parameter.required-default", "000.parameter.required-names")
def test_parameters_are_optional_unless_they_are_listed_as_required() -> None:
    """Seed 000, Parameters."""
    parameter = {"name": "who", "type": "string"}
    assert tool_with(answer, parameter).required == ()
    assert run(tool_with(answer, parameter), {}).success
    needed = run(tool_with(answer, parameter, required=["who"]), {})
    assert not needed.success
    assert "who" in needed.content


@pytest.mark.contract(
    "000.parameter.safety-level-words", "000.parameter.safety-level-default", "000.slot.safety-level"
)
def test_a_tool_has_the_given_safety_level_and_is_safe_by_default() -> None:
    """Seed 000, Parameters, and Tool Object Slots."""
    levels = [tool_with(answer, safety_level=word).safety_level for word in ("safe", "cautious", "dangerous")]
    assert levels == [Safety.SAFE, Safety.CAUTIOUS, Safety.DANGEROUS]
    assert tool_with(answer).safety_level is Safety.SAFE


@pytest.mark.contract("000.parameter.categories", "000.slot.categories")
def test_a_tool_has_the_given_categories_and_none_by_default() -> None:
    """Seed 000, Parameters, and Tool Object Slots."""
    assert tool_with(answer, categories=["introspection", "xref"]).categories == ("introspection", "xref")
    assert tool_with(answer).categories == ()


@pytest.mark.contract("000.parameter.handler-is-needed")
@pytest.mark.parametrize("handler", [None, "print", 7])
def test_a_tool_without_a_handler_is_refused(handler: Any) -> None:
    """Seed 000, Parameters."""
    with pytest.raises(InvalidToolError, match="handler"):
        tool_with(handler)


@pytest.mark.contract("000.parameter.handler-receives-arguments", "000.handler.input")
def test_the_handler_receives_one_mapping_from_names_to_values() -> None:
    """Seed 000, Parameters, and Handler Function Contract, Input."""
    received: list[Arguments] = []
    tool = tool_with(received.append, {"name": "who", "type": "string"}, {"name": "times", "type": "number"})
    run(tool, {"who": "Ada", "times": 2})
    assert received == [{"who": "Ada", "times": 2}]


# Safety Levels


@pytest.mark.contract("000.safety.safe")
def test_a_safe_tool_runs_and_nobody_is_asked(describe_symbol: Tool) -> None:
    """Seed 000, Safety Levels."""
    asked: list[Any] = []
    result = run(describe_symbol, {"symbol": "len"}, lambda *question: asked.append(question))
    assert result.success
    assert asked == []


@pytest.mark.contract("000.safety.cautious")
def test_a_cautious_tool_runs_and_is_logged_and_nobody_is_asked(
    eval_form: Tool, caplog: pytest.LogCaptureFixture
) -> None:
    """Seed 000, Safety Levels."""
    asked: list[Any] = []
    with caplog.at_level(logging.INFO, "gramercy"):
        result = run(eval_form, {"form": "1 + 1"}, lambda *question: asked.append(question))
    assert result.success
    assert asked == []
    assert [record.getMessage() for record in caplog.records if "eval_form" in record.getMessage()]


@pytest.mark.contract("000.safety.dangerous")
def test_a_dangerous_tool_runs_only_when_the_approval_handler_agrees() -> None:
    """Seed 000, Safety Levels."""
    ran: list[Arguments] = []
    tool = tool_with(ran.append, safety_level="dangerous")
    assert not run(tool, {}, lambda *_: "denied").success
    assert ran == []
    assert run(tool, {}, lambda *_: "approved").success
    assert ran == [{}]


# Parameter Types


@pytest.mark.parametrize(
    ("word", "fitting", "others"),
    [
        pytest.param(
            "string", ["", "text"], [1, True, None, {}, []], marks=pytest.mark.contract("000.type.string")
        ),
        pytest.param(
            "boolean", [True, False], [0, 1, "true", None], marks=pytest.mark.contract("000.type.boolean")
        ),
        pytest.param(
            "number", [3, -3, 3.5], ["3", True, None], marks=pytest.mark.contract("000.type.number")
        ),
        pytest.param(
            "object", [{}, {"a": 1}], [[], "{}", None], marks=pytest.mark.contract("000.type.object")
        ),
        pytest.param("array", [[], [1, "a"]], [{}, "[]", None], marks=pytest.mark.contract("000.type.array")),
    ],
)
def test_a_parameter_takes_values_of_its_type_and_no_others(
    word: str, fitting: list[Any], others: list[Any]
) -> None:
    """Seed 000, Parameter Types."""
    tool = tool_with(answer, {"name": "value", "type": word})
    assert [value for value in fitting if not run(tool, {"value": value}).success] == []
    assert [value for value in others if run(tool, {"value": value}).success] == []


@pytest.mark.contract("000.type.others-refused")
@pytest.mark.parametrize("word", ["symbol", "date", "", 7])
def test_another_type_is_refused(word: Any) -> None:
    """Seed 000, Parameter Types."""
    with pytest.raises(InvalidToolError, match="type"):
        tool_with(answer, {"name": "value", "type": word})


# Tool Structure


@pytest.mark.contract(
    "000.slot.name", "000.slot.description", "000.slot.parameters", "000.slot.required", "000.slot.handler"
)
def test_a_tool_tells_everything_it_was_defined_with() -> None:
    """Seed 000, Tool Object Slots."""
    parameters = [{"name": "b", "type": "string", "description": "Second"}, {"name": "a", "type": "number"}]
    tool = define_tool("greet", "Greet somebody.", parameters, required=["a"], handler=answer)
    assert tool.name == "greet"
    assert tool.description == "Greet somebody."
    assert [(p.name, p.type, p.description) for p in tool.parameters] == [
        ("b", "string", "Second"),
        ("a", "number", ""),
    ]
    assert tool.required == ("a",)
    assert tool.handler is answer


@pytest.mark.parametrize(
    ("value", "content"),
    [
        pytest.param(
            "as it stands\n", "as it stands\n", marks=pytest.mark.contract("000.handler.output-string")
        ),
        pytest.param([1, "b", [2.5]], '(1 "b" (2.5))', marks=pytest.mark.contract("000.handler.output-list")),
        pytest.param(None, "nil", marks=pytest.mark.contract("000.handler.output-nil")),
    ],
)
def test_what_a_handler_returns_becomes_text(value: Any, content: str) -> None:
    """Seed 000, Handler Function Contract, Output."""
    result = run(tool_with(lambda _: value))
    assert (result.success, result.content, result.error) == (True, content, None)


@pytest.mark.contract("000.handler.output-with-error", "000.handler.output-without-error")
def test_a_handler_may_return_a_result_with_an_optional_error() -> None:
    """Seed 000, Handler Function Contract, Output."""
    half = run(tool_with(lambda _: ToolOutput([1, 2], "the third is missing")))
    assert (half.success, half.error) == (False, "the third is missing")
    assert "(1 2)" in half.content
    assert "the third is missing" in half.content
    whole = run(tool_with(lambda _: ToolOutput([1, 2, 3])))
    assert (whole.success, whole.content, whole.error) == (True, "(1 2 3)", None)


def raising(error: BaseException) -> Tool:
    def handler(_: Arguments) -> None:
        raise error

    return tool_with(handler)


@pytest.mark.contract(
    "000.handler.may-raise",
    "000.handler.errors-become-results",
    "000.executor.wraps-handler",
    "000.executor.every-error",
    "000.executor.without-success",
)
@pytest.mark.parametrize(
    "error", [ValueError("no"), OSError(5, "no"), RecursionError("no"), StopIteration("no"), SystemExit(3)]
)
def test_whatever_a_handler_raises_becomes_a_result_without_success(error: BaseException) -> None:
    """Seed 000, Handler Function Contract, Error Handling, and Executor Behavior."""
    result = run(raising(error))
    assert result.success is False
    assert result.error


# Invariants


@pytest.mark.contract("000.invariant.unique-names")
def test_a_registry_holds_one_tool_of_a_name(describe_symbol: Tool) -> None:
    """Seed 000, Invariant 1."""
    registry = Registry([describe_symbol])
    registry.register(gramercy.create_tool("describe_symbol", "Another.", {"type": "object"}, answer))
    assert registry.names() == ["describe_symbol"]


@pytest.mark.contract("000.invariant.snake-case")
@pytest.mark.parametrize("name", ["Greet", "greet all", "greet.all", "_greet", "2greet", "grüße", "greet\n"])
def test_a_name_that_is_not_snake_case_is_refused(name: str) -> None:
    """Seed 000, Invariant 2."""
    with pytest.raises(InvalidToolError, match="snake_case"):
        define_tool(name, "Greet.", [], handler=answer)


@pytest.mark.contract("000.invariant.required-exist")
def test_a_required_name_that_is_no_parameter_is_refused() -> None:
    """Seed 000, Invariant 3."""
    with pytest.raises(InvalidToolError, match="simbol"):
        tool_with(answer, {"name": "symbol", "type": "string"}, required=["simbol"])


@pytest.mark.contract("000.invariant.safety-level")
@pytest.mark.parametrize("level", ["harmless", "", None, 0])
def test_a_fourth_safety_level_is_refused(level: Any) -> None:
    """Seed 000, Invariant 4."""
    with pytest.raises(InvalidToolError, match="safe, cautious or dangerous"):
        tool_with(answer, safety_level=level)


@pytest.mark.contract("000.invariant.handler-takes-mapping")
@pytest.mark.parametrize("handler", [lambda: None, lambda a, b: (a, b)])
def test_a_handler_that_cannot_take_one_mapping_is_refused(handler: Any) -> None:
    """Seed 000, Invariant 5."""
    with pytest.raises(InvalidToolError, match="one argument"):
        tool_with(handler)


@pytest.mark.contract("000.invariant.handler-returns-anything")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        (2.5, "2.5"),
        (b"bytes", "b'bytes'"),
        ({"a": 1}, '{"a": 1}'),
        ({3}, "{3}"),
        (Path("x"), repr(Path("x"))),
        ([None, []], "(nil ())"),
    ],
)
def test_a_handler_may_return_any_value(value: Any, text: str) -> None:
    """Seed 000, Invariant 5."""
    result = run(tool_with(lambda _: value))
    assert (result.success, result.content) == (True, text)


@pytest.mark.contract("000.invariant.registered-to-be-usable")
def test_a_tool_that_is_not_registered_cannot_be_called(describe_symbol: Tool) -> None:
    """Seed 000, Invariant 6."""
    tool, registry = describe_symbol, Registry()
    call = {"id": "call_1", "name": tool.name, "arguments": {"symbol": "len"}}
    refused = Executor(registry).execute(call)
    assert (refused.success, refused.error) == (False, "Unknown tool: describe_symbol")
    registry.register(tool)
    assert Executor(registry).execute(call).success


# Registration Pattern


@pytest.mark.contract(
    "000.registration.pattern", "000.registration.nothing-global", "000.registration.registry-only"
)
def test_a_tool_exists_only_where_it_was_registered(describe_symbol: Tool) -> None:
    """Seed 000, Registration Pattern."""
    registry = Registry()
    registry.register(describe_symbol)
    found = registry.get("describe_symbol")
    assert found is not None
    assert "len" in found.handler({"symbol": "len"})
    assert gramercy.default_registry().get("describe_symbol") is None
    assert Registry().get("describe_symbol") is None


# Integration with LLM Provider


@pytest.mark.contract("000.schema.shape", "000.schema.parameters", "000.practice.types-and-descriptions")
def test_a_tool_converts_to_the_schema_of_the_contract(describe_symbol: Tool) -> None:
    """Seed 000, Integration with LLM Provider."""
    schema = describe_symbol.to_schema()
    assert schema["type"] == "function"
    assert schema["function"]["name"] == "describe_symbol"
    assert schema["function"]["description"].startswith("Get detailed information")
    parameters = schema["function"]["parameters"]
    assert parameters["type"] == "object"
    assert parameters["properties"] == {
        "symbol": {"type": "string", "description": "Symbol name to describe"},
        "package": {"type": "string", "description": "Package name (optional)"},
    }
    assert parameters["required"] == ["symbol"]


@pytest.mark.contract("000.schema.is-json")
def test_a_converted_tool_survives_json(write_file: Tool) -> None:
    """Seed 000, Integration with LLM Provider."""
    schema = write_file.to_schema()
    assert json.loads(json.dumps(schema)) == schema


@pytest.mark.contract(
    "000.schema.tells-which-tools",
    "000.schema.tells-parameters",
    "000.schema.tells-when",
    "000.practice.optional-or-required",
)
def test_the_model_learns_which_tools_there_are_what_they_take_and_when_to_use_them(
    describe_symbol: Tool, eval_form: Tool
) -> None:
    """Seed 000, Integration with LLM Provider, and Best Practices, Parameters."""
    functions = [s["function"] for s in gramercy.tools_to_schema([describe_symbol, eval_form])]
    assert [f["name"] for f in functions] == ["describe_symbol", "eval_form"]
    assert [list(f["parameters"]["properties"]) for f in functions] == [
        ["symbol", "package"],
        ["form", "package"],
    ]
    assert [f["parameters"]["required"] for f in functions] == [["symbol"], ["form"]]
    assert [f["description"] for f in functions] == [
        describe_symbol.description,
        eval_form.description,
    ]
