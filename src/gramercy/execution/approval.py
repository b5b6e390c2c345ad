"""Approval: the question to a person, the possible answers, and how the journal records an answer.

Any answer that is not clearly a yes counts as a no. `decide` is the only way to answer an open question of a
journal, for the caller's own channel and for every other process.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import localtime, strftime
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from gramercy.errors import MovedError
from gramercy.execution.calls import clean
from gramercy.execution.results import Refuser
from gramercy.execution.seal import Seal, digest_of_text
from gramercy.execution.shown import barred, folded, is_difference, revealed, told_by, unshown, written
from gramercy.journal.base import Facts, Ruling, State
from gramercy.journal.memory import moved
from gramercy.text import cut

if TYPE_CHECKING:
    from gramercy.execution.policy import Verdict
    from gramercy.journal.base import CallRecord, Journal
    from gramercy.tools.tool import Place, Tool

ApprovalHandler: TypeAlias = Callable[..., Any]
# A few paragraphs: more than people type, less than would crowd out the model's context.
LONGEST_REASON = 2_000
REFUSERS = tuple(refuser.value for refuser in Refuser)
# The person waits for the preview before seeing the question; it may have to fork an image and run code.
EFFECT_SECONDS = 20.0
# The note on a reviewed edit quotes the rejected hunks, so it needs more room than a reason.
LONGEST_NOTE = 8_000


class Approved(msgspec.Struct, frozen=True):
    """Run the call as shown. The `reason` is recorded and told to the model.

    `shown` is the text that the person saw. If it is given, it must hold all of the call, else the call is
    not run. A handler that decides by itself got the whole call and leaves it empty.
    """

    by: str = "person"
    reason: str = ""
    shown: str | None = None


class Denied(msgspec.Struct, frozen=True):
    """Do not run the call. A handler that could not reach the person says so with another `refuser`.

    Then the model gets the reason after "NAME was not run:".
    """

    reason: str = ""
    refuser: str = Refuser.PERSON
    by: str = "person"


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

    `changes` says why the question is asked again, `effect` what the call would do, if the tool can tell.
    `key` names the call in the journal, where another process can answer the question with the digest of the
    seal; `is_open` tells whether the question is still open there. Times are seconds since the epoch.
    `project` is the directory that the call is about, `journal` records the calls before it, and `places` are
    the places that the paths of the call lead to.
    """

    tool: Tool
    arguments: dict[str, Any]
    verdict: Verdict
    seal: Seal
    changes: tuple[str, ...] = ()
    effect: str = ""
    effect_data: Mapping[str, Any] = field(default_factory=dict)
    key: int = 0
    call_id: str = ""
    principal: str = ""
    client: str = ""
    session: str = ""
    asked_at: float = 0.0
    expires_at: float = 0.0
    is_open: Callable[[], bool] = field(default=lambda: True, repr=False, compare=False)
    project: str = ""
    journal: Journal | None = field(default=None, repr=False, compare=False)
    places: Mapping[str, Place] = field(default_factory=dict, repr=False, compare=False)

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
        # Only the diff of an edit has marks of its own; the rest may be text of an image.
        is_marked = self.tool.edits is not None and is_difference(self.effect)
        effect = self.effect.rstrip("\n")
        if effect and not is_marked:
            # Put it on a line of our own, so that the end of a value cannot pass for its beginning.
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
    """Turn a handler's answer into a decision; an answer that is not clearly a yes is a no."""
    decision = _read_words(answer)
    if isinstance(decision, Denied) and isinstance(decision.reason, str) and decision.refuser in REFUSERS:
        by = decision.by if isinstance(decision.by, str) else "person"
        return Denied(clean(decision.reason[:LONGEST_REASON]), Refuser(decision.refuser), by)
    if isinstance(decision, Approved | Modified) and _is_well_formed(decision):
        reason = decision.reason and clean(decision.reason[:LONGEST_REASON])
        if isinstance(decision, Approved):
            return msgspec.structs.replace(decision, reason=reason)
        return msgspec.structs.replace(decision, note=clean(cut(decision.note, LONGEST_NOTE)), reason=reason)
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


def _read_words(answer: Any) -> Any:
    """Read the words of the seeds; any other answer is returned unchanged."""
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


