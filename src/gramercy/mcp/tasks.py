"""Calls that outlive their request, and the methods tasks/*, of the modern extension and of 2025-11-25.

A task belongs to the principal that began it, not to a connection. It ends with its time to live. Its id
names the call in the journal, so that a task outlives the process if the journal does.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from secrets import token_bytes
from time import time
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from gramercy.errors import ProtocolError
from gramercy.mcp.jsonrpc import (
    RELATED_TASK_KEY,
    TASKS,
    Code,
    Request,
    Shaper,
    encode,
    invalid_params,
    missing_capability,
    unexpected,
)
from gramercy.mcp.listing import page_of
from gramercy.mcp.parked import input_responses
from gramercy.mcp.signing import IDENTITY_BYTES, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from gramercy.execution.calls import ToolResult
    from gramercy.mcp.clients import Clients
    from gramercy.mcp.conversation import Conversation, Question
    from gramercy.mcp.signing import Signer

Status: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]
# An outcome is kept for an hour: long enough for a client that was restarted.
TTL_MS = 3_600_000
SHORTEST_TTL_MS = 1_000  # two polls
POLL_MS = 500  # a person does not notice, and a poll costs microseconds
# With their outcomes, which may be a megabyte each; one principal must leave room for others.
MOST_TASKS = 1_000
MOST_TASKS_OF_ONE = 200
PAGE = 100  # some kilobytes
# The purpose of a signature, so that no other signed name of ours passes for it.
PURPOSE = "task"


class TaskName(msgspec.Struct, frozen=True):
    """The contents of a task's id: its call, when it began, and how long it is kept."""

    id: str
    identity: str
    created_ms: int
    ttl_ms: int

    @classmethod
    def made(cls, signer: Signer, principal: str, identity: str, ttl_ms: int) -> TaskName:
        """Name a new task."""
        # A call without an identity is in no journal that outlives the process, so it is never looked up.
        about = bytes.fromhex(identity) if identity else token_bytes(IDENTITY_BYTES)
        created_ms = int(time() * 1000)
        parts = (about, created_ms.to_bytes(6), ttl_ms.to_bytes(4), token_bytes(6))
        return cls(signer.signed(PURPOSE, pack(b"".join(parts)), principal), about.hex(), created_ms, ttl_ms)

    @classmethod
    def read(cls, signer: Signer, principal: str, task_id: str) -> TaskName | None:
        """Read an id that was made for this principal and has not expired."""
        text = signer.read(PURPOSE, task_id, principal)
        if text is None:
            return None
        data, size = unpack(text), IDENTITY_BYTES
        name = cls(
            task_id, data[:size].hex(), *(int.from_bytes(data[size + a : size + b]) for a, b in _NUMBERS)
        )
        return name if name.created_ms + name.ttl_ms > time() * 1000 else None


_NUMBERS = ((0, 6), (6, 10))  # where in a name, after the identity, created_ms and ttl_ms stand


