"""What happens to registration, calls and listings when ten tools become ten thousand."""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.call_cost import PARAMETERS, answer
from bench.measure import Contender, repeat_await, repeat_call, take_turns, time_once
from bench.peer_calls import ARGUMENTS, forecast
from bench.peers import FASTMCP
from bench.report import Section, at_most, show

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.measure import Effort
    from gramercy import Executor, Registry

FEW, MANY = 10, 10_000
FASTMCP_SIZES = (10, 100, 1_000, 10_000)
FASTMCP_BUDGET = 20.0
LISTING_ROUNDS = 15
NOTES = (
    "Registering includes defining: schema checked, tool made, tool registered.",
    "Listing: the slowest of names(), select() and tools_to_schema(); first: the same after a registration.",
    (
        f"FastMCP is stopped after {FASTMCP_BUDGET:g} s of registering; its listing is list_tools(), its "
        "call call_tool(). Its rows are measured once, one size after the other."
    ),
)


@dataclass(frozen=True, slots=True)
class Growth:
    """The figures of one size: seconds for all registrations, seconds per call and per listing."""

    size: int
    register: float
    call: float
    listing: float
    first_listing: float | None = None

    def row(self, who: str) -> tuple[str, ...]:
        """Print the figures as a row."""
        figures = (self.register * 1e3, self.call * 1e6, self.listing * 1e3)
        first = "" if self.first_listing is None else show(self.first_listing * 1e3)
        return (who, f"{self.size:,}", *map(show, figures), first)


def measure(effort: Effort) -> Section:
    """Grow our registry, then FastMCP's within its budget."""
    few, many, ratio, listings = _grow_gramercy(effort)
    theirs, remark = _grow_fastmcp(effort)
    return Section(
        name="growth",
        title="From 10 tools to 10,000",
        intro="Cost of registering all of them, of one call, and of listing all.",
        columns=("library", "tools", "register all, ms", "call, µs", "listing, ms", "first, ms"),
        rows=(few.row("gramercy"), many.row("gramercy"), *(growth.row("fastmcp") for growth in theirs)),
        targets=(
            at_most(f"define and register {MANY:,} tools", many.register, 1, " s"),
            at_most(f"a call among {MANY:,} against one among {FEW}", ratio, 1.3, "x"),
            *(at_most(f"{name} of {MANY:,}", seconds * 1e3, 5, " ms") for name, seconds in listings.items()),
        ),
        notes=(*NOTES, *remark),
    )


def _register(registry: Registry, size: int) -> None:
    from gramercy import define_tool

    for number in range(size):
        name = f"tool_{number:05d}"
        registry.register(
            define_tool(name, "Tell the weather.", PARAMETERS, required=["city", "days"], handler=answer)
        )


def _grow_gramercy(effort: Effort) -> tuple[Growth, Growth, float, dict[str, float]]:
    from gramercy import Executor, Registry

    registries = {size: Registry() for size in (FEW, MANY)}
    spent = {size: time_once(lambda s=size: _register(registries[s], s)) for size in registries}
    contenders = [
        Contender(str(size), _middle_call(Executor(registry), size)) for size, registry in registries.items()
    ]
    readings = take_turns(contenders, effort)
    settled = {size: _list_everything(registry, renewed=False) for size, registry in registries.items()}
    renewed = {size: _list_everything(registry, renewed=True) for size, registry in registries.items()}
    few, many = (
        Growth(
            size,
            spent[size],
            readings[str(size)].median,
            max(settled[size].values()),
            max(renewed[size].values()),
        )
        for size in registries
    )
    return few, many, readings[str(MANY)].ratio_to(readings[str(FEW)]), settled[MANY]


def _middle_call(executor: Executor, size: int) -> Callable[[int], None]:
    call = {"id": "1", "name": f"tool_{size // 2:05d}", "arguments": ARGUMENTS}
    return repeat_call(lambda: executor.execute(call))


def _list_everything(registry: Registry, *, renewed: bool) -> dict[str, float]:
    """Time each listing, either settled or (renewed) as the first one after a registration."""
    from gramercy import tools_to_schema

    newest = registry.get("tool_00000")
    assert newest is not None
    tools = registry.select()
    ways: dict[str, Callable[[], Any]] = {
        "names()": registry.names,
        "select()": registry.select,
        "tools_to_schema(tools)": lambda: tools_to_schema(tools),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(LISTING_ROUNDS):
        for name, way in ways.items():
            if renewed:
                registry.register(newest)
            seconds[name].append(time_once(way))
    return {name: statistics.median(samples) for name, samples in seconds.items()}


def _grow_fastmcp(effort: Effort) -> tuple[list[Growth], tuple[str, ...]]:
    if not FASTMCP.is_installed:
        return [], (f"fastmcp {FASTMCP.absence}",)
    loop = asyncio.new_event_loop()
    grown: list[Growth] = []
    for size in FASTMCP_SIZES[: 2 if effort.quick else None]:
        server = _fastmcp_server()
        registered = 0
        started, deadline = time.process_time(), time.monotonic() + FASTMCP_BUDGET
        while registered < size and time.monotonic() < deadline:
            _register_fastmcp(server, registered)
            registered += 1
        spent = time.process_time() - started
        grown.append(Growth(registered, spent, *_fastmcp_costs(loop, server, registered)))
        if registered < size:
            return grown, (f"FastMCP was stopped at {registered:,} of {size:,} tools.",)
    return grown, ()


def _fastmcp_server() -> Any:
    from fastmcp import FastMCP

    return FastMCP("growth")


def _register_fastmcp(server: Any, number: int) -> None:
    from fastmcp.tools import Tool

    server.add_tool(Tool.from_function(forecast, name=f"tool_{number:05d}"))


def _fastmcp_costs(loop: asyncio.AbstractEventLoop, server: Any, size: int) -> tuple[float, float]:
    name = f"tool_{size // 2:05d}"
    call = repeat_await(loop, lambda: server.call_tool(name, ARGUMENTS))
    listing = repeat_await(loop, server.list_tools)
    call(1)
    return time_once(lambda: call(20)) / 20, time_once(lambda: listing(1))
