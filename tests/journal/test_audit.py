"""The audit of a real journal: every kind of edit on every table is found; redaction and pruning are not."""

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Event
from time import monotonic, time
from typing import Any

import pytest

from gramercy.errors import JournalError
from gramercy.journal.audit import open_kept, prune, redact_calls, redact_matches, verify_journal
from gramercy.journal.base import Facts, State
from gramercy.journal.chain import Head, read_told
from gramercy.journal.export import anchor_text, export_lines, read_opening, verify_lines
from gramercy.journal.opening import open_journal
from tests.journal.books import ASKED, LOOK, PAY, YES, fill


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    if request.param == "postgres":
        pytest.importorskip("gramercy.journal.postgres", reason="journals on PostgreSQL are not there yet")
        return request.getfixturevalue("postgres_address")
    return tmp_path / "journal.db"


@pytest.fixture
def journal(place):
    fill(place)
    opened = open_kept(place)
    yield opened
    opened.close()


def test_what_was_recorded_is_intact(journal):
    report = verify_journal(journal)
    assert report.flaws == ()
    assert (report.events, report.calls, len(report.heads)) == (14, 5, 2)


def test_an_empty_journal_is_intact(tmp_path):
    open_journal(tmp_path / "journal.db").close()
    opened = open_kept(tmp_path / "journal.db")
    assert verify_journal(opened).is_intact
    opened.close()


def test_a_look_makes_no_journal(tmp_path):
    with pytest.raises(JournalError, match="no call was recorded there"):
        open_kept(tmp_path / "journal.db")
    assert not list(tmp_path.iterdir())
    with pytest.raises(JournalError, match="ends with its process"):
        open_kept("memory")


# --- forgery, with the database's own tools ---

TABLES = ("events", "calls", "contents", "chains")


@pytest.fixture
def book(tmp_path):
    """Return a connection to a journal, for a forger."""
    path = tmp_path / "journal.db"
    fill(path)
    with sqlite3.connect(path) as connection:
        connection.isolation_level = None
        yield connection
    connection.close()


def flaws(tmp_path):
    opened = open_kept(tmp_path / "journal.db")
    try:
        return [str(flaw) for flaw in verify_journal(opened).flaws]
    finally:
        opened.close()


def rows_of(connection, table):
    return connection.execute(f"SELECT rowid, * FROM {table} ORDER BY rowid").fetchall()


def columns_of(connection, table):
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def loosened(connection):
    """Drop what the database itself would refuse: a forger can."""
    for (name,) in connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    ).fetchall():
        connection.execute(f"DROP INDEX {name}")


def forged(value):
    return {int: 77, float: 77.5, str: "forged", bytes: b"forged"}[type(value)]


@pytest.mark.contract("journal.audit.every-table")
@pytest.mark.parametrize("table", TABLES)
def test_every_edited_column_of_every_row_is_found(book, tmp_path, table):
    loosened(book)
    names = columns_of(book, table)
    for row in rows_of(book, table):
        for name, value in zip(names, row[1:], strict=True):
            if name == "delivered":  # whether the caller has fetched the answer; said to be outside
                continue
            book.execute(f"UPDATE {table} SET {name} = ? WHERE rowid = ?", (forged(value), row[0]))
            found = flaws(tmp_path)
            assert found, (table, name, row)
            rowid = 77 if name == "key" and table == "calls" else row[0]
            book.execute(f"UPDATE {table} SET {name} = ? WHERE rowid = ?", (value, rowid))
    assert flaws(tmp_path) == []


@pytest.mark.contract("journal.audit.every-table")
@pytest.mark.parametrize("table", TABLES)
def test_every_removed_row_is_found(book, tmp_path, table):
    for row in rows_of(book, table):
        book.execute(f"DELETE FROM {table} WHERE rowid = ?", (row[0],))
        assert flaws(tmp_path), (table, row)
        book.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * (len(row) - 1))})", row[1:])
    assert flaws(tmp_path) == []


