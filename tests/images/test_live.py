"""What every image does, whatever its language: evaluate, go back, preview, survive. Real processes only."""

import os
import signal
import threading
from pathlib import Path
from time import monotonic

import pytest

from gramercy.errors import CheckpointError
from gramercy.images.opening import open_image
from gramercy.images.thrift import Thrift


def last(reply):
    assert reply.ok, reply
    return reply.values


def test_state_is_kept_between_calls(image, words):
    image.evaluate(words.define)
    assert last(image.evaluate(words.look)) == ["41"]


def test_the_values_of_a_call_come_back(image, words):
    assert last(image.evaluate(words.six)) == ["6"]


def test_a_failure_is_a_reply_with_its_type_message_and_frames(image, words):
    reply = image.evaluate(words.fail)
    assert not reply.ok
    assert "failed" in reply.error.message.lower()
    assert reply.error.backtrace


def test_definitions_that_changed_are_named(image, words):
    changed = image.evaluate(words.define).changed
    assert [change.change for change in changed] == ["defined"]
    assert changed[0].name.lower().rstrip("*").endswith("x")


def test_undo_takes_the_last_change_back(image, words):
    image.evaluate(words.define)
    image.evaluate(words.change.format(7))
    image.undo()
    assert last(image.evaluate(words.look)) == ["41"]


def test_undo_can_be_repeated_until_nothing_is_left(image, words):
    image.evaluate(words.define)
    image.evaluate(words.change.format(7))
    image.evaluate(words.change.format(8))
    for _ in range(3):
        image.undo()
    with pytest.raises(CheckpointError, match="nothing to undo"):
        image.undo()
    assert not image.evaluate(words.look).ok


def test_a_rollback_keeps_the_checkpoint_and_the_branch_it_left(image, words):
    image.evaluate(words.define)
    here = image.checkpoint("before the change")
    image.evaluate(words.change.format(7))
    changed = image.checkpoints()[-1]
    image.rollback(here.id)
    image.evaluate(words.change.format(9))
    image.rollback(changed.id)
    assert last(image.evaluate(words.look)) == ["7"]
    image.rollback(here.id)
    assert last(image.evaluate(words.look)) == ["41"]


def test_checkpoints_are_a_tree_with_one_present_place(image, words):
    image.evaluate(words.define)
    root = image.checkpoint()
    image.evaluate(words.change.format(1))
    image.rollback(root.id)
    image.evaluate(words.change.format(2))
    infos = image.checkpoints()
    assert [info.parent for info in infos].count(root.id) == 2
    assert [info.is_current for info in infos].count(True) == 1


def test_an_unknown_checkpoint_is_refused_with_the_known_ones(image, words):
    image.evaluate(words.define)
    with pytest.raises(CheckpointError, match="there are c"):
        image.rollback("c999999")


def test_checkpoints_are_bounded_and_the_oldest_go_first(image, words):
    image.evaluate(words.define)
    for number in range(25):
        image.evaluate(words.change.format(number))
    infos = image.checkpoints()
    assert len(infos) <= 16
    assert infos[-1].is_current


def test_a_named_checkpoint_outlives_the_others(image, words):
    image.evaluate(words.define)
    named = image.checkpoint("keep me")
    for number in range(25):
        image.evaluate(words.change.format(number))
    image.rollback(named.id)
    assert last(image.evaluate(words.look)) == ["41"]


def test_a_call_that_can_change_nothing_needs_no_checkpoint(image, words):
    image.evaluate(words.define)
    before = len(image.checkpoints())
    image.evaluate(words.six)
    assert len(image.checkpoints()) == before


def test_a_preview_tells_values_and_changes_and_leaves_everything(image, words):
    image.evaluate(words.define)
    reply = image.preview(words.change.format(7))
    assert reply.ok
    assert reply.changed or words.language == "sbcl"
    assert last(image.evaluate(words.look)) == ["41"]


