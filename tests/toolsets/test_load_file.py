"""load_file in real images: what a file defines is live, and what is wrong with it is told with its place."""

from __future__ import annotations

import shutil
import sys

import pytest

from gramercy.images.environment import Environment
from gramercy.images.opening import open_image
from gramercy.toolsets.workspace import Workspace
from tests.toolsets.conftest import LANGUAGES, SANDBOX, Desk


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """Return the image of a language that works on a project of its own."""
    started = {}

    def image(language):
        if language == "sbcl" and shutil.which("sbcl") is None:
            pytest.skip("sbcl is not installed")
        if language not in started:
            place = tmp_path_factory.mktemp(f"{language}-project")
            (place / "src").mkdir()
            started[language] = place, open_image(language, project=place, sandbox=SANDBOX)
        started[language][1].reset()
        return started[language]

    yield image
    for _, each in started.values():
        each.close()


def at_work(live, language):
    """Return a desk on an empty project, and a function that writes files of it."""
    place, image = live(language)
    for found in [*place.glob("*.*"), *place.glob("src/*")]:
        shutil.rmtree(found) if found.is_dir() else found.unlink()

    def write(name, text):
        (place / name).parent.mkdir(exist_ok=True, parents=True)
        (place / name).write_text(text)

    return Desk(image, Workspace(place), language), write


@pytest.fixture
def lisp(live):
    return at_work(live, "sbcl")


@pytest.fixture
def python(live):
    return at_work(live, "python")


@pytest.mark.contract("day.forms.load")
def test_a_lisp_file_is_loaded_and_what_it_defines_is_told(lisp):
    """load_file: verdict first, definitions, warnings at file:line."""
    desk, write = lisp
    write(
        "shapes.lisp",
        "(defpackage #:shapes (:use #:cl))\n(in-package #:shapes)\n(defun area (r)\n  (* r (missing r)))\n",
    )
    text = desk.text("load_file", path="shapes.lisp")
    assert text.startswith(
        "Loaded shapes.lisp, with 1 style warning.\nDefined: package SHAPES, function SHAPES::AREA."
    )
    assert "shapes.lisp:4): undefined function: MISSING" in text
    assert desk.text("eval_form", form="(fboundp 'shapes::area)").startswith("=> #<FUNCTION")
    assert "CL-USER" in desk.text("eval_form", form="(package-name *package*)").replace(
        "COMMON-LISP-USER", "CL-USER"
    )


@pytest.mark.contract("day.forms.load-failure")
def test_a_lisp_file_that_fails_tells_the_line_and_what_was_defined_before(lisp):
    """load_file: the error with its place, no frames of the loader."""
    desk, write = lisp
    write("bad.lisp", '(defun fine () 1)\n\n(error "boom ~a" (fine))\n(defun late () 1)\n')
    text = desk.failure("load_file", path="bad.lisp")
    assert (
        "bad.lisp:3 failed: the file was not loaded to its end.\n\nDefined: function CL-USER::FINE." in text
    )
    assert "boom 1" in text
    assert "LOAD-AS-SOURCE" not in text
    assert desk.text("eval_form", form="(if (fboundp 'late) 0 (fine))") == "=> 1"
    write("open.lisp", "(defun fine () 2)\n(defun open-ended ()\n")
    text = desk.failure("load_file", path="open.lisp")
    assert "open.lisp" in text
    assert "2" in text


