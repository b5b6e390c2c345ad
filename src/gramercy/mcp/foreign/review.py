"""Compare what a server offers with what a person accepted, and show it so that nothing can hide."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from gramercy.mcp.foreign.invisibles import hidden_in, reveal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gramercy.mcp.foreign.definitions import Definition, Listing

LONGEST_REASON = 300


class Standing(StrEnum):
    """How a tool stands between what is offered and what was accepted."""

    ACCEPTED = "accepted"
    NEW = "new"
    CHANGED = "changed"
    REMOVED = "removed"
    UNUSABLE = "unusable"


@dataclass(frozen=True, slots=True)
class Review:
    """One tool: what is offered now, what was accepted once, and what is odd about it."""

    server: str
    tool: str
    standing: Standing
    offered: Definition | None = None
    accepted: Definition | None = None
    problem: str = ""

    @property
    def hidden(self) -> list[str]:
        """What is hidden in the texts that are offered, or in the name alone."""
        return self.offered.hidden if self.offered else hidden_in(self.tool)

    def text(self) -> str:
        """Show the definition, or for a changed one what has changed; hidden characters are written out."""
        head = f"{self.server} {reveal(self.tool)}: {self.standing}"
        lines = [f"{head} ({reveal(self.problem)[:LONGEST_REASON]})" if self.problem else head]
        lines += [f"  ! hidden: {found}" for found in self.hidden]
        if self.standing is Standing.CHANGED:
            lines += [f"  {line}" for line in self.difference()]
        elif self.offered or self.accepted:
            lines += [f"  {line}" for line in _lines(self.offered or self.accepted)]
        return "\n".join(lines)

    def difference(self) -> list[str]:
        """Return what has changed, line by line: `-` was accepted, `+` is offered."""
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
    # JSON has line breaks as \n inside of texts; a description is read more easily in lines of its own.
    return [reveal(part) for line in text.splitlines() for part in line.replace("\\n", "\\n\n").split("\n")]
