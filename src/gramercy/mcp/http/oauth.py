"""OAuth resource-server mode: bearer tokens are JWTs of one authorization server, made for this resource.

Scopes give safety ceilings. PyJWT does the cryptography; this module decides what must be in a token, and how
often the server's keys are fetched.
"""

from __future__ import annotations

import asyncio
import hashlib
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from gramercy.errors import KeysUnavailableError, ServingError
from gramercy.mcp.http.auth import Caller, Refusal, bearer
from gramercy.mcp.http.settings import is_loopback
from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from jwt import PyJWK

WELL_KNOWN = "/.well-known/oauth-protected-resource"
# Only signatures with public keys: a shared secret that verifies tokens can also make them.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
SCOPES: Mapping[str, Safety] = MappingProxyType({f"gramercy:{level}": level for level in Safety})
# Tokens whose signature was verified, about 200 kB; the least recently verified is evicted.
REMEMBERED = 1024
# A revoked key is detected within this time.
REMEMBERED_SECONDS = 60.0
# JWTs with many claims have a few kilobytes; proxies refuse headers above 8 or 16.
LONGEST_TOKEN = 16 << 10
# Principals are kept with every session and every call; most subjects have some 40 characters.
LONGEST_SUBJECT = 200
# Keys are rotated over days. An unknown key name is looked up again at most this often, so that made-up names
# in tokens do not become requests to the authorization server.
FRESH_SECONDS = 300.0
PAUSE_SECONDS = 10.0
# Seconds that callers with a new token wait for the authorization server.
FETCH_SECONDS = 5.0
# Key sets have some kilobytes and a handful of keys.
LONGEST_DOCUMENT = 1 << 20
MOST_KEYS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthSettings:
    """The accepted tokens: `resource` is this server's public address, which they must be made for.

    `keys` is the address or file of the authorization server's key set (JWKS), or the set itself.
    """

    resource: str
    issuer: str
    keys: str | Mapping[str, Any]
    scopes: Mapping[str, Safety] = field(default_factory=lambda: SCOPES)
    algorithms: tuple[str, ...] = ALGORITHMS
    leeway: float = 30.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.resource)
        if parts.scheme not in {"http", "https"} or not parts.netloc or parts.fragment:
            raise ServingError(f"the resource is {self.resource!r:.100}: expected this server's address")
        if not set(self.algorithms) <= set(ALGORITHMS):
            raise ServingError(
                f"tokens are signed with one of {', '.join(ALGORITHMS)}: no other is safe here"
            )


class OAuthGate:
    """Admits callers with a token of the authorization server; its scopes give the ceiling."""

    is_open = False

    def __init__(self, settings: OAuthSettings, *, clock: Callable[[], float] = time) -> None:
        try:
            import jwt
        except ImportError:
            raise ServingError("OAuth needs PyJWT: pip install 'gramercy[oauth]'") from None
        self._jwt = jwt
        self._settings = settings
        self._clock = clock
        self._keys = Keys(settings.keys, clock)
        # Verifying a signature costs more than everything else about a request.
        self._seen: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()
        parts = urlsplit(settings.resource)
        self._metadata = f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path.rstrip('/')}"
        document = self._describe_resource()
        self.documents: Mapping[str, bytes] = {
            WELL_KNOWN: document,
            WELL_KNOWN + parts.path.rstrip("/"): document,
        }

    async def admit(self, authorization: bytes | None) -> Caller | Refusal:
        """Verify the token and return its subject, with the ceiling of its scopes."""
        token = bearer(authorization)
        if token is None:
            return self._refuse(401, "send a token of the authorization server (Authorization: Bearer ...)")
        if len(token) > LONGEST_TOKEN:
            return self._refuse(401, "the token is too long", "invalid_token")
        digest = hashlib.sha256(token).digest()
        seen = self._seen.get(digest)
        if seen is not None and self._clock() < seen[1]:
            return seen[0]
        return await self._check(token, digest)

    def describe(self) -> str:
        """Say which authorization server's tokens are accepted."""
        return f"callers need a token of {self._settings.issuer} for {self._settings.resource}"

    async def _check(self, token: bytes, digest: bytes) -> Caller | Refusal:
        try:
            claims = await self._verify(token)
        except KeysUnavailableError:
            return Refusal(503, "Bearer", "the keys of the authorization server cannot be had now: try later")
        except (self._jwt.exceptions.PyJWTError, ValueError) as error:
            return self._refuse(401, f"the token is not valid: {error!s:.200}", "invalid_token")
        caller = self._caller_of(claims)
        if isinstance(caller, Caller):
            until = min(self._clock() + REMEMBERED_SECONDS, float(claims["exp"]))
            self._seen[digest] = (caller, until)
            if len(self._seen) > REMEMBERED:
                self._seen.popitem(last=False)
        return caller

    async def _verify(self, token: bytes) -> Mapping[str, Any]:
        name = self._jwt.get_unverified_header(token).get("kid")
        key = await self._keys.find(name if isinstance(name, str) else None)
        if key is None:
            raise self._jwt.exceptions.InvalidKeyError("it is signed with a key that is not known")
        settings = self._settings
        resource = settings.resource.rstrip("/")
        claims: Mapping[str, Any] = self._jwt.decode(
            token,
            key=key,
            algorithms=list(settings.algorithms),
            audience=[resource, f"{resource}/"],
            issuer=settings.issuer,
            leeway=settings.leeway,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )
        return claims

    def _caller_of(self, claims: Mapping[str, Any]) -> Caller | Refusal:
        given = claims.get("scope", claims.get("scp", ""))
        words = given.split() if isinstance(given, str) else given if isinstance(given, list) else []
        scopes = self._settings.scopes
        ceilings = [scopes[word] for word in words if isinstance(word, str) and word in scopes]
        subject = claims["sub"]
        if not ceilings or not isinstance(subject, str) or not subject:
            return self._refuse(403, "the token has none of the scopes of this server", "insufficient_scope")
        return Caller(_principal(subject), max(ceilings))

    def _refuse(self, status: int, reason: str, error: str = "") -> Refusal:
        least = min(self._settings.scopes.items(), key=lambda item: item[1].rank)[0]
        parts = [f'resource_metadata="{self._metadata}"', f'scope="{least}"']
        if error:
            quoted = "".join(c for c in reason if c.isascii() and c.isprintable() and c not in '"\\')
            parts = [f'error="{error}"', f'error_description="{quoted}"', *parts]
        return Refusal(status, "Bearer " + ", ".join(parts), reason)

    def _describe_resource(self) -> bytes:
        return msgspec.json.encode(
            {
                "resource": self._settings.resource,
                "authorization_servers": [self._settings.issuer],
                "scopes_supported": list(self._settings.scopes),
                "bearer_methods_supported": ["header"],
                "resource_name": "gramercy",
            }
        )


