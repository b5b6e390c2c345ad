"""Frames of an error and a list of threads, while threads run, as a model meets them."""

from __future__ import annotations

import pytest

START = (
    (
        "(defvar *go* nil) (defun wilt (n) (+ 1 (car n)))"
        ' (defvar *t* (sb-thread:make-thread (lambda () (loop until *go* do (sleep 0.01))) :name "gardener"))'
    ),
    (
        "import threading\ngo = threading.Event()\ndef wilt(n): return n[0]\n"
        "t = threading.Thread(target=go.wait, name='gardener'); t.start()"
    ),
)
END = "(setf *go* t) (sb-thread:join-thread *t*)", "go.set(); t.join()"


@pytest.fixture
def threaded(desk):
    """Let a thread run beside the evaluations."""
    desk.evaluate(*START)
    yield desk
    desk.evaluate(*END)


@pytest.mark.contract("day.heavy.threads-frames")
def test_frames_of_an_error_beside_a_thread_are_told_as_text(threaded):
    """No copy can keep them, and the question was refused."""
    assert "keeps this moment" not in threaded.failure(
        "eval_form", form=threaded.either("(wilt 3)", "wilt(3)")
    )
    frames = threaded.text("error_frames")
    assert "1 user thread is running: gardener" in frames
    assert threaded.either("0: (WILT 3)", "0: wilt(n=3) at ") in frames


@pytest.mark.contract("day.heavy.threads-listed")
def test_a_model_lists_the_threads_with_the_tool_for_frames(threaded):
    """It is in the default set, where no other tool shows them."""
    assert "gardener runs:\n  0: " in threaded.text("error_frames", threads=True)
