"""`gramercy tools stats`: figures of tools, from the journal of all processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from gramercy.journal.statistics import tool_figures
from gramercy.ui.cli.audit import MOMENT, kept_journal_option
from gramercy.ui.cli.options import json_option
from gramercy.ui.cli.terminal import json_text, show, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gramercy.journal.sql import SqlJournal
    from gramercy.journal.statistics import ToolFigures

_COLUMNS = ("tool", "calls", "ok", "failed", "denied", "in doubt", "open", "success", "p50 ms", "p95 ms")
_MORE = ("size", "approvals", "wait p50", "wait p95")
# What a person still counts in seconds, and in minutes.
MINUTE, HOUR = 60, 3_600


@click.command()
@click.argument("tools", nargs=-1, metavar="[TOOL]...")
@kept_journal_option
@click.option("--since", type=MOMENT, metavar="TIME", help="Only calls made since: 12h, 7d, 2026-05-01.")
@click.option("--by-day", is_flag=True, help="Day by day.")
@json_option("Print a list of objects, with failures and refusals by class.")
def stats(
    journal: SqlJournal, tools: Sequence[str], *, since: float | None, by_day: bool, as_json: bool
) -> None:
    """Tell how often tools were called, how it went, how long it took, and how long people took to decide.

    Of all processes that record in this journal. What failed is counted by class, what was refused by who
    refused it.
    """
    found = tool_figures(journal, since=since or 0.0, tools=tools, by_day=by_day)
    if as_json:
        click.echo(json_text(msgspec.to_builtins(found)))
    elif found:
        show(_table(found, by_day=by_day))
        for line in _classes(found):
            show(line)
    else:
        tell("no such call was recorded")


def _table(found: Sequence[ToolFigures], *, by_day: bool) -> str:
    head = (("day",) if by_day else ()) + _COLUMNS + _MORE
    rows = [head, *(((each.day,) if by_day else ()) + _row(each) for each in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    texts = 2 if by_day else 1
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < texts else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _row(f: ToolFigures) -> tuple[str, ...]:
    counts = (f.calls, f.done, f.failed, f.denied, f.in_doubt, f.open)
    ran = bool(f.done + f.failed)
    times = (f"{f.p50_ms:.1f}", f"{f.p95_ms:.1f}") if f.p50_ms else ("", "")
    waits = (_span(f.wait_p50), _span(f.wait_p95)) if f.approvals else ("", "")
    success = f"{f.success_rate:.0%}" if ran else ""
    size = f"{f.mean_size:,.0f}" if f.done else ""
    return (f.tool, *map(str, counts), success, *times, size, str(f.approvals or ""), *waits)


def _span(seconds: float) -> str:
    if seconds < MINUTE:
        return f"{seconds:.1f} s"
    return f"{seconds / MINUTE:.1f} min" if seconds < HOUR else f"{seconds / HOUR:.1f} h"


def _classes(found: Sequence[ToolFigures]) -> list[str]:
    """Say by what calls failed and who refused them, a line for each tool that has any."""
    lines = []
    for figures in found:
        name = f"{figures.day} {figures.tool}".strip()
        for what, classes in (("failed by", figures.failures), ("refused by", figures.refusals)):
            if classes:
                counted = ", ".join(f"{word} ({number})" for word, number in classes.items())
                lines.append(f"{name} {what}: {counted}")
    return lines
