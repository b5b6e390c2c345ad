"""The caller's cancellation always passes, and leaves a record."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from gramercy import Executor, Registry, define_tool
from gramercy.journal.base import OPEN

PATIENCE = 10.0
CALL = {"id": "call_1", "name": "it", "arguments": {}}


def executor_with(handler, approval_handler=None, level="cautious", **settings):
    tool = define_tool("it", "It.", [], safety_level=level, handler=handler)
    return Executor(Registry([tool]), approval_handler, **settings)


def states(executor):
    return [entry.state.value for entry in executor.journal.entries()]


async def cancel_when(ready, executor):
    """Start a call, cancel it when the handler says so, and check that the cancellation arrives."""
    task = asyncio.create_task(executor.aexecute(CALL))
    await asyncio.wait_for(ready.wait(), PATIENCE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, PATIENCE)
    assert task.cancelled()


@pytest.mark.parametrize("deadline", [None, PATIENCE])
@pytest.mark.parametrize("swallows", [False, True])
def test_cancelling_a_call_cancels_its_async_handler(deadline, swallows):
    """Style: cancellation always passes, also when the handler swallows it."""

    async def main():
        ready = asyncio.Event()
        cancelled = []

        async def handler(_):
            ready.set()
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                cancelled.append(True)
                if not swallows:
                    raise
            return "finished all the same"

        executor = executor_with(handler, deadline=deadline)
        await cancel_when(ready, executor)
        assert cancelled == [True]
        assert states(executor) == ["executing", "in_doubt"]
        assert executor.journal.entries()[-1].detail == "cancelled by the caller"
        assert executor.metrics()["it"].failed == 1

    asyncio.run(main())


@pytest.mark.usefixtures("no_workers_left")
def test_cancelling_a_call_gives_up_its_plain_handler():
    """The thread of a plain handler is told to stop."""
    stopped = threading.Event()

    async def main():
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()

        def handler(_):
            try:
                loop.call_soon_threadsafe(ready.set)
                while True:
                    pass
            finally:
                stopped.set()

        executor = executor_with(handler)
        await cancel_when(ready, executor)
        assert states(executor) == ["executing", "in_doubt"]

    asyncio.run(main())
    assert stopped.wait(PATIENCE)


def test_cancelling_a_safe_call_leaves_no_doubt():
    """Guard design, Journal: only effects can be in doubt."""

    async def main():
        ready = asyncio.Event()

        async def handler(_):
            ready.set()
            await asyncio.sleep(30)

        executor = executor_with(handler, level="safe")
        await cancel_when(ready, executor)
        assert states(executor) == ["failed"]

    asyncio.run(main())


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.usefixtures("no_workers_left")
def test_cancelling_a_call_that_waits_for_approval_ends_the_wait_and_runs_nothing(asynchronous):
    """Guard design, Journal: no call is left awaiting for ever."""
    release = threading.Event()
    ran: list[Any] = []

    async def main():
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()

        def approve(_tool, _arguments):
            loop.call_soon_threadsafe(ready.set)
            release.wait(30)
            return "approved"

        async def approve_async(_tool, _arguments):
            ready.set()
            await asyncio.sleep(30)
            return "approved"

        executor = executor_with(ran.append, approve_async if asynchronous else approve, "dangerous")
        await cancel_when(ready, executor)
        assert states(executor) == ["requested", "awaiting", "failed"]
        assert "it was not run" in executor.journal.entries()[-1].detail
        assert not executor.journal.records(list(OPEN))

    asyncio.run(main())
    release.set()
    assert ran == []


def test_a_handler_that_raises_cancelled_error_by_itself_has_failed():
    """Only when the task is being cancelled is it a cancellation."""

    async def handler(_):
        raise asyncio.CancelledError("made up")

    for deadline in (None, PATIENCE):
        executor = executor_with(handler, deadline=deadline)
        result = asyncio.run(executor.aexecute(CALL))
        assert result.error == "Tool error: made up"
        assert states(executor) == ["executing", "failed"]


def test_a_handlers_own_timeouts_are_not_mistaken_for_the_callers_cancellation():
    """asyncio.timeout cancels and takes the cancellation back."""

    async def handler(_):
        try:
            async with asyncio.timeout(0.001):
                await asyncio.sleep(30)
        except TimeoutError:
            return "recovered"

    assert asyncio.run(executor_with(handler).aexecute(CALL)).content == "recovered"


def test_closing_a_call_that_was_never_finished_is_recorded():
    """A coroutine may be thrown away with its loop."""

    async def handler(_):
        await asyncio.sleep(30)

    executor = executor_with(handler)

    async def main():
        pending = executor.aexecute(CALL)
        pending.send(None)
        pending.close()

    asyncio.run(main())
    assert states(executor) == ["executing", "in_doubt"]


def test_cancelling_a_batch_cancels_every_call_of_it():
    """Seed 002: a batch is one answer of the model."""

    async def main():
        entered, cancelled = [], []
        ready = asyncio.Event()

        async def handler(_):
            entered.append(1)
            if len(entered) == 3:
                ready.set()
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                cancelled.append(1)
                raise

        executor = executor_with(handler, level="safe")
        task = asyncio.create_task(executor.aexecute_tool_calls([CALL | {"id": str(n)} for n in range(3)]))
        await asyncio.wait_for(ready.wait(), PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, PATIENCE)
        assert len(cancelled) == 3
        assert states(executor) == ["failed"] * 3

    asyncio.run(main())
