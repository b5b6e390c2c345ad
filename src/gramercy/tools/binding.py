"""Compare a specification with an implementation and say where they differ."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gramercy.gram.json_schema import canonical_schema
from gramercy.gram.suggestion import suggest
from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gramercy.gram.json_schema import Schema
    from gramercy.gram.specification import ToolSpecification
    from gramercy.tools.tool import Tool

LONGEST_SHOWN = 120


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One difference between what is specified and what is implemented."""

    path: str
    specified: str
    implemented: str
    hint: str | None = None

    def __str__(self) -> str:
        text = f"{self.path}: specified {self.specified}, implemented {self.implemented}"
        return f"{text}; {self.hint}" if self.hint else text


def explain_mismatches(
    specification: ToolSpecification, tool: Tool | None, *, names: Iterable[str] = ()
) -> tuple[Mismatch, ...]:
    """List every difference; a missing implementation is one difference."""
    if tool is None:
        close = suggest(specification.name, names)
        hint = f"did you mean {close[0]!r}?" if close else "register an implementation under this name"
        return (Mismatch("name", repr(specification.name), "nothing of that name", hint),)
    return tuple(_differences(specification, tool))


def _differences(specification: ToolSpecification, tool: Tool) -> Iterator[Mismatch]:
    if specification.name != tool.name:
        yield Mismatch("name", repr(specification.name), repr(tool.name))
    if specification.description != tool.description:
        yield Mismatch("description", _text(specification.description), _text(tool.description))
    yield from _schema_differences("schema", *_comparable(specification.schema, tool.schema))
    if specification.safety is not None and Safety.parse(specification.safety) < tool.safety_level:
        yield Mismatch(
            "safety",
            specification.safety,
            tool.safety_level.value,
            "a specification may raise an implementation's level, never lower it",
        )


def _comparable(specified: Schema, implemented: Schema) -> tuple[Any, Any]:
    """Bring both schemas to a form in which only real differences are left.

    Most signatures do not speak of additional arguments: refusing them is the implementation's choice.
    """
    both = canonical_schema(specified), canonical_schema(implemented)
    for canonical in both:
        canonical.setdefault("required", [])
        canonical.setdefault("properties", {})
    if "additionalProperties" not in specified and implemented.get("additionalProperties") is False:
        del both[1]["additionalProperties"]
    return both


def _schema_differences(path: str, specified: Any, implemented: Any) -> Iterator[Mismatch]:
    if isinstance(specified, dict) and isinstance(implemented, dict):
        for key in sorted({*specified, *implemented}):
            if key not in specified:
                yield Mismatch(f"{path}.{key}", "nothing", _text(implemented[key]))
            elif key not in implemented:
                yield Mismatch(f"{path}.{key}", _text(specified[key]), "nothing")
            else:
                yield from _schema_differences(f"{path}.{key}", specified[key], implemented[key])
    elif isinstance(specified, list) and isinstance(implemented, list) and len(specified) == len(implemented):
        for index, (one, other) in enumerate(zip(specified, implemented, strict=True)):
            yield from _schema_differences(f"{path}[{index}]", one, other)
    # Python's 1 and True are equal, JSON's are not.
    elif specified != implemented or isinstance(specified, bool) is not isinstance(implemented, bool):
        yield Mismatch(path, _text(specified), _text(implemented))


def _text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "…"


def bound(specification: ToolSpecification, tool: Tool) -> Tool:
    """Return the implementation as the specification wants it: its level raised, its categories added."""
    level = max(
        tool.safety_level, Safety.parse(specification.safety or tool.safety_level), key=lambda s: s.rank
    )
    categories = tuple(dict.fromkeys((*tool.categories, *(specification.categories or ()))))
    if level is tool.safety_level and categories == tool.categories:
        return tool
    return replace(tool, safety_level=level, categories=categories)
