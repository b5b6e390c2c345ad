"""The tools for work in the background, as a model calls them."""

from __future__ import annotations

from time import monotonic, sleep

import pytest

from gramercy.toolsets.core import register_session_tools

LONGEST = 60.0
LOOPS = {
    "sbcl": '(progn (format t "begun~%") (loop (sleep 0.01)))',
    "python": "print('begun')\nwhile True: pass",
}
ADDS = {"sbcl": "(+ 40 2)", "python": "40 + 2"}


@pytest.fixture
def desk(desk):
    """Return a desk whose callers may choose how long a call takes."""
    register_session_tools(desk.registry, desk.image, language=desk.language, longest_timeout=600.0)
    return desk


def evaluate(desk, code):
    """Begin a job; return its number, and what was said of it."""
    name = "evaluate-lisp" if desk.language == "sbcl" else "evaluate-python"
    said = desk.text(name, code=code, background=True)
    return int(said.split()[1]), said


def read_until(desk, number, word):
    text, deadline = "", monotonic() + LONGEST
    while word not in text and monotonic() < deadline:
        text += desk.text("read_output", job=number)
        sleep(0.01)
    assert word in text
    return text


@pytest.mark.contract("day.long.job.tools")
def test_a_job_is_begun_read_and_stopped_by_tools(desk):
    """W2: work in the background with a handle, output to read, a way to stop it."""
    job, begun = evaluate(desk, LOOPS[desk.language])
    assert begun.startswith(f"Job {job} has begun. read_output with job {job} shows what it prints and its")
    assert "undo goes back to before it" in begun
    assert begun.count("state") == 1
    assert f"[job {job} runs, " in read_until(desk, job, "begun")
    desk.text("stop_job", job=job)
    assert f"[job {job} is stopped, " in read_until(desk, job, "stopped")


@pytest.mark.contract("day.long.job.tools")
def test_the_result_of_a_job_is_read_like_that_of_an_evaluation(desk):
    """The same words, and then how the job is."""
    job, _ = evaluate(desk, ADDS[desk.language])
    assert read_until(desk, job, "is done").endswith(f"=> 42\n\n[job {job} is done, 0 s]")


@pytest.mark.contract("day.long.job.tools")
def test_the_number_of_no_job_is_refused_in_one_sentence(desk):
    """With the jobs that there are."""
    assert "there is no job 999: none was started" in desk.failure("read_output", job=999)
    assert "there is no job 999" in desk.failure("stop_job", job=999)


@pytest.mark.contract("day.long.job.unlimited")
def test_a_time_limit_of_a_job_is_refused_and_nothing_runs(desk):
    """It would be ignored, and the caller would wait for an end that does not come."""
    name = "evaluate-lisp" if desk.language == "sbcl" else "evaluate-python"
    said = desk.failure(name, code=LOOPS[desk.language], background=True, timeout=2)
    assert "a job has no time limit, so nothing was run: leave out timeout, or background" in said
    assert "none was started" in desk.failure("stop_job", job=1)