def refusal_text(tool: str, refusal: Denied | Ruling, detail: str = "") -> str:
    """Say who refused, and why: the seed's words are for a person's decision alone.

    `detail` is the text in the journal beside the ruling: it has the reason if the guard itself refused.
    """
    if refusal.refuser != Refuser.PERSON:
        why = refusal.reason or detail.removeprefix(f"{tool} was not run: ")
        return f"{tool} was not run: {why or 'no reason was recorded'}"
    return f"User denied tool execution: {refusal.reason}" if refusal.reason else "User denied tool execution"


def takes_request(handler: ApprovalHandler) -> bool:
    """Tell whether a handler wants the whole request as a third argument after tool and arguments."""
    try:
        inspect.signature(handler).bind(None, None, None)
    except (TypeError, ValueError):
        return False
    return True


def decide(
    journal: Journal, key: int, seal: str, decision: Decision, *, asked: CallRecord | None = None
) -> CallRecord:
    """Answer the open question of a call; `seal` is the seal of the question that was shown.

    If another decision came first, MovedError names it and carries the record. `asked` is the record of the
    call with this very question; with it, the record is not read from the journal.
    """
    ruling = ruling_of(decision, seal)
    state, detail = State.READY, ruling.reason
    if not ruling.approved:
        tool = (asked or _recorded(journal, key)).call.tool
        state, detail = State.DENIED, refusal_text(tool, ruling)
    facts = Facts(detail=detail, ruling=ruling)
    try:
        journal.move(key, state, facts, expected=(State.AWAITING,))
    except MovedError as error:
        record = error.record or _recorded(journal, key)
        question = record.facts.question
        is_same = record.state is State.AWAITING and question is not None and question.seal == seal
        # The question is the same and still cannot be answered: its time is over.
        raise MovedError(str(error) if is_same else standing(record), record) from None
    # A decision names the open question, so the call stood as in `asked` when it was made.
    return _recorded(journal, key) if asked is None else moved(asked, state, facts)


def _recorded(journal: Journal, key: int) -> CallRecord:
    record = journal.record(key)
    if record is None:
        raise MovedError(f"the journal has no call {key}")
    return record


def resolve(journal: Journal, key: int, *, happened: bool, by: str, reason: str = "") -> CallRecord:
    """Resolve a call that is in doubt: it has happened, or it has not."""
    word = "happened" if happened else "did not happen"
    told = f"{by} says that it {word}{f': {reason}' if reason else ''}"
    ruling = Ruling(approved=happened, by=by, reason=reason)
    state = State.DONE if happened else State.FAILED
    facts = Facts(detail=told, ruling=ruling, content=told, failure="" if happened else "resolved")
    journal.move(key, state, facts, expected=(State.IN_DOUBT,))
    found = journal.record(key)
    assert found is not None  # noqa: S101 - it was moved just now
    return found


def ruling_of(decision: Decision, seal: str) -> Ruling:
    """Return a decision in the form that the journal records."""
    if isinstance(decision, Denied):
        refuser = Refuser(decision.refuser)
        by = decision.by if refuser is Refuser.PERSON else ""
        return Ruling(approved=False, by=by, seal=seal, reason=decision.reason, refuser=refuser.value)
    shown = "" if decision.shown is None else digest_of_text(decision.shown)
    ruling = Ruling(approved=True, by=decision.by, seal=seal, reason=decision.reason, shown=shown)
    if isinstance(decision, Modified):
        edited = dict(decision.arguments)
        return msgspec.structs.replace(ruling, arguments=edited, note=decision.note)
    return ruling


def standing(record: CallRecord) -> str:
    """Say in a sentence how a call stands, for a caller that is too late to change it."""
    ruling, state = record.facts.ruling, record.state
    when = strftime("%H:%M:%S", localtime(record.changed_at))
    if state is State.AWAITING:
        return f"call {record.key} was asked about anew at {when}: look at it again"
    if state in {State.READY, State.DENIED} and ruling is not None:
        done = "approved" if ruling.approved else "denied"
        by = ruling.by or ruling.refuser or "the guard"
        return (
            f"call {record.key} was {done} by {by} at {when}{f': {ruling.reason}' if ruling.reason else ''}"
        )
    return f"call {record.key} is {_STANDING.get(state, state.value)} since {when}"


_STANDING = {State.EXECUTING: "running", State.IN_DOUBT: "in doubt"}
