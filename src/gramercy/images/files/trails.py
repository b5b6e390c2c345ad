"""The file changes of calls as a linked list, and the way from one state of an image to another."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gramercy.images.files.changes import FileOutcome, shown

if TYPE_CHECKING:
    from gramercy.images.files.changes import ChangeSet, FileChange
    from gramercy.images.files.holding import Positions


@dataclass(eq=False, slots=True)
class Trail:
    """The changes of one call, and the changes before it. `why_left` says why it is never undone, if so.

    `before` and `after` are the positions in open files. Copies of a process share these.
    """

    changes: ChangeSet
    previous: Trail | None = None
    depth: int = 1
    why_left: str = ""
    before: Positions = field(default_factory=dict)
    after: Positions = field(default_factory=dict)


def way(here: Trail | None, goal: Trail | None) -> tuple[list[Trail], list[Trail]]:
    """Return the links to undo, newest first, and those to redo after that."""
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
    """Return the changes of calls from one state to a later one."""
    found: dict[str, FileChange] = {}
    while trail is not None and trail is not earlier and trail.depth > depth_of(earlier):
        if not trail.why_left:
            found = {change.path: change for change in trail.changes.told()} | found
        trail = trail.previous
    return list(found.values())


def last_to_take_back(trail: Trail | None) -> Trail | None:
    """Return the newest link of a trail that can be undone, or None."""
    while trail is not None and trail.why_left:
        trail = trail.previous
    return trail


def depth_of(trail: Trail | None) -> int:
    """Return the number of changes in a trail."""
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
    """Return the outcomes for changes that are never undone."""
    return {path: FileOutcome(shown(path), "left alone", link.why_left) for path in link.changes.pairs}
