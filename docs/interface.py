"""Describe a public name as Markdown: its signature, what it says about itself, its methods and fields."""

# ruff: noqa: INP001 - documentation is not a package

from __future__ import annotations

import inspect
from enum import Enum
from textwrap import indent
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_LINE = 96


def describe_name(name: str, value: Any) -> str:
    """Return the section of one name."""
    parts = [
        f"### {name}\n",
        indent(signature_text(name, value), "    ") + "\n",
        first_paragraph(value) + "\n",
    ]
    rows = list(_members(value)) if inspect.isclass(value) else []
    if rows:
        parts += [
            "| member | |\n|---|---|",
            *(f"| `{_cell(text)}` | {_cell(about)} |" for text, about in rows),
            "",
        ]
    return "\n".join(parts)


def first_paragraph(value: Any) -> str:
    """Return the first paragraph of a docstring."""
    return (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")


def signature_text(name: str, value: Any) -> str:
    """Write a signature on one line, or with one parameter a line when it is long."""
    if inspect.isclass(value) and issubclass(value, Enum):
        return "\n".join(f"{name}.{member.name} = {member.value!r}" for member in value)
    try:
        signature = inspect.signature(value)
    except ValueError:  # an exception that takes whatever Exception takes
        return f"{name}(message)"
    parameters = list(_parameters(_as_written(value, signature)))
    result = "" if inspect.isclass(value) else _result(signature)
    flat = f"{name}({', '.join(parameters)}){result}"
    if len(flat) <= LONGEST_LINE:
        return flat
    return "\n".join([f"{name}(", *(f"    {parameter}," for parameter in parameters), f"){result}"])


def _as_written(value: Any, signature: inspect.Signature) -> inspect.Signature:
    """Put the types of a record's fields as its module writes them; msgspec tells what they stand for."""
    if not hasattr(value, "__struct_fields__"):
        return signature
    written = value.__annotations__
    parameters = signature.parameters.values()
    return signature.replace(parameters=[each.replace(annotation=written[each.name]) for each in parameters])


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    before: inspect.Parameter | None = None
    starred = False
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if before is not None and before.kind is before.POSITIONAL_ONLY is not parameter.kind:
            yield "/"
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            yield "*"
        starred = starred or parameter.kind in {parameter.VAR_POSITIONAL, parameter.KEYWORD_ONLY}
        yield _parameter(parameter)
        before = parameter


def _parameter(parameter: inspect.Parameter) -> str:
    stars = "*" * (
        int(parameter.kind is parameter.VAR_POSITIONAL) + 2 * int(parameter.kind is parameter.VAR_KEYWORD)
    )
    text = f"{stars}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        text += f": {_type(parameter.annotation)}"
    return text if parameter.default is parameter.empty else f"{text} = {_default(parameter.default)}"


def _result(signature: inspect.Signature) -> str:
    return (
        "" if signature.return_annotation is signature.empty else f" -> {_type(signature.return_annotation)}"
    )


def _type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return text.replace("typing.", "")


def _default(value: Any) -> str:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    return "…" if repr(value).startswith("<") else repr(value)


def _members(kind: type) -> Iterator[tuple[str, str]]:
    """Yield what users of a class call or read, in the order in which it is written."""
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield name, first_paragraph(member)
        elif isinstance(member, classmethod | staticmethod) or inspect.isfunction(member):
            bound = getattr(kind, name)
            yield _flat(name, bound), first_paragraph(bound)


def _flat(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    awaited = "await " if inspect.iscoroutinefunction(function) else ""
    return f"{awaited}{name}({', '.join(_parameters(signature))}){_result(signature)}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
