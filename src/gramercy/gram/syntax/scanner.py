"""Read single tokens out of a gram text: blanks, names and quoted strings, and make every syntax error.

Knows no structure: `values` and `reader` say what may follow what. The hints at the end guess what to try
from the character that stands where something else should; it is empty at the end of the text.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from gramercy.errors import GramSyntaxError, TextPosition
from gramercy.gram.syntax.literals import (
    COMMENT_START,
    INTEGER,
    SURROGATE,
    match_content,
    match_wide_content,
    total,
    unescape,
)
from gramercy.gram.syntax.tree import Extension
from gramercy.text import cut

# Keeps recursion far below Python's own limit, however deep the caller already is.
MAX_DEPTH: Final = 64

SYMBOL: Final = re.compile(r"[a-zA-Z_][0-9a-zA-Z_.\-@]*+")
_BEFORE_COMMENT: Final = frozenset("/ \t\v\f\r")
_UNREADABLE: Final = re.compile("[\0\ud800-\udfff]")

BLANKS: Final = r"(?:[\t-\r ]++|//[^\n]*+)*+"
match_blanks: Final = total(BLANKS)
match_symbol: Final = SYMBOL.match


class Scanner:
    """A position in a text, with the means to move it over tokens and to fail at it."""

    __slots__ = ("depth", "extensions", "pos", "strict", "text")

    def __init__(self, text: str, *, strict: bool) -> None:
        self.text = text
        self.strict = strict
        self.pos = 1 if text.startswith("\ufeff") else 0
        self.depth = 0
        self.extensions: list[Extension] = []
        self._refuse_unreadable()

    def skip(self) -> None:
        """Move over blanks and comments."""
        self.pos = match_blanks(self.text, self.pos).end()

    def peek(self) -> str:
        """Return the next character, or an empty string at the end."""
        return self.text[self.pos : self.pos + 1]

    def name(self) -> str | None:
        """Read a symbol or a backticked name, or return None and stay."""
        match = match_symbol(self.text, self.pos)
        if match:
            self.pos = match.end()
            return match[0]
        return self.quoted() if self.peek() == "`" else None

    def identity(self) -> str | None:
        """Read a symbol, a backticked name or an integer, or return None and stay."""
        name = self.name()
        if name is None and (match := INTEGER.match(self.text, self.pos)):
            self.pos = match.end()
            return match[0]
        return name

    def quoted(self) -> str:
        """Read a string in the quotes that stand at the position."""
        text, start = self.text, self.pos
        quote = text[start]
        if text[start + 1 : start + 2] in _BEFORE_COMMENT and self._comment_swallows(quote):
            return ""
        content = match_wide_content[quote](text, start + 1)
        end = content.end()
        if text[end : end + 1] != quote:
            end = self._late_quote(start, end)
        self.pos = end + 1
        raw = content[0]
        return self._unescaped(raw, quote, start) if "\\" in raw else raw

    def _comment_swallows(self, quote: str) -> bool:
        if not COMMENT_START.match(self.text, self.pos + 1):
            return False
        if not self.strict:
            self.extend("a string that starts with //", self.pos, self.pos + 3, "write \\// instead")
            return False
        end = match_blanks(self.text, self.pos + 1).end()
        if self.text[end : end + 1] != quote:
            raise self.error(
                "a string that starts with // is read as a comment",
                self.pos,
                hint=f"write {quote}\\//… instead",
            )
        self.pos = end + 1
        return True

    def _late_quote(self, start: int, end: int) -> int:
        # The strict language skips blanks and comments between the last line of a string and its quote.
        text = self.text
        quote = text[start]
        if text[end : end + 1] == "\\":
            raise self.error(
                f"invalid escape {text[end : end + 2]!r} in a string",
                end,
                hint=f"allowed are \\\\ \\{quote} \\/ \\b \\f \\n \\r \\t; write \\\\ for a backslash",
            )
        late = match_blanks(text, end).end()
        if text[late : late + 1] == quote:
            return late
        raise self.error(
            f"unterminated string: no closing {quote} on this line",
            start,
            hint="a string ends on its own line; write \\n for a newline, or use a ``` fence",
        )

    def _unescaped(self, raw: str, quote: str, start: int) -> str:
        plain = match_content[quote](raw, 0).end()
        if plain != len(raw):
            at = start + 1 + plain
            end = at + (6 if raw[plain + 1] == "u" else 2)
            self.extend(f"the escape {self.text[at:end]}", at, end, "write the character itself")
        value = unescape(raw)
        if SURROGATE.search(value):
            raise self.error(
                "a \\u escape makes half of a surrogate pair", start, hint="write both halves: \\uD83D\\uDE00"
            )
        return value

    def enter(self, start: int) -> None:
        """Count one more level of nesting; the caller takes it back when the level closes."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(
                f"nested deeper than {MAX_DEPTH} levels",
                start,
                hint="give inner patterns an identity and refer to them, or flatten the value",
            )

    def extend(self, what: str, start: int, end: int, hint: str | None = None) -> None:
        """Note an extension of the strict language, or refuse it when reading strictly."""
        if self.strict:
            raise self.error(f"{what} is not strict gram", start, hint=hint)
        self.extensions.append(
            Extension(f"{what} is not portable" + (f": {hint}" if hint else ""), (start, end))
        )

    def expected(self, what: str, *, hint: str | None = None) -> GramSyntaxError:
        """Make the error that tells what should be at the position and what is there."""
        char = self.peek()
        if hint is None or not char.isascii():
            hint = hint_for_sign(char) or hint
        return self.error(f"expected {what}, found {self.found()}", hint=hint)

    def error(self, reason: str, offset: int | None = None, *, hint: str | None = None) -> GramSyntaxError:
        """Make a syntax error at an offset, or at the position."""
        return GramSyntaxError(reason, self.text, self.pos if offset is None else offset, hint=hint)

    def place(self, offset: int) -> str:
        """Write an offset as line and column, for an error."""
        position = TextPosition.at(self.text, offset)
        return f"{position.line}:{position.column}"

    def found(self) -> str:
        """Describe what stands at the position, for an error."""
        char = self.peek()
        if not char:
            return "the end of the text"
        word = match_symbol(self.text, self.pos)
        if word:
            return repr(shorten(word[0]))
        if char.isprintable() and char.isascii():
            return repr(char)
        return f"{unicodedata.name(char, 'a nameless character')} (U+{ord(char):04X})"

    def _refuse_unreadable(self) -> None:
        bad = None if self.text.isascii() and "\0" not in self.text else _UNREADABLE.search(self.text)
        if bad is None:
            return
        if bad[0] == "\0":
            raise self.error(
                "the text has a NUL character", bad.start(), hint="is this a text file in UTF-8?"
            )
        raise self.error(
            f"the text has a lone surrogate U+{ord(bad[0]):04X}",
            bad.start(),
            hint="decode the file strictly as UTF-8",
        )


