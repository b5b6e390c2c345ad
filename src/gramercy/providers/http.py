"""A question over HTTP: one POST, answered by a stream of events, retried until the first part has come.

This module knows no format of messages. Redirects are not followed: the service must not decide where the key
is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from gramercy.errors import CutStreamError, ModelUnavailableError, ProviderError
from gramercy.gram.suggestion import suggest
from gramercy.providers import bodies
from gramercy.providers.base import ThoughtPart, UsagePart
from gramercy.providers.bodies import model_names, plain_line, read_events, reason_of, seconds_to_wait
from gramercy.providers.naming import told_value
from gramercy.providers.services import Access, hide_keys, no_address
from gramercy.tools.addresses import hide_query_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping

    import httpx

    from gramercy.providers.base import Part, Request
    from gramercy.providers.services import Service

SILENCE_VARIABLE = "GRAMERCY_MODEL_SILENCE"
log = logging.getLogger("gramercy.providers")
# Bytes of a refusal that are read.
LARGEST_REFUSAL = 64 * 1024
# A service with the models of all others lists a few hundred, with long descriptions.
LARGEST_LIST = 8 * 1024 * 1024
MOST_NAMES = 5
# Busy, overloaded or broken at this moment; 529 is Anthropic's code for it.
PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
FAILING = 500
OK, UNAUTHORIZED, UNPAID, FORBIDDEN, NOT_FOUND, TOO_MANY = 200, 401, 402, 403, 404, 429
# Parts that are not part of an answer's text or calls.
_PASSED_OVER = frozenset({ThoughtPart, UsagePart})
# Seconds in which the end of an answer comes after its end mark: usually it is there already.
LINGER = 0.2


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait for a service, in seconds, and how often to ask it before the first part."""

    connecting: float = 10.0
    # Models that reason before they answer, and models that have to be loaded, are silent for minutes.
    silence: float = 300.0
    tries: int = 4
    first_wait: float = 0.5
    # Services count their limits by the minute. Do not wait for a service that wants more: the person
    # decides.
    longest_wait: float = 60.0


def _usual_patience() -> Patience:
    """Return the default patience; a slow machine that reads a long conversation may need more."""
    given = os.environ.get(SILENCE_VARIABLE, "").strip()
    if not given:
        return Patience()
    # A number of ten digits is three hundred years.
    if not given.isdecimal() or int(given[:10]) == 0 or len(given) > 10:  # noqa: PLR2004 - the same ten
        raise ModelUnavailableError(f"{SILENCE_VARIABLE} is {given!r:.60}: expected seconds, as in 900")
    return Patience(silence=float(given))


