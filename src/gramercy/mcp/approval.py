"""Ask a person for an approval: at the client if it can show a question, else in this process.

With no one to ask, the call is denied. Of a proposed edit with several hunks each hunk is asked about.
"""

from __future__ import annotations

import asyncio
import json
from enum import Enum
from itertools import count
from time import monotonic, time
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import (
    DeadlineExceededError,
    ExecutionError,
    Fault,
    GramercyError,
    InvalidArgumentsError,
)
from gramercy.execution.approval import Approved, Decision, Denied, Modified, read_decision, takes_request
from gramercy.execution.callers import LOOP, Limit
from gramercy.execution.calls import clean, parse_arguments
from gramercy.execution.results import Refuser
from gramercy.mcp.clients import ServedCall, checked_form, form
from gramercy.tools.context import current_call
from gramercy.tools.values import WHOLE

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
        """Ask at the client; a person who wants to change the call, or to say why not, gets a second form."""
        question = ApprovalQuestion(request, MANNERS.get(call.client_name, Manner.FULL))
        decision = await self._decision(call, question)
        if decision is not None and not (question.is_bare and decision == Denied()):
            return decision
        more = await self._decision(call, ApprovalQuestion(request, Manner.MORE))
        is_open = isinstance(more, Denied) and more.refuser != Refuser.PERSON
        # A person who declined and then let the second form be has declined.
        return decision if decision is not None and is_open else more or Denied()

    async def _decision(self, call: ServedCall, question: ApprovalQuestion) -> Decision | None:
        """Show a form until what was filled in can be used; None when the person wants to say more."""
        fault = ""
        for _ in range(MOST_TRIES):
            answer = await self._answer(call, question, fault)
            if isinstance(answer, Denied):
                return answer
            try:
                return question.decide(answer, call.principal)
            except GramercyError as error:
                fault = f"The arguments that you gave cannot be used. {error}"
        return Denied(f"no arguments that can be used were given in {MOST_TRIES} tries", Refuser.GUARD)

    async def _answer(
        self, call: ServedCall, question: ApprovalQuestion, fault: str
    ) -> dict[str, Any] | Denied:
        """Show a form once; return what was filled in when it was accepted."""
        assert call.conversation is not None  # noqa: S101 - asked only with one; this tells mypy
        text = _printable(f"{fault}\n{question.text}" if fault else question.text)
        params = form(text, question.schema, call.version)
        asked = monotonic()
        try:
            # Anew: an approval must answer the question that was shown, so it cannot come before it.
            answer = await call.conversation.ask("elicitation/create", params, anew=True)
            answer = checked_form(answer, question.schema)
        except ExecutionError as error:
            if monotonic() - asked >= self._patience:
                return Denied(f"nobody answered within {self._patience:g} s", Refuser.TIMEOUT)
            return Denied(str(error), Refuser.CLIENT)
        if answer["action"] == "accept":
            content: dict[str, Any] = answer["content"]
            return content
        return _unaccepted(answer["action"], monotonic() - asked)


# Nobody reads a question and refuses it in less: such an answer comes from the program, as that of
# `claude -p` and `codex exec`, which declare that they can ask, and dismiss or decline at once.
PERSON_SECONDS = 1.0
# A person who cannot write the arguments in three tries is better served by the model.
MOST_TRIES = 3


def _unaccepted(action: str, seconds: float) -> Denied:
    """Read a refusal; that a person decided is said only where one can have."""
    if seconds < PERSON_SECONDS:
        done = "declined" if action == "decline" else "dismissed the question"
        text = f"the client {done} after {seconds:.2f} s, without telling whether a person was asked"
        return Denied(f"{text} (one that runs unattended does that)", Refuser.CLIENT)
    if action == "decline":
        return Denied()
    return Denied("the question was dismissed at the client, without a decision", Refuser.CLIENT)


class Manner(Enum):
    """Which form a client gets. To accept one with nothing filled in is to approve, but for MORE."""

    FULL = "decision, hunks, arguments, reason"
    CHOICE = "decision"
    BARE = "nothing"
    MORE = "hunks, arguments, reason, for a person who did not just approve"


# Claude Code puts the cursor on Accept only where a form has no fields: one key instead of one per field.
# Codex accepts a form without fields by itself when it runs with full access, and shows a choice as a menu.
MANNERS = {"claude-code": Manner.BARE, "codex-mcp-client": Manner.CHOICE}

