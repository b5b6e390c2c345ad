"""Confidence of figures: 95 % intervals and paired tests, without assumptions about how times vary.

All of them are about the cases that were run: the result of running the same cases again, not others.
"""

from __future__ import annotations

from itertools import product
from math import comb, exp, log, sqrt
from random import Random
from statistics import fmean, median
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Interval: TypeAlias = tuple[float, float]
# The quantile of the normal distribution for 95 % on both sides.
Z = 1.959964
# Enough that the ends of an interval move by less than a person reads off.
RESAMPLES = 2_000
# Up to here every way to swap the pairs is tried (4,096 of them); above, RESAMPLES ways are drawn.
MOST_EXACT = 12
# The same runs always give the same figures.
SEED = 20_260_101


def wilson(successes: int, runs: int) -> Interval:
    """Return the interval of a rate of success (Wilson's score interval, good for few runs and for 0 %)."""
    if not runs:
        return 0.0, 1.0
    rate, square = successes / runs, Z * Z
    middle = (rate + square / (2 * runs)) / (1 + square / runs)
    half = Z / (1 + square / runs) * sqrt(rate * (1 - rate) / runs + square / (4 * runs * runs))
    return max(0.0, middle - half), min(1.0, middle + half)


def bootstrap(
    values: Sequence[float], figure: Callable[[Sequence[float]], float] = median
) -> Interval | None:
    """Return the bootstrap interval of a figure of these values; None for fewer than two values."""
    if len(values) < 2:  # noqa: PLR2004 - one value says nothing of how much values differ
        return None
    draw = Random(SEED)  # noqa: S311 - figures, not secrets
    figures = sorted(figure(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return figures[int(RESAMPLES * 0.025)], figures[int(RESAMPLES * 0.975) - 1]


def mcnemar(only_one: int, only_other: int) -> float:
    """Return how often chance makes successes differ at least this much (McNemar's exact test).

    The arguments count the pairs of runs in which only the one or only the other succeeded.
    """
    total = only_one + only_other
    if not total:
        return 1.0
    tail = sum(comb(total, k) for k in range(min(only_one, only_other) + 1))
    return float(min(1.0, 2 * tail / 2**total))


def sign_flip(values: Sequence[float]) -> float:
    """Return how often chance makes the mean of paired differences this large (permutation test)."""
    if not any(values):
        return 1.0
    seen, n = abs(sum(values)), len(values)
    if n <= MOST_EXACT:
        sums = [
            abs(sum(s * v for s, v in zip(signs, values, strict=True)))
            for signs in product((1, -1), repeat=n)
        ]
        return sum(each >= seen * (1 - 1e-9) for each in sums) / len(sums)
    draw = Random(SEED)  # noqa: S311 - figures, not secrets
    drawn = (abs(sum(v if draw.random() < 0.5 else -v for v in values)) for _ in range(RESAMPLES))  # noqa: PLR2004
    # The observed order is one of them, so that p is never zero.
    return (1 + sum(each >= seen * (1 - 1e-9) for each in drawn)) / (RESAMPLES + 1)


def ratio(pairs: Sequence[tuple[float, float]]) -> tuple[float, Interval | None, float]:
    """Return how many times longer the second of each pair took, its interval, and the p of no difference."""
    logs = [log(other / one) for one, other in pairs]
    found = bootstrap(logs, fmean)
    return exp(fmean(logs)), None if found is None else (exp(found[0]), exp(found[1])), sign_flip(logs)
