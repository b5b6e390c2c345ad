"""A call after a pause, as agents make them: caches are cold, and every process has to be woken."""

from __future__ import annotations

import os
import shlex
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from bench.facts import lacking_for_images, load_teller
from bench.image_timing import CHANGE, DEFINE, PAUSE, SIX
from bench.mcp_contenders import GRAMERCY, PREFIX
from bench.mcp_stdio import in_turns
from bench.mcp_wire import Wire, call_frame
from bench.raw_loops import RawLoop
from bench.report import Section, Target, at_most, show
from gramercy.images.opening import open_image

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.measure import Effort, Reading

# The command that starts cl-mcp-server on stdio. It is in no registry of packages, so it is never installed.
PEER_COMMAND = "BENCH_CL_MCP_SERVER"
PEER, IMAGE, RAW, CAT = "cl-mcp-server", "image without a server", "raw loop", "cat"
LOOK, WRITE = SIX["sbcl"], CHANGE
# A wake-up is one sample: the median of fewer than a hundred wanders by a tenth.
ROUNDS = 120
BACK_TO_BACK = 200
COLUMNS = ("answered by", f"{LOOK} ms", "changing call ms", f"x {PEER}", f"x {PEER}, changing")
NOTES = (
    (
        f"One call every {PAUSE * 1000:g} ms, on any core; the contenders take turns, each with a process of "
        "its own for the calls that change something. Median of single calls; a ratio is the median of the "
        "rounds' own ratios."
    ),
    f"The changing call is {CHANGE}; it leaves a checkpoint behind in {GRAMERCY} and in its image alone.",
    f"{CAT} gives the line back: what two pipes and two wake-ups cost. The raw loop evaluates it besides.",
    (
        f"{PEER} evaluates in its own process: no sandbox, no way back. It is measured where {PEER_COMMAND} "
        "holds the command that starts it, and was: the last commit before its protocol became a library."
    ),
)


def measure(effort: Effort) -> Section:
    """Measure everything that is here."""
    load = load_teller()
    missing = lacking_for_images()
    if missing is not None:
        rows: tuple[tuple[str, ...], ...] = (("any", "not measured", "", "", ""),)
        return _section(rows, (Target("a cold call", missing, met=None),), (*NOTES, missing))
    peer = shlex.split(os.environ.get(PEER_COMMAND, ""))
    with ExitStack() as stack:
        contenders = Contenders(stack, peer)
        looks = _paced(contenders.looks, effort)
        changes = _paced(contenders.changes, effort)
        haste = _back_to_back(contenders.changes[GRAMERCY], effort)
    rows = tuple(_row(name, looks, changes) for name in looks)
    return _section(rows, _targets(looks, changes, haste), (*NOTES, load()))


def _section(
    rows: tuple[tuple[str, ...], ...], targets: tuple[Target, ...], notes: tuple[str, ...]
) -> Section:
    return Section(
        name="mcp-cold",
        title="A call after a pause",
        intro="What a client waits for that does not call again at once: agents call seconds apart.",
        columns=COLUMNS,
        rows=rows,
        targets=targets,
        notes=notes,
    )


class Contenders:
    """What answers: a way to ask each of them to look, and one to ask it to change something."""

    def __init__(self, stack: ExitStack, peer: list[str]) -> None:
        self._stack = stack
        project = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-project-"))
        command = [str(PREFIX / "bin" / "gramercy"), "serve", "--image", "sbcl", "--project", project]
        self.looks = {GRAMERCY: self._server(command, LOOK)}
        self.changes = {GRAMERCY: self._server(command, WRITE)}
        if peer:
            self.looks[PEER] = self._server(peer, LOOK)
            self.changes[PEER] = self._server(peer, WRITE)
        self.looks[IMAGE] = self._image(Path(project), LOOK)
        self.changes[IMAGE] = self._image(Path(project), WRITE)
        self.looks[RAW] = self._loop(LOOK)
        self.changes[RAW] = self._loop(WRITE)
        echo = stack.enter_context(Wire(["cat"]))
        self.looks[CAT] = lambda: echo.ask(call_frame("evaluate-lisp", code=LOOK))

    def _server(self, command: list[str], code: str) -> Callable[[], object]:
        wire = self._stack.enter_context(Wire(command))
        wire.shake_hands()
        wire.ask(call_frame("evaluate-lisp", code=DEFINE))
        request = call_frame("evaluate-lisp", code=code)
        assert b'"=> ' in wire.ask(request), wire.process.args
        return lambda: wire.ask(request)

    def _image(self, project: Path, code: str) -> Callable[[], object]:
        image = self._stack.enter_context(closing(open_image("sbcl", project=project)))
        image.evaluate(DEFINE)
        assert image.evaluate(code).ok
        return lambda: image.evaluate(code)

    def _loop(self, code: str) -> Callable[[], object]:
        loop = self._stack.enter_context(RawLoop("sbcl"))
        loop.evaluate(DEFINE)
        return lambda: loop.evaluate(code)


def _paced(works: dict[str, Callable[[], object]], effort: Effort) -> dict[str, Reading]:
    """Ask each in turns, with a pause before each."""

    def take(name: str) -> float:
        time.sleep(PAUSE)
        started = perf_counter()
        works[name]()
        return perf_counter() - started

    for name in works:
        take(name)  # the first may have something left to load
    return in_turns({name: [] for name in works}, effort.rounds if effort.quick else ROUNDS, take)


def _back_to_back(work: Callable[[], object], effort: Effort) -> float:
    """Return the median seconds of changing calls without a pause."""
    spent = []
    for _ in range(20 if effort.quick else BACK_TO_BACK):
        started = perf_counter()
        work()
        spent.append(perf_counter() - started)
    return sorted(spent)[len(spent) // 2]


def _row(name: str, looks: dict[str, Reading], changes: dict[str, Reading]) -> tuple[str, ...]:
    cells = [show(readings[name].median * 1e3) if name in readings else "" for readings in (looks, changes)]
    ratios = [
        f"{readings[name].ratio_to(readings[PEER]):.2f}" if {name, PEER} <= readings.keys() else ""
        for readings in (looks, changes)
    ]
    return (name, *cells, *ratios)


def _targets(looks: dict[str, Reading], changes: dict[str, Reading], haste: float) -> tuple[Target, ...]:
    told = {
        f"a cold {LOOK} against {PEER}": (looks, 1.5),
        f"a cold changing call against {PEER}": (changes, 2.0),
    }
    found = [
        at_most(text, readings[GRAMERCY].ratio_to(readings[PEER]), limit, "x")
        if PEER in readings
        else Target(f"{text}: at most {limit:g}x", f"{PEER_COMMAND} is not set", met=None)
        for text, (readings, limit) in told.items()
    ]
    return (*found, at_most("changing calls back to back", haste * 1e3, 2.0, " ms"))
