"""Files of a journal that are removed, replaced, cut off or put back: it is told, and calls go on."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from time import time

import psycopg
import pytest

from gramercy.errors import ForgedRecordError, JournalError
from gramercy.journal.audit import open_kept, prune, verify_journal
from gramercy.journal.base import Facts, State
from gramercy.journal.chain import PRUNED, KeySet, Told
from gramercy.journal.postgres import PostgresJournal
from gramercy.journal.sqlite import SqliteJournal
from tests.journal.books import ASKED, PAY, YES, fill
from tests.journal.stores import READ, WRITE, process

ENDINGS = ("", "-wal", "-shm")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kept" / "journal.db"


@pytest.fixture
def journal(path):
    opened = SqliteJournal(path)
    yield opened
    opened.close()


def live(journal):
    key = journal.begin(PAY, State.AWAITING, ASKED)
    journal.move(key, State.READY, YES)
    journal.move(key, State.DONE, Facts(fence=journal.claim(key), content="paid"))
    return key


def beside(path):
    """Return what is in the directory of a journal, with the contents of each file."""
    files = (each for each in path.parent.rglob("*") if each.is_file())
    return {each.name: (each.stat().st_mtime_ns, each.read_bytes()) for each in files}


def names_beside(path):
    return {each.name for each in path.parent.iterdir()}


def remove(path, ending):
    path.with_name(path.name + ending).unlink()


def report_of(path):
    with closing(open_kept(path, is_look=True)) as opened:
        return verify_journal(opened)


@pytest.mark.contract("journal.faults.look")
@pytest.mark.parametrize(
    "harm", ["empty", "cut off", "no database", "none", "log without index", "of another program"]
)
def test_a_look_changes_nothing_and_tells_what_is_wrong(path, harm):
    """An auditor must find the evidence as it was."""
    fill(path)
    size = path.stat().st_size
    if harm == "log without index":
        with process(path, "journal.note(READ, State.DONE)"):
            saved = {ending: f"{path}{ending}" for ending in ENDINGS[:2]}
            (path.parent / "copy").mkdir()
            for name in saved.values():
                shutil.copy(name, path.parent / "copy")
        path = path.parent / "copy" / path.name
    elif harm == "empty":
        os.truncate(path, 0)
    elif harm == "cut off":
        os.truncate(path, size // 2)
    elif harm == "no database":
        path.write_bytes(b"nothing of the kind" * 100)
    elif harm == "of another program":
        path.unlink()
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE notes (text)")
    before = beside(path)
    if harm in {"none", "log without index"}:
        report = report_of(path)
        assert report.flaws == ()
        assert report.events > 10
    else:
        with pytest.raises(JournalError, match=r"cannot be looked at: it .*; it was left as it is"):
            report_of(path)
    assert beside(path) == before


@pytest.mark.contract("journal.faults.look")
def test_a_look_at_a_journal_in_use_sees_what_is_in_its_log(path, journal):
    live(journal)
    log = path.with_name("journal.db-wal")
    assert log.stat().st_size > 0
    names = names_beside(path)
    report = report_of(path)
    assert (report.flaws, report.calls) == ((), 1)
    assert names_beside(path) == names
    assert log.stat().st_size > 0
    live(journal)
    assert report_of(path).calls == 2


@pytest.mark.contract("journal.faults.look")
def test_nothing_is_written_through_a_look(path):
    fill(path)
    with closing(open_kept(path, is_look=True)) as look:
        with pytest.raises(JournalError, match="was opened for a look"):
            look.note(READ, State.DONE)
        assert len(look.records()) == 5


@pytest.mark.contract("journal.faults.look")
def test_a_damaged_journal_is_not_set_aside_by_who_redacts_or_prunes(path):
    fill(path)
    os.truncate(path, 3_000)
    before = names_beside(path)
    with pytest.raises(JournalError, match=r"is damaged .*: it was left as it is"):
        open_kept(path)
    assert names_beside(path) - before <= {"journal.db.lock", "journal.db-wal", "journal.db-shm"}


@pytest.mark.contract("journal.faults.log-removed")
@pytest.mark.parametrize("gone", [("-wal",), ("-shm",), ("-wal", "-shm")])
def test_no_call_is_lost_when_the_log_is_removed_under_a_process(path, journal, gone):
    """A cleaner removes files that it takes for leftovers; what was committed is still open here."""
    keys = [live(journal) for _ in range(3)]
    for ending in gone:
        remove(path, ending)
    keys += [live(journal) for _ in range(3)]
    assert {record.key for record in journal.records([State.DONE])} == set(keys)
    with process(path, "print(len(journal.records()), flush=True)") as (_, lines):
        assert lines == ["6"]
    journal.close()
    report = report_of(path)
    assert (report.flaws, report.calls) == ((), 6)
    assert any("was removed or replaced while a process used it" in each for each in report.remarks)


@pytest.mark.contract("journal.faults.log-removed")
def test_a_process_that_opens_a_journal_without_its_log_does_not_end_it(path, journal):
    """It may find an index that speaks of a log that is gone; it is refused at most until the next call."""
    keys = [live(journal) for _ in range(3)]
    remove(path, "-wal")
    try:
        other = SqliteJournal(path)
        other.close()
    except JournalError:
        pass
    keys += [live(journal) for _ in range(2)]
    assert {record.key for record in journal.records([State.DONE])} >= set(keys[-2:])
    with closing(SqliteJournal(path)) as after:
        live(after)
    journal.close()
    assert report_of(path).flaws == ()


@pytest.mark.contract("journal.faults.removed")
def test_a_journal_that_was_removed_is_told_of_in_the_one_that_is_begun(path, journal, caplog):
    live(journal)
    end = journal._known
    for ending in ENDINGS:
        remove(path, ending)
    live(journal)
    assert "was removed or replaced" in caplog.text
    report = report_of(path)
    assert (report.flaws, report.calls) == ((), 1)
    (remark,) = report.remarks
    assert remark.startswith("event 1.1: the journal that was here was removed or replaced while a process")
    assert remark.endswith(f"its chain 1 ended with event 1.{end.number}, {end.hash}")


@pytest.mark.contract("journal.faults.removed")
def test_a_journal_whose_directory_was_removed_refuses_no_call(path, journal):
    """A person who clears the directory of states does not stop the servers that use it."""
    live(journal)
    shutil.rmtree(path.parent)
    key = live(journal)
    assert journal.record(key).state is State.DONE
    assert path.parent.stat().st_mode & 0o777 == 0o700
    report = report_of(path)
    assert (report.flaws, report.calls) == ((), 1)
    assert "was removed or replaced while a process used it" in report.remarks[0]


def make_device(path):
    """Make the null device anew, where that is allowed: that of the machine must not be tried."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root can make a device")


