"""What was written over by a carriage return is shown nowhere: only what a terminal would show at the end."""

from __future__ import annotations

from time import perf_counter

import pytest

from gramercy.images.opening import open_image
from gramercy.images.output import Printed, folded

BAR = "import sys\nfor n in range(101): sys.stderr.write(f'\\r{n}%')\nsys.stderr.write('\\n')\nprint('done')"


@pytest.fixture
def image(tmp_path):
    opened = open_image("python", project=tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("a\r\nb\r\n", "a\nb\n"),
        ("10%\r20%\r100%", "100%"),
        ("longer\rab", "abnger"),
        ("longer\r\x1b[Kab", "ab"),
        ("longer\rab\x1b[K\nnext", "ab\nnext"),
        ("one\ntwo\rTWO\nthree", "one\nTWO\nthree"),
        ("kept\r", "kept"),
        ("plain \x1b[K stays", "plain \x1b[K stays"),
    ],
)
@pytest.mark.contract("day.long.fold.everywhere")
def test_a_carriage_return_writes_over_its_line(written, shown):
    """W2: only what a terminal would show at the end."""
    assert folded(written) == shown


def test_folding_takes_time_in_proportion_to_the_text():
    """Evaluated code chooses the text, so it must not choose the time."""
    began = perf_counter()
    assert folded("x" * 100_000 + "\r" * 150_000) == "x" * 100_000
    assert perf_counter() - began < 30


def test_the_length_of_what_was_cut_counts_no_character_that_was_written_over():
    """The numbers of a cut are about what is shown."""
    cut = Printed("12\r34", "", {"stdout": 1_005}).folded()
    assert (cut.stdout, cut.truncated) == ("34", {"stdout": 1_002})


@pytest.mark.contract("day.long.fold.everywhere")
def test_a_bar_of_progress_is_one_line_of_the_reply_and_of_the_history(image):
    """W2: 3,970 characters for one bar."""
    reply = image.evaluate(BAR)
    assert (reply.stderr, reply.stdout, reply.truncated) == ("100%\n", "done\n", {})
    assert image.history()[-1].reply.stderr == "100%\n"


@pytest.mark.contract("day.long.fold.everywhere")
def test_the_end_of_a_bar_is_kept_however_long_it_ran(image):
    """The image keeps 100,000 characters, which a bar of minutes exceeds."""
    code = (
        "print('begin')\nfor n in range(60_001): print(f'\\r{n:>8} of 60000', end='')\nprint()\nprint('end')"
    )
    reply = image.evaluate(code)
    assert reply.stdout == "begin\n   60000 of 60000\nend\n"
    assert reply.truncated == {}


@pytest.mark.contract("day.long.fold.everywhere")
def test_the_last_words_of_a_process_that_died_are_folded(image):
    """They are read from shared memory instead of from a reply."""
    reply = image.evaluate("print('1%\\r2%\\r3%', flush=True)\nimport os; os._exit(3)")
    assert reply.error is not None
    assert reply.stdout == "3%\n"
