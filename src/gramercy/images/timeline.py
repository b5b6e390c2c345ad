"""The states an image can go back to: a tree of sleeping processes, bounded in number."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

from gramercy.errors import CheckpointError
from gramercy.images.base import CheckpointInfo
from gramercy.images.replay import depth

if TYPE_CHECKING:
    from gramercy.images.connection import Connection
    from gramercy.images.replay import Past, Step

# Each is a process, of which about 1 MB is its own; those with names do not count among the first.
MOST_CHECKPOINTS = 16
MOST_NAMED = 64
# Languages remember the values of the last three evaluations, or fewer.
MOST_LOOKS = 3


@dataclass(slots=True)
class Checkpoint:
    """One sleeping copy of the image.

    `code` is the beginning of the call that led to it, `names` are the labels people gave it. `looks` are
    the latest calls that were answered in this very state and changed nothing but the variables in which a
    language remembers values; `looks_before` are those of its parent when the call that led here began.
    """

    id: str
    parent: str | None
    code: str
    connection: Connection
    at: float
    past: Past | None = None
    names: list[str] = field(default_factory=list)
    looks: tuple[Step, ...] = ()
    looks_before: tuple[Step, ...] = ()

    @property
    def label(self) -> str:
        """What to call it: the names people gave it, else the code that led to it."""
        return ", ".join(self.names) or self.code

    def looked(self, step: Step) -> None:
        """Remember a call that changed nothing and was answered in this very state."""
        self.looks = (*self.looks[1 - MOST_LOOKS :], step)

    def shown(self) -> str:
        """Return how a sentence names it."""
        return f"{self.id} ({self.label})" if self.label else self.id


class Timeline:
    """Checkpoints by id, oldest first, with the one the live image stands on."""

    def __init__(self, limit: int = MOST_CHECKPOINTS) -> None:
        self.limit = limit
        self._checkpoints: dict[str, Checkpoint] = {}
        self._count = 0
        self.current: str | None = None

    def add(
        self, connection: Connection, code: str, past: Past | None = None, *, goal: Checkpoint | None = None
    ) -> Checkpoint:
        """Add the state the live image has now, with what led to it; it becomes the current one.

        The oldest makes room for it, but not the goal of a way back that is about to be gone.
        """
        self._count += 1
        parent = self.standing()
        looks = parent.looks if parent is not None else ()
        checkpoint = Checkpoint(f"c{self._count}", self.current, code, connection, time(), past)
        # Where calls in between were not kept, the looks of the parent are not those before the last call.
        if parent is not None and depth(past) - depth(parent.past) == 1:
            checkpoint.looks_before = looks
        self._checkpoints[checkpoint.id] = checkpoint
        self.current = checkpoint.id
        self._make_room(goal)
        return checkpoint

    def standing(self) -> Checkpoint | None:
        """Return the newest kept state on the way to the present one."""
        return self._checkpoints.get(self.current or "")

    def get(self, word: str) -> Checkpoint:
        """Return a checkpoint by its id or by a name that only one has, or say which there are."""
        found = self._checkpoints.get(word)
        named = self.named(word)
        if found is not None or len(named) == 1:
            return found or named[0]
        if named:
            ids = ", ".join(checkpoint.id for checkpoint in named)
            raise CheckpointError(f"several states are named {word!r}: give one of the ids {ids}")
        there = ", ".join(self._checkpoints) or "none"
        raise CheckpointError(f"there is no checkpoint {word!r} (any more): there are {there}")

    def newest_first(self) -> list[Checkpoint]:
        """Return the checkpoints from which a lost state can be restored, best first."""
        current = self.standing()
        line = []
        while current is not None:
            line.append(current)
            current = self._checkpoints.get(current.parent or "")
        return line

    def named(self, name: str) -> list[Checkpoint]:
        """Return the checkpoints that carry a name."""
        return [checkpoint for checkpoint in self._checkpoints.values() if name in checkpoint.names]

    def name(self, checkpoint: Checkpoint, name: str) -> None:
        """Give a checkpoint one more name; what has a name is not dropped for room."""
        if (
            not checkpoint.names
            and sum(bool(each.names) for each in self._checkpoints.values()) >= MOST_NAMED
        ):
            raise CheckpointError(
                f"{MOST_NAMED} states have names, and there may be no more: go back to one that has, or reset"
            )
        if name not in checkpoint.names:
            checkpoint.names.append(name)

    def forget(self, checkpoint: Checkpoint) -> None:
        """Drop a checkpoint; its process ends when it notices that nobody is there."""
        self._checkpoints.pop(checkpoint.id, None)
        for child in self._checkpoints.values():
            # What came from it comes from the one before it now, so that the way back has no gap.
            if child.parent == checkpoint.id:
                child.parent, child.looks_before = checkpoint.parent, ()
        if self.current == checkpoint.id:
            self.current = checkpoint.parent
        checkpoint.connection.close()

    def clear(self) -> None:
        """Drop all."""
        for checkpoint in list(self._checkpoints.values()):
            self.forget(checkpoint)
        self.current = None

    def _make_room(self, goal: Checkpoint | None) -> None:
        nameless = [each for each in self._checkpoints.values() if not each.names and each.id != self.current]
        for checkpoint in nameless[: max(0, len(nameless) + 1 - self.limit)]:
            if checkpoint is not goal:
                self.forget(checkpoint)

    def all(self) -> list[Checkpoint]:
        """Return the checkpoints, oldest first."""
        return list(self._checkpoints.values())

    def infos(self, *, is_present: bool = True) -> list[CheckpointInfo]:
        """Describe the checkpoints, oldest first; `is_present` if the image still is as the current one."""
        return [self.info(checkpoint, is_present=is_present) for checkpoint in self._checkpoints.values()]

    def info(
        self,
        checkpoint: Checkpoint,
        *,
        is_present: bool = True,
        taken_back: int = 0,
        notes: list[str] | None = None,
    ) -> CheckpointInfo:
        """Describe one checkpoint."""
        return CheckpointInfo(
            checkpoint.id,
            checkpoint.parent,
            checkpoint.label,
            checkpoint.at,
            is_present and checkpoint.id == self.current,
            private_bytes(checkpoint.connection.pid),
            list(checkpoint.names),
            taken_back,
            notes or [],
        )


def private_bytes(pid: int) -> int | None:
    """Return the memory that a process shares with nobody, where the system tells."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        fields = dict(line.split(":", 1) for line in rollup if ":" in line)
        return sum(int(fields[name].split()[0]) * 1024 for name in ("Private_Clean", "Private_Dirty"))
    except (OSError, KeyError, ValueError):
        return None
