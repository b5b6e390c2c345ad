"""Listings in pages, for tools/list and similar methods. A listing in use is encoded only once."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from gramercy.mcp.jsonrpc import LATEST_LEGACY, LIST_TTL_MS, Request, Shaper, encode, invalid_params

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from gramercy.errors import ProtocolError
    from gramercy.execution.executor import Executor
    from gramercy.execution.policy import Policy
    from gramercy.tools.library import ToolLibrary
    from gramercy.tools.safety import Safety
    from gramercy.tools.tool import Tool

# Revisions before this one have no structured results.
STRUCTURED_SINCE = "2025-06-18"
# Clients load all pages anyway, and nearly all servers have fewer tools: one request instead of many.
PAGE_SIZE = 1_000
# By ceiling, revision and cursor; only clients that try cursors cause more.
MOST_PAGES_KEPT = 64
# The categories of a tool say that it is a long one: a task if the client can, or only as a task.
AS_TASK, ONLY_AS_TASK = "task", "task-required"


def page_of(items: Sequence[Any], request: Request, name: str, size: int) -> dict[str, Any]:
    """Return the page of the request's cursor."""
    start = _read_cursor(request.params.get("cursor"))
    if start > len(items) or (start and start == len(items)):
        raise _bad_cursor()
    page: dict[str, Any] = {name: list(items[start : start + size])}
    if start + size < len(items):
        page["nextCursor"] = urlsafe_b64encode(b"%d" % (start + size)).decode()
    return page


def _read_cursor(cursor: Any) -> int:
    if cursor is None:
        return 0
    try:
        start = int(urlsafe_b64decode(cursor)[:20])
    except (ValueError, TypeError):
        raise _bad_cursor() from None
    if start <= 0:
        raise _bad_cursor()
    return start


def _bad_cursor() -> ProtocolError:
    return invalid_params(
        "unknown cursor; start again without one",
        {"parameter": "cursor"},
    )


def described(tool: Tool, policy: Policy, version: str) -> dict[str, Any]:
    """Describe a tool for tools/list: schema, annotations, and under our own keys what the guard will do."""
    meta: dict[str, Any] = {
        "gramercy/safety": tool.level_word,
        "gramercy/approval": approval_of(tool, policy),
    }
    if tool.categories:
        meta["gramercy/categories"] = list(tool.categories)
    shown = {**tool.listed("mcp"), "_meta": meta}
    if tool.output_schema is not None and version < STRUCTURED_SINCE:
        del shown["outputSchema"]
    support = task_support(tool) if version == LATEST_LEGACY else None
    return shown if support is None else {**shown, "execution": {"taskSupport": support}}


def approval_of(tool: Tool, policy: Policy) -> str:
    """Say what the policy will do with calls of a tool: allow, ask, deny, or that it depends on them."""
    policy.why(tool, {})
    settled = policy.settled.get(tool)
    return "depends" if settled is None else settled.action.value


def task_support(tool: Tool) -> str | None:
    """Return the task support of a tool for tools/list of 2025-11-25; None means never."""
    if ONLY_AS_TASK in tool.categories:
        return "required"
    return None if tool.inline else "optional"


class View(msgspec.Struct, frozen=True):
    """Which tools a server shows, and how many per page."""

    ceiling: Safety
    categories: Iterable[str] | None = None
    page_size: int = PAGE_SIZE

    def words(self) -> frozenset[str] | None:
        """Return the categories without the seeds' colons; None means all."""
        if self.categories is None:
            return None
        words = [self.categories] if isinstance(self.categories, str) else self.categories
        return frozenset(word.removeprefix(":") for word in words)


class ToolListing:
    """The tools that a client may see, page by page, encoded once until something changes."""

    def __init__(self, executor: Executor, shaper: Shaper, view: View) -> None:
        self._executor = executor
        self._shaper = shaper
        self._ceiling = view.ceiling
        self._categories = view.words()
        self._page_size = view.page_size
        self._library: ToolLibrary | None = None
        self._policy: Policy | None = None
        self._pages: dict[tuple[Any, ...], Raw] = {}
        # Claude Code shows its model only the names of tools and loads the rest on demand, except for these.
        self.foremost: Container[str] = ()

    def page(self, request: Request) -> Raw:
        """Return the page for a tools/list request."""
        self._refresh()
        cursor = request.params.get("cursor")
        key = (request.peer.ceiling, request.version, cursor if isinstance(cursor, str) else None)
        found = self._pages.get(key)
        return self._encoded(request, key) if found is None else found

    def visible(self, ceiling: Safety) -> list[Tool]:
        """List the tools that a client with this ceiling may see, in alphabetical order."""
        lowest = min(ceiling, self._ceiling, self._executor.policy.max_safety_level)
        return self._executor.settings.registry.select(lowest, self._categories)

    def why_hidden(self, tool: Tool, ceiling: Safety) -> str | None:
        """Say why a tool is not shown to a client with this ceiling; None if it is."""
        level = tool.safety_level
        lowest = min(ceiling, self._ceiling, self._executor.policy.max_safety_level)
        if level > lowest:
            return f"{tool.name} is {level.value}, and this client may use tools up to {lowest.value}"
        if self._categories is not None and self._categories.isdisjoint(tool.categories):
            return f"{tool.name} is in none of the categories that this server shows"
        return None

    def _refresh(self) -> None:
        """Clear the cached pages if a tool was registered or the policy replaced since."""
        library, policy = self._executor.settings.registry.library(), self._executor.settings.policy
        if library is not self._library or policy is not self._policy:
            self._library, self._policy = library, policy
            self._pages.clear()

    def _encoded(self, request: Request, key: tuple[Any, ...]) -> Raw:
        tools = self.visible(request.peer.ceiling)
        policy = self._executor.policy
        page = page_of(tools, request, "tools", self._page_size)
        page["tools"] = [described(tool, policy, request.version) for tool in page["tools"]]
        for shown in page["tools"]:
            if shown["name"] in self.foremost:
                shown["_meta"]["anthropic/alwaysLoad"] = True
        shaped = self._shaper.shaped(request, self._shaper.cached(request, page, LIST_TTL_MS))
        if len(self._pages) >= MOST_PAGES_KEPT:
            self._pages.clear()
        raw = self._pages[key] = Raw(encode(shaped))
        return raw