def test_a_preview_cannot_write_and_tells_that_it_was_tried(image, words, tmp_path):
    target = tmp_path / "written"
    reply = image.preview(words.write_file.format(target))
    assert not target.exists()
    assert [effect.kind for effect in reply.effects] == ["write"]
    assert str(target) in reply.effects[0].target


def test_a_preview_that_would_end_the_image_says_so(image, words):
    image.evaluate(words.define)
    assert image.preview(words.leave).error.type == "PREVIEW-DIED"
    assert last(image.evaluate(words.look)) == ["41"]


@pytest.mark.parametrize("way", ["leave", "kill_self"])
def test_an_image_that_ends_itself_is_back_with_its_state(image, words, way):
    image.evaluate(words.define)
    reply = image.evaluate(getattr(words, way))
    assert reply.error.type == "IMAGE-DIED"
    assert "is back" in reply.notes[0]
    assert last(image.evaluate(words.look)) == ["41"]


def test_a_death_is_told_once(image, words):
    image.evaluate(words.define)
    image.evaluate(words.leave)
    assert image.evaluate(words.look).notes == []


def test_a_kill_between_calls_loses_nothing(image, words):
    image.evaluate(words.define)
    image.checkpoints()
    os.kill(image.processes()["live"], signal.SIGKILL)
    reply = image.evaluate(words.look)
    again = reply if reply.ok else image.evaluate(words.look)
    assert last(again) == ["41"]


def test_infinite_recursion_is_an_error_and_nothing_more(image, words):
    image.evaluate(words.define)
    assert not image.evaluate(words.recurse).ok
    assert last(image.evaluate(words.look)) == ["41"]


def test_a_loop_is_interrupted_at_its_time_and_keeps_the_state(image, words):
    image.evaluate(words.define)
    reply = image.evaluate(words.loop, timeout=0.2)
    assert reply.error.interrupted
    assert last(image.evaluate(words.look)) == ["41"]


def test_what_cannot_be_interrupted_is_ended_and_the_state_restored(image, words):
    image.evaluate(words.define)
    reply = image.evaluate(words.stubborn_loop, timeout=0.2)
    assert reply.error.type == "TIMEOUT"
    assert last(image.evaluate(words.look)) == ["41"]


def test_another_thread_can_interrupt(image, words):
    image.evaluate(words.define)
    replies = []
    runner = threading.Thread(target=lambda: replies.append(image.evaluate(words.loop, timeout=120)))
    runner.start()
    deadline = monotonic() + 60
    while not image.interrupt() and monotonic() < deadline:
        runner.join(0.005)
    runner.join(60)
    assert replies[0].error.interrupted
    assert not image.interrupt()
    assert last(image.evaluate(words.look)) == ["41"]


def test_an_interrupt_during_a_preview_reaches_the_copy_and_spares_the_image(image, words):
    image.evaluate(words.define)
    live = image.processes()["live"]
    replies = []
    runner = threading.Thread(target=lambda: replies.append(image.preview(words.loop, timeout=120)))
    runner.start()
    deadline = monotonic() + 60
    while not image.interrupt() and monotonic() < deadline:
        runner.join(0.005)
    runner.join(60)
    assert not replies[0].ok
    assert image.processes()["live"] == live
    assert last(image.evaluate(words.look)) == ["41"]


def test_running_threads_mean_no_checkpoint_and_the_reply_says_why(image, words):
    image.evaluate(words.define)
    reply = image.evaluate(words.start_thread)
    assert reply.unkept is not None
    assert "thread" in reply.unkept
    assert any(f"No state was kept after this call: {reply.unkept}" in note for note in reply.notes)


def test_output_is_kept_apart_from_values(image, words):
    reply = image.evaluate(words.shout.format("hello"))
    assert reply.stdout == "hello\n"
    assert reply.stderr == ""


