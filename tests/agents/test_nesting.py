"""An agent inside of an agent is a tool, from text to text, under the same guard and the same limits."""

from __future__ import annotations

import asyncio

import pytest

from gramercy import Agent, Executor, Limits, Registry
from gramercy.agents.base import CallBegun, CallEnded, Finished, TurnEnded
from gramercy.errors import AgentError, BindingError, LimitReachedError, ProviderError
from gramercy.execution.approval import Approved, Denied
from gramercy.gram.agents import AgentSpecification, ModelName
from gramercy.journal.memory import MemoryJournal
from gramercy.providers.base import Message, ModelCall, TextPart, Usage
from gramercy.testing.approver import ScriptedApprover
from gramercy.testing.provider import ScriptedProvider
from tests.agents.scripts import MODEL, Kept, agent_with, called, is_in_order, no_parameters

TEAM = """
[boss:Agent {instruction: "Delegate.", model: "Scripted/big"} |
  [worker:Agent {description: "Does the work", instruction: "Work.", model: "Scripted/small"} |
    [dig:Tool {description: "Digs a hole"} | ()==>(::String)]
  ]
]
"""


def team(dig, **options):
    """Return an agent with one inside, which has one tool."""
    worker = agent_with(no_parameters("dig", dig, **options), name="worker")
    return agent_with(agents=[worker], name="boss")


@pytest.mark.contract("agents.loop.nested")
def test_the_outer_agent_gets_the_text_of_the_inner_one():
    dig = no_parameters("dig", lambda: "a hole")
    boss = Agent.from_gram(TEAM.replace("Digs a hole", dig.description))
    model = ScriptedProvider(
        called("worker", message="dig, please"), called("dig"), "I have dug", "the hole is there"
    )
    response = boss.run("a hole!", [dig], provider=model)
    assert response.content == "the hole is there"
    offered = model.requests[0].tools[0]
    assert (offered.name, offered.description) == ("worker", "Does the work")
    assert list(offered.parameters["properties"]) == ["message"]
    assert [(each.model, each.instruction) for each in model.requests] == [
        ("big", "Delegate."),
        ("small", "Work."),
        ("small", "Work."),
        ("big", "Delegate."),
    ]
    # Nothing of the one conversation is in the other.
    assert [message.text for message in model.requests[1].messages] == ["dig, please"]
    assert [message.text for message in response.conversation if message.role == "tool"] == ["I have dug"]


@pytest.mark.contract("agents.loop.nested")
def test_events_tell_how_deep_they_happen_and_usage_adds_up():
    model = ScriptedProvider(
        called("worker", message="go"), ["digging", called("dig")], "dug", "done", usage=Usage(100, 10)
    )

    async def watch():
        return [event async for event in team(lambda: "a hole").stream("go", provider=model)]

    events = asyncio.run(watch())
    told = [(type(event), event.agent, event.depth) for event in events if hasattr(event, "depth")]
    assert told == [
        (TurnEnded, "boss", 0),
        (CallBegun, "boss", 0),
        (TurnEnded, "worker", 1),
        (CallBegun, "worker", 1),
        (CallEnded, "worker", 1),
        (TurnEnded, "worker", 1),
        (CallEnded, "boss", 0),
        (TurnEnded, "boss", 0),
    ]
    # The text of the inner agent is the result of its call.
    assert [event.text for event in events if isinstance(event, TextPart)] == ["done"]
    assert isinstance(events[-1], Finished)
    assert events[-1].response.usage == Usage(400, 40)


@pytest.mark.parametrize("answer", [Approved(), Denied("no holes")])
@pytest.mark.contract("agents.loop.nested-approvals")
def test_approvals_of_a_nested_agent_reach_the_same_person_and_journal(answer):
    dug, journal = [], MemoryJournal()
    boss = team(lambda: dug.append(1), safety_level="dangerous")
    model = ScriptedProvider(called("worker", message="go"), called("dig"), "I am done", "so am I")
    with ScriptedApprover(answer) as approver:
        executor = Executor(Registry(), approver, journal=journal)
        response = boss.run("go", provider=model, executor=executor)
    assert response.content == "so am I"
    assert dug == ([1] if isinstance(answer, Approved) else [])
    by_tool = {record.call.tool: record.call.client for record in journal.records()}
    assert by_tool == {"dig": "agent worker", "worker": "agent boss"}


