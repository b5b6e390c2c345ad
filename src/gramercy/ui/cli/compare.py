"""`gramercy compare`: one agent, several libraries, the same cases; figures with their intervals."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from gramercy.agents.cases import load_cases
from gramercy.agents.comparison import Comparison, Variant, runs, verdict
from gramercy.errors import SourceError, SpecificationError
from gramercy.execution.approval import Denied
from gramercy.execution.results import Refuser
from gramercy.gram.agents import ModelName
from gramercy.text import counted, cut_line, reason_of, table
from gramercy.ui.cli.agents import agent_options, stoppable_runner
from gramercy.ui.cli.approval import one_at_a_time
from gramercy.ui.cli.asking import why_nobody
from gramercy.ui.cli.main import BUDGET, FAILED, INTERRUPTED
from gramercy.ui.cli.options import in_a_directory, json_option
from gramercy.ui.cli.report import HEAD, figures_cells, time_text, write_report
from gramercy.ui.cli.terminal import json_text, prints_aside, show, tell
from gramercy.ui.cli.traces import told_differences
from gramercy.workbench.agent_files import read_agent
from gramercy.workbench.agents import open_workplace
from gramercy.workbench.sources import load_tools
from gramercy.workbench.workplace import with_model

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gramercy.agents.cases import Case
    from gramercy.agents.comparison import Run
    from gramercy.execution.approval import ApprovalRequest, Decision
    from gramercy.tools.library import ToolLibrary
    from gramercy.tools.tool import Tool
    from gramercy.workbench.agents import Plan
    from gramercy.workbench.workplace import Workplace

# A comparison makes many calls, and no person returns to them. An open question would stay unanswered.
UNATTENDED = Denied(
    "a comparison without a terminal asks nobody: allow the tool with a rule (--policy)", Refuser.APPROVER
)


def _models(ctx: click.Context, param: click.Parameter, words: tuple[str, ...]) -> tuple[ModelName, ...]:
    try:
        return tuple(ModelName.parse(word) for word in words)
    except SpecificationError as error:
        raise click.BadParameter(str(error), ctx, param) from None


@click.command()
@click.argument("file", metavar="AGENT.gram", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--library",
    "libraries",
    multiple=True,
    required=True,
    metavar="[NAME=]FILE.py|MODULE",
    help="An implementation of the agent's tools; the first one is what the others are compared with. Files "
    "of the same NAME are one library.",
)
@click.option(
    "--cases",
    "cases_file",
    required=True,
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE.jsonl|FILE.gram",
    help="What to run it on: one JSON object on a line, or recorded traces, whose model answers again.",
)
@click.option(
    "--against",
    "models",
    multiple=True,
    metavar="PROVIDER/ID",
    callback=_models,
    help="Also run each library with this model; may be given several times.",
)
@click.option(
    "--repeat", type=click.IntRange(1, 1000), default=1, show_default=True, help="Runs of each case."
)
@click.option(
    "--total-budget",
    type=click.FloatRange(min=0),
    metavar="DOLLARS",
    help="Stop when all runs together have cost this.",
)
@click.option(
    "--html",
    "page",
    type=click.Path(dir_okay=False, writable=True),
    callback=in_a_directory,
    metavar="FILE.html",
    help="Also write a report with plots, in one file that loads nothing from elsewhere.",
)
@click.option(
    "--traces",
    "folder",
    type=click.Path(file_okay=False),
    callback=in_a_directory,
    metavar="DIRECTORY",
    help="Also write every run as a trace, in one file for each library.",
)
@agent_options
@json_option("Print figures, differences and all runs as JSON.")
def compare(  # noqa: PLR0913 - one parameter per option
    plan: Plan,
    libraries: Sequence[str],
    cases_file: str,
    models: Sequence[ModelName],
    *,
    repeat: int,
    total_budget: float | None,
    page: str | None,
    folder: str | None,
    as_json: bool,
) -> int:
    """Run an agent on the same cases with several libraries, and tell what differs and how sure that is.

    Runs stand side by side in time. The exit code is 1 when some run was not as its case expects.
    """
    if plan.origin.language or plan.foreign.servers:
        raise click.UsageError(
            "a comparison takes no --image and no --foreign: an image or a server keeps state between runs, "
            "so that one run would change the next; its libraries are files and modules"
        )
    named = _named(libraries, plan.origin.sources)
    cases, traces_folder = load_cases(cases_file), _folder(folder)
    loaded = _loaded(plan, named)
    name, first = next(iter(loaded.items()))
    whole = msgspec.structs.replace(plan.origin, sources=named[name])
    joined = msgspec.structs.replace(plan, origin=whole)
    with prints_aside(), open_workplace(joined, _ask, tell, tools=first) as place:
        variants = _variants(place, loaded, models)
        if any(not case.brings_model for case in cases):
            for variant in variants:
                place.provider(variant.agent.model)
        work = _Work(place, total_budget, quiet=as_json)
        code = work.run(variants, cases, repeat)
    found = Comparison(variants, cases, work.done)
    _report(found, as_json=as_json)
    if traces_folder is not None:
        _write_traces(traces_folder, found)
    if page is not None:
        write_report(Path(page), found, plan.file)
    return code or (0 if found.ok else FAILED)


def _ask(tool: Tool, arguments: dict[str, Any], request: ApprovalRequest) -> Decision:
    return UNATTENDED if why_nobody() else one_at_a_time(tool, arguments, request)


def _named(libraries: Sequence[str], shared: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the sources of each library by name. Shared sources come before its own."""
    found: dict[str, tuple[str, ...]] = {}
    plain: set[str] = set()
    for word in libraries:
        name, equals, source = word.partition("=")
        if not equals:
            name, source = Path(word).stem if word.endswith(".py") else word, word
        if not name or not source:
            raise click.BadParameter(f"{word!r} is not [NAME=]FILE.py", param_hint="--library")
        if name in found and (not equals or name in plain):
            raise click.BadParameter(
                f"two libraries are named {name!r}: write NAME=FILE.py", param_hint="--library"
            )
        if not equals:
            plain.add(name)
        found[name] = (*found.get(name, shared), source)
    return found


