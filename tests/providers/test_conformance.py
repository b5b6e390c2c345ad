"""One suite for every provider: what comes of an answer is the same, whoever gives it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from gramercy import Agent, create_tool
from gramercy.errors import ModelUnavailableError, ProviderError
from gramercy.providers.base import (
    CallPart,
    Message,
    ModelCall,
    OfferedTool,
    Request,
    StopPart,
    TextPart,
    UsagePart,
)
from tests.providers.backends import BACKENDS, KEY, USAGE, Answer, Backend, Trouble

if TYPE_CHECKING:
    from gramercy.providers.base import Part, Provider

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
SAY_HELLO = OfferedTool("sayHello", "Greets a person.", SCHEMA)
HELLO = Request("demo", (Message("user", "Hello, I am Ada"),), "Greet.", (SAY_HELLO,))
CALL = ModelCall("call_1", "sayHello", '{"name": "Ada ☃"}')
OTHER = ModelCall("call_2", "sayHello", '{"name": "Grace"}')


def named(backend: Backend) -> str:
    return backend.name.replace(" ", "-")


@pytest.fixture(params=BACKENDS, ids=named)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Return one provider after the other."""
    chosen: Backend = request.param
    return chosen


@pytest.fixture(params=[each for each in BACKENDS if each.has_wire], ids=named)
def wire(request: pytest.FixtureRequest) -> Backend:
    """Return only those that have a service behind them."""
    chosen: Backend = request.param
    return chosen


async def parts_of(provider: Provider, request: Request = HELLO) -> list[Part]:
    return [part async for part in provider.chat(request)]


def answered(provider: Provider, request: Request = HELLO, got: list[Part] | None = None) -> list[Part]:
    """Ask once, on an event loop of its own; `got` has what came before an error."""
    found: list[Part] = [] if got is None else got

    async def asked() -> None:
        try:
            async for part in provider.chat(request):
                found.append(part)  # noqa: PERF401 - what came before an error counts
        finally:
            await provider.aclose()

    asyncio.run(asyncio.wait_for(asked(), 60))
    return found


def text_of(parts: list[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, TextPart))


def calls_of(parts: list[Part]) -> list[ModelCall]:
    return [part.call for part in parts if isinstance(part, CallPart)]


@pytest.mark.contract("agents.wire.conform")
def test_text_comes_in_pieces_and_the_reason_last(backend):
    with backend.serving(Answer(("Hel", "lo, ", "Ada! ☃\u2028😀"))) as (provider, _):
        parts = answered(provider)
    assert text_of(parts) == "Hello, Ada! ☃\u2028😀"
    assert sum(isinstance(part, TextPart) for part in parts) >= 2
    assert parts[-1] == StopPart("end")
    assert sum(isinstance(part, StopPart) for part in parts) == 1


@pytest.mark.contract("agents.wire.conform")
def test_calls_come_whole_and_in_order(backend):
    if backend.has_grammar:
        pytest.skip("it writes one call, whole, or an answer")
    with backend.serving(Answer(("Let me see. ",), (CALL, OTHER), "calls")) as (provider, _):
        parts = answered(provider)
    assert text_of(parts) == "Let me see. "
    assert calls_of(parts) == [CALL, OTHER]
    assert parts[-1] == StopPart("calls")


def test_tokens_are_told_before_the_end(backend):
    if not backend.counts:
        pytest.skip("it makes its figures up")
    with backend.serving(Answer(("Hello",))) as (provider, _):
        parts = answered(provider)
    assert [part.usage for part in parts if isinstance(part, UsagePart)][-1] == USAGE


def test_malformed_arguments_come_as_the_model_wrote_them(backend):
    if backend.has_grammar:
        pytest.skip("it writes one call, whole, or an answer")
    broken = ModelCall("call_1", "sayHello", '{"name": "Ada')
    with backend.serving(Answer((), (broken,), "calls")) as (provider, _):
        parts = answered(provider)
    assert calls_of(parts) == [broken]


def test_a_call_without_arguments_has_none(backend):
    with backend.serving(Answer((), (ModelCall("call_1", "sayHello", "{}"),), "calls")) as (provider, _):
        (call,) = calls_of(answered(provider))
    assert call.arguments == "{}"


def test_an_answer_cut_by_its_limit_says_so(wire):
    with wire.serving(Answer(("Once upon",), reason="length")) as (provider, _):
        assert answered(provider)[-1] == StopPart("length")


@pytest.mark.contract("agents.wire.half")
def test_half_an_answer_has_no_end_and_no_call(backend):
    if backend.has_grammar:
        pytest.skip("it writes one call, whole, or an answer")
    if backend.name == "pydantic-ai function":
        pytest.skip("what is in this process is never cut")
    got: list[Part] = []
    half = Answer(("Let me. ",), (CALL,), is_cut=True)
    with backend.serving(half) as (provider, _), pytest.raises(ProviderError):
        answered(provider, got=got)
    assert text_of(got) == "Let me. "
    assert not calls_of(got)
    assert not any(isinstance(part, StopPart) for part in got)


