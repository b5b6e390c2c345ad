"""Calls as they come: malformed ones, JSON text, ids; each gets a result of its own."""

from __future__ import annotations

import json
from collections import UserDict
from types import MappingProxyType
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramercy import Executor, Registry, ToolCall, create_tool, define_tool
from gramercy.errors import InvalidCallError
from gramercy.execution.calls import parse_arguments, read_flat_json

ECHO = define_tool(
    "echo",
    "Return the text.",
    [{"name": "text", "type": "string"}, {"name": "n", "type": "integer"}],
    required=["text"],
    handler=lambda arguments: arguments["text"],
)


@pytest.fixture
def executor():
    return Executor(Registry([ECHO]))


def call(**changes):
    return {"id": "call_1", "name": "echo", "arguments": {"text": "hi"}} | changes


@pytest.mark.parametrize(
    "raw",
    [
        call(),
        ToolCall("call_1", "echo", {"text": "hi"}),
        MappingProxyType(call()),
        UserDict(call()),
        call(arguments='{"text": "hi"}'),
        call(arguments=b'{"text": "hi"}'),
        call(arguments=MappingProxyType({"text": "hi"})),
        call(extra="ignored"),
        call(arguments='{"text": "hi"}'.encode("utf-16")),
    ],
)
def test_calls_are_accepted_in_every_usual_form(executor, raw):
    """Seed 002, Tool Call Format; models send arguments as JSON text."""
    result = executor.execute(raw)
    assert (result.id, result.success, result.content, result.error) == ("call_1", True, "hi", None)


@pytest.mark.parametrize(
    ("raw", "call_id", "text"),
    [
        (None, "", "a call must be an object such as"),
        ("echo", "", "a call must be an object such as"),
        (["echo", {}], "", "not list"),
        (5, "", "not int"),
        ({}, "", "the call names no tool"),
        ({"id": "a"}, "a", "the call names no tool"),
        ({"id": "a", "name": ""}, "a", "the call names no tool"),
        ({"id": "a", "name": None, "arguments": {}}, "a", "the call names no tool"),
        ({"id": "a", "name": ["echo"], "arguments": {}}, "a", "the call names no tool"),
        (ToolCall("a", cast("Any", None)), "a", "the call names no tool"),
        (ToolCall("a", cast("Any", [])), "a", "the call names no tool"),
        (ToolCall("a", ""), "a", "the call names no tool"),
        ({"id": "a", "name": "echo"}, "a", "the call has no arguments: expected"),
        ({"name": "echo", "arguments": {"text": "hi"}}, "", "the call has no id: expected"),
        ({"name": "echo"}, "", "the call has no id and no arguments: expected"),
        (call(id=7), "7", "the id of the call is int, not text"),
        (call(id=None), "", "the id of the call is NoneType, not text"),
        (call(arguments=None), "call_1", "(arguments): expected object, received null"),
        (call(arguments=[]), "call_1", "(arguments): expected object, received array []"),
        (call(arguments="text"), "call_1", "text that stops being JSON at line 1 column 1"),
        (call(arguments='{"text": "hi"'), "call_1", "text that stops being JSON at line 1 column 14"),
        (call(arguments="[1]"), "call_1", "(arguments): expected object, received array [1]"),
        (call(arguments='"{}"'), "call_1", "did you mean {} (without quotes)?"),
        (call(arguments=b"\xff\xff"), "call_1", "bytes that are not UTF-8"),
        (call(arguments='{"text": NaN}'), "call_1", "NaN (JSON has no such number)"),
        (call(arguments='{"text": -Infinity}'), "call_1", "-Infinity (JSON has no such number)"),
        (call(arguments='{"n": 1e999, "text": ""}'), "call_1", "n: expected a finite number"),
        (call(arguments='{"n": ' + "9" * 5_000 + "}"), "call_1", "a number with thousands of digits"),
        (call(arguments='{"text": "a", "text": "b"}'), "call_1", "text: expected each name once"),
        (call(arguments='{"a\\nb": 1, "a\\nb": 2}'), "call_1", '["a\\nb"]: expected each name once'),
        (call(arguments='{"text": "\\ud800"}'), "call_1", "text with a lone surrogate"),
        (call(arguments="[" * 100_000), "call_1", "nesting too deep to read"),
        (call(arguments=bytearray(b"{}")), "call_1", "a Python bytearray"),
        (call(name="ehco"), "call_1", "Unknown tool: ehco\nDid you mean echo?"),
        (call(name="launch"), "call_1", "Unknown tool: launch"),
        (call(name="\ud800"), "call_1", "Unknown tool: \ufffd"),
    ],
)  # fmt: skip
def test_a_malformed_call_gets_a_result_that_says_what_to_change(executor, raw, call_id, text):
    """Seed 002, Invariants 1, 2, 3, 5; decision 8."""
    result = executor.execute(raw)
    assert (result.id, result.success) == (call_id, False)
    assert text in result.content
    assert result.content.startswith(result.error)
    result.content.encode()
    assert len(result.content) < 3_000


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        ("call_1", "call_1"),
        (7, "7"),
        (None, ""),
        ("", ""),
        (1.5, "1.5"),
        (["a"], "['a']"),
        ("x" * 500, "x" * 500),
    ],
)
def test_the_result_has_the_id_of_the_call(executor, given, reported):
    """Seed 002, Invariant 1; ids that are not text are reported as text."""
    assert executor.execute(call(id=given)).id == reported
    assert executor.execute(ToolCall(given, "echo", {"text": "hi"})).id == reported
    assert executor.execute(call(id=given, name="nonexistent")).id == reported


