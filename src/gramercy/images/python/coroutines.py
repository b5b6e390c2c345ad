"""Run `await` at the top level of evaluated code on a loop that lives between evaluations.

The loop is made at the first need and given up after a fork, since its selector is shared with the original.
"""

from collections.abc import Coroutine
from typing import Any


class Loop:
    """A private event loop; tasks left in it go on during the next awaiting evaluation."""

    def __init__(self) -> None:
        self._loop: Any = None
        self._abandoned: list[Any] = []

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> object:
        """Run the coroutine to its end; an interrupt cancels it."""
        loop = self._ready()
        task = loop.create_task(coroutine)
        try:
            return loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                self._cancel(loop, task)
            raise

    def _ready(self) -> Any:
        import asyncio

        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        return self._loop

    @staticmethod
    def _cancel(loop: Any, task: Any) -> None:
        # A task that swallows its cancellation gets half a second, then stays behind.
        task.cancel()
        task.add_done_callback(lambda _task: loop.stop())
        limit = loop.call_later(0.5, loop.stop)
        loop.run_forever()
        limit.cancel()

    def forget(self) -> None:
        """Leave the loop to the process this one was copied from."""
        if self._loop is not None:
            self._abandoned.append(self._loop)
            self._loop = None
