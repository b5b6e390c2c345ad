"""The nine tools that look into an image, the same list on every language."""

from __future__ import annotations

import pytest

LISP = """
(defvar *my-var* 42 "A variable.")
(defun my-function (a b &optional c) "Make a list." (list a b c *my-var*))
(defun helper (x) (my-function x x))
(defmacro with-timing (form) `(progn ,form))
(defclass point () ((x :initarg :x :initform 7 :accessor point-x :type fixnum)))
(defclass solid (point) ((z)))
"""
PYTHON = '''
my_var = 42
def my_function(a, b, c=None):
    """Make a list."""
    return [a, b, c, my_var]
def helper(x):
    return my_function(x, x)
class Point:
    """A place."""
    x: int = 7
class Solid(Point):
    z: int
'''


@pytest.fixture
def furnished(desk):
    desk.evaluate(LISP, PYTHON)
    return desk


@pytest.mark.contract("002.safe.examples")
def test_a_name_is_described_with_its_parameters_and_documentation(furnished):
    """Seed 000, describe_symbol."""
    text = furnished.text("describe_symbol", symbol=furnished.either("my-function", "my_function"))
    assert furnished.either("A B &OPTIONAL C)", "(a, b, c=None)") in text
    assert "Make a list." in text


def test_a_variable_is_described_with_its_value(furnished):
    """Seed 000, describe_symbol: type, value, documentation."""
    assert "42" in furnished.text("describe_symbol", symbol=furnished.either("*my-var*", "my_var"))


def test_a_name_of_the_language_itself_is_described(furnished):
    """Seed 002: describe_symbol of defun in common-lisp."""
    symbol, package = ("defun", "common-lisp") if furnished.language == "sbcl" else ("len", "builtins")
    assert symbol in furnished.text("describe_symbol", symbol=symbol, package=package).lower()


def test_a_name_with_its_package_is_found_from_anywhere(furnished):
    """Introspection: one resolver for sym, pkg:sym and pkg::sym."""
    name = furnished.either("cl-user::my-function", "__main__.my_function")
    assert "Make a list." in furnished.text("describe_symbol", symbol=name)


def test_part_of_a_name_finds_the_whole(furnished):
    """Seed 000, apropos_search."""
    text = furnished.text("apropos_search", pattern=furnished.either("my-func", "my_func"))
    assert furnished.either("MY-FUNCTION", "my_function") in text


def test_a_search_that_finds_nothing_says_so(furnished):
    """Every answer is a text that a model understands."""
    assert furnished.text("apropos_search", pattern="zzyzx-nothing").strip()


def test_the_parameters_of_a_function_are_shown(furnished):
    """Seed 002, function_arglist."""
    text = furnished.text("function_arglist", function=furnished.either("my-function", "my_function"))
    assert furnished.either("A B &OPTIONAL C", "a, b, c=None") in text


def test_callers_are_found(furnished):
    """Introspection: who_calls works on evaluated definitions."""
    text = furnished.text("who_calls", function=furnished.either("my-function", "my_function"))
    assert "helper" in text.lower()


def test_references_are_found(furnished):
    """Introspection: who_references works on evaluated definitions."""
    text = furnished.text("who_references", variable=furnished.either("*my-var*", "my_var"))
    assert furnished.either("MY-FUNCTION", "my_function") in text


def test_internal_names_are_listed_only_when_wanted(furnished):
    """Decision 2: include_internal."""
    package = furnished.either("cl-user", "__main__")
    name = furnished.either("HELPER", "__name__")
    assert name not in furnished.text("list_package_symbols", package=package).split()
    assert name in furnished.text("list_package_symbols", package=package, include_internal=True).split()


def test_slots_show_types_and_initial_values_as_written(furnished):
    """Introspection: initial values are shown, never computed."""
    text = furnished.text("class_slots", **{"class": furnished.either("point", "Point")})
    assert furnished.either("FIXNUM", "int") in text
    assert "7" in text


