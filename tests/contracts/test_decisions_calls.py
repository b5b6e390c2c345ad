"""The decisions on calls, as tests: results, approval, formats, arguments and metrics."""

from __future__ import annotations

import json
from threading import Event
from typing import Any

import pytest

import gramercy
from gramercy import (
    Executor,
    InvalidArgumentsError,
    Registry,
    Tool,
    ToolOutput,
    ToolResult,
    create_tool,
    define_tool,
    format_tool_result,
    validate_tool_args,
)

Arguments = dict[str, Any]


def named(name: str, **options: Any) -> Tool:
    return define_tool(name, f"Answer {name}.", [], handler=lambda _: name, **options)


def run(tool: Tool, arguments: Any = None, approve: Any = None, **options: Any) -> ToolResult:
    executor = Executor(Registry([tool]), approve, **options)
    return executor.execute({"id": "call_1", "name": tool.name, "arguments": arguments or {}})


# 5 and 6: failed results, and approval


@pytest.mark.contract("decision.05.failed", "decision.05.succeeded")
def test_a_failed_result_has_an_error_and_content_and_a_successful_one_no_error() -> None:
    """Decision 5."""
    unknown = Executor(Registry()).execute({"id": "1", "name": "nothing", "arguments": {}})
    denied = run(named("act", safety_level="dangerous"), approve=lambda *_: "denied")
    raised = run(define_tool("act", "Act.", [], handler=lambda _: 1 / 0))
    for failed in (unknown, denied, raised):
        assert failed.success is False
        assert failed.error
        # After a refusal the text for the model goes on with what to do now.
        assert failed.content.startswith(failed.error)
    assert (unknown.content, raised.content) == (unknown.error, raised.error)
    succeeded = run(named("act"))
    assert (succeeded.success, succeeded.error) == (True, None)


def failing(*_: Any) -> str:
    raise RuntimeError("the prompt is broken")


@pytest.mark.parametrize(
    ("approve", "said"),
    [
        pytest.param(None, "nobody can be asked", marks=pytest.mark.contract("decision.06.no-handler")),
        pytest.param(
            failing, "the prompt is broken", marks=pytest.mark.contract("decision.06.handler-raises")
        ),
        pytest.param(
            lambda *_: "perhaps", "perhaps", marks=pytest.mark.contract("decision.06.unknown-answer")
        ),
        pytest.param(lambda *_: True, "True", marks=pytest.mark.contract("decision.06.unknown-answer")),
    ],
)
def test_a_dangerous_call_without_a_clear_approval_is_denied_and_says_why(approve: Any, said: str) -> None:
    """Decision 6."""
    ran: list[Arguments] = []
    result = run(
        define_tool("act", "Act.", [], safety_level="dangerous", handler=ran.append), approve=approve
    )
    assert not result.success
    assert said in result.content
    assert ran == []


@pytest.mark.contract("decision.06.timeout")
def test_a_dangerous_call_that_nobody_answers_in_time_is_denied_and_says_so() -> None:
    """Decision 6."""
    never, ran = Event(), list[Arguments]()

    def approve(*_: Any) -> str:
        never.wait(10)
        return "approved"

    tool = define_tool("act", "Act.", [], safety_level="dangerous", handler=ran.append)
    result = run(tool, approve=approve, approval_deadline=0.05)
    never.set()
    assert not result.success
    assert "0.05 s" in result.content
    assert ran == []


# 7: format_tool_result


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param((1, 2, 3), "(1 2 3)", marks=pytest.mark.contract("decision.07.tuple")),
        pytest.param(
            ["a b", 'say "hi"'],
            r'("a b" "say \"hi\"")',
            marks=pytest.mark.contract("decision.07.strings-quoted"),
        ),
        pytest.param([1, [2, (3, [])]], "(1 (2 (3 ())))", marks=pytest.mark.contract("decision.07.nested")),
        pytest.param(
            {"name": "Ada", "born": [1815, None, True]},
            '{"name": "Ada", "born": [1815, null, true]}',
            marks=pytest.mark.contract("decision.07.mapping"),
        ),
    ],
)
def test_results_are_formatted_for_a_model(value: Any, text: str) -> None:
    """Decision 7."""
    assert format_tool_result(value) == text


