"""One conversation with another server, legacy or modern: greeting, list of tools, calls.

It also has the interface of a transport, and the thread on which all connections live: tools are called from
plain code, from threads and from several event loops, but a connection belongs to one loop.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

from msgspec import UNSET

from gramercy import __version__
from gramercy.errors import ForeignError, ProtocolError, RemoteError, ServerGoneError
from gramercy.mcp.foreign.definitions import Definition, Listing, read_listing
from gramercy.mcp.foreign.web import repeated_arguments
from gramercy.mcp.jsonrpc import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    LATEST_LEGACY,
    LEGACY,
    MODERN,
    VERSION_KEY,
    Code,
    Message,
    failure,
    notification,
    request,
    success,
)
from gramercy.text import reveal, tame

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Future

# Takes messages that the server sends unsolicited: notifications and requests.
Hear: TypeAlias = Callable[[Message], None]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request: the frame, and the parts that a transport with headers repeats."""

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
        """Send a request and return the response; raise ServerGoneError if there will be none."""

    def tell(self, frame: bytes, version: str | None = None) -> None:
        """Send a notification or a response without waiting."""

    async def settle(self) -> None:
        """Wait until the sent messages are on their way, if the order of messages depends on it."""

    def forget(self, outgoing: Outgoing, cancellation: bytes) -> None:
        """Tell the server that the response to a request is no longer awaited."""

    def remarks(self) -> str:
        """Return what is odd about the connection, for messages; empty if nothing is."""

    async def close(self, seconds: float) -> None:
        """End the connection and everything that belongs to it, within that time."""


T = TypeVar("T")
# Seconds at the exit of the program for all connections to close; a person waits for them.
LEAVING = 0.5


