"""edit_definition through the guard: one definition is changed by its name, or nothing is."""

from __future__ import annotations

import json

import pytest

from gramercy.execution.approval import Approved, Denied, Modified
from gramercy.toolsets import hunks

LISP = """\
(in-package #:shapes)

;;;; Areas

;; How large a shape (seen flat) is.
(defgeneric area (shape)
  (:documentation "The area; not the ( volume."))

(defmethod area ((s circle))
  (* pi (expt (radius s) 2)))

(defmethod area :around ((s circle))
  (round (call-next-method)))

#+sbcl
(defun fast () 1)
#-sbcl
(defun fast () 2)

(defun (setf name) (new shape)
  (setf (slot-value shape 'name) new))
"""
PYTHON = '''\
import math

LIMIT = 3


class Circle:
    """A circle."""

    def __init__(self, radius):
        self.radius = radius

    # The area of it.
    @property
    def area(self):
        return math.pi * self.radius ** 2


class Square:
    @property
    def side(self):
        return self._side

    @side.setter
    def side(self, value):
        self._side = value

    def area(self):
        return self.side ** 2
'''


@pytest.fixture
def lisp(project):
    path = project / "f.lisp"
    path.write_text(LISP)
    return path


@pytest.fixture
def python(project):
    path = project / "f.py"
    path.write_text(PYTHON)
    return path


def asking(desk, approver):
    return type(desk)(desk.image, desk.workspace, approver=approver)


def edit(desk, path, name, code="", action="replace", **more):
    given = {"code": code} if code else {}
    return desk.text("edit_definition", path=path.name, name=name, action=action, **given, **more)


def refused(desk, path, name, code="", action="replace"):
    """Return why an edit was refused; nobody must have been asked, and the file is as it was."""
    before, asked = path.read_bytes(), []
    given = {"code": code} if code else {}
    text = asking(desk, lambda *_: asked.append(1)).failure(
        "edit_definition", path=path.name, name=name, action=action, **given
    )
    assert not asked, text
    assert path.read_bytes() == before
    return text


@pytest.mark.contract("day.forms.replace")
def test_a_lisp_function_is_replaced_by_its_name(paper_desk, lisp):
    """edit_definition: the form, and nothing around it."""
    code = "(defun (setf name) (new shape)\n  (setf (shape-name shape) new))"
    answer = edit(paper_desk, lisp, "(setf name)", code)
    assert answer == "Replaced (defun (setf name)). Edited f.lisp:21 (-1 +1 line)"
    assert lisp.read_text() == LISP.replace("(slot-value shape 'name)", "(shape-name shape)")


@pytest.mark.contract("day.forms.replace")
def test_a_python_method_is_replaced_and_indented(paper_desk, python):
    """edit_definition: code at column 0 comes to stand in its class."""
    answer = edit(paper_desk, python, "Square.area", "def area(self):\n    return self.side * self.side\n")
    assert answer == "Replaced Square.area. Edited f.py:28 (-1 +1 line)"
    assert python.read_text() == PYTHON.replace("self.side ** 2", "self.side * self.side")


@pytest.mark.contract("day.forms.comments")
def test_comments_stay_unless_the_code_has_its_own(paper_desk, lisp, python):
    """edit_definition: comments before the definition."""
    edit(paper_desk, lisp, "(defgeneric area)", "(defgeneric area (shape))")
    assert ";; How large a shape (seen flat) is.\n(defgeneric area (shape))\n\n" in lisp.read_text()
    edit(paper_desk, lisp, "(defgeneric area)", ";; Size.\n(defgeneric area (shape))")
    assert ";;;; Areas\n\n;; Size.\n(defgeneric area (shape))\n\n" in lisp.read_text()
    edit(paper_desk, python, "Circle.area", "# New.\n@property\ndef area(self):\n    return 0")
    assert "    # New.\n    @property\n    def area(self):\n        return 0\n" in python.read_text()
    assert "The area of it" not in python.read_text()


