"""The approval question as a form of a client: the text that it shows, and the meaning of an answer.

A question shows all of a call. An edit that is too long for one is divided by its hunks.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from gramercy.errors import Fault, InvalidArgumentsError
from gramercy.execution.approval import Approved, Decision, Denied, Modified
from gramercy.execution.calls import parse_arguments
from gramercy.execution.shown import LINE_WIDTH, changed_lines, folded, is_short, on_one_line, revealed
from gramercy.text import cut
from gramercy.tools.values import WHOLE

if TYPE_CHECKING:
    from gramercy.execution.approval import ApprovalRequest
    from gramercy.toolsets.hunks import Hunk


class Manner(Enum):
    """The form that a client gets. Accepting a form with nothing filled in approves, except for MORE."""

    FULL = "decision, hunks, arguments, reason"
    CHOICE = "decision"
    BARE = "nothing"
    MORE = "hunks, arguments, reason, for a person who did not just approve"


# Claude Code puts the cursor on Accept only if a form has no fields: one key instead of one per field. Codex
# accepts a form without fields by itself when it runs with full access, and shows a choice as a menu.
MANNERS = {"claude-code": Manner.BARE, "codex-mcp-client": Manner.CHOICE}
# Clients that show forms to a person, by the names that they give themselves. Other clients may be programs
# that answer by themselves, as their author wants.
ATTENDED = frozenset({*MANNERS, "Visual Studio Code", "Visual Studio Code - Insiders", "cursor-vscode"})

# The characters of a form: a dialog of a client has room for some screens of text.
CAPACITY = 16_000
# The characters of the hunks in one part of an edit; the rest is for the arguments and the summary.
LONGEST_PART = 12_000
# A person goes through no more switches than this in one form.
MOST_HUNKS = 20
# And through no more forms than this for one call.
MOST_PARTS = 10
# Claude Code shows three lines of a question, cut at the edge of the terminal. These summarize it: the call
# on the first line, and its effect on two more.
FEW_LINES = 2
LONGEST_LINE = 160
APPROVE, DENY = "approve", "deny"
# Further choices in a form that is a menu, with the fields of the second form that then follows. Codex goes
# through fields one by one and accepts no Enter in an empty field, so each second form has only the requested
# fields: switches, a choice, or one text.
HUNKS, CHANGE, WHY, FROM_NOW_ON = "choose hunks", "change arguments", "deny, say why", "allow from now on"
ONCE = "only this once"
DECISION = {
    "type": "string",
    "title": "Decision",
    "description": "Whether it may run as shown",
    "enum": [APPROVE, DENY],
    "default": APPROVE,
}
REASON = {"type": "string", "title": "Reason", "description": "Told to the model"}
ARGUMENTS = {
    "type": "string",
    "title": "Other arguments",
    "description": 'Those to change, as JSON, such as {"path": "b.txt"}; the others stay',
}


class Chosen(msgspec.Struct, frozen=True):
    """The part that a person approved: hunks of a part, other arguments, or all of it as shown.

    `always` names the rule that will allow such calls from now on.
    """

    reason: str = ""
    hunks: frozenset[int] | None = None
    arguments: dict[str, Any] | None = None
    always: str = ""


class RuleOffers(Protocol):
    """The rules from which a person can choose to allow such calls from now on."""

    names: tuple[str, ...]
    description: str

    def write(self, name: str) -> str:
        """Write the rule of that name; return a message about it, or raise a GramercyError."""


class Askable(Protocol):
    """A form at a client; `asked` names the question of the journal that it shows, if there is one."""

    asked: str
    text: str
    schema: dict[str, Any]
    trouble: str
    wanted: str

    def chosen(self, content: dict[str, Any]) -> Chosen | Denied | None:
        """Return the person's decision, None if they want to say more; `content` fits the form.

        Raise a GramercyError for unusable content.
        """


class Extent(msgspec.Struct, frozen=True):
    """The part of a call that a question is about: all of it, or some hunks of its edit."""

    # Read once: a file may change while the person looks, and the numbers are those of the shown hunks.
    texts: tuple[str, str] | None
    hunks: tuple[Hunk, ...] = ()
    total: int = 0
    title: str = ""


class ApprovalQuestion:
    """The shown text, the form for the answer, and the interpretation of the answer."""

    trouble = "The arguments that you gave cannot be used."
    wanted = "arguments that can be used were"

    def __init__(
        self,
        request: ApprovalRequest,
        manner: Manner = Manner.FULL,
        extent: Extent | None = None,
        rules: RuleOffers | None = None,
        topic: str = "",
    ) -> None:
        self.asked = asked(request)
        self._request = request
        self._manner = manner
        # The topic that the person wants to say more about; empty means all.
        self._topic = topic
        # A rule applies to whole calls.
        self._rules = rules if extent is None or not extent.title else None
        self._extent = extent or _whole(request)
        self._fields = self._all_fields()
        self.schema: dict[str, Any] = {"type": "object", "properties": self._fields}
        self.text = self._headline() + question_text(request, self._extent)

    @property
    def is_bare(self) -> bool:
        """Whether the form has only yes and no."""
        return self._manner is Manner.BARE

    def again(self) -> ApprovalQuestion:
        """Return the question for a person who did not just approve."""
        return ApprovalQuestion(self._request, Manner.MORE, self._extent, self._rules, self._topic)

    def _all_fields(self) -> dict[str, Any]:
        if self._manner is Manner.BARE:
            return {}
        if self._manner is Manner.CHOICE:
            return {"decision": {**DECISION, "enum": [APPROVE, DENY, *self._topics()]}}
        # A proposed edit is changed by choosing from its hunks.
        hunks = self._extent.hunks
        fields: dict[str, Any] = {_switch(hunk): self._described(hunk) for hunk in hunks}
        fields["reason"] = REASON
        if not hunks:
            fields["arguments"] = ARGUMENTS
        if self._rules is not None:
            fields["always"] = {
                "type": "string",
                "title": "From now on",
                "description": self._rules.description,
                "enum": [ONCE, *self._rules.names],
                "default": ONCE,
            }
        if self._topic:
            wanted = self._topics()[self._topic]
            return {name: field for name, field in fields.items() if name.startswith(wanted)}
        return fields if self._manner is Manner.MORE else {"decision": DECISION, **fields}

    def _topics(self) -> dict[str, str]:
        """Return the topics of a second form, each with the prefix of its fields."""
        found = {HUNKS: _SWITCH} if self._extent.hunks else {CHANGE: "arguments"}
        found |= {WHY: "reason"}
        return found if self._rules is None else {**found, FROM_NOW_ON: "always"}

    def _headline(self) -> str:
        if self._manner is not Manner.MORE:
            return ""
        if self._topic:
            return f"Not approved as it is: {self._topic}. With nothing it is denied.\n"
        change = "switch on hunks to apply" if self._extent.hunks else "give other arguments to run it with"
        return f"Not approved as it is. Say why not, or {change}; with nothing it is denied.\n"

    def _described(self, hunk: Hunk) -> dict[str, Any]:
        about = f"+{len(hunk.added)} -{len(hunk.removed)} lines: "
        about += cut(revealed(" ".join(_marked(str(hunk)))), LONGEST_LINE)
        title = f"Hunk {hunk.number}, line {hunk.start + 1}"
        default = self._manner is not Manner.MORE
        return {"type": "boolean", "title": title, "description": about, "default": default}

    def chosen(self, content: dict[str, Any]) -> Chosen | Denied | None:
        """Return the person's decision, None if they want to say more."""
        word, reason = content.get("decision", APPROVE), str(content.get("reason", "")).strip()
        if word in self._topics():
            self._topic = word
            return None
        if word != APPROVE:
            return Denied(reason)
        if content.get("always", ONCE) != ONCE:
            return self._allowed(content, reason)
        if self._extent.hunks:
            return self._switched(content, reason)
        edited = self._edited(str(content.get("arguments", "")))
        if edited is None and self._manner is Manner.MORE:
            return Denied(reason)
        return Chosen(reason, arguments=edited)

    def _allowed(self, content: dict[str, Any], reason: str) -> Chosen:
        """Return the approval of the whole call, with the rule that the person has chosen."""
        hunks = self._extent.hunks
        is_on = self._manner is not Manner.MORE
        is_cut = is_on and not all(content.get(_switch(hunk), True) for hunk in hunks)
        if is_cut or self._edited(str(content.get("arguments", ""))) is not None:
            text = f"a rule allows whole calls: choose {ONCE!r} for a changed one"
            raise InvalidArgumentsError([Fault("always", text, content["always"])])
        numbers = frozenset(hunk.number for hunk in hunks) if hunks else None
        return Chosen(reason, numbers, always=content["always"])

    def _switched(self, content: dict[str, Any], reason: str) -> Chosen | Denied:
        """Return the hunks that are switched on, by the person or by default."""
        is_on = self._manner is not Manner.MORE
        chosen = {hunk.number for hunk in self._extent.hunks if content.get(_switch(hunk), is_on)}
        if not chosen and not is_on and self._extent.total > len(self._extent.hunks):
            # Nothing of this part was wanted, so the whole call is denied.
            return Denied(reason)
        return Chosen(reason, frozenset(chosen))

    def _edited(self, text: str) -> dict[str, Any] | None:
        """Return the arguments with the person's changes, validated; None if nothing was changed."""
        changes = parse_arguments(text) if text.strip() else {}
        if not isinstance(changes, dict):
            raise InvalidArgumentsError([Fault(WHOLE, "a JSON object", f"{text!r:.60}")])
        tool, shown = self._request.tool, self._request.arguments
        edited = tool.checker.check({**shown, **changes})
        return edited if edited != shown else None

    def decided(self, found: list[Chosen], by: str, shown: str) -> Decision:
        """Combine the choices of all parts into one decision; `shown` is the text that they have shown."""
        reason = "; ".join(one.reason for one in found if one.reason)
        edited = found[0].arguments
        if edited is not None:
            return Modified(edited, by=by, reason=reason, shown=shown)
        chosen = {number for one in found for number in one.hunks or ()}
        if found[0].hunks is None or len(chosen) == self._extent.total:
            return Approved(by, reason, shown)
        from gramercy.toolsets.hunks import accepted, applied_note

        tool, arguments, texts = self._request.tool, self._request.arguments, self._extent.texts
        assert texts is not None  # noqa: S101 - there were hunks to choose from
        note = applied_note(*texts, chosen, reason)
        if not chosen:
            return Denied(note)
        taken = accepted(*texts, chosen)
        return Modified(tool.with_edit(arguments, texts[0], taken), by=by, note=note, shown=shown)

    def decide(self, content: dict[str, Any], by: str) -> Decision | None:
        """Return the decision of a person who is asked only this question."""
        found = self.chosen(content)
        return self.decided([found], by, self.text) if isinstance(found, Chosen) else found


