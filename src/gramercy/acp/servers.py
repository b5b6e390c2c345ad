"""MCP servers that an editor hands over with a session: which of their tools the agent may use there.

What a person has accepted before (`gramercy foreign accept`) is taken as it is. What is new is shown to the
person at the editor, once for each server, and accepted for this session alone; every call of it asks.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from gramercy.errors import GramercyError
from gramercy.mcp.foreign import PinFile, Standing, connect_server, register_foreign, review_tools
from gramercy.mcp.foreign.server import LONGEST_SERVER_NAME
from gramercy.mcp.jsonrpc import invalid_params
from gramercy.tools.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from gramercy.acp.base import ServerWords
    from gramercy.mcp.foreign import Definition, ForeignServer, Review
    from gramercy.tools.tool import Tool

# An editor hands over what its settings name; a list of this length was not written by a person.
MOST_SERVERS = 20


class SessionPins(PinFile):
    """What is accepted of a server for one session; nothing is written."""

    def __init__(self, accepted: dict[str, Definition]) -> None:
        super().__init__()
        self._accepted = accepted

    def accepted(self, server: str) -> dict[str, Definition]:
        """Return what was accepted of the one server that it is for."""
        del server
        return self._accepted


class HandedServers:
    """The servers of one session. None is started before the first message."""

    def __init__(self, words: Sequence[ServerWords], project: str) -> None:
        if len(words) > MOST_SERVERS:
            raise invalid_params(f"{len(words)} MCP servers are handed over: at most {MOST_SERVERS}")
        self._servers: list[ForeignServer] = []
        for each in words:
            try:
                self._servers.append(_server(each, project, [known.name for known in self._servers]))
            except GramercyError as error:
                raise invalid_params(f"the MCP server {each.name!r:.60} cannot be used: {error}") from None

    async def tools(
        self,
        accept: Callable[[str, Sequence[Review]], Awaitable[bool]],
        tell: Callable[[str], object],
    ) -> list[Tool]:
        """Return the tools that may be used; `accept` asks about new ones, `tell` says what is left out."""
        found: list[Tool] = []
        listings = [asyncio.to_thread(server.listing) for server in self._servers]
        for server, listing in zip(
            self._servers, await asyncio.gather(*listings, return_exceptions=True), strict=True
        ):
            if isinstance(listing, GramercyError | OSError):
                tell(f"The MCP server {server.name} cannot be used: {listing}")
                continue
            if isinstance(listing, BaseException):
                raise listing
            accepted = await asyncio.to_thread(PinFile().accepted, server.name)
            reviews = review_tools(server.name, listing, accepted)
            new = [each for each in reviews if each.standing is Standing.NEW]
            if new and await accept(server.name, new):
                accepted |= {each.tool: each.offered for each in new if each.offered is not None}
            found += await asyncio.to_thread(_registered, server, accepted, tell)
        return found

    def close(self) -> None:
        """End them."""
        for server in self._servers:
            server.close()


def _registered(
    server: ForeignServer, accepted: dict[str, Definition], tell: Callable[[str], object]
) -> Iterable[Tool]:
    registry = Registry()
    for line in register_foreign(registry, server, pins=SessionPins(accepted)).lines():
        tell(line)
    return registry.library().values()


def _server(words: ServerWords, project: str, taken: list[str]) -> ForeignServer:
    name = _name(words.name, taken)
    if words.type == "http":
        headers = {each.name: each.value for each in words.headers}
        return connect_server(url=words.url, name=name, headers=headers, defer=True)
    if words.type != "stdio":
        raise GramercyError(f"its kind is {words.type!r:.40}: expected a program, or an address of kind http")
    env = {each.name: each.value for each in words.env}
    return connect_server([words.command, *words.args], name=name, env=env, folder=project, defer=True)


def _name(text: str, taken: list[str]) -> str:
    """Return a name as ours are: small letters and digits, and no other server's."""
    name = re.sub("[^a-z0-9]+", "-", text.casefold()).strip("-")
    name = (name if name[:1].isalpha() else f"server-{name}".strip("-"))[: LONGEST_SERVER_NAME - 3]
    found = name = name.strip("-")
    number = 2
    while found in taken:
        found, number = f"{name}-{number}", number + 1
    return found