@pytest.mark.contract("day.forms.candidates")
def test_a_name_with_two_definitions_is_answered_with_names_for_each(paper_desk, lisp, python):
    """edit_definition: every candidate with its line and how to name it."""
    text = refused(paper_desk, lisp, "area", "(defun area ())")
    assert "3 definitions of area" in text
    exact = [line.rpartition("  (line ")[0] for line in text.splitlines()[1:4]]
    assert exact == [
        "(defgeneric area)",
        "(defmethod area ((s circle)))",
        "(defmethod area :around ((s circle)))",
    ]
    for name in exact:
        lisp.write_text(LISP)
        assert name in edit(paper_desk, lisp, name, "(defvar *there*)")
    lisp.write_text(LISP)
    assert "fast@16  (line 16)\nfast@18" in refused(paper_desk, lisp, "fast", "(defun fast ())")
    assert "Circle.area  (line 14)" in refused(paper_desk, python, "area", "def area(self): pass")
    text = refused(paper_desk, python, "Square.side", "x = 1")
    assert "Square.side@20  (line 20)\nSquare.side@24  (line 24)" in text
    assert "Replaced Square.side" in edit(
        paper_desk, python, "Square.side@24", "@side.setter\ndef side(self, v):\n    self._side = v"
    )
    assert python.read_text().count("def side(self") == 2


@pytest.mark.contract("day.forms.names")
@pytest.mark.parametrize(
    "name",
    [
        "(METHOD SHAPES::AREA :AROUND (CIRCLE))",
        "(SHAPES::AREA :AROUND (SHAPES::CIRCLE))",
        "SHAPES::AREA :AROUND (SHAPES::CIRCLE)",
        "SHAPES::AREA: method :AROUND (SHAPES::CIRCLE)",
        "(defmethod shapes:area :around ((any shapes::circle)",
    ],
)
def test_a_method_is_found_as_other_tools_print_it(paper_desk, lisp, name):
    """Names of other tools can be given back."""
    edit(paper_desk, lisp, name, "(defmethod area :around ((s circle)) 1)")
    assert "(defmethod area :around ((s circle)) 1)\n\n#+sbcl" in lisp.read_text()


def test_a_setf_method_and_eql_specializers_are_found_as_they_are_printed(paper_desk, lisp):
    """Names of other tools can be given back."""
    lisp.write_text(
        "(defmethod (setf a) (v (c p:c)) 1)\n(defmethod a ((x (eql 'p::b))) 1)\n(defmethod a ((x c)) 1)\n"
    )
    edit(paper_desk, lisp, "(SETF P::A): method (T P:C)", "(defmethod (setf a) (v (c c)) 2)")
    edit(paper_desk, lisp, "((SETF A) (T C))", "(defmethod (setf a) (v (c c)) 3)")
    edit(paper_desk, lisp, "(A ((EQL P::B)))", "(defmethod a ((x (eql 'b))) 2)")
    assert lisp.read_text().split("\n")[:2] == [
        "(defmethod (setf a) (v (c c)) 3)",
        "(defmethod a ((x (eql 'b))) 2)",
    ]


def test_a_python_name_may_begin_with_its_module(paper_desk, project):
    """Names of other tools can be given back."""
    (project / "src" / "pkg").mkdir(parents=True)
    path = project / "src" / "pkg" / "m.py"
    path.write_text("class A:\n    def f(self): return 1\n")
    paper_desk.text("edit_definition", path="src/pkg/m.py", name="pkg.m.A.f", code="def f(self): return 2")
    assert "return 2" in path.read_text()
    text = paper_desk.failure("edit_definition", path="src/pkg/m.py", name="other.m.A.f", code="x = 1")
    assert "no definition of other.m.A.f" in text


