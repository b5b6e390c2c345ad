"""One run of a handler on a task of its own, and the request that waits for its answer now."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from inspect import CORO_CREATED, getcoroutinestate
from typing import TYPE_CHECKING, Any, Protocol

from gramercy.errors import ExecutionError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from gramercy.mcp.eras import Request
    from gramercy.mcp.served import ServedCall

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
