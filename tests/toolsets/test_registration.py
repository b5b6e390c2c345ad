"""The eighteen tools as a caller sees them before any is called."""

from __future__ import annotations

from collections import Counter

import pytest

from gramercy import Executor, Policy, Safety
from gramercy.images.base import Gallery
from gramercy.testing.image import MemoryImage
from gramercy.tools.registry import Registry
from gramercy.toolsets.core import register_core_tools, register_session_tools

STRING, BOOLEAN, INTEGER = "string", "boolean", "integer"
# By name: parameters with their types, those that are required, level, categories.
CORE = {
    "describe_symbol": ({"symbol": STRING, "package": STRING}, ["symbol"], "safe", ["introspection"]),
    "apropos_search": ({"pattern": STRING, "package": STRING}, ["pattern"], "safe", ["introspection"]),
    "function_arglist": ({"function": STRING, "package": STRING}, ["function"], "safe", ["introspection"]),
    "who_calls": ({"function": STRING, "package": STRING}, ["function"], "safe", ["introspection", "xref"]),
    "who_references": (
        {"variable": STRING, "package": STRING},
        ["variable"],
        "safe",
        ["introspection", "xref"],
    ),
    "list_package_symbols": (
        {"package": STRING, "include_internal": BOOLEAN},
        ["package"],
        "safe",
        ["introspection", "packages"],
    ),
    "class_slots": ({"class": STRING, "package": STRING}, ["class"], "safe", ["introspection", "clos"]),
    "class_hierarchy": ({"class": STRING, "package": STRING}, ["class"], "safe", ["introspection", "clos"]),
    "macroexpand_form": (
        {"form": STRING, "full": BOOLEAN, "package": STRING},
        ["form"],
        "cautious",
        ["introspection"],
    ),
    "eval_form": ({"form": STRING, "package": STRING}, ["form"], "cautious", ["execution"]),
    "compile_form": ({"form": STRING, "package": STRING}, ["form"], "cautious", ["execution"]),
    "get_last_error": ({}, [], "safe", ["execution"]),
    "get_repl_history": ({"limit": INTEGER}, [], "safe", ["execution"]),
    "read_file": (
        {"path": STRING, "start": INTEGER, "end": INTEGER, "numbers": BOOLEAN},
        ["path"],
        "safe",
        ["buffer"],
    ),
    "read_buffer": ({"buffer": STRING, "start": INTEGER, "end": INTEGER}, [], "safe", ["buffer"]),
    "write_file": (
        {"path": STRING, "content": STRING, "load": BOOLEAN},
        ["path", "content"],
        "dangerous",
        ["buffer", "filesystem"],
    ),
    "search_in_buffer": (
        {"pattern": STRING, "buffer": STRING, "regex": BOOLEAN, "all_matches": BOOLEAN},
        ["pattern"],
        "safe",
        ["buffer"],
    ),
    "propose_file_edit": (
        {"path": STRING, "original": STRING, "modified": STRING, "description": STRING},
        ["path", "original", "modified", "description"],
        "dangerous",
        ["diff"],
    ),
}
SESSION = {
    "evaluate-lisp": ({"code": STRING, "package": STRING}, ["code"]),
    "list-definitions": ({"type": STRING}, []),
    "reset-session": ({}, []),
    "load-system": ({"system": STRING}, ["system"]),
}
EDITED = {"write_file": {"content": "y"}, "propose_file_edit": {"modified": "y"}}
FILES = {"read_file", "read_buffer", "write_file", "search_in_buffer", "propose_file_edit"}


@pytest.fixture
def registry(paper, project):
    registry = Registry()
    register_core_tools(registry, paper, project=project)
    return registry


@pytest.fixture
def sessions(paper):
    registry = Registry()
    register_session_tools(registry, paper)
    return registry


@pytest.mark.contract(
    "001.core.count",
    "001.core.registers-all",
    "001.status.eighteen-tools",
    "decision.00.register-core-tools",
)
def test_registering_returns_eighteen(paper, project):
    """Seed 001, register-agent-q-tools."""
    assert register_core_tools(Registry(), paper, project=project) == 18


@pytest.mark.contract("001.core.idempotent")
def test_registering_again_changes_nothing(registry, paper, project):
    """Seed 001, register-agent-q-tools: idempotent."""
    before = registry.names()
    assert register_core_tools(registry, paper, project=project) == 18
    assert registry.names() == before
    assert len(registry) == 18


@pytest.mark.contract(
    "decision.01.eighteen",
    "000.status.eighteen-tools",
    "001.core.introspection",
    "001.core.execution",
    "001.core.buffer",
    "001.core.diff",
)
def test_the_tools_are_exactly_those_that_were_agreed(registry):
    """Decision 1."""
    assert registry.names() == sorted(CORE)


