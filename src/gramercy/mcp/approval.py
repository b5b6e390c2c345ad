"""Ask a person for an approval: at the client if it can show a question, else in this process.

With no one to ask, the call is denied. Of a proposed edit with several hunks each hunk is asked about.
"""

from __future__ import annotations

import asyncio
import json
from itertools import count
from time import monotonic, time
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import DeadlineExceededError, ExecutionError
from gramercy.execution.approval import Approved, Decision, Denied, Modified, read_decision, takes_request
from gramercy.execution.callers import LOOP, Limit
from gramercy.execution.calls import clean
from gramercy.execution.results import Refuser
from gramercy.mcp.clients import ServedCall, checked_form, form
from gramercy.tools.context import current_call

if TYPE_CHECKING:
    from gramercy.execution.approval import ApprovalHandler, ApprovalRequest
    from gramercy.toolsets.hunks import Hunk

# More questions than a person at a console will work off; the rest is denied rather than left waiting.
MOST_PENDING = 100


class PendingApproval(msgspec.Struct, frozen=True):
    """A call that waits for a person."""

    id: str
    tool: str
    arguments: dict[str, Any]
    safety_level: str
    explanation: str
    principal: str
    asked_at: float
    changes: tuple[str, ...] = ()
    effect: str = ""


class ApprovalQueue:
    """Approvals that wait for a decision in this process: at a console, on a web page, in a test."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._waiting: dict[str, tuple[PendingApproval, asyncio.Future[Any]]] = {}

    def pending(self) -> list[PendingApproval]:
        """List what waits for a decision, oldest first."""
        return [pending for pending, _ in list(self._waiting.values())]

    def decide(self, approval_id: str, decision: Any) -> bool:
        """Decide once, from any thread, in an approval handler's words; tell whether it counts."""
        found = self._waiting.pop(approval_id, None)
        if found is None:
            return False
        future = found[1]
        loop = future.get_loop()
        if loop.is_closed():
            return False
        loop.call_soon_threadsafe(lambda: None if future.done() else future.set_result(decision))
        return True

    async def ask(self, request: ApprovalRequest, patience: float) -> Decision:
        """Wait for a decision, not longer than `patience` seconds."""
        if len(self._waiting) >= MOST_PENDING:
            return Denied(f"{MOST_PENDING} calls already wait for an approval", Refuser.NOBODY)
        name = f"approval-{next(self._numbers)}"
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[name] = (_pending(name, request), future)
        try:
            async with asyncio.timeout(patience):
                return read_decision(await future)
        except TimeoutError:
            return Denied(f"nobody answered within {patience:g} s", Refuser.TIMEOUT)
        finally:
            self._waiting.pop(name, None)


def _pending(name: str, request: ApprovalRequest) -> PendingApproval:
    return PendingApproval(
        name,
        request.tool.name,
        request.arguments,
        request.tool.level_word,
        request.verdict.explanation,
        current_call().principal,
        time(),
        request.changes,
        request.effect,
    )


class Approver:
    """The approval handler of an executor whose tools are served. `before` is the one that it had."""

    def __init__(self, before: ApprovalHandler | None, queue: ApprovalQueue | None, patience: float) -> None:
        self._before = before
        self._queue = queue
        self._patience = patience

    async def __call__(self, tool: Any, arguments: dict[str, Any], request: ApprovalRequest) -> Any:
        """Ask the person at the client; else the queue; else the handler that was there before."""
        call = current_call()
        if isinstance(call, ServedCall) and call.conversation is not None and call.can("elicitation"):
            return await self._elicit(call, request)
        if self._queue is not None:
            return await self._queue.ask(request, self._patience)
        if self._before is not None:
            given = (tool, arguments, request) if takes_request(self._before) else (tool, arguments)
            try:
                return await LOOP.call(self._before, *given, limit=Limit("the approval", self._patience))
            except DeadlineExceededError:
                return Denied(f"nobody answered within {self._patience:g} s", Refuser.TIMEOUT)
        return Denied(
            f"it needs a person's approval ({request.verdict.explanation}), but nobody can be asked: "
            "this client cannot show questions (it declares no elicitation)",
            Refuser.NOBODY,
        )

    async def _elicit(self, call: ServedCall, request: ApprovalRequest) -> Decision:
        assert call.conversation is not None  # noqa: S101 - asked only with one; this tells mypy
        question = ApprovalQuestion(request)
        params = form(question.text, question.schema, call.version)
        asked = monotonic()
        try:
            # Anew: an approval must answer the question that was shown, so it cannot come before it.
            answer = await call.conversation.ask("elicitation/create", params, anew=True)
            answer = checked_form(answer, question.schema)
        except ExecutionError as error:
            if monotonic() - asked >= self._patience:
                return Denied(f"nobody answered within {self._patience:g} s", Refuser.TIMEOUT)
            return Denied(str(error), Refuser.CLIENT)
        if answer["action"] != "accept":
            return _unaccepted(answer["action"], monotonic() - asked)
        return question.decide(answer["content"], call.principal)


# Nobody reads a question and refuses it in less: such an answer comes from the program, as that of
# `claude -p` and `codex exec`, which declare that they can ask and decline at once.
PERSON_SECONDS = 1.0


