"""Turns of the workers: tests that measure run while no test of another worker does.

Two bytes of a file are locked: whoever begins passes the gate, which a test that waits for its turn holds, so
that it is not overtaken for ever, and enters the room, alone or with others. These locks belong to a process:
what it forks does not have them, and they end with it.
"""

from __future__ import annotations

import fcntl
import tempfile
from pathlib import Path

GATE, ROOM = 0, 1


class Turns:
    """The turns of one worker of a run; its other workers open the same file."""

    def __init__(self, run: str) -> None:
        self._path = Path(tempfile.gettempdir()) / f"gramercy-turns-{run}"
        self._file = self._path.open("a+b")
        self._has_room = False

    def begin(self, *, alone: bool) -> None:
        """Wait for a turn, unless the last one was not ended."""
        if not self._has_room:
            self._lock(fcntl.LOCK_EX, GATE)
            self._lock(fcntl.LOCK_EX if alone else fcntl.LOCK_SH, ROOM)
            self._lock(fcntl.LOCK_UN, GATE)
            self._has_room = True

    def end(self) -> None:
        """Let others have their turn."""
        self._has_room = False
        self._lock(fcntl.LOCK_UN, ROOM)

    def close(self) -> None:
        """Leave the file; workers that have it open keep their turns."""
        self._path.unlink(missing_ok=True)
        self._file.close()

    def _lock(self, kind: int, place: int) -> None:
        fcntl.lockf(self._file, kind, 1, place)
