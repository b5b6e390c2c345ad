"""The questions of the comparison: their facts can be missed, and our own server can be asked them."""

from __future__ import annotations

import re
from argparse import Namespace

import pytest

from bench import answers
from bench.questions import LISP, LISP_PROGRAM, OURS, PYTHON, PYTHON_PROGRAM

ALL = [*LISP, *PYTHON]


@pytest.mark.parametrize("question", ALL, ids=[question.title for question in ALL])
def test_an_empty_answer_has_no_fact(question):
    """A pattern that is always found would count for everybody."""
    assert OURS in question.ask
    for fact in question.facts:
        assert fact.is_in("") is fact.absent, fact
        assert len({other.says for other in question.facts}) == len(question.facts)


def test_what_should_be_absent_can_be_found():
    """A limit or the mention of a server's own program is seen when it is there."""
    absent = {fact for question in ALL for fact in question.facts if fact.absent}
    texts = ("x" * 8001, "0: (CL-MCP-SERVER:RUN-SERVER)\n1: (GRAMERCY-HOST::RUN)")
    assert len(absent) == 2
    assert all(any(not fact.is_in(text) for text in texts) for fact in absent)
    assert all(fact.is_in("x\n" * 4000) for fact in absent)


def test_the_right_line_is_that_of_the_program():
    """A place in characters, as some tell it, is not a line."""
    question = next(question for question in LISP if question.title == "describe a function")
    line = LISP_PROGRAM[: LISP_PROGRAM.index("(defun grow")].count("\n") + 1
    (fact,) = [fact for fact in question.facts if fact.says == "the right line"]
    assert fact.is_in(f"/x/garden.lisp:{line}")
    assert not fact.is_in(f"/x/garden.lisp:{LISP_PROGRAM.index('(defun grow')}")


def test_forms_end_where_they_end_and_not_in_a_string():
    """The sources of a server that is only read."""
    text = '(a) (defmethod x "one ) \\" ( two" {:b (c)}) (defmethod x)'
    assert list(answers._forms(text, "(defmethod x")) == [
        '(defmethod x "one ) \\" ( two" {:b (c)})',
        "(defmethod x)",
    ]


def test_our_own_server_is_asked_and_the_page_is_made(tmp_path):
    """Every question finds its tool in the list that clients get."""
    (tmp_path / "garden.py").write_text(PYTHON_PROGRAM)
    (start,) = answers._python_servers(Namespace(jupyter=None), tmp_path)
    server = answers._ask(start, PYTHON)
    assert {question.ask[OURS][0] for question in PYTHON} <= {tool["name"] for tool in server.tools}
    assert server.counts(0, PYTHON[0]) == (len("=> 3"), 1)
    page = answers._page([], [server], (16, 400))
    assert "| evaluate one expression | 1 | 1 | 4 |" in page
    assert re.search(r"\| clojure-mcp \| 16 \| 400 \| 100 \|", page)
    assert "Not run here, so without figures: cl-mcp, cl-mcp-server, jupyter-mcp-server." in page
