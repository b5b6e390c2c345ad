"""`gramercy traces`: recorded runs of agents, shown, compared, and run again without a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from gramercy.agents.agent import Agent
from gramercy.agents.base import Limits
from gramercy.agents.differences import differences, line_differences
from gramercy.agents.traces import load_traces, save_traces
from gramercy.agents.tracing import ReplayProvider, recorded_tools, replay_executor, traced
from gramercy.errors import SpecificationError
from gramercy.text import counted, cut_line
from gramercy.ui.cli.agents import Asking, calling_options, may_run, stoppable_runner
from gramercy.ui.cli.answers import LONGEST_LINE
from gramercy.ui.cli.main import FAILED
from gramercy.ui.cli.options import a_whole_file, json_option
from gramercy.ui.cli.terminal import json_text, prints_aside, show, tell
from gramercy.workbench.agents import open_workplace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gramercy.agents.differences import Difference
    from gramercy.agents.traces import Trace, TracedCall
    from gramercy.execution.executor import Executor
    from gramercy.tools.library import ToolLibrary
    from gramercy.workbench.agents import Plan

RUN = click.option(
    "--run",
    "number",
    type=click.IntRange(min=1),
    help="Which run of the file; by default all, in their order.",
)
FILE = click.Path(exists=True, dir_okay=False)
# Lines about one run on a screen: a model that goes in circles repeats the same call.
MOST_TOLD = 8


@click.group()
def group() -> None:
    """Show recorded runs of agents, compare them, and run them again without a model."""


@group.command("show")
@click.argument("file", type=FILE)
@RUN
@json_option("Print the runs as a list of objects.")
def show_traces(file: str, number: int | None, *, as_json: bool) -> None:
    """Show what happened in each run: the message, the calls with their results, the answer."""
    found = _chosen(file, number)
    if as_json:
        click.echo(json_text([trace_data(trace) for trace in found]))
        return
    show("\n\n".join("\n".join(_story(trace)) for trace in found))


def trace_data(trace: Trace) -> dict[str, Any]:
    """Return the stable shape of a trace in --json."""
    plain = msgspec.to_builtins(msgspec.structs.replace(trace.without_secrets(), agent=trace.agent.name))
    return {**plain, "model": str(trace.agent.model)}


def _chosen(file: str, number: int | None) -> Sequence[Trace]:
    found = load_traces(file)
    if number is None:
        return found
    if number > len(found):
        raise SpecificationError(f"{file} has {len(found)} runs, and no run {number}")
    return found[number - 1 : number]


def _story(trace: Trace) -> Iterator[str]:
    usage = trace.usage
    yield f"{trace.agent.name} of {trace.agent.model}, {trace.started}, {trace.seconds:.3f} s"
    yield f"> {trace.message}"
    for turn in trace.turns:
        if turn.calls and turn.text.strip():
            yield f"  {cut_line(turn.text, LONGEST_LINE)}"
        for call in turn.calls:
            yield f"→ {cut_line(f'{call.tool} {call.arguments}', LONGEST_LINE)}"
            yield f"← {_result(call)}  ({call.seconds * 1000:.1f} ms)"
    yield trace.answer or f"{trace.outcome}: {trace.error}"
    tokens = f"{usage.input:,} + {usage.output:,} tokens" if usage.total else "tokens not known"
    yield f"({counted(len(trace.turns), 'turn')}, {counted(len(trace.calls), 'call')}, {tokens})"


def _result(call: TracedCall) -> str:
    return (
        cut_line(call.result, LONGEST_LINE)
        if call.outcome == "done"
        else f"{call.outcome}: {cut_line(call.result, LONGEST_LINE)}"
    )


@group.command("diff")
@click.argument("one", type=FILE)
@click.argument("other", type=FILE)
@json_option("Print the differences of each pair of runs as a list of objects.")
def diff(one: str, other: str, *, as_json: bool) -> int:
    """Tell what differs between the runs of two files, the first with the first, and so on.

    Calls, results and answers count, times and tokens do not. The exit code is 1 when something differs.
    """
    return _compared(list(load_traces(one)), list(load_traces(other)), as_json=as_json)


def _compared(one: Sequence[Trace], other: Sequence[Trace], *, as_json: bool) -> int:
    found = [differences(left, right) for left, right in zip(one, other, strict=False)]
    if as_json:
        pairs = [{"run": n, "differences": msgspec.to_builtins(each)} for n, each in enumerate(found, 1)]
        click.echo(json_text({"runs": [len(one), len(other)], "pairs": pairs}))
    else:
        for number, each in enumerate(found, 1):
            if each:
                show(f"run {number}: {cut_line(one[number - 1].message, 100)}", bold=True)
            for line in told_differences(each):
                show(f"  {line}")
        if len(one) != len(other):
            show(f"{len(one)} runs and {len(other)}: the others have nothing beside them")
        elif not any(found):
            tell(f"the same calls, results and answers in {counted(len(one), 'run')}")
    return FAILED if any(found) or len(one) != len(other) else 0


@group.command("replay")
@click.argument("file", metavar="FILE.gram", type=FILE)
@RUN
@click.option(
    "--output",
    type=click.Path(dir_okay=False, writable=True),
    callback=a_whole_file,
    metavar="FILE.gram",
    help="Write the new traces.",
)
@calling_options
@json_option("Print the differences of each pair of runs as a list of objects.")
def replay(plan: Plan, number: int | None, *, output: str | None, as_json: bool) -> int:
    """Run recorded runs again, with the recorded answers of the model, and tell what differs.

    No model is asked. With --tools or --image the calls are made, by the rules, and dangerous ones ask;
    without, they get what was recorded, and nothing runs. The exit code is 1 when something differs.
    """
    runs_calls = bool(plan.origin.sources or plan.origin.language or plan.foreign.servers)
    if not runs_calls:
        _refuse_options_of_calls()
    old = [trace.without_secrets() for trace in _chosen(plan.file, number)]
    if runs_calls:
        with prints_aside(), open_workplace(plan, Asking(), tell, may_run=may_run) as place:
            new = [_again(trace, place.library, place.executor) for trace in old]
    else:
        new = [_again(trace, recorded_tools(trace), replay_executor()) for trace in old]
    if output is not None:
        save_traces(output, new)
    return _compared(old, [trace.without_secrets() for trace in new], as_json=as_json)


def _refuse_options_of_calls() -> None:
    """Refuse options about calls where no calls are made: they would be ignored silently."""
    context = click.get_current_context()
    given = [
        each.opts[0]
        for each in context.command.params
        if each.name not in ("file", "number", "output", "as_json")
        and context.get_parameter_source(each.name or "") is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(
            f"{' and '.join(given)}: without --tools, --image or --foreign a replay makes no calls"
        )


def _again(trace: Trace, library: ToolLibrary, executor: Executor) -> Trace:
    # Allow as many turns as were recorded. The replay has no answers for further turns.
    limits = Limits(turns=max(1, len(trace.turns)), calls=None, cost=None)
    options: dict[str, Any] = {"provider": ReplayProvider(trace), "executor": executor, "limits": limits}
    work = traced(Agent.from_specification(trace.agent), trace.message, library, **options)
    with stoppable_runner() as runner:
        found, _ = runner.run(work)
    return found


def told_differences(found: Sequence[Difference]) -> Iterator[str]:
    """Format differences as lines: the place, and below it both values."""
    for each in found[:MOST_TOLD]:
        yield f"{each.place}:"
        yield from (f"  {line}" for line in line_differences(each.before, each.after))
    if len(found) > MOST_TOLD:
        yield f"and {len(found) - MOST_TOLD:,} more differences: --json has them all"
