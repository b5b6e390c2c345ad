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
    if len(request) == _MEMBERS and "code" in request and request.get("then_fork") is not None:
        return _evaluation(**request)
    words = [f"{_KEYWORDS[name]} {_datum(value)}" for name, value in request.items() if value is not None]
    return f"({' '.join(words)})".encode()


# Every request has a number and an operation. With these two it is an evaluation, as nearly all are, and is
# written in a third of the time.
_MEMBERS = 4


def _evaluation(op: str, code: str, then_fork: str, id: int) -> bytes:  # noqa: A002 - so it is called
    return f'(:op "{op}" :code "{_escaped(code)}" :then-fork "{then_fork}" :id {id})'.encode()


def _escaped(text: str) -> str:
    if '"' in text or "\\" in text:
        return text.replace("\\", "\\\\").replace('"', '\\"')
    return text


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
