"""Definitions of another server's tools: distrusted, identified by digests, compared with accepted ones.

Everything is shown to a person so that no character can hide.
"""

from __future__ import annotations

import difflib
import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from gramercy.errors import ForeignError
from gramercy.text import LINES, is_hidden, reveal, reveal_line

# As the protocol recommends for the names of tools.
LONGEST_NAME = 128
# A person must be able to read an accepted definition, and a model gets all of it with every request.
LARGEST_DEFINITION = 64 * 1024
# Far below Python's recursion limit, since schemas are walked and compiled recursively.
DEEPEST = 60
# The length of a fault in one line of a review.
LONGEST_REASON = 300
# The parts that a person accepts; other parts of a listing are neither shown to a model nor stored.
PARTS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
# The places in a schema that are texts for a reader, and mean nothing to a validator.
_PROSE = frozenset({"description", "title", "$comment"})
# Categories whose characters have no names of their own.
_NAMELESS = {
    "Cc": "control character",
    "Co": "private use character",
    "Cs": "surrogate",
    "Cn": "unassigned character",
}
# A text full of hidden characters is described by its most frequent ones, on one screen.
MOST_FINDINGS = 8


@dataclass(frozen=True, slots=True)
class Definition:
    """One tool of another server: everything about it that a person accepts or refuses."""

    name: str
    parts: Mapping[str, Any]
    digest: str = field(default="")

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", digest_of(self.parts))

    @property
    def description(self) -> str:
        """The server's own description of the tool; hidden characters are written out."""
        said = self.parts.get("description") or self.parts.get("title") or ""
        return reveal(said).strip() or f"The tool {reveal(self.name)} of another server, which says no more."

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of the arguments, with hidden characters in its prose written out."""
        return _revealed(self.parts["inputSchema"])  # type: ignore[no-any-return]

    @property
    def hidden(self) -> list[str]:
        """The hidden characters in the texts of the definition, names and values included."""
        return hidden_in("".join(_texts(self.parts)))


def digest_of(parts: Mapping[str, Any]) -> str:
    """Return the digest of a definition; the order of names in objects does not matter."""
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


def read_definition(raw: object) -> Definition:
    """Parse one entry of a listing, or raise ForeignError saying what is wrong with it."""
    if not isinstance(raw, dict):
        raise ForeignError("an entry of the list of tools is no object")
    name = raw.get("name")
    if not isinstance(name, str) or not name or len(name) > LONGEST_NAME:
        raise ForeignError(f"a tool has no usable name: expected text of 1 to {LONGEST_NAME} characters")
    parts = {key: raw[key] for key in PARTS if raw.get(key) is not None}
    for key in ("title", "description"):
        if not isinstance(parts.get(key, ""), str):
            raise ForeignError(f"its {key} is no text")
    for key in ("inputSchema", "outputSchema", "annotations"):
        if not isinstance(parts.get(key, {}), dict):
            raise ForeignError(f"its {key} is no object")
    if "inputSchema" not in parts:
        raise ForeignError("it has no inputSchema")
    _check_size(parts)
    return Definition(name, parts)


def _check_size(parts: Mapping[str, Any]) -> None:
    if is_too_deep(parts):
        raise ForeignError(f"its definition is nested more than {DEEPEST} deep")
    size = len(msgspec.json.encode(parts))
    if size > LARGEST_DEFINITION:
        raise ForeignError(f"its definition has {size:,} bytes: expected at most {LARGEST_DEFINITION:,}")


def is_too_deep(value: object) -> bool:
    """Measure nesting level by level: an object from a server may be deeper than Python's stack."""
    level, depth = [value], 0
    while level and depth <= DEEPEST:
        level = [inner for outer in level for inner in _inside(outer)]
        depth += 1
    return depth > DEEPEST


