"""The methods of classes and generic functions, held against `inspect` and the object system of SBCL."""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
from contextlib import closing

import pytest

from gramercy.images.opening import open_image

needs_sbcl = pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")

SHAPES = """from functools import singledispatch


class Base:
    def __init__(self, size=1):
        self.size = size

    def __repr__(self):
        raise RuntimeError("code of the user's ran")

    def run(self, times: int) -> int:
        return times

    @property
    def area(self):
        raise RuntimeError("code of the user's ran")

    @classmethod
    def make(cls): ...

    @staticmethod
    def help(): ...


class Circle(Base):
    def run(self, times):
        return 2


class Ball(Circle):
    def run(self, times):
        return 3


class Meta(type):
    def __eq__(cls, other):
        raise RuntimeError("code of the user's ran")

    __hash__ = type.__hash__

    def __getattribute__(cls, name):
        raise RuntimeError("code of the user's ran")


class Odd(metaclass=Meta):
    def walk(self): ...


@singledispatch
def show(thing): ...


@show.register
def show_number(thing: int): ...
"""


@pytest.fixture
def python(tmp_path):
    (tmp_path / "shapes.py").write_text(SHAPES)
    with closing(open_image("python", project=tmp_path)) as image:
        assert image.evaluate("import shapes, argparse, json, io").ok
        yield image


def shown(image, name):
    answer = image.ask("find_methods", name=name)
    assert answer.ok, answer.error
    return answer.text


def line_of(text):
    return SHAPES[: SHAPES.index(text)].count("\n") + 1


@pytest.mark.contract("day.looks.methods")
def test_the_methods_of_a_python_class(python):
    """Its own first, then inherited ones with their class; what is replaced is told."""
    text = shown(python, "shapes.Circle")
    own, inherited = text.split("From shapes.Base at shapes.py:4:\n")
    assert f"shapes.Circle, a class at shapes.py:{line_of('class Circle')}: 1 of its own" in own
    assert (
        f"  run(self, times)  [method, line {line_of('class Circle') + 1}]  "
        "overrides shapes.Base; overridden in shapes.Ball"
    ) in own
    assert f"  __init__(self, size=1)  [method, line {line_of('    def __init__')}]" in inherited
    assert f"  area  [property, line {line_of('    @property')}]" in inherited
    assert "  make()  [class method, " in inherited
    assert "  help()  [static method, " in inherited
    assert "  special: __repr__" in inherited
    assert "run(self, times: int) -> int  [method, line 11]  overridden" in inherited


@pytest.mark.contract("day.looks.methods")
def test_the_classes_that_define_a_method(python):
    """Of a method, all that override it, and the one that is used."""
    lines = shown(python, "shapes.Ball.run").splitlines()
    assert lines[0] == "run is defined by 3 classes:"
    assert [line.split(".run")[0].strip() for line in lines[1:]] == [
        "shapes.Base",
        "shapes.Circle",
        "shapes.Ball",
    ]
    assert lines[3].endswith("used here")


def test_a_dispatcher_and_a_hostile_class(python):
    text = shown(python, "shapes.show")
    assert f"  int  shapes.py:{line_of('@show.register')}" in text
    assert "walk(self)" in shown(python, "shapes.Odd")


@pytest.mark.parametrize("name", ["json", "json.loads", "nosuch", "shapes.Circl", "", "1", "x" * 3_000])
def test_what_has_no_methods_says_so(python, name):
    """Bad input."""
    answer = python.ask("find_methods", name=name)
    assert not answer.ok
    assert answer.error is not None
    if name == "shapes.Circl":
        assert answer.error.suggestions == ["shapes.Circle"]
    if name.startswith("json"):
        assert "only classes" in answer.error.message


CLASSES = ("argparse:ArgumentParser", "json:JSONEncoder", "io:StringIO", "argparse:BooleanOptionalAction")


@pytest.mark.contract("day.looks.methods")
@pytest.mark.parametrize("name", CLASSES)
def test_the_methods_are_those_of_inspect(python, name):
    """Every method of some classes of the standard library is told, at the right line."""
    module, _colon, path = name.partition(":")
    cls = getattr(importlib.import_module(module), path)
    text = shown(python, name)
    compared = 0
    for attribute in inspect.classify_class_attrs(cls):
        if attribute.defining_class is object or "method" not in attribute.kind:
            continue
        assert re.search(rf"\b{re.escape(attribute.name)}\b", text), attribute.name
        function = attribute.object
        is_told = not attribute.name.startswith("__") or attribute.name == "__init__"
        if inspect.isfunction(function) and is_told:
            line = function.__code__.co_firstlineno
            assert re.search(rf"  {attribute.name}\(.*\[method, line {line}\]", text), attribute.name
        compared += 1
    assert compared > 3


