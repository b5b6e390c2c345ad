"""How clients and server get to know each other: initialize, server/discover, ping, logging/setLevel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gramercy.mcp.eras import DISCOVER_TTL_MS, LATEST_LEGACY, SUPPORTED, TASKS, Request, Shaper, agree
from gramercy.mcp.served import LEVELS
from gramercy.mcp.wire import INVALID_PARAMS, ProtocolError

if TYPE_CHECKING:
    from gramercy.mcp.catalogue import Catalog
    from gramercy.mcp.clients import Clients
    from gramercy.mcp.listeners import Listeners

LEGACY_TASKS: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}


class Greeting:
    """Says who this server is and what it can do, and remembers who the client is."""

    def __init__(
        self,
        shaper: Shaper,
        instructions: str,
        *,
        clients: Clients,
        listeners: Listeners,
        catalog: Catalog | None,
    ) -> None:
        self._instructions = {"instructions": instructions} if instructions else {}
        self._clients = clients
        self._listeners = listeners
        self._shaper = shaper
        self._catalog = catalog

    def initialize(self, request: Request) -> dict[str, Any]:
        """Begin a session of the older era."""
        peer = request.peer
        version = agree(request.text("protocolVersion"))
        capabilities, client = request.mapping("capabilities"), request.mapping("clientInfo")
        peer.version, peer.capabilities, peer.client = version, capabilities, client
        self._clients.of(peer).is_session = True
        self._listeners.remember_loop()
        return {
            "protocolVersion": version,
            "capabilities": self._legacy_capabilities(version),
            "serverInfo": self._shaper.server,
            **self._instructions,
        }

    def discover(self, request: Request) -> dict[str, Any]:
        """Tell a client of the newer era what there is."""
        extensions: dict[str, Any] = {"extensions": {TASKS: {}}}
        result = {
            "supportedVersions": list(SUPPORTED),
            "capabilities": {**self._capabilities(), **extensions},
            **self._instructions,
        }
        return self._shaper.cached(request, result, DISCOVER_TTL_MS)

    @staticmethod
    def ping(request: Request) -> dict[str, Any]:
        """Be there."""
        del request
        return {}

    def set_level(self, request: Request) -> dict[str, Any]:
        """Remember from which level on a client wants log lines."""
        level = request.text("level")
        if level not in LEVELS:
            raise ProtocolError(INVALID_PARAMS, f"Invalid params: level must be one of {', '.join(LEVELS)}")
        self._clients.of(request.peer).log_rank = LEVELS.index(level)
        return {}

    def _capabilities(self) -> dict[str, Any]:
        found: dict[str, Any] = {"tools": {"listChanged": True}}
        if self._catalog is not None:
            found["resources"] = {"subscribe": True, "listChanged": True}
            found["prompts"] = {"listChanged": True}
            found["completions"] = {}
        return found

    def _legacy_capabilities(self, version: str) -> dict[str, Any]:
        found = {**self._capabilities(), "logging": {}}
        if version == LATEST_LEGACY:
            found["tasks"] = LEGACY_TASKS
        return found
