"""Describe Python functions as JSON Schema, in the words that type signatures use.

A parameter `T | None = None` is what gram calls `Maybe T`: it has the schema of T and may be left out.
"""

from __future__ import annotations

import functools
import inspect
import typing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from gramercy.errors import SpecificationError
from gramercy.gram.functions.docstrings import read_docstring
from gramercy.gram.functions.shapes import annotation_to_schema, field_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.gram.json_schema import Schema

__all__ = ["annotation_to_schema", "function_to_schema", "result_to_schema"]

_REFUSED_KINDS = {
    inspect.Parameter.VAR_POSITIONAL: "takes any number of arguments: name each one, or take a list",
    inspect.Parameter.VAR_KEYWORD: "takes arguments of any name: name each one, or take a dict",
    inspect.Parameter.POSITIONAL_ONLY: "cannot be given by name: remove the / from the parameters",
}


def function_to_schema(function: Callable[..., Any]) -> Schema:
    """Return the JSON Schema of a function's parameters, with descriptions from annotations and docstring."""
    described = read_docstring(inspect.getdoc(function)).parameters
    properties, required = {}, []
    for parameter in _signature(function).parameters.values():
        schema = _parameter_schema(function, parameter)
        if parameter.name in described:
            schema = _with_description(schema, described[parameter.name])
        properties[parameter.name] = schema
        if parameter.default is inspect.Parameter.empty:
            required.append(parameter.name)
    return {"type": "object", "properties": properties, "required": required}


def result_to_schema(function: Callable[..., Any]) -> Schema:
    """Return the JSON Schema of a function's result; an empty one when its annotation says nothing useful."""
    annotation = _signature(function).return_annotation
    try:
        return (
            {}
            if annotation is inspect.Signature.empty
            else annotation_to_schema(_resolve(function, annotation))
        )
    except SpecificationError:
        return {}


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        raise SpecificationError(
            f"{_name(function)} has no signature that Python can show: wrap it in a function with annotations"
        ) from None


def _parameter_schema(function: Callable[..., Any], parameter: inspect.Parameter) -> Schema:
    which = f"the parameter {parameter.name!r} of {_name(function)}"
    if parameter.kind in _REFUSED_KINDS:
        raise SpecificationError(f"{which} {_REFUSED_KINDS[parameter.kind]}")
    if parameter.annotation is inspect.Parameter.empty:
        raise SpecificationError(f"{which} has no annotation: write {parameter.name}: str, or another type")
    try:
        return field_schema(_resolve(function, parameter.annotation), parameter.default)
    except SpecificationError as error:
        raise SpecificationError(f"{which}: {error}") from None


def _with_description(schema: Schema, description: str) -> Schema:
    if "description" in schema:
        return schema
    described = {**schema, "description": description}
    # The default stands last, as it does in the schema of a type signature.
    if "default" in described:
        described["default"] = described.pop("default")
    return described


def _resolve(function: Callable[..., Any], annotation: Any) -> Any:
    """Evaluate one annotation; the others of the function may be unresolvable without harm."""
    holder = SimpleNamespace(__annotations__={"annotation": annotation})
    namespace = getattr(_innermost(function), "__globals__", {})
    try:
        return typing.get_type_hints(holder, namespace, include_extras=True)["annotation"]
    except Exception as error:  # noqa: BLE001 - annotations are code, which may fail in any way
        raise SpecificationError(
            f"the annotation {annotation!r} cannot be resolved ({error}): import or define it at module level"
        ) from None


def _innermost(function: Any) -> Any:
    """Return the plain function behind partials, bound methods, decorators and callable objects."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.isroutine(function) and not inspect.isclass(function):
        function = type(function).__call__
    return inspect.unwrap(getattr(function, "__func__", function))


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
