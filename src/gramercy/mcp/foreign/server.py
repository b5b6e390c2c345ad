"""Another MCP server: connect when needed, list its tools, call them, restart it.

A call is never retried: its caller learns that it is unknown whether the call took effect.
"""

from __future__ import annotations

import asyncio
import re
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, TypeVar, get_args

from gramercy.errors import (
    ChangedError,
    DeadlineExceededError,
    ForeignError,
    ServerGoneError,
    SessionLostError,
)
from gramercy.mcp.foreign.session import KEEPER, Era, ForeignSession
from gramercy.text import reveal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from gramercy.mcp.foreign.definitions import Definition, Listing
    from gramercy.mcp.foreign.session import Link, Progress

T = TypeVar("T")
SERVER_NAME = re.compile(r"[a-z][a-z0-9]*(?:[_-][a-z0-9]+)*")
# Leaves 38 of the 64 characters of a registered name, `server__tool`, for the tool.
LONGEST_SERVER_NAME = 24
# Seconds. Servers that are installed at their first start (npx, uvx) take this long.
STARTING = 30.0
LISTING = 30.0
# Seconds that a process gets to exit after its input was closed, before it is killed.
CLOSING = 1.0
# The notification of changed tools may not arrive, so the list is requested again after this many seconds.
FRESH = 60.0
DOUBT = ". The call may or may not have taken effect"


def connect_server(  # noqa: PLR0913 - the ways to reach a server are its arguments
    command: Sequence[str] | None = None,
    url: str | None = None,
    *,
    name: str,
    env: Mapping[str, str] | None = None,
    folder: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = 60.0,
    restarts: int = 3,
    era: Era = "auto",
    defer: bool = False,
) -> ForeignServer:
    """Connect to another MCP server: a program of this machine, or an address.

    The program gets `env` and only a few variables of our own environment. `timeout` bounds each call, in
    seconds; `restarts` is how often the program is restarted after it has ended. With `defer` the server is
    not contacted before it is needed.
    """
    _check_name(name)
    if era not in get_args(Era):
        raise ForeignError(f"there is no era {era!r:.60}: expected {', '.join(get_args(Era))}")
    link = _link_maker(command, url, dict(env or {}), folder, dict(headers or {}))
    server = ForeignServer(name, link, timeout=timeout, restarts=restarts if command else None, era=era)
    if not defer:
        try:
            server.listing()
        except BaseException:
            server.close()
            raise
    return server


def _check_name(name: str) -> None:
    if not SERVER_NAME.fullmatch(name) or len(name) > LONGEST_SERVER_NAME:
        raise ForeignError(
            f"{name!r:.60} cannot name a server: expected small letters and digits in words joined by "
            f"single - or _, at most {LONGEST_SERVER_NAME} characters, such as 'files'"
        )


def _link_maker(
    command: Sequence[str] | None,
    url: str | None,
    env: dict[str, str],
    folder: str | None,
    headers: dict[str, str],
) -> Callable[[], Link]:
    if (command is None) is (url is None):
        raise ForeignError("say how to reach the server: either command=[…] or url=…")
    if url is not None:
        if not url.startswith(("http://", "https://")):
            raise ForeignError(f"{url!r:.100} is no address: expected http://… or https://…")
        from gramercy.mcp.foreign.web import WebLink

        return lambda: WebLink(url, headers)
    if isinstance(command, str) or not command or not all(isinstance(word, str) for word in command):
        raise ForeignError('a command is a list of words, such as ["python", "server.py"]')
    from gramercy.mcp.foreign.pipe import PipeLink

    return lambda: PipeLink(command, env, folder)