class Task:
    """One call as a task. `outcome` is its result or its JSON-RPC error once it has ended."""

    __slots__ = (
        "_changed",
        "_status",
        "conversation",
        "created_at",
        "id",
        "outcome",
        "principal",
        "result",
        "sender",
        "timer",
        "ttl_ms",
        "updated_at",
        "waiters",
    )

    def __init__(self, conversation: Conversation, name: TaskName, changed: Callable[[Task], None]) -> None:
        self.id = name.id
        self.conversation: Conversation | None = conversation
        self.principal = conversation.call.principal
        self.ttl_ms = name.ttl_ms
        self.created_at = _written(name.created_ms / 1000)
        self.updated_at = _now()
        self.outcome: Any = None
        # The result of the call, as long as the client may return for it.
        self.result: ToolResult | None = None
        # The waiters for the end, and the sender of questions meanwhile: the legacy tasks/result.
        self.waiters: list[asyncio.Future[None]] = []
        self.sender: Callable[[Question], None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self._status: Status = "working"
        self._changed = changed

    @property
    def status(self) -> Status:
        """The present status of the task."""
        return "input_required" if self._status == "working" and self.open_questions else self._status

    @property
    def open_questions(self) -> dict[str, Question]:
        """The unanswered questions of the handler."""
        return {} if self.conversation is None else self.conversation.questions

    @property
    def is_over(self) -> bool:
        """Whether the task has ended."""
        return self._status != "working"

    def asked(self, question: Question) -> None:
        """Hold a question until the client fetches it, or send it to a waiting client."""
        self._touch()
        if self.sender is not None:
            self.sender(question)

    def answer(self, answers: dict[str, Any]) -> None:
        """Take answers by their keys; answers to unknown questions are dropped."""
        if self.conversation is not None:
            self.conversation.take_answers(answers)
        self._touch()

    def finish(self, outcome: Any) -> None:
        """Note the end of the call: a result, or a ProtocolError."""
        if isinstance(outcome, ProtocolError):
            self._finish("failed", outcome)
            return
        try:
            encode(outcome)
        except Exception as error:  # noqa: BLE001 - a result that cannot be written
            assert self.conversation is not None  # noqa: S101 - it has just ended; this tells mypy
            self._finish("failed", unexpected(self.conversation.request, error))
        else:
            self._finish("completed", outcome)

    def note_cancelled(self) -> None:
        """Note that the call was cancelled."""
        self._finish("cancelled")

    def _finish(self, status: Status, outcome: Any = None) -> None:
        """Store the outcome; a second one does not count."""
        if self.is_over:
            return
        self._status, self.outcome = status, outcome
        if self.conversation is not None:
            self.result = self.conversation.call.result
        self.conversation = self.sender = None
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.waiters.clear()
        self._touch()

    def cancel(self) -> None:
        """Stop the handler; the task counts as cancelled at once."""
        if self.conversation is not None:
            self.conversation.cancel()

    def call_off(self) -> None:
        """Stop because the client has cancelled the task."""
        if self.conversation is not None:
            self.conversation.call_off()

    def _touch(self) -> None:
        self.updated_at = _now()
        self._changed(self)


class TaskStore:
    """All tasks, bounded in number and time."""

    def __init__(
        self, changed: Callable[[Task], None], signer: Signer, undelivered: Callable[[ToolResult], None]
    ) -> None:
        self._changed = changed
        self._undelivered = undelivered
        self._signer = signer
        self._tasks: dict[str, Task] = {}
        self._owned: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._tasks)

    def create(self, conversation: Conversation, ttl_ms: int = TTL_MS) -> Task | None:
        """Make a task of a call; None if there are too many already."""
        call = conversation.call
        if not self._has_room(call.principal):
            return None
        ttl_ms = max(SHORTEST_TTL_MS, min(ttl_ms, TTL_MS))
        return self.keep(conversation, TaskName.made(self._signer, call.principal, call.identity, ttl_ms))

    def _has_room(self, owner: str) -> bool:
        return len(self._tasks) < MOST_TASKS and self._owned[owner] < MOST_TASKS_OF_ONE

    def keep(self, conversation: Conversation, name: TaskName) -> Task:
        """Keep a task until its time to live is over."""
        task = Task(conversation, name, self._changed)
        self._tasks[task.id] = task
        self._owned[task.principal] += 1
        left_ms = name.created_ms + name.ttl_ms - time() * 1000
        task.timer = conversation.loop.call_later(max(0.0, left_ms / 1000), self._expire, task)
        return task

    def find(self, task_id: str, principal: str) -> Task | None:
        """Return a task of this principal; the existence of other principals' tasks must not be revealed."""
        task = self._tasks.get(task_id)
        return None if task is None or task.principal != principal else task

    def left_behind(self, task_id: str, principal: str) -> TaskName | None:
        """Read the id of a task of this principal that an earlier process has made."""
        return TaskName.read(self._signer, principal, task_id) if self._has_room(principal) else None

    def owned_by(self, principal: str) -> list[Task]:
        """List the tasks of a principal, oldest first."""
        return [task for task in self._tasks.values() if task.principal == principal]

    def _expire(self, task: Task) -> None:
        if self._tasks.pop(task.id, None) is not None:
            self._owned[task.principal] -= 1
            if not self._owned[task.principal]:
                del self._owned[task.principal]
            task.cancel()
            if task.result is not None:
                self._undelivered(task.result)

    def close(self) -> None:
        """Stop everything."""
        for task in list(self._tasks.values()):
            if task.timer is not None:
                task.timer.cancel()
            task.cancel()
        self._tasks.clear()
        self._owned.clear()


def _now() -> str:
    return _written(time())


