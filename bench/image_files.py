"""What it costs that files travel in time: opens inside of an image beside those outside, and an undo."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from gramercy.images.opening import open_image

if TYPE_CHECKING:
    from pathlib import Path

    from bench.measure import Effort

OPENS = """
import os, time
def middle(flags, count):
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        os.close(os.open('opened.txt', flags))
        times.append(time.perf_counter() - begin)
    return sorted(times)[count // 2]
figures = (middle(os.O_RDONLY, {count}), middle(os.O_RDWR, {count}))
"""
# Enough that a cost for each file of the project would show.
CROWDED = 10_000
UNDOS = 9


@dataclass(frozen=True, slots=True)
class Opens:
    """Seconds of an open for reading, and of one for writing."""

    reading: float
    writing: float


def opens_outside(project: Path, effort: Effort) -> Opens:
    """Open a file in a plain process."""
    (project / "opened.txt").write_text("text")
    code = OPENS.format(count=_count(effort)) + "print(figures)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=True
    )
    return Opens(*ast.literal_eval(done.stdout))


def opens_inside(project: Path, effort: Effort) -> Opens:
    """Open a file in an image, which tells of the opens for writing."""
    (project / "opened.txt").write_text("text")
    image = open_image("python", project=project)
    try:
        image.evaluate(OPENS.format(count=_count(effort)))
        return Opens(*ast.literal_eval(image.evaluate("figures").values[0]))
    finally:
        image.close()


def undo_of_a_file(project: Path) -> float:
    """Return the seconds of an undo that brings one file back."""
    image = open_image("python", project=project)
    try:
        image.evaluate("value = 1")
        times = []
        for number in range(UNDOS):
            image.evaluate(f"_ = open('opened.txt', 'w').write('{number}')")
            begin = perf_counter()
            outcomes = image.undo().files
            times.append(perf_counter() - begin)
            assert [each.outcome for each in outcomes] == ["back"], outcomes
        return median(times)
    finally:
        image.close()


def fill(project: Path) -> None:
    """Make the project a large one."""
    for number in range(CROWDED):
        if number % 100 == 0:
            (project / f"d{number // 100}").mkdir()
        (project / f"d{number // 100}" / f"{number}.txt").touch()


def _count(effort: Effort) -> int:
    return 300 if effort.quick else 3_000