def asked(request: ApprovalRequest) -> str:
    """Name the journal's question of a request, equally in every process; empty if there is none."""
    key = getattr(request, "key", 0)
    return f"{key} {getattr(request, 'asked_at', 0.0)!r} {request.seal.digest}" if key else ""


def _whole(request: ApprovalRequest) -> Extent:
    """Return the extent of a question about all of a call, with the hunks to choose from."""
    texts, hunks = _hunks(request)
    if not 1 < len(hunks) <= MOST_HUNKS:
        return Extent(texts)
    return Extent(texts, hunks, len(hunks))


def _hunks(request: ApprovalRequest) -> tuple[tuple[str, str] | None, tuple[Hunk, ...]]:
    texts = request.tool.proposed_edit(request.arguments)
    if texts is None:
        return None, ()
    # Imported here: a server lists its tools long before it asks, and difflib takes time to import.
    from gramercy.toolsets.hunks import split

    return texts, tuple(split(*texts))


def parted(
    request: ApprovalRequest, manner: Manner, rules: RuleOffers | None = None
) -> list[ApprovalQuestion]:
    """Return the questions that together show all of a call; an empty list if forms have no room for it."""
    whole = ApprovalQuestion(request, manner, rules=rules)
    if _shows_all(request, [whole]):
        return [whole]
    texts, hunks = _hunks(request)
    groups = _grouped(hunks)
    if not 1 < len(groups) <= MOST_PARTS:
        return []
    parts = []
    for number, group in enumerate(groups, 1):
        where = f"hunks {group[0].number} to {group[-1].number} of {len(hunks)}"
        title = f"Part {number} of {len(groups)}, {where}; nothing is changed before the last."
        parts.append(ApprovalQuestion(request, manner, Extent(texts, tuple(group), len(hunks), title)))
    return parts if _shows_all(request, parts) else []


