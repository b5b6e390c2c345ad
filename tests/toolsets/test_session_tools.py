"""The four session tools: their texts to the letter, and what they do."""

from __future__ import annotations

import pytest

from gramercy.images.base import Gallery, ImageFault, Reply
from tests.support import saying


@pytest.mark.contract("003.evaluate-lisp.values")
def test_one_value(lisp_desk):
    """Seed 003, Success Response Format."""
    assert lisp_desk.text("evaluate-lisp", code="(+ 1 2 3)") == "=> 6"


def test_several_values_have_a_line_each(lisp_desk):
    """Seed 003, Multi-Value Results."""
    assert lisp_desk.text("evaluate-lisp", code="(floor 10 3)") == "=> 3\n=> 1"


@pytest.mark.contract("003.evaluate-lisp.stdout", "003.evaluate-lisp.stderr", "decision.09.sections")
def test_output_comes_in_sections_before_the_value(lisp_desk):
    """Seed 003, Results with Output."""
    code = """(progn (format t "Hello, World!~%")
                     (format *error-output* "Warning: deprecated function~%")
                     nil)"""
    expected = "[stdout]\nHello, World!\n\n[stderr]\nWarning: deprecated function\n\n=> NIL"
    assert lisp_desk.text("evaluate-lisp", code=code) == expected


@pytest.mark.contract("003.evaluate-lisp.warnings", "003.evaluate-lisp.order")
def test_sections_come_in_the_order_of_the_contract(lisp_desk):
    """Seed 003, evaluate-lisp: stdout, stderr, warnings, values."""
    code = '(progn (princ "out") (princ "err" *error-output*) (warn "careful") (values 1 2))'
    text = lisp_desk.text("evaluate-lisp", code=code)
    marks = [line for line in text.split("\n") if line.startswith(("[", "=>"))]
    assert marks == ["[stdout]", "[stderr]", "[warnings]", "=> 1", "=> 2"]
    before, _, warned = text.partition("[warnings]")
    assert ("careful" in before, "careful" in warned) == (False, True)
    assert "[warnings]" not in lisp_desk.text("evaluate-lisp", code="(values 1 2)")


def test_the_example_of_the_undefined_function(lisp_desk):
    """Seed 003, Tool Execution Errors."""
    text = lisp_desk.failure("evaluate-lisp", code="(nonexistent-function)")
    expected = (
        "[ERROR] UNDEFINED-FUNCTION\nThe function NONEXISTENT-FUNCTION is undefined.\n\n"
        "[Backtrace]\n0: (NONEXISTENT-FUNCTION)\n1: (EVAL (NONEXISTENT-FUNCTION))"
    )
    assert text.startswith(expected)


@pytest.mark.contract("decision.09.no-values")
@pytest.mark.parametrize("code", ["(values)", "", "   ", "; only a comment"])
def test_no_values_at_all_are_said_to_be_none(lisp_desk, code):
    """Decision 9: no values."""
    assert lisp_desk.text("evaluate-lisp", code=code) == "=> ; No values"


def test_nil_is_a_value(lisp_desk):
    """Decision 9: values are never suppressed."""
    assert lisp_desk.text("evaluate-lisp", code="nil") == "=> NIL"


def test_only_the_values_of_the_last_form_are_shown(lisp_desk):
    """Decision 9: one line per value of the last form."""
    assert lisp_desk.text("evaluate-lisp", code="1 2 (values 3 4)") == "=> 3\n=> 4"


def test_code_is_read_in_the_package_that_is_named(lisp_desk):
    """Decision 2, evaluate-lisp(code, package)."""
    assert lisp_desk.text("evaluate-lisp", code="foo", package="KEYWORD") == "=> :FOO"


def test_python_has_the_same_sections(python_desk):
    """Decision 9, Python analogue."""
    code = "import sys\nprint('Hello')\nprint('Oops', file=sys.stderr)\n6"
    assert python_desk.text("evaluate-python", code=code) == "[stdout]\nHello\n\n[stderr]\nOops\n\n=> 6"


@pytest.mark.parametrize("code", ["x = 1", "", "pass", "# only a comment"])
def test_python_statements_have_no_values(python_desk, code):
    """Decision 9, Python analogue: a statement is no expression, and no word of Lisp says so."""
    assert python_desk.text("evaluate-python", code=code) == "[ok, no value]"