@pytest.mark.contract("decision.07.long-lists")
def test_a_long_list_is_broken_into_lines() -> None:
    """Decision 7."""
    lines = format_tool_result([["some", "words"], *(f"item number {n}" for n in range(20))]).splitlines()
    assert len(lines) == 21
    assert lines[0] == '(("some" "words")'
    assert lines[-1] == ' "item number 19")'


@pytest.mark.contract("decision.07.tool-output")
def test_a_handler_reports_a_value_with_an_error() -> None:
    """Decision 7."""
    result = run(
        define_tool("act", "Act.", [], handler=lambda _: ToolOutput([1, 2], error="the rest is missing"))
    )
    assert (result.success, result.error) == (False, "the rest is missing")
    assert "(1 2)" in result.content
    assert "the rest is missing" in result.content


# 8: unknown tools and invalid arguments


@pytest.mark.contract("decision.08.unknown-suggestion")
@pytest.mark.parametrize("name", ["read_fiel", "readFile", "READ_FILE"])
def test_an_unknown_tool_comes_with_a_suggestion(name: str) -> None:
    """Decision 8."""
    registry = Registry([named("read_file"), named("evaluate")])
    result = Executor(registry).execute({"id": "1", "name": name, "arguments": {}})
    assert result.content == f"Unknown tool: {name}\nDid you mean read_file?"


PARAMETERS: list[dict[str, Any]] = [
    {"name": "path", "type": "string"},
    {"name": "lines", "type": "integer"},
    {"name": "options", "type": "object", "properties": {"mode": {"type": "string", "enum": ["r", "w"]}}},
]


@pytest.mark.contract(
    "decision.08.invalid-arguments",
    "decision.08.every-fault",
    "decision.08.fault-fields",
    "decision.08.fault-suggestion",
    "decision.08.example",
)
def test_a_model_is_told_every_fault_of_its_arguments_and_shown_a_call_that_fits() -> None:
    """Decision 8."""
    tool = define_tool("open_file", "Open.", PARAMETERS, required=["path"], handler=lambda _: "opened")
    wrong = {"paht": "a.txt", "lines": "7", "options": {"mode": "read"}}
    result = run(tool, wrong)
    assert not result.success
    with pytest.raises(InvalidArgumentsError) as caught:
        validate_tool_args(tool.schema, wrong)
    faults = {fault.path: fault for fault in caught.value.faults}
    assert faults.keys() == {"path", "paht", "lines", "options.mode"}
    assert (faults["lines"].expected, faults["lines"].received) == ("integer", 'string "7"')
    assert faults["paht"].suggestion == "path"
    assert all(str(fault) in result.content for fault in faults.values())
    example = json.loads(caught.value.example or "null")
    assert validate_tool_args(tool.schema, example) == example
    assert f"open_file({caught.value.example})" in result.content


@pytest.mark.contract("decision.08.wrong-shape")
@pytest.mark.parametrize(
    "call",
    [
        {"id": "1"},
        *({"id": "1", "name": name, "arguments": {}} for name in ("", 7, None)),
    ],
)
def test_a_call_without_a_name_is_refused_as_such(call: Any) -> None:
    """Decision 8."""
    result = Executor(Registry([named("act")])).execute(call)
    assert (result.id, result.success) == ("1", False)
    assert "names no tool" in result.content


@pytest.mark.contract("decision.08.wrong-shape")
@pytest.mark.parametrize("arguments", [[1], 7, "[]", "seven", True])
def test_a_call_whose_arguments_are_no_object_is_refused_as_such(arguments: Any) -> None:
    """Decision 8."""
    ran: list[Any] = []
    result = run(define_tool("act", "Act.", [], handler=ran.append), arguments)
    assert (result.success, ran) == (False, [])
    assert "- (arguments): expected" in result.content
    assert "object" in result.content


# 11: strictness of arguments

ONE_STRING = {"type": "object", "properties": {"a": {"type": "string"}}, "required": []}


