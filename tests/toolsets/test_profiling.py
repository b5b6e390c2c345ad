"""Measuring an evaluation: what it takes, and which code takes it. Real images."""

from __future__ import annotations

import re

import pytest

LISP = """
(defun busy (n) (let ((total 0)) (dotimes (i n) (setf total (logxor (* i i) total))) total))
(defun idle () (list 1 2))
(defun greedy () (loop repeat 200000 collect (make-array 10)))
(defun main () (idle) (busy 30000000) (length (greedy)))
"""
PYTHON = """
import json, time
def busy(n):
    total = 0
    for i in range(n):
        total ^= i * i
    return total
def idle(): return [1, 2]
def greedy(count): return [bytes(1000) for _ in range(count)]
def parse(count): return [json.loads('{"a": [1, 2]}') for _ in range(count)]
def main():
    idle()
    busy(1_500_000)
    return len(greedy(3000))
"""


def prepared(desk):
    desk.evaluate(LISP, PYTHON)
    return desk


def shares(text, heading):
    """Return the share of each row below a heading by what the row is about."""
    below = text.split(heading, 1)[1].split("\n\n")[0].split(":\n", 1)[1].split("\nFunctions,")[0]
    rows = re.findall(r"^ +([\d.]+) %.*?  ([^%\n]+)$", below, re.MULTILINE)
    return {what: float(share) for share, what in rows}


@pytest.mark.contract("day.profile.time")
def test_the_time_is_found_where_it_is_spent(desk):
    """Profile: own code first, the value, and nothing of ours."""
    answer = prepared(desk).text("profile_form", form=desk.either("(main)", "main()"))
    assert re.match(r"[\d.]+ m?s \(processor [\d.]+ m?s", answer)
    own = shares(answer, "Your code")
    first = next(iter(own))
    assert desk.either("BUSY", "busy at <image") in first
    assert own[first] > 30, answer
    if desk.language == "python":
        assert first.endswith(("total ^= i * i", "for i in range(n):"))
    assert "Functions, by their own time" in answer
    assert answer.endswith(desk.either("=> 200000", "=> 3000"))
    assert "gramercy" not in answer.lower()
    assert "evaluation.py" not in answer
    assert len(answer) <= 8000


@pytest.mark.contract("day.profile.allocation")
def test_allocations_are_found_where_they_are_made(desk):
    """Profile: memory by line (Python) or function (Lisp)."""
    form = desk.either("(main)", "kept = greedy(3000)")
    answer = prepared(desk).text("profile_form", form=form, measure="allocation")
    if desk.language == "sbcl":
        assert re.search(r"[\d.]+ MB allocated", answer)
        assert shares(answer, "Your code")["GREEDY"] > 90
    else:
        assert re.search(r"at most [23]\.\d MB more than before at a time, [23]\.\d MB still held", answer)
        line = re.search(r"Still held, by your lines:\n +([\d.]+) MB  <image \d+>:9: def greedy", answer)
        assert line is not None, answer


@pytest.mark.contract("day.profile.calls")
def test_calls_are_counted_and_waiting_is_found(python_desk):
    """Profile: exact counts; time that was waited belongs to the call that waits."""
    desk = prepared(python_desk)
    # So many that a machine which stops for a second does not make their share too small to be listed.
    answer = desk.text("profile_form", form="parse(30_000)\ntime.sleep(0.2)\nNone", measure="calls")
    assert re.search(r"^ +30,000 .*  loads at .*json/__init__.py:\d+$", answer, re.MULTILINE), answer
    waited = r"(?:[2-9]\d\d\.\d ms|[\d.]+ s)"
    assert re.search(rf"^ +1 +{waited} +{waited}  <built-in method time.sleep>$", answer, re.MULTILINE), (
        answer
    )
    assert "time.perf_counter" not in answer


def test_time_in_a_library_belongs_to_the_line_that_calls_it(python_desk):
    """Profile: a library is not what a user can change."""
    answer = prepared(python_desk).text("profile_form", form="len(parse(60_000))")
    own = shares(answer, "Your code")
    assert all("<image" in what for what in own), answer
    assert own[next(what for what in own if "json.loads" in what)] > 50


