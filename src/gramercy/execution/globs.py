"""Match argument values against globs without prefix surprises.

`?` is one character, `*` any number within one path segment, `**` any number across segments, `**/` any
number of whole leading directories; the whole value must match, upper and lower case are different.
The matcher walks the value once with a set of places in the glob, so no value can make it slow.
"""

from __future__ import annotations

import json
import posixpath
import re
from functools import lru_cache
from typing import Any

# Nobody writes rules for longer values; such a value is never surely, and always possibly, a match.
LONGEST_VALUE = 10_000


def text_of(value: Any) -> str:
    """Return the text of a value that a glob is compared with: text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=repr)


def surely_matches(glob: str, value: Any) -> bool:
    """Tell whether the value matches beyond doubt; used to allow.

    A wildcard never covers a `..` step nor a line break, since both lead out of what the author had in mind.
    """
    text = text_of(value)
    if text == glob:
        return True
    if len(text) > LONGEST_VALUE or "\n" in text or ".." in re.split(r"[/\\]", text):
        return False
    return _walk(_tokens(glob), text)


def possibly_matches(glob: str, value: Any) -> bool:
    """Tell whether the value could match in any spelling of the same path; used to ask and to deny."""
    text = text_of(value)
    if len(text) > LONGEST_VALUE:
        return True
    spellings = {text, text.replace("\\", "/")}
    if text:
        spellings |= {posixpath.normpath(spelling) for spelling in spellings}
    return any(_walk(_tokens(glob), spelling) for spelling in spellings)


# `**/` is two places: at the start of a directory, where it may end, and inside one, where it may not.
BETWEEN, INSIDE = "**/", "**/…"


@lru_cache(maxsize=1024)
def _tokens(glob: str) -> tuple[str, ...]:
    tokens: list[str] = []
    for token in re.findall(r"\*\*/|\*\*|.", glob, flags=re.DOTALL):
        tokens += (BETWEEN, INSIDE) if token == BETWEEN else (token,)
    return tuple(tokens)


def _walk(tokens: tuple[str, ...], text: str) -> bool:
    places = _with_skips({0}, tokens)
    for character in text:
        stepped: set[int] = set()
        for place in places:
            stepped.update(_step(tokens, place, character))
        places = _with_skips(stepped, tokens)
        if not places:
            return False
    return len(tokens) in places


def _with_skips(places: set[int], tokens: tuple[str, ...]) -> set[int]:
    """Add the places reached by letting wildcards match nothing."""
    reached = set(places)
    for place in places:
        here = place
        while here < len(tokens) and tokens[here] in {"*", "**", BETWEEN}:
            here += 2 if tokens[here] == BETWEEN else 1
            reached.add(here)
    return reached


def _step(tokens: tuple[str, ...], place: int, character: str) -> tuple[int, ...]:
    """Return the places in the glob after one more character."""
    token = tokens[place] if place < len(tokens) else None
    if token == "**":
        return (place,)
    if token == BETWEEN:
        return (place,) if character == "/" else (place + 1,)
    if token == INSIDE:
        return (place - 1,) if character == "/" else (place,)
    if token == "*":
        return () if character == "/" else (place,)
    if token == "?":
        return () if character == "/" else (place + 1,)
    return (place + 1,) if token == character else ()
