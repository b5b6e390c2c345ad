"""The words that find messages: split here and not by a database, so that all stores find the same.

Letters and digits, in lower case, without accents.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

# How much of a message is indexed; PostgreSQL takes 1 MB of words in a document.
LONGEST_SEARCHED = 200_000
# PostgreSQL takes 2 KB for a word; a person does not type words longer than this.
LONGEST_WORD = 100
# Characters of context on each side of the first word that was found.
EXCERPT = 70
# A part of a query: a phrase in quotes, or the text between spaces.
_PARTS = re.compile(r'"([^"]*)"|(\S+)')
_WORDS = re.compile(r"[^\W_]+")
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")


class Phrase(msgspec.Struct, frozen=True):
    """Words that follow each other; with `is_open` a prefix of the last word is enough."""

    words: tuple[str, ...]
    is_open: bool = False

    def is_in(self, text: Sequence[str]) -> bool:
        """Tell whether a text has these words."""
        size = len(self.words)
        return any(self._fits(text[place : place + size]) for place in range(len(text) - size + 1))

    def _fits(self, part: Sequence[str]) -> bool:
        *first, last = zip(self.words, part, strict=True)
        ends = last[1].startswith(last[0]) if self.is_open else last[0] == last[1]
        return ends and all(wanted == word for wanted, word in first)


def words_of(text: str) -> list[str]:
    """Split a text into the words that it is indexed by."""
    plain = unicodedata.normalize("NFKD", text[:LONGEST_SEARCHED])
    bare = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return [word[:LONGEST_WORD] for word in _WORDS.findall(bare.casefold())]


def phrases_of(question: str) -> list[Phrase]:
    """Parse a query of a person: words, phrases in quotes, and prefixes of words with a star."""
    found = []
    for quoted, plain in _PARTS.findall(question):
        words = tuple(words_of(quoted or plain))
        if words:
            found.append(Phrase(words, is_open=plain.endswith("*")))
    return found


def writable(text: str) -> str:
    """Return a text that every store takes; a NUL and half of a surrogate pair are replaced by a mark."""
    return _UNWRITABLE.sub("\ufffd", text)


def excerpt(text: str, phrases: Sequence[Phrase]) -> str:
    """Return the text around the first word that was looked for, on one line."""
    pattern = "|".join(re.escape(phrase.words[0]) for phrase in phrases)
    found = re.search(pattern, text, re.IGNORECASE)
    place = found.start() if found else 0
    start, end = max(0, place - EXCERPT), place + EXCERPT
    line = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{line}{'…' if end < len(text) else ''}"
