"""What the documentation says, held against `inspect`, `pydoc` and SBCL's own function."""

from __future__ import annotations

import importlib
import inspect
import pydoc
import shutil
from contextlib import closing
from pydoc_data.topics import topics

import pytest

from gramercy.images.opening import open_image

needs_sbcl = pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")
SHAPES = '''"""Shapes of all kinds."""

# How many
# are allowed.
LIMIT = 10

SIZE = 3
"""The size."""


class Base:
    """A base."""

    def run(self, times: int) -> int:
        """Run.

        Several times.
        """
        return times

    def __getattr__(self, name):
        raise RuntimeError("code of the user's ran")


class Circle(Base):
    def run(self, times): ...


class Odd:
    def __class_getitem__(cls, item): raise RuntimeError("code of the user's ran")

    @property
    def __doc__(self): raise RuntimeError("code of the user's ran")


odd = Odd()
'''


@pytest.fixture
def python(tmp_path):
    (tmp_path / "shapes.py").write_text(SHAPES)
    (tmp_path / "later.py").write_text(
        '"""Not yet."""\n\n\ndef go(x, *, y=1) -> int:\n    """Go there."""\n    return x\n'
    )
    with closing(open_image("python", project=tmp_path)) as image:
        assert image.evaluate("import shapes").ok
        yield image


def shown(image, name):
    answer = image.ask("look_up_documentation", name=name)
    assert answer.ok, answer.error
    return answer.text


@pytest.mark.contract("day.looks.documentation")
def test_docstrings_of_python(python):
    """Signature and place first, then the whole text; inherited and written as comments too."""
    text = shown(python, "shapes.Base.run")
    assert text.startswith("shapes.Base.run(self, times: int) -> int\nmethod at shapes.py:14\n")
    assert text.endswith("Run.\n\nSeveral times.")
    assert "documented by shapes.Base:\n\nRun." in shown(python, "shapes.Circle.run")
    assert shown(python, "shapes.LIMIT").endswith("How many\nare allowed.")
    assert shown(python, "shapes.SIZE").endswith("The size.")
    assert "run(self, times: int) -> int  Run." in shown(python, "shapes.Base")
    module = shown(python, "shapes")
    assert "Shapes of all kinds." in module
    assert "Base()  A base." in module
    assert "of type shapes.Odd" in shown(python, "shapes.odd")


@pytest.mark.contract("day.looks.documentation")
def test_a_module_that_is_not_loaded_is_read_and_not_run(python):
    """No code of the user's runs for documentation."""
    assert "as its file says: it is not loaded" in shown(python, "later")
    text = shown(python, "later.go")
    assert text.startswith("later.go(x, *, y=1) -> int\nfunction at later.py:4, as its file says")
    assert text.endswith("Go there.")
    assert python.evaluate("import sys; 'later' in sys.modules").values == ["False"]


@pytest.mark.contract("day.looks.documentation")
@pytest.mark.parametrize(
    "word", ["with", "lambda", "for", "import", "+=", "if", "OPERATORS", "None", "async", "is"]
)
def test_topics_are_those_of_pydoc(python, word):
    """Keywords, operators and topics of the language reference."""
    target = (
        pydoc.Helper.keywords.get(word) or pydoc.Helper.symbols.get(word) or pydoc.Helper.topics.get(word)
    )
    while target and (target[0] if isinstance(target, tuple) else target.split()[0]) not in topics:
        first = target[0] if isinstance(target, tuple) else target.split()[0]
        target = pydoc.Helper.topics.get(first) or pydoc.Helper.keywords.get(first)
    if not target:
        assert "has no text about it" in shown(python, word)
        return
    expected = topics[target[0] if isinstance(target, tuple) else target.split()[0]].strip()
    text = shown(python, word).partition("\n")[2]
    assert text.startswith(expected[:5_000])


MODULES = ("json", "textwrap", "heapq", "shlex", "contextlib", "fractions", "string", "queue")


@pytest.mark.contract("day.looks.documentation")
def test_docstrings_are_those_of_inspect(tmp_path):
    """Every public function and class of some modules of the standard library, and their methods."""
    compared = 0
    with closing(open_image("python", project=tmp_path)) as image:
        assert image.evaluate(f"import {', '.join(MODULES)}").ok
        for name, value in _members():
            expected = inspect.getdoc(value) if value.__doc__ else None
            if not expected or len(expected) > 5_000:
                continue
            assert f"\n{expected.strip()}" in shown(image, name), name
            compared += 1
    assert compared > 100


