"""MCP over HTTP: requests per second at sixteen connections, one alone, what an idle session takes."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from bench.facts import load_teller
from bench.mcp_contenders import GRAMERCY, PORT, SDK, McpServer, contenders, notes
from bench.mcp_load import Pace, connected, drive, free_port, listening, session_call, stateless_call
from bench.mcp_stdio import against
from bench.mcp_wire import resident_bytes
from bench.measure import Reading
from bench.report import Section, Target, absent_rows, at_most, show

if TYPE_CHECKING:
    from bench.measure import Effort

CONNECTIONS = 16
COLUMNS = ("server", "requests/s", "p50 alone µs", "requests/s in sessions", "KB per idle session")
NOTES = (
    (
        f"Echo calls on {CONNECTIONS} connections that are kept alive, one raw client for all; the servers "
        "take turns on one core, the client has another. Without sessions: revision 2026-07-28. In sessions: "
        "2025-11-25, one for each connection."
    ),
    "Alone: the median wait of a request on a single connection, without sessions.",
    "KB per idle session: growth of the resident memory during 2,000 handshakes, after 500 that warm up.",
)


class Measured:
    """The figures of all servers, by name."""

    def __init__(self) -> None:
        self.crowd: dict[str, Reading] = {}
        self.alone: dict[str, Reading] = {}
        self.sessions: dict[str, Reading] = {}
        self.kilobytes: dict[str, float] = {}

    def row(self, name: str) -> tuple[str, ...]:
        """Print the figures of one server."""
        return (
            name,
            show(1 / self.crowd[name].median),
            show(self.alone[name].median * 1e6),
            show(1 / self.sessions[name].median) if name in self.sessions else "",
            show(self.kilobytes[name]) if name in self.kilobytes else "",
        )


def measure(effort: Effort) -> Section:
    """Measure everybody who is here."""
    load = load_teller()
    servers, absent = contenders()
    servers = [server for server in servers if server.http]
    found = Measured()
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        measure_stateless(servers, effort, max(allowed), found)
        measure_sessions(servers, effort, max(allowed), found)
    finally:
        os.sched_setaffinity(0, allowed)
    return Section(
        name="mcp-http",
        title="MCP over HTTP",
        intro="The same echo tool over Streamable HTTP.",
        columns=COLUMNS,
        rows=(*(found.row(server.name) for server in servers), *absent_rows(absent, len(COLUMNS))),
        targets=tuple(targets(found, absent)),
        notes=(*NOTES, *notes(servers, absent), load()),
    )


def at_port(command: tuple[str, ...], port: int) -> list[str]:
    """Put the port into a command."""
    return [word.replace(PORT, str(port)) for word in command]


def measure_stateless(servers: list[McpServer], effort: Effort, core: int, found: Measured) -> None:
    """Call without sessions, in turns."""
    crowds: dict[str, list[float]] = {server.name: [] for server in servers}
    alone: dict[str, list[float]] = {server.name: [] for server in servers}
    with ExitStack() as stack:
        ports = {server.name: free_port() for server in servers}
        for server in servers:
            stack.enter_context(listening(at_port(server.http, ports[server.name]), ports[server.name], core))
        for turn in range(rounds(effort) + 1):
            for name, port in rotated(ports, turn):
                crowd, single = _visit(port, CONNECTIONS, effort), _visit(port, 1, effort)
                if turn:  # the first only warms up
                    crowds[name].append(crowd.each)
                    alone[name].append(single.p50)
    found.crowd, found.alone = _readings(crowds), _readings(alone)


def _visit(port: int, count: int, effort: Effort) -> Pace:
    with connected(port, count) as connections:
        return drive(connections, [stateless_call(port)] * count, seconds(effort))


def measure_sessions(servers: list[McpServer], effort: Effort, core: int, found: Measured) -> None:
    """Call within sessions, in turns; then open many more."""
    samples: dict[str, list[float]] = {server.name: [] for server in servers if server.sessions}
    with ExitStack() as stack:
        ports = {name: free_port() for name in samples}
        processes = {
            server.name: stack.enter_context(
                listening(at_port(server.sessions, ports[server.name]), ports[server.name], core)
            )
            for server in servers
            if server.sessions
        }
        for turn in range(rounds(effort) + 1):
            for name, port in rotated(ports, turn):
                with connected(port, CONNECTIONS) as connections:
                    requests = [session_call(port, connection.open_session()) for connection in connections]
                    pace = drive(connections, requests, seconds(effort))
                if turn:
                    samples[name].append(pace.each)
        found.sessions = _readings(samples)
        for name, port in ports.items():
            found.kilobytes[name] = session_kilobytes(port, processes[name].pid, effort)


def session_kilobytes(port: int, pid: int, effort: Effort) -> float:
    """Return how much a server grows for each session that stays open."""
    first, more = (50, 200) if effort.quick else (500, 2_000)
    with connected(port, 1) as (connection,):
        for _ in range(first):
            connection.open_session()
        before = resident_bytes(pid)
        for _ in range(more):
            connection.open_session()
        return (resident_bytes(pid) - before) / more / 1e3


def rounds(effort: Effort) -> int:
    """Return how often everybody has a turn."""
    return 2 if effort.quick else 11


def seconds(effort: Effort) -> float:
    """Return how long a turn is."""
    return 0.1 if effort.quick else 0.4


def rotated(ports: dict[str, int], turn: int) -> list[tuple[str, int]]:
    """Return names and ports, beginning with another one every turn."""
    first = turn % len(ports)
    items = list(ports.items())
    return [*items[first:], *items[:first]]


def _readings(samples: dict[str, list[float]]) -> dict[str, Reading]:
    return {name: Reading(name, tuple(values)) for name, values in samples.items()}


def targets(found: Measured, absent: dict[str, str]) -> list[Target]:
    """Compare us with the SDK, and a session with what it may cost."""
    ours, sessions = found.crowd[GRAMERCY], found.sessions[GRAMERCY]
    return [
        against(
            absent, SDK, f"requests/s against the {SDK}", lambda peer: found.crowd[peer].ratio_to(ours), 4
        ),
        against(
            absent,
            SDK,
            f"requests/s in sessions against the {SDK}",
            lambda peer: found.sessions[peer].ratio_to(sessions),
            4,
        ),
        at_most("memory of an idle session", found.kilobytes[GRAMERCY], 4, " KB"),
    ]
