"""Lines that a person types for a running evaluation: what is asked and answered, and when nothing is."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from contextlib import closing

import pytest

from gramercy.images.connection import Connection, as_json
from gramercy.images.handover import Ends
from gramercy.images.lines import Lines
from gramercy.images.opening import open_image

BOUND = 60
READ = {"sbcl": "(read-line)", "python": "input()"}
VALUE = {"sbcl": '"{}"', "python": "'{}'"}
# Asks, and never ends afterwards.
READ_AND_LOOP = {"sbcl": "(progn (read-line) (loop))", "python": "input()\nwhile True: pass"}
READ_AGAIN = {
    "sbcl": "(handler-case (read-line) (gramercy.image:interrupted () (read-line)))",
    "python": "try: name = input()\nexcept KeyboardInterrupt: name = input()\nname",
}
KEEP = {"sbcl": "(defvar *kept* *standard-input*)", "python": "import sys; kept = sys.stdin"}
USE_KEPT = {"sbcl": "(read-line *kept* nil :end)", "python": "kept.readline() or 'end'"}
END = {"sbcl": ":END", "python": "'end'"}
NO_INPUT = "valuated code has no standard input: put the value in the code"
FAIL_AND_READ = {"sbcl": "(progn (read-line) (car 1))", "python": "input() / 0"}


class Typing:
    """A typist of these lines, and then of no more; `asked` has what was wanted."""

    def __init__(self, *lines):
        self._left = list(lines)
        self.asked = []

    def __call__(self, wanted):
        self.asked.append(wanted)
        return f"{self._left.pop(0)}\n" if self._left else None


@pytest.mark.contract("day.prompt.input")
@pytest.mark.parametrize("line", ["Ada", "", "ä€🌹 \t|", "x" * 200_000])
def test_a_line_comes_as_it_was_typed(image, line):
    typist = Typing(line)
    image.evaluate({"sbcl": "(defvar *typed* nil)", "python": "None"}[image.language])
    size = {"sbcl": "(length (setf *typed* (read-line)))", "python": "typed = input(); len(typed)"}
    assert image.evaluate(size[image.language], typist=typist).values == [str(len(line))]
    total = {"sbcl": "(reduce #'+ (map 'list #'char-code *typed*))", "python": "sum(map(ord, typed))"}
    assert image.evaluate(total[image.language]).values == [str(sum(map(ord, line)))]
    assert [wanted.secret for wanted in typist.asked] == [False]


@pytest.mark.contract("day.prompt.input-time")
def test_the_time_of_a_person_is_not_that_of_the_evaluation(image):
    """The person takes longer than the limit."""
    pause = threading.Event()

    def typist(_wanted):
        pause.wait(6)
        return "Ada\n"

    reply = image.evaluate(READ[image.language], timeout=5.0, typist=typist)
    assert reply.values[0] == VALUE[image.language].format("Ada")


@pytest.mark.contract("day.prompt.input-time")
@pytest.mark.slow
def test_the_limit_holds_for_what_runs_after_an_answer(image):
    reply = image.evaluate(READ_AND_LOOP[image.language], timeout=1.0, typist=Typing("Ada"))
    assert reply.error.interrupted
    assert "1 s" in reply.error.message
    assert image.evaluate("41").values == ["41"]


@pytest.mark.contract("day.prompt.input")
def test_an_interrupt_ends_the_wait_and_the_question(image):
    """What is typed for the first question must not be taken for an answer to the second."""
    asked = []

    def typist(wanted):
        asked.append(wanted)
        if len(asked) == 1:
            threading.Thread(target=image.interrupt).start()
            poll_for(wanted.ends)
            return None
        return "Ada\n"

    reply = image.evaluate(READ_AGAIN[image.language], typist=typist)
    assert (reply.values[0], len(asked)) == (VALUE[image.language].format("Ada"), 2)


def poll_for(descriptors):
    assert select.select(descriptors, [], [], BOUND)[0]


@pytest.mark.contract("day.prompt.input")
def test_a_process_that_dies_ends_the_question(image):
    process = image.processes()["live"]

    def typist(wanted):
        os.kill(process, signal.SIGKILL)
        poll_for(wanted.ends)

    reply = image.evaluate(READ[image.language], typist=typist)
    assert reply.error.type == "IMAGE-DIED"
    assert image.evaluate(READ[image.language], typist=Typing("Ada")).ok


@pytest.mark.contract("day.prompt.input-elsewhere")
def test_only_the_evaluation_that_a_person_entered_asks(image):
    """Previews, replays, jobs, frames and kept states say what to do instead."""
    read = READ[image.language]
    assert NO_INPUT in image.evaluate(read).error.message
    assert NO_INPUT in image.preview(read).error.message
    number = image.start_job(read).job
    while (job := image.read_job(number)).state == "running":
        threading.Event().wait(0.005)
    assert NO_INPUT in job.reply.error.message
    failed = image.evaluate(FAIL_AND_READ[image.language], typist=Typing("1"))
    assert failed.error.moment is not None
    assert NO_INPUT in image.evaluate_in_frame(read).error.message


@pytest.mark.contract("day.prompt.input-elsewhere")
def test_a_stream_that_was_kept_is_at_its_end_afterwards(image):
    typist = Typing("Ada")
    image.evaluate(KEEP[image.language], typist=typist)
    assert image.evaluate(USE_KEPT[image.language], typist=typist).values[0] == END[image.language]
    image.undo()
    assert image.evaluate(USE_KEPT[image.language]).values[0] == END[image.language]
    assert typist.asked == []


@pytest.mark.contract("day.prompt.input-elsewhere")
def test_a_replay_asks_nobody(image):
    typist = Typing("Ada")
    image.evaluate(
        {"sbcl": "(defvar *name* (read-line))", "python": "name = input()"}[image.language], typist=typist
    )
    image.evaluate({"sbcl": "(defvar *y* 1)", "python": "y = 1"}[image.language])
    info = image.undo("replay")
    assert len(typist.asked) == 1
    assert info.notes


@pytest.mark.contract("day.prompt.input-secret")
def test_a_password_is_asked_for_as_a_secret(tmp_path):
    typist = Typing("thistle", "rose")
    with closing(open_image("python", project=tmp_path)) as image:
        reply = image.evaluate("import getpass; len(getpass.getpass()), input()", typist=typist)
        assert (reply.values, reply.stderr) == (["(7, 'rose')"], "")
        # It is shown once what is typed is hidden, so it comes with the question.
        assert [(wanted.secret, wanted.prompt) for wanted in typist.asked] == [
            (True, "Password: "),
            (False, ""),
        ]
        assert NO_INPUT in str(image.evaluate("getpass.getpass()").error)


@pytest.mark.contract("day.prompt.input-secret")
@pytest.mark.parametrize("code", ["getpass.getpass('x' * 1001)", "getpass.getpass('x' * 1001, sys.stdout)"])
def test_a_prompt_that_does_not_go_with_the_question_is_printed_before_it(tmp_path, code):
    typist = Typing("thistle")
    with closing(open_image("python", project=tmp_path)) as image:
        reply = image.evaluate(f"import getpass, sys; {code}", typist=typist)
        assert (reply.values, reply.stderr + reply.stdout) == (["'thistle'"], "x" * 1001)
        assert [(wanted.secret, wanted.prompt) for wanted in typist.asked] == [(True, "")]


@pytest.mark.parametrize(
    "packet", [b"", b"?", b"!" * 400, b"?\0\0\0\7", b"?\0\0\0\7more", b"*\0\0\0\7" + b"x" * 1001]
)
def test_what_is_no_question_is_hung_up_on(packet):
    """Evaluated code holds the other end, and may send anything."""
    ours, theirs = socket.socketpair()
    ends = Ends()
    typist = Typing("Ada")
    with ours, theirs:
        lines = Lines(typist, Connection(ours, as_json, ends=ends))
        end = ends.fresh.pop(lines.tag)
        assert isinstance(end, socket.socket)
        with end:
            end.send(packet)
            lines.answer()
            is_question = packet == b"?\0\0\0\7"
            assert (lines.is_open, len(typist.asked)) == (is_question, int(is_question))
            assert end.recv(100) == (b"\0\0\0\7=Ada\n" if is_question else b"")
        lines.close()
