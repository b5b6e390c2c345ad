"""The journal in a file: what happens to it on a bad day."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from time import monotonic, sleep

import pytest

from gramercy import Executor, Registry, define_tool
from gramercy.errors import JournalError
from gramercy.journal.audit import open_kept
from gramercy.journal.base import Facts, State
from gramercy.journal.opening import default_place, open_journal
from gramercy.journal.schema import MIGRATIONS
from gramercy.journal.sqlite import PAGE_BYTES, SqliteJournal
from tests.journal.stores import ASKED, BOUND, READ, WRITE, YES, process
from tests.support import reap

REGISTRY = Registry(
    [
        define_tool("write", "Write.", [], handler=lambda _: "written", safety_level="dangerous"),
        define_tool("read", "Read.", [], handler=lambda _: "text", safety_level="safe"),
    ]
)


def open_at(path, **options):
    return SqliteJournal(path, **options)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "journal.db"


@pytest.fixture
def journal(path):
    opened = open_at(path)
    yield opened
    opened.close()


@pytest.mark.contract("journal.store.private")
def test_only_its_owner_can_read_the_file(journal, path):
    journal.note(READ, State.DONE)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    files = list(path.parent.glob("journal.db*"))
    assert {stat.S_IMODE(file.stat().st_mode) & 0o077 for file in files} == {0}


@pytest.mark.contract("journal.store.private")
def test_a_file_that_others_can_read_is_closed_to_them(journal, path):
    journal.close()
    path.chmod(0o644)
    open_at(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.contract("journal.store.place")
def test_the_journal_of_the_user_is_in_the_state_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "gramercy").mkdir(mode=0o755)
    assert default_place() == tmp_path / "gramercy" / "journal.db"
    open_journal().close()
    assert stat.S_IMODE((tmp_path / "gramercy").stat().st_mode) == 0o700
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert default_place() == Path.home() / ".local/state/gramercy/journal.db"


@pytest.mark.contract("journal.store.place")
def test_a_journal_inside_the_project_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    for where in ("journal.db", "deep/journal.db", "link/journal.db"):
        with pytest.raises(JournalError, match="inside the project"):
            open_journal(tmp_path / where, project=tmp_path)
    with pytest.raises(JournalError, match="no journal"):
        open_journal("mysql://host/db")
    assert [file.name for file in tmp_path.iterdir()] == ["link"]


@pytest.mark.contract("journal.store.newer")
def test_a_journal_of_a_newer_gramercy_is_refused_and_left_as_it_is(journal, path):
    journal._run("INSERT INTO migrations VALUES ('999 wonders', 0)", ())
    journal.close()
    before = path.read_bytes()
    with pytest.raises(JournalError, match="999 wonders"):
        open_at(path)
    assert path.read_bytes() == before


@pytest.mark.contract("journal.store.migrations")
def test_missing_migrations_are_made_once(journal, path, monkeypatch):
    key = journal.begin(WRITE)
    journal.close()
    monkeypatch.setitem(MIGRATIONS, "998 a table", ("CREATE TABLE more (key {counter})",))
    with ThreadPoolExecutor(4) as pool:
        for opened in pool.map(lambda _: open_at(path), range(4)):
            assert opened.record(key).state is State.REQUESTED
            opened._run("SELECT * FROM more", ())
            opened.close()


def test_a_migration_that_fails_changes_nothing(journal, path, monkeypatch):
    journal.close()
    monkeypatch.setitem(MIGRATIONS, "998 a fault", ("CREATE TABLE more (key {counter})", "CREATE NONSENSE"))
    with pytest.raises(JournalError):
        open_at(path)
    monkeypatch.delitem(MIGRATIONS, "998 a fault")
    opened = open_at(path)
    assert opened._run("SELECT name FROM sqlite_master WHERE name = 'more'", ()) == []
    opened.close()


def damaged(path, how):
    data = bytearray(path.read_bytes())
    if how == "header":
        data[:100] = os.urandom(100)
    elif how == "zeros":
        data[:] = bytes(len(data))
    elif how == "cut":
        del data[3_000:]
    elif how == "schema":
        data[100:2_048] = os.urandom(1_948)
    path.write_bytes(data)
    return bytes(data)


def first_event(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT facts FROM events WHERE chain = 1 AND number = 1").fetchone()[0]


@pytest.mark.contract("journal.store.damaged")
@pytest.mark.parametrize("how", ["header", "zeros", "cut", "schema"])
def test_a_damaged_file_is_set_aside_and_a_new_one_is_begun(journal, path, how, caplog):
    for _ in range(20):
        journal.note(READ, State.DONE)
    journal.close()
    journal.run_directory.mkdir()
    before = damaged(path, how)
    opened = open_at(path)
    assert opened.records() == []
    opened.note(READ, State.DONE)
    opened.close()
    assert opened.set_aside.read_bytes() == before
    assert str(opened.set_aside) in caplog.text
    assert opened.set_aside.name in first_event(path)
    again = open_at(path)
    assert len(again.records()) == 1
    assert again.set_aside is None
    again.close()


@pytest.mark.contract("journal.store.damaged")
def test_damage_that_is_met_later_is_told_and_set_aside_at_the_next_opening(journal, path):
    for _ in range(300):
        journal.note(READ, State.DONE)
    ((page,),) = journal._run("SELECT rootpage FROM sqlite_master WHERE name = 'contents'", ())
    journal.close()
    data = bytearray(path.read_bytes())
    data[(page - 1) * PAGE_BYTES : page * PAGE_BYTES] = os.urandom(PAGE_BYTES)
    path.write_bytes(data)
    opened = open_at(path)
    with pytest.raises(JournalError, match="damaged"):
        opened.records(most=300)
    opened.close()
    opened = open_at(path)
    assert opened.set_aside.read_bytes() == data
    assert opened.records() == []
    opened.close()


def test_of_many_who_find_the_damage_one_sets_the_file_aside(journal, path):
    journal.note(READ, State.DONE)
    journal.close()
    damaged(path, "schema")
    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(lambda _: open_at(path), range(8)))
    for each in opened:
        each.note(READ, State.DONE)
    assert len(opened[0].records()) == 8
    for each in opened:
        each.close()
    aside = [each for each in path.parent.glob("*damaged*") if not each.name.endswith(("-wal", "-shm"))]
    assert len(aside) == 1


WRITES_AND_ENDS = """
import sys
from gramercy.journal.sqlite import SqliteJournal
from gramercy.journal.base import State
from tests.journal.stores import READ
journal = SqliteJournal(sys.argv[1])
journal.note(READ, State.DONE)
print(len(journal.records()))
journal.close()
"""


def test_what_is_open_twice_here_loses_nothing_when_another_process_ends(journal, path):
    again = open_at(path)

    def seen_there():
        done = subprocess.run(
            [sys.executable, "-c", WRITES_AND_ENDS, path], check=True, capture_output=True, timeout=60
        )
        return int(done.stdout)

    journal.note(READ, State.DONE)
    assert seen_there() == 2
    journal.note(READ, State.DONE)
    again.note(READ, State.DONE)
    assert seen_there() == 5
    again.close()
    journal.close()
    assert seen_there() == 6


@pytest.mark.contract("journal.store.not-ours")
@pytest.mark.parametrize("has_lock", [False, True])
def test_a_file_that_is_no_journal_is_refused_and_kept(path, has_lock):
    """Its mode too; nothing is left beside it, or removed: there may be a `package.lock` of a `package`."""
    path.parent.mkdir()
    if has_lock:
        path.with_name(f"{path.name}.lock").write_text("theirs")
    path.write_text("my notes\n" * 100)
    path.chmod(0o644)
    before = _kept(path.parent)
    with pytest.raises(JournalError, match="not a journal"):
        open_at(path)
    assert _kept(path.parent) == before
    path.unlink()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = _kept(path.parent)
    with pytest.raises(JournalError, match="another program"):
        open_at(path)
    assert _kept(path.parent) == before


def _kept(directory):
    return {file.name: (file.read_bytes(), file.stat().st_mode) for file in directory.iterdir()}


@pytest.mark.contract("journal.store.locked")
def test_a_locked_journal_is_told_and_works_again_after(journal, path):
    journal.close()
    opened = open_at(path, busy_seconds=0.05)
    key = opened.begin(WRITE, State.AWAITING, ASKED)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(JournalError, match="locked"):
        opened.move(key, State.READY, YES)
    assert opened.record(key).state is State.AWAITING
    other.rollback()
    other.close()
    opened.move(key, State.READY, YES)
    assert opened.claim(key) == 1
    opened.close()


@pytest.mark.contract("journal.store.full")
def test_a_full_disk_loses_nothing_that_was_recorded(journal):
    key = journal.begin(WRITE, State.AWAITING, ASKED)
    ((pages,),) = journal._run("PRAGMA page_count", ())
    journal._run(f"PRAGMA max_page_count = {pages}", ())
    with pytest.raises(JournalError, match="disk is full"):
        list(map(journal.note, [READ] * 1_000, [State.DONE] * 1_000, [Facts(detail="x" * 3_000)] * 1_000))
    known = len(journal.records())
    assert journal.record(key).state is State.AWAITING
    journal._run("PRAGMA max_page_count = 1000000", ())
    journal.move(key, State.READY, YES)
    journal.note(READ, State.DONE)
    assert len(journal.records()) == known + 1
    # The chain goes on where it was.
    assert journal._run("SELECT COUNT(*) FROM chains", ()) == [(1,)]


OPEN = """
import gramercy.journal.sqlite, os, sys
from gramercy.errors import JournalError
from gramercy.journal.base import *
from gramercy.journal.opening import open_journal
if "unprivileged" in sys.argv and os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    journal = open_journal(sys.argv[1])
    journal.note(NewCall("c", "t", "safe", {}), State.DONE)