# A dialog of a client shows some screens of text: arguments on two, what the call would do on six.
LONGEST_SHOWN = 4_000
LONGEST_EFFECT = 12_000
# Claude Code shows three lines of a question, cut at the edge of the terminal: these say it in short, the
# call on the first and what it would do on two more.
FEW_LINES = 2
LINE_WIDTH = 100
DIFFERENCE = ("--- ", "@@ ")
LONGEST_LINE = 160
LONGEST_VALUE = 60
# A person goes through no more switches than this; beyond, the edit is decided as a whole.
MOST_HUNKS = 20
APPROVE, DENY, CHANGE = "approve", "deny", "change"
DECISION = {
    "type": "string",
    "title": "Decision",
    "description": "Whether it may run as shown",
    "enum": [APPROVE, DENY],
    "default": APPROVE,
}
CHOICE = {**DECISION, "enum": [APPROVE, DENY, CHANGE], "description": "change: edit it, or say why not"}
REASON = {"type": "string", "title": "Reason", "description": "Told to the model when you deny"}
ARGUMENTS = {
    "type": "string",
    "title": "Other arguments",
    "description": 'Those to change, as JSON, such as {"path": "b.txt"}; the others stay',
}


class ApprovalQuestion:
    """What is shown, the form in which it is answered, and the reading of the answer."""

    def __init__(self, request: ApprovalRequest, manner: Manner = Manner.FULL) -> None:
        self._request = request
        # Asked once: a file may change while the person looks, and the numbers are those of what was shown.
        self._texts = request.tool.proposed_edit(request.arguments)
        self._hunks = _hunks(self._texts)
        self._unseen = _unseen(self._hunks)
        # Hunks that were not shown are approved one by one or not at all.
        self._manner = Manner.FULL if self._unseen and manner is not Manner.MORE else manner
        self._fields = self._all_fields()
        self.schema = {"type": "object", "properties": self._fields}
        shown = [hunk for hunk in self._hunks if hunk.number not in self._unseen]
        self.text = self._headline() + question_text(request, shown)

    @property
    def is_bare(self) -> bool:
        """Whether the form has no place for more than yes and no."""
        return self._manner is Manner.BARE

    def _all_fields(self) -> dict[str, Any]:
        if self._manner is Manner.BARE:
            return {}
        if self._manner is Manner.CHOICE:
            return {"decision": CHOICE}
        # A proposed edit is changed by choosing from its hunks.
        fields: dict[str, Any] = {_switch(hunk): self._described(hunk) for hunk in self._hunks}
        fields["reason"] = REASON
        if not self._hunks:
            fields["arguments"] = ARGUMENTS
        return fields if self._manner is Manner.MORE else {"decision": DECISION, **fields}

    def _headline(self) -> str:
        if self._manner is not Manner.MORE:
            return ""
        change = "switch on hunks to apply" if self._hunks else "give other arguments to run it with"
        return f"Not approved as it is. Say why not, or {change}; with nothing it is denied.\n"

    def _described(self, hunk: Hunk) -> dict[str, Any]:
        is_unseen = hunk.number in self._unseen
        about = f"+{len(hunk.added)} -{len(hunk.removed)} lines: "
        about += "too long to be shown here" if is_unseen else _cut(_printable(" ".join(_changed(str(hunk)))))
        default = not is_unseen and self._manner is not Manner.MORE
        title = f"Hunk {hunk.number}, line {hunk.start + 1}"
        return {"type": "boolean", "title": title, "description": about, "default": default}

    def decide(self, content: dict[str, Any], by: str) -> Decision | None:
        """Return what the person has decided, None for a wish to say more; `content` fits the form.

        Raise InvalidArgumentsError for arguments that cannot be used.
        """
        word, reason = content.get("decision", APPROVE), str(content.get("reason", "")).strip()
        if word == CHANGE:
            return None
        if word != APPROVE:
            return Denied(reason)
        if self._hunks:
            return self._chosen(content, reason, by)
        edited = self._edited(str(content.get("arguments", "")))
        if edited is not None:
            return Modified(edited, by=by)
        return Denied(reason) if self._manner is Manner.MORE else Approved(by=by)

    def _edited(self, text: str) -> dict[str, Any] | None:
        """Return the arguments with the person's changes, checked; None when nothing was changed."""
        changes = parse_arguments(text) if text.strip() else {}
        if not isinstance(changes, dict):
            raise InvalidArgumentsError([Fault(WHOLE, "a JSON object", f"{text!r:.60}")])
        tool, shown = self._request.tool, self._request.arguments
        edited = tool.checker.check({**shown, **changes})
        return edited if edited != shown else None

    def _chosen(self, content: dict[str, Any], reason: str, by: str) -> Decision:
        """Return a decision that applies the hunks that are switched on, by the person or by default."""
        names = {_switch(hunk): hunk.number for hunk in self._hunks}
        defaults = {name: self._fields.get(name, {}).get("default", True) for name in names}
        chosen = {number for name, number in names.items() if content.get(name, defaults[name])}
        if len(chosen) == len(self._hunks):
            return Approved(by=by)
        from gramercy.toolsets.hunks import accepted, applied_note

        tool, arguments = self._request.tool, self._request.arguments
        assert self._texts is not None  # noqa: S101 - there are hunks to choose from
        note = applied_note(*self._texts, chosen, reason)
        if not chosen:
            return Denied(note)
        taken = accepted(*self._texts, chosen)
        return Modified(tool.with_edit(arguments, self._texts[0], taken), by=by, note=note)


