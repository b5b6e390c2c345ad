"""What only a journal on a server can meet: lost connections, restarts, other machines and their clocks."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from gramercy.errors import JournalError, MovedError
from gramercy.journal import notices, owners
from gramercy.journal.audit import verify_journal
from gramercy.journal.base import Facts, State
from gramercy.journal.bells import POLL_SECONDS
from gramercy.journal.postgres import PostgresJournal
from tests.journal.cutting import Cut, CuttingProxy
from tests.journal.stores import ASKED, READ, WRITE, YES, process
from tests.postgres import PostgresServer, why_none
from tests.support import until

# More than a busy machine needs; nobody waits for it to pass.
ENOUGH = 30.0
LIFE = [State.REQUESTED, State.AWAITING, State.READY, State.EXECUTING, State.DONE]


@pytest.fixture
def journal(postgres_address):
    opened = PostgresJournal(postgres_address)
    yield opened
    opened.close()


@pytest.fixture
def own_server():
    """Return a server that a test may stop."""
    if reason := why_none():
        pytest.skip(reason)
    with PostgresServer() as server:
        yield server


@pytest.fixture
def proxy(postgres_server):
    with (
        tempfile.TemporaryDirectory(prefix="gramercy-cut-") as directory,
        CuttingProxy(Path(directory), postgres_server.directory) as between,
    ):
        yield between


@pytest.fixture
def cut_address(postgres_server, postgres_address, proxy):
    return postgres_address.replace(str(postgres_server.directory), str(proxy.directory))


def live(journal):
    """Lead one call through its whole life; return its key."""
    key = journal.begin(WRITE, State.AWAITING, ASKED)
    journal.move(key, State.READY, YES, expected=[State.AWAITING])
    fence = journal.claim(key)
    assert fence == 1
    journal.move(key, State.DONE, Facts(fence=fence, content="written"))
    return key


def has_lived(journal, key):
    """Tell whether a call has had each of its moves once, and the journal is as it was written."""
    states = [entry.state for entry in journal.entries(key)]
    report = verify_journal(journal)
    assert not report.flaws, report.flaws
    return states == LIFE


@pytest.mark.contract("journal.postgres.lost-commit")
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("how", Cut)
def test_a_move_is_made_once_when_the_connection_is_lost_at_its_commit(
    cut_address, proxy, how, number, is_first
):
    """Whether the answer is lost or the commit: the writer finds out, and does again what was not done."""
    journal = PostgresJournal(cut_address)
    try:
        if not is_first:
            journal.note(READ, State.DONE)
        proxy.cut(how, number)
        key = live(journal)
        assert has_lived(journal, key)
        assert len(journal.records()) == (1 if is_first else 2)
        assert len(verify_journal(journal).heads) == 1
    finally:
        journal.close()


@pytest.mark.contract("journal.postgres.restart")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
@pytest.mark.slow
def test_calls_go_on_when_the_server_is_restarted_under_them(own_server, how):
    """No move is lost, none is made twice, and the chain of each writer holds."""
    address = own_server.create()
    journals = [PostgresJournal(address) for _ in range(3)]
    stopped = threading.Event()

    def work(journal):
        keys = []
        while not stopped.is_set():
            keys.append(live(journal))
            journal.note(READ, State.DONE)
        return keys

    with ThreadPoolExecutor(3) as pool:
        works = [pool.submit(work, journal) for journal in journals]
        for _ in range(3):
            before = len(journals[0].records(most=10_000))
            until(lambda: len(journals[0].records(most=10_000)) > before + 5)  # noqa: B023 - used at once
            own_server.restart(how)
        stopped.set()
        keys = [key for each in works for key in each.result(ENOUGH)]
    assert len(keys) == len(set(keys)) > 3
    assert all(has_lived(journals[0], key) for key in keys[:1])
    done = journals[0].records([State.DONE], tool="write_file", most=10_000)
    assert sorted(record.key for record in done) == sorted(keys)
    assert all(record.step == len(LIFE) for record in done)
    assert not journals[0].records([State.AWAITING, State.READY, State.EXECUTING])
    for journal in journals:
        journal.close()


@pytest.mark.contract("journal.postgres.away")
def test_a_server_that_stays_away_is_told_and_nothing_is_recorded(own_server):
    journal = PostgresJournal(own_server.create(), patience=0.3)
    key = journal.begin(WRITE, State.AWAITING, ASKED)
    own_server.stop()
    with pytest.raises(
        JournalError, match=r"^the journal postgresql://gramercy@/journal_1\?host=.* cannot be"
    ):
        journal.move(key, State.READY, YES)
    with pytest.raises(JournalError, match="cannot be reached"):
        journal.record(key)
    own_server.start()
    assert [record.state for record in journal.records()] == [State.AWAITING]
    journal.move(key, State.READY, YES)
    assert [entry.state for entry in journal.entries(key)] == LIFE[:3]
    journal.close()
    with pytest.raises(JournalError, match="is closed"):
        journal.record(key)


RACER = """
import sys
from tests.journal.test_postgres import PostgresJournal, race
journal = PostgresJournal(sys.argv[1])
print("there", flush=True)
for key in race(journal, [int(word) for word in sys.stdin.readline().split()]):
    print(key)
