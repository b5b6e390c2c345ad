"""The text of definitions, held against the files themselves, `inspect` and SBCL's own reader."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shutil
from contextlib import closing

import pytest

from gramercy.images.opening import open_image

needs_sbcl = pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")
HEAD = re.compile(r"^(\S+): (.+?) at (\S+):(\d+), (\d+) lines?$", re.MULTILINE)
# An answer is bounded; what is longer is cut.
LONGEST = 7_000

SHAPES_PY = '''"""Shapes."""
from functools import cached_property, lru_cache, singledispatch

from helper import LIMIT as BOUND

if True:
    COLOURS: list[str] = [
        "red",
    ]


@singledispatch
def area(shape):
    raise TypeError


@area.register(int)
def _of_int(shape):
    return shape


class Base:
    KIND = 1

    @property
    def size(self):
        return 1

    @size.setter
    def size(self, value):
        self.kept = value

    @lru_cache
    def slow(self):
        return 2


class Circle(Base):
    def slow(self): return 3


double = lambda x: x * 2
'''


@pytest.fixture
def python(tmp_path):
    (tmp_path / "shapes.py").write_text(SHAPES_PY)
    (tmp_path / "helper.py").write_text("LIMIT = 10\n\n\ndef area():\n    return 0\n")
    with closing(open_image("python", project=tmp_path)) as image:
        assert image.evaluate("import helper, shapes").ok
        yield image


def shown(image, symbol, **more):
    answer = image.ask("find_definition", symbol=symbol, **more)
    assert answer.ok, answer.error
    return answer.text


@pytest.mark.contract("day.looks.definition")
@pytest.mark.parametrize(
    ("name", "head", "text"),
    [
        (
            "shapes.Base.slow",
            "cached function at shapes.py:{}, 3 lines",
            "    @lru_cache\n    def slow(self):",
        ),
        (
            "shapes.Circle.size",
            "property inherited from shapes.Base at shapes.py:{}, 3 lines",
            "@size.setter",
        ),
        (
            "shapes.COLOURS",
            "variable at shapes.py:{}, 3 lines",
            '    COLOURS: list[str] = [\n        "red",\n    ]',
        ),
        ("shapes.BOUND", "variable at helper.py:{}, 1 line", "LIMIT = 10"),
        ("shapes.Base.KIND", "attribute at shapes.py:{}, 1 line", "    KIND = 1"),
        (
            "shapes.area",
            "singledispatch function at shapes.py:{}, 3 lines",
            "@area.register(int)\ndef _of_int(shape):",
        ),
        (
            "shapes.double",
            "function defined as shapes.<lambda> at shapes.py:{}, 1 line",
            "double = lambda x: x * 2",
        ),
        (
            "shapes.Circle",
            "class at shapes.py:{}, 2 lines",
            "class Circle(Base):\n    def slow(self): return 3",
        ),
        ("shapes", "module at shapes.py:{}, 42 lines", "    22 class Base"),
    ],
)
def test_python_definitions_come_with_text_and_place(python, name, head, text):
    """Functions, methods, classes, properties, dispatchers and variables, through wrappers and imports."""
    answer = shown(python, name)
    whole = "LIMIT = 10\n" if "helper" in head else SHAPES_PY
    first = answer.splitlines()[1]
    line = 1 if name == "shapes" else whole.splitlines().index(first) + 1
    assert answer.startswith(f"{name}: {head.format(line)}\n")
    assert text in answer


WRAPPED = """
import functools
class Dispatch:
    def __init__(self, function): functools.update_wrapper(self, function)
    def __call__(self, *args): return self.__wrapped__(*args)
    def __getattr__(self, name): raise ValueError("ran")
class Closed:
    def __init__(self, function): self.held = function
def through(function):
    @functools.wraps(function)
    def wrapper(*args): return function(*args)
    wrapper.__wrapped__ = Dispatch(function)
    return wrapper
def into_object(function):
    @functools.wraps(function)
    def wrapper(*args): return function(*args)
    wrapper.__wrapped__ = Closed(function)
    return wrapper
@through
def shortest(a, b):
    return a + b
@into_object
def longest(a): return a
@Closed
def task(a):
    return a * 2
"""


@pytest.mark.contract("day.eyes.wrapped")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("wrapped.shortest", "@through\ndef shortest(a, b):\n    return a + b"),
        ("wrapped.longest", "def wrapper(*args): return function(*args)"),
        ("wrapped.task", "@Closed\ndef task(a):\n    return a * 2"),
    ],
)
def test_a_wrapper_that_leads_through_an_object_has_its_source(python, tmp_path, name, text):
    """A day's work: functions of networkx were said to be compiled, commands of click to have no text."""
    (tmp_path / "wrapped.py").write_text(WRAPPED)
    assert python.evaluate("import wrapped").ok
    assert text in shown(python, name)


