"""Input and output of the executor: calls, results, and the text that a model gets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from traceback import extract_tb
from typing import Any, final

import msgspec

from gramercy.errors import ExecutionError, Fault, GramercyError, InvalidArgumentsError, JsonTextError
from gramercy.gram.json_text import read_json
from gramercy.text import cut
from gramercy.tools.formatting import format_tool_result
from gramercy.tools.values import WHOLE, is_unicode, join_path

# Some 1,000 tokens: room for a compiler's message, not for a whole log.
LONGEST_ERROR = 4_000
# How many frames of a failure are examined, from the innermost, and the characters of each place.
MOST_PLACES, LONGEST_PLACE = 20, 300
_OURS = str(Path(__file__).parents[1]) + "/"
_decode = msgspec.json.Decoder().decode
_PLAIN = frozenset({str, int, bool})


class ToolCall(msgspec.Struct, frozen=True):
    """One request to run a tool; arguments may also be JSON text, as models send them."""

    id: str
    name: str
    arguments: Any = {}


@final  # the executor asks `type(…) is ToolResult`: isinstance costs more on a struct
class ToolResult(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a call. Content is the text for the model, also when the call failed.

    One is made for every call. Leaving it out of the garbage collector's list pays for its validation.
    """

    id: str
    success: bool
    content: str = ""
    error: str | None = None
    metadata: dict[str, Any] = {}

    def __post_init__(self) -> None:
        """Refuse a success with an error, and a failure without one; the error is its text for the model."""
        error = self.error
        if error is None and self.success:
            return
        if error is None or self.success:
            found = "success and an error" if self.success else "neither success nor an error"
            raise ExecutionError(f"the result of call {self.id!r:.60} has {found}: give exactly one of them")
        if not self.content:
            msgspec.structs.force_setattr(self, "content", error)


def read_arguments(arguments: Any) -> Any:
    """Return arguments as a dictionary; text is parsed as strict JSON, so that no mistake is hidden."""
    if isinstance(arguments, str | bytes):
        quick = read_flat_json(arguments) if type(arguments) is str else None
        return parse_arguments(arguments) if quick is None else quick
    return dict(arguments) if isinstance(arguments, Mapping) else arguments


def read_flat_json(text: str) -> dict[str, Any] | None:
    """Parse a flat and plain JSON object quickly; None means that the strict parser must be used.

    The fast parser accepts a repeated name. In a flat object every colon outside of strings belongs to one
    name. If there are as many names as colons, no name is repeated.
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
    """Parse JSON; malformed text, duplicate names, NaN and endless digits raise InvalidArgumentsError."""
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
    """Replace lone surrogates, which cannot be encoded."""
    return text if is_unicode(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def tool_error(error: BaseException) -> str:
    """Return the text for an error of a handler, as the contract wants it: the message of the error."""
    message = _message(error)
    # A key or a number alone says nothing without the type of the error.
    is_bare = isinstance(error, KeyError) or not any(map(str.isalpha, message))
    return f"Tool error: {error_text(error) if is_bare else message}"


def places_of(error: BaseException, function: Any) -> list[str]:
    """Return the places of an exception: first in the file of the tool's function, then from the inside.

    Return no places for an error that our code or the tool itself raised on purpose, and none within our own
    code.
    """
    if function is None or isinstance(error, GramercyError):
        return []
    own = getattr(getattr(function, "__code__", None), "co_filename", "")
    frames = [
        frame
        for frame in reversed(extract_tb(error.__traceback__, limit=-MOST_PLACES))
        if not frame.filename.startswith(_OURS)
    ]
    if frames and frames[0].filename == own and (frames[0].line or "").startswith("raise "):
        # The tool itself has raised it to say what is wrong.
        return []
    first = next((frame for frame in frames if frame.filename == own), None)
    ordered = frames if first is None else [first, *(frame for frame in frames if frame is not first)]
    return [
        clean(f"{_short(frame.filename)}:{frame.lineno} in {frame.name}")[:LONGEST_PLACE] for frame in ordered
    ]


def _short(file: str) -> str:
    """Return a short file name: from its installed package, or relative to the working directory."""
    here = f"{Path.cwd()}/"
    installed = file.rpartition("/site-packages/")[2]
    return installed if installed != file else file.removeprefix(here)


def error_text(error: BaseException) -> str:
    """Describe an exception of any code in one bounded text, without its traceback."""
    name, message = type(error).__name__, _message(error)
    if message and isinstance(error, GramercyError):
        return message  # our own texts say enough
    return clean(f"{message} ({name})" if message else name)


def _message(error: BaseException) -> str:
    """Return the message of an exception, bounded; empty if it has none."""
    try:
        message = str(error).strip()
    except Exception:  # noqa: BLE001 - a broken printer must not lose the failure
        return ""
    return clean(cut(message, LONGEST_ERROR))
