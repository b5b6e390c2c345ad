"""The tool that profiles an evaluation: its time, its allocations, and the code that causes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gramercy.images.requests import Profile
from gramercy.text import cut
from gramercy.tools.content import ToolOutput
from gramercy.toolsets.factory import PACKAGE, Running, as_evaluation, text
from gramercy.toolsets.rendering import ROOM, evaluation_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gramercy.images.base import Reply
    from gramercy.tools.tool import Tool
    from gramercy.toolsets.factory import Workshop
    from gramercy.toolsets.workspace import Workspace

MEASURES = ("time", "calls", "allocation")
# Rows of each list. Further rows are a small part of the whole.
MOST_ROWS = 12
# A row with less than this part of the whole is left out.
LEAST_SHARE = 0.005
# With fewer samples the shares are random.
FEW_SAMPLES = 20
# The room for the measurements. The rest of the answer has the output and the values.
MOST_FACTS = 5_000
# Microseconds. An evaluation that fails earlier has hardly begun.
LEAST_TIME = 1_000
# Microseconds of waiting that a person notices.
NOTICED = 50_000
# Characters of one line of source.
LONGEST_SOURCE = 100


def profiling_tools(workshop: Workshop, workspace: Workspace) -> list[Tool]:
    """Make the tool."""
    del workspace
    running = Running(
        lambda _, a: Profile(a["form"], a.get("measure", "time"), a.get("package")),
        lambda reply, _: profiled(reply, can_read_on=workshop.has("read_output")),
    )
    tool = running.make(
        workshop,
        "profile_form",
        workshop.told(
            "Evaluate code and measure it: time, garbage collection, memory, and which of your lines and "
            "functions take it, with places. Use it before you make something faster. The code runs once, "
            "and its state is kept.",
            ("undo_last", "undo_last takes it back."),
        ),
        {
            "form": text("The code, long enough to measure: repeat a short call in a loop", minLength=1),
            "measure": text(
                "time samples the processor; calls counts them exactly, with waiting (Python, slower); "
                "allocation finds what takes memory (slower)",
                enum=list(MEASURES),
                default="time",
            ),
            "package": PACKAGE,
        },
        required=["form"],
        level="cautious",
        categories=["execution"],
        title="Profile code",
        judged_as=as_evaluation("form"),
    )
    return [tool]


def profiled(reply: Reply, *, can_read_on: bool) -> ToolOutput | str:
    """Return the measurements and the result of the evaluation. An error comes first."""
    facts = profile_text(reply.profile)
    rest = evaluation_text(reply, can_read_on=can_read_on, room=ROOM - len(facts) - 20)
    if reply.error is not None or not reply.ok:
        # An error with the text of a place is one of reading or compiling: nothing was run.
        was_run = reply.error is None or reply.error.text is None
        is_measured = facts and was_run and reply.profile.get("microseconds", 0) >= LEAST_TIME
        return ToolOutput(None, error=f"{rest}\n\nUntil then: {facts}" if is_measured else rest)
    return f"{facts}\n\n{rest}" if rest else facts


def profile_text(profile: dict[str, Any]) -> str:
    """Format the measurements: the totals first, then the user's own code, then all functions."""
    if not profile:
        return ""
    parts = [_whole_line(profile), *_remarks(profile)]
    measure = profile.get("measure")
    if measure == "allocation":
        parts += _allocations(profile)
    elif measure == "calls":
        parts += _calls(profile)
    else:
        parts += _own_code(profile, "of the time", "count")
        parts += _functions(profile, "time")
    return cut("\n".join(parts), MOST_FACTS)


def _whole_line(profile: dict[str, Any]) -> str:
    """Format the totals."""
    found = [f"{_seconds(profile.get('microseconds', 0))}"]
    if "cpu_microseconds" in profile:
        collected = profile.get("gc_microseconds", 0)
        inside = [f"processor {_seconds(profile['cpu_microseconds'])}"]
        if collected:
            inside.append(f"of it garbage collection {_seconds(collected)}")
        found.append(f"({', '.join(inside)})")
    line = " ".join(found)
    for key, words in (
        ("allocated_bytes", "{} allocated"),
        ("peak_bytes", "at most {} more than before at a time"),
        ("held_bytes", "{} still held"),
        ("grown_bytes", "the process has grown by {}"),
    ):
        if profile.get(key, 0) > 0:
            line += ", " + words.format(_size(profile[key]))
    if profile.get("calls"):
        line += f", {profile['calls']:,} calls"
    return line + "."


