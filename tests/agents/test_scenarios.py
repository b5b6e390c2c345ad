"""What can happen to the calls of an agent: each becomes a result for the model, and none ends the run."""

from __future__ import annotations

import asyncio
import threading

import pytest

from gramercy import Agent, Executor, Limits, Registry, ToolLibrary, create_tool
from gramercy.agents.base import CallBegun, CallEnded
from gramercy.errors import BindingError, ProviderError
from gramercy.execution.approval import Denied, Modified
from gramercy.execution.policy import Policy
from gramercy.journal.memory import MemoryJournal
from gramercy.providers.base import ModelCall, StopPart
from gramercy.testing.approver import ScriptedApprover
from gramercy.testing.provider import ScriptedProvider
from tests.agents.scripts import agent_with, called, is_in_order, no_parameters, takes

HELLO = """
[helloAgent:Agent {instruction: "Greet by name, with sayHello.", model: "OpenAI/gpt-4o-mini"} |
  [sayHello:ToolSpecification {description: "Greets a person"} | (::Text {paramName:"name"})==>(::String)],
  [shout:Tool {description: "Makes a text loud"} | (text::Text)==>(::String)]
]
"""
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def hello(arguments):
    return f"Hello, {arguments['name']}!"


SAY_HELLO = create_tool("sayHello", "Greets a person", SCHEMA, hello)
LOUD = create_tool(
    "shout",
    "Makes a text loud",
    {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    lambda arguments: arguments["text"].upper(),
)


@pytest.mark.contract(
    "004.invocation.automatic",
    "004.invocation.1-agent-and-library",
    "004.invocation.7-response",
    "001.integration.provider",
    "002.agent-loop.conversation",
)
def test_the_whole_flow_from_agent_and_library_to_the_answer():
    """Seed 004, Tool Invocation: seven steps."""
    library = ToolLibrary.of([SAY_HELLO, LOUD])
    answering = ScriptedProvider(
        called("sayHello", name="Ada"), lambda request: f"I say: {request.messages[-1].text}"
    )
    response = Agent.from_gram(HELLO).run("I am Ada", library, provider=answering)
    first, second = answering.requests
    assert first.instruction == "Greet by name, with sayHello."
    assert [message.text for message in first.messages] == ["I am Ada"]
    assert [(tool.name, tool.description) for tool in first.tools] == [
        ("sayHello", "Greets a person"),
        ("shout", "Makes a text loud"),
    ]
    assert first.tools[0].parameters == SCHEMA
    assert [message.role for message in second.messages] == ["user", "assistant", "tool"]
    assert response.content == "I say: Hello, Ada!"
    assert response.calls[0].call.arguments == '{"name":"Ada"}'


def test_one_result_goes_into_the_next_call():
    answering = ScriptedProvider(
        called("sayHello", name="Ada"),
        lambda request: called("shout", text=request.messages[-1].text),
        lambda request: request.messages[-1].text,
    )
    response = Agent.from_gram(HELLO).run("loudly", [SAY_HELLO, LOUD], provider=answering)
    assert response.content == "HELLO, ADA!"
    assert response.turns == 3


def test_the_same_agent_runs_over_another_library():
    """Seed 004, Architecture: the same specification with other implementations."""
    other = create_tool("sayHello", "Greets a person", SCHEMA, lambda arguments: f"Hi, {arguments['name']}.")
    said = []
    for tool in (SAY_HELLO, other):
        answering = ScriptedProvider(
            called("sayHello", name="Ada"), lambda request: request.messages[-1].text
        )
        said.append(Agent.from_gram(HELLO).run("I am Ada", [tool, LOUD], provider=answering).content)
    assert said == ["Hello, Ada!", "Hi, Ada."]


@pytest.mark.contract("agents.loop.binding")
def test_every_mismatch_is_told_before_a_model_is_asked():
    wrong = create_tool("sayHello", "Greets somebody", {**SCHEMA, "required": []}, hello)
    answering = ScriptedProvider("never")
    with pytest.raises(BindingError) as caught:
        Agent.from_gram(HELLO).run("hi", [wrong], provider=answering)
    lines = str(caught.value).splitlines()
    assert lines[0] == "not every tool can be bound:"
    assert [line.split(": ")[:2] for line in lines[1:]] == [
        ["- sayHello", "description"],
        ["- sayHello", "schema.required"],
        ["- shout", "name"],
    ]
    assert answering.requests == []


def run_and_recover(tool, call, **options):
    """Run one call that goes wrong, and let the model say what it was told."""
    answering = ScriptedProvider(call, lambda request: "I was told: " + request.messages[-1].text)
    response = agent_with(tool).run("go", provider=answering, **options)
    assert is_in_order(response.conversation)
    return response


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (called("stepp"), "Did you mean step?"),
        (called("nothing_like_it"), "Unknown tool: nothing_like_it"),
        ({"name": "step", "arguments": '{"text": '}, "JSON"),
        ({"name": "step", "arguments": "[1]"}, "object"),
        (called("step", text=7), "string"),
        (called("step"), "text"),
    ],
    ids=["misspelt", "unknown", "malformed", "no object", "wrong type", "missing"],
)
@pytest.mark.contract("agents.loop.faults")
def test_a_call_that_cannot_be_made_is_explained_to_the_model(call, told):
    ran: list[object] = []
    response = run_and_recover(takes("step", ran.append, "text"), call)
    assert ran == []
    assert told in response.content
    assert response.conversation[-2].is_error