class ForeignServer:
    """A server that is connected to when first needed, and again after it has gone, but not endlessly."""

    def __init__(
        self, name: str, link: Callable[[], Link], *, timeout: float, restarts: int | None, era: Era
    ) -> None:
        self.name = name
        self.timeout = timeout
        self._link = link
        self._era = era
        self._restarts = restarts
        self._starts = 0
        self._is_closed = False
        self._session: ForeignSession | None = None
        self._begun: ForeignSession | None = None
        self._listing: Listing | None = None
        self._listed_at = 0.0
        self._lock: asyncio.Lock | None = None

    @property
    def version(self) -> str | None:
        """The revision of the protocol in use; None before the first conversation."""
        return self._session.version if self._session else None

    def tools(self) -> list[Definition]:
        """Return the definitions of its usable tools, as they are now."""
        return list(self.listing().definitions.values())

    def listing(self) -> Listing:
        """Return its present tools, with what is wrong with the others; waits for the server."""
        _, listing = self._wait(self._persisting(lambda: self._listed(afresh=True)))
        return listing  # type: ignore[no-any-return]

    def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool from plain code, whether accepted or not; return the result as the server gave it."""
        return self._wait(self._persisting(lambda: self._called(tool, arguments, None, None)))  # type: ignore[no-any-return]

    async def acall(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        digest: str | None = None,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Call a tool from any event loop; with a digest only if its definition still has that digest.

        A cancellation is passed on to the server.
        """
        call = self._persisting(lambda: self._called(tool, arguments, digest, progress))
        return await asyncio.wrap_future(KEEPER.submit(call))

    def digest_of(self, tool: str) -> str | None:
        """Return the digest of a tool as it was last listed; None if it was not."""
        listing = self._listing
        found = listing.definitions.get(tool) if listing else None
        return found.digest if found else None

    def close(self, seconds: float = CLOSING) -> None:
        """End the connection, and the process if there is one; the server cannot be used afterwards."""
        self._is_closed = True
        KEEPER.at_exit(id(self), None)
        if self._begun is not None:
            KEEPER.submit(self._ended(seconds)).result(seconds + CLOSING)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ForeignServer {self.name}>"

    def _wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        future = KEEPER.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def _ready(self) -> ForeignSession:
        """Return an open conversation, starting one if there is none."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            session = self._session
            if session is not None and session.link.is_open:
                return session
            self._check_may_start(session)
            self._starts += 1
            self._session = self._listing = None
            try:
                self._session = session = await self._begin(self._era)
            except asyncio.CancelledError:
                # The caller has cancelled: the server did not fail, so the start does not count.
                self._starts -= 1
                raise
            KEEPER.at_exit(id(self), lambda: self._ended(CLOSING / 4))
            return session

    def _check_may_start(self, last: ForeignSession | None) -> None:
        if self._is_closed:
            raise ForeignError(f"the server {self.name} was closed: connect to it again")
        if self._restarts is not None and self._starts > self._restarts:
            remarks = last.link.remarks() if last else ""
            raise ForeignError(
                f"the server {self.name} has ended {self._starts} times and is not started again: find out "
                f"why, then connect to it anew{remarks}"
            )

    async def _begin(self, era: Era) -> ForeignSession:
        # Stored from the first moment, so that it can be ended while it still starts.
        session = self._begun = ForeignSession(self._link(), era)
        try:
            await self._within(STARTING, "the start of", session.start(), session)
        except ServerGoneError as error:
            await session.link.close(0)
            # Some legacy servers exit when they get a modern request.
            if era == "auto" and session.is_modern and not self._is_closed:
                return await self._begin("legacy")
            raise self._explained(error, session) from None
        except BaseException as error:
            remarks = session.link.remarks()
            await session.link.close(0)
            if isinstance(error, ForeignError) and not isinstance(error, ServerGoneError):
                raise ForeignError(f"the server {self.name} cannot be used: {error}{remarks}") from None
            raise
        return session

    async def _listed(self, *, afresh: bool = False) -> tuple[ForeignSession, Listing]:
        """Return the present tools, and the conversation that listed them."""
        session = await self._ready()
        known = self._listing
        is_fresh = not afresh and not session.has_changed and monotonic() < self._listed_at + FRESH
        if known is not None and is_fresh:
            return session, known
        found = await self._asked(session, LISTING, "the list of tools of", session.tools())
        if session is self._session:
            self._listing, self._listed_at = found, monotonic()
        return session, found

    async def _called(
        self, tool: str, arguments: Mapping[str, Any], digest: str | None, progress: Progress | None
    ) -> dict[str, Any]:
        session, listing = await self._listed()
        definition = self._found(listing, tool, digest)
        call = session.call(definition, arguments, progress)
        return await self._asked(session, self.timeout, f"the tool {reveal(tool)} of", call, doubt=DOUBT)

    async def _persisting(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retry once if the server has forgotten our session: it refused the request without running it."""
        try:
            return await attempt()
        except SessionLostError:
            await self._dropped()
        return await attempt()

    def _found(self, listing: Listing, tool: str, digest: str | None) -> Definition:
        definition = listing.definitions.get(tool)
        if definition is None:
            raise ChangedError(
                f"the server {self.name} no longer has a usable tool {reveal(tool)}; the call was not made"
            )
        if digest is not None and definition.digest != digest:
            raise ChangedError(
                f"the server {self.name} has changed what its tool {reveal(tool)} is since a person accepted "
                "it, so the call was not made; a person must look at the change: gramercy foreign accept"
            )
        return definition

    async def _asked(
        self, session: ForeignSession, seconds: float, what: str, awaitable: Awaitable[T], *, doubt: str = ""
    ) -> T:
        try:
            return await self._within(seconds, what, awaitable, session)
        except ServerGoneError as error:
            raise self._explained(error, session, doubt) from None

    def _explained(self, error: ServerGoneError, session: ForeignSession, doubt: str = "") -> ServerGoneError:
        return ServerGoneError(f"the server {self.name} has gone: {error}{doubt}{session.link.remarks()}")

    async def _within(self, seconds: float, what: str, awaitable: Awaitable[T], session: ForeignSession) -> T:
        try:
            async with asyncio.timeout(seconds) as limit:
                return await awaitable
        except TimeoutError:
            if not limit.expired():
                raise
            remarks = session.link.remarks().removeprefix("; ")
            about = f" ({remarks})" if remarks else ""
            raise DeadlineExceededError(f"{what} the server {self.name}{about}", seconds) from None

    async def _dropped(self) -> None:
        session, self._session, self._listing = self._session, None, None
        if session is not None:
            await session.link.close(0)

    async def _ended(self, seconds: float) -> None:
        if self._begun is not None:
            await self._begun.link.close(seconds)
