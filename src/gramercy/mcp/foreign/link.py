"""What a conversation with another server needs of a transport, whichever it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from gramercy.mcp.jsonrpc import Message

# Takes what the server says by itself: notifications and requests.
Hear: TypeAlias = Callable[[Message], None]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request: the frame, and what a transport with headers repeats of it."""

    id: int
    method: str
    frame: bytes
    version: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Link(Protocol):
    """A connection to one server. All of it is used on one event loop."""

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""

    async def open(self, hear: Hear) -> None:
        """Connect; raise ForeignError when that fails."""

    async def ask(self, outgoing: Outgoing) -> Message:
        """Send a request and return the response; raise ServerGoneError when there will be none."""

    def tell(self, frame: bytes, version: str | None = None) -> None:
        """Send a notification or a response, without waiting for anything."""

    async def settle(self) -> None:
        """Wait until what was told is on its way, where the order of messages depends on it."""

    def forget(self, outgoing: Outgoing, cancellation: bytes) -> None:
        """Tell the server that nobody waits for a response any more."""

    def remarks(self) -> str:
        """Return what is odd about the connection, for messages; empty when nothing is."""

    async def close(self, seconds: float) -> None:
        """End the connection and whatever belongs to it, within that time."""