@pytest.mark.contract("agents.loop.recovery")
def test_a_tool_that_fails_is_tried_again():
    tries = []

    def fetch():
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("no route to host")
        return "fetched"

    answering = ScriptedProvider(called("fetch"), called("fetch"), lambda request: request.messages[-1].text)
    response = agent_with(no_parameters("fetch", fetch)).run("go", provider=answering)
    assert "no route to host" in answering.requests[1].messages[-1].text
    assert response.content == "fetched"
    assert [made.result.success for made in response.calls] == [False, True]


@pytest.mark.contract("agents.loop.recovery")
def test_a_tool_that_takes_too_long_is_given_up():
    ended = threading.Event()
    slow = no_parameters("slow", lambda: ended.wait(20))
    try:
        response = run_and_recover(slow, called("slow"), limits=Limits(tool_seconds=0.05))
    finally:
        ended.set()
    assert "did not finish within 0.05 s" in response.content


def test_a_tool_with_a_deadline_of_its_own_keeps_it():
    quick = no_parameters("quick", lambda: "done", deadline=10.0)
    assert "done" in run_and_recover(quick, called("quick"), limits=Limits(tool_seconds=0.000001)).content


@pytest.mark.contract("agents.loop.denied")
def test_a_denied_call_goes_on_with_the_reason():
    ran: list[object] = []
    tool = no_parameters("delete", lambda: ran.append(1), safety_level="dangerous")
    with ScriptedApprover(Denied("not on a Friday")) as approver:
        response = run_and_recover(tool, called("delete"), approval_handler=approver)
    assert ran == []
    assert "not on a Friday" in response.content


def test_a_dangerous_call_without_anybody_to_ask_is_denied():
    ran: list[object] = []
    tool = no_parameters("delete", lambda: ran.append(1), safety_level="dangerous")
    response = run_and_recover(tool, called("delete"))
    assert ran == []
    assert "nobody can be asked" in response.content


@pytest.mark.contract("agents.loop.denied")
def test_the_model_is_told_that_a_person_has_edited_its_call():
    ran: list[object] = []
    tool = takes("pay", ran.append, "amount", safety_level="dangerous")
    with ScriptedApprover(Modified({"amount": "1"})) as approver:
        response = run_and_recover(tool, called("pay", amount="1000"), approval_handler=approver)
    assert ran == ["1"]
    assert (
        'A person changed the arguments before approving; the tool ran with {"amount":"1"}'
        in response.content
    )


def test_policy_journal_and_hooks_are_those_of_the_executor():
    journal, seen = MemoryJournal(), []
    policy = Policy([{"action": "deny", "tools": ["secret"]}])
    executor = Executor(
        Registry(), hooks=[lambda phase, *_: seen.append(phase)], policy=policy, journal=journal
    )
    tool = no_parameters("secret", lambda: "told")
    response = run_and_recover(tool, called("secret"), executor=executor)
    assert "denies secret" in response.content
    assert [record.call.tool for record in journal.records()] == ["secret"]
    assert executor.settings.registry.names() == []


@pytest.mark.contract("agents.loop.policy")
def test_a_policy_that_is_assigned_while_an_agent_runs_holds_for_its_next_call():
    executor, ran = Executor(Registry()), []

    def first():
        executor.with_approver(None).policy = Policy([{"action": "deny", "tools": ["second"]}])

    tools = [no_parameters("first", first), no_parameters("second", lambda: ran.append(1))]
    model = ScriptedProvider(called("first"), called("second"), lambda request: request.messages[-1].text)
    response = agent_with(*tools).run("go", provider=model, executor=executor)
    assert ran == []
    assert "denies second" in response.content