def test_inherited_slots_are_shown(furnished):
    """Decision 2, class_slots."""
    text = furnished.text("class_slots", **{"class": furnished.either("solid", "Solid")}).lower()
    assert "x" in text
    assert "z" in text


def test_the_hierarchy_goes_both_ways(furnished):
    """Decision 2, class_hierarchy."""
    of_point = furnished.text("class_hierarchy", **{"class": furnished.either("point", "Point")})
    of_solid = furnished.text("class_hierarchy", **{"class": furnished.either("solid", "Solid")})
    assert furnished.either("SOLID", "Solid") in of_point
    assert furnished.either("POINT", "Point") in of_solid


def test_a_form_is_expanded_once_or_fully(lisp_desk):
    """Decision 2, macroexpand_form."""
    lisp_desk.text("eval_form", form="(defmacro outer (x) `(inner ,x)) (defmacro inner (x) `(list ,x))")
    assert lisp_desk.text("macroexpand_form", form="(outer 1)") == "(INNER 1)"
    assert lisp_desk.text("macroexpand_form", form="(outer 1)", full=True) == "(LIST 1)"


def test_python_code_is_shown_as_it_is_understood(python_desk):
    """Python analogue of macroexpand_form."""
    assert python_desk.text("macroexpand_form", form="x  = ( 1 + 2)") == "x = 1 + 2"


QUESTIONS = [
    ("describe_symbol", "symbol", "my-functoin", "my_functoin", "my-function"),
    ("function_arglist", "function", "my-functoin", "my_functoin", "my-function"),
    ("who_calls", "function", "my-functoin", "my_functoin", "my-function"),
    ("who_references", "variable", "*my-vra*", "my_vra", "my-var"),
    ("class_slots", "class", "pooint", "Pooint", "point"),
    ("class_hierarchy", "class", "pooint", "Pooint", "point"),
]


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_unknown_name_fails_with_near_matches(furnished, question):
    """Introspection: suggest near matches."""
    tool, argument, lisp, python, meant = question
    text = furnished.failure(tool, **{argument: furnished.either(lisp, python)})
    assert text.startswith("[ERROR] ")
    assert "Did you mean" in text
    assert meant in text.lower().replace("_", "-")


@pytest.mark.parametrize("tool", ["describe_symbol", "function_arglist", "list_package_symbols"])
def test_an_unknown_package_fails_and_is_named(furnished, tool):
    """Introspection: unknown packages."""
    first = {"describe_symbol": {"symbol": "car"}, "function_arglist": {"function": "car"}}.get(tool, {})
    assert "no-such-package" in furnished.failure(tool, **first, package="no-such-package")


def test_looking_up_a_name_does_not_make_it(lisp_desk):
    """Introspection: never intern."""
    lisp_desk.failure("describe_symbol", symbol="brand-new-name")
    lisp_desk.failure("who_calls", function="brand-new-name")
    assert lisp_desk.text("eval_form", form='(find-symbol "BRAND-NEW-NAME")').startswith("=> NIL")


@pytest.mark.parametrize("name", ["|Mixed|", "cl-user::|Mixed|", "(setf place)", "cl:car", "CL-USER::HELPER"])
def test_every_way_to_write_a_name_is_understood(lisp_desk, name):
    """Introspection: sym, pkg:sym, pkg::sym, |Mixed|, (setf foo)."""
    lisp_desk.text("eval_form", form="(defun |Mixed| (q) q) (defun (setf place) (q) q) (defun helper (q) q)")
    assert lisp_desk.text("function_arglist", function=name)


@pytest.mark.parametrize(
    "name", ["", "(", "))", "a b", '"text"', "#.(boom)", "|", "::", "x" * 5000, "ä→\x07"]
)
def test_a_name_that_is_none_fails_clearly(furnished, name):
    """Bad input: a clear error and nothing lost."""
    text = furnished.failure("describe_symbol", symbol=name)
    assert len(text) < 12_000
    assert "Traceback" not in text
    assert "42" in furnished.text("describe_symbol", symbol=furnished.either("*my-var*", "my_var"))
