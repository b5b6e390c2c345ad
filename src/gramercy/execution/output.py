"""Bring results into the form a model gets: text, bounded, with what was cut announced."""

from __future__ import annotations

from typing import Any

from gramercy.errors import GramercyError
from gramercy.tools.formatting import format_tool_result
from gramercy.tools.values import is_unicode

LONGEST_ERROR = 4_000


def text_for_model(value: Any, limit: int) -> str:
    """Format a value and cut it to a limit of characters, saying so at the end."""
    text = value if type(value) is str else format_tool_result(value)
    if len(text) > limit:
        text = f"{text[:limit]}\n… [output cut: {limit:,} of {len(text):,} characters shown]"
    return text if text.isascii() else clean(text)


def clean(text: str) -> str:
    """Replace lone surrogates, which no wire can carry."""
    return text if is_unicode(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def error_text(error: BaseException) -> str:
    """Describe an exception from a stranger in one bounded text, without its traceback."""
    name = type(error).__name__
    try:
        message = str(error).strip()
    except Exception:  # noqa: BLE001 - a broken printer must not lose the failure
        message = ""
    if len(message) > LONGEST_ERROR:
        message = message[:LONGEST_ERROR] + "…"
    if message and isinstance(error, GramercyError):
        return clean(message)  # our own texts say enough
    return clean(f"{message} ({name})" if message else name)