def shorten(word: str, limit: int = 40) -> str:
    """Cut a word that would drown an error message."""
    return cut(word, limit)


def hint_for_sign(char: str) -> str | None:
    """Guess from the character alone."""
    if not char:
        return None
    if char.isspace() or unicodedata.category(char) == "Cf":
        return "only plain spaces, tabs and newlines may separate tokens"
    if char.isalpha() and not char.isascii():
        return "put names with other letters than a to z in backticks: `naïve`"
    if char in {"<", ">"}:
        return "arrows are --> <-- -- <--> and the same with = or ~"
    return "a comment starts with //" if char in {"#", "/", ";"} else None


def hint_for_top(char: str) -> str | None:
    """Guess what stands between patterns."""
    if char == ",":
        return "patterns at the top are not separated by commas"
    if char == "{":
        return "a record without a pattern may only be the very first thing"
    if char in {")", "]", "}"}:
        return "this closes nothing that is open"
    return "write (name) for a node, or [name | element] for a pattern" if char.isalnum() else None


def hint_for_bracket(char: str) -> str | None:
    """Guess what follows the subject of a bracket."""
    if char in {"(", "["}:
        return "separate the subject from its elements with '|': [name | element]"
    return "the first element follows '|', the others ','" if char == "," else hint_for_subject(char)


def hint_for_subject(char: str) -> str | None:
    """Guess what stands in or behind an identity with labels."""
    if char == "`" or char.isalnum():
        return "put names with blanks in backticks: `Maybe Text`"
    if char in {'"', "'"}:
        return "names are bare words or in backticks; strings belong into a {key: value} record"
    return None


def hint_for_element(char: str) -> str | None:
    """Guess what stands in place of an element."""
    if char in {"]", ","}:
        return "write the missing element, or remove the sign before this one"
    return "annotations stand only before patterns at the top" if char == "@" else hint_for_subject(char)


def hint_for_label(char: str) -> str | None:
    """Guess what stands in place of a label."""
    return "labels are bare words or in backticks: :Text, :`[Text]`" if char else None


def hint_for_key(char: str) -> str | None:
    """Guess what stands in place of a property name."""
    if char in {",", "}"}:
        return "remove the extra comma"
    return "put the name in double quotes" if char == "'" or char.isdigit() else None


def hint_for_item(char: str) -> str | None:
    """Guess what follows an item of a list."""
    return "separate items with commas" if char.isalnum() or char in {'"', "'", "`", "{", "[", "("} else None


def hint_for_value(char: str) -> str | None:
    """Guess what stands in place of a value."""
    if char in {",", "]", "}", ")"}:
        return "write the missing value, or remove the sign before this one"
    return "a number starts with a digit: 5, -5, 0.5" if char in {".", "+", "-"} else None
