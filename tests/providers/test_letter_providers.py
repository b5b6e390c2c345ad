"""What a service answers that is no answer is told as what it is; what may pass is asked again."""

from __future__ import annotations

import asyncio

import pytest

from gramercy.errors import ModelUnavailableError, ProviderError
from gramercy.providers.base import Message, Request, StopPart, TextPart
from gramercy.providers.http import Patience
from gramercy.providers.openai import OpenAIProvider
from tests.providers.service import Reply, Service, refusal, stream

PAGE = b"<!doctype html><html><title>Sign in to the network</title></html>"
FAILURE = {"error": {"message": "overloaded", "type": "server_error", "code": None}}


def piece(text, reason=None, **delta):
    return {"choices": [{"index": 0, "delta": {"content": text, **delta}, "finish_reason": reason}]}


GOOD = stream(piece("Good.", "stop"), done="[DONE]")


def asked(*replies):
    """Ask a service that gives these replies; return the parts and how often it was asked."""

    async def ask(service):
        provider = OpenAIProvider(
            address=f"{service.address}/v1", key="sk-x", patience=Patience(first_wait=0.01, tries=3)
        )
        try:
            return [part async for part in provider.chat(Request("m", (Message("user", "hi"),)))]
        finally:
            await provider.aclose()

    with Service(*replies) as service:
        return asyncio.run(ask(service)), len(service.asked)


@pytest.mark.contract("agents.letter.pages")
@pytest.mark.parametrize("kind", ["text/html", "text/event-stream", "application/json", ""])
def test_a_web_page_with_status_200_is_told_as_a_page_and_asked_for_once(kind):
    """The login page of a network or a wrong address; to ask again gives the same page."""
    replies = [Reply([PAGE], 200, kind), GOOD]
    with pytest.raises(
        ModelUnavailableError, match=r"no answer of a model \(Sign in to the network\): is OP"
    ):
        asked(*replies)


@pytest.mark.contract("agents.letter.failures")
def test_a_failure_of_the_service_is_not_told_as_a_refusal():
    """500 says nothing about the question."""
    with pytest.raises(ProviderError, match=r"^OpenAI has failed \(500\), which may pass: boom") as failed:
        asked(refusal(500, {"error": {"message": "boom"}}))
    assert "refuses" not in str(failed.value)
    with pytest.raises(ProviderError, match=r"^OpenAI refuses the question \(400\): bad"):
        asked(refusal(400, {"error": {"message": "bad"}}))


@pytest.mark.contract("agents.letter.mid-stream")
@pytest.mark.parametrize(
    "before", [piece(""), piece("", reasoning_content="hm")], ids=["nothing", "a thought"]
)
def test_an_error_event_before_the_first_word_is_asked_again(before):
    """What a model thought aloud is no part of an answer."""
    parts, times = asked(stream(before, FAILURE), GOOD)
    assert [part for part in parts if type(part) in (TextPart, StopPart)] == [
        TextPart("Good."),
        StopPart("end"),
    ]
    assert times == 2


@pytest.mark.contract("agents.letter.mid-stream")
def test_an_error_event_after_the_first_word_or_about_the_question_ends_the_answer():
    """Words that were shown are not shown twice; a question that cannot be answered is not asked again."""
    with pytest.raises(ProviderError, match="overloaded"):
        asked(stream(piece("Half"), FAILURE), GOOD)
    wrong = {"error": {"message": "too long", "type": "invalid_request_error", "code": "context_length"}}
    with pytest.raises(ProviderError, match=r"refuses the question \(400\): too long"):
        asked(stream(piece(""), wrong), GOOD)
