# ruff: noqa: E501 - a form of Lisp is easier to read on one line
"""Edits of Lisp files in a real image: what is loaded, and what keeps an old expansion and is told."""

from __future__ import annotations

import shutil
from contextlib import closing

import pytest

from gramercy.images.opening import open_image
from gramercy.toolsets.workspace import Workspace
from tests.toolsets.conftest import SANDBOX, Desk

pytestmark = pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")

MACROS = """(defpackage #:shop (:use #:cl))
(in-package #:shop)
(defmacro twice (x) `(* 2 ,x))
(declaim (inline half))
(defun half (x) (/ x 2))
(define-compiler-macro third-of (x) `(/ ,x 3))
(defstruct point x y)
(deftype small () '(integer 0 5))
(defvar *log* '())
(push :loaded *log*)
"""
USERS = """(in-package #:shop)
(defun total (a) (twice a))
(defun each (list) (mapcar (lambda (x) (twice x)) list))
(defmethod price ((x integer)) (twice x))
(defun part (a) (half a))
(defun whole (a) (declare (notinline half)) (half a))
(let ((count 0)) (defun counted () (incf count (twice 1))))
"""


@pytest.fixture
def desk(tmp_path):
    (tmp_path / "macros.lisp").write_text(MACROS)
    (tmp_path / "users.lisp").write_text(USERS)
    with closing(open_image("sbcl", project=tmp_path, sandbox=SANDBOX)) as image:
        desk = Desk(image, Workspace(tmp_path), "sbcl")
        for file in ("macros.lisp", "users.lisp"):
            desk.text("load_file", path=file)
        yield desk


def value(desk, form):
    return desk.text("eval_form", form=form).partition("\n")[0].removeprefix("=> ")


@pytest.mark.contract("day.lisp.stale.named")
def test_an_evaluated_macro_names_the_callers_that_keep_the_old_one(desk):
    """The reply to the redefinition, in a few words; a text that is the same again says nothing."""
    text = desk.text("eval_form", form="(defmacro shop::twice (x) `(* 20 ,x))")
    assert "4 callers keep the old SHOP::TWICE: (METHOD SHOP::PRICE (INTEGER)), SHOP::COUNTED" in text
    assert "SHOP::EACH, SHOP::TOTAL. (gramercy:refresh) compiles them again." in text
    assert "callers" not in desk.text("eval_form", form="(defmacro shop::twice (x) `(* 20 ,x))")
    assert "callers" not in desk.text("eval_form", form="(shop::total 1)")


@pytest.mark.contract("day.lisp.stale.kinds")
@pytest.mark.parametrize(
    ("form", "told"),
    [
        ("(defun shop::half (x) (/ x 20))", "1 caller keeps the old SHOP::HALF: SHOP::PART."),
        (
            "(deftype shop::small () '(integer 0 9))",
            "What was compiled with the old SHOP::SMALL keeps it; SBCL does not record where that is.",
        ),
    ],
)
def test_inline_functions_and_types_are_told_as_far_as_it_is_known(desk, form, told):
    """A caller that calls the function is not stale; where SBCL records nothing, no name is made up."""
    assert told in desk.text("eval_form", form=form)


def test_a_compiler_macro_a_constant_and_a_structure_name_their_users(desk):
    """The compiler puts all of them in place."""
    desk.text("eval_form", form="(defun k (x) x) (define-compiler-macro k (x) `(list ,x))")
    desk.text("eval_form", form="(defconstant +c+ 1)")
    desk.text("eval_form", form="(defun uses () (list (k 1) +c+))")
    text = desk.text("eval_form", form="(define-compiler-macro k (x) `(vector ,x))")
    assert "1 caller keeps the old K: USES." in text
    redefine = "(handler-bind ((error #'continue)) (defconstant +c+ 2))"
    assert "1 caller keeps the old +C+: USES." in desk.text("eval_form", form=redefine)
    desk.text("eval_form", form="(defun across (p) (shop::point-x p))")
    redefine = "(handler-bind ((error #'continue)) (defstruct shop::point z x y))"
    assert "1 caller keeps the old SHOP::POINT: ACROSS." in desk.text("eval_form", form=redefine)


@pytest.mark.contract("day.lisp.takeup.forms")
def test_an_edit_with_load_loads_the_changed_forms_only_and_compiles_their_callers(desk):
    """State stays: a form that did not change does not run again."""
    text = desk.text("edit_file", path="macros.lisp", old="(* 2 ,x)", new="(* 30 ,x)", load=True)
    assert "Only what changed was loaded: 1 of 10 forms, line 3." in text
    assert (
        "Compiled again, as they had an old expansion: (METHOD SHOP::PRICE (INTEGER)), SHOP::EACH, SHOP::TOTAL."
        in text
    )
    assert (
        "Still with an old expansion, since no file has them as a form of their own: SHOP::COUNTED." in text
    )
    assert value(desk, "(list (shop::total 1) (shop::each '(1)) (shop::price 1))") == "(30 (30) 30)"
    assert value(desk, "shop::*log*") == "(:LOADED)"
    text = desk.text("find_definition", symbol="shop::twice")
    assert "macro at macros.lisp:3" in text
    assert "changed since" not in text


