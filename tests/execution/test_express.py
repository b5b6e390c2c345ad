"""The express lane and the ordinary road give the same results, records, figures and hook calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gramercy import Executor, Policy, Registry, ToolCall, ToolOutput, ToolResult, define_tool
from gramercy.execution.express import ExpressLane
from gramercy.execution.journal import MemoryJournal

PARAMETERS: list[Any] = [
    {"name": "text", "type": "string"},
    {"name": "count", "type": "integer", "default": 1},
    {"name": "flag", "type": "boolean"},
]


class Odd(BaseException):
    """Not an Exception."""


def handle(arguments):
    text = arguments["text"]
    if text == "raise":
        raise ValueError("bad")
    if text == "odd":
        raise Odd("odd")
    if text == "mutate":
        arguments.clear()
        return "mutated"
    results = {
        "none": None,
        "list": [1, "a"],
        "output": ToolOutput(1, "no"),
        "long": "x" * 500,
        "é": "é",
        "half": "\ud800",
    }
    return results.get(text, f"{text} {arguments['count']} {arguments.get('flag')}")


async def later(text):
    return f"awaited {text}"


class Journal(MemoryJournal):
    """Fails to note the calls with a certain id."""

    def note(self, state, call_id, tool, detail=""):
        if call_id == "unlucky":
            raise OSError("disk full")
        super().note(state, call_id, tool, detail)


class Road:
    """An executor whose calls take one road, and everything that can be seen of them."""

    def __init__(self, *, express, inline=False):
        self.seen = []
        tools = [
            define_tool("it", "It.", PARAMETERS, required=["text"], handler=handle, inline=inline),
            define_tool("awaits", "It.", PARAMETERS, handler=lambda a: later(a["text"]), inline=inline),
        ]
        self.executor = Executor(
            Registry(tools), hooks=[self.hook, self.broken], journal=Journal(), max_output=100
        )
        for tool in tools:
            self.executor.policy.why(tool, {})
        if not express:
            lane: Any = NoLane()
            self.executor._express = self.executor._inline_express = lane

    def hook(self, phase, tool, arguments, result):
        shown = result and (result.id, result.success, result.content, result.error, sorted(result.metadata))
        self.seen.append((phase, tool.name, dict(arguments), shown))
        arguments.clear()
        if result is not None:
            result.metadata.clear()

    def broken(self, *_):
        raise Odd

    def trace(self, run, calls):
        results = [run(self.executor, call) for call in calls]
        figures = {
            name: (f.calls, f.succeeded, f.failed, f.denied, f.mean_result_size)
            for name, f in self.executor.metrics().items()
        }
        entries = [(e.call_id, e.tool, e.state, e.detail) for e in self.executor.journal.entries()]
        shown = [(r.id, r.success, r.content, r.error, sorted(r.metadata)) for r in results]
        return shown, self.seen, figures, entries


class NoLane:
    """Lets nothing through."""

    def run(self, _call):
        return None


CALLS: list[Any] = [
    {"id": "1", "name": "it", "arguments": {"text": "plain"}},
    {"id": "2", "name": "it", "arguments": {"text": "plain", "count": 3, "flag": True}},
    {"id": "3", "name": "it", "arguments": {"text": "é"}},
    {"id": "4", "name": "it", "arguments": {"text": 5}},
    {"id": "5", "name": "it", "arguments": {}},
    {"id": "6", "name": "it"},
    {"id": "7", "name": "it", "arguments": '{"text": "json"}'},
    {"id": "8", "name": "it", "arguments": {"text": "\ud800"}},
    {"id": "9", "name": "it", "arguments": {"text": "plain", 1: 2}},
    {"id": "10", "name": "it", "arguments": {"text": "plain", "count": 10**5000}},
    {"id": "11", "name": "it", "arguments": None},
    {"id": 12, "name": "it", "arguments": {"text": "plain"}},
    {"name": "it", "arguments": {"text": "plain"}},
    {"id": "unlucky", "name": "it", "arguments": {"text": "plain"}},
    {"id": "unlucky", "name": "it", "arguments": {"text": "raise"}},
    {"id": "13", "name": "awaits", "arguments": {"text": "x"}},
    {"id": "14", "name": "It", "arguments": {"text": "x"}},
    {"id": "15", "name": ["it"], "arguments": {"text": "x"}},
    ToolCall("16", "it", {"text": "struct"}),
    *(
        {"id": text, "name": "it", "arguments": {"text": text}}
        for text in ("raise", "odd", "mutate", "none", "list")
    ),
    *({"id": text, "name": "it", "arguments": {"text": text}} for text in ("output", "long", "half")),
]


@pytest.mark.parametrize("inline", [False, True])
def test_both_roads_give_the_same(run, inline):
    """Performance design: the fast path is no other path."""
    swift = Road(express=True, inline=inline).trace(run, CALLS)
    ordinary = Road(express=False, inline=inline).trace(run, CALLS)
    for fast, slow in zip(swift, ordinary, strict=True):
        assert fast == slow


def test_plain_calls_do_take_the_express_lane():
    """The comparison above would be empty otherwise."""
    executor = Road(express=True, inline=True).executor
    for lane in (executor._express, executor._inline_express):
        assert isinstance(lane, ExpressLane)
        result = lane.run(CALLS[0])
        assert isinstance(result, ToolResult)
        assert result.content == "plain 1 None"


@pytest.mark.parametrize(
    "settings",
    [
        {"policy": Policy([{"action": "deny"}])},
        {"policy": Policy([{"action": "ask"}])},
        {"policy": Policy([{"action": "deny", "arguments": {"text": "plain"}}])},
        {"transforms": [lambda _tool, _arguments: {"text": "transformed"}]},
    ],
)
def test_no_rule_and_no_transform_is_passed_by(run, settings):
    """Guard design: every call passes through one executor, in one order."""
    tool = define_tool("it", "It.", PARAMETERS, handler=handle)
    executor = Executor(Registry([tool]), **settings)
    contents = {run(executor, CALLS[0]).content for _ in range(3)}
    assert len(contents) == 1
    assert contents != {"plain 1 None"}


def test_a_policy_that_is_assigned_counts_from_the_next_call_on(run):
    """Guard design: a change is seen by all parts at once."""
    executor = Executor(Registry([define_tool("it", "It.", PARAMETERS, handler=handle)]))
    assert [run(executor, CALLS[0]).success for _ in range(3)] == [True] * 3
    executor.policy = Policy([{"action": "deny"}])
    assert [run(executor, CALLS[0]).success for _ in range(3)] == [False] * 3


def test_a_tool_that_is_registered_again_is_the_one_that_runs(run):
    """Decision 10: registering again replaces."""
    registry = Registry([define_tool("it", "It.", PARAMETERS, handler=handle)])
    executor = Executor(registry)
    for _ in range(2):
        run(executor, CALLS[0])
    registry.register(define_tool("it", "It.", PARAMETERS, safety_level="dangerous", handler=handle))
    assert "needs approval" in run(executor, CALLS[0]).error


def test_limits_that_are_set_later_are_obeyed(run):
    """Settings may change between calls."""
    executor = Executor(Registry([define_tool("it", "It.", PARAMETERS, handler=lambda _: "x" * 50)]))
    assert [run(executor, CALLS[0]).content for _ in range(2)] == ["x" * 50] * 2
    executor.settings.max_output = 10
    assert run(executor, CALLS[0]).content.startswith("x" * 10 + "\n…")


def test_a_broken_schema_is_refused_on_every_road(run):
    """A verdict may be known before the schema was ever compiled."""
    good = define_tool("it", "It.", PARAMETERS, handler=handle, inline=True)
    broken = type(good)("it", "It.", {"type": "nonsense"}, handle, inline=True)
    executor = Executor(Registry([broken]))
    executor.policy.why(broken, {})
    assert "not a valid JSON Schema" in run(executor, CALLS[0]).error


def test_an_inline_tool_runs_on_the_loops_own_thread():
    """Performance design: handlers that are declared cheap run inline."""

    async def main():
        tool = define_tool(
            "it", "It.", PARAMETERS, handler=lambda _: str(asyncio.get_running_loop() is loop), inline=True
        )
        loop = asyncio.get_running_loop()
        executor = Executor(Registry([tool]))
        return [await executor.aexecute(CALLS[0]) for _ in range(2)]

    assert [result.content for result in asyncio.run(main())] == ["True", "True"]
