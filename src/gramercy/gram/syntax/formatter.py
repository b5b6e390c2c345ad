"""Lay gram text out in one canonical way, keeping every comment and the author's spelling of every token.

Text that `reader` has accepted is cut into tokens, from which `layout` makes lines. Records in nodes stay
dense, as in `(::Text {paramName:"name"})`; records in brackets are airy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gramercy.errors import GramError, GramSyntaxError
from gramercy.gram.syntax.layout import Break, Group, Note, Piece, Text, fit
from gramercy.gram.syntax.literals import NUMBER, total
from gramercy.gram.syntax.reader import read
from gramercy.gram.syntax.scanner import match_symbol
from gramercy.gram.syntax.values import ValueScanner

if TYPE_CHECKING:
    from collections.abc import Callable

_TAILS: Final = frozenset({"-", "=", "~", "<-", "<=", "<~"})
_COLONS: Final = frozenset({":", "::"})
_NAMELESS: Final = _COLONS | {"{", "|", "]", ")"}


def format_gram(text: str) -> str:
    """Return the text in canonical layout; raise GramSyntaxError when it is not gram."""
    document = read(text)
    try:
        tokens = tokenize(text)
        words = _words(tokens)
        formatted = fit(_Builder(tokens).document())
        is_same = words == _words(tokenize(formatted)) and read(formatted) == document
    except RecursionError:
        raise GramSyntaxError(
            "no stack is left to format this", text, 0, hint="call from a less deep place"
        ) from None
    if not is_same:
        raise GramError("formatting would change the meaning of this text; please report it as a defect")
    return formatted


def _words(tokens: list[Token]) -> tuple[list[str], list[str]]:
    return [token.text for token in tokens], comments_of(tokens)


class _Builder:
    """Walks over the tokens of a readable text and says where lines may break.

    A comment behind a token is put down when the next one comes, so that the group the token closes does not
    hold it and need not break for it.
    """

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.index = 0
        self.behind: str | None = None

    @property
    def next(self) -> str:
        return self.tokens[self.index].text

    def take(self, out: list[Piece]) -> None:
        self.lead(out)
        token = self.tokens[self.index]
        out.append(Text(token.text, token.blank))
        self.behind = token.behind
        self.index += 1

    def lead(self, out: list[Piece]) -> None:
        self.trail(out)
        token = self.tokens[self.index]
        if token.above:
            out.extend(Note(comment.text, own_line=True, blank=comment.blank) for comment in token.above)
            token.above = ()

    def trail(self, out: list[Piece]) -> None:
        if self.behind:
            out.append(Note(self.behind))
            self.behind = None

    def space(self, out: list[Piece], gap: str = " ") -> None:
        self.lead(out)
        out.append(Text(gap))

    def line(self, out: list[Piece], flat: str = " ", *, keep_blank: bool = True) -> None:
        self.trail(out)
        out.append(Break(flat, keep_blank and self.tokens[self.index].blank_first))

    def document(self) -> list[Piece]:
        out: list[Piece] = []
        while self.next:
            if self.index:
                self.line(out)
            self.lead(out)
            if self.next == "{":
                self.record(out, " ")
            else:
                self.top(out)
        if self.index and self.tokens[self.index].above:
            self.line(out)
        self.lead(out)
        return out

    def top(self, out: list[Piece]) -> None:
        group: list[Piece] = []
        while self.next in {"@", "@@"}:
            if self.next == "@@":
                self.take(group)
                self.names(group)
            else:
                self.annotation(group)
            self.line(group, keep_blank=False)
        self.element(group)
        out.append(Group(tuple(group)))

    def annotation(self, out: list[Piece]) -> None:
        for _sign_name_paren in range(3):
            self.take(out)
        self.value(out, "")
        self.take(out)

    def element(self, out: list[Piece]) -> None:
        self.lead(out)
        if self.next == "[":
            self.bracket(out)
        elif self.next == "(":
            self.path(out)
        else:
            self.take(out)

    def bracket(self, out: list[Piece]) -> None:
        group: list[Piece] = []
        self.take(group)
        named = self.subject(group, " ")
        if self.next == "|":
            if named:
                self.space(group)
            self.take(group)
            self.items(group, self.element, " ")
        self.take(group)
        out.append(Group(tuple(group)))

    def path(self, out: list[Piece]) -> None:
        group: list[Piece] = []
        steps: list[Piece] = []
        self.node(group)
        while self.next in _TAILS:
            self.line(steps, "", keep_blank=False)
            self.arrow(steps)
            self.node(steps)
        out.append(Group((*group, Group(tuple(steps), indented=True))))

    def node(self, out: list[Piece]) -> None:
        self.take(out)
        self.subject(out, "")
        self.take(out)

    def arrow(self, out: list[Piece]) -> None:
        self.take(out)
        if self.next == "[":
            self.node(out)
        self.take(out)

    def subject(self, out: list[Piece], gap: str) -> bool:
        named = self.names(out)
        if self.next != "{":
            return named
        if named:
            self.space(out)
        self.lead(out)
        self.record(out, gap)
        return True

    def names(self, out: list[Piece]) -> bool:
        start = self.index
        if self.next not in _NAMELESS:
            self.take(out)
        while self.next in _COLONS:
            self.take(out)
            self.take(out)
        return self.index > start

    def record(self, out: list[Piece], gap: str) -> None:
        self.container(out, lambda inner: self.pair(inner, gap))

    def pair(self, out: list[Piece], gap: str) -> None:
        self.take(out)
        self.take(out)
        self.space(out, gap)
        self.value(out, gap)

    def value(self, out: list[Piece], gap: str) -> None:
        self.lead(out)
        if self.next == "{":
            self.record(out, gap)
        elif self.next == "[":
            self.container(out, lambda inner: self.value(inner, gap))
        else:
            self.scalar(out)

    def scalar(self, out: list[Piece]) -> None:
        lower = self.next != "..."
        self.take(out)
        if not lower or self.next.startswith("`"):
            self.take(out)
        elif self.next in {"..", "..."}:
            self.take(out)
            if self.tokens[self.index - 1].text == "..":
                self.take(out)

    def container(self, out: list[Piece], item: Callable[[list[Piece]], None]) -> None:
        group: list[Piece] = []
        self.take(group)
        self.items(group, item, "")
        self.take(group)
        out.append(Group(tuple(group)))

    def items(self, out: list[Piece], item: Callable[[list[Piece]], None], flat: str) -> None:
        """Put down items with commas up to the closing sign, and the comments before that."""
        inner: list[Piece] = []
        if self.next not in {"]", "}"}:
            self.line(inner, flat, keep_blank=False)
            item(inner)
            while self.next == ",":
                self.take(inner)
                self.line(inner)
                item(inner)
        self.lead(inner)
        if inner:
            out.append(Group(tuple(inner), indented=True))
            out.append(Break(""))


_SIGN: Final = re.compile(r"@@?|::?|\.{2,3}|<[-=~]|[-=~]>?|[()\[\]{}|,]")
_match_gap: Final = total(r"[\t-\r ]*+")
_match_line: Final = total(r"[^\n]*+")


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment on a line of its own, and whether an empty line stands above it."""

    text: str
    blank: bool = False


