"""A server that is reached over HTTP: one POST for each message, answered by JSON or a stream of events.

Redirects are not followed and bodies are not decompressed: the server decides neither where our headers go
nor how much memory an answer takes.
"""

from __future__ import annotations

import asyncio
import contextlib
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from gramercy.errors import (
    DeepFrameError,
    ForeignError,
    InvalidFrameError,
    RemoteError,
    ServerGoneError,
    SessionLostError,
)
from gramercy.mcp.jsonrpc import Message, read_message
from gramercy.mcp.pipes import LARGEST_FRAME
from gramercy.text import reveal
from gramercy.tools.addresses import hide_query_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    import httpx

    from gramercy.mcp.foreign.definitions import Definition
    from gramercy.mcp.foreign.session import Hear, Outgoing

# Seconds for TCP and TLS; the caller bounds the answer itself.
CONNECTING = 10.0
# After so many seconds an idle connection is not used again. Many servers close it after five, and a request
# that is sent at that moment fails.
IDLE = 2.0
# Messages of one response before its answer; the progress of a long call comes to a few thousand.
MOST_UNASKED = 10_000
# A server that ends a stream early for the sixth time will not answer.
MOST_RESUMPTIONS = 5
# Characters of a server's own text that are quoted in a message.
LONGEST_REASON = 300
# Notifications in transit at the same time; only answers to a server's own requests can be many.
MOST_ERRANDS = 100
UNAUTHORIZED, FORBIDDEN, NOT_FOUND = 401, 403, 404


class WebLink:
    """An address, and the session id that the server gave us, if any."""

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
        """Create a client; nothing is sent yet."""
        try:
            import httpx
        except ImportError:
            raise ForeignError(
                "servers over HTTP need httpx: install it with pip install 'gramercy[client]'"
            ) from None
        self._hear = hear
        self._failures: tuple[type[Exception], ...] = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError)
        timeout = httpx.Timeout(CONNECTING, read=None)
        hide_query_of(self._url)
        limits = httpx.Limits(keepalive_expiry=IDLE)
        self._client = httpx.AsyncClient(timeout=timeout, limits=limits, follow_redirects=False)

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
        """Request the rest of a stream that a legacy server has ended early."""
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
            raise SessionLostError(f"{self._url} has forgotten the session")
        if status in (UNAUTHORIZED, FORBIDDEN):
            raise ForeignError(
                f"{self._url} does not let us in (status {status}): "
                "give a header such as Authorization: Bearer …"
            )
        if response.is_redirect:
            target = reveal(response.headers.get("location", ""))[:LONGEST_REASON]
            raise ForeignError(f"{self._url} redirects to {target}, which is not followed: give that address")

    def _all_headers(self, version: str | None, method: str | None) -> dict[str, str]:
        """Return the headers of one message; only modern servers want the method in a header."""
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
        """Post a notification or a response on a task of its own; a failure is ignored."""
        self._version = version or self._version
        if len(self._errands) >= MOST_ERRANDS:
            raise ServerGoneError("it makes us say more than it listens to")
        headers = self._all_headers(version, None)
        task = asyncio.get_running_loop().create_task(self._post_quietly(frame, headers))
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def settle(self) -> None:
        """Wait until the posted messages have arrived."""
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
        """Notify a server with a session; for a modern server the end of the stream is enough."""
        if self._session is not None and self._client is not None:
            with contextlib.suppress(ServerGoneError):
                self.tell(cancellation, outgoing.version)

    def remarks(self) -> str:
        """Return nothing: the answers say everything."""
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
    except DeepFrameError as error:
        raise ServerGoneError(f"it sent a message that cannot be read: {error}") from None
    except InvalidFrameError as error:
        return None if error.id is None else Message("2.0", id=error.id, error={"message": str(error)})


async def _bounded_body(response: httpx.Response) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > LARGEST_FRAME:
            raise ServerGoneError(f"it sent a message of more than {LARGEST_FRAME:,} bytes")
    return bytes(body)


def header_value(value: str) -> str:
    """Return a text as the value of a header: plain where that is possible, else in Base64."""
    is_plain = (
        value.isascii() and value.isprintable() and value == value.strip() and not value.startswith("=?")
    )
    return value if is_plain else f"=?base64?{b64encode(value.encode()).decode()}?="


def repeated_arguments(definition: Definition, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the name of the tool and the arguments that its schema marks, as headers."""
    from gramercy.mcp.http.headers import find_repeated

    headers = {"mcp-name": header_value(definition.name)}
    for repeated in find_repeated(definition.parts["inputSchema"]):
        value: Any = arguments
        for step in repeated.path:
            value = value.get(step) if isinstance(value, dict) else None
        title = repeated.header.decode("latin-1")
        # A name that is not a token would let the server write headers of its choice into our request.
        if value is not None and title.replace("-", "").isalnum() and title.isascii():
            headers[title] = header_value(_as_text(value))
    return headers


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class EventReader:
    """Collects the data of events; remembers the last id and the retry time that the server wants."""

    def __init__(self) -> None:
        self.last_id: str | None = None
        self.retry_ms = 1_000
        self._begun = bytearray()
        self._data: list[bytes] = []
        self._size = 0

    async def read(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the data of each event that has any."""
        async for chunk in chunks:
            self._begun += chunk
            if b"\n" not in chunk and b"\r" not in chunk:
                self._check(len(self._begun))
                continue
            # A carriage return at the end may be half of a line end; alone it is a complete one.
            held = b"\r" if self._begun.endswith(b"\r") else b""
            whole = self._begun.removesuffix(held) if held else self._begun
            *lines, rest = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
            self._begun = rest + held
            for line in lines:
                event = self._take(bytes(line))
                if event:
                    yield event

    def _take(self, line: bytes) -> bytes:
        """Take one line; return the data of the event that it ends."""
        if not line:
            event, self._data, self._size = b"\n".join(self._data), [], 0
            return event
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._size += len(value) + 1
            self._check(self._size)
            self._data.append(value)
        elif field == b"id" and len(value) <= 1_000 and b"\0" not in value:  # noqa: PLR2004 - longer is abuse
            self.last_id = value.decode("utf-8", "replace")
        elif field == b"retry" and value.isdigit():
            self.retry_ms = min(int(value[:6]), 30_000)
        return b""

    @staticmethod
    def _check(size: int) -> None:
        if size > LARGEST_FRAME:
            raise ServerGoneError(f"it sent a message of more than {LARGEST_FRAME:,} bytes")
