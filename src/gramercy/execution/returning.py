"""Callers that return: resume a call that the journal has, or return its stored answer.

This is only for calls that may need approval or must not run twice, and whose caller gives an identity. A
call whose caller still waits in a living process is not given to another caller.
"""

from __future__ import annotations

from contextlib import suppress
from time import localtime, strftime
from typing import TYPE_CHECKING, Any

from gramercy.errors import MovedError
from gramercy.execution.approval import resolve
from gramercy.execution.callers import Limit, ends_pipeline
from gramercy.execution.calls import ToolResult, error_text
from gramercy.execution.results import ADVICE, Refuser
from gramercy.execution.waiting import wait_for
from gramercy.journal import owners
from gramercy.journal.base import FINAL, OPEN, State
from gramercy.tools.safety import Safety
from gramercy.tools.values import copy_json

if TYPE_CHECKING:
    from gramercy.execution.callers import Caller
    from gramercy.execution.executor import Settings
    from gramercy.execution.results import Attempt
    from gramercy.journal.base import CallRecord
    from gramercy.tools.tool import Tool

PROBE = "the tool's own probe"
# A probe only looks and does nothing. A probe that takes longer counts as unable to tell.
PROBE_SECONDS = 20.0
STORED = "[This call was made before and {what} at {when}; it was not run again. This is its answer.]"
IN_DOUBT = (
    "{tool} was not run: it ran before as call {key} and was interrupted at {when}, and nobody knows whether "
    "it has taken effect"
)
RESOLVING = (
    "Do not try another way to the same end: have the person look, and say so with "
    "`gramercy approvals resolve {key} done --reason …` or `failed`. Then call it again."
)


RUNNING = "it has not been run here: another process runs it as call {key} since {when}"
# As long as a call waits for a decision.
JOIN_SECONDS = 50.0