@pytest.mark.contract("journal.faults.look")
@pytest.mark.parametrize("opened", [SqliteJournal, lambda path: open_kept(path, is_look=True)])
@pytest.mark.parametrize(
    ("what", "make"), [("a pipe", os.mkfifo), ("a directory", os.mkdir), ("a device", make_device)]
)
def test_what_is_no_file_is_refused_and_nothing_is_made_beside_it(path, opened, what, make):
    """To open a pipe waits for a writer without end, and a device must not be made private."""
    path.parent.mkdir()
    make(path)
    before = path.stat().st_mode
    with pytest.raises(JournalError, match=rf"cannot be used: it is {what}, not a file; name another file"):
        opened(path)
    assert names_beside(path) == {path.name}
    assert path.stat().st_mode == before


@pytest.mark.contract("journal.faults.removed")
def test_a_journal_that_was_emptied_is_told_of_in_the_one_that_is_begun(path, journal):
    with journal.bell():
        live(journal)
    journal.close()
    path.with_name("journal.db.run").mkdir(exist_ok=True)
    os.truncate(path, 0)
    with closing(SqliteJournal(path)) as anew:
        live(anew)
    assert "was found empty" in report_of(path).remarks[0]


@pytest.mark.contract("journal.faults.removed")
def test_a_journal_that_is_damaged_in_place_refuses_no_call_for_good(path, journal):
    """The process that meets the damage opens the journal anew, and a damaged one is set aside."""
    for _ in range(50):
        live(journal)
    journal._run("PRAGMA wal_checkpoint(TRUNCATE)", ())
    # In another process, as it happens: to close the file here would end the locks of the journal.
    size = path.stat().st_size
    harm = f"f = open({str(path)!r}, 'r+b'); f.seek(4096); f.write(b'\\xff' * {size - 4_096}); f.close()"
    subprocess.run([sys.executable, "-c", harm], check=True, timeout=60)
    journal._run("PRAGMA shrink_memory", ())
    refused = 0
    for _ in range(4):
        try:
            live(journal)
        except JournalError:
            refused += 1
    assert refused < 3
    assert journal.set_aside is not None
    assert "set aside" in report_of(path).remarks[0]


@pytest.mark.contract("journal.faults.restored")
def test_a_journal_that_was_put_back_to_an_older_state_is_told_of(path, journal, caplog):
    """In place, as `cp` and many backups do: the process knows where its chain had ended."""
    live(journal)
    journal._run("PRAGMA wal_checkpoint(TRUNCATE)", ())
    older = path.read_bytes()
    live(journal)
    known = journal._known
    journal._run("PRAGMA wal_checkpoint(TRUNCATE)", ())
    journal._let_go()
    path.write_bytes(older)
    journal._open()
    journal._head = None
    live(journal)
    assert f"event 1.{known.number}, which that process had recorded, is gone" in caplog.text
    report = report_of(path)
    assert f"event 1.{known.number}, of which event 2.1 tells, is missing" in map(str, report.flaws)
    assert "was put back to an older state" in report.remarks[0]


