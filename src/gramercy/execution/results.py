"""Turn the outcome of a call into its result, and notify the journal, the metrics and the hooks."""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress
from enum import StrEnum
from time import localtime, perf_counter, strftime
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import DeadlineExceededError, ExecutionError, ForgedRecordError, MovedError
from gramercy.execution.callers import must_pass
from gramercy.execution.calls import ToolResult, error_text, places_of, text_for_model, tool_error
from gramercy.execution.hooks import notify, observers, told
from gramercy.journal.base import NOTHING, Facts, NewCall, Ruling, State
from gramercy.journal.memory import MemoryJournal
from gramercy.journal.texts import canonical_text, without_secrets
from gramercy.text import cut
from gramercy.tools.content import Ended, TextWithFacts, ToolOutput, blocks_text, facts_of
from gramercy.tools.context import NO_CONVERSATION, find_call, running_key
from gramercy.tools.safety import Safety
from gramercy.tools.values import copy_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gramercy.execution.executor import Settings
    from gramercy.execution.hooks import Phase
    from gramercy.execution.metrics import Metrics
    from gramercy.execution.policy import Verdict
    from gramercy.execution.seal import Seal
    from gramercy.journal.base import CallRecord
    from gramercy.tools.content import RunFacts
    from gramercy.tools.tool import Place, Tool

audit = logging.getLogger("gramercy.audit")
# A line or two of a log; the journal has more.
LONGEST_LOGGED = 500
# Arguments repeated to the model after an edit: it knows its own, and needs to see the differences.
LONGEST_SHOWN = 2_000
# Looking a member up in its enum costs as much as a dictionary copy, and every call would do it thrice.
_SAFE, _DONE, _DENIED = Safety.SAFE, State.DONE, State.DENIED


class Refuser(StrEnum):
    """Who or what refused a call; only `person` says that a person decided."""

    PERSON = "person"
    RULE = "rule"
    CLIENT = "client"
    NOBODY = "nobody"
    TIMEOUT = "timeout"
    APPROVER = "approver"
    GUARD = "guard"


# Advice to the model after a refusal. If no person decided, the person can add a rule that decides.
_ALLOWING = ' a rule can allow it, in a file for --policy:\n[[rules]]\naction = "allow"\ntools = ["{tool}"]'
ADVICE: dict[str, str] = {
    Refuser.PERSON: "Do not call it again as it is: go on without it, or ask the person what they want.",
    Refuser.RULE: "Nobody was asked. Do not try another way to the same end: tell the person what decided, "
    "for only they can change the policy.",
    Refuser.CLIENT: "Do not call it again by yourself: ask the person. Where no person can answer,"
    + _ALLOWING,
    Refuser.NOBODY: "Nobody has decided, and calling it again will not help: tell the person;" + _ALLOWING,
    Refuser.TIMEOUT: "Nobody has refused it: call it again once the person is there to answer.",
    Refuser.APPROVER: "Nobody has decided, and calling it again will not help: tell the person what failed.",
    Refuser.GUARD: "Nobody has refused it: look at what changed or failed before you call it again.",
}


WAITING = "A person can decide in another terminal: `gramercy approvals approve {key}`, or `deny`. "
COMING_BACK = "Then call it again with the same arguments: it is the same call, and runs at most once."
RESUMING = "Then Executor.resume({key}) runs it, at most once; to call it again would ask again."
LATER = "You are told what became of it when this conversation goes on; to call it again changes nothing."
# The class of a failure that a tool has reported itself; other failures have the name of the exception.
REPORTED = "reported"
CANCELLED = "cancelled by the caller"


class Approval(msgspec.Struct):
    """The state of the question whether a call may run."""

    approved: bool = False
    by: str | None = None
    edited: bool = False
    note: str = ""
    wait_ms: float = 0.0
    reason: str = ""
    seal: Seal | None = None

    def is_for(self, arguments: Mapping[str, Any]) -> bool:
        """Tell whether these are the arguments that were approved."""
        return self.approved and self.seal is not None and self.seal.is_for(arguments)

    def metadata(self) -> dict[str, Any]:
        """Describe the approval for the result of the call."""
        found: dict[str, Any] = {"approved": self.approved, "approval_wait_ms": self.wait_ms}
        if self.by:
            found["approved_by"] = self.by
        if self.reason:
            found["approval_reason"] = self.reason
        if self.edited:
            found["arguments_edited"] = True
        return found