def test_what_is_above_the_ceiling_is_not_offered():
    tools = [no_parameters(f"do_{level}", lambda: 1, safety_level=level) for level in ("safe", "dangerous")]
    answering = ScriptedProvider("ok")
    executor = Executor(Registry(), max_safety_level="cautious")
    agent_with(*tools).run("hi", provider=answering, executor=executor)
    assert [tool.name for tool in answering.requests[0].tools] == ["do_safe"]


@pytest.mark.contract("agents.loop.side-by-side")
def test_safe_calls_of_an_answer_run_side_by_side():
    both = threading.Barrier(2)
    meet = no_parameters("meet", lambda: both.wait(60))
    answering = ScriptedProvider([called("meet"), called("meet")], "done")
    response = agent_with(meet).run("go", provider=answering)
    assert [made.result.success for made in response.calls] == [True, True]
    assert [made.call.id for made in response.calls] == ["call_1_1", "call_1_2"]


@pytest.mark.contract("agents.loop.side-by-side")
def test_calls_that_are_not_safe_run_one_after_the_other():
    log = []

    def tool(name, level):
        return no_parameters(name, lambda: log.append(name), safety_level=level)

    answering = ScriptedProvider([called("write"), called("look"), called("write")], "done")

    async def watch():
        agent = agent_with(tool("write", "cautious"), tool("look", "safe"))
        return [event async for event in agent.stream("go", provider=answering)]

    events = asyncio.run(watch())
    assert log == ["write", "look", "write"]
    kinds = [type(event) for event in events if isinstance(event, CallBegun | CallEnded)]
    assert kinds == [CallBegun, CallEnded] * 3


@pytest.mark.contract("agents.loop.whole-answers")
def test_the_last_call_of_an_answer_that_was_cut_off_is_not_run():
    ran: list[object] = []
    tool = takes("write", ran.append, "text", safety_level="cautious")
    answering = ScriptedProvider(
        [called("write", text="whole"), called("write", text="hal"), StopPart("length")],
        lambda request: request.messages[-1].text,
    )
    response = agent_with(tool).run("go", provider=answering)
    assert ran == ["whole"]
    assert "may be half of one" in response.content
    assert is_in_order(response.conversation)


def test_calls_of_a_refused_answer_are_not_run():
    ran: list[object] = []
    tool = no_parameters("step", lambda: ran.append(1))
    answering = ScriptedProvider(["I cannot. ", called("step"), StopPart("refused")])
    response = agent_with(tool).run("go", provider=answering)
    assert (ran, response.content, response.stop) == ([], "I cannot. ", "refused")
    assert is_in_order(response.conversation)


def test_calls_of_one_id_get_a_result_each():
    tool = takes("step", lambda text: text, "text")
    twice = [ModelCall(name, "step", f'{{"text": "{text}"}}') for name, text in (("a", 1), ("a", 2), ("", 3))]
    response = agent_with(tool).run("go", provider=ScriptedProvider(list(twice), "done"))
    assert [made.result.content for made in response.calls] == ["1", "2", "3"]
    assert len({made.call.id for made in response.calls}) == 3
    assert is_in_order(response.conversation)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.contract("agents.loop.provider-error")
def test_an_error_of_the_provider_ends_the_run_with_what_was_done(place):
    step = no_parameters("step", lambda: "stepped")
    answers = [called("step"), "done"]
    answers[place] = ProviderError("the service is overloaded", 529)
    with pytest.raises(ProviderError, match="overloaded") as caught:
        agent_with(step).run("go", provider=ScriptedProvider(*answers))
    done = caught.value.response
    assert len(done.calls) == place
    again = agent_with(step).run(None, provider=ScriptedProvider("done"), conversation=done)
    assert again.content == "done"


def test_whatever_a_provider_raises_is_an_error_of_the_provider():
    with pytest.raises(ProviderError, match=r"Scripted/test cannot be asked: 'gone' \(KeyError\)") as caught:
        agent_with().run("go", provider=ScriptedProvider(["Well", KeyError("gone")]))
    assert caught.value.response.content == "Well"


def test_a_run_inside_of_an_event_loop_works_on_another_thread():
    async def notebook():
        return agent_with().run("hi", provider=ScriptedProvider("hello"))

    assert asyncio.run(notebook()).content == "hello"
