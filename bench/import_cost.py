"""What it costs to start: a bare interpreter, our import and our --help, and the peers' imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measure import take_turns_in_children
from bench.peers import PEERS
from bench.report import Section, Target, absent_rows, at_most, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.measure import Effort, Reading

BARE = "python -c pass"
CLICK = "import click"
OURS = "import gramercy"
READY = "gramercy up to the first answered call"
HELP = "gramercy --help"
FIRST_CALL = """
from gramercy import Executor, Registry, define_tool
city = {"name": "city", "type": "string", "description": "Where."}
echo = define_tool("echo", "Echo.", [city], required=["city"], handler=lambda given: given["city"])
call = {"id": "1", "name": "echo", "arguments": {"city": "Lyon"}}
assert Executor(Registry([echo])).execute_tool_calls([call])[0].content == "Lyon"
"""
NOTES = (
    (
        "gramercy loads its parts when they are first used, so its bare import says little: the row up to "
        "the first answered call shows the whole price. The peers' rows are imports alone."
    ),
    "CPU time, user and system, of whole processes in interleaved rounds after one warm-up.",
    (
        "All share one environment, so its start-up files weigh on each alike, and all are compiled "
        "beforehand, as pip leaves them."
    ),
    "langchain_core is imported by its room for tools; the bare package loads almost nothing.",
)


def measure(effort: Effort) -> Section:
    """Start everybody in turns."""
    present = [peer for peer in PEERS if peer.is_installed]
    commands: dict[str, Sequence[str]] = {
        BARE: (sys.executable, "-c", "pass"),
        CLICK: (sys.executable, "-c", "import click"),
        OURS: (sys.executable, "-c", "import gramercy"),
        READY: (sys.executable, "-c", FIRST_CALL),
        HELP: (str(Path(sys.executable).with_name("gramercy")), "--help"),
    }
    commands |= {f"import {p.module}": (sys.executable, "-c", f"import {p.module}") for p in present}
    readings = take_turns_in_children(commands, effort)
    absent = {peer.distribution: peer.absence for peer in PEERS if not peer.is_installed}
    return Section(
        name="import",
        title="Start and import",
        intro="How long a process takes that only imports the package.",
        columns=("process", "ms", "x bare interpreter", "x import gramercy"),
        rows=(*(_row(reading, readings) for reading in readings.values()), *absent_rows(absent, 4)),
        targets=(
            at_most(f"{OURS} against the interpreter", readings[OURS].ratio_to(readings[BARE]), 8, "x"),
            _help_target(readings, commands[HELP]),
        ),
        notes=(*NOTES, *(f"{name}: {reason}" for name, reason in absent.items())),
    )


def _help_target(readings: dict[str, Reading], command: Sequence[str]) -> Target:
    text = f"{HELP} against {CLICK}"
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    if "usage" not in said.lower():  # a command line that says nothing is quick for the wrong reason
        return Target(f"{text}: at most 2.5x", "it prints no usage", met=None)
    return at_most(text, readings[HELP].ratio_to(readings[CLICK]), 2.5, "x")


def _row(reading: Reading, readings: dict[str, Reading]) -> tuple[str, ...]:
    ratios = (reading.ratio_to(readings[BARE]), reading.ratio_to(readings[OURS]))
    return (reading.name, show(reading.median * 1e3), *map(show, ratios))
