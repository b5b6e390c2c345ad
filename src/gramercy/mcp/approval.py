"""Ask a person for an approval: at the client if it can show a question, else in this process, else nobody.

Nothing is approved because nobody could be asked.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import count
from time import time
from typing import TYPE_CHECKING, Any

from gramercy.errors import DeadlineExceededError, ExecutionError
from gramercy.execution.approval import Decision, Denied, read_decision, takes_request
from gramercy.execution.callers import LOOP, Limit
from gramercy.mcp.served import ServedCall, checked_form, form
from gramercy.tools.context import current_call

if TYPE_CHECKING:
    from gramercy.execution.approval import ApprovalHandler, ApprovalRequest

MOST_PENDING = 100


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """A call that waits for a person."""

    id: str
    tool: str
    arguments: dict[str, Any]
    safety_level: str
    explanation: str
    principal: str
    asked_at: float
    changes: tuple[str, ...] = ()
    effect: str = ""


class ApprovalQueue:
    """Approvals that wait for somebody in this process: a console, a web page, a test."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._waiting: dict[str, tuple[PendingApproval, asyncio.Future[Any]]] = {}

    def pending(self) -> list[PendingApproval]:
        """List what waits for a decision, oldest first."""
        return [pending for pending, _ in list(self._waiting.values())]

    def decide(self, approval_id: str, decision: Any) -> bool:
        """Decide once, from any thread, in an approval handler's words; tell whether it counts."""
        found = self._waiting.pop(approval_id, None)
        if found is None:
            return False
        future = found[1]
        loop = future.get_loop()
        if loop.is_closed():
            return False
        loop.call_soon_threadsafe(lambda: None if future.done() else future.set_result(decision))
        return True

    async def ask(self, request: ApprovalRequest, patience: float) -> Decision:
        """Wait for a decision, not longer than `patience` seconds."""
        if len(self._waiting) >= MOST_PENDING:
            return Denied(f"{MOST_PENDING} calls already wait for an approval")
        name = f"approval-{next(self._numbers)}"
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[name] = (_pending(name, request), future)
        try:
            async with asyncio.timeout(patience):
                return read_decision(await future)
        except TimeoutError:
            return Denied(f"nobody answered within {patience:g} s")
        finally:
            self._waiting.pop(name, None)


def _pending(name: str, request: ApprovalRequest) -> PendingApproval:
    return PendingApproval(
        name,
        request.tool.name,
        request.arguments,
        request.tool.level_word,
        request.verdict.explanation,
        current_call().principal,
        time(),
        request.changes,
        request.effect,
    )


class Approver:
    """The approval handler of an executor whose tools are served. `before` is the one that it had."""

    def __init__(self, before: ApprovalHandler | None, queue: ApprovalQueue | None, patience: float) -> None:
        self._before = before
        self._queue = queue
        self._patience = patience

    async def __call__(self, tool: Any, arguments: dict[str, Any], request: ApprovalRequest) -> Any:
        """Ask whoever can be asked."""
        call = current_call()
        if isinstance(call, ServedCall) and call.work is not None and call.can("elicitation"):
            return await self._elicit(call, request)
        if self._queue is not None:
            return await self._queue.ask(request, self._patience)
        if self._before is not None:
            given = (tool, arguments, request) if takes_request(self._before) else (tool, arguments)
            try:
                return await LOOP.call(self._before, *given, limit=Limit("the approval", self._patience))
            except DeadlineExceededError:
                return Denied(f"nobody answered within {self._patience:g} s")
        return Denied(
            f"{tool.name} is {tool.level_word} and needs a person's approval, but this client cannot show "
            "questions (it declares no elicitation) and nobody else can be asked. Use a client that can, "
            "or have a policy rule allow the call"
        )

    @staticmethod
    async def _elicit(call: ServedCall, request: ApprovalRequest) -> Decision:
        assert call.work is not None  # noqa: S101 - asked only with work; this tells mypy
        # Imported here: a server lists its tools long before it asks, and the reader of edits takes time.
        from gramercy.mcp.questions import ApprovalQuestion

        question = ApprovalQuestion(request)
        params = form(question.text, question.schema, call.version)
        try:
            # Anew: an approval must answer the question that was shown, so it cannot come before it.
            answer = await call.work.ask("elicitation/create", params, anew=True)
            answer = checked_form(answer, question.schema)
        except ExecutionError as error:
            return Denied(str(error))
        if answer["action"] != "accept":
            return Denied(
                "the person declined" if answer["action"] == "decline" else "the person dismissed it"
            )
        return question.decide(answer["content"], call.principal)