except JournalError as error:
    print(error)
"""


@pytest.mark.contract("journal.store.read-only")
def test_a_directory_that_cannot_be_written_is_told():
    # Not below the directory of this run, which only its user can enter.
    directory = Path(tempfile.mkdtemp())
    path = directory / "journal.db"
    directory.chmod(0o555)
    # The tests may run as root, who is refused nothing.
    done = subprocess.run(
        [sys.executable, "-c", OPEN, str(path), "unprivileged"],
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=True,
    )
    shutil.rmtree(directory)
    assert done.stdout == f"the journal {path} cannot be written: Permission denied\n"


def test_a_file_that_is_removed_under_a_process_is_begun_anew(journal, path, caplog):
    journal.note(READ, State.DONE)
    for file in path.parent.glob("journal.db*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    journal.note(READ, State.DONE)
    assert len(journal.records()) == 1
    assert "removed or replaced" in caplog.text
    other = open_at(path)
    assert len(other.records()) == 1
    other.close()


def test_a_closed_journal_says_so(journal):
    journal.close()
    with pytest.raises(JournalError, match="closed"):
        journal.note(READ, State.DONE)
    with pytest.raises(JournalError, match="closed"):
        journal.records()


@pytest.mark.contract("journal.store.fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_child_of_a_fork_writes_a_chain_of_its_own(journal):
    key = journal.begin(WRITE, State.EXECUTING)
    held = threading.Event()
    let_go = threading.Event()

    def hold():
        with journal._lock:
            held.set()
            let_go.wait(BOUND)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(BOUND)
    child = os.fork()
    if not child:
        code = 1
        try:
            journal.note(READ, State.DONE)
            code = 0 if journal.record(key).state is State.EXECUTING else 2
        finally:
            os._exit(code)
    let_go.set()
    thread.join(BOUND)
    assert reap(child) == 0
    journal.move(key, State.DONE, Facts(fence=1))
    assert [entry.state for entry in journal.entries()].count(State.DONE) == 2
    assert journal._run("SELECT COUNT(*) FROM chains", ()) == [(2,)]


def test_many_processes_can_begin_one_file(tmp_path):
    path = tmp_path / "journal.db"
    children = [
        subprocess.Popen([sys.executable, "-c", OPEN, str(path)], stdout=subprocess.PIPE) for _ in range(6)
    ]
    assert [child.communicate(timeout=BOUND)[0] for child in children] == [b""] * 6
    opened = open_at(path)
    assert len(opened.records()) == 6
    opened.close()


WRITING = """
import itertools
for number in itertools.count():
    key = journal.begin(WRITE, State.AWAITING, ASKED)
    journal.move(key, State.READY, YES)
    journal.move(key, State.DONE, Facts(fence=journal.claim(key)))
    if number == 20: print("there", flush=True)
