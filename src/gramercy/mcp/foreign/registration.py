"""Let the accepted tools of another server into a registry, guarded like any other tool.

What the server says of itself decides nothing: the level is ours, and only accepted definitions are shown.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gramercy.errors import InvalidToolError
from gramercy.mcp.foreign.contents import read_result
from gramercy.mcp.foreign.definitions import Listing
from gramercy.mcp.foreign.failures import ForeignError
from gramercy.mcp.foreign.invisibles import reveal
from gramercy.mcp.foreign.pins import PinFile
from gramercy.mcp.foreign.review import Review, Standing, review_tools
from gramercy.mcp.foreign.server import LISTING, STARTING
from gramercy.tools.context import current_call
from gramercy.tools.definition import create_tool
from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gramercy.mcp.foreign.definitions import Definition
    from gramercy.mcp.foreign.server import ForeignServer
    from gramercy.tools.content import ToolOutput
    from gramercy.tools.registry import Registry
    from gramercy.tools.tool import Tool

LONGEST_NAME = 64
CATEGORY = "foreign"


class RemoteHandler:
    """Calls one tool of another server, as long as it is the one that was accepted."""

    def __init__(self, server: ForeignServer, definition: Definition) -> None:
        self.server = server
        self.definition = definition

    async def __call__(self, arguments: dict[str, Any]) -> ToolOutput:
        """Make the call; its progress goes to whoever called us."""
        definition = self.definition
        report = current_call().report
        return read_result(
            await self.server.acall(definition.name, arguments, digest=definition.digest, progress=report)
        )

    def state(self, arguments: Mapping[str, Any]) -> str:
        """Return what an approval is tied to: the definition that was last seen."""
        del arguments
        return self.server.digest_of(self.definition.name) or self.definition.digest


@dataclass(frozen=True, slots=True)
class Registration:
    """What came of a server's tools: the registered names, how every tool stands, and what else to know."""

    server: str
    registered: tuple[str, ...]
    reviews: tuple[Review, ...]
    notices: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Tell in a few lines what was refused, and why."""
        told = []
        for standing in (Standing.NEW, Standing.CHANGED, Standing.REMOVED, Standing.UNUSABLE):
            names = [reveal(review.tool) for review in self.reviews if review.standing is standing]
            if names:
                told.append(f"{self.server}: {_MEANINGS[standing]}: {_some(names)}")
        return [*told, *self.notices]


_MEANINGS = {
    Standing.NEW: "refused until you accept them (gramercy foreign accept)",
    Standing.CHANGED: "changed since you accepted them, refused until you accept the change",
    Standing.REMOVED: "accepted, but no longer there",
    Standing.UNUSABLE: "unusable",
}


def register_foreign(  # noqa: PLR0913 - what decides about strangers is said at the call, by name
    registry: Registry,
    server: ForeignServer,
    *,
    pins: PinFile | str | Path | None = None,
    level: Safety | str = Safety.DANGEROUS,
    rules: Mapping[str, Safety | str] | None = None,
    defer: bool = False,
) -> Registration:
    """Register the accepted tools of a server as `server__tool`; refuse and report all others.

    `rules` gives single tools, by their exact name at the server, another level. With `defer` the server is
    not asked: what was accepted is registered, and checked against the server at the first call.
    """
    accepted = (pins if isinstance(pins, PinFile) else PinFile(pins)).accepted(server.name)
    listing = Listing(accepted, {}) if defer else server.listing()
    reviews = review_tools(server.name, listing, accepted)
    levels = _Levels(Safety.parse(level), {name: Safety.parse(word) for name, word in (rules or {}).items()})
    notices = [
        f"{server.name}: the rule for {reveal(name)} has no effect: there is no such tool"
        for name in levels.rules
        if name not in listing.definitions
    ]
    tools = _tools(registry, server, reviews, levels, notices)
    registry.register_all(tools)
    return Registration(server.name, tuple(tool.name for tool in tools), tuple(reviews), tuple(notices))


@dataclass(frozen=True, slots=True)
class _Levels:
    otherwise: Safety
    rules: Mapping[str, Safety]

    def of(self, tool: str) -> Safety:
        return self.rules.get(tool, self.otherwise)


def _tools(
    registry: Registry, server: ForeignServer, reviews: list[Review], levels: _Levels, notices: list[str]
) -> list[Tool]:
    """Make the accepted tools; whoever would get a name that is not its own is refused, and that noted."""
    usable = [review.offered for review in reviews if review.standing is Standing.ACCEPTED and review.offered]
    names = [registered_name(server.name, definition.name) for definition in usable]
    made: list[Tool] = []
    for definition, name in zip(usable, names, strict=True):
        try:
            _check_free(name, names, registry.get(name), server, definition)
            made.append(_tool(name, server, definition, levels.of(definition.name)))
        except (InvalidToolError, ForeignError) as error:
            notices.append(f"{server.name}: {reveal(definition.name)} is refused: {reveal(str(error))}")
    return made


def registered_name(server: str, tool: str) -> str:
    """Return the name under which a remote tool is registered; providers take 64 letters, digits, - and _."""
    name = f"{server}__{re.sub('[^a-zA-Z0-9_-]', '_', tool)}"
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 9]}_{hashlib.sha256(tool.encode()).hexdigest()[:8]}"


def _tool(name: str, server: ForeignServer, definition: Definition, level: Safety) -> Tool:
    handler = RemoteHandler(server, definition)
    return create_tool(
        name,
        definition.description,
        definition.schema,
        handler,
        safety_level=level,
        categories=(CATEGORY, server.name),
        # The server's own limit comes first, and has the better words.
        deadline=server.timeout + 2 * STARTING + LISTING,
        target_state=handler.state,
    )


def _check_free(
    name: str, names: list[str], taken: Tool | None, server: ForeignServer, definition: Definition
) -> None:
    if names.count(name) > 1:
        raise ForeignError(f"several tools would be named {name}")
    if taken is not None and not _is_same(taken, server, definition):
        raise ForeignError(f"{name} is registered already, by another")


def _is_same(tool: Tool, server: ForeignServer, definition: Definition) -> bool:
    handler = tool.handler
    return (
        isinstance(handler, RemoteHandler)
        and handler.server.name == server.name
        and handler.definition.name == definition.name
    )


def _some(names: list[str], most: int = 20) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
