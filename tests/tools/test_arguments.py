"""The arguments of a call: what fits, what does not, and what nobody can slip through."""

from __future__ import annotations

import enum
import math
import threading
from collections import OrderedDict
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest

from gramercy import InvalidArgumentsError, Tool, create_tool, define_tool, validate_tool_args
from gramercy.errors import InvalidSchemaError
from gramercy.gram.json_schema import compile_schema
from gramercy.tools.arguments import Copier


def closed(**properties):
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def faults_of(schema, arguments):
    with pytest.raises(InvalidArgumentsError) as caught:
        validate_tool_args(schema, arguments)
    return caught.value


ANYTHING = {"type": "object"}


@pytest.mark.parametrize(
    ("kind", "value", "fits"),
    [
        ("integer", 3, True),
        ("integer", 3.0, True),
        ("integer", -0.0, True),
        ("integer", 3.5, False),
        ("integer", True, False),
        ("integer", "3", False),
        ("integer", None, False),
        ("integer", 10**30, True),
        ("number", 3, True),
        ("number", 2.5, True),
        ("number", False, False),
        ("number", "2.5", False),
        ("boolean", True, True),
        ("boolean", 1, False),
        ("boolean", 0, False),
        ("boolean", "true", False),
        ("string", "", True),
        ("string", 3, False),
        ("string", None, False),
        ("array", [], True),
        ("array", "[]", False),
        ("array", {}, False),
        ("object", {}, True),
        ("object", "{}", False),
        ("null", None, True),
        ("null", "null", False),
    ],
)
def test_nothing_is_coerced(kind, value, fits):
    """Decision 11: booleans are not numbers, 3.0 is an integer, nothing is silently coerced."""
    schema = closed(it={"type": kind})
    if fits:
        result = validate_tool_args(schema, {"it": value})["it"]
        assert result == value
        # For JSON 3.0 and 3 are the same number; a handler that asked for a whole one gets one.
        assert type(result) is (int if kind == "integer" else type(value))
    else:
        assert [fault.path for fault in faults_of(schema, {"it": value}).faults] == ["it"]


def test_whole_numbers_are_whole_wherever_a_schema_asks_for_them():
    """Decision 11: 3.0 is an integer."""
    schema = closed(
        pair={"type": "array", "items": {"type": "integer"}},
        place={"type": "object", "properties": {"line": {"type": "integer"}, "share": {"type": "number"}}},
    )
    given = {"pair": [1.0, 2], "place": {"line": 3.0, "share": 4.0, "more": 5.0}}
    result = validate_tool_args(schema, given)
    kinds = [type(value) for value in (*result["pair"], *result["place"].values())]
    assert kinds == [int, int, int, float, float]
    assert given["pair"] == [1.0, 2]
    assert type(given["pair"][0]) is float


def test_extra_arguments_are_rejected_when_the_schema_says_so_and_passed_otherwise():
    """Decision 11."""
    arguments = {"it": 1, "extra": 2}
    assert (
        validate_tool_args({"type": "object", "properties": {"it": {"type": "integer"}}}, arguments)
        == arguments
    )
    assert [fault.path for fault in faults_of(closed(it={"type": "integer"}), arguments).faults] == ["extra"]


def test_our_own_tools_reject_extra_arguments():
    """Decision 11: our own tools say additionalProperties: false."""
    tool = define_tool("go", "Go.", [{"name": "to", "type": "string"}], handler=str)
    with pytest.raises(InvalidArgumentsError, match="fro: expected only these names: to"):
        tool.checker.check({"to": "a", "fro": "b"})


def test_defaults_are_filled_in_and_given_values_kept():
    """Guard design: validate, apply defaults."""
    schema = {
        "type": "object",
        "properties": {
            "limit": {"type": "integer", "default": 10},
            "all": {"type": "boolean", "default": True},
        },
    }
    assert validate_tool_args(schema, {}) == {"limit": 10, "all": True}
    assert validate_tool_args(schema, {"limit": 3, "x": None}) == {"limit": 3, "all": True, "x": None}


@pytest.mark.parametrize("arguments", [{}, {"other": [1]}])
def test_a_mutable_default_is_never_shared(arguments):
    """Style: values are immutable."""
    default: dict[str, Any] = {"list": [1], "deep": {"a": []}}
    tool = create_tool("it", "It.", {"type": "object", "properties": {"it": {"default": default}}}, str)
    first = tool.checker.check(arguments)
    first["it"]["list"].append(2)
    first["it"]["deep"]["a"].append(3)
    default["list"].clear()
    assert tool.checker.check(arguments)["it"] == {"list": [1], "deep": {"a": []}}
    assert tool.schema["properties"]["it"]["default"] == {"list": [1], "deep": {"a": []}}


