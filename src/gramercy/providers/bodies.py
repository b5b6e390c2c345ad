"""Parse the answers of services within limits: server-sent events, counts of tokens, reasons of a refusal.

This module knows no format of messages and opens no connection. Keys are removed from a quoted text before it
is cut: half of a key would not be recognised.
"""

from __future__ import annotations

import contextlib
import html
import math
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import CutStreamError, ProviderError
from gramercy.providers.services import hide_keys
from gramercy.text import reveal_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from gramercy.providers.base import Part

# One event has a few tokens, or at most a whole answer.
LARGEST_EVENT = 16 * 1024 * 1024
# A hundred times the longest answer of today's models.
LARGEST_ANSWER = 64 * 1024 * 1024
# Characters of a refusal, of an event and of a name that are quoted.
LONGEST_REASON = 500
LONGEST_QUOTE = 100
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


async def read_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the data of server-sent events; the last one may lack its empty line."""
    data: list[bytes] = []
    is_first = True
    async for line in _lines(chunks):
        field = line.removeprefix(_BYTE_ORDER_MARK) if is_first else line
        is_first = False
        if field.startswith(b"data:"):
            data.append(field[5:].removeprefix(b" "))
        elif not field and data:
            yield b"\n".join(data)
            data = []
    if data:
        yield b"\n".join(data)


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Split at LF, CRLF and CR, as events do: not at the line ends of Unicode, which JSON may contain."""
    begun: list[bytes] = []
    size = total = 0
    after_return = False
    async for chunk in chunks:
        total += len(chunk)
        # The LF of a CRLF that came in two chunks.
        given = chunk[1:] if after_return and chunk.startswith(b"\n") else chunk
        after_return = chunk.endswith(b"\r") or (after_return and not chunk)
        for piece in given.splitlines(keepends=True):
            begun.append(piece)
            size += len(piece)
            _check_size(size, total)
            if piece.endswith((b"\n", b"\r")):
                yield b"".join(begun).rstrip(b"\r\n")
                begun, size = [], 0
    if begun:
        yield b"".join(begun)


def _check_size(event: int, answer: int) -> None:
    if event > LARGEST_EVENT or answer > LARGEST_ANSWER:
        most = LARGEST_EVENT if event > LARGEST_EVENT else LARGEST_ANSWER
        raise ProviderError(f"the answer is longer than {most // 2**20} MiB at once: it was given up")


def taken(
    take: Callable[[dict[str, Any]], Iterable[Part]], data: bytes, hide: Callable[[str], str] = hide_keys
) -> list[Part]:
    """Return the parts of one event; an event that is not of its format ends the answer."""
    try:
        return list(take(msgspec.json.decode(data, type=dict[str, Any])))
    except _UNREADABLE:
        fault = "is not JSON"
    except (AttributeError, LookupError, TypeError, ValueError):
        fault = "has no known form"
    said = hide(data.decode("utf-8", "replace"))
    raise CutStreamError(f"an event of the answer {fault}: {said[:LONGEST_QUOTE]!r}")


def count(value: Any) -> int:
    """Return a number of tokens; a value that is not a number counts as zero."""
    return value if type(value) is int and value > 0 else 0


def reason_of(body: bytes, hide: Callable[[str], str] = hide_keys) -> str:
    """Return the service's reason for a refusal, on one line and without keys."""
    text = body.decode("utf-8", "replace")
    try:
        said = _message_in(msgspec.json.decode(body))
    except _UNREADABLE:
        said = _title_of(text)
    return plain_line(hide(said or text))


def plain_line(text: str, most: int = LONGEST_REASON) -> str:
    """Return a text that is not ours as one line, without terminal control sequences."""
    return reveal_line(" ".join(text[: 20 * most].split()))[:most]


def _message_in(value: Any) -> str | None:
    """Find the message in {"error": {"message": …}} and the other forms that services use."""
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict):
        for name in ("error", "errors", "message", "detail", "msg"):
            if value.get(name):
                return _message_in(value[name]) or str(value[name])
        return None
    return value if isinstance(value, str) else None


def _title_of(text: str) -> str | None:
    """Return the title of a web page, which gateways and proxies send instead of an error."""
    title = _TITLE.search(text) if text.lstrip().startswith("<") else None
    return html.unescape(title[1]) if title else None


def model_names(body: bytes) -> list[str]:
    """Return the ids in {"data": [{"id": …}]}: both formats list models so."""
    try:
        listed = msgspec.json.decode(body)["data"]
        names = [each["id"] for each in listed if isinstance(each, dict) and "id" in each]
    except (*_UNREADABLE, LookupError, TypeError):
        return []
    return [plain_line(name, LONGEST_QUOTE) for name in names if isinstance(name, str)]


def seconds_to_wait(headers: Mapping[str, str]) -> float | None:
    """Return how long to wait before a retry; None if the service does not say, or the time is over."""
    given = headers.get("retry-after", "")
    for text, unit in ((headers.get("retry-after-ms", ""), 1000), (given, 1)):
        with contextlib.suppress(ValueError):
            seconds = float(text) / unit
            return seconds if 0 < seconds < math.inf else None
    from email.utils import parsedate_to_datetime

    with contextlib.suppress(ValueError, TypeError, OverflowError):
        when = parsedate_to_datetime(given)
        # One of the three date formats of HTTP has no time zone; all of them mean UTC.
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        return max(0.0, (when - datetime.now(UTC)).total_seconds()) or None
    return None
