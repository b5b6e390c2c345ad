"""The engine: one function from a frame to its answer, for every client and both eras.

It knows no transport. What can be answered at once is answered at once; what must wait gets a task.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from gramercy.mcp import wire
from gramercy.mcp.approval import ApprovalQueue, Approver
from gramercy.mcp.batches import handle_batch, is_batch
from gramercy.mcp.calling import Calling
from gramercy.mcp.clients import Clients
from gramercy.mcp.conversations import Conversations
from gramercy.mcp.eras import Request, Shaper, read_request
from gramercy.mcp.greeting import Greeting
from gramercy.mcp.listeners import Listeners
from gramercy.mcp.listing import PAGE_SIZE, ToolListing, View
from gramercy.mcp.methods import Methods
from gramercy.mcp.offers import Offers
from gramercy.mcp.task_methods import TaskMethods
from gramercy.mcp.tasks import Task, TaskStore
from gramercy.mcp.wire import INTERNAL_ERROR, Message, ProtocolError
from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gramercy.execution.executor import Executor
    from gramercy.mcp.base import Answer, Channel, Peer, Preface
    from gramercy.mcp.catalogue import Catalog

log = logging.getLogger("gramercy.mcp")
PATIENCE = 600.0
# A client that understands tasks rather comes back than waits for longer than this.
TASK_AFTER = 5.0


class Engine:
    """Serves the tools of one executor, and what a catalogue offers, to any number of clients.

    A call that needs approval is asked about at the client, then at `approvals`, then at the executor's own
    approval handler. All methods belong to the thread of the event loop.
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
        approvals: ApprovalQueue | None = None,
        max_safety: Safety | str | None = None,
        categories: Iterable[str] | None = None,
        patience: float = PATIENCE,
        task_after: float = TASK_AFTER,
    ) -> None:
        """Join the parts; `patience` is how many seconds a question to a person may stay open."""
        executor = executor.with_approver(Approver(executor.approval_handler, approvals, patience))
        self._settings = executor.settings
        self._seen = (self._settings.registry.library(), self._settings.policy)
        shaper = Shaper({"name": name, "version": version})
        self._clients = Clients()
        self._listeners = Listeners(self._clients, shaper, catalog)
        self._tasks = TaskStore(self._task_changed)
        self._task_methods = TaskMethods(self._tasks, self._clients, shaper, patience)
        view = View(Safety.parse(max_safety or Safety.DANGEROUS), categories, page_size)
        listing = ToolListing(executor, shaper, view)
        self._calling = Calling(executor, listing, shaper, tasks=self._task_methods, strict=strict)
        self._methods = Methods(listing, self._calling)
        self._methods.add_greeting(
            Greeting(shaper, instructions, clients=self._clients, listeners=self._listeners, catalog=catalog)
        )
        self._methods.add_listeners(self._listeners, resources=catalog is not None)
        self._methods.add_tasks(self._task_methods)
        if catalog is not None:
            self._methods.add_offers(Offers(catalog, shaper, page_size))
        self._conversations = Conversations(
            self._clients,
            shaper,
            self._task_methods,
            patience=patience,
            task_after=task_after,
            noticed=self.notice_changes,
        )

    def begin_with(self, preface: Preface) -> None:
        """Have something settled before the first call of each client, and told with its reply."""
        self._calling.preface = preface

    def handle(self, peer: Peer, frame: bytes, channel: Channel | None = None) -> Answer:
        """Take one frame and return its answer: bytes, None for what has no answer, or something to await."""
        try:
            message = wire.read_message(frame)
        except wire.InvalidFrameError as error:
            if is_batch(frame):
                return handle_batch(frame, lambda part: self.handle(peer, part, channel))
            return wire.failure(error, error.id)
        except wire.SilentFrameError:
            return None
        return self._handle_message(peer, message, channel)

    def close(self, peer: Peer) -> None:
        """Forget a client: cancel its requests, drop its subscriptions. Its tasks and open questions stay."""
        self._clients.close(peer)
        self._calling.forget(peer)

    def shutdown(self) -> None:
        """End everything of everybody; listen streams are closed in good order."""
        self._listeners.close()
        for client in self._clients.all():
            self._clients.close(client.peer)
        self._conversations.parking.close()
        self._tasks.close()

    def notice_changes(self) -> None:
        """Tell those who want to know when tools were registered or the policy was replaced since."""
        now = (self._settings.registry.library(), self._settings.policy)
        if now[0] is not self._seen[0] or now[1] is not self._seen[1]:
            self._seen = now
            self._listeners.list_changed("tools")

    def tool_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the schema of a tool's arguments, for transports that carry some of them in headers."""
        tool = self._settings.registry.find(name)
        return None if tool is None else tool.schema

    def _handle_message(self, peer: Peer, message: Message, channel: Channel | None) -> Answer:
        if message.method is UNSET or message.id is UNSET:
            self._told(peer, message)
            return None
        try:
            return self._answer(read_request(peer, message, channel))
        except ProtocolError as error:
            return wire.failure(error, message.id)
        except Exception:
            log.exception("%s failed", message.method[:100])
            return wire.failure(ProtocolError(INTERNAL_ERROR, "Internal error"), message.id)

    def _told(self, peer: Peer, message: Message) -> None:
        """Take a response or a notification; what is wrong with it is nobody's business."""
        client = self._clients.get(peer)
        if client is None:
            return
        if message.method is UNSET:
            client.answered(message)
        elif message.method == "notifications/cancelled" and message.params is not UNSET:
            named = message.params.get("requestId")
            flight = client.flights.get(named) if isinstance(named, str | int) else None
            if flight is not None:
                flight.withdraw()

    def _answer(self, request: Request) -> Answer:
        methods = self._methods
        handler = methods.waiting.get(request.method)
        if handler is None and not request.modern:
            handler = methods.legacy_waiting.get(request.method)
        if handler is not None:
            return self._conversations.converse(request, handler)
        self.notice_changes()
        result = methods.find(request)(request)
        # A stream is what a listener waits for, not a result.
        if isinstance(result, asyncio.Future):
            return result
        return self._conversations.finished(request, result)

    def _task_changed(self, task: Task) -> None:
        describe = self._task_methods.detailed
        self._listeners.task_changed(task.id, task.principal, lambda: describe(task))