@pytest.mark.contract("day.forms.load-module")
def test_a_python_file_is_loaded_as_the_module_that_it_is_and_again_in_place(python):
    """load_file: the module on sys.path, reloaded in place, also where nothing has changed."""
    desk, write = python
    write("src/pkg/__init__.py", "")
    write("src/pkg/shapes.py", "COUNT = []\n\n\ndef area(r):\n    return r\n")
    text = desk.text("load_file", path="src/pkg/shapes.py")
    assert text == "Loaded src/pkg/shapes.py as pkg.shapes.\nDefined: module pkg, module pkg.shapes."
    desk.text("eval_form", form="import pkg.shapes as held; held.COUNT.append(1)")
    write("src/pkg/shapes.py", "COUNT = []\n\n\ndef area(r):\n    return r * 2\n")
    text = desk.text("load_file", path="src/pkg/shapes.py")
    assert text.startswith("Loaded src/pkg/shapes.py as pkg.shapes.\nRedefined: ")
    assert text.endswith("function pkg.shapes.area.")
    assert desk.text("eval_form", form="held.area(2), held.COUNT").startswith("=> (4, [])")
    desk.text("eval_form", form="held.COUNT.append(1)")
    desk.text("load_file", path="src/pkg/shapes.py")
    assert desk.text("eval_form", form="held.COUNT").startswith("=> []")


def test_a_package_and_a_file_that_no_import_finds_are_loaded(python):
    """load_file: __init__.py, and a name with a hyphen."""
    desk, write = python
    write("src/pkg2/__init__.py", "X = 1\n")
    write("a-script.py", "print(__name__)\n")
    assert desk.text("load_file", path="src/pkg2/__init__.py").startswith(
        "Loaded src/pkg2/__init__.py as pkg2."
    )
    assert "a_script" in desk.text("load_file", path="a-script.py")
    assert (
        desk.text("load_file", path="a-script.py", as_script=True) == "Ran a-script.py.\n\n[stdout]\n__main__"
    )


def test_another_module_of_the_same_name_is_left_alone(python):
    """Bad input: a file off the import path that is called like a loaded module."""
    desk, write = python
    desk.text("eval_form", form="import json")
    write("odd-place/json.py", "X = 1\n")
    assert "is not on the import path, and there is another json" in desk.failure(
        "load_file", path="odd-place/json.py"
    )
    assert desk.text("eval_form", form="json.dumps(1)") == "=> '1'"


def test_a_python_file_that_fails_leaves_the_module_as_it_was(python):
    """load_file: all or nothing, with the place."""
    desk, write = python
    write("src/m.py", "def f():\n    return 1\n")
    desk.text("load_file", path="src/m.py")
    write("src/m.py", "def f():\n    return 2\n\n\n1 / 0\n")
    text = desk.failure("load_file", path="src/m.py")
    assert "src/m.py failed" in text
    assert "src/m.py:5: 1 / 0" in text
    assert desk.text("eval_form", form="import m; m.f()") == "=> 1"
    write("src/m.py", "def f(:\n")
    assert "src/m.py:1:\n    def f(:\n          ^" in desk.failure("load_file", path="src/m.py")


@pytest.mark.parametrize("language", LANGUAGES)
def test_loading_is_taken_back_by_undo(live, language):
    """An evaluation as others: it leaves a state."""
    desk, write = at_work(live, language)
    name, text = desk.either(("u.lisp", "(defun u () 1)\n"), ("src/u.py", "def u(): return 1\n"))
    write(name, text)
    desk.text("load_file", path=name)
    desk.text("undo_last")
    assert desk.evaluate("(fboundp 'u)", "import sys; 'u' in sys.modules") in {"=> NIL", "=> False"}


