"""A request that is answered by the transport itself: an HTTP status and a JSON-RPC error."""

from __future__ import annotations

from typing import Final

from msgspec import UNSET

from gramercy.mcp.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, ProtocolError, failure

# Codes from here upwards are free for what the protocol has no code for.
DENIED: Final = -32000
BUSY: Final = -32001

Header = tuple[bytes, bytes]


class RefusedError(Exception):
    """Raised where the transport refuses, caught where it answers; never leaves this package."""

    def __init__(
        self,
        status: int,
        reason: str,
        *,
        code: int = INVALID_REQUEST,
        headers: tuple[Header, ...] = (),
        data: object = UNSET,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.code = code
        self.reason = reason
        self.headers = headers
        self.data = data

    def body(self, request_id: object = None) -> bytes:
        """Return the JSON-RPC error; an id that is not known is left out, as the protocol wants."""
        named = UNSET if isinstance(request_id, bool) or not isinstance(request_id, str | int) else request_id
        return failure(ProtocolError(self.code, self.reason, self.data), named)


def internal_error() -> RefusedError:
    """Return the answer for a fault of our own, which tells nothing of it."""
    return RefusedError(500, "Internal error", code=INTERNAL_ERROR)
