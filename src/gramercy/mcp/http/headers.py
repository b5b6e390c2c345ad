"""The header rules for legacy and modern clients: required headers, accepted values, agreement with the body.

Proxies between client and server route by headers; a request whose headers and body disagree is refused, so
that it cannot pass a proxy as one thing and be served as another. Arguments of tools may be repeated in
headers too (`x-mcp-header` in a tool's schema, `Mcp-Param-*`).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import OrderedDict
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import HttpError
from gramercy.mcp.jsonrpc import LEGACY, MODERN, SUPPORTED, Code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from gramercy.mcp.http.exchange import Envelope

    SchemaSource = Callable[[str], "Mapping[str, Any] | None"]

# The field of the parameters that Mcp-Name repeats, by method.
NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
MODERN_HEADER = MODERN.encode()
PLAIN = re.compile(rb"[\t\x20-\x7e]*")
# Headers that may be repeated; of any other, a proxy might read one value and this server another.
LISTS = frozenset({b"accept", b"accept-encoding", b"accept-language", b"cache-control", b"cookie", b"via"})
MARK = "x-mcp-header"
# Tools whose schemas were searched for marks: more than a client can keep apart, a few kilobytes.
REMEMBERED_TOOLS = 256
# How deep schemas are searched for marks; a schema that refers to itself in memory must not hang a request.
DEEPEST = 16


def collect(raw: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return headers by lower-case name; raise HttpError for a repeated header that must be single."""
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
            raise HttpError(400, f"the header {name.decode('latin-1')!r:.60} comes twice: send it once")
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
    """Raise HttpError (406) unless the client accepts the possible answers; no header accepts all."""
    accept = headers.get(b"accept")
    if accept is None:
        return
    json, stream = accepted_types(accept[:1000])
    if stream and (json or stream_only):
        return
    wanted = "text/event-stream" if stream_only else "application/json, text/event-stream"
    raise HttpError(406, f"send the header Accept: {wanted} (it was {_shown(accept)})")


@lru_cache(maxsize=64)
def _is_json(content_type: bytes) -> bool:
    kind, *parameters = (piece.strip() for piece in content_type.lower().split(b";"))
    charsets = [p.partition(b"=")[2].strip(b'"') for p in parameters if p.startswith(b"charset=")]
    return kind == b"application/json" and all(charset in {b"utf-8", b"utf8"} for charset in charsets)


def check_content(headers: Mapping[bytes, bytes]) -> None:
    """Raise HttpError (415) unless the body is plain JSON."""
    kind = headers.get(b"content-type", b"")
    if not _is_json(kind[:200]):
        raise HttpError(415, f"send the header Content-Type: application/json (it was {_shown(kind)})")
    coding = headers.get(b"content-encoding")
    if coding is not None and coding.lower() != b"identity":
        raise HttpError(415, f"send the body without Content-Encoding (it was {_shown(coding)})")


def is_modern(headers: Mapping[bytes, bytes], envelope: Envelope | None) -> bool:
    """Tell whether a request is modern: by its header, or by the revision in the body."""
    if headers.get(b"mcp-protocol-version") == MODERN_HEADER:
        return True
    return envelope is not None and envelope.version is not None


def check_legacy_version(headers: Mapping[bytes, bytes]) -> None:
    """Raise HttpError (400) for an unsupported revision; early legacy clients send no header."""
    version = headers.get(b"mcp-protocol-version")
    if version is not None and version.decode("latin-1") not in LEGACY:
        raise HttpError(
            400,
            f"Unsupported protocol version {_shown(version)}",
            code=Code.UNSUPPORTED_VERSION,
            data={"supported": list(SUPPORTED), "requested": version.decode("latin-1")[:100]},
        )


def check_modern(headers: Mapping[bytes, bytes], envelope: Envelope) -> None:
    """Raise HttpError (400) unless version, method and name are in the headers and agree with the body."""
    if envelope.version is None:
        # The engine says what is missing.
        return
    _check_equal(headers, b"mcp-protocol-version", envelope.version, "MCP-Protocol-Version")
    _check_equal(headers, b"mcp-method", envelope.method, "Mcp-Method")
    field = NAMED_BY.get(envelope.method) if isinstance(envelope.method, str) else None
    if field is not None:
        name = None if envelope.params is None else envelope.params.get(field)
        # A request without a name is invalid in itself: the engine says how.
        if name is not None:
            _check_equal(headers, b"mcp-name", name, "Mcp-Name")


