# ruff: noqa: E501 - a form of Lisp is easier to read on one line
"""Definitions of the SBCL child are taken back by name, also while threads run, and what is not is said."""

from __future__ import annotations

import shutil

import pytest

from tests.images import children

family, live = children.lisp_family, children.live

pytestmark = pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")

THREAD = '(defvar *go* nil) (defvar *thread* (sb-thread:make-thread (lambda () (loop until *go* do (sleep 0.01))) :name "server"))'
IN_PLACE = (
    "Objects that were changed in place, and variables that were set inside of functions, stay as they are."
)


@pytest.fixture
def threaded(live):
    """Return a process in which a thread of the user's runs, so that it cannot be copied."""
    assert live.eval(THREAD)["ok"]
    assert live.ask("fork", role="checkpoint", tag="x")["error"]["type"] == "CANNOT-FORK"
    return live


def undo(process):
    reply = process.ask("undo_definitions")
    assert reply["ok"], reply
    return {change["name"].replace("CL-USER::", ""): change["change"] for change in reply["changed"]}, reply[
        "notes"
    ]


def test_functions_macros_and_variables_are_put_back_by_identity_while_a_thread_runs(threaded):
    threaded.eval(
        "(defun area (x) (* x x)) (defmacro twice (x) `(list ,x ,x)) (defparameter *limit* (list 10))"
    )
    threaded.eval("(defvar *was* (list #'area (macro-function 'twice) *limit*))")
    threaded.eval(
        "(defun area (x) (- x)) (defmacro twice (x) x) (defparameter *limit* 11) (defun fresh () 1)"
        " (defmacro fresh-macro () 2) (defvar *fresh* 3) (defconstant +fresh+ 4) (define-symbol-macro fresh-symbol 5)"
    )
    changed, notes = undo(threaded)
    assert changed == {
        "AREA": "restored", "TWICE": "restored", "*LIMIT*": "restored", "FRESH": "removed",
        "FRESH-MACRO": "removed", "*FRESH*": "removed", "+FRESH+": "removed", "FRESH-SYMBOL": "removed",
    }  # fmt: skip
    assert notes == [
        "Taken back: the definitions of (defun area (x) (- x)) (defmacro twice (x) x) (defparameter ...",
        IN_PLACE,
    ]
    assert threaded.value("(equal *was* (list #'area (macro-function 'twice) *limit*))") == "T"
    assert (
        threaded.value("(list (fboundp 'fresh) (fboundp 'fresh-macro) (boundp '*fresh*) (boundp '+fresh+))")
        == "(NIL NIL NIL NIL)"
    )
    # A plain variable again: neither special nor constant nor a symbol macro.
    assert (
        threaded.value(
            "(let ((*fresh* 1) (+fresh+ 2) (fresh-symbol 3)) (list (boundp '*fresh*) +fresh+ fresh-symbol))"
        )
        == "(NIL 2 3)"
    )
    listed = threaded.ask("definitions")["data"]
    assert [entry["symbol"] for entry in listed["functions"]] == ["AREA"]
    assert listed["constants"] == []


def test_methods_are_put_back_or_removed(threaded):
    threaded.eval("(defgeneric speak (x)) (defmethod speak ((x integer)) :integer)")
    threaded.eval(
        "(defmethod speak ((x integer)) :changed) (defmethod speak ((x string)) :string) (defmethod speak :around ((x integer)) (list (call-next-method)))"
    )
    assert threaded.value("(speak 1)") == "(:CHANGED)"
    changed, _notes = undo(threaded)
    assert changed == {
        "(SPEAK (INTEGER))": "restored",
        "(SPEAK (STRING))": "removed",
        "(SPEAK :AROUND (INTEGER))": "removed",
    }
    assert threaded.value("(speak 1)") == ":INTEGER"
    assert threaded.eval('(speak "s")')["error"]["type"].endswith("NO-APPLICABLE-METHOD-ERROR")
    undo(threaded)
    assert threaded.value("(fboundp 'speak)") == "NIL"


def test_a_generic_function_that_became_a_function_has_its_methods_again(live):
    live.eval("(defgeneric speak (x)) (defmethod speak ((x integer)) :integer)")
    live.eval("(fmakunbound 'speak) (defun speak (x) (list x))")
    undo(live)
    assert live.value("(speak 1)") == ":INTEGER"


def test_new_classes_structures_conditions_and_types_are_gone(live):
    live.eval(
        "(defclass fresh () ((a :accessor fresh-a))) (defstruct point x) (define-condition oops (error) ()) (deftype small () '(integer 0 9))"
    )
    changed, _notes = undo(live)
    assert {
        name: changed[name] for name in ("FRESH", "POINT", "OOPS", "SMALL", "POINT-X", "FRESH-A")
    } == dict.fromkeys(("FRESH", "POINT", "OOPS", "SMALL", "POINT-X", "FRESH-A"), "removed")
    assert live.value("(mapcar (lambda (n) (find-class n nil)) '(fresh point oops))") == "(NIL NIL NIL)"
    assert live.eval("(typep 1 'small)")["error"] is not None
    assert live.eval("(make-point :x 1)")["error"]["type"] == "UNDEFINED-FUNCTION"
    live.eval("(defstruct point y z)")
    assert live.value("(point-z (make-point :z 3))") == "3"


