"""How often copies of a large image are made: by the duration of the last copy, never by size alone.

A fork copies page tables, about a tenth of a millisecond for each megabyte, and the live process waits for
it. Each copy reports the duration of its fork in its hello. This module knows no process and makes no copy.
"""

from __future__ import annotations

from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gramercy.images.connection import Connection

# Seconds. A larger duration reported by a process is not trusted: it could stop all keeping.
LONGEST_FORK = 10.0


class Thrift(msgspec.Struct, frozen=True):
    """From `heavy_bytes` of heap on, forks may take this share of the time. Below it, each call has its copy.

    The share is half of a tenth: the page faults after a fork, which are not counted, take about as long as
    the fork.
    """

    heavy_bytes: int = 256 * 1024 * 1024
    part: float = 0.05


class Costs:
    """The cost of the last copy, and the times of the latest copies: one of a state, one of a moment."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        # From the last reply of the live process, 0 before the first.
        self.heap_bytes = 0
        self.seconds = 0.0
        # The heap size at this measurement, 0 where it is not known.
        self._measured_bytes = 0
        self._kept_at = self._moment_at = float("-inf")

    def measure(self, connection: Connection) -> None:
        """Note the fork duration that a copy reports."""
        hello = connection.hello
        if hello is not None and hello.fork_us:
            self.seconds = min(max(hello.fork_us, 0) / 1e6, LONGEST_FORK)
            self._measured_bytes = self.heap_bytes

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Add the work for a copy, beside its fork, to its cost."""
        began = self._clock()
        yield
        self.seconds = min(self.seconds + self._clock() - began, LONGEST_FORK)

    @property
    def expected(self) -> float:
        """The expected seconds of a copy: like the last one, or more as the heap has grown."""
        grown = self.heap_bytes / self._measured_bytes if self._measured_bytes else 1.0
        return min(self.seconds * max(grown, 1.0), LONGEST_FORK)

    def is_heavy(self, thrift: Thrift) -> bool:
        """Return whether copies must be limited."""
        return self.heap_bytes >= thrift.heavy_bytes

    def may_keep(self, thrift: Thrift) -> bool:
        """Return whether a copy of a state is due."""
        return not self.is_heavy(thrift) or self._clock() - self._kept_at >= self.expected / thrift.part

    def may_keep_moment(self, thrift: Thrift) -> bool:
        """Return the same for a moment: errors are rare, so they do not wait for the copies of states."""
        return not self.is_heavy(thrift) or self._clock() - self._moment_at >= self.expected / thrift.part

    def kept(self) -> None:
        """Note that a copy of a state is made now."""
        self._kept_at = self._clock()

    def kept_moment(self) -> None:
        """Note that a copy of a moment was made."""
        self._moment_at = self._clock()

    def told(self, thrift: Thrift) -> str:
        """Describe why there is no copy this time."""
        size, taken = f"{self.heap_bytes >> 20:,} MB", f"{self.expected * 1000:,.0f} ms"
        return f"a copy of its {size} takes {taken}, so one is made every {self.expected / thrift.part:.2g} s"
