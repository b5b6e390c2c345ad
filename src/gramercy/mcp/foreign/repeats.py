"""Repeat arguments in headers, where a tool's schema wants that (`x-mcp-header`, newer era over HTTP)."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gramercy.mcp.foreign.definitions import Definition


def header_value(value: str) -> str:
    """Return a text as the value of a header: plain where that is possible, else in Base64."""
    is_plain = (
        value.isascii() and value.isprintable() and value == value.strip() and not value.startswith("=?")
    )
    return value if is_plain else f"=?base64?{b64encode(value.encode()).decode()}?="


def repeated_arguments(definition: Definition, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the name of the tool and the arguments that its schema marks, as headers."""
    from gramercy.mcp.http.mirrors import find_mirrors

    headers = {"mcp-name": header_value(definition.name)}
    for mirror in find_mirrors(definition.parts["inputSchema"]):
        value: Any = arguments
        for step in mirror.path:
            value = value.get(step) if isinstance(value, dict) else None
        title = mirror.header.decode("latin-1")
        # A name that is no token would let the server write headers of its choice into our request.
        if value is not None and title.replace("-", "").isalnum() and title.isascii():
            headers[title] = header_value(_as_text(value))
    return headers


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
