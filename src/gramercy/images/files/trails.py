"""What calls changed, one after another, and the way from one state of an image to another along them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gramercy.images.files.changes import FileOutcome, shown

if TYPE_CHECKING:
    from gramercy.images.files.changes import ChangeSet, FileChange
    from gramercy.images.files.holding import Positions


@dataclass(eq=False, slots=True)
class Trail:
    """What one call changed, and the changes before it; `why_left` says why it is never taken back, if so.

    `before` and `after` are the positions in files that were open then, which copies of a process share.
    """

    changes: ChangeSet
    previous: Trail | None = None
    depth: int = 1
    why_left: str = ""
    before: Positions = field(default_factory=dict)
    after: Positions = field(default_factory=dict)


def way(here: Trail | None, goal: Trail | None) -> tuple[list[Trail], list[Trail]]:
    """Return the links to take back, newest first, and those to do again after that."""
    back, again = [], []
    while here is not goal:
        if here is not None and depth_of(here) >= depth_of(goal):
            back.append(here)
            here = here.previous
        elif goal is not None:
            again.append(goal)
            goal = goal.previous
    return back, again[::-1]


def changed_between(trail: Trail | None, earlier: Trail | None) -> list[FileChange]:
    """Return what calls changed from one state to a later one."""
    found: dict[str, FileChange] = {}
    while trail is not None and trail is not earlier and trail.depth > depth_of(earlier):
        if not trail.why_left:
            found = {change.path: change for change in trail.changes.told()} | found
        trail = trail.previous
    return list(found.values())


def last_to_take_back(trail: Trail | None) -> Trail | None:
    """Return the newest link of a trail that an undo takes back, or None."""
    while trail is not None and trail.why_left:
        trail = trail.previous
    return trail


def depth_of(trail: Trail | None) -> int:
    """Return how many changes a trail has."""
    return 0 if trail is None else trail.depth


def common_of(one: Trail | None, other: Trail | None) -> Trail | None:
    """Return the newest link that two trails have in common."""
    while one is not other:
        if one is not None and one.depth >= depth_of(other):
            one = one.previous
        elif other is not None:
            other = other.previous
    return one


def left_alone(link: Trail) -> dict[str, FileOutcome]:
    """Return what is told of changes that are never taken back."""
    return {path: FileOutcome(shown(path), "left alone", link.why_left) for path in link.changes.pairs}
