"""Pieces that a person adds to a conversation: code, files, errors, sent to the model once.

It is a sliding window: the oldest piece that is not pinned is evicted when a new one does not fit. Pieces are
sent with the next message, and again only after a summary has replaced that message.
"""

from __future__ import annotations

import re
from collections import deque
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import msgspec

from gramercy.agents.limits import about_tokens
from gramercy.errors import InvalidMessageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ContextKind: TypeAlias = Literal["code", "text", "file", "repl-history", "error", "custom"]
KINDS: tuple[str, ...] = get_args(ContextKind)
# As in Agent-Q; with more pieces a person no longer knows what is there.
DEFAULT_SIZE = 50
LARGEST_SIZE = 1_000
# Prose is shown as it is; in all other kinds, Markdown signs have no meaning.
PROSE = frozenset({"text", "custom"})
# The names of languages for highlighters, by file extension.
LANGUAGES = {
    ".py": "python",
    ".lisp": "lisp",
    ".lsp": "lisp",
    ".cl": "lisp",
    ".asd": "lisp",
    ".js": "javascript",
    ".ts": "typescript",
    ".md": "markdown",
    ".json": "json",
    ".toml": "toml",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".sh": "sh",
    ".html": "html",
    ".css": "css",
    ".sql": "sql",
    ".c": "c",
    ".h": "c",
    ".rs": "rust",
    ".go": "go",
    ".gram": "gram",
}


class ContextItem(msgspec.Struct, frozen=True):
    """One piece: its source, and its first line, if it has lines."""

    id: str
    kind: ContextKind
    text: str
    source: str = ""
    line: int = 0
    is_pinned: bool = False

    @property
    def tokens(self) -> int:
        """About how many tokens it takes."""
        return about_tokens(len(self.text))

    @property
    def title(self) -> str:
        """A description in one line."""
        lines = f", {_lines(self.line, self.text)}" if self.line else ""
        return f"{self.kind} {self.source}".strip() + lines


class ContextWindow:
    """The added pieces of one conversation, oldest first.

    `size` is the maximum number of pieces, `tokens` about how many tokens they may take together; None means
    no limit.
    """

    def __init__(self, size: int = DEFAULT_SIZE, tokens: int | None = None) -> None:
        if type(size) is not int or not 1 <= size <= LARGEST_SIZE:
            raise InvalidMessageError(f"a context has 1 to {LARGEST_SIZE:,} items, not {size!r:.50}")
        if tokens is not None and (type(tokens) is not int or tokens < 1):
            raise InvalidMessageError(f"the budget of a context is a number of tokens, not {tokens!r:.50}")
        self.size = size
        self.budget = tokens
        # The latest pieces that were evicted for newer ones.
        self.dropped: deque[ContextItem] = deque(maxlen=LARGEST_SIZE)
        self._items: dict[str, ContextItem] = {}
        self._told: set[str] = set()
        self._count = 0

    def __iter__(self) -> Iterator[ContextItem]:
        return iter(list(self._items.values()))

    def __len__(self) -> int:
        return len(self._items)

    @property
    def tokens(self) -> int:
        """About how many tokens all pieces take."""
        return sum(item.tokens for item in self)

    def add(
        self,
        kind: ContextKind,
        text: str,
        *,
        source: str = "",
        line: int = 0,
        is_pinned: bool = False,
    ) -> ContextItem:
        """Add a piece to the conversation; the oldest pieces that are not pinned are evicted for it."""
        if kind not in KINDS:
            raise InvalidMessageError(f"{kind!r:.50} is no kind of context: there are {', '.join(KINDS)}")
        if not text.strip():
            raise InvalidMessageError("there is nothing in it: a piece of context needs a text")
        item = ContextItem(f"ctx-{self._count + 1}", kind, text, source, line, is_pinned)
        going = self._going(item)
        self._count += 1
        for each in going:
            self._remove(each.id)
            self.dropped.append(each)
        self._items[item.id] = item
        return item

    def _going(self, new: ContextItem) -> list[ContextItem]:
        """Return the pieces to evict for a new one, or say why there is no room."""
        count, tokens, going = len(self) + 1, self.tokens + new.tokens, []
        loose = (item for item in self if not item.is_pinned)
        while count > self.size or (self.budget is not None and tokens > self.budget):
            oldest = next(loose, None)
            if oldest is None:
                raise InvalidMessageError(self._no_room(new))
            going.append(oldest)
            count, tokens = count - 1, tokens - oldest.tokens
        return going

    def _no_room(self, new: ContextItem) -> str:
        if self.budget is not None and new.tokens > self.budget:
            return f"it takes about {new.tokens:,} tokens, and the context has a budget of {self.budget:,}"
        return "the context is full of what is pinned: unpin or remove something"

    def pin(self, name: str, *, is_pinned: bool = True) -> ContextItem:
        """Pin a piece until it is removed, or unpin it."""
        item = msgspec.structs.replace(self.get(name), is_pinned=is_pinned)
        self._items[name] = item
        return item

    def get(self, name: str) -> ContextItem:
        """Return a piece by its id."""
        found = self._items.get(name)
        if found is None:
            there = ", ".join(self._items) or "none"
            raise InvalidMessageError(f"there is no {name!r:.50} in the context: there are {there}")
        return found

    def remove(self, name: str) -> ContextItem:
        """Remove a piece, also a pinned one."""
        found = self.get(name)
        self._remove(name)
        return found

    def _remove(self, name: str) -> None:
        del self._items[name]
        self._told.discard(name)

    def clear(self, kind: ContextKind | None = None) -> int:
        """Remove everything that is not pinned, or all of a kind; return how many."""
        going = [item.id for item in self if (item.kind == kind if kind else not item.is_pinned)]
        for name in going:
            self._remove(name)
        return len(going)

    def items(self, kind: ContextKind | None = None) -> list[ContextItem]:
        """Return the pieces, or those of a kind, oldest first."""
        return [item for item in self if kind is None or item.kind == kind]

    def with_message(self, text: str) -> str:
        """Return a message together with the pieces not sent yet, and mark these as sent."""
        new = [item for item in self if item.id not in self._told]
        self._told.update(item.id for item in new)
        return f"{text}\n\n{rendered(new)}" if new else text

    def tell_again(self) -> None:
        """Send all pieces again with the next message: the messages that had them are gone."""
        self._told.clear()


def rendered(items: Iterable[ContextItem]) -> str:
    """Render pieces as Markdown sections, each with its source and lines."""
    return "\n\n".join(["## Context", *(section(f"{each.id}: {each.title}", each) for each in items)])


def section(title: str, item: ContextItem) -> str:
    """Render one piece under a title."""
    if item.kind in PROSE:
        return f"### {title}\n\n{item.text}"
    return f"### {title}\n\n{fenced(item.text, LANGUAGES.get(PurePath(item.source).suffix, ''))}"


def fenced(text: str, language: str = "") -> str:
    """Render a text as a block of code; its fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}"


def _lines(first: int, text: str) -> str:
    last = first + len(text.splitlines()) - 1
    return f"line {first}" if last <= first else f"lines {first}-{last}"
