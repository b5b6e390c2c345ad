"""`look` never waits and never starts an image; it tells what runs, since when, and what it prints."""

from __future__ import annotations

import threading
from time import monotonic, sleep, time

import msgspec
import pytest

from gramercy.images.opening import open_image
from gramercy.images.views import ImageView
from gramercy.workbench.deferred import DeferredImage

# A look reads a few files of /proc; what runs meanwhile has no end, so any bound tells a wait.
AT_ONCE = 20.0
PRINTING = {
    "sbcl": '(progn (format t "begun~%") (finish-output) (loop))',
    "python": "print('begun', flush=True)\nwhile True: pass",
}


@pytest.fixture
def busy(image, words):
    """Return an image in which code prints a line and runs on."""
    image.evaluate(words.define)
    thread = threading.Thread(target=image.evaluate, args=(PRINTING[words.language],))
    thread.start()
    yield image
    deadline = monotonic() + 60
    while thread.is_alive() and monotonic() < deadline:
        image.interrupt()
        thread.join(0.2)
    assert not thread.is_alive()


def seen(image, condition):
    """Look until something is seen, for a bounded time."""
    deadline = monotonic() + 60
    while not condition(view := image.look()):
        assert monotonic() < deadline, view
        sleep(0.01)
    return view


@pytest.mark.contract("journal.images.look.running")
def test_what_runs_is_seen_while_it_runs(busy, words):
    view = seen(busy, lambda view: view.running is not None and "begun" in view.running.stdout)
    assert view.state == "running"
    assert (view.running.op, view.running.code) == ("eval", PRINTING[words.language])
    assert 0 < view.running.seconds < 60
    assert abs(time() - view.running.since - view.running.seconds) < AT_ONCE
    assert view.memory_bytes > 1 << 20
    assert view.latest.code == words.define


@pytest.mark.contract("journal.images.look.wait")
def test_a_look_does_not_wait_for_what_runs(busy):
    """`checkpoints` and `ask` wait; this must not."""
    seen(busy, lambda view: view.state == "running")
    started = monotonic()
    view = busy.look()
    assert monotonic() - started < AT_ONCE
    assert view.state == "running"
    assert [info.id for info in view.checkpoints]


@pytest.mark.contract("journal.images.look.start")
def test_a_look_starts_no_image(words, tmp_path):
    image = open_image(words.language, project=tmp_path)
    assert image.look().state == "not started"
    assert (image.look().pid, image.look().checkpoints) == (0, [])
    image.close()
    assert image.look().state == "closed"


def test_a_look_at_a_deferred_image_does_not_even_open_it(words):
    def refuse(_name, _language):
        raise AssertionError("the image was opened")

    image = DeferredImage("mine", words.language, refuse)
    view = image.look()
    assert (view.name, view.language, view.state) == ("mine", words.language, "not started")
    assert image.epoch() == "fresh"
    assert image.span().after == ""


def test_the_tree_is_that_of_the_list(image, words):
    image.evaluate(words.define)
    image.evaluate(words.change.format(1))
    listed = image.checkpoints()
    view = image.look()
    assert view.state == "idle"
    # Their memory is as it was when they were listed.
    assert view.checkpoints == listed
    assert view.epoch == image.epoch()


def test_looks_from_many_threads_do_not_disturb_an_image_that_changes(image, words):
    image.evaluate(words.define)
    stop, failures = threading.Event(), []

    def look_on():
        while not stop.is_set():
            try:
                image.look()
                image.span()
                image.history()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the failure
                failures.append(error)

    threads = [threading.Thread(target=look_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(40):
            assert image.evaluate(words.change.format(number)).ok
        for _ in range(5):
            image.undo()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []


@pytest.mark.contract("journal.images.look.bounded")
def test_what_is_looked_at_is_bounded_and_can_go_to_another_process(image, words):
    comment = ";" if words.language == "sbcl" else "#"
    shout = {
        "sbcl": "(dotimes (i 50000) (princ i)) (make-string 90000 :initial-element #\\x)",
        "python": "print(*range(50000))\n'x' * 90000",
    }
    image.evaluate(f"{shout[words.language]} {comment}{'y' * 100_000}")
    data = msgspec.to_builtins(image.look())
    assert len(msgspec.json.encode(data)) < 100_000
    latest = msgspec.convert(data, ImageView).latest
    assert latest is not None
    assert latest.reply.ok
    assert latest.reply.stdout.rstrip().endswith("49999") or latest.reply.truncated
