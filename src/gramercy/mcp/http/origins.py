"""Which Host and Origin headers are accepted: the protection against pages that reach local servers.

A page under a foreign name can be made to resolve to this machine (DNS rebinding); its requests then carry
that foreign name. Only names of this machine and names that were configured pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gramercy.mcp.http.refusals import DENIED, RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gramercy.mcp.http.settings import HttpSettings

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
REMEMBERED = 64


class Origins:
    """Decides by the Host and Origin headers, and says what browsers may read."""

    def __init__(self, settings: HttpSettings) -> None:
        self._hosts = frozenset(host.lower() for host in settings.hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in settings.origins)
        # Nearly all callers send the same few values.
        self._known: set[bytes] = set()

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise RefusedError (403) for a foreign Host or Origin."""
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
        """Return what answers a browser's question before a request, besides the headers of `readable_by`."""
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
            raise RefusedError(
                403,
                f"the Host header {name!r:.80} is not one of this server's names: call it as localhost, or "
                "have the name added to its allowed hosts",
                code=DENIED,
            )
        if len(self._known) < REMEMBERED:
            self._known.add(host)

    def _check_origin(self, origin: bytes) -> None:
        text = origin.decode("latin-1").lower()
        if text in self._origins:
            return
        scheme, _, host = text.partition("://")
        if scheme not in {"http", "https"} or not self._is_allowed(host):
            raise RefusedError(
                403,
                f"pages of the origin {text!r:.80} may not call this server: have the origin added to its "
                "allowed origins",
                code=DENIED,
            )

    def _is_allowed(self, host: str) -> bool:
        if host in self._hosts:
            return True
        try:
            parts = urlsplit(f"//{host}")
            name, _ = parts.hostname or "", parts.port
        except ValueError:
            return False
        # What is left besides name and port (a user, a path) is not a host.
        if parts.netloc != host or "@" in host:
            return False
        return name in LOCAL_NAMES or name in self._hosts
