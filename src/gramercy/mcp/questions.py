"""The question that a person at the client is asked before a call runs, and what the answer means.

Of a proposed edit with several hunks each one is asked about.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gramercy.execution.approval import Approved, Decision, Denied, Modified
from gramercy.execution.calls import clean
from gramercy.toolsets import hunks

if TYPE_CHECKING:
    from gramercy.execution.approval import ApprovalRequest

LONGEST_SHOWN = 4_000
LONGEST_EFFECT = 12_000
# More switches than this nobody goes through; then the edit is decided as a whole.
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
            # What was not shown is applied only when somebody says so.
            if content.get(_switch(hunk), hunk.number not in self._unseen)
        }
        if len(chosen) == len(self._hunks):
            return Approved(by=by)
        tool, arguments = self._request.tool, self._request.arguments
        texts = tool.proposed_edit(arguments)
        assert texts is not None  # noqa: S101 - there are hunks to choose from
        note = hunks.applied_note(*texts, chosen, reason)
        if not chosen:
            return Denied(note)
        return Modified(tool.with_edit(arguments, hunks.accepted(*texts, chosen)), by=by, note=note)


def _hunks(request: ApprovalRequest) -> list[hunks.Hunk]:
    """Return the hunks to be asked about one by one; none when there is nothing to choose from."""
    texts = request.tool.proposed_edit(request.arguments)
    found = hunks.split(*texts) if texts else []
    return found if 1 < len(found) <= MOST_HUNKS else []


def _switch(hunk: hunks.Hunk) -> str:
    return f"hunk_{hunk.number}"


def _unseen(found: list[hunks.Hunk]) -> set[int]:
    """Return the numbers of the hunks for which the question has no room."""
    room, unseen = LONGEST_EFFECT, set()
    for hunk in found:
        size = len(str(hunk)) + 1
        if size > room:
            unseen.add(hunk.number)
        else:
            room -= size
    return unseen


def _described(hunk: hunks.Hunk, is_unseen: bool) -> dict[str, Any]:  # noqa: FBT001 - a fact, not a mode
    size = f"{len(hunk.removed)} lines out, {len(hunk.added)} in"
    warning = "; it is too long to be shown here" if is_unseen else ""
    return {
        "type": "boolean",
        "title": f"Hunk {hunk.number}, line {hunk.start + 1}",
        "description": f"Apply this hunk ({size}); it counts when you approve{warning}",
        "default": not is_unseen,
    }


def question_text(request: ApprovalRequest, chosen_from: list[hunks.Hunk]) -> str:
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
