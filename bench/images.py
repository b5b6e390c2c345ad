"""What a live image costs beside the least that it could cost: time, memory, starts and ways back."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.facts import lacking_for_images
from bench.image_files import CROWDED, MODULES, edits, fill, opens_inside, opens_outside, undo_of_a_file
from bench.image_memory import OUTPUT_MB, Crowd, crowd, flood
from bench.image_timing import (
    FILL,
    HEAP_MB,
    HEAVY_MB,
    cold_start,
    fork_seconds,
    heavy_calls,
    image_start,
    looks_at_states,
    paced_calls,
    round_trips,
    ways_back,
)
from bench.report import Section, Target, at_least, at_most, show
from gramercy.images.sandbox import find_confinement

if TYPE_CHECKING:
    from bench.measure import Effort

FEW, MANY = 20, 100
CROWD_BUDGET = 20.0
NOTES = (
    "Wall time, medians; SBCL unless a row says Python.",
    (
        "The raw loop reads a line from a pipe, evaluates and prints; it has no deadline, no bound on output "
        "and no way back. Image and loop take turns."
    ),
    (
        "Calls 50 ms apart: (setf *n* (+ *n* 1)) in three images in turns, of which two get the bare request "
        "without a checkpoint; the difference of those two is the noise."
    ),
    "A way back includes the first answer afterwards, and is taken 50 ms after the call that it takes back.",
    "Starts find the core in the cache. Private memory is that of all processes of an image and its sandbox.",
)


@dataclass(slots=True)
class _Table:
    """Rows and targets as they come."""

    rows: list[tuple[str, ...]] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=lambda: list(NOTES))

    def add(self, what: str, figure: float, unit: str, beside: str = "") -> None:
        self.rows.append((what, f"{show(figure)} {unit}", beside))


def measure(effort: Effort) -> Section:
    """Measure what can be measured here; what needs SBCL is left out where there is none."""
    table = _Table()
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="bench-project-") as directory:
        project = Path(directory)
        if missing := lacking_for_images():
            table.notes.append(missing)
            table.targets.append(Target("every target of live images", missing, met=None))
        else:
            _measure_sbcl(table, project, effort)
            _measure_python(table, project, effort)
    table.notes.append(
        f"Load of the machine before and after: {before:.1f} and {os.getloadavg()[0]:.1f}. Above its number "
        "of cores a switch between two processes may wait for others, and figures in µs mean little."
    )
    return Section(
        name="images",
        title="Live images",
        intro="Evaluating in a process that can be undone, previewed and restored.",
        columns=("work", "cost", "beside"),
        rows=tuple(table.rows) or (("live images", "not measured", ""),),
        targets=tuple(table.targets),
        notes=tuple(table.notes),
    )


def _measure_sbcl(table: _Table, project: Path, effort: Effort) -> None:
    table.notes.append(f"Sandbox: {find_confinement().value}.")
    _add_round_trip(table, "sbcl", project, effort)
    _add_paced_calls(table, project, effort)
    _add_starts(table, project, effort)
    _add_ways_back(table, project, effort)
    _add_memory(table, project, effort)
    _add_output(table, project)
    _add_heaps(table, project, effort)


def _measure_python(table: _Table, project: Path, effort: Effort) -> None:
    _add_round_trip(table, "python", project, effort)
    seconds = cold_start("python", project, effort, sandbox=True)
    table.add("Python: nothing to first answer, sandbox", seconds * 1e3, "ms")
    with tempfile.TemporaryDirectory(prefix="bench-files-") as directory:
        _add_files(table, Path(directory), effort)
    with tempfile.TemporaryDirectory(prefix="bench-edits-") as directory:
        _add_edits(table, Path(directory), effort)


def _add_edits(table: _Table, project: Path, effort: Effort) -> None:
    """Measure what it costs to look for edited files before each call, and to take one up."""
    costs = edits(project, effort)
    beside = f"call {show(costs.followed * 1e6)} µs, with `reload` off {show(costs.alone * 1e6)} µs"
    table.add(f"Python: look for edited files of {MODULES} modules", costs.look * 1e6, "µs", beside)
    table.add("Python: take up an edit of a file of 210 lines", costs.edit * 1e3, "ms")
    table.targets.append(at_most("look for edited files", costs.look * 1e3, 0.02, " ms"))
    table.targets.append(at_most("an edit that is taken up", costs.edit * 1e3, 40, " ms"))


def _add_files(table: _Table, project: Path, effort: Effort) -> None:
    """Measure what it costs that files go back with the state, in a small project and in a large one."""
    for words in ("", f", in a project of {CROWDED:,} files"):
        if words:
            fill(project)
        outside, inside = opens_outside(project, effort), opens_inside(project, effort)
        for what, mine, other in (
            ("reading", inside.reading, outside.reading),
            ("writing", inside.writing, outside.writing),
        ):
            beside = f"outside {show(other * 1e6)} µs"
            table.add(f"Python: open a file for {what}{words}", mine * 1e6, "µs", beside)
        more = (inside.writing - outside.writing) * 1e6
        table.targets.append(at_most(f"more for an open for writing{words}", more, 60, " µs"))
    back = undo_of_a_file(project) * 1e3
    table.add(f"Python: undo that brings a file back, of {CROWDED:,}", back, "ms")
    table.targets.append(at_most("undo of one file", back, 20, " ms"))


def _add_round_trip(table: _Table, language: str, project: Path, effort: Effort) -> None:
    image, raw = round_trips(language, project, effort)
    name = {"sbcl": "(+ 1 2 3)", "python": "Python: 1 + 2 + 3"}[language]
    ratio = image.ratio_to(raw)
    table.add(
        f"{name}, back to back",
        image.median * 1e6,
        "µs",
        f"raw loop {show(raw.median * 1e6)} µs, {ratio:.2f}x",
    )
    table.targets.append(at_most(f"{name} against the raw loop", ratio, 2.5, "x"))


def _add_paced_calls(table: _Table, project: Path, effort: Effort) -> None:
    kept, bare, again = paced_calls(project, effort)
    ratio, noise = kept.whole / bare.whole, abs(again.whole / bare.whole - 1)
    beside = f"without checkpoint {show(bare.whole * 1e6)} µs, {ratio:.2f}x (noise {noise:.0%})"
    table.add("a change of state every 50 ms, with checkpoint", kept.whole * 1e6, "µs", beside)
    inside = f"without checkpoint {show(bare.inside * 1e6)} µs, {kept.inside / bare.inside:.2f}x"
    table.add("the same, inside the image alone", kept.inside * 1e6, "µs", inside)
    table.targets.append(at_most("a call with checkpoint against one without, 50 ms apart", ratio, 1.3, "x"))


def _add_starts(table: _Table, project: Path, effort: Effort) -> None:
    for sandbox in (True, False):
        words = "sandbox" if sandbox else "no sandbox"
        whole = cold_start("sbcl", project, effort, sandbox=sandbox)
        alone = image_start("sbcl", project, effort, sandbox=sandbox)
        table.add(
            f"nothing to first answer, {words}", whole * 1e3, "ms", f"image alone {show(alone * 1e3)} ms"
        )
        table.targets.append(at_most(f"nothing to first answer, {words}", whole, 0.25, " s"))
        if not sandbox:
            table.targets.append(at_most(f"image to first answer, {words}", alone * 1e3, 30, " ms"))


def _add_ways_back(table: _Table, project: Path, effort: Effort) -> None:
    back = ways_back(project, effort)
    table.add("rollback", back.rollback * 1e3, "ms")
    table.add("undo", back.undo * 1e3, "ms")
    table.targets.append(at_most("rollback", back.rollback * 1e3, 50, " ms"))
    looked, asked, compared = looks_at_states(project, effort)
    table.add("a look while an evaluation runs", looked * 1e6, "µs")
    table.add(
        "a question to a kept state", asked * 1e3, "ms", f"two states compared {show(compared * 1e3)} ms"
    )
    table.targets.append(at_most("a look while an evaluation runs", looked * 1e3, 5, " ms"))


def _add_memory(table: _Table, project: Path, effort: Effort) -> None:
    few = crowd(FEW, project)
    crowds = [few]
    if not effort.quick and few.seconds * MANY / FEW < CROWD_BUDGET:
        crowds.append(crowd(MANY, project))
    for each in crowds:
        table.add(f"{each.size} images side by side, all started", each.seconds, "s", _each(each))
    largest = crowds[-1]
    table.targets.append(at_most("private memory of one more idle image", largest.private_mb, 8, " MB"))
    table.targets.append(
        at_least("images side by side", largest.size, MANY)
        if not effort.quick
        else Target(f"{MANY} images side by side", "a quick run tries fewer", met=None)
    )


def _each(group: Crowd) -> str:
    return f"{show(group.private_mb)} MB private each"


def _add_output(table: _Table, project: Path) -> None:
    spent = flood(project)
    beside = f"caller at most {show(spent.caller_mb)} MB, image {show(spent.image_mb)} MB"
    table.add(f"{OUTPUT_MB} MB of output", spent.seconds, "s", beside)
    table.targets.append(at_most(f"memory of the caller of {OUTPUT_MB} MB", spent.caller_mb, 100, " MB"))


def _add_heaps(table: _Table, project: Path, effort: Effort) -> None:
    empty = fork_seconds(project, effort)
    filled = fork_seconds(project, effort, fill=FILL)
    table.add(f"fork with {HEAP_MB} MB of heap", filled * 1e3, "ms", f"empty {show(empty * 1e3)} ms")
    kept, bare = heavy_calls(project, effort)
    beside = f"without any state {show(bare)} s, {kept / bare:.2f}x"
    table.add(f"60 calls of 20 ms in a row with {HEAVY_MB} MB, Python, states kept", kept, "s", beside)
    # A tenth for the copies, and as much for the pages that are written after each.
    table.targets.append(
        at_most(f"calls in a row with {HEAVY_MB} MB against none kept", kept / bare, 1.2, "x")
    )
