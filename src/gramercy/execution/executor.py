"""The executor: the one door through which every call of every caller goes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from time import perf_counter
from typing import TYPE_CHECKING, Any

from gramercy.errors import GramercyError, InvalidArgumentsError, InvalidCallError
from gramercy.execution import telemetry
from gramercy.execution.attempt import Attempt
from gramercy.execution.calls import ToolCall, ToolResult, id_of, read_arguments, read_call
from gramercy.execution.gate import Gate
from gramercy.execution.journal import Journal, MemoryJournal
from gramercy.execution.metrics import Metrics, ToolMetrics, metrics_table
from gramercy.execution.observers import check_hooks, copy_arguments, transformed
from gramercy.execution.policy import Action, Policy, Verdict
from gramercy.execution.recorder import Recorder
from gramercy.execution.settings import Settings
from gramercy.execution.waiting import BLOCKING, LOOP, Caller, drive, finish_blocking, must_pass
from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from gramercy.execution.approval import ApprovalHandler
    from gramercy.execution.observers import Hook, Transform
    from gramercy.tools.registry import Registry
    from gramercy.tools.tool import Tool

SIDE_BY_SIDE = 8


class Executor:
    """Runs tool calls: look-up, validation, transforms, policy, approval, deadline, result, metrics, journal.

    Nothing a tool, hook or approver does is raised to the caller: it becomes a failed ToolResult. Only the
    caller's own cancellation and keyboard interrupt pass.
    """

    def __init__(
        self,
        registry: Registry,
        approval_handler: ApprovalHandler | None = None,
        hooks: Iterable[Hook] = (),
        *,
        transforms: Iterable[Transform] = (),
        policy: Policy | None = None,
        journal: Journal | None = None,
        max_safety_level: Safety | str | None = None,
        **limits: Any,
    ) -> None:
        """Join the parts. `limits` are deadline, approval_deadline, hook_deadline (seconds) and max_output."""
        self.settings = Settings(
            registry,
            _with_ceiling(policy or Policy(), max_safety_level),
            MemoryJournal() if journal is None else journal,
            approval_handler,
            check_hooks("hook", hooks),
            check_hooks("transform", transforms),
            **limits,
        )
        self._metrics = Metrics()
        self._recorder = Recorder(self.settings, self._metrics)
        self._gate = Gate(self.settings, self._recorder)

    def execute(self, call: ToolCall | Mapping[str, Any]) -> ToolResult:
        """Run one call and return its result."""
        attempt = self._prepare(call)
        if isinstance(attempt, ToolResult):
            return attempt
        if self._is_direct(attempt):
            return self._run_directly(attempt)
        return drive(self._run(attempt, BLOCKING))

    async def aexecute(self, call: ToolCall | Mapping[str, Any]) -> ToolResult:
        """Run one call without blocking the event loop (only tools declared inline run on it)."""
        attempt = self._prepare(call)
        if isinstance(attempt, ToolResult):
            return attempt
        if attempt.tool.inline and self._is_direct(attempt):
            return self._run_directly(attempt)
        return await self._run(attempt, LOOP)

    def execute_tool_calls(self, calls: Iterable[ToolCall | Mapping[str, Any]]) -> list[ToolResult]:
        """Run the calls of one answer; side by side when all are safe, else one after the other."""
        batch = _batch(calls)
        if len(batch) > 1 and self._may_overlap(batch):
            with ThreadPoolExecutor(min(SIDE_BY_SIDE, len(batch)), "gramercy-batch") as pool:
                futures = [pool.submit(copy_context().run, self.execute, call) for call in batch]
                return [future.result() for future in futures]
        return [self.execute(call) for call in batch]

    async def aexecute_tool_calls(self, calls: Iterable[ToolCall | Mapping[str, Any]]) -> list[ToolResult]:
        """Run the calls of one answer from async code; side by side when all are safe."""
        batch = _batch(calls)
        if len(batch) > 1 and self._may_overlap(batch):
            return list(await asyncio.gather(*(self.aexecute(call) for call in batch)))
        return [await self.aexecute(call) for call in batch]

    @property
    def policy(self) -> Policy:
        """The rules in force; assigning another policy makes approvals under way be asked again."""
        return self.settings.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self.settings.policy = policy

    @property
    def journal(self) -> Journal:
        """Where the moves of every call are recorded."""
        return self.settings.journal

    @property
    def hooks(self) -> list[Hook]:
        """The observers; append to add one."""
        return self.settings.hooks

    def tools(self) -> list[Tool]:
        """List the tools that callers may know of: those at or below the ceiling."""
        return self.settings.registry.select(max_safety_level=self.policy.max_safety_level)

    def why(self, name: str, arguments: Mapping[str, Any]) -> Verdict:
        """Tell what would happen to a call and which rule decides, without running it."""
        tool = self.settings.registry.resolve(name)
        return self.policy.why(tool, tool.checker.check(read_arguments(arguments)))

    def metrics(self) -> dict[str, ToolMetrics]:
        """Return the figures of every tool called so far, by name."""
        return self._metrics.snapshot()

    def metrics_table(self) -> str:
        """Return the figures as a text table."""
        return metrics_table(self.metrics())

    def _prepare(self, call: ToolCall | Mapping[str, Any]) -> Attempt | ToolResult:
        """Look up, validate, transform and judge; a call that fails here gets its result here."""
        tool = None
        try:
            if type(call) is not ToolCall:
                call = read_call(call)
            settings = self.settings
            tool = settings.registry.get(call.name) or settings.registry.resolve(call.name)
            arguments = call.arguments
            if type(arguments) is not dict:
                arguments = read_arguments(arguments)
            arguments = tool.checker.check(arguments)
            if settings.transforms:
                arguments = transformed(settings.transforms, tool, arguments, seconds=settings.hook_deadline)
            attempt = Attempt(call.id, tool, arguments, settings.policy.why(tool, arguments))
        except InvalidArgumentsError as error:
            return self._recorder.refused(id_of(call), _complete(error, tool), tool and tool.name)
        except GramercyError as error:
            return self._recorder.refused(id_of(call), error, tool and tool.name)
        if attempt.verdict.action is Action.DENY:
            return self._recorder.denied(attempt, f"The policy denies {tool.name}: {attempt.verdict.explanation}")
        return attempt

    def _is_direct(self, attempt: Attempt) -> bool:
        """Tell whether the handler can simply be called: nobody to ask, nothing to wait for or to trace."""
        return (
            attempt.verdict.action is Action.ALLOW
            and attempt.tool.is_plain
            and self.settings.deadline is None
            and telemetry.active_tracer() is None
        )

    def _run_directly(self, attempt: Attempt) -> ToolResult:
        started = perf_counter()
        try:
            self._recorder.started(attempt)
            started = perf_counter()
            value = attempt.tool.handler(copy_arguments(attempt.arguments))
            if type(value) is not str and inspect.isawaitable(value):
                value = finish_blocking(value, attempt.tool.name)
        except BaseException as error:  # noqa: BLE001 - sorted out by _rescued
            return self._rescued(attempt, error, started)
        return self._recorder.returned(attempt, value, perf_counter() - started)

    async def _run(self, attempt: Attempt, caller: Caller) -> ToolResult:
        trace = telemetry.CallTrace(attempt.tool, attempt.call_id)
        if attempt.verdict.action is Action.ASK:
            with trace.span():
                refusal = await self._gate.admit(attempt, caller)
            if refusal is not None:
                return trace.finished(refusal)
        with trace.span():
            result = await self._call_handler(attempt, caller)
        return trace.finished(result)

    async def _call_handler(self, attempt: Attempt, caller: Caller) -> ToolResult:
        tool = attempt.tool
        started = perf_counter()
        try:
            self._recorder.started(attempt)
            started = perf_counter()
            value = await caller.call(
                tool.handler,
                copy_arguments(attempt.arguments),
                what=tool.name,
                seconds=self.settings.deadline if tool.deadline is None else tool.deadline,
                inline=tool.inline,
            )
        except BaseException as error:  # noqa: BLE001 - sorted out by _rescued
            return self._rescued(attempt, error, started)
        return self._recorder.returned(attempt, value, perf_counter() - started)

    def _rescued(self, attempt: Attempt, error: BaseException, started: float) -> ToolResult:
        """Make a result of an exception, unless it is the caller's own."""
        if must_pass(error):
            self._recorder.cancelled(attempt)
            raise error
        return self._recorder.raised(attempt, error, perf_counter() - started)

    def _may_overlap(self, batch: list[Any]) -> bool:
        """Tell whether calls may run side by side: all safe, and at least one that is not trivially cheap."""
        tools = [self.settings.registry.get(_name_of(call)) for call in batch]
        found = [tool for tool in tools if tool is not None]
        return all(tool.safety_level is Safety.SAFE for tool in found) and not all(tool.inline for tool in found)


def _with_ceiling(policy: Policy, level: Safety | str | None) -> Policy:
    if level is None:
        return policy
    return Policy(policy.rules, min(Safety.parse(level), policy.max_safety_level, key=lambda s: s.rank))


def _batch(calls: Any) -> list[Any]:
    if isinstance(calls, ToolCall | Mapping):
        return [calls]
    if isinstance(calls, str | bytes) or not isinstance(calls, Iterable):
        raise InvalidCallError(f"expected a list of calls, received {type(calls).__name__}")
    return list(calls)


def _name_of(call: Any) -> str:
    name = call.name if isinstance(call, ToolCall) else call.get("name") if isinstance(call, Mapping) else None
    return name.replace("-", "_") if isinstance(name, str) else ""


def _complete(error: InvalidArgumentsError, tool: Tool | None) -> InvalidArgumentsError:
    """Add the tool's name and an example to faults that were found before the tool was known."""
    if tool is None or error.tool is not None:
        return error
    from gramercy.tools.faults import explain_faults

    return explain_faults(tool.checker.validator, tool.schema, None, foreign=error.faults, tool=tool.name)
