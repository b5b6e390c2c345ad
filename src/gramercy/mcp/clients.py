"""The state of a client between its frames, and a call as its handler sees it.

Progress, log lines and questions of a handler go to the client that called.
"""

from __future__ import annotations

import asyncio
from itertools import count
from math import isfinite
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from msgspec import UNSET

from gramercy.errors import ExecutionError, ProtocolError, ToolError
from gramercy.mcp.jsonrpc import (
    CLIENT_KEY,
    LOG_LEVEL_KEY,
    Code,
    Id,
    Message,
    Request,
    encode,
    missing_capability,
    notification,
    request,
)
from gramercy.tools.arguments import validate_tool_args
from gramercy.tools.context import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gramercy.execution.calls import ToolResult
    from gramercy.mcp.base import Channel, Peer
    from gramercy.mcp.conversation import Conversation, Question
    from gramercy.mcp.signing import Signer
    from gramercy.tools.context import LogLevel

_numbers = count(1)
# Each holds a task of the event loop; clients have a handful.
MOST_REQUESTS = 1_000


class Cancellable(Protocol):
    """A pending request."""

    def cancel(self) -> None:
        """Stop because the client wants no answer; it gets none."""


class Client:
    """One peer: its pending requests and, if legacy, the settings of its session."""

    __slots__ = ("_questions", "is_session", "log_rank", "peer", "requests", "uris")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.is_session = False
        self.requests: dict[Id, Cancellable] = {}
        self.log_rank = 0
        self.uris: set[str] | None = None
        self._questions: dict[str, Question] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether forgetting this client would lose nothing."""
        return not (self.is_session or self.requests or self._questions)

    def ask(self, channel: Channel, question: Question, patience: float) -> None:
        """Send a question as a request of our own; it is withdrawn if no answer comes in time."""
        if self._questions is None:
            self._questions = {}
        name = f"gramercy-{next(_numbers)}"
        self._questions[name] = question
        text = f"the client did not answer {question.method} within {patience:g} s"
        timer = asyncio.get_running_loop().call_later(patience, question.give_up, text)
        channel.send(request(name, question.method, question.params))

        def settled(answer: asyncio.Future[dict[str, Any]]) -> None:
            timer.cancel()
            if self._questions is not None and self._questions.pop(name, None) is not None:
                # It was decided elsewhere or cancelled: no caller waits for it, so remove it from the screen.
                problem = None if answer.cancelled() else answer.exception()
                about = {"requestId": name, "reason": str(problem or "no answer is needed any more")}
                channel.send(notification("notifications/cancelled", about))

        question.answer.add_done_callback(settled)

    def answered(self, message: Message) -> None:
        """Take the answer to a question; answers to unknown questions are dropped."""
        # Removed here: a question that the client has answered is not withdrawn.
        name, known = message.id, self._questions
        question = known.pop(name, None) if known and type(name) is str else None
        if question is None:
            return
        if message.error is not UNSET:
            found = message.error.get("message") if isinstance(message.error, dict) else None
            question.give_up(f"the client refused to answer: {str(found)[:500]}")
        elif isinstance(message.result, dict):
            question.take(message.result)
        else:
            question.give_up("the client's answer is no object")

    def close(self) -> None:
        """End everything that this client waits for, and everything that waits for it."""
        for under_way in list(self.requests.values()):
            under_way.cancel()
        questions, self._questions = self._questions or {}, None
        for question in questions.values():
            question.give_up("the client has gone away")


class Clients:
    """The clients that have state; other clients cost nothing.

    `session` names the serving process, `project` tells what it serves. With a `signer` whose key is stored,
    clients can return after a restart, and their calls have an identity.
    """

    __slots__ = ("_known", "project", "session", "signer")

    def __init__(
        self, session: str = "", project: Callable[[], str] = str, signer: Signer | None = None
    ) -> None:
        self._known: dict[Peer, Client] = {}
        self.session = session
        self.project = project
        self.signer = signer

    def get(self, peer: Peer) -> Client | None:
        """Return the state of a peer, if there is any."""
        return self._known.get(peer)

    def of(self, peer: Peer) -> Client:
        """Return the state of a peer; create it if need be."""
        client = self._known.get(peer)
        if client is None:
            client = self._known[peer] = Client(peer)
        return client

    def all(self) -> list[Client]:
        """List all clients."""
        return list(self._known.values())

    def begin_request(self, peer: Peer, id: Id, under_way: Cancellable) -> None:  # noqa: A002 - its wire name
        """Note a pending request, so that its client can cancel it."""
        client = self.of(peer)
        if id in client.requests or len(client.requests) >= MOST_REQUESTS:
            problem = "this id is already under way" if id in client.requests else "too many are under way"
            self.forget_if_idle(client)
            raise ProtocolError(Code.INVALID_REQUEST, f"Invalid request: {problem}")
        client.requests[id] = under_way

    def end_request(self, peer: Peer, id: Id) -> None:  # noqa: A002 - its wire name
        """Note that a request is over."""
        client = self._known.get(peer)
        if client is not None:
            client.requests.pop(id, None)
            self.forget_if_idle(client)

    def forget_if_idle(self, client: Client) -> None:
        """Drop a client that has no state."""
        if client.is_idle:
            self._known.pop(client.peer, None)

    def close(self, peer: Peer) -> None:
        """Forget a client for good."""
        client = self._known.pop(peer, None)
        if client is not None:
            client.close()


LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_RANKS = {level: rank for rank, level in enumerate(LEVELS)}
# The first hundred reports are all sent; then at most twenty per second, as many as an eye can follow.
FREE_REPORTS = 100
REPORT_SECONDS = 0.05
MESSAGES_SINCE = "2025-03-26"
MODES_SINCE = "2025-11-25"
METHODS = {"elicitation": "elicitation/create", "sampling": "sampling/createMessage", "roots": "roots/list"}


class ServedCall(Call):
    """One request as its handler sees it. `conversation` is set once the handler has to be awaited.

    `cancelled`, `is_called_off` (by the client itself) and `is_silent` are set only by the conversation, as
    its state changes.
    """

    # Class attributes until they are set: nearly every call ends before any of them is.
    conversation: Conversation | None = None
    cancelled = is_silent = is_called_off = False
    # The result that the client may return for, once there is one.
    result: ToolResult | None = None
    fault: ProtocolError | None = None
    stops: list[Callable[[], object]] | None = None
    _identity: str | None = None
    _progress: float | None = None
    _reports = 0
    _reported_at = 0.0

    def __init__(self, request: Request, clients: Clients) -> None:
        self.request = request
        self._clients = clients
        self._thread = get_ident()

    @property
    def identity(self) -> str:
        """The identity by which a returning client finds this call: caller, project, tool and arguments."""
        if self._identity is None:
            signer, params = self._clients.signer, self.request.params
            if signer is None or self.request.method != "tools/call":
                self._identity = ""
            else:
                about = [self.principal, self.project, params.get("name"), params.get("arguments", {})]
                self._identity = signer.identity(about)
        return self._identity

    @identity.setter
    def identity(self, identity: str) -> None:
        self._identity = identity

    @property
    def session(self) -> str:
        """The serving process."""
        return self._clients.session

    @property
    def project(self) -> str:
        """The directory that is served."""
        return self._clients.project()

    @property
    def is_cancelled(self) -> bool:
        """Whether the call was cancelled: its result is dropped."""
        return self.cancelled

    @property
    def principal(self) -> str:
        """The caller, as the transport has determined it."""
        return self.request.peer.principal

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the client has declared."""
        return self.request.capabilities

    @property
    def client(self) -> str:
        """The client's own name; empty if it gives none."""
        found = self.request.meta.get(CLIENT_KEY) if self.request.modern else self.request.peer.client
        name = found.get("name") if isinstance(found, dict) else None
        return name if isinstance(name, str) else ""

    @property
    def version(self) -> str:
        """The revision of the protocol that the client speaks."""
        return self.request.version

    def can(self, capability: str) -> bool:
        """Tell whether the client has declared that it can be asked this."""
        found = self.request.capabilities.get(capability)
        # A question to a legacy client is a message of its own, which needs a channel.
        if not isinstance(found, dict) or not (self.request.modern or self.request.channel):
            return False
        # A declaration without a mode means forms, the only mode at first.
        return capability != "elicitation" or not found or "form" in found

    def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the client, if it wants to know; progress never goes back."""
        token = self.request.meta.get("progressToken")
        if not isinstance(token, str | int) or not self._is_news(progress, total):
            return
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None and self.request.version >= MESSAGES_SINCE:
            params["message"] = message
        self._send("notifications/progress", params)

    def _is_news(self, progress: float, total: float | None) -> bool:
        """Tell whether a report is worth a message: it goes forward, and reports are not too frequent."""
        if not isfinite(progress) or (self._progress is not None and progress <= self._progress):
            return False
        now = monotonic()
        is_flood = self._reports >= FREE_REPORTS and now < self._reported_at + REPORT_SECONDS
        if is_flood and progress != total:
            return False
        self._progress, self._reported_at = progress, now
        self._reports += 1
        return True

    def log(self, level: LogLevel, data: Any, *, logger: str | None = None) -> None:
        """Send a line to the client's log if it wants lines of that level."""
        if _RANKS.get(level, 0) < self._wanted_rank():
            return
        try:
            encode(data)
        except Exception:  # noqa: BLE001 - a line that cannot be written must not fail the call
            data = repr(data)[:1_000]
        params = {"level": level if level in _RANKS else "info", "data": data}
        self._send("notifications/message", params if logger is None else {**params, "logger": logger})

    def _wanted_rank(self) -> int:
        """Return the least level to send; modern clients get lines only if they ask for them."""
        if self.request.modern:
            wanted = self.request.meta.get(LOG_LEVEL_KEY)
            return _RANKS.get(wanted, len(LEVELS)) if isinstance(wanted, str) else len(LEVELS)
        client = self._clients.get(self.request.peer)
        return 0 if client is None else client.log_rank

    def _send(self, method: str, params: dict[str, Any]) -> None:
        channel = self.request.channel
        if channel is None or self.is_silent:
            return
        message = notification(method, params)
        self._on_loop(lambda: channel.send(message))

    def _on_loop(self, action: Callable[[], object]) -> None:
        """Run it on the thread of the event loop, where everything but plain handlers runs."""
        conversation = self.conversation
        if self._thread == get_ident():
            action()
        elif conversation is not None and not conversation.loop.is_closed():
            conversation.loop.call_soon_threadsafe(action)

    def on_cancel(self, stop: Callable[[], object]) -> None:
        """Have `stop` called if the call is cancelled while the handler runs; it must not block."""
        if self.stops is None:
            self.stops = []
        self.stops.append(stop)
        if self.cancelled:
            stop()

    def close_stream(self) -> None:
        """Release the connection while the work continues, if the client can return for the result."""
        close = getattr(self.request.channel, "close_stream", None)
        if close is not None:
            self._on_loop(close)

    async def detach(self) -> bool:
        """Continue as a task, if the client understands tasks."""
        return self.conversation is not None and self.conversation.detach()

    def fail(self, message: str, *, code: int = Code.INTERNAL_ERROR, data: Any = None) -> NoReturn:
        """End the request with a JSON-RPC error instead of a result."""
        self.fault = ProtocolError(code, message, UNSET if data is None else data)
        raise self.fault

    async def ask(self, message: str, schema: Mapping[str, Any], *, key: str | None = None) -> dict[str, Any]:
        """Ask the person with a form of flat fields; accepted content fits the schema."""
        answer = await self._ask("elicitation", form(message, schema, self.request.version), key)
        return checked_form(answer, schema)

    async def sample(self, params: Mapping[str, Any], *, key: str | None = None) -> dict[str, Any]:
        """Have the client's model answer."""
        return await self._ask("sampling", dict(params), key)

    async def roots(self, *, key: str | None = None) -> list[dict[str, Any]]:
        """Return the folders that the client works in."""
        found = (await self._ask("roots", {}, key)).get("roots")
        return found if isinstance(found, list) else []

    async def _ask(self, capability: str, params: dict[str, Any], key: str | None) -> dict[str, Any]:
        if not self.can(capability) or self.conversation is None:
            text = f"this needs a client that declares the capability {capability!r}, and yours does not"
            if self.request.modern:
                self.fault = missing_capability({capability: {}})
            raise ExecutionError(text)
        encode(params)  # what cannot be sent must fail here, where the handler sees it
        return await self.conversation.ask(METHODS[capability], params, key)


def form(message: str, schema: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Return the parameters of elicitation/create for a form."""
    params = {"message": message, "requestedSchema": schema}
    return {"mode": "form", **params} if version >= MODES_SINCE else params


def checked_form(answer: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a person's answer; raise ExecutionError if it does not fit the question."""
    action = answer.get("action")
    if action not in {"accept", "decline", "cancel"}:
        raise ExecutionError(f"the client answered the question with action {action!r:.50}")
    if action != "accept":
        return {"action": action}
    # Some clients send null for a form without content.
    content = answer.get("content")
    content = {} if content is None else content
    try:
        return {"action": action, "content": validate_tool_args(dict(schema), content)}
    except ToolError as error:
        raise ExecutionError(f"the answer does not fit the question. {error}") from None
