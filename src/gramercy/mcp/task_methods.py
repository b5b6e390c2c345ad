"""The methods about tasks in both their forms: the extension of the newer era, and that of 2025-11-25."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.mcp import wire
from gramercy.mcp.eras import LATEST_LEGACY, RELATED_TASK_KEY, TASKS, Request, Shaper, missing_capability
from gramercy.mcp.listing import AS_TASK, ONLY_AS_TASK, page_of, task_support
from gramercy.mcp.parking import input_responses
from gramercy.mcp.tasks import POLL_MS, TTL_MS, Task, TaskStore
from gramercy.mcp.wire import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    ProtocolError,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from gramercy.mcp.clients import Clients
    from gramercy.mcp.work import Question, Work
    from gramercy.tools.tool import Tool

PAGE = 100


class TaskMethods:
    """Makes tasks of calls, and answers tasks/*."""

    def __init__(self, store: TaskStore, clients: Clients, shaper: Shaper, patience: float) -> None:
        self._store = store
        self._clients = clients
        self._shaper = shaper
        self._patience = patience

    def wants_task(self, request: Request, tool: Tool) -> bool:
        """Tell whether a call is to be a task from the start; raise when it must be one and cannot."""
        required = ONLY_AS_TASK in tool.categories
        if request.modern:
            if required and not request.declares_tasks:
                raise missing_capability({"extensions": {TASKS: {}}})
            return request.declares_tasks and (required or AS_TASK in tool.categories)
        if request.version != LATEST_LEGACY:
            return False
        wanted = "task" in request.params
        if (required and not wanted) or (wanted and task_support(tool) is None):
            must = "must be called as a task" if required else "cannot be called as a task"
            raise ProtocolError(METHOD_NOT_FOUND, f"Method not found: {tool.name} {must}")
        return wanted

    def detach(self, work: Work) -> bool:
        """Answer the request of a call with a task, in which the call goes on; tell whether that was done."""
        request = work.call.request
        if work.turn is None or not (request.declares_tasks or "task" in request.params):
            return False
        task = self._store.create(work, self._ttl(request))
        if task is None:
            return False
        work.manner = task
        work.ended = lambda ended: _finish(task, ended)
        work.call.muted = request.modern
        if request.modern:
            result = {**self._described(task), "resultType": "task", "_meta": self._shaper.meta}
        else:
            result = {"task": _legacy(task)}
        work.give(wire.success(request.id, result))
        return True

    @staticmethod
    def _ttl(request: Request) -> int:
        asked = None if request.modern else request.mapping("task").get("ttl")
        return asked if type(asked) is int else TTL_MS

    def _named(self, request: Request) -> Task:
        if request.modern and not request.declares_tasks:
            raise missing_capability({"extensions": {TASKS: {}}})
        return self._store.get(request.text("taskId"), request.peer.principal)

    def get(self, request: Request) -> dict[str, Any]:
        """Tell how a task stands."""
        task = self._named(request)
        return self.detailed(task) if request.modern else _legacy(task)

    def update(self, request: Request) -> dict[str, Any]:
        """Take answers to the questions of a task."""
        self._named(request).answer(input_responses(request))
        return {}

    def cancel(self, request: Request) -> dict[str, Any]:
        """Stop a task."""
        task = self._named(request)
        if task.is_over and not request.modern:
            raise ProtocolError(INVALID_PARAMS, f"Invalid params: the task is already {task.status}")
        task.cancel()
        return {} if request.modern else _legacy(task)

    def list(self, request: Request) -> dict[str, Any]:
        """List the caller's tasks, in the older era."""
        tasks = [_legacy(task) for task in self._store.owned_by(request.peer.principal)]
        return page_of(tasks, request, "tasks", PAGE)

    def result(self, request: Request) -> Coroutine[Any, Any, Any]:
        """Wait for a task to end and return what its call would have returned, in the older era."""
        return self._result(request, self._named(request))

    async def _result(self, request: Request, task: Task) -> Any:
        if not task.is_over and task.work is not None:
            await self._wait(request, task)
        if task.status == "cancelled":
            raise ProtocolError(INTERNAL_ERROR, "The task was cancelled")
        if isinstance(task.outcome, ProtocolError):
            raise task.outcome
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
        """Describe a task with all that belongs to its status."""
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


def _finish(task: Task, work: Work) -> None:
    """Note in the task how its call has ended."""
    error = work.error
    if isinstance(error, asyncio.CancelledError):
        task.finish("cancelled")
        return
    if error is None:
        try:
            wire.encode(work.result)
        except Exception as problem:  # noqa: BLE001 - a result that cannot be written
            error = problem
    if error is None:
        task.finish("completed", work.result)
    elif isinstance(error, ProtocolError):
        task.finish("failed", error)
    else:
        task.finish("failed", ProtocolError(INTERNAL_ERROR, "Internal error"))


def _legacy(task: Task) -> dict[str, Any]:
    return {
        "taskId": task.id,
        "status": task.status,
        "createdAt": task.created_at,
        "lastUpdatedAt": task.updated_at,
        "ttl": task.ttl_ms,
        "pollInterval": POLL_MS,
    }
