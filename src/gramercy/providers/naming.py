"""The names, ids and arguments that the services' formats allow, and the conversion of ours."""

from __future__ import annotations

import re
from hashlib import sha256
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import ProviderError
from gramercy.providers.base import CallPart, ModelCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gramercy.providers.base import OfferedTool

# Both OpenAI and Anthropic accept these.
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
# A model that makes this many calls is looping, or is not a model.
MOST_CALLS = 1000
# Characters of arguments that are parsed to see whether they are complete.
LARGEST_LOOKED_AT = 16 * 1024
_OTHER = re.compile(r"[^A-Za-z0-9_-]")


def told_name(name: str) -> str:
    """Return the name of a tool for a service; a name that has to be changed gets a mark, to stay unique."""
    if _PLAIN.match(name):
        return name
    mark = sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{_OTHER.sub('_', name)[:55]}_{mark}"


def told_id(call_id: str) -> str:
    """Return the id of a call, perhaps from another service, in a form that every service accepts."""
    return told_name(call_id) if call_id else "call"


def told_arguments(text: str) -> dict[str, Any]:
    """Return the arguments of an earlier call; text that is not a JSON object is wrapped."""
    found = _object_in(text)
    return {"malformed": text} if found is None else found


def told_arguments_text(text: str) -> str:
    """Return the arguments of an earlier call, as the model wrote them if that is JSON.

    Servers that cache their input recognise only their own exact text.
    """
    if _object_in(text) is not None:
        return text
    return msgspec.json.encode(told_value({"malformed": text})).decode()


def _object_in(text: str) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def told_value(value: Any) -> Any:
    """Return a value with invalid Unicode replaced, as in file names and output of programs."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {told_value(key): told_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [told_value(item) for item in value]
    return value


class CallPieces:
    """Joins calls that come in pieces."""

    def __init__(self, tools: Iterable[OfferedTool]) -> None:
        self._names = {told_name(tool.name): tool.name for tool in tools}
        self._calls: list[_Pieces] = []

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, place: object, call_id: str, name: str, arguments: str) -> None:
        """Add a piece of the call at a place; some services give no place, or the same one to every call."""
        if not (isinstance(call_id, str) and isinstance(name, str) and isinstance(arguments, str)):
            raise TypeError("the parts of a call are text")
        piece = _Pieces(place, call_id, name, arguments)
        known = next((each for each in reversed(self._calls) if each.goes_on(piece)), None)
        if known is None:
            if len(self._calls) == MOST_CALLS:
                raise ProviderError(
                    f"the model makes more than {MOST_CALLS:,} calls in one answer: it was given up"
                )
            self._calls.append(piece)
        else:
            known.join(piece)

    def whole(self) -> Iterator[CallPart]:
        """Yield the calls, in order; each has an id of its own."""
        seen: set[str] = set()
        for each in self._calls:
            made = each.id if each.id and each.id not in seen else f"call_{token_hex(8)}"
            seen.add(made)
            text = each.text or "{}"
            yield CallPart(ModelCall(made, self._names.get(each.name, each.name), text))


class _Pieces:
    """A call that may still be incomplete."""

    def __init__(self, place: object, call_id: str, name: str, arguments: str) -> None:
        self.place = place
        self.id = call_id
        self.name = name
        self._arguments = [arguments]
        self._size = len(arguments)

    @property
    def text(self) -> str:
        """The arguments so far."""
        return "".join(self._arguments)

    def join(self, piece: _Pieces) -> None:
        """Add a piece."""
        self.id, self.name = self.id or piece.id, self.name or piece.name
        self._arguments += piece._arguments
        self._size += piece._size

    def goes_on(self, piece: _Pieces) -> bool:
        """Whether a piece belongs to this call."""
        if piece.place != self.place:
            return False
        if piece.place is None and piece.id and piece.id != self.id:
            return False
        if not piece.name or not self.name:
            return True
        if piece.id or self.id:
            # Some services give the id only to the first piece, and the name to all.
            return not piece.id or not self.id or piece.id == self.id
        # Without ids, only another name, or arguments after complete ones, separate one call from the next.
        return piece.name == self.name and not (piece._size and self._is_whole)

    @property
    def _is_whole(self) -> bool:
        # Checked again with each piece: for calls without ids only small ones are worth it.
        return self._size <= LARGEST_LOOKED_AT and _object_in(self.text) is not None
