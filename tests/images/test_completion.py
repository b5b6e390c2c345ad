"""Names that a text before the cursor may go on with, in both image programs; no code of the user's runs."""

from contextlib import closing

import pytest

from tests.images import children

PYTHON = """
import os
class Thing:
    kind = "x"
    def __init__(self):
        self.alpha = [1]
        self.table = {"key": "text"}
    def method(self): pass
    @property
    def computed(self): raise SystemExit("a property ran")
    def __getattr__(self, name): raise SystemExit("__getattr__ ran")
    def __dir__(self): raise SystemExit("__dir__ ran")
thing_one = Thing()
"""
LISP = """
(defun shape-area (x) x) (defvar *shape-count* 1) (defclass shape-class () ())
(defpackage :shapes (:export #:circle) (:use :cl)) (in-package :shapes)
(defun circle () 1) (defun circus () 2) (in-package :cl-user)
"""


@pytest.fixture(scope="module")
def lives(tmp_path_factory):
    found = {}
    families = []
    for language, code in (("python", PYTHON), ("sbcl", LISP)):
        family = children.Family(tmp_path_factory.mktemp(language), language)
        families.append(family)
        found[language] = family.live()
        assert found[language].eval(code)["ok"]
    yield found
    for family in families:
        with closing(family):
            pass


def offered(live, text, **more):
    """Return what the text becomes with each name that is offered."""
    reply = live.ask("complete", text=text, **more)
    assert reply["ok"], reply
    return [text[: reply["data"]["start"]] + row["name"] for row in reply["data"]["matches"]]


@pytest.mark.contract("day.prompt.complete")
@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("python", "thing_", ["thing_one"]),
        ("python", "x = thing_one.al", ["x = thing_one.alpha"]),
        ("python", "thing_one.alpha.app", ["thing_one.alpha.append"]),
        ("python", "print(thing_one.table['key'].upp", ["print(thing_one.table['key'].upper"]),
        ("python", '"abc".isal', ['"abc".isalnum', '"abc".isalpha']),
        ("python", "Thing().me", ["Thing().method"]),
        ("python", "[].app", ["[].append"]),
        ("python", "os.path.joi", ["os.path.join"]),
        ("python", "import os, json", ["import os, json"]),
        ("python", "from os.path import joi", ["from os.path import join"]),
        ("python", "import os.pat", ["import os.path"]),
        ("python", "whil", ["while"]),
        (
            "python",
            "thing_one.",
            [f"thing_one.{name}" for name in ("alpha", "computed", "kind", "method", "table")],
        ),
        ("python", "thing_one.computed.", []),
        ("python", "thing_one.method().", []),
        ("python", 'print("thing_one.', []),
        ("python", "# thing_one.", []),
        ("python", "nothing.x", []),
        ("python", "((((", None),
        ("sbcl", "(shape-a", ["(shape-area"]),
        ("sbcl", "*shape", ["*shape-count*"]),
        ("sbcl", "(SHAPE-A", ["(SHAPE-AREA"]),
        ("sbcl", "(mapcar #'shape-a", ["(mapcar #'shape-area"]),
        ("sbcl", "(shapes:cir", ["(shapes:circle"]),
        ("sbcl", "(shapes::cir", ["(shapes::circle", "(shapes::circus"]),
        ("sbcl", "(shap", ["(shape-area", "(shape-class", "(shapes:"]),
        ("sbcl", ":direct-sup", [":direct-superclasses"]),
        ("sbcl", '(list "a" shape-c', ['(list "a" shape-class']),
        ("sbcl", '(list "shape-c', []),
        ("sbcl", "; shape-c", []),
        ("sbcl", "nowhere:shape", []),
        ("sbcl", "#\\Spa", []),
        ("sbcl", "gramercy.im", []),
    ],
)
def test_a_text_is_completed(lives, language, text, expected):
    """Names, attributes, items, imports, packages, keywords; nothing inside of strings and comments."""
    found = offered(lives[language], text)
    assert found == expected if expected is not None else found


def test_a_module_or_package_can_be_given(lives):
    """Names are seen from the package of the request."""
    assert offered(lives["sbcl"], "circ", package="SHAPES") == ["circle", "circus"]
    assert "joi" in offered(lives["python"], "joi", package="os.path")[0]


@pytest.mark.parametrize(("language", "text"), [("python", ""), ("sbcl", "")])
def test_names_are_bounded_and_counted(lives, language, text):
    """At most a hundred, and how many there are."""
    reply = lives[language].ask("complete", text=text)
    assert len(reply["data"]["matches"]) == 100
    assert reply["data"]["total"] > 100


@pytest.mark.parametrize("language", ["python", "sbcl"])
def test_text_that_is_no_text_is_refused(lives, language):
    """Bad input; and hostile text takes no time."""
    assert not lives[language].ask("complete", text=5)["ok"]
    for text in ("(" * 5000, "a." * 5000, '"' * 4999, "\\" * 999, "x[" * 3000 + ".", "é.ü.", "a\x00.b"):
        assert lives[language].ask("complete", text=text, seconds=10)["ok"]
