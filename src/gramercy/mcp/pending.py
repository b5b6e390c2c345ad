"""Approvals that wait for a decision in this process: at a console, on a web page, in a test.

Whoever decides is handed the whole call, as values.
"""

from __future__ import annotations

import asyncio
from itertools import count
from time import time
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.execution.approval import Decision, Denied, read_decision
from gramercy.execution.results import Refuser
from gramercy.tools.context import current_call

if TYPE_CHECKING:
    from gramercy.execution.approval import ApprovalRequest

# More questions than a person at a console will work off; the rest is denied rather than left waiting.
MOST_PENDING = 100


class PendingApproval(msgspec.Struct, frozen=True):
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
    """Approvals that wait for a decision in this process: at a console, on a web page, in a test."""

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
            return Denied(f"{MOST_PENDING} calls already wait for an approval", Refuser.NOBODY)
        name = f"approval-{next(self._numbers)}"
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[name] = (_pending(name, request), future)
        try:
            async with asyncio.timeout(patience):
                return read_decision(await future)
        except TimeoutError:
            return Denied(f"nobody answered within {patience:g} s", Refuser.TIMEOUT)
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
