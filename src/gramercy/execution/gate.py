"""The gate: records the question about a call in the journal, and admits the call once it is approved.

The caller's own channel and every other process that reads the journal are asked concurrently. The first
decision counts, and it is one move in the journal. A question stays open when its caller leaves. The gate
only runs what the tool offers for the question: the state of its target and the preview of its effect.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from secrets import token_hex
from time import localtime, monotonic, perf_counter, strftime, time
from typing import TYPE_CHECKING, Any

from msgspec import structs

from gramercy.errors import (
    DeadlineExceededError,
    ExecutionError,
    GramercyError,
    MovedError,
)
from gramercy.execution.approval import (
    EFFECT_SECONDS,
    ApprovalRequest,
    Approved,
    Denied,
    decide,
    read_decision,
    refusal_text,
    standing,
    takes_request,
)
from gramercy.execution.callers import BLOCKING, Limit, abandon, ends_pipeline
from gramercy.execution.calls import clean, error_text
from gramercy.execution.policy import Action
from gramercy.execution.results import Approval, Refuser
from gramercy.execution.seal import EXPIRED, Seal, digest_of_text, seal_call, target_of
from gramercy.execution.waiting import wait_for
from gramercy.journal.base import OPEN, Facts, Question, Ruling, State
from gramercy.tools.context import current_call
from gramercy.tools.effects import Effect, read_effect
from gramercy.tools.values import copy_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gramercy.execution.approval import ApprovalHandler, Decision
    from gramercy.execution.callers import Caller
    from gramercy.execution.calls import ToolResult
    from gramercy.execution.executor import Settings
    from gramercy.execution.policy import Verdict
    from gramercy.execution.results import Attempt, Recorder
    from gramercy.journal.base import CallRecord
    from gramercy.tools.tool import Place, Tool

# If the target changes between every look and every answer, a person cannot approve the call.
MOST_QUESTIONS = 3
# A person who edits sees the effect of each edited call; after ten edits the model should propose anew.
MOST_EDITS = 10
# More than any call can carry. The channel decides how to show it, and shows all of it or nothing.
LONGEST_EFFECT = 16_000_000
# With these refusers a channel says that no decision was made: the question stays open for others.
UNDECIDED = frozenset({Refuser.NOBODY, Refuser.CLIENT, Refuser.TIMEOUT})
# Another process runs or has run the call.
_TAKEN = frozenset({State.EXECUTING, State.DONE, State.FAILED, State.IN_DOUBT})


class _RefusalError(Exception):
    """The reason why a call is not admitted; never leaves the gate, and its text goes to the model.

    With `is_recorded` the journal already has the refusal.
    """

    def __init__(self, text: str, refuser: Refuser = Refuser.GUARD, *, is_recorded: bool = False) -> None:
        super().__init__(text)
        self.refuser = refuser
        self.is_recorded = is_recorded


class _UndecidedError(Exception):
    """The caller stops waiting for a decision that may still come; says why its channel had none."""


class ApprovalGate:
    """Admits an attempt once it is approved, or makes its refusal."""

    __slots__ = ("handler", "recorder", "settings")

    def __init__(self, settings: Settings, recorder: Recorder, handler: ApprovalHandler | None) -> None:
        """Refuse a handler that would otherwise fail only when a person has to be asked."""
        if handler is not None and not callable(handler):
            raise ExecutionError(
                f"the approval handler is {type(handler).__name__}: expected a function or None"
            )
        self.settings = settings
        self.recorder = recorder
        self.handler = handler

    async def admit(self, attempt: Attempt, caller: Caller) -> ToolResult | None:
        """Return None when the attempt may run, with the arguments that were approved, else its refusal.

        An attempt with a key resumes a call of the journal. `is_lost` is set if another process has taken the
        call meanwhile.
        """
        try:
            return await self._admitted(attempt, caller)
        except BaseException as error:
            if ends_pipeline(error):
                self._leave(attempt)
                raise
            # The journal too may raise anything, also while a refusal is recorded. A call that cannot be
            # recorded is not run.
            text = f"{attempt.tool.name} was not run: {error_text(error)}"
            return self.recorder.denied(attempt, Refuser.GUARD, text)

    async def _admitted(self, attempt: Attempt, caller: Caller) -> ToolResult | None:
        is_new = not attempt.key
        try:
            await self._approve(attempt, caller)
        except _RefusalError as refusal:
            return self.recorder.denied(
                attempt, refusal.refuser, str(refusal), is_recorded=refusal.is_recorded
            )
        except _UndecidedError as error:
            return self.recorder.undecided(attempt, self._record(attempt), str(error))
        except MovedError as error:
            attempt.is_lost = self._record(attempt).state in _TAKEN
            if not attempt.is_lost and is_new:
                # Another process has begun this very call, so wait for its question.
                return await self.admit(attempt, caller)
            if not attempt.is_lost:
                text = f"{attempt.tool.name} was not run: {error}"
                return self.recorder.denied(attempt, Refuser.GUARD, text)
        return None

    def _leave(self, attempt: Attempt) -> None:
        """Record that the caller has left; a caller that may return finds its question open or answered."""
        may_return = attempt.identity and self.settings.is_shared
        if may_return and not current_call().is_called_off:
            return
        self.recorder.withdrawn(attempt)
        if may_return:
            # The caller knows that it has not run, so the same call made later is a new one. A failing
            # journal must not hide why the caller left.
            with suppress(Exception):
                self.settings.journal.deliver(attempt.key)

    async def _approve(self, attempt: Attempt, caller: Caller) -> None:
        if self.handler is None and not self.settings.is_shared:
            raise _RefusalError(
                f"{attempt.tool.name} was not run: it needs approval ({attempt.verdict.explanation}), "
                "but nobody can be asked: no approval handler is set",
                Refuser.NOBODY,
            )
        known = self._record(attempt) if attempt.key else None
        if known is not None and _needs_no_answer(known, attempt.verdict):
            return
        approval = attempt.approval = Approval()
        if known is not None:
            self._take_arguments(attempt, known)
        changes: tuple[str, ...] = ()
        questions = edits = 0
        while questions < MOST_QUESTIONS and edits < MOST_EDITS:
            asked, record = await self._asked(attempt, known, changes, caller)
            if record.state is State.AWAITING and _is_about(record, asked):
                record = await self._decided(attempt, asked, record, caller)
            if record.state in OPEN and not _is_about(record, asked):
                # Another process has put edited arguments into the question.
                self._take_arguments(attempt, record)
                known, changes, edits = record, (), edits + 1
                continue
            seal = await self._ruled(attempt, record, asked, caller)
            changes = (EDITED,) if seal is None else tuple(await self._drift(attempt, seal, caller))
            if seal is not None and not changes:
                approval.approved, approval.seal = True, seal
                return
            known = None
            questions, edits = questions + (seal is not None), edits + (seal is None)
        changed = "; ".join(changes) or EDITED
        raise _RefusalError(f"{attempt.tool.name} was not run: {changed} while it was being approved")

    async def edit(
        self, attempt: Attempt, seal: str, arguments: dict[str, Any], by: str, caller: Caller
    ) -> CallRecord:
        """Put edited arguments and their effect into the open question of a call."""
        known, approval = self._record(attempt), Approval()
        question = known.facts.question
        if known.state is not State.AWAITING or question is None or question.seal != seal:
            raise MovedError(standing(known), known)
        attempt.approval = approval
        try:
            self._edit(attempt, approval, Ruling(approved=True, by=by, arguments=arguments))
            _, record = await self._asked(attempt, None, (f"{EDITED} by {by}",), caller)
        except _RefusalError as refusal:
            raise ExecutionError(str(refusal)) from None
        return record

    def _record(self, attempt: Attempt) -> CallRecord:
        found = self.settings.journal.record(attempt.key)
        if found is None:
            raise ExecutionError(f"the journal has lost call {attempt.key}")
        return found

    async def _asked(
        self, attempt: Attempt, known: CallRecord | None, changes: tuple[str, ...], caller: Caller
    ) -> tuple[ApprovalRequest, CallRecord]:
        """Return the question about a call as the journal has it: the known one, if it still fits."""
        request = await self._request(attempt, changes, caller)
        if known is not None:
            changes = tuple(self._misfits(request, known))
            if known.facts.question is not None and not changes:
                # Another process may have asked it, with other function objects than ours.
                seal = Seal.read(known.facts.question.parts)
                changes = known.facts.question.changes
                return self._put(replace(request, seal=seal, changes=changes), known), known
            request = replace(request, changes=changes)
        expires_at = time() + self.settings.approval_expiry if self.settings.is_shared else 0.0
        # Rendered once: the text that is sealed is the text that is recorded.
        text = request.text()
        seal = replace(request.seal.with_shown(text), question=token_hex(8), expiry=f"{expires_at:.3f}")
        request = replace(request, seal=seal)
        facts = Facts(
            detail="; ".join(request.changes),
            arguments=attempt.arguments if attempt.approval and attempt.approval.edited else None,
            question=_question(request, text),
            expires_at=expires_at,
            owner=getattr(self.settings.journal, "owner", ""),
        )
        self.recorder.move(attempt, State.AWAITING, facts, expected=() if known is None else (known.state,))
        record = self._record(attempt)
        return self._put(request, record), record

    def _put(self, request: ApprovalRequest, record: CallRecord) -> ApprovalRequest:
        """Return a request with the journal's data about its question."""
        journal, call = self.settings.journal, record.call
        key, step = record.key, record.step

        def is_open() -> bool:
            now = journal.record(key)
            return now is not None and now.step == step

        return replace(
            request,
            key=key,
            call_id=call.call_id,
            principal=call.principal,
            client=call.client,
            session=call.session,
            asked_at=record.asked_at,
            expires_at=record.facts.expires_at,
            is_open=is_open,
            project=call.project,
            journal=journal,
        )

    def _misfits(self, request: ApprovalRequest, known: CallRecord) -> list[str]:
        """List why a question in the journal no longer fits this call as it is now."""
        question = known.facts.question
        if question is None:
            return [INTERRUPTED] if known.state is State.READY else []
        seal = Seal.read(question.parts)
        text = digest_of_text(question.text)
        if (
            seal.digest != question.seal
            or text != seal.shown
            or seal.expiry != f"{known.facts.expires_at:.3f}"
        ):
            return [FORGED]
        changes = seal.drift(request.seal)
        if not changes and (missing := request.unshown(question.text)) is not None:
            return [f"{missing} was not shown in full"]
        if known.facts.expires_at and time() > known.facts.expires_at:
            changes.append(EXPIRED)
        return changes

    async def _decided(
        self, attempt: Attempt, asked: ApprovalRequest, record: CallRecord, caller: Caller
    ) -> CallRecord:
        """Wait for an answer to the open question; return the record of the call with the answer."""
        # Hold nothing open while a person thinks: before the call runs, its paths are resolved again.
        attempt.places = None
        decision: Decision | None
        if attempt.verdict.action is Action.ALLOW:
            # A rule that allows the call was added after the question was asked.
            decision = Approved("policy", attempt.verdict.explanation)
        else:
            started = perf_counter()
            decision = await self._answer(attempt, asked, record.step, caller)
            self.recorder.waited(attempt, (perf_counter() - started) * 1000.0)
        if decision is None:
            return self._record(attempt)
        if isinstance(decision, Approved) and decision.shown is not None:
            missing = asked.unshown(decision.shown)
            if missing is not None:
                text = f"{missing} was not shown in full to whoever approved it"
                raise _RefusalError(f"{attempt.tool.name} was not run: {text}")
        try:
            return decide(self.settings.journal, attempt.key, asked.seal.digest, decision, asked=record)
        except MovedError:
            return self._record(attempt)

    async def _answer(
        self, attempt: Attempt, asked: ApprovalRequest, step: int, caller: Caller
    ) -> Decision | None:
        """Return the decision of the caller's own channel; None if the call was moved elsewhere."""
        if not self.settings.is_shared:
            return await self._own_answer(attempt, asked, caller)
        began, decision = monotonic(), None
        if self.handler is not None and caller is BLOCKING:
            decision = await self._own_answer(attempt, asked, caller)
        elif self.handler is not None:
            decision = await self._first_answer(attempt, asked, step, caller)
        if decision is not None and not _is_open(decision):
            return decision
        wait = self.settings.approval_wait
        if isinstance(decision, Denied) and (
            decision.refuser != Refuser.NOBODY or not self.settings.is_watched()
        ):
            # A client declined by itself, a person was asked and stayed silent, or no person watches the
            # journal: do not wait.
            wait = 0.0
        left = None if wait is None else wait - (monotonic() - began)
        if not await self._is_moved(asked, step, left, caller):
            raise _UndecidedError(decision.reason if isinstance(decision, Denied) else "")
        return None

    async def _first_answer(
        self, attempt: Attempt, asked: ApprovalRequest, step: int, caller: Caller
    ) -> Decision | None:
        """Ask in the caller's own channel until the call is moved elsewhere; then withdraw that question."""
        own = asyncio.ensure_future(self._own_answer(attempt, asked, caller))
        moved = asyncio.ensure_future(self._is_moved(asked, step, None, caller))
        try:
            await asyncio.wait({own, moved}, return_when=asyncio.FIRST_COMPLETED)
            return own.result() if own.done() else None
        finally:
            await abandon(moved)
            if not own.done():
                await abandon(own)

    async def _is_moved(
        self, asked: ApprovalRequest, step: int, seconds: float | None, caller: Caller
    ) -> bool:
        """Wait until a call has moved; False after a timeout."""

        def has_moved(record: CallRecord | None) -> bool:
            if record is not None and record.step == step and 0 < asked.expires_at < time():
                self._expire(asked)
                return True
            return record is None or record.step != step

        return await wait_for(
            self.settings.journal, asked.key, has_moved, caller, seconds=seconds, look_at=asked.expires_at
        )

    def _expire(self, asked: ApprovalRequest) -> None:
        """Deny a call whose time to be decided is over, unless a decision was made just now."""
        text = f"nobody decided until {strftime('%Y-%m-%d %H:%M', localtime(asked.expires_at))}"
        with suppress(MovedError):
            decide(self.settings.journal, asked.key, asked.seal.digest, Denied(text, Refuser.TIMEOUT))

    async def _own_answer(self, attempt: Attempt, asked: ApprovalRequest, caller: Caller) -> Decision:
        handler = self.handler
        assert handler is not None  # noqa: S101 - called only with one; this tells mypy
        # Give the handler its own copy: changing it must affect neither what runs nor what is compared.
        shown = attempt.given()
        given: tuple[Any, ...] = (asked.tool, shown)
        if takes_request(handler):
            given += (replace(asked, arguments=shown),)
        limit = Limit("the approval", self.settings.approval_deadline)
        try:
            return read_decision(await caller.call(handler, *given, limit=limit))
        except DeadlineExceededError:
            return Denied(f"nobody answered within {limit.seconds:g} s", Refuser.TIMEOUT)
        except BaseException as error:
            if ends_pipeline(error):
                raise
            return Denied(f"the approval handler failed: {error_text(error)}", Refuser.APPROVER)

    async def _ruled(
        self, attempt: Attempt, record: CallRecord, asked: ApprovalRequest, caller: Caller
    ) -> Seal | None:
        """Apply the decision; return the seal of the approved call.

        Return None for edited arguments whose effect the person has not seen.
        """
        ruling, tool, approval = record.facts.ruling, attempt.tool, attempt.approval
        assert approval is not None  # noqa: S101 - made when it was first asked; this tells mypy
        if record.state is State.DENIED and ruling is not None:
            refuser = Refuser(ruling.refuser or Refuser.GUARD)
            text = refusal_text(tool.name, ruling, record.facts.detail)
            raise _RefusalError(text, refuser, is_recorded=True)
        if record.state in _TAKEN:
            raise MovedError(standing(record), record)
        if record.state is not State.READY:
            raise _RefusalError(f"{tool.name} was not run: {standing(record)}", is_recorded=True)
        if ruling is None or not ruling.approved:
            raise _RefusalError(f"{tool.name} was not run: nobody has approved it, though it is ready")
        if ruling.seal != asked.seal.digest:
            raise _RefusalError(f"{tool.name} was not run: its approval answers another question")
        approval.by, approval.reason = ruling.by, ruling.reason
        if ruling.arguments is None:
            return asked.seal
        self._edit(attempt, approval, ruling)
        if (
            ruling.shown
            and not ruling.note
            and tool.effect is not None
            and not asked.seal.is_for(attempt.arguments)
        ):
            return None
        now = await self._seal(attempt, caller)
        # Some hunks of the shown diff were chosen; everything else is as it was shown.
        return replace(asked.seal, arguments=now.arguments) if ruling.shown and ruling.note else now

    def _take_arguments(self, attempt: Attempt, record: CallRecord) -> None:
        """Continue with the arguments of the open question."""
        question, edited = record.facts.question, record.facts.arguments
        if question is None or edited is None or attempt.approval is None:
            return
        seal = Seal.read(question.parts)
        if seal.is_for(edited) and not seal.is_for(attempt.arguments):
            attempt.take(copy_json(dict(edited)))
            attempt.approval.edited = True

    async def _request(self, attempt: Attempt, changes: tuple[str, ...], caller: Caller) -> ApprovalRequest:
        """Make the question about a call as it is now, with the effect of the call."""
        if attempt.tool.paths is not None and attempt.places is None:
            await self._judge_again(attempt, caller)
        seal = await self._seal(attempt, caller)
        is_wanted = self.settings.is_shared or (self.handler is not None and takes_request(self.handler))
        text, data = "", {}
        if is_wanted and (attempt.tool.effect is not None or _links(attempt.places)):
            text, effect = await self._effect(attempt, caller)
            if effect.state and target_of(effect.state, attempt.places) != seal.target:
                # The target has changed between the two looks, so the effect is that on another state.
                attempt.places = None
                await self._judge_again(attempt, caller)
                seal = await self._seal(attempt, caller)
                text, effect = await self._effect(attempt, caller)
            data = effect.as_data()
        return ApprovalRequest(
            attempt.tool,
            attempt.given(),
            attempt.verdict,
            seal,
            changes,
            text,
            effect_data=data,
            places={name: each.unopened() for name, each in (attempt.places or {}).items()},
        )

    async def _judge_again(self, attempt: Attempt, caller: Caller) -> None:
        """Judge a call again by the rules and by where its paths lead now; a denied call is refused."""
        await self._find(attempt, caller)
        tool = attempt.tool
        attempt.verdict = self._judge(tool, attempt.arguments, attempt.places)
        if attempt.verdict.action is Action.DENY:
            text = f"{tool.name} was not run: the policy now denies it: {attempt.verdict.explanation}"
            raise _RefusalError(text, Refuser.RULE)

    async def _find(self, attempt: Attempt, caller: Caller) -> None:
        """Resolve the paths of a call, unless that was done since its last decision."""
        tool = attempt.tool
        if tool.paths is not None and attempt.places is None:
            limit = Limit("the look at its paths", tool.deadline or self.settings.deadline)
            places = await caller.call(tool.paths.find, attempt.given(), limit=limit)
            self.settings.policy.withhold(tool, attempt.arguments, places)
            attempt.places = places

    async def _effect(self, attempt: Attempt, caller: Caller) -> tuple[str, Effect]:
        """Have the tool preview the effect of the call; if it cannot, say so. That decides nothing."""
        limit, tell = Limit("the preview", EFFECT_SECONDS), attempt.tool.effect
        try:
            told = Effect() if tell is None else await caller.call(tell, attempt.placed(), limit=limit)
            effect = read_effect(told)
        except BaseException as error:
            if ends_pipeline(error):
                raise
            effect = Effect(note=f"What it would do cannot be told: {error_text(error)}")
        if links := _links(attempt.places):
            effect = structs.replace(effect, note="\n".join(filter(None, [*links, effect.note])))
        text = effect.text()
        if len(text) > LONGEST_EFFECT:
            effect = Effect(note=f"What it would do cannot be told: that takes {len(text):,} characters")
            text = effect.note
        return clean(text), effect

    def _edit(self, attempt: Attempt, approval: Approval, ruling: Ruling) -> None:
        """Apply edited arguments; they must fit the schema and must not match a rule that denies."""
        try:
            edited = attempt.tool.checker.check(dict(ruling.arguments or {}))
        except GramercyError as error:
            raise _RefusalError(f"the edited arguments cannot be used, so nothing was run. {error}") from None
        verdict = self._judge(attempt.tool, edited, attempt.tool.places(edited))
        if verdict.action is Action.DENY:
            text = (
                f"{attempt.tool.name} was not run: the policy denies the edited call: {verdict.explanation}"
            )
            raise _RefusalError(text, Refuser.RULE)
        attempt.take(edited)
        approval.edited, approval.note = True, ruling.note

    async def _drift(self, attempt: Attempt, approved: Seal, caller: Caller) -> list[str]:
        """List what has changed since the person decided, and take over the present state."""
        current = self.settings.registry.get(attempt.tool.name)
        if current is None:
            raise _RefusalError(f"{attempt.tool.name} was not run: the tool is gone")
        if current is not attempt.tool:
            attempt.tool = current
            self._recheck(attempt)
        attempt.places = None
        await self._judge_again(attempt, caller)
        now = await self._seal(attempt, caller)
        if attempt.verdict.action is Action.ALLOW:
            # A rule allows it now, perhaps one that the person added with this very answer.
            approved = replace(approved, policy=now.policy)
        return approved.drift(now)

    def _judge(
        self, tool: Tool, arguments: dict[str, Any], places: Mapping[str, Place] | None = None
    ) -> Verdict:
        policy = self.settings.policy
        settled = None if places else policy.settled.get(tool)
        return settled or policy.why(tool, arguments, places)

    def _recheck(self, attempt: Attempt) -> None:
        try:
            attempt.take(attempt.tool.checker.check(attempt.arguments))
        except GramercyError as error:
            raise _RefusalError(f"the tool changed while it was being approved. {error}") from None

    async def _seal(self, attempt: Attempt, caller: Caller) -> Seal:
        tool, settings = attempt.tool, self.settings
        state = None
        try:
            await self._find(attempt, caller)
            if tool.target_state is not None:
                limit = Limit("the look at its target", tool.deadline or settings.deadline)
                state = await caller.call(tool.target_state, attempt.placed(), limit=limit)
            lifetime = settings.approval_deadline
            return seal_call(
                tool,
                attempt.arguments,
                settings.policy.version,
                state=state,
                lifetime=lifetime,
                places=attempt.places,
            )
        except BaseException as error:
            if ends_pipeline(error):
                raise
            text = error_text(error)
            # A tool's own errors say what is wrong with the target; the executor's and Python's do not.
            if not isinstance(error, GramercyError) or isinstance(error, ExecutionError):
                text = f"the state of its target cannot be told ({text})"
            raise _RefusalError(f"{tool.name} was not run: {text}") from None


