"""Whatever a model, its stream, the tools and the person do, these hold for every run."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gramercy import Agent, Executor, Limits, Registry, define_tool
from gramercy.agents.base import CallBegun, CallEnded, Finished
from gramercy.errors import AgentError, ProviderError
from gramercy.providers.base import CallPart, ModelCall, StopPart, TextPart, Usage, UsagePart

TEXTS = st.sampled_from(["", " ", "Let me look. ", "äöü 🙂", "x" * 500])
ARGUMENTS = st.sampled_from(
    # Most of what a model writes is in order.
    6 * ['{"word": "a"}'] + ['{"word": 3}', "{}", '{"word"', "", "null", "[1]", '{"word": "a", "more": 1}']
)
NAMES = st.sampled_from(3 * ["look", "change", "fails", "burn"] + ["burnt", "", "no such tool"])
CALLS = st.builds(lambda name, arguments: ("call", name, arguments), NAMES, ARGUMENTS)
PARTS = st.lists(st.one_of(TEXTS.map(lambda text: ("text", text)), CALLS), max_size=4)
ENDS = st.sampled_from(["end", "end", "calls", "calls", "calls", "length", "cut", "raise", "refused"])
ANSWERS = st.lists(st.tuples(PARTS, ENDS), min_size=1, max_size=6)
RULINGS = st.lists(st.sampled_from(["approved", "denied", "odd"]), max_size=8)


class Model:
    """Streams what was drawn, and then answers with a text for ever."""

    name = "drawn"

    def __init__(self, answers):
        self.answers = answers
        self.asked = []

    async def chat(self, request):
        self.asked.append(request)
        place = len(self.asked) - 1
        parts, end = self.answers[place] if place < len(self.answers) else ([("text", "done")], "end")
        for number, (kind, *rest) in enumerate(parts):
            if kind == "text":
                yield TextPart(*rest)
            else:
                yield CallPart(ModelCall(f"c{place}.{number}", *rest))
        yield UsagePart(Usage(10, 5))
        if end == "raise":
            raise ProviderError("the server has failed", 500)
        if end != "cut":
            reason: Any = end
            yield StopPart(reason)

    async def aclose(self):
        pass


class Kept:
    """A talk in memory."""

    session = "s"
    model = ""
    prices: Any = None

    def __init__(self):
        self.messages = []

    def add(self, message, usage=None):  # noqa: ARG002 - as the protocol has it
        self.messages.append(message)

    def identity(self, call):  # noqa: ARG002 - as the protocol has it
        return ""

    def waited(self):
        return ()


class World:
    """Tools that write down that they ran, and a person who answers as was drawn."""

    def __init__(self, rulings):
        self.rulings = list(rulings)
        self.ran: list[str] = []
        self.allowed = 0
        word = [{"name": "word", "type": "string", "description": "A word"}]

        def fails(_):
            self.ran.append("fails")
            raise ValueError("it does not work")

        self.tools = [
            define_tool("look", "Look.", word, handler=self._runs("look"), safety_level="safe"),
            define_tool("change", "Change.", word, handler=self._runs("change"), safety_level="cautious"),
            define_tool("fails", "Fail.", word, handler=fails, safety_level="safe"),
            define_tool("burn", "Burn.", word, handler=self._runs("burn"), safety_level="dangerous"),
        ]

    def _runs(self, name):
        def run(arguments):
            self.ran.append(name)
            return f"{name} {arguments['word']}"

        return run

    def person(self, tool, arguments):  # noqa: ARG002 - as handlers are called
        ruling = self.rulings.pop(0) if self.rulings else "denied"
        self.allowed += ruling == "approved"
        return ruling


async def ran(world, model, talk, limits):
    agent = Agent("drawn", "Do.", "drawn/model", world.tools)
    executor = Executor(Registry(), world.person)
    events, error = [], None
    try:
        async for event in agent.stream("go", provider=model, executor=executor, talk=talk, limits=limits):
            events.append(event)  # noqa: PERF401 - what came before an error counts too
    except (ProviderError, AgentError) as caught:
        error = caught
    return events, error


def check_conversation(messages):
    """Every call has exactly one result, right behind the message that asks for it, in its order."""
    open_calls: list[str] = []
    for message in messages:
        if message.role == "tool":
            assert open_calls, "a result without a call"
            assert message.call_id == open_calls.pop(0)
        else:
            assert open_calls == [], f"no result of {open_calls}"
            open_calls = [call.id for call in message.calls]
    assert open_calls == []


@pytest.mark.contract("agents.judge.invariants")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ANSWERS, RULINGS, st.integers(1, 7), st.none() | st.integers(1, 6))
def test_every_run_keeps_the_rules(answers, rulings, turns, most_calls):
    world, model, talk = World(rulings), Model(answers), Kept()
    events, error = asyncio.run(ran(world, model, talk, Limits(turns=turns, calls=most_calls)))
    check_conversation(talk.messages)
    # What a model was shown was a whole conversation too.
    for request in model.asked:
        check_conversation(request.messages)
    # A broken stream ends the run, and nothing of it has run.
    broken = {place for place, (_, end) in enumerate(answers) if end in {"cut", "raise"}}
    begun = [event.call.id for event in events if isinstance(event, CallBegun)]
    assert not [name for name in begun if int(name[1:].split(".")[0]) in broken]
    ended = [event.call.id for event in events if isinstance(event, CallEnded)]
    # One that was not begun has ended too: the model is told so.
    assert set(begun) <= set(ended)
    assert (len(set(begun)), len(set(ended))) == (len(begun), len(ended))
    if broken and min(broken) < len(model.asked):
        assert isinstance(error, ProviderError)
        assert len(model.asked) == min(broken) + 1
    # What was cut off by the limit of tokens may be half a call.
    results = {event.call.id: event.result for event in events if isinstance(event, CallEnded)}
    for place, (parts, end) in enumerate(answers[: len(model.asked)]):
        if end == "length" and parts and parts[-1][0] == "call" and f"c{place}.{len(parts) - 1}" in results:
            assert not results[f"c{place}.{len(parts) - 1}"].success
    # The guard was not passed by.
    assert world.ran.count("burn") <= world.allowed
    assert len(world.ran) <= len(begun)
    assert len(model.asked) <= turns
    if most_calls is not None:
        assert len(world.ran) <= most_calls
    if error is None:
        (finished,) = [event for event in events if isinstance(event, Finished)]
        assert events[-1] is finished
        check_conversation(finished.response.conversation)
        assert list(finished.response.conversation) == talk.messages
        assert finished.response.usage.total == 15 * len(model.asked)
        assert [made.call.id for made in finished.response.calls] == [
            call.id for message in talk.messages for call in message.calls
        ]
        json.dumps([message.text for message in talk.messages])
    elif isinstance(error, AgentError):
        check_conversation(error.response.conversation)
