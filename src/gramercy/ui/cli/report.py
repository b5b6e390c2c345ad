"""A comparison as one HTML file with plots. The page loads nothing from elsewhere and runs no script.

Everything that models and tools have said is untrusted text. It is escaped, and secrets are masked.
"""

from __future__ import annotations

from html import escape
from math import ceil, log10
from typing import TYPE_CHECKING

from gramercy.agents.comparison import verdict
from gramercy.agents.differences import line_differences
from gramercy.errors import UnreadableFileError
from gramercy.images.files.whole import write_whole
from gramercy.text import cut, reason_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from gramercy.agents.comparison import CaseDifference, Comparison, Figure, Run, VariantFigures
    from gramercy.agents.differences import Difference

# The plots, in pixels. They fit a page of 800, and a phone scales them.
WIDTH, LEFT, RIGHT, ROW = 760, 170, 36, 34
# Characters of a name beside a plot. The tables have the whole names.
LONGEST_NAME = 22
# Lines of one difference. A page is scrolled, so it may have more than a screen.
MOST_LINES = 500
# Runs with a full story. More are in --json and in the traces.
MOST_RUNS = 500
HEAD = (
    "library",
    "success",
    "95 %",
    "median run (95 %)",
    "median of tools (95 %)",
    "calls",
    "tokens",
    "cost",
)
STYLE = """
:root { --ink: #1b1f24; --dim: #59636e; --paper: #fff; --line: #d1d9e0; --good: #1a7f37; --bad: #b42318;
  --mark: #0b57d0; --soft: #eef3fb; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --dim: #9aa4ae; --paper: #14181d;
  --line: #343b43; --good: #4ac26b; --bad: #ff8378; --mark: #7fb0ff; --soft: #1c2530; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 800px;
  margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3em .6em; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--dim); font-weight: 600; } .wide { overflow-x: auto; }
.good { color: var(--good); } .bad { color: var(--bad); } .dim { color: var(--dim); }
.verdict { background: var(--soft); padding: .8em 1em; border-radius: 6px; } .verdict p { margin: .3em 0; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font: 13px/1.45 ui-monospace, monospace;
  background: var(--soft); padding: .6em .8em; border-radius: 6px; }
ins { color: var(--good); text-decoration: none; } del { color: var(--bad); text-decoration: none; }
summary { cursor: pointer; } svg { width: 100%; height: auto; }
svg text { fill: var(--ink); font-size: 13px; }
svg .axis { stroke: var(--line); } svg .tick { fill: var(--dim); font-size: 12px; }
svg .bar { stroke: var(--mark); stroke-width: 3; } svg .dot { fill: var(--mark); }
svg .run { fill: var(--mark); opacity: .3; }
"""


def write_report(path: Path, found: Comparison, title: str) -> None:
    """Write the page."""
    try:
        write_whole(path, report_page(found, title))
    except OSError as error:
        raise UnreadableFileError(f"{path} cannot be written: {reason_of(error)}") from None


def report_page(found: Comparison, title: str) -> str:
    """Return the page as text."""
    body = "\n".join(_body(found, title))
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Comparison: {escape(title)}</title>\n<style>{STYLE}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n"
    )


def _body(found: Comparison, title: str) -> Iterator[str]:
    figures = found.figures()
    yield f"<h1>Comparison: {escape(title)}</h1>"
    yield f'<p class="dim">{escape(_about(found, figures))}</p>'
    for pair in found.pairs():
        told = "".join(f"<p>{escape(sentence)}</p>" for sentence in verdict(pair))
        yield f'<div class="verdict">{told}</div>'
    yield "<h2>Success</h2>"
    yield success_plot(figures)
    yield "<h2>Time of a run</h2>"
    yield time_plot("seconds of a run", [(each, _seconds(found, each)) for each in figures])
    if any(each.tool_seconds for each in figures):
        yield "<h2>Time of the tools in a run</h2>"
        timed = [(each, _tool_seconds(found, each)) for each in figures if each.tool_seconds]
        yield time_plot("seconds of tools in a run", timed)
    yield "<h2>Figures</h2>"
    yield _figures_table(figures)
    yield "<h2>Cases</h2>"
    yield _cases_table(found)
    yield from _difference_parts(found.differing())
    yield from _run_parts(found.runs)
    yield (
        '<p class="dim">Intervals are of 95 %: Wilson\'s for success, by bootstrap for medians of times. '
        "They speak of these cases, run again; other cases may come out differently.</p>"
    )


