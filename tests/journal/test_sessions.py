"""Conversations: what every store keeps of them and finds again, by words that all of them split alike."""

from __future__ import annotations

import threading
from time import perf_counter

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gramercy.errors import JournalError
from gramercy.journal.base import Facts, NewCall, State
from gramercy.journal.memory import MemoryJournal
from gramercy.journal.opening import open_journal
from gramercy.journal.sessions import MemorySessions, nested_id, root_of, sessions_of
from gramercy.journal.sqlite import SqliteJournal
from gramercy.journal.words import LONGEST_SEARCHED, words_of


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def journal(request, tmp_path):
    """Return a journal of each kind."""
    if request.param == "postgres":
        pytest.importorskip("gramercy.journal.postgres", reason="journals on PostgreSQL are not there yet")
        where = request.getfixturevalue("postgres_address")
    else:
        where = "memory" if request.param == "memory" else str(tmp_path / "journal.db")
    opened = open_journal(where)
    yield opened
    opened.close()


@pytest.fixture
def sessions(journal):
    return sessions_of(journal)


@pytest.mark.contract("journal.policy.sessions")
def test_a_conversation_is_kept_message_by_message(sessions):
    name = sessions.begin("Mend the fence\nplease", agent="mender", model="m-1", project="/garden")
    assert sessions.add(name, "user", "Mend the fence") == 1
    assert sessions.add(name, "assistant", "Done.", data={"usage": {"tokens": 7}}, call=42) == 2
    found = sessions.session(name)
    assert (found.title, found.agent, found.model) == ("Mend the fence please", "mender", "m-1")
    assert (found.project, found.principal, found.messages) == ("/garden", "local", 2)
    assert found.changed_at >= found.at > 0
    first, second = sessions.messages(name)
    assert (first.number, first.role, first.text, first.data, first.call) == (
        1,
        "user",
        "Mend the fence",
        {},
        0,
    )
    assert (second.number, second.data, second.call) == (2, {"usage": {"tokens": 7}}, 42)
    assert sessions.messages(name, after=1) == [second]
    assert sessions.messages(name, most=1) == [first]
    assert sessions.session("nobody") is None
    assert sessions.messages("nobody") == []


def test_the_latest_conversation_comes_first(sessions):
    first, second = sessions.begin("one", project="/a"), sessions.begin("two", project="/b")
    sessions.add(second, "user", "x")
    sessions.add(first, "user", "y")
    listed = sessions.sessions()
    assert [each.id for each in listed] == [first, second]
    assert [each.id for each in sessions.sessions(project="/b")] == [second]
    assert [each.id for each in sessions.sessions(before=listed[0].changed_at)] == [second]
    assert len(sessions.sessions(most=1)) == 1


@pytest.mark.contract("journal.policy.sessions-search")
@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("fence", [3, 1]),
        ("FENCE gate", [3]),
        ("write_file", [2]),
        ("write-file", [2]),
        ('"the fence"', [1]),
        ('"fence the"', []),
        ("fen*", [3, 1]),
        ("fen", []),
        ("Zaune", [4]),
        ("zäune", [4]),
        ("today.md", [2]),
        ("today", [2]),
        ("日本", [5]),
        ("c3po", [6]),
        ("don't", [6]),
        ("", []),
        ("!?", []),
        ('"', []),
        ("OR", []),
        ("fence AND", [3]),
        ("x:y", []),
        ("1e5", [6]),
    ],
)
def test_messages_are_found_by_their_words(sessions, question, found):
    """Signs of a query language are no more than signs here."""
    name = sessions.begin()
    for text in (
        "Mend the fence!",
        "calls write_file with notes/today.md",
        "fence, and (gate)",
        "Die Zäune stehen",
        "日本 の 庭",
        "C3PO says don't pay 1e5",
    ):
        sessions.add(name, "user", text)
    assert [each.message.number for each in sessions.search(question)] == found


def test_what_is_found_comes_with_its_session_and_the_text_around(sessions):
    here, there = sessions.begin("here", project="/a"), sessions.begin("there", project="/b")
    for name in (here, there):
        sessions.add(name, "user", f"{'before ' * 40}needle\nin {'after ' * 40}")
    found = sessions.search("needle", project="/a")
    assert [each.session.title for each in found] == ["here"]
    assert "before needle in after" in found[0].excerpt
    assert found[0].excerpt.startswith("…")
    assert len(found[0].excerpt) < 160
    assert len(sessions.search("needle", most=1)) == 1


def test_a_removed_conversation_is_found_no_more(sessions):
    kept, gone = sessions.begin(), sessions.begin()
    for name in (kept, gone):
        sessions.add(name, "user", "the same words")
    assert sessions.remove(gone)
    assert not sessions.remove(gone)
    assert [each.session.id for each in sessions.search("same words")] == [kept]
    assert sessions.messages(gone) == []
    sessions.add(kept, "user", "the same words again")
    assert [each.message.number for each in sessions.search("same words")] == [2, 1]


