"""Code is code: every tool that runs code of the caller's is held by the rules about evaluations."""

from __future__ import annotations

import pytest

from gramercy.execution.policy import Policy
from gramercy.toolsets.factory import EVALUATORS, Workshop, source_of
from gramercy.toolsets.opened_images import OpenedImages, opened_image_tools
from gramercy.toolsets.session import session_tools
from gramercy.workbench.selection import TOOLSETS

# Words in the name or the description of an argument that can hold code, or name code that is to run.
CODE_WORDS = ("code", "form", "expression", "script", "statement", "test", "system")
# Arguments with such a word that no tool runs, each with the reason.
DATA = {
    ("check_syntax", "code"): "it is read by a reader that evaluates nothing",
    ("describe_system", "system"): "a name, which is looked up among definitions of systems",
    ("edit_file", "description"): "words for the person",
    ("propose_file_edit", "description"): "words for the person",
    ("error_frames", "moment"): "an id",
    ("find_methods", "name"): "a name",
    ("get_repl_history", "limit"): "a number",
    ("read_output", "evaluation"): "a number",
    ("search_in_buffer", "pattern"): "a regular expression, which is matched",
    ("install_packages", "packages"): "a person decides about the exact command in any case",
}
# What a person would write who wants to hold evaluations back.
DENIALS = [
    {"action": "deny", "tools": ["evaluate-*"]},
    {"action": "deny", "tools": ["evaluate_*"]},
    {"action": "deny", "tools": ["eval_form"]},
    {"action": "deny", "categories": ["session", "execution"]},
]
LISP = """
(defvar *sprung* 0)
(defun spring () (incf *sprung*))
(defmacro snare () (spring) 1)
(setf *sprung* 0)
"""
PYTHON = "sprung = 0\ndef spring():\n    global sprung\n    sprung += 1\n    return 'spring'\n"
LISP_CODE = ["(spring)", "#.(spring)", "(snare)", "#.(spring):car", "cl-user::#.(spring)", '"#.(spring)"']
PYTHON_CODE = ["spring()", "[spring()]", "__main__.spring()", "f'{spring()}'", "spring().x", "x=spring()"]


def all_tools(desk):
    """Return every tool of every toolset by its name; those of evaluations in both languages."""
    workshop = Workshop(source_of(desk.image))
    more = opened_image_tools(OpenedImages(source_of(desk.image), lambda *_: desk.image))
    tools = [*desk.registry.select(), *more]
    for language in ("sbcl", "python"):
        tools += session_tools(workshop, language)
    return {tool.name: tool for tool in tools}


def rules_of(tool):
    """Return the names of the tools by whose rules a tool is judged, its own among them."""
    return {tool.name, *(like.name for like in tool.judged_as)}


def evaluates(tool):
    """Tell whether a tool is judged as an evaluation: of its own language where it has one."""
    names = {name for name, _, _ in EVALUATORS}
    own = rules_of(tool)
    return own >= names or (tool.name.startswith("evaluate-") and "eval_form" in own)


def looks_like_code(name, schema):
    """Tell whether an argument may hold code, going by its name and description."""
    words = f"{name} {schema.get('description', '')}".lower()
    return schema.get("type") != "boolean" and "enum" not in schema and any(w in words for w in CODE_WORDS)


def test_all_tools_of_all_toolsets_are_looked_at(paper_desk):
    """A tool that the other tests here do not see would not be held by them."""
    assert set(all_tools(paper_desk)) >= frozenset().union(*TOOLSETS.values())


@pytest.mark.contract("trust.looks.code")
def test_an_argument_that_looks_like_code_is_judged_as_evaluation_or_declared_as_data(paper_desk):
    """Rules on evaluation: a new tool with such an argument has to say which of the two it is."""
    undeclared = [
        (tool.name, name)
        for tool in all_tools(paper_desk).values()
        for name, schema in tool.schema["properties"].items()
        if looks_like_code(name, schema) and not evaluates(tool)
    ]
    assert {place for place in undeclared if place not in DATA} == set()


@pytest.mark.contract("trust.looks.code")
@pytest.mark.parametrize("rule", DENIALS, ids=lambda rule: str(rule.get("tools", "categories")))
def test_a_rule_against_evaluations_holds_for_every_tool_that_evaluates(paper_desk, rule):
    """Rules on evaluation: eval_in_frame, profile_form and compile_form went on evaluating."""
    policy = Policy([rule])
    tools = [tool for tool in all_tools(paper_desk).values() if evaluates(tool)]
    assert len(tools) >= 14
    for tool in tools:
        arguments = {name: value for like in tool.judged_as for name, value in like.when.items()}
        assert policy.why(tool, arguments).action == "deny", tool.name
        # The verdict on the next call is not that of this one where arguments decide.
        assert policy.why(tool, {}).action == ("deny" if not arguments else Policy().why(tool, {}).action)


@pytest.mark.contract("trust.looks.code")
def test_a_rule_about_code_sees_the_code_of_every_tool_that_takes_some(paper_desk):
    """Rules on evaluation: the argument is named form here, code there and arguments elsewhere."""
    policy = Policy([{"action": "deny", "tools": ["eval_form"], "arguments": {"form": "**danger**"}}])
    takers = ("evaluate-lisp", "evaluate-python", "eval_form", "compile_form", "preview_form", "profile_form")
    places = dict.fromkeys((*takers, "macroexpand_form", "eval_in_frame", "edit_definition"), "code")
    places |= dict.fromkeys(("eval_form", "compile_form", "profile_form", "macroexpand_form"), "form")
    places["invoke_restart"] = "arguments"
    tools = all_tools(paper_desk)
    for name, argument in places.items():
        more = {"load": True} if name == "edit_definition" else {}
        assert policy.why(tools[name], {argument: "some danger here", **more}).action == "deny", name
        assert policy.why(tools[name], {argument: "(+ 1 2)", **more}).action != "deny", name


def test_a_rule_about_one_language_leaves_the_other_alone(paper_desk):
    """The evaluator of a language refuses images of another, so it can do nothing there."""
    policy, tools = Policy([{"action": "deny", "tools": ["evaluate-python"]}]), all_tools(paper_desk)
    assert policy.why(tools["evaluate-python"], {}).action == "deny"
    assert policy.why(tools["evaluate-lisp"], {}).action == "allow"
    assert policy.why(tools["eval_form"], {}).action == "deny"


def calls_with(tool, texts):
    """Return calls of a tool that have each text in each argument that takes any text."""
    properties = tool.schema["properties"]
    plain = {name: _plain(schema) for name, schema in properties.items() if name in tool.required}
    for name, schema in properties.items():
        if schema.get("type") == "string" and "enum" not in schema:
            yield from ({**plain, name: text} for text in texts)
        elif schema.get("items", {}).get("type") == "string":
            yield from ({**plain, name: [text]} for text in texts)


def _plain(schema):
    return {"integer": 1, "number": 1, "boolean": False, "array": ["x"]}.get(schema["type"], "x")


@pytest.mark.contract("trust.looks.code")
def test_no_tool_but_an_evaluation_runs_what_it_is_given(desk):
    """Rules on evaluation: what a tool does counts, not what its arguments are called."""
    desk.evaluate(LISP, PYTHON)
    texts = LISP_CODE if desk.language == "sbcl" else PYTHON_CODE
    for name, tool in all_tools(desk).items():
        if name not in desk.registry or evaluates(tool) or name == "install_packages":
            continue
        for arguments in calls_with(tool, texts):
            desk.call(name, **arguments)
            assert desk.evaluate("*sprung*", "sprung") == "=> 0", (name, arguments)
