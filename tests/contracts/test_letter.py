"""Sentences of the contracts that were kept in spirit only: each test fails where the letter is not held."""

from __future__ import annotations

from threading import Event
from time import monotonic
from typing import Any

import pytest

import gramercy
from gramercy import Executor, Registry, Tool, ToolResult, define_tool
from gramercy.errors import ExecutionError, SpecificationError
from gramercy.gram.lint.diagnostics import is_clean
from gramercy.gram.lint.linter import lint

DENY = {"action": "deny", "tools": ["act"]}
RECORD = """\
[greet:ToolSpecification {description: "Greet a person."} |
  (::Object {paramName:"params", fields:[{name:"name", type:"Text"}, {name:"age", type:"Int"}]})==>(::String)
]"""


def failing(error: BaseException) -> Tool:
    def handle(_: Any) -> str:
        raise error

    return define_tool("act", "Act.", [], handler=handle)


def run(tool: Tool, **changed: Any) -> ToolResult:
    call = {"id": "call_1", "name": tool.name, "arguments": {}, **changed}
    return Executor(Registry([tool])).execute({key: value for key, value in call.items() if value is not ...})


@pytest.mark.contract("002.letter.error-message")
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad"), "Tool error: bad"),
        (OSError("the disk is full"), "Tool error: the disk is full"),
        (KeyError("name"), "Tool error: 'name' (KeyError)"),
        (ZeroDivisionError(), "Tool error: ZeroDivisionError"),
    ],
)
def test_the_error_of_a_handler_is_its_message_alone(error: BaseException, text: str) -> None:
    """Seed 002, Handler Errors: (format nil "Tool error: ~A" e)."""
    result = run(failing(error))
    assert (result.success, result.error, result.content) == (False, text, text)


@pytest.mark.contract("002.letter.call-shape")
@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"id": ...}, "the call has no id:"),
        ({"arguments": ...}, "the call has no arguments:"),
        ({"id": 7}, "the id of the call is int, not text:"),
        ({"name": ...}, "the call names no tool:"),
    ],
)
def test_a_call_of_another_shape_than_the_contracts_does_not_run(changed: Any, text: str) -> None:
    """Seed 002, tool_call: id (text), name and arguments are required."""
    ran: list[Any] = []
    tool = define_tool("act", "Act.", [], handler=ran.append)
    result = run(tool, **changed)
    assert not result.success
    assert result.content.startswith(text)
    assert ran == []
    assert run(tool).success


@pytest.mark.contract("002.letter.result-example")
def test_the_error_example_of_the_contract_makes_a_result() -> None:
    """Seed 002, Tool Result Structure: id, success and error; the content is the text for the model."""
    result = ToolResult(id="call_abc123", success=False, error="Symbol XYZ not found in package COMMON-LISP")
    assert result.content == "Symbol XYZ not found in package COMMON-LISP"


@pytest.mark.contract("002.letter.result-xor")
@pytest.mark.parametrize(("success", "error"), [(True, "bad"), (True, ""), (False, None)])
def test_a_result_has_success_or_an_error_and_never_both_or_none(*, success: bool, error: str | None) -> None:
    """Seed 002, Invariant 2."""
    with pytest.raises(ExecutionError, match="exactly one"):
        ToolResult("call_1", success, "text", error)


@pytest.mark.contract("002.letter.unknown-exact")
def test_the_error_of_an_unknown_tool_is_one_line_and_its_text_may_add_a_name_that_is_near() -> None:
    """Seed 002, Unknown Tool; decision 8."""
    tool = define_tool("read_file", "Read.", [], handler=lambda _: "text")
    near, far = run(tool, name="raed_file"), run(tool, name="launch")
    assert (near.error, near.content) == (
        "Unknown tool: raed_file",
        "Unknown tool: raed_file\nDid you mean read_file?",
    )
    assert far.error == "Unknown tool: launch"
    assert far.content == "Unknown tool: launch\nThe tools are read_file"


