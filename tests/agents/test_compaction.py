"""A summary by the model takes the place of what was said before, and that is told."""

from __future__ import annotations

import asyncio

import pytest

from gramercy.agents.compaction import LONGEST_TRANSCRIPT, compact, transcript
from gramercy.agents.talks import SessionTalk
from gramercy.errors import AgentError, ProviderError
from gramercy.gram.agents import ModelName
from gramercy.journal.sessions import MemorySessions
from gramercy.providers.base import Message, ModelCall, StopPart, TextPart, Usage
from gramercy.providers.scripted import ScriptedProvider

MODEL = ModelName.parse("Scripted/one")


def long_talk(turns=4):
    """Return a talk with calls in it."""
    talk = SessionTalk.begin(MemorySessions(), model="Scripted/one")
    for turn in range(1, turns + 1):
        talk.add(Message("user", f"question {turn}"))
        talk.add(Message("assistant", "", (ModelCall(f"c{turn}", "look", '{"at": 1}'),)))
        talk.add(Message("tool", f"result {turn} " + "x" * 9_000, call_id=f"c{turn}"))
        talk.add(Message("assistant", f"answer {turn}"))
    return talk


@pytest.mark.contract("agents.memory.compaction")
def test_the_earlier_turns_become_a_summary_and_the_latest_stay():
    talk = long_talk()
    model = ScriptedProvider("They looked twice.", usage=Usage(100, 5))
    done = asyncio.run(compact(talk, model, MODEL))
    assert (done.summary, done.messages, done.usage) == ("They looked twice.", 8, Usage(100, 5))
    assert done.tokens_after < done.tokens_before
    first, *rest = talk.conversation
    assert first.text.endswith("They looked twice.")
    assert [message.text for message in rest if message.role == "user"] == ["question 3", "question 4"]
    (request,) = model.requests
    assert request.tools == ()
    assert "User: question 2" in request.messages[0].text
    assert 'Assistant calls look with {"at": 1}' in request.messages[0].text
    assert "question 3" not in request.messages[0].text
    assert len(request.messages[0].text) < 6_000
    assert len(talk.kept) == 17


def test_a_second_summary_is_of_the_first_and_what_followed():
    talk = long_talk()
    asyncio.run(compact(talk, ScriptedProvider("first summary"), MODEL))
    talk.add(Message("user", "question 5"))
    talk.add(Message("assistant", "answer 5"))
    model = ScriptedProvider("second summary")
    asyncio.run(compact(talk, model, MODEL))
    assert "first summary" in model.requests[0].messages[0].text
    assert "question 3" in model.requests[0].messages[0].text
    assert [message.text for message in talk.conversation if message.role == "user"][1:] == [
        "question 4",
        "question 5",
    ]


def test_a_short_talk_is_summarized_whole():
    talk = long_talk(1)
    assert asyncio.run(compact(talk, ScriptedProvider("all"), MODEL)).messages == 4
    assert len(talk.conversation) == 1


@pytest.mark.contract("agents.memory.compaction")
@pytest.mark.parametrize("answer", ["", " \n", ProviderError("gone")])
def test_without_a_summary_nothing_changes(answer):
    talk = long_talk()
    before = talk.conversation
    with pytest.raises((AgentError, ProviderError)):
        asyncio.run(compact(talk, ScriptedProvider(answer), MODEL))
    assert talk.conversation == before


def test_half_a_summary_is_none():
    class Cut:
        name = "cut"

        async def chat(self, request):
            del request
            yield TextPart("They loo")
            yield StopPart("length")

        async def aclose(self):
            """Do nothing."""

    talk = long_talk()
    with pytest.raises(AgentError, match=r"stays as it is: there is no summary, it was cut off"):
        asyncio.run(compact(talk, Cut(), MODEL))
    assert len(talk.kept) == 16


def test_a_talk_with_open_calls_or_without_messages_is_left_alone():
    talk = SessionTalk.begin(MemorySessions())
    with pytest.raises(AgentError, match="nothing to summarize yet"):
        asyncio.run(compact(talk, ScriptedProvider("x"), MODEL))
    talk.add(Message("user", "go"))
    talk.add(Message("assistant", "", (ModelCall("1", "look"),)))
    with pytest.raises(AgentError, match="nothing to summarize yet"):
        asyncio.run(compact(talk, ScriptedProvider("x"), MODEL))


def test_a_huge_talk_is_told_from_its_end():
    messages = [Message("user", f"{number} " + "x" * 7_000) for number in range(100)]
    told = transcript(messages)
    assert len(told) < LONGEST_TRANSCRIPT + 1_000
    assert told.startswith("[43 earlier messages are left out]")
    assert "99 xxx" in told
