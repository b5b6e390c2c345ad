"""Conversations of agents, kept in the sessions of a journal message by message."""

from __future__ import annotations

import pytest

from gramercy import Agent, create_tool
from gramercy.agents.talks import SessionTalk
from gramercy.errors import JournalError
from gramercy.journal.opening import open_journal
from gramercy.journal.sessions import MemorySessions, sessions_of
from gramercy.providers.base import Message, ModelCall, Usage
from gramercy.providers.scripted import ScriptedProvider

greet = create_tool(
    "greet",
    "Greets.",
    {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    lambda arguments: f"Hello, {arguments['name']}!",
)
AGENT = Agent("greeter", "Greet.", "Scripted/one", [greet])
CALL = {"name": "greet", "arguments": {"name": "Ada"}}


@pytest.fixture(name="sessions", params=["memory", "sqlite"])
def sessions_fixture(request, tmp_path):
    """Return the sessions of each kind of journal."""
    if request.param == "memory":
        yield MemorySessions()
        return
    journal = open_journal(str(tmp_path / "journal.db"))
    yield sessions_of(journal)
    journal.close()


def talked(sessions, *answers, message="I am Ada", **about):
    """Have the agent answer one message in a new talk; return the talk."""
    talk = SessionTalk.begin(sessions, agent="greeter", model="Scripted/one", **about)
    AGENT.run(message, provider=ScriptedProvider(*answers, usage=Usage(10, 2)), talk=talk)
    return talk


def test_a_run_is_kept_and_goes_on_in_another_process(sessions):
    talk = talked(sessions, ["One moment.", CALL], "Done.")
    again = SessionTalk.resume(sessions, talk.session)
    assert again.conversation == talk.conversation
    assert [message.role for message in again.conversation] == ["user", "assistant", "tool", "assistant"]
    assert again.conversation[1].calls == (ModelCall("call_1_2", "greet", '{"name":"Ada"}'),)
    model = ScriptedProvider("You are Ada.")
    AGENT.run("Who am I?", provider=model, talk=again, conversation=again.conversation)
    assert [message.text for message in model.requests[0].messages][-2:] == ["Done.", "Who am I?"]
    assert sessions.session(talk.session).messages == 6


def test_a_conversation_has_the_title_of_its_first_message(sessions):
    talk = talked(sessions, "hi", message="Mend the fence\nplease")
    assert (talk.record.title, talk.record.agent) == ("Mend the fence please", "greeter")
    assert sessions.session(talk.session) is not None


def test_what_was_never_said_is_not_recorded(sessions):
    SessionTalk.begin(sessions, agent="greeter")
    assert sessions.sessions() == []


def test_answers_are_kept_with_model_and_usage(sessions):
    talk = talked(sessions, "hi")
    talk.model = "Scripted/two"
    model = ScriptedProvider("again", usage=Usage(3, 4))
    AGENT.run("more", provider=model, talk=talk, conversation=talk.conversation)
    answers = [each.data for each in sessions.messages(talk.session) if each.role == "assistant"]
    assert answers == [
        {"model": "Scripted/one", "usage": {"input": 10, "output": 2}},
        {"model": "Scripted/two", "usage": {"input": 3, "output": 4}},
    ]


def test_calls_are_known_again_by_session_message_and_place(sessions):
    talk = SessionTalk.begin(sessions)
    calls = (ModelCall("1", "greet"), ModelCall("1", "greet"), ModelCall("2", "greet"))
    talk.add(Message("assistant", "", calls))
    names = [talk.identity(call) for call in calls]
    assert len(set(names)) == 3
    again = SessionTalk.resume(sessions, talk.session)
    assert [again.identity(call) for call in again.conversation[0].calls] == names
    assert again.identity(ModelCall("9", "greet")) == ""
    talk.add(Message("assistant", "", calls))
    assert talk.identity(calls[0]) not in names


@pytest.mark.parametrize("asked", ["fence-2", "fence", "paint the fence", "green"])
def test_a_conversation_is_found_by_id_its_beginning_or_its_title(sessions, asked):
    talked(sessions, "hi", message="other", name="other-1")
    talked(sessions, "hi", message="Paint the fence green", name="fence-2")
    if asked == "paint the fence":
        sessions.rename("fence-2", "Paint the fence")
    if asked == "green":
        sessions.rename("fence-2", "all in Green")
    talked(sessions, "hi", message="nothing", name="last-1")
    assert SessionTalk.resume(sessions, asked).session == "fence-2"
    assert SessionTalk.latest(sessions).session == "last-1"


def test_what_is_not_there_is_told(sessions):
    with pytest.raises(JournalError, match="there is no session fence"):
        SessionTalk.resume(sessions, "fence")
    with pytest.raises(JournalError, match="no conversation to go on with"):
        SessionTalk.latest(sessions)
    talked(sessions, "hi", name="fence")
    with pytest.raises(JournalError, match="there is a session fence already"):
        SessionTalk.begin(sessions, name="fence")
    with pytest.raises(JournalError, match="there is no session  "):
        SessionTalk.resume(sessions, " ")


def test_two_programs_do_not_talk_in_one_conversation(sessions):
    """Each would answer calls of the other."""
    talk = talked(sessions, "hi")
    other = SessionTalk.resume(sessions, talk.session)
    other.add(Message("user", "from here"))
    with pytest.raises(JournalError, match="another program has gone on"):
        talk.add(Message("user", "from there"))
    assert [each.text for each in sessions.messages(talk.session)][-1] == "from here"
