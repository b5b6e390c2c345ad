"""Make a text that matches a simple regular expression: literals, classes, groups, alternatives, counts.

Look-around, back-references and the like are not understood; the caller checks the text with a real matcher.
"""

from __future__ import annotations

import re

# Longer patterns are not simple ones, and longer texts (from counts such as {1000}) teach a model nothing.
LONGEST_PATTERN = 200
LONGEST_TEXT = 1_000
_ESCAPES = {"d": "0", "D": "a", "w": "a", "W": "-", "s": " ", "S": "a", "t": "\t", "n": "\n", "r": "\r"}
_EDGES = frozenset("bBAZz")
_COUNT = re.compile(r"\{(\d+)(?:,\d*)?\}")
# Tried in this order where a class says only what is not allowed.
_CANDIDATES = "aA0_- .x@"


def text_matching(pattern: str) -> str:
    """Return a text that should match the pattern, or raise ValueError when it is not understood."""
    if len(pattern) > LONGEST_PATTERN:
        raise ValueError("the pattern is too long")
    reader = _Reader(pattern)
    text = reader.alternatives()
    if reader.place != len(pattern):
        raise ValueError("the pattern is not understood")
    return text


class _Reader:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.place = 0

    def peek(self) -> str:
        return self.pattern[self.place : self.place + 1]

    def take(self) -> str:
        taken = self.peek()
        self.place += 1
        return taken

    def alternatives(self) -> str:
        first = self.sequence()
        while self.peek() == "|":
            self.take()
            self.sequence()
        return first

    def sequence(self) -> str:
        text = ""
        while self.peek() not in {"", "|", ")"}:
            part, times = self.part(), self.repeats()
            if len(text) + len(part) * times > LONGEST_TEXT:
                raise ValueError("the text would be too long")
            text += part * times
        return text

    def part(self) -> str:
        character = self.take()
        if character == "(":
            return self.group()
        if character == "[":
            return self.choice()
        if character == "\\":
            return self.escape()
        return {"^": "", "$": "", ".": "a"}.get(character, character)

    def group(self) -> str:
        if self.peek() == "?":
            self.take()
            if self.take() != ":":
                raise ValueError("look-around is not understood")
        text = self.alternatives()
        if self.take() != ")":
            raise ValueError("a group is not closed")
        return text

    def escape(self) -> str:
        character = self.take()
        if character in _EDGES:
            return ""
        if character in _ESCAPES:
            return _ESCAPES[character]
        if not character or character.isalnum():
            raise ValueError("the escape is not understood")
        return character

    def choice(self) -> str:
        """Read a class such as [a-z_]; return its first character, or one that it does not exclude."""
        negated = self.peek() == "^" and bool(self.take())
        ranges: list[tuple[str, str]] = []
        while not ranges or self.peek() != "]":
            low = self.escape() if self.take() == "\\" else self.pattern[self.place - 1 : self.place]
            if not low:
                raise ValueError("a class is not closed")
            high = low
            if self.peek() == "-" and self.pattern[self.place + 1 : self.place + 2] not in {"]", ""}:
                self.take()
                high = self.take()
            ranges.append((low, high))
        self.take()
        if not negated:
            return ranges[0][0]
        allowed = [c for c in _CANDIDATES if not any(low <= c <= high for low, high in ranges)]
        if not allowed:
            raise ValueError("the class excludes too much")
        return allowed[0]

    def repeats(self) -> int:
        """Read a count and return the least it asks for."""
        least = 1
        count = _COUNT.match(self.pattern, self.place)
        if count:
            self.place = count.end()
            least = int(count[1])
        elif self.peek() in {"*", "?", "+"}:
            least = 1 if self.take() == "+" else 0
        else:
            return least
        if self.peek() == "?":
            self.take()
        return least
