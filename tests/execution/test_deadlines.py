"""Deadlines hold: for plain and async handlers, from plain and async code, whatever the handler does."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
import time
import weakref
from time import monotonic
from typing import Any

import pytest

from gramercy import Executor, Registry, define_tool
from gramercy.execution.callers import BLOCKING, Limit, drive
from gramercy.execution.worker import RESTING, Worker
from gramercy.journal.base import State

CALL = {"id": "call_1", "name": "it", "arguments": {}}
# Far beyond any deadline here, far below what would make the suite slow: an answer after this is a hang.
PATIENCE = 10.0
# Where the handler must have begun when its time is over: a busy machine starts no thread in 0.05 s.
BEGUN = 0.5


def executor_with(handler, level="safe", deadline=0.05, **settings):
    tool = define_tool("it", "It.", [], safety_level=level, handler=handler, deadline=deadline)
    return Executor(Registry([tool]), **settings)


def timely(run, executor):
    started = time.perf_counter()
    result = run(executor, CALL)
    assert time.perf_counter() - started < PATIENCE
    return result


def check_late(result, seconds=0.05):
    assert result.success is False
    assert result.error.startswith(f"Tool error: it did not finish within {seconds:g} s")
    assert result.content == result.error


def test_a_busy_plain_handler_is_stopped_and_its_thread_ends(run):
    """Guard design: deadlines on synchronous tools answer on time and leave no thread running."""
    threads = []

    def spin(_):
        threads.append(threading.current_thread())
        while True:
            pass

    check_late(timely(run, executor_with(spin, deadline=BEGUN)), BEGUN)
    threads[0].join(PATIENCE)
    assert not threads[0].is_alive()


@pytest.mark.usefixtures("no_workers_left")
def test_a_handler_that_cleans_up_when_stopped_is_allowed_to(run):
    """The interruption is an exception, so finally blocks run."""
    cleaned = threading.Event()

    def spin(_):
        try:
            while True:
                pass
        finally:
            cleaned.set()

    check_late(timely(run, executor_with(spin, deadline=BEGUN)), BEGUN)
    assert cleaned.wait(PATIENCE)


@pytest.mark.usefixtures("no_workers_left")
def test_a_handler_that_blocks_outside_python_is_answered_on_time(run):
    """Guard design: 0.5 s means 0.5 s; what blocks in C ends by itself, on a daemon thread."""
    release = threading.Event()
    check_late(timely(run, executor_with(lambda _: release.wait(30))))
    (worker,) = [thread for thread in threading.enumerate() if thread.name == "gramercy-worker"]
    assert worker.daemon
    release.set()


def test_an_async_handler_is_cancelled_at_its_deadline(run):
    """Guard design: handler under its deadline."""
    cancelled = []

    async def sleep(_):
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    check_late(timely(run, executor_with(sleep, deadline=BEGUN)), BEGUN)
    assert cancelled == [True]


def test_an_async_handler_that_swallows_its_cancellation_is_left_behind(run):
    """A deadline must not depend on the manners of the code it is for."""
    refusals: list[int] = []

    async def stubborn(_):
        while len(refusals) < 2:  # the second time it is the loop's own end that asks
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                refusals.append(1)
        return "too late"

    async def quits_later(_):
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return "too late"

    check_late(timely(run, executor_with(stubborn, deadline=BEGUN)), BEGUN)
    assert refusals
    check_late(timely(run, executor_with(quits_later)))


def test_an_async_handler_that_blocks_its_loop_is_answered_from_plain_code():
    """From plain code the loop is ours, on a thread that can be left."""

    async def spin(_):
        while True:
            pass

    check_late(timely(lambda executor, call: executor.execute(call), executor_with(spin)))


def test_a_plain_handler_that_returns_a_coroutine_has_one_deadline_for_both(run):
    """The time before the first await counts too."""

    async def work():
        await asyncio.sleep(30)

    check_late(timely(run, executor_with(lambda _: work())))


@pytest.mark.usefixtures("no_workers_left")
def test_the_tools_own_deadline_comes_before_the_executors(run):
    """Tool.deadline, else the executor's."""
    release = threading.Event()
    hurried = define_tool("it", "It.", [], handler=lambda _: release.wait(30), deadline=0.02)
    check_late(timely(run, Executor(Registry([hurried]), deadline=PATIENCE)), 0.02)
    slow = define_tool("it", "It.", [], handler=lambda _: release.wait(30))
    check_late(timely(run, Executor(Registry([slow]), deadline=0.03)), 0.03)
    patient = define_tool("it", "It.", [], handler=lambda _: "quick", deadline=PATIENCE)
    assert run(Executor(Registry([patient]), deadline=0.000001), CALL).content == "quick"
    release.set()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_handler_within_its_deadline_is_not_disturbed(run, asynchronous):
    """A deadline is no change of behaviour."""
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("of the caller")

    def plain(_):
        return variable.get()

    async def awaited(_):
        await asyncio.sleep(0)
        return variable.get()

    assert (
        run(executor_with(awaited if asynchronous else plain, deadline=PATIENCE), CALL).content
        == "of the caller"
    )


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_a_handler_raises_within_its_deadline_is_its_failure(run, asynchronous):
    """Seed 002, Handler Errors."""

    def plain(_):
        raise ValueError("bad")

    async def awaited(_):
        raise SystemExit(3)

    result = run(executor_with(awaited if asynchronous else plain, deadline=PATIENCE), CALL)
    assert result.error.startswith("Tool error: ")
    assert ("SystemExit 3" in result.error) if asynchronous else (result.error == "Tool error: bad")