def _about(found: Comparison, figures: Sequence[VariantFigures]) -> str:
    models = ", ".join(dict.fromkeys(each.model for each in figures))
    first = min((run.trace.started for run in found.runs), default="")
    return (
        f"{len(found.runs)} runs of {len(found.cases)} cases with {len(figures)} libraries, {models}, {first}"
    )


def success_plot(figures: Sequence[VariantFigures]) -> str:
    """Draw rates of success with their intervals."""
    rows = [
        _row(place, each.name, each.rate, (0.0, 1.0), f"{each.successes} of {each.runs}")
        for place, each in enumerate(figures)
    ]
    ticks = [(value / 4, f"{value * 25} %") for value in range(5)]
    return _plot("rate of success", len(figures), ticks, rows)


def time_plot(what: str, timed: Sequence[tuple[VariantFigures, list[float]]]) -> str:
    """Draw every run as a dot, and medians with their intervals."""
    top = _ceiling(max((second for _, seconds in timed for second in seconds), default=1.0))
    rows = []
    for place, (figures, seconds) in enumerate(timed):
        figure = figures.seconds if what == "seconds of a run" else figures.tool_seconds
        dots = "".join(
            f'<circle class="run" cx="{_x(second / top):.1f}" cy="{_y(place):.1f}" r="4"/>'
            for second in seconds
        )
        assert figure is not None  # noqa: S101 - only those that have one are drawn
        rows.append(dots + _row(place, figures.name, figure, (0.0, top), time_text(figure.value)))
    ticks = [(value / 4, time_text(top * value / 4)) for value in range(5)]
    return _plot(what, len(timed), ticks, rows)


def _plot(what: str, rows: int, ticks: Sequence[tuple[float, str]], drawn: Iterable[str]) -> str:
    height = rows * ROW + 40
    axis = "".join(
        f'<line class="axis" x1="{_x(at):.1f}" x2="{_x(at):.1f}" y1="6" y2="{height - 24}"/>'
        f'<text class="tick" x="{_x(at):.1f}" y="{height - 8}" text-anchor="middle">{escape(label)}</text>'
        for at, label in ticks
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(what)}">'
        f"<title>{escape(what)}</title>{axis}{''.join(drawn)}</svg>"
    )


def _row(place: int, name: str, figure: Figure, ends: tuple[float, float], told: str) -> str:
    low, high = figure.interval or (figure.value, figure.value)
    at, left, right = (_x((value - ends[0]) / (ends[1] - ends[0])) for value in (figure.value, low, high))
    y, shown = _y(place), cut(name, LONGEST_NAME)
    return (
        f'<text x="{LEFT - 14}" y="{y + 4:.1f}" text-anchor="end">{escape(shown)}</text>'
        f'<line class="bar" x1="{left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<circle class="dot" cx="{at:.1f}" cy="{y:.1f}" r="6">'
        f"<title>{escape(f'{name}: {told}')}</title></circle>"
    )


def _x(share: float) -> float:
    return LEFT + min(1.0, max(0.0, share)) * (WIDTH - LEFT - RIGHT)


def _y(place: int) -> float:
    return 6 + ROW * (place + 0.5)


def _ceiling(value: float) -> float:
    """Return the next of 1, 2, 4, 5, 10 … above a value, for round numbers on the axis."""
    if value <= 0:
        return 1.0
    size = 10.0 ** ceil(log10(value) - 1)
    return next((size * step for step in (1, 2, 4, 5) if value <= size * step), size * 10)


def _seconds(found: Comparison, figures: VariantFigures) -> list[float]:
    return [run.trace.seconds for run in found.of(figures.name)]


