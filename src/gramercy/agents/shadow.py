"""Shadows: a second implementation of safe tools repeats each call beside the live one, unseen by it.

The caller gets the live result and waits for no shadow. A call that is not safe or needs approval has no
shadow: its effect would happen twice. Shadows go through a guard of their own and into the same journal.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from contextlib import suppress
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.agents.differences import line_differences
from gramercy.agents.intervals import ratio
from gramercy.errors import GramercyError
from gramercy.execution.calls import ToolCall
from gramercy.execution.executor import Executor
from gramercy.execution.policy import Action
from gramercy.journal.texts import masked
from gramercy.tools.context import Call, current_call, enter_call, leave_call
from gramercy.tools.registry import Registry
from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gramercy.agents.intervals import Interval
    from gramercy.execution.calls import ToolResult
    from gramercy.execution.hooks import Phase
    from gramercy.tools.library import ToolLibrary
    from gramercy.tools.tool import Tool

# Calls that wait for their shadow; if shadows fall behind, further calls are skipped.
MOST_WAITING = 1_000
# Differences that are stored completely; all are counted.
MOST_KEPT = 100
# As long as a tool of an agent may take.
LONGEST_SECONDS = 30.0


class ShadowDifference(msgspec.Struct, frozen=True):
    """A call with different answers of the two implementations."""

    tool: str
    arguments: dict[str, Any]
    live: str
    shadow: str


class ShadowReport(msgspec.Struct, frozen=True):
    """The results of the shadows: `skipped` counts calls without one, by reason.

    `time` is how many times as long the shadow takes, with its interval, if both have run.
    """

    compared: int
    differing: int
    differences: tuple[ShadowDifference, ...]
    skipped: dict[str, int]
    live_ms: float = 0.0
    shadow_ms: float = 0.0
    time: tuple[float, Interval | None, float] | None = None

    def lines(self) -> Iterator[str]:
        """Format the report as lines."""
        alike = self.compared - self.differing
        yield (
            f"shadow: {alike} of {self.compared} calls alike" if self.compared else "shadow: no call compared"
        )
        if self.time is not None:
            value, interval, _ = self.time
            sure = f" ({interval[0]:.2f} to {interval[1]:.2f})" if interval else ""
            yield (
                f"shadow: median {self.shadow_ms:.2f} ms beside {self.live_ms:.2f} ms, "
                f"{value:.2f} times as long{sure}"
            )
        for each in self.differences:
            yield f"shadow: {each.tool} {masked(msgspec.json.encode(each.arguments).decode())}"
            yield from (f"  {line}" for line in line_differences(masked(each.live), masked(each.shadow)))
        if self.differing > len(self.differences):
            yield f"shadow: and {self.differing - len(self.differences):,} more differences"
        yield from (f"shadow: {count} not: {why}" for why, count in self.skipped.items())


class Shadow:
    """A hook for an executor: `executor.hooks.append(Shadow(library, executor))`; `close` returns the report.

    `library` has the second implementations; those that are not safe are never run.
    """

    def __init__(self, library: ToolLibrary, live: Executor) -> None:
        self._library = library
        safe = [tool for tool in library.values() if tool.safety_level is Safety.SAFE]
        self._guard = Executor(
            Registry(safe),
            policy=live.policy,
            journal=live.settings.journal,
            max_safety_level=Safety.SAFE,
            deadline=live.settings.deadline or LONGEST_SECONDS,
            max_output=live.settings.max_output,
        )
        self._waiting: queue.Queue[tuple[Tool, dict[str, Any], ToolResult, Call] | None] = queue.Queue(
            MOST_WAITING
        )
        self._skipped: Counter[str] = Counter()
        self._differences: list[ShadowDifference] = []
        self._compared = self._differing = 0
        self._times: list[tuple[float, float]] = []
        self._thread = threading.Thread(target=self._work, name="gramercy-shadow", daemon=True)
        self._thread.start()

    def __call__(
        self, phase: Phase, tool: Tool, arguments: dict[str, Any], result: ToolResult | None
    ) -> None:
        """Queue a finished call; its shadow runs later, on another thread."""
        if phase == "before" or result is None:
            return
        reason = self._reason(tool, arguments)
        if reason:
            self._skipped[reason] += 1
            return
        try:
            self._waiting.put_nowait((tool, arguments, result, current_call()))
        except queue.Full:
            self._skipped["more waited than can be kept"] += 1

    def _reason(self, tool: Tool, arguments: dict[str, Any]) -> str:
        """Say why a call has no shadow; empty if it has one."""
        if tool.safety_level is not Safety.SAFE:
            return f"{tool.name} is {tool.level_word}"
        other = self._library.get(tool.name)
        if other is None:
            return f"{tool.name} has no second implementation"
        if other.safety_level is not Safety.SAFE:
            return f"the second {tool.name} is {other.level_word}"
        try:
            action = self._guard.why(tool.name, arguments).action
        except GramercyError:
            return ""  # the guard says so again, as the answer of the shadow
        return "" if action is Action.ALLOW else f"the rules {action.value} about {tool.name}"

    def close(self, seconds: float = LONGEST_SECONDS) -> ShadowReport:
        """Wait for the running shadows, at most `seconds`, and return the report."""
        end = monotonic() + seconds
        with suppress(queue.Full):
            self._waiting.put(None, timeout=seconds)
        self._thread.join(max(0.0, end - monotonic()))
        if self._thread.is_alive():
            # The queue also holds the end mark, which makes up for the call that is running.
            self._skipped["their shadow was not waited for"] += self._waiting.qsize() or 1
        return self.report()

    def report(self) -> ShadowReport:
        """Return the report so far."""
        times = [pair for pair in list(self._times) if all(pair)]
        return ShadowReport(
            self._compared,
            self._differing,
            tuple(self._differences),
            dict(self._skipped),
            median(live for live, _ in times) if times else 0.0,
            median(other for _, other in times) if times else 0.0,
            ratio(times) if times else None,
        )

    def _work(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            tool, arguments, live, call = waiting
            token = enter_call(_ShadowCall(call))
            try:
                self._compare(
                    tool, arguments, live, self._guard.execute(ToolCall(live.id, tool.name, arguments))
                )
            finally:
                leave_call(token)

    def _compare(self, tool: Tool, arguments: dict[str, Any], live: ToolResult, other: ToolResult) -> None:
        self._compared += 1
        self._times.append((_milliseconds(live), _milliseconds(other)))
        if (live.success, live.content) == (other.success, other.content):
            return
        self._differing += 1
        if len(self._differences) < MOST_KEPT:
            self._differences.append(ShadowDifference(tool.name, arguments, _said(live), _said(other)))


class _ShadowCall(Call):
    """The call of a shadow: in the same conversation, under another name, and without a returning caller."""

    __slots__ = ("_live",)

    def __init__(self, live: Call) -> None:
        self._live = live

    @property
    def client(self) -> str:
        return f"shadow of {self._live.client}" if self._live.client else "shadow"

    @property
    def session(self) -> str:
        return self._live.session

    @property
    def project(self) -> str:
        return self._live.project

    @property
    def principal(self) -> str:
        return self._live.principal


def _milliseconds(result: ToolResult) -> float:
    return float(result.metadata.get("execution_time_ms", 0.0))


def _said(result: ToolResult) -> str:
    return result.content if result.success else f"failed: {result.content}"
