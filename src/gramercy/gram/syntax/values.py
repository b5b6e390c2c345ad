"""Reads the values of a gram text: scalars, arrays, maps and records.

Knows nothing of patterns; `reader` builds them on top.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from gramercy.gram.syntax.literals import (
    MAX_NUMBER_LENGTH,
    NUMBER,
    match_fence_content,
    number_extension,
    number_of,
    total,
    trim_fence,
)
from gramercy.gram.syntax.scanner import (
    BLANKS,
    Scanner,
    hint_for_item,
    hint_for_key,
    hint_for_value,
    match_blanks,
    match_symbol,
    shorten,
)
from gramercy.gram.syntax.tree import Number, Property, Range, Record, Symbol, Tagged, Value

_OPEN_FENCE: Final = re.compile(
    r"```[\t\v\f\r ]*+(?P<tag>[a-zA-Z_][0-9a-zA-Z_.\-@]*+)?[\t\v\f\r ]*+(?://[^\n]*+)?\n"
)
_LEADING_COMMENT: Final = re.compile(r"[\t-\r ]*+//[^\n]*+")
# Nearly all properties start like this; one match instead of four makes the reader a good deal faster.
_match_usual_key: Final = re.compile(r"([a-zA-Z_][0-9a-zA-Z_.\-@]*+)(::?+)[\t-\r ]*+(?!/)").match
_match_comma: Final = total(rf"{BLANKS}(?:(,){BLANKS})?+")
_NESTED: Final = {"[": "an array", "{": "a map"}
_NESTED_HINT: Final = "keep deep data in a tagged string: json`…`"
_WORDS: Final = {"true": True, "false": False}


class ValueScanner(Scanner):
    """A scanner that knows values."""

    __slots__ = ()

    def record(self) -> Record:
        """Read the record whose brace stands at the position."""
        start = self.pos
        self.pos += 1
        self.skip()
        properties: list[Property] = []
        if self.peek() != "}":
            properties.append(self._property())
            while self._another("}", start):
                properties.append(self._property())
        self.pos += 1
        return Record(tuple(properties), (start, self.pos))

    def _property(self) -> Property:
        start = self.pos
        usual = _match_usual_key(self.text, start)
        if usual:
            key = key_text = usual[1]
            separator: Literal[":", "::"] = ":" if usual[2] == ":" else "::"
            self.pos = usual.end()
        else:
            key = self.key()
            key_text = self.text[start : self.pos]
            separator = self._separator(key)
        value_start = self.pos
        value = self.value()
        end = self.pos
        return Property(
            key, value, (start, end), key_text, separator, self.text[value_start:end], (value_start, end)
        )

    def key(self) -> str:
        """Read a property name."""
        key = self.name()
        if key is not None:
            return key
        if self.peek() == '"':
            return self.quoted()
        raise self.expected("a property name", hint=hint_for_key(self.peek()))

    def _separator(self, key: str) -> Literal[":", "::"]:
        self.skip()
        text, pos = self.text, self.pos
        if text[pos : pos + 1] != ":":
            raise self.expected(f"':' after the property name {shorten(key)!r}", hint="write {key: value}")
        separator: Literal[":", "::"] = "::" if text.startswith("::", pos) else ":"
        self.pos = match_blanks(text, pos + len(separator)).end()
        return separator

    def _another(self, close: str, start: int) -> bool:
        # True after a comma, with the position on the next item; False with the position on the closing sign.
        comma = _match_comma(self.text, self.pos)
        self.pos = comma.end()
        if comma[1]:
            return True
        char = self.peek()
        if char == close:
            return False
        opened = f"the {self.text[start]!r} at {self.place(start)} is still open"
        raise self.expected(f"',' or {close!r} ({opened})", hint=hint_for_item(char))

    def value(self) -> Value:
        """Read the value at the position."""
        char = self.peek()
        if char in {'"', "'"}:
            return self.quoted()
        match = match_symbol(self.text, self.pos)
        if match:
            self.pos = match.end()
            return self._word(match[0])
        if char == "`":
            return self.fenced() if self.text.startswith("```", self.pos) else self.quoted()
        if char == "[":
            return self._array()
        if char == "{":
            return self._map()
        return self._numeric()

    def _word(self, word: str) -> Value:
        truth = _WORDS.get(word)
        if truth is not None:
            return truth
        after = match_blanks(self.text, self.pos).end()
        if self.text[after : after + 1] != "`":
            return Symbol(word)
        self.pos = after
        return Tagged(word, self.quoted())

    def fenced(self) -> str | Tagged:
        """Read the fenced string whose three backticks stand at the position."""
        start = self.pos
        opened = _OPEN_FENCE.match(self.text, start)
        if not opened:
            raise self.error(
                "a ``` fence needs a newline after it, with at most a tag between",
                start,
                hint="for text on one line use single quotes, double quotes or one backtick",
            )
        begin = self._fence_begin(opened.end())
        content = match_fence_content(self.text, begin)
        if not self.text.startswith("```", content.end()):
            raise self.error(
                "unterminated fence: no closing ```",
                start,
                hint="put ``` on a line of its own after the text",
            )
        self.pos = content.end() + 3
        body = trim_fence(content[0])
        return Tagged(opened["tag"], body) if opened["tag"] else body

    def _fence_begin(self, begin: int) -> int:
        # A first line that starts with // and holds the closing fence is a comment in the strict language.
        while comment := _LEADING_COMMENT.match(self.text, begin):
            if match_fence_content(self.text, begin).end() >= comment.end():
                break
            begin = comment.end()
        return begin

    def _array(self) -> list[Value]:
        start = self.pos
        self.enter(start)
        self.pos += 1
        self.skip()
        if self.peek() == "]":
            self.extend("an empty array", start, self.pos + 1, "leave the property out")
            items = []
        else:
            items = [self._item("an array")]
            while self._another("]", start):
                items.append(self._item("an array"))
        self.pos += 1
        self.depth -= 1
        return items

    def _map(self) -> dict[str, Value]:
        start = self.pos
        self.enter(start)
        self.pos += 1
        self.skip()
        entries: dict[str, Value] = {}
        if self.peek() != "}":
            self._entry(entries)
            while self._another("}", start):
                self._entry(entries)
        self.pos += 1
        self.depth -= 1
        return entries

    def _entry(self, entries: dict[str, Value]) -> None:
        start = self.pos
        key = self.key()
        if self._separator(key) == "::":
            self.extend("'::' in a map", start, self.pos, "write ':'")
        entries[key] = self._item("a map")

    def _item(self, holder: str) -> Value:
        start = self.pos
        kind = _NESTED.get(self.peek())
        if kind and self.strict:
            self.extend(f"{kind} inside {holder}", start, start + 1, _NESTED_HINT)
        value = self.value()
        if kind:
            self.extend(f"{kind} inside {holder}", start, self.pos, _NESTED_HINT)
        return value

    def _numeric(self) -> Value:
        if self.text.startswith("...", self.pos):
            self.pos += 3
            return Range(None, self._bound("'...'"))
        lower = self._number()
        if lower is None:
            raise self.expected("a value", hint=hint_for_value(self.peek()))
        after = match_blanks(self.text, self.pos).end()
        if not self.text.startswith("..", after):
            return lower
        if self.text.startswith("...", after):
            self.pos = after + 3
            return Range(lower, None)
        self.pos = after + 2
        return Range(lower, self._bound("'..'"))

    def _bound(self, after: str) -> Number:
        self.skip()
        bound = self._number()
        if bound is None:
            raise self.expected(f"a number after {after}", hint="ranges are 1..10, 1... and ...10")
        return bound

    def _number(self) -> Number | None:
        start = self.pos
        match = NUMBER.match(self.text, start)
        if not match:
            return None
        if match.end() - start > MAX_NUMBER_LENGTH:
            raise self.error(
                f"a number of more than {MAX_NUMBER_LENGTH} characters", start, hint="write it as a string"
            )
        self.pos = match.end()
        extension = number_extension(match)
        if extension:
            self.extend(extension, start, self.pos)
        try:
            return number_of(match)
        except OverflowError:
            raise self.error(
                f"the number {shorten(match[0])} is too large", start, hint="write it as a string"
            ) from None
