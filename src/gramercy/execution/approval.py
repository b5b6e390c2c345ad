"""Approval: what a person can answer, and the gate that asks, seals the answer and asks again after a change.

Any answer that is not clearly a yes counts as a no. The gate runs nothing but what the tool offers for the
question: the state of its target and the preview of its effect.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from gramercy.errors import DeadlineExceededError, ExecutionError, GramercyError
from gramercy.execution.callers import Limit, ends_pipeline
from gramercy.execution.calls import clean, error_text
from gramercy.execution.policy import Action
from gramercy.execution.results import Approval, Refuser
from gramercy.execution.seal import Seal, seal_call
from gramercy.execution.shown import barred, folded, is_difference, revealed, told_by, unshown, written
from gramercy.journal.base import Facts, Ruling, State

if TYPE_CHECKING:
    from gramercy.execution.callers import Caller
    from gramercy.execution.calls import ToolResult
    from gramercy.execution.executor import Settings
    from gramercy.execution.policy import Verdict
    from gramercy.execution.results import Attempt, Recorder
    from gramercy.tools.tool import Tool

ApprovalHandler: TypeAlias = Callable[..., Any]
# A few paragraphs: more than people type, less than would crowd out the model's context.
LONGEST_REASON = 2_000
REFUSERS = tuple(refuser.value for refuser in Refuser)
# The note on a reviewed edit quotes the rejected hunks, so it needs more room than a reason.
LONGEST_NOTE = 8_000
# A target that changes between every look and every answer is not something a person can approve.
MOST_QUESTIONS = 3
# The person waits for the preview before seeing the question; it may have to fork an image and run code.
EFFECT_SECONDS = 20.0
# More than any call can carry; what is shown of it is up to the channel, which shows all or none.
LONGEST_EFFECT = 16_000_000


class Approved(msgspec.Struct, frozen=True):
    """Run the call as shown. The `reason` is kept, and told to the model.

    `shown` is the text that the person saw. Where it is given, it must hold all of the call, else nothing is
    run; a handler that decides by itself was handed the whole call, and gives none.
    """

    by: str = "person"
    reason: str = ""
    shown: str | None = None


class Denied(msgspec.Struct, frozen=True):
    """Do not run the call. A handler that could not reach the person says so with another `refuser`.

    Then the reason is what the model is told after "NAME was not run:".
    """

    reason: str = ""
    refuser: str = Refuser.PERSON


class Modified(msgspec.Struct, frozen=True):
    """Run the call with these arguments instead; a `note` tells the model what was changed."""

    arguments: Mapping[str, Any] = msgspec.field(default_factory=dict)
    by: str = "person"
    note: str = ""
    reason: str = ""
    shown: str | None = None


Decision: TypeAlias = Approved | Denied | Modified


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """Everything a person should see before deciding.

    `changes` says why the question comes again, `effect` what the call would do, where the tool can tell.
    """

    tool: Tool
    arguments: dict[str, Any]
    verdict: Verdict
    seal: Seal
    changes: tuple[str, ...] = ()
    effect: str = ""

    @property
    def told(self) -> frozenset[str]:
        """The names of the arguments that the effect shows, so that they need not be repeated."""
        return told_by(self.effect, self.arguments, self.tool.edit_arguments)

    def arguments_text(self) -> str:
        """Write all arguments that the effect does not show, nothing cut and nothing hidden."""
        told = self.told
        parts = [written(name, value) for name, value in self.arguments.items() if name not in told]
        return folded(revealed("\n".join(parts)))

    def effect_text(self) -> str:
        """Write the effect, nothing cut and nothing hidden."""
        # Only the difference of an edit has marks of its own; the rest may be the words of an image.
        is_marked = self.tool.edits is not None and is_difference(self.effect)
        effect = self.effect.rstrip("\n")
        if effect and not is_marked:
            # A line of our own, so that the end of a value cannot pass for the beginning of this.
            effect = f"What it would do:\n{barred(effect)}"
        return folded(revealed(effect))

    def text(self) -> str:
        """Write the whole question, on lines that fit a screen."""
        lines = [f"{self.tool.name} ({self.tool.level_word})"]
        lines += [f"Asked again: {change}" for change in self.changes]
        lines += [text for text in (self.arguments_text(), self.effect_text()) if text]
        return "\n".join([*lines, folded(revealed(f"Asked because {self.verdict.explanation}"))])

    def unshown(self, text: str) -> str | None:
        """Name the first part of the call that a text leaves out; None when it shows all of it."""
        return unshown(text, self.effect, self.arguments, self.tool.edit_arguments)


def read_decision(answer: Any) -> Decision:
    """Turn a handler's answer into a decision; whatever is not clearly a yes is a no."""
    decision = _read_words(answer)
    if isinstance(decision, Denied) and isinstance(decision.reason, str) and decision.refuser in REFUSERS:
        return Denied(clean(decision.reason[:LONGEST_REASON]), Refuser(decision.refuser))
    if isinstance(decision, Approved | Modified) and _is_well_formed(decision):
        reason = decision.reason and clean(decision.reason[:LONGEST_REASON])
        if isinstance(decision, Approved):
            return msgspec.structs.replace(decision, reason=reason)
        return msgspec.structs.replace(decision, note=_bounded(decision.note), reason=reason)
    return Denied(
        f"the approval handler answered {_shown(answer)}, "
        "which is neither 'approved', 'denied' nor ('modified', arguments)",
        Refuser.APPROVER,
    )