@pytest.mark.contract("decision.11.extra-rejected", "decision.11.extra-passed-on")
def test_extra_arguments_are_rejected_where_the_schema_forbids_them_and_else_passed_on() -> None:
    """Decision 11."""
    received: list[Arguments] = []
    strict = create_tool("strict", "Take a.", {**ONE_STRING, "additionalProperties": False}, received.append)
    assert not run(strict, {"a": "x", "b": 1}).success
    assert received == []
    assert run(create_tool("open", "Take all.", ONE_STRING, received.append), {"a": "x", "b": 1}).success
    assert received == [{"a": "x", "b": 1}]


@pytest.mark.contract("decision.11.own-tools-forbid")
def test_tools_made_by_definition_and_decoration_forbid_extra_arguments() -> None:
    """Decision 11."""

    @gramercy.tool
    def greet(name: str = "you") -> str:
        """Greet somebody."""
        return f"Hello, {name}."

    defined = define_tool("greet", "Greet.", [{"name": "name", "type": "string"}], handler=lambda _: "Hello.")
    for tool in (greet, defined):
        assert tool.schema["additionalProperties"] is False
        result = run(tool, {"nmae": "Ada"})
        assert not result.success
        assert "did you mean name?" in result.content


@pytest.mark.parametrize(
    ("kind", "value", "fits"),
    [
        pytest.param("number", True, False, marks=pytest.mark.contract("decision.11.boolean-is-no-number")),
        pytest.param("integer", False, False, marks=pytest.mark.contract("decision.11.boolean-is-no-number")),
        pytest.param("integer", 3.0, True, marks=pytest.mark.contract("decision.11.whole-float-is-integer")),
        pytest.param("integer", 3.5, False, marks=pytest.mark.contract("decision.11.whole-float-is-integer")),
        pytest.param("integer", "3", False, marks=pytest.mark.contract("decision.11.no-coercion")),
        pytest.param("string", 3, False, marks=pytest.mark.contract("decision.11.no-coercion")),
        pytest.param("boolean", "true", False, marks=pytest.mark.contract("decision.11.no-coercion")),
        pytest.param("array", "a", False, marks=pytest.mark.contract("decision.11.no-coercion")),
        pytest.param("object", "{}", False, marks=pytest.mark.contract("decision.11.no-coercion")),
        pytest.param("string", None, False, marks=pytest.mark.contract("decision.11.no-coercion")),
    ],
)
def test_values_are_taken_as_they_are(kind: str, value: Any, *, fits: bool) -> None:
    """Decision 11."""
    received: list[Arguments] = []
    tool = define_tool("act", "Act.", [{"name": "x", "type": kind}], handler=received.append)
    assert run(tool, {"x": value}).success is fits
    assert received == ([{"x": value}] if fits else [])


# 13: metrics


@pytest.mark.contract(
    "decision.13.calls", "decision.13.success-rate", "decision.13.percentiles", "decision.13.result-size"
)
def test_the_calls_of_a_tool_are_counted_timed_and_measured() -> None:
    """Decision 13."""
    lengths = iter([10, 20, 30, -1])

    def handler(_: Arguments) -> str:
        length = next(lengths)
        if length < 0:
            raise ValueError("no more")
        return "x" * length

    executor = Executor(Registry([define_tool("act", "Act.", [], handler=handler), named("unused")]))
    results = [executor.execute({"id": str(n), "name": "act", "arguments": {}}) for n in range(4)]
    times = sorted(result.metadata["execution_time_ms"] for result in results)
    assert executor.metrics().keys() == {"act"}
    figures = executor.metrics()["act"]
    assert (figures.calls, figures.succeeded, figures.failed, figures.success_rate) == (4, 3, 1, 0.75)
    assert times[0] <= figures.p50_ms <= figures.p95_ms == times[-1]
    assert figures.mean_result_size == 20


@pytest.mark.contract("decision.13.approval-wait")
def test_the_wait_for_approval_is_measured() -> None:
    """Decision 13."""
    pause = Event()
    executor = Executor(
        Registry([named("act", safety_level="dangerous"), named("look")]),
        lambda *_: "denied" if pause.wait(0.02) else "approved",
    )
    for name in ("act", "look"):
        executor.execute({"id": name, "name": name, "arguments": {}})
    assert executor.metrics()["act"].mean_approval_wait_ms >= 15
    assert executor.metrics()["look"].mean_approval_wait_ms == 0