def test_what_prints_the_value_is_not_counted(python_desk):
    """Profile: nothing of ours."""
    form = "found = [[n] for n in range(20_000)]\nfound"
    answer = python_desk.text("profile_form", form=form, measure="calls")
    assert "builtins.id>" not in answer
    assert "'append' of 'list'" not in answer


def test_waiting_is_told_with_what_shows_it(desk):
    """Profile: samples of the processor do not see waiting."""
    answer = prepared(desk).text("profile_form", form=desk.either("(sleep 0.2)", "time.sleep(0.2)"))
    assert "it did not run: it waited" in answer
    assert ("measure calls" in answer) is (desk.language == "python")


@pytest.mark.contract("day.profile.state")
def test_what_was_measured_is_kept_and_can_be_taken_back(desk):
    """Profile: an evaluation like any other."""
    desk.text("profile_form", form=desk.either("(defvar *x* 1) (setf *x* 2)", "x = 1\nx = 2"))
    assert desk.evaluate("*x*", "x") == "=> 2"
    desk.text("undo_last")
    assert desk.evaluate("(boundp '*x*)", "'x' in globals()").startswith(desk.either("=> NIL", "=> False"))


def test_an_error_is_told_first_with_what_was_measured_until_then(desk):
    """Profile: failures."""
    prepared(desk)
    form = desk.either('(progn (busy 3000000) (error "boom"))', "busy(100_000); raise OSError('boom')")
    told = desk.failure("profile_form", form=form)
    assert told.startswith("[ERROR]")
    assert "boom" in told
    assert "Until then: " in told
    assert "Until then" not in desk.failure("profile_form", form=desk.either("(+ 1", "x = ("))


def test_a_short_evaluation_says_that_it_is_too_short(desk):
    """Profile: figures of chance are not given as facts."""
    assert "measure it in a loop" in desk.text("profile_form", form=desk.either("(+ 1 2)", "1 + 2"))


@pytest.mark.parametrize(
    "arguments", [{}, {"form": ""}, {"form": 5}, {"form": "1", "measure": "speed"}, {"form": "1", "more": 1}]
)
def test_bad_arguments_are_refused(desk, arguments):
    """Bad input."""
    assert not desk.call("profile_form", **arguments).success


def test_lisp_says_what_it_can_measure(lisp_desk):
    """Bad input: a measure of another language."""
    told = lisp_desk.failure("profile_form", form="(+ 1 2)", measure="calls")
    assert "time or by allocation" in told


def test_a_profile_that_runs_out_of_time_shows_where_it_was(images, desk):
    """Profile: an endless loop."""
    reply = images(desk.language).profile(desk.either("(loop)", "while True: pass"), timeout=0.5)
    assert reply.error is not None
    assert reply.error.type == "TIMEOUT"
    assert reply.profile["samples"] > 0


def test_a_measurement_of_the_users_own_goes_on(python_desk):
    """Profile: signals, traces and collections are left as they were found."""
    setup = "import signal, gc, tracemalloc\ntracemalloc.start()\nfns = list(gc.callbacks)\n"
    setup += "old = signal.signal(signal.SIGPROF, print)"
    python_desk.text("eval_form", form=setup)
    for measure in ("time", "calls", "allocation"):
        python_desk.text("profile_form", form="sum(range(100_000))", measure=measure)
    check = "tracemalloc.is_tracing(), signal.getsignal(signal.SIGPROF) is print, gc.callbacks == fns"
    assert python_desk.text("eval_form", form=check).startswith("=> (True, True, True)")


def test_a_long_answer_is_bounded(desk):
    """At most 8,000 characters, also with much output."""
    lisp = '(dotimes (i 5000) (format t "line ~d~%" i))'
    form = desk.either(lisp, "for i in range(5000): print('line', i)")
    assert len(desk.text("profile_form", form=form)) <= 8000