@pytest.mark.contract("day.forms.edit-load")
@pytest.mark.parametrize("language", LANGUAGES)
def test_an_edit_can_be_made_live_in_the_same_call(live, language):
    """edit_definition with load: the file first, then the image."""
    desk, write = at_work(live, language)
    name, text, code = desk.either(
        ("e.lisp", "(defun e () 1)\n", "(defun e ()\n  2)"),
        ("src/e.py", "def e(): return 1\n", "def e(): return 2"),
    )
    write(name, text)
    desk.text("load_file", path=name)
    answer = desk.text("edit_definition", path=name, name="e", code=code, load=True)
    assert desk.either(f"Loaded {name}", f"took up {name}: e") in answer
    assert desk.evaluate("(e)", "import e; e.e()") == "=> 2"
    broken = desk.either('(defun e () (error "no"))\n(e)', "def e(): return 3\n1 / 0")
    answer = desk.failure("edit_definition", path=name, name="e", code=broken, load=True)
    failed = desk.either("failed: the file was not loaded to its end", "e.py:2: ZeroDivisionError")
    assert failed in answer


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_a_file_prints_and_defines_is_bounded(live, language):
    """At most 8,000 characters; what is left out is counted."""
    desk, write = at_work(live, language)
    lines = [desk.either(f"(defun f{n} () {n})\n", f"def f{n}(): return {n}\n") for n in range(300)]
    name, printing = desk.either(
        ("many.lisp", '(dotimes (n 9000) (princ "xxx "))\n'), ("src/many.py", 'print("xxx " * 9000)\n')
    )
    write(name, "".join([*lines, printing]))
    desk.text("load_file", path=name)
    text = desk.text("load_file", path=name)
    assert "and 297 more" in text
    assert "stdout cut" in text
    assert len(text) <= 8_000


def test_a_file_that_never_ends_is_interrupted(python):
    """A file is run as any code is, within the time limit of the image."""
    desk, write = python
    write("src/endless.py", "while True:\n    pass\n")
    desk.image.timeout, before = 0.5, desk.image.timeout
    try:
        assert "0.5" in desk.failure("load_file", path="src/endless.py")
    finally:
        desk.image.timeout = before


def test_the_wrong_image_and_missing_files_are_refused(lisp):
    """Bad input: what, which, what to try."""
    desk, write = lisp
    write("f.py", "x = 1\n")
    write("f.lisp", "")
    write("f.txt", "")
    assert "f.py is Python, and sbcl is an image of Lisp" in desk.failure("load_file", path="f.py")
    assert "g.lisp does not exist" in desk.failure("load_file", path="g.lisp")
    assert "outside the project" in desk.failure("load_file", path="../f.lisp")
    assert "neither Lisp nor Python" in desk.failure("load_file", path="f.txt")
    assert "as_script is for Python" in desk.failure("load_file", path="f.lisp", as_script=True)
    assert desk.text("load_file", path="f.lisp") == "Loaded f.lisp."
    answer = desk.text("edit_definition", path="f.py", name="x", code="x = 2", load=True)
    assert "It was not loaded: there is no image of Python." in answer


@pytest.mark.contract("day.forms.newer-python")
def test_syntax_that_is_newer_than_the_host_is_read_by_the_image(tmp_path):
    """A project may have a newer interpreter than the one that gramercy runs on."""
    newer = [found for minor in (14, 13, 12) if (found := shutil.which(f"python3.{minor}"))]
    if sys.version_info >= (3, 12) or not newer:
        pytest.skip("needs a newer Python than this one")
    image = open_image("python", project=tmp_path, sandbox=SANDBOX, environment=Environment(python=newer[0]))
    desk = Desk(image, Workspace(tmp_path), "python")
    path = tmp_path / "new.py"
    path.write_text("type Names = list[str]\n\n\nclass Box[T]:\n    def open(self):\n        return 1\n")
    try:
        assert desk.text("check_syntax", path="new.py") == "new.py: ok, 2 top-level statements."
        assert "was never closed" in desk.text("check_syntax", code="type X = (")
        answer = desk.text(
            "edit_definition", path="new.py", name="Box.open", code="def open[S](self):\n    return 2"
        )
        assert answer.startswith("Replaced Box.open.")
        assert path.read_text().endswith("class Box[T]:\n    def open[S](self):\n        return 2\n")
        assert "read as Python 3.1" in desk.failure(
            "edit_definition", path="new.py", name="Box", code="class Box[T:"
        )
        desk.text("edit_definition", path="new.py", name="Names", code="type Names = list[int]")
    finally:
        image.close()
