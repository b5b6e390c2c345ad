"""An agent runs from gram to its answer: what the model is told, what runs, and what is kept."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from gramercy import Agent, Executor, Limits, Registry, create_tool
from gramercy.agents.base import CallBegun, CallEnded, Finished, TurnEnded, Warned
from gramercy.errors import (
    AgentError,
    CutStreamError,
    InvalidMessageError,
    LimitReachedError,
    ProviderError,
    UnreadableFileError,
)
from gramercy.journal.memory import MemoryJournal
from gramercy.providers.base import Message, ModelCall, StopPart, TextPart, Usage
from gramercy.testing.provider import ScriptedProvider
from gramercy.tools.context import current_call
from tests.agents.scripts import Kept, agent_with, called, is_in_order, no_parameters, takes

HELLO = """
[helloAgent:Agent {
  description: "A friendly agent",
  instruction: "Greet whoever tells you a name, with the tool sayHello.",
  model: "OpenAI/gpt-4o-mini"
} |
  [sayHello:ToolSpecification {
    description: "Returns a friendly greeting message for the given name"
  } |
    (::Text {paramName:"name"})==>(::String)
  ]
]
"""


say_hello = create_tool(
    "sayHello",
    "Returns a friendly greeting message for the given name",
    {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    lambda arguments: f"Hello, {arguments['name']}! Nice to meet you.",
)


def test_the_model_gets_the_result_and_answers():
    model = ScriptedProvider(
        ["Let me see. ", called("sayHello", name="Ada")], "Hello, Ada! Nice to meet you."
    )
    response = Agent.from_gram(HELLO).run("Hello, I am Ada", [say_hello], provider=model)
    assert response.content == "Hello, Ada! Nice to meet you."
    assert [made.result.content for made in response.calls] == ["Hello, Ada! Nice to meet you."]
    assert [message.role for message in response.conversation] == ["user", "assistant", "tool", "assistant"]
    assert model.requests[1].messages[-1].text == "Hello, Ada! Nice to meet you."


def test_an_agent_from_python_is_the_same_as_from_gram():
    agent = Agent("greeter", "Greet.", "OpenAI/gpt-4o-mini", [say_hello])
    again = Agent.from_gram(agent.to_gram())
    assert again.specification == agent.specification
    model = ScriptedProvider(called("sayHello", name="Ada"), "done")
    assert again.run("hi", agent.library, provider=model).content == "done"


def test_a_conversation_goes_on():
    model = ScriptedProvider("Hello.", "You said: hi.")
    agent = agent_with()
    first = agent.run("hi", provider=model)
    second = agent.run("what did I say?", provider=model, conversation=first)
    assert [message.text for message in second.conversation] == [
        "hi",
        "Hello.",
        "what did I say?",
        "You said: hi.",
    ]


def test_events_tell_what_happens_in_its_order():
    model = ScriptedProvider(["One ", called("sayHello", name="Ada")], ["two ", "three"])

    async def watch():
        agent = Agent.from_gram(HELLO)
        return [event async for event in agent.stream("hi", [say_hello], provider=model)]

    events = asyncio.run(watch())
    kinds = [TextPart, TurnEnded, CallBegun, CallEnded, TextPart, TextPart, TurnEnded, Finished]
    assert [type(event) for event in events] == kinds
    assert events[2].agent == "helloAgent"
    assert events[-1].response.content == "two three"


def test_a_call_names_its_agent_session_and_project_in_the_journal():
    seen = []

    def look():
        call = current_call()
        seen.append((call.client, call.session, call.project, call.identity, call.principal))
        return "seen"

    journal, talk = MemoryJournal(), Kept()
    executor = Executor(Registry(), journal=journal)
    model = ScriptedProvider(called("look"), "done")
    agent = agent_with(no_parameters("look", look))
    agent.run("hi", provider=model, executor=executor, talk=talk, project="/somewhere")
    assert seen == [("agent helper", "session-1", "/somewhere", "session-1/call_1_1", "local")]
    assert [(r.call.client, r.call.session) for r in journal.records()] == [("agent helper", "session-1")]
    assert current_call().client == ""


@pytest.mark.contract("agents.loop.kept-first")
def test_the_answer_is_kept_before_its_calls_run_and_each_result_after():
    talk = Kept()
    seen = []
    step = no_parameters(
        "step", lambda: seen.append([m.role for m in talk.messages]), safety_level="cautious"
    )
    model = ScriptedProvider([called("step"), called("step")], "done")
    response = agent_with(step).run("hi", provider=model, talk=talk)
    assert seen == [["user", "assistant"], ["user", "assistant", "tool"]]
    assert tuple(talk.messages) == response.conversation
    assert response.session == "session-1"


@pytest.mark.contract("agents.loop.going-on")
def test_calls_without_results_are_finished_first():
    """A run that was killed goes on: the same calls, under the identity that they had."""
    seen = []
    step = no_parameters("step", lambda: seen.append(current_call().identity), safety_level="cautious")
    calls = tuple(ModelCall(f"c{number}", "step") for number in (1, 2))
    left = [Message("user", "go"), Message("assistant", "", calls), Message("tool", "1", call_id="c1")]
    model = ScriptedProvider("both are done")
    response = agent_with(step).run(None, provider=model, conversation=left, talk=Kept())
    assert seen == ["session-1/c2"]
    assert [message.call_id for message in model.requests[0].messages] == ["", "", "c1", "c2"]
    assert response.content == "both are done"


def test_a_new_message_comes_after_the_calls_that_were_left():
    step = no_parameters("step", lambda: "stepped")
    left = [Message("user", "go"), Message("assistant", "", (ModelCall("c1", "step"),))]
    response = agent_with(step).run("and?", provider=ScriptedProvider("done"), conversation=left)
    assert [message.role for message in response.conversation] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]


def test_what_was_answered_needs_no_model():
    said = [Message("user", "go"), Message("assistant", "gone")]
    assert agent_with().run(None, provider=ScriptedProvider(), conversation=said).content == "gone"


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("", "empty"),
        (" \n", "empty"),
        (b"hi", "bytes"),
        (7, "int"),
        ("a\0b", "NUL"),
        ("x" * 4_000_001, "4,000,001 characters"),
    ],
    ids=["empty", "blank", "bytes", "number", "binary", "huge"],
)
@pytest.mark.contract("agents.loop.messages")
def test_a_message_that_no_model_could_answer_is_refused(message, fault):
    model = ScriptedProvider("never")
    with pytest.raises(InvalidMessageError, match=fault):
        agent_with().run(message, provider=model)
    assert model.requests == []


@pytest.mark.contract("agents.loop.whole-answers")
def test_no_call_runs_of_an_answer_without_its_end():
    ran = []

    step = no_parameters("step", lambda: ran.append(1))
    with pytest.raises(CutStreamError) as caught:
        agent_with(step).run("hi", provider=ScriptedProvider(["well ", called("step"), ...]))
    assert ran == []
    # What was said can be shown, and the question is asked again when the run goes on.
    assert caught.value.response.content == "well "
    assert caught.value.response.conversation == (Message("user", "hi"),)
    assert agent_with(step).run(None, provider=ScriptedProvider("all"), conversation=caught.value.response)


@pytest.mark.parametrize(
    ("limits", "fault"),
    [
        ({"turns": 2}, "has used its 2 turns"),
        ({"calls": 3}, "limit of 3 calls"),
        ({"tokens": 250}, "limit of 250 tokens is reached: 220 are used"),
    ],
)
@pytest.mark.contract("agents.loop.limits")
def test_a_limit_ends_the_run_with_what_was_done(limits, fault):
    step = no_parameters("step", lambda: "stepped", safety_level="cautious")
    model = ScriptedProvider(*[[called("step"), called("step")]] * 9, usage=Usage(100, 10))
    with pytest.raises(LimitReachedError, match=fault) as caught:
        agent_with(step).run("hi", provider=model, limits=Limits(**limits))
    response = caught.value.response
    assert len(response.calls) in {3, 4}
    assert is_in_order(response.conversation)


@pytest.mark.parametrize(
    "limits", [{"turns": 0}, {"turns": None}, {"calls": 1.5}, {"cost": -1}, {"tokens": "9"}]
)
def test_a_limit_that_is_none_is_refused_at_once(limits):
    with pytest.raises(AgentError, match="expected a"):
        Limits(**limits)


def test_an_empty_answer_is_told():
    response = agent_with().run("hi", provider=ScriptedProvider([" "]))
    assert response.warnings == ("the answer of Scripted/test is empty",)


@pytest.mark.parametrize("conversation", ["hi", [{"role": "user", "content": "hi"}]])
def test_a_conversation_of_something_else_is_refused(conversation):
    with pytest.raises(AgentError, match="a Response or a list of Messages"):
        agent_with().run("hi", provider=ScriptedProvider("never"), conversation=conversation)


def test_a_warning_reaches_the_person_and_the_response():
    short = ScriptedProvider(["Once upon a", StopPart("length")])

    async def watch():
        return [event async for event in agent_with().stream("hi", provider=short)]

    events = asyncio.run(watch())
    told = "the answer of Scripted/test was cut off at its limit of tokens"
    assert [event.text for event in events if isinstance(event, Warned)] == [told]
    assert (events[-1].response.stop, events[-1].response.warnings) == ("length", (told,))


@pytest.mark.parametrize(
    ("content", "told"), [(None, "No such file"), (b"\xff\xfe[a]", "not UTF-8 at byte 0")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, content, told):
    path = tmp_path / "agent.gram"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UnreadableFileError, match=told):
        Agent.load(path)


def test_halves_of_characters_are_joined_and_what_no_wire_carries_is_replaced():
    """A stream may be cut inside of a character; a text that cannot be sent would end the conversation."""
    call = {"name": "say", "arguments": '{"word": "\ud83d"}'}
    model = ScriptedProvider(["Look: \ud83d", "\ude42", call], "b\ud83d")
    response = agent_with(takes("say", lambda word: word, "word")).run("go", provider=model)
    assert response.content == "b\ufffd"
    assert response.conversation[1].text == "Look: \U0001f642"
    for message in response.conversation:
        msgspec.json.encode(message)


def test_what_a_provider_raises_before_it_streams_is_its_error():
    class Broken:
        name = "broken"

        def chat(self, request):
            raise ValueError(f"no model {request.model}")

        async def aclose(self):
            """Have nothing to close."""

    with pytest.raises(ProviderError, match="cannot be asked: no model test"):
        agent_with().run("go", provider=Broken())


def test_a_stream_that_cannot_be_closed_does_not_lose_its_answer():
    class Stream:
        def __init__(self):
            self._parts = iter([TextPart("done"), StopPart("end")])

        def __aiter__(self):
            return self

        async def __anext__(self):
            for part in self._parts:
                return part
            raise StopAsyncIteration

        async def aclose(self):
            raise OSError("the connection is gone")

    class Model(ScriptedProvider):
        def chat(self, request):
            del request
            return Stream()

    assert agent_with().run("go", provider=Model()).content == "done"
