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

_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
# Paths end at 4,096 characters on Linux. A longer value is never surely, and always possibly, a match.
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
    if len(text) > LONGEST_VALUE or _CONTROL.search(text) or ".." in re.split(r"[/\\]", text):
        return False
    return _walk(_places(glob), text)


def possibly_matches(glob: str, value: Any) -> bool:
    """Tell whether the value could match in any spelling of the same path; used to ask and to deny.

    Of a list or an object it is enough that one part matches.
    """
    if isinstance(value, list | dict):
        parts = value.values() if isinstance(value, dict) else value
        if any(possibly_matches(glob, part) for part in parts):
            return True
    text = text_of(value)
    if len(text) > LONGEST_VALUE:
        return True
    return any(_walk(_places(glob), spelling) for spelling in _spellings(text))


def _spellings(text: str) -> set[str]:
    """Return the ways to write the same path that a rule's author may have had in mind."""
    found = {text, text.replace("\\", "/")}
    for spelling in tuple(found):
        # normpath keeps two leading slashes, which POSIX leaves to the system and Linux reads as one.
        plain = posixpath.normpath(spelling) if spelling else spelling
        found |= {plain, re.sub(r"^//+", "/", plain)}
    return found


# `**/` is two places: at the start of a directory, where it may end, and inside one, where it may not.
BETWEEN, INSIDE = "**/", "**/…"


@lru_cache(maxsize=1024)
def _places(glob: str) -> tuple[str, ...]:
    """Split a glob into wildcards and characters."""
    places: list[str] = []
    for part in re.findall(r"\*\*/|\*\*|.", glob, flags=re.DOTALL):
        places += (BETWEEN, INSIDE) if part == BETWEEN else (part,)
    return tuple(places)


def _walk(glob: tuple[str, ...], text: str) -> bool:
    reached = _with_skips({0}, glob)
    for character in text:
        stepped: set[int] = set()
        for place in reached:
            stepped.update(_step(glob, place, character))
        reached = _with_skips(stepped, glob)
        if not reached:
            return False
    return len(glob) in reached


def _with_skips(places: set[int], glob: tuple[str, ...]) -> set[int]:
    """Add the places reached by letting wildcards match nothing."""
    reached = set(places)
    for place in places:
        here = place
        while here < len(glob) and glob[here] in {"*", "**", BETWEEN}:
            here += 2 if glob[here] == BETWEEN else 1
            reached.add(here)
    return reached


def _step(glob: tuple[str, ...], place: int, character: str) -> tuple[int, ...]:
    """Return the places in the glob after one more character."""
    part = glob[place] if place < len(glob) else None
    if part == "**":
        return (place,)
    if part == BETWEEN:
        return (place,) if character == "/" else (place + 1,)
    if part == INSIDE:
        return (place - 1,) if character == "/" else (place,)
    if part == "*":
        return () if character == "/" else (place,)
    if part == "?":
        return () if character == "/" else (place + 1,)
    return (place + 1,) if part == character else ()
