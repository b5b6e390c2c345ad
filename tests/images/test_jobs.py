"""Work in the background: it goes on beside other calls, and is read and stopped by its number."""

from __future__ import annotations

from time import monotonic, sleep

import pytest

from gramercy.errors import ImageError
from gramercy.images.opening import open_image

LONGEST = 60.0
# By language; what is called waits until a file is there, so that the test decides how long.
CODE = {
    "sbcl": {
        "define": "(defvar *x* 41)",
        "wait": '(progn (format t "begun~%") (loop until (probe-file "go") do (sleep 0.01)) (setf *x* 42))',
        "look": "*x*",
        "set": "(defvar *y* 1)",
        "look at y": "*y*",
        "forever": '(progn (format t "begun~%") (loop (incf *x*)))',
        "fail": '(error "it ~a" \'failed)',
        "much": '(dotimes (i 30000) (format t "line ~d~%" i))',
        "bar": '(dotimes (i 100) (format t "~c~d%" #\\Return i))',
        "die": "(sb-ext:exit :code 3 :abort t)",
        "unread": "(1 2",
    },
    "python": {
        "define": "x = 41",
        "wait": "import os, time\nprint('begun')\n"
        "while not os.path.exists('go'): time.sleep(0.01)\nx = 42\nx",
        "look": "x",
        "set": "y = 1",
        "look at y": "y",
        "forever": "print('begun')\nwhile True: x += 1",
        "fail": "raise ValueError('it failed')",
        "much": "for i in range(30000): print('line', i)",
        "bar": "for i in range(100): print(f'\\r{i}%', end='')",
        "die": "import os; os._exit(3)",
        "unread": "(1, 2",
    },
}


@pytest.fixture
def image(words, tmp_path):
    opened = open_image(words.language, project=tmp_path)
    opened.evaluate(CODE[words.language]["define"])
    yield opened
    opened.close()


@pytest.fixture
def code(words):
    return CODE[words.language]


def read_until(image, number, is_enough):
    """Read a job until it is as wanted; return it with all that it printed."""
    printed, deadline = "", monotonic() + LONGEST
    while monotonic() < deadline:
        job = image.read_job(number)
        printed += job.printed
        if is_enough(job, printed):
            return job, printed
        sleep(0.01)
    raise AssertionError(f"job {number} is {job.state} and printed {printed!r}")


def is_over(job, _printed):
    return job.state != "running"


def has_begun(_job, printed):
    return "begun" in printed


@pytest.mark.contract("day.long.job.beside")
def test_a_job_goes_on_beside_other_calls_and_leaves_its_result(image, code, tmp_path):
    """W2: training goes on, and other evaluations are possible."""
    begun = image.start_job(code["wait"])
    assert (begun.ok, begun.job) == (True, 1)
    read_until(image, 1, has_begun)
    assert image.evaluate(code["look"]).values == ["41"]
    assert image.evaluate(code["set"]).ok
    assert [job.state for job in image.jobs()] == ["running"]
    (tmp_path / "go").touch()
    job, _ = read_until(image, 1, is_over)
    assert (job.state, job.reply.values) == ("done", ["42"])
    assert image.evaluate(code["look"]).values == ["42"]


@pytest.mark.contract("day.long.job.told")
def test_the_end_of_a_job_is_told_once_and_its_state_is_kept(image, code, tmp_path):
    """The caller need not poll, and what the job did can be gone back to."""
    image.start_job(code["wait"])
    (tmp_path / "go").touch()
    deadline = monotonic() + LONGEST
    while image.jobs()[0].state == "running" and monotonic() < deadline:
        sleep(0.01)
    told = image.evaluate(code["look"]).notes
    assert any("Job 1 is over (done)" in note for note in told)
    assert not any("Job 1" in note for note in image.evaluate(code["look"]).notes)
    assert image.evaluate(code["set"]).ok
    image.undo()
    assert image.evaluate(code["look"]).values == ["42"]


