"""Make tools from a parameter list, an annotated function or a JSON Schema; refuse faulty definitions.

Every check adds to one list of problems, so that one refusal says everything that is wrong.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from gramercy.errors import GramercyError, InvalidToolError
from gramercy.gram.suggestion import did_you_mean
from gramercy.tools.arguments import check_definition
from gramercy.tools.safety import Safety
from gramercy.tools.tool import Edits, Handler, Likeness, Paths, Tool
from gramercy.tools.values import copy_plain, is_duration, is_unicode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Problems: TypeAlias = "list[str]"
hint = partial(did_you_mean, before="; ")

SNAKE_CASE = re.compile(r"[a-z][a-z0-9_]*")
GRAM_SYMBOL = re.compile(r"[a-zA-Z_][0-9a-zA-Z_.\-@]*")
# Deeper schemas only serve to exhaust the stack of the compiler.
DEEPEST_SCHEMA = 100
OPTIONS = (
    *("deadline", "inline", "idempotent", "target_state", "effect", "async_handler", "edits", "aliases"),
    "probe",
    "judged_as",
    "paths",
    *("title", "read_only", "destructive", "open_world", "output_schema"),
)
# Words of other libraries, too different from ours to be guessed by their letters.
MEANT = {"safety": "safety_level", "level": "safety_level", "danger": "safety_level", "tags": "categories"}
PARAMETER_TYPES = ("string", "boolean", "number", "integer", "object", "array")
PARAMETER_KEYS = frozenset({
    *("name", "type", "description", "default", "enum", "examples", "title"),
    *("items", "minItems", "maxItems", "uniqueItems"),
    *("properties", "required", "additionalProperties"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "pattern", "format"),
})  # fmt: skip
SNAKE_EXAMPLE = "snake_case such as 'read_file'"
# A section of a docstring that is already in the schema, in the Google, NumPy or reST style.
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

    `options` are the further fields of Tool: deadline, inline, idempotent, target_state, title, …
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
    from gramercy.gram.functions import function_to_schema
    from gramercy.tools.functions import keyword_handler

    problems: list[str] = []
    called = getattr(function, "__name__", "") if name is None else name
    check_name(called, SNAKE_CASE, SNAKE_EXAMPLE, problems)
    schema: dict[str, Any] = {}
    try:
        schema = {**function_to_schema(function), "additionalProperties": False}
    except GramercyError as error:
        problems.append(str(error))
    return _make(called, schema, keyword_handler(function), problems, about, function)


def _summary(function: Callable[..., Any]) -> str:
    """Return the docstring up to its parameter section, which is already in the schema."""
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
    # Only a valid definition is compiled: the compiler would repeat the problems in harder words.
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


def read_parameters(parameters: object, problems: Problems) -> dict[str, Any]:
    """Return the properties that a list of parameters describes."""
    if isinstance(parameters, str | bytes | Mapping) or not isinstance(parameters, Iterable):
        problems.append('parameters must be a list such as [{"name": "path", "type": "string"}]')
        return {}
    properties: dict[str, Any] = {}
    for position, parameter in enumerate(parameters, 1):
        name = parameter.get("name") if isinstance(parameter, Mapping) else None
        if not isinstance(name, str) or not name:
            problems.append(f'parameter {position} has no name: expected an object with "name" and "type"')
        elif name in properties:
            problems.append(f"parameter {name!r} is there twice: remove or rename one")
        else:
            properties[name] = _property(name, parameter, problems)
    return properties


def _property(name: str, parameter: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    for key in parameter:
        if key not in PARAMETER_KEYS:
            problems.append(f"parameter {name!r} has an unknown key {key!r}{hint(key, PARAMETER_KEYS)}")
    if isinstance(parameter.get("required"), bool):
        problems.append(
            f"parameter {name!r} says 'required' itself: pass required=[{name!r}] to the tool instead"
        )
    kind = parameter.get("type")
    word = kind.removeprefix(":").lower() if isinstance(kind, str) else kind
    if word not in PARAMETER_TYPES:
        listed = f"expected {', '.join(PARAMETER_TYPES)}{hint(word, PARAMETER_TYPES)}"
        problems.append(f"parameter {name!r} has the unknown type {kind!r:.50}: {listed}")
    return {**{key: value for key, value in parameter.items() if key != "name"}, "type": word}


def read_required(required: object, properties: Mapping[str, Any], problems: Problems) -> list[str]:
    """Return the names of required parameters, each once; all must be parameters."""
    if isinstance(required, str | Mapping) or not isinstance(required, Iterable):
        problems.append(f'required must be a list of names, such as ["path"], not {required!r:.50}')
        return []
    names: list[str] = []
    for name in required:
        if not isinstance(name, str):
            problems.append(f"required names {name!r:.50}, which is no text")
        elif name not in properties:
            known = f"; the parameters are {', '.join(properties) or 'none'}"
            problems.append(f"required names {name!r}, which is no parameter{hint(name, properties, known)}")
        elif name not in names:
            names.append(name)
    return names


def check_name(name: object, form: re.Pattern[str], example: str, problems: Problems) -> None:
    """Require a name of the given form."""
    if not isinstance(name, str):
        problems.append(f"the name is {type(name).__name__}: expected text in {example}")
    elif not name:
        problems.append(f"the name is empty: expected {example}")
    elif not form.fullmatch(name):
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[:100]).replace("-", "_").replace(" ", "_").lower()
        better = f"; try {snake!r}" if SNAKE_CASE.fullmatch(snake) else ""
        problems.append(f"the name {name[:100]!r} has the wrong form: expected {example}{better}")


def check_description(description: object, problems: Problems) -> None:
    """Require a description that is not empty and can be sent."""
    if not isinstance(description, str) or not description.strip():
        problems.append("the description is empty: tell the model what the tool does and when to use it")
    elif not is_unicode(description):
        problems.append("the description has a lone surrogate: expected valid Unicode text")


def check_level(word: object, problems: Problems) -> Safety:
    """Require one of the three safety levels."""
    try:
        return Safety.parse(word)
    except InvalidToolError as error:
        problems.append(str(error))
        return Safety.DANGEROUS


def check_handler(handler: object, problems: Problems) -> None:
    """Require a function of one argument."""
    if handler is None:
        problems.append("there is no handler: pass a function that takes one dictionary of arguments")
    elif not callable(handler):
        problems.append(f"the handler is {type(handler).__name__}: expected a function of one dictionary")
    elif not _takes_one(handler):
        problems.append(
            "the handler must take exactly one argument, the dictionary of arguments (or use @tool)"
        )


def _takes_one(function: Any) -> bool:
    if type(function) is FunctionType:
        # The usual case, decided without the cost of a whole signature.
        code = function.__code__
        if code.co_argcount == 1 and not code.co_kwonlyargcount:
            return True
    try:
        inspect.signature(function).bind({})
    except TypeError:
        return False
    except ValueError:
        return True  # a builtin without a signature; the call itself will tell
    return True


def check_categories(categories: object, problems: Problems) -> tuple[str, ...]:
    """Require a list of words; the seeds' leading colons are removed."""
    if isinstance(categories, str | Mapping) or not isinstance(categories, Iterable):
        problems.append(f'categories must be a list of words, such as ["files"], not {categories!r:.50}')
        return ()
    words = [c.removeprefix(":") if isinstance(c, str) else c for c in categories]
    if not all(isinstance(word, str) and word for word in words):
        problems.append("every category must be a word")
        return ()
    return tuple(dict.fromkeys(words))


