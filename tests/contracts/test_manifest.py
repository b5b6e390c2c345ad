"""Holds the manifest and the tests against each other, in both directions.

Tests name requirements with `@pytest.mark.contract("id")`. The marks are read from the source of all tests,
so that the answer is the same when only a part of them is run.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SOURCES = (
    "000 tool protocol: ",
    "001 tool registry: ",
    "002 tool execution: ",
    "003 tools/call: ",
    "004 tool system: ",
    "decisions: ",
    "clients: ",
    "answers: ",
    "day: ",
    "trust: ",
    "journal: ",
    "agents: ",
)
ID = re.compile(
    r"(00[0-4]|decision\.\d\d|clients|answers|day|trust|journal|agents)(\.[a-z0-9]+(-[a-z0-9]+)*)+"
)

Requirements = list[dict[str, str]]


def ids_in(source: str) -> set[str]:
    """Collect the ids that the marks on test functions name, those on single parameter sets included."""
    nodes = ast.walk(ast.parse(source))
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    tests = (function for function in functions if function.name.startswith("test_"))
    inside = (node for test in tests for mark in test.decorator_list for node in ast.walk(mark))
    calls = (node for node in inside if isinstance(node, ast.Call))
    marks = (call for call in calls if ast.unparse(call.func) == "pytest.mark.contract")
    return {ast.literal_eval(argument) for mark in marks for argument in mark.args}


@functools.cache
def named_ids() -> frozenset[str]:
    """Collect the ids that all tests name."""
    sources = (file.read_text("utf-8") for file in TESTS.rglob("test_*.py"))
    # To parse all tests takes a second, and few have such marks.
    marked = (source for source in sources if "pytest.mark.contract" in source)
    return frozenset(name for source in marked for name in ids_in(source))


def untested(requirements: Requirements, named: frozenset[str]) -> set[str]:
    return {entry["id"] for entry in requirements if "pending" not in entry} - named


def unknown(requirements: Requirements, named: frozenset[str]) -> frozenset[str]:
    return named - {entry["id"] for entry in requirements}


def pending_but_tested(requirements: Requirements, named: frozenset[str]) -> set[str]:
    return {entry["id"] for entry in requirements if "pending" in entry} & named


def repeated(requirements: Requirements) -> set[str]:
    counts = Counter(entry["id"] for entry in requirements)
    return {name for name, count in counts.items() if count > 1}


def incomplete(requirements: Requirements) -> set[str]:
    """Collect the ids of entries that lack something, hold something else, or say too little."""
    return {entry.get("id", "(no id)") for entry in requirements if not _is_complete(entry)}


def _is_complete(entry: dict[str, str]) -> bool:
    if not {"id", "source", "says"} <= entry.keys() <= {"id", "source", "says", "pending"}:
        return False
    if not entry["source"].startswith(SOURCES) or not ID.fullmatch(entry["id"]):
        return False
    seed = entry["id"].partition(".")[0]
    texts = [entry[key] for key in ("source", "says", "pending") if key in entry]
    return texts[0].startswith(seed) and all(len(text.split()) > 1 for text in texts)


def test_every_requirement_that_is_not_pending_has_a_test(requirements: Requirements) -> None:
    """A requirement nobody tests is a wish."""
    assert sorted(untested(requirements, named_ids())) == []


def test_every_id_that_a_test_names_is_a_requirement(requirements: Requirements) -> None:
    """A misspelt id would prove nothing."""
    assert sorted(unknown(requirements, named_ids())) == []


def test_no_pending_requirement_has_a_test(requirements: Requirements) -> None:
    """What is tested is no longer pending."""
    assert sorted(pending_but_tested(requirements, named_ids())) == []


def test_no_id_comes_twice(requirements: Requirements) -> None:
    """Two requirements of one id would share one proof."""
    assert sorted(repeated(requirements)) == []


def test_every_requirement_says_where_it_comes_from_and_what_it_is(requirements: Requirements) -> None:
    """The manifest is read beside the contracts."""
    assert sorted(incomplete(requirements)) == []


SEEDS = [*(source.partition(" ")[0] for source in SOURCES[:5]), "decision"]


@pytest.mark.parametrize(("family", "fewest"), [*((seed, 41) for seed in SEEDS), ("clients", 10)])
def test_every_contract_is_in_the_manifest(requirements: Requirements, family: str, fewest: int) -> None:
    """A lost manifest file would make everything pass."""
    assert sum(entry["id"].startswith(f"{family}.") for entry in requirements) >= fewest


PROVEN = {"id": "000.a", "source": "000 tool protocol: A", "says": "It does."}
WAITING = {"id": "000.b", "source": "000 tool protocol: B", "says": "It will.", "pending": "needs time"}


def test_the_checks_find_each_kind_of_fault() -> None:
    """The manifest can only be trusted when its checks can fail."""
    both = [PROVEN, WAITING]
    assert untested(both, frozenset()) == {"000.a"}
    assert unknown(both, frozenset({"000.a", "000.c"})) == {"000.c"}
    assert pending_but_tested(both, frozenset({"000.a", "000.b"})) == {"000.b"}
    assert repeated([PROVEN, PROVEN, WAITING]) == {"000.a"}
    assert incomplete(both) == set()


@pytest.mark.parametrize(
    "change",
    [
        {"id": "000.Not An Id"},
        {"id": "001.a"},
        {"source": "somewhere else"},
        {"says": ""},
        {"pending": "later"},
        {"extra": "not known here"},
    ],
)
def test_an_incomplete_entry_is_found(change: dict[str, str]) -> None:
    """The manifest can only be trusted when its checks can fail."""
    entry = {**PROVEN, **change}
    assert incomplete([entry]) == {entry["id"]}


def test_marks_are_found_on_tests_and_on_parameter_sets_only() -> None:
    """The manifest can only be trusted when its checks can fail."""
    source = """
@pytest.mark.contract("000.a", "000.b")
def test_one(): ...

class TestSome:
    @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.contract("000.c"))])
    async def test_two(self, x): ...

@pytest.mark.contract("000.d")
def not_a_test(): ...
"""
    assert ids_in(source) == {"000.a", "000.b", "000.c"}
