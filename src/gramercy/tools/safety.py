"""The three safety levels and their order."""

from __future__ import annotations

from enum import StrEnum

from gramercy.errors import InvalidToolError
from gramercy.gram.suggestion import did_you_mean


class Safety(StrEnum):
    """How much a tool may change; compares by danger: SAFE < CAUTIOUS < DANGEROUS."""

    SAFE = "safe"
    CAUTIOUS = "cautious"
    DANGEROUS = "dangerous"

    # Use the hash of the string, which is computed in C. An enum hashes its name in Python, which costs as
    # much as the look-up.
    __hash__ = str.__hash__

    @property
    def rank(self) -> int:
        """The position in the order, 0 for the harmless end."""
        return _RANKS[self.value]

    @classmethod
    def parse(cls, word: object) -> Safety:
        """Accept a level or one of the seeds' words (`safe`, `:safe`), or say which words are valid."""
        if isinstance(word, Safety):
            return word
        if isinstance(word, str):
            plain = word.removeprefix(":").lower()
            if plain in _RANKS:
                return cls(plain)
            hint = did_you_mean(plain, _RANKS, before="; ")
            raise InvalidToolError(
                f"unknown safety level {word!r:.60}: expected safe, cautious or dangerous{hint}"
            )
        raise InvalidToolError(
            f"a safety level is a word, not {type(word).__name__}: expected safe, cautious or dangerous"
        )

    # StrEnum would compare alphabetically, where "cautious" < "dangerous" < "safe".
    def __lt__(self, other: str) -> bool:
        return self.rank < Safety.parse(other).rank if isinstance(other, str) else NotImplemented

    def __le__(self, other: str) -> bool:
        return self.rank <= Safety.parse(other).rank if isinstance(other, str) else NotImplemented

    def __gt__(self, other: str) -> bool:
        return self.rank > Safety.parse(other).rank if isinstance(other, str) else NotImplemented

    def __ge__(self, other: str) -> bool:
        return self.rank >= Safety.parse(other).rank if isinstance(other, str) else NotImplemented


_RANKS = {"safe": 0, "cautious": 1, "dangerous": 2}
