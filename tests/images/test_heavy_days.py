"""A big heap, and conditions that last: which states are kept, what undo takes back, and what is said."""

# ruff: noqa: E501 - the forms are data, and read best on one line

from __future__ import annotations

import asyncio
import shutil
from contextlib import closing

import pytest

from gramercy.images.environment import Environment
from gramercy.images.opening import open_image
from gramercy.images.thrift import Costs, Thrift

HEAVY = Thrift(heavy_bytes=1)
THREADS = {
    "sbcl": (
        '(defvar *go* nil) (defvar *t* (sb-thread:make-thread (lambda () (loop until *go* do (sleep 0.005))) :name "{}"))',
        "(setf *go* t) (sb-thread:join-thread *t*)",
    ),
    "python": (
        "import threading\ngo = threading.Event()\nt = threading.Thread(target=go.wait, name='{}')\nt.start()",
        "go.set(); t.join()",
    ),
}


class Clock:
    """A clock that stands until it is told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock(image):
    """Let an image of any size count as heavy, by a clock of ours."""
    lifecycle, clock = image._lifecycle, Clock()
    before = lifecycle.thrift, lifecycle.costs
    lifecycle.thrift, lifecycle.costs = HEAVY, Costs(clock)
    yield clock
    lifecycle.thrift, lifecycle.costs = before


def value(image, words):
    return image.evaluate(words.look).values[0]


@pytest.mark.contract("day.heavy.keep-measured")
@pytest.mark.parametrize(("seconds", "expected"), [(0.01, 50), (0.1, 5), (0.5, 1)])
def test_forks_of_a_big_heap_take_a_twentieth_of_the_time_at_most(seconds, expected):
    """Of ten seconds with a call each ten milliseconds, whatever a copy takes."""
    clock = Clock()
    costs = Costs(clock)
    costs.heap_bytes, costs.seconds = 1 << 30, seconds
    kept = 0
    for tick in range(1000):
        clock.now = tick / 100
        if costs.may_keep(Thrift()):
            costs.kept()
            kept += 1
    # Ticks of the clock are rounded.
    assert 0.9 * expected <= kept <= expected


@pytest.mark.contract("day.heavy.keep-measured")
def test_a_small_heap_has_a_copy_after_each_call():
    """Below the bound a copy takes milliseconds, while the client reads the reply."""
    costs = Costs(Clock())
    costs.heap_bytes, costs.seconds = 255 << 20, 1.0
    costs.kept()
    assert costs.may_keep(Thrift())


@pytest.mark.contract("day.heavy.keep-measured")
@pytest.mark.usefixtures("clock")
def test_each_copy_says_how_long_its_fork_took(image, words):
    """The policy is measured in the process that waits for the fork."""
    image.evaluate(words.define)
    image.checkpoints()
    assert 0 < image._lifecycle.costs.seconds < 10


@pytest.mark.contract("day.heavy.keep-measured")
def test_the_memory_of_all_states_is_not_looked_at_for_each_copy(image, words, monkeypatch):
    """To look at sixteen states of 512 MB took twenty times as long as a copy."""
    image.evaluate(words.define)
    lifecycle = image._lifecycle
    looks, look = [], lifecycle.timeline.shed

    def counted(most):
        looks.append(most)
        return look(most)

    monkeypatch.setattr(lifecycle.timeline, "shed", counted)
    monkeypatch.setattr(lifecycle, "thrift", Thrift(heavy_bytes=1, part=1e9))
    for number in range(6):
        image.evaluate(words.change.format(number))
        image.checkpoints()
    assert len(looks) <= 1


@pytest.mark.contract("day.heavy.keep-before-the-call")
def test_a_state_that_came_too_soon_is_kept_before_the_next_call(image, words, clock):
    """Of two quick calls and a later one, undo takes back the last alone."""
    image.evaluate(words.define)
    image.evaluate(words.change.format(1))
    image.checkpoints()
    assert image.evaluate(words.change.format(2)).unkept
    clock.now = 1000.0
    image.evaluate(words.change.format(3))
    undone = image.undo()
    assert (undone.taken_back, undone.notes) == (1, [])
    assert value(image, words) == "2"


@pytest.mark.contract("day.heavy.keep-before-the-call")
def test_a_call_on_the_event_loop_keeps_the_state_before_it_too(image, words, clock):
    """The fork of a big heap takes too long for an event loop."""

    async def work():
        await image.aevaluate(words.define)
        image.checkpoints()
        assert (await image.aevaluate(words.change.format(2))).unkept
        clock.now = 1000.0
        await image.aevaluate(words.change.format(3))

    asyncio.run(work())
    assert image.undo().taken_back == 1
    assert value(image, words) == "2"


@pytest.mark.contract("day.heavy.undo-names-calls")
@pytest.mark.usefixtures("clock")
def test_an_undo_of_several_calls_lists_them(image, words):
    """Two calls and a saved picture went at once, and only their number was told."""
    image.evaluate(words.define)
    image.checkpoints()
    for number in (2, 3):
        image.evaluate(words.change.format(number))
    undone = image.undo()
    assert undone.taken_back == 2
    assert undone.undone == [words.change.format(3), words.change.format(2)]


@pytest.mark.contract("day.heavy.keep-moments")
def test_an_error_in_a_big_image_leaves_a_moment(image, words):
    """Imports of pandas, matplotlib and sklearn alone reach 256 MB."""
    big = "(defvar *b* (make-array (* 300 1024 1024) :element-type '(unsigned-byte 8)))"
    image.evaluate(big if words.language == "sbcl" else "b = bytearray(300 << 20)")
    image.evaluate(words.define)
    assert image._lifecycle.costs.is_heavy(Thrift())
    fault = image.evaluate(words.fail).error
    assert fault.moment is not None, fault.no_moment


@pytest.mark.contract("day.heavy.said-once")
def test_why_no_state_is_kept_is_said_once_and_when_it_changes(image, words):
    """A notice of 200 characters stood in every reply while a thread ran."""
    start, end = THREADS[words.language]
    image.evaluate(words.define)
    first = image.evaluate(start.format("worker"))
    assert "No state was kept after this call: " in first.notes[-1]
    assert "undo by replay" in first.notes[-1]
    silent = [image.evaluate(words.change.format(number)) for number in range(3)]
    assert all(reply.unkept and not reply.notes for reply in silent)
    assert image.evaluate(end).notes == ["States are kept again."]
    assert image.evaluate(words.change.format(7)).notes == []
    if words.language == "python":
        assert "worker" in image.evaluate(start.format("worker")).notes[-1]
        other = image.evaluate("other = threading.Thread(target=go.wait, name='other')\nother.start()")
        assert "other" in other.notes[-1]


@pytest.mark.contract("day.heavy.said-once")
def test_that_states_are_kept_less_often_is_said_once(image, words, clock):
    """It comes and goes with the pace of the calls."""
    image.evaluate(words.define)
    image.checkpoints()
    notes = [image.evaluate(words.change.format(number)).notes for number in range(3)]
    assert "a copy of its" in notes[0][-1]
    assert notes[1:] == [[], []]
    clock.now = 1000.0
    assert image.evaluate(words.change.format(7)).notes == []


FULL = """
(progn (setf (sb-ext:bytes-consed-between-gcs) (floor (* 8/10 (sb-ext:dynamic-space-size)))) (gc) nil)
(progn (defvar *l* (make-list (floor (* 6/10 (sb-ext:dynamic-space-size)) 16))) nil)
"""


@pytest.mark.contract("day.heavy.state-runs")
def test_a_state_without_room_to_run_is_left_for_one_that_runs(tmp_path):
    """A full heap that was kept ended every call after it, at the first collection of garbage."""
    if shutil.which("sbcl") is None:
        pytest.skip("sbcl is not installed")
    with closing(open_image("sbcl", project=tmp_path, environment=Environment(memory_mb=256))) as image:
        image.evaluate("(defvar *x* 41)")
        runs = image.checkpoints()[-1]
        assert image.evaluate(FULL).ok
        full = image.checkpoints()[-1]
        died = image.evaluate("(gc)")
        assert died.error is not None
        assert died.error.type == "IMAGE-DIED"
        assert any(note.startswith(f"{full.id} (") and "no room to run" in note for note in died.notes)
        assert any(f"The state of {runs.id} " in note for note in died.notes)
        assert died.lost == 1
        assert image.evaluate("(progn (gc) (list *x* (boundp '*l*)))").values == ["(41 NIL)"]


@pytest.mark.contract("day.heavy.state-runs")
def test_a_good_state_outlives_deaths_in_a_row(image, words):
    """Code that ends its process costs one call each time, and never the state."""
    image.evaluate(words.define)
    image.evaluate(words.change.format(7))
    kept = [state.id for state in image.checkpoints()]
    for _ in range(3):
        assert image.evaluate(words.kill_self).error.type == "IMAGE-DIED"
    assert value(image, words) == "7"
    assert [state.id for state in image.checkpoints()] == kept


@pytest.mark.contract("day.heavy.undo-lasts")
def test_trying_and_undoing_again_and_again_leaves_the_way_back(image, words):
    """After sixteen rounds the state that undo goes to had been dropped for those that were left behind."""
    image.evaluate(words.define)
    image.evaluate(words.change.format(1))
    image.evaluate(words.change.format(2))
    for number in range(20):
        image.evaluate(words.change.format(100 + number))
        assert image.undo().taken_back == 1
    assert value(image, words) == "2"
    image.undo()
    assert value(image, words) == "1"


@pytest.mark.contract("day.heavy.undo-lasts")
def test_the_states_that_were_left_last_can_be_gone_to(image, words):
    """One who has gone back may want to come again."""
    image.evaluate(words.define)
    for number in range(20):
        image.evaluate(words.change.format(number))
        left = image.checkpoints()[-1].id
        image.undo()
    image.rollback(left)
    assert value(image, words) == "19"