@pytest.mark.contract("agents.loop.nested-limits")
def test_nested_agents_share_the_limits_of_the_run():
    dug = []
    model = ScriptedProvider(called("worker", message="go"), *[called("dig")] * 5, "late", "later")
    with pytest.raises(LimitReachedError, match="limit of 3 calls") as caught:
        team(lambda: dug.append(1)).run("go", provider=model, limits=Limits(calls=3))
    # The call of the worker is the first of the three.
    assert len(dug) == 2
    assert is_in_order(caught.value.response.conversation)


def test_an_inner_agent_that_fails_is_a_failed_call():
    model = ScriptedProvider(
        called("worker", message="go"),
        ProviderError("the small model is away"),
        lambda request: request.messages[-1].text,
    )
    response = team(lambda: "a hole").run("go", provider=model)
    assert "the small model is away" in response.content
    assert response.conversation[-2].is_error


def test_an_inner_agent_that_goes_in_circles_is_a_failed_call():
    model = ScriptedProvider(called("worker", message="go"), *[called("dig")] * 2, "I give up")
    response = team(lambda: "a hole").run("go", provider=model, limits=Limits(turns=2))
    assert "worker has used its 2 turns" in response.conversation[-2].text


def test_nested_agents_that_ask_nobody_run_side_by_side():
    both = asyncio.Barrier(2)
    workers = [agent_with(name=name) for name in ("one", "two")]

    async def met(request):
        del request
        await asyncio.wait_for(both.wait(), 60)
        return "met"

    calls = [called("one", message="go"), called("two", message="go")]
    model = ScriptedProvider(calls, met, met, "done")
    response = agent_with(agents=workers).run("go", provider=model)
    assert [made.result.content for made in response.calls] == ["met", "met"]


def test_nested_agents_with_tools_that_are_not_safe_run_one_after_the_other():
    workers = [
        agent_with(no_parameters(f"{name}_tool", lambda: 1, safety_level="dangerous"), name=name)
        for name in ("one", "two")
    ]
    calls = [called("one", message="go"), called("two", message="go")]
    model = ScriptedProvider(calls, called("one_tool"), "1", called("two_tool"), "2", "done")
    with ScriptedApprover(Approved(), Approved()) as approver:
        response = agent_with(agents=workers).run("go", provider=model, approval_handler=approver)
    assert [made.result.content for made in response.calls] == ["1", "2"]


@pytest.mark.contract("agents.loop.binding")
def test_every_mismatch_inside_is_told_with_its_place():
    model = ScriptedProvider("never asked")
    with pytest.raises(BindingError) as caught:
        Agent.from_gram(TEAM).run("go", provider=model)
    assert model.requests == []
    assert str(caught.value).splitlines()[1].startswith("- worker > dig: name: specified 'dig'")


def specification(name, *agents):
    return AgentSpecification(name, "Help.", ModelName.parse(MODEL), agents=agents)


@pytest.mark.contract("agents.loop.nested-circles")
def test_an_agent_inside_of_itself_is_refused():
    with pytest.raises(AgentError, match="in a circle: a > b > a"):
        Agent.from_specification(specification("a", specification("b", specification("a")))).run("go")


@pytest.mark.contract("agents.loop.nested-circles")
def test_a_nest_that_is_too_deep_is_refused():
    deep = specification("a32")
    for number in range(31, 0, -1):
        deep = specification(f"a{number}", deep)
    assert Agent.from_specification(deep).run("go", provider=ScriptedProvider("done")).content == "done"
    with pytest.raises(AgentError, match="deeper than 32 levels"):
        Agent.from_specification(specification("a0", deep)).run("go")


@pytest.mark.contract("agents.loop.going-on")
def test_a_run_that_was_killed_goes_on_inside_of_the_nested_agent():
    """Its dangerous calls are those of its own conversation, and have their identity there."""
    seen, talk = [], Kept()
    worker = agent_with(no_parameters("dig", lambda: seen.append("dug")), name="worker")
    boss = agent_with(agents=[worker], name="boss")
    asked = ModelCall("c1", "worker", '{"message": "dig"}')
    talk.messages = [Message("user", "go"), Message("assistant", "", (asked,))]
    inner, _ = talk.nested(asked, "worker")
    inner.messages = [Message("user", "dig"), Message("assistant", "", (ModelCall("c2", "dig"),))]
    model = ScriptedProvider("I have dug", "done")
    response = boss.run(None, provider=model, talk=talk, conversation=talk.messages)
    assert (response.content, seen) == ("done", ["dug"])
    assert [message.role for message in inner.messages] == ["user", "assistant", "tool", "assistant"]
    assert model.requests[0].messages[0].text == "dig"
