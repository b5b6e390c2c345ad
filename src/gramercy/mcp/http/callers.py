"""Who calls over HTTP, and the gates that find out: no gate at all, or bearer tokens.

Nothing here knows MCP or a socket: a gate sees the Authorization header and names a caller or refuses.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from hmac import compare_digest
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from gramercy.errors import GramercyError
from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from collections.abc import Mapping

SHORTEST_TOKEN = 16


class ServingError(GramercyError):
    """The server cannot be started as asked; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who was let in: a name for limits and sessions, and how dangerous their tools may be."""

    principal: str
    ceiling: Safety = Safety.DANGEROUS


@dataclass(frozen=True, slots=True)
class Refusal:
    """Somebody who was not let in: the HTTP status, the WWW-Authenticate challenge, and the reason."""

    status: int
    challenge: str
    reason: str


class Gate(Protocol):
    """Finds out who is calling."""

    @property
    def is_open(self) -> bool:
        """Whether anybody is let in."""

    @property
    def documents(self) -> Mapping[str, bytes]:
        """What callers may read without being let in: JSON documents by their paths."""

    async def admit(self, authorization: bytes | None) -> Caller | Refusal:
        """Name the caller by the Authorization header, or refuse."""

    def describe(self) -> str:
        """Say in one line how to get in, for the person who started the server."""


class OpenGate:
    """Lets everybody in, as one and the same caller."""

    is_open = True
    documents: Mapping[str, bytes] = MappingProxyType({})

    def __init__(self, ceiling: Safety = Safety.DANGEROUS) -> None:
        self._caller = Caller("anonymous", ceiling)

    async def admit(self, authorization: bytes | None) -> Caller | Refusal:  # noqa: ARG002 - nobody is asked
        """Let the caller in."""
        return self._caller

    def describe(self) -> str:
        """Say that nothing is asked for."""
        return "no token is asked for: every program on this machine can call the tools"


class TokenGate:
    """Lets in who sends one of some secret tokens; several may exist, with different ceilings."""

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
        """Make a gate with one token for everything, named by where it comes from in what is printed."""
        return cls({token: Caller("token")}, source=source)

    @classmethod
    def generate(cls) -> TokenGate:
        """Make a gate with one new random token, which `describe` tells."""
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
        """Tell the generated token, or where the configured one comes from."""
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
