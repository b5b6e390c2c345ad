"""Compare implementations: the same agent, the same cases, with each library, and how sure the figures are.

Runs of one case follow each other directly, in alternating order, so that a slow minute affects all variants.
"""

from __future__ import annotations

from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from gramercy.agents.base import Limits
from gramercy.agents.differences import Difference, differences
from gramercy.agents.intervals import Interval, bootstrap, mcnemar, ratio, wilson
from gramercy.agents.tracing import ReplayProvider, tools_of, traced
from gramercy.errors import AgentError, BindingError
from gramercy.journal.texts import masked
from gramercy.providers.base import Usage
from gramercy.providers.scripted import ScriptedProvider
from gramercy.tools.library import ToolLibrary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence

    from gramercy.agents.agent import Agent
    from gramercy.agents.cases import Case
    from gramercy.agents.traces import Trace
    from gramercy.gram.agents import ModelName
    from gramercy.providers.base import Provider
    from gramercy.tools.tool import Tool

# A difference that is less likely by chance counts as a difference.
SIGNIFICANT = 0.05


class Variant(msgspec.Struct, frozen=True):
    """One side of a comparison: an agent with a library, under the name that reports give it."""

    name: str
    agent: Agent
    library: ToolLibrary


class Run(msgspec.Struct, frozen=True):
    """One run of a case; `failures` are the unmet expectations."""

    case: str
    variant: str
    repeat: int
    trace: Trace
    failures: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether all expectations were met."""
        return not self.failures


class Figure(msgspec.Struct, frozen=True):
    """A figure with its 95 % interval; None if there is only one value."""

    value: float
    interval: Interval | None = None


class Ratio(msgspec.Struct, frozen=True):
    """How many times as long the second takes, and how often chance alone gives such a difference.

    `pairs` is the number of runs that it is based on: those in which both sides took time.
    """

    value: float
    interval: Interval | None
    p: float
    pairs: int


class VariantFigures(msgspec.Struct, frozen=True):
    """The figures of one side; seconds are medians, `cost` is None if a price is unknown."""

    name: str
    model: str
    runs: int
    successes: int
    rate: Figure
    seconds: Figure
    tool_seconds: Figure | None
    calls: float
    usage: Usage
    cost: float | None


class PairFigures(msgspec.Struct, frozen=True):
    """Two sides, run by run: in how many only one succeeded, how many were alike, and the times."""

    one: str
    other: str
    pairs: int
    both: int
    only_one: int
    only_other: int
    neither: int
    success_p: float
    alike: int
    time: Ratio | None
    tool_time: Ratio | None


class CaseDifference(msgspec.Struct, frozen=True):
    """The differences between two sides in a case, and how many of its repeats differ."""

    case: str
    one: str
    other: str
    repeats: int
    differing: int
    differences: tuple[Difference, ...]


async def runs(
    variants: Sequence[Variant],
    cases: Sequence[Case],
    *,
    repeat: int = 1,
    providers: Callable[[ModelName], Provider] | None = None,
    **options: Any,
) -> AsyncIterator[Run]:
    """Run every case with every variant, and yield each run as it ends; takes the options of Agent.stream.

    An unavailable model or tools that cannot be bound end it before anything has run.
    """
    check_bound(variants)
    for number in range(1, repeat + 1):
        for place, case in enumerate(cases):
            turned = variants if (number + place) % 2 else variants[::-1]
            for variant in turned:
                trace = await _run(variant, case, providers, options)
                failures = tuple(map(masked, case.expect.failures(trace)))
                yield Run(case.name, variant.name, number, trace, failures)


async def _run(
    variant: Variant,
    case: Case,
    providers: Callable[[ModelName], Provider] | None,
    options: dict[str, Any],
) -> Trace:
    provider = _provider_of(case)
    if provider is not None:
        # Recorded answers cost nothing now, whatever their model once charged.
        options = {**options, "limits": replace(options.get("limits") or Limits(), cost=None)}
    sides: dict[str, Any] = {"provider": provider, "providers": providers}
    trace, _ = await traced(variant.agent, case.message, variant.library, **sides, **options)
    return trace if provider is None else replace(trace, cost=0.0)


async def compare(
    agent: Agent,
    libraries: Mapping[str, ToolLibrary | Iterable[Tool]],
    cases: Sequence[Case],
    **options: Any,
) -> Comparison:
    """Run the cases with each library and return all runs; takes the arguments of `runs`."""
    variants = [
        Variant(name, agent, each if isinstance(each, ToolLibrary) else ToolLibrary.of(each))
        for name, each in libraries.items()
    ]
    return Comparison(variants, cases, [run async for run in runs(variants, cases, **options)])


def _provider_of(case: Case) -> Provider | None:
    """Return the provider of a case that includes the model's answers."""
    if case.trace is not None:
        return ReplayProvider(case.trace)
    return ScriptedProvider(*case.script) if case.script else None


