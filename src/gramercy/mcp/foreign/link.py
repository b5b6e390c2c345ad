"""What a session with another server needs of a transport, and the thread on which all connections live.

Tools are called from plain code, from threads and from several event loops; a connection belongs to one.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from gramercy.mcp.jsonrpc import Message

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Future

# Takes what the server says by itself: notifications and requests.
Hear: TypeAlias = Callable[[Message], None]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request: the frame, and what a transport with headers repeats of it."""

    id: int
    method: str
    frame: bytes
    version: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Link(Protocol):
    """A connection to one server. All of it is used on one event loop."""

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""

    async def open(self, hear: Hear) -> None:
        """Connect; raise ForeignError when that fails."""

    async def ask(self, outgoing: Outgoing) -> Message:
        """Send a request and return the response; raise ServerGoneError when there will be none."""

    def tell(self, frame: bytes, version: str | None = None) -> None:
        """Send a notification or a response, without waiting for anything."""

    async def settle(self) -> None:
        """Wait until what was told is on its way, where the order of messages depends on it."""

    def forget(self, outgoing: Outgoing, cancellation: bytes) -> None:
        """Tell the server that the response to a request is no longer waited for."""

    def remarks(self) -> str:
        """Return what is odd about the connection, for messages; empty when nothing is."""

    async def close(self, seconds: float) -> None:
        """End the connection and whatever belongs to it, within that time."""


T = TypeVar("T")
# Seconds at the exit of the program for all connections to close; a person waits for them.
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
        except Exception:  # noqa: BLE001 - the program ends, a failure to close cannot be reported
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
