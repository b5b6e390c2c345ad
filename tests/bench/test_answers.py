"""The questions of the comparison: their facts can be missed, and our own server can be asked them."""

from __future__ import annotations

import re
import shutil
from argparse import Namespace

import pytest

from bench import answers
from bench.questions import LISP, LISP_PROGRAM, OURS, PYTHON

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


def told_on_the_page(language):
    """Return for each question the facts and the characters that the page gives for our own answer."""
    page = answers.DOCUMENT.read_text("utf-8").partition(f"\n## {language}\n")[2].partition("\n## ")[0]
    rows = [row.split("|") for row in page.splitlines() if row.startswith("| ")]
    return {row[1].strip(): (int(row[3]), int(row[4].replace(",", ""))) for row in rows[1:]}


@pytest.mark.contract("answers.facts")
@pytest.mark.parametrize("language", ["Lisp", "Python"])
def test_no_answer_tells_less_than_the_page_says(tmp_path, language):
    """Answers: every question finds its tool in the list that clients get, and no fact is lost again."""
    if language == "Lisp" and shutil.which("sbcl") is None:
        pytest.skip("sbcl is not installed")
    answers.write_program(tmp_path)
    servers = {"Lisp": answers._lisp_servers, "Python": answers._python_servers}[language]
    questions = {"Lisp": LISP, "Python": PYTHON}[language]
    (start,) = servers(Namespace(cl_mcp=None, cl_mcp_server=None, jupyter=None), tmp_path)
    server = answers._ask(start, questions)
    assert {question.ask[OURS][0] for question in questions} <= {tool["name"] for tool in server.tools}
    found = {question.title: server.counts(number, question) for number, question in enumerate(questions)}
    told = told_on_the_page(language)
    assert found.keys() == told.keys() - {"together"}
    fewer = {
        title: (counts, told[title])
        for title, counts in found.items()
        if counts and counts[1] < told[title][0]
    }
    assert fewer == {}


def test_a_page_says_who_was_not_run():
    """Figures that nobody measured are not there."""
    server = answers.Server(OURS, "1", [], ["=> 3", *[None] * (len(PYTHON) - 1)])
    page = answers._page([], [server], (16, 400))
    assert "| evaluate one expression | 1 | 1 | 4 |" in page
    assert "| an error with its traceback | 7 | no tool | |" in page
    assert re.search(r"\| clojure-mcp \| 16 \| 400 \| 100 \|", page)
    assert "Not run here, so without figures: cl-mcp, cl-mcp-server, jupyter-mcp-server." in page
