"""The header rules of both eras: what must be there, what must be acceptable, what must agree with the body.

Components between client and server route by headers; a request whose headers and body tell different
stories is refused, so that nobody can be let through by one and served by the other.
"""

from __future__ import annotations

import base64
import binascii
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from gramercy.mcp.http.refusals import RefusedError
from gramercy.mcp.jsonrpc import HEADER_MISMATCH, UNSUPPORTED_VERSION
from gramercy.mcp.versions import LEGACY, MODERN, SUPPORTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gramercy.mcp.http.envelope import Envelope

# The field of the parameters that Mcp-Name repeats, by method.
NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "task",
    "tasks/update": "task",
    "tasks/cancel": "task",
}
NEWER = MODERN.encode()
PLAIN = re.compile(rb"[\t\x20-\x7e]*")
# Headers that may come several times; of all others a second value could be meant for somebody else.
LISTS = frozenset({b"accept", b"accept-encoding", b"accept-language", b"cache-control", b"cookie", b"via"})


def collect(raw: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return headers by lower-case name; raise RefusedError for one that comes twice and must not."""
    pairs = raw if isinstance(raw, list) else list(raw)
    found = dict(pairs)
    return found if len(found) == len(pairs) else _join(pairs)


def _join(pairs: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for name, value in pairs:
        if name not in found:
            found[name] = value
        elif name in LISTS or name.startswith(b"x-"):
            found[name] += b", " + value
        else:
            raise RefusedError(400, f"the header {name.decode('latin-1')!r:.60} comes twice: send it once")
    return found


@lru_cache(maxsize=64)
def accepted_types(accept: bytes) -> tuple[bool, bool]:
    """Tell whether an Accept header admits JSON and whether it admits event streams."""
    ranges = {_media_range(part) for part in accept.lower().split(b",")}
    return _admits(ranges, b"application", b"json"), _admits(ranges, b"text", b"event-stream")


def _media_range(part: bytes) -> bytes:
    kind, *parameters = (piece.strip() for piece in part.split(b";"))
    refused = any(p.replace(b" ", b"") in {b"q=0", b"q=0.0", b"q=0.00", b"q=0.000"} for p in parameters)
    return b"" if refused else kind


def _admits(ranges: set[bytes], kind: bytes, subtype: bytes) -> bool:
    return not ranges.isdisjoint({kind + b"/" + subtype, kind + b"/*", b"*/*"})


def check_accept(headers: Mapping[bytes, bytes], *, stream_only: bool = False) -> None:
    """Raise RefusedError (406) unless the client reads what it may get; no header means anything goes."""
    accept = headers.get(b"accept")
    if accept is None:
        return
    json, stream = accepted_types(accept[:1000])
    if stream and (json or stream_only):
        return
    wanted = "text/event-stream" if stream_only else "application/json, text/event-stream"
    raise RefusedError(406, f"send the header Accept: {wanted} (it was {_shown(accept)})")


@lru_cache(maxsize=64)
def _is_json(content_type: bytes) -> bool:
    kind, *parameters = (piece.strip() for piece in content_type.lower().split(b";"))
    charsets = [p.partition(b"=")[2].strip(b'"') for p in parameters if p.startswith(b"charset=")]
    return kind == b"application/json" and all(charset in {b"utf-8", b"utf8"} for charset in charsets)


def check_content(headers: Mapping[bytes, bytes]) -> None:
    """Raise RefusedError (415) unless the body is plain JSON."""
    kind = headers.get(b"content-type", b"")
    if not _is_json(kind[:200]):
        raise RefusedError(415, f"send the header Content-Type: application/json (it was {_shown(kind)})")
    coding = headers.get(b"content-encoding")
    if coding is not None and coding.lower() != b"identity":
        raise RefusedError(415, f"send the body without Content-Encoding (it was {_shown(coding)})")


def is_stateless(headers: Mapping[bytes, bytes], envelope: Envelope | None) -> bool:
    """Tell whether a request is of the newer era: by its header, or by what the body declares."""
    if headers.get(b"mcp-protocol-version") == NEWER:
        return True
    return envelope is not None and envelope.version is not None


def check_handshake_version(headers: Mapping[bytes, bytes]) -> None:
    """Raise RefusedError (400) for a revision that is not spoken; an older client sends no header at all."""
    version = headers.get(b"mcp-protocol-version")
    if version is not None and version.decode("latin-1") not in LEGACY:
        raise RefusedError(
            400,
            f"Unsupported protocol version {_shown(version)}",
            code=UNSUPPORTED_VERSION,
            data={"supported": list(SUPPORTED), "requested": version.decode("latin-1")[:100]},
        )


def check_stateless(headers: Mapping[bytes, bytes], envelope: Envelope) -> None:
    """Raise RefusedError (400) unless version, method and name are in the headers and agree with the body."""
    if envelope.version is None:
        # The engine says what is missing.
        return
    _check_equal(headers, b"mcp-protocol-version", envelope.version, "MCP-Protocol-Version")
    _check_equal(headers, b"mcp-method", envelope.method, "Mcp-Method")
    field = NAMED_BY.get(envelope.method) if isinstance(envelope.method, str) else None
    if field is not None:
        name = None if envelope.params is None else getattr(envelope.params, field)
        # A request without a name is wrong in itself: the engine says how.
        if name is not None:
            _check_equal(headers, b"mcp-name", name, "Mcp-Name")


def _check_equal(headers: Mapping[bytes, bytes], key: bytes, expected: object, title: str) -> None:
    value = headers.get(key)
    # As good as always they are the same bytes, and then no encoding has to be thought of.
    if value is not None and type(expected) is str and value == expected.encode() and _is_plain(value):
        return
    if value is None:
        raise mismatch(f"the header {title} is missing (the body says {expected!r:.80})")
    found = decode_value(value.strip(b" \t")) if key == b"mcp-name" else value.decode("latin-1").strip(" \t")
    if found != expected:
        raise mismatch(f"the header {title} is {_shown(value)}, the body says {expected!r:.80}")


def _is_plain(value: bytes) -> bool:
    return value.isascii() and value[:2] != b"=?"


def decode_value(value: bytes) -> str:
    """Return the text of a header value, plain or in the =?base64?...?= form; raise RefusedError if bad."""
    if value.startswith(b"=?base64?") and value.endswith(b"?=") and len(value) >= len(b"=?base64??="):
        try:
            return base64.b64decode(value[9:-2], validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise mismatch(f"the value {_shown(value)} is not Base64 of UTF-8 text") from None
    if PLAIN.fullmatch(value) is None:
        raise mismatch(f"the value {_shown(value)} has characters which must be sent as =?base64?...?=")
    return value.decode("ascii")


def mismatch(reason: str) -> RefusedError:
    """Return the refusal for headers that do not agree with the body."""
    return RefusedError(400, f"Header mismatch: {reason}", code=HEADER_MISMATCH)


def require_single(envelope: object) -> None:
    """Raise RefusedError (400) for a batch, which the newer era does not have."""
    if isinstance(envelope, list):
        raise RefusedError(400, "batches are not part of this revision: send one message")


def _shown(value: bytes) -> str:
    return f"{value.decode('latin-1')!r:.80}"
