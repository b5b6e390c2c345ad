"""The express lane: the executor's order of one call, in one piece, for calls that need nothing special.

Most calls are plain: a dictionary that names a safe tool, flat arguments that fit, a settled verdict, nothing
to wait for or to trace. What is not so goes back to the ordinary road before anything has happened, and a
handler that surprises is handed over to it. A test holds both roads to the same results, journal, metrics
and hooks. Everything here is written for speed: a Python call costs as much as a dictionary copy.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

from gramercy.execution import telemetry
from gramercy.execution.calls import ToolResult, error_text, read_flat_json
from gramercy.execution.hooks import hook_failed, refuse_answer
from gramercy.execution.journal import State
from gramercy.execution.metrics import SAMPLES
from gramercy.execution.policy import Action
from gramercy.execution.results import Attempt
from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from gramercy.execution.executor import Settings
    from gramercy.execution.metrics import Metrics
    from gramercy.tools.tool import Tool

Outcome: TypeAlias = "ToolResult | Coroutine[Any, Any, ToolResult]"

_ALLOW, _SAFE, _DONE = Action.ALLOW, Safety.SAFE, State.DONE
_modules = sys.modules


class ExpressLane:
    """Runs plain calls of one executor. `finish` and `rescue` are the ordinary road's endings."""

    __slots__ = ("finish", "inline_only", "metrics", "rescue", "settings")

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        finish: Callable[[Attempt, Any, float], Outcome],
        rescue: Callable[[Attempt, BaseException, float], ToolResult],
        *,
        inline_only: bool,
    ) -> None:
        self.settings = settings
        self.metrics = metrics
        self.finish = finish
        self.rescue = rescue
        self.inline_only = inline_only

    def run(self, call: Any) -> Outcome | None:
        """Run a call from end to end, or return None, with nothing done, if it is not for this lane."""
        if type(call) is not dict:
            return None
        settings = self.settings
        name, call_id = call.get("name"), call.get("id")
        tool = settings.registry.get(name) if type(name) is str else None
        if tool is None or type(call_id) is not str or not self._is_open(tool, settings):
            return None
        arguments = call.get("arguments")
        if type(arguments) is str:
            arguments = read_flat_json(arguments)
        arguments = tool.checker.check_flat(arguments)
        if arguments is None:
            return None
        started = 0.0
        try:
            for hook in settings.hooks:
                try:
                    answer = hook("before", tool, arguments.copy(), None)
                    if answer is not None:
                        refuse_answer(hook, answer)
                except BaseException as error:  # noqa: BLE001 - passed on by hook_failed if it is the caller's
                    hook_failed(hook, "before", error)
            started = perf_counter()
            value = tool.handler(arguments.copy())
        except BaseException as error:  # noqa: BLE001 - sorted out by the ordinary road
            return self.rescue(self._attempt(tool, call_id, arguments), error, started)
        elapsed_ms = (perf_counter() - started) * 1000.0
        if type(value) is not str or len(value) > settings.max_output or not value.isascii():
            return self.finish(self._attempt(tool, call_id, arguments), value, started)
        return self._succeeded(tool, call_id, arguments, value, elapsed_ms)

    def _is_open(self, tool: Tool, settings: Settings) -> bool:
        """Tell whether calls of this tool need nothing special now."""
        if (
            not tool.is_plain
            or tool.safety_level is not _SAFE
            or (self.inline_only and not tool.inline)
            or settings.transforms
            or settings.deadline is not None
            or settings.hook_deadline is not None
        ):
            return False
        verdict = settings.policy.settled.get(tool)
        if verdict is None or verdict.action is not _ALLOW:
            return False
        return telemetry.API not in _modules or telemetry.active_tracer() is None

    def _succeeded(
        self, tool: Tool, call_id: str, arguments: dict[str, Any], content: str, elapsed_ms: float
    ) -> ToolResult:
        metadata: dict[str, Any] = {"execution_time_ms": elapsed_ms, "safety_level": tool.level_word}
        settings, recent = self.settings, self.metrics.recent
        recent.append((tool.name, elapsed_ms, len(content)))
        if len(recent) > SAMPLES:
            self.metrics.fold()
        try:
            settings.journal.note(_DONE, call_id, tool.name)
        except Exception as error:  # noqa: BLE001 - the handler has run: its result must not be lost
            metadata["journal_error"] = error_text(error)
        for hook in settings.hooks:
            seen = ToolResult(call_id, True, content, None, metadata.copy())  # noqa: FBT003 - by position, for speed
            try:
                answer = hook("after", tool, arguments.copy(), seen)
                if answer is not None:
                    refuse_answer(hook, answer)
            except BaseException as error:  # noqa: BLE001 - passed on by hook_failed if it is the caller's
                hook_failed(hook, "after", error)
        return ToolResult(call_id, True, content, None, metadata)  # noqa: FBT003 - by position, for speed

    def _attempt(self, tool: Tool, call_id: str, arguments: dict[str, Any]) -> Attempt:
        return Attempt(call_id, tool, arguments, self.settings.policy.settled[tool], flat=True)