def check_bound(variants: Sequence[Variant]) -> None:
    """Refuse libraries to which the agent cannot be bound, with every mismatch of each."""
    if len({variant.name for variant in variants}) < len(variants):
        raise AgentError("two sides of the comparison have the same name: name them apart")
    faults = []
    for variant in variants:
        try:
            whole = ToolLibrary.of({**variant.agent.library, **variant.library}.values())
            for tool in whole.bind_all(tools_of(variant.agent.specification).values()):
                # It is made when first used; that time must not count for the first run.
                _ = tool.checker.validator
        except BindingError as error:
            faults.append(f"{variant.name}: {error}")
    if faults:
        raise BindingError("\n".join(faults))


class Comparison:
    """The runs of a comparison, also of an interrupted one, and their figures."""

    def __init__(self, variants: Sequence[Variant], cases: Sequence[Case], done: Iterable[Run]) -> None:
        self.variants, self.cases = tuple(variants), tuple(cases)
        self.runs = tuple(done)

    @property
    def ok(self) -> bool:
        """Whether every run met its expectations."""
        return all(run.ok for run in self.runs)

    def of(self, variant: str, case: str | None = None) -> list[Run]:
        """Return the runs of one side, of one case or of all."""
        return [run for run in self.runs if run.variant == variant and case in (None, run.case)]

    def figures(self) -> list[VariantFigures]:
        """Return the figures of each side that has run."""
        return [
            _figures(each.name, str(each.agent.model), found)
            for each in self.variants
            if (found := self.of(each.name))
        ]

    def pairs(self) -> list[PairFigures]:
        """Return the pairs of the first side with each of the others."""
        return [_pair(one, other, found) for one, other, found in self._sides() if found]

    def differing(self) -> list[CaseDifference]:
        """Return the cases in which something differs between the first side and another."""
        found = []
        for one, other, pairs in self._sides():
            for case in self.cases:
                of_case = [pair for pair in pairs if pair[0].case == case.name]
                seen = [each for each in map(_differences, of_case) if each]
                if seen:
                    found.append(CaseDifference(case.name, one, other, len(of_case), len(seen), seen[0]))
        return found

    def _sides(self) -> Iterator[tuple[str, str, list[tuple[Run, Run]]]]:
        if not self.variants:
            return
        first = self.variants[0].name
        by_place = {(run.variant, run.case, run.repeat): run for run in self.runs}
        for variant in self.variants[1:]:
            others = ((run, by_place.get((variant.name, run.case, run.repeat))) for run in self.of(first))
            yield first, variant.name, [(run, other) for run, other in others if other is not None]

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values, with dots for secrets."""
        plain = msgspec.to_builtins
        return {
            "variants": plain(self.figures()),
            "pairs": [{**plain(each), "verdict": list(verdict(each))} for each in self.pairs()],
            "differences": plain(self.differing()),
            "runs": [_run_json(run) for run in self.runs],
        }


def _run_json(run: Run) -> dict[str, Any]:
    trace = replace(run.trace.without_secrets(), agent=run.trace.agent.name)
    about = {"case": run.case, "variant": run.variant, "repeat": run.repeat, "ok": run.ok}
    return {**about, "failures": list(run.failures), "trace": msgspec.to_builtins(trace)}


def _differences(pair: tuple[Run, Run]) -> tuple[Difference, ...]:
    one, other = (run.trace.without_secrets() for run in pair)
    # The sides differ in their tools on purpose.
    return tuple(each for each in differences(one, other) if each.kind != "agent")


def _figures(name: str, model: str, found: list[Run]) -> VariantFigures:
    successes = sum(run.ok for run in found)
    seconds = [run.trace.seconds for run in found]
    tools = [run.trace.tool_seconds for run in found if run.trace.tool_seconds]
    costs = [run.trace.cost for run in found]
    return VariantFigures(
        name,
        model,
        len(found),
        successes,
        Figure(successes / len(found), wilson(successes, len(found))),
        Figure(median(seconds), bootstrap(seconds)),
        Figure(median(tools), bootstrap(tools)) if tools else None,
        fmean(len(run.trace.calls) for run in found),
        sum((run.trace.usage for run in found), Usage()),
        None if None in costs else sum(cost for cost in costs if cost is not None),
    )


def _pair(one: str, other: str, pairs: list[tuple[Run, Run]]) -> PairFigures:
    outcomes = [(left.ok, right.ok) for left, right in pairs]
    only_one, only_other = outcomes.count((True, False)), outcomes.count((False, True))
    return PairFigures(
        one,
        other,
        len(pairs),
        outcomes.count((True, True)),
        only_one,
        only_other,
        outcomes.count((False, False)),
        mcnemar(only_one, only_other),
        sum(not _differences(pair) for pair in pairs),
        _ratio([(left.trace.seconds, right.trace.seconds) for left, right in pairs]),
        _ratio([(left.trace.tool_seconds, right.trace.tool_seconds) for left, right in pairs]),
    )


def _ratio(pairs: list[tuple[float, float]]) -> Ratio | None:
    timed = [pair for pair in pairs if all(pair)]
    return Ratio(*ratio(timed), len(timed)) if timed else None


def verdict(pair: PairFigures) -> Iterator[str]:
    """Say in sentences what the runs of two sides show, and what they do not."""
    yield _success_verdict(pair)
    if pair.tool_time is not None:
        yield _time_verdict(pair, pair.tool_time, "the tools of")
    if pair.time is not None:
        yield _time_verdict(pair, pair.time, "runs with")
    yield f"{pair.alike} of {pair.pairs} pairs of runs made the same calls with the same results and answers."


def _success_verdict(pair: PairFigures) -> str:
    one, other = pair.both + pair.only_one, pair.both + pair.only_other
    if one == other:
        return f"{pair.other} succeeds as often as {pair.one}: {other} of {pair.pairs}."
    word = "more" if other > one else "less"
    told = f"{pair.other} succeeds {word} often than {pair.one}: {other} of {pair.pairs} beside {one}"
    return f"{told}; {_chance(pair.success_p, pair.only_one + pair.only_other)}."


def _time_verdict(pair: PairFigures, time: Ratio, what: str) -> str:
    told = f"{what} {pair.other} take {time.value:.2f} times as long as {what} {pair.one}"
    if time.interval is not None:
        told += f" ({time.interval[0]:.2f} to {time.interval[1]:.2f})"
    told = f"{told[0].upper()}{told[1:]}"
    return f"{told}; {_chance(time.p, time.pairs)}."


def _chance(p: float, informative: int) -> str:
    """Say how sure a difference is; with few pairs even the smallest possible p may not be significant."""
    if p < SIGNIFICANT:
        return f"on these cases chance alone hardly does that (p = {p:.2g})"
    if 2 / 2**informative >= SIGNIFICANT:
        return "these are too few runs to tell it from chance: use more cases or --repeat"
    return f"that may be chance (p = {p:.2g})"
