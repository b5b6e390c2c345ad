"""Names that a client brings back, signed, so that they hold after a restart of the server.

The key is kept in the user's state directory. If that is not possible, it lives as long as the process, and
so do the names.
"""

from __future__ import annotations

import hmac
import os
import stat
from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import suppress
from secrets import token_bytes, token_hex
from typing import TYPE_CHECKING, Any

from gramercy.directories import state_home
from gramercy.journal.texts import canonical_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KEY_BYTES = 32  # as many as the digest has: more would add nothing
SIGNATURE_BYTES = 18  # 24 characters: one of 2**144 cannot be guessed
IDENTITY_BYTES = 16  # enough that no two calls of one user collide
FILE = "signing.key"


class Signer:
    """Signs the names of parked calls and tasks. `process` tells names of this process from older ones."""

    __slots__ = ("_key", "process")

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or token_bytes(KEY_BYTES)
        self.process = token_hex(4)

    def signed(self, purpose: str, text: str, bound: str = "") -> str:
        """Return a text with its signature; `bound` is signed too, but not repeated in the result."""
        return f"{text}.{self._signature(purpose, text, bound)}"

    def read(self, purpose: str, signed: str, bound: str = "") -> str | None:
        """Return the text that was signed for this purpose; None for a forgery."""
        text, _, signature = signed.rpartition(".")
        expected = self._signature(purpose, text, bound)
        return text if hmac.compare_digest(signature.encode(), expected.encode()) else None

    def identity(self, about: Any) -> str:
        """Identify the content of a call, equally after a restart; without the key it reveals nothing."""
        message = f"identity:{canonical_text(about)}".encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, message, "sha256")[:IDENTITY_BYTES].hex()

    def _signature(self, purpose: str, text: str, bound: str) -> str:
        # The length is included, so that no two triples give the same message.
        message = f"{purpose}:{len(text)}:{text}:{bound}".encode("utf-8", "surrogatepass")
        return pack(hmac.digest(self._key, message, "sha256")[:SIGNATURE_BYTES])


def pack(data: bytes) -> str:
    """Encode bytes as letters, digits, - and _."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def unpack(text: str) -> bytes:
    """Decode the output of `pack`."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def kept_key(environment: Mapping[str, str]) -> bytes | None:
    """Return the key of this user, created when first needed; None if it cannot be stored."""
    try:
        directory = state_home(environment) / "gramercy"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _read(directory / FILE) or _made(directory / FILE)
    except (OSError, RuntimeError):  # the latter where the user has no home
        return None


def _read(path: Path) -> bytes | None:
    """Read a key that no other user can have read or written; None if there is no such file."""
    with suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            about = os.fstat(descriptor)
            key = file.read(KEY_BYTES + 1)
        is_private = about.st_uid == os.getuid() and not about.st_mode & 0o077
        if stat.S_ISREG(about.st_mode) and is_private and len(key) == KEY_BYTES:
            return key
        # Other users may know it, so names that were signed with it are no longer valid.
        path.unlink()
    return None


def _made(path: Path) -> bytes | None:
    """Create a key; of two processes that do so at once, both use that of the first."""
    fresh = path.with_name(f"{FILE}.{os.getpid()}.{token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(descriptor)
        with suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink()
    return _read(path)