@pytest.mark.contract("journal.audit.every-table")
@pytest.mark.parametrize("table", TABLES)
def test_every_inserted_row_is_found(book, tmp_path, table):
    loosened(book)
    places = {
        "events": ("number", 78),
        "calls": ("key", 78),
        "contents": ("step", 78),
        "chains": ("chain", 78),
    }
    name, number = places[table]
    names = columns_of(book, table)
    for row in rows_of(book, table):
        copy = [number if each == name else value for each, value in zip(names, row[1:], strict=True)]
        book.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(copy))})", copy)
        assert flaws(tmp_path), (table, row)
        book.execute(f"DELETE FROM {table} WHERE {name} = ?", (number,))
    assert flaws(tmp_path) == []


@pytest.mark.contract("journal.audit.every-table")
@pytest.mark.parametrize("table", TABLES)
def test_any_two_rows_that_changed_places_are_found(book, tmp_path, table):
    loosened(book)
    places = {"events": ["number"], "calls": ["key"], "contents": ["key", "step"], "chains": ["chain"]}
    names = columns_of(book, table)
    rows = [dict(zip(names, row[1:], strict=True)) for row in rows_of(book, table)]
    for first, second in pairwise(rows):
        if table == "events" and first["chain"] != second["chain"]:
            continue
        here, there = ({name: row[name] for name in places[table]} for row in (first, second))
        replace(book, table, [first, second], [first | there, second | here])
        assert flaws(tmp_path), (table, first, second)
        replace(book, table, [first | there, second | here], [first, second])
    assert flaws(tmp_path) == []


def replace(connection, table, before, after):
    for row in before:
        marks = " AND ".join(f"{name} = ?" for name in row)
        assert connection.execute(f"DELETE FROM {table} WHERE {marks}", [*row.values()]).rowcount == 1
    for row in after:
        connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", [*row.values()])


def test_the_first_bad_record_is_named(book, tmp_path):
    book.execute("UPDATE events SET at = at + 1 WHERE chain = 1 AND number IN (3, 5)")
    assert flaws(tmp_path)[0].startswith("event 1.3 (call 2): it was changed")


def test_a_row_that_is_there_twice_is_found(book, tmp_path):
    loosened(book)
    (sql,) = book.execute("SELECT sql FROM sqlite_master WHERE name = 'events'").fetchone()
    book.execute("ALTER TABLE events RENAME TO old")
    book.execute(sql.replace("PRIMARY KEY (chain, number)", "UNIQUE (chain, number, key, state, at, hash)"))
    book.execute("INSERT INTO events SELECT * FROM old")
    book.execute("DROP TABLE old")
    book.execute(
        "INSERT INTO events SELECT chain, number, key, step, state, at + 1, facts, contents, previous, hash "
        "FROM events WHERE chain = 1 AND number = 4"
    )
    assert flaws(tmp_path)


def test_a_text_that_is_no_text_is_told(book, tmp_path):
    book.execute("UPDATE events SET facts = CAST(x'ff' AS TEXT) WHERE chain = 1 AND number = 4")
    with pytest.raises(JournalError, match="cannot be verified"):
        flaws(tmp_path)


# --- redaction and retention ---


@pytest.mark.contract("journal.audit.redacted")
def test_a_redaction_deletes_contents_and_the_chain_holds(journal):
    key = next(record.key for record in journal.records() if record.state is State.DONE and record.step > 1)
    assert redact_calls(journal, [key], "ada", "a name") == 4
    record = journal.record(key)
    assert (record.call.arguments, record.facts.content) == ({}, "")
    assert (record.facts.ruling.by, record.facts.size, record.facts.files) == ("ada", 4, ("a.txt",))
    report = verify_journal(journal)
    assert report.flaws == ()
    assert report.deleted == 4


@pytest.mark.contract("journal.audit.redacted-open")
def test_what_an_open_call_needs_is_not_redacted(journal):
    (waiting,) = journal.records([State.AWAITING])
    with pytest.raises(JournalError, match=f"call {waiting.key} is awaiting"):
        redact_calls(journal, [waiting.key], "ada")
    changed, needed = redact_matches(journal, lambda text: text.replace("pay 1?", "…"), "ada")
    assert (changed, needed) == (2, [waiting.key])
    assert journal.record(waiting.key).facts.question.text == "pay 1?"
    assert verify_journal(journal).flaws == ()


