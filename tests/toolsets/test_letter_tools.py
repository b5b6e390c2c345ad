"""What the tools say, to the letter of the contracts: order of definitions, names of tools, whole answers."""

from __future__ import annotations

import pytest

from gramercy.execution.executor import Executor
from gramercy.tools.registry import Registry
from gramercy.toolsets.core import register_core_tools, register_session_tools
from gramercy.toolsets.project import register_project_tools

# In an order that is not that of the alphabet, one of each kind between those of another.
SESSION = {
    "sbcl": "(defun zeta (a b &optional c) (list a b c)) (defvar *late* 1) (defgeneric middle (x)) "
    '(defconstant +early+ "hello") (defun alpha (x) x)',
    "python": "def zeta(a): return a\nlate = 1\ndef middle(x): return x\nearly = 2\ndef alpha(x): return x",
}


@pytest.mark.contract("003.letter.definitions-order")
def test_definitions_are_listed_in_the_order_in_which_they_were_made(desk):
    """Seed 003, list-definitions: its example has MY-FUNCTION before HELPER."""
    desk.evaluate(SESSION["sbcl"], SESSION["python"])
    desk.evaluate("(defun beta (x) x)", "def beta(x): return x")
    desk.evaluate("(defun zeta (a) a)", "def zeta(a): return [a]")
    listed = desk.text("list-definitions").lower()
    functions, variables = listed.split("\n\n")[:2]
    assert [line.split()[1].partition("(")[0] for line in functions.splitlines()[1:]] == [
        *("zeta", "middle", "alpha", "beta")
    ]
    names = [line.split()[1] for line in variables.splitlines()[1:]]
    assert names == [*desk.either("*late* +early+", "late early").split()]


@pytest.mark.contract("003.letter.definitions-order")
def test_an_undone_definition_leaves_the_order_as_it_was(desk):
    """What comes back stands where it stood."""
    desk.evaluate(SESSION["sbcl"], SESSION["python"])
    before = desk.text("list-definitions")
    desk.evaluate("(fmakunbound 'zeta)", "del zeta")
    desk.text("undo_last")
    assert desk.text("list-definitions") == before


@pytest.mark.contract("001.letter.core-count")
def test_registering_the_core_tools_returns_how_many_the_registry_has(paper, project):
    """Seed 001, register-agent-q-tools: number of tools in the registry after loading."""
    registry = Registry()
    assert register_core_tools(registry, paper, project=project) == 18
    register_session_tools(registry, paper)
    assert register_core_tools(registry, paper, project=project) == len(registry) > 18


@pytest.mark.contract("001.letter.core-names")
def test_the_texts_of_the_core_tools_name_no_tool_that_is_absent(paper, project, workspace):
    """A model that is told of a tool calls it."""
    everything = Registry()
    register_session_tools(everything, paper)
    register_project_tools(everything, paper, workspace)
    core = Registry()
    register_core_tools(core, paper, project=project)
    absent = set(everything.names()) - set(core.names())
    assert len(absent) > 20
    for tool in core.library().values():
        told = [
            tool.description,
            *(str(each.get("description")) for each in tool.schema["properties"].values()),
        ]
        words = set(" ".join(told).replace(",", " ").replace(".", " ").split())
        assert words & {name for name in absent if "_" in name or "-" in name} == set(), tool.name


@pytest.mark.contract("001.letter.core-names")
def test_an_evaluation_with_the_core_tools_alone_names_no_tool_that_is_absent(images, project):
    """Neither the numbers of objects nor the moment of an error are told to who cannot use them."""
    registry = Registry()
    register_core_tools(registry, images("sbcl"), project=project)
    executor = Executor(registry)

    def said(form):
        return executor.execute({"id": "1", "name": "eval_form", "arguments": {"form": form}}).content

    assert said("(make-hash-table)").count("\n") == 0
    assert "error_frames" not in said('(error "bad")')


@pytest.mark.contract("answers.letter.expands-all")
def test_every_form_of_a_text_is_expanded(lisp_desk):
    """An answer about half of what was asked would be taken for the whole."""
    told = lisp_desk.text("macroexpand_form", form="(when a b) (unless c d)")
    first, second = told.split("\n\n")
    assert (first[:5], second[:5]) == ("(IF A", "(IF C")


@pytest.mark.contract("answers.letter.variable-callers")
def test_who_calls_a_variable_says_that_it_is_one_and_who_refers_to_it(lisp_desk):
    """That nothing calls it is no answer to who uses it."""
    lisp_desk.evaluate("(progn (defvar *rate* 1) (defun uses-it () *rate*))", "")
    told = lisp_desk.text("who_calls", function="*rate*")
    assert told.startswith("*RATE* is a variable, referred to by 1 definition:")
    assert "USES-IT" in told


@pytest.mark.contract("answers.letter.type-keywords")
def test_the_type_of_a_function_has_all_of_its_keywords(lisp_desk):
    """A type with a bare &KEY says that it takes none."""
    lisp_desk.evaluate(
        "(progn (declaim (ftype (function (string &key (:start t) (:end fixnum)) string) cut))"
        " (defun cut (text &key start end) (subseq text start end)))",
        "",
    )
    told = lisp_desk.text("describe_symbol", symbol="cut")
    line = next(line for line in told.splitlines() if "declared type" in line)
    assert "(:START T)" in line
    assert "(:END FIXNUM)" in line
