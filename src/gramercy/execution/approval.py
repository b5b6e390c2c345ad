"""What a person (or whoever stands in for one) can answer, and how strange answers are read: as refusals."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from gramercy.execution.output import clean

if TYPE_CHECKING:
    from gramercy.execution.policy import Verdict
    from gramercy.execution.seal import Seal
    from gramercy.tools.tool import Tool

ApprovalHandler: TypeAlias = Callable[..., Any]
LONGEST_REASON = 2_000
LONGEST_NOTE = 8_000


@dataclass(frozen=True, slots=True)
class Approved:
    """Run the call as shown."""

    by: str = "person"


@dataclass(frozen=True, slots=True)
class Denied:
    """Do not run the call."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Modified:
    """Run the call with these arguments instead; a `note` tells the model what was changed."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    by: str = "person"
    note: str = ""


Decision: TypeAlias = Approved | Denied | Modified


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """Everything a person should see before deciding.

    `changes` says why the question comes again, `effect` what the call would do, where the tool can tell.
    """

    tool: Tool
    arguments: dict[str, Any]
    verdict: Verdict
    seal: Seal
    changes: tuple[str, ...] = ()
    effect: str = ""


def read_decision(answer: Any) -> Decision:
    """Turn a handler's answer into a decision; whatever is not clearly a yes is a no."""
    decision = _read_words(answer)
    if isinstance(decision, Denied) and isinstance(decision.reason, str):
        return Denied(clean(decision.reason[:LONGEST_REASON]))
    if isinstance(decision, Approved) and isinstance(decision.by, str):
        return decision
    if (
        isinstance(decision, Modified)
        and isinstance(decision.by, str)
        and isinstance(decision.arguments, Mapping)
        and isinstance(decision.note, str)
    ):
        return replace(decision, note=_bounded(decision.note))
    return Denied(
        f"the approval handler answered {_shown(answer)}, "
        "which is neither 'approved', 'denied' nor ('modified', arguments)"
    )


def _bounded(note: str) -> str:
    return clean(note if len(note) <= LONGEST_NOTE else f"{note[:LONGEST_NOTE]}…")


def _read_words(answer: Any) -> Any:
    """Read the seeds' words; anything else is returned as it is."""
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


def takes_request(handler: ApprovalHandler) -> bool:
    """Tell whether a handler wants the whole request as a third argument after tool and arguments."""
    try:
        inspect.signature(handler).bind(None, None, None)
    except (TypeError, ValueError):
        return False
    return True