def test_an_unknown_call_is_told(journal):
    with pytest.raises(JournalError, match="there is no call 99"):
        redact_calls(journal, [99], "ada")


@pytest.mark.contract("journal.audit.wiped")
def test_what_was_redacted_is_in_no_file(tmp_path):
    path = tmp_path / "journal.db"
    key, _ = fill(path)
    opened = open_kept(path)
    assert b"paid" in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    redact_calls(opened, [key], "ada")
    assert b"paid" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    opened.close()


@pytest.mark.contract("journal.audit.pruned")
def test_a_pruning_deletes_old_contents_of_calls_that_are_over(journal):
    (waiting,) = journal.records([State.AWAITING])
    assert prune(journal, time() + 1, "ada") == 8
    assert prune(journal, time() + 1, "ada") == 0
    assert journal.record(waiting.key).call.arguments["amount"] == 1
    report = verify_journal(journal)
    assert report.flaws == ()
    assert report.deleted == 8
    assert len(journal.entries()) == 12


def test_a_pruning_of_many_pages_is_an_event_for_each(journal, monkeypatch):
    """Each names the calls whose contents went with it."""
    monkeypatch.setattr("gramercy.journal.audit.MOST_PARAMETERS", 1)
    before = verify_journal(journal).events
    assert prune(journal, time() + 1, "ada") == 8
    report = verify_journal(journal)
    # Those, and the opening of this writer's chain.
    assert (report.flaws, report.events, report.deleted) == ((), before + 5, 8)


@pytest.mark.contract("journal.audit.one-state")
def test_a_journal_is_intact_while_others_write_it(place, journal):
    """A verification sees one state, however many events come meanwhile."""
    done = Event()

    def write():
        writer = open_journal(place)
        while not done.is_set():
            key = writer.begin(PAY, State.AWAITING, ASKED)
            writer.move(key, State.READY, YES)
            writer.move(key, State.DONE, Facts(fence=writer.claim(key), content="paid"))
            writer.note(LOOK, State.DONE)
        writer.close()

    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(write) for _ in range(2)]
        try:
            counts: list[int] = []
            end = monotonic() + 60
            while len(counts) < 10 or counts[-1] < counts[0] + 20:
                assert monotonic() < end, "nobody has written anything"
                report = verify_journal(journal)
                assert report.flaws == ()
                counts.append(report.events)
        finally:
            done.set()
        for writer in writers:
            writer.result(60)
    assert counts == sorted(counts)


def test_a_deletion_that_nobody_recorded_is_no_pruning(book, tmp_path):
    opened = open_kept(tmp_path / "journal.db")
    prune(opened, 1.0, "ada")
    opened.close()
    book.execute("DELETE FROM contents WHERE key = 1")
    assert flaws(tmp_path) == ["event 1.2 (call 1): its contents are gone, and no event says so"]


# --- chains that are cut off ---


def cut(journal, chain, number):
    """Remove the events of a chain from a number on, and all of their calls, as a forger would."""
    doomed = [
        key
        for (key,) in journal._run("SELECT key FROM events WHERE chain = ? AND number >= ?", (chain, number))
    ]
    for key in {key for key in doomed if key}:
        for table in ("events", "calls", "contents"):
            journal._change(f"DELETE FROM {table} WHERE key = ?", (key,))
    journal._change("DELETE FROM events WHERE chain = ? AND number >= ?", (chain, number))
    ((last,),) = journal._run("SELECT hash FROM events WHERE chain = ? AND number = ?", (chain, number - 1))
    journal._change("UPDATE chains SET number = ?, hash = ? WHERE chain = ?", (number - 1, last, chain))


def noted(place, *calls):
    """Write calls as a process of its own would."""
    opened = open_journal(place)
    for call in calls:
        opened.note(call, State.DONE)
    opened.close()


