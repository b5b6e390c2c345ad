"""Ask a person for an approval: at the client if it can show questions, else in this process.

If no person can be asked, the call is denied. A question shows all of a call, in several parts if need be. A
question that does not fit the form of a client is offered as a file. A call that cannot be shown cannot be
approved.
"""

from __future__ import annotations

import asyncio
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import DeadlineExceededError, ExecutionError, GramercyError
from gramercy.execution.approval import Approved, Denied, takes_request
from gramercy.execution.callers import LOOP, Limit
from gramercy.execution.results import Refuser
from gramercy.execution.shown import folded, revealed
from gramercy.mcp.clients import ServedCall, checked_form, form
from gramercy.mcp.parked import stamp_of
from gramercy.mcp.question_files import FiledQuestion, Nearby
from gramercy.mcp.questions import ATTENDED, MANNERS, Chosen, Manner, parted
from gramercy.tools.context import current_call

if TYPE_CHECKING:
    from gramercy.execution.approval import ApprovalHandler, ApprovalRequest
    from gramercy.mcp.questions import ApprovalQuestion, Askable, RuleOffers


class Approver:
    """The approval handler of an executor whose tools are served. `before` is its previous handler."""

    def __init__(
        self,
        before: ApprovalHandler | None,
        patience: float,
        nearby: Nearby | None = None,
    ) -> None:
        self._before = before
        self._patience = patience
        self._nearby = nearby or Nearby()
        self._is_told = False

    async def __call__(self, tool: Any, arguments: dict[str, Any], request: ApprovalRequest) -> Any:
        """Ask the person at the client; otherwise the previous handler."""
        call = current_call()
        if isinstance(call, ServedCall) and call.conversation is not None and call.can("elicitation"):
            if _runs_alone(call):
                return Denied(ALONE.format(client="codex exec"), Refuser.NOBODY)
            return await self._elicit(call, request)
        del tool, arguments
        return await self._ask_here(request) or Denied(self._mute(request), Refuser.NOBODY)

    def _mute(self, request: ApprovalRequest) -> str:
        """Say why the client shows no question, and once, for edits, how to get around that."""
        told = (
            f"it needs a person's approval ({request.verdict.explanation}), but nobody can be asked: "
            "this client cannot show questions (it declares no elicitation)"
        )
        if request.tool.edits is None or request.verdict.must_ask or self._is_told:
            return told
        self._is_told = True
        return f"{told}. Started with --mode edits, the server makes edits that undo takes back unasked"

    async def _ask_here(self, request: ApprovalRequest) -> Any:
        """Ask in this process; None if no person can be asked here."""
        if self._before is None:
            return None
        given: tuple[Any, ...] = (request.tool, request.arguments)
        if takes_request(self._before):
            given += (request,)
        try:
            return await LOOP.call(self._before, *given, limit=Limit("the approval", self._patience))
        except DeadlineExceededError:
            return Denied(f"nobody answered within {self._patience:g} s", Refuser.TIMEOUT)

    async def _elicit(self, call: ServedCall, request: ApprovalRequest) -> Any:
        """Ask at the client, in one form or several; a question that fits no form is asked elsewhere."""
        manner = MANNERS.get(call.client, Manner.FULL)
        rules = await self._rules(request)
        parts = parted(request, manner, rules)
        if not parts:
            return await self._elsewhere(call, request)
        found: list[Chosen] = []
        for part in parts:
            chosen = await self._part(call, part)
            if not isinstance(chosen, Chosen):
                return chosen
            found.append(chosen)
        decision = parts[0].decided(found, call.principal, "\n".join(part.text for part in parts))
        if rules is not None and found[0].always and isinstance(decision, Approved):
            return await _remembered(rules, found[0].always, decision)
        return decision

    async def _rules(self, request: ApprovalRequest) -> RuleOffers | None:
        """Return the rules to offer; on a thread, since it checks which calls they would have allowed."""
        if self._nearby.rules is None:
            return None
        return await asyncio.to_thread(self._nearby.rules, request)

    async def _part(self, call: ServedCall, part: ApprovalQuestion) -> Chosen | Denied:
        """Ask about a part; a person who wants to change it, or to give a reason, gets a second form."""
        found = await self._answered(call, part)
        if found is not None and not (part.is_bare and found == Denied()):
            return found
        more = await self._answered(call, part.again())
        is_open = isinstance(more, Denied) and more.refuser != Refuser.PERSON
        # A person who declined and then ignored the second form has declined.
        return found if found is not None and is_open else more or Denied()

    async def _elsewhere(self, call: ServedCall, request: ApprovalRequest) -> Any:
        """Ask where all of it fits: in a file that the person opens, or in this process."""
        text = request.text()
        file = self._nearby.write(text)
        if file is None:
            return await self._ask_here(request) or Denied(TOO_LONG.format(size=len(text)), Refuser.GUARD)
        try:
            found = await self._answered(call, FiledQuestion(request, file))
            if isinstance(found, Chosen) and not file.is_intact():
                return Denied("the file with the question has changed meanwhile", Refuser.GUARD)
        finally:
            file.withdraw()
        if isinstance(found, Chosen):
            return Approved(call.principal, found.reason, file.text)
        return found or Denied()

    async def _answered(self, call: ServedCall, question: Askable) -> Chosen | Denied | None:
        """Show a form until its content can be used; None if the person wants to say more."""
        fault = ""
        for _ in range(MOST_TRIES):
            answer = await self._answer(call, question, fault)
            if isinstance(answer, Denied):
                return answer
            content, seconds = answer
            refusal = Denied(f"no {question.wanted} given in {MOST_TRIES} tries", Refuser.GUARD)
            try:
                chosen = question.chosen(content)
            except GramercyError as error:
                fault = f"{question.trouble} {error}"
                continue
            needed = reading_seconds(question.text)
            if not isinstance(chosen, Chosen) or seconds >= needed or not self._has_person(call):
                return chosen
            fault = HASTY.format(seconds=seconds, needed=needed)
            refusal = Denied(UNREAD.format(tries=MOST_TRIES, needed=needed), Refuser.CLIENT)
        return refusal

    def _has_person(self, call: ServedCall) -> bool:
        """Tell whether a person answers the forms of a client; the yes of a program is its author's word."""
        return call.client in ATTENDED and not (call.client == "claude-code" and self._is_claude_alone())

    async def _answer(
        self, call: ServedCall, question: Askable, fault: str
    ) -> tuple[dict[str, Any], float] | Denied:
        """Show a form once; return the accepted content and after how many seconds it came."""
        assert call.conversation is not None  # noqa: S101 - asked only with one; this tells mypy
        text = f"{folded(revealed(fault))}\n{question.text}" if fault else question.text
        params = form(text, question.schema, call.version)
        asked = monotonic()
        try:
            # An approval must answer the question that was shown, so it cannot come before the question.
            stamp = stamp_of([question.asked, params]) if question.asked else ""
            is_brought = call.conversation.has_brought("elicitation/create", stamp)
            answer = await call.conversation.ask("elicitation/create", params, stamp=stamp)
            answer = checked_form(answer, question.schema)
        except ExecutionError as error:
            if monotonic() - asked >= self._patience:
                return Denied(f"nobody answered within {self._patience:g} s", Refuser.TIMEOUT)
            return Denied(str(error), Refuser.CLIENT)
        if answer["action"] == "accept":
            # An earlier process has shown the question, at a time that is not known here.
            return answer["content"], inf if is_brought else monotonic() - asked
        seconds = monotonic() - asked
        if seconds < PERSON_SECONDS and call.client == "claude-code" and self._is_claude_alone():
            return Denied(ALONE.format(client="claude -p"), Refuser.NOBODY)
        return _unaccepted(answer["action"], seconds)

    def _is_claude_alone(self) -> bool:
        """Tell whether Claude Code says that it runs without a person.

        It is asked nevertheless: a hook of the person may answer the question. If no hook does, Claude Code
        dismisses it at once.
        """
        return self._nearby.environment.get("CLAUDE_CODE_ENTRYPOINT") == "sdk-cli"


