"""A person decides after the run is over: the conversation goes on with what became of the call."""

from __future__ import annotations

import asyncio

import pytest

from gramercy import Agent, Approved, Denied, Executor, Registry, define_tool
from gramercy.agents.base import CallEnded
from gramercy.agents.talks import SessionTalk
from gramercy.execution.approval import decide
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
        (record,) = self.journal.records([State.AWAITING])
        assert record.facts.question is not None
        decide(self.journal, record.key, record.facts.question.seal, decision)


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
