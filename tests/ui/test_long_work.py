"""At a terminal: what a long evaluation prints is seen as it comes, and Tab completes names."""

import os
import signal
from time import monotonic

import pytest

from gramercy.images.asking import ANSWER_SECONDS
from gramercy.images.opening import open_image
from gramercy.ui.cli.reading import Completer
from tests.support import until

pytestmark = pytest.mark.usefixtures("no_orphans")

PROMPT = {"sbcl": "CL-USER> ", "python": ">>> "}
# What is called takes until a file is there: the test decides how long.
WAIT = {
    "sbcl": '(defun wait () (loop until (probe-file "go") do (sleep 0.01)))\n',
    "python": "import os, sys; wait = lambda: all(iter(lambda: not os.path.exists('go'), False))\n",
}
PRINT = {
    "sbcl": '(progn (format t "one~%") (wait) (format t "two~%") 42)\n',
    "python": "print('one'); wait(); print('two'); 42\n",
}
PRINT_TO_BOTH = {
    "sbcl": '(progn (format t "out") (format *error-output* "careful~%") (wait))\n',
    "python": "print('out', end=''); print('careful', file=sys.stderr); wait()\n",
}
PRINT_MUCH = {
    "sbcl": '(progn (dotimes (i 20000) (format t "123456789~%")) (format *error-output* "done~%") (wait))\n',
    "python": "print('123456789\\n' * 20000, end=''); print('done', file=sys.stderr); wait()\n",
}
DRAW = {
    "sbcl": '(progn (format t "1%~c2%" #\\Return) (wait) (format t "~c100%~%" #\\Return))\n',
    "python": "print('1%\\r2%', end=''); wait(); print('\\r100%')\n",
}
DIE = {
    "sbcl": '(progn (format t "last words~%") (wait) (sb-ext:exit :code 3 :abort t))\n',
    "python": "print('last words'); wait(); os._exit(3)\n",
}


@pytest.fixture
def prompt(terminal, language, tmp_path):
    """Start a prompt where one can wait; its `enter` types a line and reads over the echo."""
    screen = terminal("repl", "--language", language, XDG_STATE_HOME=str(tmp_path / "state"))

    def enter(line):
        screen.expect(PROMPT[language])
        screen.settle()
        screen.send(line)
        screen.expect("\n")

    screen.enter = enter
    enter(WAIT[language])
    return screen


def test_output_is_seen_while_the_evaluation_runs_and_not_repeated(prompt, language, tmp_path):
    """Images, Timeouts and deaths: long evaluations report progress."""
    prompt.enter(PRINT[language])
    assert prompt.expect("one\n") == ""
    (tmp_path / "go").touch()
    assert prompt.expect(PROMPT[language]) == "two\n=> 42\n"


def test_two_streams_are_seen_without_headings(prompt, language, tmp_path):
    prompt.enter(PRINT_TO_BOTH[language])
    assert prompt.expect("careful\n") == "out"
    (tmp_path / "go").touch()
    assert prompt.expect(PROMPT[language]) == {"sbcl": "=> NIL\n", "python": "=> True\n"}[language]


def test_what_was_seen_before_ctrl_c_is_not_repeated(prompt, language):
    prompt.enter(PRINT[language])
    prompt.expect("one\n")
    prompt.send("\x03")
    prompt.expect("[ERROR]")
    assert "one\n" not in prompt.expect(PROMPT[language])


def test_much_output_is_cut_as_it_would_be_at_the_end(prompt, language, tmp_path):
    prompt.enter(PRINT_MUCH[language])
    assert len(prompt.expect("done\n")) < 31_000
    (tmp_path / "go").touch()
    prompt.expect("[stdout cut: 30,000 of 200,000 characters shown")
    prompt.expect(PROMPT[language])


def test_a_death_shows_the_output_once_and_then_the_reason(prompt, language, tmp_path):
    """Images, Timeouts and deaths: always return the partial output."""
    prompt.enter(DIE[language])
    prompt.expect("last words\n")
    (tmp_path / "go").touch()
    ending = prompt.expect("The state before is back")
    assert "last words" not in ending
    assert "status 3" in ending


NAMES = {
    "sbcl": [
        ("(defvar *marigold* 41)\n", "*mari\t\n", "41"),
        ("(setf *marigold* 3)\n", "(1+ *MARI\t)\n", "4"),
        ("(defpackage :bed (:use :cl))\n", '(sb-ext:posix-gete\t "NOT_SET")\n', "NIL"),
    ],
    "python": [
        ("marigold = 41\n", "mari\t\n", "41"),
        ("import math\n", "math.facto\t(3)\n", "6"),
        ("x = [4]\n", "4 + le\t(x)\n", "5"),
    ],
}


def test_tab_completes_names_of_the_image(prompt, language):
    for before, typed, value in NAMES[language]:
        prompt.enter(before)
        prompt.enter(typed)
        prompt.expect(f"=> {value}\n")


def test_tab_where_nothing_fits_leaves_the_line_alone(prompt, language):
    prompt.enter({"sbcl": "nosuch:name\t\n", "python": "nosuch.name\t\n"}[language])
    prompt.expect("[ERROR]")
    prompt.expect(PROMPT[language])


def test_tab_at_the_beginning_of_a_line_indents(prompt, language):
    prompt.enter({"sbcl": "(+ 40\n", "python": "if True:\n"}[language])
    prompt.settle()
    prompt.send({"sbcl": "\t2)\n", "python": "\tprint('=>', 40 + 2)\n\n"}[language])
    prompt.expect("=> 42")


def test_an_image_that_does_not_answer_has_no_names_and_nobody_waits_for_it(language, tmp_path):
    """The prompt comes first: a process that stands still answers again when it goes on."""
    image = open_image(language, project=tmp_path)
    completer = Completer(image, tmp_path)
    # The completer gives up after half a second, in which a busy machine may not answer: it is asked again.
    until(lambda: completer("prin", 0) is not None)
    live = image.processes()["live"]
    os.kill(live, signal.SIGSTOP)
    try:
        started = monotonic()
        assert (completer("prin", 0), completer("prin", 0)) == (None, None)
        assert monotonic() - started < ANSWER_SECONDS / 2
    finally:
        os.kill(live, signal.SIGCONT)
    assert image.evaluate("42").values == ["42"]
    until(lambda: completer("prin", 0) is not None)
    image.close()


@pytest.mark.contract("day.long.fold.everywhere")
def test_a_bar_is_drawn_over_itself_and_stands_once_in_the_end(prompt, language, tmp_path):
    """W2: the prompt printed every carriage return literally."""
    prompt.enter(DRAW[language])
    assert "1%" not in prompt.expect("2%")
    (tmp_path / "go").touch()
    assert prompt.expect(PROMPT[language]).startswith("\r\x1b[K100%\n")