def _shows_all(request: ApprovalRequest, parts: list[ApprovalQuestion]) -> bool:
    if any(len(part.text) > CAPACITY for part in parts):
        return False
    return request.unshown("\n".join(part.text for part in parts)) is None


def _grouped(hunks: tuple[Hunk, ...]) -> list[list[Hunk]]:
    """Group the hunks that are asked about in one form."""
    groups: list[list[Hunk]] = []
    room = 0
    for hunk in hunks:
        size = len(folded(revealed(str(hunk)))) + 1
        if size > room or len(groups[-1]) >= MOST_HUNKS:
            groups.append([])
            room = LONGEST_PART
        groups[-1].append(hunk)
        room -= size
    return groups


_SWITCH = "hunk_"


def _switch(hunk: Hunk) -> str:
    return f"{_SWITCH}{hunk.number}"


def question_text(request: ApprovalRequest, extent: Extent) -> str:
    """Show a person the call as it would run and its effect: a summary first, then all of it."""
    tool, told = request.tool, request.told
    given = {name: value for name, value in request.arguments.items() if name not in told}
    in_brief, is_whole = in_short(given)
    hunks = "\n".join(map(str, extent.hunks))
    effect = hunks or request.effect
    lines = [f"Run {tool.name} ({tool.level_word})? {in_brief}".rstrip()]
    lines += [extent.title] if extent.title else []
    lines += [f"Asked again: {change}" for change in request.changes]
    gist = gist_of(effect, hunks)
    parts = [revealed("\n".join(line.replace("\n", " ") for line in [*lines, *gist]))]
    if not is_whole:
        parts.append(request.arguments_text())
    if effect and [effect] != gist:
        parts.append(folded(revealed(hunks)) if hunks else request.effect_text())
    parts.append(folded(revealed(f"Asked because {request.verdict.explanation}")))
    return "\n".join(parts)