class Attempt(msgspec.Struct, gc=False):
    """The data of a call between its look-up and its result; approval may still change it.

    No other object holds `arguments`: handlers, hooks and approvers get copies, made by `copied`. `identity`
    lets a caller that returns find this call; with `is_unique` no other call may have it. `is_lost` means
    that another process runs the call. `places` are where its paths lead, resolved since the last decision
    about it. It is a struct because one is made for every call.
    """

    call_id: str
    tool: Tool
    arguments: dict[str, Any]
    verdict: Verdict
    copied: Callable[[dict[str, Any]], dict[str, Any]] = copy_json
    note: str = ""
    key: int = 0
    fence: int = 0
    started: float = 0.0
    approval: Approval | None = None
    identity: str = ""
    is_unique: bool = False
    is_lost: bool = False
    places: Mapping[str, Place] | None = None

    def given(self) -> dict[str, Any]:
        """Return a copy of the arguments, so that changes to it do not affect them."""
        return self.copied(self.arguments)

    def placed(self) -> dict[str, Any]:
        """Return a copy for the tool itself, with resolved places for its paths."""
        return self.copied(self.arguments) | self.places if self.places else self.copied(self.arguments)  # type: ignore[operator]

    def take(self, arguments: dict[str, Any]) -> None:
        """Continue with other arguments."""
        self.arguments, self.copied, self.places = arguments, copy_json, None