def _unknown_option(key: str) -> str:
    names = ("safety_level", "categories", *OPTIONS)
    known = f": expected {', '.join(names)}"
    return f"unknown option {key!r}{hint(MEANT.get(key, key), names, known)}"


def check_options(options: Mapping[str, Any], problems: Problems) -> None:
    """Require options that exist, with values that make sense."""
    problems += [_unknown_option(key) for key in options if key not in OPTIONS]
    deadline = options.get("deadline")
    if deadline is not None and not is_duration(deadline):
        problems.append(f"the deadline is {deadline!r:.50}: expected a positive number of seconds or None")
    for key in ("inline", "idempotent", "read_only", "destructive", "open_world"):
        value = options.get(key, False)
        is_asked = key == "open_world" and callable(value)
        if not isinstance(value, bool) and not is_asked:
            problems.append(f"{key} is {value!r:.50}: expected True or False")
    if not isinstance(options.get("title", ""), str):
        problems.append(f"title is {options['title']!r:.50}: expected a text")
    for key in ("target_state", "effect", "async_handler", "aliases", "probe"):
        function = options.get(key)
        if function is not None and not (callable(function) and _takes_one(function)):
            problems.append(f"{key} must be a function of one argument, the dictionary of arguments")
    wanted = options.get("output_schema")
    if wanted is not None and not (isinstance(wanted, dict) and wanted.get("type") == "object"):
        problems.append("output_schema must be a JSON Schema of an object, or None")
    _check_declared(options, problems)


def _check_declared(options: Mapping[str, Any], problems: Problems) -> None:
    """Require the declarations of a tool to have the types that the guard reads."""
    judged = options.get("judged_as", ())
    if type(judged) is not tuple or not all(type(like) is Likeness for like in judged):
        problems.append(f"judged_as is {judged!r:.50}: expected a tuple of Likeness")
    paths = options.get("paths")
    if paths is not None and type(paths) is not Paths:
        problems.append(f"paths is {paths!r:.50}: expected Paths with a function that finds them, or None")
    edits = options.get("edits")
    names = edits if isinstance(edits, tuple) else ()
    if edits is not None and type(edits) is not Edits and [type(name) for name in names] != [str, str]:
        problems.append(f"edits is {edits!r:.50}: expected the names of two parameters, before and after")


def check_schema(schema: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """Require a usable JSON Schema; return a copy in plain JSON that shares nothing with it."""
    plain = copy_plain(schema, deepest=DEEPEST_SCHEMA, tuples=True)
    if plain.faults:
        problems.extend(f"the schema is not JSON at {fault}" for fault in plain.faults)
        return {}
    problems.extend(check_definition(plain.value))
    return plain.value  # type: ignore[no-any-return]
