"""The engine: one function from a frame to its answer, for every client and both protocols.

It has the table of methods, legacy and modern, and knows no transport. A request is answered at once if
possible; a request that has to wait becomes a conversation.
"""

from __future__ import annotations

import asyncio
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from msgspec import UNSET

from gramercy.errors import InvalidFrameError, ProtocolError, SilentFrameError
from gramercy.mcp import jsonrpc
from gramercy.mcp.approval import Approver
from gramercy.mcp.clients import LEVELS, Clients, ServedCall
from gramercy.mcp.conversation import AsTask, Conversation, Conversations
from gramercy.mcp.jsonrpc import (
    DISCOVER_TTL_MS,
    LATEST_LEGACY,
    SUPPORTED,
    TASKS,
    Code,
    Message,
    Request,
    Shaper,
    agree,
    invalid_params,
    log,
    read_frame,
    read_request,
    unexpected,
)
from gramercy.mcp.listing import PAGE_SIZE, ToolListing, View
from gramercy.mcp.parked import ParkedCalls
from gramercy.mcp.resources import CatalogMethods
from gramercy.mcp.signing import Signer
from gramercy.mcp.subscriptions import Subscriptions
from gramercy.mcp.tasks import Task, TaskMethods, TaskName, TaskStore
from gramercy.mcp.tool_calls import ToolCalls
from gramercy.tools.context import enter_call, leave_call
from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from gramercy.execution.approval import ApprovalHandler
    from gramercy.execution.calls import ToolResult
    from gramercy.execution.executor import Executor
    from gramercy.mcp.base import Answer, Channel, Peer, Preface
    from gramercy.mcp.catalogue import Catalog
    from gramercy.mcp.jsonrpc import Received
    from gramercy.mcp.parked import Stamps
    from gramercy.mcp.question_files import Nearby

    Method: TypeAlias = Callable[[Request], Any]

# The seconds in which a person who is near answers; a call that waits longer holds memory for nothing.
PATIENCE = 600.0
# A client that understands tasks would rather return later than wait longer than this.
TASK_AFTER = 5.0
# The declaration of tasks for 2025-11-25.
LEGACY_TASKS: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}


