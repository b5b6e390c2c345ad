"""Find what is wrong with a tool definition; every check adds to one list, so that all is said at once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from math import isfinite
from types import FunctionType
from typing import Any, TypeAlias

from gramercy.errors import InvalidToolError
from gramercy.gram.suggestion import suggest
from gramercy.tools.safety import Safety
from gramercy.tools.values import copy_plain, is_unicode

Problems: TypeAlias = "list[str]"

SNAKE_CASE = re.compile(r"[a-z][a-z0-9_]*")
GRAM_SYMBOL = re.compile(r"[a-zA-Z_][0-9a-zA-Z_.\-@]*")
DEEPEST_SCHEMA = 100
OPTIONS = ("deadline", "inline", "idempotent", "target_state", "effect", "async_handler")


def hint(word: object, candidates: Iterable[str], otherwise: str = "") -> str:
    """Return `; did you mean …?` when a candidate resembles the word."""
    close = suggest(word, candidates) if isinstance(word, str) else []
    return f"; did you mean {close[0]!r}?" if close else otherwise


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
    """Require a description that says something and can be sent."""
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
        # The usual case, told without the price of a whole signature.
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
    """Require a list of words; the seeds' leading colons are taken off."""
    if isinstance(categories, str | Mapping) or not isinstance(categories, Iterable):
        problems.append(f'categories must be a list of words, such as ["files"], not {categories!r:.50}')
        return ()
    words = [c.removeprefix(":") if isinstance(c, str) else c for c in categories]
    if not all(isinstance(word, str) and word for word in words):
        problems.append("every category must be a word")
        return ()
    return tuple(dict.fromkeys(words))


def check_options(options: Mapping[str, Any], problems: Problems) -> None:
    """Require options that exist, with values that make sense."""
    known = f": expected {', '.join(OPTIONS)}"
    problems += [
        f"unknown option {key!r}{hint(key, OPTIONS, known)}" for key in options if key not in OPTIONS
    ]
    deadline = options.get("deadline")
    if deadline is not None and not is_duration(deadline):
        problems.append(f"the deadline is {deadline!r:.50}: expected a positive number of seconds or None")
    for key in ("inline", "idempotent"):
        if not isinstance(options.get(key, False), bool):
            problems.append(f"{key} is {options[key]!r:.50}: expected True or False")
    for key in ("target_state", "effect", "async_handler"):
        function = options.get(key)
        if function is not None and not (callable(function) and _takes_one(function)):
            problems.append(f"{key} must be a function of one argument, the dictionary of arguments")


def is_duration(value: object) -> bool:
    """Tell whether a value is a usable number of seconds."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value > 0


def check_schema(schema: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """Require a usable JSON Schema; return a copy in plain JSON that nobody else can change."""
    plain = copy_plain(schema, deepest=DEEPEST_SCHEMA, tuples=True)
    if plain.faults:
        problems.extend(f"the schema is not JSON at {fault}" for fault in plain.faults)
        return {}
    # Imported here: the compiler costs more than the rest of the definition, and refused tools never need it.
    from gramercy.tools.arguments import check_definition

    problems.extend(check_definition(plain.value))
    return plain.value  # type: ignore[no-any-return]