def test_a_redefined_class_is_said_to_keep_its_definition(live):
    live.eval("(defclass shape () (a)) (deftype small () '(integer 0 9))")
    live.eval("(defclass shape () (a b)) (deftype small () 'string)")
    changed, notes = undo(live)
    assert changed == {"SMALL": "restored"}
    assert (
        "CL-USER::SHAPE keeps its new definition: what a call made of an existing class is not taken back."
        in notes
    )
    assert (
        live.value("(list (typep 1 'small) (length (sb-mop:class-direct-slots (find-class 'shape))))")
        == "(T 2)"
    )


def test_expanders_and_inline_definitions_are_put_back(live):
    live.eval(
        "(declaim (inline one)) (defun one () 1) (defun top (x) (car x)) (define-compiler-macro top (x) `(list :old ,x)) (defsetf top rplaca)"
    )
    live.eval(
        "(defun one () 2) (define-compiler-macro top (x) `(list :new ,x)) (defsetf top (x) (v) `(list :new ,x ,v))"
    )
    assert live.value("(funcall (compile nil '(lambda () (one))))") == "2"
    undo(live)
    assert live.value("(funcall (compile nil '(lambda () (one))))") == "1"
    assert live.value("(funcall (compile nil '(lambda (x) (top x))) 1)") == "(:OLD 1)"
    assert live.value("(let ((x (list 1 2))) (setf (top x) 9) x)") == "(9 2)"


def test_what_a_call_removed_is_there_again(live):
    live.eval("(defun f () 1) (defvar *v* 2) (defclass c () ())")
    live.eval("(fmakunbound 'f) (makunbound '*v*) (setf (find-class 'c) nil)")
    changed, _notes = undo(live)
    assert changed == {"F": "restored", "*V*": "restored", "C": "restored"}
    assert live.value("(list (f) *v* (class-name (class-of (make-instance 'c))))") == "(1 2 C)"


def test_plain_assignments_at_toplevel_are_taken_back(live):
    live.eval("(defvar *x* 1) (defvar *list* (list 1))")
    live.eval("(setf *x* 2) (push 0 *list*) (incf *x*) (setq plain 7)")
    changed, _notes = undo(live)
    assert changed == {"*X*": "restored", "*LIST*": "restored", "PLAIN": "removed"}
    assert live.value("(list *x* *list* (boundp 'plain))") == "(1 (1) NIL)"
    live.eval("(defun set-it () (setf *x* 5)) (set-it)")
    _changed, notes = undo(live)
    assert live.value("*x*") == "5"
    assert notes[-1] == IN_PLACE


def test_packages_are_left_and_said(live):
    live.eval("(defpackage :mine (:use :cl)) (defun mine::f () 1)")
    changed, notes = undo(live)
    assert changed == {"MINE::F": "removed"}
    assert "The package MINE is left." in notes


def test_calls_are_taken_back_from_the_newest_on_and_then_there_is_nothing(live):
    for number in range(25):
        live.eval(f"(defun f () {number})")
        live.value("(f)")
    for number in reversed(range(4, 24)):
        undo(live)
        assert live.value("(f)") == str(number)
    reply = live.ask("undo_definitions")
    assert reply["error"]["type"] == "NOTHING-TO-UNDO"
    assert (
        reply["error"]["message"]
        == "None of the latest 20 calls that changed definitions is left to take back."
    )


def test_old_values_are_kept_for_the_latest_calls_only(live):
    live.eval("(defparameter *big* nil) (defvar *pointers* '())")
    live.eval(
        "(progn (setf *big* (make-array 1000000)) (setf *pointers* (list (sb-ext:make-weak-pointer *big*))) nil)"
    )
    live.eval("(progn (setf *big* 1) (shiftf +++ ++ + -) nil)")
    for number in range(25):
        live.eval(f"(defun f () {number})")
    live.eval("(gc :full t)")
    assert live.value("(sb-ext:weak-pointer-value (first *pointers*))") == "NIL"


def test_large_old_values_are_not_kept_alive_and_that_is_said(live):
    live.eval("(defvar *big* nil) (defvar *long* nil) (defvar *pointers* '())")
    live.eval("(progn (setf *big* (make-array 100000) *long* (make-list 100000)) nil)")
    live.eval("(setf *pointers* (mapcar #'sb-ext:make-weak-pointer (list *big* *long*)))")
    live.eval("(setf *long* 1)")
    live.eval("(setf *big* 1)")
    changed, notes = undo(live)
    assert changed == {}
    assert "CL-USER::*BIG* keeps its new value: the old one was too large to be remembered." in notes
    assert live.value("(progn (gc :full t) *big*)") == "1"
    assert live.value("(mapcar #'sb-ext:weak-pointer-value *pointers*)") == "(NIL NIL)"


def test_definitions_of_a_deleted_package_are_said_to_be_left(live):
    live.eval(
        "(defpackage :mine (:use :cl))" + "".join(f"(defun mine::f{number} () 1)" for number in range(30))
    )
    live.eval("(delete-package :mine)")
    changed, notes = undo(live)
    assert changed == {}
    assert "MINE::F0 is left: its symbol is no longer in a package." in notes
    assert "11 more definitions could not be put back." in notes


def test_a_state_can_be_kept_after_taking_back(family, live):
    live.eval("(defun f () 1)")
    live.eval("(defun f () 2)")
    reply = live.ask("undo_definitions", then_fork="kept")
    assert reply["ok"]
    assert reply["package"] == "CL-USER"
    checkpoint = family.accept()
    assert checkpoint.value("(f)") == "1"
    assert live.eval("(list 1)")["changed"] == []
