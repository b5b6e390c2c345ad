"""What one in-process call costs: a bare function, gramercy with its whole guard, and the peers."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.measure import Contender, repeat_await, repeat_call, take_turns
from bench.peer_calls import ANSWER, ARGUMENTS, CALLS
from bench.peers import PEERS, try_peers
from bench.report import Section, Target, absent_rows, at_least, at_most, show

if TYPE_CHECKING:
    from bench.measure import Effort, Reading

BARE = "bare Python function"
OURS = "gramercy Executor.execute"
STRUCT = "gramercy Executor.execute, ToolCall"
ALONE = "gramercy checker + handler"
CALL = {"id": "1", "name": "forecast", "arguments": ARGUMENTS}
JSON_CALL = {**CALL, "arguments": json.dumps(ARGUMENTS)}
PARAMETERS = [
    {"name": "city", "type": "string", "description": "Where."},
    {"name": "days", "type": "integer", "description": "How many days."},
]
# Paths on which invalid arguments raise, so that whoever calls must still make a text for the model.
RAISING = ("pydantic-ai validator + toolset.call_tool", "fastmcp FunctionTool.run")
NOTES = (
    "CPU time, median of interleaved rounds; a ratio is the median of the rounds' own ratios.",
    "The bare function takes the same dictionary and returns the same string: the floor, nothing checked.",
    "gramercy: look-up by name, validation, policy, one observer hook, metrics and the default journal.",
    (
        "Peers get asynchronous functions, which spares them a thread hop, and reuse one context, manager or "
        "server for every call; the rows marked sync show the hop."
    ),
    "openai-agents takes JSON text only, so its figure includes parsing; it is handed the tool, no look-up.",
    (
        "pydantic-ai's validator + toolset.call_tool is handed the tool: no look-up, no hooks, no retries, "
        "and invalid arguments raise instead of reaching the model. Its like here is "
        "'gramercy checker + handler'."
    ),
    "ToolManager, call_tool and invoke are the paths that the peers' own agent loops and servers take.",
)


def answer(arguments: dict[str, Any]) -> str:
    """Do the work that every contender does."""
    return f"{arguments['city']}: {arguments['days']} days"


def observe(_phase: str, _tool: Any, _arguments: Any, _result: Any) -> None:
    """Watch and change nothing, like the observer hook it is."""


async def answer_async(arguments: dict[str, Any]) -> str:
    """Do the same work asynchronously, as the peers do it."""
    return f"{arguments['city']}: {arguments['days']} days"


def gramercy_calls(loop: asyncio.AbstractEventLoop) -> list[Contender]:
    """Our own contenders."""
    from gramercy import Executor, Registry, ToolCall, define_tool

    def tool(name: str, handler: Any, **options: Any) -> Any:
        required = ["city", "days"]
        return define_tool(
            name, "Tell the weather.", PARAMETERS, required=required, handler=handler, **options
        )

    plain = tool("forecast", answer)
    others = [tool("forecast_async", answer_async), tool("forecast_inline", answer, inline=True)]
    executor = Executor(Registry([plain, *others]), hooks=[observe])
    check, handler, struct = plain.checker.check, plain.handler, ToolCall("1", "forecast", ARGUMENTS)

    def awaited(label: str, name: str) -> Contender:
        call = {**CALL, "name": name}
        assert loop.run_until_complete(executor.aexecute(call)).content == ANSWER
        return Contender(label, repeat_await(loop, lambda: executor.aexecute(call)))

    assert executor.execute(CALL).content == ANSWER
    return [
        Contender(ALONE, repeat_call(lambda: handler(check(ARGUMENTS)))),
        Contender(OURS, repeat_call(lambda: executor.execute(CALL))),
        Contender(STRUCT, repeat_call(lambda: executor.execute(struct))),
        Contender("gramercy Executor.execute, JSON text", repeat_call(lambda: executor.execute(JSON_CALL))),
        awaited("gramercy Executor.aexecute, async handler", "forecast_async"),
        awaited("gramercy Executor.aexecute, inline handler", "forecast_inline"),
        awaited("gramercy Executor.aexecute, sync handler", "forecast"),
    ]


def measure(effort: Effort) -> Section:
    """Run everybody in turns."""
    loop = asyncio.new_event_loop()
    contenders = [Contender(BARE, repeat_call(lambda: answer(ARGUMENTS))), *gramercy_calls(loop)]
    made, absent = try_peers({peer: partial(CALLS[peer], loop) for peer in PEERS})
    theirs = [contender for calls in made for contender in calls]
    readings = take_turns([*contenders, *theirs], effort)
    loop.close()
    rows = [_row(reading, readings) for reading in readings.values()]
    return Section(
        name="call",
        title="One call in process",
        intro="A tool with two arguments that returns a short string.",
        columns=("path", "µs", "x bare", "x gramercy"),
        rows=(*rows, *absent_rows(absent, 4)),
        targets=_targets(readings, [contender.name for contender in theirs]),
        notes=(*NOTES, *(f"{name}: {reason}" for name, reason in absent.items())),
    )


def _row(reading: Reading, readings: dict[str, Reading]) -> tuple[str, ...]:
    ratios = (reading.ratio_to(readings[BARE]), reading.ratio_to(readings[OURS]))
    return (reading.name, show(reading.median * 1e6), *map(show, ratios))


def _targets(readings: dict[str, Reading], peers: list[str]) -> tuple[Target, ...]:
    ours = readings[OURS]
    # One road for every call: 24 bare calls is what the whole guard may cost, and still less than any peer.
    floor = at_most("gramercy execute against a bare call", ours.ratio_to(readings[BARE]), 24, "x")
    struct = at_most(
        "gramercy execute of a ToolCall against a bare call",
        readings[STRUCT].ratio_to(readings[BARE]),
        24,
        "x",
    )
    # A call as a model makes it: bad arguments come back as an answer. The raw paths are in the table.
    answering = [readings[name] for name in peers if name not in RAISING]
    return (floor, struct, _lead("the fastest peer that answers a bad call", ours, answering))


def _lead(who: str, ours: Reading, theirs: list[Reading]) -> Target:
    text = f"gramercy execute against {who}"
    if not theirs:
        return Target(f"{text}: at least 1x", "no peer installed", met=None)
    fastest = min(theirs, key=lambda reading: reading.median)
    return at_least(f"{text} ({fastest.name})", fastest.ratio_to(ours), 1, "x")