def _hunks(texts: tuple[str, str] | None) -> list[Hunk]:
    """Return the hunks to be asked about one by one; none when there is nothing to choose from."""
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


def question_text(request: ApprovalRequest, chosen_from: list[Hunk]) -> str:
    """Show a person the call as it would run, and what it would do: in short first, then all of it."""
    tool = request.tool
    # Of an edit the difference is shown, which says the same in fewer words.
    hidden = tool.edit_arguments if request.effect else ()
    given = {name: value for name, value in request.arguments.items() if name not in hidden}
    in_short, is_whole = _in_short(given)
    effect = "\n".join(map(str, chosen_from)) or request.effect
    lines = [f"Run {tool.name} ({tool.level_word})? {in_short}".rstrip()]
    lines += [f"Asked again: {change}" for change in request.changes]
    lines += _gist(effect)
    if not is_whole:
        lines.append(_bounded(json.dumps(given, indent=2, ensure_ascii=False, sort_keys=True), LONGEST_SHOWN))
    if "\n" in effect:
        lines.append(effect)
    shown = _bounded("\n".join(lines), LONGEST_SHOWN + LONGEST_EFFECT)
    return _printable(f"{shown}\nAsked because {request.verdict.explanation}")


def _in_short(arguments: dict[str, Any]) -> tuple[str, bool]:
    """Write arguments on one line, long values by their size; tell whether nothing is missing."""
    parts, is_whole = [], True
    for name, value in arguments.items():
        text = json.dumps(value, ensure_ascii=False, sort_keys=True)
        if len(text) > LONGEST_VALUE:
            is_whole = False
            text = f"{len(value if isinstance(value, str) else text):,} characters"
        parts.append(f"{name}: {text}")
    line = ", ".join(parts)
    return _cut(line), is_whole and len(line) <= LONGEST_LINE


def _gist(effect: str) -> list[str]:
    """Say on two lines at most what the call would do."""
    first, _, rest = effect.partition("\n")
    if effect.startswith(DIFFERENCE):
        return _pressed(effect)
    said = [_cut(first)] if first else []
    return [*said, *_pressed(rest)][:FEW_LINES] if rest.startswith(DIFFERENCE) else said


def _pressed(difference: str) -> list[str]:
    """Press the lines that come and go into two; they are counted, so that nobody takes them for all."""
    changed = _changed(difference)
    if len(changed) <= FEW_LINES:
        return [_cut(line) for line in changed]
    added = sum(line.startswith("+") for line in changed)
    pressed = " | ".join(line[0] + line[1:].strip() for line in changed)
    # The guard cuts a long difference and says so at its end.
    least = "at least " if difference.rpartition("\n")[2].startswith("… [") else ""
    text = f"{least}+{added} -{len(changed) - added} lines: {pressed}"[: FEW_LINES * LINE_WIDTH]
    return [text[start : start + LINE_WIDTH] for start in range(0, len(text), LINE_WIDTH)]


def _changed(difference: str) -> list[str]:
    """Return the lines of a difference that come and go."""
    lines = difference.split("\n")
    return [line for line in lines if line[:1] in {"+", "-"} and not line.startswith(("+++ ", "--- "))]


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…"


def _bounded(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n… [{len(text):,} characters]"


def _printable(text: str) -> str:
    """Take out what could hide or disguise a part of the question."""
    return clean("".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text))
