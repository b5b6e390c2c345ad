"""A run that is stopped leaves a conversation that can go on: every call has a result."""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing, suppress

import pytest

from gramercy import Executor, Limits, Registry, define_tool
from gramercy.agents.agent import Loop
from gramercy.agents.base import CallBegun
from gramercy.agents.talks import SessionTalk
from gramercy.errors import AgentError, LimitReachedError
from gramercy.execution.approval import Approved, Denied
from gramercy.execution.policy import Policy
from gramercy.journal.base import State
from gramercy.journal.memory import MemoryJournal
from gramercy.journal.sessions import sessions_of
from gramercy.journal.sqlite import SqliteJournal
from gramercy.providers.base import CallPart, Message, ModelCall, StopPart, TextPart
from gramercy.testing.approver import ScriptedApprover
from gramercy.testing.provider import ScriptedProvider
from gramercy.tools.context import current_call
from tests.agents.scripts import Kept, agent_with, called, is_in_order, no_parameters

SECONDS = 10
# The end of the time of a run: a busy machine has begun by then with what it ends.
ENDS = 0.5


def waiting_tool(name, began, **options):
    """Return a tool that tells that it runs, and waits to be cancelled."""

    async def handler(_):
        began.set()
        await asyncio.Event().wait()

    return define_tool(name, f"Does {name}.", [], handler=handler, **options)


async def stopped(agent, model, began, talk=None, **options):
    """Run an agent, cancel it as soon as something has begun, and return what was kept."""
    talk = talk or Kept()
    run = asyncio.create_task(agent.arun("go", provider=model, talk=talk, **options))
    await asyncio.wait_for(began.wait(), SECONDS)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(run, SECONDS)
    return talk


@pytest.mark.contract("agents.loop.cancelled")
def test_a_call_that_was_cancelled_has_a_result_and_so_have_those_after_it():
    async def main():
        began, journal = asyncio.Event(), MemoryJournal()
        agent = agent_with(waiting_tool("write", began, safety_level="cautious"))
        model = ScriptedProvider([called("write"), called("write")])
        executor = Executor(Registry(), journal=journal)
        return await stopped(agent, model, began, executor=executor), journal

    talk, journal = asyncio.run(main())
    assert is_in_order(talk.messages)
    told = [message.text for message in talk.messages if message.role == "tool"]
    assert told[0].startswith(
        "write was interrupted: the run was stopped from outside. What it had begun may"
    )
    assert told[1] == "write was not run: the run was stopped from outside."
    assert [record.state for record in journal.records()] == [State.IN_DOUBT]


def test_results_of_calls_side_by_side_that_were_there_are_kept():
    async def main():
        began = asyncio.Event()
        agent = agent_with(waiting_tool("wait", began), no_parameters("quick", lambda: "there"))
        model = ScriptedProvider([called("quick"), called("wait")])
        talk, seen = Kept(), asyncio.Event()

        async def watch():
            async for event in agent.stream("go", provider=model, talk=talk):
                if type(event).__name__ == "CallEnded":
                    seen.set()

        run = asyncio.create_task(watch())
        await asyncio.wait_for(asyncio.gather(began.wait(), seen.wait()), SECONDS)
        run.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait_for(run, SECONDS)
        return talk

    talk = asyncio.run(main())
    assert is_in_order(talk.messages)
    told = [message.text for message in talk.messages if message.role == "tool"]
    assert told[0] == "there"
    assert told[1].startswith("wait was interrupted")


def test_a_question_that_nobody_waits_for_any_more_is_withdrawn(tmp_path):
    """In a journal that others share too; the same call made again is asked about again."""
    journal = SqliteJournal(tmp_path / "journal.db")
    talk = SessionTalk.begin(sessions_of(journal))
    agent = agent_with(no_parameters("delete", lambda: 1, safety_level="dangerous"))

    async def main():
        asked = asyncio.Event()

        async def think(*_):
            asked.set()
            await asyncio.Event().wait()

        executor = Executor(Registry(), think, journal=journal)
        model = ScriptedProvider(called("delete"))
        return await stopped(agent, model, asked, executor=executor, talk=talk)

    asyncio.run(main())
    assert is_in_order(talk.conversation)
    assert talk.conversation[-1].text == "delete was not run: the run was stopped from outside."
    assert [record.state for record in journal.records()] == [State.FAILED]
    with ScriptedApprover(Denied("still no")) as approver:
        executor = Executor(Registry(), approver, journal=journal)
        model = ScriptedProvider(called("delete"), "well")
        agent.run("do it", provider=model, executor=executor, talk=talk, conversation=talk.conversation)
    assert "still no" in talk.conversation[-2].text
    journal.close()


