# ruff: noqa: E501 - a form of Lisp is easier to read on one line
"""What the tools say when Lisp systems and files are loaded: places first, each thing once, in few words."""

from __future__ import annotations

import shutil
from contextlib import closing

import pytest

from gramercy.images.opening import open_image
from gramercy.toolsets.workspace import Workspace
from tests.toolsets.conftest import SANDBOX, Desk

pytestmark = pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")

ONE = """(defpackage #:lab (:use #:cl))
(in-package #:lab)
(defgeneric area (x) (:documentation "How large it is."))
(defmethod area (x) (list x))
(define-condition oops (error) ((code :initarg :code :reader oops-code) (text :accessor oops-text)))
(defun unused (x) 1)
(defstruct point x)
"""
TWO = """(in-package #:lab)
(defun top ()
  (list (parse-integer "zz")))

(defvar *value* (list 1
   (top)))
"""


@pytest.fixture
def desk(tmp_path):
    (tmp_path / "lab.asd").write_text(
        '(defsystem "lab" :components ((:file "one") (:file "two" :depends-on ("one"))))\n'
    )
    (tmp_path / "one.lisp").write_text(ONE)
    (tmp_path / "two.lisp").write_text("(in-package #:lab)\n(defun other (y) 1)\n")
    with closing(open_image("sbcl", project=tmp_path, sandbox=SANDBOX)) as image:
        yield Desk(image, Workspace(tmp_path), "sbcl")


@pytest.mark.contract("day.lisp.load.place-first")
def test_an_error_while_a_system_loads_has_its_place_first_and_no_frames_of_asdf(desk, tmp_path):
    """The line of the call, not that of the DEFUN."""
    (tmp_path / "two.lisp").write_text(TWO)
    text = desk.failure("load-system", system="lab")
    assert text.splitlines()[1] == 'two.lisp:6: junk in string "zz"'
    frames = text.partition("[Backtrace]\n")[2].partition("\n\n")[0].splitlines()
    assert len(frames) == 4
    assert frames[1] == "1: (TOP) in two.lisp:3"
    assert frames[2] == "2: a toplevel form in two.lisp:6"
    assert frames[3].startswith("3-")
    assert frames[3].endswith(": ASDF and the loader")


@pytest.mark.contract("day.lisp.load.warnings-once")
def test_a_warning_is_told_once_and_not_again_for_a_file_that_has_not_changed(desk, tmp_path):
    """Named from the project; the file that depends on an edited one is compiled again without a word."""
    text = desk.text("load-system", system="lab")
    assert text.count("(one.lisp:6): The variable X is defined but never used.") == 1
    assert "(two.lisp:2): The variable Y" in text
    (tmp_path / "one.lisp").write_text(ONE.replace("(list x)", "(vector x)"))
    text = desk.text("load-system", system="lab")
    assert "Reloaded: lab (one.lisp, two.lisp)" in text
    assert "(one.lisp:6): The variable X" in text
    assert "two.lisp:2" not in text


@pytest.mark.contract("day.lisp.load.structure")
def test_a_structure_that_a_system_changes_is_told_with_what_to_do(desk, tmp_path):
    """And what is told as the reason is not told again as a warning; the advice works."""
    desk.text("load-system", system="lab")
    (tmp_path / "one.lisp").write_text(ONE.replace("(defstruct point x)", "(defstruct point z x)"))
    text = desk.failure("load-system", system="lab")
    assert text.count("change in instance length of class POINT") == 1
    assert "DEFSTRUCT by itself, go on with its restart CONTINUE" in text
    desk.failure("eval_form", form="(defstruct lab::point lab::z lab::x)")
    desk.text("invoke_restart", restart="CONTINUE")
    desk.text("rollback_image", checkpoint="m1.a1")
    assert "Loaded: lab" in desk.text("load-system", system="lab")


@pytest.mark.contract("day.lisp.load.guess")
def test_a_misspelt_system_of_the_project_is_guessed(desk):
    """Also before any system was loaded."""
    text = desk.failure("load-system", system="labb")
    assert text.endswith('System "labb" not found.\nDid you mean lab?')