EDITED = "the arguments were edited"
INTERRUPTED = "it was interrupted"
FORGED = "what the journal has of the question does not fit together"


def _links(places: Mapping[str, Place] | None) -> list[str]:
    """Name the real path of every argument whose link leads to another path than its text."""
    return [
        f"{name} leads through a link to {each.shown}."
        for name, each in (places or {}).items()
        if each.is_link
    ]


def _needs_no_answer(known: CallRecord, verdict: Verdict) -> bool:
    """Tell whether a call was never asked about and needs no approval: an idempotent call runs again."""
    return known.state is State.READY and known.facts.question is None and verdict.action is Action.ALLOW


def _is_about(record: CallRecord, asked: ApprovalRequest) -> bool:
    """Tell whether the call's question in the journal is the one that was asked here."""
    question = record.facts.question
    return question is not None and question.seal == asked.seal.digest


def _is_open(decision: Decision) -> bool:
    """Tell whether the channel says that no decision was made."""
    return isinstance(decision, Denied) and decision.refuser in UNDECIDED


def _question(request: ApprovalRequest, text: str) -> Question:
    """Return the whole question in the form that the journal records."""
    return Question(
        text=text,
        seal=request.seal.digest,
        parts=request.seal.parts,
        explanation=request.verdict.explanation,
        effect=dict(request.effect_data),
        changes=request.changes,
        schema=request.tool.schema,
    )
