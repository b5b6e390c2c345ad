"""What an image does after a reply so that the next call need not, and that no call is the worse for it."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from gramercy.images.opening import open_image

# Finalizers run on a thread of SBCL's own, soon after a collection.
FINALIZED = """
(defvar *ended* nil)
(loop repeat 100 do (sb-ext:finalize (list 1) (lambda () (setf *ended* t)) :dont-save t))
(sb-ext:gc :full t)
(loop repeat 500 until *ended* do (sleep 0.01))
*ended*
"""
BOUND = 60.0


@pytest.fixture
def lisp(tmp_path):
    with closing(open_image("sbcl", project=tmp_path)) as image:
        yield image


def tasks(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"


def test_a_checkpoint_has_no_thread_for_finalizers(lisp):
    """Cold call: a copy that only sleeps starts no thread, which would take as long as half a fork."""
    lisp.evaluate("(defvar *n* 0)")
    pids = lisp.processes()
    assert {name: tasks(pid) for name, pid in pids.items() if name.startswith("c")} == {"c1": 1, "c2": 1}


@pytest.mark.parametrize("pause", [0.0, 0.1])
def test_finalizers_run_in_a_call_that_follows_a_change(lisp, pause):
    """Cold call: the thread for finalizers is there again when code of the user's runs, soon or late."""
    lisp.evaluate("(defvar *n* 0)")
    time.sleep(pause)
    assert lisp.evaluate(FINALIZED).values == ["T"]


def test_finalizers_run_after_an_undo(lisp):
    """Cold call: an image that comes from a checkpoint has the thread for finalizers, too."""
    lisp.evaluate("(defvar *n* 0)")
    lisp.undo()
    assert lisp.evaluate(FINALIZED).values == ["T"]


def test_dropped_checkpoints_are_reaped_between_calls(lisp):
    """Cold call: what has ended is reaped while the image is idle, and not when the next request has come."""
    lisp.evaluate("(defvar *n* 0)")
    first = lisp.processes()["c2"]
    for number in range(20):
        lisp.evaluate(f"(setf *n* {number})")
        time.sleep(0.03)
    deadline = time.monotonic() + BOUND
    while state(first) != "gone" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert state(first) == "gone"
