"""A request that cannot be answered at once: what answers it, and when.

Its handler gets a task of the event loop. From then on one state says who waits for the outcome:

                       ask             park            patience over
    begin ──► RUNNING ─────► ASKING ─────────► PARKED ───────────────► EXPIRED
               │   ▲ ◄────── │   ▲               │ │
               │   │ answered│   └───────────────┘ │  resume, some questions answered
               │   └─────────┼─────────────────────┘  resume, all answered
               │             │
               └─► TASK ◄────┘  detach                each of these ──► DONE or CANCELLED

    RUNNING    The handler works and the request waits.
    ASKING     The handler waits for the client's answers, and the request still waits. A legacy client is
               sent each question as a request of ours; a modern one gets them in a result and is PARKED.
    PARKED     The request was answered with the questions. The client comes back with the answers in a new
               request, which is the one that waits from then on.
    EXPIRED    The client did not come back: the handler is told, and there is no request to answer.
    TASK       The request was answered with a task, which takes the questions and the outcome.
    DONE       The handler has ended. The request that waits got the outcome, or the task did; when it ended
               while it was PARKED, the outcome is kept for the client that comes back.
    CANCELLED  The client called the request off or hung up, or the server stops: there is no answer.

Nothing here knows what a method does.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from inspect import CORO_CREATED, getcoroutinestate
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import ExecutionError, ProtocolError
from gramercy.mcp.jsonrpc import Code, success, unexpected
from gramercy.mcp.parked import input_responses

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from gramercy.execution.calls import ToolResult
    from gramercy.mcp.base import Answer
    from gramercy.mcp.clients import Clients, ServedCall
    from gramercy.mcp.jsonrpc import Request, Shaper
    from gramercy.mcp.parked import ParkedCalls, Stamps
    from gramercy.mcp.tasks import Task, TaskMethods, TaskName

# A handler that asks in a loop must not keep a person busy forever.
MOST_QUESTIONS = 100
KEY_DIGITS = 12  # of a stamp, enough to tell the few questions of a call apart


class State(Enum):
    """The state of a conversation."""

    RUNNING = "running"
    ASKING = "asking"
    PARKED = "parked"
    EXPIRED = "expired"
    TASK = "task"
    DONE = "done"
    CANCELLED = "cancelled"


_ENDS = frozenset({State.DONE, State.CANCELLED})
MOVES: dict[State, frozenset[State]] = {
    State.RUNNING: _ENDS | {State.ASKING, State.TASK},
    State.ASKING: _ENDS | {State.RUNNING, State.PARKED, State.TASK},
    State.PARKED: _ENDS | {State.RUNNING, State.ASKING, State.EXPIRED},
    State.EXPIRED: _ENDS,
    State.TASK: _ENDS,
    State.DONE: frozenset(),
    State.CANCELLED: frozenset(),
}
# The states in which a request waits for an answer.
WAITED_FOR = frozenset({State.RUNNING, State.ASKING})


class Turn(asyncio.Future[bytes | None]):
    """The future answer to one request. A transport that cancels it ends the conversation."""

    # The transport calls this after it has written the answer.
    when_sent: Callable[[], None] | None = None

    def __init__(self, loop: asyncio.AbstractEventLoop, abandoned: Callable[[Turn], None]) -> None:
        super().__init__(loop=loop)
        self._abandoned = abandoned

    def cancel(self, msg: Any = None) -> bool:
        """Stop waiting."""
        is_cancelled = super().cancel(msg)
        if is_cancelled:
            self._abandoned(self)
        return is_cancelled


@dataclass(slots=True, eq=False)
class Question:
    """A question of a handler to the client."""

    key: str
    method: str
    params: dict[str, Any]
    answer: asyncio.Future[dict[str, Any]] = field(repr=False)
    # Identifies an answer that comes after a restart as the answer to this question.
    stamp: str = ""

    def as_input_request(self) -> dict[str, Any]:
        """Return the question in the form of a modern result."""
        return {"method": self.method, "params": self.params}

    def take(self, answer: Mapping[str, Any]) -> None:
        """Take the client's answer; a second answer is dropped."""
        if not self.answer.done():
            self.answer.set_result(dict(answer))

    def give_up(self, reason: str) -> None:
        """Tell the handler that no answer will come."""
        if not self.answer.done():
            self.answer.set_exception(ExecutionError(reason))