@dataclass(slots=True)
class Token:
    """A piece of text with the comments on the lines above it and the one behind it; the last token is empty.

    `blank` tells whether an empty line stands right above the token itself.
    """

    text: str = ""
    above: tuple[Comment, ...] = ()
    behind: str | None = None
    blank: bool = False

    @property
    def blank_first(self) -> bool:
        """Whether an empty line stands above the token and its comments."""
        return self.above[0].blank if self.above else self.blank


def tokenize(text: str) -> list[Token]:
    """Cut a text into tokens; comments around a comma are moved behind it."""
    scanner = ValueScanner(text, strict=False)
    tokens: list[Token] = []
    commas: list[int] = []
    while not tokens or tokens[-1].text:
        token = Token()
        _collect_comments(scanner, tokens, token)
        start = scanner.pos
        _pass_token(scanner)
        token.text = text[start : scanner.pos]
        if token.text == ",":
            commas.append(len(tokens))
        tokens.append(token)
    for index in commas:
        _move_comments(*tokens[index - 1 : index + 2])
    return tokens


def comments_of(tokens: list[Token]) -> list[str]:
    """List the texts of all comments, in order."""
    return [text for token in tokens for text in (*(c.text for c in token.above), token.behind) if text]


def _collect_comments(scanner: ValueScanner, tokens: list[Token], token: Token) -> None:
    text = scanner.text
    start = scanner.pos
    end = _match_gap(text, start).end()
    above: list[Comment] = []
    while text.startswith("//", end):
        newlines = text.count("\n", start, end)
        comment = _match_line(text, end)
        if tokens and not newlines:
            tokens[-1].behind = comment[0].rstrip()
        else:
            above.append(Comment(comment[0].rstrip(), newlines > 1))
        start = comment.end()
        end = _match_gap(text, start).end()
    scanner.pos = end
    token.above = tuple(above)
    token.blank = end - start > 1 and text.count("\n", start, end) > 1


def _pass_token(scanner: ValueScanner) -> None:
    text, pos = scanner.text, scanner.pos
    match = match_symbol(text, pos) or NUMBER.match(text, pos) or _SIGN.match(text, pos)
    if match:
        scanner.pos = match.end()
    elif text.startswith("```", pos):
        scanner.fenced()
    elif pos < len(text):
        scanner.quoted()


def _move_comments(before: Token, comma: Token, after: Token) -> None:
    moved = comma.above
    if comma.behind and (before.behind or moved):
        moved = (*moved, Comment(comma.behind))
        comma.behind = None
    if before.behind:
        comma.behind, before.behind = before.behind, None
    comma.above = ()
    after.above = moved + after.above