class Engine:
    """Serves the tools of one executor and the offers of a catalogue to any number of clients.

    For a call that needs approval it asks at the client, else the executor's own approval handler. All
    methods belong to the thread of the event loop.
    """

    def __init__(  # noqa: PLR0913 - the parts of an engine are its arguments
        self,
        executor: Executor,
        *,
        name: str,
        version: str,
        instructions: str = "",
        catalog: Catalog | None = None,
        strict: bool = False,
        page_size: int = PAGE_SIZE,
        max_safety: Safety | str | None = None,
        categories: Iterable[str] | None = None,
        patience: float = PATIENCE,
        task_after: float = TASK_AFTER,
        nearby: Nearby | None = None,
        signing_key: bytes | None = None,
        session: str = "",
        project: Callable[[], str] = str,
        deciding: Callable[[ApprovalHandler], ApprovalHandler | None] | None = None,
    ) -> None:
        """Join the parts; `patience` is how many seconds a question to a person may stay open.

        With a `signing_key`, which is kept together with the journal, clients can return after a restart.
        `session` and `project` are recorded in the journal. `deciding` may answer a question before a person
        is asked; it gets the handler that asks the person.
        """
        asking = Approver(executor.approval_handler, patience, nearby)
        executor = executor.with_approver(asking if deciding is None else deciding(asking))
        self.executor, self._settings = executor, executor.settings
        self._library, self._policy = self._settings.registry.library(), self._settings.policy
        shaper = self._shaper = Shaper({"name": name, "version": version})
        signer = Signer(signing_key)
        self._clients = Clients(session, project, signer if signing_key is not None else None)
        self._subscriptions = Subscriptions(self._clients, shaper, catalog)
        self._tasks = TaskStore(self._task_changed, signer, executor.undelivered)
        self._task_methods = TaskMethods(
            self._tasks, self._clients, shaper, patience=patience, delivered=self._delivered
        )
        view = View(Safety.parse(max_safety or Safety.DANGEROUS), categories, page_size)
        listing = self._listing = ToolListing(executor, shaper, view)
        self._tool_calls = ToolCalls(executor, listing, shaper, strict=strict)
        self._methods = Methods(listing, self._tool_calls)
        self._methods.add_greeting(
            Greeting(
                shaper,
                instructions,
                clients=self._clients,
                subscriptions=self._subscriptions,
                catalog=catalog,
            )
        )
        self._methods.add_subscriptions(self._subscriptions, resources=catalog is not None)
        self._methods.add_tasks(self._task_methods)
        if catalog is not None:
            self._methods.add_catalog(CatalogMethods(catalog, shaper, page_size))
        self._conversations = Conversations(
            self._clients,
            shaper,
            self._task_methods,
            patience=patience,
            task_after=task_after,
            changed=self.notice_changes,
            delivered=self._delivered,
            undelivered=executor.undelivered,
            parked=ParkedCalls(patience, signer, is_durable=signing_key is not None),
        )
        if signing_key is not None:
            self._task_methods.adopt = self._adopt

    def begin_with(self, preface: Preface) -> None:
        """Settle this preface before the first call of each client, and put its note into the reply."""
        self._tool_calls.preface = preface

    def served_elsewhere(self, tools: Mapping[str, str]) -> None:
        """Register tools that are not served here, with the text for clients that call them."""
        self._tool_calls.elsewhere = tools

    def put_first(self, tools: Container[str]) -> None:
        """Have clients that load tools on demand show these tools to their model from the start."""
        self._listing.foremost = tools

    def handle(self, peer: Peer, frame: bytes, channel: Channel | None = None) -> Answer:
        """Take one frame and return its answer: bytes, None if there is no answer, or an awaitable."""
        received = read_frame(frame)
        if type(received) is Message:
            return self._respond(peer, received, channel)
        return self.take(peer, received, channel)

    def take(self, peer: Peer, received: Received, channel: Channel | None = None) -> Answer:
        """Answer a frame that a transport has parsed itself."""
        if type(received) is Message:
            return self._respond(peer, received, channel)
        if type(received) is list:
            return jsonrpc.handle_batch(received, lambda part: self.take(peer, part, channel))
        assert isinstance(received, InvalidFrameError)  # noqa: S101 - the third of three; this tells mypy
        return None if isinstance(received, SilentFrameError) else jsonrpc.failure(received, received.id)

    def close(self, peer: Peer) -> None:
        """Forget a client: cancel its requests, drop its subscriptions. Its tasks and open questions stay."""
        self._clients.close(peer)
        self._tool_calls.forget(peer)

    def shutdown(self) -> None:
        """End all requests of all clients; listen streams get their last answer."""
        self._subscriptions.close()
        for client in self._clients.all():
            self._clients.close(client.peer)
        self._conversations.close()
        self._tasks.close()

    def notice_changes(self) -> None:
        """Notify subscribers if tools were registered or the policy was replaced since."""
        library, policy = self._settings.registry.library(), self._settings.policy
        if library is not self._library or policy is not self._policy:
            self._library, self._policy = library, policy
            self._subscriptions.list_changed("tools")

    def tool_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the schema of a tool's arguments, for transports that carry some of them in headers."""
        tool = self._settings.registry.find(name)
        return None if tool is None else tool.schema

    def _respond(self, peer: Peer, message: Message, channel: Channel | None) -> Answer:
        """Answer a request; this is the one broad catch of the server."""
        if message.method is UNSET or message.id is UNSET:
            self._told(peer, message)
            return None
        try:
            request = read_request(peer, message, channel)
            methods = self._methods.modern if request.modern else self._methods.legacy
            method, may_wait = methods.get(request.method) or _not_found(request.method)
            return self._converse(request, method) if may_wait else self._answer(request, method)
        except ProtocolError as error:
            return jsonrpc.failure(error, message.id)
        except Exception as error:  # noqa: BLE001 - logged and told
            return jsonrpc.failure(unexpected(message, error), message.id)

    def _told(self, peer: Peer, message: Message) -> None:
        """Take a response or a notification; an invalid one is dropped, since it gets no answer."""
        client = self._clients.get(peer)
        if client is None:
            return
        if message.method is UNSET:
            client.answered(message)
        elif message.method == "notifications/cancelled" and message.params is not UNSET:
            named = message.params.get("requestId")
            under_way = client.requests.get(named) if isinstance(named, str | int) else None
            if isinstance(under_way, Conversation):
                under_way.call_off()
            elif under_way is not None:
                under_way.cancel()

    def _answer(self, request: Request, method: Method) -> Answer:
        self.notice_changes()
        result = method(request)
        # A listen stream is answered when it ends.
        return result if isinstance(result, asyncio.Future) else self._shaper.written(request, result)

    def _converse(self, request: Request, method: Method) -> Answer:
        """Answer a request at once if its method does, else when the method has ended or asks something."""
        stamps: Stamps = frozenset()
        if request.modern and "requestState" in request.params:
            found = self._conversations.resume(request)
            if not isinstance(found, frozenset):
                return found
            stamps = found
        call = ServedCall(request, self._clients)
        token = enter_call(call)
        try:
            reply = method(request)
            if type(reply) is CoroutineType or type(reply) is AsTask:
                return self._conversations.begin(call, reply, stamps)
        finally:
            leave_call(token)
        self.notice_changes()
        if call.result is not None:
            asyncio.get_running_loop().call_soon(self._delivered, call.result)
        return self._shaper.written(request, reply)

    def _delivered(self, result: ToolResult) -> None:
        """Record that a client has its answer, so that its next such call is a new one."""
        try:
            self.executor.delivered(result)
        except Exception:  # noqa: BLE001 - a journal may raise anything; the answer has gone out
            log.exception("the journal cannot record that the answer of call %.100r was delivered", result.id)

    def _adopt(self, request: Request, name: TaskName) -> Task | None:
        """Resume a task of an earlier process, if the journal has its call."""
        call = ServedCall(request, self._clients)
        call.identity = name.identity
        token = enter_call(call)
        try:
            handler = self._tool_calls.returned(name, request)
            return None if handler is None else self._conversations.adopt(call, handler, name)
        finally:
            leave_call(token)

    def _task_changed(self, task: Task) -> None:
        describe = self._task_methods.detailed
        self._subscriptions.task_changed(task.id, task.principal, lambda: describe(task))


