"""What a person sees of a journal that is damaged, large, read-only, or was changed from outside."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from time import time

import pytest

from gramercy.journal.audit import open_kept, prune
from gramercy.journal.base import NewCall, State
from gramercy.journal.chain import PRUNED, Told
from gramercy.journal.opening import open_journal
from gramercy.journal.statistics import tool_figures
from tests.journal.books import ASKED, PAY, YES, fill


@pytest.fixture
def place(tmp_path):
    return tmp_path / "kept" / "journal.db"


@pytest.mark.contract("journal.faults.told")
@pytest.mark.parametrize("harm", ["empty", "cut off"])
def test_a_verification_of_a_damaged_journal_fails_and_renames_nothing(inside, place, harm):
    fill(place)
    os.truncate(place, 0 if harm == "empty" else 3_000)
    names = {each.name for each in place.parent.iterdir()}
    done = inside("audit", "verify", "--journal", str(place))
    assert done.returncode == 1
    assert f"it {'is empty' if harm == 'empty' else 'was cut off'}" in done.stderr
    assert {each.name for each in place.parent.iterdir()} == names


@pytest.mark.contract("journal.faults.told")
def test_a_journal_without_events_is_not_said_to_be_intact(inside, place):
    place.parent.mkdir()
    open_journal(place).close()
    done = inside("audit", "verify", "--journal", str(place))
    assert done.returncode == 1
    assert done.stdout.startswith("EMPTY: nothing is recorded here")


@pytest.mark.contract("journal.faults.told")
def test_a_verification_tells_what_it_cannot_know_and_what_it_does_not_cover(inside, place):
    fill(place)
    with closing(open_kept(place)) as journal:
        old = Told(before_at=time() + 1)
        journal._write(lambda: journal._tell_own(PRUNED, time(), old), is_lasting=True)
        journal._run("DELETE FROM contents WHERE key = 1", ())
    done = inside("audit", "verify", "--journal", str(place))
    assert done.returncode == 0
    assert "contents: 1 gone that an old pruning may have deleted; it has not recorded which" in done.stdout
    assert "not covered: conversations, leases, whole answers" in done.stderr
    told = json.loads(inside("audit", "verify", "--json", "--journal", str(place)).stdout)
    assert (told["intact"], told["unproven"]) == (True, 1)


@pytest.mark.contract("journal.faults.show")
@pytest.mark.parametrize("harm", ["DELETE FROM contents", "UPDATE contents SET text = '{}'"])
def test_a_question_whose_contents_are_gone_or_changed_is_not_shown_as_whole(inside, place, harm):
    """After a pruning as well, which has deleted nothing of a call that waits."""
    fill(place)
    with closing(open_kept(place)) as journal:
        prune(journal, time() + 1, "ada")
        (waiting,) = journal.records([State.AWAITING])
        journal._run(f"{harm} WHERE key = {waiting.key}", ())
    key, seal = str(waiting.key), "5ea1"
    shown = inside("approvals", "show", key, "--journal", str(place))
    assert shown.returncode == 1
    assert "That is all of it" not in shown.stdout
    assert f"what the journal holds about call {key} was changed from outside" in shown.stderr
    approved = inside("approvals", "approve", key, "--seal", seal, "--journal", str(place))
    assert approved.returncode == 1
    assert "was changed from outside" in approved.stderr
    # To deny it stays possible.
    assert inside("approvals", "deny", key, "--journal", str(place)).returncode == 0


@pytest.mark.contract("journal.faults.all")
def test_all_calls_that_wait_are_listed(inside, place):
    """More than one page of the journal; those that were left out were not told."""
    place.parent.mkdir()
    journal = open_journal(place)
    journal.begin(PAY, State.AWAITING, ASKED)
    journal.close()
    with closing(sqlite3.connect(place)) as copy:
        names = [name for _, name, *_ in copy.execute("PRAGMA table_info(calls)")][1:]
        columns = ", ".join(names)
        copy.execute(
            "WITH RECURSIVE many(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM many WHERE n < 2199) "
            f"INSERT INTO calls ({columns}) SELECT {columns} FROM calls, many"
        )
        copy.commit()
    listed = json.loads(inside("approvals", "list", "--json", "--journal", str(place)).stdout)
    assert [call["key"] for call in listed] == list(range(1, 2_201))


@pytest.mark.contract("journal.faults.read-only")
def test_a_journal_on_read_only_media_is_verified_and_listed(inside, place):
    """Also one whose process was killed, so that its log is there without the index."""
    fill(place)
    names = {each.name for each in place.parent.iterdir()}
    place.chmod(0o400)
    place.parent.chmod(0o500)
    try:
        verified = inside("audit", "verify", "--journal", str(place))
        listed = inside("approvals", "list", "--journal", str(place))
    finally:
        place.parent.chmod(0o700)
    assert verified.stdout.startswith("intact: 14 events"), verified.stderr
    assert "pay" in listed.stdout
    assert {each.name for each in place.parent.iterdir()} == names


@pytest.mark.contract("journal.faults.read-only")
def test_to_list_what_waits_makes_no_journal(inside, place):
    done = inside("approvals", "list", "--journal", str(place))
    assert done.returncode == 1
    assert "there is no journal" in done.stderr
    assert not place.parent.exists()


@pytest.mark.contract("journal.faults.clock")
def test_a_clock_that_was_set_back_makes_no_wait_negative(inside, place, monkeypatch):
    place.parent.mkdir()
    journal = open_kept_for_writing(place)
    now = time()
    monkeypatch.setattr("gramercy.journal.tables.time", lambda: now)
    key = journal.begin(PAY, State.AWAITING, ASKED)
    monkeypatch.setattr("gramercy.journal.tables.time", lambda: now - 3_600.0)
    journal.move(key, State.READY, YES)
    (figures,) = tool_figures(journal)
    assert (figures.wait_p50, figures.wait_p95) == (0.0, 0.0)
    journal.close()
    told = inside("audit", "show", str(key), "--journal", str(place)).stdout
    assert "after 0.0 s" in told


def open_kept_for_writing(place):
    open_journal(place).close()
    return open_kept(place)


def test_calls_of_other_projects_are_not_counted(inside, place):
    """The pages of a list are those of the project that was asked for."""
    place.parent.mkdir()
    with closing(open_kept_for_writing(place)) as journal:
        for project in ("/a", "/b"):
            call = NewCall("1", "pay", "dangerous", {"amount": 1}, project=project)
            journal.begin(call, State.AWAITING, ASKED)
    listed = inside("approvals", "list", "--json", "--project", "/b", "--journal", str(place))
    assert [call["project"] for call in json.loads(listed.stdout)] == ["/b"]