# Lisp

PROGRAM = """(defpackage :shapes (:use :cl))
(in-package :shapes)
(defclass shape () ((name :accessor shape-name)))
(defclass circle (shape) ())
(defclass ball (circle) ())
(defgeneric area (shape))
(defmethod area ((shape shape)) 0)
(defmethod area ((shape circle)) 1)
(defmethod area ((shape ball)) 2)
(defmethod area :around ((shape shape))
  "Checked."
  (call-next-method))
(defgeneric total (shape) (:method-combination +))
"""


@pytest.fixture
def lisp(tmp_path):
    (tmp_path / "shapes.lisp").write_text(PROGRAM)
    with closing(open_image("sbcl", project=tmp_path)) as image:
        assert image.evaluate('(load (compile-file "shapes.lisp"))').ok
        yield image


@needs_sbcl
@pytest.mark.contract("day.looks.methods")
def test_the_methods_of_a_generic_function(lisp):
    """Qualifiers, specializers, documentation and places."""
    text = shown(lisp, "shapes::area")
    assert "(SHAPES::AREA SHAPE): generic function at shapes.lisp:6, 4 methods" in text
    assert "  (SHAPES::CIRCLE)  shapes.lisp:8" in text
    assert '  :AROUND (SHAPES::SHAPE)  shapes.lisp:10  "Checked."' in text
    assert lisp.evaluate("(defmethod shapes::area ((x string)) 1)").ok
    assert "  (STRING)  in the session" in shown(lisp, "shapes::area")
    assert "no methods, combination +" in shown(lisp, "shapes::total")


@needs_sbcl
@pytest.mark.contract("day.looks.methods")
def test_the_methods_of_a_lisp_class(lisp):
    """Its own first, then inherited ones with their class; what is replaced is told."""
    text = shown(lisp, "shapes::circle")
    own, inherited = text.split("From SHAPES::SHAPE at shapes.lisp:3:\n")
    assert "SHAPES::CIRCLE: class at shapes.lisp:4, 1 method of its own" in own
    assert (
        "  SHAPES::AREA (SHAPES::CIRCLE)  shapes.lisp:8  overrides that of SHAPES::SHAPE  "
        "overridden for SHAPES::BALL"
    ) in own
    assert "  SHAPES::AREA (SHAPES::SHAPE)  shapes.lisp:7  overridden" in inherited
    assert "reader of slot SHAPES::NAME" in inherited
    assert "for SBCL's own classes above it" in inherited


@needs_sbcl
def test_a_metaclass_of_the_users_is_not_asked(lisp):
    """No code of the user's runs in a look."""
    assert lisp.evaluate(
        """(defclass meta (standard-class) ())
        (defmethod sb-mop:validate-superclass ((a meta) (b standard-class)) t)
        (defclass odd () () (:metaclass meta))
        (defgeneric oddity (x))
        (defmethod oddity ((x odd)) x)
        (defmethod sb-mop:specializer-direct-methods ((class meta)) (error "code of the user's ran"))"""
    ).ok
    assert "ODD: class of metaclass META, 1 method of its own\n  ODDITY (ODD)" in shown(lisp, "odd")


@needs_sbcl
@pytest.mark.parametrize("name", ["car", "*print-base*", "nosuch", "", "(", "shapes::circl", "x" * 3_000])
def test_what_has_no_methods_in_lisp_says_so(lisp, name):
    """Bad input."""
    answer = lisp.ask("find_methods", name=name)
    assert not answer.ok
    assert answer.error is not None
    if name == "car":
        assert "neither a class nor a generic function" in answer.error.message


@needs_sbcl
@pytest.mark.contract("day.looks.methods")
@pytest.mark.parametrize(
    "function", ["documentation", "sb-sequence:length", "asdf:perform", "asdf:input-files"]
)
def test_every_method_is_counted(lisp, function):
    """The number is that of SBCL's own object system, and a long list is bounded."""
    reply = lisp.evaluate(f"(length (sb-mop:generic-function-methods #'{function}))")
    text = shown(lisp, function)
    assert f", {reply.values[0]} methods" in text
    assert len(text) <= 8_000
