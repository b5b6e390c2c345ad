"""Admission over HTTP: the allowed Host and Origin headers, and gates that identify a caller by a token.

The host name of a foreign page can be made to resolve to this machine (DNS rebinding). Its requests carry
that name, so only names of this machine and configured names pass. This module knows neither MCP's messages
nor sockets.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from hmac import compare_digest
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from gramercy.errors import HttpError, ServingError
from gramercy.mcp.jsonrpc import Code
from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gramercy.mcp.http.settings import HttpSettings

# 96 bits in Base64; a shorter token could be guessed.
SHORTEST_TOKEN = 16


@dataclass(frozen=True, slots=True)
class Caller:
    """An admitted caller: a name for limits and sessions, and the ceiling of its calls."""

    principal: str
    ceiling: Safety = Safety.DANGEROUS


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a caller is not admitted: the HTTP status, the WWW-Authenticate challenge, and the reason."""

    status: int
    challenge: str
    reason: str


class CallerGate(Protocol):
    """Identifies the caller of a request by its Authorization header, or refuses it."""

    @property
    def is_open(self) -> bool:
        """Whether every caller is admitted."""

    @property
    def documents(self) -> Mapping[str, bytes]:
        """JSON documents that callers may read without being admitted, by their paths."""

    async def admit(self, authorization: bytes | None) -> Caller | Refusal:
        """Identify the caller by the Authorization header, or refuse it."""

    def describe(self) -> str:
        """Say in one line how to get access, for the person who started the server."""


class OpenGate:
    """Admits every request, as the same caller."""

    is_open = True
    documents: Mapping[str, bytes] = MappingProxyType({})

    def __init__(self, ceiling: Safety = Safety.DANGEROUS) -> None:
        self._caller = Caller("anonymous", ceiling)

    async def admit(self, authorization: bytes | None) -> Caller | Refusal:  # noqa: ARG002 - the header does not matter
        """Admit the caller."""
        return self._caller

    def describe(self) -> str:
        """Say that no token is needed."""
        return "no token is asked for: every program on this machine can call the tools"


class TokenGate:
    """Admits requests with one of several secret tokens, which may have different ceilings."""

    is_open = False
    documents: Mapping[str, bytes] = MappingProxyType({})

    def __init__(self, tokens: Mapping[str, Caller], *, source: str = "") -> None:
        if not tokens:
            raise ServingError("a token gate without tokens lets nobody in: give at least one")
        for token in tokens:
            _check_token(token)
        self._tokens = [(token.encode(), caller) for token, caller in tokens.items()]
        self._usual = b"Bearer " + self._tokens[0][0]
        self._source = source

    @classmethod
    def of(cls, token: str, *, source: str = "the token that was configured") -> TokenGate:
        """Make a gate with one token for everything; `source` says in messages where the token comes from."""
        return cls({token: Caller("token")}, source=source)

    @classmethod
    def generate(cls) -> TokenGate:
        """Make a gate with one new random token, which `describe` prints."""
        return cls({secrets.token_urlsafe(32): Caller("token")})

    async def admit(self, authorization: bytes | None) -> Caller | Refusal:
        """Compare with every token, each in constant time."""
        if authorization is not None and compare_digest(authorization, self._usual):
            return self._tokens[0][1]
        given = bearer(authorization)
        if given is None:
            return Refusal(401, 'Bearer realm="gramercy"', "send the header Authorization: Bearer TOKEN")
        found = None
        for token, caller in self._tokens:
            if compare_digest(given, token):
                found = caller
        if found is not None:
            return found
        return Refusal(
            401,
            'Bearer realm="gramercy", error="invalid_token"',
            "the bearer token is wrong: the server printed the right one when it started",
        )

    def describe(self) -> str:
        """Tell the generated token, or the source of the configured one."""
        if self._source:
            return f"callers need {self._source} (Authorization: Bearer ...)"
        return f"token: {self._tokens[0][0].decode()}"


def bearer(authorization: bytes | None) -> bytes | None:
    """Return the token of a bearer Authorization header, or None."""
    if authorization is None:
        return None
    scheme, _, token = authorization.partition(b" ")
    return (token.strip() or None) if scheme.lower() == b"bearer" else None


def _check_token(token: str) -> None:
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise ServingError("a token consists of visible ASCII characters: this one has others in it")
    if len(token) < SHORTEST_TOKEN:
        raise ServingError(
            f"a token of {len(token)} characters can be guessed: take at least {SHORTEST_TOKEN}, for example "
            'from python -c "import secrets; print(secrets.token_urlsafe(32))"'
        )


LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
# Host headers that passed; clients of one server use a handful.
REMEMBERED_HOSTS = 64


class Origins:
    """Checks the Host and Origin headers, and tells what browsers may read."""

    def __init__(self, settings: HttpSettings) -> None:
        self._hosts = frozenset(host.lower() for host in settings.hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in settings.origins)
        # Nearly all callers send the same few values.
        self._known: set[bytes] = set()

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise HttpError (403) for a foreign Host or Origin."""
        host = headers.get(b"host", b"")
        if host not in self._known:
            self._check_host(host)
        origin = headers.get(b"origin")
        if origin is not None:
            self._check_origin(origin)

    def readable_by(self, origin: bytes | None) -> list[tuple[bytes, bytes]]:
        """Return the CORS headers that let a page of a configured origin read an answer."""
        if origin is None or origin.decode("latin-1").lower() not in self._origins:
            return []
        return [
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", b"Mcp-Session-Id, WWW-Authenticate"),
            (b"vary", b"Origin"),
        ]

    def preflight(self, origin: bytes | None) -> list[tuple[bytes, bytes]]:
        """Return the headers that answer a browser's preflight request, besides those of `readable_by`."""
        if not self.readable_by(origin):
            return []
        return [
            (b"access-control-allow-methods", b"POST, GET, DELETE"),
            (b"access-control-allow-headers", b"*, Authorization"),
            (b"access-control-max-age", b"600"),
        ]

    def _check_host(self, host: bytes) -> None:
        name = host.decode("latin-1").lower()
        if not self._is_allowed(name):
            raise HttpError(
                403,
                f"the Host header {name!r:.80} is not one of this server's names: call it as localhost, or "
                "have the name added to its allowed hosts",
                code=Code.DENIED,
            )
        if len(self._known) < REMEMBERED_HOSTS:
            self._known.add(host)

    def _check_origin(self, origin: bytes) -> None:
        text = origin.decode("latin-1").lower()
        if text in self._origins:
            return
        scheme, _, host = text.partition("://")
        if scheme not in {"http", "https"} or not self._is_allowed(host):
            raise HttpError(
                403,
                f"pages of the origin {text!r:.80} may not call this server: have the origin added to its "
                "allowed origins",
                code=Code.DENIED,
            )

    def _is_allowed(self, host: str) -> bool:
        if host in self._hosts:
            return True
        try:
            parts = urlsplit(f"//{host}")
            name, _ = parts.hostname or "", parts.port
        except ValueError:
            return False
        # A value with more than name and port (a user, a path) is not a host.
        if parts.netloc != host or "@" in host:
            return False
        return name in LOCAL_NAMES or name in self._hosts