class Keys:
    """Finds keys by their names; `source` is an https address, a file, or the key set itself."""

    def __init__(self, source: str | Mapping[str, Any], clock: Callable[[], float]) -> None:
        self._read = _reader(source)
        self._clock = clock
        self._keys: dict[str | None, PyJWK] = {}
        self._read_at: float | None = None
        self._lock: asyncio.Lock | None = None

    async def find(self, name: str | None) -> PyJWK | None:
        """Return the key of that name, the only key when no name is given, or None."""
        if self._age() > (FRESH_SECONDS if self._has(name) else PAUSE_SECONDS):
            await self._refresh(name)
        if name is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(name)

    def _has(self, name: str | None) -> bool:
        return name in self._keys or (name is None and bool(self._keys))

    def _age(self) -> float:
        return float("inf") if self._read_at is None else self._clock() - self._read_at

    async def _refresh(self, name: str | None) -> None:
        if self._lock is None:
            self._lock = asyncio.Lock()
        before = self._read_at
        async with self._lock:
            if self._read_at is not before:
                return
            self._read_at = self._clock()
            try:
                self._keys = _parse(await asyncio.to_thread(self._read))
            except (OSError, ValueError, msgspec.DecodeError) as error:
                # Old keys are better than none while the authorization server does not answer.
                if not self._has(name):
                    raise KeysUnavailableError(str(error)) from error


def _parse(document: Any) -> dict[str | None, PyJWK]:
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    given = document.get("keys") if isinstance(document, Mapping) else None
    if not isinstance(given, list):
        raise ValueError("a key set has a list of keys")  # noqa: TRY004 - it is the contents that are wrong
    found: dict[str | None, PyJWK] = {}
    for entry in given[:MOST_KEYS]:
        # A shared secret is not a public key, and an encryption key does not sign.
        if not isinstance(entry, dict) or entry.get("kty") == "oct" or entry.get("use", "sig") != "sig":
            continue
        try:
            found[entry.get("kid")] = PyJWK.from_dict(entry)
        except PyJWTError:
            continue
    return found


def _reader(source: str | Mapping[str, Any]) -> Callable[[], Any]:
    if not isinstance(source, str):
        return lambda: source
    parts = urlsplit(source)
    if parts.scheme in {"http", "https"}:
        if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            raise ServingError(f"the keys are at {source:.100}: expected an https address")
        return lambda: msgspec.json.decode(_fetch(source))
    path = Path(source)
    if not path.is_file():
        raise ServingError(f"there is no key set at {source:.200}: expected an https address or a file")
    return lambda: msgspec.json.decode(path.read_bytes())


def _fetch(address: str) -> bytes:
    opener = urllib.request.build_opener(_StayHere)
    with opener.open(address, timeout=FETCH_SECONDS) as response:
        document: bytes = response.read(LONGEST_DOCUMENT + 1)
    if len(document) > LONGEST_DOCUMENT:
        raise ValueError("the key set is too long")
    return document


class _StayHere(urllib.request.HTTPRedirectHandler):
    """Follows no redirects: keys come from the configured address or not at all."""

    def redirect_request(self, *_: Any) -> None:
        """Refuse the redirect."""


def _principal(subject: str) -> str:
    """Return the name of a subject; two long subjects with the same beginning stay distinct."""
    if len(subject) <= LONGEST_SUBJECT:
        return subject
    digest = hashlib.sha256(subject.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{subject[: LONGEST_SUBJECT - len(digest) - 1]}…{digest}"
