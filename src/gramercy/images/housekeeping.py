"""One thread that does, after each reply, what would otherwise cost the next call time."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Housekeeper:
    """Runs small chores in order, on a daemon thread that starts with the first one."""

    def __init__(self) -> None:
        self._chores: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._started = False

    def later(self, chore: Callable[[], None]) -> None:
        """Do something soon; it must not raise and must not take long."""
        if not self._started:
            self._start()
        self._chores.put(chore)

    def _start(self) -> None:
        with self._lock:
            if not self._started:
                self._started = True
                threading.Thread(target=self._run, name="gramercy-housekeeping", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._chores.get()()


housekeeper = Housekeeper()
