"""The moment of an error in SBCL: its frames and variables, code in a frame, and every way to go on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from pathlib import Path
from time import monotonic, sleep

import pytest

from gramercy.errors import CheckpointError
from gramercy.images.moments import MOST_ATTEMPTS, MOST_MOMENTS
from gramercy.images.opening import open_image
from gramercy.images.requests import GoOn
from gramercy.images.thrift import Thrift

pytestmark = pytest.mark.skipif(shutil.which("sbcl") is None, reason="sbcl is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="module")
def shared(folder):
    image = open_image("sbcl", project=folder)
    yield image
    image.close()


@pytest.fixture
def lisp(shared):
    """Return a fresh image."""
    shared.reset()
    return shared


def fail(image, code, **more):
    """Return the fault of code that fails and leaves a moment."""
    fault = image.evaluate(code, **more).error
    assert fault is not None, code
    assert fault.moment is not None, fault.no_moment
    return fault


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for_end(*pids):
    deadline = monotonic() + 60
    while any(map(is_running, pids)):
        assert monotonic() < deadline, "a process did not end"
        sleep(0.01)


RESTARTS = [
    ("(list nope)", "use-value", ["(+ 40 2)"], "(42)"),
    ("(list nope nope)", "STORE-VALUE", ["7"], "(7 7)"),
    ("(no-function 3)", "use-value", ["#'1+"], "4"),
    ("(list (no-function 3))", "cl:use-value", ["'list"], "((3))"),
    ("(let ((x 1)) (check-type x string) (list x))", "store-value", ['"s"'], '("s")'),
    ('(progn (cerror "Go on." "It stands.") 5)', "continue", [], "5"),
    ('(progn (break "here") 6)', 0, [], "6"),
    ('(handler-bind ((warning (lambda (c) (error "no ~a" c)))) (warn "w") 5)', "muffle-warning", [], "5"),
    ("(let ((x 3)) (ccase x (1 :one) (2 :two)))", "store-value", ["2"], ":TWO"),
    ("(defclass c () ((s)))\n(list (slot-value (make-instance 'c) 's))", "use-value", ["3"], "(3)"),
    ('(restart-case (error "x") (mine (a b) (list :mine a b)))', "mine", ["1", "'(2 3)"], "(:MINE 1 (2 3))"),
    ('(restart-case (error "x") (mine (a b) (list :mine a b)))', "MINE", ["1 '(2 3)"], "(:MINE 1 (2 3))"),
    ('(restart-case (error "x") (mine (&optional (a 4)) a))', "mine", [], "4"),
    ('(restart-case (error "x") (nil () :report "Nameless." 77))', "0", [], "77"),
    ('(list (with-simple-restart (leave "Leave it.") (error "x")))', "leave", [], "(NIL)"),
    ("(list 'nopkg:x)", "continue", [], "(X)"),
    ("(let ((*print-base* 2) (*read-base* 3)) (list nope 12))", "use-value", ["11"], "(4 12)"),
]


@pytest.mark.contract("day.moment.restarts")
@pytest.mark.parametrize(("code", "restart", "arguments", "value"), RESTARTS)
def test_a_restart_goes_on_with_the_evaluation(lisp, code, restart, arguments, value):
    """Moments: every standard restart and those of the user's, by number and by name."""
    fault = fail(lisp, code)
    reply = lisp.invoke_restart(restart, arguments)
    assert (reply.error, reply.values) == (None, [value])
    assert any(f"{fault.moment}.a1 is the copy" in note for note in reply.notes)


WATCHED = "(logtest #o20000 (sb-posix:fcntl gramercy.image::*connection* sb-posix:f-getfl))"


@pytest.mark.parametrize(
    ("code", "restart", "arguments", "value"),
    [
        ("(sb-sys:without-interrupts (list nope))", "use-value", ["1"], "(1)"),
        ('(sb-sys:without-interrupts (cerror "Go on." "It stands.") 5)', "continue", [], "5"),
        ('(sb-sys:without-interrupts (with-simple-restart (leave "Leave.") (car 1)))', "leave", [], "NIL"),
        ('(with-simple-restart (leave "Leave.") (sb-sys:without-interrupts (car 1)))', "leave", [], "NIL"),
    ],
)
def test_code_that_keeps_signals_off_can_be_gone_on_with(lisp, code, restart, arguments, value):
    """Moments: SBCL gives up at a second signal that it would have to defer, so none is sent meanwhile."""
    for _ in range(10):
        fail(lisp, f"(list {code} {WATCHED})")
        reply = lisp.invoke_restart(restart, arguments)
        assert (reply.error, reply.values) == (None, [f"({value} T)"])


