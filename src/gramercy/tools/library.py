"""The tool library: an immutable map from names to implementations, to which specifications are bound."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from typing import TYPE_CHECKING

from gramercy.errors import BindingError, InvalidToolError
from gramercy.tools.binding import Mismatch, bound, explain_mismatches
from gramercy.tools.tool import Tool

if TYPE_CHECKING:
    from gramercy.gram.specification import ToolSpecification


class ToolLibrary(Mapping[str, Tool]):
    """Implementations by name, in alphabetical order. Every change makes a new library."""

    __slots__ = ("_tools",)

    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}

    @classmethod
    def of(cls, tools: Iterable[Tool]) -> ToolLibrary:
        """Make a library of several tools; two different ones of one name are refused."""
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
        """Return a library that also has this tool; one of the same name is replaced."""
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

    # Views of the dictionary itself: the ones that Mapping would make look every name up again.
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
