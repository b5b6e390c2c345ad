"""How often a journal on a server goes there and back, and what is left when that is broken off."""

from __future__ import annotations

import threading

import psycopg
import pytest

from gramercy import Executor, Registry, define_tool
from gramercy.errors import JournalError
from gramercy.journal.audit import verify_journal
from gramercy.journal.base import Facts, State
from gramercy.journal.pipeline import Pipeline
from gramercy.journal.postgres import PostgresJournal
from tests.journal.stores import ASKED, NO, WRITE, YES

# More than a busy machine needs; nobody waits for it to pass.
ENOUGH = 30.0


@pytest.fixture
def journal(postgres_address):
    opened = PostgresJournal(postgres_address)
    yield opened
    opened.close()


@pytest.fixture
def trips(monkeypatch):
    """Return what goes to the server, one list of statements for each trip."""
    made = []
    run = Pipeline.run

    def noted(self, statements):
        made.append([text for text, _ in statements])
        return run(self, statements)

    monkeypatch.setattr(Pipeline, "run", noted)
    return made


def test_a_dangerous_call_is_nine_trips_and_four_commits(journal, trips):
    """Each trip costs both sides more than the statements that it carries."""
    parameters = [{"name": "title", "type": "string"}]
    tool = define_tool("read_note", "Read.", parameters, handler=str, safety_level="dangerous")
    executor = Executor(Registry([tool]), lambda _tool, _arguments: "approved", journal=journal)
    call = {"id": "c1", "name": "read_note", "arguments": {"title": "shopping"}}
    # The first one opens the chain, prepares statements and takes a lease.
    for _ in range(4):
        trips.clear()
        assert executor.execute(call).success
    assert len(trips) == 9, trips
    assert [trip.count("COMMIT") for trip in trips if "COMMIT" in trip] == [1] * 4


def test_nothing_is_committed_behind_a_statement_that_fails(journal, postgres_address):
    """The commit goes out with the last statement, and the server passes it over."""
    key = journal.begin(WRITE, State.AWAITING, ASKED)
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute("UPDATE gramercy.chains SET number = number + 1")
        # A denial: an approval would look at the chain first, and not come so far.
        with pytest.raises(JournalError, match="was changed by another"):
            journal.move(key, State.DENIED, NO)
        assert journal.record(key).state is State.AWAITING
        connection.execute("UPDATE gramercy.chains SET number = number - 1")
    journal.move(key, State.READY, YES)
    assert not verify_journal(journal).flaws


@pytest.mark.parametrize("part", ["_send", "_received"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_trip_that_a_person_breaks_off_leaves_the_journal_usable(journal, monkeypatch, part, number):
    """Whatever was committed, the chain goes on behind it, and no answer is taken for that of another."""
    key = journal.begin(WRITE, State.AWAITING, ASKED)
    real, left = getattr(Pipeline, part), [number]

    def broken(self, *arguments):
        left[0] -= 1
        if not left[0]:
            if part == "_received":
                real(self, *arguments)
            raise KeyboardInterrupt
        return real(self, *arguments)

    monkeypatch.setattr(Pipeline, part, broken)
    with pytest.raises(KeyboardInterrupt):
        journal.move(key, State.READY, YES)
    is_made = part == "_received" and number == 2
    assert journal.record(key).state is (State.READY if is_made else State.AWAITING)
    if not is_made:
        journal.move(key, State.READY, YES)
    fence = journal.claim(key)
    journal.move(key, State.DONE, Facts(fence=fence, content="written"))
    assert [entry.step for entry in journal.entries(key)] == [1, 2, 3, 4, 5]
    assert not verify_journal(journal).flaws


def test_no_look_is_answered_with_what_another_one_asked_for(journal, monkeypatch):
    """A person breaks a look off when its answers are on their way."""
    first, second = (journal.begin(WRITE, State.AWAITING, ASKED) for _ in range(2))

    def broken(_self, _many):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Pipeline, "_received", broken)
        with pytest.raises(KeyboardInterrupt):
            journal.record(first)
    assert journal.record(second).key == second
    assert journal.record(first).key == first


def test_what_is_longer_than_any_buffer_goes_there_and_back(journal):
    """Client and server then wait for each other to read, in turns."""
    key = journal.begin(WRITE, State.AWAITING, ASKED)
    journal.move(key, State.READY, YES)
    long = "0123456789abcdef" * 500_000
    journal.move(key, State.FAILED, Facts(content=long, failure="long"))
    assert journal.record(key).facts.content == long


def test_other_threads_run_while_one_waits_for_the_server(journal, postgres_address):
    """A row that another process holds makes a trip long; the interpreter is free meanwhile."""
    key = journal.begin(WRITE, State.AWAITING, ASKED)
    with psycopg.connect(postgres_address) as connection:
        connection.execute("SELECT 1 FROM gramercy.calls FOR UPDATE")
        waiting = threading.Thread(target=journal.move, args=(key, State.READY, YES))
        waiting.start()
        # Only a thread that runs can see it; the server gives the wait up after ten seconds.
        while connection.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone() is None:
            assert waiting.is_alive()
        connection.rollback()
    waiting.join(ENOUGH)
    assert not waiting.is_alive()
    assert journal.record(key).state is State.READY
