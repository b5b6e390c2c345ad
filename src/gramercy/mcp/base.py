"""The interface between engine and transports: a peer, a channel to it, a function from frame to answer.

This module knows no particular transport, and has everything that a transport needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gramercy.mcp.jsonrpc import Received

Answer: TypeAlias = "bytes | Awaitable[bytes | None] | None"


def note_sent(answer: object) -> None:
    """Tell an answer that it was written to its client; transports do so for answers that want to know."""
    when_sent: Callable[[], None] | None = getattr(answer, "when_sent", None)
    if when_sent is not None:
        when_sent()


class Channel(Protocol):
    """Takes the messages of one request besides its answer: progress, log, elicitation.

    On stdio it is the only stream; over HTTP it is the response to one POST, or the listening GET.
    """

    def send(self, message: bytes) -> None:
        """Send one message without waiting; drops it when the other side is gone."""


class Peer(msgspec.Struct, eq=False):
    """One client: a connection on stdio, a legacy session over HTTP, or a single modern request.

    `channel` takes messages that belong to no request; None means that no stream is open. The transport sets
    `principal` and `ceiling` from its knowledge of the caller; the engine sets the rest.
    """

    channel: Channel | None = None
    principal: str = "local"
    ceiling: Safety = Safety.DANGEROUS
    version: str | None = None
    client: dict[str, Any] = msgspec.field(default_factory=dict)
    capabilities: dict[str, Any] = msgspec.field(default_factory=dict)
    on_close: list[Callable[[], None]] = msgspec.field(default_factory=list)


class Preface(Protocol):
    """Work to be done before the first call of a client runs, and a note for its reply."""

    @property
    def note(self) -> str:
        """The note for the reply once it is settled; may be empty."""

    async def settle(self) -> None:
        """Do the work, asking the client if need be; return at once if it was done before."""


class Receiver(Protocol):
    """The engine as a transport sees it."""

    def handle(self, peer: Peer, frame: bytes, channel: Channel | None = None) -> Answer:
        """Take one frame and return its answer: bytes, None if there is no answer, or an awaitable.

        It never raises and never blocks for longer than a moment: an invalid frame gets an answer that says
        so. The awaitable may be cancelled at any time, which cancels the request.
        """

    def close(self, peer: Peer) -> None:
        """Forget a client: cancel its requests, drop its subscriptions."""


class MessageReceiver(Protocol):
    """The engine for a transport that parses frames itself, because HTTP headers repeat parts of them."""

    def take(self, peer: Peer, received: Received, channel: Channel | None = None) -> Answer:
        """Answer a parsed frame, as `handle` does."""

    def close(self, peer: Peer) -> None:
        """Forget a client: cancel its requests, drop its subscriptions."""
