"""Event loops of our own for plain code, and tasks that are left behind. Nothing here waits without limit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

# How long a cancelled coroutine may take to clean up before it is left behind.
GRACE = 0.25


async def abandon(task: asyncio.Future[Any]) -> None:
    """Cancel a task and give it a moment to clean up."""
    task.cancel()
    task.add_done_callback(_forget)
    await asyncio.wait({task}, timeout=GRACE)


def _forget(task: asyncio.Future[Any]) -> None:
    """Look at the outcome so that asyncio does not complain that nobody did."""
    if not task.cancelled():
        task.exception()


def run_loop(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end on a new loop."""
    # Not asyncio.run: it waits without limit for what the coroutine leaves behind.
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.set_exception_handler(lambda *_: None)
        try:
            loop.run_until_complete(_tidy(loop))
        finally:
            loop.close()


async def _tidy(loop: asyncio.AbstractEventLoop) -> None:
    # Those that were told to stop before have had their time.
    left = [
        task
        for task in asyncio.all_tasks(loop)
        if not task.cancelling() and task is not asyncio.current_task()
    ]
    for task in left:
        task.cancel()
        task.add_done_callback(_forget)
    if left:
        await asyncio.wait(left, timeout=GRACE)
    generators = asyncio.ensure_future(loop.shutdown_asyncgens())
    await asyncio.wait({generators}, timeout=GRACE)