def test_the_values_of_an_undefined_function_can_be_given(lisp):
    """Moments: RETURN-VALUE, which the compiler sets up around a call."""
    fail(lisp, "(defun f () (list (no-function 3)))\n(f)")
    assert lisp.invoke_restart("return-value", ["9"]).values == ["(9)"]


@pytest.mark.contract("day.moment.frames")
def test_frames_have_lines_and_variables(lisp):
    """Moments: frames numbered from where it failed, with the line of the code and its text."""
    fail(
        lisp,
        "(defun area (w h)\n  (let ((both (list w h)))\n    (list both\n          scale both)))\n"
        "\n(list (area 2 3))",
    )
    answer = lisp.ask_moment("frames")
    first, last = answer.data["frames"]
    assert (first["call"], first["line"], first["source"].strip()) == ("(AREA 2 3)", 3, "(list both")
    assert sorted(first["locals"]) == ["BOTH", "H", "W"]
    assert (last["line"], last["source"]) == (6, "(list (area 2 3))")
    assert (answer.data["total"], answer.data["complete"]) == (2, True)
    found = {each["name"]: each["value"] for each in lisp.ask_moment("locals", frame=0).data["locals"]}
    assert (found["W"], found["BOTH"]) == ("2", "(2 3)")


def test_numbers_and_texts_of_frames_are_those_of_the_backtrace(lisp):
    """Moments: what an error shows can be given back to a question about it."""
    fault = fail(lisp, "(defun g (x) (car x))\n(defun f (x) (mapcar #'g x))\n(list (f '((1) 2)))")
    frames = lisp.ask_moment("frames").data["frames"]
    assert [f"{each['number']}: {each['call']}" for each in frames] == fault.backtrace


@pytest.mark.parametrize("load", ['(load "code.lisp")', '(load (compile-file "code.lisp"))'])
def test_frames_of_a_loaded_file_have_its_lines(lisp, folder, load):
    """Moments: the line of the very call, not of the definition."""
    code = "(in-package :cl-user)\n\n(defun inner (x)\n  (let ((y 1))\n    (+ y\n       (car x))))\n"
    (folder / "code.lisp").write_text(code)
    lisp.evaluate(load)
    fail(lisp, "(list (inner 5))")
    frame = lisp.ask_moment("frames").data["frames"][0]
    assert (frame["file"], frame["line"]) == ("code.lisp", 6)
    assert frame["source"].strip() == "(car x))))"


@pytest.mark.contract("day.moment.locals")
def test_variables_are_shown_without_running_code_of_the_users(lisp):
    """Moments: a print method that fails, or counts, is not called."""
    fail(
        lisp,
        "(defvar *calls* 0) (defstruct pt x)\n"
        '(defmethod print-object ((p pt) s) (incf *calls*) (error "no"))\n'
        "(defun f (p) (list p nope p))\n(f (make-pt :x 3))",
    )
    answer = lisp.ask_moment("locals", frame=0)
    assert [(each["name"], each["value"]) for each in answer.data["locals"]] == [("P", "#<CL-USER::PT X=3>")]
    lisp.ask_moment("frames")
    assert lisp.evaluate_in_frame("*calls*").values == ["0"]


def test_variables_may_have_names_of_the_language(lisp):
    """Moments: LIST and LENGTH are usual names of variables."""
    fail(lisp, "(defun f (list &aux (length 2)) (list list length (nope list length) list length))\n(f 1)")
    found = [each["name"] for each in lisp.ask_moment("locals", frame=1).data["locals"]]
    assert sorted(found) == ["LENGTH", "LIST"]


@pytest.mark.contract("day.moment.eval")
def test_code_in_a_frame_sees_and_sets_its_variables(lisp):
    """Moments: a variable set in a frame is used by what goes on; the image does not see it."""
    fail(lisp, '(defun f (x) (let ((z (* x 2))) (cerror "Go on." "x") (list x z)))\n(f 3)')
    assert lisp.evaluate_in_frame('(print "hm") (list x z)').values == ["(3 6)"]
    assert lisp.evaluate_in_frame("(setf z 77)").values == ["77"]
    assert lisp.invoke_restart("continue").values == ["(3 77)"]


