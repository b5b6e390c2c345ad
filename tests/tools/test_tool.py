"""The Tool itself and its safety level."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from gramercy import Safety, Tool, define_tool
from gramercy.errors import InvalidToolError


def make(**changes):
    definition: dict[str, Any] = {
        "parameters": [{"name": "path", "type": "string"}],
        "handler": dict,
    } | changes
    return define_tool("write_file", "Write.", **definition)


def test_safety_levels_are_ordered_by_danger_not_by_alphabet():
    """Names table: SAFE < CAUTIOUS < DANGEROUS."""
    levels = [Safety.DANGEROUS, Safety.SAFE, Safety.CAUTIOUS]
    assert sorted(levels) == [Safety.SAFE, Safety.CAUTIOUS, Safety.DANGEROUS]
    assert max(levels) is Safety.DANGEROUS
    assert Safety.SAFE < "cautious" <= Safety.CAUTIOUS < ":dangerous"
    assert Safety.DANGEROUS > Safety.CAUTIOUS >= "cautious" > Safety.SAFE
    assert not Safety.SAFE > Safety.SAFE
    assert Safety.DANGEROUS > "safe"


def test_safety_levels_are_their_words():
    """Seed 000, Safety Levels."""
    assert str(Safety.SAFE) == "safe"
    assert {str(Safety.SAFE): 1}[Safety.SAFE] == 1
    assert Safety.parse("SAFE") is Safety.parse(":safe") is Safety.parse(Safety.SAFE) is Safety.SAFE


def test_a_level_is_not_comparable_with_other_things():
    """An ordering says nothing about numbers, and an unknown word is named."""
    with pytest.raises(TypeError):
        _ = Safety.SAFE < 3  # type: ignore[operator]  # on purpose
    with pytest.raises(InvalidToolError, match="unknown safety level 'severe'"):
        _ = Safety.SAFE < "severe"


def test_a_tool_cannot_be_changed():
    """Style: values are frozen."""
    tool = make()
    with pytest.raises(dataclasses.FrozenInstanceError):
        tool.safety_level = Safety.SAFE


@pytest.mark.parametrize(
    ("style", "schema_of"),
    [
        ("openai", lambda shape: shape["function"]["parameters"]),
        ("anthropic", lambda shape: shape["input_schema"]),
        ("mcp", lambda shape: shape["inputSchema"]),
    ],
)
def test_whoever_gets_a_schema_cannot_change_the_tool_through_it(style, schema_of):
    """A provider's adapter that edits what it sends must not loosen validation."""
    tool = make()
    schema = schema_of(tool.to_schema(style))
    assert schema == tool.schema
    schema["additionalProperties"] = True
    schema["properties"]["path"]["type"] = "integer"
    assert tool.schema["properties"] == {"path": {"type": "string"}}
    assert tool.schema["additionalProperties"] is False


def test_hints_for_mcp_follow_the_level():
    """MCP design: annotations from safety levels."""
    hints = make(safety_level="safe").to_schema("mcp")["annotations"]
    assert (hints["readOnlyHint"], hints["destructiveHint"]) == (True, False)
    hints = make(safety_level="dangerous", idempotent=True).to_schema("mcp")["annotations"]
    assert (hints["readOnlyHint"], hints["destructiveHint"], hints["idempotentHint"]) == (False, True, True)


def test_an_unknown_schema_style_is_refused():
    """Errors say what to try."""
    with pytest.raises(InvalidToolError, match="expected openai, anthropic, mcp"):
        make().to_schema("xml")


def test_a_level_can_be_raised_and_the_rest_stays():
    """Names table: one Tool type, immutable."""
    tool = make(deadline=3)
    raised = tool.with_safety(Safety.DANGEROUS)
    assert (raised.safety_level, raised.level_word, raised.deadline) == (Safety.DANGEROUS, "dangerous", 3)
    assert tool.safety_level is Safety.SAFE
    assert tool.with_safety(Safety.SAFE) is tool


def test_a_tool_made_by_hand_takes_the_seeds_words():
    """Seed 000: levels are words."""
    tool = Tool("it", "It.", {"type": "object"}, dict, ":cautious")  # type: ignore[arg-type]  # on purpose
    assert tool.safety_level is Safety.CAUTIOUS
    assert repr(tool) == "<Tool it cautious>"


def test_async_and_plain_tools_are_told_apart():
    """The executor must know before it calls."""

    async def handle(arguments):
        return arguments

    assert make(handler=handle).is_async
    assert not make(handler=handle).is_plain
    assert make().is_plain
    assert not make(deadline=1).is_plain


def test_a_tool_that_proposes_edits_says_in_which_arguments():
    """People: whether a change can be taken hunk by hunk is told by the tool, not by its name."""
    tool = make(edits=("old", "new"))
    assert tool.proposed_edit({"old": "a", "new": "b", "path": "f"}) == ("a", "b")
    assert tool.proposed_edit({"old": "a"}) is None
    assert tool.with_edit({"old": "a", "new": "b"}, "a", "c") == {"old": "a", "new": "c"}
    assert make().proposed_edit({"old": "a", "new": "b"}) is None
