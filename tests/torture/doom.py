"""A journal that kills its process at a named point, and the points there are.

A point is before or after one operation of the journal, with the state that it leads to, or before or after
the effect of a tool: every place at which a process that dies leaves another picture behind.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from gramercy.journal.base import NOTHING, State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gramercy.journal.base import CallRecord, Facts, Journal, NewCall

EFFECT = "effect"
# What a server, a person who decides and a worker do to the journal in the life of a call.
OPERATIONS = (
    "begin awaiting",
    "move awaiting",
    "move ready",
    "move denied",
    "claim",
    EFFECT,
    "move done",
    "move failed",
    "move in_doubt",
    "deliver",
    "recover",
)
POINTS = tuple(f"{when} {operation}" for operation in OPERATIONS for when in ("before", "after"))


class Doom:
    """Kills this process when it comes to a point for the n-th time."""

    def __init__(self, point: str = "", count: int = 1) -> None:
        self.point = point
        self._left = count

    def reach(self, point: str) -> None:
        """Come to a point."""
        if point == self.point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class DoomedJournal:
    """A journal whose operations are points of a doom; all the rest is the journal's own."""

    def __init__(self, journal: Journal, doom: Doom) -> None:
        self._journal = journal
        self._doom = doom

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def _within(self, operation: str, name: str, *given: Any, **more: Any) -> Any:
        self._doom.reach(f"before {operation}")
        result = getattr(self._journal, name)(*given, **more)
        self._doom.reach(f"after {operation}")
        return result

    def begin(self, call: NewCall, state: State = State.REQUESTED, facts: Facts = NOTHING) -> int:
        return int(self._within(f"begin {state.value}", "begin", call, state, facts))

    def move(self, key: int, state: State, facts: Facts = NOTHING, *, expected: Sequence[State] = ()) -> None:
        self._within(f"move {state.value}", "move", key, state, facts, expected=expected)

    def claim(self, key: int, facts: Facts = NOTHING) -> int:
        return int(self._within("claim", "claim", key, facts))

    def deliver(self, key: int) -> None:
        self._within("deliver", "deliver", key)

    def recover(self, is_idempotent: Any) -> list[CallRecord]:
        found: list[CallRecord] = self._within("recover", "recover", is_idempotent)
        return found