class Recorder:
    """Makes every ToolResult of an executor, so that every result is recorded."""

    __slots__ = ("_jot", "here", "metrics", "settings")

    def __init__(self, settings: Settings, metrics: Metrics, here: set[int]) -> None:
        self.settings = settings
        self.metrics = metrics
        # The keys of calls whose caller is in this process.
        self.here = here
        # The journal in memory records a safe call of this program without making structs for it.
        journal = settings.journal
        self._jot = journal.jot if type(journal) is MemoryJournal else None

    def move(
        self, attempt: Attempt, state: State, facts: Facts = NOTHING, expected: Sequence[State] = ()
    ) -> None:
        """Record the present state of the call; if the journal cannot, it raises, and the call stops."""
        journal = self.settings.journal
        if attempt.key:
            journal.move(attempt.key, state, facts, expected=expected)
        else:
            self._begin(attempt, state, facts)

    def _begin(self, attempt: Attempt, state: State, facts: Facts = NOTHING) -> None:
        try:
            attempt.key = self.settings.journal.begin(_new_call(attempt), state, facts)
        except MovedError as error:
            # Another process made this very call first, so it is that call.
            attempt.key = error.record.key if error.record is not None else 0
            raise
        if attempt.identity:
            self.here.add(attempt.key)

    def waited(self, attempt: Attempt, wait_ms: float) -> None:
        """Note how long a question was open."""
        if attempt.approval is not None:
            attempt.approval.wait_ms += wait_ms
        self.metrics.record_approval(attempt.tool.name, wait_ms)

    def started(self, attempt: Attempt) -> None:
        """Record that the handler is about to run; from here on its effects must be expected.

        A safe call has no effects, so it is recorded once, when it is over.
        """
        tool = attempt.tool
        if tool.safety_level is not _SAFE or attempt.key:
            try:
                self._claim(attempt)
            except MovedError as error:
                attempt.is_lost = True
                raise ExecutionError(f"{tool.name} was not run here: {error}") from None
            except ForgedRecordError as error:
                raise ExecutionError(f"{tool.name} was not run: {error}") from None
            except Exception as error:  # noqa: BLE001 - a journal may raise anything; unrecorded means not run
                text = f"{tool.name} was not run, because the journal failed: {error_text(error)}"
                raise ExecutionError(text) from None
            running_key.set(attempt.key)
            if audit.isEnabledFor(logging.INFO):
                _log(attempt)
        settings = self.settings
        if settings.hooks:
            notify(settings.hooks, "before", attempt, None, settings.hook_deadline)
        attempt.started = perf_counter()

    def _claim(self, attempt: Attempt) -> None:
        """Record that the call runs now, in this process and in no other."""
        journal = self.settings.journal
        if attempt.key:
            attempt.fence = journal.claim(attempt.key, Facts(arguments=attempt.arguments))
        else:
            self._begin(attempt, State.EXECUTING)
            attempt.fence = 1

    def returned(self, attempt: Attempt, value: Any) -> ToolResult:
        """Make the result of a handler that returned."""
        elapsed_ms = (perf_counter() - attempt.started) * 1000.0
        end = None
        if type(value) is TextWithFacts:
            end, value = _End(State.FAILED, REPORTED, value.facts), str.__str__(value)
        if type(value) is str and len(value) <= self.settings.max_output and value.isascii():
            return self._finished(attempt, value, None, elapsed_ms, end)
        content, error = self._read(attempt, value)
        end = end or _End(State.FAILED, REPORTED)
        if not isinstance(value, ToolOutput):
            return self._finished(attempt, content, error, elapsed_ms, end)
        end.facts = value.facts
        content = f"{content}\n\n{value.note}" if value.note else content
        result = self._finished(attempt, content, error, elapsed_ms, end)
        if value.note:
            result.metadata["note"] = value.note
        # These are beside the text, which every caller gets: only some callers can show or process them.
        if value.blocks:
            result.metadata["blocks"] = value.blocks
        if value.structured is not None:
            result.metadata["structured"] = value.structured
        return result

    def _read(self, attempt: Attempt, value: Any) -> tuple[str, str | None]:
        """Return the text of a handler's value, and the error that the value reports."""
        limit = self.settings.max_output
        try:
            if not isinstance(value, ToolOutput):
                return text_for_model(value, limit), None
            if value.error is None or value.error == "":
                shown = blocks_text(value.blocks) if value.value is None and value.blocks else value.value
                return text_for_model(shown, limit), None
            problem: Any = value.error  # declared as text, but an exception is what many have at hand
            error = (
                error_text(problem) if isinstance(problem, BaseException) else text_for_model(problem, limit)
            )
            return error if value.value is None else f"{text_for_model(value.value, limit)}\n{error}", error
        except BaseException as problem:
            if must_pass(problem):
                self.cancelled(attempt)
                raise
            text = f"Tool error: the result cannot be shown: {error_text(problem)}"
            return text, text

    def raised(self, attempt: Attempt, problem: BaseException) -> ToolResult:
        """Make the result of a handler that raised or ran out of time."""
        elapsed_ms = (perf_counter() - attempt.started) * 1000.0 if attempt.started else 0.0
        text = tool_error(problem)
        end = _End(State.FAILED, type(problem).__name__)
        if places := places_of(problem, attempt.tool.function):
            text += f"\nat {places[0]}"
            end.trace = "".join(f"\nat {place}" for place in places[1:])
        if isinstance(problem, DeadlineExceededError):
            end = _End(_unfinished(attempt.tool), "deadline")
        if end.state is State.IN_DOUBT:
            text += "; it was told to stop, but what it had begun may have taken effect"
        return self._finished(attempt, text, text, elapsed_ms, end)

    def _finished(
        self, attempt: Attempt, content: str, error: str | None, elapsed_ms: float, end: _End | None = None
    ) -> ToolResult:
        success = error is None
        tool, settings = attempt.tool, self.settings
        self.metrics.record(tool.name, elapsed_ms, len(content) if success else None)
        metadata: dict[str, Any] = {
            "execution_time_ms": elapsed_ms,
            "safety_level": tool.level_word,
        }
        if attempt.approval is not None:
            metadata |= attempt.approval.metadata()
            content = "".join(f"{note}\n" for note in _notes(attempt, attempt.approval)) + content
        if attempt.note:
            note = "\n\n" + attempt.note.replace("{ms}", f"{elapsed_ms:.1f}")
            content, error = content + note, error and error + note
        if success and not attempt.key and end is None and self._jot and find_call() is NO_CONVERSATION:
            self._jot(
                attempt.call_id, tool.name, tool.level_word, attempt.arguments, elapsed_ms, len(content)
            )
        else:
            trace = end.trace if end is not None else ""
            facts = Facts(
                detail=(error or "") + trace, fence=attempt.fence, elapsed_ms=elapsed_ms, size=len(content)
            )
            if attempt.identity or end is not None:
                facts = _with_end(facts, attempt, content, end)
            self._close(attempt, _DONE if success or end is None else end.state, facts, metadata)
        result = ToolResult(attempt.call_id, success, content, error, metadata)
        if settings.hooks:
            phase: Phase = "after" if success else "error"
            notify(settings.hooks, phase, attempt, result, settings.hook_deadline)
        return result

    def _close(self, attempt: Attempt, state: State, facts: Facts, metadata: dict[str, Any]) -> None:
        if attempt.is_lost:
            # The process that runs the call records its end.
            return
        if attempt.key:
            # The next work of this thread may not be a call at all.
            running_key.set(0)
        try:
            if attempt.key or state is _DENIED:
                self.move(attempt, state, facts)
            else:
                self.settings.journal.note(_new_call(attempt), state, facts)
        except Exception as error:  # noqa: BLE001 - the handler has run: its result must not be lost
            metadata["journal_error"] = error_text(error)
        if attempt.identity:
            metadata["journal_key"] = attempt.key

    def cancelled(self, attempt: Attempt, error: BaseException | None = None) -> None:
        """Record a call that was cancelled while it ran; no caller is left to take a result.

        It is in doubt, unless its handler knows how the work ended.
        """
        self.metrics.record_refusal(attempt.tool.name)
        state, facts = _unfinished(attempt.tool), Facts(detail=CANCELLED, failure="cancelled")
        ended = error.args[0] if error is not None and error.args else None
        if type(ended) is Ended:
            state, facts = self._ended(attempt, ended.value)
        self._close(attempt, state, msgspec.structs.replace(facts, fence=attempt.fence), {})
        if state is not State.IN_DOUBT and attempt.key and find_call().is_called_off:
            # The caller will not return. If the journal fails here, a later caller gets an answer that it
            # does not need.
            with suppress(Exception):
                self.settings.journal.deliver(attempt.key)

    def _ended(self, attempt: Attempt, value: Any) -> tuple[State, Facts]:
        """Tell how a cancelled call ended: completed after all, or stopped."""
        content, error = self._read(attempt, value)
        state = _DONE if error is None else State.FAILED
        elapsed_ms = (perf_counter() - attempt.started) * 1000.0
        detail = "" if error is None else f"{CANCELLED}: {error}"
        facts = Facts(detail=detail, elapsed_ms=elapsed_ms, size=len(content))
        return state, _with_end(facts, attempt, content, _End(state, "cancelled", facts_of(value)))

    def withdrawn(self, attempt: Attempt) -> None:
        """Record a call whose caller left before it was approved: it has not run."""
        self.metrics.record_refusal(attempt.tool.name)
        text = "cancelled by the caller before it was approved; it was not run"
        self._close(attempt, State.FAILED, Facts(detail=text, failure="cancelled"), {})

    def denied(
        self, attempt: Attempt, refuser: Refuser, text: str, *, is_recorded: bool = False
    ) -> ToolResult:
        """Make the result of a denied call: its error says why, its content also what to do next."""
        tool = attempt.tool
        text = text_for_model(text, self.settings.max_output)
        approval = attempt.approval.metadata() if attempt.approval else {}
        refusal = {"denied": True, "denied_by": refuser.value}
        metadata = {"safety_level": tool.level_word, **approval, **refusal}
        if is_recorded and attempt.identity:
            metadata["journal_key"] = attempt.key
        elif not is_recorded:
            ruling = Ruling(approved=False, by="", seal=self._open_seal(attempt), refuser=refuser.value)
            self._close(attempt, State.DENIED, Facts(detail=text, ruling=ruling), metadata)
        self.metrics.record_refusal(tool.name, refuser)
        content = f"{text}\n{ADVICE[refuser].format(tool=tool.name)}"
        return _refusal(
            tool, ToolResult(attempt.call_id, success=False, content=content, error=text, metadata=metadata)
        )

    def _open_seal(self, attempt: Attempt) -> str:
        """Return the seal of the question that our own refusal answers; empty if it is unknown."""
        # If the journal fails here, return the refusal all the same; the result says that it is not recorded.
        with suppress(Exception):
            record = self.settings.journal.record(attempt.key) if attempt.key else None
            question = record.facts.question if record is not None else None
            return question.seal if question is not None else ""
        return ""

    def undecided(self, attempt: Attempt, record: CallRecord, reason: str = "") -> ToolResult:
        """Make the result of a call that still waits for a decision: nothing was run.

        `reason` says why the caller's own channel has made no decision.
        """
        self.here.discard(attempt.key)
        tool, key = attempt.tool, attempt.key
        until = strftime("%Y-%m-%d %H:%M", localtime(record.facts.expires_at))
        text = f"{tool.name} was not run yet: it waits for a person's approval as call {key}, until {until}"
        why = f"Nobody has decided: {reason}\n" if reason else ""
        then = LATER if attempt.is_unique else COMING_BACK if attempt.identity else RESUMING
        content = f"{text}\n{why}{(WAITING + then).format(key=key)}"
        metadata = {"safety_level": tool.level_word, "awaiting": True, "journal_key": key}
        return _refusal(
            tool, ToolResult(attempt.call_id, success=False, content=content, error=text, metadata=metadata)
        )

    def refused(
        self, call_id: str, problem: BaseException, tool: Tool | None = None, hint: str = ""
    ) -> ToolResult:
        """Make the result of a call that cannot run: unknown tool, wrong arguments, failing transform."""
        metadata = {}
        if tool is not None:
            self.metrics.record_refusal(tool.name)
            metadata["safety_level"] = tool.level_word
        text = text_for_model(error_text(problem), self.settings.max_output)
        result = ToolResult(call_id, success=False, content=text + hint, error=text, metadata=metadata)
        return _refusal(tool, result)