class Returning:
    """Knows which calls have their caller in this process, and finds those whose caller returns."""

    __slots__ = ("_settings", "here")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # Calls that run or wait in this process, and those whose answer is being delivered.
        self.here: set[int] = set()

    async def take(self, attempt: Attempt, caller: Caller) -> ToolResult | None:
        """Resume the call that this attempt's caller returns for, or return its answer."""
        record = self._found(attempt)
        if record is not None and record.state is State.IN_DOUBT:
            record = await self.probed(record, attempt.tool, caller)
            if record.state is State.FAILED:
                # It has not happened, so it may still run, as a new call.
                self._settings.journal.deliver(record.key)
                attempt.is_unique = False
                return None
        if record is None:
            return None
        self.here.add(record.key)
        attempt.key = record.key
        if record.state in OPEN:
            return None
        if record.state is State.EXECUTING:
            return await self.joined(attempt, caller)
        return self.answer(record, attempt.call_id)

    async def joined(self, attempt: Attempt, caller: Caller) -> ToolResult:
        """Wait for the end of a call that another process runs, and return its answer."""
        journal = self._settings.journal
        ended: list[CallRecord | None] = []

        def is_over(record: CallRecord | None) -> bool:
            if record is not None and record.state not in FINAL and not owners.is_alive(record.facts.owner):
                self.recover()
            ended[:] = [record]
            return record is None or record.state in FINAL

        seconds, why, is_ended = self._settings.approval_wait or JOIN_SECONDS, "", False
        try:
            is_ended = await wait_for(journal, attempt.key, is_over, caller, seconds=seconds)
        except BaseException as error:
            if ends_pipeline(error):
                raise
            why = f": {error_text(error)}"
        record = ended[0] if ended else None
        if record is None:
            text = f"the journal cannot tell what became of call {attempt.key}{why}"
            return ToolResult(attempt.call_id, False, text, text, {"journal_key": attempt.key})  # noqa: FBT003
        return self.answer(record, attempt.call_id) if is_ended else self._unfinished(record, attempt.call_id)

    def _unfinished(self, record: CallRecord, call_id: str) -> ToolResult:
        """Make the result of a call that another process still runs."""
        self.here.discard(record.key)
        text = RUNNING.format(key=record.key, when=strftime("%H:%M:%S", localtime(record.changed_at)))
        metadata = {"safety_level": record.call.level, "journal_key": record.key, "awaiting": True}
        content = f"{text}\nCall it again with the same arguments for its answer."
        return ToolResult(call_id, False, content, text, metadata)  # noqa: FBT003

    def _found(self, attempt: Attempt) -> CallRecord | None:
        journal, identity, is_unique = self._settings.journal, attempt.identity, attempt.is_unique
        record = journal.find(identity, delivered=is_unique)
        if record is not None and record.state is State.EXECUTING and record.key not in self.here:
            self.recover()
            record = journal.find(identity, delivered=is_unique)
        if record is None or record.key in self.here:
            return None
        if record.state in FINAL or is_unique:
            return record
        return None if self._has_caller(record) else record

    def _has_caller(self, record: CallRecord) -> bool:
        """Tell whether the caller of a call still waits for it in another process.

        That is the process that asked the question, not the one that runs the approved call.
        """
        journal = self._settings.journal
        asked = [entry.facts.owner for entry in journal.entries(record.key) if entry.state is State.AWAITING]
        owner = asked[-1] if asked else record.facts.owner
        return owner != getattr(journal, "owner", "") and bool(owners.is_alive(owner))

    def recover(self) -> list[CallRecord]:
        """Recover calls whose process has ended: to in doubt, or to ready again if the tool is idempotent."""
        return self._settings.journal.recover(self._is_idempotent)

    def _is_idempotent(self, name: str) -> bool:
        tool = self._settings.registry.get(name)
        return tool is not None and (tool.idempotent or tool.safety_level is Safety.SAFE)

    async def probed(self, record: CallRecord, tool: Tool, caller: Caller) -> CallRecord:
        """Have the tool check whether a call in doubt has happened; it may not be able to tell."""
        if tool.probe is None:
            return record
        arguments = record.facts.arguments or record.call.arguments
        try:
            limit = Limit("the probe", PROBE_SECONDS)
            happened = await caller.call(tool.probe, copy_json(dict(arguments)), limit=limit)
        except BaseException as error:
            if ends_pipeline(error):
                raise
            return record
        if type(happened) is not bool:
            return record
        with suppress(MovedError):
            return resolve(self._settings.journal, record.key, happened=happened, by=PROBE)
        return self._settings.journal.record(record.key) or record

    def answer(self, record: CallRecord, call_id: str) -> ToolResult:
        """Make the result of a finished call from its record in the journal."""
        facts, when = record.facts, strftime("%H:%M:%S", localtime(record.changed_at))
        metadata: dict[str, Any] = {
            "safety_level": record.call.level,
            "execution_time_ms": facts.elapsed_ms,
            "journal_key": record.key,
            "stored": True,
        }
        if record.state is State.IN_DOUBT:
            self.here.discard(record.key)
            text = IN_DOUBT.format(tool=record.call.tool, key=record.key, when=when)
            content = f"{text}\n{RESOLVING.format(key=record.key)}"
            return ToolResult(call_id, False, content, text, {**metadata, "in_doubt": True})  # noqa: FBT003
        if record.state is State.DONE:
            note = STORED.format(what="has run", when=when)
            told = facts.content or "(the answer is not kept any more)"
            return ToolResult(call_id, True, f"{note}\n{told}", None, metadata)  # noqa: FBT003
        what, text = "failed", facts.content or facts.detail
        if record.state is State.DENIED:
            refuser = Refuser((facts.ruling.refuser if facts.ruling else "") or Refuser.GUARD)
            metadata |= {"denied": True, "denied_by": refuser.value}
            advice = ADVICE[refuser].format(tool=record.call.tool)
            what, text = "was denied", f"{facts.detail}\n{advice}"
        content = f"{STORED.format(what=what, when=when)}\n{text}"
        return ToolResult(call_id, False, content, facts.detail or text, metadata)  # noqa: FBT003
