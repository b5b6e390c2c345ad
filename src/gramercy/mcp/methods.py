"""Which part of the server answers which method, in which era."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from gramercy.mcp.wire import METHOD_NOT_FOUND, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.mcp.calling import Calling
    from gramercy.mcp.eras import Request
    from gramercy.mcp.greeting import Greeting
    from gramercy.mcp.listeners import Listeners
    from gramercy.mcp.listing import ToolListing
    from gramercy.mcp.offers import Offers
    from gramercy.mcp.task_methods import TaskMethods

    Method: TypeAlias = Callable[[Request], Any]


class Methods:
    """Finds methods by name. Those in `waiting` may report, ask and wait; the others answer at once."""

    __slots__ = ("_legacy", "_modern", "legacy_waiting", "waiting")

    def __init__(self, listing: ToolListing, calling: Calling) -> None:
        self.waiting: dict[str, Method] = {"tools/call": calling.call}
        self.legacy_waiting: dict[str, Method] = {}
        self._legacy: dict[str, Method] = {"tools/list": listing.page}
        self._modern: dict[str, Method] = {"tools/list": listing.page}

    def find(self, request: Request) -> Method:
        """Return the method that a request names; its era must have it."""
        found = (self._modern if request.modern else self._legacy).get(request.method)
        if found is None:
            raise ProtocolError(METHOD_NOT_FOUND, f"Method not found: {request.method[:100]}")
        return found

    def add_greeting(self, greeting: Greeting) -> None:
        """Add how clients and server get to know each other."""
        self._modern["server/discover"] = greeting.discover
        self._legacy["initialize"] = greeting.initialize
        self._legacy["ping"] = greeting.ping
        self._legacy["logging/setLevel"] = greeting.set_level

    def add_listeners(self, listeners: Listeners, *, resources: bool) -> None:
        """Add how clients hear of changes."""
        self._modern["subscriptions/listen"] = listeners.listen
        if resources:
            self._legacy["resources/subscribe"] = listeners.subscribe
            self._legacy["resources/unsubscribe"] = listeners.unsubscribe

    def add_tasks(self, tasks: TaskMethods) -> None:
        """Add how clients come back for what took long."""
        for table in (self._modern, self._legacy):
            table["tasks/get"] = tasks.get
            table["tasks/cancel"] = tasks.cancel
        self._modern["tasks/update"] = tasks.update
        self._legacy["tasks/list"] = tasks.list
        self.legacy_waiting["tasks/result"] = tasks.result

    def add_offers(self, offers: Offers) -> None:
        """Add what there is beside tools."""
        for table in (self._modern, self._legacy):
            table["resources/list"] = offers.resources
            table["resources/templates/list"] = offers.templates
            table["prompts/list"] = offers.prompts
        self.waiting["resources/read"] = offers.read
        self.waiting["prompts/get"] = offers.get_prompt
        self.waiting["completion/complete"] = offers.complete