def _remarks(profile: dict[str, Any]) -> Iterable[str]:
    """Yield remarks about the reliability of the figures."""
    samples, measure = profile.get("samples"), profile.get("measure")
    idle = profile.get("microseconds", 0) - profile.get("cpu_microseconds", 0)
    is_idle = idle > NOTICED and idle > profile.get("cpu_microseconds", idle)
    if profile.get("sampled") is False:
        yield "There are no samples: this Lisp comes without sb-sprof."
    elif measure == "time" and samples is not None and samples < FEW_SAMPLES and not is_idle:
        yield f"Only {samples} samples, too few to tell: measure it in a loop."
    elif samples:
        yield f"{samples:,} samples."
    if is_idle:
        # Lisp reports allocations, but cannot count calls.
        can_count = measure != "calls" and "allocated_bytes" not in profile
        hint = "; measure calls to see which call waits" if can_count else ""
        yield f"For {_seconds(idle)} it did not run: it waited, or other programs had the processor{hint}."


def _own_code(profile: dict[str, Any], what: str, key: str) -> list[str]:
    """Format the user's lines (Python) or functions (Lisp), including the code that they call elsewhere."""
    rows = profile.get("lines", profile.get("mine", []))
    total = profile.get("samples") or 0
    shown = [
        f"  {_share(row[key], total)}  {_where(row)}"
        for row in rows[:MOST_ROWS]
        if total and row[key] >= LEAST_SHARE * total
    ]
    return [f"Your code, {what}, with what it calls in libraries:", *shown] if shown else []


def _functions(profile: dict[str, Any], what: str) -> list[str]:
    rows, total = profile.get("functions", []), profile.get("samples") or 0
    shown = [
        f"  {_share(row['self'], total)} {_share(row['total'], total)}  {_where(row)}"
        for row in rows
        if total and max(row["self"], row["total"] if row.get("own") else 0) >= LEAST_SHARE * total
    ][:MOST_ROWS]
    return [f"Functions, by their own {what}, and with all they call:", *shown] if shown else []


def _calls(profile: dict[str, Any]) -> list[str]:
    least = LEAST_SHARE * profile.get("microseconds", 0)
    rows = [row for row in profile.get("functions", []) if row["self"] >= least or row.get("own")]
    shown = [
        f"  {row['calls']:>9,}  {_seconds(row['self']):>9}  {_seconds(row['total']):>9}  {_where(row)}"
        for row in rows[: 2 * MOST_ROWS]
    ]
    return ["Calls, own time, time with all they call (waiting counts):", *shown] if shown else []


def _allocations(profile: dict[str, Any]) -> list[str]:
    if "held_lines" not in profile:
        return [*_own_code(profile, "of what was allocated", "count"), *_functions(profile, "allocation")]
    found: list[str] = []
    for key, heading in (
        ("lines", f"Held when it was {_size(profile.get('seen_bytes', 0))}, by your lines:"),
        ("held_lines", "Still held, by your lines:"),
    ):
        least = LEAST_SHARE * max((row["bytes"] for row in profile[key]), default=0)
        large = [row for row in profile[key] if row["bytes"] >= least]
        rows = [f"  {_size(row['bytes']):>9}  {_where(row)}" for row in large[:MOST_ROWS]]
        found += [heading, *rows] if rows else []
    return found


def _where(row: dict[str, Any]) -> str:
    place = row.get("place") or (f"{row['file']}:{row['line']}" if row.get("file") else "")
    name = row.get("name", "")
    where = f"{name} at {place}" if name and place else name or place
    source = row.get("source", "")[:LONGEST_SOURCE]
    return f"{where}: {source}" if source else where


def _share(count: int, total: int) -> str:
    return f"{100 * count / total:5.1f} %" if total else ""


def _seconds(microseconds: int) -> str:
    if microseconds >= 1_000_000:  # noqa: PLR2004 - a second
        return f"{microseconds / 1_000_000:.2f} s"
    return f"{microseconds / 1000:.1f} ms" if microseconds >= 1000 else f"{microseconds} µs"  # noqa: PLR2004 - a millisecond


def _size(count: int) -> str:
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
