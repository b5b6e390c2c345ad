"""A function of a library that fails says where, in its result and in the journal; other errors do not."""

from __future__ import annotations

import json

import pytest

from gramercy import Executor, Registry, define_tool, tool
from gramercy.journal.memory import MemoryJournal


def _inner(text: str) -> object:
    return json.loads(text)


@tool(safety_level="cautious")
def parse(text: str) -> str:
    """Parse a text."""
    return str(_inner(text))


def run(made, **arguments):
    """Run a tool and return its result with what the journal has of it."""
    registry, journal = Registry(), MemoryJournal()
    registry.register(made)
    result = Executor(registry, journal=journal).execute(
        {"id": "1", "name": made.name, "arguments": arguments}
    )
    return result, journal.records()[0]


@pytest.mark.contract("day.eyes.failures")
def test_a_failing_function_says_where_and_leaves_its_way_in_the_journal():
    """A day's work: failing library tools left no traceback in result or log."""
    result, record = run(parse, text="{")
    first, place = result.content.splitlines()
    assert first.startswith("Tool error: Expecting property name")
    line = _inner.__code__.co_firstlineno + 1
    assert place.endswith(f"test_failing_functions.py:{line} in _inner")
    assert result.error == result.content
    assert "decoder.py:" in record.facts.detail
    assert "in parse" in record.facts.detail
    assert "gramercy/execution" not in record.facts.detail


@tool
def refuse(name: str) -> str:
    """Refuse a name."""
    raise LookupError(f"there is no {name}")


@pytest.mark.contract("day.eyes.failures")
def test_a_function_that_raises_on_purpose_says_only_what_it_says():
    """A message of the tool's own is meant for the model, and a place beside it is noise."""
    assert run(refuse, name="x")[0].content == "Tool error: there is no x"


@pytest.mark.contract("day.eyes.failures")
def test_a_handler_of_a_definition_fails_with_its_message_alone():
    """The contract: the text of a failed call is the message of the error."""

    def fail(_arguments: dict[str, object]) -> None:
        raise ValueError("bad")

    made = define_tool("fail", "Fail.", [], safety_level="cautious", handler=fail)
    assert run(made)[0].content == "Tool error: bad"