def _loaded(plan: Plan, named: dict[str, tuple[str, ...]]) -> dict[str, ToolLibrary]:
    """Load the libraries. Tools of the agent that cannot be bound are reported for all libraries at once."""
    found, faults = {}, []
    for name, sources in named.items():
        library = found[name] = load_tools(*sources).library()
        try:
            read_agent(plan.file, plan.name, library)
        except SourceError as error:
            faults.append(f"with {name}:\n{error}")
    if faults:
        raise SourceError("\n".join(faults))
    return found


def _variants(
    place: Workplace, libraries: dict[str, ToolLibrary], models: Sequence[ModelName]
) -> list[Variant]:
    """Return the variants: every library, with every model where there are several."""
    agents = list(dict.fromkeys([place.agent.model, *models]))
    return [
        Variant(f"{name} of {model}" if models else name, with_model(place.agent, model), library)
        for name, library in libraries.items()
        for model in agents
    ]


class _Work:
    """The runs of a comparison, kept as they end: after Ctrl-C or a spent budget they are still reported."""

    def __init__(self, place: Workplace, budget: float | None, *, quiet: bool) -> None:
        self._place, self._budget, self._is_quiet = place, budget, quiet
        self.done: list[Run] = []

    def run(self, variants: Sequence[Variant], cases: Sequence[Case], repeat: int) -> int:
        total = len(variants) * len(cases) * repeat
        sides = counted(len(variants), "side")
        tell(f"{total} runs: {len(cases)} cases, {sides}, {repeat} times" if repeat > 1 else f"{total} runs")
        try:
            with stoppable_runner() as runner:
                return runner.run(self._all(variants, cases, repeat, total))
        except KeyboardInterrupt:
            tell(f"interrupted after {len(self.done)} of {total} runs: these are reported")
            return INTERRUPTED

    async def _all(self, variants: Sequence[Variant], cases: Sequence[Case], repeat: int, total: int) -> int:
        place = self._place
        options: dict[str, Any] = {"executor": place.executor, "limits": place.limits}
        try:
            async for run in runs(variants, cases, repeat=repeat, providers=place.provider, **options):
                self.done.append(run)
                self._tell(run, total)
                if self._budget is not None and self._cost() >= self._budget and len(self.done) < total:
                    tell(
                        f"the budget of {self._budget:g} $ is used up after {len(self.done)} of {total} runs"
                    )
                    return BUDGET
        finally:
            await place.aclose()
        return 0

    def _cost(self) -> float:
        return sum(run.trace.cost or 0.0 for run in self.done)

    def _tell(self, run: Run, total: int) -> None:
        if not self._is_quiet:
            outcome = "ok" if run.ok else cut_line(run.failures[0], 120)
            about = f"{len(self.done)}/{total}  {run.case}  {run.variant}  {time_text(run.trace.seconds)}"
            show(f"{about}  {outcome}", err=True, fg=None if run.ok else "red", dim=run.ok)


def _folder(folder: str | None) -> Path | None:
    """Create the directory for traces before anything runs, so that a failure is reported at once."""
    if folder is None:
        return None
    try:
        Path(folder).mkdir(exist_ok=True)
    except OSError as error:
        raise click.BadParameter(
            f"{folder} cannot be made: {reason_of(error)}", param_hint="--traces"
        ) from None
    return Path(folder)


def _write_traces(folder: Path, found: Comparison) -> None:
    from gramercy.agents.traces import save_traces

    taken: set[str] = set()
    for variant in found.variants:
        made = [run.trace for run in found.of(variant.name)]
        if made:
            name = _file_name(variant.name, taken)
            taken.add(name)
            place = folder / f"{name}.gram"
            save_traces(place, made)
            tell(f"traces of {variant.name}: {place}")


def _file_name(variant: str, taken: set[str]) -> str:
    """Return a file name for a variant. Names that differ only in replaced characters are numbered."""
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in variant)
    return next(
        each for each in (name, *(f"{name}-{n}" for n in range(2, len(taken) + 3))) if each not in taken
    )


def _report(found: Comparison, *, as_json: bool) -> None:
    if as_json:
        click.echo(json_text(found.to_json()))
    elif found.runs:
        for part in _parts(found):
            show(part)


def _parts(found: Comparison) -> Iterator[str]:
    yield table([HEAD, *map(figures_cells, found.figures())])
    yield ""
    names = [variant.name for variant in found.variants]
    yield table([("case", *names), *(_case_row(found, case.name, names) for case in found.cases)])
    failed = Counter((run.case, run.variant, failure) for run in found.runs for failure in run.failures)
    if failed:
        yield "\nnot as expected:"
    for (case, name, failure), count in failed.items():
        of = len(found.of(name, case))
        yield f"  {case}, {name}{f', {count} of {of}' if of > 1 else ''}: {failure}"
    for each in found.differing():
        times = f" in {each.differing} of {each.repeats} runs" if each.repeats > 1 else ""
        yield f"\n{each.case}: {each.one} and {each.other} differ{times}"
        yield from (f"  {line}" for line in told_differences(each.differences))
    for pair in found.pairs():
        yield ""
        yield from verdict(pair)


def _case_row(found: Comparison, case: str, names: Sequence[str]) -> tuple[str, ...]:
    made = [found.of(name, case) for name in names]
    return (cut_line(case, 50), *(f"{sum(run.ok for run in each)} of {len(each)}" for each in made))