class Keeper:
    """The thread; it starts with the first submitted coroutine and ends with the program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._farewells: dict[int, Callable[[], Coroutine[Any, Any, None]]] = {}

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the thread; cancelling the returned future cancels it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._running())

    def at_exit(self, key: int, close: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
        """Register a function that closes something at the end of the program; None removes it."""
        with self._lock:
            self._farewells.pop(key, None)
            if close is not None:
                self._farewells[key] = close

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                # The policy in force is not used: its loop may not support pipes on a thread.
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


Progress: TypeAlias = "Callable[[float, float | None, str | None], None]"
Era: TypeAlias = Literal["auto", "modern", "legacy"]
CLIENT = {"name": "gramercy", "version": __version__}
# Seconds: a legacy server may not answer a modern request at all.
PROBING = 5.0
# An endless list must end here; large servers have some hundred tools.
MOST_PAGES = 100
MOST_TOOLS = 1_000
# The length of an error or a progress message, in characters.
LONGEST_MESSAGE = 1_000
# A server may send progress at any rate; people read it a few times a second.
PROGRESS_PAUSE = 0.1


class ForeignSession:
    """A conversation over one link. It requests nothing that the server could turn against us."""

    def __init__(self, link: Link, era: Era = "auto") -> None:
        self.link = link
        self.version: str | None = None
        self.has_changed = False
        self._era = era
        self._last_id = 0
        self._progress: dict[int, tuple[Progress, float]] = {}

    @property
    def is_modern(self) -> bool:
        """Whether the server is modern."""
        return self.version == MODERN

    async def start(self) -> None:
        """Open the link and find out which revision the server speaks; raise ForeignError if that fails."""
        await self.link.open(self._hear)
        if self._era != "legacy" and await self._discovered():
            return
        try:
            await self._initialize()
        except RemoteError:
            # A slow modern server may have missed the time limit of the probe.
            if self._era == "legacy" or not await self._discovered():
                raise

    async def _discovered(self) -> bool:
        """Ask as a modern client; a legacy server answers with an error, or not at all."""
        self.version = MODERN
        try:
            async with asyncio.timeout(PROBING):
                found = await self.ask("server/discover", {})
        except (RemoteError, TimeoutError) as error:
            if self._era == "modern":
                raise ForeignError(f"it does not speak {MODERN}: {error}") from None
        else:
            versions = found.get("supportedVersions")
            if isinstance(versions, list) and MODERN in versions:
                return True
            if self._era == "modern":
                raise ForeignError(f"it does not speak {MODERN}, only {str(versions)[:LONGEST_MESSAGE]}")
        self.version = None
        return False

    async def _initialize(self) -> None:
        wanted = {"protocolVersion": LATEST_LEGACY, "capabilities": {}, "clientInfo": CLIENT}
        found = await self.ask("initialize", wanted)
        version = found.get("protocolVersion")
        if version not in LEGACY:
            raise ForeignError(
                f"it wants to speak {str(version)[:60]!r}: expected one of {', '.join(LEGACY)}"
            )
        self.version = version
        self.link.tell(notification("notifications/initialized"), version)
        await self.link.settle()

    async def tools(self) -> Listing:
        """Return the present tools of the server, all pages of them."""
        self.has_changed = False
        entries: list[object] = []
        cursor: object = None
        for _ in range(MOST_PAGES):
            page = await self.ask("tools/list", {} if cursor is None else {"cursor": cursor})
            listed = page.get("tools")
            if not isinstance(listed, list):
                raise ForeignError("its list of tools is no list")
            entries += listed
            cursor = page.get("nextCursor")
            if len(entries) > MOST_TOOLS:
                break
            if cursor is None:
                return read_listing(entries)
        raise ForeignError(f"its list of tools does not end: expected at most {MOST_TOOLS:,} tools")

    async def call(
        self, definition: Definition, arguments: Mapping[str, Any], progress: Progress | None = None
    ) -> dict[str, Any]:
        """Call a tool and return its result as the server gave it."""
        headers = repeated_arguments(definition, arguments) if self.is_modern else {}
        params = {"name": definition.name, "arguments": arguments}
        result = await self.ask("tools/call", params, headers, progress)
        kind = result.get("resultType", "complete")
        if kind != "complete":
            raise ForeignError(
                f"it answers with {reveal(str(kind))[:60]!r} instead of a result: tools that ask back, or "
                "want their result to be fetched later, cannot be used from here"
            )
        return result

    async def ask(
        self,
        method: str,
        params: dict[str, Any],
        headers: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Send a request and return its result; a cancellation is passed on to the server."""
        self._last_id += 1
        outgoing = self._outgoing(self._last_id, method, params, headers or {}, progress)
        try:
            return _result(await self.link.ask(outgoing))
        except asyncio.CancelledError:
            # The protocol does not allow cancelling `initialize`.
            if method != "initialize":
                self.link.forget(outgoing, self._cancellation(outgoing.id))
            raise
        finally:
            self._progress.pop(outgoing.id, None)

    def _outgoing(
        self,
        number: int,
        method: str,
        params: dict[str, Any],
        headers: Mapping[str, str],
        progress: Progress | None,
    ) -> Outgoing:
        meta: dict[str, Any] = self._meta()
        if progress is not None:
            self._progress[number] = (progress, 0.0)
            meta["progressToken"] = number
        whole = {**params, "_meta": meta} if meta else params
        return Outgoing(number, method, request(number, method, whole), self.version, headers)

    def _meta(self) -> dict[str, Any]:
        if not self.is_modern:
            return {}
        return {VERSION_KEY: MODERN, CAPABILITIES_KEY: {}, CLIENT_KEY: CLIENT}

    def _cancellation(self, number: int) -> bytes:
        params: dict[str, Any] = {"requestId": number, "reason": "nobody waits for the result any more"}
        meta = self._meta()
        return notification("notifications/cancelled", {**params, "_meta": meta} if meta else params)

    def _hear(self, message: Message) -> None:
        """Take an unsolicited message: changed tools, progress, or a request, which is refused."""
        if message.id is not UNSET:
            self._answer(message)
        elif message.method == "notifications/tools/list_changed":
            self.has_changed = True
        elif message.method == "notifications/progress" and isinstance(message.params, dict):
            self._pass_on(message.params)

    def _answer(self, message: Message) -> None:
        assert message.id is not UNSET  # noqa: S101 - only requests come here; this tells mypy
        refusal = ProtocolError(Code.METHOD_NOT_FOUND, "this client answers no requests but ping")
        answer = success(message.id, {}) if message.method == "ping" else failure(refusal, message.id)
        with contextlib.suppress(ServerGoneError):
            self.link.tell(answer, self.version)

    def _pass_on(self, params: Mapping[str, Any]) -> None:
        token = params.get("progressToken")
        found = self._progress.get(token) if isinstance(token, int) else None
        done, total, text = params.get("progress"), params.get("total"), params.get("message")
        now = monotonic()
        if found is None or not isinstance(done, int | float) or now < found[1]:
            return
        self._progress[token] = (found[0], now + PROGRESS_PAUSE)  # type: ignore[index]  # an int, or not found
        shown = tame(text)[:LONGEST_MESSAGE] if isinstance(text, str) else None
        with contextlib.suppress(Exception):  # a watcher that fails must not disturb the call
            found[0](done, total if isinstance(total, int | float) else None, shown)


def _result(message: Message) -> dict[str, Any]:
    if message.error is not UNSET:
        error = message.error if isinstance(message.error, dict) else {}
        code, text = error.get("code"), error.get("message")
        said = tame(text)[:LONGEST_MESSAGE] if isinstance(text, str) else "no reason was given"
        raise RemoteError(said, code if isinstance(code, int) else 0, error.get("data"))
    if not isinstance(message.result, dict):
        raise ForeignError("its answer is no object")
    return message.result
