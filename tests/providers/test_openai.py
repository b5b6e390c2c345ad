"""The OpenAI-compatible client against a service that we hold in our hand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gramercy.errors import CutStreamError, ModelUnavailableError, ProviderError
from gramercy.gram.agents import ModelName
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
from gramercy.providers.naming import MOST_CALLS
from gramercy.providers.openai import OpenAIProvider
from gramercy.providers.opening import open_provider
from tests.providers.service import Reply, Service, refusal, stream

SAY_HELLO = OfferedTool("sayHello", "Greets.", {"type": "object", "properties": {"name": {"type": "string"}}})
HELLO = Request("demo", (Message("user", "hi"),), "Greet.", (SAY_HELLO,))
QUICK = Patience(first_wait=0.01, silence=0.5)
KEY = "sk-test-secret-1234567890"


def chunk(delta: Any = None, reason: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta or {}, "finish_reason": reason}], **more}


def piece(index: int | None, call_id: str | None, name: str | None, arguments: str) -> dict[str, Any]:
    said: dict[str, Any] = {"function": {"name": name, "arguments": arguments}}
    return {**said, **({} if index is None else {"index": index}), **({"id": call_id} if call_id else {})}


def calls(*pieces: dict[str, Any]) -> dict[str, Any]:
    return chunk({"tool_calls": list(pieces)})


def ask(*replies: Reply, request: Request = HELLO, patience: Patience = QUICK) -> tuple[list[Any], Service]:
    """Ask a service with these replies; an error ends what came."""
    with Service(*replies) as service:

        async def asked() -> list[Any]:
            got: list[Any] = []
            provider = OpenAIProvider(address=f"{service.address}/v1", key=KEY, patience=patience)
            try:
                async for part in provider.chat(request):
                    got.append(part)  # noqa: PERF401 - what came before an error counts
            except ProviderError as error:
                got.append(error)
            await provider.aclose()
            return got

        return asyncio.run(asyncio.wait_for(asked(), 60)), service


def test_a_question_is_told_in_the_format_of_chat_completions():
    conversation = (
        Message("user", "hi"),
        Message("assistant", "", (ModelCall("c1", "say.hello", '{"name": "Ada"'),)),
        Message("tool", "not JSON", call_id="c1", is_error=True),
    )
    request = Request("demo", conversation, "Greet.", (SAY_HELLO,), 100, 0.0)
    _, service = ask(stream(chunk({"content": "x"}, "stop"), done="[DONE]"), request=request)
    (asked,) = service.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    system, user, assistant, tool = asked.body["messages"]
    assert system == {"role": "system", "content": "Greet."}
    assert user == {"role": "user", "content": "hi"}
    (call,) = assistant["tool_calls"]
    assert call["function"]["arguments"] == '{"malformed":"{\\"name\\": \\"Ada\\""}'
    assert call["function"]["name"].startswith("say_hello_")
    assert tool == {"role": "tool", "tool_call_id": "c1", "content": "not JSON"}
    assert asked.body["tools"][0]["function"]["name"] == "sayHello"
    assert (asked.body["max_completion_tokens"], asked.body["temperature"]) == (100, 0.0)


def test_text_thoughts_usage_and_the_reason_come_as_parts():
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 3}}
    got, _ = ask(
        stream(
            b": keep-alive\n\n",
            chunk({"role": "assistant", "content": ""}),
            chunk({"reasoning_content": "hm"}),
            chunk({"content": "Hel\u2028"}),
            chunk({"content": "lo"}, "stop"),
            {"choices": [], "usage": usage},
            done="[DONE]",
        )
    )
    assert got == [
        ThoughtPart("hm"),
        TextPart("Hel\u2028"),
        TextPart("lo"),
        UsagePart(Usage(11, 7, 3)),
        StopPart("end"),
    ]


@pytest.mark.parametrize(
    "pieces",
    [
        [piece(0, "a", "sayHello", '{"na'), piece(0, None, None, 'me": 1}'), piece(1, "b", "add", "{}")],
        [piece(0, "a", "sayHello", '{"name": 1}'), piece(0, "b", "add", "{}")],
        [
            piece(None, "a", "sayHello", '{"na'),
            piece(None, None, None, 'me": 1}'),
            piece(None, "b", "add", ""),
        ],
        [piece(0, "a", "sayHello", '{"na'), piece(1, "b", "add", "{}"), piece(0, "a", None, 'me": 1}')],
        [piece(0, "a", "sayHello", '{"na'), piece(0, "", "sayHello", 'me": 1}'), piece(1, "b", "add", "")],
        [piece(0, "a", "sayHello", '{"na'), piece(0, "x", None, 'me": 1}'), piece(1, "b", "add", "{}")],
    ],
    ids=["by place", "one place for all", "no place", "in turns", "name again", "another id each time"],
)
@pytest.mark.contract("agents.wire.pieces")
def test_calls_that_come_in_pieces_are_joined(pieces):
    got, _ = ask(stream(*(calls(each) for each in pieces), chunk(None, "tool_calls"), done="[DONE]"))
    assert got == [
        CallPart(ModelCall("a", "sayHello", '{"name": 1}')),
        CallPart(ModelCall("b", "add", "{}")),
        StopPart("calls"),
    ]


@pytest.mark.parametrize("place", [0, None])
@pytest.mark.parametrize(
    "made",
    [
        [("add", '{"a": 1}'), ("add", '{"a": 2}')],
        [("add", '{"a": 1}'), ("sub", '{"a": 2}')],
        [("one", ""), ("two", "")],
    ],
)
@pytest.mark.contract("agents.wire.pieces")
def test_calls_without_ids_at_one_place_are_kept_apart(made, place):
    """Some gateways give every call the place 0 and no id; they came as one call, which was malformed."""
    pieces = [piece(place, None, name, arguments) for name, arguments in made]
    got, _ = ask(stream(*map(calls, pieces), chunk(None, "tool_calls")))
    found = [(part.call.name, part.call.arguments) for part in got if isinstance(part, CallPart)]
    assert found == [(name, arguments or "{}") for name, arguments in made]


def test_a_name_that_comes_again_with_each_piece_is_one_call():
    pieces = [piece(0, None, "add", text) for text in ('{"a"', ": ", "1}", "")]
    got, _ = ask(stream(*map(calls, pieces), chunk(None, "tool_calls")))
    assert [part.call.arguments for part in got if isinstance(part, CallPart)] == ['{"a": 1}']


@pytest.mark.parametrize("reason", ["error", "abort", "insufficient_system_resource", "network_error"])
@pytest.mark.contract("agents.wire.half")
def test_an_answer_that_the_service_broke_off_is_cut(reason):
    """VLLM says abort and DeepSeek that it has no room: the call before it may be half of one."""
    got, service = ask(
        stream(chunk({"content": "Let me. "}), calls(piece(0, "a", "rm", "{}")), chunk(None, reason))
    )
    assert got[:-1] == [TextPart("Let me. ")]
    assert isinstance(got[-1], CutStreamError)
    assert reason in str(got[-1])
    assert len(service.asked) == 1


@pytest.mark.parametrize(
    ("reason", "ours"), [("eos", "end"), ("model_length", "length"), ("sensitive", "refused")]
)
def test_other_services_have_other_words(reason, ours):
    got, _ = ask(stream(chunk({"content": "x"}, reason)))
    assert got[-1] == StopPart(ours)


@pytest.mark.parametrize(
    "event",
    [
        {"object": "error", "message": "too long", "code": 400},
        {"error": {"message": "too long", "code": "400"}},
        {"error": "too long", "choices": []},
    ],
)
def test_an_error_inside_of_a_stream_has_several_forms(event):
    got, service = ask(stream(chunk({"content": "x"}), event, done="[DONE]"))
    assert "too long" in str(got[-1])
    assert got[-1].status in (400, 500)
    assert len(service.asked) == 1


def test_tokens_are_counted_in_the_choice_as_well():
    event = chunk({"content": "x"}, "stop")
    event["choices"][0]["usage"] = {"prompt_tokens": 11, "completion_tokens": 7}
    got, _ = ask(stream(event, done="[DONE]"))
    assert UsagePart(Usage(11, 7)) in got


def test_arguments_are_told_as_the_model_wrote_them():
    """A server that keeps what it has read knows its own words again; those of ours it would read anew."""
    text = '{ "b": 1.0,\n "a": 12345678901234567890123 }'
    deep = '{"a":' + "[" * 5000 + "]" * 5000 + "}"
    conversation = (
        Message("user", "hi"),
        Message("assistant", "", (ModelCall("c1", "x", text), ModelCall("c2", "x", deep))),
        Message("tool", "done", call_id="c1"),
        Message("tool", "too deep", call_id="c2", is_error=True),
    )
    _, service = ask(stream(chunk({"content": "x"}, "stop")), request=Request("demo", conversation))
    first, second = service.asked[0].body["messages"][1]["tool_calls"]
    assert first["function"]["arguments"] == text
    # It was refused with an error that came back at every further question of the conversation.
    assert second["function"]["arguments"].startswith('{"malformed":"{')


@pytest.mark.parametrize("end", [{"done": None}, {"done": "[DONE]"}, {"is_whole": False}])
@pytest.mark.contract("agents.wire.half")
def test_half_a_call_is_never_a_call(end):
    got, service = ask(stream(chunk({"content": "Let me. "}), calls(piece(0, "a", "rm", '{"p')), **end))
    assert isinstance(got[-1], CutStreamError)
    assert got[:-1] == [TextPart("Let me. ")]
    assert len(service.asked) == 1


@pytest.mark.contract("agents.wire.retries")
def test_a_stream_that_is_cut_before_the_first_part_is_asked_for_again():
    got, service = ask(
        stream(chunk({"role": "assistant"}), is_whole=False), stream(chunk({"content": "x"}, "stop"))
    )
    assert got == [TextPart("x"), StopPart("end")]
    assert len(service.asked) == 2


@pytest.mark.parametrize("status", [429, 500, 503, 529])
@pytest.mark.contract("agents.wire.retries")
def test_passing_trouble_is_tried_again_and_bounded(status):
    trouble = refusal(status, {"error": {"message": "not now"}})
    got, service = ask(trouble, trouble, stream(chunk({"content": "x"}, "stop")))
    assert got[-1] == StopPart("end")
    assert len(service.asked) == 3
    got, service = ask(trouble)
    assert [type(each) for each in got] == [ProviderError]
    assert "not now" in str(got[0])
    assert (got[0].status, len(service.asked)) == (status, 4)


def test_no_key_is_asked_for_in_one_line(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ModelUnavailableError, match="set OPENAI_API_KEY") as told:
        open_provider(ModelName.parse("openai/gpt-4o-mini"))
    assert "\n" not in str(told.value)


def test_the_environment_says_where_a_service_is(monkeypatch):
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://127.0.0.1:1/v1")
    provider = open_provider(ModelName.parse("ollama/llama3.2"))
    assert "127.0.0.1:1" in repr(provider)


@pytest.mark.contract("agents.wire.pieces")
def test_every_call_has_an_id_of_its_own():
    pieces = [piece(0, None, "one", "{}"), piece(1, "same", "two", "{}"), piece(2, "same", "three", "{}")]
    got, _ = ask(stream(*(calls(each) for each in pieces), chunk(None, "tool_calls")))
    ids = [part.call.id for part in got if isinstance(part, CallPart)]
    assert ids[1] == "same"
    assert len(set(ids)) == 3
    assert all(ids)


def test_arguments_that_come_as_an_object_are_written_as_text():
    given = {"index": 0, "id": "a", "function": {"name": "sayHello", "arguments": {"name": "Ada"}}}
    got, _ = ask(stream(calls(given), chunk(None, "stop")))
    assert got == [CallPart(ModelCall("a", "sayHello", '{"name":"Ada"}')), StopPart("calls")]


def test_a_model_that_calls_without_end_is_given_up():
    many = [calls(piece(place, f"c{place}", "x", "{}")) for place in range(MOST_CALLS + 1)]
    got, _ = ask(stream(*many, chunk(None, "tool_calls")))
    assert [type(each) for each in got] == [ProviderError]
    assert "more than 1,000 calls" in str(got[0])


@pytest.mark.contract("agents.wire.half")
def test_an_answer_with_its_reason_is_whole_although_the_connection_is_lost_after_it():
    got, service = ask(stream(chunk({"content": "Hello"}), chunk(None, "stop"), is_whole=False))
    assert got == [TextPart("Hello"), StopPart("end")]
    assert len(service.asked) == 1


@pytest.mark.parametrize(
    ("delta", "reason"),
    [({"refusal": "I will not."}, "stop"), ({"content": "I will not."}, "content_filter")],
)
def test_a_refusal_is_said_and_told(delta, reason):
    got, _ = ask(stream(chunk(delta), chunk(None, reason)))
    assert got == [TextPart("I will not."), StopPart("refused")]


def test_text_that_comes_as_a_list_is_joined():
    content = [
        {"type": "text", "text": "Hel"},
        {"type": "image", "text": None},
        {"type": "text", "text": "lo"},
    ]
    got, _ = ask(stream(chunk({"content": content}, "stop")))
    assert got == [TextPart("Hello"), StopPart("end")]