"""


@pytest.mark.contract("journal.store.killed")
def test_what_was_recorded_outlives_a_kill(journal, path):
    from tests.journal.test_conformance import flaws

    for _ in range(5):
        with process(path, WRITING) as (child, _):
            child.kill()
            child.wait(BOUND)
        journal.recover(lambda _: False)
        assert flaws(journal) == []
        assert not journal.records([State.EXECUTING])
    assert len(journal.records([State.DONE], most=10_000)) >= 5 * 20


def plan_of(journal, look):
    """Return how SQLite would answer the statements of a look-up."""
    found: list[str] = []
    run = journal._run

    def explained(statement, values):
        if statement.startswith("SELECT"):
            found.extend(row[3] for row in run(f"EXPLAIN QUERY PLAN {statement}", values))
        return run(statement, values)

    journal._run = explained
    look()
    journal._run = run
    return "; ".join(found)


LOOKS = {
    "pending": lambda journal: journal.records([State.AWAITING]),
    "open": lambda journal: journal.records([State.AWAITING, State.READY, State.IN_DOUBT]),
    "failed": lambda journal: journal.records([State.FAILED]),
    "tool": lambda journal: journal.records(tool="write_file", most=20),
    "session": lambda journal: journal.records(session="s", most=20),
    "record": lambda journal: journal.record(1),
    "entries": lambda journal: journal.entries(1),
    "find": lambda journal: journal.find("me:write"),
    "recover": lambda journal: journal.recover(lambda _: False),
    "claim": lambda journal: journal.claim(1),
}


@pytest.mark.contract("journal.store.flat")
@pytest.mark.parametrize("look", LOOKS)
def test_a_look_up_reads_no_whole_table(journal, look):
    key = journal.begin(WRITE, State.AWAITING, ASKED)
    journal.move(key, State.READY, YES)
    plan = plan_of(journal, lambda: LOOKS[look](journal))
    assert "SEARCH" in plan
    # To go through the index of what is not done would be fine; it is small.
    assert "SCAN" not in plan, plan


@pytest.mark.contract("journal.store.fsyncs")
def test_a_dangerous_call_waits_for_the_disk_three_times(journal, monkeypatch):
    started = []
    start = journal._start

    def counted(*, is_lasting):
        started.append(is_lasting)
        start(is_lasting=is_lasting)

    monkeypatch.setattr(journal, "_start", counted)
    executor = Executor(REGISTRY, lambda _tool, _arguments: "approved", journal=journal)
    assert executor.execute({"id": "1", "name": "write", "arguments": {}}).success
    assert started.count(True) == 3
    assert journal.records()[0].state is State.DONE
    started.clear()
    assert executor.execute({"id": "2", "name": "read", "arguments": {}}).success
    assert started == [False]


def test_two_threads_that_record_owed_ends_do_not_hinder_each_other(journal):
    """The thread that renews the lease, and one that begins a call."""
    keys = [journal.begin(WRITE, State.EXECUTING) for _ in range(2)]
    journal._owed = {key: (State.DONE, Facts(content="written")) for key in keys}
    with journal._lock, ThreadPoolExecutor(2) as threads:
        first, second = (threads.submit(journal._settle) for _ in range(2))
        ends = monotonic() + BOUND
        while journal._owed:
            assert monotonic() < ends
            sleep(0.001)
        journal._lock.release()
        try:
            first.result(BOUND)
            second.result(BOUND)
        finally:
            journal._lock.acquire()
    assert [journal.record(key).state for key in keys] == [State.DONE, State.DONE]


def test_to_look_at_a_journal_makes_none_whatever_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(JournalError, match="there is no journal memory-of-mine"):
        open_kept("memory-of-mine.db")
    assert list(tmp_path.iterdir()) == []
