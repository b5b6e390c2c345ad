"""Requests whose handlers may report, ask and wait: begin them, resume parked ones, answer at the end."""

from __future__ import annotations

import asyncio
import logging
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from gramercy.mcp import wire
from gramercy.mcp.parking import Parking, input_responses
from gramercy.mcp.served import ServedCall
from gramercy.mcp.wire import INTERNAL_ERROR, ProtocolError
from gramercy.mcp.work import Manner, Question, Work
from gramercy.tools.context import enter_call, leave_call

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from gramercy.mcp.base import Answer
    from gramercy.mcp.clients import Clients
    from gramercy.mcp.eras import Request, Shaper
    from gramercy.mcp.task_methods import TaskMethods

log = logging.getLogger("gramercy.mcp")


class Conversations:
    """Runs handlers for the engine. `noticed` is called after each, for it may have changed something."""

    def __init__(  # noqa: PLR0913 - the parts of a conversation are its arguments
        self,
        clients: Clients,
        shaper: Shaper,
        tasks: TaskMethods,
        *,
        patience: float,
        task_after: float,
        noticed: Callable[[], None],
    ) -> None:
        self.parking = Parking(shaper, patience)
        self._clients = clients
        self._shaper = shaper
        self._tasks = tasks
        self._direct = DirectManner(clients, patience)
        self._task_after = task_after
        self._noticed = noticed

    def converse(self, request: Request, handler: Callable[[Request], Any]) -> Answer:
        """Answer a request at once if its handler does, else when it has ended or asks something."""
        if request.modern and "requestState" in request.params:
            return self._resume(request)
        call = ServedCall(request, self._clients.get(request.peer))
        token = enter_call(call)
        try:
            reply = handler(request)
            if type(reply) is CoroutineType:
                return self._begin(call, reply)
        finally:
            leave_call(token)
        self._noticed()
        return self.finished(request, reply)

    def finished(self, request: Request, result: Any) -> bytes:
        """Write a result."""
        if type(result) is dict:
            result = self._shaper.shaped(request, result)
        return wire.success(request.id, result)

    def _begin(self, call: ServedCall, coroutine: Coroutine[Any, Any, Any]) -> Answer:
        request = call.request
        try:
            work = self._departed(call)
        except BaseException:
            coroutine.close()
            raise
        call.detacher = self._tasks.detach
        turn = work.begin(coroutine)
        if call.as_task:
            if self._tasks.detach(work):
                return turn.result()
            work.withdraw()
            raise ProtocolError(INTERNAL_ERROR, "there are too many tasks: wait for some to end or expire")
        if request.declares_tasks and request.method == "tools/call":
            timer = work.loop.call_later(self._task_after, self._tasks.detach, work)
            work.task.add_done_callback(lambda _: timer.cancel())
        return turn

    def _departed(self, call: ServedCall) -> Work:
        request = call.request
        manner: Manner = self.parking if request.modern else self._direct
        work = Work(call, manner, ended=self._ended, landed=self._landed)
        if request.modern and "inputResponses" in request.params:
            work.supplied = dict(input_responses(request))
        self._clients.depart(request.peer, request.id, work)
        return work

    def _resume(self, request: Request) -> Answer:
        work = self.parking.resume(request)
        self._clients.depart(request.peer, request.id, work)
        work.call.request = request
        turn = work.take_turn()
        if work.is_over:
            self._ended(work)
        return turn

    def _landed(self, request: Request) -> None:
        self._clients.land(request.peer, request.id)

    def _ended(self, work: Work) -> None:
        """Answer whoever waits for a handler that has ended."""
        self._noticed()
        work.give(self._outcome(work))

    def _outcome(self, work: Work) -> bytes | None:
        request, error = work.call.request, work.error
        if isinstance(error, asyncio.CancelledError):
            return None
        if error is None:
            try:
                return self.finished(request, work.result)
            except Exception as problem:  # noqa: BLE001 - a result that cannot be written
                error = problem
        if isinstance(error, ProtocolError):
            return wire.failure(error, request.id)
        log.error("%s failed", request.method, exc_info=error)
        return wire.failure(ProtocolError(INTERNAL_ERROR, "Internal error"), request.id)


class DirectManner:
    """Questions of the older era: a request of ours to the client, on the channel of its own request."""

    def __init__(self, clients: Clients, patience: float) -> None:
        self._clients = clients
        self._patience = patience

    def asked(self, work: Work, question: Question) -> None:
        """Send the question."""
        request = work.call.request
        if request.channel is None:
            question.give_up("the client cannot be asked: nothing leads to it")
            return
        self._clients.of(request.peer).ask(request.channel, question, self._patience)