@pytest.mark.parametrize("value", ["a", 1, 1.5, [1, [2]], {"a": {"b": [3]}}, "é"])
def test_the_result_shares_nothing_with_what_the_caller_holds(value):
    """Guard design: what was checked is what runs, whatever the caller does to its own values."""
    arguments = {"it": value}
    before = repr(arguments)
    result = validate_tool_args(ANYTHING | {"properties": {"n": {"default": 1}}}, arguments)
    assert repr(arguments) == before
    assert result == {"it": value, "n": 1}
    if isinstance(value, list | dict):
        assert result["it"] is not value
        inner = value[1] if isinstance(value, list) else value["a"]
        assert (result["it"][1] if isinstance(value, list) else result["it"]["a"]) is not inner


def test_arguments_that_another_thread_keeps_changing_are_checked_as_one_snapshot():
    """Guard design: nobody can change arguments between the check and the run."""
    arguments = {"it": {"0": 1}}
    done = threading.Event()

    def churn():
        for step in range(100_000):
            if done.is_set():
                return
            arguments["it"][str(step % 50)] = 1
            arguments["it"].pop(str((step * 7) % 50), None)

    thread = threading.Thread(target=churn, daemon=True)
    thread.start()
    schema = closed(it={"type": "object", "additionalProperties": {"type": "integer"}})
    for _ in range(300):
        result = validate_tool_args(schema, arguments)
        assert all(value == 1 for value in result["it"].values())
    done.set()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {"a": [0, v]}])
def test_numbers_that_json_has_not_are_refused_wherever_they_hide(value, wrap):
    """JSON has no NaN; a schema of {} lets everything else through."""
    error = faults_of(ANYTHING, {"it": wrap(value)})
    assert "expected a finite number" in str(error)
    assert error.faults[0].path in {"it", "it[0]", "it.a[1]"}


def test_huge_integers_pass_until_nobody_could_print_them():
    """Python prints no integers beyond 4300 digits."""
    assert validate_tool_args(ANYTHING, {"n": 10**3999}) == {"n": 10**3999}
    assert validate_tool_args(closed(n={"type": "integer"}), {"n": -(10**30)}) == {"n": -(10**30)}
    assert "a number of at most 4000 digits" in str(faults_of(ANYTHING, {"n": 10**5000}))
    assert "a number of at most 4000 digits" in str(faults_of(ANYTHING, {"n": [-(10**5000)]}))
    text = str(faults_of(closed(n={"type": "string"}), {"n": 10**3000}))
    assert "integer of about 2989 digits" in text


def nested(depth):
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_is_bounded():
    """Style: never a crash; deep values serve only to exhaust the stack of whoever walks them next."""
    assert validate_tool_args(ANYTHING, {"it": nested(63)}) == {"it": nested(63)}
    for depth in (64, 1_000, 100_000):
        assert "at most 64 levels of nesting" in str(faults_of(ANYTHING, {"it": nested(depth)}))


def test_cycles_are_refused_and_named():
    """Style: never a hang."""
    arguments: dict[str, Any] = {"it": [1]}
    arguments["it"].append(arguments)
    error = faults_of(ANYTHING, arguments)
    assert [fault.path for fault in error.faults] == ["it[1]"]
    assert "a value that contains itself" in str(error)


def test_parts_that_occur_twice_are_no_cycle():
    """Sharing is fine, only endlessness is not."""
    part = {"a": 1}
    assert validate_tool_args(ANYTHING, {"x": part, "y": [part, part]}) == {"x": part, "y": [part, part]}


def test_exponential_sharing_ends_in_a_fault():
    """Style: never unbounded memory; fifty small lists can stand for 2**50 values."""
    value: list[Any] = []
    for _ in range(50):
        value = [value, value]
    assert "at most 250,000 values" in str(faults_of(ANYTHING, {"it": value}))


