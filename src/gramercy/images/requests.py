"""Write requests in the language an image reads: s-expressions for Lisp, JSON for Python."""

from __future__ import annotations

from typing import Any

import msgspec


def as_json(request: dict[str, Any]) -> bytes:
    """Write a request as one JSON object."""
    return msgspec.json.encode(request)


def as_plist(request: dict[str, Any]) -> bytes:
    """Write a request as one property list, in standard syntax and without read-time evaluation."""
    body = " ".join(f":{key.replace('_', '-')} {_datum(value)}" for key, value in request.items())
    return f"({body})".encode()


def _datum(value: Any) -> str:
    if value is None or value is False:
        return "NIL"
    if value is True:
        return "T"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list | tuple):
        return f"({' '.join(map(_datum, value))})"
    return repr(value)
