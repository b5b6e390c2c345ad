"""What every journal does, whatever it is kept in; the suite runs on each of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from time import time

import msgspec
import pytest

from gramercy.errors import ForgedRecordError, JournalError, MovedError
from gramercy.journal.base import FINAL, MOVES, Facts, NewCall, Question, Ruling, State
from gramercy.journal.chain import Content, Head, linked, told_text
from gramercy.journal.opening import open_journal
from gramercy.journal.verify import Verifier
from tests.journal.stores import ASKED, BOUND, NO, QUESTION, READ, WRITE, YES, process


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def journal(request):
    where = "memory" if request.param == "memory" else request.getfixturevalue(f"{request.param}_place")
    opened = open_journal(where)
    yield opened
    opened.close()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request):
    """Return where a journal is that several processes share."""
    return request.getfixturevalue(f"{request.param}_place")


@pytest.fixture
def shared(place):
    opened = open_journal(place)
    yield opened
    opened.close()


@pytest.fixture
def sqlite_place(tmp_path):
    return str(tmp_path / "journal.db")


@pytest.fixture
def postgres_place(request):
    pytest.importorskip("gramercy.journal.postgres", reason="journals on PostgreSQL are not there yet")
    return request.getfixturevalue("postgres_address")


def approved(journal):
    key = journal.begin(WRITE, State.AWAITING, ASKED)
    journal.move(key, State.READY, YES, expected=[State.AWAITING])
    return key


@pytest.mark.contract("journal.store.conform")
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


@pytest.mark.contract("journal.store.compare-and-set")
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


@pytest.mark.contract("journal.store.compare-and-set")
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


def test_what_is_not_over_cannot_be_delivered(journal):
    """Else who comes back after it is done would make the call a second time."""
    key = approved(journal)
    journal.deliver(key)
    journal.move(key, State.DONE, Facts(fence=journal.claim(key)))
    assert journal.find("me:write").key == key


def test_who_was_told_of_a_doubt_is_told_how_it_was_resolved(journal):
    key = approved(journal)
    journal.move(key, State.IN_DOUBT, Facts(fence=journal.claim(key)))
    journal.deliver(key)
    assert journal.find("me:write").state is State.IN_DOUBT
    journal.move(key, State.FAILED, Facts(detail="it did not happen"))
    assert journal.find("me:write").state is State.FAILED
    journal.deliver(key)
    assert journal.find("me:write") is None


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


RUNNING = """
key = journal.begin(WRITE, State.AWAITING, ASKED)
journal.move(key, State.READY, YES)
print(key, journal.claim(key))
"""


@pytest.mark.contract("journal.store.in-doubt")
def test_what_ran_when_its_process_was_killed_is_in_doubt(place, shared):
    with process(place, RUNNING) as (child, (line,)):
        key = int(line.split()[0])
        assert shared.recover(lambda _: False) == []
        child.kill()
        child.wait(BOUND)
        (moved,) = shared.recover(lambda _: False)
    assert (moved.key, moved.state) == (key, State.IN_DOUBT)
    assert shared.find("me:write").key == key
    assert shared.recover(lambda _: False) == []
    shared.move(key, State.DONE, Facts(detail="the file is there"))
    assert shared.find("me:write").state is State.DONE


@pytest.mark.contract("journal.store.in-doubt")
def test_what_may_be_repeated_is_ready_again_and_stays_approved(place, shared):
    with process(place, RUNNING) as (child, (line,)):
        key, fence = map(int, line.split())
        child.kill()
        child.wait(BOUND)
        (moved,) = shared.recover(lambda tool: tool == "write_file")
    assert moved.state is State.READY
    assert moved.facts.ruling == YES.ruling
    assert shared.claim(key) > fence + 1
    with pytest.raises(MovedError):
        shared.move(key, State.DONE, Facts(fence=fence))


def test_a_call_of_a_process_that_died_before_it_asked_is_over(place, shared):
    with process(place, "print(journal.begin(WRITE))") as (child, (line,)):
        assert shared.recover(lambda _: True) == []
        child.kill()
        child.wait(BOUND)
        (moved,) = shared.recover(lambda _: True)
    assert (moved.key, moved.state) == (int(line), State.FAILED)
    # Nothing was run, so that its caller may make it again.
    assert shared.find("me:write") is None


def test_a_question_outlives_the_process_that_asked(place, shared):
    with process(place, "print(journal.begin(WRITE, State.AWAITING, ASKED))") as (_, (line,)):
        pass
    assert shared.recover(lambda _: True) == []
    assert shared.find("me:write").facts.question == QUESTION
    shared.move(int(line), State.READY, YES)
    assert shared.claim(int(line)) == 1


def test_what_nobody_decided_in_time_is_denied(shared):
    key = shared.begin(WRITE, State.AWAITING, Facts(question=QUESTION, expires_at=time() - 1))
    with pytest.raises(MovedError):
        shared.move(key, State.READY, YES)
    (moved,) = shared.recover(lambda _: True)
    assert (moved.key, moved.state, moved.facts.ruling.refuser) == (key, State.DENIED, "timeout")


@pytest.mark.contract("journal.store.fence")
def test_an_end_that_comes_too_late_is_refused_and_recorded(place, shared):
    other = open_journal(place)
    key = approved(shared)
    fence = shared.claim(key)
    # As when a machine was thought to be gone and was not.
    other._is_alive = lambda _owner, _now: False  # type: ignore[attr-defined]
    (moved,) = other.recover(lambda _: False)
    assert moved.state is State.IN_DOUBT
    with pytest.raises(MovedError, match="in_doubt"):
        shared.move(key, State.DONE, Facts(fence=fence, digest="d9"))
    other.close()
    assert shared.record(key).state is State.IN_DOUBT
    (late,) = shared._run("SELECT facts FROM events WHERE state = 'late'", ())
    assert '"d9"' in late[0]
    assert f"call {key}" in late[0]


def test_a_person_can_resolve_a_doubt_through_the_process_that_had_lost_the_call(place, shared):
    other = open_journal(place)
    key = approved(shared)
    shared.claim(key)
    other._is_alive = lambda _owner, _now: False  # type: ignore[attr-defined]
    other.recover(lambda _: False)
    other.close()
    shared.move(key, State.FAILED, Facts(detail="looked: it did not happen"), expected=[State.IN_DOUBT])
    assert shared.record(key).state is State.FAILED


@pytest.mark.contract("journal.store.owed")
def test_an_end_that_could_not_be_recorded_is_recorded_later(shared, monkeypatch):
    key = approved(shared)
    fence = shared.claim(key)
    with monkeypatch.context() as patch:
        patch.setattr(shared, "_commit", _fails)
        with pytest.raises(JournalError, match="full"):
            shared.move(key, State.DONE, Facts(fence=fence, content="written"))
        with pytest.raises(JournalError, match="full"):
            shared.note(READ, State.DONE)
        assert shared.record(key).state is State.EXECUTING
    shared.note(READ, State.DONE)
    assert (shared.record(key).state, shared.record(key).facts.content) == (State.DONE, "written")
    assert flaws(shared) == []


@pytest.mark.contract("journal.store.owed")
def test_an_end_that_could_not_be_recorded_is_recorded_at_the_close(place, shared, monkeypatch):
    other = open_journal(place)
    key = approved(other)
    fence = other.claim(key)
    with monkeypatch.context() as patch:
        patch.setattr(other, "_commit", _fails)
        with pytest.raises(JournalError, match="full"):
            other.move(key, State.DONE, Facts(fence=fence, content="written"))
    other.close()
    assert shared.record(key).state is State.DONE


def _fails():
    raise JournalError("the disk is full")


@pytest.mark.contract("journal.store.lease")
def test_a_lease_speaks_for_a_process_that_cannot_be_seen(place, shared, monkeypatch):
    other = open_journal(place)
    monkeypatch.setattr("gramercy.journal.owners.is_alive", lambda _: None)
    key = approved(shared)
    shared.claim(key)
    assert other.recover(lambda _: False) == []
    shared._run("UPDATE leases SET until = until - 31", ())
    (moved,) = other.recover(lambda _: False)
    other.close()
    assert (moved.key, moved.state) == (key, State.IN_DOUBT)


@pytest.mark.contract("journal.store.lease")
def test_a_long_call_keeps_its_lease(shared, monkeypatch):
    monkeypatch.setattr("gramercy.journal.sql.LEASE_SECONDS", 0.3)
    shared.claim(approved(shared))
    ((_, first),) = rows(shared, "leases")
    ends = time() + 10
    while rows(shared, "leases")[0][1] <= first + 0.3:
        assert time() < ends
        shared._renewer.wait(0.05)


SECRET = "hunter2-hunter2"


def everything(journal):
    return str([rows(journal, table) for table in ("calls", "events", "contents", "answers")])


@pytest.mark.contract("journal.store.secrets")
def test_secrets_are_whole_only_as_long_as_the_call_needs_them(shared):
    call = NewCall("c", "login", "dangerous", {"user": "ada", "password": SECRET}, identity="me")
    question = Question(f"login with password: '{SECRET}'", "seal-1", {}, "it is dangerous")
    key = shared.begin(call, State.AWAITING, Facts(question=question))
    shared.move(key, State.READY, YES)
    assert shared.record(key).call.arguments == call.arguments
    fence = shared.claim(key)
    shared.move(key, State.DONE, Facts(fence=fence, content=f"token = '{SECRET}9'"))
    record = shared.record(key)
    assert record.call.arguments == {"user": "ada", "password": "…"}
    assert SECRET not in record.facts.question.text
    assert record.facts.content == f"token = '{SECRET}9'"
    shared.deliver(key)
    assert SECRET not in everything(shared)
    assert shared.record(key).facts.content == "token = '…'"


def test_a_call_that_is_refused_at_once_is_kept_without_secrets(shared):
    call = NewCall("c", "login", "dangerous", {"password": SECRET})
    key = shared.begin(call, State.DENIED, Facts(detail=f"the policy denies {SECRET}"))
    assert SECRET not in everything(shared)
    assert shared.record(key).call.arguments == {"password": "…"}
    assert flaws(shared) == []


def test_a_safe_call_is_noted_without_secrets(shared):
    shared.note(NewCall("c", "fetch", "safe", {"url": f"https://ada:{SECRET}@host/"}), State.DONE)
    assert SECRET not in everything(shared)
    assert shared.records()[0].call.arguments == {"url": "https://ada:…@host/"}


@pytest.mark.parametrize("action", ["begin", "whole life", "masked", "late", "two writers"])
def test_what_is_written_verifies(place, shared, action):
    key = approved(shared)
    if action == "whole life":
        shared.move(key, State.DONE, Facts(fence=shared.claim(key), content="written"))
        shared.deliver(key)
    elif action == "masked":
        test_secrets_are_whole_only_as_long_as_the_call_needs_them(shared)
    elif action == "late":
        shared.claim(key)
        with pytest.raises(MovedError):
            shared.move(key, State.DONE, Facts(fence=9))
    elif action == "two writers":
        other = open_journal(place)
        other.note(READ, State.DONE)
        other.claim(key)
        other.close()
    assert flaws(shared) == []


def flaws(journal):
    contents = {(key, step): Content(salt, text) for key, step, salt, text in rows(journal, "contents")}
    verifier = Verifier()
    for event in journal._run("SELECT * FROM events ORDER BY chain, number", ()):
        content = contents.get((event[2], event[3]))
        verifier.add((*event, *(content or (None, None))), with_contents=content is not None)
    return [str(flaw) for flaw in verifier.finish(rows(journal, "chains")).flaws]


def rows(journal, table):
    return journal._read(lambda: journal._run(f"SELECT * FROM {table}", ()))


FORGERIES = {
    "state": "UPDATE calls SET state = 'ready'",
    "state and step": "UPDATE calls SET state = 'ready', step = step + 1",
    "tool": "UPDATE calls SET tool = 'delete_all'",
    "identity": "UPDATE calls SET identity = 'another'",
    "seal": "UPDATE calls SET seal = 'seal-2'",
    "arguments": "UPDATE contents SET text = REPLACE(text, 'a.txt', 'b.txt')",
    "no contents": "DELETE FROM contents",
    "facts": "UPDATE events SET facts = REPLACE(facts, 'seal-1', 'seal-2') WHERE state = 'ready'",
    "event state": "UPDATE events SET state = 'ready' WHERE state = 'awaiting'",
    "hash": "UPDATE events SET hash = '00' WHERE state = 'ready'",
    "removed": "DELETE FROM events WHERE state = 'requested'",
    "head": "UPDATE chains SET hash = '00'",
}


@pytest.mark.contract("journal.store.forged")
@pytest.mark.parametrize("what", FORGERIES)
def test_a_call_that_was_changed_from_outside_is_not_run(shared, what):
    key = shared.begin(WRITE, State.AWAITING, ASKED) if what.startswith("state") else approved(shared)
    shared._run(FORGERIES[what], ())
    with pytest.raises(ForgedRecordError, match=f"call {key} was changed from outside"):
        shared.claim(key)
    assert shared._run("SELECT key FROM events WHERE state = 'executing'", ()) == []


@pytest.mark.contract("journal.store.forged")
def test_an_approval_that_was_written_by_another_hand_is_not_taken(shared):
    """Forged whole, with a right hash: but it is not in the chain of any writer."""
    key = shared.begin(WRITE, State.AWAITING, ASKED)
    head = Head(*rows(shared, "chains")[0])
    event, _ = linked(head, key, 3, "ready", time(), told_text(YES))
    shared._run("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", event)
    shared._run("UPDATE calls SET state = 'ready', step = 3", ())
    with pytest.raises(ForgedRecordError):
        shared.claim(key)


def test_final_states_are_those_without_a_way_on():
    assert {state for state in State if state not in MOVES} | {State.IN_DOUBT} == FINAL


@pytest.mark.contract("agents.judge.once")
def test_a_unique_call_is_begun_once(shared, place):
    call = msgspec.structs.replace(WRITE, is_unique=True)

    def begin(_):
        with closing(open_journal(place)) as journal:
            try:
                return journal.begin(call, State.AWAITING, ASKED), None
            except MovedError as error:
                return 0, error.record

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(begin, range(6)))
    (key,) = [key for key, _ in found if key]
    assert {record.key for _, record in found if record is not None} == {key}
    shared.move(key, State.DENIED, NO)
    with pytest.raises(MovedError, match=f"as call {key} already"):
        shared.begin(call)
    shared.deliver(key)
    with pytest.raises(MovedError):
        shared.begin(call)
    assert shared.find(call.identity) is None
    assert shared.find(call.identity, delivered=True).key == key