@pytest.mark.parametrize(("level", "state"), [("safe", State.FAILED), ("cautious", State.IN_DOUBT)])
@pytest.mark.usefixtures("no_workers_left")
def test_only_what_has_effects_is_left_in_doubt(run, level, state):
    """Guard design, Journal: in_doubt is shown to a person."""
    release = threading.Event()
    executor = executor_with(lambda _: release.wait(30), level)
    result = timely(run, executor)
    assert executor.journal.entries()[-1].state is state
    assert ("may have taken effect" in result.error) is (state is State.IN_DOUBT)
    release.set()


@pytest.mark.usefixtures("no_workers_left")
def test_tiny_deadlines_are_answered_and_leave_nothing(run):
    """A thread that is given up before it has begun must not complain or run."""
    ran: list[Any] = []
    for _ in range(30):
        result = timely(run, executor_with(ran.append, deadline=1e-9))
        assert result.success or "did not finish within 1e-09 s" in result.error


def test_a_worker_that_is_given_up_before_it_begins_does_not_begin():
    """Between starting a thread and its first step anything can happen."""
    ran: list[Any] = []
    worker = Worker(ran.append, (1,))
    worker.give_up()
    worker.start()
    assert worker.wait(PATIENCE)
    assert ran == []


def test_giving_up_a_finished_worker_disturbs_nobody():
    """The thread may be gone, or its number used again."""
    worker = Worker(lambda: "done", ()).start()
    assert worker.wait(PATIENCE)
    worker.give_up()
    assert worker.result() == "done"


def test_a_thread_that_has_done_its_work_is_used_again():
    """Performance: a thread hop is what a plain tool costs; to start a thread would cost as much again."""
    threads = []
    for _ in range(5):
        worker = Worker(lambda: threads.append(threading.current_thread()), ()).start()
        assert worker.wait(PATIENCE)
        resting(threads[-1])
    assert len(set(threads)) == 1


def test_a_resting_thread_holds_on_to_nothing():
    class Big:
        pass

    big = Big()
    gone = weakref.ref(big)
    worker = Worker(lambda _: threading.current_thread(), (big,)).start()
    assert worker.wait(PATIENCE)
    resting(worker.result())
    del big, worker
    assert gone() is None


def test_a_copy_of_the_process_does_not_wait_for_threads_it_does_not_have():
    # In a program of its own: newer Pythons warn of a fork beside threads.
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKING], timeout=30, check=False)
    assert done.returncode == 0


FORKING = """
import os
from gramercy.execution.worker import Worker

assert Worker(lambda: 1, ()).start().wait(5)
child = os.fork()
if child == 0:
    os._exit(0 if Worker(lambda: 1, ()).start().wait(5) else 1)
raise SystemExit(os.waitpid(child, 0)[1])
"""


def resting(thread):
    until = monotonic() + PATIENCE
    while thread.name != RESTING and monotonic() < until:
        thread.join(0.001)
    assert thread.name == RESTING


def test_the_blocking_caller_never_suspends():
    """Plain code drives the pipeline without an event loop."""

    async def answer():
        await asyncio.sleep(0)
        return 42

    assert drive(BLOCKING.call(answer, limit=Limit("it", None))) == 42
    assert drive(BLOCKING.finish(answer(), Limit("it", PATIENCE))) == 42

    async def suspended():
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="was suspended"):
        drive(suspended())


def test_async_code_called_from_plain_code_on_a_loop_gets_a_loop_of_its_own():
    """execute() inside a running event loop."""

    async def main():
        outer = asyncio.get_running_loop()

        async def handler(_):
            await asyncio.sleep(0)
            return str(asyncio.get_running_loop() is outer)

        return Executor(Registry([define_tool("it", "It.", [], handler=handler)])).execute(CALL)

    assert asyncio.run(main()).content == "False"


def test_tasks_and_generators_that_a_handler_leaves_behind_do_not_outlive_its_loop():
    """Style: never a hang, and no complaints on standard error."""
    ended = []

    async def forgotten():
        try:
            await asyncio.sleep(30)
        finally:
            ended.append("task")

    async def numbers():
        try:
            yield 1
        finally:
            ended.append("generator")

    kept: list[Any] = []

    async def handler(_):
        kept.append(asyncio.create_task(forgotten()))
        kept.append(numbers())
        await anext(kept[-1])
        await asyncio.sleep(0)
        return "done"

    result = Executor(Registry([define_tool("it", "It.", [], handler=handler)])).execute(CALL)
    assert result.content == "done"
    assert sorted(ended) == ["generator", "task"]
