"""Go on with something that blocks on a thread of its own, while a coroutine waits for what comes of it."""

from __future__ import annotations

import asyncio
import threading
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


# As many as there are threads at work; adding and taking away one is a single step of the interpreter.
_waiting: list[None] = []


def waiting_threads() -> int:
    """Return how many threads are waiting for something at this moment."""
    return len(_waiting)


async def on_a_thread(work: Callable[[], T], cancel: Callable[[], object]) -> T:
    """Return what the work returns; when the waiting is cancelled, `cancel` is called on a thread too.

    Not on a pool: evaluations that take hours would hold up the rest of it.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        _waiting.append(None)
        try:
            value = work()
        except Exception as error:  # noqa: BLE001 - carried over to whoever waits
            _tell(loop, future, error=error)
        else:
            _tell(loop, future, value=value)
        finally:
            _waiting.pop()

    # In the context of the call, so that the work can report to its caller.
    threading.Thread(target=copy_context().run, args=(run,), name="gramercy-image", daemon=True).start()
    try:
        return await future
    except asyncio.CancelledError:
        threading.Thread(target=cancel, name="gramercy-cancel", daemon=True).start()
        raise


def _tell(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[T],
    *,
    value: T | None = None,
    error: Exception | None = None,
) -> None:
    def settle() -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)  # type: ignore[arg-type]  # None only where T has it

    # The loop may have been closed by somebody who no longer waits.
    if not loop.is_closed():
        loop.call_soon_threadsafe(settle)
