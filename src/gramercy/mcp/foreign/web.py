"""A server that is reached over HTTP: one POST for each message, answered by JSON or a stream of events.

Redirects are not followed and bodies are not decompressed: a stranger decides neither where our headers go
nor how much memory an answer takes.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from gramercy.mcp.foreign.events import EventReader
from gramercy.mcp.foreign.failures import ForeignError, ForgottenError, RemoteError, ServerGoneError
from gramercy.mcp.foreign.invisibles import reveal
from gramercy.mcp.jsonrpc import InvalidFrameError, Message, SilentFrameError, read_message
from gramercy.mcp.pipes import LARGEST_FRAME

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    import httpx

    from gramercy.mcp.foreign.link import Hear, Outgoing

CONNECTING = 10.0
MOST_UNASKED = 10_000
MOST_RESUMPTIONS = 5
LONGEST_REASON = 300
MOST_ERRANDS = 100
UNAUTHORIZED, FORBIDDEN, NOT_FOUND = 401, 403, 404


class WebLink:
    """An address, and the session that the server has given us there, if any."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._headers = dict(headers)
        self._client: httpx.AsyncClient | None = None
        self._session: str | None = None
        self._version: str | None = None
        self._errands: set[asyncio.Task[None]] = set()

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._client is not None

    async def open(self, hear: Hear) -> None:
        """Make a client; nothing is sent yet."""
        try:
            import httpx
        except ImportError:
            raise ForeignError(
                "servers over HTTP need httpx: install it with pip install 'gramercy[client]'"
            ) from None
        self._hear = hear
        self._failures: tuple[type[Exception], ...] = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError)
        timeout = httpx.Timeout(CONNECTING, read=None)
        self._client = httpx.AsyncClient(timeout=timeout, follow_redirects=False)

    async def ask(self, outgoing: Outgoing) -> Message:
        """Post a request and read until its response."""
        try:
            return await self._posted(outgoing)
        except self._failures as error:
            said = reveal(str(error))[:LONGEST_REASON].rstrip(".") or type(error).__name__
            raise ServerGoneError(f"there is no connection to {self._url}: {said}") from None

    async def _posted(self, outgoing: Outgoing) -> Message:
        events = EventReader()
        headers = self._all_headers(outgoing.version, outgoing.method) | dict(outgoing.headers)
        async with self._stream("POST", headers, outgoing.frame) as response:
            found = await self._answer(response, outgoing, events)
            if outgoing.method == "initialize" and found is not None:
                self._session = response.headers.get("mcp-session-id")
        for _ in range(MOST_RESUMPTIONS):
            if found is not None or events.last_id is None:
                break
            found = await self._resumed(outgoing, events)
        if found is None:
            raise ServerGoneError("it ended the stream before the answer came")
        return found

    async def _resumed(self, outgoing: Outgoing, events: EventReader) -> Message | None:
        """Ask for the rest of a stream that a server of the older era has ended early."""
        await asyncio.sleep(events.retry_ms / 1000)
        headers = self._all_headers(outgoing.version, None)
        headers |= {"last-event-id": events.last_id or "", "accept": "text/event-stream"}
        async with self._stream("GET", headers, None) as response:
            return await self._answer(response, outgoing, events)

    def _stream(self, method: str, headers: dict[str, str], content: bytes | None) -> Any:
        if self._client is None:
            raise ServerGoneError("it was closed")
        return self._client.stream(method, self._url, headers=headers, content=content)

    async def _answer(
        self, response: httpx.Response, outgoing: Outgoing, events: EventReader
    ) -> Message | None:
        self._check_status(response)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise ServerGoneError("it compresses its answers, although it was asked not to")
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream":
            return await self._from_events(events.read(response.aiter_raw()), outgoing)
        body = await _bounded_body(response)
        message = _message(body) if kind == "application/json" else None
        if message is not None and message.method is UNSET:
            return message
        raise RemoteError(
            f"{self._url} answered {outgoing.method} with status {response.status_code} and no message of "
            f"the protocol: {reveal(body[:LONGEST_REASON].decode('utf-8', 'replace'))}",
            response.status_code,
        )

    async def _from_events(self, events: AsyncIterator[bytes], outgoing: Outgoing) -> Message | None:
        unasked = 0
        async for event in events:
            message = _message(event)
            if message is not None and message.method is UNSET and message.id == outgoing.id:
                return message
            unasked += 1
            if unasked > MOST_UNASKED:
                raise ServerGoneError(f"it floods: more than {MOST_UNASKED:,} messages that nobody asked for")
            if message is not None and message.method is not UNSET:
                self._hear(message)
        return None

    def _check_status(self, response: httpx.Response) -> None:
        status = response.status_code
        if status == NOT_FOUND and self._session is not None:
            self._session = None
            raise ForgottenError(f"{self._url} has forgotten the session")
        if status in (UNAUTHORIZED, FORBIDDEN):
            raise ForeignError(
                f"{self._url} lets us not in (status {status}): give a header such as Authorization: Bearer …"
            )
        if response.is_redirect:
            target = reveal(response.headers.get("location", ""))[:LONGEST_REASON]
            raise ForeignError(f"{self._url} redirects to {target}, which is not followed: give that address")

    def _all_headers(self, version: str | None, method: str | None) -> dict[str, str]:
        """Return the headers of one message; a method is named only in the era that wants it."""
        headers = self._headers | {
            "accept": "application/json, text/event-stream",
            "accept-encoding": "identity",
            "content-type": "application/json",
        }
        if version is not None:
            headers["mcp-protocol-version"] = version
        if self._session is not None:
            headers["mcp-session-id"] = self._session
        elif method is not None and version is not None:
            headers["mcp-method"] = method
        return headers

    def tell(self, frame: bytes, version: str | None = None) -> None:
        """Post a notification or a response; nobody waits for what comes of it."""
        self._version = version or self._version
        if len(self._errands) >= MOST_ERRANDS:
            raise ServerGoneError("it makes us say more than it listens to")
        headers = self._all_headers(version, None)
        task = asyncio.get_running_loop().create_task(self._post_quietly(frame, headers))
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def settle(self) -> None:
        """Wait until what was told has arrived."""
        await asyncio.gather(*self._errands)

    async def _post_quietly(self, frame: bytes, headers: dict[str, str]) -> None:
        try:
            async with asyncio.timeout(CONNECTING), self._stream("POST", headers, frame) as response:
                await _bounded_body(response)
        except (ForeignError, TimeoutError):
            return
        except self._failures:
            return

    def forget(self, outgoing: Outgoing, cancellation: bytes) -> None:
        """Tell a server with a session; in the newer era the end of the stream says it already."""
        if self._session is not None and self._client is not None:
            with contextlib.suppress(ServerGoneError):
                self.tell(cancellation, outgoing.version)

    def remarks(self) -> str:
        """Return nothing: there is no more to know than what the answers say."""
        return ""

    async def close(self, seconds: float) -> None:
        """End the session and the connections."""
        client, self._client = self._client, None
        if client is None:
            return
        try:
            async with asyncio.timeout(seconds):
                if self._session is not None:
                    await client.delete(self._url, headers=self._all_headers(self._version, None))
                await asyncio.gather(*self._errands)
        except TimeoutError:
            pass
        except self._failures:
            pass
        finally:
            await client.aclose()


def _message(frame: bytes) -> Message | None:
    try:
        return read_message(frame)
    except InvalidFrameError as error:
        return None if error.id is UNSET else Message("2.0", id=error.id, error={"message": str(error)})
    except SilentFrameError:
        return None


async def _bounded_body(response: httpx.Response) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > LARGEST_FRAME:
            raise ServerGoneError(f"it sent a message of more than {LARGEST_FRAME:,} bytes")
    return bytes(body)
