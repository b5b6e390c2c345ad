"""Write requests in the language an image reads: s-expressions for Lisp, JSON for Python."""

from __future__ import annotations

from typing import Any

import msgspec

as_json = msgspec.json.Encoder().encode


class _Keywords(dict[str, str]):
    """Names of fields as Lisp has them, made once."""

    def __missing__(self, name: str) -> str:
        keyword = self[name] = f":{name.replace('_', '-')}"
        return keyword


_KEYWORDS = _Keywords()


def as_plist(request: dict[str, Any]) -> bytes:
    """Write a request as one property list, in standard syntax and without read-time evaluation."""
    # One string that grows: every evaluation comes through here, and a list to join costs twice as much.
    text = "("
    for name, value in request.items():
        if type(value) is str:
            if '"' in value or "\\" in value:
                value = _escaped(value)  # noqa: PLW2901 - written nowhere but here
            text += f'{_KEYWORDS[name]} "{value}" '
        elif value is not None:
            text += f"{_KEYWORDS[name]} {_datum(value)} "
    return f"{text})".encode()


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _datum(value: Any) -> str:
    if value is None or value is False:
        return "NIL"
    if value is True:
        return "T"
    if isinstance(value, str):
        return f'"{_escaped(value)}"'
    if isinstance(value, list | tuple):
        return f"({' '.join(map(_datum, value))})"
    return repr(value)
