"""The spelling of gram strings: quotes, escapes and fences, in both directions.

Knows single tokens only: where a string may stand is the business of `scanner` and `values`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias, cast

from gramercy.errors import GramError

Matcher: TypeAlias = Callable[[str, int], re.Match[str]]


def total(pattern: str) -> Matcher:
    """Compile a pattern that matches everywhere, if only the empty string; every one of ours is linear."""
    return cast("Matcher", re.compile(pattern).match)


# Content up to the closing quote, a newline or a backslash that starts no escape.
match_content: Final = {
    quote: total(rf"(?:[^{quote}\\\n]++|\\[{quote}bfnrt/\\])*+") for quote in ('"', "'", "`")
}
# The same with the escapes that only the default mode knows: other quotes and \uXXXX.
match_wide_content: Final = {
    quote: total(rf"(?:[^{quote}\\\n]++|\\(?:u[0-9a-fA-F]{{4}}|['\"`bfnrt/\\]))*+") for quote in match_content
}
match_fence_content: Final = total(r"(?:[^`]++|`{1,2}+(?=[^`]))*+")
# The strict language takes slashes at the start of a string for a comment, which swallows the closing quote.
COMMENT_START: Final = re.compile(r"[\t\v\f\r ]*+//")
SURROGATE: Final = re.compile("[\ud800-\udfff]")

_ESCAPE: Final = re.compile(
    r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\(u[0-9a-fA-F]{4}|.)"
)
_MEANT: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WRITTEN: Final = str.maketrans(
    {char: "\\" + letter for letter, char in _MEANT.items()} | {"\\": r"\\", "\0": r"\u0000"}
)


def unescape(content: str) -> str:
    """Return the text that a string's content stands for; an escaped surrogate pair makes one character."""
    return _ESCAPE.sub(_unescaped, content)


def _unescaped(match: re.Match[str]) -> str:
    high, low, single = match.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + (int(low, 16) - 0xDC00))
    return chr(int(single[1:], 16)) if len(single) > 1 else _MEANT.get(single, single)


def quote_text(text: str, quote: str = '"') -> str:
    """Write text as a quoted string that every gram parser reads back; only NUL needs an extension."""
    refuse_surrogates(text)
    content = text.translate(_WRITTEN).replace(quote, "\\" + quote)
    slashes = COMMENT_START.match(content)
    if slashes:
        content = content[: slashes.end() - 2] + "\\" + content[slashes.end() - 2 :]
    return quote + content + quote


def refuse_surrogates(text: str) -> None:
    """Raise GramError when text holds half of a surrogate pair, which no file could store."""
    found = SURROGATE.search(text)
    if found:
        raise GramError(
            f"text has a lone surrogate U+{ord(found[0]):04X} at index {found.start()}; remove it"
        )


def trim_fence(body: str) -> str:
    """Return a fenced body without its last newline and the blanks before the closing fence."""
    newline = body.rfind("\n")
    if body[newline + 1 :].strip(" \t"):
        return body
    return body[: max(newline, 0)].removesuffix("\r")
