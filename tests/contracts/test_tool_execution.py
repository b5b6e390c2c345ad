"""Seed 002, tool execution, as tests: read the two side by side."""

from __future__ import annotations

import json
import logging
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from gramercy import (
    Executor,
    Modified,
    Registry,
    Tool,
    ToolCall,
    ToolOutput,
    ToolResult,
    define_tool,
)

Arguments = dict[str, Any]

CONTRACT = json.loads("""
{
  "$schema": "http://json-schema.org/draft-07/schema#",
  "type": "object",
  "title": "Tool Execution",
  "description": "Schema for tool execution request and response",
  "definitions": {
    "tool_call": {
      "type": "object",
      "properties": {
        "id": {"type": "string", "description": "Unique call identifier"},
        "name": {"type": "string", "pattern": "^[a-z][a-z0-9_]*$"},
        "arguments": {"type": "object", "description": "Tool arguments"}
      },
      "required": ["id", "name", "arguments"]
    },
    "tool_result": {
      "type": "object",
      "properties": {
        "id": {"type": "string"},
        "success": {"type": "boolean"},
        "content": {"type": "string"},
        "metadata": {
          "type": "object",
          "properties": {
            "execution_time_ms": {"type": "number"},
            "safety_level": {"type": "string"},
            "approved": {"type": "boolean"}
          }
        }
      },
      "required": ["id", "success", "content"]
    }
  }
}
""")
CALL = jsonschema_rs.Draft7Validator(CONTRACT["definitions"]["tool_call"])
RESULT = jsonschema_rs.Draft7Validator(CONTRACT["definitions"]["tool_result"])


def encoded(value: ToolCall | ToolResult) -> dict[str, Any]:
    """Bring a value to plain JSON, as it goes over a wire."""
    return json.loads(msgspec.json.encode(value))  # type: ignore[no-any-return]


def call(name: str, identity: str = "call_1", /, **arguments: Any) -> dict[str, Any]:
    return {"id": identity, "name": name, "arguments": arguments}


class Diary:
    """Writes down, in order, who was asked and what ran."""

    def __init__(self, decision: Any = "approved") -> None:
        self.lines: list[str] = []
        self.decision = decision
        self.shown: list[tuple[Tool, Arguments]] = []

    def tool(self, level: str, name: str = "act") -> Tool:
        def handler(arguments: Arguments) -> str:
            self.lines.append(f"ran with {arguments['what']}")
            return f"did {arguments['what']}"

        parameters = [{"name": "what", "type": "string"}]
        return define_tool(name, "Act.", parameters, required=["what"], safety_level=level, handler=handler)

    def approve(self, tool: Tool, arguments: Arguments) -> Any:
        self.lines.append("asked")
        self.shown.append((tool, arguments))
        return self.decision

    def run(self, level: str) -> ToolResult:
        executor = Executor(Registry([self.tool(level)]), self.approve)
        [result] = executor.execute_tool_calls([call("act", what="this")])
        return result


def answering(value: Any, name: str = "act") -> Tool:
    return define_tool(name, "Answer.", [], handler=lambda _: value)


def raising(error: BaseException, name: str = "fail") -> Tool:
    def handler(_: Arguments) -> None:
        raise error

    return define_tool(name, "Fail.", [], handler=handler)


def outcome(tool: Tool, **arguments: Any) -> ToolResult:
    return Executor(Registry([tool])).execute(call(tool.name, **arguments))


# Purpose, and JSON Schema


@pytest.mark.contract("002.purpose")
def test_calls_are_executed_with_safety_approval_and_formatted_results() -> None:
    """Seed 002, Purpose."""
    diary = Diary()
    assert diary.run("dangerous").content == "did this"
    assert diary.lines == ["asked", "ran with this"]


@pytest.mark.contract(
    "002.schema.call.id", "002.schema.call.name", "002.schema.call.arguments", "002.schema.call.required"
)
def test_an_encoded_call_fits_the_schema_of_the_contract(
    describe_symbol: Tool, eval_form: Tool, write_file: Tool
) -> None:
    """Seed 002, JSON Schema, tool_call: for the names of tools and for empty and nested arguments."""
    for tool in (describe_symbol, eval_form, write_file):
        for arguments in ({}, {"symbol": "car"}, {"deep": [{"a": None}]}):
            CALL.validate(encoded(ToolCall("call_abc123", tool.name, arguments)))
    CALL.validate(encoded(ToolCall("call_abc123", "get_last_error")))