@pytest.mark.parametrize("level", ["safe", "dangerous"])
def test_a_call_that_had_begun_may_have_taken_effect(tmp_path, level):
    journal = SqliteJournal(tmp_path / "journal.db")
    talk = SessionTalk.begin(sessions_of(journal))

    async def main():
        began = asyncio.Event()
        tool = waiting_tool("write", began, safety_level=level)
        policy = Policy([{"action": "ask", "tools": ["write"]}])
        executor = Executor(Registry(), lambda *_: Approved(), policy=policy, journal=journal)
        model = ScriptedProvider(called("write"))
        return await stopped(agent_with(tool), model, began, executor=executor, talk=talk)

    asyncio.run(main())
    told = talk.conversation[-1].text
    assert "may have taken effect" in told
    # A dangerous one is in doubt until a person says what became of it, and the model can tell how.
    assert ("`gramercy approvals resolve 1 done --reason …`" in told) == (level == "dangerous")
    assert journal.records()[0].state is (State.IN_DOUBT if level == "dangerous" else State.FAILED)
    journal.close()


@pytest.mark.contract("agents.loop.cancelled")
def test_what_the_model_had_said_is_kept():
    async def main():
        said = asyncio.Event()

        async def pause():
            said.set()
            await asyncio.Event().wait()

        return await stopped(agent_with(), ScriptedProvider(["Once upon", pause, " a time"]), said)

    assert asyncio.run(main()).messages == [Message("user", "go"), Message("assistant", "Once upon")]


@pytest.mark.contract("agents.loop.cancelled")
def test_a_listener_that_leaves_stops_the_run():
    """When the generator is closed, the calls have ended and the conversation is in order."""

    async def main():
        began, talk = asyncio.Event(), Kept()
        agent = agent_with(waiting_tool("wait", began))
        async with aclosing(
            agent.stream("go", provider=ScriptedProvider(called("wait")), talk=talk)
        ) as events:
            async for event in events:
                if isinstance(event, CallBegun):
                    await asyncio.wait_for(began.wait(), SECONDS)
                    break
        return talk.messages, len(asyncio.all_tasks())

    messages, tasks = asyncio.run(main())
    assert is_in_order(messages)
    assert [message.role for message in messages] == ["user", "assistant", "tool"]
    assert tasks == 1


def test_a_nested_agent_stops_with_its_run():
    async def main():
        began = asyncio.Event()
        worker = agent_with(waiting_tool("dig", began, safety_level="cautious"), name="worker")
        model = ScriptedProvider(called("worker", message="go"), called("dig"))
        return await stopped(agent_with(agents=[worker]), model, began)

    talk = asyncio.run(main())
    assert is_in_order(talk.messages)
    (inner,) = talk.inner.values()
    assert is_in_order(inner.messages)
    assert inner.messages[-1].text.startswith("dig was interrupted")


@pytest.mark.parametrize("where", ["call", "answer"])
@pytest.mark.contract("agents.loop.limits")
def test_the_limit_of_time_holds_in_the_middle_of_a_call_and_of_an_answer(where):
    async def forever():
        await asyncio.Event().wait()

    slow = define_tool("slow", "Is slow.", [], handler=lambda _: forever(), safety_level="cautious")
    model = ScriptedProvider(called("slow") if where == "call" else ["Well", forever])
    with pytest.raises(LimitReachedError, match=r"limit of 0\.5 seconds") as caught:
        agent_with(slow).run("go", provider=model, limits=Limits(seconds=ENDS))
    response = caught.value.response
    assert is_in_order(response.conversation)
    last = "slow was interrupted: the limit of 0.5 seconds" if where == "call" else "go"
    assert response.conversation[-1].text.startswith(last)
    assert response.content == ("" if where == "call" else "Well")


@pytest.mark.contract("agents.loop.streaming")
def test_the_first_piece_of_text_is_there_before_the_second_is_made():
    """Nothing is buffered between the model and the listener."""

    async def main():
        heard = asyncio.Event()

        async def until_heard():
            await asyncio.wait_for(heard.wait(), SECONDS)

        model, seen = ScriptedProvider(["first", until_heard, "second"]), []
        async for event in agent_with().stream("go", provider=model):
            if isinstance(event, TextPart):
                seen.append(event.text)
                heard.set()
        return seen

    assert asyncio.run(main()) == ["first", "second"]