def test_a_variable_that_is_gone_is_not_called_unbound(lisp):
    """Moments: at debug 2 a value is kept as long as the code needs it."""
    fail(lisp, "(defun f (x) (let ((w (car x)) (h 2)) (* w h scale)))\n(f (list 1))")
    assert "W has no value any more" in lisp.evaluate_in_frame("(list w)").error.message
    assert lisp.evaluate_in_frame("(list zork)").error.message == "The variable ZORK is unbound."
    assert lisp.evaluate_in_frame("(list zork)").error.restarts == []


def test_what_is_missing_can_be_defined_in_the_moment(lisp):
    """Moments: CONTINUE calls the function that was defined there, RETRY the method; not in the image."""
    fail(lisp, "(missing 3)")
    lisp.evaluate_in_frame("(defun missing (x) (* x 100))")
    reply = lisp.invoke_restart("continue")
    assert reply.values == ["300"]
    assert [change.name for change in reply.changed] == ["CL-USER::MISSING"]
    fail(lisp, "(defgeneric gg (x))\n(list (gg 4))")
    lisp.evaluate_in_frame("(defmethod gg ((x integer)) (* x x))")
    assert lisp.invoke_restart("retry").values == ["(16)"]
    assert lisp.evaluate("(fboundp 'missing)").values == ["NIL"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("(throw 'out 3)", "LEFT-MOMENT"),
        ("(invoke-restart 'use-value 3)", "CONTROL-ERROR"),
        ('(error "inner")', "SIMPLE-ERROR"),
        ("(list 1", "END-OF-FILE"),
        ("(labels ((f (n) (+ 1 (f n)))) (f 1))", "CONTROL-STACK-EXHAUSTED"),
    ],
)
def test_code_in_a_frame_cannot_leave_the_moment(lisp, code, kind):
    """Moments: handlers, restarts and catch tags of the stack that stands are not for it."""
    fail(
        lisp,
        "(catch 'out (handler-bind ((error (lambda (c) (throw 'out c)))) (list 1)) (list nope))",
    )
    reply = lisp.evaluate_in_frame(code)
    assert reply.error is not None
    assert kind in reply.error.type
    assert reply.error.choices == []
    assert lisp.invoke_restart("use-value", ["1"]).values == ["(1)"]


def test_handlers_on_the_stack_do_not_see_code_in_a_frame(lisp):
    """Moments: seen in trials, where a warning of the compiler ran a handler of the user's."""
    fail(
        lisp,
        "(defvar *seen* 0)\n"
        "(handler-bind ((condition (lambda (c) (declare (ignore c)) (incf *seen*)))) (list nope))",
    )
    reply = lisp.evaluate_in_frame(
        '(let ((before *seen*)) (warn "hm") (signal \'error) (list before *seen*))'
    )
    assert reply.values == ["(1 1)"]
    assert lisp.evaluate_in_frame("(list undefined-one)").error.type == "UNBOUND-VARIABLE"
    assert lisp.evaluate_in_frame("*seen*").values == ["1"]
    assert lisp.invoke_restart("use-value", ["1"]).values == ["(1)"]


@pytest.mark.contract("day.moment.output")
def test_an_attempt_tells_the_output_of_the_whole_evaluation(lisp):
    """Moments: what was printed before the error is not lost by looking, and the time is that of going on."""
    fail(lisp, "(print :before)\n(list nope (print :after))")
    assert lisp.evaluate_in_frame("(print :beside)").stdout == "\n:BESIDE "
    sleep(0.3)
    began = monotonic()
    reply = lisp.invoke_restart("use-value", ["(progn (print :argument) 1)"])
    assert reply.stdout == "\n:BEFORE \n:AFTER "
    # A clock of another process, and milliseconds are rounded.
    assert reply.elapsed_ms < 1000 * (monotonic() - began) + 50


