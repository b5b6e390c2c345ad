"""A tiny measuring kit: contenders take turns within one run, so that noise hits all of them alike.

It knows nothing of tools or peers; it times callables and child processes.
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import time
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Sequence


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure: rounds for callables and children, seconds per batch."""

    rounds: int
    batch_seconds: float
    process_rounds: int
    quick: bool

    @classmethod
    def full(cls) -> Effort:
        """Measure for figures that are published."""
        return cls(rounds=31, batch_seconds=0.02, process_rounds=21, quick=False)

    @classmethod
    def smoke(cls) -> Effort:
        """Measure just enough to see that everything runs."""
        return cls(rounds=5, batch_seconds=0.005, process_rounds=3, quick=True)


@dataclass(frozen=True, slots=True)
class Contender:
    """Something that can do its work `count` times in a row."""

    name: str
    run: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Reading:
    """The samples of one contender, one per round, in seconds for one piece of work."""

    name: str
    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle sample in seconds."""
        return statistics.median(self.samples)

    def ratio_to(self, other: Reading) -> float:
        """Return how many times the other's cost this is: the median of the rounds' own ratios."""
        return statistics.median(a / b for a, b in zip(self.samples, other.samples, strict=True))


def repeat_call(call: Callable[[], Any]) -> Callable[[int], None]:
    """Turn a callable without arguments into a run of `count` calls."""

    def run(count: int) -> None:
        for _ in repeat(None, count):
            call()

    return run


def repeat_await(
    loop: asyncio.AbstractEventLoop, call: Callable[[], Awaitable[Any]]
) -> Callable[[int], None]:
    """Turn a coroutine function into a run of `count` awaits inside one entry of the loop."""

    async def many(count: int) -> None:
        for _ in repeat(None, count):
            await call()

    def run(count: int) -> None:
        loop.run_until_complete(many(count))

    return run


def _cpu_of(run: Callable[[int], None], count: int) -> float:
    started = time.process_time()
    run(count)
    return time.process_time() - started


def calibrate(run: Callable[[int], None], seconds: float) -> int:
    """Find how many calls fill a batch; also the warm-up."""
    count = 1
    while (spent := _cpu_of(run, count)) < seconds / 4:
        count *= 4 if spent < seconds / 40 else 2
    return max(1, round(count * seconds / max(spent, 1e-9)))


def take_turns(contenders: Sequence[Contender], effort: Effort) -> dict[str, Reading]:
    """Measure CPU time per call, one batch of each contender per round, the order rotated every round."""
    counts = {c.name: calibrate(c.run, effort.batch_seconds) for c in contenders}
    samples: dict[str, list[float]] = {c.name: [] for c in contenders}
    gc.collect()
    gc.freeze()  # what the peers loaded must not be walked again at somebody else's cost
    for turn in range(effort.rounds):
        first = turn % len(contenders)
        for contender in (*contenders[first:], *contenders[:first]):
            count = counts[contender.name]
            samples[contender.name].append(_cpu_of(contender.run, count) / count)
    gc.unfreeze()
    return {name: Reading(name, tuple(values)) for name, values in samples.items()}


def time_once(work: Callable[[], Any]) -> float:
    """Return the CPU seconds of one piece of work."""
    started = time.process_time()
    work()
    return time.process_time() - started


def take_turns_in_children(commands: dict[str, Sequence[str]], effort: Effort) -> dict[str, Reading]:
    """Measure the CPU time (user and system) of child processes, in turns; the first turn only warms up."""
    samples: dict[str, list[float]] = {name: [] for name in commands}
    names = list(commands)
    for turn in range(effort.process_rounds + 1):
        first = turn % len(names)
        for name in (*names[first:], *names[:first]):
            spent = _cpu_of_child(commands[name])
            if turn:
                samples[name].append(spent)
    return {name: Reading(name, tuple(values)) for name, values in samples.items()}


def _cpu_of_child(command: Sequence[str]) -> float:
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise RuntimeError(f"exit code {child.returncode} from {' '.join(command[1:])}")
    return usage.ru_utime + usage.ru_stime
