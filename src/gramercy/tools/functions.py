"""Call an annotated Python function with JSON arguments, converted to what its annotations promise.

The arguments fit the schema that `gram.functions` makes of the same annotations. A value that still cannot
be converted (a date that does not exist) is a fault of the call.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import inspect
import pathlib
import types
import typing
import uuid
from collections import abc
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from gramercy.errors import Fault, InvalidArgumentsError
from gramercy.gram.functions import is_pydantic_model, resolve_annotation
from gramercy.tools.values import describe_value

_NUMBERS: Final = (int, float)
_SCALARS: Final = (str, bool, int, float, types.NoneType)
_LISTS: Final = (list, abc.Sequence, abc.MutableSequence, abc.Iterable, abc.Collection)
_SETS: Final = {set: set, abc.Set: set, abc.MutableSet: set, frozenset: frozenset}
_MAPS: Final = (dict, abc.Mapping, abc.MutableMapping)
_UNIONS: Final = (typing.Union, types.UnionType)
_WRAPPERS: Final = (typing.Annotated, typing.Required, typing.NotRequired, typing.Final)
_DATES: Final = (dt.datetime, dt.date, dt.time, dt.timedelta, uuid.UUID)


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
    """Give the handler the name and module of the function, but keep its own signature."""
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
    for parameter in parameters:
        try:
            convert = conversion_of(resolve_annotation(function, parameter.annotation)).convert
        except Exception:  # noqa: BLE001, S112 - annotations are code; the schema says what is wrong with them
            continue
        if convert is not None:
            found[parameter.name] = convert
    return found


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


Converter: TypeAlias = Callable[[Any], Any]


class Conversion(NamedTuple):
    """The JSON types of an annotation, and how to convert them; None if they need no conversion."""

    accepts: tuple[type, ...]
    convert: Converter | None = None


def conversion_of(hint: Any) -> Conversion:
    """Prepare the conversion for an annotation."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in _WRAPPERS:
        return conversion_of(inner[0])
    if origin is typing.Literal:
        return _choice({item.value: item for item in inner if isinstance(item, Enum)})
    if origin in _UNIONS:
        return _union([conversion_of(member) for member in inner])
    return _scalar(hint) or _container(origin or hint, inner) or _class(hint)


def _scalar(hint: Any) -> Conversion | None:
    if hint is int:
        # JSON's 3.0 is a whole number; a function with an int parameter should not get a float.
        return Conversion(_NUMBERS, _whole)
    if hint in _DATES:
        return Conversion((str,), lambda value: msgspec.convert(value, hint))
    if hint is pathlib.Path:
        return Conversion((str,), pathlib.Path)
    if hint is float:
        return Conversion(_NUMBERS)
    if hint is None:
        return Conversion((types.NoneType,))
    return Conversion((hint,)) if hint in {str, bool, types.NoneType} else None


def _whole(value: float) -> float:
    return int(value) if type(value) is float and value.is_integer() else value


def _container(kind: Any, inner: tuple[Any, ...]) -> Conversion | None:
    if kind in _LISTS:
        return Conversion((list,), _each(inner, list))
    if kind in _SETS:
        return Conversion((list,), _each(inner, _SETS[kind]) or _SETS[kind])
    if kind is tuple:
        return Conversion((list,), _tuple(inner))
    return Conversion((dict,), _mapping(inner)) if kind in _MAPS else None


def _each(inner: tuple[Any, ...], collect: Converter) -> Converter | None:
    convert = conversion_of(inner[0]).convert if inner else None
    return None if convert is None else lambda values: collect(map(convert, values))


def _tuple(inner: tuple[Any, ...]) -> Converter:
    if not inner or inner[-1] is Ellipsis:
        return _each(inner, tuple) or tuple
    places = [conversion_of(hint).convert or _unchanged for hint in inner if hint != ()]
    return lambda values: tuple(convert(value) for convert, value in zip(places, values, strict=True))


def _mapping(inner: tuple[Any, ...]) -> Converter | None:
    key, value = (conversion_of(hint).convert for hint in inner) if inner else (None, None)
    if key is None and value is None:
        return None
    names, items = key or _unchanged, value or _unchanged
    return lambda values: {names(name): items(item) for name, item in values.items()}


def _unchanged(value: Any) -> Any:
    return value


def _choice(members: dict[Any, Any]) -> Conversion:
    convert = (lambda value: members.get(value, value)) if members else None
    return Conversion(_SCALARS, convert)


def _union(members: list[Conversion]) -> Conversion:
    accepted = tuple(kind for member in members for kind in member.accepts)
    if all(member.convert is None for member in members):
        return Conversion(accepted)

    def convert(value: Any) -> Any:
        for member in members:
            if type(value) in member.accepts:
                try:
                    return value if member.convert is None else member.convert(value)
                except (ValueError, TypeError):
                    continue  # another member of the union may take it
        return value

    return Conversion(accepted, convert)


def _class(hint: Any) -> Conversion:  # noqa: PLR0911 - one for each kind
    if isinstance(hint, typing.NewType):
        return conversion_of(hint.__supertype__)
    if type(hint).__name__ == "TypeAliasType":
        return conversion_of(hint.__value__)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return Conversion(_SCALARS, hint)
    if typing.is_typeddict(hint):
        return Conversion((dict,), _fields(hint, typing.get_type_hints(hint, include_extras=True), dict))
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        wanted = {item.name: hints[item.name] for item in dataclasses.fields(hint) if item.init}
        return Conversion((dict,), _fields(hint, wanted, hint))
    if is_pydantic_model(hint):
        return Conversion((dict,), functools.partial(_model, hint))
    return Conversion((*_SCALARS, list, dict))


def _model(kind: Any, values: dict[str, Any]) -> Any:
    """Make a pydantic model; the errors of its validators are reported in one line."""
    try:
        return kind.model_validate(values)
    except ValueError as error:
        # Only pydantic's own error has the parts, and pydantic need not be installed here.
        listed: list[Any] = getattr(error, "errors", list)()
        told = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in listed]
        raise ValueError("; ".join(told) or str(error)) from None


def _fields(kind: Any, hints: dict[str, Any], build: Any) -> Converter:
    converters = {name: conversion_of(hint).convert or _unchanged for name, hint in hints.items()}
    # A TypedDict may have more keys than it names; a dataclass cannot.
    rest = typing.is_typeddict(kind)

    def convert(values: dict[str, Any]) -> Any:
        known = {name: converters[name](item) for name, item in values.items() if name in converters}
        return build(**({**values, **known} if rest else known))

    return convert
