"""The tool library: an immutable map from names to implementations, to which specifications are bound.

If a specification cannot be bound, the error lists every difference from its implementation.
"""

from __future__ import annotations

import json
from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import BindingError, InvalidToolError
from gramercy.gram.json_schema import canonical_schema
from gramercy.gram.suggestion import did_you_mean
from gramercy.text import cut
from gramercy.tools.safety import Safety
from gramercy.tools.tool import Tool

if TYPE_CHECKING:
    from gramercy.gram.json_schema import Schema
    from gramercy.gram.specification import ToolSpecification

# A mismatch shows two values side by side; longer ones would hide where they differ.
LONGEST_SHOWN = 120


class ToolLibrary(Mapping[str, Tool]):
    """Implementations by name, in alphabetical order. Every change makes a new library."""

    __slots__ = ("_tools",)

    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}

    @classmethod
    def of(cls, tools: Iterable[Tool]) -> ToolLibrary:
        """Make a library of several tools; two different tools of one name are refused."""
        found: dict[str, Tool] = {}
        for tool in tools:
            _check_tool(tool)
            if found.setdefault(tool.name, tool) is not tool:
                raise InvalidToolError(f"two different tools are named {tool.name!r}: rename one of them")
        return cls._from(found)

    @classmethod
    def _from(cls, tools: dict[str, Tool]) -> ToolLibrary:
        library = cls()
        library._tools = dict(sorted(tools.items()))
        return library

    def register(self, name: str, tool: Tool) -> ToolLibrary:
        """Return a library that also has this tool; a tool of the same name is replaced."""
        _check_tool(tool)
        if name != tool.name:
            raise InvalidToolError(
                f"cannot register tool {tool.name!r} under {name!r:.100}: the names must be equal"
            )
        return self._from({**self._tools, name: tool})

    def lookup(self, name: str) -> Tool | None:
        """Return the implementation of that name, or None."""
        return self._tools.get(name)

    def bind(self, specification: ToolSpecification) -> Tool | None:
        """Return the implementation that matches in name, description and schema, or None."""
        tool = self._tools.get(specification.name)
        if tool is None or explain_mismatches(specification, tool):
            return None
        return bound(specification, tool)

    def bind_all(self, specifications: Iterable[ToolSpecification]) -> list[Tool]:
        """Return the implementation of every specification, or raise BindingError with every mismatch."""
        wanted = list(specifications)
        faults = [f"{s.name}: {mismatch}" for s in wanted for mismatch in self.explain_binding(s)]
        if faults:
            raise BindingError(
                "\n".join(["not every tool can be bound:", *(f"- {fault}" for fault in faults)])
            )
        return [bound(specification, self._tools[specification.name]) for specification in wanted]

    def explain_binding(self, specification: ToolSpecification) -> tuple[Mismatch, ...]:
        """List every reason why the specification cannot be bound; empty when it can."""
        return explain_mismatches(specification, self._tools.get(specification.name), names=self._tools)

    # Views of the dictionary itself: Mapping's own views would look every name up again.
    def values(self) -> ValuesView[Tool]:
        """Return the implementations, in alphabetical order of their names."""
        return self._tools.values()

    def items(self) -> ItemsView[str, Tool]:
        """Return names with implementations, in alphabetical order."""
        return self._tools.items()

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"<ToolLibrary of {len(self)} tools>"


def _check_tool(tool: object) -> None:
    if not isinstance(tool, Tool):
        raise InvalidToolError(
            f"a library holds Tools, not {type(tool).__name__}: make one with create_tool or @tool"
        )


class Mismatch(msgspec.Struct, frozen=True):
    """One difference between a specification and its implementation."""

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
        hint = did_you_mean(specification.name, names, "register an implementation under this name")
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
    """Normalize both schemas so that only real differences are left.

    Most signatures do not mention additional arguments: refusing them is the implementation's choice.
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
    return cut(json.dumps(value, ensure_ascii=False, default=repr), LONGEST_SHOWN)


def bound(specification: ToolSpecification, tool: Tool) -> Tool:
    """Return the implementation as the specification wants it: its level raised, its categories added."""
    level = max(
        tool.safety_level, Safety.parse(specification.safety or tool.safety_level), key=lambda s: s.rank
    )
    categories = tuple(dict.fromkeys((*tool.categories, *(specification.categories or ()))))
    if level is tool.safety_level and categories == tool.categories:
        return tool
    return replace(tool, safety_level=level, categories=categories)


def specified(tool: Tool) -> ToolSpecification:
    """Return the specification of an implementation; a GramercyError if gram cannot express it."""
    from gramercy.gram.signatures.signature import json_schema_to_signature
    from gramercy.gram.specification import create_tool_specification

    schema = {key: value for key, value in tool.schema.items() if key != "additionalProperties"}
    level = None if tool.safety_level is Safety.SAFE else tool.level_word
    signature = json_schema_to_signature(schema)
    return create_tool_specification(
        tool.name, tool.description, signature, safety=level, categories=tool.categories
    )