class Colour(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ((1, 2), "tuple"),
        ({1, 2}, "set"),
        (b"a", "bytes"),
        (Decimal(1), "Decimal"),
        (object(), "object"),
        (Colour.RED, "Colour"),
        (MappingProxyType({}), "mappingproxy"),
        (print, "builtin_function_or_method"),
    ],
)
def test_python_objects_are_no_arguments(value, name):
    """Nothing is silently coerced, also not by the validator, which would take some of these."""
    assert f"it[0]: expected a JSON value, received a Python {name}" in str(
        faults_of(ANYTHING, {"it": [value]})
    )


@pytest.mark.parametrize("name", [1, None, True, (1,), 1.5])
@pytest.mark.parametrize("schema", [ANYTHING, closed(a={}), closed()])
def test_names_must_be_text(name, schema):
    """JSON has no other names."""
    for arguments in ({name: 1}, {"a": {name: 1}}, {"a": 1, name: 2}):
        assert "names that are text" in str(faults_of(schema, arguments)) or "a: expected" in str(
            faults_of(schema, arguments)
        )


def test_a_name_that_is_not_text_is_placed():
    """A fault says where it is."""
    assert str(faults_of(ANYTHING, {"a": [{2: 1}]}).faults[0]).startswith(
        "a[0]: expected names that are text"
    )


@pytest.mark.parametrize(
    "arguments", [{"it": "\ud800"}, {"it": ["ok", "\udfff"]}, {"\ud800": 1}, {"it": {"\ud83d": 1}}]
)
@pytest.mark.parametrize("schema", [ANYTHING, closed(it={}), closed(it={"type": "string"})])
def test_lone_surrogates_are_refused(arguments, schema):
    """No wire can carry them."""
    error = faults_of(schema, arguments)
    assert "lone surrogate" in str(error)
    str(error).encode()


def test_other_unicode_passes():
    """Only halves of pairs are refused."""
    text = "é 日本 😀 \u2028 \x00"
    assert validate_tool_args(ANYTHING, {text: text}) == {text: text}


def test_subclasses_of_plain_types_are_taken_as_the_plain_value():
    """A StrEnum or numpy-like float is the text or number it is; its other behaviour stays outside."""

    class Word(str):
        __slots__ = ()

        def __str__(self):
            raise RuntimeError

        def isascii(self):
            raise RuntimeError

    class Words(list[Any]):
        def __iter__(self):
            raise RuntimeError

    class Level(enum.StrEnum):
        LOW = "low"

    class Number(enum.IntEnum):
        ONE = 1

    given = {Word("a"): Word("b"), "l": Words([Level.LOW]), "n": Number.ONE, "d": OrderedDict(x=1)}
    result = validate_tool_args(closed(a={}, l={}, n={"type": "integer"}, d={}), given)
    assert result == {"a": "b", "l": ["low"], "n": 1, "d": {"x": 1}}
    kinds = [type(next(iter(result))), type(result["a"]), type(result["l"]), type(result["l"][0])]
    assert [*kinds, type(result["n"]), type(result["d"])] == [str, str, list, str, int, dict]


@pytest.mark.parametrize("arguments", [None, [], "{}", 3, True, [["a", 1]]])
def test_arguments_that_are_no_object_are_refused(arguments):
    """Seed 002, tool_call: arguments is an object."""
    text = str(faults_of(closed(a={}), arguments))
    assert "(arguments): expected object" in text


def test_ten_megabytes_pass_and_fail_in_bounded_work():
    """Performance design: no text is walked character by character in Python, no fault repeats it."""
    big = "x" * 10_000_000
    assert len(validate_tool_args(closed(it={"type": "string"}), {"it": big})["it"]) == len(big)
    for schema in (
        closed(it={"type": "integer"}),
        closed(it={"type": "string", "maxLength": 5}),
        closed(other={}),
    ):
        text = str(faults_of(schema, {"it": big}))
        assert len(text) < 2_000
        assert "…" in text
    text = str(faults_of(closed(it={"type": "array", "items": {"type": "string"}}), {"it": [1] * 200_000}))
    assert "it[0]: expected string" in text
    assert "possibly more faults, which are not listed" in text
    assert len(text) < 2_000


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "^(a|aa)+$", r"^(?=(a+)+b)(\w*)*$", "(.*a){25}b", r"^(a*)*\1$"]
)
def test_catastrophic_patterns_end(pattern):
    """Gram design: past a number of steps a match counts as failed instead of hanging the call."""
    text = str(faults_of(closed(it={"type": "string", "pattern": pattern}), {"it": "a" * 5_000 + "!"}))
    assert "it: expected text that matches" in text
    assert len(text) < 2_000


