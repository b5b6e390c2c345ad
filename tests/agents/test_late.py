"""A person decides after the run is over: the conversation goes on with what became of the call."""

from __future__ import annotations

import asyncio

import pytest

from gramercy import Agent, Approved, Denied, Executor, Registry, define_tool
from gramercy.agents.agent import Loop
from gramercy.agents.base import AgentEvent, CallBegun, CallEnded
from gramercy.agents.compaction import compact
from gramercy.agents.talks import SessionTalk
from gramercy.execution.approval import decide, resolve
from gramercy.gram.agents import ModelName
from gramercy.journal.base import State
from gramercy.journal.sessions import sessions_of
from gramercy.journal.sqlite import SqliteJournal
from gramercy.providers.scripted import ScriptedProvider

PAY = {"name": "pay", "arguments": {"amount": 7}}


class Desk:
    """An agent that pays, and the journal in which its questions wait."""

    def __init__(self, path):
        self.journal = SqliteJournal(path)
        self.paid = []
        amount = [{"name": "amount", "type": "integer", "description": "How much"}]
        pay = define_tool("pay", "Pay.", amount, handler=self._pay, safety_level="dangerous")
        self.agent = Agent("clerk", "Pay.", "scripted/x", [pay])
        self.talk = SessionTalk.begin(sessions_of(self.journal), "bills", agent="clerk", name="bills")

    def _pay(self, arguments):
        self.paid.append(arguments["amount"])
        return f"{arguments['amount']} paid"

    def run(self, message, *answers, person=None):
        """Go on with the conversation as another process would."""
        if sessions_of(self.journal).session("bills") is not None:
            self.talk = SessionTalk.resume(sessions_of(self.journal), "bills")
        self.model = ScriptedProvider(*answers)
        executor = Executor(Registry(), person, journal=self.journal, approval_wait=0.01)
        said = self.talk.conversation
        options = {"provider": self.model, "executor": executor, "talk": self.talk}
        return self.agent.run(message, conversation=said, **options)

    def decide(self, decision):
        for record in self.journal.records([State.AWAITING]):
            assert record.facts.question is not None
            decide(self.journal, record.key, record.facts.question.seal, decision)

    @property
    def told(self):
        """What the model was told last."""
        return self.model.requests[0].messages[-1].text


@pytest.fixture
def desk(tmp_path):
    made = Desk(tmp_path / "journal.db")
    yield made
    made.journal.close()


@pytest.mark.contract("agents.judge.late")
def test_what_is_approved_later_runs_when_the_conversation_goes_on(desk):
    first = desk.run("pay", PAY, "It waits for you.")
    assert (desk.paid, first.calls[0].result.metadata["awaiting"]) == ([], True)
    assert "to call it again changes nothing" in first.calls[0].result.content
    desk.decide(Approved())
    desk.run("and now?", "It is paid.")
    assert desk.paid == [7]
    told = desk.model.requests[0].messages[-1]
    assert told.role == "user"
    assert told.text.startswith(
        'The call pay {"amount":7}, which waited for approval (call 1), is over:\n7 paid'
    )
    assert told.text.endswith("\n\nand now?")
    # Once is enough.
    desk.run("thanks", "You are welcome.")
    assert desk.model.requests[0].messages[-1].text == "thanks"
    assert desk.paid == [7]


def test_without_a_message_the_model_is_told_of_the_decision_alone(desk):
    desk.run("pay", PAY, "It waits for you.")
    desk.decide(Denied("too much"))
    response = desk.run(None, "I see.")
    assert response.content == "I see."
    assert "too much" in desk.model.requests[0].messages[-1].text
    assert desk.paid == []


def test_what_still_waits_is_asked_again_when_somebody_is_there(desk):
    desk.run("pay", PAY, "It waits for you.")
    desk.run("still?", "Yes.")
    assert desk.model.requests[0].messages[-1].text == "still?"
    asked = []

    def person(tool, arguments):
        asked.append((tool.name, arguments))
        return "approved"

    desk.run("now I am here", "It is paid.", person=person)
    assert (asked, desk.paid) == ([("pay", {"amount": 7})], [7])


def test_who_looks_on_sees_the_call_run(desk):
    desk.run("pay", PAY, "It waits for you.")
    desk.decide(Approved())
    desk.talk = SessionTalk.resume(sessions_of(desk.journal), "bills")
    executor = Executor(Registry(), journal=desk.journal)
    seen = []

    async def look():
        options = {"provider": ScriptedProvider("Paid."), "executor": executor, "talk": desk.talk}
        async for event in desk.agent.stream("?", conversation=desk.talk.conversation, **options):
            seen.append(event)  # noqa: PERF401 - plainer so

    asyncio.run(look())
    assert [event.result.content for event in seen if isinstance(event, CallEnded)] == ["7 paid"]


