"""Seed 000, the tool protocol, as tests: its examples, the handling of errors and the practices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gramercy import Executor, Registry, Tool, ToolResult, define_tool
from gramercy.errors import InvalidToolError

if TYPE_CHECKING:
    from pathlib import Path

Arguments = dict[str, Any]


def tool_with(handler: Any, *parameters: Arguments) -> Tool:
    return define_tool("example", "Do what the test needs.", parameters, handler=handler)


def run(tool: Tool, arguments: Arguments | None = None, approve: Any = None) -> ToolResult:
    """Call a tool the way a model does."""
    executor = Executor(Registry([tool]), approve)
    return executor.execute({"id": "call_1", "name": tool.name, "arguments": arguments or {}})


def answer(_: Arguments) -> str:
    return "done"


def raising(error: BaseException) -> Tool:
    def handler(_: Arguments) -> None:
        raise error

    return tool_with(handler)


# Example Definitions


@pytest.mark.contract(
    "000.example.describe-symbol.definition",
    "000.example.eval-form.definition",
    "000.example.write-file.definition",
)
def test_the_three_examples_can_be_defined_and_registered(
    describe_symbol: Tool, eval_form: Tool, write_file: Tool
) -> None:
    """Seed 000, Example Definitions."""
    registry = Registry()
    for tool in (describe_symbol, eval_form, write_file):
        assert registry.register(tool) is tool
    found = {tool.name: (tool.safety_level, tool.categories, tool.required) for tool in registry.select()}
    assert found == {
        "describe_symbol": ("safe", ("introspection",), ("symbol",)),
        "eval_form": ("cautious", ("execution",), ("form",)),
        "write_file": ("dangerous", ("buffer", "filesystem"), ("path", "content")),
    }


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(
            {"symbol": "sorted"}, "new list", marks=pytest.mark.contract("000.example.describe-symbol.found")
        ),
        pytest.param(
            {"symbol": "sqrt", "package": "math"},
            "square root",
            marks=pytest.mark.contract("000.example.describe-symbol.package"),
        ),
        pytest.param(
            {"symbol": "sqrt"},
            "Symbol sqrt not found",
            marks=pytest.mark.contract("000.example.describe-symbol.missing"),
        ),
    ],
)
def test_describe_symbol_describes_a_name(describe_symbol: Tool, arguments: Arguments, expected: str) -> None:
    """Seed 000, Simple Safe Tool."""
    result = run(describe_symbol, arguments)
    assert result.success
    assert expected in result.content


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(
            {"form": "[1] + [2]"}, "[1, 2]", marks=pytest.mark.contract("000.example.eval-form.value")
        ),
        pytest.param(
            {"form": "gcd(12, 18)", "package": "math"},
            "6",
            marks=pytest.mark.contract("000.example.eval-form.package"),
        ),
        pytest.param(
            {"form": "1 / 0"},
            "Error: division by zero",
            marks=pytest.mark.contract("000.example.eval-form.error"),
        ),
    ],
)
def test_eval_form_answers_with_the_printed_value_or_an_error(
    eval_form: Tool, arguments: Arguments, expected: str
) -> None:
    """Seed 000, Cautious Tool."""
    assert run(eval_form, arguments).content == expected


@pytest.mark.contract("000.example.write-file.approved", "000.example.write-file.supersedes")
def test_write_file_writes_after_approval(write_file: Tool, tmp_path: Path) -> None:
    """Seed 000, Dangerous Tool."""
    path = tmp_path / "notes.txt"
    path.write_text("much longer than what comes now", "utf-8")
    result = run(write_file, {"path": str(path), "content": "hello"}, lambda *_: "approved")
    assert (result.success, result.content) == (True, f"Wrote 5 bytes to {path}")
    assert path.read_text("utf-8") == "hello"


@pytest.mark.contract("000.example.write-file.unapproved", "000.practice.no-accident")
@pytest.mark.parametrize("approve", [None, lambda *_: "denied", lambda *_: "maybe"])
@pytest.mark.parametrize("extra", [{}, {"safety_level": "safe", "approved": True}])
def test_write_file_writes_nothing_without_approval(
    write_file: Tool, tmp_path: Path, approve: Any, extra: Arguments
) -> None:
    """Seed 000, Dangerous Tool: the level decides, whatever the model sends with the call."""
    path = tmp_path / "notes.txt"
    arguments = {"path": str(path), "content": "hello"}
    call = {"id": "call_1", "name": "write_file", "arguments": arguments, **extra}
    [result] = Executor(Registry([write_file]), approve).execute_tool_calls([call])
    assert not result.success
    assert not path.exists()


# Error Handling Contract


@pytest.mark.contract("000.handler.error-strings", "000.errors.returned-string")
def test_a_handler_may_return_an_error_as_text() -> None:
    """Seed 000, Tool Handler Errors, Option 1."""
    parameter = {"name": "size", "type": "number"}
    tool = tool_with(lambda a: "did work" if a["size"] > 0 else "Error: Invalid input", parameter)
    assert run(tool, {"size": 1}).content == "did work"
    refused = run(tool, {"size": -1})
    assert (refused.success, refused.content) == (True, "Error: Invalid input")


@pytest.mark.contract("000.errors.signalled", "000.executor.message", "000.executor.model-can-retry")
def test_a_model_reads_the_error_that_a_handler_raised_and_calls_again() -> None:
    """Seed 000, Tool Handler Errors, Option 2, and Executor Behavior."""

    def work(arguments: Arguments) -> str:
        if arguments["size"] < 0:
            raise ValueError("Invalid input")
        return "did work"

    executor = Executor(Registry([tool_with(work, {"name": "size", "type": "number"})]))
    first = executor.execute({"id": "call_1", "name": "example", "arguments": {"size": -1}})
    assert not first.success
    assert "Invalid input" in first.content
    assert (
        executor.execute({"id": "call_2", "name": "example", "arguments": {"size": 1}}).content == "did work"
    )


# Best Practices


@pytest.mark.contract("000.practice.good-names")
@pytest.mark.parametrize("name", ["describe_symbol", "function_arglist", "read_file"])
def test_a_good_name_is_accepted(name: str) -> None:
    """Seed 000, Best Practices, Naming."""
    assert define_tool(name, "Do it.", [], handler=answer).name == name


@pytest.mark.contract("000.practice.bad-names", "000.practice.name-repair")
@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("describeSymbol", "describe_symbol"),
        ("function-arglist", "function_arglist"),
        ("readFile", "read_file"),
    ],
)
def test_a_bad_name_is_refused_with_a_better_one(name: str, better: str) -> None:
    """Seed 000, Best Practices, Naming."""
    with pytest.raises(InvalidToolError, match=better):
        define_tool(name, "Do it.", [], handler=answer)


@pytest.mark.contract("000.practice.detailed-descriptions")
def test_a_detailed_description_reaches_the_model_in_full() -> None:
    """Seed 000, Best Practices, Descriptions."""
    text = "Get detailed information about a Lisp symbol including its type, value, and documentation."
    schema = define_tool("describe_symbol", text, [], handler=answer).to_schema()
    assert schema["function"]["description"] == text


@pytest.mark.contract("000.practice.vague-types-refused")
def test_a_parameter_without_a_type_is_refused() -> None:
    """Seed 000, Best Practices, Parameters."""
    with pytest.raises(InvalidToolError, match="type"):
        tool_with(answer, {"name": "value", "description": "something"})


@pytest.mark.contract("000.practice.telling-errors")
def test_a_telling_error_reaches_the_model_word_for_word() -> None:
    """Seed 000, Best Practices, Error Messages."""
    text = "Symbol FOO not found in package BAR (status: EXTERNAL)"
    result = run(raising(LookupError(text)))
    assert (result.success, result.error, result.content) == (
        False,
        f"Tool error: {text}",
        f"Tool error: {text}",
    )


@pytest.mark.contract("000.practice.bare-errors")
def test_an_error_without_a_message_is_named_by_its_kind() -> None:
    """Seed 000, Best Practices, Error Messages."""
    assert run(raising(ZeroDivisionError())).content == "Tool error: ZeroDivisionError"


# Testing Contract


@pytest.mark.contract(
    "000.testing.register", "000.testing.get", "000.testing.call-handler", "000.testing.verify"
)
def test_a_tool_can_be_tried_by_hand(write_file: Tool, tmp_path: Path) -> None:
    """Seed 000, Manual Testing: register, get, call the handler, look at what comes."""
    registry = Registry()
    registry.register(write_file)
    tool = registry.get("write_file")
    assert tool is not None
    path = tmp_path / "notes.txt"
    assert tool.handler({"path": str(path), "content": "hello"}) == f"Wrote 5 bytes to {path}"
    assert path.read_text("utf-8") == "hello"
    with pytest.raises(KeyError, match="path"):
        tool.handler({"content": "hello"})


@pytest.mark.contract("000.testing.describe-symbol")
def test_describe_symbol_says_that_a_function_is_one(describe_symbol: Tool) -> None:
    """Seed 000, Automated Testing: the example test of the contract."""
    tool = Registry([describe_symbol]).get("describe_symbol")
    assert tool is not None
    assert "function" in tool.handler({"symbol": "len"})