@pytest.mark.contract("day.lisp.takeup.behind")
def test_an_edit_without_load_says_that_the_image_goes_on_with_the_old_text(desk):
    """Not for a comment, nor for a file that was never loaded."""
    said = "The image goes on with what it has loaded of this file: load true takes the change up."
    assert said in desk.text("edit_file", path="users.lisp", old="(half a))\n(defun", new="(half 7))\n(defun")
    assert said in desk.text("write_file", path="macros.lisp", content=MACROS.replace("* 2", "* 3"))
    desk.text("write_file", path="macros.lisp", content=";; A comment.\n" + MACROS)
    assert said not in desk.text("write_file", path="macros.lisp", content=";; Another.\n" + MACROS)
    assert said not in desk.text("write_file", path="new.lisp", content="(defun fresh () 1)\n")


def test_a_changed_package_loads_the_whole_file(desk):
    """The other forms may mean something else then."""
    text = desk.text(
        "edit_file", path="macros.lisp", old="(:use #:cl)", new="(:use #:cl) (:export #:half)", load=True
    )
    assert "Only what changed" not in text
    assert value(desk, "shop::*log*") == "(:LOADED :LOADED)"


@pytest.mark.contract("day.lisp.takeup.failure")
def test_an_edit_whose_load_fails_is_an_error_with_its_line_and_its_moment(desk):
    """The file stays written, and the error says so first."""
    text = desk.failure(
        "edit_definition",
        path="users.lisp",
        name="total",
        code='(defun total (a) a)\n(error "No ~a" 1)',
        load=True,
    )
    assert text.startswith("Replaced (defun total). Edited users.lisp:2")
    assert "users.lisp:3 failed" in text
    assert "No 1" in text
    assert "m1 keeps this moment: error_frames" in text
    assert "LOAD-FORMS" not in text


@pytest.mark.contract("day.lisp.places.content")
def test_places_follow_the_text_of_a_definition_not_the_date_of_its_file(desk):
    """Lines above move it; only another text of it has changed."""
    desk.text(
        "edit_file", path="users.lisp", old="(in-package #:shop)", new="(in-package #:shop)\n\n;; Above."
    )
    text = desk.text("find_definition", symbol="shop::part")
    assert "function at users.lisp:7" in text
    assert "changed" not in text
    assert "users.lisp:4" in desk.text("who_calls", function="shop::twice")
    assert "changed since" not in desk.text("who_calls", function="shop::twice")
    desk.text(
        "edit_file", path="users.lisp", old="(defun part (a) (half a))", new="(defun part (a) (half (1+ a)))"
    )
    assert "has changed since it was loaded: this is its text now" in desk.text(
        "find_definition", symbol="shop::part"
    )


def test_a_moment_shows_the_lines_that_ran_after_the_file_has_changed(desk):
    """The text that was loaded is kept."""
    desk.text("write_file", path="late.lisp", content="(defun late (x)\n  (list 1\n    (parse-integer x)))\n")
    desk.text("load_file", path="late.lisp")
    desk.text("write_file", path="late.lisp", content="(defun late (x)\n  :else)\n")
    desk.failure("eval_form", form='(late "a")')
    assert "late.lisp:3  (parse-integer x)))" in desk.text("error_frames")


@pytest.mark.contract("day.lisp.fasl.clean")
def test_a_compiled_file_holds_nothing_of_the_code_that_compiles_it(desk, tmp_path):
    """A backquote in that code is no hindrance, and a password in it stays out."""
    (tmp_path / "plain.lisp").write_text("(defun plain () 1)\n")
    form = '(let ((password "s3cr3t-w0rd") (x 1)) (list `(a ,x) password (compile-file "plain.lisp")))'
    assert "s3cr3t" in desk.text("eval_form", form=form)
    fasl = (tmp_path / "plain.fasl").read_bytes()
    assert b"s3cr3t" not in fasl
    assert "s3cr3t".encode("utf-32-le") not in fasl
    assert b"password" not in fasl.lower()
    assert value(desk, '(progn (load "plain.fasl") (plain))') == "1"


@pytest.mark.contract("day.lisp.stale.systems")
def test_a_system_names_stale_callers_in_files_that_were_not_compiled_again_and_no_others(desk, tmp_path):
    """Neither a first load nor one of the same text has any."""
    (tmp_path / "shop.asd").write_text('(defsystem "shop" :components ((:file "macros") (:file "users")))\n')
    desk.text("reset-session")
    assert "caller" not in desk.text("load-system", system="shop")
    (tmp_path / "macros.lisp").write_text(MACROS + ";; The end.\n")
    text = desk.text("load-system", system="shop")
    assert "Reloaded: shop (macros.lisp)" in text
    assert "caller" not in text
    assert "keeps it" not in text
    (tmp_path / "macros.lisp").write_text(MACROS.replace("(* 2 ,x)", "(* 4 ,x)").replace("0 5)", "0 6)"))
    text = desk.text("load-system", system="shop")
    assert "4 callers keep the old SHOP::TWICE: " in text
    assert "What was compiled with the old SHOP::SMALL keeps it" in text
    assert text.count("old") == 2
    assert "SHOP::TOTAL" in desk.text("eval_form", form="(gramercy:refresh)")
    assert value(desk, "(list (shop::total 1) (shop::price 1))") == "(4 4)"
