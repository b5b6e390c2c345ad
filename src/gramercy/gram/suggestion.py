"""Find the names that a misspelt one resembles. Only errors pay for it: it may be slow, but is bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Longer words are hostile or generated; comparing them would take time that a typing error never needs.
LONGEST_WORD = 80
# About the default of difflib: one letter wrong in three, one syllable in a longer word. At 0.6 two long
# words that have only their vowels in common are close.
CLOSE_ENOUGH = 0.62
# Shorter fragments are inside everything.
SHORTEST_PART = 3


def _plain(word: str) -> str:
    """Reduce spelling habits (camelCase, hyphens, case) to one form."""
    return "".join(c for c in word.casefold() if c.isalnum())


def suggest(word: str, candidates: Iterable[str], *, most: int = 1) -> list[str]:
    """Return up to `most` candidates that resemble the word, best first."""
    from difflib import get_close_matches  # errors alone pay for it: every start would

    wanted = _plain(word[:LONGEST_WORD])
    spellings: dict[str, str] = {}
    for candidate in candidates:
        if len(candidate) <= LONGEST_WORD:
            spellings.setdefault(_plain(candidate), candidate)
    if wanted in spellings and most == 1:
        return [spellings[wanted]]
    matches = get_close_matches(wanted, spellings, n=most, cutoff=CLOSE_ENOUGH)
    if not matches and len(wanted) >= SHORTEST_PART:
        parts = (s for s in spellings if wanted in s or (len(s) >= SHORTEST_PART and s in wanted))
        matches = sorted(parts, key=len)[:most]
    return [spellings[match] for match in matches]


def did_you_mean(word: object, candidates: Iterable[str], otherwise: str = "", *, before: str = "") -> str:
    """Ask whether the candidate was meant that resembles a word; where none does, return `otherwise`."""
    close = suggest(word, candidates) if isinstance(word, str) else []
    return f"{before}did you mean {close[0]!r}?" if close else otherwise
