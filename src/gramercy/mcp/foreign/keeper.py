"""One thread with an event loop on which all connections to other servers live.

Tools are called from plain code, from threads and from several event loops; a connection belongs to one.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future

T = TypeVar("T")
LEAVING = 0.5


class Keeper:
    """The thread; it starts with the first thing that is submitted, and ends with the program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._farewells: dict[int, Callable[[], Coroutine[Any, Any, None]]] = {}

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the thread; to cancel what is returned cancels it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._running())

    def at_exit(self, key: int, close: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
        """Have something closed at the end of the program; None says that it is closed already."""
        with self._lock:
            self._farewells.pop(key, None)
            if close is not None:
                self._farewells[key] = close

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                # Not by the policy in force, which may belong to a loop that cannot do pipes on a thread.
                self._loop = asyncio.SelectorEventLoop()
                thread = threading.Thread(
                    target=self._run, args=(self._loop,), name="gramercy-foreign", daemon=True
                )
                thread.start()
                atexit.register(self._leave, self._loop, thread)
            return self._loop

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        loop.close()

    def _leave(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        with self._lock:
            farewells = list(self._farewells.values())
        left = asyncio.run_coroutine_threadsafe(_end(farewells), loop)
        try:
            left.result(2 * LEAVING)
        except Exception:  # noqa: BLE001 - the program ends, and nobody is left to be told
            left.cancel()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(LEAVING)


async def _end(farewells: list[Callable[[], Coroutine[Any, Any, None]]]) -> None:
    await asyncio.gather(*(close() for close in farewells), return_exceptions=True)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


KEEPER = Keeper()