def _members():
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        yield module_name, module
        for key in getattr(module, "__all__", ()):
            value = getattr(module, key)
            if inspect.isfunction(value) or inspect.isclass(value):
                yield f"{module_name}:{key}", value
            for inner, function in vars(value).items() if inspect.isclass(value) else ():
                if inspect.isfunction(function):
                    yield f"{module_name}:{key}.{inner}", function


@pytest.mark.parametrize(
    "name", ["", "nosuch", "wiht", "shapes.Bas", "a b", "x" * 3_000, "\0", "/etc/passwd"]
)
def test_bad_names_are_answered(python, name):
    """Bad input."""
    answer = python.ask("look_up_documentation", name=name)
    assert not answer.ok
    assert answer.error is not None
    if name == "wiht":
        assert answer.error.suggestions[0] == "with"
    if name == "shapes.Bas":
        assert answer.error.suggestions[0] == "shapes.Base"


# Lisp

PROGRAM = """(defpackage :shapes (:use :cl) (:export #:area #:*limit*) (:documentation "All shapes."))
(in-package :shapes)
(defvar *limit* 10 "The limit.")
(defclass shape () ((name :documentation "Its name.")) (:documentation "A shape."))
(defgeneric area (shape) (:documentation "The area."))
(defmethod area ((shape shape)) "Of a shape." 0)
(defmacro twice (form)
  "Do FORM
   twice."
  `(progn ,form ,form))
(defmethod documentation ((object (eql 'area)) (kind (eql 'function))) (error "code of the user's ran"))
"""


@pytest.fixture
def lisp(tmp_path):
    (tmp_path / "shapes.lisp").write_text(PROGRAM)
    (tmp_path / "shapes.asd").write_text(
        '(defsystem "shapes" :description "A system of shapes." :long-description "Round ones too."\n'
        '  :components ((:file "shapes")))\n'
    )
    with closing(open_image("sbcl", project=tmp_path)) as image:
        assert image.load_system("shapes").ok
        yield image


@needs_sbcl
@pytest.mark.contract("day.looks.documentation")
def test_docstrings_of_lisp(lisp):
    """Operators, variables, classes with slots, methods, packages and systems."""
    assert shown(lisp, "shapes:area").startswith(
        "generic function (SHAPES:AREA SHAPE)  shapes.lisp:5\n  The area.\n"
        "  method (SHAPES::SHAPE): Of a shape."
    )
    assert shown(lisp, "shapes::twice") == "macro (SHAPES::TWICE FORM)  shapes.lisp:7\n  Do FORM\n  twice."
    assert shown(lisp, "shapes:*limit*") == "special variable SHAPES:*LIMIT*  shapes.lisp:3\n  The limit."
    assert "  A shape.\n  slot SHAPES::NAME: Its name." in shown(lisp, "shapes::shape")
    both = shown(lisp, "shapes")
    assert "package SHAPES  shapes.lisp:1\n  All shapes.\n2 exported names:" in both
    assert "system shapes  shapes.asd\n  A system of shapes.\n  Round ones too." in both
    assert shown(lisp, "area").startswith("generic function (SHAPES:AREA SHAPE)")


@needs_sbcl
@pytest.mark.parametrize("name", ["", "nosuch", "(", "shapes::are", "x" * 3_000])
def test_bad_lisp_names_are_answered(lisp, name):
    """Bad input."""
    answer = lisp.ask("look_up_documentation", name=name)
    assert not answer.ok
    assert answer.error is not None


@needs_sbcl
@pytest.mark.contract("day.looks.documentation")
def test_docstrings_are_those_of_sbcl(lisp):
    """Functions of the standard, as DOCUMENTATION gives them."""
    for name in (
        "mapcar",
        "maplist",
        "setf",
        "format",
        "with-output-to-string",
        "if",
        "sort",
        "defun",
        "eval",
    ):
        reply = lisp.evaluate(
            f"(first (uiop:split-string (documentation '{name} 'function) :separator '(#\\Newline)))"
        )
        if reply.values[0] == "NIL":
            assert "It has no documentation." in shown(lisp, name)
            continue
        assert reply.values[0].strip('"').replace('\\"', '"') in shown(lisp, name)
