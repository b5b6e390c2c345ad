"""The ways to run a call."""

from __future__ import annotations

import asyncio
import threading
from time import monotonic

import pytest

from gramercy.execution.worker import BUSY, RESTING


def in_plain_code(executor, call):
    return executor.execute(call)


def in_async_code(executor, call):
    return asyncio.run(executor.aexecute(call))


def in_plain_code_on_a_loop(executor, call):
    async def main():
        return executor.execute(call)

    return asyncio.run(main())


@pytest.fixture(params=[in_plain_code, in_async_code, in_plain_code_on_a_loop], ids=lambda way: way.__name__)
def run(request):
    """Run one call through an executor, in each of the ways a program can."""
    return request.param


@pytest.fixture
def no_workers_left():
    """Check after the test that no worker is left at work; waits only as long as one takes to end."""
    before = set(threading.enumerate())
    yield
    until = monotonic() + 5
    for thread in set(threading.enumerate()) - before:
        while thread.name == BUSY and thread.is_alive() and monotonic() < until:
            thread.join(0.01)
        assert thread.name == RESTING or not thread.is_alive(), thread
