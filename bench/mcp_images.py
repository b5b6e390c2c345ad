"""Evaluating over MCP, in a sandboxed image that can be undone, beside the least that it could cost."""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from bench.facts import lacking_for_images, load_teller
from bench.image_timing import SIX, one_core
from bench.mcp_contenders import GRAMERCY, PREFIX
from bench.mcp_stdio import BATCH, in_turns, p50
from bench.mcp_wire import Wire, call_frame
from bench.raw_loops import RawLoop
from bench.report import Section, Target, at_most, show
from gramercy.images.opening import open_image

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.measure import Effort, Reading

TOOLS = {"sbcl": "evaluate-lisp", "python": "evaluate-python"}
IMAGE, HOPS, RAW = "image without a server", "raw server and loop", "raw loop"
COLUMNS = ("evaluation", "over MCP p50 µs", f"{IMAGE} µs", f"{HOPS} µs", f"{RAW} µs", "MCP against each")
NOTES = (
    (
        "One request at a time, back to back; client, server and image share one core, and the four ways "
        "take turns. p50 is the median of medians of 200 evaluations."
    ),
    (
        "Over MCP: gramercy serve on stdio with its default settings: sandbox, deadline, bounded output, "
        "journal, checkpoints, recovery from crashes. The raw loop reads a line from a pipe, evaluates and "
        "prints."
    ),
    (
        "Raw server and loop: the same loop behind the raw asyncio loop of the table of stdio, which is what "
        "two processes cost at least and so the yardstick; it has neither sandbox nor deadline."
    ),
)


def measure(effort: Effort) -> Section:
    """Measure each language that is here."""
    load = load_teller()
    rows, targets, notes = [], [], list(NOTES)
    for language, tool in TOOLS.items():
        if missing := lacking_for_images(language):
            notes.append(missing)
            targets.append(Target(f"{tool} over MCP", missing, met=None))
            continue
        with tempfile.TemporaryDirectory(prefix="bench-project-") as directory:
            readings = ways(language, Path(directory), effort)
        ratio, to_hops = (readings[GRAMERCY].ratio_to(readings[name]) for name in (RAW, HOPS))
        cells = [show(readings[name].median * 1e6) for name in (GRAMERCY, IMAGE, HOPS, RAW)]
        rows.append((f"{tool}: {SIX[language]}", *cells, f"{to_hops:.2f}x, {ratio:.2f}x"))
        if language == "sbcl":
            targets.append(at_most(f"{tool} over MCP against the raw server and loop", to_hops, 2.5, "x"))
    return Section(
        name="mcp-images",
        title="Evaluating over MCP",
        intro="What a client waits for the value of a small form.",
        columns=COLUMNS,
        rows=tuple(rows) or (("evaluation", "not measured", "", "", "", ""),),
        targets=tuple(targets),
        notes=(*notes, load()),
    )


def ways(language: str, project: Path, effort: Effort) -> dict[str, Reading]:
    """Evaluate over MCP, in an image of this process, and in a raw loop, in turns."""
    code = SIX[language]
    command = (str(PREFIX / "bin" / "gramercy"), "serve", "--image", language, "--project", str(project))
    request = call_frame(TOOLS[language], code=code)
    with one_core(), ExitStack() as stack:
        wire = stack.enter_context(Wire(command))
        image = stack.enter_context(closing(open_image(language, project=project)))
        raw = stack.enter_context(RawLoop(language))
        hops = stack.enter_context(Wire((sys.executable, "-m", "bench.mcp_servers.raw_evaluator", language)))
        for each in (wire, hops):
            each.shake_hands()
            answer = each.ask(request)
            assert b'"=> 6"' in answer, answer
        works: dict[str, Callable[[], object]] = {
            GRAMERCY: lambda: wire.ask(request),
            IMAGE: lambda: image.evaluate(code),
            HOPS: lambda: hops.ask(request),
            RAW: lambda: raw.evaluate(code),
        }
        assert image.evaluate(code).values == [raw.evaluate(code)] == ["6"]
        for work in works.values():
            p50(work, BATCH)  # warm
        return in_turns({name: [] for name in works}, effort.rounds, lambda name: p50(works[name], BATCH))
