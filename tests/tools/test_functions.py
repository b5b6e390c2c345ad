"""Tools made of annotated functions: schema, description, and arguments as the annotations promise them."""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
import functools
import uuid
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, NotRequired, Optional, TypedDict, Union

import pytest

from gramercy import Executor, InvalidArgumentsError, Registry, Safety, tool
from gramercy.errors import InvalidToolError

if TYPE_CHECKING:
    from somewhere_unknown import Missing  # type: ignore[import-not-found]  # on purpose


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Mixed(enum.Enum):
    ONE = 1
    HALF = 0.5
    MANY = "many"


UserName = NewType("UserName", str)


class Options(TypedDict):
    when: dt.date
    colour: NotRequired[Colour]


@dataclass
class Point:
    x: int
    y: int = 0
    tags: set[str] = field(default_factory=set)
    home: Path = Path()


@dataclass
class Box:
    corner: Point
    made: dt.datetime
    kind: Literal["wood", "paper"] = "wood"


def echo_of(annotation, default=...):
    """Make a tool of a function whose one parameter has the annotation; it returns what it got."""

    def echo(it):
        return it

    echo.__annotations__ = {"it": annotation}
    if default is not ...:
        echo.__defaults__ = (default,)
    echo.__doc__ = "Return it."
    return tool(echo)


def got(annotation, value):
    made = echo_of(annotation)
    return made.handler(made.checker.check({"it": value}))


def test_a_function_becomes_a_tool_with_the_schema_of_its_signature():
    """Names table: function with annotations and docstring."""

    @tool(safety_level="cautious", categories=["files"], deadline=5)
    def write_lines(
        path: str, lines: list[str], count: int = 1, *, append: bool = False, note: str | None = None
    ):
        """Write lines to a file.

        Use it for text only.

        Args:
            path: Where to write.
            lines: What to write.
        """
        return path, lines, count, append, note

    assert (write_lines.name, write_lines.safety_level) == ("write_lines", Safety.CAUTIOUS)
    assert (write_lines.categories, write_lines.deadline) == (("files",), 5)
    assert write_lines.description == "Write lines to a file.\n\nUse it for text only."
    assert write_lines.schema == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where to write."},
            "lines": {"type": "array", "items": {"type": "string"}, "description": "What to write."},
            "count": {"type": "integer", "default": 1},
            "append": {"type": "boolean", "default": False},
            "note": {"type": "string"},
        },
        "required": ["path", "lines"],
        "additionalProperties": False,
    }
    arguments = write_lines.checker.check({"path": "a", "lines": ["b"]})
    assert write_lines.handler(arguments) == ("a", ["b"], 1, False, None)