def test_a_name_in_two_packages_is_told_apart_by_the_package(paper_desk, lisp):
    """Bad input: names that exist in two packages."""
    lisp.write_text("(in-package :a)\n(defun f () 1)\n(in-package #:b)\n(defun f () 2)\n")
    text = refused(paper_desk, lisp, "f", "(defun f () 3)")
    assert "f@2  (line 2, package A)\nf@4  (line 4, package B)" in text
    edit(paper_desk, lisp, "b::f", "(defun f () 3)")
    assert lisp.read_text().endswith("(defun f () 3)\n")
    assert "(defun f () 1)" in lisp.read_text()


def test_a_conditional_stays_before_what_is_replaced_and_goes_with_what_is_deleted(paper_desk, lisp):
    """A conditional left behind would take the next form."""
    edit(paper_desk, lisp, "fast@16", "(defun fast () 3)")
    assert "#+sbcl\n(defun fast () 3)\n#-sbcl\n" in lisp.read_text()
    edit(paper_desk, lisp, "fast@16", action="delete")
    assert "sbcl" in lisp.read_text()
    assert "#+sbcl" not in lisp.read_text()


@pytest.mark.contract("day.forms.insert")
def test_definitions_are_inserted_with_the_blank_lines_of_the_file(paper_desk, lisp, python):
    """edit_definition: insert_before and insert_after."""
    edit(paper_desk, lisp, "(defgeneric area)", "(defclass circle () ())", "insert_before")
    assert ";;;; Areas\n\n(defclass circle () ())\n\n;; How large" in lisp.read_text()
    edit(paper_desk, lisp, "(setf name)", "(defvar *last*)\n", "insert_after")
    assert lisp.read_text().endswith("'name) new))\n\n(defvar *last*)\n")
    edit(paper_desk, python, "Circle.__init__", "def grow(self):\n    self.radius += 1", "insert_after")
    assert "= radius\n\n    def grow(self):\n        self.radius += 1\n\n    # The area" in python.read_text()
    edit(paper_desk, python, "Circle", "def helper():\n    pass", "insert_before")
    assert "LIMIT = 3\n\n\ndef helper():\n    pass\n\n\nclass Circle:" in python.read_text()
    edit(paper_desk, python, "LIMIT", "LEAST = 1", "insert_after")
    assert "LIMIT = 3\nLEAST = 1\n\n\ndef helper" in python.read_text()


@pytest.mark.contract("day.forms.delete")
def test_a_deleted_definition_leaves_no_hole(paper_desk, lisp, python):
    """edit_definition: delete, with comments and decorators."""
    edit(paper_desk, python, "Circle.area", action="delete")
    assert "self.radius = radius\n\n\nclass Square:" in python.read_text()
    edit(paper_desk, python, "Square.area", action="delete")
    assert python.read_text().endswith("self._side = value\n")
    edit(paper_desk, lisp, "(defgeneric area)", action="delete")
    assert ";;;; Areas\n\n(defmethod area ((s circle))" in lisp.read_text()


@pytest.mark.contract("day.forms.syntax")
def test_code_that_cannot_be_read_is_refused_with_its_place(paper_desk, lisp, python):
    """edit_definition: the place of an imbalance, the caret of a syntax error."""
    code = "(defun fast ()\n  (let ((x 1))\n    (print x)\n  (list x))"
    text = refused(paper_desk, lisp, "fast@16", code)
    assert (
        "code:1:1: the form that begins here is not closed: a ) is missing\n    (defun fast ()\n    ^\n"
        in text
    )
    assert "by the indentation of line 4, the list that begins on line 2 ((let) should end on line 3" in text
    text = refused(paper_desk, lisp, "fast@16", "(defun fast ()\n  1))")
    assert "code:2:5: this ) closes nothing\n      1))\n        ^" in text
    text = refused(paper_desk, lisp, "fast@16", '(defun fast () "abc)')
    assert "code:1:16: the string that begins here is not closed" in text
    text = refused(paper_desk, python, "Square.area", "def area(self):\n    return (1,")
    assert "code:2:12: '(' was never closed\n        return (1,\n               ^" in text


