"""MCP on stdio: one echo call at a time, the way to the first list, the list of many tools, idle memory."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from bench.facts import load_teller
from bench.image_timing import one_core
from bench.mcp_contenders import FAST, GRAMERCY, NODE, PLAIN, SDK, McpServer, contenders, notes
from bench.mcp_wire import LIST, Wire, call_frame, resident_bytes
from bench.measure import Reading
from bench.report import Section, Target, absent_rows, at_least, at_most, show

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.measure import Effort

MANY = 1_000
BATCH = 200
ECHO = call_frame("echo", text="hello")
COLUMNS = ("server", "echo p50 µs", "server CPU µs", "start ms", f"list of {MANY:,} ms", "idle RSS MB")
NOTES = (
    (
        "One raw blocking client for all, which speaks 2025-11-25; client and server share one core, and the "
        "servers take turns. p50 is the median of medians of 200 calls, CPU is of all threads of the server."
    ),
    (
        "Start: from starting the process to the answer to tools/list. Idle: after a handshake, a list and "
        "one call."
    ),
)


@dataclass(slots=True)
class Figures:
    """What was measured, each by the name of the server."""

    echo: dict[str, Reading]
    cpu: dict[str, Reading]
    start: dict[str, Reading]
    listing: dict[str, Reading]
    resident: dict[str, int]
    end: float

    def row(self, name: str) -> tuple[str, ...]:
        """Print the figures of one server."""
        timed = ((self.echo, 1e6), (self.cpu, 1e6), (self.start, 1e3), (self.listing, 1e3))
        cells = [show(readings[name].median * scale) for readings, scale in timed]
        return (name, *cells, show(self.resident[name] / 1e6))


def measure(effort: Effort) -> Section:
    """Measure everybody who is here."""
    load = load_teller()
    servers, absent = contenders()
    servers = [server for server in servers if server.stdio]
    with one_core():
        echo, cpu, resident = measure_calls(servers, effort)
        starts, lists = measure_starts(servers, effort), measure_lists(servers, effort)
        [ours] = (server for server in servers if server.name == GRAMERCY)
        figures = Figures(echo, cpu, starts, lists, resident, measure_ends(ours, effort))
    return Section(
        name="mcp-stdio",
        title="MCP on stdio",
        intro="An echo tool behind every server, asked over the same pipes by the same client.",
        columns=COLUMNS,
        rows=(*(figures.row(server.name) for server in servers), *absent_rows(absent, len(COLUMNS))),
        targets=tuple(targets(figures, absent)),
        notes=(*NOTES, *notes(servers, absent), load()),
    )


def in_turns(
    samples: dict[str, list[float]], rounds: int, take: Callable[[str], float]
) -> dict[str, Reading]:
    """Take one sample of each in every round, the order rotated."""
    names = list(samples)
    for turn in range(rounds):
        first = turn % len(names)
        for name in (*names[first:], *names[:first]):
            samples[name].append(take(name))
    return {name: Reading(name, tuple(values)) for name, values in samples.items()}


def p50(work: Callable[[], object], count: int) -> float:
    """Return the median wall time of so many pieces of work."""
    spent = []
    for _ in range(count):
        started = perf_counter()
        work()
        spent.append(perf_counter() - started)
    return statistics.median(spent)


def measure_calls(
    servers: list[McpServer], effort: Effort
) -> tuple[dict[str, Reading], dict[str, Reading], dict[str, int]]:
    """Call echo in all servers in turns; return p50, CPU per call, and memory before that."""
    with ExitStack() as stack:
        wires = {server.name: stack.enter_context(Wire(server.stdio)) for server in servers}
        for wire in wires.values():
            wire.shake_hands()
            wire.ask(LIST)
            assert b'"hello"' in wire.ask(ECHO), wire.process.args
        resident = {name: resident_bytes(wire.process.pid) for name, wire in wires.items()}
        cpu: dict[str, list[float]] = {name: [] for name in wires}

        def take(name: str) -> float:
            wire = wires[name]
            before = wire.cpu_seconds
            found = p50(lambda: wire.ask(ECHO), BATCH)
            cpu[name].append((wire.cpu_seconds - before) / BATCH)
            return found

        for name in wires:
            take(name)  # warm
        for spent in cpu.values():
            spent.clear()
        echo = in_turns({name: [] for name in wires}, effort.rounds, take)
    return echo, {name: Reading(name, tuple(values)) for name, values in cpu.items()}, resident


def measure_starts(servers: list[McpServer], effort: Effort) -> dict[str, Reading]:
    """Start each server again and again, and wait for its list."""
    commands = {server.name: server.stdio for server in servers}

    def take(name: str) -> float:
        started = perf_counter()
        with Wire(commands[name]) as wire:
            wire.shake_hands()
            assert b'"echo' in wire.ask(LIST)
            return perf_counter() - started

    for name in commands:
        take(name)  # the first finds cold files
    return in_turns({name: [] for name in commands}, effort.process_rounds, take)


def measure_ends(server: McpServer, effort: Effort) -> float:
    """Return the median time from the end of the input to the end of the process."""
    spent = []
    for _ in range(effort.process_rounds):
        with Wire(server.stdio) as wire:
            wire.shake_hands()
            wire.ask(LIST)
            spent.append(wire.hang_up())
    return statistics.median(spent)


def measure_lists(servers: list[McpServer], effort: Effort) -> dict[str, Reading]:
    """Ask servers with many tools for their list, in turns."""
    with ExitStack() as stack:
        wires = {server.name: stack.enter_context(Wire(server.stdio, TOOLS=str(MANY))) for server in servers}
        for wire in wires.values():
            wire.shake_hands()
            assert wire.ask(LIST).count(b'"inputSchema"') == MANY, wire.process.args
        count = 1 if effort.quick else 3
        return in_turns(
            {name: [] for name in wires},
            effort.rounds,
            lambda name: p50(lambda: wires[name].ask(LIST), count),
        )


def targets(figures: Figures, absent: dict[str, str]) -> list[Target]:
    """Compare us with the others, with uvloop and without."""
    found = []
    for ours in (name for name in (GRAMERCY, PLAIN) if name in figures.echo):
        found += [
            against(absent, NODE, f"{ours}: echo ahead of the {NODE}", _lead(figures.echo, ours), 1),
            against(absent, FAST, f"{ours}: echo ahead of {FAST}", _lead(figures.echo, ours), 8),
            against(absent, SDK, f"{ours}: first list ahead of the {SDK}", _lead(figures.start, ours), 4),
        ]
    return [
        *found,
        at_most("idle memory without images", figures.resident[GRAMERCY] / 1e6, 40, " MB"),
        at_most("the end of the input to the end of the process", figures.end, 1, " s"),
    ]


def _lead(readings: dict[str, Reading], ours: str) -> Callable[[str], float]:
    return lambda peer: readings[peer].ratio_to(readings[ours])


def against(
    absent: dict[str, str], peer: str, text: str, lead: Callable[[str], float], least: float
) -> Target:
    """Make a target of how many times a peer's cost is ours, if the peer is here."""
    if peer in absent:
        return Target(f"{text}: at least {least:g}x", absent[peer], met=None)
    return at_least(text, lead(peer), least, "x")
