"""Notify clients of changes: legacy sessions, and the listen streams of modern clients."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any

from gramercy.mcp import jsonrpc
from gramercy.mcp.jsonrpc import (
    SUBSCRIPTION_KEY,
    TASKS,
    Request,
    Shaper,
    invalid_params,
    missing_capability,
    notification,
)
from gramercy.mcp.resources import not_found

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.mcp.catalogue import Catalog
    from gramercy.mcp.clients import Clients

# Stored for each client, and scanned at each change.
MOST_URIS = 1_000
_FIELDS = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}


class ListenStream:
    """One open subscriptions/listen request."""

    __slots__ = ("request", "turn", "wanted")

    def __init__(self, request: Request, wanted: dict[str, Any], turn: asyncio.Future[bytes | None]) -> None:
        self.request = request
        self.wanted = wanted
        self.turn = turn

    def tell(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification of this subscription."""
        if self.request.channel is not None and not self.turn.done():
            meta = {SUBSCRIPTION_KEY: self.request.id}
            self.request.channel.send(notification(method, {**params, "_meta": meta}))

    def cancel(self) -> None:
        """Stop because the client wants no answer; it gets none."""
        if not self.turn.done():
            self.turn.set_result(None)

    def end(self, shaper: Shaper) -> None:
        """Stop because the server stops, and say so."""
        if not self.turn.done():
            result = shaper.shaped(self.request, {"_meta": {SUBSCRIPTION_KEY: self.request.id}})
            self.turn.set_result(jsonrpc.success(self.request.id, result))


class Subscriptions:
    """Sends changes to all subscribed clients."""

    def __init__(self, clients: Clients, shaper: Shaper, catalog: Catalog | None) -> None:
        self._clients = clients
        self._shaper = shaper
        self._catalog = catalog
        self._open: list[ListenStream] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        if catalog is not None:
            catalog.watch(self._catalog_changed)

    def listen(self, request: Request) -> asyncio.Future[bytes | None]:
        """Open a stream; it stays open until client or server end it."""
        wanted = self._agreed(request)
        turn: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        stream = ListenStream(request, wanted, turn)
        self._clients.begin_request(request.peer, request.id, stream)
        self.remember_loop()
        self._open.append(stream)
        turn.add_done_callback(lambda _: self._closed(stream))
        stream.tell("notifications/subscriptions/acknowledged", {"notifications": wanted})
        return turn

    def _closed(self, stream: ListenStream) -> None:
        if stream in self._open:
            self._open.remove(stream)
        self._clients.end_request(stream.request.peer, stream.request.id)

    def _agreed(self, request: Request) -> dict[str, Any]:
        """Return the subscriptions that the client wants and may have."""
        asked = request.mapping("notifications")
        offered = ("tools",) if self._catalog is None else tuple(_FIELDS)
        agreed: dict[str, Any] = {_FIELDS[kind]: True for kind in offered if asked.get(_FIELDS[kind]) is True}
        if self._catalog is not None and "resourceSubscriptions" in asked:
            agreed["resourceSubscriptions"] = _texts(asked, "resourceSubscriptions")
            for uri in agreed["resourceSubscriptions"]:
                self._check(request, uri)
            self._catalog.subscribed()
        if "taskIds" in asked:
            if not request.declares_tasks:
                raise missing_capability({"extensions": {TASKS: {}}})
            agreed["taskIds"] = _texts(asked, "taskIds")
        return agreed

    def subscribe(self, request: Request) -> dict[str, Any]:
        """Watch a resource (legacy)."""
        uri = request.text("uri")
        self._check(request, uri)
        client = self._clients.of(request.peer)
        client.uris = client.uris or set()
        if len(client.uris) >= MOST_URIS:
            raise invalid_params(f"at most {MOST_URIS} resources can be watched")
        client.uris.add(uri)
        if self._catalog is not None:
            self._catalog.subscribed()
        self.remember_loop()
        return {}

    def _check(self, request: Request, uri: str) -> None:
        """Refuse an unknown address: its subscriber would wait forever."""
        if self._catalog is not None and self._catalog.find(uri) is None:
            raise not_found(request, uri, self._catalog)

    def unsubscribe(self, request: Request) -> dict[str, Any]:
        """Watch a resource no longer (legacy)."""
        client = self._clients.get(request.peer)
        if client is not None and client.uris:
            client.uris.discard(request.text("uri"))
        return {}

    def remember_loop(self) -> None:
        """Remember the event loop, for changes that are made on other threads."""
        with suppress(RuntimeError):
            self._loop, self._thread = asyncio.get_running_loop(), get_ident()

    def list_changed(self, kind: str) -> None:
        """Notify all subscribed clients that a listing has changed."""
        method = f"notifications/{kind}/list_changed"
        for stream in self._open.copy():
            if stream.wanted.get(_FIELDS[kind]):
                stream.tell(method, {})
        for client in self._clients.all():
            if client.is_session and client.peer.channel is not None:
                client.peer.channel.send(notification(method))

    def resource_updated(self, uri: str) -> None:
        """Notify all clients that watch a resource that it has changed."""
        method, params = "notifications/resources/updated", {"uri": uri}
        for stream in self._open.copy():
            if uri in stream.wanted.get("resourceSubscriptions", ()):
                stream.tell(method, params)
        for client in self._clients.all():
            if client.uris and uri in client.uris and client.peer.channel is not None:
                client.peer.channel.send(notification(method, params))

    def task_changed(self, task_id: str, principal: str, describe: Callable[[], dict[str, Any]]) -> None:
        """Notify the listeners of a task, if they may see it, of its status."""
        for stream in self._open.copy():
            mine = stream.request.peer.principal == principal
            if mine and task_id in stream.wanted.get("taskIds", ()):
                stream.tell("notifications/tasks", describe())

    def _catalog_changed(self, change: str, uri: str) -> None:
        loop = self._loop
        if loop is None or loop.is_closed():
            return  # no client has listened yet, or the server is closed
        if self._thread == get_ident():
            self._catalog_changed_here(change, uri)
        else:
            loop.call_soon_threadsafe(self._catalog_changed_here, change, uri)

    def _catalog_changed_here(self, change: str, uri: str) -> None:
        if change == "resource":
            self.resource_updated(uri)
        else:
            self.list_changed(change)

    def close(self) -> None:
        """End all streams in good order."""
        for stream in self._open.copy():
            stream.end(self._shaper)


def _texts(asked: dict[str, Any], name: str) -> list[str]:
    found = asked[name]
    if not isinstance(found, list) or len(found) > MOST_URIS or not all(type(t) is str for t in found):
        raise invalid_params(
            f"notifications.{name} must be a list of at most {MOST_URIS} strings",
        )
    return found
