"""What a project costs in an image beside plain SBCL and Python: processes, systems, imports."""

from __future__ import annotations

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.facts import lacking_for_images, load_teller
from bench.report import Section, Target, at_most, show
from gramercy.images.environment import Environment
from gramercy.images.opening import open_image

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.measure import Effort

SYSTEM = "cl-ppcre"
MODULES = ("numpy", "pandas")
CHILDREN = 20
WAIT_SECONDS = 300.0
# Milliseconds for each, by a clock of the language itself, so that starting it does not count.
RUN_PROGRAM = f"""
(let ((start (get-internal-real-time)))
  (loop repeat {CHILDREN} do (sb-ext:run-program "/bin/true" '()))
  (float (/ (- (get-internal-real-time) start) {CHILDREN} internal-time-units-per-second 1/1000)))
"""
LOAD = f"""
(let ((start (get-internal-real-time)))
  (let ((*standard-output* (make-broadcast-stream)) (*error-output* (make-broadcast-stream)))
    (asdf:load-system "{SYSTEM}"))
  (float (/ (- (get-internal-real-time) start) internal-time-units-per-second 1/1000)))
"""
IMPORT = f"""
import time
started = time.perf_counter()
import {", ".join(MODULES)}
print((time.perf_counter() - started) * 1000)
"""
NOTES = (
    "Milliseconds, medians; every figure is taken by a clock inside the process, so that no start counts.",
    (
        f"run-program: {CHILDREN} times /bin/true in one evaluation. load-system: {SYSTEM}, of which nothing "
        "is compiled the first time; plain SBCL has a warm cache of its own."
    ),
    f"import: {' and '.join(MODULES)} in a fresh image of the same environment, compiled files there.",
)


@dataclass(slots=True)
class _Table:
    rows: list[tuple[str, ...]] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=lambda: list(NOTES))

    def add(self, what: str, ours: float, theirs: float, beside: str) -> float:
        self.rows.append((what, show(ours), f"{beside} {show(theirs)}", f"{ours / theirs:.2f}x"))
        return ours / theirs


def measure(effort: Effort) -> Section:
    """Measure what can be measured here."""
    load, table = load_teller(), _Table()
    if missing := lacking_for_images():
        table.targets.append(Target("every target of projects", missing, met=None))
    else:
        rounds = max(3, effort.process_rounds // 3)
        with tempfile.TemporaryDirectory(prefix="bench-project-") as directory:
            _processes(table, Path(directory), rounds)
            _systems(table, Path(directory), rounds)
            _imports(table, Path(directory), rounds)
    return Section(
        name="projects",
        title="A project in an image",
        intro="Starting programs, loading systems and importing libraries, beside the bare languages.",
        columns=("work", "image ms", "beside ms", "ratio"),
        rows=tuple(table.rows) or (("projects", "not measured", "", ""),),
        targets=tuple(table.targets),
        notes=(*table.notes, load()),
    )


def _processes(table: _Table, project: Path, rounds: int) -> None:
    with closing(open_image("sbcl", project=project, timeout=WAIT_SECONDS)) as image:
        ours, theirs = _in_turns(
            rounds,
            lambda: float(image.evaluate(RUN_PROGRAM).values[0]),
            lambda: _plain_lisp(RUN_PROGRAM, project),
        )
    ratio = table.add("run-program", ours, theirs, "plain SBCL")
    table.targets.append(at_most("run-program against plain SBCL", ratio, 3, "x"))


def _systems(table: _Table, project: Path, rounds: int) -> None:
    # What is compiled is kept for each project, and this one has never been worked in.
    project = project / "systems"
    project.mkdir()
    first = _image_load(project)
    second, plain = _in_turns(
        rounds, lambda: _image_load(project), lambda: _plain_lisp(LOAD, project, project / "cache")
    )
    ratio = table.add(f"load-system {SYSTEM}, second image", second, first, "first image")
    table.targets.append(at_most("load-system in a second image against the first", ratio, 0.25, "x"))
    ratio = table.add(f"load-system {SYSTEM}, second image", second, plain, "plain SBCL, warm")
    table.targets.append(at_most("load-system in a second image against plain SBCL", ratio, 1.5, "x"))


def _image_load(project: Path) -> float:
    with closing(open_image("sbcl", project=project, timeout=WAIT_SECONDS)) as image:
        reply = image.load_system(SYSTEM, timeout=WAIT_SECONDS)
        assert reply.ok, reply.error
        return reply.elapsed_ms


def _plain_lisp(form: str, project: Path, cache: Path | None = None) -> float:
    words = ["sbcl", "--noinform", "--no-sysinit", "--no-userinit", "--disable-debugger"]
    words += ["--eval", "(require :asdf)", "--eval", f"(print {form})", "--quit"]
    environment = dict(os.environ) | ({"XDG_CACHE_HOME": str(cache)} if cache else {})
    done = subprocess.run(
        words, cwd=project, env=environment, capture_output=True, text=True, timeout=WAIT_SECONDS, check=True
    )
    return float(done.stdout.split()[-1])


def _imports(table: _Table, project: Path, rounds: int) -> None:
    lacking = [name for name in MODULES if importlib.util.find_spec(name) is None]
    if lacking:
        reason = f"{', '.join(lacking)} cannot be installed here"
        table.targets.append(Target("importing against plain Python", reason, met=None))
        return
    environment = Environment(python=sys.prefix)
    ours, theirs = _in_turns(rounds, lambda: _image_import(project, environment), _plain_import)
    ratio = table.add(f"import {', '.join(MODULES)}", ours, theirs, "plain Python")
    table.targets.append(at_most("importing against plain Python", ratio, 1.3, "x"))


def _image_import(project: Path, environment: Environment) -> float:
    with closing(open_image("python", project=project, environment=environment)) as image:
        reply = image.evaluate(IMPORT, timeout=WAIT_SECONDS)
        assert reply.ok, reply.error
        return float(reply.stdout)


def _plain_import() -> float:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT], capture_output=True, text=True, timeout=WAIT_SECONDS, check=True
    )
    return float(done.stdout)


def _in_turns(rounds: int, ours: Callable[[], float], theirs: Callable[[], float]) -> tuple[float, float]:
    """Measure two ways in turns, after one turn that only warms up; return their medians."""
    samples = [(ours(), theirs()) for _ in range(rounds + 1)][1:]
    first, second = zip(*samples, strict=True)
    return statistics.median(first), statistics.median(second)
