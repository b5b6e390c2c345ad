"""The two protocols: legacy, with a handshake, up to 2025-11-25; modern, stateless, from 2026-07-28 on.

A request says by itself to which it belongs. This module reads that, and shapes results accordingly.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET

from gramercy.errors import ProtocolError
from gramercy.mcp.jsonrpc import Code, Id, Message, Params, failure, invalid_params, success

if TYPE_CHECKING:
    from gramercy.mcp.base import Channel, Peer

log = logging.getLogger("gramercy.mcp")

MODERN: Final = "2026-07-28"
LATEST_LEGACY: Final = "2025-11-25"
LEGACY: Final = (LATEST_LEGACY, "2025-06-18", "2025-03-26", "2024-11-05")
SUPPORTED: Final = (MODERN, *LEGACY)
# What a client is taken to speak that neither shook hands nor names a version.
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

# How long clients may keep what they got: listings change when tools are registered, the rest never does.
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
        """Return a parameter that must be text; without a default it must be there."""
        value = self.params.get(name, default)
        if type(value) is not str:
            raise invalid_params(f"{name} must be a string")
        return value

    def mapping(self, name: str) -> Params:
        """Return a parameter that must be an object, or an empty one when it is not there."""
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
    """Tell legacy from modern requests; raise ProtocolError when one names its version wrongly."""
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
    """Return the error for a client that has not declared what a request needs."""
    data = {"requiredCapabilities": capabilities}
    return ProtocolError(Code.MISSING_CAPABILITY, "Missing required client capability", data)


def agree(wanted: str) -> str:
    """Return the legacy version in which to go on with a client that wants this one."""
    return wanted if wanted in LEGACY else LATEST_LEGACY


class Shaper:
    """Gives results the fields that legacy or modern clients want."""

    __slots__ = ("meta", "server")

    def __init__(self, server: dict[str, Any]) -> None:
        self.server = server
        self.meta = {SERVER_KEY: server}

    def shaped(self, request: Request, result: dict[str, Any]) -> dict[str, Any]:
        """Return the result as the request's protocol wants it."""
        if not request.modern:
            return result
        meta = {**self.meta, **result.pop("_meta", {})}
        return {"resultType": "complete", **result, "_meta": meta}

    @staticmethod
    def cached(request: Request, result: dict[str, Any], ttl_ms: int = LIST_TTL_MS) -> dict[str, Any]:
        """Say how long the client may keep the result; others see other tools, so it is never shared."""
        return {**result, "ttlMs": ttl_ms, "cacheScope": "private"} if request.modern else result

    def written(self, request: Request, outcome: Any) -> bytes:
        """Write the answer to a request from its outcome: a result, or a ProtocolError."""
        if isinstance(outcome, ProtocolError):
            return failure(outcome, request.id)
        try:
            return success(request.id, self.shaped(request, outcome) if type(outcome) is dict else outcome)
        except Exception as error:  # noqa: BLE001 - a result that cannot be written
            return failure(unexpected(request, error), request.id)


def unexpected(asked: Request | Message, error: BaseException) -> ProtocolError:
    """Log a failure of our own with what was asked, without arguments; return what the client is told."""
    params = asked.params if isinstance(asked.params, dict) else {}
    name = f" {params['name']!r:.100}" if isinstance(params.get("name"), str) else ""
    log.error("%.100s%s failed (request %.100r)", asked.method, name, asked.id, exc_info=error)
    return ProtocolError(Code.INTERNAL_ERROR, "Internal error")