@pytest.mark.contract("day.looks.definition")
def test_a_name_of_two_modules_is_shown_from_both(python):
    """Names that exist in two places."""
    places = [match.group(1, 3) for match in HEAD.finditer(shown(python, "area"))]
    assert ("helper.area", "helper.py") in places
    assert ("shapes.area", "shapes.py") in places


def test_what_was_evaluated_has_its_text(python):
    assert python.evaluate("def twice(x):\n    # a comment\n    return 2 * x\n\nlimit = 3").ok
    assert "def twice(x):\n    # a comment\n    return 2 * x" in shown(python, "twice")
    assert shown(python, "limit").endswith("limit = 3")
    assert python.evaluate("def twice(x):\n    return x + x").ok
    assert "return x + x" in shown(python, "twice")
    assert python.undo()
    assert "# a comment" in shown(python, "twice")


@pytest.mark.contract("day.looks.definition-changed")
def test_a_changed_python_file_is_told(python, tmp_path):
    """Never a wrong text without a word."""
    (tmp_path / "shapes.py").write_text("# new\n" + SHAPES_PY.replace("return 2", "return 22"))
    assert "this is its text now, not what is loaded" in shown(python, "shapes.Base.slow")
    assert "return 22" in shown(python, "shapes.Base.slow")
    assert "but not in this definition" in shown(python, "shapes.Circle.slow")
    (tmp_path / "shapes.py").write_text("def (\n")
    assert "syntax error" in shown(python, "shapes.Base.slow")
    (tmp_path / "shapes.py").write_text("x = 1\n")
    assert "has no Base.slow any more" in shown(python, "shapes.Base.slow")
    (tmp_path / "shapes.py").unlink()
    assert "cannot be read" in shown(python, "shapes.Base.slow")


def test_what_has_no_python_text_says_so(python):
    assert "without Python source" in shown(python, "len")
    assert python.evaluate("exec('def made(): return 1')").ok
    assert "made by code at run time" in shown(python, "made")
    assert python.evaluate("setattr(shapes, 'LATE', 5)").ok
    assert "no statement that assigns it" in shown(python, "shapes.LATE")


@pytest.mark.parametrize(
    "name", ["", "  ", "a b", "shapes.", "x" * 5_000, "shapes.Bse", "\0", "a:b:c", "lambda"]
)
def test_bad_names_are_answered(python, name):
    """Bad input: what is wrong, and what may have been meant."""
    answer = python.ask("find_definition", symbol=name)
    assert not answer.ok
    assert answer.error is not None
    assert len(answer.error.message) < 1_000
    if name == "shapes.Bse":
        assert answer.error.suggestions == ["shapes.Base"]


MODULES = (
    "textwrap",
    "json.decoder",
    "heapq",
    "fnmatch",
    "contextlib",
    "string",
    "shlex",
    "graphlib",
    "copy",
)


@pytest.mark.contract("day.looks.definition-oracle")
def test_texts_are_those_of_inspect(tmp_path):
    """Every function, class and method of some modules of the standard library."""
    compared = 0
    with closing(open_image("python", project=tmp_path)) as image:
        assert image.evaluate(f"import {', '.join(MODULES)}").ok
        for name, value in _members():
            text = inspect.getsource(value)
            if len(text) > LONGEST or "<lambda>" in repr(value):
                continue
            answer = shown(image, name)
            assert answer.partition("\n")[2].rstrip() == text.rstrip(), name
            match = HEAD.match(answer)
            assert match, answer
            assert int(match[4]) == (inspect.getsourcelines(value)[1] or 1), name
            compared += 1
    assert compared > 150


def _members():
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        for key, value in vars(module).items():
            if getattr(value, "__module__", None) != module_name or not hasattr(value, "__qualname__"):
                continue
            if value.__name__ != key or not (inspect.isfunction(value) or inspect.isclass(value)):
                continue
            yield f"{module_name}:{key}", value
            for inner, function in vars(value).items() if inspect.isclass(value) else ():
                if inspect.isfunction(function) and function.__name__ == inner:
                    yield f"{module_name}:{key}.{inner}", function


# Lisp