def _is_well_formed(decision: Approved | Modified) -> bool:
    texts: list[Any] = [decision.by, decision.reason, "" if decision.shown is None else decision.shown]
    given: Any = {}
    if isinstance(decision, Modified):
        texts, given = [*texts, decision.note], decision.arguments
    return isinstance(given, Mapping) and all(isinstance(text, str) for text in texts)


def _bounded(note: str) -> str:
    return clean(note if len(note) <= LONGEST_NOTE else f"{note[:LONGEST_NOTE]}…")


def _read_words(answer: Any) -> Any:
    """Read the seeds' words; anything else is returned as it is."""
    if isinstance(answer, str):
        return {"approved": Approved(), "denied": Denied()}.get(answer.removeprefix(":"), answer)
    if isinstance(answer, tuple | list) and len(answer) == 2:  # noqa: PLR2004 - ("modified", arguments)
        word, detail = answer
        if isinstance(word, str) and word.removeprefix(":") == "modified":
            return Modified(detail)
        if isinstance(word, str) and word.removeprefix(":") == "denied":
            return Denied(detail)
    return answer


def _shown(answer: Any) -> str:
    try:
        return clean(repr(answer)[:80])
    except Exception:  # noqa: BLE001 - a broken printer must not turn a refusal into a crash
        return f"a {type(answer).__name__}"


def _refusal(tool: Tool, decision: Denied) -> str:
    """Say who refused: the seed's words are for a person's decision alone."""
    if decision.refuser != Refuser.PERSON:
        return f"{tool.name} was not run: {decision.reason}"
    return (
        f"User denied tool execution: {decision.reason}" if decision.reason else "User denied tool execution"
    )


def takes_request(handler: ApprovalHandler) -> bool:
    """Tell whether a handler wants the whole request as a third argument after tool and arguments."""
    try:
        inspect.signature(handler).bind(None, None, None)
    except (TypeError, ValueError):
        return False
    return True


class _RefusalError(Exception):
    """Why a call may not pass; never leaves the gate, and its text goes to the model."""

    def __init__(self, text: str, refuser: Refuser = Refuser.GUARD) -> None:
        super().__init__(text)
        self.refuser = refuser


