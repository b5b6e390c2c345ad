"""What a local model may write, and how it is read while it comes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramercy import validate_tool_args
from gramercy.providers.base import Message, ModelCall, OfferedTool, Request
from gramercy.providers.grammar import (
    ANSWERING,
    HOW_TO_WRITE,
    Writing,
    chat_messages,
    grammar_of,
    plain_schema,
)

NAMED: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
HELLO = OfferedTool("sayHello", "Greets", NAMED)


def read(text, size=1):
    """Return the answer and the call of what is written in pieces of that size."""
    writing = Writing()
    pieces = [piece for at in range(0, len(text), size) for piece in writing.take(text[at : at + size])]
    return "".join(pieces), writing.call("call_1")


@given(st.text(), st.integers(1, 5), st.booleans())
def test_an_answer_is_given_out_as_it_comes_and_nothing_of_it_is_lost(text, size, is_ascii):
    answer, call = read(json.dumps({"answer": text}, ensure_ascii=is_ascii, indent=1), size)
    assert (answer, call) == (text, None)


def test_the_first_words_of_an_answer_do_not_wait_for_the_last():
    writing = Writing()
    assert list(writing.take('{ "answer" :  "Hel')) == ["Hel"]
    assert list(writing.take("lo\\")) == ["lo"]
    assert list(writing.take('n"}')) == ["\n"]


@pytest.mark.parametrize(
    ("written", "text"),
    [(r"\ud83d\ude00!", "😀!"), (r"a\ud83d b", "a� b"), (r"\ude00", "�"), (r"\ud83d\u0041", "�A")],
)
@pytest.mark.parametrize("size", [1, 4, 100])
def test_half_a_pair_of_surrogates_is_replaced_and_does_not_stop_the_rest(written, text, size):
    assert read(f'{{"answer": "{written}."}}', size)[0] == f"{text}."


@given(
    st.text(min_size=1),
    st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.booleans())),
    st.integers(1, 7),
)
def test_a_call_is_read_whole(name, arguments, size):
    answer, call = read(json.dumps({"tool": name, "arguments": arguments}, indent=2), size)
    assert call is not None
    assert (answer, call.name, json.loads(call.arguments)) == ("", name, arguments)


def test_the_marks_of_a_code_block_do_not_count():
    assert read('```json\n{"answer": "Hi"}\n```')[0] == "Hi"
    assert read(' ```json {"tool": "now", "arguments": {}}```')[1] == ModelCall("call_1", "now", "{}")


def test_a_call_that_was_cut_off_keeps_its_half_arguments():
    """They are no JSON, so that the guard answers the call as malformed."""
    _, call = read('{"tool": "sayHello", "arguments": {"name": "Ad')
    assert call == ModelCall("call_1", "sayHello", '{"name": "Ad')
    assert read('{"tool": "sayH')[1] is None


@pytest.mark.contract("agents.local.grammar")
def test_every_tool_and_an_answer_may_be_written():
    grammar = grammar_of([HELLO, OfferedTool("now", "Tells the time", {"type": "object", "properties": {}})])
    assert [each["properties"]["tool"]["const"] for each in grammar["anyOf"][:-1]] == ["sayHello", "now"]
    assert grammar["anyOf"][-1] == ANSWERING
    assert grammar["anyOf"][0]["properties"]["arguments"] == {**NAMED, "additionalProperties": False}
    assert grammar["anyOf"][1]["properties"]["arguments"]["additionalProperties"] is False


@pytest.mark.parametrize(
    ("schema", "kept"),
    [
        ({"type": "string", "pattern": "^(?=a)", "format": "date", "default": 1}, {"type": "string"}),
        ({"type": "integer", "minimum": 1, "maximum": 9}, {"type": "integer", "minimum": 1, "maximum": 9}),
        ({"enum": ["a", "b"], "description": "x"}, {"enum": ["a", "b"]}),
        ({"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 9999},
         {"type": "array", "items": {"type": "string"}}),
        ({"oneOf": [{"type": "null"}, {"enum": [1]}]}, {"anyOf": [{"type": "null"}, {"enum": [1]}]}),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "boolean"}}}, {"type": "boolean"}),
        ({"$ref": "#/$defs/none"}, {}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"type": "text", "enum": [], "minimum": "1", "maximum": True, "anyOf": []}, {}),
        ({"type": []}, {}),
        ({"type": "integer", "minimum": 10**18, "maximum": 2**70}, {"type": "integer"}),
        ({"enum": [2**70], "const": {"a": [2**70]}}, {}),
        ({"const": "\ud800"}, {}),
        ({"enum": list(range(10_000))}, {}),
        ({"properties": {"a": {"type": "null"}}, "required": ["b", 1]},
         {"properties": {"b": {}, "a": {"type": "null"}}, "required": ["b"], "additionalProperties": False}),
        ({"type": "object"}, {"type": "object", "additionalProperties": False}),
        (True, {}),
    ],
)  # fmt: skip
def test_a_grammar_keeps_what_it_can_of_a_schema(schema, kept):
    assert plain_schema(schema) == kept


def test_a_schema_that_refers_to_itself_comes_to_an_end():
    tree = {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}}}
    assert len(json.dumps(plain_schema({**tree, "$defs": {"tree": tree}}))) < 2_000


def test_what_the_grammar_lets_through_is_valid_for_the_tool():
    """Objects inside of arguments are open where nothing is said about them."""
    schema = plain_schema({**NAMED, "properties": {**NAMED["properties"], "more": {"type": "object"}}})
    arguments = {"name": "Ada", "more": {"age": 36}}
    assert validate_tool_args(schema, arguments) == arguments


def test_a_model_is_told_of_the_tools_and_the_form_of_answers():
    request = Request("m", (Message("user", "Hello"),), "Be kind.", (HELLO,))
    told = chat_messages(request)
    assert [each["role"] for each in told] == ["system", "user"]
    assert (
        told[0]["content"]
        == f'Be kind.\n\nTools:\n- sayHello: Greets; arguments: {{"name": string}}\n{HOW_TO_WRITE}'
    )


def test_a_model_without_tools_writes_plain_text():
    messages = (Message("user", "a"), Message("assistant", "b"), Message("user", "c"))
    assert chat_messages(Request("m", messages)) == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]


def test_calls_and_results_take_turns_as_every_chat_template_wants_it():
    calls = (ModelCall("1", "sayHello", '{"name":"Ada"}'), ModelCall("2", "now", "{}"))
    messages = (
        Message("user", "Hello"),
        Message("assistant", "", calls),
        Message("tool", "Hello, Ada!", call_id="1"),
        Message("tool", "no clock", call_id="2", is_error=True),
        Message("assistant", "Hi, Ada."),
        Message("user", "Thanks"),
    )
    told = chat_messages(Request("m", messages, tools=(HELLO,)))[1:]
    assert [each["role"] for each in told] == ["user", "assistant", "user", "assistant", "user"]
    assert told[2]["content"] == "Result of sayHello: Hello, Ada!\nError of now: no clock"
    assert json.loads(told[1]["content"].splitlines()[0]) == {
        "tool": "sayHello",
        "arguments": {"name": "Ada"},
    }
    assert json.loads(told[3]["content"]) == {"answer": "Hi, Ada."}


def test_an_answer_that_only_repeats_a_result_is_left_out():
    """Nothing is lost by it, and a small model calls the tool again instead of copying the answer."""
    messages = (
        Message("user", "Hello"),
        Message("assistant", "", (ModelCall("1", "sayHello", "{}"),)),
        Message("tool", "Hello, Ada!", call_id="1"),
        Message("assistant", "Hello, Ada!\n"),
        Message("user", "Now Bob"),
    )
    told = chat_messages(Request("m", messages, tools=(HELLO,)))[1:]
    assert [each["role"] for each in told] == ["user", "assistant", "user"]
    assert told[-1]["content"] == "Result of sayHello: Hello, Ada!\nNow Bob"
    other = (*messages[:3], Message("assistant", "She is greeted."), messages[4])
    assert len(chat_messages(Request("m", other, tools=(HELLO,)))) == 6
