"""Real libraries are loaded through load-system and looked into."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest

SOURCES = Path("/usr/share/common-lisp/source")


def load(desk, system):
    if desk.language == "sbcl" and not (SOURCES / system).exists():
        pytest.skip(f"the Debian package of {system} is not installed")
    return desk.text("load-system", system=system)


@pytest.mark.parametrize("system", ["alexandria", "cl-ppcre", "fiveam"])
def test_a_library_is_loaded_and_confirmed(lisp_desk, system):
    """Seed 003, load-system; Systems: Debian's packages load through plain ASDF."""
    text = load(lisp_desk, system)
    # A compilation of several seconds, on a busy machine, is told as well.
    slow = r"(\n\nThe image says: \d+ files? (was|were) compiled, which took [^\n]+)?"
    pattern = rf"Loading system: {system}\nLoaded: {system}( \(version [0-9.]+\))?{slow}"
    assert re.fullmatch(pattern, text)


def test_alexandria_can_be_looked_into(lisp_desk):
    """Introspection on a library: describe, parameters, callers, listing."""
    load(lisp_desk, "alexandria")
    assert "Returns a function" in lisp_desk.text("describe_symbol", symbol="alexandria:curry")
    assert "FUNCTION" in lisp_desk.text("function_arglist", function="alexandria:curry")
    assert "FLATTEN" in lisp_desk.text("apropos_search", pattern="flatten", package="alexandria")
    symbols = lisp_desk.text("list_package_symbols", package="alexandria").split()
    assert {"CURRY", "FLATTEN", "IF-LET"} <= set(symbols)
    assert "ALEXANDRIA" in lisp_desk.text("who_calls", function="alexandria:ensure-function").upper()
    assert "LET" in lisp_desk.text("macroexpand_form", form="(alexandria:if-let (x 1) x 2)")


def test_cl_ppcre_has_classes_and_works(lisp_desk):
    """Introspection on a library: class tools."""
    load(lisp_desk, "cl-ppcre")
    assert lisp_desk.text("eval_form", form='(cl-ppcre:scan-to-strings "b+" "abbc")').startswith('=> "bb"')
    assert "REGEX" in lisp_desk.text("class_slots", **{"class": "cl-ppcre::repetition"})
    hierarchy = lisp_desk.text("class_hierarchy", **{"class": "cl-ppcre::regex"})
    assert "REPETITION" in hierarchy
    assert "CL-PPCRE" in lisp_desk.text("who_references", variable="cl-ppcre:*use-bmh-matchers*")


def test_fiveam_runs_a_test_of_the_users(lisp_desk):
    """Introspection on a library: its macros and what they define."""
    load(lisp_desk, "fiveam")
    code = "(fiveam:test sums (fiveam:is (= 3 (+ 1 2)))) (fiveam:results-status (fiveam:run 'sums))"
    assert "=> T" in lisp_desk.text("eval_form", form=code)
    assert "NAME" in lisp_desk.text("function_arglist", function="fiveam:test")


def test_what_a_library_defines_is_not_listed_as_the_users(lisp_desk):
    """Introspection: list-definitions shows the user's own."""
    load(lisp_desk, "alexandria")
    assert lisp_desk.text("list-definitions") == "No definitions."


def test_a_library_can_be_unloaded_by_undo(lisp_desk):
    """Undo covers load-system too."""
    load(lisp_desk, "alexandria")
    lisp_desk.text("undo_last")
    assert "not found" in lisp_desk.failure("describe_symbol", symbol="alexandria:curry")


def test_a_python_package_of_the_library_can_be_looked_into(python_desk):
    """Seed 003, load-system, Python analogue."""
    text = load(python_desk, "logging")
    assert re.fullmatch(r"Loading system: logging\nLoaded: logging \(version [0-9.]+\)", text)
    assert "name" in python_desk.text("function_arglist", function="logging.getLogger")
    assert "StreamHandler" in python_desk.text("class_hierarchy", **{"class": "logging.Handler"})
    assert "logging" in python_desk.text("who_calls", function="logging.getLevelName")
    assert "getLogger" in python_desk.text("list_package_symbols", package="logging")
    assert "root" in python_desk.text("who_references", variable="logging.root")


def test_an_installed_python_package_can_be_looked_into(python_desk):
    """Seed 003, load-system: a package that was granted to the image, with its own version."""
    text = load(python_desk, "click")
    assert text == f"Loading system: click\nLoaded: click (version {version('click')})"
    assert "message" in python_desk.text("function_arglist", function="click.echo")
    assert "Creates a new" in python_desk.text("describe_symbol", symbol="click.command")
    assert "Group" in python_desk.text("class_hierarchy", **{"class": "click.Command"})
    assert "click" in python_desk.text("who_calls", function="click.echo")
    assert "Option" in python_desk.text("list_package_symbols", package="click")
    assert "callback" in python_desk.text("apropos_search", pattern="callback")


def test_a_python_package_can_be_unloaded_by_undo(python_desk):
    """Undo covers load-system too."""
    load(python_desk, "colorsys")
    python_desk.text("undo_last")
    python_desk.failure("describe_symbol", symbol="colorsys.rgb_to_hsv")
