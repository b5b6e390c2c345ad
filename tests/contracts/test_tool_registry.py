"""Seed 001, the tool registry, as tests: read the two side by side."""

from __future__ import annotations

import json
import logging
import pickle
import re
from typing import Any

import pytest

import gramercy
from gramercy import Executor, Registry, Tool, default_registry, define_tool, tools_to_schema
from gramercy.errors import InvalidToolError


def named(name: str, level: str = "safe", *categories: str) -> Tool:
    """Make a tool that answers with its own name."""
    return define_tool(
        name, f"Answer {name}.", [], safety_level=level, categories=categories, handler=lambda _: name
    )


@pytest.fixture
def registry(describe_symbol: Tool, eval_form: Tool, write_file: Tool) -> Registry:
    """Give a registry with tools of every level and several categories."""
    others = [
        named("apropos_search", "safe", "introspection"),
        named("function_arglist", "safe", "introspection"),
        named("who_calls", "safe", "introspection", "xref"),
        named("macroexpand_form", "cautious", "introspection"),
        named("get_repl_history", "safe", "execution"),
        named("now"),
    ]
    return Registry([describe_symbol, eval_form, write_file, *others])


def names(tools: list[Tool]) -> set[str]:
    return {tool.name for tool in tools}


# Purpose, and Global Registry


@pytest.mark.contract("001.purpose.register-retrieve-schema")
def test_one_place_registers_tools_gives_them_back_and_makes_their_schemas() -> None:
    """Seed 001, Purpose."""
    registry = Registry()
    tool = registry.register(named("now"))
    assert registry.get("now") is tool
    assert [schema["function"]["name"] for schema in tools_to_schema(registry.select())] == ["now"]


@pytest.mark.contract("001.registry.central", "001.registry.lifetime", "001.invariant.persistence")
def test_the_central_registry_is_one_and_keeps_its_tools() -> None:
    """Seed 001, Global Registry, and Invariant 2."""
    tool = default_registry().register(named("kept_by_the_central_registry"))
    assert default_registry() is gramercy.default_registry()
    assert default_registry().get("kept_by_the_central_registry") is tool
    assert Registry().get("kept_by_the_central_registry") is None
    with pytest.raises((TypeError, pickle.PicklingError, AttributeError)):
        pickle.dumps(default_registry())


@pytest.mark.contract("001.registry.keys", "001.names.all", "001.names.are-text")
def test_the_keys_are_the_names_of_the_tools(registry: Registry) -> None:
    """Seed 001, Global Registry, and list-registered-tools."""
    listed = registry.names()
    assert isinstance(listed, list)
    assert {type(name) for name in listed} == {str}
    assert all(re.fullmatch("[a-z][a-z0-9_]*", name) for name in listed)
    assert set(listed) == names(registry.select())
    assert len(listed) == len(registry) == 9


@pytest.mark.contract("001.registry.values", "001.register.valid-tool")
@pytest.mark.parametrize("thing", [None, "describe_symbol", {"name": "describe_symbol"}, len, Tool])
def test_nothing_but_a_tool_can_be_registered(thing: Any) -> None:
    """Seed 001, Global Registry, and register-tool."""
    registry = Registry()
    with pytest.raises(InvalidToolError, match="Tool"):
        registry.register(thing)
    assert registry.names() == []


@pytest.mark.contract("001.registry.never-removed")
def test_there_is_no_way_to_remove_a_tool(registry: Registry) -> None:
    """Seed 001, Global Registry."""
    ways = ("unregister", "remove", "delete", "discard", "pop", "clear", "__delitem__")
    assert [way for way in ways if hasattr(registry, way)] == []
    with pytest.raises(TypeError):
        del registry["now"]  # type: ignore[attr-defined]


# register-tool


@pytest.mark.contract("001.register.by-name", "001.register.returns-tool", "001.register.example")
def test_a_tool_is_stored_under_its_name_and_returned(describe_symbol: Tool) -> None:
    """Seed 001, register-tool: the example of the contract."""
    registry = Registry()
    assert registry.register(describe_symbol) is describe_symbol
    assert registry.names() == ["describe_symbol"]
    assert registry.get("describe_symbol") is describe_symbol


@pytest.mark.contract("001.register.overwrites", "001.invariant.idempotency")
def test_a_tool_of_the_same_name_replaces_the_earlier_one(registry: Registry) -> None:
    """Seed 001, register-tool, and Invariant 4."""
    before = registry.names()
    later = registry.register(named("describe_symbol", "cautious", "other"))
    assert registry.get("describe_symbol") is later
    assert registry.names() == before
    assert (
        Executor(registry).execute({"id": "1", "name": "describe_symbol", "arguments": {}}).content
        == "describe_symbol"
    )