def test_python_errors_have_the_same_form(python_desk):
    """Decision 9, Python analogue."""
    text = python_desk.failure("evaluate-python", code="nonexistent_function()")
    assert text.startswith(
        "[ERROR] NameError\nname 'nonexistent_function' is not defined\n\n[Backtrace]\n0: "
    )


DEFINITIONS = """
(defun my-function (a b &optional c) (list a b c))
(defun helper (x) x)
(defvar *my-var* 42)
(defconstant +my-constant+ "hello")
(defmacro with-timing (form) form)
"""


@pytest.mark.contract(
    "003.list-definitions.functions",
    "003.list-definitions.variables",
    "003.list-definitions.macros",
    "003.list-definitions.form",
    "decision.09.other-formats",
)
def test_definitions_are_listed_as_in_the_contract(lisp_desk):
    """Seed 003, list-definitions: the example, in the order of definition."""
    lisp_desk.text("evaluate-lisp", code=DEFINITIONS)
    assert lisp_desk.text("list-definitions") == (
        "[Functions]\n- MY-FUNCTION (A B &OPTIONAL C)\n- HELPER (X)\n\n"
        '[Variables]\n- *MY-VAR* = 42\n- +MY-CONSTANT+ = "hello"\n\n'
        "[Macros]\n- WITH-TIMING (FORM)"
    )


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("functions", "[Functions]\n- MY-FUNCTION (A B &OPTIONAL C)\n- HELPER (X)"),
        ("variables", '[Variables]\n- *MY-VAR* = 42\n- +MY-CONSTANT+ = "hello"'),
        ("macros", "[Macros]\n- WITH-TIMING (FORM)"),
    ],
)
def test_one_kind_of_definitions_can_be_asked_for(lisp_desk, kind, expected):
    """Decision 2, list-definitions(type)."""
    lisp_desk.text("evaluate-lisp", code=DEFINITIONS)
    assert lisp_desk.text("list-definitions", type=kind) == expected


def test_an_unknown_kind_is_refused_with_the_known_ones(lisp_desk):
    """Decision 8: the model can repair the call."""
    assert "functions" in lisp_desk.failure("list-definitions", type="funcs")


def test_definitions_are_seen_wherever_they_were_made(lisp_desk):
    """Introspection: progn, let, macros, defstruct, defclass, generic functions."""
    lisp_desk.text(
        "evaluate-lisp",
        code="""(progn (let ((n 1)) (defun inner () n)))
                (defmacro make-it (name) `(defun ,name (q) q)) (make-it made)
                (defstruct pair left) (defclass thing () ((part :accessor thing-part)))
                (defgeneric act (thing)) (define-symbol-macro brief 1)""",
    )
    names = [
        line.split()[1] for line in lisp_desk.text("list-definitions").split("\n") if line.startswith("- ")
    ]
    assert {"INNER", "MADE", "MAKE-PAIR", "THING-PART", "ACT", "PAIR", "THING", "BRIEF"} <= set(names)


def test_names_of_another_package_keep_it(lisp_desk):
    """Seed 003, list-definitions: only names of the current package stand alone."""
    lisp_desk.text(
        "evaluate-lisp", code="(defpackage other (:use :cl)) (defun other::away () 1) (defun near () 2)"
    )
    assert lisp_desk.text("list-definitions", type="functions") == "[Functions]\n- OTHER::AWAY ()\n- NEAR ()"
    lisp_desk.text("evaluate-lisp", code="(in-package :other)")
    assert (
        lisp_desk.text("list-definitions", type="functions") == "[Functions]\n- AWAY ()\n- CL-USER::NEAR ()"
    )


def test_what_was_removed_is_no_longer_listed(desk):
    """Introspection: what still exists."""
    desk.evaluate("(defun passing () 1) (defun lasting () 1)", "def passing(): pass\ndef lasting(): pass")
    desk.evaluate("(fmakunbound 'passing)", "del passing")
    text = desk.text("list-definitions").lower()
    assert "passing" not in text
    assert "lasting" in text


def test_python_definitions_are_listed_in_the_same_form(python_desk):
    """Seed 003, list-definitions, Python analogue."""
    code = (
        "def my_function(a, b, c=None):\n    pass\nmy_var = 42\nMY_CONSTANT = 'hello'\nclass Point:\n    pass"
    )
    python_desk.text("evaluate-python", code=code)
    assert python_desk.text("list-definitions") == (
        "[Functions]\n- my_function (a, b, c=None)\n\n"
        "[Variables]\n- my_var = 42\n- MY_CONSTANT = 'hello'\n\n[Classes]\n- Point ()"
    )


