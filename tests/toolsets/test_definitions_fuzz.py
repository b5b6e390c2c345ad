"""Any text can be read for definitions: nothing is raised, nothing is out of place, and edits are safe."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gramercy.errors import WorkspaceError
from gramercy.toolsets.lisp_definitions import LISP
from gramercy.toolsets.lisp_text import Reading
from gramercy.toolsets.python_text import PYTHON
from gramercy.toolsets.rewriting import Rewriting, find

LISP_PIECES = [
    "(",
    ")",
    "(defun f ",
    "(defmethod g :after ((x y)) ",
    "#+a ",
    "#|",
    "|#",
    '"',
    "|",
    "\\",
    "#\\(",
    "'",
]
LISP_PIECES += [
    "; c\n",
    "\n",
    " ",
    "#.",
    "#<",
    "#?",
    "`(",
    ",@",
    "x",
    "p::y",
    "#'",
    "(progn\n  ",
    "(in-package p)",
    "\t",
    "\f",
]
PYTHON_PIECES = [
    "def f():\n",
    "    ",
    "\t",
    "pass\n",
    "class A:\n",
    "x = 1\n",
    "# c\n",
    "'''",
    '"',
    "(",
    ")",
    "\n",
    "\\",
]
PYTHON_PIECES += [
    "@d\n",
    "if x:\n",
    "else:\n",
    "async ",
    "é",
    "\f",
    "\r\n",
    "lambda: 0",
    ";",
    "try:\n",
    "    def g(self): pass\n",
]


def texts(pieces):
    return st.lists(st.one_of(st.sampled_from(pieces), st.text(max_size=3)), max_size=30).map("".join)


def check_places(text, outline):
    for each in outline.definitions:
        assert 0 <= each.lead <= each.outer <= each.start < each.end <= len(text)
        assert 1 <= each.line <= each.last_line
    for fault in outline.faults:
        assert fault.line >= 1
        assert fault.column >= 1


def check_edits(text, language, outline):
    """Replace every definition with itself; delete it, and read what is left."""
    rewriting = Rewriting(text, outline, language)
    for each in outline.definitions:
        assert find(outline, language, f"@{each.line}", "f") is not None
        if each.is_alone and not outline.faults:
            gone = rewriting.deleted(each)
            assert len(gone) < len(text)
            rewriting.inserted(each, text[each.outer : each.end], after=True)


@settings(deadline=None, max_examples=300)
@given(texts(LISP_PIECES))
@example("(defun f ()\n  1")
@example("#+a #+b (defun f ()) (defun f ())")
def test_any_lisp_text_can_be_read(text):
    """Bad input: unbalanced, binary, odd."""
    outline = LISP.outline(text)
    check_places(text, outline)
    check_edits(text, LISP, outline)
    ends = [item.end for item in Reading(text).items]
    assert ends == sorted(ends)


@settings(deadline=None, max_examples=300)
@given(texts(PYTHON_PIECES))
def test_any_python_text_can_be_read(text):
    """Bad input: unbalanced, binary, odd."""
    outline = PYTHON.outline(text)
    check_places(text, outline)
    check_edits(text, PYTHON, outline)


@settings(deadline=None, max_examples=200)
@given(
    texts(LISP_PIECES),
    st.sampled_from(["f", "(", "(defmethod g", "|", "@1", "f@0", ")", "(((", '"', "p::f", ""]),
)
def test_any_name_is_found_or_refused(text, name):
    """Bad input: names that are none."""
    for language in (LISP, PYTHON):
        with suppress(WorkspaceError):
            assert find(language.outline(text), language, name, "f").name