def _not_found(method: str) -> NoReturn:
    raise ProtocolError(Code.METHOD_NOT_FOUND, f"Method not found: {method[:100]}")


class Methods:
    """The methods of both protocols by name, each with whether it may report, ask and wait."""

    __slots__ = ("legacy", "modern")

    def __init__(self, listing: ToolListing, tool_calls: ToolCalls) -> None:
        self.legacy: dict[str, tuple[Method, bool]] = {}
        self.modern: dict[str, tuple[Method, bool]] = {}
        self._add("tools/list", listing.page)
        self._add("tools/call", tool_calls.call, may_wait=True)

    def _add(self, name: str, method: Method, *, only: str = "", may_wait: bool = False) -> None:
        if only != "modern":
            self.legacy[name] = (method, may_wait)
        if only != "legacy":
            self.modern[name] = (method, may_wait)

    def add_greeting(self, greeting: Greeting) -> None:
        """Add the methods by which clients and server introduce themselves."""
        self._add("server/discover", greeting.discover, only="modern")
        self._add("initialize", greeting.initialize, only="legacy")
        self._add("ping", greeting.ping, only="legacy")
        self._add("logging/setLevel", greeting.set_level, only="legacy")

    def add_subscriptions(self, subscriptions: Subscriptions, *, resources: bool) -> None:
        """Add the methods for subscriptions to changes."""
        self._add("subscriptions/listen", subscriptions.listen, only="modern")
        if resources:
            self._add("resources/subscribe", subscriptions.subscribe, only="legacy")
            self._add("resources/unsubscribe", subscriptions.unsubscribe, only="legacy")

    def add_tasks(self, tasks: TaskMethods) -> None:
        """Add the methods by which clients return for results that took long."""
        self._add("tasks/get", tasks.get)
        self._add("tasks/cancel", tasks.cancel)
        self._add("tasks/update", tasks.update, only="modern")
        self._add("tasks/list", tasks.list, only="legacy")
        self._add("tasks/result", tasks.result, only="legacy", may_wait=True)

    def add_catalog(self, catalog: CatalogMethods) -> None:
        """Add the methods for the offers beside tools."""
        self._add("resources/list", catalog.resources)
        self._add("resources/templates/list", catalog.templates)
        self._add("prompts/list", catalog.prompts)
        self._add("resources/read", catalog.read, may_wait=True)
        self._add("prompts/get", catalog.get_prompt, may_wait=True)
        self._add("completion/complete", catalog.complete, may_wait=True)