journal.close()
"""


def race(journal, keys):
    """Run each call that nobody else runs; return which."""
    ran = []
    for key in keys:
        with suppress(MovedError):
            fence = journal.claim(key)
            journal.move(key, State.DONE, Facts(fence=fence, content="ran"))
            ran.append(key)
    return ran


def ready(journal, many):
    keys = [journal.begin(WRITE, State.AWAITING, ASKED) for _ in range(many)]
    for key in keys:
        journal.move(key, State.READY, YES)
    return keys


@pytest.mark.contract("journal.postgres.race")
def test_of_sixteen_workers_that_race_for_the_same_calls_one_runs_each(journal, postgres_address):
    keys = ready(journal, 30)
    workers = [PostgresJournal(postgres_address) for _ in range(16)]
    with ThreadPoolExecutor(16) as pool:
        ran = [key for each in pool.map(lambda worker: race(worker, keys), workers) for key in each]
    for worker in workers:
        worker.close()
    assert sorted(ran) == keys
    assert has_lived(journal, keys[0])
    assert {record.step for record in journal.records()} == {len(LIFE)}


@pytest.mark.slow
@pytest.mark.contract("journal.postgres.race")
def test_of_sixteen_processes_that_race_for_the_same_calls_one_runs_each(journal, postgres_address):
    keys = ready(journal, 200)
    command = [sys.executable, "-c", RACER, postgres_address]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(16)
    ]
    try:
        for worker in workers:
            assert worker.stdout
            assert worker.stdout.readline() == "there\n"
        for worker in workers:
            print(*keys, file=worker.stdin, flush=True)
        ran = [int(line) for worker in workers for line in worker.communicate(timeout=ENOUGH)[0].split()]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait(ENOUGH)
    assert sorted(ran) == keys
    assert [worker.returncode for worker in workers] == [0] * 16
    assert has_lived(journal, keys[0])


@pytest.fixture
def elsewhere(postgres_address, monkeypatch):
    """Return journals of other machines, whose processes cannot be seen from here."""
    opened = []

    def open_there(place="far/other-boot/1"):
        with monkeypatch.context() as patch:
            patch.setattr(owners, "_place", lambda: place)
            opened.append(PostgresJournal(postgres_address))
        return opened[-1]

    yield open_there
    for journal in opened:
        journal.close()


def running(journal):
    key = journal.begin(WRITE, State.AWAITING, ASKED)
    journal.move(key, State.READY, YES)
    return key, journal.claim(key)


def end_leases(address):
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("UPDATE gramercy.leases SET until = 1")


@pytest.mark.contract("journal.postgres.lease")
def test_a_call_of_another_machine_is_left_alone_while_its_lease_holds(journal, elsewhere, postgres_address):
    """Afterwards it is in doubt, and its end is refused, which is recorded."""
    far = elsewhere()
    key, fence = running(far)
    assert journal.recover(lambda _: False) == []
    end_leases(postgres_address)
    assert [record.key for record in journal.recover(lambda _: False)] == [key]
    with pytest.raises(MovedError) as refused:
        far.move(key, State.DONE, Facts(fence=fence, content="late"))
    assert refused.value.record.state is State.IN_DOUBT
    assert journal.record(key).state is State.IN_DOUBT
    assert not verify_journal(journal).flaws


@pytest.mark.contract("journal.postgres.lease")
def test_an_idempotent_call_of_a_machine_that_is_gone_runs_again_once(journal, elsewhere, postgres_address):
    far = elsewhere()
    key, fence = running(far)
    end_leases(postgres_address)
    journal.recover(lambda _: True)
    assert journal.claim(key) > fence
    with pytest.raises(MovedError):
        far.move(key, State.DONE, Facts(fence=fence))
    journal.move(key, State.DONE)


@pytest.mark.contract("journal.postgres.lease")
def test_two_machines_of_one_name_are_two(journal, elsewhere):
    """Containers and fresh virtual machines often have the same host name."""
    host = owners._place().partition("/")[0]
    key, _ = running(elsewhere(f"{host}/another-boot/1"))
    assert journal.recover(lambda _: True) == []
    assert journal.record(key).state is State.EXECUTING


@pytest.mark.contract("journal.postgres.lease")
def test_a_lease_is_kept_while_something_runs_and_given_back_at_the_end(
    elsewhere, postgres_address, monkeypatch
):
    monkeypatch.setattr("gramercy.journal.sql.LEASE_SECONDS", 0.3)
    far = elsewhere()
    running(far)
    with psycopg.connect(postgres_address, autocommit=True) as connection:

        def lease():
            found = connection.execute("SELECT until FROM gramercy.leases").fetchone()
            return found and found[0]

        first = lease()
        until(lambda: lease() > first + 0.3)
        far.close()
        assert lease() is None


@pytest.mark.contract("journal.postgres.clock")
@pytest.mark.parametrize("hours", [-5, 5])
def test_clocks_of_machines_may_differ(journal, elsewhere, monkeypatch, hours):
    """The server's clock is what events, expiry and leases are told in."""
    far = elsewhere()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + hours * 3_600)
    monkeypatch.setattr("gramercy.journal.tables.time", time.time)
    key = far.begin(WRITE, State.AWAITING, Facts(question=ASKED.question, expires_at=real() + 60))
    assert abs(far.record(key).at - real()) < ENOUGH
    assert journal.recover(lambda _: False) == []
    far.move(key, State.READY, YES)
    far.claim(key)
    assert journal.recover(lambda _: False) == []
    assert far.recover(lambda _: False) == []