def _check_equal(headers: Mapping[bytes, bytes], key: bytes, expected: object, title: str) -> None:
    value = headers.get(key)
    # Nearly always they are the same bytes, and then the encoding does not matter.
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
    """Return the text of a header value, plain or in the =?base64?...?= form; raise HttpError if bad."""
    if value.startswith(b"=?base64?") and value.endswith(b"?=") and len(value) >= len(b"=?base64??="):
        try:
            return base64.b64decode(value[9:-2], validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise mismatch(f"the value {_shown(value)} is not Base64 of UTF-8 text") from None
    if PLAIN.fullmatch(value) is None:
        raise mismatch(f"the value {_shown(value)} has characters which must be sent as =?base64?...?=")
    return value.decode("ascii")


def mismatch(reason: str) -> HttpError:
    """Return the refusal for headers that do not agree with the body."""
    return HttpError(400, f"Header mismatch: {reason}", code=Code.HEADER_MISMATCH)


def require_single(envelope: object) -> None:
    """Raise HttpError (400) for a batch, which the modern protocol does not have."""
    if isinstance(envelope, list):
        raise HttpError(400, "batches are not part of this revision: send one message")


def _shown(value: bytes) -> str:
    return f"{value.decode('latin-1')!r:.80}"


class RepeatedArgument(msgspec.Struct, frozen=True):
    """One argument, by its path in the arguments, and the header that repeats it."""

    header: bytes
    path: tuple[str, ...]


class RepeatedArguments:
    """Checks calls against the schemas of their tools."""

    def __init__(self, schema_of: SchemaSource | None) -> None:
        self._schema_of = schema_of
        # By name; the schema is stored with it, so that a replaced tool is detected by identity.
        self._known: OrderedDict[str, tuple[Mapping[str, Any], tuple[RepeatedArgument, ...]]] = OrderedDict()

    def check(self, params: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> None:
        """Raise HttpError (400) if a repeated argument of a call and its header do not agree."""
        tool = params.get("name")
        if self._schema_of is None or not isinstance(tool, str):
            return
        schema = self._schema_of(tool)
        if schema is None:
            return
        repeated = self._of(tool, schema)
        if repeated:
            _compare(repeated, headers, params.get("arguments"))

    def _of(self, tool: str, schema: Mapping[str, Any]) -> tuple[RepeatedArgument, ...]:
        known = self._known.get(tool)
        if known is not None and known[0] is schema:
            return known[1]
        repeated = tuple(find_repeated(schema))
        self._known[tool] = (schema, repeated)
        if len(self._known) > REMEMBERED_TOOLS:
            self._known.popitem(last=False)
        return repeated


def find_repeated(schema: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[RepeatedArgument]:
    """Find the marked properties that are reached only through `properties`."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or len(path) >= DEEPEST:
        return
    for name, part in properties.items():
        if not isinstance(part, dict):
            continue
        title = part.get(MARK)
        if isinstance(title, str) and title:
            yield RepeatedArgument(b"mcp-param-" + title.lower().encode("latin-1", "replace"), (*path, name))
        yield from find_repeated(part, (*path, name))


def _compare(repeated: tuple[RepeatedArgument, ...], headers: Mapping[bytes, bytes], arguments: Any) -> None:
    for one in repeated:
        _compare_one(one, headers.get(one.header), _value_at(arguments, one.path))


def _compare_one(one: RepeatedArgument, header: bytes | None, value: object) -> None:
    title = one.header.decode("latin-1")
    argument = ".".join(one.path)
    if header is None:
        if value is not None:
            raise mismatch(f"the header {title} is missing, which repeats the argument {argument}")
        return
    found = decode_value(header.strip(b" \t"))
    if value is None:
        raise mismatch(f"the header {title} is there, but the argument {argument} is not")
    if not _is_same(found, value):
        raise mismatch(f"the header {title} is {found!r:.80}, the argument {argument} is {value!r:.80}")


def _value_at(arguments: Any, path: tuple[str, ...]) -> Any:
    value = arguments
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _is_same(text: str, value: object) -> bool:
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, int | float):
        try:
            # 42 and 42.0 are the same number.
            return float(text) == float(value)
        except (ValueError, OverflowError):
            return False
    return text == value
