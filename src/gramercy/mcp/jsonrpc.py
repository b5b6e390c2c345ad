"""JSON-RPC as bytes: read a frame or a batch, say what is wrong with it, and write what goes out.

Nothing here knows what a method means. Frames carry no newline: the transport adds its framing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gramercy.errors import GramercyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.mcp.base import Answer

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
RESOURCE_NOT_FOUND: Final = -32002  # until 2025-11-25; later it is INVALID_PARAMS
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022

LONGEST_ID = 1_000
MOST_IN_BATCH = 100

Id: TypeAlias = int | str
Params: TypeAlias = dict[str, Any]


class ProtocolError(GramercyError):
    """A request that is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = UNSET) -> None:
        self.code = code
        self.message = message
        self.data = data
        super().__init__(message)


class InvalidFrameError(ProtocolError):
    """A frame that is no message; `id` is what it could be told by, if anything."""

    def __init__(self, code: int, message: str, id: Id | UnsetType = UNSET) -> None:  # noqa: A002 - its wire name
        super().__init__(code, message)
        self.id = id


class SilentFrameError(Exception):
    """A faulty notification or response: JSON-RPC forbids to answer these."""


class Message(msgspec.Struct):
    """A request (method and id), a notification (method only) or a response (id only)."""

    jsonrpc: Literal["2.0"]
    method: str | UnsetType = UNSET
    id: int | str | UnsetType = UNSET
    params: dict[str, Any] | UnsetType = UNSET
    result: Any = UNSET
    error: Any = UNSET


class _Success(msgspec.Struct):
    jsonrpc: str
    id: Id
    result: Any


class _Error(msgspec.Struct):
    code: int
    message: str
    data: Any = UNSET


class _Failure(msgspec.Struct):
    # The error comes first, so that a transport can tell a failure by its first bytes.
    jsonrpc: str
    error: _Error
    id: Id | UnsetType = UNSET


class _Outgoing(msgspec.Struct):
    jsonrpc: str
    method: str
    params: Any = UNSET
    id: Id | UnsetType = UNSET


class _ErrorOnly(msgspec.Struct):
    error: _Error | UnsetType = UNSET


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Message).decode
_decode_any = msgspec.json.Decoder().decode
_decode_batch = msgspec.json.Decoder(list[Raw]).decode
_decode_error = msgspec.json.Decoder(_ErrorOnly).decode
_FAILURE_HEAD = b'{"jsonrpc":"2.0","error"'
_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError)

encode = _encode


def read_message(frame: bytes) -> Message:
    """Return the message of a frame; raise InvalidFrameError or SilentFrameError when there is none."""
    try:
        message = _decode(frame)
    except _UNREADABLE:
        _explain(frame)
    if type(message.id) is str and len(message.id) > LONGEST_ID:
        raise InvalidFrameError(
            INVALID_REQUEST, f"Invalid request: the id is longer than {LONGEST_ID} characters"
        )
    if message.method is UNSET and (message.result is UNSET) is (message.error is UNSET):
        raise InvalidFrameError(
            INVALID_REQUEST, "Invalid request: a message has a method, or a result, or an error", message.id
        )
    return message


def _explain(frame: bytes) -> NoReturn:
    """Say what is wrong with a frame that is no message; only faulty frames pay for this."""
    try:
        found = _decode_any(frame)
    except RecursionError:
        raise InvalidFrameError(PARSE_ERROR, "Parse error: the JSON is nested too deeply") from None
    except _UNREADABLE as error:
        raise InvalidFrameError(PARSE_ERROR, f"Parse error: {str(error)[:200]}") from None
    if not isinstance(found, dict):
        raise InvalidFrameError(INVALID_REQUEST, "Invalid request: expected an object")
    named: Any = found.get("id", UNSET)
    known: Id | UnsetType = UNSET
    if (type(named) is int or type(named) is str) and len(str(named)) <= LONGEST_ID:
        known = named
    if "method" not in found and ("result" in found or "error" in found):
        raise SilentFrameError
    if named is UNSET and isinstance(found.get("method"), str):
        raise SilentFrameError
    if found.get("jsonrpc") != "2.0":
        problem = 'jsonrpc must be "2.0"'
    elif known is UNSET:
        problem = "the id must be a string or an integer"
    elif not isinstance(found.get("method"), str):
        problem = "the method must be a string"
    else:
        raise InvalidFrameError(INVALID_PARAMS, "Invalid params: params must be an object", known)
    raise InvalidFrameError(INVALID_REQUEST, f"Invalid request: {problem}", known)