def test_a_plain_tool_is_left_behind_when_the_run_is_stopped():
    async def main():
        began, ended = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def block():
            loop.call_soon_threadsafe(began.set)
            ended.wait(SECONDS)

        try:
            return await stopped(
                agent_with(no_parameters("block", block)), ScriptedProvider(called("block")), began
            )
        finally:
            ended.set()

    assert is_in_order(asyncio.run(main()).messages)


def test_a_talk_that_cannot_keep_a_message_ends_the_run_before_anything_follows():
    ran = []

    class Full(Kept):
        def add(self, message, usage=None):
            if message.role == "assistant":
                raise OSError("no space left on device")
            super().add(message, usage)

    agent = agent_with(no_parameters("step", lambda: ran.append(1)))
    loop = Loop(agent.specification, agent.library, provider=ScriptedProvider(called("step")), talk=Full())
    with pytest.raises(OSError, match="no space"):
        asyncio.run(loop.answer("go", None))
    assert ran == []


def test_a_plain_tool_learns_on_its_thread_that_the_run_is_stopped():
    """It may block where no interruption reaches it: it says what stops it, or looks."""

    async def main():
        began, left, told = asyncio.Event(), threading.Event(), []
        loop, calls = asyncio.get_running_loop(), []

        def block():
            calls.append(current_call())
            calls[0].on_cancel(lambda: told.append("stop"))
            loop.call_soon_threadsafe(began.set)
            left.wait(SECONDS)

        agent = agent_with(no_parameters("block", block))
        await stopped(agent, ScriptedProvider(called("block")), began)
        left.set()
        # Another thread than that of the loop, as the tool has.
        return told, await asyncio.to_thread(lambda: calls[0].is_cancelled)

    assert asyncio.run(main()) == (["stop"], True)


class Stubborn:
    """Calls a tool for ever, and goes on when it is cancelled."""

    name = "stubborn"

    def __init__(self):
        self.began, self.asked = asyncio.Event(), 0

    async def chat(self, request):
        del request
        self.asked += 1
        self.began.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(SECONDS)
        for _ in range(3):
            yield TextPart("on and on")
        yield CallPart(ModelCall("c1", "step"))
        yield StopPart("calls")

    async def aclose(self):
        """Have nothing to close."""


@pytest.mark.contract("agents.loop.cancelled")
def test_a_provider_that_swallows_its_cancellation_does_not_keep_a_run_from_being_stopped():
    async def main():
        model, ran = Stubborn(), []
        agent = agent_with(no_parameters("step", lambda: ran.append(1)))
        talk = await stopped(agent, model, model.began)
        return talk.messages, model.asked, ran

    messages, asked, ran = asyncio.run(main())
    assert (asked, ran) == (1, [])
    assert messages[1:] == [Message("assistant", "on and on")]


@pytest.mark.contract("agents.loop.limits")
def test_nor_from_the_end_of_its_time():
    async def main():
        model = Stubborn()
        agent = agent_with(no_parameters("step", lambda: 1))
        with pytest.raises(LimitReachedError, match=r"limit of 0\.5 seconds"):
            await agent.arun("go", provider=model, limits=Limits(seconds=ENDS))
        return model.asked

    assert asyncio.run(main()) == 1


def test_a_result_that_could_not_be_kept_at_first_is_not_told_to_be_interrupted():
    """The disk was full for a moment: what became of the call is known."""

    class Full(Kept):
        fails = 1

        def add(self, message, usage=None):
            if message.role == "tool" and self.fails:
                self.fails -= 1
                raise OSError("no space left on device")
            super().add(message, usage)

    talk = Full()
    agent = agent_with(no_parameters("step", lambda: "stepped"))
    with pytest.raises(OSError, match="no space"):
        agent.run("go", provider=ScriptedProvider(called("step")), talk=talk)
    assert [message.text for message in talk.messages] == ["go", "", "stepped"]


def test_two_runs_do_not_go_on_with_one_talk_at_once():
    """Their messages would be mixed, and calls would be cut from their results."""

    async def main():
        said, talk = asyncio.Event(), Kept()

        async def pause():
            said.set()
            await asyncio.sleep(SECONDS)

        agent = agent_with()
        first = asyncio.create_task(agent.arun("one", provider=ScriptedProvider(["Once", pause]), talk=talk))
        await asyncio.wait_for(said.wait(), SECONDS)
        with pytest.raises(AgentError, match="another run goes on with session session-1"):
            await agent.arun("two", provider=ScriptedProvider("never"), talk=talk)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await agent.arun("three", provider=ScriptedProvider("at last"), talk=talk)
        return talk.messages

    assert [message.text for message in asyncio.run(main())] == ["one", "Once", "three", "at last"]