class Greeting:
    """Describes this server and its capabilities, and remembers the client's."""

    def __init__(
        self,
        shaper: Shaper,
        instructions: str,
        *,
        clients: Clients,
        subscriptions: Subscriptions,
        catalog: Catalog | None,
    ) -> None:
        self._instructions = {"instructions": instructions} if instructions else {}
        self._clients = clients
        self._subscriptions = subscriptions
        self._shaper = shaper
        self._catalog = catalog

    def initialize(self, request: Request) -> dict[str, Any]:
        """Begin a legacy session."""
        peer = request.peer
        version = agree(request.text("protocolVersion"))
        capabilities, client = request.mapping("capabilities"), request.mapping("clientInfo")
        peer.version, peer.capabilities, peer.client = version, capabilities, client
        self._clients.of(peer).is_session = True
        self._subscriptions.remember_loop()
        return {
            "protocolVersion": version,
            "capabilities": self._legacy_capabilities(version),
            "serverInfo": self._shaper.server,
            **self._instructions,
        }

    def discover(self, request: Request) -> dict[str, Any]:
        """Describe the server to a modern client."""
        extensions: dict[str, Any] = {"extensions": {TASKS: {}}}
        result = {
            "supportedVersions": list(SUPPORTED),
            "capabilities": {**self._capabilities(), **extensions},
            **self._instructions,
        }
        return self._shaper.cached(request, result, DISCOVER_TTL_MS)

    @staticmethod
    def ping(request: Request) -> dict[str, Any]:
        """Answer that the server is alive."""
        del request
        return {}

    def set_level(self, request: Request) -> dict[str, Any]:
        """Remember the least level of log lines that a client wants."""
        level = request.text("level")
        if level not in LEVELS:
            raise invalid_params(f"level must be one of {', '.join(LEVELS)}")
        self._clients.of(request.peer).log_rank = LEVELS.index(level)
        return {}

    def _capabilities(self) -> dict[str, Any]:
        found: dict[str, Any] = {"tools": {"listChanged": True}}
        if self._catalog is not None:
            found["resources"] = {"subscribe": True, "listChanged": True}
            found["prompts"] = {"listChanged": True}
            found["completions"] = {}
        return found

    def _legacy_capabilities(self, version: str) -> dict[str, Any]:
        found = {**self._capabilities(), "logging": {}}
        if version == LATEST_LEGACY:
            found["tasks"] = LEGACY_TASKS
        return found