async def _remembered(rules: RuleOffers, name: str, decision: Approved) -> Approved:
    """Write the rule that the person has chosen; the approval stands even if it cannot be written."""
    try:
        told = await asyncio.to_thread(rules.write, name)
    except GramercyError as error:
        told = f"the rule was not written: {error}"
    return msgspec.structs.replace(decision, reason="; ".join(filter(None, [decision.reason, told])))


def _runs_alone(call: ServedCall) -> bool:
    """Tell whether the client says with the call that it runs without a person; Codex does so."""
    about = call.request.meta.get("x-codex-turn-metadata")
    is_exec = isinstance(about, dict) and about.get("turn_trigger") == "exec"
    return is_exec and call.client == "codex-mcp-client"


ALONE = "it needs a person's approval, and nobody is there to give it: {client} runs without a person"
TOO_LONG = (
    "all of it takes {size:,} characters, more than a form can show, and nobody approves what was not shown. "
    "Do it in smaller steps"
)
# A person cannot read a question and refuse it in less time. A faster refusal comes from the program, such as
# `claude -p` and `codex exec`, which declare that they can ask, and dismiss or decline at once.
PERSON_SECONDS = 1.0
# If a person cannot write the arguments in three tries, the model should do it.
MOST_TRIES = 3
# An approval that comes sooner was meant for something else, such as a key pressed as the form appeared. A
# person who knows what to expect needs half a second, and skims 2,000 characters in one more. Two seconds are
# the maximum: a long question that resembles the last one is not read again.
LEAST_SECONDS, MOST_SECONDS = 0.5, 2.0
SKIMMED_PER_SECOND = 2_000
HASTY = (
    "Asked again: the approval came after {seconds:.2f} s, and nobody reads this in less than {needed:.1f} s."
)
UNREAD = (
    "the client accepted the question {tries} times in less than the {needed:.1f} s that a person needs to "
    "read it, so that nobody can have seen it; a hook that answers for a person cannot approve here"
)


def reading_seconds(text: str) -> float:
    """Return the time in which a person cannot have read a question."""
    return min(MOST_SECONDS, LEAST_SECONDS + len(text) / SKIMMED_PER_SECOND)


def _unaccepted(action: str, seconds: float) -> Denied:
    """Read a refusal; it counts as a person's decision only if a person can have been that fast."""
    if seconds < PERSON_SECONDS:
        done = "declined" if action == "decline" else "dismissed the question"
        text = f"the client {done} after {seconds:.2f} s, without telling whether a person was asked"
        return Denied(f"{text} (one that runs unattended does that)", Refuser.CLIENT)
    if action == "decline":
        return Denied()
    return Denied("the question was dismissed at the client, without a decision", Refuser.CLIENT)
