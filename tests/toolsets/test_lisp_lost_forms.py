# ruff: noqa: E501 - a form of Lisp is easier to read on one line
"""Edits of Lisp files that take forms away, fail, or stand in a suite: the reply says what holds in a real image."""

from __future__ import annotations

import shutil
from contextlib import closing

import pytest

from gramercy.images.opening import open_image
from gramercy.toolsets.workspace import Workspace
from tests.toolsets.conftest import SANDBOX, Desk

pytestmark = pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")

SHOP = """(defpackage #:shop (:use #:cl))
(in-package #:shop)
(defconstant +most+ 10)
(defstruct point x y)
(defvar *suite* :none)
(defvar *tests* '())
(defmacro in-suite (name) `(setf *suite* ,name))
(defmacro test (name) `(push (list ',name *suite*) *tests*))
(in-suite :one)
(test first)
(in-suite :two)
(test second)
(defgeneric area (x))
(defmethod area ((x integer)) x)
(defmethod area :around ((x string) ) (length x))
(defun (setf size) (value x) (list value x))
(defun blüte () 1)
#+sbcl (defun only () 1)
"""


@pytest.fixture
def desk(tmp_path):
    (tmp_path / "shop.lisp").write_text(SHOP, encoding="utf-8")
    with closing(open_image("sbcl", project=tmp_path, sandbox=SANDBOX)) as image:
        desk = Desk(image, Workspace(tmp_path), "sbcl")
        desk.text("load_file", path="shop.lisp")
        yield desk


def edit(desk, old, new):
    return desk.text("edit_file", path="shop.lisp", old=old, new=new, load=True)


@pytest.mark.contract("day.lisp.takeup.removed")
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("(defmethod area :around ((x string) ) (length x))\n", "", "defmethod area :around (string)."),
        ("(defun blüte () 1)\n", "(defun rose () 1)\n", "defun blüte."),
        ("(defun (setf size) (value x) (list value x))\n", "", "defun (setf size)."),
        ("#+sbcl (defun only () 1)\n", "", "defun only."),
        (
            "(defgeneric area (x))\n(defmethod area ((x integer)) x)\n",
            "",
            "defgeneric area, defmethod area (integer).",
        ),
    ],
)
def test_a_load_names_the_definitions_that_the_file_has_no_longer(desk, old, new, told):
    """The image keeps them; "no form has changed" would let a reader believe that they are gone."""
    text = edit(desk, old, new)
    assert f"Not taken back, though the file has it no longer: {told}" in text
    assert "changed: nothing" not in text
    assert "Not taken back" not in edit(desk, "+most+ 10", "+most+ (+ 5 5)")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("((x integer)) x)", "((y integer)) (1+ y))"),
        ("(defun blüte () 1)", "(defun blüte () 2)"),
        ("#+sbcl (defun only", "(defun only"),
        ("(defgeneric area (x))\n", "(defgeneric area (x))\n(defgeneric girth (x))\n"),
    ],
)
def test_a_definition_that_is_only_written_otherwise_is_not_told_as_lost(desk, old, new):
    """A method is known by its specializers, not by the names of its parameters."""
    assert "Not taken back" not in edit(desk, old, new)


@pytest.mark.contract("day.lisp.takeup.removed")
def test_a_load_of_the_whole_file_names_what_was_removed_too(desk):
    """A changed package has the whole file loaded."""
    new = SHOP.replace("(:use #:cl)", "(:use #:cl) (:export #:area)").replace("(defun blüte () 1)\n", "")
    text = desk.text(
        "write_file", path="shop.lisp", content=new.replace("+most+ 10", "+most+ (+ 5 5)"), load=True
    )
    assert "no longer: defun blüte." in text


@pytest.mark.contract("day.lisp.takeup.refused")
@pytest.mark.parametrize(
    ("old", "new", "form"),
    [
        ("+most+ 10", "+most+ 11", "(defconstant shop::+most+ 12)"),
        ("point x y", "point y x z", "(defstruct shop::point z)"),
    ],
)
def test_a_refused_redefinition_is_not_told_as_done(desk, old, new, form):
    """SBCL asks first, and the image keeps the old constant or structure, however it was asked."""
    edited = desk.failure("edit_file", path="shop.lisp", old=old, new=new, load=True)
    evaluated = desk.failure("eval_form", form=form)
    assert "[ERROR]" in edited
    assert "[ERROR]" in evaluated
    assert "Redefined" not in edited
    assert "Redefined" not in evaluated


@pytest.mark.contract("day.lisp.takeup.suite")
def test_a_test_that_is_loaded_alone_is_in_the_suite_of_its_place(desk):
    """Forms such as IN-SUITE are loaded along, as IN-PACKAGE is."""
    edit(desk, "(test first)\n", "(test first)\n(test late)\n")
    told = desk.text("eval_form", form="(find 'shop::late shop::*tests* :key #'first)")
    assert told.startswith("=> (SHOP::LATE :ONE)")