@pytest.mark.contract("journal.audit.cut")
def test_a_chain_that_was_cut_off_before_another_was_opened_is_found(place):
    noted(place, LOOK, PAY, LOOK)
    noted(place, LOOK)
    noted(place, LOOK)
    opened = open_kept(place)
    assert verify_journal(opened).flaws == ()
    cut(opened, 2, 2)
    cut(opened, 1, 3)
    wanted = [
        "event 1.4, of which event 2.1 tells, is missing",
        "event 2.2, of which event 3.1 tells, is missing",
    ]
    assert [str(flaw) for flaw in verify_journal(opened).flaws] == wanted
    assert [str(flaw) for flaw in verify_lines(exported(opened)).flaws] == wanted
    opened.close()


@pytest.mark.contract("journal.audit.cut")
def test_a_chain_that_was_written_anew_from_some_event_on_is_found(place):
    noted(place, LOOK, PAY)
    noted(place, LOOK)
    opened = open_kept(place)
    cut(opened, 1, 3)
    ((number, made),) = opened._run("SELECT number, hash FROM chains WHERE chain = 1", ())
    opened._head, opened._chain = Head(1, number, made), 1
    opened.note(LOOK, State.DONE)
    first, *_ = verify_journal(opened).flaws
    assert str(first) == "event 1.3 is not the one of which event 2.1 tells"
    opened.close()


def test_an_opening_tells_of_the_chains_that_have_grown_since_the_last_one(place):
    """Not of all: ten thousand processes may have written a journal."""
    long: Any = open_journal(place)
    long.note(LOOK, State.DONE)
    noted(place, LOOK)
    late = time() + 10
    long._now = lambda: late
    long.note(LOOK, State.DONE)
    other: Any = open_journal(place)
    other._now = lambda: late + 10
    other.note(LOOK, State.DONE)
    third: Any = open_journal(place)
    third._now = lambda: late + 20
    third.note(LOOK, State.DONE)
    told = third._run("SELECT facts FROM events WHERE number = 1 ORDER BY chain", ())
    heads = [list(read_told(facts).heads) for (facts,) in told]
    assert heads == [[], ["1.2"], ["1.3", "2.2"], ["3.2"]]
    for each in (long, other, third):
        each.close()


# --- export ---


def exported(journal, **options):
    return list(export_lines(journal, 1.5, **options))


@pytest.mark.contract("journal.audit.export")
@pytest.mark.parametrize("with_contents", [True, False])
def test_an_export_can_be_verified_without_the_journal(journal, with_contents):
    redact_calls(journal, [1], "ada")
    lines = exported(journal, with_contents=with_contents)
    report = verify_lines(lines)
    assert report.flaws == ()
    assert report.digest == verify_journal(journal).digest
    assert (b"paid" in b"".join(lines)) is with_contents
    assert b"hush" in b"".join(lines) if with_contents else True


@pytest.mark.contract("journal.audit.export-forged")
def test_every_forged_line_of_an_export_is_found(journal):
    lines = exported(journal, with_contents=True)
    for number in range(1, len(lines) - 1):
        fields = json.loads(lines[number])
        for name, value in fields.items():
            forged_line = json.dumps(fields | {name: forged(value)}).encode()
            report = verify_lines([*lines[:number], forged_line, *lines[number + 1 :]])
            assert report.flaws, (number, name)
        assert verify_lines(lines[:number] + lines[number + 1 :]).flaws
        assert verify_lines([*lines[: number + 1], *lines[number:]]).flaws
    assert verify_lines(lines[:-1]).flaws
    assert verify_lines([*lines, lines[2]]).flaws
    assert verify_lines([*lines[:3], b"\xff{", *lines[3:]]).flaws


def test_another_file_is_no_export():
    for lines in ([], [b""], [b"hello"], [b"{}"], [b'{"format":"other","heads":[]}'], [b"\xff"]):
        with pytest.raises(JournalError, match="neither an export"):
            verify_lines(lines)


def test_an_anchor_holds_for_a_journal_that_grew_and_for_no_other(journal, tmp_path):
    anchor = read_opening(anchor_text(verify_journal(journal)).encode()).heads
    journal.note(LOOK, State.DONE)
    assert verify_journal(journal, anchor).flaws == ()
    assert verify_lines(exported(journal), anchor).flaws == ()
    fill(tmp_path / "other.db")
    other = open_kept(tmp_path / "other.db")
    assert "not the event that the anchor knows" in str(verify_journal(other, anchor).flaws[0])
    other.close()