def in_short(arguments: dict[str, Any]) -> tuple[str, bool]:
    """Write arguments on one line, long values by their size; tell whether nothing is missing."""
    parts, is_whole = [], True
    for name, value in arguments.items():
        if is_short(value):
            parts.append(on_one_line(name, value))
        else:
            is_whole = False
            size = len(value) if isinstance(value, str) else len(on_one_line("", value)) - 4
            parts.append(f"{name[:LONGEST_LINE]}: {size:,} characters")
    line = ", ".join(parts)
    return cut(line, LONGEST_LINE), is_whole and len(line) <= LONGEST_LINE


def gist_of(effect: str, hunks: str = "") -> list[str]:
    """Say on at most two lines what the call would do."""
    first, _, rest = effect.partition("\n")
    if hunks or effect.startswith("--- "):
        return _pressed(_marked(hunks) if hunks else changed_lines(effect))
    said = [cut(first, LONGEST_LINE)] if first else []
    return [*said, *_pressed(changed_lines(rest))][:FEW_LINES] if rest.startswith("--- ") else said


def _pressed(changed: list[str]) -> list[str]:
    """Squeeze added and removed lines into two; their number shows that these may not be all."""
    if len(changed) <= FEW_LINES:
        return [cut(line, LONGEST_LINE) for line in changed]
    added = sum(line.startswith("+") for line in changed)
    pressed = " | ".join(line[0] + line[1:].strip() for line in changed)
    text = f"+{added} -{len(changed) - added} lines: {pressed}"[: FEW_LINES * LINE_WIDTH]
    return [text[start : start + LINE_WIDTH] for start in range(0, len(text), LINE_WIDTH)]


def _marked(hunks: str) -> list[str]:
    """Return the added and removed lines of hunks."""
    return [line for line in hunks.split("\n") if line[:1] in {"+", "-"}]