@pytest.mark.contract("004.letter.specification-names")
@pytest.mark.parametrize("name", ["héllo", "a b", "1x", "`x`", "x/y", "日本"])
def test_a_specification_refuses_a_name_that_no_tool_can_have(name: str) -> None:
    """Decision 4: a gram symbol; to another name nothing could be bound."""
    with pytest.raises(SpecificationError, match="no tool can be called"):
        gramercy.create_tool_specification(name, "Greet.", '(::Text {paramName:"name"})==>(::String)')
    with pytest.raises(gramercy.GramercyError):
        gramercy.create_tool(name, "Greet.", {"type": "object"}, str)


@pytest.mark.contract("004.letter.lint-record")
def test_the_record_form_of_the_contract_is_clean() -> None:
    """Seed 004, Type Signature Format, Record parameter; that it is not portable is told as information."""
    found = lint(RECORD)
    assert is_clean(found)
    assert [item.code for item in found] == ["A113", "A113"]
    assert not is_clean(lint(RECORD.replace('{name:"name", type:"Text"}', '{name:"name", of:"Text"}')))


# Tests for sentences that no test of the contracts would have missed: found by changing the code behind them.


@pytest.mark.contract("002.letter.one-by-one")
def test_calls_that_are_not_safe_run_one_after_the_other() -> None:
    """Seed 002, Execution Flow: for each tool call; effects come in the order of the calls."""
    running: list[str] = []
    most: list[int] = []
    gate = Event()

    def handle(arguments: dict[str, Any]) -> str:
        running.append(arguments["what"])
        most.append(len(running))
        # Long enough for another thread to come in, if there were one.
        gate.wait(0.05)
        running.remove(arguments["what"])
        return str(arguments["what"])

    parameter = {"name": "what", "type": "string"}
    tool = define_tool("act", "Act.", [parameter], safety_level="cautious", handler=handle)
    calls = [{"id": word, "name": "act", "arguments": {"what": word}} for word in "abcd"]
    results = Executor(Registry([tool])).execute_tool_calls(calls)
    assert [result.content for result in results] == ["a", "b", "c", "d"]
    assert max(most) == 1


@pytest.mark.contract("002.letter.bounded")
@pytest.mark.parametrize("value", ["é" * 500, ["x" * 500], gramercy.ToolOutput("y" * 500)])
def test_no_result_is_longer_than_the_limit_of_its_executor(value: Any) -> None:
    """Seed 002, Result Formatting: content is for a model, whose window is bounded; what is cut is said."""
    tool = define_tool("act", "Act.", [], handler=lambda _: value)
    executor = Executor(Registry([tool]), max_output=100)
    content = executor.execute({"id": "1", "name": "act", "arguments": {}}).content
    assert content[100:].startswith("\n… [output cut: 100 of 50")


@pytest.mark.contract("decision.06.refusal-everywhere")
def test_a_refusal_of_the_policy_says_what_to_do_and_that_a_rule_refused() -> None:
    """Decision 6: error, content and metadata name the same refuser, and the content what to do now."""
    tool = define_tool("act", "Act.", [], safety_level="dangerous", handler=lambda _: "done")
    executor = Executor(Registry([tool]), lambda *_: "approved", policy=gramercy.Policy([DENY]))
    result = executor.execute({"id": "1", "name": "act", "arguments": {}})
    assert result.metadata["denied_by"] == "rule"
    assert result.error is not None
    told, advice = result.content.split("\n")
    assert told == result.error
    assert advice.startswith("Nobody was asked. Do not try another way to the same end")


@pytest.mark.contract("002.letter.repeated-names")
def test_arguments_in_which_a_name_stands_twice_are_refused_and_not_guessed() -> None:
    """Decision 11: nothing is silently dropped; JSON text of a model may hold it."""
    ran: list[Any] = []
    parameter = {"name": "what", "type": "string"}
    tool = define_tool("act", "Act.", [parameter], handler=ran.append)
    result = run(tool, arguments='{"what": "keep", "what": "delete"}')
    assert (result.success, ran) == (False, [])
    assert "- what: expected each name once" in result.content


