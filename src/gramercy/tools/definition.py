"""Make tools: from a parameter list, from an annotated function, a JSON Schema; refuse the faulty ones."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any, overload

from gramercy.errors import GramercyError, InvalidToolError
from gramercy.tools.parameters import read_parameters, read_required
from gramercy.tools.problems import (
    GRAM_SYMBOL,
    SNAKE_CASE,
    check_categories,
    check_description,
    check_handler,
    check_level,
    check_name,
    check_options,
    check_schema,
)
from gramercy.tools.safety import Safety
from gramercy.tools.tool import Handler, Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

SNAKE_EXAMPLE = "snake_case such as 'read_file'"
# A section of a docstring that the schema already carries, in the Google, NumPy or reST style.
_SECTION = re.compile(
    r"^[ \t]*(?:"
    r"(?:Args|Arguments|Parameters|Params|Keyword Args|Returns|Yields|Raises):"
    r"|(?:Other )?(?:Parameters|Returns|Yields|Raises)[ \t]*\n[ \t]*-{3,}"
    r"|:(?:param|parameter|arg|argument|key|keyword|type|raises?|returns?|rtype)\b[^\n:]*:"
    r")",
    re.MULTILINE,
)


def define_tool(  # noqa: PLR0913 - the seed's operation, argument by argument
    name: str,
    description: str,
    parameters: Sequence[Mapping[str, Any]],
    *,
    required: Iterable[str] = (),
    safety_level: Safety | str = Safety.SAFE,
    categories: Iterable[str] = (),
    handler: Handler | None = None,
    **options: Any,
) -> Tool:
    """Define a tool from a list of parameters; its handler takes one dictionary of arguments.

    `options` are the further fields of Tool: deadline, inline, idempotent, target_state.
    """
    problems: list[str] = []
    check_name(name, SNAKE_CASE, SNAKE_EXAMPLE, problems)
    properties = read_parameters(parameters, problems)
    needed = read_required(required, properties, problems)
    schema = {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}
    about = {"description": description, "safety_level": safety_level, "categories": categories}
    return _make(name, schema, handler, problems, about | {"options": options})


def create_tool(  # noqa: PLR0913 - the seed's operation, argument by argument
    name: str,
    description: str,
    schema: Mapping[str, Any],
    invoke: Handler | None,
    *,
    safety_level: Safety | str = Safety.SAFE,
    categories: Iterable[str] = (),
    **options: Any,
) -> Tool:
    """Create a tool from a JSON Schema, for binding to a specification with the same name and schema."""
    problems: list[str] = []
    check_name(name, GRAM_SYMBOL, "a gram symbol such as 'sayHello'", problems)
    if not isinstance(schema, dict):
        problems.append(f"the schema is {type(schema).__name__}: expected a JSON Schema object")
    elif schema.get("type") != "object":
        problems.append('the schema describes no object: add "type": "object" and "properties"')
    about = {"description": description, "safety_level": safety_level, "categories": categories}
    return _make(name, schema, invoke, problems, about | {"options": options})


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    safety_level: Safety | str = Safety.SAFE,
    categories: Iterable[str] = (),
    **options: Any,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    safety_level: Safety | str = Safety.SAFE,
    categories: Iterable[str] = (),
    **options: Any,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of an annotated function: its signature gives the schema, its docstring the description."""

    def decorate(function: Callable[..., Any]) -> Tool:
        text = _summary(function) if description is None else description
        about = {"description": text, "safety_level": safety_level, "categories": categories}
        return _from_function(function, name, about | {"options": options})

    return decorate if function is None else decorate(function)


def _from_function(function: Callable[..., Any], name: str | None, about: dict[str, Any]) -> Tool:
    # Imported here: programs that define tools without annotations do not pay for reading them.
    from gramercy.tools.functions import describe_function, keyword_handler

    problems: list[str] = []
    called = getattr(function, "__name__", "") if name is None else name
    check_name(called, SNAKE_CASE, SNAKE_EXAMPLE, problems)
    schema: dict[str, Any] = {}
    try:
        schema = {**describe_function(function), "additionalProperties": False}
    except GramercyError as error:
        problems.append(str(error))
    return _make(called, schema, keyword_handler(function), problems, about, function)


def _summary(function: Callable[..., Any]) -> str:
    """Return the docstring up to its parameter section, which the schema already carries."""
    text = inspect.getdoc(function) or ""
    section = _SECTION.search(text)
    return text[: section.start() if section else None].strip()


def _make(  # noqa: PLR0913, PLR0917 - the one place where a definition's parts come together
    name: str,
    schema: Any,
    handler: Any,
    problems: list[str],
    about: dict[str, Any],
    function: Callable[..., Any] | None = None,
) -> Tool:
    check_description(about["description"], problems)
    level = check_level(about["safety_level"], problems)
    groups = check_categories(about["categories"], problems)
    check_handler(handler, problems)
    check_options(about["options"], problems)
    # Only a sound definition is compiled: the rest would repeat what was found, in harder words.
    plain = check_schema(schema, problems) if not problems else {}
    if problems:
        listed = "\n".join(f"- {problem}" for problem in problems)
        raise InvalidToolError(f"tool {name!r:.100} is refused:\n{listed}")
    return Tool(
        name,
        about["description"],
        plain,
        handler,
        safety_level=level,
        categories=groups,
        function=function,
        **about["options"],
    )
