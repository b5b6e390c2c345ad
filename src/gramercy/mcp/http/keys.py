"""The public keys of an authorization server, from a file or from its address, kept for a while.

Fetching happens in a thread and never more often than now and then: strangers with made-up key names must
not make this server a hammer.
"""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from gramercy.mcp.http.callers import ServingError
from gramercy.mcp.http.settings import is_loopback

if TYPE_CHECKING:
    from jwt import PyJWK

FRESH_SECONDS = 300.0
PAUSE_SECONDS = 10.0
FETCH_SECONDS = 5.0
LONGEST_DOCUMENT = 1 << 20
MOST_KEYS = 100


class KeysUnavailableError(Exception):
    """The keys cannot be had now; never leaves this package."""


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
                # Old keys are better than none while the other side is away.
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
        # A shared secret is no public key, and a key for encryption signs nothing.
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
    """Follows no redirection: keys come from the address that was configured, or not at all."""

    def redirect_request(self, *_: Any) -> None:
        """Refuse to go elsewhere."""
