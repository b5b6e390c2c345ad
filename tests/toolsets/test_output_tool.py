"""Reading on where an answer was cut. Real images."""

from __future__ import annotations

import re

LONG = {
    "sbcl": '(dotimes (i 8000) (format t "line ~5,\'0d~%" i))',
    "python": "for i in range(8000): print(f'line {i:05d}')",
}
HUGE = {
    "sbcl": '(dotimes (i 40000) (format t "line ~5,\'0d~%" i))',
    "python": "for i in range(40000): print(f'line {i:05d}')",
}


def test_an_answer_that_was_cut_says_how_to_read_on_until_the_end(desk):
    """Images, What users of the peers ask for: truncation that is announced and can be continued."""
    answer = desk.text("eval_form", form=LONG[desk.language])
    assert "line 00000" in answer
    found, offset = answer, 0
    while (more := re.search(r"offset (\d+)", found[-200:])) is not None:
        assert int(more[1]) > offset
        offset = int(more[1])
        found = desk.text("read_output", offset=offset)
    assert found.rstrip().endswith("line 07999")


def test_no_character_is_lost_between_the_parts(desk):
    whole = "".join(f"line {number:05d}\n" for number in range(8000))
    desk.text("eval_form", form=LONG[desk.language])
    parts, offset = [], 0
    while offset < len(whole):
        part = desk.text("read_output", offset=offset)
        shown = part.partition("\n… [")[0]
        parts.append(shown)
        offset += len(shown)
    assert "".join(parts) == whole


def test_what_the_image_did_not_keep_is_announced(desk):
    desk.text("eval_form", form=HUGE[desk.language])
    assert "the rest was not kept" in desk.text("read_output", offset=95_000)
    assert "has no more: 100,000 of 440,000" in desk.text("read_output", offset=100_000)


def test_an_earlier_evaluation_can_be_read_too(desk):
    desk.text("eval_form", form={"sbcl": '(format t "first~%")', "python": "print('first')"}[desk.language])
    desk.text("eval_form", form="1")
    assert desk.text("read_output", evaluation=2) == "first\n"
    assert "no more" in desk.text("read_output")


def test_an_evaluation_that_never_was_is_refused(desk):
    assert "There are 0 evaluations" in desk.failure("read_output")
