"""One HTTP request as the transport passes it along, and how its body is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gramercy.mcp.http.refusals import RefusedError

if TYPE_CHECKING:
    from gramercy.mcp.http.callers import Caller
    from gramercy.mcp.http.envelope import Envelope
    from gramercy.mcp.http.responses import Receive, Send

LONGEST_NUMBER = 18


@dataclass(slots=True, eq=False)
class Exchange:
    """A request with its caller; frame and envelope come with the body."""

    headers: dict[bytes, bytes]
    receive: Receive
    send: Send
    caller: Caller
    frame: bytes = b""
    envelope: Envelope | list[Envelope] | None = None

    @property
    def request_id(self) -> object:
        """The id to answer to, None when it is not known or nothing was asked."""
        envelope = self.envelope
        if envelope is None or isinstance(envelope, list) or not envelope.is_request:
            return None
        return envelope.id

    async def read_body(self, limit: int) -> bool:
        """Read the body into `frame`; return False when the client went. Too long a one is refused (413)."""
        self._check_length(limit)
        message = await self.receive()
        body: bytes = message.get("body", b"")
        if message["type"] == "http.request" and not message.get("more_body"):
            if len(body) > limit:
                raise _too_long(limit)
            self.frame = bytes(body)
            return True
        return message["type"] == "http.request" and await self._read_pieces(body, limit)

    async def _read_pieces(self, first: bytes, limit: int) -> bool:
        pieces = bytearray(first)
        while len(pieces) <= limit:
            message = await self.receive()
            if message["type"] != "http.request":
                return False
            pieces += message.get("body", b"")
            if not message.get("more_body"):
                break
        if len(pieces) > limit:
            raise _too_long(limit)
        self.frame = bytes(pieces)
        return True

    def _check_length(self, limit: int) -> None:
        length = self.headers.get(b"content-length", b"0")
        if not length.isdigit():
            raise RefusedError(400, f"Content-Length is {length.decode('latin-1')!r:.40}: expected a number")
        if len(length) > LONGEST_NUMBER or int(length) > limit:
            raise _too_long(limit)


def _too_long(limit: int) -> RefusedError:
    return RefusedError(413, f"the body is too long: at most {limit} bytes are read")