def test_a_change_after_which_the_file_cannot_be_read_is_refused(paper_desk, python):
    """edit_definition: the result must parse as a whole."""
    python.write_text("def f():\n    pass\n\n\nif True:\n    def g():\n        pass\n")
    text = refused(paper_desk, python, "g", action="delete")
    assert "What is around it would be empty" in text
    assert "f.py:5:" in text
    assert "'return' outside function" in refused(paper_desk, python, "f", "return 1")


def test_a_form_that_is_not_closed_can_be_replaced(paper_desk, lisp):
    """A broken definition is repaired by its name, where it is the only one that is broken."""
    lisp.write_text("(defun f (x)\n  (list x)\n\n(defun g () 1)\n")
    text = refused(paper_desk, lisp, "g", "(defun g () 2)")
    assert "f.lisp:1:1: the form that begins here is not closed" in text
    edit(paper_desk, lisp, "f", "(defun f (x)\n  (list x))")
    assert lisp.read_text() == "(defun f (x)\n  (list x))\n\n(defun g () 1)\n"


@pytest.mark.contract("day.forms.told")
def test_what_may_not_have_been_meant_is_told(paper_desk, lisp, python):
    """edit_definition: another name, no definition, decorators that are gone."""
    assert "The code defines quick, not fast." in edit(paper_desk, lisp, "fast@16", "(defun quick () 1)")
    assert "The code has no definition." in edit(paper_desk, lisp, "fast", "(print 1)")
    answer = edit(paper_desk, python, "Circle.area", "def area(self):\n    return 1")
    assert "The decorators are gone with the old text: @property" in answer
    assert "documentation" not in answer
    answer = edit(paper_desk, python, "Circle", "class Circle:\n    pass")
    assert "The old text had documentation, and the code has none." in answer
    lisp.write_text('(defun f ()\n  "Tell."\n  1)\n(defun g ()\n  "text")\n')
    assert "The old text had documentation" in edit(paper_desk, lisp, "f", "(defun f () 2)")
    assert "documentation" not in edit(paper_desk, lisp, "g", "(defun g () 2)")
    answer = edit(paper_desk, python, "LIMIT", "LIMIT = 1\nLEAST = 0")
    assert "The code has 2 definitions: LIMIT, LEAST." in answer


@pytest.mark.contract("day.forms.missing")
def test_a_missing_name_is_answered_with_near_ones(paper_desk, lisp, python):
    """Bad input: did you mean, with lines."""
    assert "f.py has no definition of Circle.aera. Did you mean Circle.area (line 14)" in refused(
        paper_desk, python, "Circle.aera", "x = 1"
    )
    assert "It has area (6), fast (16), (setf name) (20)." in refused(paper_desk, lisp, "zzz", "(print 1)")
    assert "there is no fast on line 6 of f.lisp" in refused(paper_desk, lisp, "fast@6", "(print 1)")
    lisp.write_text("\n")
    assert "It has no definitions" in refused(paper_desk, lisp, "zzz", "(print 1)")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (("area", " \n ", "replace"), "code is empty"),
        (("Square.area", "", "insert_after"), "code is empty"),
        (("Square.area", "x = 1", "delete"), "delete takes no code"),
        (("@1", "x = 1", "replace"), "there is no definition on line 1"),
    ],
)
def test_calls_that_make_no_sense_are_refused(paper_desk, python, call, expected):
    """Bad input: what, which, what to try."""
    assert expected in refused(paper_desk, python, *call)


def test_a_definition_that_shares_its_line_is_left_to_edit_file(paper_desk, python):
    """Bad input: nothing is cut out of a line."""
    python.write_text("a = 1; b = 2\n")
    assert "a shares line 1 with something else: use edit_file" in refused(paper_desk, python, "a", "a = 2")


