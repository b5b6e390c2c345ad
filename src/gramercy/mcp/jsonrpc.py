"""Messages as bytes, and the two protocols that they belong to.

JSON-RPC: parse a frame once, say what is wrong with it, encode outgoing messages. Frames have no newline; the
transport adds its framing. The protocols: legacy, with a handshake, up to 2025-11-25; modern, stateless, from
2026-07-28 on. A request itself says to which protocol it belongs. This module does not know what a method
means.
"""

from __future__ import annotations

import asyncio
import logging
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gramercy.errors import DeepFrameError, InvalidFrameError, ProtocolError, SilentFrameError
from gramercy.mcp.salvage import LONGEST_ID, id_at_start, id_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.mcp.base import Answer, Channel, Peer

Id: TypeAlias = int | str
Params: TypeAlias = dict[str, Any]

# All messages of a batch are begun at once, so this bounds how many calls one frame can start.
MOST_IN_BATCH = 100


class Code(IntEnum):
    """The meaning of an error, the same on every transport."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    # Codes of the Model Context Protocol.
    RESOURCE_NOT_FOUND = -32002  # until 2025-11-25; later it is INVALID_PARAMS
    HEADER_MISMATCH = -32020
    MISSING_CAPABILITY = -32021
    UNSUPPORTED_VERSION = -32022
    # Our own, where the protocol has none: -32000 to -32099 are free for servers.
    DENIED = -32000  # the caller may not
    BUSY = -32001  # not now: try again later


class Message(msgspec.Struct):
    """A request (method and id), a notification (method only) or a response (id only)."""

    jsonrpc: Literal["2.0"]
    method: str | UnsetType = UNSET
    id: int | str | UnsetType = UNSET
    params: dict[str, Any] | UnsetType = UNSET
    result: Any = UNSET
    error: Any = UNSET


# A parsed frame: a message, the parts of a batch, or what is wrong with it.
Received: TypeAlias = "Message | list[Message | InvalidFrameError] | InvalidFrameError"

_decode = msgspec.json.Decoder(Message).decode
_decode_any = msgspec.json.Decoder().decode
_decode_batch = msgspec.json.Decoder(list[Raw]).decode
# Not only msgspec's own error: bytes that are not UTF-8 raise Python's.
_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError)


def read_frame(frame: bytes) -> Received:
    """Parse a frame; a fault is returned, since it is answered like a message."""
    try:
        message = _decode(frame)
    except _UNREADABLE:
        return _read_batch(frame) if frame.lstrip()[:1] == b"[" else _problem(frame)
    if type(message.id) is int and message.method is not UNSET:
        return message  # as nearly all are
    return _fault_of(message) or message


def read_message(frame: bytes) -> Message:
    """Return the message of a frame; raise InvalidFrameError if it is not one."""
    try:
        message = _decode(frame)
    except _UNREADABLE:
        raise _problem(frame) from None
    fault = _fault_of(message)
    if fault is not None:
        raise fault
    return message


def _fault_of(message: Message) -> InvalidFrameError | None:
    """Say what is wrong with a message whose fields each have the right type."""
    if type(message.id) is str and len(message.id) > LONGEST_ID:
        problem = f"the id is longer than {LONGEST_ID} characters"
        return _invalid(problem, found=msgspec.to_builtins(message))
    if message.method is UNSET and (message.result is UNSET) is (message.error is UNSET):
        known = None if message.id is UNSET else message.id
        found = msgspec.to_builtins(message)
        return _invalid("a message has a method, or a result, or an error", known, found)
    return None


def _invalid(problem: str, known: Id | None = None, found: object = None) -> InvalidFrameError:
    return InvalidFrameError(Code.INVALID_REQUEST, f"Invalid request: {problem}", known, found)


def _problem(frame: bytes) -> InvalidFrameError:
    """Say what is wrong with a frame that is not a message; only faulty frames pay for a second parse."""
    try:
        found = _decode_any(frame)
    except RecursionError:
        problem = "Parse error: the JSON is nested too deeply"
        return DeepFrameError(Code.PARSE_ERROR, problem, id_at_start(frame))
    except _UNREADABLE as error:
        return InvalidFrameError(Code.PARSE_ERROR, f"Parse error: {str(error)[:200]}", id_of(frame))
    return _problem_in(found) if isinstance(found, dict) else _invalid("expected an object", found=found)


def _problem_in(found: dict[str, Any]) -> InvalidFrameError:
    named = found.get("id", UNSET)
    is_known = (type(named) is int or type(named) is str) and len(str(named)) <= LONGEST_ID
    known = named if is_known else None
    has_method = isinstance(found.get("method"), str)
    if ("method" not in found and ("result" in found or "error" in found)) or (named is UNSET and has_method):
        return SilentFrameError(Code.INVALID_REQUEST, "Invalid request: no request", None, found)
    if found.get("jsonrpc") != "2.0":
        return _invalid('jsonrpc must be "2.0"', known, found)
    if not is_known:
        return _invalid("the id must be a string or an integer", None, found)
    if not has_method:
        return _invalid("the method must be a string", known, found)
    return InvalidFrameError(Code.INVALID_PARAMS, "Invalid params: params must be an object", known, found)


def _read_batch(frame: bytes) -> list[Message | InvalidFrameError] | InvalidFrameError:
    """Parse an array of messages, as in 2025-03-26; an array in an array is not a message."""
    try:
        parts = _decode_batch(frame)
    except _UNREADABLE:
        return _problem(frame)
    if not parts or len(parts) > MOST_IN_BATCH:
        return _invalid(f"a batch has 1 to {MOST_IN_BATCH} messages, not {len(parts)}", found=[])
    return [_read_part(bytes(part)) for part in parts]


def _read_part(frame: bytes) -> Message | InvalidFrameError:
    try:
        return read_message(frame)
    except InvalidFrameError as error:
        return error


def handle_batch(parts: list[Message | InvalidFrameError], handle: Callable[[Any], Answer]) -> Answer:
    """Handle the messages of a batch one by one; those that wait do so concurrently."""
    answers = [handle(part) for part in parts]
    if any(isinstance(answer, asyncio.Future) for answer in answers):
        return _gathered(answers)
    return _joined(answers)


async def _gathered(answers: list[Any]) -> bytes | None:
    try:
        return _joined([await a if isinstance(a, asyncio.Future) else a for a in answers])
    finally:
        for answer in answers:
            if isinstance(answer, asyncio.Future):
                answer.cancel()


def _joined(answers: list[Any]) -> bytes | None:
    present = [answer for answer in answers if answer is not None]
    return b"[" + b",".join(present) + b"]" if present else None


class _Success(msgspec.Struct):
    jsonrpc: str
    id: Id
    result: Any


class _Error(msgspec.Struct):
    code: int
    message: str
    data: Any = UNSET


class _Failure(msgspec.Struct):
    # The error comes first, so that a transport can recognise a failure by its first bytes.
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


encode = msgspec.json.Encoder().encode
_decode_error = msgspec.json.Decoder(_ErrorOnly).decode
_FAILURE_HEAD = b'{"jsonrpc":"2.0","error"'


def success(id: Id, result: Any) -> bytes:  # noqa: A002 - its wire name
    """Encode the answer to a request."""
    return encode(_Success("2.0", id, result))


def failure(error: ProtocolError, id: Id | None = None) -> bytes:  # noqa: A002 - its wire name
    """Encode an error, without an id if that could not be read."""
    data = UNSET if error.data is None else error.data
    return encode(_Failure("2.0", _Error(error.code, error.message, data), UNSET if id is None else id))


def notification(method: str, params: Any = UNSET) -> bytes:
    """Encode a notification."""
    return encode(_Outgoing("2.0", method, params))


def request(id: Id, method: str, params: Any = UNSET) -> bytes:  # noqa: A002 - its wire name
    """Encode a request of our own."""
    return encode(_Outgoing("2.0", method, params, id))


def error_code(answer: bytes) -> int | None:
    """Return the code of an answer of ours that is an error, else None; costs nothing for other answers."""
    if not answer.startswith(_FAILURE_HEAD):
        return None
    error = _decode_error(answer).error
    return None if error is UNSET else error.code


def invalid_params(problem: str, data: object = None) -> ProtocolError:
    """Return the error for unusable parameters."""
    return ProtocolError(Code.INVALID_PARAMS, f"Invalid params: {problem}", data)


def too_long(limit: int, beginning: bytes) -> bytes:
    """Answer a frame after only its beginning was kept; its id may be lost."""
    error = _invalid(f"a message has at most {limit:,} bytes; send less at a time")
    return failure(error, id_at_start(beginning))


class _Envelope(msgspec.Struct):
    """The part of a frame that is needed to refuse it."""

    id: Id | None = None
    method: str | None = None


_decode_envelope = msgspec.json.Decoder(_Envelope).decode


def busy(frame: bytes, most: int) -> bytes | None:
    """Answer a request that cannot be begun; None for other messages, which must be let through.

    A cancellation, or the answer that a call waits for, makes a busy server less busy.
    """
    text = f"Server busy: {most} requests are under way; wait for one of them or cancel it, then try again"
    error = ProtocolError(Code.BUSY, text)
    if frame.startswith(b"["):
        return failure(error)
    try:
        envelope = _decode_envelope(frame)
    except _UNREADABLE:
        return None
    return None if envelope.id is None or envelope.method is None else failure(error, envelope.id)


log = logging.getLogger("gramercy.mcp")

MODERN: Final = "2026-07-28"
LATEST_LEGACY: Final = "2025-11-25"
LEGACY: Final = (LATEST_LEGACY, "2025-06-18", "2025-03-26", "2024-11-05")
SUPPORTED: Final = (MODERN, *LEGACY)
# The assumed version of a client that neither shook hands nor names a version.
ASSUMED: Final = "2025-03-26"

PREFIX: Final = "io.modelcontextprotocol/"
VERSION_KEY: Final = f"{PREFIX}protocolVersion"
CAPABILITIES_KEY: Final = f"{PREFIX}clientCapabilities"
CLIENT_KEY: Final = f"{PREFIX}clientInfo"
LOG_LEVEL_KEY: Final = f"{PREFIX}logLevel"
SERVER_KEY: Final = f"{PREFIX}serverInfo"
SUBSCRIPTION_KEY: Final = f"{PREFIX}subscriptionId"
RELATED_TASK_KEY: Final = f"{PREFIX}related-task"
TASKS: Final = f"{PREFIX}tasks"

# How long clients may cache: listings change when tools are registered, the rest never does.
LIST_TTL_MS: Final = 30_000
DISCOVER_TTL_MS: Final = 300_000


class Request(msgspec.Struct, eq=False):
    """One request with everything that is needed to answer it."""

    peer: Peer
    channel: Channel | None
    id: Id
    method: str
    params: Params
    meta: Params
    version: str
    modern: bool
    capabilities: Params

    def text(self, name: str, default: str | None = None) -> str:
        """Return a parameter that must be text; without a default it is required."""
        value = self.params.get(name, default)
        if type(value) is not str:
            raise invalid_params(f"{name} must be a string")
        return value

    def mapping(self, name: str) -> Params:
        """Return a parameter that must be an object; an empty object if it is missing."""
        value = self.params.get(name, UNSET)
        if value is UNSET:
            return {}
        if type(value) is not dict:
            raise invalid_params(f"{name} must be an object")
        return value

    @property
    def declares_tasks(self) -> bool:
        """Whether the client understands the modern tasks extension."""
        extensions = self.capabilities.get("extensions")
        return self.modern and type(extensions) is dict and type(extensions.get(TASKS)) is dict


def read_request(peer: Peer, message: Message, channel: Channel | None) -> Request:
    """Tell legacy from modern requests; raise ProtocolError if a request names its version wrongly."""
    params = {} if message.params is UNSET else message.params
    meta = params.get("_meta", UNSET)
    if meta is UNSET:
        meta = {}
    elif type(meta) is not dict:
        raise invalid_params("_meta must be an object")
    is_legacy = (
        VERSION_KEY not in meta
        and CAPABILITIES_KEY not in meta
        and peer.version != MODERN
        and message.method != "server/discover"
    )
    version, capabilities = (peer.version or ASSUMED, peer.capabilities) if is_legacy else _read_meta(meta)
    assert message.id is not UNSET  # noqa: S101 - only requests come here; this tells mypy
    assert message.method is not UNSET  # noqa: S101 - likewise
    return Request(
        peer,
        channel or peer.channel,
        message.id,
        message.method,
        params,
        meta,
        version,
        not is_legacy,
        capabilities,
    )


def _read_meta(meta: Params) -> tuple[str, Params]:
    version, capabilities = meta.get(VERSION_KEY), meta.get(CAPABILITIES_KEY)
    if type(version) is not str:
        raise invalid_params(
            f"_meta must name the protocol version in {VERSION_KEY}",
            {"missing": VERSION_KEY, "supported": list(SUPPORTED)},
        )
    if version != MODERN:
        raise ProtocolError(
            Code.UNSUPPORTED_VERSION,
            "Unsupported protocol version",
            {"supported": list(SUPPORTED), "requested": version[:100]},
        )
    if type(capabilities) is not dict:
        raise invalid_params(
            f"_meta must have an object in {CAPABILITIES_KEY}, which may be empty",
            {"missing": CAPABILITIES_KEY},
        )
    return version, capabilities


def missing_capability(capabilities: dict[str, Any]) -> ProtocolError:
    """Return the error for a client that has not declared a capability that the request needs."""
    data = {"requiredCapabilities": capabilities}
    return ProtocolError(Code.MISSING_CAPABILITY, "Missing required client capability", data)


def agree(wanted: str) -> str:
    """Return the legacy version to use with a client that wants this one."""
    return wanted if wanted in LEGACY else LATEST_LEGACY


class Shaper:
    """Adds the fields to results that legacy or modern clients want."""

    __slots__ = ("meta", "server")

    def __init__(self, server: dict[str, Any]) -> None:
        self.server = server
        self.meta = {SERVER_KEY: server}

    def shaped(self, request: Request, result: dict[str, Any]) -> dict[str, Any]:
        """Return the result in the form of the request's protocol."""
        if not request.modern:
            return result
        meta = {**self.meta, **result.pop("_meta", {})}
        return {"resultType": "complete", **result, "_meta": meta}

    @staticmethod
    def cached(request: Request, result: dict[str, Any], ttl_ms: int = LIST_TTL_MS) -> dict[str, Any]:
        """Say how long the client may cache the result; never shared, since other clients see other tools."""
        return {**result, "ttlMs": ttl_ms, "cacheScope": "private"} if request.modern else result

    def written(self, request: Request, outcome: Any) -> bytes:
        """Encode the answer to a request from its outcome: a result, or a ProtocolError."""
        if isinstance(outcome, ProtocolError):
            return failure(outcome, request.id)
        try:
            result = self.shaped(request, outcome) if type(outcome) is dict else outcome
            return encode(_Success("2.0", request.id, result))
        except Exception as error:  # noqa: BLE001 - a result that cannot be written
            return failure(unexpected(request, error), request.id)


def unexpected(asked: Request | Message, error: BaseException) -> ProtocolError:
    """Log a failure of our own with the request, without arguments; return the error for the client."""
    params = asked.params if isinstance(asked.params, dict) else {}
    name = f" {params['name']!r:.100}" if isinstance(params.get("name"), str) else ""
    log.error("%.100s%s failed (request %.100r)", asked.method, name, asked.id, exc_info=error)
    return ProtocolError(Code.INTERNAL_ERROR, "Internal error")
