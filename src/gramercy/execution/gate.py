"""The gate: asks whoever may approve, seals the answer to what was shown, and asks again when that has changed."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from gramercy.errors import DeadlineExceededError, GramercyError
from gramercy.execution.approval import (
    ApprovalRequest,
    Decision,
    Denied,
    Modified,
    read_decision,
    takes_request,
)
from gramercy.execution.journal import State
from gramercy.execution.observers import copy_arguments
from gramercy.execution.output import error_text
from gramercy.execution.policy import Action
from gramercy.execution.seal import Seal, seal_call
from gramercy.execution.waiting import must_pass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gramercy.execution.attempt import Attempt
    from gramercy.execution.calls import ToolResult
    from gramercy.execution.recorder import Recorder
    from gramercy.execution.settings import Settings
    from gramercy.execution.waiting import Caller

# A target that changes between every look and every answer is not something a person can approve.
MOST_QUESTIONS = 3


class _RefusalError(Exception):
    """Why a call may not pass; the text goes to the model."""


class Gate:
    """Lets an attempt pass once it is approved, or makes its refusal."""

    __slots__ = ("recorder", "settings")

    def __init__(self, settings: Settings, recorder: Recorder) -> None:
        self.settings = settings
        self.recorder = recorder

    async def admit(self, attempt: Attempt, caller: Caller) -> ToolResult | None:
        """Return None when the attempt may run, with the arguments that were approved, else its refusal."""
        try:
            await self._approve(attempt, caller)
        except _RefusalError as refusal:
            return self.recorder.denied(attempt, str(refusal))
        except Exception as error:  # noqa: BLE001 - the journal is a stranger's too: unrecorded means not run
            return self.recorder.denied(attempt, f"{attempt.tool.name} was not run: {error_text(error)}")
        return None

    async def _approve(self, attempt: Attempt, caller: Caller) -> None:
        if self.settings.approval_handler is None:
            raise _RefusalError(
                f"{attempt.tool.name} needs approval ({attempt.verdict.explanation}), "
                "but nobody can be asked: no approval handler is set. It was not run."
            )
        attempt.approved = False
        changes: tuple[str, ...] = ()
        for _ in range(MOST_QUESTIONS):
            seal = await self._ask_once(attempt, caller, changes)
            changes = tuple(self._drift(attempt, seal))
            if not changes:
                attempt.approved = True
                self.recorder.move(attempt, State.READY, seal.digest)
                return
        raise _RefusalError(f"{attempt.tool.name} was not run: {'; '.join(changes)} while it was being approved")

    async def _ask_once(self, attempt: Attempt, caller: Caller, changes: tuple[str, ...]) -> Seal:
        """Ask, and return the seal of what was approved; edited arguments get a seal of their own."""
        seal = self._seal(attempt)
        self.recorder.move(attempt, State.AWAITING, "; ".join(changes))
        started = perf_counter()
        decision = await self._decision(attempt, seal, caller, changes)
        attempt.wait_ms += (perf_counter() - started) * 1000.0
        self.recorder.metrics.record_approval(attempt.tool.name, attempt.wait_ms)
        if isinstance(decision, Denied):
            raise _RefusalError(f"User denied tool execution{f': {decision.reason}' if decision.reason else ''}")
        attempt.approved_by = decision.by
        if isinstance(decision, Modified):
            self._edit(attempt, decision.arguments)
            return self._seal(attempt)
        return seal

    async def _decision(
        self, attempt: Attempt, seal: Seal, caller: Caller, changes: tuple[str, ...]
    ) -> Decision:
        handler = self.settings.approval_handler
        assert handler is not None  # noqa: S101 - admitted only with a handler; this tells mypy
        shown = copy_arguments(attempt.arguments)
        request = ApprovalRequest(attempt.tool, shown, attempt.verdict, seal, changes)
        question = (attempt.tool, shown, request) if takes_request(handler) else (attempt.tool, shown)
        limit = self.settings.approval_deadline
        try:
            return read_decision(await caller.call(handler, *question, what="the approval", seconds=limit))
        except DeadlineExceededError:
            return Denied(f"nobody answered within {limit:g} s")
        except BaseException as error:
            if must_pass(error):
                raise
            return Denied(f"the approval handler failed: {error_text(error)}")

    def _edit(self, attempt: Attempt, arguments: Mapping[str, Any]) -> None:
        """Take over edited arguments; they must fit the schema and must not meet a rule that denies."""
        try:
            attempt.arguments = attempt.tool.checker.check(dict(arguments))
        except GramercyError as error:
            raise _RefusalError(f"the edited arguments cannot be used, so nothing was run. {error}") from None
        attempt.edited = True
        verdict = self.settings.policy.why(attempt.tool, attempt.arguments)
        if verdict.action is Action.DENY:
            raise _RefusalError(f"the policy denies the edited call: {verdict.explanation}")

    def _drift(self, attempt: Attempt, approved: Seal) -> list[str]:
        """List what is no longer as it was when the person decided, and take over what is there now."""
        current = self.settings.registry.get(attempt.tool.name)
        if current is None:
            return ["the tool is gone"]
        if current is not attempt.tool:
            attempt.tool = current
            self._recheck(attempt)
        verdict = self.settings.policy.why(attempt.tool, attempt.arguments)
        if verdict.action is Action.DENY:
            raise _RefusalError(f"the policy now denies the call: {verdict.explanation}")
        attempt.verdict = verdict
        return approved.drift(self._seal(attempt))

    def _recheck(self, attempt: Attempt) -> None:
        try:
            attempt.arguments = attempt.tool.checker.check(attempt.arguments)
        except GramercyError as error:
            raise _RefusalError(f"the tool changed while it was being approved. {error}") from None

    def _seal(self, attempt: Attempt) -> Seal:
        try:
            version = self.settings.policy.version
            return seal_call(attempt.tool, attempt.arguments, version, lifetime=self.settings.approval_deadline)
        except Exception as error:  # noqa: BLE001 - target_state is a stranger's function
            raise _RefusalError(
                f"{attempt.tool.name} was not run: the state of its target cannot be told ({error_text(error)})"
            ) from None