def test_files_of_other_kinds_are_refused(paper_desk, project):
    """Bad input: binary, huge, other languages, not there."""
    (project / "f.txt").write_text("def f(): pass\n")
    assert "neither Lisp nor Python" in refused(paper_desk, project / "f.txt", "f", "x")
    (project / "f.py").write_bytes(b"\x00\x01")
    assert "not a text file" in refused(paper_desk, project / "f.py", "f", "x")
    (project / "g.py").write_text("x = 1\n" * 400_000)
    assert "too many to look for definitions" in refused(paper_desk, project / "g.py", "x", "x = 2")
    (project / "h.py").write_text("def f(:\n")
    assert "h.py:1:7: invalid syntax" in refused(paper_desk, project / "h.py", "f", "x = 1")
    text = paper_desk.failure("edit_definition", path="none.py", name="f", code="x")
    assert "none.py does not exist" in text


def test_line_ends_tabs_form_feeds_and_encodings_are_kept(paper_desk, project):
    """Bad input that is none: CRLF, tabs, form feeds, Latin-1."""
    path = project / "f.py"
    path.write_bytes(b"class A:\r\n\tdef f(self):\r\n\t\treturn 1\r\n")
    edit(paper_desk, path, "A.f", "def f(self):\n    if self:\n        return 2")
    assert path.read_bytes() == b"class A:\r\n\tdef f(self):\r\n\t\tif self:\r\n\t\t\treturn 2\r\n"
    path.write_bytes(b"x = 1\n\x0c\ndef f():\n    return '\xe4'\n")
    edit(paper_desk, path, "f", "def f():\n    return 'ö'")
    assert path.read_bytes() == b"x = 1\n\x0c\ndef f():\n    return '\xf6'\n"
    path = project / "f.lisp"
    path.write_bytes(b"(a)\r\n\x0c\r\n(defun f ()\r\n\t1)\r\n")
    edit(paper_desk, path, "f", "(defun f ()\n\t2)")
    assert path.read_bytes() == b"(a)\r\n\x0c\r\n(defun f ()\r\n\t2)\r\n"


@pytest.mark.contract("day.forms.tabs")
def test_a_lisp_form_that_is_indented_with_tabs_is_put_back_as_it_was(paper_desk, lisp):
    """A tab reaches to the next column that 8 divides: one tab is further in than two blanks."""
    form = '(def-call-out %send (:name "send")\n    (:arguments (socket int)\n\t\t(flags int)))'
    text = f"#+clisp\n(progn\n  {form})\n"
    lisp.write_text(text)
    edit(paper_desk, lisp, "%send", form.replace("int", "long"))
    assert lisp.read_text() == text.replace("int", "long")
    edit(paper_desk, lisp, "%send", form)
    assert lisp.read_text() == text


@pytest.mark.contract("day.forms.tabs")
def test_lisp_code_with_tabs_moves_in_by_columns(paper_desk, lisp):
    """Blanks before a tab would be swallowed by it."""
    lisp.write_text("(progn\n  (defun f ()\n    1))\n")
    edit(paper_desk, lisp, "f", "(defun f ()\n  (list 1\n\t2))")
    assert lisp.read_text() == "(progn\n  (defun f ()\n    (list 1\n          2)))\n"
    lisp.write_text("(progn\n\t(defun f ()\n\t  1))\n")
    edit(paper_desk, lisp, "f", "(defun f ()\n  (list 1\n\t2))")
    assert lisp.read_text() == "(progn\n\t(defun f ()\n\t  (list 1\n\t\t2)))\n"


def test_strings_over_several_lines_are_not_indented(paper_desk, python, lisp):
    """The text of a string is no indentation; a docstring is indented by habit."""
    code = 'def area(self):\n    """Tell.\n\n    More.\n    """\n    return """a\n  b\nc"""'
    edit(paper_desk, python, "Square.area", code)
    shown = '        """Tell.\n\n        More.\n        """\n        return """a\n  b\nc"""\n'
    assert python.read_text().endswith(f"    def area(self):\n{shown}")
    lisp.write_text("(progn\n  (defun f ()\n    1))\n")
    edit(paper_desk, lisp, "f", '(defun f ()\n  "a\nb"\n  2)')
    assert lisp.read_text() == '(progn\n  (defun f ()\n    "a\nb"\n    2))\n'