def test_a_conversation_can_be_renamed(sessions):
    name = sessions.begin("one")
    sessions.rename(name, "x" * 500)
    assert len(sessions.session(name).title) == 120
    with pytest.raises(JournalError, match="there is no session nobody"):
        sessions.rename("nobody", "two")


def test_what_is_not_there_or_twice_is_told(sessions):
    with pytest.raises(JournalError, match="there is no session nobody"):
        sessions.add("nobody", "user", "x")
    assert sessions.begin(name="chat-1") == "chat-1"
    with pytest.raises(JournalError, match="there is a session chat-1 already"):
        sessions.begin(name="chat-1")
    with pytest.raises(JournalError, match="cannot name a session"):
        sessions.begin(name="two words")


def test_any_text_can_be_said(sessions):
    """Evaluated code prints what it likes."""
    name = sessions.begin("\0", agent="\ud800")
    for text in ("", "\0a\ud800b", "x" * (LONGEST_SEARCHED + 10), "w " * LONGEST_SEARCHED, "ﬁne ﬁsh"):
        sessions.add(name, "tool", text, data={"raw": "\0"})
    texts = [message.text for message in sessions.messages(name)]
    assert texts[:2] == ["", "\ufffda\ufffdb"]
    assert len(texts[2]) == LONGEST_SEARCHED + 10
    assert [each.message.number for each in sessions.search("fine fish")] == [5]


def test_messages_after_a_number_are_cut_off(sessions):
    name = sessions.begin()
    for number in range(1, 6):
        sessions.add(name, "user", f"word{number}")
    assert sessions.cut(name, 3) == 2
    assert sessions.session(name).messages == 3
    assert sessions.search("word4") == []
    assert sessions.add(name, "user", "word6") == 4
    assert sessions.cut(name, 9) == 0
    with pytest.raises(JournalError, match="there is no session nobody"):
        sessions.cut("nobody", 0)


def test_a_message_that_does_not_follow_is_refused(sessions):
    name = sessions.begin()
    assert sessions.add(name, "user", "one", after=0) == 1
    with pytest.raises(JournalError, match="has 1 messages and not 0: another program"):
        sessions.add(name, "user", "other", after=0)
    assert [each.text for each in sessions.messages(name)] == ["one"]


def test_conversations_are_found_by_their_titles(sessions):
    first, second = sessions.begin("Mend the Zäune"), sessions.begin("Paint the fence", project="/garden")
    assert [each.id for each in sessions.titled("zaune")] == [first]
    assert {each.id for each in sessions.titled("the")} == {first, second}
    assert [each.id for each in sessions.titled("the", project="/garden")] == [second]
    assert sessions.titled("") == sessions.titled("nothing") == []


def test_answers_are_gone_through_in_their_order(sessions):
    names = [sessions.begin(), sessions.begin()]
    for number in range(4):
        sessions.add(names[number % 2], "assistant", f"answer {number}", data={"n": number})
        sessions.add(names[number % 2], "user", "question")
    sessions.add(names[0], "summary", "all of it")
    assert [each.data.get("n") for each in sessions.answers()] == [0, 1, 2, 3, None]
    assert [each.data["n"] for each in sessions.answers(names[1])] == [1, 3]
    assert list(sessions.answers(since=sessions.session(names[0]).changed_at + 100)) == []


def test_nested_conversations_go_with_the_one_they_are_in(sessions):
    outer = sessions.begin(name="a+b")
    inner = sessions.begin(name=nested_id(outer, "0123456789ab", 0))
    innermost = sessions.begin(name=nested_id(inner, "0123456789ab", 1))
    beside = sessions.begin(name="a+bc")
    for name in (outer, inner, innermost, beside):
        sessions.add(name, "user", "word")
    assert [each.id for each in sessions.sessions()] == [beside, outer]
    assert (root_of(innermost), root_of(beside)) == (outer, beside)
    assert len(sessions.search("word")) == 4
    assert sessions.secret(outer) != sessions.secret(inner)
    assert sessions.remove(outer)
    assert [each.session.id for each in sessions.search("word")] == [beside]
    with pytest.raises(JournalError, match="there is no session"):
        sessions.secret(inner)