@pytest.mark.parametrize(
    ("docstring", "description"),
    [
        ("Do it.\n\nArgs:\n    it: The thing.\n", "Do it."),
        ("Do it.\n\nParameters\n----------\nit : str\n    The thing.\n", "Do it."),
        ("Do it.\n\n:param it: The thing.\n:returns: Nothing.", "Do it."),
        ("Do it.\n\nReturns: the thing.", "Do it."),
        ("Do it.\n\nReturns the thing when there is one.", "Do it.\n\nReturns the thing when there is one."),
        ("Parameters are what it takes.", "Parameters are what it takes."),
    ],
)
def test_the_description_is_the_docstring_without_what_the_schema_says(docstring, description):
    """Names table: docstrings describe."""

    def do_it(it: str):
        return it

    do_it.__doc__ = docstring
    assert tool(do_it).description == description
    assert tool(description="Other.")(do_it).description == "Other."


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (str, "a", "a"),
        (int, 3, 3),
        (float, 3, 3),
        (bool, True, True),
        (Any, {"a": [1]}, {"a": [1]}),
        (Optional[int], None, None),  # noqa: UP045 - the old spelling must work too
        (Union[int, str], "a", "a"),  # noqa: UP007 - the old spelling must work too
        (int | None, 4, 4),
        (Literal["a", 2], 2, 2),
        (Literal["a"] | None, None, None),
        (Literal[Colour.RED], "red", Colour.RED),
        (Colour, "blue", Colour.BLUE),
        (Size, 2, Size.LARGE),
        (Mixed, 0.5, Mixed.HALF),
        (Mixed, "many", Mixed.MANY),
        (list[Colour], ["red"], [Colour.RED]),
        (dt.datetime, "2026-01-31T12:00:00Z", dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)),
        (dt.date, "2026-01-31", dt.date(2026, 1, 31)),
        (dt.time, "12:30:00Z", dt.time(12, 30, tzinfo=dt.UTC)),
        (dt.timedelta, "PT90S", dt.timedelta(seconds=90)),
        (
            uuid.UUID,
            "00000000-0000-4000-8000-000000000000",
            uuid.UUID("00000000-0000-4000-8000-000000000000"),
        ),
        (Path, "notes/a.txt", Path("notes/a.txt")),
        (dt.date | None, None, None),
        (dt.date | str, "2026-01-31", dt.date(2026, 1, 31)),
        (dt.date | str, "some day", "some day"),
        (int | float, 3.5, 3.5),
        (bool | int, True, True),
        (Colour | bool, True, True),
        (UserName, "ann", "ann"),
        (Annotated[dt.date, "The day"], "2026-01-31", dt.date(2026, 1, 31)),
        (set[str], ["a", "b"], {"a", "b"}),
        (frozenset[int], [1, 2], frozenset({1, 2})),
        (AbstractSet[int], [1], {1}),
        (set, [1], {1}),
        (tuple[int, Colour], [1, "red"], (1, Colour.RED)),
        (tuple[int, ...], [1, 2, 3], (1, 2, 3)),
        (tuple, [1, "a"], (1, "a")),
        (Sequence[Path], ["a"], [Path("a")]),
        (Iterable[int], [1], [1]),
        (dict[str, dt.date], {"a": "2026-01-31"}, {"a": dt.date(2026, 1, 31)}),
        (Mapping[str, int], {"a": 1}, {"a": 1}),
        (dict, {"a": 1}, {"a": 1}),
        (Options, {"when": "2026-01-31"}, {"when": dt.date(2026, 1, 31)}),
        (
            Options,
            {"when": "2026-01-31", "colour": "red"},
            {"when": dt.date(2026, 1, 31), "colour": Colour.RED},
        ),
        (Point, {"x": 1}, Point(1)),
        (Point, {"x": 1, "tags": ["a"], "home": "b"}, Point(1, 0, {"a"}, Path("b"))),
        (
            Box,
            {"corner": {"x": 1, "y": 2}, "made": "2026-01-31T12:00:00Z"},
            Box(Point(1, 2), dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)),
        ),
        (list[Point] | None, [{"x": 1}], [Point(1)]),
        (Point | str, {"x": 1}, Point(1)),
        (Point | str, "here", "here"),
    ],
)
def test_arguments_arrive_as_the_annotation_promises(annotation, value, expected):
    """Names table: the function gets what its annotations say, from what JSON can carry."""
    result = got(annotation, value)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize("annotation", [int, int | None, list[int], dict[str, int], Point])
def test_a_whole_number_in_json_is_an_int_for_a_function_that_asks_for_one(annotation):
    """Decision 11: 3.0 is an integer."""
    values = {list[int]: [3.0], dict[str, int]: {"x": 3.0}, Point: {"x": 3.0}}
    result = got(annotation, values.get(annotation, 3.0))
    number = result[0] if isinstance(result, list) else result["x"] if isinstance(result, dict) else result
    number = number.x if isinstance(number, Point) else number
    assert (number, type(number)) == (3, int)


def test_what_fits_the_schema_but_not_the_type_is_an_argument_fault():
    """Decision 8: the model is told which argument to repair."""
    made = echo_of(dt.timedelta)
    arguments = made.checker.check({"it": "P1Y"})
    with pytest.raises(InvalidArgumentsError) as caught:
        made.handler(arguments)
    assert 'it: expected a value that can be converted for the function, received string "P1Y"' in str(
        caught.value
    )


