"""Epochs name states: for seals, for the journal, and for the marks in the history."""

from __future__ import annotations

import pytest

from gramercy.errors import CheckpointError
from gramercy.images.base import FRESH, Reply, Span
from gramercy.images.checkpoints import LARGEST_PAST
from gramercy.images.opening import open_image
from gramercy.images.wire import kind_of


@pytest.mark.contract("journal.images.epoch.change")
def test_every_change_has_an_epoch_of_its_own_and_a_look_has_none(image, words):
    seen = [image.epoch()]
    for number in range(3):
        reply = image.evaluate(words.define if not number else words.change.format(number))
        assert reply.span.began == seen[-1]
        assert reply.span.epoch == image.epoch()
        assert image.evaluate(words.six).span.epoch == image.epoch()
        seen.append(image.epoch())
    assert seen[0] == FRESH
    assert len(set(seen)) == 4


def test_a_failed_call_may_have_changed_something(image, words):
    image.evaluate(words.define)
    before = image.epoch()
    assert not image.evaluate(words.fail).ok
    assert image.epoch() != before


@pytest.mark.contract("journal.images.epoch.back")
def test_going_back_gives_the_epoch_of_the_state_back(image, words):
    image.evaluate(words.define)
    then = image.epoch()
    image.evaluate(words.change.format(1))
    image.undo()
    assert image.epoch() == then
    image.evaluate(words.change.format(1))
    assert image.epoch() != then
    image.rollback(image.checkpoints()[0].id)
    assert image.epoch() == FRESH


def test_the_state_after_a_death_is_the_one_that_came_back(image, words):
    image.evaluate(words.define)
    then = image.epoch()
    reply = image.evaluate(words.leave)
    assert (reply.span.began, reply.span.epoch) == (then, then)
    assert image.epoch() == then


@pytest.mark.contract("journal.images.epoch.fresh")
def test_an_image_begins_fresh_whenever_it_is_started(image, words, tmp_path):
    """An approval that was asked for in a fresh image holds after a restart of its server."""
    image.evaluate(words.define)
    image.reset()
    assert image.epoch() == FRESH
    other = open_image(words.language, project=tmp_path)
    try:
        assert other.epoch() == FRESH
        assert other.look().state == "not started"
    finally:
        other.close()


def test_a_saved_state_is_not_taken_for_a_fresh_one(image, words, tmp_path):
    image.evaluate(words.define)
    path = str(tmp_path / "saved")
    image.save(path)
    image.reset()
    image.restore(path)
    assert image.epoch() != FRESH
    assert image.evaluate(words.look).values == ["41"]


def test_replies_name_the_kept_states_before_and_after(image, words):
    first = image.evaluate(words.define).span
    second = image.evaluate(words.change.format(1)).span
    look = image.evaluate(words.six).span
    assert (look.before, look.after) == (second.after, second.after)
    assert second.before == first.after
    listed = {info.id: info for info in image.checkpoints()}
    assert listed[second.after].parent == first.after
    assert listed[second.after].epoch == second.epoch
    image.rollback(first.after)
    assert image.evaluate(words.look).values == ["41"]


def test_a_state_that_is_not_kept_has_no_id_and_an_epoch_all_the_same(image, words):
    image.evaluate(words.define)
    started = image.evaluate(words.start_thread)
    assert started.unkept
    assert started.span.after == ""
    then = image.evaluate(words.change.format(5)).span
    assert (then.before, then.after) == ("", "")
    assert then.epoch != then.began


def test_the_sandbox_in_force_is_told(image, words):
    assert image.evaluate(words.six).span.sandbox in {"bubblewrap", "landlock"}


def test_a_preview_tells_in_which_state_it_was_tried(image, words):
    image.evaluate(words.define)
    reply = image.preview(words.change.format(9))
    assert reply.span.epoch == image.epoch()
    assert reply.span.began == reply.span.epoch


@pytest.mark.contract("journal.images.epoch.forged")
def test_evaluated_code_cannot_say_which_state_it_was_in():
    """Everything that comes from an image is untrusted: the grammar of the wire has no span."""
    forged = b'{"ok":true,"id":1,"span":{"before":"c1","after":"c9","began":"fresh","epoch":"fresh"}}'
    assert kind_of(Reply).read(forged).span == Span()


# What was undone


@pytest.mark.contract("journal.images.history.undone")
def test_the_history_marks_what_was_undone(image, words):
    image.evaluate(words.define)
    image.evaluate(words.change.format(1))
    image.evaluate(words.look)
    image.undo()
    image.evaluate(words.change.format(2))
    marks = [(entry.code, entry.undone) for entry in image.history()]
    assert marks == [
        (words.define, False),
        (words.change.format(1), True),
        (words.look, False),
        (words.change.format(2), False),
    ]


def test_going_forward_again_takes_the_mark_away(image, words):
    image.evaluate(words.define)
    span = image.evaluate(words.change.format(1)).span
    image.undo()
    assert [entry.undone for entry in image.history()] == [False, True]
    image.rollback(span.after)
    assert [entry.undone for entry in image.history()] == [False, False]


def test_what_is_lost_in_a_death_is_marked(image, words):
    image.evaluate(words.define)
    image.evaluate(words.start_thread)
    image.evaluate(words.change.format(5))
    assert image.evaluate(words.leave).lost == 2
    assert [entry.undone for entry in image.history()] == [False, True, True, False]


def test_beyond_what_is_remembered_nothing_is_marked(image, words):
    comment = ";" if words.language == "sbcl" else "#"
    image.evaluate(words.define)
    image.evaluate(f"{words.change.format(1)} {comment}{'x' * LARGEST_PAST}")
    image.evaluate(words.change.format(2))
    assert [entry.undone for entry in image.history()] == [False, False, False]
    image.undo()
    assert [entry.undone for entry in image.history()] == [False, False, True]


# What is told of a kept state


@pytest.mark.contract("journal.images.states.told")
def test_a_kept_state_tells_what_its_call_did(image, words):
    image.evaluate(words.define)
    image.evaluate(words.fail)
    image.checkpoint("before the storm")
    start, defined, failed = image.checkpoints()
    assert (start.ok, start.definitions, start.pinned) == (True, [], False)
    assert defined.ok
    assert [each.change for each in defined.definitions] == ["defined"]
    assert (failed.ok, failed.pinned) == (False, True)


def test_a_state_that_never_came_cannot_be_gone_to(image):
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        image.rollback("c9999")