def test_a_call_that_is_not_settled_is_found_by_the_beginning_of_its_identity(journal, sessions):
    if isinstance(journal, MemoryJournal):
        assert sessions.unsettled("s", "") == ""
        return
    outer = sessions.begin(name="s")
    inner = sessions.begin(name=nested_id(outer, "0123456789ab", 0))
    call = NewCall("1", "pay", "dangerous", {}, session=inner, identity="s:x:1")
    key = journal.begin(call)
    assert sessions.unsettled("s", "s:x:") == "s:x:1"
    assert sessions.unsettled("s", "s:y:") == sessions.unsettled("t", "s:x:") == ""
    for state in (State.EXECUTING, State.IN_DOUBT):
        journal.move(key, state, Facts())
        assert sessions.unsettled("s", "s:x:") == "s:x:1"
    journal.deliver(key)
    assert sessions.unsettled("s", "s:x:") == "s:x:1"
    journal.move(key, State.DONE, Facts())
    journal.deliver(key)
    assert sessions.unsettled("s", "s:x:") == ""


def test_messages_of_many_threads_are_numbered_without_a_gap(sessions):
    name = sessions.begin()

    def talk():
        for _ in range(10):
            sessions.add(name, "user", "word")

    threads = [threading.Thread(target=talk) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [message.number for message in sessions.messages(name)] == list(range(1, 41))
    assert sessions.session(name).messages == 40


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_of_many_who_begin_one_conversation_one_does(store, request, tmp_path):
    """The others are told that it is there, in the same words on every store."""
    where = str(tmp_path / "journal.db") if store == "sqlite" else request.getfixturevalue("postgres_address")
    journals = [open_journal(where) for _ in range(4)]
    ready, outcomes = threading.Barrier(len(journals)), []

    def begin(journal):
        for number in range(10):
            ready.wait(60)
            try:
                outcomes.append(sessions_of(journal).begin(name=f"s{number}"))
            except JournalError as error:
                outcomes.append(f"{error}")

    threads = [threading.Thread(target=begin, args=(journal,)) for journal in journals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for journal in journals:
        journal.close()
    for number in range(10):
        assert outcomes.count(f"s{number}") == 1
        assert outcomes.count(f"there is a session s{number} already") == 3


def test_another_process_reads_what_was_said(tmp_path):
    """And the calls that were made in it."""
    place = str(tmp_path / "journal.db")
    writing, reading = open_journal(place), open_journal(place)
    try:
        name = sessions_of(writing).begin("one")
        sessions_of(writing).add(name, "user", "hello there")
        writing.note(NewCall("1", "read_file", "safe", {}, session=name), State.DONE)
        assert [each.session.id for each in sessions_of(reading).search("hello")] == [name]
        assert len(reading.records(session=name)) == 1
    finally:
        writing.close()
        reading.close()


TEXTS = st.lists(st.text("ab ä_ß1Éé-ﬁ", max_size=12), min_size=1, max_size=4)


@pytest.mark.contract("journal.policy.sessions-search")
@example(texts=["1É1a"], question="a")
@example(texts=["1É1a b"], question='"1e1a b"')
@given(texts=TEXTS, question=st.text('abä1e"* ', max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_every_store_finds_the_same(journal, texts, question):
    """The one in memory is the model."""
    stored, model = sessions_of(journal), MemorySessions()
    name = stored.begin(project="/here")
    other = model.begin()
    for text in texts:
        stored.add(name, "user", text)
        model.add(other, "user", text)
    found = [each.message.number for each in stored.search(question) if each.session.id == name]
    assert found == [each.message.number for each in model.search(question)]
    stored.remove(name)


def test_words_are_letters_and_digits_without_accents():
    assert words_of("Ärger_im-Büro: 3,5 % von ﬁx!") == ["arger", "im", "buro", "3", "5", "von", "fix"]


@pytest.mark.contract("journal.policy.sessions-speed")
def test_a_thousand_conversations_are_searched_at_once(tmp_path):
    """Journal, sessions: 1,000 sessions search in 50 ms; a common word, a rare one and a phrase."""
    opened = SqliteJournal(tmp_path / "journal.db")
    sessions = sessions_of(opened)
    run, insert = opened._run, opened._insert

    # Ten thousand commits would take a minute.
    def fill():
        for number in range(1_000):
            name = f"s{number}"
            run("INSERT INTO sessions VALUES (?, '', '', '', '', '', 0, ?, 10, ?)", (name, number, name))
            for place in range(1, 11):
                text = f"message {place} of conversation {number} about the common garden"
                row = (name, place, 0.0, "user", text, "{}", 0, f"{name}-{place}")
                columns = "session, number, at, role, text, data, call, token"
                key = insert(f"INSERT INTO messages ({columns}) VALUES (?,?,?,?,?,?,?,?)", row)
                run(opened.WORDS["add_words"], (key, " ".join(words_of(text))))

    opened._write(fill, is_lasting=False)
    for question, count in (("garden", 50), ("conversation 777", 10), ('"about the common gard*"', 0)):
        best = min(_seconds(sessions, question, count) for _ in range(5))
        assert best < 0.05
    opened.close()


def _seconds(sessions, question, count):
    began = perf_counter()
    assert len(sessions.search(question)) == count
    return perf_counter() - began