def test_an_unresolvable_annotation_elsewhere_does_not_stop_conversion():
    """A return annotation that exists for type checkers only is common."""

    @tool
    def visit(when: dt.date) -> Missing:
        """Visit."""
        return when

    assert visit.handler({"when": "2026-01-31"}) == dt.date(2026, 1, 31)


def test_default_values_are_used_when_nothing_is_given():
    """Seed 004: Maybe parameters may be left out."""
    assert echo_of(Colour, Colour.RED).handler({}) is Colour.RED
    assert echo_of(dt.date | None, None).handler({}) is None
    made = echo_of(Colour, Colour.RED)
    assert made.checker.check({}) == {"it": "red"}
    assert made.handler({"it": "red"}) is Colour.RED


def test_async_functions_methods_partials_and_objects_become_tools():
    """Names table: @tool takes any annotated callable."""

    class Shop:
        def price(self, item: str, day: dt.date) -> str:
            """Tell the price."""
            return f"{item} on {day:%d.%m.%Y}"

        async def __call__(self, day: dt.date) -> str:
            """Tell the day."""
            return f"{day:%A}"

    async def wait(until: dt.date) -> int:
        """Wait."""
        return until.year

    partial = functools.partial(Shop.price, Shop(), "tea")
    registry = Registry([
        tool(wait),
        tool(Shop().price),
        tool(name="tea_price", description="Tell it.")(partial),
        tool(name="weekday", description="Tell it.")(Shop()),
    ])  # fmt: skip
    calls = {
        "wait": ({"until": "2026-01-31"}, "2026"),
        "price": ({"item": "tea", "day": "2026-01-31"}, "tea on 31.01.2026"),
        "tea_price": ({"day": "2026-01-31"}, "tea on 31.01.2026"),
        "weekday": ({"day": "2026-01-31"}, "Saturday"),
    }
    executor = Executor(registry)
    for name, (arguments, expected) in calls.items():
        call = {"id": name, "name": name, "arguments": arguments}
        assert executor.execute(call).content == expected
        assert asyncio.run(executor.aexecute(call)).content == expected
    assert [registry.resolve(name).is_async for name in calls] == [True, False, False, True]


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda it: it, "expected snake_case such as 'read_file'"),
        (5, "has no signature"),
        ("read", "has no signature"),
    ],
)
def test_what_is_no_annotated_function_is_refused(function, text):
    """Style: the refusal says what to change."""
    with pytest.raises(InvalidToolError) as caught:
        tool(function)
    assert text in str(caught.value)


def test_functions_that_cannot_be_called_by_name_are_refused_with_all_their_problems():
    """Style: the refusal says what to change."""

    def bad_name(first, *rest: int):
        return first, rest

    def any_names(**names: int):
        """Take names."""
        return names

    def unresolvable(it: Missing):
        """Take it."""
        return it

    refused: dict[Any, tuple[str, ...]] = {
        bad_name: ("'first' of", "has no annotation", "the description is empty"),
        any_names: ("takes arguments of any name",),
        unresolvable: ("cannot be resolved",),
    }
    for function, parts in refused.items():
        with pytest.raises(InvalidToolError) as caught:
            tool(function)
        for part in parts:
            assert part in str(caught.value)


def test_a_method_in_a_class_body_is_refused_because_nobody_can_pass_self():
    """The parameter self has no annotation and no caller."""

    def body():
        class Shop:
            @tool
            def price(self, item: str) -> str:
                """Tell the price."""
                return item

        return Shop

    with pytest.raises(InvalidToolError, match="'self'"):
        body()


def test_the_handler_shows_the_name_of_the_function_but_its_own_signature():
    """Seed 000: a handler takes one table of arguments."""

    @tool
    def greet(name: str) -> str:
        """Greet."""
        return f"Hello {name}"

    assert greet.handler.__name__ == "greet"
    assert greet.handler({"name": "Ann"}) == "Hello Ann"
    assert greet.function is not None
    assert greet.function("Bob") == "Hello Bob"