def _refusal(tool: Tool | None, result: ToolResult) -> ToolResult:
    """Return the result of a call that was not run; no hook is called, but observers are."""
    if observers:
        told("refused", tool, result)
    return result


class _End(msgspec.Struct):
    """The end of a run that did not simply return a text."""

    state: State
    failure: str = ""
    facts: RunFacts | None = None
    # Further places of a failure, only for the journal.
    trace: str = ""


def _with_end(facts: Facts, attempt: Attempt, content: str, end: _End | None) -> Facts:
    """Add the facts about the end of a run; with its content if a caller may return for it."""
    told: dict[str, Any] = {}
    if attempt.identity:
        told = {"content": content, "digest": hashlib.sha256(content.encode()).hexdigest()}
    if end is not None and end.facts is not None:
        told |= {name: getattr(end.facts, name) for name in end.facts.__struct_fields__}
    if end is not None and facts.detail:
        told["failure"] = end.failure
    return msgspec.structs.replace(facts, **told)


def _new_call(attempt: Attempt) -> NewCall:
    """Return the call for the journal; only this function knows who calls."""
    tool, call = attempt.tool, find_call()
    if call is NO_CONVERSATION:
        return NewCall(attempt.call_id, tool.name, tool.level_word, attempt.arguments)
    return NewCall(
        attempt.call_id,
        tool.name,
        tool.level_word,
        attempt.arguments,
        call.principal,
        call.client,
        call.session,
        call.project,
        attempt.identity,
        attempt.is_unique,
    )


