"""Find the id of a request that cannot be parsed, so that its client does not wait for an answer.

Only a certain id is used: a method or parameters beside the id tell a request from an answer, and an id that
cannot be sent back unchanged does not count.
"""

from __future__ import annotations

import re

import msgspec

# How much of the beginning of a message is examined, and kept of a message that is dropped.
BEGINNING = 4_096
# A message up to this size is parsed again as a whole: clients may write the id at its end.
READ_AGAIN = 1 << 20
# An id is kept while its request runs, and sent back; the ids of clients have a few dozen characters.
LONGEST_ID = 1_000
# The character that replaces a faulty byte.
_REPLACED = "\ufffd"
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1
_OPENING = re.compile(rb"(?:\xef\xbb\xbf)?\s*\{")
_NAME = re.compile(rb'\s*"(\w+)"\s*:\s*')
_VALUE = re.compile(rb'("(?:[^"\\]|\\.)*"|-?\d+|true|false|null)\s*,')
_decode_id = msgspec.json.Decoder(int | str).decode


def id_of(frame: bytes) -> int | str | None:
    """Return the id of a request that is JSON except for forbidden characters, else None."""
    return _id_anywhere(frame) if len(frame) <= READ_AGAIN else id_at_start(frame)


def id_at_start(frame: bytes) -> int | str | None:
    """Return the id of a request if it comes before the first value that is an object or a list."""
    frame = frame[:BEGINNING]
    found: dict[bytes, bytes] = {}
    opening = _OPENING.match(frame)
    at = opening.end() if opening is not None else len(frame)
    while (name := _NAME.match(frame, at)) is not None:
        value = _VALUE.match(frame, name.end())
        found[name[1]] = b"" if value is None else value[1]
        if value is None:
            break
        at = value.end()
    if b"id" not in found or found.keys().isdisjoint((b"method", b"params")):
        return None
    try:
        return _usable(_decode_id(found[b"id"]))
    except (msgspec.MsgspecError, UnicodeError):
        return None


def _id_anywhere(frame: bytes) -> int | str | None:
    if not frame.lstrip().startswith(b"{"):
        return None
    # Loaded for faulty frames only. It accepts lone surrogates, which the other parser does not.
    import json

    try:
        found = json.loads(frame.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return _usable(found.get("id")) if isinstance(found.get("method"), str) else None


def _usable(found: object) -> int | str | None:
    """Return the id if it can be sent back unchanged."""
    if type(found) is int:
        return found if _LEAST <= found <= _MOST else None
    if type(found) is not str or len(found) > LONGEST_ID or _REPLACED in found:
        return None
    return found if found.isascii() or _is_text(found) else None


def _is_text(found: str) -> bool:
    try:
        found.encode()
    except UnicodeEncodeError:
        return False
    return True
