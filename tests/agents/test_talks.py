"""Conversations of agents, kept in the sessions of a journal message by message."""

from __future__ import annotations

import pytest

from gramercy import Agent, Executor, Registry, create_tool
from gramercy.agents.talks import SessionTalk, fork_session, go_back
from gramercy.errors import JournalError
from gramercy.execution.approval import Approved
from gramercy.journal.base import Facts, NewCall, State
from gramercy.journal.opening import open_journal
from gramercy.journal.sessions import MemorySessions, sessions_of
from gramercy.journal.sqlite import SqliteJournal
from gramercy.providers.base import Message, ModelCall, Usage
from gramercy.providers.scripted import ScriptedProvider
from gramercy.testing.image import MemoryImage

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


@pytest.mark.contract("agents.memory.kept")
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


@pytest.mark.contract("agents.memory.kept")
def test_answers_are_kept_with_model_and_usage(sessions):
    talk = talked(sessions, "hi")
    for model in ("OpenAI/gpt-4o-mini", "Nobody/knows"):
        other = Agent("greeter", "Greet.", model)
        provider = ScriptedProvider("again", usage=Usage(3, 4))
        other.run("more", provider=provider, talk=talk, conversation=talk.conversation)
    answers = [each.data for each in sessions.messages(talk.session) if each.role == "assistant"]
    assert answers == [
        {"model": "Scripted/one", "usage": {"input": 10, "output": 2}, "cost": 0.0},
        {"model": "OpenAI/gpt-4o-mini", "usage": {"input": 3, "output": 4}, "cost": pytest.approx(2.85e-06)},
        {"model": "Nobody/knows", "usage": {"input": 3, "output": 4}},
    ]


@pytest.mark.contract("agents.memory.identity")
def test_calls_are_known_again_by_their_place(sessions):
    talk = talked(sessions, "hi")
    calls = (ModelCall("1", "greet"), ModelCall("1", "greet"), ModelCall("1", "greet", '{"a": 1}'))
    talk.add(Message("assistant", "", calls))
    names = [talk.identity(call) for call in calls]
    assert len(set(names)) == 3
    again = SessionTalk.resume(sessions, talk.session)
    assert [again.identity(call) for call in again.conversation[-1].calls] == names
    talk.take_back()
    talk.add(Message("user", "again"))
    talk.add(Message("assistant", "", calls))
    assert talk.identity(calls[0]) not in names


@pytest.mark.contract("agents.memory.identity")
def test_a_call_like_one_that_is_not_settled_is_the_same(tmp_path):
    journal = open_journal(str(tmp_path / "journal.db"))
    sessions = sessions_of(journal)
    talk, other = talked(sessions, "hi"), talked(sessions, "hi")
    first = ModelCall("1", "greet", '{"a": 1, "b": [2]}')
    like = ModelCall("9", "greet", '{"b":[2],"a":1}')
    talk.add(Message("assistant", "", (first,)))
    known = talk.identity(first)
    key = journal.begin(NewCall("1", "greet", "dangerous", {}, session=talk.session, identity=known))
    talk.add(Message("assistant", "", (like,)))
    inner, _ = talk.nested(like, "helper")
    for each in (talk, SessionTalk.resume(sessions, talk.session), inner):
        assert each.identity(like) == known
    for each in (
        talk.identity(ModelCall("1", "greet", '{"a": 2, "b": [2]}')),
        talk.identity(ModelCall("1", "meet", first.arguments)),
        talk.identity(ModelCall("1", "greet", first.arguments[:-1])),
        other.identity(first),
    ):
        assert each != known
    for state in (State.EXECUTING, State.DONE):
        journal.move(key, state, Facts())
        assert talk.identity(like) == known
    journal.deliver(key)
    assert talk.identity(like) != known
    journal.close()


@pytest.mark.contract("agents.memory.found-again")
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


