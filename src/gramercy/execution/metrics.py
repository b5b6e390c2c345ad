"""The figures of an executor for each tool: calls, failures, refusals, times, sizes, approval times."""

from __future__ import annotations

from collections import Counter, deque
from itertools import groupby
from operator import itemgetter
from threading import Lock
from typing import TYPE_CHECKING

import msgspec

from gramercy.text import table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gramercy.execution.results import Refuser

# Percentiles are taken over the latest calls, so that memory is bounded and the figures are current.
SAMPLES = 1024
_tool_of = itemgetter(0)


class ToolMetrics(msgspec.Struct, frozen=True):
    """The figures of one tool; times in milliseconds, sizes in characters."""

    tool: str
    calls: int
    succeeded: int
    failed: int
    denied: int
    success_rate: float
    p50_ms: float
    p95_ms: float
    mean_result_size: float
    mean_approval_wait_ms: float
    denied_by: dict[str, int] = {}


class _Tally:
    __slots__ = ("approval_ms", "approvals", "calls", "denied", "size", "succeeded", "times")

    def __init__(self) -> None:
        self.calls = self.succeeded = self.size = self.approvals = 0
        self.denied: Counter[str] = Counter()
        self.approval_ms = 0.0
        self.times: deque[float] = deque(maxlen=SAMPLES)


class Metrics:
    """The tallies of one executor."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._tallies: dict[str, _Tally] = {}
        # Calls that are not yet in the tallies. Appending is atomic, so recording a call needs no lock.
        self.recent: deque[tuple[str, float, int | None]] = deque()

    def record(self, tool: str, elapsed_ms: float, size: int | None) -> None:
        """Count a call that ran, with the size of its result, or None when it failed."""
        recent = self.recent
        recent.append((tool, elapsed_ms, size))
        if len(recent) > SAMPLES:
            self.fold()

    def fold(self) -> None:
        """Move recent calls into the tallies, so that they do not pile up."""
        with self._lock:
            self._fold()

    def record_refusal(self, tool: str, refuser: Refuser | None = None) -> None:
        """Count a call without a result: denied, refused for its arguments, or cancelled."""
        with self._lock:
            tally = self._tally(tool)
            tally.calls += 1
            if refuser is not None:
                tally.denied[refuser.value] += 1

    def record_approval(self, tool: str, wait_ms: float) -> None:
        """Note how long a person took."""
        with self._lock:
            tally = self._tally(tool)
            tally.approvals += 1
            tally.approval_ms += wait_ms

    def _fold(self) -> None:
        """Move recent calls into the tallies; the caller holds the lock. Every call pays for this."""
        recent = self.recent
        # Other threads append meanwhile; only this method removes entries.
        batch = [recent.popleft() for _ in range(len(recent))]
        for tool, group in groupby(batch, _tool_of):
            tally = self._tally(tool)
            ran = list(group)
            sizes = [size for _, _, size in ran if size is not None]
            tally.calls += len(ran)
            tally.times.extend([elapsed_ms for _, elapsed_ms, _ in ran])
            tally.succeeded += len(sizes)
            tally.size += sum(sizes)

    def _tally(self, tool: str) -> _Tally:
        found = self._tallies.get(tool)
        if found is None:
            found = self._tallies[tool] = _Tally()
        return found

    def snapshot(self) -> dict[str, ToolMetrics]:
        """Return the figures of every tool that was called, by name."""
        with self._lock:
            self._fold()
            return {name: _figures(name, tally) for name, tally in sorted(self._tallies.items())}


def _figures(name: str, tally: _Tally) -> ToolMetrics:
    # Imported here: it reads journals, which an executor does not need for its calls.
    from gramercy.journal.statistics import percentile

    times, denied = sorted(tally.times), tally.denied.total()
    return ToolMetrics(
        tool=name,
        calls=tally.calls,
        succeeded=tally.succeeded,
        failed=tally.calls - tally.succeeded - denied,
        denied=denied,
        success_rate=tally.succeeded / tally.calls if tally.calls else 0.0,
        p50_ms=percentile(times, 0.50),
        p95_ms=percentile(times, 0.95),
        mean_result_size=tally.size / tally.succeeded if tally.succeeded else 0.0,
        mean_approval_wait_ms=tally.approval_ms / tally.approvals if tally.approvals else 0.0,
        denied_by=dict(tally.denied),
    )


_COLUMNS = ("tool", "calls", "ok", "failed", "denied", "success", "p50 ms", "p95 ms", "size", "wait ms")


def metrics_table(metrics: Mapping[str, ToolMetrics]) -> str:
    """Format the figures as a plain text table."""
    return table([_COLUMNS, *map(_row, metrics.values())], rights=range(1, len(_COLUMNS)))


def _row(m: ToolMetrics) -> tuple[str, ...]:
    counts = (str(m.calls), str(m.succeeded), str(m.failed), str(m.denied), f"{m.success_rate:.0%}")
    times = (f"{m.p50_ms:.3f}", f"{m.p95_ms:.3f}")
    return (m.tool, *counts, *times, f"{m.mean_result_size:.0f}", f"{m.mean_approval_wait_ms:.1f}")