class Wire:
    """The connections to one service; they end with the event loop in which they were opened."""

    def __init__(self, access: Access, patience: Patience | None = None) -> None:
        self.access = access
        self.patience = patience or _usual_patience()
        self._client: httpx.AsyncClient | None = None
        self._kept = Kept()

    async def ask(self, attempt: Callable[[], AsyncIterator[Part]]) -> AsyncIterator[Part]:
        """Yield the parts of an answer; until the first part has come, retry after passing errors."""
        for number in range(1, self.patience.tries + 1):
            has_begun = False
            try:
                async with contextlib.aclosing(attempt()) as parts:  # type: ignore[type-var]
                    async for part in parts:
                        # A model's reasoning is not part of its answer, and may come again.
                        has_begun = has_begun or type(part) not in _PASSED_OVER
                        yield part
                return  # noqa: TRY300 - an answer that was given ends the tries
            except ProviderError as error:
                wait = self._wait(error, number)
                if has_begun or wait is None or number == self.patience.tries:
                    raise
                log.info("%s; asked again in %.1f s", error, wait)
            await asyncio.sleep(wait)

    def _wait(self, error: ProviderError, number: int) -> float | None:
        """Return the seconds until the next try, or None if there should be none."""
        if isinstance(error, ModelUnavailableError):
            return None
        if error.status not in PASSING and not isinstance(error, CutStreamError):
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= self.patience.longest_wait else None
        # Double the wait each time; the random half keeps many clients from returning together.
        grown = self.patience.first_wait * 2.0 ** (number - 1) * (0.5 + random.random() / 2)  # noqa: S311
        return min(self.patience.longest_wait, grown)

    async def events(self, path: str, body: Mapping[str, Any]) -> AsyncIterator[bytes]:
        """Post a question and yield the data of the events that answer it."""
        client, failures = await self._opened()
        told, content = {**_HEADERS, **self.access.headers}, encoded(body)
        # A host name that IDNA cannot encode raises UnicodeError.
        unusable: tuple[type[Exception], ...] = (*failures, UnicodeError)
        try:
            request = client.build_request("POST", self.access.url(path), headers=told, content=content)
        except unusable:
            raise no_address(self.access.service) from None
        try:
            response = await client.send(request, stream=True)
        except failures as error:
            raise self._unreached(error) from None
        try:
            async for data in self._answer(response, str(body.get("model", ""))):
                yield data
        except failures as error:
            raise self._broken(error) from None
        finally:
            await response.aclose()

    async def _answer(self, response: httpx.Response, model: str) -> AsyncIterator[bytes]:
        if response.status_code != OK:
            raise await self._refused(response, model)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "application/json":
            # Some gateways return the whole answer at once, even if a stream was requested.
            body = await _read(response, bodies.LARGEST_ANSWER)
            if body.lstrip().startswith(b"<"):
                raise self._no_model("a web page", body, response.status_code)
            yield body
        elif kind in ("text/event-stream", ""):
            async for data in read_events(self._no_page(response)):
                yield data
        else:
            raise self._no_model(kind, await _read(response, LARGEST_REFUSAL), response.status_code)

    async def _no_page(self, response: httpx.Response) -> AsyncIterator[bytes]:
        """Yield the bytes of an answer, unless it begins like a web page."""
        begun = b""
        async for chunk in response.aiter_bytes():
            if not begun.strip():
                begun += chunk
                if begun.lstrip().startswith(b"<"):
                    raise self._no_model("a web page", begun, response.status_code)
            yield chunk

    def _no_model(self, kind: str, body: bytes, status: int) -> ProviderError:
        """Return the error for an answer that is not from a model, such as the page of a login or a proxy."""
        said = reason_of(body, self.access.hide)
        shown = f" ({said:.80})" if said else ""
        return ModelUnavailableError(
            f"{self.access} answers with {kind:.60}, which is no answer of a model{shown}: "
            f"is {self.access.service.address_variable} right?",
            status,
        )

    async def _refused(self, response: httpx.Response, model: str) -> ProviderError:
        hide = self.access.hide
        if target := response.headers.get("location", ""):
            where = plain_line(hide(target.partition("?")[0]))
            return ModelUnavailableError(
                f"{self.access} sends questions on to {where}, where no key is sent: "
                f"is {self.access.service.address_variable} right?",
                response.status_code,
            )
        said = reason_of(await _read(response, LARGEST_REFUSAL), hide) or response.reason_phrase
        if response.status_code == NOT_FOUND:
            said += await self._resembling(model)
        return self.refusal(response.status_code, said, model, seconds_to_wait(response.headers))

    async def _opened(self) -> tuple[httpx.AsyncClient, tuple[type[Exception], ...]]:
        try:
            import httpx
        except ImportError:
            raise ModelUnavailableError(
                f"{self.access.service.name} is reached with httpx: pip install 'gramercy[agents]'"
            ) from None
        if self._client is None or not self._kept.is_here:
            timeout = httpx.Timeout(self.patience.silence, connect=self.patience.connecting)
            # A proxy of the environment is for remote services.
            try:
                client = httpx.AsyncClient(timeout=timeout, trust_env=not self.access.is_here)
            except (ImportError, OSError, ValueError) as error:
                raise ModelUnavailableError(
                    f"{self.access.service.name} cannot be reached as the environment says: {_said(error)}; "
                    "look at HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR"
                ) from None
            hide_query_of(self.access.url(""))
            self._client = client
            await self._kept.keep(client.aclose)
        return self._client, (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError)

    async def aclose(self) -> None:
        """Close the connections."""
        self._client = None
        await self._kept.aclose()

    def _unreached(self, error: Exception) -> ProviderError:
        name, said = self.access.service.name, _said(error)
        kind = type(error).__name__
        if kind in ("ReadTimeout", "WriteTimeout"):
            return ProviderError(
                f"{name} said nothing for {self.patience.silence:g} seconds: ask again later, or set "
                f"{SILENCE_VARIABLE} to more"
            )
        if self.access.is_here and kind.startswith("Connect"):
            hint = self.access.service.start or f"look at {self.access.service.address_variable}"
            return ModelUnavailableError(f"nothing answers at {self.access} ({said}): {hint}")
        return ProviderError(f"{name} is not reached at {self.access}: {said}", 503)

    def _broken(self, error: Exception) -> ProviderError:
        name = self.access.service.name
        if type(error).__name__ == "ReadTimeout":
            return CutStreamError(f"{name} fell silent for {self.patience.silence:g} seconds in its answer")
        return CutStreamError(
            f"the connection to {name} was lost in the middle of its answer, none of its calls was run: "
            f"{_said(error)}"
        )

    async def _resembling(self, model: str) -> str:
        """Return a hint with similar models of the service, if it lists its models."""
        client, failures = await self._opened()
        path = "/v1/models" if self.access.service.format == "anthropic" else "/models"
        try:
            async with client.stream(
                "GET", self.access.url(path), headers=self.access.headers, timeout=self.patience.connecting
            ) as response:
                names = model_names(await _read(response, LARGEST_LIST))
        except failures:
            return ""
        close = suggest(model, names)
        if close:
            return f"; did you mean {close[0]}?"
        if names:
            return f"; it has {', '.join(names[:MOST_NAMES])}"
        own = self.access.service
        return "" if self.access.has_path else f"; is {own.address_variable} right? {own.address} has a path"

    def refusal(self, status: int, said: str, model: str, retry_after: float | None = None) -> ProviderError:
        """Return the error for a refusal, with the service's reason and advice for the person."""
        service, said = self.access.service, self.access.hide(said) or "no reason was given"
        if status in (UNAUTHORIZED, FORBIDDEN):
            where = f"the key in {service.key_variable}" if self.access.key else "questions without a key"
            hint = "" if self.access.key else f"; set {service.key_variable}"
            return ModelUnavailableError(f"{service.name} refuses {where}: {said}{hint}", status)
        if status == NOT_FOUND:
            return ModelUnavailableError(
                f"{service.name} has no model {model!r:.100} at {self.access}: {said}", status
            )
        if status == UNPAID or (status == TOO_MANY and _is_unpaid(said)):
            return ModelUnavailableError(f"{service.name} wants to be paid first: {said}", status)
        if status == TOO_MANY:
            wait = f"; it asks to wait {retry_after:g} seconds" if retry_after else ""
            return ProviderError(
                f"{service.name} has had enough questions for now: {said}{wait}", status, retry_after
            )
        if status >= FAILING:
            failed = f"{service.name} has failed ({status}), which may pass: {said}"
            return ProviderError(failed, status, retry_after)
        return ProviderError(f"{service.name} refuses the question ({status}): {said}", status, retry_after)