@pytest.mark.contract("day.moment.cleanups")
def test_cleanups_that_run_twice_are_told(lisp):
    """Moments: the image has unwound, so a cleanup form has run before."""
    fail(lisp, "(unwind-protect (unwind-protect (list nope) (print :inner)) (print :outer))")
    reply = lisp.invoke_restart("use-value", ["1"])
    assert reply.values == ["(1)"]
    assert reply.notes[0].startswith(
        "The image says: 2 cleanup forms of the code ran in the image after the error"
    )
    fail(lisp, "(list nope)")
    assert len(lisp.invoke_restart("use-value", ["1"]).notes) == 1


@pytest.mark.contract("day.moment.nested")
def test_an_error_after_a_restart_leaves_another_moment(lisp):
    """Moments: from the attempt, whose stack stands where it failed then."""
    fail(lisp, "(list first-one second-one)")
    again = lisp.invoke_restart("use-value", ["1"])
    assert "SECOND-ONE" in again.error.message
    assert lisp.invoke_restart("use-value", ["2"]).values == ["(1 2)"]
    assert len(lisp.moments()) == 2


@pytest.mark.contract("day.moment.adopt")
def test_an_attempt_becomes_the_image_and_undo_takes_that_back(lisp):
    """Moments: rollback to the name of an attempt; the image that is left stays a state."""
    fault = fail(lisp, "(defun f () (list nope))\n(f)")
    reply = lisp.invoke_restart("store-value", ["5"])
    assert lisp.evaluate("(boundp 'nope)").values == ["NIL"]
    lisp.evaluate("(defvar *later* 1)")
    info = lisp.rollback(f"{fault.moment}.a1")
    assert reply.values == ["(5)"]
    assert info.is_current
    assert lisp.evaluate("(list nope (boundp '*later*))").values == ["(5 NIL)"]
    lisp.undo()
    assert lisp.evaluate("(list (boundp 'nope) *later*)").values == ["(NIL 1)"]
    lisp.rollback(f"{fault.moment}.a1")
    assert lisp.evaluate("nope").values == ["5"]


def test_an_attempt_that_is_the_image_is_killed_and_comes_back(lisp):
    """Moments: it is kept as every state is."""
    fault = fail(lisp, "(list nope)")
    lisp.invoke_restart("store-value", ["5"])
    lisp.rollback(f"{fault.moment}.a1")
    live = lisp.processes()["live"]
    os.kill(live, signal.SIGKILL)
    wait_for_end(live)
    assert lisp.evaluate("nope").values == ["5"]


def test_undo_by_replay_says_that_a_restart_is_left_out(lisp):
    """Moments: which restart was chosen cannot be run again."""
    fault = fail(lisp, "(list nope)")
    lisp.invoke_restart("store-value", ["5"])
    lisp.rollback(f"{fault.moment}.a1")
    lisp.evaluate("(defvar *a* nope)")
    assert "NOPE" not in " ".join(lisp.undo(by="replay").notes)


@pytest.mark.contract("day.moment.none")
@pytest.mark.parametrize(
    "code",
    [
        '(dotimes (i 10000) (ignore-errors (error "x")))',
        '(dotimes (i 1000) (handler-case (error "x") (error () 1)))',
        "(signal 'error)",
        '(handler-bind ((warning #\'muffle-warning)) (warn "x"))',
    ],
)
def test_a_condition_that_is_handled_leaves_nothing(lisp, code):
    """Moments: only what nobody handles is kept."""
    before = len(lisp.processes())
    assert lisp.evaluate(code).ok
    assert lisp.moments() == []
    assert len(lisp.processes()) <= before + 1


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("(list 1", "could not be read"),
        (
            '(sb-thread:make-thread (lambda () (sleep 100)) :name "mine")\n(car \'a)',
            "1 user thread is running: mine",
        ),
        ("(let ((all nil)) (loop (push (make-array 1000000) all)))", "heap is exhausted"),
    ],
)
def test_where_no_moment_is_kept_the_error_says_why(lisp, code, reason):
    """Moments: the error itself is told all the same."""
    fault = lisp.evaluate(code).error
    assert fault.moment is None
    assert reason in fault.no_moment
    assert reason in lisp.ask_moment("frames").error.message
    assert lisp.invoke_restart(0).error.type == "NO-MOMENT"


