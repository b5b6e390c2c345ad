"""The lines that the Python image tells are those that the compiler counts."""

from __future__ import annotations

from contextlib import closing

import pytest

from gramercy.images.opening import open_image
from tests.images import children

# What str.splitlines takes for the end of a line, and the compiler does not.
NO_ENDS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
MODULE = f"""note = {NO_ENDS!r}  # {NO_ENDS}
\x0c
class Fern:
    def grow(self):
        raise LookupError("no light")  # {NO_ENDS}
"""


@pytest.fixture
def live(tmp_path):
    """Return a process that can import the module."""
    (tmp_path / "garden.py").write_text(MODULE, encoding="utf-8")
    with closing(children.Family(tmp_path, "python")) as family:
        process = family.live()
        reply = process.eval(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import garden")
        assert reply["ok"], reply["error"]
        yield process


@pytest.mark.contract("answers.python.lines")
def test_a_class_below_a_form_feed_is_told_at_its_line(live, tmp_path):
    """Oracle: the number that the compiler gives its first method, less one."""
    place = live.ask("describe", symbol="garden:Fern")["data"]["place"]
    assert place == f"{tmp_path}/garden.py:3"


@pytest.mark.contract("answers.python.lines")
@pytest.mark.parametrize("mark", NO_ENDS)
def test_the_line_of_an_error_is_shown_behind_a_mark_that_ends_no_line(tmp_path, mark):
    """The text of the evaluation is counted in the same way as that of a file."""
    with closing(open_image("python", project=tmp_path)) as image:
        reply = image.evaluate(f"note = 1  # {mark}\nraise LookupError(note + 1)\n")
    assert reply.error is not None
    assert reply.error.backtrace[0] == "0: <module> at <image 1>:2: raise LookupError(note + 1)"