def test_a_package_of_quicklisp_that_is_missing_names_what_loads_systems(desk):
    """A model writes ql:quickload by heart."""
    text = desk.failure("eval_form", form='(ql:quickload "lab")')
    assert "There is no Quicklisp here. The tool load-system" in text


@pytest.mark.contract("day.lisp.notes.counted")
def test_compiler_notes_of_a_system_are_counted_and_the_first_three_told(desk, tmp_path):
    """In few words; that code is deleted is left to compile_form."""
    slow = "(defun slow (x y) (declare (optimize speed)) (+ x y))\n(defun fine (x) (if nil x 1))\n"
    (tmp_path / "two.lisp").write_text(f"(in-package #:lab)\n{slow}")
    text = desk.text("load-system", system="lab")
    assert text.count("COMPILER-NOTE (two.lisp:2): ") == 3
    assert text.count("COMPILER-NOTE") == 3
    assert "more compiler notes." in text
    assert max(map(len, text.splitlines())) < 220


def test_what_a_function_of_c_prints_is_in_the_reply_of_its_call(desk):
    """The C library keeps it to itself where its output is no terminal."""
    form = '(sb-alien:alien-funcall (sb-alien:extern-alien "puts" (function sb-alien:int sb-alien:c-string)) "by C")'
    assert "by C" in desk.text("eval_form", form=form)


@pytest.mark.contract("day.lisp.frames.runs")
def test_frames_of_a_recursion_are_one_line_and_the_rest_is_counted_on_the_stack(desk):
    """The frame that called first is told."""
    desk.text("eval_form", form='(defun fact (n) (if (zerop n) (error "deep") (* n (fact (1- n)))))')
    text = desk.failure("eval_form", form="(fact 60)")
    assert "0: (FACT 0)\n1-60: 60 more calls of FACT\n61: (EVAL (FACT 60))" in text
    desk.text(
        "eval_form",
        form='(defun even (n) (if (zerop n) (error "deep") (list (odd (1- n))))) (defun odd (n) (list (even (1- n))))',
    )
    text = desk.failure("eval_form", form="(even 100)")
    assert "18: (EVEN 18)\n… 83 more frames" in text


def test_slot_readers_of_a_condition_and_methods_for_all_classes_are_found(desk, tmp_path):
    """The form that has made them, not the DEFGENERIC."""
    desk.text("load-system", system="lab")
    text = desk.text("find_definition", symbol="lab::oops-code")
    assert text.startswith(
        "LAB::OOPS-CODE: accessor of a slot of LAB::OOPS at one.lisp:5, 1 line\n(define-condition oops"
    )
    (tmp_path / "one.lisp").write_text(";; New.\n" + ONE.replace("(list x)", "(vector x)"))
    text = desk.text("find_definition", symbol="(method lab::area (t))")
    assert text.endswith("(defmethod area (x) (vector x))")


@pytest.mark.contract("day.lisp.reader.thread")
def test_a_form_that_is_not_closed_tells_where_the_next_one_was_taken_in(desk, tmp_path):
    """The mistake is before that line."""
    (tmp_path / "open.lisp").write_text(
        '(defun a () 1)\n(defun b () "it is)\n(defun c () 2)\n(defun d () "x")\n'
    )
    text = desk.failure("load_file", path="open.lisp")
    assert "open.lisp:2 cannot be read: the file ends inside of the form that begins on line 2." in text
    assert "Line 3 already is inside of it" in text


def test_reader_macros_of_the_user_do_not_spoil_what_is_shown_after_them(desk, tmp_path):
    """An unbalanced quote in one ends with its definition."""
    reader = (
        "(lambda (s c n) (declare (ignore c n)) (loop for x = (read-char s) until (char= x #\\?) collect x))"
    )
    (tmp_path / "read.lisp").write_text(
        f"(set-dispatch-macro-character #\\# #\\? {reader})\n(defun b () '#?it's \"un?)\n(defun c () 1)\n(defclass d () ())\n"
    )
    desk.text("load_file", path="read.lisp")
    assert desk.text("find_definition", symbol="b").endswith(":2, 1 line\n(defun b () '#?it's \"un?)")
    for name in ("c", "d"):
        assert "read.lisp:2" not in desk.text("describe_symbol", symbol=name)
