"""The executor: every call of every caller goes through it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from contextvars import copy_context
from copy import copy
from inspect import isawaitable
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakSet

import msgspec

from gramercy.errors import (
    ExecutionError,
    GramercyError,
    InvalidArgumentsError,
    InvalidCallError,
    InvalidPolicyError,
    UnknownToolError,
)
from gramercy.execution import telemetry
from gramercy.execution.approval import standing
from gramercy.execution.callers import (
    BLOCKING,
    LOOP,
    Caller,
    Limit,
    begun,
    drive,
    ends_pipeline,
    later,
    must_pass,
)
from gramercy.execution.calls import ToolCall, ToolResult, error_text, read_arguments
from gramercy.execution.gate import ApprovalGate
from gramercy.execution.hooks import check_hooks, hook_list, transformed
from gramercy.execution.metrics import Metrics, ToolMetrics, metrics_table
from gramercy.execution.policy import Action, Policy, Verdict
from gramercy.execution.results import Attempt, Recorder, Refuser
from gramercy.execution.returning import Returning
from gramercy.journal.base import OPEN, State
from gramercy.journal.memory import MemoryJournal
from gramercy.text import listed
from gramercy.tools.context import current_call
from gramercy.tools.safety import Safety
from gramercy.tools.values import SCALARS, PlainCopy, copy_json, is_duration

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from gramercy.execution.approval import ApprovalHandler
    from gramercy.execution.hooks import Hook, Transform
    from gramercy.journal.base import CallRecord, Journal
    from gramercy.tools.registry import Registry
    from gramercy.tools.tool import Place, Tool


# Threads for a batch of safe calls: enough to overlap their waits, few enough not to flood one service.
SIDE_BY_SIDE = 8
# Names of tools in the answer to an unknown name: as many as a model reads at a glance.
MOST_NAMED = 20
# Common clients cancel a call after 60 s; a call that waits for a person elsewhere answers before that.
WAIT_SECONDS = 50.0
# A person can be asked now and answer tomorrow.
EXPIRY_SECONDS = 86_400.0
# An id is repeated in every result and record of its call; the ids of providers have some 30 characters.
LONGEST_ID = 200
CALL_SHAPE = '{"id": "call_1", "name": "tool_name", "arguments": {…}}'
# Looking a member up in its enum costs as much as a dictionary copy, and every call would do it thrice.
_ALLOW, _ASK, _DENY = Action.ALLOW, Action.ASK, Action.DENY
_DANGEROUS = Safety.DANGEROUS
# Types that are never awaitable: asking inspect about every result would cost two bare calls.
_PLAIN_RESULTS = SCALARS | {list, dict, tuple}
_modules, _API = sys.modules, telemetry.API
_UNTRACED = nullcontext()
# A thread of its own reloads the rules.
_DERIVING = Lock()
# Arguments without containers are copied without looking inside.
_copy_flat: Copying = dict.copy
_copy_nested: Copying = copy_json
Copying: TypeAlias = "Callable[[dict[str, Any]], dict[str, Any]]"
Outcome: TypeAlias = "ToolResult | Coroutine[Any, Any, ToolResult]"


class Settings(msgspec.Struct):
    """The parts and limits of one executor; deadlines are in seconds, None means no deadline."""

    registry: Registry
    policy: Policy
    journal: Journal
    hooks: list[Hook] = msgspec.field(default_factory=list)
    transforms: list[Transform] = msgspec.field(default_factory=list)
    deadline: float | None = None
    approval_deadline: float | None = None
    hook_deadline: float | None = None
    max_output: int = 100_000
    approval_wait: float | None = WAIT_SECONDS
    approval_expiry: float = EXPIRY_SECONDS
    # Whether to wait if a call's own channel reaches no person: a server knows whether a person watches.
    is_watched: Callable[[], bool] = lambda: True

    @property
    def is_shared(self) -> bool:
        """Whether other processes can read the journal and decide."""
        return getattr(self.journal, "run_directory", None) is not None

    def __post_init__(self) -> None:
        """Refuse limits that would otherwise fail in the middle of a call."""
        for name in ("deadline", "approval_deadline", "hook_deadline"):
            value = getattr(self, name)
            if value is not None and not is_duration(value):
                raise ExecutionError(
                    f"{name} is {value!r:.50}: expected a positive number of seconds or None"
                )
        if self.approval_wait != 0 and self.approval_wait is not None and not is_duration(self.approval_wait):
            told = f"approval_wait is {self.approval_wait!r:.50}"
            raise ExecutionError(f"{told}: expected seconds, or None to wait until the expiry")
        if not is_duration(self.approval_expiry):
            raise ExecutionError(f"approval_expiry is {self.approval_expiry!r:.50}: expected seconds")
        if not is_duration(self.max_output) or not isinstance(self.max_output, int):
            raise ExecutionError(f"max_output is {self.max_output!r:.50}: expected a number of characters")


class Executor:
    """Runs tool calls: look-up, validation, transforms, policy, approval, deadline, result, metrics, journal.

    An error of a tool, hook or approver is not raised to the caller: it becomes a failed ToolResult. Only the
    caller's own cancellation and keyboard interrupt are raised.

    A call takes one of two paths. The plain path runs it at once. The waiting path is a coroutine, for calls
    that need an approval, a deadline, a trace or a thread. `execute`, `aexecute` and `begin` differ only in
    who waits. Code that gets an executor and needs another approval handler uses
    `executor.with_approver(handler)`, which shares everything else and leaves the given executor unchanged.
    """

    def __init__(  # noqa: PLR0913 - the parts of an executor are its arguments
        self,
        registry: Registry,
        approval_handler: ApprovalHandler | None = None,
        hooks: Iterable[Hook] = (),
        *,
        transforms: Iterable[Transform] = (),
        policy: Policy | None = None,
        journal: Journal | None = None,
        max_safety_level: Safety | str | None = None,
        deadline: float | None = None,
        approval_deadline: float | None = None,
        hook_deadline: float | None = None,
        max_output: int = 100_000,
        approval_wait: float | None = WAIT_SECONDS,
        approval_expiry: float = EXPIRY_SECONDS,
    ) -> None:
        """Join the parts; deadlines are in seconds, the output limit in characters.

        With a journal that other processes share, a question without an answer here stays open for them until
        `approval_expiry`. The call waits for `approval_wait` and then returns that it is undecided.
        """
        self._ceiling = Safety.parse(max_safety_level or Safety.DANGEROUS)
        self.settings = Settings(
            registry,
            self._capped(policy or Policy()),
            MemoryJournal() if journal is None else journal,
            hook_list(hooks),
            check_hooks("transform", transforms),
            deadline,
            approval_deadline,
            hook_deadline,
            max_output,
            approval_wait,
            approval_expiry,
        )
        self._metrics = Metrics()
        # The executors of other tools: a policy that is assigned here counts for them as well.
        self._derived: WeakSet[Executor] = WeakSet()
        self._returning = Returning(self.settings)
        self._recorder = Recorder(self.settings, self._metrics, self._returning.here)
        self._gate = ApprovalGate(self.settings, self._recorder, approval_handler)

    def execute(self, call: ToolCall | Mapping[str, Any]) -> ToolResult:
        """Run one call and return its result."""
        outcome = self._start(call, BLOCKING)
        return outcome if type(outcome) is ToolResult else drive(outcome)

    async def aexecute(self, call: ToolCall | Mapping[str, Any]) -> ToolResult:
        """Run one call without blocking the event loop (only tools declared inline run on it)."""
        outcome = self._start(call, LOOP)
        return outcome if type(outcome) is ToolResult else await outcome

    def begin(self, call: ToolCall | Mapping[str, Any]) -> Outcome:
        """Begin one call on the thread of an event loop; return its result, or an awaitable of it.

        Await the awaitable in a task, or drop it. If the tool has an `async_handler`, it has already run up
        to its first wait, so that a call which never waits costs no task.
        """
        return self._start(call, LOOP)

    def with_approver(self, approval_handler: ApprovalHandler | None) -> Executor:
        """Return an executor that asks another approval handler and shares everything else with this one.

        Registry, policy, journal, hooks, limits and metrics are the same objects: a policy that is assigned
        to one of the two counts for both.
        """
        derived = copy(self)
        derived._gate = ApprovalGate(self.settings, self._recorder, approval_handler)  # noqa: SLF001 - one of our own
        return derived

    def with_tools(self, registry: Registry, *, deadline: float | None = None) -> Executor:
        """Return an executor of other tools that shares journal, hooks, metrics and approver with this one.

        A policy that is assigned to this executor later also counts for the new one, but not the other way
        round. `deadline` is for tools that have none of their own.
        """
        derived = copy(self)
        settings = copy(self.settings)
        settings.registry = registry
        settings.deadline = self.settings.deadline if deadline is None else deadline
        derived.settings = settings
        derived._returning = Returning(settings)  # noqa: SLF001 - one of our own
        derived._returning.here = self._returning.here  # noqa: SLF001
        derived._recorder = Recorder(settings, self._metrics, self._returning.here)  # noqa: SLF001
        derived._gate = ApprovalGate(settings, derived._recorder, self._gate.handler)  # noqa: SLF001
        derived._derived = WeakSet()  # noqa: SLF001
        with _DERIVING:
            self._derived.add(derived)
        return derived

    def resume(self, key: int) -> ToolResult:
        """Resume a call of the journal: run a ready call after all checks, or wait for a decision.

        A finished call returns its answer; a call in doubt is not run. A worker uses this, or a program that
        was restarted.
        """
        attempt = self._resumed(key)
        return attempt if type(attempt) is ToolResult else drive(self._run_waiting(attempt, BLOCKING))

    async def aresume(self, key: int) -> ToolResult:
        """Do the same without blocking the event loop."""
        attempt = self._resumed(key)
        return attempt if type(attempt) is ToolResult else await self._run_waiting(attempt, LOOP)

    def recover(self) -> list[CallRecord]:
        """Recover calls whose process has ended; return the moved records as they are now.

        A call that was interrupted is in doubt unless its tool is idempotent, which makes it ready again, or
        the tool's own probe can tell whether it has happened. Open questions whose time is over are denied.
        """
        found = []
        for record in self._returning.recover():
            tool = self.settings.registry.get(record.call.tool)
            if tool is not None and record.state is State.IN_DOUBT:
                record = drive(self._returning.probed(record, tool, BLOCKING))  # noqa: PLW2901 - as it is now
            found.append(record)
        return found

    def edit(self, key: int, seal: str, arguments: Mapping[str, Any], by: str = "person") -> CallRecord:
        """Put edited arguments into an open question; it is asked again, with their effect.

        `seal` is the seal of the edited question. If the question is no longer open, MovedError tells how the
        call stands.
        """
        attempt = self._resumed(key)
        if type(attempt) is ToolResult:
            raise ExecutionError(attempt.error or f"call {key} is over")
        return drive(self._gate.edit(attempt, seal, dict(arguments), by, BLOCKING))

    def delivered(self, result: ToolResult) -> None:
        """Record that a caller that may return has this result; a call in doubt has none yet."""
        key = result.metadata.get("journal_key")
        if key is not None and "awaiting" not in result.metadata and "in_doubt" not in result.metadata:
            self.settings.journal.deliver(key)
            self._returning.here.discard(key)

    def undelivered(self, result: ToolResult) -> None:
        """Note that the caller left before this result, so a caller that returns gets it."""
        self._returning.here.discard(result.metadata.get("journal_key"))

    def _resumed(self, key: int) -> Attempt | ToolResult:
        """Return a call of the journal as an attempt that can resume, or its result."""
        record = self.settings.journal.record(key)
        if record is None:
            raise ExecutionError(f"the journal has no call {key}")
        call = record.call
        if record.state is State.EXECUTING:
            raise ExecutionError(standing(record))
        if record.state not in OPEN:
            return self._returning.answer(record, call.call_id)
        tool = self.settings.registry.resolve(call.tool)
        arguments = tool.checker.check(copy_json(dict(call.arguments)))
        verdict, places = self._judged(tool, arguments)
        attempt = Attempt(
            call.call_id, tool, arguments, verdict, key=key, identity=call.identity, places=places
        )
        if verdict.action is _DENY:
            text = f"The policy denies {tool.name}: {verdict.explanation}"
            return self._recorder.denied(attempt, Refuser.RULE, text)
        return attempt

    def execute_tool_calls(self, calls: Iterable[ToolCall | Mapping[str, Any]]) -> list[ToolResult]:
        """Run the calls of one answer, concurrently if all are safe, else one after the other."""
        batch = _batch(calls)
        if len(batch) > 1 and self._may_overlap(batch):
            with ThreadPoolExecutor(min(SIDE_BY_SIDE, len(batch)), "gramercy-batch") as pool:
                futures = [pool.submit(copy_context().run, self.execute, call) for call in batch]
                return [future.result() for future in futures]
        return [self.execute(call) for call in batch]

    async def aexecute_tool_calls(self, calls: Iterable[ToolCall | Mapping[str, Any]]) -> list[ToolResult]:
        """Run the calls of one answer from async code, concurrently if all are safe."""
        batch = _batch(calls)
        if len(batch) < 2 or not self._may_overlap(batch):  # noqa: PLR2004 - one call has no side
            return [await self.aexecute(call) for call in batch]
        places = asyncio.Semaphore(SIDE_BY_SIDE)

        async def in_place(call: Any) -> ToolResult:
            async with places:
                return await self.aexecute(call)

        return list(await asyncio.gather(*map(in_place, batch)))

    @property
    def policy(self) -> Policy:
        """The rules in force; after another policy is assigned, pending approvals are asked again."""
        return self.settings.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self.settings.policy = self._capped(policy)
        with _DERIVING:
            others = list(self._derived)
        for derived in others:
            derived.policy = policy

    @property
    def approval_handler(self) -> ApprovalHandler | None:
        """The function that is asked; if it is None, calls that need approval are denied."""
        return self._gate.handler

    @property
    def journal(self) -> Journal:
        """The journal that records the moves of every call."""
        return self.settings.journal

    @property
    def hooks(self) -> list[Hook]:
        """The observers; append to add one."""
        return self.settings.hooks

    def tools(self) -> list[Tool]:
        """List the tools that callers may know of: those at or below the ceiling."""
        return self.settings.registry.select(max_safety_level=self.policy.max_safety_level)

    def why(self, name: str, arguments: Mapping[str, Any] | str | bytes) -> Verdict:
        """Tell what would happen to a call and which rule decides, without running it."""
        tool = self.settings.registry.resolve(name)
        given, _ = tool.renamed(read_arguments(arguments))
        checked = tool.checker.check(given)
        return self.policy.why(tool, checked, tool.places(checked))

    def metrics(self) -> dict[str, ToolMetrics]:
        """Return the figures of every tool called so far, by name."""
        return self._metrics.snapshot()

    def metrics_table(self) -> str:
        """Return the figures as a text table."""
        return metrics_table(self.metrics())

    def _capped(self, policy: Policy) -> Policy:
        """Return the policy under this executor's own ceiling, which no later policy can raise."""
        if not isinstance(policy, Policy):
            raise InvalidPolicyError(f"a policy must be a Policy, not {type(policy).__name__}")
        return policy.under(self._ceiling)

    def _prepare(self, call: Any) -> Attempt | ToolResult:
        """Look up, validate, transform and judge; a call that fails here gets its result here."""
        tool = None
        try:
            call_id, name, arguments = read_call(call)
            settings = self.settings
            tool = settings.registry.get(name) or settings.registry.resolve(name)
            if type(arguments) is not dict:
                arguments = read_arguments(arguments)
            checker = tool.checker
            checked, copied, note = checker.check_quickly(arguments), _copy_nested, ""
            if checked is None:
                arguments, note = tool.renamed(arguments)
                checked = checker.check_thoroughly(arguments)
            elif checker.flat:
                copied = _copy_flat
            if settings.transforms:
                checked = transformed(settings.transforms, tool, checked, seconds=settings.hook_deadline)
                copied = _copy_nested
            places = None
            if tool.paths is None:
                policy = settings.policy
                verdict = policy.settled.get(tool) or policy.why(tool, checked)
            else:
                verdict, places = self._judged(tool, checked)
        except BaseException as error:
            if must_pass(error):
                raise
            return self._refused(call, error, tool)
        attempt = Attempt(call_id, tool, checked, verdict, copied, note, places=places)
        if verdict.action is _DENY:
            text = f"The policy denies {tool.name}: {verdict.explanation}"
            return self._recorder.denied(attempt, Refuser.RULE, text)
        return attempt

    def _judged(self, tool: Tool, arguments: dict[str, Any]) -> tuple[Verdict, Mapping[str, Place] | None]:
        """Judge a call by where its paths lead; return these places, the only ones that the tool may use."""
        policy, paths = self.settings.policy, tool.paths
        settled = policy.settled.get(tool)
        if paths is None or (settled is not None and not paths.writes):
            # No rule depends on where the paths lead, so the tool resolves them itself.
            return settled or policy.why(tool, arguments), None
        places = paths.find(arguments)
        policy.withhold(tool, arguments, places)
        return policy.why(tool, arguments, places), places

    def _refused(self, call: Any, error: BaseException, tool: Tool | None) -> ToolResult:
        if tool is not None and isinstance(error, InvalidArgumentsError) and error.tool is None:
            # The faults were found in the text before the tool was known: add its name and an example.
            with suppress(GramercyError):
                from gramercy.tools.faults import explain_faults

                found = PlainCopy(None, list(error.faults), len(error.faults))
                error = explain_faults(tool.checker.validator, tool.schema, found, tool=tool.name)
        hint = ""
        if isinstance(error, UnknownToolError):
            # The error is word for word that of the contract; the hint is below it in the model's text.
            hint, error = error.hint or self._named(), UnknownToolError(error.name)
        return self._recorder.refused(id_of(call), error, tool, hint)

    def _named(self) -> str:
        names = [known.name for known in self.tools()]
        return f"\nThe tools are {listed(names, MOST_NAMED)}" if names else ""

    def _start(self, call: Any, caller: Caller) -> Outcome:
        """Run a call on the plain path and return its result, or return an awaitable of the waiting path."""
        attempt = self._prepare(call)
        if type(attempt) is ToolResult:
            return attempt
        tool = attempt.tool
        # The plain path is for calls that can run right here: without question, deadline, trace or thread.
        if (
            attempt.verdict.action is not _ALLOW
            or not tool.is_plain
            or self.settings.deadline is not None
            or not (caller is BLOCKING or tool.inline or tool.async_handler)
            or (_API in _modules and telemetry.active_tracer() is not None)
            or (tool.safety_level is _DANGEROUS and self.settings.is_shared and current_call().identity)
        ):
            return later(self._run_waiting, attempt, caller)
        handler = tool.handler if caller is BLOCKING else tool.async_handler or tool.handler
        try:
            self._recorder.started(attempt)
            value = handler(attempt.copied(attempt.arguments) if attempt.places is None else attempt.placed())
            if type(value) is not str and type(value) not in _PLAIN_RESULTS and isawaitable(value):
                rest = self._settle(attempt, caller.finish(value, Limit(tool.name, None)))
                return begun(rest) if tool.async_handler is not None and caller is LOOP else rest
        except BaseException as error:  # noqa: BLE001 - sorted out by _rescued
            return self._rescued(attempt, error, must_pass)
        return self._recorder.returned(attempt, value)

    async def _run_waiting(self, attempt: Attempt, caller: Caller) -> ToolResult:
        """Run a call on the waiting path: approval, then the handler under its deadline, both traced."""
        trace = telemetry.CallTrace(attempt.tool, attempt.call_id) if _API in _modules else None
        result = None
        try:
            if attempt.verdict.action is _ASK or attempt.tool.safety_level is _DANGEROUS:
                result = await self._returned_to(attempt, caller)
            if result is None and (attempt.verdict.action is _ASK or attempt.key):
                with trace.span() if trace else _UNTRACED:
                    result = await self._gate.admit(attempt, caller)
            if result is None:
                with trace.span() if trace else _UNTRACED:
                    result = await self._ran(attempt, caller)
        except BaseException:
            self._returning.here.discard(attempt.key)
            raise
        return trace.finished(result) if trace else result

    async def _ran(self, attempt: Attempt, caller: Caller) -> ToolResult:
        """Run an admitted call; if another process already runs it, return the answer of that run."""
        result = None if attempt.is_lost else await self._settle(attempt, self._call_handler(attempt, caller))
        return await self._returning.joined(attempt, caller) if result is None or attempt.is_lost else result

    async def _returned_to(self, attempt: Attempt, caller: Caller) -> ToolResult | None:
        """Return the stored answer to a caller that has returned for it."""
        if attempt.key or not self.settings.is_shared:
            return None
        call = current_call()
        attempt.identity, attempt.is_unique = call.identity, call.is_unique
        if not attempt.identity:
            return None
        try:
            return await self._returning.take(attempt, caller)
        except BaseException as error:
            if ends_pipeline(error):
                raise
            text = f"{attempt.tool.name} was not run: {error_text(error)}"
            return self._recorder.denied(attempt, Refuser.GUARD, text)

    async def _call_handler(self, attempt: Attempt, caller: Caller) -> Any:
        self._recorder.started(attempt)
        tool = attempt.tool
        limit = Limit(tool.name, self.settings.deadline if tool.deadline is None else tool.deadline)
        handler = tool.handler if caller is BLOCKING else tool.async_handler or tool.handler
        given = attempt.given()
        if attempt.approval is not None and not attempt.approval.is_for(given):
            raise ExecutionError("it was not run: these are not the arguments that were approved")
        return await caller.call(handler, attempt.placed(), limit=limit, inline=tool.inline)

    async def _settle(self, attempt: Attempt, waiting: Awaitable[Any]) -> ToolResult:
        """Make a result of a handler's awaitable."""
        try:
            value = await waiting
        except BaseException as error:  # noqa: BLE001 - sorted out by _rescued
            return self._rescued(attempt, error, ends_pipeline)
        return self._recorder.returned(attempt, value)

    def _rescued(
        self, attempt: Attempt, error: BaseException, passes: Callable[[BaseException], bool]
    ) -> ToolResult:
        """Make a result of an exception, unless it is the caller's own interruption."""
        if passes(error):
            self._recorder.cancelled(attempt, error)
            raise error
        return self._recorder.raised(attempt, error)

    def _may_overlap(self, batch: list[Any]) -> bool:
        """Tell whether calls may run concurrently: all safe, none needs approval, not all trivial."""
        found = [self.settings.registry.find(_name_of(call)) for call in batch]
        tools = [tool for tool in found if tool is not None]
        if any(tool.safety_level is not Safety.SAFE or self.policy.may_ask(tool) for tool in tools):
            return False
        return not all(tool.inline for tool in tools)