def _tool_seconds(found: Comparison, figures: VariantFigures) -> list[float]:
    return [run.trace.tool_seconds for run in found.of(figures.name) if run.trace.tool_seconds]


def time_text(seconds: float) -> str:
    """Format a time."""
    return f"{seconds:.3g} s" if seconds >= 1 or seconds == 0 else f"{seconds * 1000:.3g} ms"


def _figures_table(figures: Sequence[VariantFigures]) -> str:
    return _table(HEAD, [[escape(cell) for cell in figures_cells(each)] for each in figures])


def figures_cells(each: VariantFigures) -> list[str]:
    """Return the row of a library, in the columns of HEAD."""
    low, high = each.rate.interval or (0.0, 1.0)
    return [
        each.name,
        f"{each.successes} of {each.runs}",
        f"{low:.0%} to {high:.0%}",
        _figure(each.seconds),
        _figure(each.tool_seconds),
        f"{each.calls:.1f}",
        f"{each.usage.input:,} + {each.usage.output:,}",
        "N/A" if each.cost is None else f"${each.cost:.4f}",
    ]


def _figure(figure: Figure | None) -> str:
    if figure is None:
        return ""
    ends = figure.interval
    return time_text(figure.value) + (f" ({time_text(ends[0])} to {time_text(ends[1])})" if ends else "")


def _cases_table(found: Comparison) -> str:
    names = [variant.name for variant in found.variants]
    rows = []
    for case in found.cases:
        made = [found.of(name, case.name) for name in names]
        rows.append([escape(case.name), *map(_case_cell, made)])
    return _table(["case", *names], rows)


def _case_cell(made: Sequence[Run]) -> str:
    good = sum(run.ok for run in made)
    whole = good == len(made)
    why = "".join(f'<br><span class="dim">{escape(each)}</span>' for each in _failures(made))
    kind, mark = ("good", "✓") if whole else ("bad", "✗")
    return f'<span class="{kind}">{mark} {good} of {len(made)}</span>{why}'


def _failures(made: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(failure for run in made for failure in run.failures))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table. The cells are HTML already, the head is text."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{top}</tr>{body}</table></div>'


def _difference_parts(found: Sequence[CaseDifference]) -> Iterator[str]:
    if not found:
        return
    yield "<h2>Differences</h2>"
    for each in found:
        times = f", in {each.differing} of {each.repeats} runs" if each.repeats > 1 else ""
        yield f"<details open><summary>{escape(f'{each.case}: {each.one} and {each.other}{times}')}</summary>"
        yield from map(_difference, each.differences)
        yield "</details>"


def _difference(each: Difference) -> str:
    marks = {"-": "del", "+": "ins"}
    lines = []
    for line in line_differences(each.before, each.after, MOST_LINES):
        tag = marks.get(line[:1])
        lines.append(f"<{tag}>{escape(line)}</{tag}>" if tag else escape(line))
    return f"<p>{escape(each.place)}</p><pre>{chr(10).join(lines)}</pre>"


def _run_parts(made: Sequence[Run]) -> Iterator[str]:
    yield "<h2>Runs</h2>"
    for run in made[:MOST_RUNS]:
        mark = '<span class="good">✓</span>' if run.ok else '<span class="bad">✗</span>'
        about = escape(f"{run.case}, {run.variant}, run {run.repeat}, {time_text(run.trace.seconds)}")
        yield f"<details><summary>{mark} {about}</summary><pre>{escape(_story(run))}</pre></details>"
    if len(made) > MOST_RUNS:
        yield f'<p class="dim">and {len(made) - MOST_RUNS:,} more: see --json or --traces</p>'


def _story(run: Run) -> str:
    trace = run.trace.without_secrets()
    lines = [f"> {trace.message}"]
    for call in trace.calls:
        failed = "" if call.outcome == "done" else f"{call.outcome}: "
        lines += [f"→ {call.said}", f"← {failed}{call.result}  ({time_text(call.seconds)})"]
    return "\n".join([*lines, trace.answer or f"{trace.outcome}: {trace.error}", *run.failures])
