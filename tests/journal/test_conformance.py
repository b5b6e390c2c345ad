"""What every journal does, whatever it is kept in; the suite runs on each of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import time

import pytest

from gramercy.errors import MovedError
from gramercy.journal.base import FINAL, MOVES, Facts, NewCall, Question, Ruling, State, iterate
from gramercy.journal.opening import open_journal

WRITE = NewCall("c1", "write_file", "dangerous", {"path": "a.txt", "text": "x"}, identity="me:write")
READ = NewCall("c2", "read_file", "safe", {"path": "a.txt"})
QUESTION = Question(
    "Write a.txt?", "seal-1", {"arguments": "d1"}, "it is dangerous", {"would_change": "a.txt"}
)
ASKED = Facts(question=QUESTION, expires_at=4e9)
YES = Facts(ruling=Ruling(approved=True, by="person", seal="seal-1", reason="fine"))
NO = Facts(ruling=Ruling(approved=False, by="person", seal="seal-1", reason="not now", refuser="person"))


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def journal(request, tmp_path):
    if request.param == "postgres":
        pytest.importorskip("gramercy.journal.postgres", reason="journals on PostgreSQL are not there yet")
        where = request.getfixturevalue("postgres_address")
    else:
        where = "memory" if request.param == "memory" else tmp_path / "journal.db"
    opened = open_journal(where)
    yield opened
    opened.close()


def approved(journal):
    key = journal.begin(WRITE, State.AWAITING, ASKED)
    journal.move(key, State.READY, YES, expected=[State.AWAITING])
    return key


def test_a_dangerous_call_goes_through_its_whole_life(journal):
    key = journal.begin(WRITE, State.AWAITING, ASKED)
    record = journal.record(key)
    assert (record.state, record.step, record.call) == (State.AWAITING, 2, WRITE)
    assert record.facts.question == QUESTION
    assert record.asked_at >= record.at > 0
    journal.move(key, State.READY, YES)
    fence = journal.claim(key, Facts(image="python", epoch="e1"))
    journal.move(
        key, State.DONE, Facts(fence=fence, content="written", size=7, elapsed_ms=1.5, files=("a.txt",))
    )
    record = journal.record(key)
    assert (record.state, record.step) == (State.DONE, 5)
    assert record.facts.ruling == YES.ruling
    assert (record.facts.content, record.facts.files, record.facts.image) == ("written", ("a.txt",), "python")
    states = [entry.state for entry in journal.entries(key)]
    assert states == [State.REQUESTED, State.AWAITING, State.READY, State.EXECUTING, State.DONE]
    assert [entry.step for entry in journal.entries(key)] == [1, 2, 3, 4, 5]


def test_a_safe_call_is_noted_once(journal):
    journal.note(READ, State.DONE, Facts(elapsed_ms=2.0, size=10))
    (entry,) = journal.entries()
    assert (entry.call_id, entry.tool, entry.state, entry.facts.size) == ("c2", "read_file", State.DONE, 10)
    (record,) = journal.records()
    assert (record.state, record.call.arguments) == (State.DONE, {"path": "a.txt"})


def test_keys_are_never_given_twice(journal):
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: journal.begin(READ), range(64)))
    assert len(set(keys)) == 64


def paths():
    """Return a shortest way to every state."""
    found: dict[State, tuple[State, ...]] = {}
    waiting: list[tuple[State, ...]] = [(State.REQUESTED,)]
    while waiting:
        path = waiting.pop(0)
        if path[-1] not in found:
            found[path[-1]] = path
            waiting += [(*path, state) for state in sorted(MOVES.get(path[-1], ()))]
    return found


def at_state(journal, state):
    first, *rest = paths()[state]
    key = journal.begin(WRITE, first)
    for step in rest:
        journal.move(key, step)
    return key


@pytest.mark.parametrize("after", State)
@pytest.mark.parametrize("before", State)
def test_only_the_moves_of_a_life_are_taken(journal, before, after):
    key = at_state(journal, before)
    if after in MOVES.get(before, ()):
        journal.move(key, after)
        assert journal.record(key).state is after
    else:
        with pytest.raises(MovedError):
            journal.move(key, after)
        assert journal.record(key).state is before
        assert journal.entries(key)[-1].state is before


def test_an_unknown_call_cannot_move(journal):
    with pytest.raises(MovedError, match="unknown"):
        journal.move(4711, State.READY)
    assert journal.record(4711) is None


def test_of_many_deciders_exactly_one_wins_and_the_others_are_told(journal):
    key = journal.begin(WRITE, State.AWAITING, ASKED)

    def decide(number):
        state, told = (State.READY, YES) if number % 2 else (State.DENIED, NO)
        try:
            journal.move(key, state, told, expected=[State.AWAITING])
        except MovedError as error:
            return error.record.state
        return None

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(decide, range(8)))
    record = journal.record(key)
    assert answers.count(None) == 1
    assert set(answers) - {None} == {record.state}
    assert record.step == 3


def test_of_many_workers_one_runs_the_call(journal):
    key = approved(journal)

    def claim(_):
        try:
            return journal.claim(key)
        except MovedError:
            return 0

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(claim, range(8))) == [0] * 7 + [1]


def test_a_decision_names_the_question_that_is_open(journal):
    key = journal.begin(WRITE, State.AWAITING, ASKED)
    journal.move(
        key, State.AWAITING, Facts(question=Question("again?", "seal-2", {}, "the file has changed"))
    )
    with pytest.raises(MovedError) as caught:
        journal.move(key, State.READY, YES)
    assert caught.value.record.facts.question.seal == "seal-2"
    journal.move(key, State.READY, Facts(ruling=Ruling(approved=True, by="person", seal="seal-2")))


def test_an_end_with_an_old_fence_is_refused(journal):
    key = approved(journal)
    fence = journal.claim(key)
    with pytest.raises(MovedError):
        journal.move(key, State.DONE, Facts(fence=fence + 1))
    assert journal.record(key).state is State.EXECUTING
    journal.move(key, State.DONE, Facts(fence=fence))


def test_who_comes_back_is_given_the_same_call_until_its_answer_was_delivered(journal):
    assert journal.find("me:write") is None
    key = approved(journal)
    assert journal.find("me:write").key == key
    fence = journal.claim(key)
    assert journal.find("me:write").state is State.EXECUTING
    journal.move(key, State.DONE, Facts(fence=fence, content="written"))
    assert journal.find("me:write").facts.content == "written"
    journal.deliver(key)
    assert journal.find("me:write") is None
    assert journal.record(key).delivered
    assert journal.find("") is None


def test_records_are_filtered_and_come_latest_first_page_by_page(journal):
    keys = [journal.begin(WRITE, State.AWAITING, ASKED) for _ in range(5)]
    journal.move(keys[1], State.DENIED, NO)
    other = journal.begin(NewCall("c3", "run", "cautious", {}, "ada", "claude", "s1", "/p"))
    assert [record.key for record in journal.records([State.AWAITING])] == [
        keys[4],
        keys[3],
        keys[2],
        keys[0],
    ]
    assert [record.key for record in journal.records(most=2)] == [other, keys[4]]
    assert [record.key for record in journal.records(below=keys[2])] == [keys[1], keys[0]]
    for filters in ({"tool": "run"}, {"principal": "ada"}, {"session": "s1"}, {"project": "/p"}):
        assert [record.key for record in journal.records(**filters)] == [other], filters
    assert journal.records(since=time() + 60) == []
    assert len(journal.records(since=time() - 60)) == 6
    assert [record.key for record in iterate(journal, 2)] == [other, *reversed(keys)]


def test_entries_come_oldest_first(journal):
    first, second = journal.begin(READ), journal.begin(WRITE)
    journal.move(first, State.FAILED, Facts(detail="no such file", failure="error"))
    assert [entry.key for entry in journal.entries()] == [first, second, first]
    assert [entry.detail for entry in journal.entries(first)] == ["", "no such file"]
    assert [entry.key for entry in journal.entries(after=1, most=1)] == [second]


def test_the_arguments_that_a_person_changed_are_kept(journal):
    key = journal.begin(WRITE, State.AWAITING, ASKED)
    edited = Ruling(approved=True, by="person", seal="seal-1", arguments={"path": "b.txt"}, note="other file")
    journal.move(key, State.READY, Facts(ruling=edited, arguments={"path": "b.txt"}))
    record = journal.record(key)
    assert record.facts.arguments == {"path": "b.txt"}
    assert record.facts.ruling == edited
    assert record.call.arguments == WRITE.arguments


ODD = [
    "a\0b",
    "half \ud800 of a pair",
    "ünïcode \N{SNOWMAN}",
    "x" * 5_000,
    "line\nline",
    "'; DROP TABLE calls; --",
    "%s ?",
]


@pytest.mark.parametrize("text", ODD)
def test_any_text_is_taken(journal, text):
    call = NewCall(text[:200], "write_file", "dangerous", {"text": text, text[:50]: 2**70}, client=text)
    key = journal.begin(call, State.AWAITING, Facts(question=Question(text, "s", {}, text), detail=text))
    record = journal.record(key)
    assert record.call.arguments == call.arguments
    assert record.facts.question.text == text
    assert journal.entries(key)[-1].step == 2


def test_calls_of_a_living_process_are_left_alone(journal):
    running, waiting = approved(journal), journal.begin(WRITE, State.AWAITING, ASKED)
    journal.claim(running)
    assert journal.recover(lambda _: True) == []
    assert journal.record(running).state is State.EXECUTING
    assert journal.record(waiting).state is State.AWAITING


def test_final_states_are_those_without_a_way_on():
    assert {state for state in State if state not in MOVES} | {State.IN_DOUBT} == FINAL