@pytest.mark.contract("agents.memory.one-writer")
def test_two_programs_do_not_talk_in_one_conversation(sessions):
    """Each would answer calls of the other."""
    talk = talked(sessions, "hi")
    other = SessionTalk.resume(sessions, talk.session)
    other.add(Message("user", "from here"))
    with pytest.raises(JournalError, match="another program has gone on"):
        talk.add(Message("user", "from there"))
    with pytest.raises(JournalError, match="another program has gone on"):
        talk.take_back()
    assert [each.text for each in sessions.messages(talk.session)][-1] == "from here"


@pytest.mark.contract("agents.memory.fork")
def test_a_talk_is_forked_at_a_message(sessions):
    talk = talked(sessions, "one", message="first", project="/garden")
    AGENT.run("second", provider=ScriptedProvider("two"), talk=talk, conversation=talk.conversation)
    forked = talk.fork(2)
    assert [message.text for message in forked.conversation] == ["first", "one"]
    assert (forked.record.title, forked.record.project) == ("first (fork)", "/garden")
    forked.add(Message("user", "another way"))
    assert len(talk.conversation) == 4
    assert len(SessionTalk.resume(sessions, forked.session).conversation) == 3
    with pytest.raises(JournalError, match="messages 1 to 4: it cannot be forked at 5"):
        talk.fork(5)


@pytest.mark.contract("agents.memory.fork")
def test_a_fork_keeps_calls_together_with_their_results(sessions):
    """And never runs what was under way in the other conversation."""
    talk = SessionTalk.begin(sessions, "x")
    calls = (ModelCall("1", "greet"), ModelCall("2", "greet"))
    for message in (
        Message("user", "go"),
        Message("assistant", "", calls),
        Message("tool", "hello", call_id="1"),
    ):
        talk.add(message)
    told = [(each.call_id, each.is_error) for each in talk.fork(2).conversation[2:]]
    assert told == [("1", False), ("2", True)]
    assert "was not run here" in talk.fork().conversation[-1].text
    assert len(talk.conversation) == 3


@pytest.mark.contract("agents.memory.take-back")
def test_a_message_is_taken_back_with_all_that_followed(sessions):
    talk = talked(sessions, "one", message="first")
    AGENT.run("second", provider=ScriptedProvider(CALL, "two"), talk=talk, conversation=talk.conversation)
    taken = talk.take_back()
    assert (taken.text, taken.messages) == ("second", 4)
    assert [message.text for message in talk.conversation] == ["first", "one"]
    assert sessions.search("second") == []
    AGENT.run("third", provider=ScriptedProvider("three"), talk=talk, conversation=talk.conversation)
    assert [each.number for each in sessions.messages(talk.session)] == [1, 2, 3, 4]
    assert (talk.take_back().text, talk.take_back().text, talk.take_back()) == ("third", "first", None)


@pytest.mark.contract("agents.memory.identity")
def test_the_same_call_runs_again_once_its_result_was_delivered(tmp_path):
    """Also where the first one was taken back: the journal would give its answer."""
    paid = []
    pay = create_tool("pay", "Pays.", {"type": "object"}, lambda _: paid.append(1), safety_level="dangerous")
    agent, journal = Agent("payer", "Pay.", "Scripted/one", [pay]), open_journal(str(tmp_path / "journal.db"))
    executor = Executor(Registry(), lambda *_: Approved(), journal=journal)
    talk = SessionTalk.begin(sessions_of(journal))
    for _ in range(3):
        model = ScriptedProvider({"name": "pay"}, {"name": "pay"}, "done")
        agent.run("pay", provider=model, talk=talk, conversation=talk.conversation, executor=executor)
        talk.take_back()
    assert len(paid) == 6
    journal.close()


@pytest.mark.contract("agents.memory.take-back")
def test_images_go_back_with_the_talk(sessions):
    image = MemoryImage(name="python")
    talk = SessionTalk.begin(sessions, images=[image])
    talk.add(Message("user", "set x"))
    image.evaluate("x = 1")
    talk.add(Message("assistant", "done"))
    talk.add(Message("user", "set x again"))
    image.evaluate("x = 2")
    talk.add(Message("assistant", "done"))
    taken = talk.take_back()
    assert taken is not None
    told = go_back([image], taken.states)
    assert image.namespace["x"] == 1
    assert told == ["python: back at c2"]
    assert go_back([image], talk.fork(1).states()) == ["python: back at c1"]
    assert "x" not in image.namespace


