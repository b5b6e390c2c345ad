"""Ask the person at the terminal: what would run, with what, why it asks, and what changed meanwhile.

A proposed change of a file is reviewed hunk by hunk, so that a part of it can be accepted.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import TYPE_CHECKING, Any

import click

from gramercy.errors import InvalidArgumentsError
from gramercy.execution.approval import ApprovalRequest, Approved, Decision, Denied, Modified
from gramercy.execution.calls import parse_arguments
from gramercy.execution.results import Refuser
from gramercy.toolsets import hunks
from gramercy.ui.cli.terminal import json_text, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gramercy.tools.tool import Tool

BY = "person at the terminal"
# The end of input: Ctrl-D, or a terminal that was closed.
LEFT = Denied("the question was left without an answer", Refuser.NOBODY)
HELP = """\
n next   p previous   a accept   r reject   SPC accept, reject, leave open in turn
A accept all   K reject all   q finish: open ones are rejected   ? this text
Type the letter, then Enter."""


# Some forty lines of eighty columns: with more, the name of the tool would scroll away.
LONGEST_VALUE = 3_000
COLORS = {"+": "green", "-": "red", "@": "cyan"}
# A space goes round: open, accepted, rejected.
CYCLE: dict[bool | None, bool | None] = {None: True, True: False, False: None}
MARKS = {None: "pending", True: "accepted", False: "rejected"}


def ask_at_terminal(tool: Tool, arguments: dict[str, Any], request: ApprovalRequest) -> Decision:
    """Show the call and read a decision; without a terminal, refuse."""
    if not sys.stdin.isatty():
        return Denied(
            "nobody can be asked: standard input is not a terminal (use --approve to approve this call)",
            Refuser.NOBODY,
        )
    if tool.edits and tool.proposed_edit(arguments):
        hidden = tool.edit_arguments
        _show_call(tool, {key: arguments[key] for key in arguments if key not in hidden}, request)
        decision = review_edit(tool, arguments, BY)
        if decision is not None:
            return decision
    _show_call(tool, arguments, request)
    while True:
        typed = _line("approve, deny or edit? [a/d/e]: ")
        if typed is None:
            return LEFT
        answer = typed.strip().lower()
        if answer in {"a", "approve"}:
            return Approved(by=BY)
        if answer in {"", "d", "deny"}:
            return Denied((_line("reason: ") or "").strip())
        if answer in {"e", "edit"}:
            edited = _edit(arguments)
            if edited is not None:
                return Modified(edited, by=BY)


_at_the_terminal = threading.Lock()


def one_at_a_time(tool: Tool, arguments: dict[str, Any], request: ApprovalRequest) -> Decision:
    """Do the same for calls that come side by side: each question waits for the one before."""
    with _at_the_terminal:
        return ask_at_terminal(tool, arguments, request)


def _show_call(tool: Tool, arguments: dict[str, Any], request: ApprovalRequest) -> None:
    for change in request.changes:
        click.secho(f"asked again: {change}", err=True, bold=True)
    click.secho(f"{tool.name} ({tool.safety_level.value})", err=True, bold=True)
    # What follows the first sentence is for models.
    sentence, stop, _ = tool.description.partition("\n")[0].partition(". ")
    click.echo(visible(f"{sentence}{stop.strip()}"), err=True)
    click.echo(json_text({name: _bounded(value) for name, value in arguments.items()}), err=True)
    if request.effect:
        click.echo(visible(request.effect), err=True)
    click.echo(f"asks because {visible(request.verdict.explanation)}", err=True)


def _bounded(value: Any) -> Any:
    """Cut a long text, saying so; what the call would do is shown besides, where the tool can tell."""
    if not isinstance(value, str) or len(value) <= LONGEST_VALUE:
        return value
    return f"{value[:LONGEST_VALUE]}… [{LONGEST_VALUE:,} of {len(value):,} characters]"


def _edit(arguments: dict[str, Any]) -> dict[str, Any] | None:
    """Let the person rewrite the arguments in an editor; None sends them back to the question."""
    try:
        text = click.edit(json.dumps(arguments, indent=2, ensure_ascii=False), extension=".json")
        if text is None:
            return None
        edited = parse_arguments(text)
    except (click.ClickException, InvalidArgumentsError) as error:
        click.echo(str(error), err=True)
        return None
    if not isinstance(edited, dict):
        click.echo("the arguments must stay a JSON object", err=True)
        return None
    return edited


class Review:
    """The hunks of a change, what was decided about each, and which one is looked at."""

    def __init__(self, found: Sequence[hunks.Hunk]) -> None:
        self._hunks = list(found)
        self._marks: list[bool | None] = [None] * len(found)
        self._place = 0
        self._keys: dict[str, Callable[[], None]] = {
            "n": lambda: self._move(1),
            "p": lambda: self._move(-1),
            "a": lambda: self._decide(accepted=True),
            "r": lambda: self._decide(accepted=False),
            " ": self._cycle,
            "A": lambda: self._decide_all(accepted=True),
            "K": lambda: self._decide_all(accepted=False),
        }

    @property
    def accepted(self) -> set[int]:
        """The numbers of the accepted hunks."""
        return {hunk.number for hunk, mark in zip(self._hunks, self._marks, strict=True) if mark}

    def header(self) -> str:
        """Tell how far the review is."""
        yes, no, left = (self._marks.count(mark) for mark in (True, False, None))
        return f"Progress: {yes}/{len(self._marks)} accepted, {no} rejected, {left} pending"

    def hunk(self) -> tuple[hunks.Hunk, str]:
        """Return the hunk that is looked at, and what was decided about it."""
        return self._hunks[self._place], MARKS[self._marks[self._place]]

    def press(self, key: str) -> bool:
        """Do what a key says; tell whether it is one."""
        action = self._keys.get(key)
        if action is not None:
            action()
        return action is not None

    def _move(self, step: int) -> None:
        self._place = min(max(self._place + step, 0), len(self._hunks) - 1)

    def _decide(self, *, accepted: bool) -> None:
        self._marks[self._place] = accepted
        after = [*range(self._place + 1, len(self._marks)), *range(self._place)]
        self._place = next((place for place in after if self._marks[place] is None), self._place)

    def _cycle(self) -> None:
        self._marks[self._place] = CYCLE[self._marks[self._place]]

    def _decide_all(self, *, accepted: bool) -> None:
        self._marks = [accepted] * len(self._marks)


def review_edit(tool: Tool, arguments: dict[str, Any], by: str) -> Decision | None:
    """Ask about every hunk of a proposal; None when there is nothing to go through."""
    texts = tool.proposed_edit(arguments)
    found = hunks.split(*texts) if texts else []
    if not texts or not found:
        return None
    review = Review(found)
    if not _go_through(review):
        return LEFT
    chosen = review.accepted
    if len(chosen) == len(found):
        return Approved(by=by)
    reason = (_line("reason for the rejected ones: ") or "").strip()
    note = hunks.applied_note(*texts, chosen, reason)
    if not chosen:
        return Denied(note)
    taken = hunks.accepted(*texts, chosen)
    return Modified(tool.with_edit(arguments, texts[0], taken), by=by, note=note)


def _go_through(review: Review) -> bool:
    """Read keys until the person has finished; False when they went away."""
    click.echo(HELP, err=True)
    while True:
        _show_hunk(review)
        typed = _line("[n p a r SPC A K q ?] ")
        if typed is None:
            return False
        # A space is a key too.
        key = typed.strip() or typed[:1]
        if key == "q":
            return True
        if not review.press(key):
            click.echo(HELP, err=True)


def _show_hunk(review: Review) -> None:
    hunk, mark = review.hunk()
    click.secho(f"\n{review.header()}", err=True, bold=True)
    for line in visible(f"{hunk}\n({mark})").splitlines():
        click.secho(line, err=True, fg=COLORS.get(line[:1]))


def _line(prompt: str) -> str | None:
    """Read a line as it was typed; None when there are no more."""
    click.echo(prompt, nl=False, err=True)
    line = sys.stdin.readline()
    if not line:
        click.echo(err=True)  # what is printed next must not stand behind the prompt
        return None
    return line.removesuffix("\n")
