"""The express lane: the executor's order of one call, in one piece, for calls that need nothing special.

Most calls are plain: a dictionary that names a safe tool, flat arguments that fit, a settled verdict, nothing
to wait for or to trace. What is not so goes back to the ordinary road before anything has happened, and a
handler that surprises is handed over to it. A test holds both roads to the same results, journal, metrics
and hooks.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

from gramercy.errors import GramercyError
from gramercy.execution import telemetry
from gramercy.execution.attempt import Attempt
from gramercy.execution.calls import ToolResult
from gramercy.execution.journal import State
from gramercy.execution.observers import hook_failed, refuse_answer
from gramercy.execution.output import error_text
from gramercy.execution.policy import Action
from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from gramercy.execution.metrics import Metrics
    from gramercy.execution.observers import Hook
    from gramercy.execution.settings import Settings
    from gramercy.tools.tool import Tool

Outcome: TypeAlias = "ToolResult | Coroutine[Any, Any, ToolResult]"

# Looking a member up in its enum costs as much as a dictionary copy.
_ALLOW, _SAFE, _DONE = Action.ALLOW, Safety.SAFE, State.DONE


class ExpressLane:
    """Runs plain calls of one executor. `finish` and `rescue` are the ordinary road's endings."""

    __slots__ = ("finish", "metrics", "rescue", "settings")

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        finish: Callable[[Attempt, Any, float], Outcome],
        rescue: Callable[[Attempt, BaseException, float], ToolResult],
    ) -> None:
        self.settings = settings
        self.metrics = metrics
        self.finish = finish
        self.rescue = rescue

    def admitted(self, call: Any) -> Tool | None:
        """Return the tool of a call that may take this lane, as far as can be told without its arguments."""
        if type(call) is not dict or type(call.get("id")) is not str:
            return None
        name, settings = call.get("name"), self.settings
        tool = settings.registry.get(name) if type(name) is str else None
        if (
            tool is None
            or not tool.is_plain
            or tool.safety_level is not _SAFE
            or settings.transforms
            or settings.deadline is not None
            or settings.hook_deadline is not None
        ):
            return None
        verdict = settings.policy.settled.get(tool)
        if verdict is None or verdict.action is not _ALLOW or telemetry.active_tracer() is not None:
            return None
        return tool

    def run(self, tool: Tool, call: Any) -> Outcome | None:
        """Run an admitted call; None when its arguments want a closer look."""
        try:
            arguments = tool.checker.check_flat(call.get("arguments"))
        except GramercyError:  # a schema that cannot be compiled; the ordinary road says so
            return None
        if arguments is None:
            return None
        settings = self.settings
        started = 0.0
        try:
            for hook in settings.hooks:
                self._tell_before(hook, tool, arguments)
            started = perf_counter()
            value = tool.handler(arguments.copy())
        except BaseException as error:  # noqa: BLE001 - sorted out by the ordinary road
            return self.rescue(self._attempt(tool, call, arguments), error, started)
        seconds = perf_counter() - started
        if type(value) is not str or len(value) > settings.max_output or not value.isascii():
            return self.finish(self._attempt(tool, call, arguments), value, started)
        return self._succeeded(tool, call["id"], arguments, value, seconds * 1000.0)

    def _tell_before(self, hook: Hook, tool: Tool, arguments: dict[str, Any]) -> None:
        try:
            answer = hook("before", tool, arguments.copy(), None)
            if answer is not None:
                refuse_answer(hook, answer)
        except BaseException as error:  # noqa: BLE001 - passed on by hook_failed if it is the caller's
            hook_failed(hook, "before", error)

    def _succeeded(
        self, tool: Tool, call_id: str, arguments: dict[str, Any], content: str, elapsed_ms: float
    ) -> ToolResult:
        metadata: dict[str, Any] = {"execution_time_ms": elapsed_ms, "safety_level": tool.level_word}
        settings = self.settings
        self.metrics.record(tool.name, elapsed_ms, len(content))
        try:
            settings.journal.note(_DONE, call_id, tool.name)
        except Exception as error:  # noqa: BLE001 - the handler has run: its result must not be lost
            metadata["journal_error"] = error_text(error)
        for hook in settings.hooks:
            seen = ToolResult(call_id, True, content, None, metadata.copy())  # noqa: FBT003 - by position: every call pays
            try:
                answer = hook("after", tool, arguments.copy(), seen)
                if answer is not None:
                    refuse_answer(hook, answer)
            except BaseException as error:  # noqa: BLE001 - as above
                hook_failed(hook, "after", error)
        return ToolResult(call_id, True, content, None, metadata)  # noqa: FBT003 - as above

    def _attempt(self, tool: Tool, call: Any, arguments: dict[str, Any]) -> Attempt:
        return Attempt(call["id"], tool, arguments, self.settings.policy.settled[tool], flat=True)
