"""Classes, generic functions and methods have a line, though SBCL notes only the number of their form."""

from __future__ import annotations

import shutil

import pytest

from gramercy.images.opening import open_image

pytestmark = pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")

PROGRAM = """;;; (not a form)
(defpackage :orchard (:use :cl))
#| (nor
this) |#
(in-package :orchard)
#+no-such-feature
(defvar *skipped* 1)
#-no-such-feature
(defclass fruit ()
  ((weight :initform 1)))

(defgeneric weigh (thing)
  (:documentation "A (parenthesis."))
(print "a string (with one)")

(defmethod weigh ((thing fruit)) 1)
(defun spoil (fruit)
  (flet ((rot (x) (1+ (error "~a is bad" x))))
    (1+ (rot fruit))))
(eval-when (:load-toplevel) (defclass deep () ()))
"""


def line_of(text):
    return PROGRAM[: PROGRAM.index(text)].count("\n") + 1


@pytest.mark.contract("answers.lisp.definition-lines")
def test_the_line_is_that_of_the_form(tmp_path):
    """Answers: every place as file:line; comments, strings and forms of other systems do not mislead."""
    (tmp_path / "orchard.lisp").write_text(PROGRAM)
    image = open_image("sbcl", project=tmp_path)
    try:
        assert image.evaluate('(load (compile-file "orchard.lisp"))').ok
        fruit = image.ask("describe", symbol="fruit", package="ORCHARD")
        weigh = image.ask("describe", symbol="weigh", package="ORCHARD")
        deep = image.ask("describe", symbol="deep", package="ORCHARD")
        assert f"orchard.lisp:{line_of('(defclass fruit')}" in str(fruit)
        assert f"orchard.lisp:{line_of('(defgeneric')}" in str(weigh)
        assert f"orchard.lisp:{line_of('(defmethod')}" in str(weigh)
        assert "methods: ORCHARD::WEIGH" in str(fruit)
        fault = image.evaluate("(1+ (orchard::spoil 3))").error
        assert fault is not None
        frames = fault.backtrace
        assert f"(ORCHARD::SPOIL 3) in orchard.lisp:{line_of('(1+ (rot fruit)')}" in "\n".join(frames)
        assert not any("orchard.lisp" in frame for frame in frames if "(EVAL" in frame)
        # Inside of another form the place is not sure: the file alone is told.
        assert "orchard.lisp" in str(deep)
        assert "orchard.lisp:" not in str(deep)
        (tmp_path / "orchard.lisp").write_text(";;; emptied\n" + "(list)\n" * 9)
        changed = str(image.ask("describe", symbol="fruit", package="ORCHARD"))
        assert "orchard.lisp:" not in changed
    finally:
        image.close()
