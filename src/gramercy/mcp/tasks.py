"""Calls that outlive their request: what is kept of them until their client comes back.

A task belongs to the principal that began it, not to a connection. It ends with its time to live.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from gramercy.mcp.wire import INVALID_PARAMS, ProtocolError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from gramercy.mcp.work import Question, Work

Status: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]
TTL_MS = 3_600_000
SHORTEST_TTL_MS = 1_000
POLL_MS = 500
MOST_TASKS = 1_000
MOST_TASKS_OF_ONE = 200


class Task:
    """One call as a task. `outcome` is its result or its JSON-RPC error once it has ended."""

    __slots__ = (
        "_changed",
        "_status",
        "created_at",
        "id",
        "outcome",
        "principal",
        "sender",
        "timer",
        "ttl_ms",
        "updated_at",
        "waiters",
        "work",
    )

    def __init__(self, work: Work, ttl_ms: int, changed: Callable[[Task], None]) -> None:
        self.id = token_urlsafe(24)
        self.work: Work | None = work
        self.principal = work.call.principal
        self.ttl_ms = ttl_ms
        self.created_at = self.updated_at = _now()
        self.outcome: Any = None
        # Who waits for the end, and who can be sent questions meanwhile: the older era's tasks/result.
        self.waiters: list[asyncio.Future[None]] = []
        self.sender: Callable[[Question], None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self._status: Status = "working"
        self._changed = changed

    @property
    def status(self) -> Status:
        """Where the task stands now."""
        return "input_required" if self._status == "working" and self.open_questions else self._status

    @property
    def open_questions(self) -> dict[str, Question]:
        """What the handler wants to know and has not been told."""
        return self.work.questions if self.work is not None else {}

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen."""
        return self._status != "working"

    def asked(self, work: Work, question: Question) -> None:
        """Hold a question until the client comes for it, or send it to one that waits."""
        del work
        self._touch()
        if self.sender is not None:
            self.sender(question)

    def answer(self, answers: dict[str, Any]) -> None:
        """Take answers by their keys; those that nobody asked for are dropped."""
        for key, question in list(self.open_questions.items()):
            if isinstance(answers.get(key), dict):
                del self.open_questions[key]
                question.take(answers[key])
        self._touch()

    def finish(self, status: Status, outcome: Any = None) -> None:
        """Note how the task has ended; a second ending does not count."""
        if self.is_over:
            return
        self._status, self.outcome = status, outcome
        self.work = self.sender = None
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.waiters.clear()
        self._touch()

    def cancel(self) -> None:
        """Stop the handler; the task counts as cancelled at once."""
        work = self.work
        self.finish("cancelled")
        if work is not None:
            work.cancel()

    def _touch(self) -> None:
        self.updated_at = _now()
        self._changed(self)


class TaskStore:
    """All tasks, bounded in number and time."""

    def __init__(self, changed: Callable[[Task], None]) -> None:
        self._changed = changed
        self._tasks: dict[str, Task] = {}
        self._owned: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._tasks)

    def create(self, work: Work, ttl_ms: int = TTL_MS) -> Task | None:
        """Make a task of a call; None when there are too many already."""
        owner = work.call.principal
        if len(self._tasks) >= MOST_TASKS or self._owned[owner] >= MOST_TASKS_OF_ONE:
            return None
        task = Task(work, max(SHORTEST_TTL_MS, min(ttl_ms, TTL_MS)), self._changed)
        self._tasks[task.id] = task
        self._owned[owner] += 1
        task.timer = work.loop.call_later(task.ttl_ms / 1000, self._expire, task)
        return task

    def get(self, task_id: str, principal: str) -> Task:
        """Return a task of this principal; of others it must not even be known that they exist."""
        task = self._tasks.get(task_id)
        if task is None or task.principal != principal:
            raise ProtocolError(INVALID_PARAMS, "Invalid params: no such task; it may have expired")
        return task

    def owned_by(self, principal: str) -> list[Task]:
        """List the tasks of a principal, oldest first."""
        return [task for task in self._tasks.values() if task.principal == principal]

    def _expire(self, task: Task) -> None:
        if self._tasks.pop(task.id, None) is not None:
            self._owned[task.principal] -= 1
            if not self._owned[task.principal]:
                del self._owned[task.principal]
            task.cancel()

    def close(self) -> None:
        """Stop everything."""
        for task in list(self._tasks.values()):
            if task.timer is not None:
                task.timer.cancel()
            task.cancel()
        self._tasks.clear()
        self._owned.clear()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
