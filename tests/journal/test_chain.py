"""Chains of events, without any database: what is written can be read back, and no forgery passes.

The kinds of forgery are those of the audit's promise: edited, removed, reordered and inserted records.
"""

import json
from hashlib import sha256
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramercy.journal.base import Facts, NewCall, Question, Ruling, State
from gramercy.journal.chain import (
    CallFacts,
    Content,
    Event,
    Head,
    event_hash,
    kept_text,
    linked,
    read_facts,
    read_kept,
    read_told,
    told_text,
)
from tests.journal.books import CALL, QUESTION, Book, Writer, small_book

texts = st.text(max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(texts, values, max_size=4)


@given(arguments, texts, st.none() | arguments)
def test_what_is_told_and_kept_is_read_back_as_it_was(given_arguments, words, edited):
    call = NewCall("1", "pay", "dangerous", given_arguments, client=words, identity="i")
    ruling = Ruling(
        approved=True, by=words, seal="s", reason=words, shown=words, note=words, arguments=edited
    )
    facts = Facts(detail=words, question=QUESTION, ruling=ruling, files=("a", words), elapsed_ms=1.5, fence=2)
    told, kept = read_told(told_text(facts, call)), read_kept(kept_text(facts, call))
    assert read_facts(told, kept) == facts
    assert told.call == CallFacts("1", "pay", "dangerous", client=words, identity="i")
    assert (kept.arguments or {}) == given_arguments


def test_half_a_surrogate_pair_can_be_kept():
    call = NewCall("1", "pay", "safe", {"text": "\ud800"})
    assert read_kept(kept_text(Facts(), call)).arguments == call.arguments


@pytest.mark.contract("journal.audit.contents")
def test_facts_that_stay_tell_nothing_of_the_contents():
    secret = "hush-hush"
    call = NewCall("1", "pay", "dangerous", {"word": secret})
    ruling = Ruling(
        approved=True, by="ada", reason=secret, shown=secret, note=secret, arguments={"a": secret}
    )
    question = Question(secret, "5ea1", {"tool": "d"}, secret, effect={"text": secret}, changes=(secret,))
    facts = Facts(detail=secret, content=secret, arguments={"a": secret}, ruling=ruling, question=question)
    assert secret not in told_text(facts, call)
    assert kept_text(facts, call).count(secret) >= 10


@pytest.mark.contract("journal.audit.hash")
def test_a_hash_is_that_of_the_columns_one_on_a_line():
    """So that anybody can check a journal without gramercy."""
    event, _ = linked(Head(3, 7, "ab"), 5, 2, "ready", 1.25, '{"by":"ada"}', "cd")
    lines = ["3", "8", "5", "2", "ready", "1.25", '{"by":"ada"}', "cd", "ab"]
    assert event.hash == sha256("\n".join(lines).encode()).hexdigest()


def test_a_true_journal_is_intact():
    report = small_book().report(15.0)
    assert report.flaws == ()
    assert (report.events, report.calls, report.replaced, report.deleted) == (14, 3, 2, 1)
    # The pruning is an old one, which does not say what it has deleted.
    assert report.unproven == 1
    assert [head.number for head in report.heads] == [8, 3, 3]


EVENTS = small_book().events
OTHERS = {int: -7, str: "other", float: 3.5}


@pytest.mark.contract("journal.audit.edited")
@pytest.mark.parametrize("column", Event._fields)
@pytest.mark.parametrize("index", range(len(EVENTS)))
def test_any_column_of_any_event_that_was_edited_is_named(index, column):
    book = small_book()
    event = book.events[index]
    edited = OTHERS[type(getattr(event, column))]
    book.events[index] = event._replace(**{column: edited})
    report = book.report(15.0)
    assert report.flaws
    if column not in {"chain", "number"}:
        assert (report.flaws[0].chain, report.flaws[0].number) == (event.chain, event.number)


@pytest.mark.parametrize("value", [None, b"bytes", "7", 7, 7.0, "", "\ud800", (1,)])
@pytest.mark.parametrize("column", Event._fields)
def test_whatever_is_put_into_a_row_is_a_flaw_and_no_crash(column, value):
    book = small_book()
    event = book.events[4]
    if getattr(event, column) == value:
        return
    book.events[4] = event._replace(**{column: value})
    assert book.report(15.0).flaws


@pytest.mark.contract("journal.audit.removed")
@pytest.mark.parametrize("index", range(len(EVENTS)))
def test_an_event_that_was_removed_is_missed(index):
    book = small_book()
    gone = book.events.pop(index)
    flaw = str(book.report(15.0).flaws[0])
    assert f"event {gone.chain}.{gone.number} is missing" in flaw


@pytest.mark.contract("journal.audit.reordered")
@pytest.mark.parametrize("index", range(len(EVENTS) - 1))
def test_events_in_another_order_are_seen(index):
    book = small_book()
    first, second = book.events[index : index + 2]
    if first.chain != second.chain:
        return
    # Their places are swapped, as one does who wants another order of things.
    book.events[index : index + 2] = [
        second._replace(number=first.number),
        first._replace(number=second.number),
    ]
    flaw = book.report(15.0).flaws[0]
    assert (flaw.chain, flaw.number) == (first.chain, first.number)


@pytest.mark.contract("journal.audit.inserted")
@pytest.mark.parametrize("index", range(len(EVENTS)))
def test_an_event_that_was_inserted_is_seen(index):
    book = small_book()
    event = book.events[index]
    head = Head(event.chain, event.number, event.hash)
    book.events.insert(index + 1, linked(head, 9, 1, "done", 1.0, told_text(Facts(), CALL))[0])
    flaw = book.report(15.0).flaws[0]
    assert flaw.chain == event.chain
    assert flaw.number - event.number in {0, 1}


def rehashed(book: Book, chain: int) -> Book:
    """Return a book whose forger has computed all hashes of one chain anew, and its head."""
    head = Head(chain, 0, next(event.previous for event in book.events if event.chain == chain))
    events = []
    for event in book.events:
        made = event
        if event.chain == chain:
            made, head = linked(head, *event[2:8])
        events.append(made)
    heads = [head if each.chain == chain else each for each in book.heads]
    return Book(events, book.contents, heads)


def test_who_recomputes_a_chain_from_its_first_event_breaks_the_next_chain():
    book = small_book()
    book.events[0] = book.events[0]._replace(at=5.0)
    assert "does not name the first event" in str(rehashed(book, 1).report(15.0).flaws[0])


@pytest.mark.contract("journal.audit.anchor")
def test_who_recomputes_the_rest_of_a_chain_is_caught_by_an_anchor():
    """What can be hidden from a look at the database alone cannot from who noted its heads before."""
    true = small_book()
    anchors = tuple(true.heads)
    book = Book(true.events.copy(), true.contents, true.heads.copy())
    book.events[3] = book.events[3]._replace(at=11.0)
    forged = rehashed(book, 1)
    assert forged.report(15.0).flaws == ()
    assert "anchor" in str(forged.report(15.0, anchors).flaws[0])
    assert true.report(15.0, anchors).flaws == ()


def test_an_end_that_was_cut_off_with_its_head_is_caught_by_an_anchor():
    book = small_book()
    anchors = tuple(book.heads)
    gone = book.events.pop()
    book.heads[-1] = Head(gone.chain, gone.number - 1, gone.previous)
    assert "event 3.3, which the anchor knows, is missing" in map(str, book.report(0.0, anchors).flaws)


def test_a_journal_that_grew_still_has_its_anchor():
    book = small_book()
    anchors = tuple(book.heads)
    Writer(book).move(4, 1, State.DONE, Facts(), CALL)
    assert book.report(15.0, anchors).flaws == ()


@pytest.mark.contract("journal.audit.removed")
@pytest.mark.parametrize("chain", [1, 2, 3])
def test_a_whole_chain_that_was_removed_is_missed(chain):
    book = small_book()
    book.events[:] = [event for event in book.events if event.chain != chain]
    flaws = [str(flaw) for flaw in book.report(15.0).flaws]
    assert any("missing" in flaw for flaw in flaws)
    del book.heads[chain - 1]
    assert bool(book.report(15.0).flaws) is True


@pytest.mark.contract("journal.audit.heads")
@pytest.mark.parametrize("column", Head._fields)
@pytest.mark.parametrize("index", range(3))
def test_a_head_that_was_edited_is_seen(index, column):
    book = small_book()
    head = book.heads[index]
    book.heads[index] = head._replace(**{column: OTHERS[type(getattr(head, column))]})
    assert book.report(15.0).flaws


@pytest.mark.contract("journal.audit.contents-forged")
def test_contents_that_were_edited_or_removed_are_named():
    for place in small_book().contents:
        for forged in (None, Content("00", "other"), Content(small_book().contents[place].salt, "other")):
            book = small_book()
            if forged is None:
                del book.contents[place]
            else:
                book.contents[place] = forged
            flaw = book.report(15.0).flaws[0]
            assert flaw.key == place[0]
            assert "contents" in flaw.what


def test_a_pruning_that_nobody_recorded_is_seen():
    book = small_book()
    report = book.report(90.0)
    assert "no event tells of" in str(report.flaws[0])


@pytest.mark.contract("journal.audit.approved")
def test_a_call_that_was_asked_about_runs_only_with_the_approval_of_that_question():
    other, refusal = Ruling(approved=True, by="eve", seal="0"), Ruling(approved=False, by="eve", seal="5ea1")
    for ruling in (other, refusal, None):
        book = Book([], {}, [])
        writer = Writer(book)
        writer.move(1, 1, State.REQUESTED, Facts(), CALL)
        writer.move(1, 2, State.AWAITING, Facts(question=QUESTION))
        writer.move(1, 3, State.READY, Facts(ruling=ruling))
        assert str(book.report().flaws[0]).startswith("call 1: step 3")


LIVES = {
    (State.READY,): "step 1 goes from nothing to ready",
    (State.REQUESTED, State.DONE): "step 2 goes from requested to done",
    (State.EXECUTING, State.DONE, State.DONE): "step 3 goes from done to done",
    (State.REQUESTED, None, State.READY): "step 2 is missing",
}


@pytest.mark.contract("journal.audit.lives")
@pytest.mark.parametrize("states", LIVES)
def test_a_call_that_no_journal_would_have_moved_so_is_named(states):
    """A forger who computes every hash must still tell a life that a call can have."""
    book = Book([], {}, [])
    writer = Writer(book)
    for step, state in enumerate(states, 1):
        if state is not None:
            writer.move(1, step, state, Facts(), CALL if step == 1 else None)
    assert LIVES[states] in str(book.report().flaws[0])


def test_one_change_is_one_flaw():
    """Not the thousand that come after it: a person has to find the place."""
    book = small_book()
    event = book.events[3]
    book.events[3] = event._replace(state="done")
    named = [flaw for flaw in book.report(15.0).flaws if flaw.number]
    assert [(flaw.chain, flaw.number) for flaw in named] == [(event.chain, event.number)]


def test_hashes_of_all_events_differ():
    assert len({event.hash for event in EVENTS}) == len(EVENTS)
    assert all(after.previous == before.hash for before, after in pairwise(EVENTS) if after.number > 1)
    event = EVENTS[1]
    assert event.hash == event_hash(*event[:9])
    assert json.loads(event.facts)["call"]["tool"] == "look"