def test_a_schema_that_is_none_is_refused_as_such():
    """Gram design: InvalidSchemaError says what is wrong and where."""
    with pytest.raises(InvalidSchemaError, match="not a valid JSON Schema at properties/a/type"):
        validate_tool_args({"type": "object", "properties": {"a": {"type": "text"}}}, {})
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"not": deep}
    with pytest.raises(InvalidSchemaError):
        validate_tool_args(deep, {})


@pytest.mark.parametrize("properties", [{}, {"a": {"type": "string"}}])
def test_what_is_required_but_not_allowed_makes_every_call_wrong(properties):
    """A schema that nothing fits must not be satisfied by whoever looks at types alone."""
    schema = {"type": "object", "properties": properties, "required": ["x"], "additionalProperties": False}
    tool = create_tool("it", "It.", schema, str)
    with pytest.raises(InvalidArgumentsError, match="x: expected a value, received nothing"):
        tool.checker.check(dict.fromkeys(properties, "text"))


@pytest.mark.parametrize(
    "schema", [{"type": "object", "properties": [], "additionalProperties": False}, {"required": [[]]}]
)
def test_a_tool_made_by_hand_with_a_broken_schema_can_be_made(schema):
    """Its calls are refused; making it is not what fails."""
    assert Tool("it", "It.", {"additionalProperties": False, **schema}, str).name == "it"


def test_validators_are_compiled_when_first_needed_and_once():
    """Performance design: validators compiled on first use."""
    tool = define_tool("go", "Go.", [{"name": "to", "type": "string"}], handler=str)
    assert tool.checker._validator is None
    tool.checker.check({"to": "a"})
    first = tool.checker.validator
    tool.checker.check({"to": ["b"][0]})
    assert tool.checker.validator is first


ROW = closed(name={"type": "string"}, cells={"type": "array", "items": {"type": "integer"}})
TABLE = closed(rows={"type": "array", "items": ROW})


@pytest.mark.parametrize("schema", [TABLE, ANYTHING], ids=["described", "anything"])
def test_shared_parts_do_not_get_round_the_bound_on_values(schema):
    """Never unbounded memory: a thousand rows that are one list are a million values."""
    row = {"name": "a", "cells": [1] * 1_000}
    tool = create_tool("it", "It.", schema, str)
    assert tool.checker.check({"rows": [row] * 100})["rows"][99] == row
    with pytest.raises(InvalidArgumentsError, match="at most 250,000 values"):
        tool.checker.check({"rows": [row] * 1_000})


def test_nested_arguments_are_copied_whole_in_the_order_of_the_caller():
    """Guard design: what was checked is what runs."""
    tool = create_tool("it", "It.", TABLE, str)
    arguments: dict[str, Any] = {"rows": [{"cells": [1, 2], "name": "é"}]}
    checked = tool.checker.check(arguments)
    arguments["rows"][0]["cells"].append("later")
    arguments["rows"].append({})
    assert checked == {"rows": [{"cells": [1, 2], "name": "é"}]}
    assert list(checked["rows"][0]) == ["cells", "name"]


def test_a_schema_deeper_than_any_value_is_still_checked():
    """A copier is written down to a depth; what is below goes to the function for any value."""
    schema: dict[str, Any] = {"type": "integer"}
    value: Any = 1
    for _ in range(40):
        schema, value = {"type": "array", "items": schema}, [value]
    tool = create_tool("it", "It.", closed(deep=schema), str)
    assert tool.checker.check({"deep": value}) == {"deep": value}
    for _ in range(40):
        value = [value]
    with pytest.raises(InvalidArgumentsError, match="64 levels"):
        tool.checker.check({"deep": value})


@pytest.mark.parametrize("value", [1, 600, 0.5, 0, -1, 601, 600.5, True, "7", 1e300, float("nan")])
def test_bounds_of_numbers_are_checked_without_the_validator_and_as_it_would(value):
    """A time limit in a schema must not make every call slower."""
    number = {"type": "number", "exclusiveMinimum": 0, "maximum": 600}
    schema = {"type": "object", "properties": {"timeout": number}, "additionalProperties": False}
    copier = Copier(schema)
    assert copier.decides
    fits = not math.isnan(value) if isinstance(value, float) else True
    fits = fits and compile_schema(schema).is_valid({"timeout": value})
    assert (copier.compiled()({"timeout": value}) is not None) == fits