def test_a_big_image_keeps_a_moment_unless_the_last_one_was_just_kept(tmp_path):
    """Moments: a fork of a big heap takes long, so it is the time between two that bounds them."""
    image = open_image("sbcl", project=tmp_path)
    image._lifecycle.thrift = Thrift(heavy_bytes=1, part=1e-12)
    try:
        image.evaluate("(defvar *a* 1)")
        # Waits for the copy of that state, which says how long it took.
        image.checkpoints()
        first, second = (image.evaluate("(list nope)").error for _ in range(2))
        assert first is not None
        assert first.moment == "m1"
        assert second is not None
        assert "a copy of its" in str(second.no_moment)
    finally:
        image.close()


@pytest.mark.contract("day.moment.full-stack")
def test_a_full_stack_can_be_looked_at(lisp):
    """Moments: code in a frame runs on a thread of its own there, and recursion does not end the moment."""
    fault = fail(lisp, "(defun deep (n) (+ 1 (deep (1+ n))))\n(deep 1)")
    answer = lisp.ask_moment("frames", limit=5)
    assert [frame["name"] for frame in answer.data["frames"]] == ["DEEP"] * 5
    assert answer.data["complete"] is False
    assert lisp.evaluate_in_frame("(labels ((f (n) (if (= n 0) 0 (+ 1 (f (1- n)))))) (f 5000))").values == [
        "5000"
    ]
    assert lisp.evaluate_in_frame("(print 5)", frame=3).stdout == "\n5 "
    stopped = lisp.evaluate_in_frame("(loop)", timeout=0.5).error
    assert (stopped.type, stopped.interrupted) == ("TIMEOUT", True)
    assert lisp.ask_moment("locals", fault.moment, frame=1).ok
    assert lisp.evaluate("(+ 1 2)").values == ["3"]


def test_interrupted_code_goes_on(lisp):
    """Moments: the frame that was stopped anywhere tells no variables."""
    fault = fail(lisp, "(defun f (n) (loop (incf n)))\n(f 1)", timeout=3)
    assert (fault.type, [choice.name for choice in fault.choices]) == ("TIMEOUT", ["CONTINUE"])
    assert lisp.ask_moment("frames").data["frames"][-1]["call"].startswith("(EVAL")
    again = lisp.invoke_restart("continue", timeout=0.5)
    assert again.error.type == "TIMEOUT"


@pytest.mark.contract("day.moment.refused")
@pytest.mark.parametrize(
    ("restart", "arguments", "kind", "words"),
    [
        (9, [], "NO-RESTART", "there are 0 CONTINUE, 1 USE-VALUE, 2 STORE-VALUE"),
        ("nonsense", [], "NO-RESTART", '"nonsense"'),
        ("abort", [], "NO-RESTART", "there are 0"),
        ("use-value", [], "RESTART-ARGUMENTS", "takes the arguments (VALUE), and 0 were given"),
        ("use-value", ["1", "2"], "RESTART-ARGUMENTS", "and 2 were given"),
        ("continue", ["1"], "RESTART-ARGUMENTS", "takes no arguments"),
        ("use-value", ['(error "bad")'], "SIMPLE-ERROR", "arguments of the restart cannot be had: bad"),
        ("use-value", ["(list"], "END-OF-FILE", "arguments of the restart cannot be had"),
        ("use-value", ["(sb-ext:exit :code 7 :abort t)"], "ATTEMPT-DIED", "status 7"),
        ("use-value", ["(throw 'end-evaluation 1)"], "", ""),
    ],
)
def test_a_restart_that_cannot_be_invoked_says_why(lisp, restart, arguments, kind, words):
    """Moments: a restart that is gone or asks for what was not given; the moment stays."""
    fail(lisp, "(list nope)")
    reply = lisp.invoke_restart(restart, arguments)
    assert not reply.ok
    assert kind in reply.error.type
    assert words in reply.error.message
    assert lisp.moments()[0].attempts == []
    assert lisp.invoke_restart("use-value", ["1"]).values == ["(1)"]
    # What failed to begin has left no copy that could be taken for the next moment.
    fail(lisp, "(defun later () (list nope))\n(later)")
    assert lisp.ask_moment("frames").data["frames"][0]["call"] == "(LATER)"
    assert lisp.invoke_restart("use-value", ["2"]).values == ["(2)"]


def test_a_restart_that_returns_has_not_gone_on(lisp):
    """Moments: a function of RESTART-BIND need not transfer control."""
    fail(lisp, '(restart-bind ((mine (lambda () nil))) (error "x"))')
    assert lisp.invoke_restart("mine").error.type == "RESTART-RETURNED"


