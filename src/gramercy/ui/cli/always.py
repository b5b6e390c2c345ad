"""«Always allow this» at a terminal: the rules to choose from, and what each would have let through."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from gramercy.errors import GramercyError
from gramercy.execution.shown import revealed
from gramercy.ui.cli.terminal import tell
from gramercy.workbench.always import offered_rules, remember, told_rule, why_not
from gramercy.workbench.replay import Past, let_through, past_of, told_let_through
from gramercy.workbench.sources import known_tools, stand_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gramercy.execution.policy import Verdict
    from gramercy.journal.base import CallRecord, Journal
    from gramercy.tools.tool import Tool
    from gramercy.ui.cli.approval import Screen
    from gramercy.workbench.always import Offer

# At most this many denied calls that the rule would have allowed are listed one by one.
MOST_DENIED = 5
NO_PROJECT = "it is not known which project the call is of"


class Always:
    """The rules that a person can choose from when asked about a call."""

    def __init__(  # noqa: PLR0913 - what is known of a question
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        project: str,
        *,
        past: Journal | None = None,
        verdict: Verdict | None = None,
        key: int = 0,
    ) -> None:
        self._tool = tool
        self._arguments = arguments
        self._project = project
        self._journal = past
        self._key = key
        self.trouble = why_not(verdict, project) if project else NO_PROJECT
        self.offers = offered_rules(tool.name, arguments, tool.places(arguments))

    def named(self, word: str) -> Offer:
        """Return the offer that a word of the command line names. UsageError lists the valid words."""
        found = {offer.name.split()[-1]: offer for offer in self.offers}
        if self.trouble:
            raise click.UsageError(f"a rule would not help: {self.trouble}")
        if word not in found:
            raise click.UsageError(
                f"such a rule cannot be written for this call; there are {', '.join(found)}"
            )
        return found[word]

    def choose(self, screen: Screen) -> str | None:
        """Let the person choose a rule and write it. Return the message about it, None without a rule."""
        if self.trouble:
            tell(f"a rule would not help: {self.trouble}")
            return None
        tell(f"Allow from now on, in {self._project}:")
        for number, offer in enumerate(self.offers, 1):
            tell(f"  {number}  {revealed(offer.words)}\n     {self.past(offer)}")
        typed = (screen.read(f"which? [1-{len(self.offers)}, Enter: none of them]: ") or "").strip()
        if not (typed.isascii() and typed.isdigit() and 1 <= int(typed) <= len(self.offers)):
            return None
        return self.write(self.offers[int(typed) - 1])

    def past(self, offer: Offer) -> str:
        """Describe the past calls that a rule would have allowed, and which of those a person has denied."""
        if self._journal is None:
            return "what it would have let through is not recorded"
        found, total = let_through(self._journal, offer.rule, self._tool, self._project, self._key)
        denied = [str(record.key) for record in found if past_of(record) is Past.DENIED]
        which = f" (denied: call {', '.join(denied[:MOST_DENIED])})" if denied else ""
        return told_let_through(found, total) + which

    def write(self, offer: Offer) -> str | None:
        """Write the rule and return its description. A failure to write it is shown."""
        try:
            rule = remember(offer.rule, self._tool, self._arguments, self._project)
        except GramercyError as error:
            tell(str(error))
            return None
        tell(told_rule(rule))
        return f"always, by {rule.origin}"


def always_of(journal: Journal, record: CallRecord) -> Always:
    """Return the rules that can be offered for a recorded call of another process."""
    call = record.call
    # A rule holds real paths. Only the tools of the call's project can resolve them.
    place = call.project if os.path.isdir(call.project) else "."  # noqa: PTH112 - it may be empty
    tool = known_tools(place).get(call.tool) or stand_in(call.tool, call.level)
    arguments = call.arguments if record.facts.arguments is None else record.facts.arguments
    return Always(tool, arguments, call.project, past=journal, key=record.key)
