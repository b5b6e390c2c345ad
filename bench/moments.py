"""What it costs to keep the stack of an error, beside a checkpoint, and what a handled condition costs."""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from bench.facts import lacking_for_images, load_teller
from bench.measure import Reading
from bench.report import Section, Target, at_most, show
from gramercy.images.opening import open_image

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.measure import Effort
    from gramercy.images.live import LiveImage

FAILS = "(fails)"
HANDLED = '(dotimes (i 1000) (ignore-errors (error "handled")))'
# Between two calls: the copies of the one before have connected, and those that were dropped have ended.
PAUSE = 0.03
IN_ROUND = 5
MOST_TIMES = 1.5
# Two series of the same work differ by as much on a busy machine; one fork in a thousand conditions is above.
MOST_HANDLED = 1.2


def measure(effort: Effort) -> Section:
    """Measure SBCL, where it is installed."""
    load = load_teller()
    if missing := lacking_for_images():
        unmeasured = Target("every target of moments", missing, met=None)
        return _section([("moments", "not measured", "")], [unmeasured], [missing])
    with (
        tempfile.TemporaryDirectory(prefix="bench-project-") as directory,
        closing(open_image("sbcl", project=Path(directory))) as image,
    ):
        rows, targets = _measured(image, effort)
    return _section(rows, targets, [load()])


def _section(rows: list[tuple[str, ...]], targets: list[Target], notes: list[str]) -> Section:
    return Section(
        name="moments",
        title="The moment of an error",
        intro="An error that nothing handles leaves a copy of the process, forked before the stack unwinds.",
        columns=("work", "cost", "beside"),
        rows=tuple(rows),
        targets=tuple(targets),
        notes=(
            (
                "SBCL; wall time, medians of rounds in turns on one image. Without a moment, the call goes "
                "without its flag. A checkpoint is forked on request, until its connection is there."
            ),
            *notes,
        ),
    )


def _measured(image: LiveImage, effort: Effort) -> tuple[list[tuple[str, ...]], list[Target]]:
    image.evaluate("(defun fails () (list unbound-here))")
    lifecycle = image._lifecycle  # noqa: SLF001 - the one place where a call can be sent without its flag
    tagged = lifecycle.new_moment_tag

    def without(code: str) -> float:
        lifecycle.moment_tag = None
        lifecycle.new_moment_tag = lambda _family: None  # type: ignore[method-assign]
        try:
            return _timed(lambda: image.evaluate(code))
        finally:
            lifecycle.new_moment_tag = tagged  # type: ignore[method-assign]

    def forked() -> None:
        family, live = lifecycle.ready()
        family.fork(live, "checkpoint").close()

    series: dict[str, list[float]] = {name: [] for name in ("kept", "bare", "fork", "handled", "unflagged")}
    for _ in range(max(3, effort.process_rounds)):
        series["kept"].append(_timed(lambda: image.evaluate(FAILS)))
        series["bare"].append(without(FAILS))
        series["fork"].append(_timed(forked))
        series["handled"].append(_timed(lambda: image.evaluate(HANDLED)))
        series["unflagged"].append(without(HANDLED))
    return _rows({name: Reading(name, tuple(samples)) for name, samples in series.items()}, image)


def _rows(found: dict[str, Reading], image: LiveImage) -> tuple[list[tuple[str, ...]], list[Target]]:
    kept, bare, fork = (found[name].median * 1e3 for name in ("kept", "bare", "fork"))
    times = (kept - bare) / fork
    handled = found["handled"].ratio_to(found["unflagged"])
    sizes = [info.private_bytes for info in image.moments() if info.private_bytes]
    rows = [
        ("an error with a moment", f"{show(kept)} ms", f"without {show(bare)} ms"),
        ("so the moment itself", f"{show(kept - bare)} ms", f"a checkpoint {show(fork)} ms, {times:.2f}x"),
        (
            "1,000 conditions that are handled",
            f"{show(found['handled'].median * 1e3)} ms",
            f"without the flag {show(found['unflagged'].median * 1e3)} ms, {handled:.2f}x",
        ),
        ("memory of a moment's own", f"{show(statistics.median(sizes) / 1e6)} MB", f"{len(sizes)} kept"),
    ]
    return rows, [
        at_most("keeping a moment against a checkpoint", times, MOST_TIMES, "x"),
        at_most("handled conditions with the flag against without", handled, MOST_HANDLED, "x"),
    ]


def _timed(work: Callable[[], object]) -> float:
    """Return the median of a few tries, with pauses between them."""
    samples = []
    for _ in range(IN_ROUND):
        time.sleep(PAUSE)
        started = perf_counter()
        work()
        samples.append(perf_counter() - started)
    return statistics.median(samples)
