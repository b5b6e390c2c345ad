"""Ask the person at an editor: whole calls, edits hunk by hunk, other arguments where the editor has forms.

A person sees all of a call before it runs. A question without an answer of the editor is not approved.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from gramercy.acp.updates import differences, hunk_view, text_content
from gramercy.errors import ExecutionError, GramercyError
from gramercy.execution.approval import Approved, Denied, Modified
from gramercy.execution.calls import parse_arguments
from gramercy.execution.results import Refuser
from gramercy.execution.shown import folded, revealed
from gramercy.toolsets.documents import lines
from gramercy.toolsets.hunks import accepted, applied_note, split

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gramercy.acp.editor import Editor
    from gramercy.acp.updates import CallView
    from gramercy.execution.approval import ApprovalRequest, Decision
    from gramercy.tools.tool import Tool
    from gramercy.toolsets.hunks import Hunk

# A person answers no more questions than this for one edit; a larger edit is asked about as a whole.
MOST_HUNKS = 20
# If a person cannot write the arguments in three tries, the model should do it.
MOST_TRIES = 3
ONCE, ALWAYS, EDIT, REJECT = "once", "always", "edit", "reject"
# For an edit that is asked about hunk by hunk: this hunk and all after it.
ALLOW_REST, REST = "allow-rest", "reject-rest"
TAKEN = frozenset({ONCE, ALWAYS, ALLOW_REST})
_FIELDS = {"string": "string", "integer": "integer", "number": "number", "boolean": "boolean"}


class EditorApprover:
    """The approval handler of one session. "Always allow" applies to this session only."""

    def __init__(
        self, editor: Editor, session: str, view: Callable[[ApprovalRequest], Awaitable[CallView]]
    ) -> None:
        self._editor = editor
        self._session = session
        self._view = view
        self._allowed: set[tuple[str, str]] = set()
        # An editor shows one question at a time, so concurrent calls have to wait for each other.
        self._turn = asyncio.Lock()

    async def __call__(self, tool: Tool, arguments: dict[str, Any], request: ApprovalRequest) -> Decision:
        """Decide by what the person always allows in this session, else ask."""
        del tool, arguments
        async with self._turn:
            if not request.verdict.must_ask and _subject(request) in self._allowed:
                return Approved(self._by, "always allowed in this session")
            view = await self._view(request)
            try:
                decision = await self._decided(view, request)
            except ExecutionError as error:
                return Denied(str(error), Refuser.CLIENT)
        if not isinstance(decision, Denied):
            self._editor.update(self._session, view.changed("in_progress"))
        return decision

    @property
    def _by(self) -> str:
        return f"person at {self._editor.name}"

    async def _decided(self, view: CallView, request: ApprovalRequest) -> Decision:
        # This reads a file.
        texts = await asyncio.to_thread(request.tool.proposed_edit, request.arguments)
        hunks = split(*texts) if texts is not None else []
        # The arguments may have been edited since the model wrote them.
        view.arguments = dict(request.arguments)
        view.diffs, places = differences(str(request.effect_data.get("difference", "")), _base(request, view))
        view.locations = places or view.locations
        if texts is not None and 1 < len(hunks) <= MOST_HUNKS:
            return await self._by_hunks(view, request, texts, hunks)
        return await self._whole(view, request)

    async def _whole(self, view: CallView, request: ApprovalRequest) -> Decision:
        content = [*view.diffs, text_content(_question(request, with_difference=not view.diffs))]
        options = _options(request, can_edit=self._editor.can("elicitation", "form"))
        chosen = await ask_permission(self._editor, self._session, view, content, options)
        if chosen == EDIT:
            return await self._edited(view, request)
        if chosen not in {ONCE, ALWAYS}:
            return Denied(by=self._by) if chosen == REJECT else _dismissed()
        return self._approved(request, always=chosen == ALWAYS)

    async def _by_hunks(
        self, view: CallView, request: ApprovalRequest, texts: tuple[str, str], hunks: list[Hunk]
    ) -> Decision:
        """Ask about one hunk after the other; nothing is changed before the last answer."""
        before, taken = lines(texts[0]), set()
        self._editor.update(self._session, view.changed("pending", view.diffs))
        for hunk in hunks:
            part = hunk_view(view, before, hunk, len(hunks))
            self._editor.update(self._session, part.begun("pending"))
            content = [*part.diffs, text_content(_question(request, with_difference=False))]
            options = _options(request, hunk=f"{hunk.number} of {len(hunks)}")
            chosen = await ask_permission(self._editor, self._session, part, content, options)
            self._editor.update(self._session, part.changed("completed" if chosen in TAKEN else "failed"))
            if chosen not in {*TAKEN, REJECT, REST}:
                return _dismissed()
            taken |= {hunk.number} if chosen in TAKEN else set()
            if chosen == ALWAYS:
                self._allowed.add(_subject(request))
            if chosen in {ALWAYS, ALLOW_REST}:
                # Hunks rejected before stay rejected. All of it was shown before the first question.
                taken |= {each.number for each in hunks if each.number > hunk.number}
            if chosen in {ALWAYS, ALLOW_REST, REST}:
                break
        return self._chosen(request, texts, taken, len(hunks))

    def _chosen(
        self, request: ApprovalRequest, texts: tuple[str, str], taken: set[int], count: int
    ) -> Decision:
        if len(taken) == count:
            return self._approved(request, always=False)
        note = applied_note(*texts, taken)
        if not taken:
            return Denied(note, by=self._by)
        arguments = request.tool.with_edit(request.arguments, texts[0], accepted(*texts, taken))
        return Modified(arguments, by=self._by, note=note, shown=request.text())

    def _approved(self, request: ApprovalRequest, *, always: bool) -> Approved:
        if not always:
            return Approved(self._by, shown=request.text())
        self._allowed.add(_subject(request))
        return Approved(self._by, "from now on always allowed in this session", request.text())

    async def _edited(self, view: CallView, request: ApprovalRequest) -> Decision:
        """Have the person change the arguments; then ask again, with the effect of the new ones."""
        fault = ""
        for _ in range(MOST_TRIES):
            answer = await self._editor.ask("elicitation/create", self._form(view, request, fault))
            if answer.get("action") != "accept":
                return _dismissed() if answer.get("action") == "cancel" else Denied(by=self._by)
            content = answer.get("content")
            try:
                edited = _read_form(request, content if isinstance(content, dict) else {})
            except GramercyError as error:
                fault = f"{error}\n"
                continue
            return Modified(edited, by=self._by, shown=request.text())
        return Denied(f"no arguments that can be used were given in {MOST_TRIES} tries", Refuser.GUARD)

    def _form(self, view: CallView, request: ApprovalRequest, fault: str) -> dict[str, Any]:
        properties = request.tool.schema.get("properties", {})
        fields = {
            name: _field(properties.get(name), request.arguments.get(name))
            for name in dict.fromkeys([*properties, *request.arguments])
        }
        required = [name for name in request.tool.required if name in fields]
        return {
            "mode": "form",
            "sessionId": self._session,
            "toolCallId": view.id,
            "message": f"{folded(revealed(fault))}Run {request.tool.name} with these arguments",
            "requestedSchema": {"type": "object", "properties": fields, "required": required},
        }


async def ask_permission(
    editor: Editor,
    session: str,
    view: CallView,
    content: list[dict[str, Any]],
    options: list[dict[str, Any]],
) -> str:
    """Return the option that the person has chosen; empty if the question was dismissed."""
    params = {"sessionId": session, "toolCall": view.asked(content), "options": options}
    answer = (await editor.ask("session/request_permission", params)).get("outcome")
    chosen = answer.get("optionId") if isinstance(answer, dict) else None
    # Accept only an option that was offered, whatever the editor says.
    offered: set[str] = {option["optionId"] for option in options}
    return chosen if isinstance(chosen, str) and chosen in offered else ""


def option(name: str, title: str, kind: str) -> dict[str, Any]:
    """Return an option to choose. The kind only tells an editor which symbol or key to use."""
    return {"optionId": name, "name": title, "kind": kind}


def _base(request: ApprovalRequest, view: CallView) -> str:
    """Return the directory that the paths of a diff are relative to.

    It comes from the real place of the call: the model has many ways to write a path, and a person may have
    edited it.
    """
    for place in request.places.values():
        if not place.trouble:
            return place.absolute.removesuffix(place.name)
    given = view.arguments.get("path") if isinstance(view.arguments, dict) else None
    if not view.locations or not isinstance(given, str):
        return ""
    return str(view.locations[0]["path"]).removesuffix(given)


def _subject(request: ApprovalRequest) -> tuple[str, str]:
    """Return the scope of "always": a tool, and the real name of the file that it changes."""
    if "path" in request.places:
        return request.tool.name, request.places["path"].name
    path = request.arguments.get("path")
    return request.tool.name, path if isinstance(path, str) else ""


def _options(request: ApprovalRequest, *, can_edit: bool = False, hunk: str = "") -> list[dict[str, Any]]:
    """Return the options that the person can choose from."""
    name, path = _subject(request)
    always = f"Always allow {name}{f' of {path}' if path else ''} in this session"
    found = [(ONCE, f"Apply hunk {hunk}" if hunk else "Allow once", "allow_once")]
    if hunk:
        found.append((ALLOW_REST, "Apply this hunk and those after it", "allow_once"))
    if not request.verdict.must_ask:
        found.append((ALWAYS, revealed(always), "allow_always"))
    if can_edit:
        found.append((EDIT, "Change the arguments", "allow_once"))
    found.append((REJECT, f"Reject hunk {hunk}" if hunk else "Reject", "reject_once"))
    if hunk:
        found.append((REST, "Reject this hunk and those after it", "reject_always"))
    return [option(*each) for each in found]


def _question(request: ApprovalRequest, *, with_difference: bool) -> str:
    """Write the call; with the diff only if the editor does not show it or hidden characters are in it."""
    difference = str(request.effect_data.get("difference", ""))
    if with_difference or not difference or revealed(difference) != difference:
        return request.text()
    head = f"{request.tool.name} ({request.tool.level_word})"
    again = [f"Asked again: {change}" for change in request.changes]
    note = str(request.effect_data.get("note", ""))
    why = f"Asked because {request.verdict.explanation}"
    return "\n".join(filter(None, [head, *again, request.arguments_text(), *map(_plain, (note, why))]))


def _plain(text: str) -> str:
    return folded(revealed(text))


def _dismissed() -> Denied:
    return Denied("the question was dismissed at the editor, without a decision", Refuser.CLIENT)


def _field(schema: Any, value: Any) -> dict[str, Any]:
    """Return the field for an argument; if a form has no field of its type, the value is written as JSON."""
    described = schema if isinstance(schema, dict) else {}
    kind = _FIELDS.get(str(described.get("type")))
    about = str(described.get("description", ""))
    if kind is None:
        text = "" if value is None else json.dumps(value, ensure_ascii=False)
        return {"type": "string", "description": f"{about} (as JSON)".strip(), "default": text}
    shown: dict[str, Any] = {"type": kind, "description": about} if about else {"type": kind}
    return shown if value is None else {**shown, "default": value}


def _read_form(request: ApprovalRequest, content: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments from the form, validated; arguments left out stay unchanged."""
    properties = request.tool.schema.get("properties", {})
    edited = dict(request.arguments)
    for name, value in content.items():
        described = properties.get(name)
        is_plain = isinstance(described, dict) and str(described.get("type")) in _FIELDS
        if is_plain or not isinstance(value, str):
            edited[name] = value
        elif value.strip():
            edited[name] = parse_arguments(value)
    return request.tool.checker.check(edited)
