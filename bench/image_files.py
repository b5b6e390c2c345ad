"""What it costs that files travel in time: opens inside of an image beside those outside, and an undo."""

from __future__ import annotations

import ast
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from bench.image_timing import one_core
from gramercy.images.environment import Environment, Reload
from gramercy.images.opening import open_image

if TYPE_CHECKING:
    from pathlib import Path

    from bench.measure import Effort
    from gramercy.images.live import LiveImage

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


# A project of the size for which the look was designed, and a file of a usual length.
MODULES = 300
FUNCTIONS = 52
EDITS = 15
LOOKS, LOOKS_A_TURN = 2_000, 20


@dataclass(frozen=True, slots=True)
class EditCosts:
    """Seconds: a call that looks for edited files, one that does not, the look, an edit that is taken up."""

    followed: float
    alone: float
    look: float
    edit: float


def edits(project: Path, effort: Effort) -> EditCosts:
    """Load many modules into two images, of which one looks for edits, and take up edits of a file."""
    for number in range(MODULES):
        (project / f"part{number}.py").write_text(f"def f{number}(x):\n    return x\n")
    imported = "; ".join(f"import part{number}" for number in range(MODULES))
    with (
        one_core(),
        closing(open_image("python", project=project)) as following,
        closing(open_image("python", project=project, environment=Environment(reload=Reload.OFF))) as resting,
    ):
        for image in (following, resting):
            image.evaluate(imported)
        turns = LOOKS // (LOOKS_A_TURN * (4 if effort.quick else 1))
        # The pace of a machine with other work changes by more than the look costs. So each turn of one image
        # is compared with the turn of the other right after it.
        pairs = [(_turn(following), _turn(resting)) for _ in range(turns)]
        edit = median(_edit_seconds(following, project, number) for number in range(EDITS))
    followed, alone = (median(side) for side in zip(*pairs, strict=True))
    look = max(median(one - other for one, other in pairs), 0.0)
    return EditCosts(followed, alone, look, edit)


def _turn(image: LiveImage) -> float:
    """Return the median seconds of some calls in a row."""
    times = []
    for _ in range(LOOKS_A_TURN):
        begin = perf_counter()
        image.evaluate("1 + 2")
        times.append(perf_counter() - begin)
    return median(times)


def _edit_seconds(image: LiveImage, project: Path, number: int) -> float:
    """Return what a call takes longer for an edit; the module is loaded by the first one."""
    body = "".join(f"def g{n}(x):\n    y = x + {n}\n    return y\n\n" for n in range(FUNCTIONS))
    (project / "edited.py").write_text(f"{body}def last():\n    return {number}\n")
    if number == 0:
        image.evaluate("import edited")
        return 0.0
    reply = image.evaluate("edited.last()")
    assert reply.values == [str(number)], reply
    return reply.elapsed_ms / 1e3
