"""An agent over a real connection to a service that has bad days."""

from __future__ import annotations

import json

import pytest

from gramercy.errors import CutStreamError, ProviderError
from gramercy.providers.http import Patience
from gramercy.providers.openai import OpenAIProvider
from tests.agents.scripts import agent_with, is_in_order, takes
from tests.providers.service import Reply, Service, refusal, stream

QUICK = Patience(first_wait=0.01, silence=0.3)


def chunk(delta, reason=None):
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def asks_to_pay(amount, **ending):
    """Return an answer that says something and makes a call."""
    function = {"name": "pay", "arguments": json.dumps({"amount": amount})}
    call = {"index": 0, "id": f"pay-{amount}", "type": "function", "function": function}
    said = chunk({"content": "I pay. "}), chunk({"tool_calls": [call]})
    return stream(*said, **ending) if ending else stream(*said, chunk({}, "tool_calls"), done="[DONE]")


DONE = stream(chunk({"content": "paid"}, "stop"), done="[DONE]")
BUSY = refusal(429, {"error": {"message": "slow down"}})
BROKEN = refusal(500, {"error": {"message": "oops"}})


def run(service, paid, **options):
    """Run an agent that pays, over a connection to the service."""
    pay = takes("pay", lambda amount: paid.append(amount) or "paid", "amount", safety_level="cautious")
    provider = OpenAIProvider(address=f"{service.address}/v1", key="sk-not-a-key", patience=QUICK)
    options.setdefault("conversation", None)
    message = None if options["conversation"] else "pay"
    return agent_with(pay, model="OpenAI/gpt-4o-mini").run(message, provider=provider, **options)


@pytest.mark.contract("agents.loop.bad-days")
def test_passing_trouble_is_not_seen():
    paid: list[str] = []
    cut_at_once = Reply([], is_whole=False)
    with Service(BUSY, asks_to_pay("1"), BROKEN, cut_at_once, DONE) as service:
        response = run(service, paid)
    assert (response.content, paid) == ("paid", ["1"])
    assert len(service.asked) == 5
    roles = [message["role"] for message in service.asked[-1].body["messages"]]
    assert roles == ["system", "user", "assistant", "tool"]


@pytest.mark.contract("agents.loop.bad-days")
@pytest.mark.parametrize("ending", [{"is_whole": False}, {"done": "[DONE]"}], ids=["cut", "polite"])
def test_a_call_of_a_cut_answer_is_not_made_and_the_run_goes_on_later(ending):
    paid: list[str] = []
    with Service(asks_to_pay("1"), asks_to_pay("2", **ending), asks_to_pay("2"), DONE) as service:
        with pytest.raises(CutStreamError) as caught:
            run(service, paid)
        left = caught.value.response
        assert (paid, left.content, is_in_order(left.conversation)) == (["1"], "I pay. ", True)
        assert run(service, paid, conversation=left).content == "paid"
    assert paid == ["1", "2"]


@pytest.mark.contract("agents.loop.bad-days")
@pytest.mark.parametrize("trouble", [BUSY, BROKEN, Reply(is_silent=True)], ids=["429", "500", "silent"])
def test_trouble_that_lasts_ends_the_run_with_what_was_done(trouble):
    paid: list[str] = []
    with Service(asks_to_pay("1"), trouble) as service:
        with pytest.raises(ProviderError) as caught:
            run(service, paid)
        assert len(service.asked) <= 5
    assert paid == ["1"]
    assert len(caught.value.response.calls) == 1
    assert is_in_order(caught.value.response.conversation)


def test_a_service_that_falls_silent_in_an_answer_is_given_up():
    with (
        Service(stream(chunk({"content": "Well"}), hang=True)) as service,
        pytest.raises(ProviderError) as caught,
    ):
        run(service, [])
    assert caught.value.response.content == "Well"
    assert "sk-not-a-key" not in str(caught.value)