def test_a_state_that_is_not_there_any_more_is_told():
    """A talk that is resumed in another process has another image."""
    image = MemoryImage(name="python")
    image.evaluate("x = 1")
    told = go_back([image], {"python": "gone.7"})
    assert told == ["python: its state at that message is not kept any more; it stays as it is"]
    assert go_back([image], {})[0].startswith("python: its state at that message is not known")
    assert image.namespace["x"] == 1


@pytest.mark.contract("agents.memory.summary")
def test_a_summary_stands_for_what_was_said_before(sessions):
    talk = talked(sessions, "one", message="first")
    for number in (2, 3):
        talk.add(Message("user", f"message {number}"))
        talk.add(Message("assistant", f"answer {number}"))
    talk.summarize("they talked", until=4)
    talk.add(Message("user", "last"))
    for each in (talk, SessionTalk.resume(sessions, talk.session)):
        first, *rest = each.conversation
        assert (first.role, first.text.endswith("\n\nthey talked")) == ("user", True)
        assert [message.text for message in rest] == ["message 3", "answer 3", "last"]
        assert len(each.kept) == 8
    assert talk.take_back().text == "last"
    assert talk.take_back().text == "message 3"
    assert [message.text for message in talk.conversation] == ["first", "one", "message 2", "answer 2"]


@pytest.mark.contract("agents.memory.nested")
def test_the_talk_of_a_nested_agent_belongs_to_the_call_that_asked_it(sessions):
    talk = SessionTalk.begin(sessions, "outer", project="/garden")
    calls = (ModelCall("1", "helper"), ModelCall("2", "helper"))
    talk.add(Message("user", "go"))
    talk.add(Message("assistant", "", calls))
    first, said = talk.nested(calls[0], "helper")
    assert said == ()
    first.add(Message("user", "mend it"))
    again, said = SessionTalk.resume(sessions, talk.session).nested(calls[0], "helper")
    assert (again.session, [each.text for each in said]) == (first.session, ["mend it"])
    other, _ = talk.nested(calls[1], "helper")
    assert other.session != first.session
    assert (first.record.agent, first.record.project) == ("helper", "/garden")
    assert [each.id for each in sessions.sessions()] == [talk.session]
    assert sessions.remove(talk.session)
    assert sessions.session(first.session) is None


@pytest.mark.contract("agents.memory.damaged")
def test_a_damaged_conversation_is_named_and_the_others_are_read(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")
    sessions = sessions_of(journal)
    good, bad = talked(sessions, "hi"), talked(sessions, "hi", "ho", name="bad")
    AGENT.run("more", provider=ScriptedProvider("ho"), talk=bad, conversation=bad.conversation)
    journal._write(
        lambda: journal._run("UPDATE messages SET data = '{' WHERE session = 'bad' AND number = 3", ()),
        is_lasting=False,
    )
    with pytest.raises(JournalError, match=r"session bad cannot be gone on with: message 3 is damaged"):
        SessionTalk.resume(sessions, "bad")
    assert len(sessions.sessions()) == 2
    assert {each.message.session for each in sessions.search("hi")} == {good.session, "bad"}
    name = fork_session(sessions, "bad", 2)
    assert len(SessionTalk.resume(sessions, name).conversation) == 2
    journal.close()


def test_any_text_of_a_model_is_kept(sessions):
    talk = SessionTalk.begin(sessions, "x")
    talk.add(Message("assistant", "a\0b\ud800", (ModelCall("\ud800", "greet", '{"a": "\ud800"}'),)))
    again = SessionTalk.resume(sessions, talk.session)
    assert again.conversation[0].calls[0].name == "greet"
