"""Several calls of one answer: order, ids, and who may run beside whom."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading

import pytest

from gramercy import Executor, Policy, Registry, create_tool, define_tool
from gramercy.execution.executor import SIDE_BY_SIDE

PATIENCE = 10.0
NUMBER = [{"name": "n", "type": "integer"}]


def make(handler, name="it", level="safe", **options):
    return define_tool(name, "It.", NUMBER, safety_level=level, handler=handler, **options)


def calls(count, name="it"):
    return [{"id": f"call_{number}", "name": name, "arguments": {"n": number}} for number in range(count)]


def plainly(executor, batch):
    return executor.execute_tool_calls(batch)


def asynchronously(executor, batch):
    return asyncio.run(executor.aexecute_tool_calls(batch))


WAYS = pytest.mark.parametrize("run_all", [plainly, asynchronously])


@WAYS
@pytest.mark.parametrize("level", ["safe", "cautious"])
def test_results_come_in_the_order_of_the_calls_with_their_ids(run_all, level):
    """Seed 002, Invariant 1: ids match."""
    executor = Executor(Registry([make(lambda arguments: str(arguments["n"]), level=level)]))
    results = run_all(executor, calls(20))
    assert [(result.id, result.content) for result in results] == [(f"call_{n}", str(n)) for n in range(20)]


@WAYS
def test_malformed_and_failing_calls_do_not_disturb_the_others(run_all):
    """Seed 002, Invariant 5: the agent continues."""
    executor = Executor(Registry([make(lambda arguments: 6 // arguments["n"])]))
    batch = [None, *calls(3), {"id": 9}, "text", {"id": "x", "name": "unknown", "arguments": {}}]
    results = run_all(executor, batch)
    assert [result.success for result in results] == [False, False, True, True, False, False, False]
    assert [result.id for result in results] == ["", "call_0", "call_1", "call_2", "9", "", "x"]


@WAYS
def test_safe_calls_run_side_by_side(run_all):
    """Names table: side by side when all are safe. Each call waits until all have begun."""
    together = threading.Barrier(4)

    def meet(arguments):
        together.wait(PATIENCE)
        return str(arguments["n"])

    results = run_all(Executor(Registry([make(meet)])), calls(4))
    assert [result.content for result in results] == ["0", "1", "2", "3"]


@WAYS
def test_no_more_than_a_few_run_at_once(run_all):
    """Style: never a thread for each of a thousand calls."""
    running, most, lock = set(), [], threading.Lock()
    first = threading.Barrier(SIDE_BY_SIDE)

    def work(arguments):
        with lock:
            running.add(arguments["n"])
            most.append(len(running))
        if arguments["n"] < SIDE_BY_SIDE:
            first.wait(PATIENCE)
        with lock:
            running.discard(arguments["n"])

    results = run_all(Executor(Registry([make(work)])), calls(5 * SIDE_BY_SIDE))
    assert all(result.success for result in results)
    assert max(most) == SIDE_BY_SIDE


def test_no_more_than_a_few_async_calls_are_under_way_at_once():
    """Style: never a connection for each of a thousand calls."""
    under_way, most = set(), []

    async def work(arguments):
        under_way.add(arguments["n"])
        most.append(len(under_way))
        for _ in range(50):
            await asyncio.sleep(0)
        under_way.discard(arguments["n"])

    results = asynchronously(Executor(Registry([make(work)])), calls(5 * SIDE_BY_SIDE))
    assert all(result.success for result in results)
    assert max(most) == SIDE_BY_SIDE


def test_async_safe_calls_run_side_by_side_on_one_loop():
    """Names table: side by side when all are safe."""

    async def main():
        begun = []
        all_begun = asyncio.Event()

        async def meet(arguments):
            begun.append(arguments["n"])
            if len(begun) == 4:
                all_begun.set()
            await asyncio.wait_for(all_begun.wait(), PATIENCE)
            return str(arguments["n"])

        return await Executor(Registry([make(meet)])).aexecute_tool_calls(calls(4))

    assert [result.content for result in asyncio.run(main())] == ["0", "1", "2", "3"]


def overlaps(run_all, executor, batch, trace):
    """Run a batch whose handlers note their begin and end; tell whether any of them overlapped."""
    results = run_all(executor, batch)
    assert all(result.success for result in results)
    begins = trace[::2]
    ends = trace[1::2]
    return [("begin", n) for _, n in ends] != begins


@WAYS
@pytest.mark.parametrize(
    ("name", "level", "policy"),
    [
        ("careful", "cautious", None),
        ("careful", "dangerous", Policy([{"action": "allow"}])),
        ("careful-one", "cautious", None),
        ("careful", "safe", Policy([{"action": "ask", "tools": ["careful"]}])),
        ("careful", "safe", Policy([{"action": "ask", "arguments": {"n": "1"}}])),
    ],
)
def test_one_call_that_is_not_harmless_makes_all_wait_their_turn(run_all, name, level, policy):
    """Names table: else one after the other; a person is asked one question at a time."""
    trace = []
    lock = threading.Lock()

    def note(arguments):
        assert lock.acquire(blocking=False), "two calls ran at once"
        trace.append(("begin", arguments["n"]))
        for _ in range(100):
            os.sched_yield()  # another thread that could run now would be noticed
        trace.append(("end", arguments["n"]))
        lock.release()

    careful = create_tool(name, "It.", {"type": "object"}, note, safety_level=level)
    executor = Executor(Registry([make(note), careful]), lambda *_: "approved", policy=policy)
    batch = calls(3) + calls(1, name.replace("-", "_"))
    assert not overlaps(run_all, executor, batch, trace)
    assert trace[::2] == [("begin", n) for n in (0, 1, 2, 0)]


@WAYS
def test_later_calls_see_what_earlier_ones_did_when_not_all_are_safe(run_all):
    """Seed 002: write, then read what was written."""
    notes = []
    tools = [
        make(lambda arguments: notes.append(arguments["n"]), "write", "cautious"),
        make(lambda _: str(notes), "read"),
    ]
    batch = [*calls(1, "read"), *calls(1, "write"), *calls(1, "read")]
    assert [result.content for result in run_all(Executor(Registry(tools)), batch)] == ["[]", "nil", "[0]"]


@WAYS
def test_calls_side_by_side_see_the_callers_context(run_all):
    """Context variables carry request ids and the like."""
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")
    results = run_all(Executor(Registry([make(lambda _: variable.get())])), calls(3))
    assert [result.content for result in results] == ["set"] * 3


def test_cheap_tools_need_no_threads():
    """Performance design: no thread on the fast path."""
    threads = []
    executor = Executor(Registry([make(lambda _: threads.append(threading.current_thread()), inline=True)]))
    plainly(executor, calls(3))
    asynchronously(executor, calls(3))
    assert set(threads) == {threading.main_thread()}


def test_many_threads_can_share_one_executor():
    """One executor serves a whole program."""
    executor = Executor(Registry([make(lambda arguments: str(arguments["n"]))]), hooks=[lambda *_: None])
    start = threading.Barrier(6)
    wrong = []

    def work():
        start.wait(PATIENCE)
        for number in range(200):
            result = executor.execute({"id": str(number), "name": "it", "arguments": {"n": number}})
            if (result.id, result.content) != (str(number), str(number)):
                wrong.append(result)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert wrong == []
    figures = executor.metrics()["it"]
    assert (figures.calls, figures.succeeded) == (1200, 1200)
    keys = [entry.key for entry in executor.journal.entries()]
    assert len(set(keys)) == 1200
