"""Threads that run beside the one that evaluates: where each stands, and what one died of."""

# ruff: noqa: E501 - the forms are data, and read best on one line

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

import pytest


@dataclass(frozen=True)
class Threads:
    """How a language starts a thread that waits in a function of the user's, and one that dies in another."""

    define: str
    start: str
    end: str
    die: str
    frame: str
    failed: str


THREADS = {
    "sbcl": Threads(
        "(defvar *go* nil) (defun idle () (loop until *go* do (sleep 0.01)) 1) (defun wilt (n) (+ 1 (car n)))",
        '(defvar *t* (sb-thread:make-thread (function idle) :name "gardener")) (loop repeat 6000 until (sb-thread:thread-alive-p *t*) do (sleep 0.01))',
        "(setf *go* t) (sb-thread:join-thread *t*)",
        '(sb-thread:join-thread (sb-thread:make-thread (lambda () (+ 1 (wilt 3))) :name "weeder") :default nil)',
        "(IDLE",
        "(WILT 3)",
    ),
    "python": Threads(
        "import threading\ngo = threading.Event()\ndef idle(): return go.wait()\ndef wilt(n): return n[0]",
        "t = threading.Thread(target=idle, name='gardener'); t.start()",
        "go.set(); t.join()",
        "w = threading.Thread(target=wilt, args=(3,), name='weeder'); w.start(); w.join()",
        ": idle() at <image",
        "in wilt",
    ),
}


@pytest.fixture
def threads(image, words):
    """Return the words for threads, with one that waits."""
    found = THREADS[words.language]
    assert image.evaluate(found.define).ok
    assert image.evaluate(found.start).ok
    yield found
    image.evaluate(found.end)


def listed(image):
    """Return the list of threads once the new one stands in its function."""
    deadline = monotonic() + 60
    while True:
        answer = image.ask("threads")
        assert answer.ok, answer.error
        if "dle" in answer.text.lower() or monotonic() > deadline:
            return answer


@pytest.mark.contract("day.heavy.threads-listed")
def test_threads_are_listed_with_their_stacks(image, threads):
    """SLIME lists them; here one had to guess."""
    answer = listed(image)
    assert "gardener" in answer.text
    assert threads.frame in answer.text
    assert [row["name"] for row in answer.data["threads"]] == ["gardener"]


@pytest.mark.contract("day.heavy.threads-listed")
def test_without_threads_the_list_says_so(image):
    """An empty answer would be read as a fault."""
    assert image.ask("threads").text.startswith("No other thread of ")


DEAF = {
    "sbcl": (
        "(defvar *stop* nil) (defun deaf () (sb-sys:without-interrupts (loop until *stop*)) 1)",
        '(defvar *d* (sb-thread:make-thread (function deaf) :name "deaf")) (sleep 0.1)',
        "(setf *stop* t) (sb-thread:join-thread *d*)",
    ),
    "python": (
        "import threading\nstop = []\ndef deaf():\n    while not stop: pass",
        "d = threading.Thread(target=deaf, name='deaf'); d.start()",
        "stop.append(1); d.join(); 1",
    ),
}


@pytest.mark.contract("day.heavy.threads-listed")
def test_a_thread_that_never_listens_is_listed_all_the_same(image, words):
    """Lisp asks each thread for its stack, and one that allows no interrupts does not answer."""
    define, start, end = DEAF[words.language]
    assert image.evaluate(define).ok
    assert image.evaluate(start).ok
    assert "deaf runs:" in image.ask("threads").text
    assert image.evaluate(end).values[-1] == "1"


@pytest.mark.contract("day.heavy.threads-dead")
def test_what_a_thread_died_of_stands_in_the_reply_with_its_frames(image, threads):
    """A dead worker came without a backtrace."""
    reply = image.evaluate(threads.die)
    told = reply.stderr + reply.log
    assert "weeder" in told
    assert threads.failed in told


@pytest.mark.contract("day.heavy.threads-last-error")
def test_an_error_beside_a_thread_is_not_answered_with_an_earlier_one(image, words):
    """The frames of the last error are asked for: those of an older moment would be taken for them."""
    found = THREADS[words.language]
    assert image.evaluate(found.define).ok
    first = image.evaluate("(wilt 1)" if words.language == "sbcl" else "wilt(1)").error
    assert first.moment == "m1"
    assert image.evaluate(found.start).ok
    assert image.evaluate("(wilt 2)" if words.language == "sbcl" else "wilt(2)").error.moment is None
    answer = image.ask_moment("frames")
    assert answer.error.message.startswith("The last error left no moment: ")
    assert "of earlier ones there are m1" in answer.error.message
    assert image.ask_moment("frames", "m1").error is None
    image.evaluate(found.end)
    last = image.evaluate("(wilt 3)" if words.language == "sbcl" else "wilt(3)").error.moment
    assert image.ask_moment("frames").data["moment"] == last
