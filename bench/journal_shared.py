"""How many calls a second sixteen processes record in one journal on a PostgreSQL server of this machine."""

from __future__ import annotations

import subprocess
import sys
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

from bench.report import Section, Target, at_least, show
from gramercy import Executor, Registry, define_tool
from gramercy.journal.opening import open_journal
from tests.postgres import PostgresServer, why_none

if TYPE_CHECKING:
    from bench.measure import Effort

WORKERS = 16
SECONDS, QUICK_SECONDS = 10.0, 1.0
# Also of dangerous ones: what a person was asked, what was decided, that it runs, how it ended.
WANTED = 500
WORKER = """
import sys
from bench.journal_shared import work
work(*sys.argv[1:])
"""


def measure(effort: Effort) -> Section:
    """Measure safe and dangerous calls, each with a database of its own."""
    seconds = QUICK_SECONDS if effort.quick else SECONDS
    rows: list[tuple[str, ...]] = []
    text = f"calls a second from {WORKERS} workers"
    targets = [
        Target(f"{each} {text}: at least {WANTED}", why_none(), None) for each in ("safe", "dangerous")
    ]
    if not why_none():
        with PostgresServer(durable=True) as server:
            safe = _calls(server.create(), "safe", seconds)
            dangerous = _calls(server.create(), "dangerous", seconds)
        rows = [("safe", *map(show, safe)), ("dangerous, approved", *map(show, dangerous))]
        targets = [
            at_least(f"safe {text}", safe[0], WANTED),
            at_least(f"dangerous {text}", dangerous[0], WANTED),
        ]
    return Section(
        name="journal-shared",
        title="The journal on PostgreSQL",
        intro=f"{WORKERS} processes with an executor each, {seconds:g} seconds; calls of all, median of one.",
        columns=("calls", "a second", "one call, ms"),
        rows=tuple(rows),
        targets=tuple(targets),
        notes=(
            "The server runs on the same machine, with its usual settings: it waits for the disk.",
            "A safe call is one transaction, which does not wait for it; a dangerous one is four, which do.",
        ),
    )


def _calls(address: str, level: str, seconds: float) -> tuple[float, float]:
    """Return how many calls a second all workers make, and how many milliseconds one takes."""
    command = [sys.executable, "-c", WORKER, address, level, str(seconds)]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(WORKERS)
    ]
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    told = [worker.communicate(timeout=seconds + 60)[0].split() for worker in workers]
    medians = sorted(float(median) for _, median in told)
    return sum(int(count) for count, _ in told) / seconds, medians[WORKERS // 2] * 1e3


def work(address: str, level: str, seconds: str) -> None:
    """Make calls for some time, from when a line comes; print how many, and the median seconds of one."""
    journal = open_journal(address)
    tool = define_tool(
        "read_note", "Read a note.", [{"name": "title", "type": "string"}], handler=str, safety_level=level
    )
    executor = Executor(Registry([tool]), lambda _tool, _arguments: "approved", journal=journal)
    call = {"id": "c1", "name": "read_note", "arguments": {"title": "shopping"}}
    assert executor.execute(call).success
    print("there", flush=True)
    sys.stdin.readline()
    taken = []
    end = monotonic() + float(seconds)
    while monotonic() < end:
        started = perf_counter()
        assert executor.execute(call).success
        taken.append(perf_counter() - started)
    print(len(taken), sorted(taken)[len(taken) // 2])
    journal.close()
