"""What a transport answers by itself, without asking the engine: a frame too long, a server too busy."""

from __future__ import annotations

from typing import Final

import msgspec

from gramercy.mcp.wire import INVALID_REQUEST, Id, ProtocolError, failure

BUSY: Final = -32000


class _Envelope(msgspec.Struct):
    """As much of a frame as it takes to refuse it."""

    id: Id | None = None
    method: str | None = None


_decode = msgspec.json.Decoder(_Envelope).decode


def too_long(limit: int) -> bytes:
    """Answer a frame that was thrown away; its id went with it."""
    text = f"Invalid request: a message has at most {limit:,} bytes; send less at a time"
    return failure(ProtocolError(INVALID_REQUEST, text))


def busy(frame: bytes, most: int) -> bytes | None:
    """Answer a request that cannot be begun; what is no request must be let through and gives None.

    A cancellation or the answer that a call waits for is what makes a busy server less so.
    """
    text = f"Server busy: {most} requests are under way; wait for one of them or cancel it, then try again"
    error = ProtocolError(BUSY, text)
    if frame.startswith(b"["):
        return failure(error)
    try:
        envelope = _decode(frame)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if envelope.id is None or envelope.method is None:
        return None
    return failure(error, envelope.id)
