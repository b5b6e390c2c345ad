"""Cuts a readable gram text into tokens, each with the comments that belong to it.

Only for text that `reader` has accepted: the tokens carry no structure and every sign is taken on trust.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gramercy.gram.syntax.numbers import NUMBER
from gramercy.gram.syntax.scanner import match_symbol
from gramercy.gram.syntax.strings import total
from gramercy.gram.syntax.values import ValueScanner

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
