"""How long images take: round trips, calls with and without a checkpoint, starts, ways back, big heaps."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

from bench.measure import Reading
from bench.raw_loops import RawLoop
from gramercy.images.base import Reply
from gramercy.images.opening import ImageSettings, open_image
from gramercy.images.processes import Family
from gramercy.images.thrift import Thrift

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench.measure import Effort
    from gramercy.images.live import LiveImage

SIX = {"sbcl": "(+ 1 2 3)", "python": "1 + 2 + 3"}
DEFINE, CHANGE = "(defvar *n* 0)", "(setf *n* (+ *n* 1))"
BATCH = 200
PAUSE = 0.05
HEAP_MB = 200
HEAVY_MB = 512
# As thrifty as can be: no state is kept after the first.
NEVER = Thrift(heavy_bytes=0, part=1e-12)
# Some 20 ms of work that leaves a change.
WORK = "total = sum(range(1_000_000))"
FILL = f"""
(defvar *big*
  (loop repeat {HEAP_MB // 4}
        collect (make-array 4000000 :element-type '(unsigned-byte 8) :initial-element 1)))
"""
FIRST_ANSWER = """
import sys
from gramercy.images.opening import open_image
image = open_image(sys.argv[1], project=sys.argv[2], sandbox=sys.argv[3] == "True")
print(image.evaluate(sys.argv[4]).values, flush=True)
image.close()
"""


@contextmanager
def one_core() -> Iterator[None]:
    """Keep this process, and those it starts, on one core.

    On a virtual machine it costs ten times as much to wake a process on another core as one on the same, and
    where it wakes is left to chance: without this the figures of both contenders tell about that alone.
    """
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def round_trips(language: str, project: Path, effort: Effort) -> tuple[Reading, Reading]:
    """Time evaluations back to back in an image and in a raw loop, in turns; samples are p50 of batches."""
    code = SIX[language]
    with one_core(), closing(open_image(language, project=project)) as image, RawLoop(language) as raw:
        assert image.evaluate(code).values == [raw.evaluate(code)] == ["6"]
        samples: dict[str, list[float]] = {"image": [], "raw": []}
        for _ in range(effort.rounds):
            samples["image"].append(_p50(lambda: image.evaluate(code)))
            samples["raw"].append(_p50(lambda: raw.evaluate(code)))
    ours, theirs = (Reading(name, tuple(values)) for name, values in samples.items())
    return ours, theirs


def _p50(work: Callable[[], object]) -> float:
    return statistics.median(_wall(work) for _ in range(BATCH))


class Pace(msgspec.Struct, frozen=True):
    """Median seconds of a call, as its caller sees it and inside the image alone."""

    whole: float
    inside: float


def paced_calls(project: Path, effort: Effort) -> tuple[Pace, Pace, Pace]:
    """Change state every 50 ms in three images: one with checkpoints, two without that tell the noise."""
    rounds = 10 if effort.quick else 120
    with ExitStack() as stack:
        images = [stack.enter_context(closing(open_image("sbcl", project=project))) for _ in range(3)]
        for image in images:
            image.evaluate(DEFINE)
        for image in images[1:]:
            image._lifecycle.thrift = NEVER  # noqa: SLF001 - no setting
        samples: list[list[Pace]] = [[] for _ in images]
        for turn in range(rounds):
            for index in _rotated(range(len(images)), turn):
                time.sleep(PAUSE / len(images))
                started = perf_counter()
                reply = images[index].evaluate(CHANGE)
                samples[index].append(Pace(perf_counter() - started, reply.elapsed_ms / 1e3))
    kept, bare, bare_again = map(_median_pace, samples)
    return kept, bare, bare_again


def _median_pace(samples: list[Pace]) -> Pace:
    return Pace(
        statistics.median(pace.whole for pace in samples), statistics.median(pace.inside for pace in samples)
    )


def _rotated(indices: range, turn: int) -> list[int]:
    first = turn % len(indices)
    return [*indices[first:], *indices[:first]]


def image_start(language: str, project: Path, effort: Effort, *, sandbox: bool) -> float:
    """Return the median seconds from opening an image to its first answer, in a process that goes on."""

    def start() -> float:
        with closing(open_image(language, project=project, sandbox=sandbox)) as image:
            return _wall(lambda: image.evaluate(SIX[language]))

    start()
    return statistics.median(start() for _ in range(effort.process_rounds))


def cold_start(language: str, project: Path, effort: Effort, *, sandbox: bool) -> float:
    """Return the median seconds from nothing to the first answer, the start of Python included."""
    arguments = [language, str(project), str(sandbox), SIX[language]]
    command = [sys.executable, "-c", FIRST_ANSWER, *arguments]

    def start() -> float:
        started = perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            answer = child.stdout.readline()
            spent = perf_counter() - started
        assert answer == b"['6']\n", answer
        return spent

    start()
    return statistics.median(start() for _ in range(effort.process_rounds))


class Returns(msgspec.Struct, frozen=True):
    """Median seconds of going back by id, and by undo."""

    rollback: float
    undo: float


def ways_back(project: Path, effort: Effort) -> Returns:
    """Change state, then go back; each way back includes the first answer of the image that came back."""
    with closing(open_image("sbcl", project=project)) as image:
        image.evaluate(DEFINE)
        start = image.checkpoint("start").id
        rollback = [_back(image, lambda: image.rollback(start)) for _ in range(effort.process_rounds)]
        undo = [_back(image, image.undo) for _ in range(effort.process_rounds)]
    return Returns(statistics.median(rollback), statistics.median(undo))


def looks_at_states(project: Path, effort: Effort) -> tuple[float, float, float]:
    """Return the median seconds of a look during an evaluation, a question to a kept state, a comparison."""
    with closing(open_image("sbcl", project=project)) as image:
        image.evaluate(DEFINE)
        first = image.checkpoint("start").id
        image.evaluate(CHANGE)
        asked = [_wall(lambda: image.ask("definitions", at=first)) for _ in range(effort.process_rounds)]
        compared = [_wall(lambda: image.compare(first)) for _ in range(effort.process_rounds)]
        busy = threading.Thread(target=image.evaluate, args=("(loop)",))
        busy.start()
        while image.look().running is None:
            time.sleep(PAUSE)
        looked = [_wall(image.look) for _ in range(effort.process_rounds)]
        while busy.is_alive():
            image.interrupt()
            busy.join(PAUSE)
    return statistics.median(looked), statistics.median(asked), statistics.median(compared)


def _back(image: LiveImage, way: Callable[[], object]) -> float:
    image.evaluate(CHANGE)
    time.sleep(PAUSE)

    def go() -> None:
        way()
        assert image.evaluate("*n*").values == ["0"]

    return _wall(go)


def fork_seconds(project: Path, effort: Effort, *, fill: str | None = None) -> float:
    """Return the median seconds of a checkpoint that is asked for, with an empty or a filled heap."""
    with (
        closing(Family(ImageSettings("sbcl", project).program())) as family,
        closing(family.fork(family.zygote, "live")) as live,
    ):
        if fill is not None:
            assert live.request(Reply, 60, "eval", code=fill).ok
        return statistics.median(
            _wall(lambda: family.fork(live, "checkpoint").close()) for _ in range(effort.process_rounds)
        )


def heavy_calls(project: Path, effort: Effort) -> tuple[float, float]:
    """Return the median seconds of a run of calls in a big image: with states as by default, and without."""
    rounds = 5 if effort.quick else 60
    with closing(open_image("python", project=project)) as image:
        image.evaluate(f"held = bytearray({HEAVY_MB} << 20)")
        usual, lifecycle = image._lifecycle.thrift, image._lifecycle  # noqa: SLF001 - no setting

        def run(thrift: Thrift) -> float:
            lifecycle.thrift = thrift
            return _wall(lambda: [image.evaluate(WORK) for _ in range(rounds)])

        pairs = [(run(usual), run(NEVER)) for _ in range(effort.process_rounds)]
    return statistics.median(kept for kept, _ in pairs), statistics.median(bare for _, bare in pairs)


def _wall(work: Callable[[], object]) -> float:
    started = perf_counter()
    work()
    return perf_counter() - started
