"""How much one principal may ask for: requests per second, and requests at a time."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from gramercy.mcp.http.refusals import BUSY, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

REMEMBERED = 4096


class Rate:
    """A bucket of requests per principal, refilled at a steady rate."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, principal: str) -> None:
        """Count one request; raise RefusedError (429) with the time to wait when there were too many."""
        if self._per_second <= 0:
            return
        now = self._clock()
        left, since = self._buckets.get(principal, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._per_second)
        if left < 1.0:
            wait = max(1, round((1.0 - left) / self._per_second + 0.5))
            raise RefusedError(
                429,
                f"more than {self._per_second:g} requests per second: wait {wait} s and go slower",
                code=BUSY,
                headers=((b"retry-after", str(wait).encode()),),
            )
        self._buckets[principal] = (left - 1.0, now)
        self._buckets.move_to_end(principal)
        if len(self._buckets) > REMEMBERED:
            self._buckets.popitem(last=False)


class Load:
    """How many requests are being answered, of one principal and of all."""

    def __init__(self, each: int, total: int) -> None:
        self._each = each
        self._total = total
        self._running: dict[str, int] = {}
        self.count = 0

    def enter(self, principal: str) -> None:
        """Count a request that begins; raise RefusedError when too many are running (429, 503 for all)."""
        mine = self._running.get(principal, 0)
        if mine >= self._each:
            raise _refusal(429, f"{mine} requests of yours are running")
        if self.count >= self._total:
            raise _refusal(503, f"the server is answering {self.count} requests")
        self._running[principal] = mine + 1
        self.count += 1

    def leave(self, principal: str) -> None:
        """Count a request that ended."""
        self.count -= 1
        mine = self._running[principal] - 1
        if mine:
            self._running[principal] = mine
        else:
            del self._running[principal]


def _refusal(status: int, reason: str) -> RefusedError:
    return RefusedError(
        status,
        f"{reason}, which is the limit: wait for one to end, or end a stream",
        code=BUSY,
        headers=((b"retry-after", b"1"),),
    )