@pytest.mark.contract(
    "decision.02.describe-symbol",
    "decision.02.apropos-search",
    "decision.02.function-arglist",
    "decision.02.who-calls",
    "decision.02.who-references",
    "decision.02.list-package-symbols",
    "decision.02.class-slots",
    "decision.02.class-hierarchy",
    "decision.02.macroexpand-form",
    "decision.02.eval-form",
    "decision.02.compile-form",
    "decision.02.get-last-error",
    "decision.02.get-repl-history",
    "decision.02.read-file",
    "decision.02.read-buffer",
    "decision.02.write-file",
    "decision.02.search-in-buffer",
    "decision.02.propose-file-edit",
    "decision.01.categories",
    "decision.01.cautious",
    "decision.01.dangerous",
    "decision.01.safe",
    "001.discovery.who-calls",
    "000.safety.safe.examples",
    "000.safety.cautious.examples",
    "000.safety.dangerous.examples",
    "000.practice.levels-by-effect",
)
@pytest.mark.parametrize("name", CORE)
def test_a_tool_has_the_agreed_parameters_level_and_categories(registry, name):
    """Decisions 1 and 2."""
    parameters, required, level, categories = CORE[name]
    tool = registry.get(name)
    assert {parameter.name: parameter.type for parameter in tool.parameters} == parameters
    assert list(tool.required) == required
    assert tool.safety_level.value == level
    assert sorted(tool.categories) == sorted(categories)


@pytest.mark.contract("002.status.eighteen-tools", "002.safe.examples", "002.dangerous.examples")
@pytest.mark.parametrize("name", CORE)
def test_the_executor_treats_each_of_the_eighteen_by_its_level(registry, project, name, caplog):
    """Seed 002, Execution Flow: only a dangerous tool is asked about, only a cautious one logged."""
    (project / "x").write_text("x")
    asked = []

    def person(tool, _arguments):
        asked.append(tool.name)
        return "denied"

    call = {
        "id": "1",
        "name": name,
        "arguments": {**dict.fromkeys(CORE[name][1], "x"), **EDITED.get(name, {})},
    }
    with caplog.at_level("INFO", "gramercy.audit"):
        result = Executor(registry, person).execute(call)
    logged = [record.getMessage() for record in caplog.records if record.name == "gramercy.audit"]
    level = CORE[name][2]
    assert asked == ([name] if level == "dangerous" else [])
    assert [text.split(" runs as ")[0] for text in logged] == (
        [f"cautious tool {name}"] if level == "cautious" else []
    )
    assert result.content.startswith("User denied tool execution") is (level == "dangerous")
    assert (project / "x").read_text() == "x"


@pytest.mark.contract("001.levels.safe-count", "001.levels.cautious-count", "001.levels.dangerous-count")
def test_thirteen_are_safe_three_cautious_and_two_dangerous(registry):
    """Seed 001, Safety Level Distribution."""
    levels = Counter(tool.safety_level.value for tool in registry.select())
    assert levels == {"safe": 13, "cautious": 3, "dangerous": 2}


@pytest.mark.contract(
    "001.discovery.introspection",
    "001.discovery.execution",
    "001.discovery.buffer",
    "001.discovery.diff",
    "001.discovery.xref",
    "001.discovery.clos",
    "001.discovery.packages",
)
@pytest.mark.parametrize(
    ("category", "count", "among"),
    [
        ("introspection", 9, {"describe_symbol", "apropos_search", "who_calls"}),
        ("execution", 4, {"eval_form", "compile_form", "get_repl_history"}),
        ("buffer", 4, {"read_file", "read_buffer", "write_file"}),
        ("diff", 1, {"propose_file_edit"}),
        ("xref", 2, {"who_calls", "who_references"}),
        ("clos", 2, {"class_slots", "class_hierarchy"}),
        ("packages", 1, {"list_package_symbols"}),
    ],
)
def test_each_category_has_its_tools(registry, category, count, among):
    """Seed 001, Tool Discovery."""
    names = [tool.name for tool in registry.select(categories=[category])]
    assert len(names) == len(set(names)) == count
    assert among <= set(names)


@pytest.mark.contract(
    "decision.02.evaluate-lisp",
    "decision.02.list-definitions",
    "decision.02.reset-session",
    "decision.02.load-system",
)
@pytest.mark.parametrize("name", SESSION)
def test_a_session_tool_has_the_agreed_parameters(sessions, name):
    """Decision 2, session tools of seed 003."""
    parameters, required = SESSION[name]
    tool = sessions.get(name)
    assert {parameter.name: parameter.type for parameter in tool.parameters} == parameters
    assert list(tool.required) == required


