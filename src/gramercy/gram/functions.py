"""Describe Python functions as JSON Schema, in the words that type signatures use.

A parameter `T | None = None` is what gram calls `Maybe T`: it has the schema of T and may be left out.
Descriptions come out of docstrings in the three usual styles: Google, NumPy and reST.
"""

from __future__ import annotations

import functools
import inspect
import re
import typing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from gramercy.errors import SpecificationError
from gramercy.gram.annotations import annotation_to_schema, field_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gramercy.gram.json_schema import Schema

_REFUSED_KINDS = {
    inspect.Parameter.VAR_POSITIONAL: "takes any number of arguments: name each one, or take a list",
    inspect.Parameter.VAR_KEYWORD: "takes arguments of any name: name each one, or take a dict",
    inspect.Parameter.POSITIONAL_ONLY: "cannot be given by name: remove the / from the parameters",
}


def function_to_schema(function: Callable[..., Any]) -> Schema:
    """Return the JSON Schema of a function's parameters, with descriptions from annotations and docstring."""
    described = described_parameters(inspect.getdoc(function))
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
            else annotation_to_schema(resolve_annotation(function, annotation))
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
        return field_schema(resolve_annotation(function, parameter.annotation), parameter.default)
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


def resolve_annotation(function: Callable[..., Any], annotation: Any) -> Any:
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


_GOOGLE_HEADING: Final = re.compile(
    r"(?:Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments):\s*\Z"
)
_GOOGLE_ENTRY: Final = re.compile(
    r"\*{0,2}(?P<name>\w+)\s*(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?\s*:(?:\s+(?P<text>.*))?\Z"
)
_NUMPY_HEADING: Final = re.compile(r"(?:Other )?Parameters\Z")
_NUMPY_ENTRY: Final = re.compile(r"(?P<names>\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?\Z")
_REST_ENTRY: Final = re.compile(
    r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(?P<name>\w+)\s*:\s*(?P<text>.*)\Z"
)
_UNDERLINE: Final = re.compile(r"-{3,}\s*\Z")


def described_parameters(docstring: str | None) -> dict[str, str]:
    """Return what a docstring says about each parameter; a part that is not understood is left out."""
    if not docstring:
        return {}
    lines = inspect.cleandoc(docstring).expandtabs().splitlines()
    found: dict[str, list[str]] = {}
    for entries in (_google(lines), _numpy(lines), _rest(lines)):
        for name, words in entries:
            found.setdefault(name, words)
    described = {name: " ".join(filter(None, map(str.strip, words))) for name, words in found.items()}
    return {name: words for name, words in described.items() if words}


def _starts_section(lines: list[str], number: int) -> bool:
    line = lines[number]
    underlined = number + 1 < len(lines) and _UNDERLINE.match(lines[number + 1])
    return bool(_GOOGLE_HEADING.match(line) or _REST_ENTRY.match(line) or underlined)


def _google(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(lines):
        if _GOOGLE_HEADING.match(line):
            yield from _indented_entries(lines[number + 1 :])


def _indented_entries(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the entries of one indented section; deeper lines continue an entry."""
    depth: int | None = None
    words: list[str] = []
    for line in lines:
        indent = _indent(line)
        if not line.strip():
            continue
        if indent == 0:
            return
        depth = indent if depth is None else depth
        entry = _GOOGLE_ENTRY.match(line.strip()) if indent <= depth else None
        if entry:
            words = [entry["text"] or ""]
            yield entry["name"], words
        else:
            words.append(line)


def _numpy(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(lines[:-1]):
        if _NUMPY_HEADING.match(line) and _UNDERLINE.match(lines[number + 1]):
            yield from _underlined_entries(lines[number + 2 :])


def _underlined_entries(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the entries of one underlined section; indented lines describe the entry above."""
    words: list[str] = []
    for number, line in enumerate(lines):
        if _starts_section(lines, number):
            return
        entry = _NUMPY_ENTRY.match(line) if line.strip() and _indent(line) == 0 else None
        if entry:
            words = []
            for name in entry["names"].split(","):
                yield name.strip(" *"), words
        else:
            words.append(line)


def _rest(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    words: list[str] = []
    for line in lines:
        entry = _REST_ENTRY.match(line.strip())
        if entry:
            words = [entry["text"]]
            yield entry["name"], words
        elif _indent(line):
            words.append(line)
        else:
            words = []


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
