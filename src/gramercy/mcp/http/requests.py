"""One HTTP request as the transport passes it along: caller, headers, body, and the outside of its message.

Of a message only method, subject and revision are looked at; what it means is the engine's business, and a
body that is not even JSON is handed to the engine unread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from gramercy.errors import HttpError
from gramercy.mcp.versions import VERSION_KEY

if TYPE_CHECKING:
    from gramercy.mcp.http.auth import Caller
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
            raise HttpError(400, f"Content-Length is {length.decode('latin-1')!r:.40}: expected a number")
        if len(length) > LONGEST_NUMBER or int(length) > limit:
            raise _too_long(limit)


def _too_long(limit: int) -> HttpError:
    return HttpError(413, f"the body is too long: at most {limit} bytes are read")


class Meta(msgspec.Struct):
    """The `_meta` of a request."""

    version: Any = msgspec.field(name=VERSION_KEY, default=None)


class Params(msgspec.Struct):
    """Of the parameters of a request: what is mirrored in headers."""

    name: Any = None
    uri: Any = None
    task: Any = msgspec.field(name="taskId", default=None)
    meta: Meta | None = msgspec.field(name="_meta", default=None)


class Envelope(msgspec.Struct):
    """A message without its contents."""

    method: Any = None
    id: Any = UNSET
    params: Params | None = None

    @property
    def is_request(self) -> bool:
        """Whether an answer is expected."""
        return self.method is not None and self.id is not UNSET

    @property
    def version(self) -> Any:
        """The revision the message declares itself, None when it does not."""
        params = self.params
        return None if params is None or params.meta is None else params.meta.version


class _Details(msgspec.Struct):
    missing: Any = None


class _Error(msgspec.Struct):
    data: _Details | None = None


class _Failure(msgspec.Struct):
    error: _Error | None = None


_envelopes = msgspec.json.Decoder(Envelope | list[Envelope])
_failures = msgspec.json.Decoder(_Failure)
# Not only msgspec's own error: bytes that are no UTF-8 are Python's.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read_envelope(frame: bytes) -> Envelope | list[Envelope] | None:
    """Return what the outside of a frame says; a list for a batch, None for what is not a message."""
    try:
        found: Envelope | list[Envelope] = _envelopes.decode(frame)
    except msgspec.ValidationError:
        return _read_odd(frame)
    except _UNREADABLE:
        return None
    return found


def lacks_metadata(answer: bytes) -> bool:
    """Tell whether an error is about what every request of the newer era must declare."""
    try:
        error = _failures.decode(answer).error
    except msgspec.DecodeError:
        return False
    return error is not None and error.data is not None and error.data.missing is not None


def _read_odd(frame: bytes) -> Envelope | list[Envelope] | None:
    # Well-formed JSON of a wrong shape, as in "params": 3. Era and id are still told, if they are there.
    try:
        value = msgspec.json.decode(frame)
    except _UNREADABLE:
        return None
    if isinstance(value, list):
        return [Envelope()]
    return _of_object(value) if isinstance(value, dict) else None


def _of_object(value: dict[str, Any]) -> Envelope:
    params = value.get("params")
    envelope = Envelope(value.get("method"), value.get("id", UNSET))
    if isinstance(params, dict):
        meta = params.get("_meta")
        version = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
        envelope.params = Params(
            params.get("name"), params.get("uri"), params.get("taskId"), Meta(version) if version else None
        )
    return envelope