@pytest.mark.contract("journal.postgres.notice")
def test_who_waits_is_woken_by_a_commit_of_another_process(journal, postgres_address):
    key = journal.begin(WRITE, State.AWAITING, ASKED)
    # The notices of what was just written come first.
    with journal.bell() as bell:
        while bell.wait(POLL_SECONDS / 2):
            pass
        decide = f"journal.move({key}, State.READY, YES); print('decided', flush=True); journal.close()"
        began = time.monotonic()
        with process(postgres_address, decide):
            assert bell.wait(ENOUGH)
            assert time.monotonic() - began < ENOUGH
            assert journal.record(key).state is State.READY


@pytest.mark.contract("journal.postgres.notice")
def test_a_notice_comes_at_once_and_not_with_the_poll(journal, postgres_address, monkeypatch):
    monkeypatch.setattr(notices, "POLL_SECONDS", ENOUGH * 2)
    other = PostgresJournal(postgres_address)
    with journal.bell() as bell:
        other.begin(READ)
        assert bell.wait(ENOUGH)
    other.close()


@pytest.mark.contract("journal.postgres.notice")
def test_who_waits_is_still_woken_after_the_server_was_restarted(own_server):
    address = own_server.create()
    journal, other = PostgresJournal(address), PostgresJournal(address)
    with journal.bell() as bell:
        own_server.restart()
        key = other.begin(READ)
        until(lambda: bell.wait(POLL_SECONDS) and journal.record(key))
    journal.close()
    other.close()


