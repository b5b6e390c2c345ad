"""The states an image can go back to: a tree of sleeping processes, bounded in number."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

from gramercy.errors import CheckpointError
from gramercy.images.base import CheckpointInfo

if TYPE_CHECKING:
    from gramercy.images.connection import Connection
    from gramercy.images.replay import Past

MOST_CHECKPOINTS = 16


@dataclass(slots=True)
class Checkpoint:
    """One sleeping copy of the image."""

    id: str
    parent: str | None
    label: str
    connection: Connection
    at: float
    past: Past | None = None
    pinned: bool = False


class Timeline:
    """Checkpoints by id, oldest first, with the one the live image stands on."""

    def __init__(self, limit: int = MOST_CHECKPOINTS) -> None:
        self.limit = limit
        self._checkpoints: dict[str, Checkpoint] = {}
        self._count = 0
        self.current: str | None = None

    def add(self, connection: Connection, label: str, past: Past | None = None) -> Checkpoint:
        """Add the state the live image has now, with what led to it; it becomes the current one."""
        self._count += 1
        checkpoint = Checkpoint(f"c{self._count}", self.current, label, connection, time(), past)
        self._checkpoints[checkpoint.id] = checkpoint
        self.current = checkpoint.id
        self._make_room()
        return checkpoint

    def get(self, checkpoint: str) -> Checkpoint:
        """Return a checkpoint, or say which there are."""
        found = self._checkpoints.get(checkpoint)
        if found is None:
            there = ", ".join(self._checkpoints) or "none"
            raise CheckpointError(f"there is no checkpoint {checkpoint!r} (any more): there are {there}")
        return found

    def newest_first(self) -> list[Checkpoint]:
        """Return the checkpoints from which a lost state can be restored, best first."""
        current = self._checkpoints.get(self.current or "")
        line = []
        while current is not None:
            line.append(current)
            current = self._checkpoints.get(current.parent or "")
        return line

    def before_current(self) -> Checkpoint:
        """Return the state before the last call."""
        line = self.newest_first()
        if len(line) < 2:  # noqa: PLR2004 - the present state and the one before it
            raise CheckpointError("there is nothing to undo: no earlier state is kept")
        return line[1]

    def forget(self, checkpoint: Checkpoint) -> None:
        """Drop a checkpoint; its process ends when it notices that nobody is there."""
        self._checkpoints.pop(checkpoint.id, None)
        checkpoint.connection.close()

    def clear(self) -> None:
        """Drop all."""
        for checkpoint in list(self._checkpoints.values()):
            self.forget(checkpoint)
        self.current = None

    def _make_room(self) -> None:
        for checkpoint in list(self._checkpoints.values()):
            if len(self._checkpoints) <= self.limit:
                return
            if checkpoint.id != self.current and not checkpoint.pinned:
                self.forget(checkpoint)

    def all(self) -> list[Checkpoint]:
        """Return the checkpoints, oldest first."""
        return list(self._checkpoints.values())

    def infos(self) -> list[CheckpointInfo]:
        """Describe the checkpoints, oldest first."""
        return [self.info(checkpoint) for checkpoint in self._checkpoints.values()]

    def info(self, checkpoint: Checkpoint) -> CheckpointInfo:
        """Describe one checkpoint."""
        return CheckpointInfo(
            checkpoint.id,
            checkpoint.parent,
            checkpoint.label,
            checkpoint.at,
            checkpoint.id == self.current,
            private_bytes(checkpoint.connection.pid),
        )


def private_bytes(pid: int) -> int | None:
    """Return the memory that a process shares with nobody, where the system tells."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        fields = dict(line.split(":", 1) for line in rollup if ":" in line)
        return sum(int(fields[name].split()[0]) * 1024 for name in ("Private_Clean", "Private_Dirty"))
    except (OSError, KeyError, ValueError):
        return None
