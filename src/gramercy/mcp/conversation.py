"""Requests whose handlers may report, ask and wait: begin them, resume parked ones, answer at the end."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from inspect import CORO_CREATED, getcoroutinestate
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Protocol

from gramercy.errors import ExecutionError, ProtocolError
from gramercy.mcp import jsonrpc
from gramercy.mcp.clients import ServedCall
from gramercy.mcp.jsonrpc import Code
from gramercy.mcp.parked import Parking, input_responses
from gramercy.tools.context import enter_call, leave_call

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from gramercy.mcp.base import Answer
    from gramercy.mcp.clients import Clients
    from gramercy.mcp.tasks import TaskMethods
    from gramercy.mcp.versions import Request, Shaper

MOST_QUESTIONS = 100


class Turn(asyncio.Future[bytes | None]):
    """The answer to one request, still to come. Whoever waits for it may cancel it, which ends the work."""

    def __init__(self, loop: asyncio.AbstractEventLoop, abandoned: Callable[[Turn], None]) -> None:
        super().__init__(loop=loop)
        self._abandoned = abandoned

    def cancel(self, msg: Any = None) -> bool:
        """Wait no longer."""
        is_cancelled = super().cancel(msg)
        if is_cancelled:
            self._abandoned(self)
        return is_cancelled


@dataclass(slots=True, eq=False)
class Question:
    """Something that a handler wants to know from the client."""

    key: str
    method: str
    params: dict[str, Any]
    answer: asyncio.Future[dict[str, Any]] = field(repr=False)

    def as_input_request(self) -> dict[str, Any]:
        """Return the question as the newer era writes it into a result."""
        return {"method": self.method, "params": self.params}

    def take(self, answer: Mapping[str, Any]) -> None:
        """Take the client's answer; a second one is dropped."""
        if not self.answer.done():
            self.answer.set_result(dict(answer))

    def give_up(self, reason: str) -> None:
        """Let the handler know that no answer will come."""
        if not self.answer.done():
            self.answer.set_exception(ExecutionError(reason))


class Manner(Protocol):
    """How questions reach the client: at once, with the result of the request, or through a task."""

    def asked(self, work: Work, question: Question) -> None:
        """See to it that the question is answered or given up, sooner or later."""


class Flight(Protocol):
    """Something under way that a client can call off."""

    def withdraw(self) -> None:
        """Stop because the client wants no answer: it gets none."""


class Work:
    """A handler under way. Whoever waits for it holds its `turn`; cancelling that cancels the work.

    `ended` is called on the handler's own task: another callback of the loop would cost as much as the rest.
    """

    __slots__ = (
        "_asked",
        "_coroutine",
        "call",
        "ended",
        "error",
        "is_over",
        "landed",
        "loop",
        "manner",
        "questions",
        "result",
        "supplied",
        "task",
        "turn",
    )

    def __init__(
        self,
        call: ServedCall,
        manner: Manner,
        *,
        ended: Callable[[Work], None],
        landed: Callable[[Request], None],
    ) -> None:
        self.call = call
        self.manner = manner
        self.ended = ended
        self.landed = landed
        self.loop = asyncio.get_running_loop()
        self.turn: Turn | None = None
        self.questions: dict[str, Question] = {}
        # Answers that came with the request itself, before anything was asked.
        self.supplied: dict[str, Any] = {}
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_over = False
        self._asked = 0
        call.work = self

    def begin(self, coroutine: Coroutine[Any, Any, Any]) -> Turn:
        """Start; return what will be the answer to the request."""
        self._coroutine = coroutine
        self.task: asyncio.Task[Any] = self.loop.create_task(self._run(coroutine))
        return self.take_turn()

    async def _run(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        try:
            self.result = await coroutine
        except Exception as error:  # noqa: BLE001 - told to whoever waits
            self.error = error
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.is_over = True
            # What the handler left behind must not wait for answers that nobody will bring.
            for question in self.questions.values():
                question.answer.cancel()
            self.ended(self)
            # The task's context holds the call: without this every call would be left to the collector.
            self.call.work = None

    def take_turn(self) -> Turn:
        """Return a new answer to wait for; the one before has been given."""
        self.turn = Turn(self.loop, self._abandoned)
        return self.turn

    def give(self, answer: bytes | None) -> bool:
        """Answer the request that waits now, if there is one."""
        turn, self.turn = self.turn, None
        if turn is None:
            return False
        self.landed(self.call.request)
        if turn.done():
            return False
        turn.set_result(answer)
        return True

    async def ask(
        self, method: str, params: dict[str, Any], key: str | None = None, *, anew: bool = False
    ) -> dict[str, Any]:
        """Ask the client; with `anew`, an answer that came before the question does not count."""
        if self.call.cancelled:
            raise ExecutionError("nobody can be asked: the call is cancelled")
        if self._asked >= MOST_QUESTIONS:
            raise ExecutionError(f"one call may ask at most {MOST_QUESTIONS} questions")
        self._asked += 1
        name = key or f"{method.partition('/')[0]}-{self._asked}"
        if name in self.questions:
            raise ExecutionError(f"the question {name!r:.100} is already open: give another key")
        found = None if anew else self.supplied.pop(name, None)
        if isinstance(found, dict):
            return found
        question = self.questions[name] = Question(name, method, params, self.loop.create_future())
        try:
            self.manner.asked(self, question)
            return await question.answer
        finally:
            self.questions.pop(name, None)

    def cancel(self) -> None:
        """Stop the handler: its task is cancelled, and whoever it told to be stopped is stopped."""
        if self.is_over or self.call.cancelled:
            return
        self.call.cancelled = True
        for stop in self.call.stops or ():
            with suppress(Exception):
                stop()
        self.task.cancel()
        if getcoroutinestate(self._coroutine) == CORO_CREATED:
            self._coroutine.close()  # it will never be awaited

    def withdraw(self) -> None:
        """Stop because the client wants no answer: it gets none."""
        self.cancel()
        self.give(None)

    def _abandoned(self, turn: Turn) -> None:
        if turn is self.turn:
            self.withdraw()


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
        return jsonrpc.success(request.id, result)

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
            raise ProtocolError(
                Code.INTERNAL_ERROR, "there are too many tasks: wait for some to end or expire"
            )
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
            return jsonrpc.failure(error, request.id)
        log.error("%s failed", request.method, exc_info=error)
        return jsonrpc.failure(ProtocolError(Code.INTERNAL_ERROR, "Internal error"), request.id)


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
