"""Twelve questions that a model asks of a live image, and the facts that a good answer to each has.

The facts were written down before anything was counted. A pattern finds a fact however it is worded; what a
server says of itself in the place of the user's program counts as missing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

LISP_PROGRAM = """(defpackage :garden (:use :cl) (:export #:plant #:grow #:water #:with-plant))
(in-package :garden)

(defvar *plants* '() "All plants.")

(defclass plant ()
  ((name :initarg :name :reader plant-name :documentation "What people call it.")
   (height :initarg :height :initform 0 :accessor plant-height))
  (:documentation "Something that grows."))

(defclass tree (plant)
  ((rings :initform 1 :allocation :class :accessor tree-rings)))

(defun grow (plant &key (days 1) (rate 1.0))
  "Let PLANT grow for some DAYS."
  (incf (plant-height plant) (* days rate)))

(defgeneric water (plant amount)
  (:documentation "Give PLANT some water."))

(defmethod water ((plant plant) amount)
  (grow plant :days amount)
  plant)

(defun tend (plants)
  "Grow all PLANTS."
  (dolist (plant plants)
    (grow plant :days 2))
  (length plants))

(defun list-plants ()
  (mapcar #'plant-name *plants*))

(defmacro with-plant ((var name &rest options) &body body)
  "Run BODY with VAR bound to a new plant."
  `(let ((,var (make-instance 'plant :name ,name ,@options))) ,@body))
"""

LISP_SYSTEM = '(defsystem "garden" :components ((:file "garden")))\n'
PYTHON_PROGRAM = '''"""A garden."""

from contextlib import contextmanager

PLANTS = []


class Plant:
    """Something that grows."""

    kingdom = "Plantae"

    def __init__(self, name: str, height: float = 0.0) -> None:
        self.name = name
        self.height = height

    @property
    def is_tall(self) -> bool:
        """Whether it is taller than a person."""
        return self.height > 2

    @classmethod
    def seed(cls, name: str) -> "Plant":
        return cls(name)

    def water(self, amount: int) -> "Plant":
        grow(self, days=amount)
        return self


class Tree(Plant):
    rings = 1


def grow(plant: Plant, *, days: int = 1, rate: float = 1.0) -> float:
    """Let a plant grow for some days."""
    plant.height += days * rate
    return plant.height


def tend(plants):
    """Grow all plants."""
    for plant in plants:
        grow(plant, days=2)
    return len(plants)


def list_plants():
    return [plant.name for plant in PLANTS]


@contextmanager
def with_plant(name, *options, tall=False):
    """Give a new plant."""
    yield Plant(name)
'''


@dataclass(frozen=True, slots=True)
class Fact:
    """Something an answer tells. With `absent` it is good that the pattern does not occur."""

    says: str
    pattern: str
    absent: bool = False

    def is_in(self, text: str) -> bool:
        """Look for it."""
        return bool(re.search(self.pattern, text, re.IGNORECASE | re.DOTALL)) is not self.absent


@dataclass(frozen=True, slots=True)
class Question:
    """A question: how each server is asked (tool, arguments), and the facts of a good answer."""

    title: str
    ask: dict[str, tuple[str, dict[str, Any]]]
    facts: tuple[Fact, ...]


# Packages and modules of the servers, which are of no use in an answer about the user's program.
_SERVERS = r"GRAMERCY|CL-MCP|gramercy[./]|ipykernel|jupyter_mcp"
_NO_INTERNALS = Fact("nothing of the server's own program", _SERVERS, absent=True)
_MANY = r"\b\d{1,5} (of|more|matches|symbols|names|in \d+ (packages|modules))|(total|found)\D{0,12}\d{2,5}"
_BOUNDED = Fact("at most 8,000 characters", r"\A.{8001}", absent=True)
_LISP_PLACE = Fact("the file", r"garden\.lisp")
_PYTHON_PLACE = Fact("the file", r"garden\.py")


def _line(program: str, *starts: str) -> Fact:
    """Make the fact that the line is told on which one of some texts is."""
    lines = program.split("\n")
    numbers = "|".join(
        str(number) for number, line in enumerate(lines, 1) if line.lstrip().startswith(starts)
    )
    return Fact("the right line", rf"garden\.(lisp|py)\D{{1,12}}({numbers})\b")


OURS, CL_MCP, CL_MCP_SERVER, JUPYTER = "gramercy", "cl-mcp", "cl-mcp-server", "jupyter-mcp-server"
_LEAK = '(defun leak (x y) (undefined-pump x))\n(format t "watered~%")\n(warn "dry soil")\n(values 7 :wet)'
_LONG = "(loop for i below 20000 collect i)"


def _lisp(code: str) -> dict[str, tuple[str, dict[str, Any]]]:
    return {
        OURS: ("evaluate-lisp", {"code": code}),
        CL_MCP: ("repl-eval", {"code": code}),
        CL_MCP_SERVER: ("evaluate-lisp", {"code": code}),
    }


LISP = (
    Question(
        "evaluate one form",
        _lisp("(+ 1 2)"),
        (Fact("the value", r"\b3\b"),),
    ),
    Question(
        "evaluate with output and warnings",
        _lisp(_LEAK),
        (
            Fact("the first value", r"\b7\b"),
            Fact("the second value", r"\bWET\b"),
            Fact("the output", r"watered"),
            Fact("the output is told apart", r"(stdout|output)\W.{0,60}watered"),
            Fact("the warning", r"dry soil"),
            Fact("the warning is told apart", r"warning\W.{0,80}dry soil"),
            Fact("the undefined function", r"undefined.{0,80}PUMP"),
            Fact("the variable that is never used", r"\bY\b.{0,60}never used"),
        ),
    ),
    Question(
        "an error with its backtrace",
        _lisp("(garden::tend (list 5))"),
        (
            Fact("the type of the condition", r"NO-APPLICABLE-METHOD"),
            Fact("the generic function", r"PLANT-HEIGHT"),
            Fact("the argument", r"\(5\)"),
            Fact("the frame of the function at fault", r"\bGROW\b"),
            Fact("the frame of its caller", r"\bTEND\b"),
            _line(LISP_PROGRAM, "(defun grow", "(incf", "(grow", "(defun tend"),
            Fact("the restarts", r"restart|ABORT"),
            _NO_INTERNALS,
        ),
    ),
    Question(
        "a function that does not exist",
        _lisp("(garden::grwo 1)"),
        (
            Fact("that it is undefined", r"undefined|not defined"),
            Fact("its name", r"GRWO"),
            Fact("its package", r"GARDEN"),
            Fact("what was meant", r"(mean|similar|close|like).{0,60}\bGROW\b"),
        ),
    ),
    Question(
        "describe a function",
        {
            OURS: ("describe_symbol", {"symbol": "garden:grow"}),
            CL_MCP: ("code-describe", {"symbol": "garden:grow"}),
            CL_MCP_SERVER: ("describe-symbol", {"name": "grow", "package": "GARDEN"}),
        },
        (
            Fact("that it is a function", r"function"),
            Fact("the parameters", r"PLANT &KEY"),
            Fact("the defaults", r"DAYS 1\).{0,20}RATE 1\.0\)"),
            Fact("the documentation", r"Let PLANT grow"),
            Fact("that it is exported", r"external|exported"),
            Fact("its type", r"\btype\b.{0,40}(->|FUNCTION|VALUES)|\(FUNCTION "),
            _LISP_PLACE,
            _line(LISP_PROGRAM, "(defun grow"),
        ),
    ),
    Question(
        "describe a class",
        {
            OURS: ("describe_symbol", {"symbol": "garden:plant"}),
            CL_MCP: ("code-describe", {"symbol": "garden:plant"}),
            CL_MCP_SERVER: ("class-info", {"class": "plant", "package": "GARDEN"}),
        },
        (
            Fact("that it is a class", r"class"),
            Fact("the superclass", r"STANDARD-OBJECT"),
            Fact("the subclass", r"\bTREE\b"),
            Fact("the slots", r"\bNAME\b.*\bHEIGHT\b"),
            Fact("an initarg", r":HEIGHT"),
            Fact("an initform", r"initform\W+0"),
            Fact("an accessor", r"PLANT-HEIGHT"),
            Fact("the documentation of the class", r"Something that grows"),
            Fact("the documentation of a slot", r"What people call it"),
            Fact("a method that takes it", r"\bWATER\b"),
            _LISP_PLACE,
            _line(LISP_PROGRAM, "(defclass plant"),
        ),
    ),
    Question(
        "the arguments of a macro",
        {
            OURS: ("describe_symbol", {"symbol": "garden:with-plant"}),
            CL_MCP: ("code-describe", {"symbol": "garden:with-plant"}),
            CL_MCP_SERVER: ("describe-symbol", {"name": "with-plant", "package": "GARDEN"}),
        },
        (
            Fact("the whole lambda list", r"\(\S*VAR \S*NAME &REST \S*OPTIONS\) &BODY \S*BODY"),
            Fact("that it is a macro", r"macro"),
        ),
    ),
    Question(
        "who calls a function",
        {
            OURS: ("who_calls", {"function": "garden:grow"}),
            CL_MCP: ("code-find-references", {"symbol": "garden:grow", "project_only": False}),
            CL_MCP_SERVER: ("who-calls", {"name": "grow", "package": "GARDEN"}),
        },
        (
            Fact("the function that calls it", r"\bTEND\b"),
            Fact("the method that calls it", r"\bWATER\b"),
            Fact("how many they are", r"\b2\b"),
            _LISP_PLACE,
            _line(LISP_PROGRAM, "(defun tend", "(defmethod water", "(grow"),
        ),
    ),
    Question(
        "names that contain LIST",
        {
            OURS: ("apropos_search", {"pattern": "list"}),
            CL_MCP: ("repl-eval", {"code": '(apropos "LIST")'}),
            CL_MCP_SERVER: ("apropos-search", {"pattern": "list"}),
        },
        (
            Fact("the name of the user's program", r"LIST-PLANTS"),
            Fact("that name among the first", r"\A.{0,400}LIST-PLANTS"),
            Fact("a name of the standard", r"MAPLIST|LIST\*"),
            Fact("what kind a name is", r"function|macro|generic|variable|fbound"),
            Fact(
                "how many there are",
                _MANY,
            ),
            _BOUNDED,
            _NO_INTERNALS,
        ),
    ),
    Question(
        "a long value",
        _lisp(_LONG),
        (
            Fact("the beginning", r"0 1 2 3"),
            Fact("that it is cut", r"\bcut\b|truncat|\bmore\b|\.\.\.|…|first \d"),
            Fact("how much is shown of how much", r"of [\d,]{4,}|[\d,]{4,} (more|characters)|20,?000"),
            Fact("how to read on", r"read_output|inspect|offset|object[_ -]?id|max_output|limit"),
            _BOUNDED,
        ),
    ),
    Question(
        "a misspelled argument",
        {
            OURS: ("describe_symbol", {"symbl": "garden:grow"}),
            CL_MCP: ("code-describe", {"symbl": "garden:grow"}),
            CL_MCP_SERVER: ("describe-symbol", {"nam": "grow"}),
        },
        (
            Fact("that the call failed", r"error|invalid|missing|required|unknown"),
            Fact("the argument that is missing", r"\bsymbol\b|\bname\b"),
            Fact("the argument that was given", r"symbl|\bnam\b"),
        ),
    ),
)


def _python(code: str) -> dict[str, tuple[str, dict[str, Any]]]:
    return {OURS: ("evaluate-python", {"code": code}), JUPYTER: ("execute_code", {"code": code})}


PYTHON = (
    Question("evaluate one expression", _python("1 + 2"), (Fact("the value", r"\b3\b"),)),
    Question(
        "evaluate with output and a warning",
        _python('import warnings\nprint("watered")\nwarnings.warn("dry soil")\n7'),
        (
            Fact("the value", r"\b7\b"),
            Fact("the output", r"watered"),
            Fact("the output is told apart", r"(stdout|output)\W.{0,60}watered"),
            Fact("the warning", r"dry soil"),
            Fact("its kind", r"UserWarning"),
        ),
    ),
    Question(
        "an error with its traceback",
        _python("import garden\ngarden.tend([5])"),
        (
            Fact("the type of the error", r"AttributeError"),
            Fact("the message", r"'int' object has no attribute 'height'"),
            Fact("the frame of the function at fault", r"\bgrow\b"),
            Fact("the frame of its caller", r"\btend\b"),
            Fact("the source of the line at fault", r"plant\.height \+= days"),
            _line(PYTHON_PROGRAM, "plant.height +=", "grow(plant"),
            _NO_INTERNALS,
        ),
    ),
    Question(
        "a function that does not exist",
        _python("garden.grwo(1)"),
        (
            Fact("that it is not there", r"no attribute|not defined|NameError"),
            Fact("its name", r"grwo"),
            Fact("its module", r"garden"),
            Fact("what was meant", r"(mean|similar|close|like).{0,60}\bgrow\b"),
        ),
    ),
    Question(
        "describe a function",
        {
            OURS: ("describe_symbol", {"symbol": "garden.grow"}),
            JUPYTER: ("execute_code", {"code": "help(garden.grow)"}),
        },
        (
            Fact("that it is a function", r"function"),
            Fact("the parameters and defaults", r"days: int = 1, rate: float = 1\.0"),
            Fact("what it returns", r"-> float"),
            Fact("the documentation", r"Let a plant grow"),
            _PYTHON_PLACE,
            _line(PYTHON_PROGRAM, "def grow"),
        ),
    ),
    Question(
        "describe a class",
        {
            OURS: ("describe_symbol", {"symbol": "garden.Plant"}),
            JUPYTER: ("execute_code", {"code": "help(garden.Plant)"}),
        },
        (
            Fact("that it is a class", r"class"),
            Fact("the subclass", r"\bTree\b"),
            Fact("how one is made", r"name: str, height: float = 0\.0"),
            Fact("the attributes of an instance", r"attribute.{0,200}\bheight\b|\bself\.height\b"),
            Fact("the attribute of the class", r"kingdom"),
            Fact("a method", r"water\(.*amount: int"),
            Fact("that one is a class method", r"class ?method|\[class\]"),
            Fact("that one is a property", r"property|readonly"),
            Fact("the documentation", r"Something that grows"),
            _PYTHON_PLACE,
            _line(PYTHON_PROGRAM, "class Plant"),
        ),
    ),
    Question(
        "the arguments of a decorated function",
        {
            OURS: ("describe_symbol", {"symbol": "garden.with_plant"}),
            JUPYTER: ("execute_code", {"code": "import inspect; inspect.signature(garden.with_plant)"}),
        },
        (
            Fact("the parameters", r"name, \*options, tall=False"),
            Fact("its name", r"with_plant"),
        ),
    ),
    Question(
        "who calls a function",
        {OURS: ("who_calls", {"function": "garden.grow"})},
        (
            Fact("the function that calls it", r"\btend\b"),
            Fact("the method that calls it", r"Plant\.water"),
            Fact("how many they are", r"\b2\b"),
            _PYTHON_PLACE,
            _line(PYTHON_PROGRAM, "def tend", "def water", "grow("),
        ),
    ),
    Question(
        "names that contain list",
        {OURS: ("apropos_search", {"pattern": "list"})},
        (
            Fact("the name of the user's program", r"list_plants"),
            Fact("that name among the first", r"\A.{0,400}list_plants"),
            Fact("a name of the standard library", r"\blist\b"),
            Fact("what kind a name is", r"function|class|module"),
            Fact(
                "how many there are",
                _MANY,
            ),
            _BOUNDED,
            _NO_INTERNALS,
        ),
    ),
    Question(
        "a long value",
        _python("list(range(20000))"),
        (
            Fact("the beginning", r"0,\s+1,\s+2"),
            Fact("that it is cut", r"\bcut\b|truncat|\bmore\b|\.\.\.|…|first \d"),
            Fact("how much is shown of how much", r"of [\d,]{4,}|[\d,]{4,} (more|characters)|20,?000"),
            Fact("how to read on", r"read_output|inspect|offset|object[_ -]?id|limit"),
            _BOUNDED,
        ),
    ),
    Question(
        "a misspelled argument",
        {
            OURS: ("describe_symbol", {"symbl": "garden.grow"}),
            JUPYTER: ("execute_code", {"cod": "1"}),
        },
        (
            Fact("that the call failed", r"error|invalid|missing|required|unknown"),
            Fact("the argument that is missing", r"\bsymbol\b|\bcode\b"),
            Fact("the argument that was given", r"symbl|\bcod\b"),
        ),
    ),
)
