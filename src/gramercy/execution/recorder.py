"""Turn what happened into results, and tell the journal, the metrics and the observers about it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from gramercy.errors import DeadlineExceededError, GramercyError
from gramercy.execution.calls import ToolOutput, ToolResult
from gramercy.execution.journal import State
from gramercy.execution.observers import notify
from gramercy.execution.output import error_text, text_for_model
from gramercy.execution.seal import canonical_text
from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from gramercy.execution.attempt import Attempt
    from gramercy.execution.metrics import Metrics
    from gramercy.execution.settings import Settings

# Names and levels only: arguments may hold secrets, and logs travel.
audit = logging.getLogger("gramercy.audit")


class Recorder:
    """Makes every ToolResult of an executor, so that no result leaves without its trace."""

    __slots__ = ("metrics", "settings")

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings = settings
        self.metrics = metrics

    def move(self, attempt: Attempt, state: State, detail: str = "") -> None:
        """Record where the call is now; a journal that cannot raises, and the call goes no further."""
        journal = self.settings.journal
        if not attempt.key:
            attempt.key = journal.open()
            if state is not State.EXECUTING:
                shown = canonical_text(attempt.arguments)
                journal.move(
                    attempt.key, State.REQUESTED, call_id=attempt.call_id, tool=attempt.tool.name, detail=shown
                )
        journal.move(attempt.key, state, call_id=attempt.call_id, tool=attempt.tool.name, detail=detail)

    def started(self, attempt: Attempt) -> None:
        """Record that the handler is about to run; from here on its effects must be expected.

        A safe call has none, so it is recorded once, when it is over.
        """
        tool = attempt.tool
        if tool.safety_level is not Safety.SAFE or attempt.key:
            self.move(attempt, State.EXECUTING, canonical_text(attempt.arguments))
            audit.info("%s tool %s runs as call %s", tool.level_word, tool.name, attempt.call_id)
        hooks = self.settings.hooks
        if hooks:
            notify(hooks, "before", tool, attempt.arguments, None, seconds=self.settings.hook_deadline)

    def returned(self, attempt: Attempt, value: Any, seconds: float) -> ToolResult:
        """Make the result of a handler that returned."""
        error = None
        if isinstance(value, ToolOutput):
            error = value.error
            value = value.value
            if error is not None:
                value = _with_error(value, error)
        content = text_for_model(value, self.settings.max_output)
        if attempt.edited:
            content = f"{_edit_note(attempt)}\n{content}"
        return self._finished(attempt, content, error, seconds)

    def raised(self, attempt: Attempt, problem: BaseException, seconds: float) -> ToolResult:
        """Make the result of a handler that raised or ran out of time."""
        in_doubt = isinstance(problem, DeadlineExceededError) and not attempt.tool.is_async
        text = f"Tool error: {problem if isinstance(problem, GramercyError) else error_text(problem)}"
        if in_doubt:
            text += "; it was told to stop, but what it had begun may have taken effect"
        return self._finished(attempt, text, text, seconds, State.IN_DOUBT if in_doubt else State.FAILED)

    def _finished(
        self, attempt: Attempt, content: str, error: str | None, seconds: float, failure: State = State.FAILED
    ) -> ToolResult:
        elapsed_ms = seconds * 1000.0
        success = error is None
        tool = attempt.tool
        self.metrics.record(tool.name, elapsed_ms, len(content), success=success)
        metadata = attempt.metadata(elapsed_ms)
        self._close(attempt, State.DONE if success else failure, error or "", metadata)
        result = ToolResult(attempt.call_id, success, content, error, metadata)
        hooks = self.settings.hooks
        if hooks:
            phase = "after" if success else "error"
            notify(hooks, phase, tool, attempt.arguments, result, seconds=self.settings.hook_deadline)
        return result

    def _close(self, attempt: Attempt, state: State, detail: str, metadata: dict[str, Any]) -> None:
        try:
            if attempt.key or state is State.DENIED:
                self.move(attempt, state, detail)
            else:
                self.settings.journal.note(state, call_id=attempt.call_id, tool=attempt.tool.name, detail=detail)
        except Exception as error:  # noqa: BLE001 - the handler has run: its result must not be lost
            metadata["journal_error"] = error_text(error)

    def cancelled(self, attempt: Attempt) -> None:
        """Record a call whose caller has gone away; there is nobody to give a result to."""
        self._close(attempt, State.IN_DOUBT, "cancelled by the caller", {})

    def denied(self, attempt: Attempt, text: str) -> ToolResult:
        """Make the result of a call that may not run."""
        metadata = attempt.metadata(None)
        self._close(attempt, State.DENIED, text, metadata)
        self.metrics.record_refusal(attempt.tool.name, denied=True)
        return ToolResult(attempt.call_id, success=False, content=text, error=text, metadata=metadata)

    def refused(self, call_id: str, problem: BaseException, tool: str | None = None) -> ToolResult:
        """Make the result of a call that cannot run: unknown tool, wrong arguments, failing transform."""
        if tool is not None:
            self.metrics.record_refusal(tool, denied=False)
        text = str(problem) if isinstance(problem, GramercyError) else f"Tool error: {error_text(problem)}"
        return ToolResult(call_id, success=False, content=text, error=text, metadata={})


def _with_error(value: Any, error: str) -> Any:
    return error if value is None else f"{text_for_model(value, 1_000_000)}\n{error}"


def _edit_note(attempt: Attempt) -> str:
    return f"[A person changed the arguments before approving; the tool ran with {canonical_text(attempt.arguments)}]"