@pytest.mark.contract("001.register.idempotent")
def test_registering_a_tool_twice_changes_nothing(describe_symbol: Tool) -> None:
    """Seed 001, register-tool."""
    registry = Registry()
    assert registry.register(describe_symbol) is registry.register(describe_symbol)
    assert registry.select() == [describe_symbol]


@pytest.mark.contract("001.register.non-empty-name")
def test_no_tool_can_have_an_empty_name() -> None:
    """Seed 001, register-tool: such a tool cannot even be made."""
    with pytest.raises(InvalidToolError, match="empty"):
        named("")
    with pytest.raises(InvalidToolError, match="empty"):
        gramercy.create_tool("", "Nameless.", {"type": "object"}, lambda _: None)


# get-tool, and list-registered-tools


@pytest.mark.contract("001.get.found", "001.get.missing", "001.get.example", "001.errors.missing-is-no-error")
def test_getting_a_name_returns_its_tool_or_none(registry: Registry, describe_symbol: Tool) -> None:
    """Seed 001, get-tool: the example of the contract; and Error Handling."""
    assert registry.get("describe_symbol") is describe_symbol
    assert registry.get("nonexistent") is None


@pytest.mark.contract("001.names.example")
def test_the_listing_shows_the_names_of_the_example(registry: Registry) -> None:
    """Seed 001, list-registered-tools: the example of the contract."""
    assert {"describe_symbol", "apropos_search", "eval_form"} <= set(registry.names())


# get-agent-q-tools

SAFE = {"apropos_search", "describe_symbol", "function_arglist", "get_repl_history", "now", "who_calls"}
CAUTIOUS = {"eval_form", "macroexpand_form"}
DANGEROUS = {"write_file"}


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        pytest.param(None, SAFE | CAUTIOUS | DANGEROUS, marks=pytest.mark.contract("001.select.no-filter")),
        pytest.param("safe", SAFE, marks=pytest.mark.contract("001.select.safe")),
        pytest.param("cautious", SAFE | CAUTIOUS, marks=pytest.mark.contract("001.select.cautious")),
        pytest.param(
            "dangerous", SAFE | CAUTIOUS | DANGEROUS, marks=pytest.mark.contract("001.select.dangerous")
        ),
    ],
)
def test_a_selection_holds_the_tools_at_or_below_a_level(
    registry: Registry, level: str | None, expected: set[str]
) -> None:
    """Seed 001, get-agent-q-tools."""
    assert names(registry.select(max_safety_level=level)) == expected


@pytest.mark.contract("001.select.categories")
@pytest.mark.parametrize(
    ("categories", "expected"),
    [
        (["xref"], {"who_calls"}),
        (["xref", "execution"], {"who_calls", "eval_form", "get_repl_history"}),
        (["nothing"], set()),
    ],
)
def test_a_selection_holds_the_tools_with_at_least_one_of_the_categories(
    registry: Registry, categories: list[str], expected: set[str]
) -> None:
    """Seed 001, get-agent-q-tools."""
    assert names(registry.select(categories=categories)) == expected


@pytest.mark.contract("001.select.both", "001.select.example", "001.select.returns-tools")
def test_both_filters_must_hold(registry: Registry) -> None:
    """Seed 001, get-agent-q-tools: the example of the contract, the safe introspection tools."""
    selected = registry.select(max_safety_level="safe", categories=["introspection"])
    assert all(isinstance(tool, Tool) for tool in selected)
    assert names(selected) == {"describe_symbol", "apropos_search", "function_arglist", "who_calls"}


# Schema Generation

DESCRIBE_SYMBOL = {
    "type": "function",
    "function": {
        "name": "describe_symbol",
        "description": "Get detailed information about a Lisp symbol including type, value, documentation.",
        "parameters": {
            "type": "object",
            "properties": {
                "symbol": {"type": "string", "description": "Symbol name to describe"},
                "package": {"type": "string", "description": "Package name (optional)"},
            },
            "required": ["symbol"],
            "additionalProperties": False,
        },
    },
}


@pytest.mark.contract(
    "001.schema.format", "001.schema.required", "001.schema.optional", "001.schema.for-provider"
)
def test_a_schema_has_the_format_of_the_contract(describe_symbol: Tool) -> None:
    """Seed 001, tools-to-schema, Format; that extra arguments are refused is said besides."""
    [schema] = tools_to_schema([describe_symbol])
    assert schema == DESCRIBE_SYMBOL
    assert json.loads(json.dumps(schema)) == DESCRIBE_SYMBOL