@pytest.mark.parametrize("word", ["m9", "", "c1", "m1.a1"])
def test_an_unknown_moment_is_refused(lisp, word):
    """Moments: the answer names those there are."""
    fault = fail(lisp, "(list nope)")
    for error in (
        lisp.ask_moment("frames", word).error,
        lisp.evaluate_in_frame("1", moment=word).error,
        lisp.invoke_restart(0, moment=word).error,
    ):
        assert error.type == "NO-MOMENT"
        assert fault.moment in error.message
    with pytest.raises(CheckpointError):
        lisp.rollback(f"{fault.moment}.a9")


@pytest.mark.parametrize("frame", [2, 99, 20_993_933_915])
def test_a_frame_that_is_not_there_is_refused(lisp, frame):
    """Moments: at once, and with the numbers that are there."""
    fail(lisp, "(defun f () (list nope))\n(f)")
    assert "there are 0 to 1" in lisp.ask_moment("locals", frame=frame).error.message
    assert "there are 0 to 1" in lisp.evaluate_in_frame("1", frame=frame).error.message


@pytest.mark.contract("day.moment.deaths")
def test_an_attempt_that_dies_or_hangs_leaves_the_moment_and_the_image(lisp):
    """Moments: timeout, cancel and death of the attempt are answers, with what it had printed."""
    fail(
        lisp,
        "(progn (print (list nope)) (case nope (1 (sb-ext:exit :code 4 :abort t)) (2 (loop))"
        " (3 (sb-sys:without-interrupts (loop)))))",
    )
    died = lisp.invoke_restart("store-value", ["1"])
    assert (died.error.type, died.stdout) == ("ATTEMPT-DIED", "\n(1) ")
    late = lisp.invoke_restart("store-value", ["2"], moment=lisp.moments()[0].id, timeout=0.5)
    assert (late.error.type, late.error.interrupted) == ("TIMEOUT", True)
    killed = lisp.invoke_restart("store-value", ["3"], moment=lisp.moments()[0].id, timeout=3)
    assert "ignored two interrupts" in killed.error.message
    assert lisp.invoke_restart("store-value", ["4"], moment=lisp.moments()[0].id).ok
    assert lisp.evaluate("(boundp 'nope)").values == ["NIL"]


@pytest.mark.parametrize("victim", ["m", "a", "live"])
def test_kill_9_of_any_process_is_an_answer(lisp, victim):
    """Moments: kill -9 of a moment, an attempt, the image."""
    fault = fail(lisp, "(list nope)")
    lisp.invoke_restart("use-value", ["1"])
    pids = lisp.processes()
    name = {"m": fault.moment, "a": f"{fault.moment}.a1", "live": "live"}[victim]
    os.kill(pids[name], signal.SIGKILL)
    wait_for_end(pids[name])
    if victim == "m":
        assert "is gone" in lisp.ask_moment("frames").error.message
        assert lisp.moments() == []
    elif victim == "a":
        with pytest.raises(CheckpointError, match="is lost"):
            lisp.rollback(name)
        assert lisp.invoke_restart("use-value", ["2"]).ok
    else:
        assert lisp.ask_moment("frames").ok
        assert lisp.invoke_restart("use-value", ["2"]).values == ["(2)"]
    assert lisp.evaluate("(+ 1 2)").values == ["3"]


@pytest.mark.contract("day.moment.few")
def test_a_few_are_kept_and_their_memory_is_counted(lisp):
    """Moments: four of them, and four attempts; the oldest are dropped, and their processes end."""
    first = fail(lisp, "(list nope)").moment
    lisp.invoke_restart("use-value", ["1"])
    gone = [lisp.processes()[first], lisp.processes()[f"{first}.a1"]]
    for number in range(MOST_MOMENTS):
        fail(lisp, f"(list nope-{number})")
    kept = lisp.moments()
    assert len(kept) == MOST_MOMENTS
    assert all(info.private_bytes and 0 < info.private_bytes < 50e6 for info in kept)
    for number in range(MOST_ATTEMPTS + 2):
        assert lisp.invoke_restart("use-value", [str(number)]).ok
    assert len(lisp.moments()[-1].attempts) == MOST_ATTEMPTS
    wait_for_end(*gone)