def _log(attempt: Attempt) -> None:
    """Log a call that runs; a cautious call with its arguments, which no person was shown before."""
    tool, shown = attempt.tool, ""
    if tool.safety_level is Safety.CAUTIOUS:
        # Logs are passed on, so arguments are shortened and anything that looks like a secret is left out.
        shown = f" with {without_secrets(canonical_text(attempt.arguments), LONGEST_LOGGED)}"
    audit.info("%s tool %s runs as call %r%s", tool.level_word, tool.name, attempt.call_id, shown)


def _unfinished(tool: Tool) -> State:
    """Return the state of an interrupted run: only a call with effects can be in doubt."""
    return State.FAILED if tool.safety_level is Safety.SAFE else State.IN_DOUBT


def _notes(attempt: Attempt, approval: Approval) -> list[str]:
    """Tell the model what the person who approved has changed and said."""
    notes = [_edit_note(attempt, approval)] if approval.edited else []
    return [*notes, f"[The person who approved it says: {approval.reason}]"] if approval.reason else notes


def _edit_note(attempt: Attempt, approval: Approval) -> str:
    if approval.note:
        return f"[{approval.note}]"
    shown = cut(canonical_text(attempt.arguments), LONGEST_SHOWN)
    return f"[A person changed the arguments before approving; the tool ran with {shown}]"
