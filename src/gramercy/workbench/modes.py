"""Modes: how much a person who works with an agent wants to be asked, for as long as they work with it.

A mode never allows a call that a rule asks about or denies. `careful` and `plan` make verdicts stricter.
`edits` answers the question that dangerous tools ask by default, and only for changes that can be undone.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from gramercy.execution.approval import Approved, Denied
from gramercy.execution.policy import Action, Policy, Rule, RuleOrigin
from gramercy.execution.results import Refuser
from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from collections.abc import Container

    from gramercy.execution.approval import ApprovalHandler, ApprovalRequest
    from gramercy.tools.tool import Tool

NOBODY = Denied("nobody can be asked here", Refuser.NOBODY)
PLANNING = (
    "You are in plan mode: only tools that change nothing run, all others are refused. Look around as you "
    "need, then answer with a plan of what you would do, step by step, and wait for the person to agree."
)


class Mode(StrEnum):
    """How much is asked."""

    ASK = "ask"
    CAREFUL = "careful"
    EDITS = "edits"
    PLAN = "plan"

    @property
    def does(self) -> str:
        """What the mode does, in one line."""
        return _DOES[self]


_DOES = {
    Mode.ASK: "as the rules say: without any, dangerous tools ask; evaluated code writes files of the "
    "project unasked, which undo takes back",
    Mode.CAREFUL: "every tool that may change something asks, evaluations too",
    Mode.EDITS: "changes of files are made without a question, since /undo takes them back; others ask, "
    "and so do control files",
    Mode.PLAN: "only tools that change nothing run; the agent makes a plan",
}

# The two ways to a file, for a person who chooses: an evaluation is not a dangerous tool.
_EVALUATED = (
    "Evaluated code writes files of the project without a question, but for control files and what rules "
    "hold, and undo_last takes it back. With --mode careful evaluations ask as edits do; with --files read "
    "they write no file of the project."
)
_EQUAL = "Evaluations ask as edits do."
_READING = "Evaluated code writes no file of the project."


def about_evaluation(mode: str | None, *, reads_only: bool = False) -> str:
    """Describe what evaluated code can write in a mode of a server, and how to change that."""
    if mode == Mode.CAREFUL:
        return _EQUAL
    return _READING if reads_only else _EVALUATED


def policy_in(mode: Mode, policy: Policy) -> Policy:
    """Return the effective rules in a mode."""
    # A rule that only tightens keeps a denial of other rules.
    origin = RuleOrigin("mode", f"the mode {mode.value}", tightens=True)
    if mode is Mode.CAREFUL:
        asks = Rule(Action.ASK, safety=(Safety.CAUTIOUS, Safety.DANGEROUS), origin=origin)
        return policy.with_rule(asks)
    if mode is Mode.PLAN:
        return Policy(policy.rules, Safety.SAFE, ceiling_origin=origin)
    return policy


def approver_in(
    mode: Mode, approver: ApprovalHandler | None, undoable: Container[str] | None = None
) -> ApprovalHandler | None:
    """Return the approver in a mode. `undoable` names the tools whose edits undo reverts, None means all."""
    if mode is not Mode.EDITS:
        return approver

    def decide(tool: Tool, arguments: dict[str, Any], request: ApprovalRequest) -> Any:
        is_undone = tool.edits is not None and (undoable is None or tool.name in undoable)
        # A person who wrote a rule that asks wants to be asked.
        if is_undone and request.verdict.rule is None and not request.verdict.must_ask:
            return Approved(by="the mode edits")
        return NOBODY if approver is None else approver(tool, arguments, request)

    return decide
