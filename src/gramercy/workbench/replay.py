"""Apply rules to past calls, and compare the verdicts with the decisions of the time.

The input is the journal: it masks secrets in arguments, and of an unknown tool only name and level are known.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from gramercy.errors import InvalidToolError
from gramercy.execution.policy import Action
from gramercy.execution.results import Refuser
from gramercy.journal.base import State
from gramercy.workbench.sources import stand_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gramercy.execution.policy import Policy, Rule, Verdict
    from gramercy.journal.base import CallRecord, Journal
    from gramercy.tools.registry import Registry
    from gramercy.tools.tool import Tool

# Calls per query. A journal may hold a million calls.
PAGE = 1_000
# Calls that are checked for the effect of one rule, while a person waits: some 20 ms.
MOST_LOOKED_AT = 1_000


class Past(StrEnum):
    """How the question about a past call was decided."""

    UNASKED = "ran without a question"
    APPROVED = "approved by a person"
    DENIED = "denied by a person"
    REFUSED = "refused by a rule"
    UNDECIDED = "not decided by anybody"


class Replayed(msgspec.Struct, frozen=True):
    """A recorded call, its past decision, and the verdict of the rules."""

    record: CallRecord
    past: Past
    verdict: Verdict
    is_known: bool

    @property
    def is_surprise(self) -> bool:
        """Whether the rules would have overruled or skipped the person, or asked without a person."""
        return self.verdict.action not in EXPECTED[self.past]


# Verdicts that change nothing for the person: they are asked again, or the decision is the same.
EXPECTED = {
    Past.UNASKED: {Action.ALLOW},
    Past.APPROVED: {Action.ALLOW, Action.ASK},
    Past.DENIED: {Action.ASK, Action.DENY},
    Past.REFUSED: {Action.DENY},
    Past.UNDECIDED: {Action.ASK, Action.DENY},
}


def past_of(record: CallRecord) -> Past:
    """Return how the question about a recorded call was decided."""
    ruling = record.facts.ruling
    if ruling is not None and ruling.approved:
        return Past.UNASKED if ruling.by == "policy" else Past.APPROVED
    if ruling is not None or record.state in {State.DENIED, State.AWAITING, State.REQUESTED}:
        refuser = ruling.refuser if ruling is not None else ""
        return {Refuser.PERSON: Past.DENIED, Refuser.RULE: Past.REFUSED}.get(refuser, Past.UNDECIDED)  # type: ignore[call-overload,no-any-return]
    return Past.UNASKED


def recorded(
    journal: Journal, *, project: str = "", tool: str = "", since: float = 0.0, most: int = PAGE
) -> Iterator[CallRecord]:
    """Return calls of a journal, latest first, that were judged by rules."""
    below = 0
    while most > 0:
        page = journal.records(project=project, tool=tool, since=since, below=below, most=min(PAGE, most))
        if not page:
            return
        # A call that does not match a schema or names no tool was never judged.
        yield from (record for record in page if record.call.level)
        below, most = page[-1].key, most - len(page)


def replay(records: Iterable[CallRecord], known: Registry, policy: Policy) -> Iterator[Replayed]:
    """Judge recorded calls by other rules."""
    strangers: dict[tuple[str, str], Tool] = {}
    for record in records:
        call = record.call
        tool = known.get(call.tool)
        is_known = tool is not None
        try:
            if tool is None:
                key = call.tool, call.level
                tool = strangers[key] if key in strangers else strangers.setdefault(key, stand_in(*key))
        except InvalidToolError:
            continue
        yield Replayed(record, past_of(record), policy.why(tool, call.arguments), is_known)


def tallied(replayed: Iterable[Replayed]) -> dict[Past, Counter[Action]]:
    """Count the verdicts by past decision."""
    table: dict[Past, Counter[Action]] = {past: Counter() for past in Past}
    for each in replayed:
        table[each.past][each.verdict.action] += 1
    return {past: counts for past, counts in table.items() if counts}


def let_through(
    journal: Journal, rule: Rule, tool: Tool, project: str, but: int = 0
) -> tuple[list[CallRecord], int]:
    """Return the recorded calls of a tool that a rule would have allowed, and the number of checked calls.

    `but` is the key of the call in question.
    """
    if not rule.matches_tool(tool):
        return [], 0
    past = recorded(journal, project=project, tool=tool.name, most=MOST_LOOKED_AT)
    found = [record for record in past if record.key != but]
    return [record for record in found if rule.matches_arguments(record.call.arguments, tool)], len(found)


def told_let_through(found: list[CallRecord], total: int) -> str:
    """Describe the calls that a rule would have allowed."""
    if not total:
        return "no such call is recorded yet"
    counts = Counter(map(past_of, found))
    parts = ", ".join(f"{count} {past.value}" for past, count in counts.items())
    told = f"it would have let through {len(found):,} of {total:,} recorded calls"
    return f"{told}: {parts}" if parts else told