def test_a_call_is_told_as_it_was_made_also_where_a_model_gives_ids_out_again(desk):
    for amount in (7, 9):
        desk.run("pay", {"id": "call_0", "name": "pay", "arguments": {"amount": amount}}, "It waits.")
    desk.decide(Approved())
    desk.run("and now?", "They are paid.")
    assert desk.paid == [7, 9]
    told = desk.told.splitlines()
    assert told[0].startswith('The call pay {"amount":7}')
    assert told[1:4] == [
        "7 paid",
        "",
        'The call pay {"amount":9}, which waited for approval (call 2), is over:',
    ]


def test_what_a_summary_stands_for_runs_too(desk):
    """A summary takes the place of messages for the model; what was approved is not forgotten with them."""
    desk.run("pay", PAY, "It waits for you.")
    for word in ("one", "two", "three"):
        desk.run(word, "Yes.")
    asyncio.run(compact(desk.talk, ScriptedProvider("Paying waits."), ModelName.parse("scripted/x")))
    assert not any(message.awaiting for message in desk.talk.conversation)
    desk.decide(Approved())
    desk.run("and now?", "It is paid.")
    assert desk.paid == [7]
    assert "7 paid" in desk.told


@pytest.mark.contract("agents.judge.late")
def test_what_is_approved_later_inside_of_a_nested_agent_runs_when_its_caller_goes_on(desk):
    clerk = desk.agent
    desk.agent = Agent("boss", "Delegate.", "scripted/x", agents=[clerk])
    ask = {"name": "clerk", "arguments": {"message": "pay 7"}}
    desk.run("pay", ask, PAY, "It waits.", "The clerk waits for you.")
    assert desk.paid == []
    desk.run("still?", "Yes.")
    assert desk.told == "still?"
    desk.decide(Approved())
    desk.run("and now?", "It is paid.")
    assert desk.paid == [7]
    assert desk.told.startswith(
        'The call pay {"amount":7} of the agent clerk, which waited for approval (call 1), is over:\n7 paid'
    )
    desk.run("thanks", "You are welcome.")
    assert (desk.told, desk.paid) == ("thanks", [7])


def test_an_agent_that_lacks_the_tool_leaves_the_call_to_one_that_has_it(desk):
    desk.run("pay", PAY, "It waits for you.")
    desk.decide(Approved())
    clerk, desk.agent = desk.agent, Agent("other", "Talk.", "scripted/x")
    response = desk.run("hello", "Hello.")
    assert desk.told == "hello"
    assert response.warnings == ("call 1 of pay is decided and cannot go on here: Unknown tool: pay",)
    desk.agent = clerk
    desk.run("and now?", "It is paid.")
    assert desk.paid == [7]


def test_a_late_call_that_is_stopped_is_told_to_be_in_doubt_once(desk):
    began = asyncio.Event()

    async def forever(_):
        began.set()
        await asyncio.Event().wait()

    desk.agent = Agent(
        "clerk",
        "Pay.",
        "scripted/x",
        [define_tool("pay", "P", [], handler=forever, safety_level="dangerous")],
    )
    desk.run("pay", {"name": "pay"}, "It waits for you.")
    desk.decide(Approved())
    seen: list[AgentEvent] = []

    async def stop():
        talk = SessionTalk.resume(sessions_of(desk.journal), "bills")
        executor = Executor(Registry(), journal=desk.journal)
        parts = desk.agent.specification, desk.agent.library
        loop = Loop(*parts, talk=talk, provider=ScriptedProvider(), executor=executor)
        run = asyncio.create_task(loop.answer("and now?", talk.conversation, seen.append))
        await asyncio.wait_for(began.wait(), 60)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(stop())
    assert [type(event) for event in seen] == [CallBegun, CallEnded]
    desk.run("and now?", "Look.")
    assert desk.told.startswith(
        "The call pay {}, which waited for approval (call 1), is in doubt:\npay was not"
    )
    desk.run("I looked", "Well?")
    assert desk.told == "I looked"
    resolve(desk.journal, 1, happened=True, by="person")
    desk.run("it has happened", "Good.")
    assert "(call 1), is over:" in desk.told
