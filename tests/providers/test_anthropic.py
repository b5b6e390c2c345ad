"""The client of Anthropic's format against a service that we hold in our hand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gramercy.errors import CutStreamError, ModelUnavailableError, ProviderError
from gramercy.providers.anthropic import AnthropicProvider
from gramercy.providers.base import (
    CallPart,
    Message,
    ModelCall,
    OfferedTool,
    Request,
    StopPart,
    TextPart,
    ThoughtPart,
    Usage,
    UsagePart,
)
from gramercy.providers.http import Patience
from tests.providers.service import Reply, Service, refusal, stream

KEY = "sk-ant-test-secret-1234567890"
SAY_HELLO = OfferedTool("sayHello", "Greets.", {"type": "object", "properties": {"name": {"type": "string"}}})
HELLO = Request("claude-demo", (Message("user", "hi"),), "Greet.", (SAY_HELLO,))
STOP = {"type": "message_stop"}


def start(**usage: int) -> dict[str, Any]:
    return {"type": "message_start", "message": {"usage": usage}}


def block(place: int, **content: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": place, "content_block": content}


def delta(place: int, **content: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": place, "delta": content}


def end(reason: str, **usage: int) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}


def ask(*replies: Reply, request: Request = HELLO) -> tuple[list[Any], Service]:
    """Ask a service with these replies; an error ends what came."""
    with Service(*replies) as service:

        async def asked() -> list[Any]:
            got: list[Any] = []
            provider = AnthropicProvider(address=service.address, key=KEY, patience=Patience(first_wait=0.01))
            try:
                async for part in provider.chat(request):
                    got.append(part)  # noqa: PERF401 - what came before an error counts
            except ProviderError as error:
                got.append(error)
            await provider.aclose()
            return got

        return asyncio.run(asyncio.wait_for(asked(), 60)), service


def test_a_question_is_told_in_the_format_of_messages():
    conversation = (
        Message("user", "hi"),
        Message(
            "assistant", "Let me. ", (ModelCall("c1", "sayHello", '{"name": "Ada"}'), ModelCall("c2", "x"))
        ),
        Message("tool", "Hello, Ada!", call_id="c1"),
        Message("tool", "there is no tool x", call_id="c2", is_error=True),
        Message("user", "and now?"),
    )
    request = Request("claude-demo", conversation, "Greet.", (SAY_HELLO,), 100, 0.0)
    _, service = ask(refusal(400, {}), request=request)
    (asked,) = service.asked
    kept = {"cache_control": {"type": "ephemeral"}}
    assert asked.path == "/v1/messages"
    assert asked.headers["x-api-key"] == KEY
    assert asked.headers["anthropic-version"] == "2023-06-01"
    assert asked.body == {
        "model": "claude-demo",
        "max_tokens": 100,
        "temperature": 0.0,
        "stream": True,
        "system": [{"type": "text", "text": "Greet.", **kept}],
        "tools": [{"name": "sayHello", "description": "Greets.", "input_schema": SAY_HELLO.parameters}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Let me. "},
                    {"type": "tool_use", "id": "c1", "name": "sayHello", "input": {"name": "Ada"}},
                    {"type": "tool_use", "id": "c2", "name": "x", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "is_error": False, "content": "Hello, Ada!"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "c2",
                        "is_error": True,
                        "content": "there is no tool x",
                    },
                    {"type": "text", "text": "and now?", **kept},
                ],
            },
        ],
    }


def test_messages_of_blanks_alone_are_left_out():
    conversation = (Message("user", "hi"), Message("assistant", " \n"), Message("user", "well?"))
    _, service = ask(refusal(400, {}), request=Request("claude-demo", conversation))
    (message,) = service.asked[0].body["messages"]
    assert [each["text"] for each in message["content"]] == ["hi", "well?"]
    assert "system" not in service.asked[0].body
    assert service.asked[0].body["max_tokens"] == 8192


def test_text_thoughts_calls_and_tokens_come_as_parts():
    got, _ = ask(
        stream(
            start(
                input_tokens=5, cache_read_input_tokens=100, cache_creation_input_tokens=20, output_tokens=1
            ),
            {"type": "ping"},
            block(0, type="thinking", thinking=""),
            delta(0, type="thinking_delta", thinking="hm"),
            delta(0, type="signature_delta", signature="x"),
            block(1, type="text", text=""),
            delta(1, type="text_delta", text="Let me. "),
            block(2, type="tool_use", id="t1", name="sayHello", input={}),
            delta(2, type="input_json_delta", partial_json=""),
            delta(2, type="input_json_delta", partial_json='{"name":'),
            delta(2, type="input_json_delta", partial_json=' "Ada"}'),
            {"type": "content_block_stop", "index": 2},
            {"type": "something new"},
            end("tool_use", output_tokens=9),
            STOP,
        )
    )
    assert got == [
        UsagePart(Usage(125, 1, 100, 20)),
        ThoughtPart("hm"),
        TextPart("Let me. "),
        CallPart(ModelCall("t1", "sayHello", '{"name": "Ada"}')),
        UsagePart(Usage(125, 9, 100, 20)),
        StopPart("calls"),
    ]


@pytest.mark.parametrize(
    ("reason", "ours"),
    [
        ("end_turn", "end"),
        ("stop_sequence", "end"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refused"),
        ("pause_turn", "other"),
    ],
)
def test_every_reason_has_its_word(reason, ours):
    got, _ = ask(stream(start(input_tokens=1), end(reason), STOP))
    assert got[-1] == StopPart(ours)


def test_counts_that_an_event_does_not_know_leave_those_before():
    """Some services count at the beginning and say null or 0 at the end, others the other way round."""
    usage: Any = {"input_tokens": None, "cache_read_input_tokens": 0, "output_tokens": 9}
    last = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}
    got, _ = ask(stream(start(input_tokens=5, cache_read_input_tokens=100, output_tokens=1), last, STOP))
    assert got[-2] == UsagePart(Usage(105, 9, 100))
    got, _ = ask(stream(start(input_tokens=0), end("end_turn", input_tokens=7, output_tokens=9), STOP))
    assert got[-2] == UsagePart(Usage(7, 9))


def test_the_tools_of_a_service_itself_are_no_calls_of_ours():
    got, _ = ask(
        stream(
            block(0, type="server_tool_use", id="s1", name="web_search", input={}),
            delta(0, type="input_json_delta", partial_json='{"query": "x"}'),
            block(1, type="web_search_tool_result", tool_use_id="s1", content=[]),
            delta(2, type="text_delta", text="Found."),
            end("end_turn", output_tokens=3),
            STOP,
        )
    )
    assert got == [TextPart("Found."), UsagePart(Usage(0, 3)), StopPart("end")]


def test_calls_at_the_end_of_a_turn_are_calls():
    """Servers that speak the format of another service end their turn with them."""
    got, _ = ask(stream(block(0, type="tool_use", id="t", name="x", input={"a": 1}), end("end_turn"), STOP))
    assert got == [CallPart(ModelCall("t", "x", '{"a":1}')), UsagePart(Usage()), StopPart("calls")]


@pytest.mark.parametrize("missing", ["reason", "stop", "both"])
@pytest.mark.contract("agents.wire.half")
def test_an_answer_without_its_end_is_cut(missing):
    events = [
        start(input_tokens=1),
        block(0, type="tool_use", id="t1", name="rm", input={}),
        delta(0, type="input_json_delta", partial_json='{"path": "/"}'),
    ]
    events += [] if missing in ("reason", "both") else [end("tool_use")]
    events += [] if missing in ("stop", "both") else [STOP]
    got, _ = ask(stream(*events))
    assert [type(each) for each in got] == [CutStreamError]


@pytest.mark.contract("agents.wire.retries")
def test_an_overloaded_service_is_asked_again_before_the_first_words():
    busy = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    got, service = ask(stream(start(input_tokens=1), busy), stream(start(), end("end_turn"), STOP))
    assert got[-1] == StopPart("end")
    assert len(service.asked) == 2
    got, service = ask(stream(start(input_tokens=1), delta(0, type="text_delta", text="Hel"), busy))
    assert isinstance(got[-1], ProviderError)
    assert (got[-1].status, len(service.asked)) == (529, 1)


def test_a_refused_key_inside_of_a_stream_is_one_too():
    denied = {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}}
    (error,), service = ask(stream(denied))
    assert isinstance(error, ModelUnavailableError)
    assert "ANTHROPIC_API_KEY" in str(error)
    assert len(service.asked) == 1


def test_an_answer_that_comes_at_once_is_taken():
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "x"},
        {"type": "text", "text": "hi"},
        {"type": "tool_use", "id": "t", "name": "x", "input": {"a": 1}},
    ]
    usage = {"input_tokens": 3, "output_tokens": 2}
    whole = {"type": "message", "content": content, "stop_reason": "tool_use", "usage": usage}
    got, _ = ask(refusal(200, whole))
    assert got == [
        UsagePart(Usage(3, 2)),
        ThoughtPart("hm"),
        TextPart("hi"),
        CallPart(ModelCall("t", "x", '{"a":1}')),
        UsagePart(Usage(3, 2)),
        StopPart("calls"),
    ]