@pytest.mark.contract(
    "002.schema.call.id", "002.schema.call.name", "002.schema.call.arguments", "002.schema.call.required"
)
@pytest.mark.parametrize(
    "changed",
    [
        *({key: wrong} for key in ("id", "name", "arguments") for wrong in (..., 7, None)),
        *({"name": wrong} for wrong in ("", "Not A Name", "now!")),
        *({"arguments": wrong} for wrong in ("[1]", "seven")),
    ],
)
def test_the_executor_runs_no_call_that_the_schema_of_the_contract_refuses(changed: dict[str, Any]) -> None:
    """Seed 002, JSON Schema, tool_call: what does not fit is answered, and nothing runs."""
    ran: list[Any] = []
    executor = Executor(Registry([define_tool("now", "Tell the time.", [], handler=ran.append)]))
    whole = {"id": "call_1", "name": "now", "arguments": {}}
    given = {key: value for key, value in {**whole, **changed}.items() if value is not ...}
    assert not CALL.is_valid(given)
    assert executor.execute(given).success is False
    assert ran == []
    assert executor.execute(whole).success
    assert ran == [{}]


@pytest.mark.contract(
    "002.schema.result.id",
    "002.schema.result.success",
    "002.schema.result.content",
    "002.schema.result.metadata",
    "002.schema.result.required",
    "002.schema.result.execution-time",
    "002.schema.result.safety-level",
)
@pytest.mark.parametrize("value", ["text", None, [1, 2], {"a": 1}, ToolOutput(1, "half done")])
def test_an_encoded_result_fits_the_schema_of_the_contract(value: Any) -> None:
    """Seed 002, JSON Schema, tool_result."""
    result = encoded(outcome(answering(value)))
    RESULT.validate(result)
    assert result["metadata"]["execution_time_ms"] >= 0
    assert result["metadata"]["safety_level"] == "safe"


@pytest.mark.contract("002.schema.result.approved")
@pytest.mark.parametrize(("decision", "approved"), [("approved", True), ("denied", False)])
def test_the_metadata_of_a_dangerous_call_say_whether_it_was_approved(
    decision: str, *, approved: bool
) -> None:
    """Seed 002, JSON Schema, tool_result."""
    result = encoded(Diary(decision).run("dangerous"))
    RESULT.validate(result)
    assert result["metadata"]["approved"] is approved
    assert result["metadata"]["safety_level"] == "dangerous"


# Execution Flow, and Safety Enforcement


@pytest.mark.contract("002.flow.model-answer", "002.flow.for-each-call", "002.flow.get-tool")
def test_every_call_of_an_answer_finds_its_tool_by_name() -> None:
    """Seed 002, Execution Flow."""
    diary = Diary()
    executor = Executor(Registry([diary.tool("safe", "one"), diary.tool("cautious", "two")]))
    results = executor.execute_tool_calls(
        [call("two", "c1", what="b"), call("three", "c2", what="x"), call("one", "c3", what="a")]
    )
    assert [result.success for result in results] == [True, False, True]
    assert diary.lines == ["ran with b", "ran with a"]


@pytest.mark.contract(
    "002.flow.check-safety",
    "002.flow.safe",
    "002.safe.no-approval",
    "002.safe.synchronous",
    "002.safe.result-returned",
)
def test_a_safe_tool_has_run_when_the_executor_returns_and_nobody_was_asked() -> None:
    """Seed 002, Safe Tools."""
    diary = Diary()
    result = diary.run("safe")
    assert diary.lines == ["ran with this"]
    assert (result.success, result.content) == (True, "did this")
    assert "approved" not in result.metadata