def _batch(calls: Any) -> list[Any]:
    if isinstance(calls, ToolCall | Mapping):
        return [calls]
    if isinstance(calls, str | bytes) or not isinstance(calls, Iterable):
        raise InvalidCallError(f"expected a list of calls, received {type(calls).__name__}")
    return list(calls)


def _name_of(call: Any) -> Any:
    with suppress(Exception):  # a mapping may raise anything; reading the call will say what is wrong
        return call.name if isinstance(call, ToolCall) else call.get("name")
    return None


def id_of(raw: Any) -> str:
    """Return the id under which the result of this call is reported, even if the call is invalid."""
    try:
        if type(raw) is dict:
            found = raw.get("id")
        else:
            found = (
                raw.id if isinstance(raw, ToolCall) else raw.get("id") if isinstance(raw, Mapping) else None
            )
        return found if isinstance(found, str) else "" if found is None else str(found)[:LONGEST_ID]
    except Exception:  # noqa: BLE001 - a mapping may raise anything; its call is refused anyway
        return ""


def read_call(raw: Any) -> tuple[str, str, Any]:
    """Return id, name and arguments of a call, or raise InvalidCallError saying what is missing."""
    kind = type(raw)
    if kind is dict:
        try:
            # Most calls have all three, and indexing costs a third of `get`.
            call_id, name, arguments = raw["id"], raw["name"], raw["arguments"]
        except KeyError:
            raise _misshapen(raw) from None
    elif kind is ToolCall or isinstance(raw, ToolCall):
        call_id, name, arguments = raw.id, raw.name, raw.arguments
    elif isinstance(raw, Mapping):
        return read_call(dict(raw))
    else:
        raise InvalidCallError(f"a call must be an object such as {CALL_SHAPE}, not {kind.__name__}")
    if not name or not isinstance(name, str):
        raise InvalidCallError(f"the call names no tool: expected {CALL_SHAPE}")
    if not isinstance(call_id, str):
        raise InvalidCallError(
            f"the id of the call is {type(call_id).__name__}, not text: expected {CALL_SHAPE}"
        )
    return call_id, name, arguments


def _misshapen(raw: Mapping[str, Any]) -> InvalidCallError:
    """Say what a call lacks; without a name nothing else matters."""
    missing = [key for key in ("id", "arguments") if key not in raw]
    told = f"has no {' and no '.join(missing)}" if raw.get("name") else "names no tool"
    return InvalidCallError(f"the call {told}: expected {CALL_SHAPE}")
