"""What goes into the executor and what comes out of it: calls, results, and the text that a model gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import msgspec

from gramercy.errors import Fault, GramercyError, InvalidArgumentsError, JsonTextError
from gramercy.gram.json_text import read_json
from gramercy.tools.formatting import format_tool_result
from gramercy.tools.values import WHOLE, is_unicode, join_path

# Some 1,000 tokens: room for a compiler's message, not for a whole log.
LONGEST_ERROR = 4_000
_decode = msgspec.json.Decoder().decode
_PLAIN = frozenset({str, int, bool})


class ToolCall(msgspec.Struct, frozen=True):
    """One request to run a tool; arguments may also be JSON text, as models send them."""

    id: str
    name: str
    arguments: Any = {}


@final  # the executor asks `type(…) is ToolResult`: isinstance costs more on a struct
class ToolResult(msgspec.Struct, frozen=True):
    """What became of a call. Content is the text for the model, also when the call failed."""

    id: str
    success: bool
    content: str
    error: str | None = None
    metadata: dict[str, Any] = {}


def read_arguments(arguments: Any) -> Any:
    """Return arguments as a dictionary; text is read as JSON, without the leniencies that hide mistakes."""
    if isinstance(arguments, str | bytes):
        quick = read_flat_json(arguments) if type(arguments) is str else None
        return parse_arguments(arguments) if quick is None else quick
    return dict(arguments) if isinstance(arguments, Mapping) else arguments


def read_flat_json(text: str) -> dict[str, Any] | None:
    """Return the object in a JSON text quickly if it is flat and plain; None says nothing.

    The fast reader lets a repeated name pass. In a flat object every colon outside of strings belongs to one
    name, so as many names as colons means that none is there twice.
    """
    try:
        found = _decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return None
    if type(found) is not dict or text.count(":") != len(found):
        return None
    for value in found.values():
        if type(value) not in _PLAIN:
            return None
    return found


def parse_arguments(text: str | bytes) -> Any:
    """Read JSON text; malformed text, duplicate names, NaN and endless digits raise InvalidArgumentsError."""
    try:
        return read_json(text or "{}", what="a JSON object", overflow=True)
    except JsonTextError as error:
        path = WHOLE if error.name is None else join_path("", error.name)
        raise InvalidArgumentsError([Fault(path, error.expected, error.found)]) from None


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
    """Describe an exception of any code in one bounded text, without its traceback."""
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