@pytest.mark.contract("001.schema.one-per-tool", "001.schema.example")
def test_every_tool_of_a_selection_gives_one_schema_in_order(registry: Registry) -> None:
    """Seed 001, tools-to-schema: the example of the contract."""
    selected = registry.select(max_safety_level="safe")
    schemas = tools_to_schema(selected)
    assert isinstance(schemas, list)
    assert {schema["type"] for schema in schemas} == {"function"}
    assert [schema["function"]["name"] for schema in schemas] == [tool.name for tool in selected]
    backwards = tools_to_schema(reversed(selected))
    assert backwards == schemas[::-1]


# Tool Discovery, and Safety Level Distribution


@pytest.mark.contract("001.discovery.several-categories")
def test_a_tool_is_found_under_each_of_its_categories(registry: Registry) -> None:
    """Seed 001, Tool Discovery."""
    for category in ("introspection", "xref"):
        assert "who_calls" in names(registry.select(categories=[category]))
    assert "who_calls" not in names(registry.select(categories=["buffer"]))
    assert "who_calls" in names(registry.select(categories=["buffer", "xref"]))


@pytest.mark.parametrize(
    ("level", "runs", "logs", "asks"),
    [
        pytest.param("safe", True, False, False, marks=pytest.mark.contract("001.levels.safe")),
        pytest.param("cautious", True, True, False, marks=pytest.mark.contract("001.levels.cautious")),
        pytest.param("dangerous", False, False, True, marks=pytest.mark.contract("001.levels.dangerous")),
    ],
)
def test_the_level_decides_whether_a_tool_runs_is_logged_or_asked_about(
    caplog: pytest.LogCaptureFixture,
    level: str,
    runs: bool,  # noqa: FBT001 - a column of the contract's table
    logs: bool,  # noqa: FBT001 - a column of the contract's table
    asks: bool,  # noqa: FBT001 - a column of the contract's table
) -> None:
    """Seed 001, Safety Level Distribution: the columns of the table."""
    asked: list[Any] = []
    executor = Executor(Registry([named("act", level)]), lambda *question: asked.append(question))
    with caplog.at_level(logging.INFO, "gramercy"):
        result = executor.execute({"id": "1", "name": "act", "arguments": {}})
    assert (result.success, bool(caplog.records), bool(asked)) == (runs, logs, asks)


# Invariants, Integration Points, and Error Handling


@pytest.mark.contract("001.invariant.uniqueness")
def test_a_name_is_unique_across_all_categories() -> None:
    """Seed 001, Invariant 1."""
    with pytest.raises(InvalidToolError, match="act"):
        Registry([named("act", "safe", "introspection"), named("act", "safe", "execution")])
    registry = Registry([named("act", "safe", "introspection")])
    registry.register(named("act", "safe", "execution"))
    assert registry.select(categories=["introspection"]) == []
    assert len(registry.select(categories=["introspection", "execution"])) == 1


@pytest.mark.contract("001.integration.agent-loop")
def test_a_conversation_starts_with_the_tools_up_to_cautious(registry: Registry) -> None:
    """Seed 001, Integration Points, With Agent Loop."""
    schemas = tools_to_schema(registry.select(max_safety_level="cautious"))
    assert {schema["function"]["name"] for schema in schemas} == SAFE | CAUTIOUS


@pytest.mark.contract("001.integration.executor")
def test_the_executor_runs_the_tool_that_the_call_names(registry: Registry) -> None:
    """Seed 001, Integration Points, With Tool Executor."""
    calls: list[dict[str, Any]] = [
        {"id": name, "name": name, "arguments": {}} for name in ("who_calls", "now", "apropos_search")
    ]
    results = Executor(registry).execute_tool_calls(calls)
    assert [result.content for result in results] == ["who_calls", "now", "apropos_search"]


@pytest.mark.contract("001.errors.unknown-tool")
def test_the_executor_answers_a_call_of_an_unknown_tool_with_an_error(registry: Registry) -> None:
    """Seed 001, Error Handling."""
    result = Executor(registry).execute({"id": "1", "name": "nonexistent", "arguments": {}})
    assert not result.success
    assert result.error == "Unknown tool: nonexistent"
    assert result.content.startswith("Unknown tool: nonexistent\nThe tools are ")
