"""Call handlers, approvers and hooks, plain or async, within a deadline, from plain or async code.

The executor's path for calls that wait is written once, as a coroutine that gets one of two callers. With the
blocking caller it never suspends, so plain code can drive it without an event loop. This module knows nothing
of tools.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import types
from collections.abc import Coroutine
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gramercy.errors import DeadlineExceededError, ExecutionError
from gramercy.execution.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

# How long a cancelled coroutine may clean up before it is abandoned: enough to close a connection, too short
# to be noticed after a deadline.
GRACE = 0.25
T = TypeVar("T")


class Limit:
    """A description of the work that is waited for, and its deadline; `seconds` None means no limit."""

    __slots__ = ("_until", "seconds", "what")

    def __init__(self, what: str, seconds: float | None) -> None:
        self.what = what
        self.seconds = seconds
        self._until = None if seconds is None else monotonic() + seconds

    def left(self) -> float | None:
        """Return how many seconds are left, at least zero."""
        return None if self._until is None else max(0.0, self._until - monotonic())

    def error(self) -> DeadlineExceededError:
        """Return the error for work that missed the deadline."""
        return DeadlineExceededError(self.what, self.seconds or 0.0)


class Caller(Protocol):
    """A way to call a function and get its result, waiting for it if needed."""

    async def call(
        self, function: Callable[..., Any], *given: Any, limit: Limit, inline: bool = False
    ) -> Any:
        """Return the function's result; raise DeadlineExceededError when it takes too long."""

    async def finish(self, awaitable: Awaitable[Any], limit: Limit) -> Any:
        """Return the result of the awaitable, within the same deadline."""


class BlockingCaller:
    """Calls from plain code: everything is finished before `call` returns, nothing is ever suspended."""

    async def call(
        self, function: Callable[..., Any], *given: Any, limit: Limit, inline: bool = False
    ) -> Any:
        """Run the function here, or on a worker if there is a deadline; async code gets its own loop."""
        del inline  # the caller's own thread is always free to run it
        try:
            if limit.seconds is None or is_async(function):
                value = function(*given)
            else:
                value = _wait(Worker(function, given).start(), limit)
            return on_a_loop(value, limit) if inspect.isawaitable(value) else value
        except GeneratorExit:
            # A coroutine that never suspends is never closed, so the function itself has raised this.
            raise ExecutionError("the code raised GeneratorExit") from None

    async def finish(self, awaitable: Awaitable[Any], limit: Limit) -> Any:
        """Run the awaitable on a loop of its own."""
        return on_a_loop(awaitable, limit)


class LoopCaller:
    """Calls from async code: plain functions go to a worker unless they are declared cheap."""

    async def call(
        self, function: Callable[..., Any], *given: Any, limit: Limit, inline: bool = False
    ) -> Any:
        """Await async functions; run plain ones inline or on a worker."""
        if is_async(function) or (inline and limit.seconds is None):
            value = function(*given)
        else:
            value = await _on_a_worker(Worker(function, given), limit)
        return await bounded(value, limit) if inspect.isawaitable(value) else value

    async def finish(self, awaitable: Awaitable[Any], limit: Limit) -> Any:
        """Await it."""
        return await bounded(awaitable, limit)


BLOCKING = BlockingCaller()
LOOP = LoopCaller()


def is_async(function: object) -> bool:
    """Tell whether calling the function may give a coroutine; a function with `may_wait` says so itself."""
    if getattr(function, "may_wait", False):
        return True
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


def begun(coroutine: Coroutine[Any, Any, T]) -> T | Coroutine[Any, Any, T]:
    """Run a coroutine up to its first wait; return its result, or an awaitable for the rest of it."""
    try:
        waiting = coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    return _Begun(coroutine, waiting)


@types.coroutine
def later(function: Callable[..., Coroutine[Any, Any, T]], *given: Any) -> Generator[Any, Any, T]:
    """Return the result of a coroutine function; Python does not warn if this is dropped before its start."""
    return (yield from function(*given))  # type: ignore[no-any-return]