def test_a_refused_question_is_an_error_with_the_words_of_the_service(backend):
    told: Any
    with (
        backend.serving(Trouble(400, "the tokens are too many")) as (provider, _),
        pytest.raises(ProviderError, match="the tokens are too many") as told,
    ):
        answered(provider)
    assert told.value.status == 400
    assert "\n" not in str(told.value)


def test_a_refused_key_is_told_without_the_key(wire, monkeypatch):
    monkeypatch.setenv("DEMO_API_KEY", KEY)
    told: Any
    with (
        wire.serving(Trouble(401, f"wrong key {KEY}")) as (provider, _),
        pytest.raises(ModelUnavailableError) as told,
    ):
        answered(provider)
    assert "wrong key" in str(told.value)
    assert KEY not in str(told.value)
    assert KEY not in repr(provider)


@pytest.mark.contract("agents.wire.retries")
def test_passing_trouble_is_asked_again(wire):
    with wire.serving(Trouble(500), Answer(("Hello",))) as (provider, service):
        assert text_of(answered(provider)) == "Hello"
    assert len(service.asked) == 2


@pytest.mark.contract("agents.wire.retries")
def test_lasting_trouble_ends_after_a_few_tries(wire):
    told: Any
    with (
        wire.serving(Trouble(503)) as (provider, service),
        pytest.raises(ProviderError, match="not now") as told,
    ):
        answered(provider)
    assert told.value.status == 503
    assert 2 <= len(service.asked) <= 4


def test_two_questions_at_the_same_time(backend):
    both = (Answer(("Hello",)), Answer(("Hello",)))
    with backend.serving(*both) as (provider, _):

        async def asked() -> list[list[Part]]:
            found = await asyncio.gather(parts_of(provider), parts_of(provider))
            await provider.aclose()
            return list(found)

        first, second = asyncio.run(asyncio.wait_for(asked(), 60))
    assert text_of(first) == text_of(second) == "Hello"


def test_an_answer_can_be_left_in_the_middle(backend):
    with backend.serving(Answer(("Hel", "lo")), Answer(("Bye",))) as (provider, _):

        async def asked() -> list[Part]:
            parts: Any = provider.chat(HELLO)
            async for _ in parts:
                break
            await parts.aclose()
            found = await parts_of(provider)
            await provider.aclose()
            return found

        assert text_of(asyncio.run(asyncio.wait_for(asked(), 60))) == "Bye"


def test_a_provider_outlives_its_event_loop(backend):
    with backend.serving(Answer(("Hello",)), Answer(("again",))) as (provider, _):
        assert text_of(answered(provider)) == "Hello"
        assert text_of(answered(provider)) == "again"


def test_names_that_a_format_does_not_allow_come_back_as_they_were(wire):
    odd = OfferedTool("notes/read ünd" + "x" * 70, "Reads.", SCHEMA)
    request = Request("demo", HELLO.messages, tools=(odd,))
    with wire.serving(Answer(("x",)), Answer(("y",))) as (provider, service):
        answered(provider, request)
        told = service.asked[0].body["tools"][0]
        name = told["function"]["name"] if "function" in told else told["name"]
        assert name.isascii()
        assert len(name) <= 64
    with wire.serving(Answer((), (ModelCall("call_1", name, "{}"),), "calls")) as (provider, service):
        assert calls_of(answered(provider, request)) == [ModelCall("call_1", odd.name, "{}")]


@pytest.mark.contract("agents.wire.conform")
def test_a_conversation_with_every_kind_of_message_is_taken(backend):
    """Calls of another service, malformed ones, empty results and empty texts: all of them were said."""
    messages = (
        Message("user", "Hello, I am Ada"),
        Message("assistant", "", (ModelCall("call 1/ü", "sayHello", '{"name": "A'), OTHER)),
        Message("tool", "the arguments are not JSON", call_id="call 1/ü", is_error=True),
        Message("tool", "", call_id="call_2"),
        Message("assistant", ""),
        Message("user", "and \ud800 now?"),
    )
    with backend.serving(Answer(("fine",))) as (provider, service):
        parts = answered(provider, Request("demo", messages, "Greet.", (SAY_HELLO,)))
    assert text_of(parts) == "fine"
    if backend.has_wire:
        told = service.asked[0].body["messages"]
        assert "the arguments are not JSON" in str(told)
        assert "malformed" in str(told)


@pytest.mark.contract("agents.wire.conform")
def test_an_agent_says_the_same_with_every_provider(backend):
    say_hello = create_tool(
        "sayHello", "Greets a person.", SCHEMA, lambda given: f"Hello, {given['name']}! Nice to meet you."
    )
    agent = Agent("greeter", "Greet.", "Demo/demo", [say_hello])
    last = Answer(("You are welcome.",))
    with backend.serving(Answer((), (CALL,), "calls"), Answer(("Hello, ", "Ada ☃!")), last) as (provider, _):
        response = agent.run("Hello, I am Ada", provider=provider)
        again = agent.run("And now?", provider=provider, conversation=response)
    assert again.content == "You are welcome."
    assert response.content == "Hello, Ada ☃!"
    assert [made.result.content for made in response.calls] == ["Hello, Ada ☃! Nice to meet you."]
    assert [message.role for message in response.conversation] == ["user", "assistant", "tool", "assistant"]
