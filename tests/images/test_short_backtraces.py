"""Backtraces are short: frames of libraries in one line, rightly counted, and the user's own always there."""

from contextlib import closing

import pytest

from tests.images import children

PROGRAM = """
import json
def read(text, strict=True, *, kind='json', other=None): return json.loads(text)
def inner(thing): return 1 / 0
def outer(): return json.dumps(object(), default=inner)
def deep(n): return deep(n - 1) if n else 1 / 0
def ping(n): return pong(n - 1) if n else 1 / 0
def pong(n):
    return ping(n - 1)
class Shelf:
    limit = 5
    def find(self, name, missing=None, *, deep=False): return {}[name]
    @classmethod
    def make(cls, size=3): return 1 / 0
"""
LISP = """
(defstruct point x y)
(defun down (n) (declare (optimize debug)) (if (zerop n) (error "bottom") (1+ (down (1- n)))))
(defun look (row grid table point rest)
  (declare (optimize (debug 3)))
  (prog1 (/ 1 (car rest)) (print (list row grid table point rest))))
(defvar *table* (make-hash-table :test 'equal))
(setf (gethash "k" *table*) 1)
(defun see ()
  (look (make-array 1000 :initial-element 1) (make-array '(2 3) :element-type 'fixnum :initial-element 7)
        *table* (make-point :x 1 :y 2) (list 0)))
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """Return a Python process with the program."""
    with closing(children.Family(tmp_path_factory.mktemp("short"), "python")) as family:
        live = family.live()
        assert live.eval(PROGRAM)["ok"]
        yield live


@pytest.fixture(scope="module")
def lisp(tmp_path_factory):
    """Return an SBCL process with the program."""
    with closing(children.Family(tmp_path_factory.mktemp("short"), "sbcl")) as family:
        live = family.live()
        assert live.eval(LISP)["ok"]
        yield live


def backtrace(live, code):
    """Return the lines of the backtrace of what fails."""
    return live.eval(code)["error"]["backtrace"]


@pytest.mark.contract("day.eyes.backtrace.folded")
def test_frames_of_a_library_make_one_line_with_their_count(live):
    """A day's work: the frames of frameworks buried the user's own."""
    first, folded, own, module = backtrace(live, "read('{')")
    assert first.startswith("0: JSONDecoder.raw_decode at json/decoder.py:")
    assert folded == "… 2 frames of json (1 to 2)"
    assert own.startswith("3: read(text='{') at <image 1>:3: def read(")
    assert module.startswith("4: <module> at <image ")


@pytest.mark.contract("day.eyes.backtrace.folded")
def test_a_frame_of_the_users_between_two_libraries_is_shown_with_its_line(live):
    """Callbacks: what a library calls is what the reader looks for."""
    lines = backtrace(live, "outer()")
    assert lines[0].startswith(
        "0: inner(thing=<object object>) at <image 1>:4: def inner(thing): return 1 / 0"
    )
    assert lines[1] == "… 3 frames of json (1 to 3)"
    assert [line.partition(" at ")[0] for line in lines[2:]] == ["4: outer()", "5: <module>"]


@pytest.mark.contract("day.eyes.backtrace.folded")
@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("Shelf().find('x')", "0: Shelf.find(self=<Shelf object>, name='x') at "),
        ("Shelf().find('x', deep=True)", "0: Shelf.find(self=<Shelf object>, name='x', deep=True) at "),
        ("Shelf.make(4)", "0: Shelf.make(cls=<class 'Shelf'>, size=4) at "),
    ],
)
def test_an_argument_with_its_default_is_left_out(live, code, call):
    """A default says nothing about this call."""
    assert backtrace(live, code)[0].startswith(call)


@pytest.mark.contract("day.eyes.backtrace.counted")
def test_a_recursion_is_one_line_and_its_count_is_that_of_the_stack(live):
    """A wrong count was told: that of the lines, not of the frames."""
    lines = backtrace(live, "deep(100)")
    assert lines[0].startswith("0: deep(n=0) at")
    assert lines[1] == "… 100 frames of deep again (1 to 100)"
    assert lines[-1].startswith("101: <module> at ")
    assert sum(told(line) for line in lines) == 102


def told(line):
    """Return how many frames a line stands for, by its range."""
    if not line.startswith("… "):
        return 1
    first, last = (int(word) for word in line.rpartition("(")[2].rstrip(")").split(" to "))
    assert line.startswith(f"… {last - first + 1} ")
    return last - first + 1


@pytest.mark.contract("day.eyes.backtrace.counted")
def test_of_a_deep_stack_both_ends_are_shown_and_the_middle_is_counted(live):
    """Two functions that call each other: nothing repeats, and there are too many lines."""
    lines = backtrace(live, "ping(200)")
    assert len(lines) == 20
    assert lines[0].startswith("0: ping(n=0)")
    assert lines[-1].startswith("201: <module>")
    assert sum(told(line) for line in lines) == 202


@pytest.mark.contract("day.eyes.backtrace.counted")
@pytest.mark.parametrize("depth", [30, 500])
def test_a_backtrace_of_lisp_counts_the_frames_of_the_stack(lisp, depth):
    """The same in Lisp."""
    lines = backtrace(lisp, f"(down {depth})")
    assert f"1-{depth}: {depth} more calls of DOWN" in lines
    assert lines[-1].startswith(f"{depth + 1}: (EVAL ")


@pytest.mark.contract("day.eyes.lisp")
def test_arrays_and_hash_tables_of_lisp_are_shown_by_what_they_hold(lisp):
    """A long vector leaves room for what stands beside it."""
    call = next(line for line in backtrace(lisp, "(see)") if line.startswith("1: "))
    assert call.startswith(
        '1: (LOOK #(1 1 1 1 1 1 ...) #<ARRAY 2x3 FIXNUM: 7 7 7 7 7 7> #<HASH-TABLE EQUAL 1: "k" 1> '
    )
