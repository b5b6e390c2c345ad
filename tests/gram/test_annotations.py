"""Python annotations and functions as JSON Schema."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
import pathlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NewType, NotRequired, Optional, TypedDict, Union

import pytest

from gramercy.errors import SpecificationError
from gramercy.gram.functions import annotation_to_schema, function_to_schema
from gramercy.gram.json_schema import compile_schema


class Color(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Level(enum.Enum):
    LOW = 1
    HIGH = "high"


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Options(TypedDict, total=False):
    depth: int


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.5
    label: str | None = None
    tags: list[str] = dataclasses.field(default_factory=list)
    hidden: int = dataclasses.field(default=0, init=False)


@dataclasses.dataclass
class Tree:
    children: list[Tree]


UserId = NewType("UserId", int)


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (object, {}),
        (list, {"type": "array"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (list[Any], {"type": "array"}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (list[int | None], {"type": "array", "items": {"type": ["integer", "null"]}}),
        (set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
        (tuple, {"type": "array"}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (
            tuple[int, str],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (tuple[()], {"type": "array"}),
        (dict, {"type": "object"}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Mapping[str, Any], {"type": "object"}),
        (Optional[int], {"type": ["integer", "null"]}),  # noqa: UP045 - the old spelling is the case
        (int | None, {"type": ["integer", "null"]}),
        (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),  # noqa: UP007 - the same
        (int | str | None, {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]}),
        (Any | None, {}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (Literal["a"] | None, {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}),
        (Color, {"type": "string", "enum": ["red", "blue"]}),
        (Level, {"enum": [1, "high"]}),
        (Literal[Color.RED], {"type": "string", "enum": ["red"]}),
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
        (
            Annotated[int, {"minimum": 1}, "how many"],
            {"type": "integer", "minimum": 1, "description": "how many"},
        ),
        (UserId, {"type": "integer"}),
        (dt.datetime, {"type": "string", "format": "date-time"}),
        (dt.date, {"type": "string", "format": "date"}),
        (dt.time, {"type": "string", "format": "time"}),
        (dt.timedelta, {"type": "string", "format": "duration"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (pathlib.Path, {"type": "string"}),
        (
            Movie,
            {
                "type": "object",
                "properties": {"title": {"type": "string"}, "year": {"type": "integer"}},
                "required": ["title"],
            },
        ),
        (Options, {"type": "object", "properties": {"depth": {"type": "integer"}}, "required": []}),
        (
            Point,
            {
                "type": "object",
                "properties": {
                    "x": {"type": "number"},
                    "y": {"type": "number", "default": 0.5},
                    "label": {"type": "string"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["x"],
            },
        ),
    ],
)
def test_every_annotation_has_its_schema(annotation, expected):
    """Design of the gram layer, Python function to signature."""
    schema = annotation_to_schema(annotation)
    assert schema == expected
    compile_schema(schema)


def test_a_schema_can_be_changed_without_changing_the_next_one():
    """Schemas are handed out as copies."""
    annotation_to_schema(str)["description"] = "mine"
    assert annotation_to_schema(str) == {"type": "string"}


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        (complex, "complex has no JSON Schema: use str"),
        (bytes, "bytes has no JSON Schema"),
        (dict[int, str], r"keys of a JSON object are text, not int: write dict\[str"),
        (Tree, "Tree contains itself"),
        (Literal[b"a"], "which is not JSON"),
        ("Nowhere", "Nowhere has no JSON Schema"),
        ([int], "has no JSON Schema"),
        (list[complex], "complex has no JSON Schema"),
    ],
)
def test_an_annotation_without_a_schema_is_refused_with_advice(annotation, reason):
    """The error says what to write instead."""
    with pytest.raises(SpecificationError, match=reason):
        annotation_to_schema(annotation)


def google(name: str, count: int = 3, color: Color = Color.RED, *, note: str | None = None) -> str:
    """Do a thing.

    It is quite a thing.

    Args:
        name: Who it is for,
            over two lines.
        count (int): How many: at least one.
        color (Color, optional): Which color.
        note: A note.

    Returns:
        name: not a parameter.
    """
    return f"{name}{count}{color}{note}"


def numpy(name: str, x: float = 1.5, y: float = 2.5):
    """Do a thing.

    Parameters
    ----------
    name : str
        Who it is for,
        over two lines.
    x, y : float, optional
        Where it is.

    Returns
    -------
    text
        Nothing.
    """
    return name, x, y


def rest(name: str, flag: bool = False):  # noqa: FBT001, FBT002 - the plainest function there is
    """Do a thing.

    :param name: Who it is for,
        over two lines.
    :param bool flag: Whether.
    :returns: Nothing.
    """
    return name, flag


def test_a_function_has_a_schema_with_descriptions_and_defaults():
    """Google style; an Enum default is its value, and None means that it may be left out."""
    assert function_to_schema(google) == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "Who it is for, over two lines."},
            "count": {"type": "integer", "description": "How many: at least one.", "default": 3},
            "color": {
                "type": "string",
                "enum": ["red", "blue"],
                "description": "Which color.",
                "default": "red",
            },
            "note": {"type": "string", "description": "A note."},
        },
        "required": ["name"],
    }


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (numpy, {"name": "Who it is for, over two lines.", "x": "Where it is.", "y": "Where it is."}),
        (rest, {"name": "Who it is for, over two lines.", "flag": "Whether."}),
    ],
)
def test_the_other_styles_of_docstrings_are_read_too(function, expected):
    """NumPy and reST."""
    properties = function_to_schema(function)["properties"]
    assert {name: schema["description"] for name, schema in properties.items()} == expected


def test_an_annotated_description_wins_over_the_docstring():
    """What stands beside the type is the nearer word."""

    def tool(x: Annotated[int, "near"]) -> int:
        """Do.

        Args:
            x: far
        """
        return x

    assert function_to_schema(tool)["properties"]["x"]["description"] == "near"


def test_a_default_that_is_not_json_is_left_out_and_still_optional():
    """Defaults are shown when JSON can carry them."""

    def tool(
        when: dt.date = dt.date(2020, 1, 1), ratio: float = float("nan"), pair: tuple[int, int] = (1, 2)
    ):
        return when, ratio, pair

    schema = function_to_schema(tool)
    assert schema["required"] == []
    assert "default" not in schema["properties"]["when"]
    assert "default" not in schema["properties"]["ratio"]
    assert schema["properties"]["pair"]["default"] == [1, 2]


def test_none_as_the_default_means_maybe():
    """`Maybe T` of the seed: the schema of T, not required."""

    def tool(
        a: int | None = None,
        b: Annotated[str | None, "bee"] = None,
        c: str = None,  # type: ignore[assignment] # noqa: RUF013 - as people write it
        d: int | None = 3,
    ):
        return a, b, c, d

    assert function_to_schema(tool) == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "string", "description": "bee"},
            "c": {"type": "string"},
            "d": {"type": ["integer", "null"], "default": 3},
        },
        "required": [],
    }


def _no_annotation(x):
    return x


def _many(*words: str):
    return words


def _any_name(**words: str):
    return words


def _by_position(x: int, /):
    return x


def _unresolvable(x: Missing):  # type: ignore[name-defined] # noqa: F821 - the case
    return x


def _bad_type(x: complex):
    return x


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (_no_annotation, "'x' of _no_annotation has no annotation: write x: str"),
        (_many, "any number of arguments: name each one, or take a list"),
        (_any_name, "arguments of any name: name each one, or take a dict"),
        (_by_position, "cannot be given by name: remove the /"),
        (_unresolvable, "'Missing' cannot be resolved .* at module level"),
        (_bad_type, "the parameter 'x' of _bad_type: complex has no JSON Schema"),
        (5, "has no signature"),
        (print, "any number of arguments"),
    ],
)
def test_a_function_that_cannot_be_described_is_refused_with_advice(function, reason):
    """The error names function, parameter and what to change."""
    with pytest.raises(SpecificationError, match=reason):
        function_to_schema(function)


class Greeter:
    def greet(self, name: str) -> str:
        return name

    def __call__(self, name: str) -> str:
        return name


def _decorated(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any):
        return function(*arguments, **named)

    return wrapper


async def _async_greet(name: str) -> str:
    return name


def _greet_with(greeting: str, name: str) -> str:
    return greeting + name


@pytest.mark.parametrize(
    "function",
    [
        Greeter().greet,
        Greeter(),
        _decorated(_async_greet),
        _async_greet,
        functools.partial(_greet_with, "hello"),
    ],
)
def test_methods_objects_decorated_async_and_partial_functions_are_described(function):
    """Whatever Python can call by keyword."""
    assert function_to_schema(function) == {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    }


def test_an_unresolvable_result_does_not_harm_the_parameters():
    """Each annotation is resolved alone."""

    def tool(name: str) -> Missing:  # type: ignore[name-defined] # noqa: F821 - the case
        return name

    assert function_to_schema(tool)["required"] == ["name"]
