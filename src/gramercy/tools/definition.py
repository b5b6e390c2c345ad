"""Make tools: from a parameter list, from an annotated function, or from a JSON Schema. Every fault is refused here."""

from __future__ import annotations

import inspect
import re
from copy import deepcopy
from typing import TYPE_CHECKING, Any, overload

from gramercy.errors import GramercyError, InvalidToolError
from gramercy.gram.suggestion import suggest
from gramercy.tools.safety import Safety
from gramercy.tools.tool import Handler, Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

SNAKE_CASE = re.compile(r"[a-z][a-z0-9_]*")
GRAM_SYMBOL = re.compile(r"[a-zA-Z_][0-9a-zA-Z_.\-@]*")
PARAMETER_TYPES = ("string", "boolean", "number", "integer", "object", "array")
PARAMETER_KEYS = frozenset(
    "name type description default enum items properties required additionalProperties minimum maximum "
    "exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern format minItems maxItems "
    "uniqueItems examples title".split()
)


def define_tool(
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
    problems = _name_problems(name, SNAKE_CASE, "snake_case such as 'read_file'")
    properties = _properties(parameters, problems)
    needed = _required(required, properties, problems)
    schema = {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}
    return _make(name, description, schema, problems, safety_level, categories, handler=handler, **options)


def create_tool(
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
    problems = _name_problems(name, GRAM_SYMBOL, "a gram symbol such as 'sayHello'")
    if not isinstance(schema, dict):
        problems.append(f"the schema is {type(schema).__name__}: expected a JSON Schema object")
        schema = {}
    elif schema.get("type") != "object":
        problems.append('the schema describes no object: add "type": "object" and "properties"')
    return _make(name, description, schema, problems, safety_level, categories, handler=invoke, **options)


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
        from gramercy.tools.functions import describe_function, keyword_handler

        called = name or getattr(function, "__name__", "")
        problems = _name_problems(called, SNAKE_CASE, "snake_case such as 'read_file'")
        schema: dict[str, Any] = {}
        try:
            schema = {**describe_function(function), "additionalProperties": False}
        except GramercyError as error:
            problems.append(str(error))
        about = description if description is not None else _summary(function)
        return _make(
            called,
            about,
            schema,
            problems,
            safety_level,
            categories,
            handler=keyword_handler(function),
            function=function,
            **options,
        )

    return decorate if function is None else decorate(function)


def _summary(function: Callable[..., Any]) -> str:
    """Return the docstring up to its parameter section, which the schema already carries."""
    text = inspect.getdoc(function) or ""
    return re.split(r"\n\s*(?:Args|Arguments|Parameters|Returns|Raises)\b.*|\n\s*:param ", text, maxsplit=1)[0].strip()


def _name_problems(name: object, form: re.Pattern[str], example: str) -> list[str]:
    if not isinstance(name, str):
        return [f"the name is {type(name).__name__}: expected text in {example}"]
    if not name:
        return [f"the name is empty: expected {example}"]
    if form.fullmatch(name):
        return []
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[:100]).replace("-", "_").replace(" ", "_").lower()
    hint = f"; try {snake!r}" if SNAKE_CASE.fullmatch(snake) else ""
    return [f"the name {name[:100]!r} has the wrong form: expected {example}{hint}"]


def _properties(parameters: object, problems: list[str]) -> dict[str, Any]:
    if isinstance(parameters, str | bytes | dict) or not hasattr(parameters, "__iter__"):
        problems.append('parameters must be a list such as [{"name": "path", "type": "string"}]')
        return {}
    properties: dict[str, Any] = {}
    for position, parameter in enumerate(parameters, 1):
        _add_property(parameter, position, properties, problems)
    return properties


def _add_property(parameter: Any, position: int, properties: dict[str, Any], problems: list[str]) -> None:
    if not isinstance(parameter, dict) or not isinstance(parameter.get("name"), str) or not parameter["name"]:
        problems.append(f"parameter {position} has no name: expected an object with \"name\" and \"type\"")
        return
    name = parameter["name"]
    if name in properties:
        problems.append(f"parameter {name!r} is there twice: remove or rename one")
    for key in parameter:
        if key not in PARAMETER_KEYS:
            close = suggest(str(key), PARAMETER_KEYS)
            problems.append(f"parameter {name!r} has an unknown key {key!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
    schema = {key: deepcopy(value) for key, value in parameter.items() if key != "name"}
    schema["type"] = _parameter_type(name, parameter.get("type"), problems)
    properties[name] = schema


def _parameter_type(name: str, kind: Any, problems: list[str]) -> str:
    word = kind.removeprefix(":").lower() if isinstance(kind, str) else kind
    if word in PARAMETER_TYPES:
        return str(word)
    close = suggest(word, PARAMETER_TYPES) if isinstance(word, str) else []
    hint = f"; did you mean {close[0]!r}?" if close else ""
    problems.append(f"parameter {name!r} has the unknown type {kind!r}: expected {', '.join(PARAMETER_TYPES)}{hint}")
    return "string"


def _required(required: object, properties: dict[str, Any], problems: list[str]) -> list[str]:
    if isinstance(required, str) or not hasattr(required, "__iter__"):
        problems.append(f'required must be a list of names, such as ["path"], not {required!r:.50}')
        return []
    names = list(dict.fromkeys(required))
    for name in names:
        if name not in properties:
            close = suggest(str(name), properties)
            hint = f"; did you mean {close[0]!r}?" if close else f"; the parameters are {', '.join(properties) or 'none'}"
            problems.append(f"required names {name!r}, which is no parameter{hint}")
    return names


def _make(
    name: str,
    description: str,
    schema: Mapping[str, Any],
    problems: list[str],
    safety_level: Safety | str,
    categories: Iterable[str],
    **fields: Any,
) -> Tool:
    level = _level(safety_level, problems)
    if not isinstance(description, str) or not description.strip():
        problems.append("the description is empty: tell the model what the tool does and when to use it")
    _check_handler(fields.get("handler"), problems)
    groups = _categories(categories, problems)
    _check_options(fields, problems)
    if not problems:
        _check_schema(schema, problems)
    if problems:
        raise InvalidToolError(f"tool {name!r:.100} is refused:\n" + "\n".join(f"- {problem}" for problem in problems))
    return Tool(name, description, deepcopy(dict(schema)), safety_level=level, categories=groups, **fields)


def _level(word: object, problems: list[str]) -> Safety:
    try:
        return Safety.parse(word)
    except InvalidToolError as error:
        problems.append(str(error))
        return Safety.DANGEROUS


def _check_handler(handler: object, problems: list[str]) -> None:
    if handler is None:
        problems.append("there is no handler: pass a function that takes one dictionary of arguments")
    elif not callable(handler):
        problems.append(f"the handler is {type(handler).__name__}: expected a function of one dictionary")
    else:
        try:
            inspect.signature(handler).bind({})
        except TypeError:
            problems.append("the handler must take exactly one argument, the dictionary of arguments (or use @tool)")
        except ValueError:
            return  # a builtin without a signature; the call itself will tell


def _categories(categories: object, problems: list[str]) -> tuple[str, ...]:
    if isinstance(categories, str) or not hasattr(categories, "__iter__"):
        problems.append(f'categories must be a list of words, such as ["files"], not {categories!r:.50}')
        return ()
    words = [c.removeprefix(":") if isinstance(c, str) else c for c in categories]
    if not all(isinstance(word, str) and word for word in words):
        problems.append("every category must be a word")
        return ()
    return tuple(dict.fromkeys(words))


OPTIONS = ("deadline", "inline", "idempotent", "target_state")


def _check_options(fields: dict[str, Any], problems: list[str]) -> None:
    for key in fields:
        if key not in {*OPTIONS, "handler", "function"}:
            close = suggest(key, OPTIONS)
            problems.append(f"unknown option {key!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
    deadline = fields.get("deadline")
    if deadline is not None and not (isinstance(deadline, int | float) and deadline > 0):
        problems.append(f"the deadline is {deadline!r}: expected a positive number of seconds or None")


def _check_schema(schema: Mapping[str, Any], problems: list[str]) -> None:
    from gramercy.tools.arguments import check_definition

    problems.extend(check_definition(schema))