@pytest.mark.contract(
    "002.flow.cautious",
    "002.cautious.no-approval",
    "002.cautious.logged",
    "002.cautious.logged-first",
    "002.cautious.result-returned",
)
def test_a_cautious_tool_is_logged_before_it_runs_and_nobody_is_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Seed 002, Cautious Tools."""

    def handler(_: Arguments) -> str:
        return "\n".join(record.getMessage() for record in caplog.records)

    tool = define_tool("compile_form", "Compile.", [], safety_level="cautious", handler=handler)
    asked: list[Any] = []
    with caplog.at_level(logging.INFO, "gramercy"):
        result = Executor(Registry([tool]), lambda *q: asked.append(q)).execute(
            call("compile_form", "call_7")
        )
    assert result.success
    assert "compile_form" in result.content
    assert "call_7" in result.content
    assert asked == []


@pytest.mark.contract("002.cautious.via-hooks")
def test_hooks_see_a_cautious_execution_with_its_tool_and_arguments() -> None:
    """Seed 002, Cautious Tools."""
    seen: list[tuple[str, str, Arguments]] = []
    tool = Diary().tool("cautious")
    executor = Executor(Registry([tool]), hooks=[lambda p, t, a, _: seen.append((p, t.name, a))])
    executor.execute(call("act", what="this"))
    assert seen[0] == ("before", "act", {"what": "this"})


@pytest.mark.contract(
    "002.flow.dangerous",
    "002.flow.dangerous.approved",
    "002.dangerous.paused",
    "002.dangerous.handler-called",
    "002.dangerous.approve",
    "002.dangerous.result-after-approval",
    "002.approval.approved",
)
def test_an_approved_call_waits_for_the_answer_and_then_runs_with_the_original_arguments() -> None:
    """Seed 002, Dangerous Tools, and Approval Handler Protocol."""
    diary = Diary("approved")
    result = diary.run("dangerous")
    assert diary.lines == ["asked", "ran with this"]
    assert (result.success, result.content) == (True, "did this")


@pytest.mark.contract("002.flow.dangerous.denied", "002.dangerous.deny", "002.approval.denied")
def test_a_denied_call_does_not_run_and_says_that_the_user_denied_it() -> None:
    """Seed 002, Dangerous Tools, and Approval Handler Protocol."""
    diary = Diary("denied")
    result = diary.run("dangerous")
    assert diary.lines == ["asked"]
    assert (result.success, result.error) == (False, "User denied tool execution")


@pytest.mark.contract("002.flow.dangerous.modified", "002.dangerous.modify", "002.approval.modified")
@pytest.mark.parametrize("decision", [("modified", {"what": "less"}), Modified({"what": "less"})])
def test_a_modified_call_runs_with_the_new_arguments(decision: Any) -> None:
    """Seed 002, Dangerous Tools, and Approval Handler Protocol."""
    diary = Diary(decision)
    result = diary.run("dangerous")
    assert diary.lines == ["asked", "ran with less"]
    assert result.success
    assert "did less" in result.content


@pytest.mark.contract("002.flow.invoke", "002.flow.format", "002.flow.result")
def test_the_handler_gets_the_arguments_and_its_value_becomes_a_formatted_result() -> None:
    """Seed 002, Execution Flow."""
    parameters = [{"name": "items", "type": "array"}]
    tool = define_tool("backwards", "Reverse.", parameters, handler=lambda a: a["items"][::-1])
    result = outcome(tool, items=[1, 2, 3])
    assert isinstance(result, ToolResult)
    assert (result.id, result.success, result.content) == ("call_1", True, "(3 2 1)")


# Core Function, and Tool Result Structure


@pytest.mark.contract("002.execute.takes-list", "002.execute.call-format")
def test_a_call_is_written_as_in_the_example() -> None:
    """Seed 002, execute-tool-calls, Tool Call Format."""
    received: list[Arguments] = []
    parameters = [{"name": "symbol", "type": "string"}, {"name": "package", "type": "string"}]
    registry = Registry([define_tool("describe_symbol", "Describe.", parameters, handler=received.append)])
    example = {
        "id": "call_abc123",
        "name": "describe_symbol",
        "arguments": {"symbol": "defun", "package": "common-lisp"},
    }
    [result] = Executor(registry).execute_tool_calls([example])
    assert (result.id, result.success) == ("call_abc123", True)
    assert received == [{"symbol": "defun", "package": "common-lisp"}]


@pytest.mark.contract("002.execute.returns-list", "002.execute.empty")
@pytest.mark.parametrize("count", [0, 1, 2, 25])
def test_there_is_one_result_for_each_call_in_order(count: int) -> None:
    """Seed 002, execute-tool-calls, Returns."""
    executor = Executor(Registry([Diary().tool("safe")]))
    results = executor.execute_tool_calls([call("act", f"call_{n}", what=str(n)) for n in range(count)])
    assert isinstance(results, list)
    assert [(r.id, r.content) for r in results] == [(f"call_{n}", f"did {n}") for n in range(count)]


@pytest.mark.contract("002.result.id", "002.result.success", "002.result.content", "002.result.error")
def test_a_result_tells_id_success_content_and_error() -> None:
    """Seed 002, Tool Result Structure."""
    executor = Executor(Registry([answering([1]), raising(ValueError("no"))]))
    good, bad = executor.execute_tool_calls([call("act", "call_a"), call("fail", "call_b")])
    assert (good.id, good.success, good.content, good.error) == ("call_a", True, "(1)", None)
    assert (bad.id, bad.success) == ("call_b", False)
    assert "no" in (bad.error or "")


@pytest.mark.contract("002.result.error-default", "002.result.example-success")
def test_the_example_of_a_success_can_be_made_as_written() -> None:
    """Seed 002, Tool Result Structure, Example Success."""
    text = "DEFUN [function]\nDocumentation: Define a function..."
    made = ToolResult(id="call_abc123", success=True, content=text)
    assert made.error is None
    RESULT.validate(encoded(made))
    result = Executor(Registry([answering(text)])).execute(call("act", "call_abc123"))
    assert (result.id, result.success, result.content, result.error) == (made.id, True, text, None)


@pytest.mark.contract("002.result.example-error")
def test_the_example_of_an_error_can_be_produced_as_written() -> None:
    """Seed 002, Tool Result Structure, Example Error."""
    text = "Symbol XYZ not found in package COMMON-LISP"
    tool = answering(ToolOutput(None, error=text))
    result = Executor(Registry([tool])).execute(call("act", "call_abc123"))
    assert (result.id, result.success, result.error) == ("call_abc123", False, text)


# Approval Handler Protocol


@pytest.mark.contract("002.approval.signature", "002.approval.tool", "002.approval.arguments")
def test_the_approval_handler_gets_the_tool_and_a_mapping_of_its_arguments() -> None:
    """Seed 002, Approval Handler Protocol, Signature."""
    diary = Diary()
    tool = diary.tool("dangerous")
    Executor(Registry([tool]), diary.approve).execute(call("act", what="this"))
    [(shown_tool, shown_arguments)] = diary.shown
    assert shown_tool is tool
    assert shown_arguments == {"what": "this"}


@pytest.mark.contract("002.approval.example")
@pytest.mark.parametrize("yes", [True, False])
def test_the_example_handler_asks_a_yes_or_no_question(write_file: Tool, tmp_path: Any, *, yes: bool) -> None:
    """Seed 002, Integration (Elisp Side)."""
    questions: list[str] = []

    def approve_tool(tool: Tool, arguments: Arguments) -> str:
        questions.append(f"Tool '{tool.name}' wants to execute with args: {arguments}\nApprove?")
        return "approved" if yes else "denied"

    path = tmp_path / "new.txt"
    executor = Executor(Registry([write_file]), approve_tool)
    result = executor.execute(call("write_file", path=str(path), content="x"))
    wanted = {"path": str(path), "content": "x"}
    assert questions == [f"Tool 'write_file' wants to execute with args: {wanted}\nApprove?"]
    assert (result.success, path.exists()) == (yes, yes)


# Integration with Agent Loop


@pytest.mark.contract("002.agent-loop.round-trip")
def test_calls_from_an_answer_give_results_that_can_be_sent_back(describe_symbol: Tool) -> None:
    """Seed 002, Integration with Agent Loop."""
    answer = """{"tool_calls": [
        {"id": "call_1", "name": "describe_symbol", "arguments": {"symbol": "len"}},
        {"id": "call_2", "name": "describe_symbol", "arguments": {"symbol": 7}}
    ]}"""
    results = Executor(Registry([describe_symbol])).execute_tool_calls(json.loads(answer)["tool_calls"])
    sent = json.loads(msgspec.json.encode(results))
    assert [(message["id"], message["success"]) for message in sent] == [("call_1", True), ("call_2", False)]
    assert "symbol" in sent[1]["content"]