@pytest.mark.contract("day.long.job.stop")
def test_a_job_can_be_stopped_at_any_moment(image, code):
    """What loops forever is stopped, right after its start as well as later."""
    image.start_job(code["forever"])
    assert read_until(image, 1, lambda job, _: image.stop_job(1) and is_over(job, _))[0].state == "stopped"
    image.start_job(code["forever"])
    read_until(image, 2, has_begun)
    image.stop_job(2)
    assert read_until(image, 2, is_over)[0].state == "stopped"
    assert image.evaluate(code["look"]).ok


@pytest.mark.contract("day.long.job.undo")
def test_undo_goes_back_to_before_a_job_and_says_that_it_ended(image, code):
    """While a job runs no state is kept, and that is said."""
    begun = image.start_job(code["wait"])
    assert begun.unkept is not None
    read_until(image, 1, has_begun)
    info = image.undo()
    assert any("Job 1 ended with its process" in note for note in info.notes)
    assert image.read_job(1).state == "lost"
    assert image.evaluate(code["look"]).values == ["41"]


@pytest.mark.contract("day.long.job.death")
def test_a_death_is_told_once_with_what_the_job_printed(image, code):
    """The image dies in another call: the output of the job is still there."""
    image.start_job(code["wait"])
    deadline = monotonic() + LONGEST
    while not image.jobs()[0].printed and monotonic() < deadline:
        sleep(0.01)
    died = image.evaluate(code["die"])
    assert any("Job 1 ended with its process" in note for note in died.notes)
    job = image.read_job(1)
    assert (job.state, job.printed, job.reply) == ("lost", "begun\n", None)
    assert not any("Job 1" in note for note in image.evaluate(code["look"]).notes)


@pytest.mark.contract("day.long.job.told")
def test_a_failure_is_the_result_of_a_job(image, code):
    """With its type, message and frames."""
    image.start_job(code["fail"])
    job, _ = read_until(image, 1, is_over)
    assert (job.state, job.reply.ok) == ("failed", False)
    assert "failed" in job.reply.error.message.lower()
    assert image.evaluate(code["look"]).ok


@pytest.mark.contract("day.long.job.output")
def test_the_output_of_a_job_is_bounded_and_its_end_is_kept(image, code):
    """Hours of output must not fill the memory, and the latest lines say how far it is."""
    image.start_job(code["much"])
    deadline = monotonic() + LONGEST
    while image.jobs()[0].state == "running" and monotonic() < deadline:
        sleep(0.01)
    job = image.read_job(1)
    assert job.printed.endswith("line 29999\n")
    assert len(job.printed) <= 2 * 128 * 1024
    assert image.read_job(1).printed == ""


@pytest.mark.contract("day.long.job.output", "day.long.fold.everywhere")
def test_the_bar_of_a_job_is_folded(image, code):
    """As in every other output."""
    image.start_job(code["bar"])
    deadline = monotonic() + LONGEST
    while image.jobs()[0].state == "running" and monotonic() < deadline:
        sleep(0.01)
    assert image.read_job(1).printed == "99%"


@pytest.mark.contract("day.long.job.refused")
def test_no_more_than_four_jobs_run_and_unknown_ones_are_named(image, code, tmp_path):
    """One sentence that says what there is and what to try."""
    for _ in range(4):
        assert image.start_job(code["wait"]).ok
    with pytest.raises(ImageError, match="4 jobs run, and there may be no more: stop one first"):
        image.start_job(code["wait"])
    with pytest.raises(ImageError, match="there is no job 9: job 1"):
        image.read_job(9)
    (tmp_path / "go").touch()
    for number in range(1, 5):
        read_until(image, number, is_over)
    assert image.start_job(code["look"]).job == 5


@pytest.mark.contract("day.long.job.refused")
def test_code_that_cannot_be_read_fails_and_leaves_nothing_running(image, code):
    """A slip of the pen costs one call."""
    begun = image.start_job(code["unread"])
    if begun.ok:
        job, _ = read_until(image, 1, is_over)
        assert "ends inside of a form" in job.reply.error.message
    else:
        assert begun.error.type == "SyntaxError"
        assert image.jobs() == []
    assert image.evaluate(code["look"]).values == ["41"]
