"""What Python programmers bring along: models of pydantic, lists of dicts, options of other libraries."""

from __future__ import annotations

import json
import subprocess
import sys

import pydantic
import pytest

from gramercy import Executor, Registry, format_tool_result, tool
from gramercy.errors import InvalidToolError


class Line(pydantic.BaseModel):
    """One line of an order."""

    sku: str = pydantic.Field(min_length=2)
    default: Part | None = None
    title: str = "plain"


class Part(pydantic.BaseModel):
    """A part of a line."""

    number: int


class Order(pydantic.BaseModel):
    """An order."""

    lines: list[Line]
    note: str = ""

    @pydantic.field_validator("note")
    @classmethod
    def _kind(cls, note: str) -> str:
        if note == "rude":
            raise ValueError("a note is kind")
        return note


class Tree(pydantic.BaseModel):
    """A model that holds itself."""

    below: list[Tree] = []


def run(made, **arguments):
    """Run a tool and return its result."""
    registry = Registry()
    registry.register(made)
    return Executor(registry).execute({"id": "1", "name": made.name, "arguments": arguments})


@tool
def place_order(order: Order, more: list[Line] | None = None) -> str:
    """Place an order."""
    kinds = [type(order), *(type(line) for line in order.lines), *(type(line) for line in more or [])]
    return " ".join(kind.__name__ for kind in kinds)


@pytest.mark.contract("day.eyes.pydantic")
def test_a_pydantic_model_is_a_parameter_with_its_schema_and_is_made_for_the_call():
    """A day's work: they were refused, and every Python programmer has them."""
    line = place_order.schema["properties"]["order"]["properties"]["lines"]["items"]
    assert line["required"] == ["sku"]
    assert line["properties"]["title"] == {"default": "plain", "type": "string"}
    assert line["properties"]["default"]["anyOf"][0]["properties"] == {"number": {"type": "integer"}}
    assert "$ref" not in json.dumps(place_order.schema)
    assert (
        run(place_order, order={"lines": [{"sku": "ab"}]}, more=[{"sku": "cd"}]).content == "Order Line Line"
    )


@pytest.mark.contract("day.eyes.pydantic")
def test_what_a_model_refuses_is_a_fault_of_the_call():
    """By the schema where it says so, else by the validator, in one line and without a traceback."""
    short = run(place_order, order={"lines": [{"sku": "a"}]})
    assert "- order.lines[0].sku: expected at least 2 characters" in short.content
    rude = run(place_order, order={"lines": [], "note": "rude"})
    assert not rude.success
    assert "note: Value error, a note is kind" in rude.content.splitlines()[-1]


@pytest.mark.contract("day.eyes.pydantic")
def test_a_model_that_holds_itself_is_refused_with_a_way_out():
    """As with dataclasses: a schema without end cannot be sent."""
    with pytest.raises(InvalidToolError, match="Tree contains itself: give it as dict"):

        @tool
        def grow(tree: Tree) -> str:
            """Grow."""
            return str(tree)


@pytest.mark.contract("day.eyes.pydantic")
def test_pydantic_is_not_loaded_for_tools_without_models():
    """It stays optional: who does not use it pays nothing."""
    program = (
        "import sys\nfrom gramercy import tool\n@tool\n"
        "def f(x: int) -> int:\n    'Double.'\n    return 2 * x\n"
        "print('pydantic' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "False\n"


@pytest.mark.contract("day.eyes.tables")
def test_a_list_of_mappings_is_json_and_other_lists_stay_s_expressions():
    """Models read JSON; the seed's form is kept for lists, and for all of them when it is asked for."""
    rows = [{"a": 1, "b": None}, {"a": 2, "b": [True]}]
    assert json.loads(format_tool_result(rows)) == rows
    assert format_tool_result(tuple(rows)) == format_tool_result(rows)
    assert format_tool_result(rows[:1], s_expressions=True) == '({"a": 1, "b": null})'
    assert format_tool_result([1, {"a": 1}]) == '(1 {"a": 1})'
    assert format_tool_result([]) == "()"


@pytest.mark.contract("day.eyes.options")
@pytest.mark.parametrize(
    ("word", "meant"), [("safety", "safety_level"), ("tags", "categories"), ("titel", "title")]
)
def test_an_unknown_option_is_answered_with_the_one_that_was_meant(word, meant):
    """A day's work: safety= was answered by a list without safety_level."""
    with pytest.raises(InvalidToolError, match=f"unknown option '{word}'; did you mean '{meant}'"):
        tool(**{word: "x"})(lambda: None)
    with pytest.raises(InvalidToolError, match="unknown option 'zzzz': expected safety_level, categories, "):
        tool(zzzz=1)(lambda: None)
