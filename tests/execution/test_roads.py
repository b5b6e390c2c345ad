"""The plain and the waiting road give the same results, records, figures and hook calls."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from typing import Any

import pytest

from gramercy import Executor, Policy, Registry, ToolCall, ToolOutput, define_tool
from gramercy.errors import ExecutionError
from gramercy.journal.base import NOTHING
from gramercy.journal.memory import MemoryJournal

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

    def note(self, call, state, facts=NOTHING):
        if call.call_id == "unlucky":
            raise OSError("disk full")
        super().note(call, state, facts)


class Road:
    """An executor whose calls take one road, and everything that can be seen of them."""

    def __init__(self, *, deadline=None, inline=False):
        self.seen = []
        tools = [
            define_tool("it", "It.", PARAMETERS, required=["text"], handler=handle, inline=inline),
            define_tool("awaits", "It.", PARAMETERS, handler=lambda a: later(a["text"]), inline=inline),
        ]
        self.executor = Executor(
            Registry(tools),
            hooks=[self.hook, self.broken],
            journal=Journal(),
            max_output=100,
            deadline=deadline,
        )

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
    """Performance design: the fast path is no other path. A deadline sends a call along the waiting road."""
    plain = Road(inline=inline).trace(run, CALLS)
    waiting = Road(inline=inline, deadline=60.0).trace(run, CALLS)
    for fast, slow in zip(plain, waiting, strict=True):
        assert fast == slow


@pytest.mark.parametrize("inline", [False, True])
def test_a_dict_and_a_tool_call_give_the_same(run, inline):
    """Performance design: the public type takes the same road as plain data."""
    whole = [call for call in CALLS if isinstance(call, dict) and "id" in call]
    dicts = [call for call in whole if call.get("arguments") is not None]
    structs: list[Any] = [ToolCall(call["id"], call["name"], call["arguments"]) for call in dicts]
    for one, other in zip(
        Road(inline=inline).trace(run, dicts), Road(inline=inline).trace(run, structs), strict=True
    ):
        assert one == other


def test_a_call_that_is_begun_gives_its_result_at_once_or_an_awaitable():
    """Performance design: a server of many clients makes a task only for what has to be waited for."""
    entered = []

    async def wait(arguments):
        entered.append(arguments["text"])
        if arguments["text"] == "slow":
            await asyncio.sleep(0)
        return arguments["text"]

    async def main():
        tools = [
            define_tool("cheap", "It.", PARAMETERS, handler=handle, inline=True),
            define_tool("threaded", "It.", PARAMETERS, handler=handle),
            replace(define_tool("waits", "It.", PARAMETERS, handler=handle), async_handler=wait),
        ]
        executor = Executor(Registry(tools))

        def begin(name, text):
            return executor.begin(ToolCall("1", name, {"text": text}))

        assert begin("cheap", "a").content == "a 1 None"
        assert begin("waits", "swift").content == "swift"
        slow = begin("waits", "slow")
        assert entered == ["swift", "slow"]
        assert (await slow).content == "slow"
        assert (await begin("threaded", "b")).content == "b 1 None"

    asyncio.run(main())


def test_a_call_that_was_begun_and_is_cancelled_is_recorded():
    """Guard design: nothing runs without a trace, also when its client has hung up."""

    async def main() -> list[Any]:
        async def wait(_):
            await asyncio.Event().wait()

        tool = replace(define_tool("waits", "It.", PARAMETERS, handler=handle), async_handler=wait)
        executor = Executor(Registry([tool]))
        begun: Any = executor.begin(ToolCall("1", "waits", {"text": "x"}))
        task = asyncio.ensure_future(begun)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return [(entry.state, entry.detail) for entry in executor.journal.entries()]

    assert asyncio.run(main()) == [("failed", "cancelled by the caller")]


@pytest.mark.filterwarnings("error")
def test_a_call_that_was_begun_may_be_dropped():
    """MCP: a client may cancel a call in the same breath in which it asks for it."""

    async def wait(_):
        await asyncio.Event().wait()

    async def main() -> list[Any]:
        tools = [
            define_tool("threaded", "It.", PARAMETERS, handler=handle),
            replace(define_tool("waits", "It.", PARAMETERS, handler=handle), async_handler=wait),
        ]
        executor = Executor(Registry(tools))
        for tool in tools:
            executor.begin(ToolCall("1", tool.name, {"text": "x"}))
        gc.collect()
        return [(entry.tool, entry.state) for entry in executor.journal.entries()]

    # What has not run leaves no entry.
    assert asyncio.run(main()) == [("waits", "failed")]


@pytest.mark.parametrize("way", ["dropped", "cancelled at once", "cancelled inside of a task", "awaited"])
def test_what_a_begun_call_waits_for_is_cancelled_with_it(way):
    """MCP: an evaluation does not run on when its call is cancelled before the first step of its task."""

    async def main() -> bool:
        waiting = asyncio.get_running_loop().create_future()

        async def wait(_):
            return await waiting

        tool = replace(define_tool("it", "It.", PARAMETERS, handler=handle), async_handler=wait)
        rest: Any = Executor(Registry([tool])).begin(ToolCall("1", "it", {"text": "x"}))

        async def outer(inner):
            return await inner

        if way == "dropped":
            del rest
        elif way == "awaited":
            asyncio.get_running_loop().call_soon(waiting.set_result, "done")
            assert (await rest).content == "done"
        else:
            task = asyncio.create_task(outer(rest) if "inside" in way else rest)
            del rest
            task.cancel()
            await asyncio.wait([task], timeout=10)
            assert task.cancelled()
            del task
        gc.collect()
        return waiting.cancelled()

    assert asyncio.run(main()) is (way != "awaited")


def test_an_executor_with_another_approver_shares_the_rest(run):
    """MCP: a server asks its client and leaves the executor that it was given as it was."""
    tool = define_tool("it", "It.", PARAMETERS, safety_level="dangerous", handler=handle)
    executor = Executor(Registry([tool]), lambda *_: "denied")
    derived = executor.with_approver(lambda *_: "approved")
    assert not run(executor, CALLS[0]).success
    assert run(derived, CALLS[0]).success
    assert executor.metrics() == derived.metrics()
    assert executor.journal is derived.journal
    executor.policy = Policy([{"action": "deny"}])
    assert "policy denies" in run(derived, CALLS[0]).error
    with pytest.raises(ExecutionError, match="the approval handler is str"):
        executor.with_approver("yes")  # type: ignore[arg-type]


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