@pytest.mark.contract("journal.postgres.errors")
def test_an_address_that_cannot_be_used_is_told_without_its_password(postgres_server, postgres_address):
    host = postgres_server.directory
    for address, told in {
        "postgresql://me:hush@127.0.0.1:1/there": "postgresql://me@127.0.0.1:1/there cannot be reached",
        f"postgresql://gramercy:hush@/nowhere?host={host}": 'database "nowhere" does not exist',
        f"postgresql://gramercy:hush@/x?host={host}&colour=red": 'invalid URI query parameter: "colour"',
    }.items():
        with pytest.raises(JournalError) as refused:
            PostgresJournal(address)
        assert told in str(refused.value)
        assert "hush" not in str(refused.value)
    PostgresJournal(postgres_address).close()


@pytest.mark.contract("journal.postgres.errors")
def test_a_journal_of_a_newer_gramercy_is_refused(journal, postgres_address):
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute("INSERT INTO gramercy.migrations VALUES ('999 things to come', 0)")
    with pytest.raises(JournalError, match=r"newer gramercy .it has '999 things to come'"):
        PostgresJournal(postgres_address)
    assert journal.records() == []


@pytest.mark.contract("journal.postgres.errors")
def test_a_database_that_takes_no_changes_is_told(journal):
    key = journal.begin(WRITE, State.AWAITING, ASKED)
    journal._run("SET default_transaction_read_only = on", ())
    with pytest.raises(JournalError, match=r"cannot be used: cannot execute .* in a read-only transaction"):
        journal.move(key, State.READY, YES)
    journal._run("SET default_transaction_read_only = off", ())
    journal.move(key, State.READY, YES)
    assert [entry.state for entry in journal.entries(key)] == LIFE[:3]


@pytest.mark.contract("journal.postgres.errors")
def test_what_is_missing_is_named_with_how_to_install_it():
    code = "import sys; sys.modules['psycopg'] = None; import gramercy; gramercy.open_journal('postgresql://h/d')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=ENOUGH, check=False
    )
    assert "JournalError: a journal on PostgreSQL needs psycopg" in done.stderr
    assert "pip install 'gramercy[postgres]'" in done.stderr


@pytest.mark.contract("journal.postgres.errors")
def test_a_text_that_the_server_would_cut_off_is_refused(journal):
    """To libpq a text ends at its first NUL; names of calls have none, they are replaced before."""
    with pytest.raises(JournalError, match="NUL"):
        journal.records(tool="read\0file")


RIGHTS = """
CREATE ROLE worker LOGIN;
GRANT USAGE ON SCHEMA gramercy TO worker;
GRANT SELECT ON ALL TABLES IN SCHEMA gramercy TO worker;
GRANT INSERT ON gramercy.events TO worker;
GRANT INSERT, UPDATE ON gramercy.calls, gramercy.chains TO worker;
GRANT INSERT, UPDATE, DELETE ON gramercy.contents, gramercy.answers, gramercy.leases TO worker;
"""


@pytest.mark.contract("journal.postgres.rights")
def test_a_worker_needs_no_right_to_change_or_remove_events(journal, postgres_address):
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute(RIGHTS.encode())
        try:
            worker = PostgresJournal(postgres_address.replace("gramercy@", "worker@"))
            assert has_lived(journal, live(worker))
            worker.recover(lambda _: False)
            for statement in ("DELETE FROM events", "UPDATE events SET state = 'done'", "DELETE FROM calls"):
                with pytest.raises(JournalError, match="permission denied"):
                    worker._run(statement, ())
            worker.close()
        finally:
            connection.execute("DROP OWNED BY worker; DROP ROLE worker")


@pytest.mark.contract("journal.postgres.tables")
def test_the_tables_are_made_once_when_many_open_a_journal_at_once(postgres_address):
    with ThreadPoolExecutor(8) as pool:
        journals = list(pool.map(lambda _: PostgresJournal(postgres_address), range(8)))
        keys = list(pool.map(lambda journal: journal.begin(READ), journals))
    assert len(set(keys)) == 8
    report = verify_journal(journals[0])
    assert (len(report.heads), report.flaws) == (8, ())
    for journal in journals:
        journal.close()
