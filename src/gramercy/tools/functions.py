"""Call an annotated Python function with JSON arguments."""

from __future__ import annotations

import inspect
import typing
from functools import wraps
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import Fault, InvalidArgumentsError
from gramercy.gram.annotations import function_to_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.gram.json_schema import Schema

# These arrive from JSON as what they are; anything else (enums, dates, dataclasses) is converted for the function.
JSON_NATIVE = (str, int, float, bool, list, dict, type(None), Any, object)


def describe_function(function: Callable[..., Any]) -> Schema:
    """Return the JSON Schema of a function's parameters."""
    return function_to_schema(function)


def keyword_handler(function: Callable[..., Any]) -> Callable[[dict[str, Any]], Any]:
    """Return a handler that calls the function with the arguments as keywords, converted to its annotations."""
    convert = _converter(function)
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def handle_async(arguments: dict[str, Any]) -> Any:
            return await function(**convert(arguments))

        return _plain(handle_async)

    @wraps(function)
    def handle(arguments: dict[str, Any]) -> Any:
        return function(**convert(arguments))

    return _plain(handle)


def _plain(handler: Any) -> Callable[[dict[str, Any]], Any]:
    """Keep the name and module of the wrapped function but show the handler's own signature."""
    del handler.__wrapped__
    return handler  # type: ignore[no-any-return]


def _converter(function: Callable[..., Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    typed = {name: hint for name, hint in _hints(function).items() if not _is_native(hint)}
    if not typed:
        return lambda arguments: arguments
    return lambda arguments: _converted(arguments, typed)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(function, include_extras=False)
    except Exception:  # noqa: BLE001 - unresolvable annotations are reported when the schema is made
        return {}
    hints.pop("return", None)
    return hints


def _is_native(hint: Any) -> bool:
    if hint in JSON_NATIVE:
        return True
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return True
    return origin in (list, dict, typing.Union, type(int | str)) and all(_is_native(part) for part in inner)


def _converted(arguments: dict[str, Any], typed: dict[str, Any]) -> dict[str, Any]:
    converted = dict(arguments)
    faults = []
    for name in typed.keys() & arguments.keys():
        try:
            converted[name] = msgspec.convert(arguments[name], typed[name])
        except msgspec.ValidationError as error:
            faults.append(Fault(name, getattr(typed[name], "__name__", str(typed[name])), str(error)))
    if faults:
        raise InvalidArgumentsError(faults)
    return converted
