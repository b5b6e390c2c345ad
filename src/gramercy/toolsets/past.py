"""What writes have replaced, kept in a bounded number of bytes so that it can be brought back."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gramercy.errors import WorkspaceError

if TYPE_CHECKING:
    from gramercy.toolsets.storage import Content

MOST_WRITES = 100
MOST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Write:
    """One write: the file as it was (None: there was none) and the digest of what was written."""

    name: str
    old: Content | None
    digest: str

    @property
    def size(self) -> int:
        """The bytes that are kept for it."""
        return 0 if self.old is None else len(self.old.data)


class Past:
    """The latest writes, oldest first."""

    def __init__(self) -> None:
        self._writes: deque[Write] = deque()

    def add(self, write: Write) -> None:
        """Remember a write; the oldest make room for it."""
        self._writes.append(write)
        while len(self._writes) > MOST_WRITES or sum(kept.size for kept in self._writes) > MOST_BYTES:
            self._writes.popleft()

    def last(self) -> Write:
        """Return the latest write."""
        if not self._writes:
            raise WorkspaceError("there is no write to take back")
        return self._writes[-1]

    def forget_last(self) -> None:
        """Drop the latest write: it has been taken back."""
        self._writes.pop()