def _inside(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _revealed(schema: Any, key: str = "") -> Any:
    if isinstance(schema, dict):
        # Under `properties` a name such as `title` is an argument, and its value is a schema.
        return {name: _revealed(inner, name) for name, inner in schema.items()}
    if isinstance(schema, list):
        return [_revealed(inner) for inner in schema]
    return reveal(schema) if isinstance(schema, str) and key in _PROSE else schema


@dataclass(frozen=True, slots=True)
class Listing:
    """The tools of a server at one moment, by name, and why others cannot be used."""

    definitions: Mapping[str, Definition]
    faults: Mapping[str, str]


def read_listing(entries: Sequence[object]) -> Listing:
    """Parse all entries of a listing; a duplicate name is a fault, since either entry could be meant."""
    definitions: dict[str, Definition] = {}
    faults: dict[str, str] = {}
    for number, raw in enumerate(entries, 1):
        name = raw.get("name") if isinstance(raw, dict) else None
        label = name[:LONGEST_NAME] if isinstance(name, str) and name else f"entry {number}"
        try:
            definition = read_definition(raw)
        except ForeignError as error:
            faults[label] = str(error)
            continue
        if label in definitions or label in faults:
            faults.setdefault(label, "the server lists it twice")
        definitions[label] = definition
    kept = {name: definitions[name] for name in sorted(definitions) if name not in faults}
    return Listing(kept, faults)


class Standing(StrEnum):
    """How a tool stands: the offered definition compared with the accepted one."""

    ACCEPTED = "accepted"
    NEW = "new"
    CHANGED = "changed"
    REMOVED = "removed"
    UNUSABLE = "unusable"


@dataclass(frozen=True, slots=True)
class Review:
    """One tool: the definition offered now, the accepted one, and what is odd about it."""

    server: str
    tool: str
    standing: Standing
    offered: Definition | None = None
    accepted: Definition | None = None
    problem: str = ""

    @property
    def hidden(self) -> list[str]:
        """The hidden characters in the offered texts, or in the name alone."""
        return self.offered.hidden if self.offered else hidden_in(self.tool)

    def text(self) -> str:
        """Show the definition, or the changes of a changed one; hidden characters are written out."""
        head = f"{self.server} {reveal_line(self.tool)}: {self.standing}"
        lines = [f"{head} ({reveal_line(self.problem)[:LONGEST_REASON]})" if self.problem else head]
        lines += [f"  ! hidden: {found}" for found in self.hidden]
        if self.standing is Standing.CHANGED:
            lines += [f"  {line}" for line in self.difference()]
        elif self.offered or self.accepted:
            lines += [f"  {line}" for line in _lines(self.offered or self.accepted)]
        return "\n".join(lines)

    def difference(self) -> list[str]:
        """Return the changes line by line: `-` was accepted, `+` is offered."""
        names = ("accepted", "offered")
        return list(
            difflib.unified_diff(_lines(self.accepted), _lines(self.offered), *names, lineterm="", n=2)
        )


def review_tools(server: str, listing: Listing, accepted: Mapping[str, Definition]) -> list[Review]:
    """Return how every tool stands, in the order of their names."""
    reviews = [
        Review(server, tool, Standing.UNUSABLE, accepted=accepted.get(tool), problem=problem)
        for tool, problem in listing.faults.items()
    ]
    for tool, offered in listing.definitions.items():
        pin = accepted.get(tool)
        known = Standing.NEW if pin is None else Standing.CHANGED
        standing = Standing.ACCEPTED if pin is not None and pin.digest == offered.digest else known
        reviews.append(Review(server, tool, standing, offered, pin))
    gone = accepted.keys() - listing.definitions.keys() - listing.faults.keys()
    reviews += [Review(server, tool, Standing.REMOVED, accepted=accepted[tool]) for tool in gone]
    return sorted(reviews, key=lambda review: review.tool)


def _lines(definition: Definition | None) -> list[str]:
    if definition is None:
        return []
    text = msgspec.json.format(msgspec.json.encode(definition.parts, order="sorted"), indent=2).decode()
    # JSON writes line breaks in texts as \n; a description is easier to read on several lines.
    return [reveal(part) for line in text.splitlines() for part in line.replace("\\n", "\\n\n").split("\n")]


def hidden_in(text: str) -> list[str]:
    """Describe the hidden characters of a text, such as `U+200B ZERO WIDTH SPACE (3 times)`."""
    found = Counter(c for c in text if c not in LINES and is_hidden(c))
    described = [
        f"{_name(character)} ({_times(count)})" for character, count in found.most_common(MOST_FINDINGS)
    ]
    if len(found) > MOST_FINDINGS:
        described.append(f"and {len(found) - MOST_FINDINGS} other hidden characters")
    return described


def _name(character: str) -> str:
    otherwise = _NAMELESS.get(unicodedata.category(character), "hidden character")
    return f"U+{ord(character):04X} {unicodedata.name(character, otherwise)}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
