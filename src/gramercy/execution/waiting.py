"""Call handlers, approvers and hooks, plain or async, within a deadline, from plain or async code.

The executor's pipeline is written once as a coroutine and given one of two callers. With the blocking one it
never suspends, so plain code can drive it without an event loop.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gramercy.errors import DeadlineExceededError, ExecutionError
from gramercy.execution.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

T = TypeVar("T")

# How long a cancelled coroutine may take to clean up before it is left behind.
GRACE = 0.25


class Caller(Protocol):
    """A way to call a function and get its result, waiting for it if needed."""

    async def call(
        self, function: Callable[..., Any], *arguments: Any, what: str, seconds: float | None, inline: bool = False
    ) -> Any:
        """Return what the function returns; raise DeadlineExceededError naming `what` when it takes too long."""


class BlockingCaller:
    """Calls from plain code: everything is finished before `call` returns, nothing is ever suspended."""

    async def call(
        self, function: Callable[..., Any], *arguments: Any, what: str, seconds: float | None, inline: bool = False
    ) -> Any:
        """Run the function here, or on a worker when there is a deadline; async ones on a loop of their own."""
        del inline  # the caller's own thread is always free to run it
        if seconds is None and not is_async(function):
            value = function(*arguments)
            return value if not inspect.isawaitable(value) else _on_a_loop(value, what, seconds)
        if is_async(function):
            return _on_a_loop(function(*arguments), what, seconds)
        return _wait(Worker(function, arguments).start(), what, seconds)


class LoopCaller:
    """Calls from async code: plain functions go to a worker unless they are declared cheap."""

    async def call(
        self, function: Callable[..., Any], *arguments: Any, what: str, seconds: float | None, inline: bool = False
    ) -> Any:
        """Await async functions; run plain ones inline or on a worker."""
        if is_async(function):
            return await bounded(function(*arguments), what, seconds)
        if inline and seconds is None:
            value = function(*arguments)
        else:
            value = await _on_a_worker(function, arguments, what, seconds)
        return await bounded(value, what, seconds) if inspect.isawaitable(value) else value


BLOCKING = BlockingCaller()
LOOP = LoopCaller()


def is_async(function: object) -> bool:
    """Tell whether calling the function gives a coroutine."""
    call = getattr(function, "__call__", None)  # noqa: B004 - the method itself is wanted, not a test
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Finish a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    coroutine.close()
    raise RuntimeError("a pipeline with the blocking caller was suspended")


async def bounded(awaitable: Awaitable[T], what: str, seconds: float | None) -> T:
    """Await with a deadline that holds even when the awaited code swallows its cancellation."""
    if seconds is None:
        return await awaitable
    task = asyncio.ensure_future(_contained(awaitable))
    try:
        await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        await _abandon(task)
        raise
    if task.done():
        return task.result()
    await _abandon(task)
    raise DeadlineExceededError(what, seconds)


async def _contained(awaitable: Awaitable[T]) -> T:
    try:
        return await awaitable
    except SystemExit as error:
        # A task that raises SystemExit takes the whole event loop with it.
        raise ExecutionError(f"the code tried to end the program (SystemExit {error})") from None


async def _abandon(task: asyncio.Future[Any]) -> None:
    task.cancel()
    task.add_done_callback(_forget)
    await asyncio.wait({task}, timeout=GRACE)


def _forget(task: asyncio.Future[Any]) -> None:
    """Look at the outcome so that asyncio does not complain that nobody did."""
    if not task.cancelled():
        task.exception()


def _wait(worker: Worker, what: str, seconds: float | None) -> Any:
    try:
        finished = worker.wait(seconds)
    except BaseException:
        worker.give_up()
        raise
    if not finished:
        worker.give_up()
        raise DeadlineExceededError(what, seconds or 0.0)
    return worker.result()


async def _on_a_worker(function: Callable[..., Any], arguments: tuple[Any, ...], what: str, seconds: float | None) -> Any:
    loop = asyncio.get_running_loop()
    finished = asyncio.Event()
    worker = Worker(function, arguments).start(lambda: loop.call_soon_threadsafe(finished.set))
    try:
        if seconds is None:
            await finished.wait()
        else:
            await asyncio.wait_for(finished.wait(), seconds)
    except TimeoutError:
        worker.give_up()
        raise DeadlineExceededError(what, seconds or 0.0) from None
    except asyncio.CancelledError:
        worker.give_up()
        raise
    return worker.result()


def finish_blocking(awaitable: Awaitable[Any], what: str) -> Any:
    """Run something async to its end from plain code."""
    return _on_a_loop(awaitable, what, None)


def _on_a_loop(awaitable: Awaitable[Any], what: str, seconds: float | None) -> Any:
    """Run something async to its end from plain code, also when this thread already runs a loop."""

    async def main() -> Any:
        return await bounded(awaitable, what, seconds)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run_loop(main())
    return _wait(Worker(_run_loop, (main(),)).start(), what, None)


def _run_loop(main: Coroutine[Any, Any, Any]) -> Any:
    # asyncio.run would wait without limit for tasks that swallow their cancellation.
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(main)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=GRACE))
        loop.set_exception_handler(lambda *_: None)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def must_pass(error: BaseException) -> bool:
    """Tell whether an exception belongs to whoever runs the program and must not become a failed result.

    A handler that raises CancelledError by itself has failed; only when its own task is being cancelled is it
    a cancellation.
    """
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        return True
    if not isinstance(error, asyncio.CancelledError):
        return False
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and task.cancelling() > 0