def test_a_comment_at_the_end_of_the_code_takes_nothing_along(paper_desk, lisp):
    """What follows on the line stays outside of the comment."""
    lisp.write_text("(progn\n  (defun f () 1))\n")
    edit(paper_desk, lisp, "f", "(defun f () 2) ; two")
    assert lisp.read_text() == "(progn\n  (defun f () 2) ; two\n)\n"
    edit(paper_desk, lisp, "f", action="delete")
    assert lisp.read_text() == "(progn)\n"


def test_answers_are_bounded(paper_desk, lisp, python):
    """At most 8,000 characters, whatever names and lines there are."""
    long = "n" * 9_000
    lisp.write_text(f"(defun {long} ())\n" * 100)
    assert len(refused(paper_desk, lisp, long[:-1], "(defun f ())")) < 8_000
    assert len(refused(paper_desk, lisp, long, "(defun f ())")) < 8_000
    assert "… 80 more" in refused(paper_desk, lisp, long, "(defun f ())")
    assert len(refused(paper_desk, lisp, "f", f"({long}\n" * 100)) < 8_000
    code = "\n".join(f"X{number} = 1" for number in range(1000))
    answer = edit(paper_desk, python, "LIMIT", code, "insert_after")
    assert "The code has 1000 definitions: X0, X1" in answer
    assert len(answer) < 500


@pytest.mark.contract("day.forms.cost")
def test_a_change_in_a_long_file_costs_little(paper_desk, project):
    """A one-line change of a 30 KB file costs a few hundred characters, not the file twice."""
    path = project / "long.py"
    path.write_text("".join(f"def f{n}(x):\n    return x + {n}\n\n\n" for n in range(900)))
    assert path.stat().st_size > 30_000
    call = {"path": "long.py", "name": "f77", "code": "def f77(x):\n    return x - 77"}
    answer = paper_desk.text("edit_definition", **call)
    assert len(json.dumps(call)) + len(answer) < 200
    assert "return x - 77" in path.read_text()


@pytest.mark.contract("day.forms.approval")
def test_nothing_is_written_without_an_approval_of_the_difference(paper_desk, python):
    """edit_definition has the guarantees of every edit: asked, shown, sealed."""
    call = {"path": "f.py", "name": "LIMIT", "code": "LIMIT = 4"}
    assert "nobody can be asked" in asking(paper_desk, None).failure("edit_definition", **call)
    shown = []

    def deny(_tool, _arguments, request):
        shown.append(request.effect)
        return Denied("no")

    assert "no" in asking(paper_desk, deny).failure("edit_definition", **call)
    assert "-LIMIT = 3\n+LIMIT = 4\n" in shown[0]
    assert python.read_text() == PYTHON

    calls = []

    def meddle(_tool, _arguments):
        calls.append(1)
        python.write_text("LIMIT = 9\n")
        return Approved() if len(calls) == 1 else Denied("late")

    asking(paper_desk, meddle).failure("edit_definition", **call)
    assert python.read_text() == "LIMIT = 9\n"
    assert len(calls) == 2


def test_the_hunks_that_a_person_took_are_applied(paper_desk, python):
    """Decision 12, for a definition."""
    whole = "class Square:\n" + PYTHON.partition("class Square:\n")[2].replace("    @property\n", "").replace(
        "self.side ** 2", "self.side * 2"
    )

    def second_only(tool, arguments):
        before, after = tool.proposed_edit(arguments)
        assert len(hunks.split(before, after)) == 2
        return Modified(tool.with_edit(arguments, before, hunks.accepted(before, after, [2])))

    asking(paper_desk, second_only).text("edit_definition", path="f.py", name="Square", code=whole)
    assert python.read_text() == PYTHON.replace("self.side ** 2", "self.side * 2")
