"""Call an annotated Python function with JSON arguments."""

from __future__ import annotations

import functools
import inspect
import typing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from gramercy.errors import Fault, InvalidArgumentsError
from gramercy.gram.functions import function_to_schema
from gramercy.tools.conversion import conversion_of
from gramercy.tools.printing import describe_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.gram.json_schema import Schema
    from gramercy.tools.conversion import Converter


def describe_function(function: Callable[..., Any]) -> Schema:
    """Return the JSON Schema of a function's parameters."""
    return function_to_schema(function)


def keyword_handler(function: Callable[..., Any]) -> Callable[[dict[str, Any]], Any]:
    """Return a handler that calls the function with the arguments as keywords, converted as annotated."""
    converters = _converters(function)
    if inspect.iscoroutinefunction(function):

        async def handle_async(arguments: dict[str, Any]) -> Any:
            return await function(**_converted(arguments, converters))

        return _named_after(function, handle_async)

    def handle(arguments: dict[str, Any]) -> Any:
        return function(**_converted(arguments, converters))

    return _named_after(function, handle)


def _named_after(function: Callable[..., Any], handler: Any) -> Callable[[dict[str, Any]], Any]:
    """Give the handler the name and module of the function, but leave it the signature of its own."""
    functools.update_wrapper(
        handler, function, assigned=("__module__", "__name__", "__qualname__", "__doc__")
    )
    del handler.__wrapped__
    return handler  # type: ignore[no-any-return]


def _converters(function: Callable[..., Any]) -> dict[str, Converter]:
    """Prepare the conversion of every parameter that needs one; a faulty function is refused elsewhere."""
    found = {}
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}
    names = getattr(_innermost(function), "__globals__", {})
    for parameter in parameters:
        try:
            convert = conversion_of(_resolved(parameter.annotation, names)).convert
        except Exception:  # noqa: BLE001, S112 - annotations are code; the schema says what is wrong with them
            continue
        if convert is not None:
            found[parameter.name] = convert
    return found


def _resolved(annotation: Any, names: dict[str, Any]) -> Any:
    # One at a time: an annotation that cannot be resolved must not hide the others.
    holder = SimpleNamespace(__annotations__={"it": annotation})
    return typing.get_type_hints(holder, names, include_extras=True)["it"]


def _innermost(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.isroutine(function):
        function = type(function).__call__
    return inspect.unwrap(getattr(function, "__func__", function))


def _converted(arguments: dict[str, Any], converters: dict[str, Converter]) -> dict[str, Any]:
    if not converters:
        return arguments
    converted = dict(arguments)
    faults = []
    for name in converters.keys() & arguments.keys():
        try:
            converted[name] = converters[name](arguments[name])
        except (ValueError, TypeError, OverflowError) as error:
            received = f"{describe_value(arguments[name])} ({error})"
            faults.append(Fault(name, "a value that can be converted for the function", received))
    if faults:
        raise InvalidArgumentsError(faults)
    return converted