def _is_unpaid(said: str) -> bool:
    """Whether the account has no money left; rate limits also mention quotas and bills."""
    words = said.casefold()
    if any(word in words for word in ("rate limit", "per min", "per second", "retry after", "retry in")):
        return False
    return any(word in words for word in ("quota", "billing", "credit"))


async def drained(events: AsyncIterator[bytes]) -> None:
    """Read up to the end of the stream after the end mark: only then is the connection reused.

    Otherwise every question would open a new connection, with a TLS handshake.
    """
    with contextlib.suppress(ProviderError, TimeoutError):
        async with asyncio.timeout(LINGER):
            async for _ in events:
                pass


class WireProvider:
    """A provider that is asked over HTTP; each format implements one attempt."""

    SERVICE: ClassVar[Service]

    def __init__(
        self,
        service: Service | None = None,
        *,
        address: str | None = None,
        key: str | None = None,
        patience: Patience | None = None,
    ) -> None:
        service = service or self.SERVICE
        self.name = service.name
        self._wire = Wire(Access(service, address, key), patience)

    def chat(self, request: Request) -> AsyncIterator[Part]:
        """Stream the answer to one question."""
        return self._wire.ask(lambda: self._attempt(request))

    def _attempt(self, request: Request) -> AsyncIterator[Part]:
        raise NotImplementedError

    async def aclose(self) -> None:
        """Close the connections."""
        await self._wire.aclose()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._wire.access!r}>"


class Kept:
    """A resource that belongs to an event loop, and is closed when the loop ends, if it was not before.

    An event loop that is shut down closes the asynchronous generators that are still open in it. Without that
    the connections of `asyncio.run(agent.arun(…))` would stay open with no loop to close them in.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: AsyncGenerator[None, None] | None = None

    @property
    def is_here(self) -> bool:
        """Whether it belongs to the running event loop, and is open."""
        return self._open is not None and self._loop is asyncio.get_running_loop()

    async def keep(self, close: Callable[[], Awaitable[object]]) -> None:
        """Keep a resource that `close` closes, in the running event loop."""

        async def opened() -> AsyncGenerator[None, None]:
            try:
                yield
            finally:
                await close()

        self._loop, self._open = asyncio.get_running_loop(), opened()
        await anext(self._open)

    async def aclose(self) -> None:
        """Close it now; if its event loop has ended, it was closed with that loop."""
        if self.is_here and self._open is not None:
            await self._open.aclose()
        self._open = None


# Compressed events would come late, and an answer could be larger than what was sent.
_HEADERS = {
    "accept": "text/event-stream",
    "accept-encoding": "identity",
    "content-type": "application/json",
    "user-agent": "gramercy",
}


def encoded(body: Mapping[str, Any]) -> bytes:
    """Encode a body as JSON; invalid Unicode, as in file names, is replaced."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return msgspec.json.encode(told_value(body))


async def _read(response: httpx.Response, most: int) -> bytes:
    """Return a body; a body longer than anything useful is cut, and then is not valid JSON."""
    read = bytearray()
    async for chunk in response.aiter_bytes():
        read += chunk
        if len(read) > most:
            break
    return bytes(read[:most])


def _said(error: Exception) -> str:
    return plain_line(hide_keys(str(error))).rstrip(".") or type(error).__name__