@pytest.mark.contract("journal.faults.restored")
def test_a_server_that_was_put_back_to_an_older_state_is_told_of(postgres_address):
    """The head that a process knows is kept over a lost connection."""
    journal = PostgresJournal(postgres_address)
    live(journal)
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute("SET search_path = gramercy")
        connection.execute("CREATE TABLE public.saved AS TABLE chains")
        live(journal)
        assert journal._known is not None
        number = journal._known.number
        connection.execute("DELETE FROM contents WHERE key = 2")
        connection.execute("DELETE FROM events WHERE key = 2")
        connection.execute("DELETE FROM calls WHERE key = 2")
        connection.execute("UPDATE chains c SET number = s.number, hash = s.hash FROM public.saved s")
        connection.execute("DROP TABLE public.saved")
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    live(journal)
    report = verify_journal(journal)
    assert f"event 1.{number}, of which event 2.1 tells, is missing" in map(str, report.flaws)
    assert "was put back to an older state" in report.remarks[0]
    journal.close()


@pytest.mark.contract("journal.faults.pruned")
def test_contents_that_no_pruning_has_named_are_missed(path):
    """Whoever deletes the contents of another old call is not covered by a pruning."""
    fill(path)
    with closing(open_kept(path)) as journal:
        (waiting,) = journal.records([State.AWAITING])
        live(journal)
        assert prune(journal, time() + 1, "ada") > 0
        assert verify_journal(journal).flaws == ()
        journal._run("DELETE FROM contents WHERE key = ?", (waiting.key,))
        (flaw, *_) = verify_journal(journal).flaws
        assert str(flaw).endswith(f"(call {waiting.key}): its contents are gone, and no event says so")
        with pytest.raises(ForgedRecordError, match=f"about call {waiting.key} was changed from outside"):
            journal.check(waiting.key)
        with pytest.raises(ForgedRecordError):
            journal.move(waiting.key, State.READY, YES)
        assert [record.key for record in journal.records([State.AWAITING])] == [waiting.key]


@pytest.mark.contract("journal.faults.pruned")
def test_what_an_old_pruning_may_have_deleted_is_said_to_be_unproven(path):
    """Events of before do not name the calls; the verification says what it cannot know."""
    fill(path)
    with closing(open_kept(path)) as journal:
        journal._write(lambda: journal._tell_own(PRUNED, time(), Told(before_at=time() + 1)), is_lasting=True)
        journal._run("DELETE FROM contents WHERE key = 1", ())
        report = verify_journal(journal)
        assert (report.flaws, report.deleted, report.unproven) == ((), 0, 1)


@pytest.mark.contract("journal.faults.pruned")
def test_a_set_of_keys_is_what_was_put_into_it():
    keys = {1, 2, 3, 7, 9, 10, 500}
    text = str(KeySet.of(keys))
    assert text == "1-3,7,9-10,500"
    assert {key for key in range(600) if key in KeySet(text)} == keys
    assert str(KeySet.of([])) == ""


@pytest.mark.contract("journal.faults.strangers")
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_triggers_views_and_tables_of_others_are_named(path, request, store):
    """A trigger can act on every move, a view can lie about the past."""
    place = path if store == "sqlite" else request.getfixturevalue("postgres_address")
    fill(place)
    with closing(open_kept(place)) as journal:
        assert verify_journal(journal).flaws == ()
        journal._run("CREATE VIEW past AS SELECT * FROM calls", ())
        journal._run("CREATE TABLE more (text TEXT)", ())
        if store == "sqlite":
            journal._run("CREATE TRIGGER sly AFTER UPDATE ON calls BEGIN DELETE FROM answers; END", ())
        else:
            journal._run("CREATE RULE sly AS ON DELETE TO answers DO INSTEAD NOTHING", ())
        flaws = [str(flaw) for flaw in verify_journal(journal).flaws]
    for each in ("view past", "table more", "trigger sly" if store == "sqlite" else "rule sly"):
        assert f"there is a {each}, which gramercy does not make" in flaws


@pytest.mark.contract("journal.faults.owner")
@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_journal_of_another_user_is_refused(path):
    fill(path)
    os.chown(path, 12_345, -1)
    with pytest.raises(JournalError, match=r"belongs to another user \(uid 12345\), who can change it: "):
        SqliteJournal(path)


@pytest.mark.contract("journal.faults.owner")
def test_a_journal_that_others_could_write_is_told_of(path, caplog):
    fill(path)
    path.chmod(0o666)
    path.parent.chmod(0o777)
    with closing(SqliteJournal(path)):
        pass
    assert "could be written by other users (mode 666)" in caplog.text
    assert "in a directory that other users can write (mode 777)" in caplog.text
    assert f"chmod go-w {path.parent}" in caplog.text
    assert path.stat().st_mode & 0o777 == 0o600


def test_begun_calls_stay_known_after_the_log_was_removed(path, journal):
    """A call that runs when its log goes ends where it began."""
    key = journal.begin(WRITE, State.EXECUTING)
    remove(path, "-wal")
    journal.move(key, State.DONE, Facts(fence=1, content="x"))
    assert journal.record(key).state is State.DONE