def test_without_definitions_the_list_says_so(desk):
    """Every answer is a text that a model understands."""
    assert desk.text("list-definitions") == "No definitions."
    assert desk.text("list-definitions", type="macros") == "No macros."


@pytest.mark.contract("003.reset-session.text", "003.reset-session.effect")
def test_a_reset_clears_all_definitions(desk):
    """Seed 003, reset-session."""
    desk.evaluate("(defvar *gone* 1)", "gone = 1")
    assert desk.text("reset-session") == "Session reset. All definitions cleared."
    assert desk.text("list-definitions") == "No definitions."
    desk.failure("eval_form", form=desk.either("*gone*", "gone"))


def test_a_missing_system_is_not_found_by_asdf(lisp_desk):
    """Seed 003, load-system: failure, where ASDF is the loader."""
    assert lisp_desk.failure("load-system", system="nonexistent-system") == (
        '[ERROR] ASDF/FIND-COMPONENT:MISSING-COMPONENT\nSystem "nonexistent-system" not found.'
    )


QUICKLISP = """
(defpackage quicklisp-client (:use :cl) (:export #:quickload #:system-not-found))
(in-package quicklisp-client)
(define-condition system-not-found (error) ((name :initarg :name))
  (:report (lambda (condition stream) (declare (ignore condition)) (write-string "no such system" stream))))
(defun quickload (name &key silent) (declare (ignore silent)) (error 'system-not-found :name name))
"""


@pytest.mark.contract("003.load-system.failure")
def test_a_missing_system_is_not_found_by_quicklisp(lisp_desk):
    """Seed 003, load-system: failure, to the letter."""
    lisp_desk.text("evaluate-lisp", code=QUICKLISP)
    assert lisp_desk.failure("load-system", system="nonexistent-system") == (
        '[ERROR] QUICKLISP-CLIENT:SYSTEM-NOT-FOUND\nSystem "nonexistent-system" not found.'
    )


def test_a_missing_python_package_is_named(python_desk):
    """Seed 003, load-system: failure, Python analogue."""
    text = python_desk.failure("load-system", system="nonexistent_package")
    said, advice = text.split("; ", 1)
    assert said == "[ERROR] ModuleNotFoundError\nNo module named 'nonexistent_package'"
    assert advice.startswith("it is not in ")
    assert "python3 -m venv" in advice


@pytest.mark.contract("003.load-system.loading", "003.load-system.loaded")
def test_a_loaded_system_is_confirmed_with_its_version(paper_desk, paper):
    """Seed 003, load-system, to the letter."""
    paper.replies = saying(Reply(ok=True, system="alexandria", version="1.0.0"))
    expected = "Loading system: alexandria\nLoaded: alexandria (version 1.0.0)"
    assert paper_desk.text("load-system", system="alexandria") == expected


def test_a_system_that_fails_while_loading_shows_why(paper_desk, paper):
    """A failure other than a missing system keeps its frames and output."""
    fault = ImageFault("COMPILE-FILE-ERROR", "broken", backtrace=["0: (LOAD)"])
    paper.replies = saying(Reply(ok=False, error=fault, stdout="half way"))
    text = paper_desk.failure("load-system", system="broken")
    assert text == "[ERROR] COMPILE-FILE-ERROR\nbroken\n\n[Backtrace]\n0: (LOAD)\n\n[stdout]\nhalf way"


def test_code_of_one_language_is_not_sent_to_an_image_of_another(paper, workspace, desk):
    """Several images side by side: a handle of the wrong language is a clear error."""
    paper.language = "other"
    both = type(desk)(Gallery([paper, desk.image]), workspace, desk.language)
    tool = desk.either("evaluate-lisp", "evaluate-python")
    assert "paper is an image of other" in both.failure(tool, code="1")
    assert both.text(tool, code="1", image=desk.image.name) == "=> 1"


def test_an_unknown_handle_is_refused_with_the_known_ones(paper, workspace, lisp_desk):
    """Decision 2, image handle; decision 8, a call that can be repaired."""
    both = type(lisp_desk)(Gallery([lisp_desk.image, paper]), workspace)
    assert '"sbcl", "paper"' in both.failure("eval_form", form="1", image="sblc")