@pytest.mark.contract("day.moment.endings")
@pytest.mark.parametrize("ending", ["reset", "close", "restore", "kill"])
def test_no_process_is_left_at_any_ending(tmp_path, ending):
    """Moments: they end with the image, and with its reset."""
    image = open_image("sbcl", project=tmp_path)
    try:
        fault = fail(image, "(list nope)")
        image.invoke_restart("use-value", ["1"])
        pids = image.processes()
        mine = [pids[fault.moment], pids[f"{fault.moment}.a1"]]
        if ending == "reset":
            image.reset()
        elif ending == "restore":
            image.save(str(tmp_path / "state"))
            image.restore(str(tmp_path / "state"))
        elif ending == "kill":
            for name in ("zygote", "live"):
                with contextlib.suppress(
                    ProcessLookupError
                ):  # they share a namespace, which ends with the first
                    os.kill(pids[name], signal.SIGKILL)
            image.evaluate("1")
        else:
            image.close()
        wait_for_end(*mine)
        if ending != "close":
            assert image.moments() == []
    finally:
        image.close()


def test_a_cleanup_form_that_fails_leaves_no_second_moment(lisp):
    """Moments: one for an evaluation; the restarts told are those of the moment."""
    fault = fail(lisp, '(unwind-protect (list nope) (error "cleanup"))')
    assert [choice.name for choice in fault.choices] == ["CONTINUE", "USE-VALUE", "STORE-VALUE"]
    assert len(lisp.moments()) == 1


def test_loading_and_compiling_leave_moments_too(lisp):
    """Moments: whatever runs code of the user's."""
    fault = lisp.compile("(defun f () 1)\n(eval '(list nope))").error
    assert fault.moment is not None
    assert lisp.invoke_restart("use-value", ["1"]).ok


def test_the_user_can_declare_another_debug_quality(lisp):
    """Setting debug_quality: 2 by default; the user's own declarations win."""
    policy = "(sb-cltl2:declaration-information 'optimize)"
    assert "(DEBUG 2)" in lisp.evaluate(policy).values[0]
    lisp.evaluate("(declaim (optimize (debug 1)))")
    assert "(DEBUG 1)" in lisp.evaluate(policy).values[0]


@pytest.mark.slow
def test_two_hundred_moments_leave_memory_where_it_was(lisp):
    """Moments: 200 of them, with attempts, and no process left."""
    fail(lisp, "(list nope)")
    lisp.reset()
    lisp.evaluate("(+ 1 2)")

    def resident():
        pids = lisp.processes()
        return {name: _resident(pid) for name, pid in pids.items() if name in {"zygote", "live"}}

    before, count = resident(), len(lisp.processes())
    for number in range(200):
        fail(lisp, f"(list nope-{number})")
        lisp.invoke_restart("use-value", ["1"])
    lisp.reset()
    lisp.evaluate("(+ 1 2)")
    after = resident()
    assert len(lisp.processes()) == count
    for name, size in before.items():
        assert after[name] < size + 8_000_000, (name, size, after[name])


def _resident(pid):
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def test_code_in_a_frame_is_read_in_the_package_of_its_function(lisp):
    """A model writes the names of variables as the code does, also those that it has from COMMON-LISP."""
    lisp.evaluate(
        "(defpackage :shed (:use :cl)) (defun shed::stack (shed::tools list) (+ shed::tools (nope list)))"
    )
    fail(lisp, "(list (shed::stack 1 '(2)))")
    assert lisp.evaluate_in_frame("(list tools list 'tools)", frame=1).values == ["(1 (2) TOOLS)"]
    names = [local["name"] for local in lisp.ask_moment("locals", frame=1).data["locals"]]
    assert sorted(names) == ["LIST", "SHED::TOOLS"]


def test_a_cancelled_attempt_is_interrupted(lisp):
    """Moments: to cancel the task is to interrupt the attempt; the moment stays."""
    fail(lisp, "(progn (list nope) (loop))")

    async def cancelled():
        task = asyncio.ensure_future(lisp.arun(GoOn("use-value", ["1"])))
        deadline = monotonic() + 60
        while lisp._runner.wait is None and monotonic() < deadline:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    # The lock is free as soon as the attempt has answered.
    assert lisp.invoke_restart("use-value", ['(error "no")'], moment=lisp.moments()[0].id).error is not None
    assert lisp.evaluate("(+ 1 2)").values == ["3"]