SHAPES_LISP = """(defpackage :shapes (:use :cl) (:export #:area #:circle))
(in-package :shapes)

(defvar *limit* 10 "The (limit.")
(defclass shape () ((name :initarg :name :accessor shape-name)))
(defclass circle (shape)
  ((radius :initarg :radius :reader radius)))

(defgeneric area (shape &key exact)
  (:method ((shape integer) &key exact) (declare (ignore exact)) shape))

;; A comment
(defmethod area ((shape circle) &key exact)
  (declare (ignore exact))
  (* 3 (radius shape)))
(defmethod area :around ((shape shape) &key exact) (declare (ignore exact)) (call-next-method))
(defmethod (setf area) (value (shape circle)) value)

(progn
  (defun one () 1)
  (defun two ()
    "Two (2"
    2))
(defmacro with-x ((x) &body body)
  `(let ((,x 1)) ,@body))
(defstruct (point (:conc-name pt-)) x y)
#+sbcl
(defun four () 4)
(define-symbol-macro here *limit*)
(deftype small () '(integer 0 10))
(eval-when (:compile-toplevel :load-toplevel :execute) (defclass deep () ()))
"""


def line_of(text):
    return SHAPES_LISP[: SHAPES_LISP.index(text)].count("\n") + 1


@pytest.fixture
def lisp(tmp_path):
    (tmp_path / "shapes.lisp").write_text(SHAPES_LISP)
    with closing(open_image("sbcl", project=tmp_path)) as image:
        assert image.evaluate('(load (compile-file "shapes.lisp"))').ok
        yield image


@needs_sbcl
@pytest.mark.contract("day.looks.definition")
@pytest.mark.parametrize(
    ("name", "head", "text"),
    [
        ("shapes::*limit*", "special variable", '(defvar *limit* 10 "The (limit.")'),
        ("shapes::circle", "class", "(defclass circle (shape)\n  ((radius"),
        ("shapes::two", "function", '  (defun two ()\n    "Two (2"\n    2)'),
        ("shapes::with-x", "macro", "(defmacro with-x ((x) &body body)\n  `(let ((,x 1)) ,@body))"),
        ("shapes::point", "structure", "(defstruct (point (:conc-name pt-)) x y)"),
        ("shapes::pt-x", "function", "(defstruct (point (:conc-name pt-)) x y)"),
        ("shapes::four", "function", "(defun four () 4)"),
        ("shapes::here", "symbol macro", "(define-symbol-macro here *limit*)"),
        ("shapes::small", "type", "(deftype small () '(integer 0 10))"),
        ("shapes::deep", "class", "(defclass deep () ())"),
        (
            "(setf shapes:area)",
            "method (T SHAPES:CIRCLE)",
            "(defmethod (setf area) (value (shape circle)) value)",
        ),
        (
            "(method shapes:area (circle))",
            "method (SHAPES:CIRCLE)",
            "(defmethod area ((shape circle) &key exact)",
        ),
        ("shapes::shape-name", "accessor of a slot of SHAPES::SHAPE", "(defclass shape () ((name"),
    ],
)
def test_lisp_definitions_come_with_text_and_place(lisp, name, head, text):
    """Operators, variables, types, methods and what other forms have made."""
    answer = shown(lisp, name)
    first = answer.partition("\n")[0]
    assert f": {head} at shapes.lisp:{line_of(text.lstrip())}, " in first
    assert text in answer


@needs_sbcl
@pytest.mark.contract("day.looks.definition")
def test_a_generic_function_comes_with_its_methods(lisp):
    """Methods of a generic function, each with its place."""
    answer = shown(lisp, "shapes:area")
    for method, form in (
        ("(SHAPES:CIRCLE)", "(defmethod area ((shape circle)"),
        (":AROUND (SHAPES::SHAPE)", "(defmethod area :around"),
        ("(INTEGER)", "(:method ((shape integer)"),
    ):
        assert f"SHAPES:AREA: method {method} at shapes.lisp:{line_of(form)}, " in answer
    assert lisp.evaluate("(defmethod shapes:area ((x string) &key exact) exact x)").ok
    assert "method (STRING) in the session, 1 line\n(defmethod shapes:area ((x string)" in shown(
        lisp, "shapes:area"
    )
    many = shown(lisp, "print-object")
    assert "more methods" in many
    assert len(many) <= 8_000


@needs_sbcl
def test_what_was_evaluated_in_lisp_has_its_text(lisp):
    assert lisp.evaluate("(progn (defun twice (x) ; a comment\n  (* 2 x)) (defvar *kept* 1))").ok
    assert "(defun twice (x) ; a comment\n  (* 2 x))" in shown(lisp, "twice")
    assert shown(lisp, "*kept*") == "*KEPT*: special variable in the session, 1 line\n(defvar *kept* 1)"
    assert lisp.evaluate("(defun twice (x) (+ x x))").ok
    assert "(+ x x)" in shown(lisp, "twice")
    assert lisp.undo()
    assert "; a comment" in shown(lisp, "twice")


