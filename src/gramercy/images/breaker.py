"""Stop trying to start something that keeps dying while it starts."""

from __future__ import annotations

from collections import deque
from time import monotonic

from gramercy.errors import ImageStartError

MOST_DEATHS = 3
WITHIN_SECONDS = 300.0


class Breaker:
    """Counts deaths during start or restoration; a call whose state was restored never counts."""

    def __init__(self) -> None:
        self._deaths: deque[float] = deque(maxlen=MOST_DEATHS)
        self._reason = ""

    def record(self, reason: str) -> None:
        """Note a death, with what the log said."""
        self._deaths.append(monotonic())
        self._reason = reason

    def check(self) -> None:
        """Refuse when there were too many deaths lately."""
        if len(self._deaths) == MOST_DEATHS and monotonic() - self._deaths[0] < WITHIN_SECONDS:
            raise ImageStartError(
                f"the image died {MOST_DEATHS} times within {WITHIN_SECONDS:g} s while starting; it is not "
                f"tried again until reset. The last time: {self._reason}"
            )

    def reset(self) -> None:
        """Forget the past, because a person asked to try again."""
        self._deaths.clear()