def test_a_call_whose_mapping_fails_is_refused(executor):
    """Seed 002, Invariant 5: errors never propagate."""

    class Broken(UserDict[Any, Any]):
        def __getitem__(self, _):
            raise RuntimeError("broken mapping")

    for raw in (Broken(call()), call(arguments=Broken())):
        result = executor.execute(raw)
        assert not result.success
    assert "broken mapping" in executor.execute(Broken(call())).content


def test_text_with_a_hundred_thousand_names_is_searched_for_duplicates_in_one_pass(executor):
    """Style: no quadratic work on input."""
    names = [f"n{number}" for number in range(100_000)]
    text = json.dumps(dict.fromkeys(names, 1))[:-1] + ', "n99999": 2}'
    assert "n99999: expected each name once" in executor.execute(call(arguments=text)).content


def test_the_refusal_of_broken_text_names_the_tool_and_shows_a_call(executor):
    """Decision 8: a corrected example call."""
    content = executor.execute(call(arguments="{")).content
    assert content.startswith("Invalid arguments for echo (1 fault):\n- (arguments): expected a JSON object")
    assert content.endswith('Corrected example: echo({"text": "…"})')


def test_an_empty_text_is_no_arguments():
    """Some models send nothing for tools without parameters."""
    ping = define_tool("ping", "Ping.", [], handler=lambda _: "pong")
    assert Executor(Registry([ping])).execute({"id": "1", "name": "ping", "arguments": ""}).content == "pong"


def test_a_tool_with_a_schema_that_cannot_be_compiled_fails_its_calls_only():
    """A tool made by hand may be broken; the caller is not."""
    good = create_tool("it", "It.", {"type": "object"}, str)
    broken = type(good)("it", "It.", {"type": "nonsense"}, str)
    executor = Executor(Registry([broken]))
    for arguments in ({}, "{", {"a": [1]}):
        result = executor.execute({"id": "1", "name": "it", "arguments": arguments})
        assert not result.success


@pytest.mark.parametrize("calls", ["echo", b"echo", 5, None])
def test_what_is_no_list_of_calls_is_the_callers_mistake(executor, calls):
    """There is no id under which this could be answered."""
    with pytest.raises(InvalidCallError, match="expected a list of calls"):
        executor.execute_tool_calls(calls)


def test_one_call_instead_of_a_list_is_a_list_of_one(executor):
    """A single call is easy to mean."""
    assert [result.content for result in executor.execute_tool_calls(call())] == ["hi"]
    assert executor.execute_tool_calls([]) == []
    assert [result.content for result in executor.execute_tool_calls(iter([call()]))] == ["hi"]


@given(
    st.dictionaries(
        st.text(), st.none() | st.booleans() | st.integers() | st.floats() | st.text(), max_size=4
    )
)
def test_the_quick_reader_of_arguments_agrees_with_the_strict_one_or_says_nothing(arguments):
    """Two readers, one language."""
    text = json.dumps(arguments)
    quick = read_flat_json(text)
    assert quick is None or quick == parse_arguments(text) == arguments


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        '{"a": {"b": 1}}',
        '{"a": 1e999}',
        '{"a": "x:y"}',
        '{"a": "\\ud800"}',
        '{"a": NaN}',
        '{"a": null}',
        "[1]",
        '{"a": 1',
        "\ud800",
        "[" * 100_000,
    ],
)
def test_the_quick_reader_leaves_what_needs_care_to_the_strict_one(text):
    """A name twice, depth, floats and broken text must reach the reader that explains them."""
    assert read_flat_json(text) is None