def read_batch(frame: bytes) -> list[Raw]:
    """Return the frames of a JSON array; raise InvalidFrameError when it cannot be used."""
    try:
        parts = _decode_batch(frame)
    except _UNREADABLE:
        _explain(frame)
    if not parts or len(parts) > MOST_IN_BATCH:
        raise InvalidFrameError(
            INVALID_REQUEST, f"Invalid request: a batch has 1 to {MOST_IN_BATCH} messages, not {len(parts)}"
        )
    return parts


def success(id: Id, result: Any) -> bytes:  # noqa: A002 - its wire name
    """Write the answer to a request."""
    return _encode(_Success("2.0", id, result))


def failure(error: ProtocolError, id: Id | UnsetType = UNSET) -> bytes:  # noqa: A002 - its wire name
    """Write an error; without an id when that could not be read."""
    return _encode(_Failure("2.0", _Error(error.code, error.message, error.data), id))


def notification(method: str, params: Any = UNSET) -> bytes:
    """Write a notification."""
    return _encode(_Outgoing("2.0", method, params))


def request(id: Id, method: str, params: Any = UNSET) -> bytes:  # noqa: A002 - its wire name
    """Write a request of our own."""
    return _encode(_Outgoing("2.0", method, params, id))


def error_code(answer: bytes) -> int | None:
    """Return the code of an answer of ours that is an error, else None; costs nothing for the others."""
    if not answer.startswith(_FAILURE_HEAD):
        return None
    error = _decode_error(answer).error
    return None if error is UNSET else error.code


def is_batch(frame: bytes) -> bool:
    """Tell whether a frame is an array."""
    return frame.lstrip()[:1] == b"["


def handle_batch(frame: bytes, handle: Callable[[bytes], Answer]) -> Answer:
    """Handle the messages of a batch one by one; those that wait do so side by side."""
    try:
        parts = read_batch(frame)
    except InvalidFrameError as error:
        return failure(error, error.id)
    except SilentFrameError:
        return None
    answers = [_handle_part(bytes(part), handle) for part in parts]
    if any(isinstance(answer, asyncio.Future) for answer in answers):
        return _gathered(answers)
    return _joined(answers)


def _handle_part(frame: bytes, handle: Callable[[bytes], Answer]) -> Answer:
    # An array in an array is no message, so nobody can nest them to exhaust the stack.
    if not is_batch(frame):
        return handle(frame)
    return failure(ProtocolError(INVALID_REQUEST, "Invalid request: expected an object"))


def _joined(answers: list[Any]) -> bytes | None:
    present = [answer for answer in answers if answer is not None]
    return b"[" + b",".join(present) + b"]" if present else None


async def _gathered(answers: list[Any]) -> bytes | None:
    try:
        return _joined([await a if isinstance(a, asyncio.Future) else a for a in answers])
    finally:
        for answer in answers:
            if isinstance(answer, asyncio.Future):
                answer.cancel()


BUSY: Final = -32000


class _Envelope(msgspec.Struct):
    """As much of a frame as it takes to refuse it."""

    id: Id | None = None
    method: str | None = None


_decode_envelope = msgspec.json.Decoder(_Envelope).decode


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
        envelope = _decode_envelope(frame)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if envelope.id is None or envelope.method is None:
        return None
    return failure(error, envelope.id)