class AsTask(msgspec.Struct, frozen=True):
    """The return value of a method whose call is a task from the start."""

    coroutine: Coroutine[Any, Any, Any]


class Conversation:
    """One running handler, the request that waits for it now, and the open questions."""

    __slots__ = (
        "_asked",
        "_coroutine",
        "_shared",
        "_turn",
        "call",
        "loop",
        "outcome",
        "questions",
        "server_task",
        "stamps",
        "state",
        "supplied",
        "task",
    )

    def __init__(self, shared: Conversations, call: ServedCall, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.call = call
        self.state = State.RUNNING
        self.loop = asyncio.get_running_loop()
        self.questions: dict[str, Question] = {}
        # Answers that came with the request itself, before anything was asked.
        self.supplied: dict[str, Any] = {}
        # The questions of an earlier process to a client that returns with answers.
        self.stamps: Stamps = frozenset()
        # The result or the ProtocolError, once the handler has ended.
        self.outcome: Any = None
        self.server_task: Task | None = None
        self._shared = shared
        self._asked = 0
        self._turn: Turn | None = None
        self._coroutine = coroutine
        call.conversation = self

    @property
    def request(self) -> Request:
        """The request that waits, or the last one that did."""
        return self.call.request

    @property
    def is_over(self) -> bool:
        """Whether the handler has ended or was told to end."""
        return self.state in _ENDS

    def _move(self, state: State) -> None:
        if state not in MOVES[self.state]:
            raise ExecutionError(f"a conversation cannot go from {self.state.value} to {state.value}")
        self.state = state
        # Nothing may follow the answer to a modern request, and a task is such an answer.
        if state is State.CANCELLED or (state is State.TASK and self.request.modern):
            self.call.is_silent = True

    def begin(self) -> Turn:
        """Start the handler; return the future answer to the request."""
        self.task: asyncio.Task[None] = self.loop.create_task(self._run())
        return self._take_turn()

    async def _run(self) -> None:
        """Run the handler. Its end is handled here: a callback of the loop would cost as much as the rest."""
        try:
            result = await self._coroutine
        except Exception as error:  # noqa: BLE001 - becomes the answer
            self._end(error if isinstance(error, ProtocolError) else unexpected(self.request, error))
        except BaseException:
            self._call_off()
            raise
        else:
            self._end(result)
        finally:
            # Work that the handler left behind must not wait for answers that cannot come any more.
            for question in self.questions.values():
                question.answer.cancel()
            # The task's context holds the call: without this, only the garbage collector would free it.
            self.call.conversation = None

    def _end(self, outcome: Any) -> None:
        if self.state is State.CANCELLED:
            self._lose()
            return
        is_waited_for = self.state in WAITED_FOR
        self._move(State.DONE)
        self.outcome = outcome
        self._shared.changed()
        if self.server_task is not None:
            self.server_task.finish(outcome)
        elif is_waited_for:
            self._give_outcome()

    def _give_outcome(self) -> None:
        """Answer with the outcome; once it is written, the journal need not keep it for the client."""
        if self._turn is not None and self.call.result is not None:
            self._turn.when_sent = partial(self._shared.delivered, self.call.result)
        self._give(self._shared.shaper.written(self.request, self.outcome))

    def _lose(self) -> None:
        """Have the result kept for a client that returns; this client does not get it."""
        result, self.call.result = self.call.result, None
        if result is not None:
            self._shared.undelivered(result)

    def _take_turn(self) -> Turn:
        self._turn = Turn(self.loop, self._abandoned)
        return self._turn

    def _abandoned(self, turn: Turn) -> None:
        if turn is self._turn:
            self.cancel()

    def _give(self, answer: bytes | None) -> None:
        """Answer the waiting request, if there is one."""
        turn, self._turn = self._turn, None
        if turn is None:
            return
        self._shared.clients.end_request(self.request.peer, self.request.id)
        if not turn.done():
            turn.set_result(answer)

    async def ask(
        self, method: str, params: dict[str, Any], key: str | None = None, *, stamp: str | None = None
    ) -> dict[str, Any]:
        """Ask the client; with a `stamp`, an earlier answer counts only if it answers that question."""
        self._check_askable()
        self._asked += 1
        name = key or _key(method, stamp or str(self._asked))
        if name in self.questions:
            raise ExecutionError(f"the question {name!r:.100} is already open: give another key")
        if stamp is None or stamp in self.stamps:
            found = self.supplied.pop(name, None)
            if isinstance(found, dict):
                return found
        answer = self.loop.create_future()
        question = self.questions[name] = Question(name, method, params, answer, stamp or "")
        if self.state is State.RUNNING:
            self._move(State.ASKING)
        try:
            self._shared.send(self, question)
            return await question.answer
        finally:
            self.questions.pop(name, None)
            if self.state is State.ASKING and not self.questions:
                self._move(State.RUNNING)

    def has_brought(self, method: str, stamp: str) -> bool:
        """Tell whether the request brings the answer to a question that an earlier process has asked."""
        return stamp in self.stamps and isinstance(self.supplied.get(_key(method, stamp)), dict)

    def _check_askable(self) -> None:
        if self.state is State.CANCELLED:
            raise ExecutionError("nobody can be asked: the call is cancelled")
        if self.state is State.EXPIRED:
            raise ExecutionError("nobody can be asked: the client did not come back in time")
        if self._asked >= MOST_QUESTIONS:
            raise ExecutionError(f"one call may ask at most {MOST_QUESTIONS} questions")

    def take_answers(self, answers: Mapping[str, Any]) -> None:
        """Close the answered questions; answers to unknown questions are dropped."""
        for key, question in list(self.questions.items()):
            if isinstance(answers.get(key), dict):
                del self.questions[key]
                question.take(answers[key])

    def park(self, answer: bytes) -> None:
        """Answer the request with the questions; the handler waits for another request."""
        self._move(State.PARKED)
        self._give(answer)

    def resume(self, request: Request, answers: Mapping[str, Any]) -> Turn:
        """Resume with the answers of a new request, which waits from now on."""
        self.call.request = request
        turn = self._take_turn()
        self.take_answers(answers)
        if self.state is State.PARKED:
            self._move(State.ASKING if self.questions else State.RUNNING)
        elif self.state is State.CANCELLED:
            self._give(None)
        else:  # it ended meanwhile
            self._give_outcome()
        return turn

    def expire(self, reason: str) -> None:
        """Tell the handler that the client has not returned."""
        if self.state is State.PARKED:
            self._move(State.EXPIRED)
            for question in list(self.questions.values()):
                question.give_up(reason)
        self._lose()

    def begin_as(self, task: Task) -> None:
        """Start the handler as a task whose request an earlier process has answered."""
        self.server_task = task
        self._move(State.TASK)
        self.task = self.loop.create_task(self._run())

    def detach(self) -> bool:
        """Answer the request with a task, if its client understands tasks; tell whether that was done."""
        if self.state not in WAITED_FOR:
            return False
        task = self._shared.tasks.create(self)
        if task is None:
            return False
        self.server_task = task
        self._move(State.TASK)
        self._give(success(self.request.id, self._shared.tasks.created(task, self.request)))
        return True

    def call_off(self) -> None:
        """Stop because the client has cancelled the call: it will not return for it."""
        self.call.is_called_off = True
        self.cancel()

    def cancel(self) -> None:
        """Stop the handler and the work that it wants stopped with it; there will be no answer."""
        if self.is_over:
            return
        self._call_off()
        for stop in self.call.stops or ():
            with suppress(Exception):
                stop()
        self.task.cancel()
        if getcoroutinestate(self._coroutine) == CORO_CREATED:
            self._coroutine.close()  # it will never be awaited

    def _call_off(self) -> None:
        if self.is_over:
            return
        self._move(State.CANCELLED)
        self.call.cancelled = True
        if self.server_task is not None:
            self.server_task.note_cancelled()
        self._give(None)


def _key(method: str, stamp: str) -> str:
    """Name a question; with a stamp the name is the same after a restart, whatever was asked before."""
    return f"{method.partition('/')[0]}-{stamp[:KEY_DIGITS]}"


class Conversations:
    """Begins and resumes conversations, and holds their shared parts.

    `changed` is called when a handler has ended, since it may have changed the server's offers. `delivered`
    is called with the result of a call that its client could return for, once it is written; `undelivered` if
    there is no client left to write it to.
    """

    def __init__(  # noqa: PLR0913 - the parts of a conversation are its arguments
        self,
        clients: Clients,
        shaper: Shaper,
        tasks: TaskMethods,
        *,
        patience: float,
        task_after: float,
        changed: Callable[[], None],
        delivered: Callable[[ToolResult], None],
        undelivered: Callable[[ToolResult], None],
        parked: ParkedCalls,
    ) -> None:
        self.clients = clients
        self.delivered = delivered
        self.undelivered = undelivered
        self.tasks = tasks
        self.changed = changed
        self.parked = parked
        self.shaper = shaper
        self._patience = patience
        self._task_after = task_after

    def begin(
        self, call: ServedCall, handler: Coroutine[Any, Any, Any] | AsTask, stamps: Stamps = frozenset()
    ) -> Answer:
        """Run a handler; return the future answer to its request."""
        coroutine = handler.coroutine if isinstance(handler, AsTask) else handler
        request = call.request
        try:
            conversation = Conversation(self, call, coroutine)
            if request.modern and "inputResponses" in request.params:
                conversation.supplied, conversation.stamps = dict(input_responses(request)), stamps
            self.clients.begin_request(request.peer, request.id, conversation)
        except BaseException:
            coroutine.close()
            raise
        turn = conversation.begin()
        if isinstance(handler, AsTask):
            if conversation.detach():
                return turn.result()
            conversation.cancel()
            text = "there are too many tasks: wait for some to end or expire"
            raise ProtocolError(Code.INTERNAL_ERROR, text)
        if request.declares_tasks and request.method == "tools/call":
            timer = conversation.loop.call_later(self._task_after, conversation.detach)
            conversation.task.add_done_callback(lambda _: timer.cancel())
        return turn

    def adopt(self, call: ServedCall, handler: Coroutine[Any, Any, Any], name: TaskName) -> Task:
        """Resume a task that an earlier process has begun."""
        conversation = Conversation(self, call, handler)
        task = self.tasks.take_up(conversation, name)
        conversation.begin_as(task)
        return task

    def send(self, conversation: Conversation, question: Question) -> None:
        """Make sure that a question is answered or withdrawn in the end."""
        request = conversation.request
        if conversation.server_task is not None:
            conversation.server_task.asked(question)
        elif request.modern:
            self.parked.check_room(request.peer.principal)
            # Not at once, so that all questions that are asked together go into one result.
            conversation.loop.call_soon(self._park, conversation)
        elif request.channel is None:
            question.give_up("the client cannot be asked: nothing leads to it")
        else:
            self.clients.of(request.peer).ask(request.channel, question, self._patience)

    def _park(self, conversation: Conversation) -> None:
        if conversation.state is not State.ASKING:
            return
        questions = conversation.questions.items()
        result = {
            "resultType": "input_required",
            "inputRequests": {key: question.as_input_request() for key, question in questions},
            "requestState": self.parked.keep(conversation),
            "_meta": self.shaper.meta,
        }
        conversation.park(success(conversation.request.id, result))

    def resume(self, request: Request) -> Answer | Stamps:
        """Resume the parked conversation that a request names; raise ProtocolError if there is none.

        For a call that an earlier process has parked, return the stamps of its questions: the call begins
        again.
        """
        answers = input_responses(request)
        found = self.parked.find(request)
        if isinstance(found, frozenset):
            return found
        name, conversation = found
        self.clients.begin_request(request.peer, request.id, conversation)
        self.parked.release(name)
        turn = conversation.resume(request, answers)
        # Ask again what was not answered, once the handler had time to ask more.
        conversation.loop.call_soon(self._park, conversation)
        return turn

    def close(self) -> None:
        """Cancel the conversations that no client waits for."""
        self.parked.close()