@needs_sbcl
@pytest.mark.contract("day.looks.definition")
def test_a_name_of_two_packages_is_shown_from_both(lisp):
    """Names that exist in two packages."""
    assert lisp.evaluate("(defpackage :other (:use :cl))\n(in-package :other)\n(defun area () 0)").ok
    assert lisp.evaluate("(in-package :cl-user)").ok
    answer = shown(lisp, "area")
    assert "OTHER::AREA: function in the session" in answer
    assert "SHAPES:AREA: generic function at shapes.lisp" in answer
    assert "Others of that name: SHAPES:AREA" in shown(lisp, "area", package="other")


@needs_sbcl
@pytest.mark.contract("day.looks.definition-changed")
def test_a_changed_lisp_file_is_told(lisp, tmp_path):
    """Never a wrong text without a word."""
    file = tmp_path / "shapes.lisp"
    later = file.stat().st_mtime + 10
    file.write_text(";; new\n\n" + SHAPES_LISP.replace("(* 3 ", "(* 4 "))
    os.utime(file, (later, later))
    answer = shown(lisp, "(method shapes:area (circle))")
    assert f"shapes.lisp:{line_of('(defmethod area ((shape circle)') + 2}" in answer
    assert "this is its text now, not what is loaded" in answer
    assert "(* 4 " in answer
    file.write_text("(list)\n")
    os.utime(file, (later, later))
    assert "has no such definition any more" in shown(lisp, "shapes::two")
    file.unlink()
    assert "cannot be read" in shown(lisp, "shapes::two")


@needs_sbcl
@pytest.mark.parametrize(
    "name", ["", " ", "(", "(method", "shapes::", "nosuch::x", "x" * 5_000, "shapes::are", "#"]
)
def test_bad_lisp_names_are_answered(lisp, name):
    """Bad input: what is wrong, and what may have been meant."""
    answer = lisp.ask("find_definition", symbol=name)
    assert not answer.ok
    assert answer.error is not None
    if name == "shapes::are":
        assert "SHAPES:AREA" in answer.error.suggestions


# The forms that SBCL's own reader finds where sb-introspect says, for each function of a package.
ORACLE = """
(let ((*package* (find-package "READING")) (found '()))
  (do-external-symbols (symbol "PACKAGE" found)
    (let* ((function (and (fboundp symbol) (not (macro-function symbol)) (not (special-operator-p symbol))
                          (fdefinition symbol)))
           (source (and function (not (typep function 'generic-function))
                        (sb-introspect:find-definition-source function)))
           (file (and source (sb-introspect:definition-source-pathname source)))
           (offset (and file (sb-introspect:definition-source-character-offset source))))
      (when (and offset (probe-file file))
        (with-open-file (stream file :external-format :latin-1)
          (file-position stream offset)
          (let* ((form (ignore-errors (read stream)))
                 (inner (find-if (lambda (part)
                                   (and (consp part) (eq (first part) 'defun) (eq (second part) symbol)))
                                 (if (and (consp form) (eq (first form) 'defun)) (list form) form))))
            (when inner
              (push (list (prin1-to-string symbol)
                          (let ((*print-pretty* nil)) (prin1-to-string (third inner))))
                    found))))))))
"""


@needs_sbcl
@pytest.mark.contract("day.looks.definition-oracle")
@pytest.mark.parametrize(
    ("package", "reading"), [("UIOP/PATHNAME", "UIOP/PATHNAME"), ("COMMON-LISP", "SB-IMPL")]
)
@pytest.mark.slow
def test_lisp_texts_are_those_that_sbcl_reads(tmp_path, package, reading):
    """Every function that a package exports, whose form SBCL can read at the place it tells."""
    with closing(open_image("sbcl", project=tmp_path)) as image:
        reply = image.evaluate(ORACLE.replace("PACKAGE", package).replace("READING", reading))
        assert reply.ok, reply.error
        pairs = re.findall(r'\("((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)"\)', reply.values[0])
        if not pairs:
            pytest.skip("the sources of SBCL are not installed")
        assert len(pairs) > 20
        for name, arguments in pairs:
            text = shown(image, f"{reading}::{name}")
            if "more lines: see" in text:
                continue
            form = re.split(r"^ *(?=\(def)", text, maxsplit=1, flags=re.MULTILINE | re.IGNORECASE)[1]
            code = READ.replace("PACKAGE", reading).replace("FORM", lisp_string(form))
            read = image.evaluate(code)
            assert read.ok, (name, text, read.error)
            assert read.values[0] == '"' + arguments + '"', name


READ = """(let ((*package* (find-package "PACKAGE")) (*print-pretty* nil))
  (prin1-to-string (third (read-from-string FORM))))"""


def lisp_string(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