def _written(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TaskMethods:
    """Makes tasks of calls, and answers tasks/*. `adopt` resumes tasks of an earlier process."""

    adopt: Callable[[Request, TaskName], Task | None] | None = None

    def __init__(
        self,
        store: TaskStore,
        clients: Clients,
        shaper: Shaper,
        *,
        patience: float,
        delivered: Callable[[ToolResult], None],
    ) -> None:
        self._store = store
        self._delivered = delivered
        self._clients = clients
        self._shaper = shaper
        self._patience = patience

    def create(self, conversation: Conversation) -> Task | None:
        """Make a task that takes the outcome of a call; None if the client knows no tasks or has too many."""
        request = conversation.request
        if not (request.declares_tasks or "task" in request.params):
            return None
        return self._store.create(conversation, self._ttl(request))

    def take_up(self, conversation: Conversation, name: TaskName) -> Task:
        """Keep a task of an earlier process."""
        return self._store.keep(conversation, name)

    def created(self, task: Task, request: Request) -> dict[str, Any]:
        """Return the result that tells a client that its call has become a task."""
        if request.modern:
            return {**self._described(task), "resultType": "task", "_meta": self._shaper.meta}
        return {"task": _legacy(task)}

    @staticmethod
    def _ttl(request: Request) -> int:
        asked = None if request.modern else request.mapping("task").get("ttl")
        return asked if type(asked) is int else TTL_MS

    def _named(self, request: Request) -> Task:
        if request.modern and not request.declares_tasks:
            raise missing_capability({"extensions": {TASKS: {}}})
        task_id, principal = request.text("taskId"), request.peer.principal
        task = self._store.find(task_id, principal) or self._taken_up(request, task_id)
        if task is None:
            raise invalid_params("no such task; it may have expired")
        return task

    def _taken_up(self, request: Request, task_id: str) -> Task | None:
        name = self._store.left_behind(task_id, request.peer.principal) if self.adopt else None
        return None if name is None or self.adopt is None else self.adopt(request, name)

    def get(self, request: Request) -> dict[str, Any]:
        """Return the status of a task."""
        task = self._named(request)
        if not request.modern:
            return _legacy(task)
        self._fetched(task)
        return self.detailed(task)

    def _fetched(self, task: Task) -> None:
        """Note that the outcome is sent now."""
        if task.is_over and task.result is not None:
            # After the answer, which is written in this turn of the loop or the next.
            asyncio.get_running_loop().call_soon(self._delivered, task.result)
            task.result = None

    def update(self, request: Request) -> dict[str, Any]:
        """Take answers to the questions of a task."""
        self._named(request).answer(input_responses(request))
        return {}

    def cancel(self, request: Request) -> dict[str, Any]:
        """Stop a task."""
        task = self._named(request)
        if task.is_over and not request.modern:
            raise invalid_params(f"the task is already {task.status}")
        task.call_off()
        return {} if request.modern else _legacy(task)

    def list(self, request: Request) -> dict[str, Any]:
        """List the caller's tasks (legacy)."""
        tasks = [_legacy(task) for task in self._store.owned_by(request.peer.principal)]
        return page_of(tasks, request, "tasks", PAGE)

    def result(self, request: Request) -> Coroutine[Any, Any, Any]:
        """Wait for a task to end and return the result that its call would have returned (legacy)."""
        return self._result(request, self._named(request))

    async def _result(self, request: Request, task: Task) -> Any:
        if not task.is_over and task.conversation is not None:
            await self._wait(request, task)
        if task.status == "cancelled":
            raise ProtocolError(Code.INTERNAL_ERROR, "The task was cancelled")
        if isinstance(task.outcome, ProtocolError):
            raise task.outcome
        self._fetched(task)
        related = {RELATED_TASK_KEY: {"taskId": task.id}}
        return msgspec.structs.replace(task.outcome, meta=related)

    async def _wait(self, request: Request, task: Task) -> None:
        """Wait for the end of a task; meanwhile its questions go to this client, if to no other."""
        waiter = asyncio.get_running_loop().create_future()
        task.waiters.append(waiter)
        brings = task.sender is None and request.channel is not None
        if brings:
            self._bring_questions(request, task)
        try:
            await waiter
        finally:
            if brings:
                task.sender = None
            with suppress(ValueError):
                task.waiters.remove(waiter)

    def _bring_questions(self, request: Request, task: Task) -> None:
        def send(question: Question) -> None:
            question.params["_meta"] = {RELATED_TASK_KEY: {"taskId": task.id}}
            assert request.channel is not None  # noqa: S101 - asked only with one; this tells mypy
            self._clients.of(request.peer).ask(request.channel, question, self._patience)

        task.sender = send
        for question in list(task.open_questions.values()):
            send(question)

    def _described(self, task: Task) -> dict[str, Any]:
        return {
            "taskId": task.id,
            "status": task.status,
            "createdAt": task.created_at,
            "lastUpdatedAt": task.updated_at,
            "ttlMs": task.ttl_ms,
            "pollIntervalMs": POLL_MS,
        }

    def detailed(self, task: Task) -> dict[str, Any]:
        """Describe a task with all fields of its status."""
        found = self._described(task)
        if task.status == "input_required":
            asked = task.open_questions.items()
            found["inputRequests"] = {key: question.as_input_request() for key, question in asked}
        elif task.status == "completed":
            found["result"] = task.outcome
        elif task.status == "failed":
            error = task.outcome
            found["error"] = {"code": error.code, "message": error.message}
            found["statusMessage"] = error.message
        return found


def _legacy(task: Task) -> dict[str, Any]:
    return {
        "taskId": task.id,
        "status": task.status,
        "createdAt": task.created_at,
        "lastUpdatedAt": task.updated_at,
        "ttl": task.ttl_ms,
        "pollInterval": POLL_MS,
    }