class _Begun(Coroutine[Any, Any, T]):
    """A coroutine that waits already: it hands its future to the task that awaits this, then resumes.

    If it is dropped or cancelled before its first step, it cancels that future, as a task would.
    """

    __slots__ = ("_coroutine", "_waiting")

    def __init__(self, coroutine: Coroutine[Any, Any, T], waiting: Any) -> None:
        self._coroutine = coroutine
        self._waiting = waiting

    def send(self, value: Any) -> Any:
        waiting, self._waiting = self._waiting, None
        return self._coroutine.send(value) if waiting is None else waiting

    def throw(self, *error: Any) -> Any:
        self._call_off()
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._call_off()
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self  # it has all that `await` uses of a generator

    def __iter__(self) -> _Begun[T]:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def __del__(self) -> None:
        self._call_off()

    def _call_off(self) -> None:
        waiting, self._waiting = self._waiting, None
        if isinstance(waiting, asyncio.Future):
            with suppress(RuntimeError):  # the loop is closed: there is nothing left to cancel
                waiting.cancel()


async def bounded(awaitable: Awaitable[T], limit: Limit) -> T:
    """Await with a deadline that holds even if the awaited code swallows its cancellation."""
    if limit.seconds is None:
        return await _uncancelled(awaitable)
    task = asyncio.ensure_future(_contained(awaitable))
    try:
        await asyncio.wait({task}, timeout=limit.left())
    except asyncio.CancelledError:
        await abandon(task)
        raise
    if task.done():
        return task.result()
    await abandon(task)
    raise limit.error()


async def _uncancelled(awaitable: Awaitable[T]) -> T:
    """Await on the caller's own task; if the awaited code swallows a cancellation, raise it afterwards."""
    # Without an asyncio loop there is no such cancellation, and another kind of loop may run the code.
    task = asyncio.current_task() if is_looping() else None
    before = task.cancelling() if task else 0
    value = await awaitable
    if task and task.cancelling() > before:
        raise asyncio.CancelledError
    return value


async def _contained(awaitable: Awaitable[T]) -> T:
    try:
        return await awaitable
    except SystemExit as error:
        # A task that raises SystemExit takes the whole event loop with it.
        raise ExecutionError(f"the code tried to end the program (SystemExit {error})") from None


def _wait(worker: Worker, limit: Limit, grace: float = 0.0) -> Any:
    left = limit.left()
    try:
        finished = worker.wait(None if left is None else left + grace)
    except BaseException:
        worker.give_up()
        raise
    if not finished:
        worker.give_up()
        raise limit.error()
    return worker.result()


async def _on_a_worker(worker: Worker, limit: Limit) -> Any:
    loop = asyncio.get_running_loop()
    finished = asyncio.Event()
    worker.start(lambda: _tell(loop, finished))
    try:
        async with asyncio.timeout(limit.left()):
            await finished.wait()
    except TimeoutError:
        worker.give_up()
        raise limit.error() from None
    except BaseException:
        worker.give_up()
        raise
    return worker.result()


def _tell(loop: asyncio.AbstractEventLoop, finished: asyncio.Event) -> None:
    # The caller may have stopped waiting and closed its loop meanwhile.
    if not loop.is_closed():
        loop.call_soon_threadsafe(finished.set)


def on_a_loop(awaitable: Awaitable[Any], limit: Limit) -> Any:
    """Run an awaitable to its end from plain code, even if this thread already runs a loop."""

    async def main() -> Any:
        return await bounded(awaitable, limit)

    if limit.seconds is None and not is_looping():
        return run_loop(main())
    # On a worker the deadline holds even for async code that blocks instead of awaiting.
    return _wait(Worker(run_loop, (main(),)).start(), limit, grace=4 * GRACE)


async def abandon(task: asyncio.Future[Any]) -> None:
    """Cancel a task and give it a moment to clean up."""
    task.cancel()
    task.add_done_callback(_forget)
    await asyncio.wait({task}, timeout=GRACE)


def _forget(task: asyncio.Future[Any]) -> None:
    """Retrieve the exception, so that asyncio does not log it as never retrieved."""
    if not task.cancelled():
        task.exception()


def run_loop(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end on a new loop."""
    # asyncio.run would wait without limit for tasks that the coroutine leaves behind.
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
    # Tasks that were cancelled before have had their time.
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


def is_looping() -> bool:
    """Tell whether this thread has an event loop that runs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def must_pass(error: BaseException) -> bool:
    """Tell whether an exception is the caller's own interruption and must not become a failed result.

    Ctrl-C reaches the main thread only. A handler that raises CancelledError by itself has failed; only when
    its own task is being cancelled is it a cancellation.
    """
    if isinstance(error, KeyboardInterrupt):
        return threading.current_thread() is threading.main_thread()
    if not isinstance(error, asyncio.CancelledError) or not is_looping():
        return False
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def ends_pipeline(error: BaseException) -> bool:
    """Tell the same inside the pipeline, which also ends when its coroutine is closed."""
    return isinstance(error, GeneratorExit) or must_pass(error)