class ApprovalGate:
    """Lets an attempt pass once it is approved, or makes its refusal."""

    __slots__ = ("handler", "recorder", "settings")

    def __init__(self, settings: Settings, recorder: Recorder, handler: ApprovalHandler | None) -> None:
        """Refuse a handler that would only show its fault when a person should be asked."""
        if handler is not None and not callable(handler):
            raise ExecutionError(
                f"the approval handler is {type(handler).__name__}: expected a function or None"
            )
        self.settings = settings
        self.recorder = recorder
        self.handler = handler

    async def admit(self, attempt: Attempt, caller: Caller) -> ToolResult | None:
        """Return None when the attempt may run, with the arguments that were approved, else its refusal."""
        try:
            await self._approve(attempt, caller)
        except _RefusalError as refusal:
            return self.recorder.denied(attempt, refusal.refuser, str(refusal))
        except BaseException as error:
            if ends_pipeline(error):
                self.recorder.withdrawn(attempt)
                raise
            # The journal too may raise anything: what cannot be recorded is not run.
            text = f"{attempt.tool.name} was not run: {error_text(error)}"
            return self.recorder.denied(attempt, Refuser.GUARD, text)
        return None

    async def _approve(self, attempt: Attempt, caller: Caller) -> None:
        if self.handler is None:
            raise _RefusalError(
                f"{attempt.tool.name} was not run: it needs approval ({attempt.verdict.explanation}), "
                "but nobody can be asked: no approval handler is set",
                Refuser.NOBODY,
            )
        approval = attempt.approval = Approval()
        changes: tuple[str, ...] = ()
        for _ in range(MOST_QUESTIONS):
            seal = await self._ask_once(attempt, approval, caller, changes)
            changes = tuple(await self._drift(attempt, seal, caller))
            if not changes:
                ruling = Ruling(approved=True, by=approval.by or "", seal=seal.digest, reason=approval.reason)
                self.recorder.move(attempt, State.READY, Facts(detail=approval.reason, ruling=ruling))
                approval.approved, approval.seal = True, seal
                return
        changed = "; ".join(changes)
        raise _RefusalError(f"{attempt.tool.name} was not run: {changed} while it was being approved")

    async def _ask_once(
        self, attempt: Attempt, approval: Approval, caller: Caller, changes: tuple[str, ...]
    ) -> Seal:
        """Ask; return the seal of what was approved and of what was shown for it.

        Edited arguments get a seal of their own.
        """
        seal = await self._seal(attempt, caller)
        self.recorder.move(attempt, State.AWAITING, Facts(detail="; ".join(changes)))
        started = perf_counter()
        request = await self._request(attempt, seal, caller, changes)
        decision = await self._decision(request, attempt.given(), caller)
        waited_ms = (perf_counter() - started) * 1000.0
        approval.wait_ms += waited_ms
        self.recorder.metrics.record_approval(attempt.tool.name, waited_ms)
        if isinstance(decision, Denied):
            raise _RefusalError(_refusal(attempt.tool, decision), Refuser(decision.refuser))
        approval.by, approval.reason = decision.by, decision.reason
        if isinstance(decision, Modified):
            self._edit(attempt, approval, decision)
            seal = await self._seal(attempt, caller)
        elif decision.shown is not None and (missing := request.unshown(decision.shown)) is not None:
            text = f"{attempt.tool.name} was not run: {missing} was not shown in full to whoever approved it"
            raise _RefusalError(text)
        return seal.with_shown(decision.shown)

    async def _request(
        self, attempt: Attempt, seal: Seal, caller: Caller, changes: tuple[str, ...]
    ) -> ApprovalRequest:
        is_wanted = self.handler is not None and takes_request(self.handler)
        effect = await self._effect(attempt, caller) if is_wanted else ""
        return ApprovalRequest(attempt.tool, attempt.given(), attempt.verdict, seal, changes, effect)

    async def _decision(self, request: ApprovalRequest, shown: dict[str, Any], caller: Caller) -> Decision:
        handler = self.handler
        assert handler is not None  # noqa: S101 - admitted only with a handler; this tells mypy
        # Of its own copy: what it does to that must change neither what runs nor what is compared.
        question: tuple[Any, ...] = (request.tool, shown)
        if takes_request(handler):
            question += (replace(request, arguments=shown),)
        limit = Limit("the approval", self.settings.approval_deadline)
        try:
            return read_decision(await caller.call(handler, *question, limit=limit))
        except DeadlineExceededError:
            return Denied(f"nobody answered within {limit.seconds:g} s", Refuser.TIMEOUT)
        except BaseException as error:
            if ends_pipeline(error):
                raise
            return Denied(f"the approval handler failed: {error_text(error)}", Refuser.APPROVER)

    async def _effect(self, attempt: Attempt, caller: Caller) -> str:
        """Have the tool tell what the call would do; that it cannot is told too, and decides nothing."""
        if attempt.tool.effect is None:
            return ""
        limit = Limit("the preview", EFFECT_SECONDS)
        try:
            told = str(await caller.call(attempt.tool.effect, attempt.given(), limit=limit))
        except BaseException as error:
            if ends_pipeline(error):
                raise
            return f"What it would do cannot be told: {error_text(error)}"
        if len(told) > LONGEST_EFFECT:
            return f"What it would do cannot be told: that takes {len(told):,} characters"
        return clean(told)

    def _edit(self, attempt: Attempt, approval: Approval, decision: Modified) -> None:
        """Take over edited arguments; they must fit the schema and must not meet a rule that denies."""
        try:
            edited = attempt.tool.checker.check(dict(decision.arguments))
        except GramercyError as error:
            raise _RefusalError(f"the edited arguments cannot be used, so nothing was run. {error}") from None
        verdict = self._judge(attempt.tool, edited)
        if verdict.action is Action.DENY:
            text = (
                f"{attempt.tool.name} was not run: the policy denies the edited call: {verdict.explanation}"
            )
            raise _RefusalError(text, Refuser.RULE)
        attempt.take(edited)
        approval.edited, approval.note = True, decision.note

    async def _drift(self, attempt: Attempt, approved: Seal, caller: Caller) -> list[str]:
        """List what is no longer as it was when the person decided, and take over what is there now."""
        current = self.settings.registry.get(attempt.tool.name)
        if current is None:
            raise _RefusalError(f"{attempt.tool.name} was not run: the tool is gone")
        if current is not attempt.tool:
            attempt.tool = current
            self._recheck(attempt)
        verdict = self._judge(attempt.tool, attempt.arguments)
        if verdict.action is Action.DENY:
            text = f"{attempt.tool.name} was not run: the policy now denies it: {verdict.explanation}"
            raise _RefusalError(text, Refuser.RULE)
        attempt.verdict = verdict
        return approved.drift(await self._seal(attempt, caller))

    def _judge(self, tool: Tool, arguments: dict[str, Any]) -> Verdict:
        policy = self.settings.policy
        return policy.settled.get(tool) or policy.why(tool, arguments)

    def _recheck(self, attempt: Attempt) -> None:
        try:
            attempt.take(attempt.tool.checker.check(attempt.arguments))
        except GramercyError as error:
            raise _RefusalError(f"the tool changed while it was being approved. {error}") from None

    async def _seal(self, attempt: Attempt, caller: Caller) -> Seal:
        tool, settings = attempt.tool, self.settings
        state = None
        try:
            if tool.target_state is not None:
                limit = Limit("the look at its target", tool.deadline or settings.deadline)
                state = await caller.call(tool.target_state, attempt.given(), limit=limit)
            lifetime = settings.approval_deadline
            return seal_call(tool, attempt.arguments, settings.policy.version, state=state, lifetime=lifetime)
        except BaseException as error:
            if ends_pipeline(error):
                raise
            text = error_text(error)
            # A tool's own errors say what is wrong with the target; the executor's and Python's do not.
            if not isinstance(error, GramercyError) or isinstance(error, ExecutionError):
                text = f"the state of its target cannot be told ({text})"
            raise _RefusalError(f"{tool.name} was not run: {text}") from None