def test_the_evaluating_tool_is_named_after_the_language(paper):
    """Decision 2: evaluate-lisp for Lisp, its analogue for Python."""
    registry = Registry()
    register_session_tools(registry, paper, language="python")
    assert registry.get("evaluate-python") is not None
    assert registry.get("evaluate-lisp") is None


def test_only_what_changes_nothing_is_safe_among_the_session_and_time_tools(sessions):
    """Seed 000, Safety Levels."""
    safe = {tool.name for tool in sessions.select(max_safety_level="safe")}
    assert safe == {
        "list-definitions",
        "checkpoint_image",
        "list_checkpoints",
        "inspect_object",
        "read_output",
    }


@pytest.mark.contract("decision.14.preview")
def test_a_preview_is_as_cautious_as_an_evaluation(sessions, registry):
    """Decision 14: it runs the same code, and is only as honest as what the image has evaluated."""
    levels = [sessions.get("preview_form").safety_level, registry.get("eval_form").safety_level]
    assert levels == [Safety.CAUTIOUS] * 2
    assert list(sessions.get("preview_form").required) == ["code"]


@pytest.mark.contract("trust.preview.rules")
@pytest.mark.parametrize(
    "rule",
    [
        {"tools": ["eval_form"]},
        {"tools": ["evaluate-*"]},
        {"tools": ["evaluate_lisp"]},
        {"categories": ["execution"]},
        {"categories": ["session"]},
        {"tools": ["eval_form"], "arguments": {"form": "*delete*"}},
        {"tools": ["evaluate-python"], "arguments": {"code": "*delete*"}},
    ],
)
def test_rules_about_evaluations_hold_for_previews(sessions, rule):
    """Ways that close them: same safety level and same rules as `eval_form`."""
    tool = sessions.get("preview_form")
    for action in ("ask", "deny"):
        verdict = Policy([{"action": action, **rule}]).why(tool, {"code": "(delete-file 1)"})
        assert verdict.action.value == action
    assert Policy([{"action": "deny", "tools": ["write_*"]}]).why(tool, {"code": "1"}).action.value == "allow"


def test_either_spelling_of_a_session_tool_finds_it(sessions):
    """Decision 4."""
    assert sessions.find("evaluate_lisp") is sessions.find("evaluate-lisp") is not None


def test_kinds_of_definitions_are_listed_in_the_schema(sessions):
    """Decision 2: functions, variables or macros."""
    kinds = sessions.get("list-definitions").schema["properties"]["type"]["enum"]
    assert kinds == ["functions", "variables", "macros"]


def test_history_has_a_default_and_a_limit(registry):
    """Decision 2: 10, at most 50."""
    limit = registry.get("get_repl_history").schema["properties"]["limit"]
    assert (limit["default"], limit["maximum"]) == (10, 50)


def test_search_finds_all_matches_by_default(registry):
    """Decision 2: all_matches is true."""
    assert registry.get("search_in_buffer").schema["properties"]["all_matches"]["default"] is True


def test_every_tool_and_every_property_is_described_for_a_model(registry, sessions):
    """Seed 000, Best Practices: Descriptions."""
    for tool in [*registry.select(), *sessions.select()]:
        assert len(tool.name) <= 40
        assert 60 < len(tool.description) < 2000
        for parameter in tool.parameters:
            assert len(parameter.description) > 10, (tool.name, parameter.name)


def test_most_descriptions_say_when_to_use_the_tool(registry):
    """Seed 000, Best Practices: the description decides whether the tool is chosen."""
    silent = [tool.name for tool in registry.select() if "Use it" not in tool.description]
    assert set(silent) <= {"write_file", "propose_file_edit"}


def test_no_argument_that_is_not_listed_is_taken(registry, sessions):
    """Decision 11."""
    for tool in [*registry.select(), *sessions.select()]:
        assert tool.schema["additionalProperties"] is False


@pytest.fixture
def several(project):
    images = [MemoryImage("sbcl", name="lisp"), MemoryImage("python", name="python")]
    registry = Registry()
    register_core_tools(registry, Gallery(images), project=project)
    register_session_tools(registry, Gallery(images))
    return registry


@pytest.mark.contract("decision.02.image-handle")
def test_with_several_images_every_image_tool_takes_a_handle(several):
    """Decision 2: an optional image handle."""
    for tool in several.select():
        properties = tool.schema["properties"]
        assert ("image" in properties) is (tool.name not in FILES), tool.name
        assert "image" not in tool.required


def test_the_handles_are_listed_in_the_schema(several):
    """Decision 2: the caller sees what there is to choose from."""
    handle = several.get("eval_form").schema["properties"]["image"]
    assert handle["enum"] == ["lisp", "python"]
    assert "lisp" in handle["description"]
