"""What the engine and the transports agree on: a peer, a channel to it, one function from frame to answer.

Nothing here knows a transport, and nothing a transport needs is missing here.
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
    """Tell an answer that it was written to its client; transports do so, for those that want to know."""
    when_sent: Callable[[], None] | None = getattr(answer, "when_sent", None)
    if when_sent is not None:
        when_sent()


class Channel(Protocol):
    """Where messages go that belong to one request, besides its answer: progress, log, elicitation.

    On stdio it is the one stream there is; over HTTP the response to one POST, or the listening GET.
    """

    def send(self, message: bytes) -> None:
        """Send one message without waiting; drops it when the other side is gone."""


class Peer(msgspec.Struct, eq=False):
    """One client: a connection on stdio, a legacy session over HTTP, or a single modern request.

    `channel` takes what belongs to no request; None means that no stream is open. The transport sets
    `principal` and `ceiling` from what it knows of the caller; the engine sets the rest.
    """

    channel: Channel | None = None
    principal: str = "local"
    ceiling: Safety = Safety.DANGEROUS
    version: str | None = None
    client: dict[str, Any] = msgspec.field(default_factory=dict)
    capabilities: dict[str, Any] = msgspec.field(default_factory=dict)
    on_close: list[Callable[[], None]] = msgspec.field(default_factory=list)


class Preface(Protocol):
    """What has to be settled before the first call of a client is run, and what its reply tells besides."""

    @property
    def note(self) -> str:
        """What to tell, once it is settled; may be empty."""

    async def settle(self) -> None:
        """Find out what is needed, from the client if need be; at once when that was done before."""


class Receiver(Protocol):
    """The engine as a transport sees it."""

    def handle(self, peer: Peer, frame: bytes, channel: Channel | None = None) -> Answer:
        """Take one frame and return its answer: bytes, None for what has no answer, or something to await.

        Never raises and never blocks for longer than a moment: whatever is wrong with the frame is an
        answer. What is awaited may be cancelled at any time, which cancels the request.
        """

    def close(self, peer: Peer) -> None:
        """Forget a client: cancel its requests, drop its subscriptions."""


class MessageReceiver(Protocol):
    """The engine as a transport sees it that reads frames itself, because headers repeat what they say."""

    def take(self, peer: Peer, received: Received, channel: Channel | None = None) -> Answer:
        """Answer what was read from a frame, as `handle` does."""

    def close(self, peer: Peer) -> None:
        """Forget a client: cancel its requests, drop its subscriptions."""