@pytest.mark.contract("002.letter.hooks-observe")
def test_a_hook_cannot_change_the_arguments_of_the_call_that_it_observes() -> None:
    """Seed 002, Observability Hooks: they look on."""
    received: list[Any] = []
    parameter = {"name": "what", "type": "string"}
    tool = define_tool("act", "Act.", [parameter], handler=lambda given: received.append(dict(given)))

    def meddle(_phase: str, _tool: Tool, arguments: dict[str, Any], _result: Any) -> None:
        arguments["what"] = "something else"

    call = {"id": "1", "name": "act", "arguments": {"what": "this"}}
    Executor(Registry([tool]), hooks=[meddle]).execute(call)
    assert received == [{"what": "this"}]


@pytest.mark.contract("decision.13.approval-wait")
def test_the_mean_wait_for_approval_is_that_of_all_questions() -> None:
    """Decision 13: a mean, not the last one, nor the longest, nor the sum."""
    pauses = iter([0.2, 0.0, 0.0, 0.0])
    pause = Event()

    def approve(*_: Any) -> str:
        pause.wait(next(pauses))
        return "approved"

    tool = define_tool("act", "Act.", [], safety_level="dangerous", handler=lambda _: "done")
    executor = Executor(Registry([tool]), approve)
    started = monotonic()
    for number in "1234":
        executor.execute({"id": number, "name": "act", "arguments": {}})
    passed = (monotonic() - started) * 1000
    assert 190 <= executor.metrics()["act"].mean_approval_wait_ms * 4 <= passed


SIGNATURE = '(::Text {paramName:"name"})==>(::String)'


@pytest.mark.contract("004.to-schema.record", "004.to-schema.maybe")
def test_a_field_that_may_be_left_out_is_not_required_of_a_record() -> None:
    """Seed 004, Type Mapping: Maybe T inside of a record."""
    schema = gramercy.type_signature_to_json_schema(
        '(::`{name: Text, age: Maybe Int}` {paramName:"who"})==>(::String)'
    )
    assert schema["properties"]["who"] == {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name"],
    }


@pytest.mark.contract("004.serialize.signature-is-truth")
def test_what_is_done_to_a_written_schema_changes_no_specification() -> None:
    """Seed 004, JSON Format: the schema is included for convenience."""
    made = gramercy.create_tool_specification("greet", "Greet.", SIGNATURE)
    made.to_json()["schema"]["properties"]["name"]["type"] = "integer"
    assert made.schema["properties"]["name"] == {"type": "string"}


@pytest.mark.contract("004.serialize.json-read")
@pytest.mark.parametrize("key", ["name", "description", "typeSignature"])
def test_json_that_lacks_a_part_is_refused_and_names_it(key: str) -> None:
    """Seed 004, JSON Format; only the schema may be left out."""
    data = gramercy.create_tool_specification("greet", "Greet.", SIGNATURE).to_json()
    del data[key]
    with pytest.raises(SpecificationError, match=f"has no '{key}': add it"):
        gramercy.ToolSpecification.from_json(data)


@pytest.mark.contract("decision.00.safety-order")
def test_no_level_comes_before_or_after_itself() -> None:
    """Decision, Names: ordered."""
    levels = list(gramercy.Safety)
    for place, one in enumerate(levels):
        for other_place, other in enumerate(levels):
            assert (one < other) is (place < other_place)
            assert (one > other) is (place > other_place)
            assert (one <= other) is (place <= other_place)
            assert (one >= other) is (place >= other_place)


@pytest.mark.contract("decision.11.whole-float-is-integer")
def test_a_whole_number_reaches_the_handler_as_an_integer() -> None:
    """Decision 11: 3.0 is an integer; a handler that counts with it must get one."""
    received: list[Any] = []
    tool = define_tool("act", "Act.", [{"name": "x", "type": "integer"}], handler=received.append)
    assert run(tool, arguments={"x": 3.0}).success
    assert [(type(each["x"]), each["x"]) for each in received] == [(int, 3)]


@pytest.mark.contract("004.invocation.4-validation")
def test_what_is_left_out_reaches_the_handler_with_its_default() -> None:
    """Seed 004, Tool Invocation: called with validated parameters."""
    received: list[Any] = []
    parameters: list[dict[str, Any]] = [
        {"name": "x", "type": "integer", "default": 5},
        {"name": "y", "type": "string"},
    ]
    tool = define_tool("act", "Act.", parameters, handler=received.append)
    assert run(tool, arguments={"y": "a"}).success
    assert received == [{"x": 5, "y": "a"}]
