"""Figures of tools from a journal, over all processes that write it: counts, times, approvals, failures."""

from __future__ import annotations

from collections import Counter
from math import ceil
from time import localtime, strftime
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.journal.base import State

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gramercy.journal.tables import Tables

# A page of this many rows is one or two megabytes.
PAGE = 5_000
# The index covers the keys above 0. That bound comes last: SQLite starts at the first bound that it reads.
_MOVES = (
    "SELECT e.key, e.step, k.tool, k.at, e.state, e.at, e.facts FROM events e JOIN calls k ON k.key = e.key "
    "WHERE (e.key, e.step) > (?, ?) AND e.key > 0 ORDER BY e.key, e.step LIMIT ?"
)


class _Told(msgspec.Struct, gc=False):
    """The counted facts of an event; most of an event is other facts, which are not decoded."""

    approved: bool | None = None
    refuser: str = ""
    elapsed_ms: float | None = None
    size: int = 0
    failure: str = ""


_read_told = msgspec.json.Decoder(_Told).decode


class ToolFigures(msgspec.Struct, frozen=True):
    """How the calls of one tool ended, on one day or on all; times in milliseconds, waits in seconds.

    `success_rate` is the share among the calls that ran to an end. An approval is a decision of a person or a
    program. `failures` counts by class, `refusals` by the kind of refuser.
    """

    tool: str
    day: str
    calls: int
    done: int
    failed: int
    denied: int
    in_doubt: int
    open: int
    success_rate: float
    p50_ms: float
    p95_ms: float
    mean_size: float
    approvals: int
    wait_p50: float
    wait_p95: float
    failures: dict[str, int] = {}
    refusals: dict[str, int] = {}


class _Tally:
    """The counts of one tool."""

    __slots__ = ("failures", "refusals", "size", "states", "times", "waits")

    def __init__(self) -> None:
        self.states: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.times: list[float] = []
        self.waits: list[float] = []
        self.size = 0

    def add(self, moves: list[tuple[str, float, _Told]]) -> None:
        """Count a call."""
        asked = 0.0
        for state, at, told in moves:
            if state == State.AWAITING:
                asked = at
            elif told.approved is not None and asked and told.refuser != "timeout":
                # The wait must not be negative if the clock was set back in between.
                self.waits.append(max(0.0, at - asked))
                asked = 0.0
        state, _, told = moves[-1]
        self.states[state] += 1
        if told.elapsed_ms:
            self.times.append(told.elapsed_ms)
        if state == State.DONE:
            self.size += told.size
        elif state == State.FAILED:
            self.failures[told.failure or "unknown"] += 1
        elif state == State.DENIED:
            self.refusals[told.refuser or "unknown"] += 1

    def figures(self, tool: str, day: str) -> ToolFigures:
        """Return the figures."""
        states = self.states
        done, failed, denied = (states[word] for word in (State.DONE, State.FAILED, State.DENIED))
        doubtful = states[State.IN_DOUBT]
        times, waits = sorted(self.times), sorted(self.waits)
        calls = states.total()
        return ToolFigures(
            tool=tool,
            day=day,
            calls=calls,
            done=done,
            failed=failed,
            denied=denied,
            in_doubt=doubtful,
            open=calls - done - failed - denied - doubtful,
            success_rate=done / (done + failed) if done + failed else 0.0,
            p50_ms=percentile(times, 0.50),
            p95_ms=percentile(times, 0.95),
            mean_size=self.size / done if done else 0.0,
            approvals=len(waits),
            wait_p50=percentile(waits, 0.50),
            wait_p95=percentile(waits, 0.95),
            failures=dict(self.failures.most_common()),
            refusals=dict(self.refusals.most_common()),
        )


def tool_figures(
    journal: Tables, *, since: float = 0.0, tools: Sequence[str] = (), by_day: bool = False
) -> list[ToolFigures]:
    """Return the figures of every tool that was called since a time, by name; with `by_day`, day by day."""
    tallies: dict[tuple[str, str], _Tally] = {}
    for tool, began, moves in _calls(journal, since):
        if tools and tool not in tools:
            continue
        day = strftime("%Y-%m-%d", localtime(began)) if by_day else ""
        tallies.setdefault((day, tool), _Tally()).add(moves)
    return [tally.figures(tool, day) for (day, tool), tally in sorted(tallies.items())]


def _calls(journal: Tables, since: float) -> Iterator[tuple[str, float, list[tuple[str, float, _Told]]]]:
    """Return tool, time and moves of each call, in the order of keys."""
    with journal.looking() as ask:
        # Keys grow with time.
        ((first,),) = ask("SELECT COALESCE(MIN(key), 0) FROM calls WHERE at >= ?", (since,))
        last: tuple[Any, Any] = (first - 1, _LAST_STEP)
        call: tuple[int, str, float] = (0, "", 0.0)
        moves: list[tuple[str, float, _Told]] = []
        while first and (rows := ask(_MOVES, (*last, PAGE))):
            for key, _, tool, began, state, at, facts in rows:
                if key != call[0]:
                    if moves and call[2] >= since:
                        yield call[1], call[2], moves
                    call, moves = (key, tool, began), []
                moves.append((state, at, _read_told(facts)))
            last = rows[-1][0], rows[-1][1]
        if moves and call[2] >= since:
            yield call[1], call[2], moves


_LAST_STEP = 1 << 30


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile of values in ascending order; 0 when there are none."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else 0.0