def test_reset_begins_anew(image, words):
    image.evaluate(words.define)
    image.reset()
    assert not image.evaluate(words.look).ok


def test_history_remembers_calls_and_their_replies(image, words):
    image.evaluate(words.define)
    image.evaluate(words.fail)
    assert [entry.code for entry in image.history()][-2:] == [words.define, words.fail]
    assert [entry.reply.ok for entry in image.history()][-2:] == [True, False]


def test_the_death_of_the_zygote_is_survived_by_starting_again(words, tmp_path):
    image = open_image(words.language, project=tmp_path)
    try:
        image.evaluate(words.define)
        os.kill(image.processes()["zygote"], signal.SIGKILL)
        reply = image.evaluate(words.six)
        again = reply if reply.ok else image.evaluate(words.six)
        assert last(again) == ["6"]
    finally:
        image.close()


def test_a_program_that_does_not_start_is_given_up_after_three_times(tmp_path):
    """The circuit breaker: three deaths while starting, then a clear error without another try."""
    from gramercy.images.connection import as_json
    from gramercy.images.live import LiveImage
    from gramercy.images.processes import Program
    from gramercy.images.sandbox import Confinement

    started = tmp_path / "started"
    command = ["/bin/sh", "-c", f"echo x >> {started}; echo no such luck >&2; exit 7"]
    image = LiveImage("broken", lambda: Program("python", command, as_json, confinement=Confinement.NONE))
    faults = [image.evaluate("1").error for _ in range(5)]
    assert [fault and fault.type for fault in faults] == ["IMAGE-NOT-STARTED"] * 5
    assert "no such luck" in str(faults[0])
    assert "not tried again" in str(faults[-1])
    assert started.read_text().count("x") == 3


def test_closing_ends_every_process(words, tmp_path):
    image = open_image(words.language, project=tmp_path)
    image.evaluate(words.define)
    image.evaluate(words.change.format(1))
    pids = [*image.processes().values()]
    image.close()
    deadline = monotonic() + 60
    while any(_runs(pid) for pid in pids) and monotonic() < deadline:
        threading.Event().wait(0.01)
    assert [pid for pid in pids if _runs(pid)] == []


def _runs(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return stat.rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_big_image_keeps_fewer_states_and_says_which_calls_can_be_taken_back(image, words):
    """Images, Forking: above a budget take checkpoints less often and report which calls can be undone."""
    image.evaluate(words.define)
    image.evaluate(words.change.format(1))
    before = image._lifecycle.thrift
    image._lifecycle.thrift = Thrift(heavy_bytes=1, part=1e-12)
    try:
        kept = image.checkpoints()[-1]
        reply = image.evaluate(words.change.format(2))
        assert f"Undo goes back to {kept.id}" in reply.notes[0]
        image.evaluate(words.change.format(3))
        gone = image.undo()
        assert (gone.id, gone.taken_back) == (kept.id, 2)
        assert "takes back the last 2 calls" in gone.notes[0]
        assert last(image.evaluate(words.look)) == ["1"]
        image.rollback(gone.notes[1].rpartition("kept as ")[2].split()[0])
        assert last(image.evaluate(words.look)) == ["3"]
        image.rollback(kept.id)
        image.evaluate(words.change.format(4))
        image.evaluate(words.change.format(5))
        died = image.evaluate(words.kill_self)
        assert died.lost == 1
        assert "Also lost is 1 call after it, of which no state was kept" in died.notes[0]
        assert last(image.evaluate(words.look)) == ["4"]
    finally:
        image._lifecycle.thrift = before


def test_a_closed_image_does_not_come_back(words, tmp_path):
    """A call that comes too late must not start processes that nobody will end."""
    made = open_image(words.language, project=tmp_path)
    assert made.evaluate(words.six).ok
    made.close()
    reply = made.evaluate(words.six)
    assert reply.error is not None
    assert reply.error.message == "the image is closed"
    assert made._lifecycle.family is None