def _unaccepted(action: str, seconds: float) -> Denied:
    """Read a refusal; that a person decided is said only where one can have."""
    if action == "cancel":
        return Denied("the question was dismissed at the client, without a decision", Refuser.CLIENT)
    if seconds >= PERSON_SECONDS:
        return Denied()
    return Denied(
        f"the client declined after {seconds:.2g} s, without telling whether a person was asked",
        Refuser.CLIENT,
    )


# A dialog of a client shows some screens of text: arguments on two, what the call would do on six.
LONGEST_SHOWN = 4_000
LONGEST_EFFECT = 12_000
# A person goes through no more switches than this; beyond, the edit is decided as a whole.
MOST_HUNKS = 20
DECISION = {
    "type": "string",
    "title": "Decision",
    "description": "Whether the tool may run with exactly these arguments",
    "enum": ["approve", "deny"],
}
REASON = {"type": "string", "title": "Reason", "description": "Told to the model when you deny"}


class ApprovalQuestion:
    """What is shown, the form in which it is answered, and the reading of the answer."""

    def __init__(self, request: ApprovalRequest) -> None:
        self._request = request
        self._hunks = _hunks(request)
        self._unseen = _unseen(self._hunks)
        switches = {_switch(hunk): _described(hunk, hunk.number in self._unseen) for hunk in self._hunks}
        self.schema = {
            "type": "object",
            "properties": {"decision": DECISION, **switches, "reason": REASON},
            "required": ["decision"],
        }
        shown = [hunk for hunk in self._hunks if hunk.number not in self._unseen]
        self.text = question_text(request, shown)

    def decide(self, content: dict[str, Any], by: str) -> Decision:
        """Return what the person has decided; `content` fits the form."""
        reason = str(content.get("reason", ""))
        if content["decision"] != "approve":
            return Denied(reason)
        chosen = {
            hunk.number
            for hunk in self._hunks
            # A hunk that was not shown is applied only when the person says so.
            if content.get(_switch(hunk), hunk.number not in self._unseen)
        }
        if len(chosen) == len(self._hunks):
            return Approved(by=by)
        from gramercy.toolsets.hunks import accepted, applied_note

        tool, arguments = self._request.tool, self._request.arguments
        texts = tool.proposed_edit(arguments)
        assert texts is not None  # noqa: S101 - there are hunks to choose from
        note = applied_note(*texts, chosen, reason)
        if not chosen:
            return Denied(note)
        return Modified(tool.with_edit(arguments, accepted(*texts, chosen)), by=by, note=note)


def _hunks(request: ApprovalRequest) -> list[Hunk]:
    """Return the hunks to be asked about one by one; none when there is nothing to choose from."""
    texts = request.tool.proposed_edit(request.arguments)
    if texts is None:
        return []
    # Imported here: a server lists its tools long before it asks, and difflib takes time to import.
    from gramercy.toolsets.hunks import split

    found = split(*texts)
    return found if 1 < len(found) <= MOST_HUNKS else []


def _switch(hunk: Hunk) -> str:
    return f"hunk_{hunk.number}"


def _unseen(found: list[Hunk]) -> set[int]:
    """Return the numbers of the hunks for which the question has no room."""
    room, unseen = LONGEST_EFFECT, set()
    for hunk in found:
        size = len(str(hunk)) + 1
        if size > room:
            unseen.add(hunk.number)
        else:
            room -= size
    return unseen


def _described(hunk: Hunk, is_unseen: bool) -> dict[str, Any]:  # noqa: FBT001 - a fact, not a mode
    size = f"{len(hunk.removed)} lines out, {len(hunk.added)} in"
    warning = "; it is too long to be shown here" if is_unseen else ""
    return {
        "type": "boolean",
        "title": f"Hunk {hunk.number}, line {hunk.start + 1}",
        "description": f"Apply this hunk ({size}); it counts when you approve{warning}",
        "default": not is_unseen,
    }


def question_text(request: ApprovalRequest, chosen_from: list[Hunk]) -> str:
    """Show a person the call as it would run, and what it would do."""
    tool = request.tool
    lines = [f"May {tool.name} ({tool.level_word}) run with these arguments?", _arguments(request)]
    if chosen_from:
        lines += map(str, chosen_from)
    elif request.effect:
        lines += ["What it would do:", request.effect]
    lines += [f"Asked again: {change}" for change in request.changes]
    shown = _bounded("\n".join(lines), LONGEST_SHOWN + LONGEST_EFFECT)
    return _printable(f"{shown}\nWhy this is asked: {request.verdict.explanation}")


def _arguments(request: ApprovalRequest) -> str:
    # Of an edit the difference is shown, which says the same in fewer words.
    hidden = request.tool.edits if request.tool.edits and request.effect else ()
    shown = {name: value for name, value in request.arguments.items() if name not in hidden}
    return _bounded(json.dumps(shown, indent=2, ensure_ascii=False, sort_keys=True), LONGEST_SHOWN)


def _bounded(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n… [{len(text):,} characters]"


def _printable(text: str) -> str:
    """Take out what could hide or disguise a part of the question."""
    return clean("".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text))
