"""The registry: a mutable, thread-safe wrapper of an immutable library; a running listing never changes."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from gramercy.errors import InvalidToolError, UnknownToolError
from gramercy.gram.suggestion import suggest
from gramercy.tools.library import ToolLibrary
from gramercy.tools.safety import Safety
from gramercy.tools.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Iterable

# Similar names for an unknown one; more would not be read as a correction.
SUGGESTIONS = 3


class Registry:
    """The tools of a program by name. Registering again replaces; there is no way to remove."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._lock = Lock()
        self._tools: dict[str, Tool] = {}
        self._library: ToolLibrary | None = None
        self.register_all(tools)

    def register(self, tool: Tool) -> Tool:
        """Add a tool, or replace the tool of the same name; return the tool."""
        if not isinstance(tool, Tool):
            raise InvalidToolError(
                f"only Tools can be registered, not {type(tool).__name__}: make one with define_tool or @tool"
            )
        with self._lock:
            self._tools[tool.name] = tool
            self._library = None
        return tool

    def register_all(self, tools: Iterable[Tool]) -> int:
        """Add several tools at once, all or none; two different tools of one name are refused."""
        batch = ToolLibrary.of(tools)
        with self._lock:
            self._tools.update(batch.items())
            self._library = None
        return len(batch)

    def get(self, name: str) -> Tool | None:
        """Return the tool of that name, or None."""
        return self._tools.get(name)

    def find(self, name: object) -> Tool | None:
        """Return the tool of that name, in either spelling (`read-file`, `read_file`), or None."""
        if not isinstance(name, str):
            return None
        tools = self._tools
        return tools.get(name) or tools.get(name.replace("-", "_")) or tools.get(name.replace("_", "-"))

    def resolve(self, name: str) -> Tool:
        """Return the tool that a caller means, or raise UnknownToolError with similar names."""
        found = self.find(name)
        if found is None:
            raise UnknownToolError(str(name)[:100], suggest(str(name), self.names(), most=SUGGESTIONS))
        return found

    def names(self) -> list[str]:
        """List all names, in alphabetical order."""
        return list(self.library())

    def select(
        self, max_safety_level: Safety | str | None = None, categories: Iterable[str] | None = None
    ) -> list[Tool]:
        """List the tools at or below a level and in at least one of the categories; both must hold."""
        ceiling = (
            Safety.parse(max_safety_level).rank if max_safety_level is not None else Safety.DANGEROUS.rank
        )
        levels = {level.value for level in Safety if level.rank <= ceiling}
        found = [tool for tool in self.library().values() if tool.level_word in levels]
        if categories is None:
            return found
        wanted = _category_words(categories)
        return [tool for tool in found if not wanted.isdisjoint(tool.categories)]

    def library(self) -> ToolLibrary:
        """Return the registered tools as an immutable library."""
        library = self._library
        if library is None:
            with self._lock:
                library = self._library = ToolLibrary.of(self._tools.values())
        return library

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __repr__(self) -> str:
        return f"<Registry of {len(self)} tools>"


def _category_words(categories: Iterable[str]) -> set[str]:
    words = [categories] if isinstance(categories, str) else categories
    return {word.removeprefix(":") for word in words}


_default = Registry()


def default_registry() -> Registry:
    """Return the registry that lives as long as the process."""
    return _default
