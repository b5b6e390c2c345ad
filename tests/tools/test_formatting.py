"""Results as text for a model."""

from __future__ import annotations

import enum
import json
import math
from collections import OrderedDict, UserDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramercy import format_tool_result


class Pair(NamedTuple):
    a: int
    b: str


@dataclass
class Point:
    x: int


class Word(str):
    __slots__ = ()

    def __str__(self):
        return "something else"


class Level(enum.StrEnum):
    LOW = "low"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("unchanged \n text", "unchanged \n text"),
        ("", ""),
        (None, "nil"),
        ([1, 2, 3], "(1 2 3)"),
        ((1, 2, 3), "(1 2 3)"),
        ([], "()"),
        ([None, [], ["a", ["b"]]], '(nil () ("a" ("b")))'),
        (['say "hi"', "back\\slash"], '("say \\"hi\\"" "back\\\\slash")'),
        ([True, 2.5, {"k": (1, 2)}], '(True 2.5 {"k": [1, 2]})'),
        (42, "42"),
        (2.5, "2.5"),
        (True, "True"),
        (math.nan, "nan"),
        (Point(1), "Point(x=1)"),
        ({1}, "{1}"),
        (b"x", "b'x'"),
        (Word("text"), "text"),
        (Level.LOW, "low"),
        ([Word("text")], '("text")'),
        ({}, "{}"),
        ({"a": 1, "b": [None, True]}, '{"a": 1, "b": [null, true]}'),
        (OrderedDict(b=1, a="é"), '{"b": 1, "a": "é"}'),
        ({1: 2, None: 3}, '{"1": 2, "None": 3}'),
        ({"n": math.nan, "i": -math.inf}, '{"n": "nan", "i": "-inf"}'),
        ({"big": 1e308, "o": {1}}, '{"big": 1e+308, "o": "{1}"}'),
        (Pair(1, "x"), '(1 "x")'),
    ],
)
def test_values_are_written_as_the_contract_says(value, text):
    """Seed 002, format-tool-result, and decision 7."""
    assert format_tool_result(value) == text


def test_long_lists_are_pretty_printed():
    """Seed 002: list becomes a pretty-printed s-expression."""
    text = format_tool_result(["x" * 50, "y" * 50, [1, 2, ["z" * 76]]])
    lines = ['("' + "x" * 50 + '"', ' "' + "y" * 50 + '"', " (1", "  2", '  ("' + "z" * 76 + '")))']
    assert text == "\n".join(lines)


def test_long_mappings_are_indented():
    """Decision 7: mapping becomes JSON."""
    value = {"name": "x" * 80, "list": [1]}
    text = format_tool_result(value)
    assert json.loads(text) == value
    assert text.startswith('{\n  "name"')


def test_cycles_are_cut():
    """Style: never a hang."""
    value: list[Any] = [1]
    value.append(value)
    table: dict[str, Any] = {"a": value}
    table["self"] = table
    assert format_tool_result(value) == "(1 #<cycle>)"
    assert json.loads(format_tool_result(table)) == {"a": [1, "#<cycle>"], "self": "#<cycle>"}
    same = [0]
    assert format_tool_result([same, same]) == "((0) (0))"


@pytest.mark.parametrize("depth", [49, 60, 100_000])
def test_depth_is_bounded(depth):
    """Style: never a crash."""
    value: Any = "core"
    for _ in range(depth):
        value = [value]
    assert ("core" if depth < 50 else "#<deeper>") in format_tool_result(value)


class Broken:
    def __repr__(self):
        raise ValueError("no")


class Wordless:
    def __repr__(self):
        return 5


class Unreadable(UserDict[Any, Any]):
    def items(self):
        raise KeyError


class Endless(UserDict[Any, Any]):
    def items(self):
        number = 0
        while True:
            number += 1
            yield number, [number]


class EndlessList(list[Any]):
    def __iter__(self):
        while True:
            yield []


class BrokenList(list[Any]):
    def __iter__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (Broken(), "#<Broken: cannot be printed (ValueError)>"),
        (Wordless(), "#<Wordless: cannot be printed (TypeError)>"),
        ([Broken()], "(#<Broken: cannot be printed (ValueError)>)"),
        ({"a": Broken()}, '{"a": "#<Broken: cannot be printed (ValueError)>"}'),
        ({Broken(): 1}, '{"#<Broken: cannot be printed (ValueError)>": 1}'),
        (Unreadable(a=1), '{"#<unreadable: KeyError>": null}'),
        (BrokenList([1]), "#<BrokenList: cannot be printed (RuntimeError)>"),
        ([10**5000], "(#<integer of about 4,983 digits>)"),
        ({"n": 10**5000}, "#<integer of about 4,983 digits>"),
    ],
)
def test_what_cannot_be_printed_gets_a_stand_in(value, part):
    """A broken printer must not lose the result."""
    assert part in format_tool_result(value)


def test_an_integer_that_python_refuses_to_print_is_described():
    """Python prints no integers beyond 4300 digits."""
    assert format_tool_result(10**5000) == "#<integer of about 4,983 digits>"
    assert format_tool_result(10**4000) == "1" + "0" * 4000


@pytest.mark.parametrize(
    "value", [Endless(), EndlessList(), list(range(3_000_000)), {"l": [(1, 2)] * 500_000}]
)
def test_huge_and_endless_values_cost_what_is_shown_of_them(value):
    """Style: never unbounded memory."""
    text = format_tool_result(value)
    assert "…" in text
    assert len(text) < 10_000_000


def test_exponential_sharing_is_bounded():
    """Forty nested pairs of nothing would be a terabyte of parentheses."""
    value: list[Any] = []
    for _ in range(40):
        value = [value, value]
    assert len(format_tool_result(value)) < 20_000_000


def test_surrogates_pass_through_unharmed():
    """The executor replaces them; formatting only writes."""
    assert format_tool_result(["\ud800"]) == '("\ud800")'
    assert "\ud800" in format_tool_result({"a": "\ud800"})


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.builds(Broken),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=4)
    ),
    max_leaves=10,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@given(ANY)
def test_every_value_becomes_text(value):
    """Seed 002, Invariant 3: content is a string."""
    assert type(format_tool_result(value)) is str


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=5))
def test_plain_mappings_can_be_read_back(value):
    """Decision 7: mapping becomes JSON."""
    assert json.loads(format_tool_result(value)) == value
