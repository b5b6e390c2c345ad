"""Read gram text into a tree: `read` is the one door, strict for the portable language, wider by default.

`gram_sources` finds the gram texts of a file, which in Markdown are the fenced blocks marked `gram`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from gramercy.errors import GramSyntaxError
from gramercy.gram.syntax.scanner import (
    BLANKS,
    hint_for_bracket,
    hint_for_element,
    hint_for_label,
    hint_for_subject,
    hint_for_top,
    shorten,
)
from gramercy.gram.syntax.tree import (
    Annotated,
    Arrow,
    Bracket,
    Document,
    Edge,
    Element,
    Label,
    Node,
    Path,
    Pattern,
    Property,
    Reference,
    Subject,
)
from gramercy.gram.syntax.values import ValueScanner

if TYPE_CHECKING:
    from collections.abc import Iterator

_match_tail: Final = re.compile(rf"{BLANKS}(<?[-=~]){BLANKS}").match


def read(text: str, *, strict: bool = False) -> Document:
    """Read a whole gram text; raise GramSyntaxError at the first place that is not gram.

    Strict is the portable language alone. The default also takes its extensions (nested arrays and maps,
    empty arrays, exponents, ...) and lists each use in `Document.extensions`. Slashes that start a
    quoted string are a comment to the strict language, swallowing its end; by default they are text.
    """
    if not isinstance(text, str):
        raise GramSyntaxError(
            f"expected text, received {type(text).__name__}",
            "",
            0,
            hint="decode bytes first: data.decode('utf-8')",
        )
    reader = _Reader(text, strict=strict)
    try:
        return reader.document()
    except RecursionError:
        raise reader.error(
            "no stack is left to read this", hint="call the reader from a less deep place"
        ) from None


class _Reader(ValueScanner):
    """A scanner that knows patterns."""

    __slots__ = ()

    def document(self) -> Document:
        self.skip()
        record = None
        if self.peek() == "{":
            record = self.record()
            self.skip()
        patterns: list[Pattern] = []
        length = len(self.text)
        while self.pos < length:
            patterns.append(self._top())
            self.skip()
        extensions = tuple(sorted(self.extensions, key=lambda extension: extension.span))
        return Document(record, tuple(patterns), self.text, extensions)

    def _top(self) -> Pattern:
        char = self.peek()
        if char == "[":
            return self._bracket()
        if char == "(":
            return self._path()
        if char == "@":
            return self._annotated()
        raise self.expected("a pattern: '(', '[' or '@'", hint=hint_for_top(char))

    def _annotated(self) -> Annotated:
        start = self.pos
        header = self._header() if self.text.startswith("@@", start) else None
        annotations: list[Property] = []
        while self.peek() == "@":
            annotations.append(self._annotation())
            self.skip()
        char = self.peek()
        if char not in {"(", "["}:
            raise self.expected("the annotated pattern: '(' or '['")
        pattern = self._bracket() if char == "[" else self._path()
        return Annotated(header, tuple(annotations), pattern, (start, pattern.span[1]))

    def _header(self) -> Subject:
        self.pos += 2
        self.skip()
        start = self.pos
        header = self._subject(with_record=False)
        if header.span == (start, start):
            raise self.expected("an identity or a label after '@@'")
        self.skip()
        return header

    def _annotation(self) -> Property:
        start = self.pos
        if self.text.startswith("@@", start):
            raise self.error(
                "'@@' must come first and only once",
                hint="write @@id:Label before the @key(value) annotations",
            )
        self.pos += 1
        self.skip()
        key_start = self.pos
        key = None if self.peek() == "`" else self.name()
        if key is None:
            raise self.expected("an annotation name after '@'", hint="write @key(value)")
        key_text = self.text[key_start : self.pos]
        self._open_annotation(key)
        value_start = self.pos
        value = self.value()
        value_end = self.pos
        self.skip()
        self._take(")", f"')' to close the annotation @{shorten(key)}")
        value_text = self.text[value_start:value_end]
        return Property(key, value, (start, self.pos), key_text, ":", value_text, (value_start, value_end))

    def _open_annotation(self, key: str) -> None:
        self.skip()
        self._take("(", f"'(' after @{shorten(key)}")
        self.skip()

    def _take(self, sign: str, what: str) -> None:
        if self.peek() != sign:
            raise self.expected(what)
        self.pos += 1

    def _bracket(self) -> Bracket:
        start = self.pos
        self.enter(start)
        self.pos += 1
        self.skip()
        subject = self._subject()
        self.skip()
        elements: list[Element] = []
        char = self.peek()
        if char == "|":
            elements = self._elements(start)
        elif char != "]":
            what = f"'|' or ']' for the bracket at {self.place(start)}"
            raise self.expected(what, hint=hint_for_bracket(char))
        self.pos += 1
        self.depth -= 1
        return Bracket(subject, tuple(elements), (start, self.pos))

    def _elements(self, start: int) -> list[Element]:
        self.pos += 1
        self.skip()
        elements = [self._element()]
        while self._another("]", start):
            elements.append(self._element())
        return elements

    def _element(self) -> Element:
        char = self.peek()
        if char == "(":
            return self._path()
        if char == "[":
            return self._bracket()
        start = self.pos
        identity = self.identity()
        if identity is None:
            raise self.expected(
                "an element: a pattern, a path or the name of one", hint=hint_for_element(char)
            )
        return Reference(identity, self.text[start : self.pos], (start, self.pos))

    def _path(self) -> Node | Path:
        first = self._node()
        nodes, edges = [first], []
        while edge := self._edge():
            edges.append(edge)
            self.skip()
            if self.peek() != "(":
                raise self.expected("a node '(' after the arrow")
            nodes.append(self._node())
        if not edges:
            return first
        return Path(tuple(nodes), tuple(edges), (first.span[0], nodes[-1].span[1]))

    def _edge(self) -> Edge | None:
        tail = _match_tail(self.text, self.pos)
        if not tail:
            return None
        self.pos = tail.end()
        subject = self._edge_subject() if self.peek() == "[" else None
        head = self._head(tail[1])
        return Edge(Arrow(tail[1], head), subject, (tail.start(1), self.pos))

    def _edge_subject(self) -> Subject:
        self.pos += 1
        self.skip()
        subject = self._subject()
        self.skip()
        self._take("]", "']' to close the arrow's subject")
        self.skip()
        return subject

    def _head(self, tail: str) -> str:
        sign = tail[-1]
        if self.peek() != sign:
            raise self.expected(
                f"{sign!r} or '{sign}>' to finish the arrow begun with {tail!r}",
                hint=f"arrows are {sign}{sign}> {sign}{sign} <{sign}{sign} and {sign}[subject]{sign}>",
            )
        head = sign + ">" if self.text.startswith(">", self.pos + 1) else sign
        self.pos += len(head)
        return head

    def _node(self) -> Node:
        start = self.pos
        self.pos += 1
        self.skip()
        subject = self._subject()
        self.skip()
        char = self.peek()
        if char != ")":
            raise self.expected(f"')' to close the node at {self.place(start)}", hint=hint_for_subject(char))
        self.pos += 1
        return Node(subject, (start, self.pos))

    def _subject(self, *, with_record: bool = True) -> Subject:
        # The caller has skipped blanks; afterwards the position is right behind the last part.
        start = end = self.pos
        identity = self.identity()
        identity_text = None
        if identity is not None:
            end = self.pos
            identity_text = self.text[start:end]
            self.skip()
        labels: list[Label] = []
        while self.peek() == ":":
            labels.append(self._label())
            end = self.pos
            self.skip()
        record = None
        if with_record and self.peek() == "{":
            record = self.record()
            end = self.pos
        self.pos = end
        return Subject(identity, tuple(labels), record, identity_text, (start, end))

    def _label(self) -> Label:
        start = self.pos
        separator: Literal[":", "::"] = "::" if self.text.startswith("::", start) else ":"
        self.pos += len(separator)
        self.skip()
        name_start = self.pos
        name = self.name()
        if name is None:
            raise self.expected(f"a label after {separator!r}", hint=hint_for_label(self.peek()))
        return Label(name, separator, self.text[name_start : self.pos], (start, self.pos))


MARKDOWN_SUFFIXES: Final = (".md", ".markdown")
# A backtick fence takes no backtick after its signs; otherwise it is a code span in running text.
_FENCE: Final = re.compile(r"\s*(?P<signs>`{3,}(?=[^`]*\Z)|~{3,})\s*(?P<language>[^\s{`]*)")


@dataclass(frozen=True, slots=True)
class GramSource:
    """A gram text and the 0-based line at which it starts in its file."""

    text: str
    first_line: int = 0


def gram_sources(text: str, path: str) -> list[GramSource]:
    """Return the gram texts of a file: all of it, or the marked blocks when it is Markdown."""
    if not path.lower().endswith(MARKDOWN_SUFFIXES):
        return [GramSource(text)]
    return list(_fenced_sources(text.split("\n")))


def _fenced_sources(lines: list[str]) -> Iterator[GramSource]:
    signs, language, start = "", "", 0
    for number, line in enumerate([*lines, None]):
        fence = _FENCE.match(line) if line is not None else None
        if not signs:
            if fence:
                signs, language, start = fence["signs"], fence["language"], number + 1
        elif line is None or (fence and _closes(line, signs)):
            if language.lower() == "gram":
                end = "" if line is None else "\n"
                yield GramSource("\n".join(lines[start:number]) + end, start)
            signs = ""


def _closes(line: str, signs: str) -> bool:
    found = line.strip()
    return len(found) >= len(signs) and set(found) == {signs[0]}
