"""Ask the person at the terminal: show the tool, its arguments, the reason to ask, and later changes.

A proposed change of a file is reviewed hunk by hunk, so that a part of it can be accepted.
"""

from __future__ import annotations

import json
import threading
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import click

from gramercy.errors import InvalidArgumentsError
from gramercy.execution.approval import ApprovalRequest, Approved, Decision, Denied, Modified
from gramercy.execution.calls import parse_arguments
from gramercy.execution.results import Refuser
from gramercy.execution.shown import folded, revealed
from gramercy.toolsets import hunks
from gramercy.ui.cli.asking import NO, YES, answer_of, read_line, why_nobody

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gramercy.tools.tool import Tool

BY = "person at the terminal"
# The end of input: Ctrl-D, or a terminal that was closed.
LEFT = Denied("the question was left without an answer", Refuser.NOBODY)
HELP = """\
n next   p previous   a accept   r reject   SPC accept, reject, leave open in turn
A accept all   K reject all   v show it again   q finish: open ones are rejected   ? this text
Type the letter, then Enter."""


# Lets the person at a screen choose a rule, writes it and returns a message about it, None without a rule.
Chooser: TypeAlias = "Callable[[Screen], str | None]"
CHOICES = "approve, deny or edit"
ALWAYS = "(always: approve it, and write a rule that allows such calls from now on)"
UNCLEAR = "a alone approves, or with a reason as in a: once; d denies"
# Rows kept free on each page: the prompt, and one line of the previous page for orientation.
KEPT_ROWS = 2
# Half a screen: a longer hunk is not shown again after every key.
LONG_LINES = 12
COLORS = {"+": "green", "-": "red", "@": "cyan"}
# The space key cycles through open, accepted and rejected.
CYCLE: dict[bool | None, bool | None] = {None: True, True: False, False: None}
MARKS = {None: "pending", True: "accepted", False: "rejected"}
# Words that stand for a key. A plain n means the next hunk, as the help says.
KEYS_OF_WORDS = {"y": "a", "yes": "a", "accept": "a", "no": "r", "reject": "r", "next": "n", "previous": "p"}


def ask_at_terminal(tool: Tool, arguments: dict[str, Any], request: ApprovalRequest) -> Decision:
    """Show the whole call and read a decision; without a terminal, refuse."""
    if why := why_nobody():
        return Denied(f"nobody can be asked: {why} (use --approve to approve this call)", Refuser.NOBODY)
    screen = Screen(request.is_open)
    is_reviewed = bool(tool.edits) and request.told.issuperset(tool.edit_arguments)
    if not _show_call(screen, request, with_effect=not is_reviewed):
        return LEFT
    always = always_for(request)
    if is_reviewed:
        decision = review_edit(tool, arguments, screen, always)
        if decision is not None:
            return decision
        screen.show(request.effect_text())
    return read_answer(arguments, screen, always=always) or LEFT


def always_for(request: ApprovalRequest) -> Chooser | None:
    """Return the chooser that writes a rule for such calls, None where no rule would help."""
    if not request.project:
        return None
    from gramercy.ui.cli.always import Always

    rules = Always(
        request.tool,
        request.arguments,
        request.project,
        past=request.journal,
        verdict=request.verdict,
        key=request.key,
    )
    return None if rules.trouble else rules.choose


def read_answer(
    arguments: dict[str, Any],
    screen: Screen,
    *,
    by_hunks: bool = False,
    always: Chooser | None = None,
) -> Decision | None:
    """Read a decision. Words after a colon are its reason. None means that the person wants the hunks."""
    words, letters = ("approve, deny, edit or hunks", "a/d/e/h") if by_hunks else (CHOICES, "a/d/e")
    if always is not None:
        click.echo(ALWAYS, err=True)
    while True:
        typed = screen.read(f"{words}? [{letters}]: ")
        if typed is None:
            return LEFT
        word, reason = answer_of(typed)
        if word in {"h", "hunks"} and by_hunks:
            return None
        if word == "always" and always is not None:
            decision = _allowed(always(screen), reason, screen)
        elif word in {"e", "edit"}:
            edited = edited_by_hand(arguments)
            decision = None if edited is None else Modified(edited, by=BY, reason=reason, shown=screen.text)
        else:
            decision = _decision(word, reason, screen)
        if decision is not None:
            return decision


def _decision(word: str, reason: str, screen: Screen) -> Decision | None:
    """Return the decision that a word means. For an unknown word, tell the person and return None."""
    if word in YES:
        return Approved(by=BY, reason=reason, shown=screen.text)
    if word in NO:
        return Denied(reason or _read_reason(screen, "reason: "))
    click.echo(UNCLEAR, err=True)
    return None


def _allowed(told: str | None, reason: str, screen: Screen) -> Decision | None:
    """Return the approval of a call after a rule was written for it."""
    return None if told is None else Approved(by=BY, reason=f"{reason} ({told})".strip(), shown=screen.text)


def _read_reason(screen: Screen, prompt: str) -> str:
    """Read the reason for the previous answer. It may have been typed together with it."""
    return (screen.read(prompt, goes_on=True) or "").strip()


class Screen:
    """The terminal of a person, shown page by page, with a record of the text that was shown.

    With `is_open` a question is withdrawn when it is decided elsewhere: then no more lines are read.
    """

    def __init__(self, is_open: Callable[[], bool] | None = None) -> None:
        self._is_open = is_open
        self._shown: list[str] = []
        self._in_one_go = False
        self.rest()

    def rest(self) -> None:
        """Start a new page: the person has read the current one."""
        self._columns, rows = get_terminal_size()
        self._left = rows - KEPT_ROWS

    @property
    def text(self) -> str:
        """The text that was shown, without texts that were shown only in part."""
        return "\n".join(self._shown)

    def show(self, text: str, *, is_kept: bool = True, **style: Any) -> bool:
        """Show a text, page by page where it is long. Return whether the person has seen its end."""
        lines = text.split("\n")
        for number, line in enumerate(lines):
            height = max(1, -(-len(line) // self._columns))
            if height > self._left and not self._in_one_go:
                if not self._turn(number, len(lines)):
                    return False
                self.rest()
            self._left -= height
            click.secho(line, err=True, **{"fg": COLORS.get(line[:1]), **style})
        if is_kept:
            self._shown.append(text)
        return True

    def _turn(self, number: int, total: int) -> bool:
        """Wait until the person asks for the next page or for the whole rest. False when they leave."""
        typed = self.read(
            f"-- {number:,} of {total:,} lines; Enter: go on, r: the whole rest, q: leave it -- "
        )
        self._in_one_go = typed is not None and typed.strip().lower() == "r"
        return typed is not None and typed.strip().lower() != "q"

    def read(self, prompt: str, *, goes_on: bool = False) -> str | None:
        """Read a line that was typed after this prompt appeared. None at the end of the input."""
        return read_line(prompt, self._is_open, goes_on=goes_on)


_at_the_terminal = threading.Lock()


def one_at_a_time(tool: Tool, arguments: dict[str, Any], request: ApprovalRequest) -> Decision:
    """Do the same for parallel calls: each question waits for the previous one."""
    with _at_the_terminal:
        return ask_at_terminal(tool, arguments, request)


def _show_call(screen: Screen, request: ApprovalRequest, *, with_effect: bool) -> bool:
    """Show a call. Return whether the person has seen all of it."""
    tool = request.tool
    for change in request.changes:
        click.secho(revealed(f"asked again: {change}"), err=True, bold=True)
    click.secho(f"{tool.name} ({tool.safety_level.value})", err=True, bold=True)
    # The text after the first sentence is written for models.
    sentence, stop, _ = tool.description.partition("\n")[0].partition(". ")
    click.echo(revealed(f"{sentence}{stop.strip()}"), err=True)
    texts = [request.arguments_text(), *([request.effect_text()] if with_effect else [])]
    for text in filter(None, texts):
        if not screen.show(text):
            return False
    click.echo(f"asks because {revealed(request.verdict.explanation)}", err=True)
    return True


def edited_by_hand(arguments: dict[str, Any]) -> dict[str, Any] | None:
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
    """The hunks of a change, the decision about each, and the hunk that is shown now."""

    def __init__(self, found: Sequence[hunks.Hunk]) -> None:
        self._hunks = list(found)
        self._marks: list[bool | None] = [None] * len(found)
        self._place = 0
        self.seen: set[int] = set()
        # The message about the rule that was written for all calls like this one.
        self.told = ""
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

    def is_whole(self) -> bool:
        """Tell whether every hunk is accepted."""
        return all(self._marks)

    def unseen(self) -> list[hunks.Hunk]:
        """List the hunks that were not shown yet."""
        return [hunk for hunk in self._hunks if hunk.number not in self.seen]

    def header(self) -> str:
        """Describe the progress of the review."""
        yes, no, left = (self._marks.count(mark) for mark in (True, False, None))
        return f"Progress: {yes}/{len(self._marks)} accepted, {no} rejected, {left} pending"

    def hunk(self) -> tuple[hunks.Hunk, str]:
        """Return the hunk that is shown now, and the decision about it."""
        return self._hunks[self._place], MARKS[self._marks[self._place]]

    def press(self, key: str) -> bool:
        """Perform the action of a key. Return whether the key has one."""
        action = self._keys.get(KEYS_OF_WORDS.get(key.lower(), key))
        if action is not None:
            action()
        return action is not None

    def _move(self, step: int) -> None:
        if 0 <= self._place + step < len(self._hunks):
            self._place += step
            return
        # A person may type n and mean no. Without a message they would only see the same question again.
        which = "only" if len(self._hunks) == 1 else "last" if step > 0 else "first"
        click.echo(f"this is the {which} hunk: a accepts it, r rejects it, q finishes", err=True)

    def _decide(self, *, accepted: bool) -> None:
        self._marks[self._place] = accepted
        after = [*range(self._place + 1, len(self._marks)), *range(self._place)]
        self._place = next((place for place in after if self._marks[place] is None), self._place)

    def _cycle(self) -> None:
        self._marks[self._place] = CYCLE[self._marks[self._place]]

    def _decide_all(self, *, accepted: bool) -> None:
        self._marks = [accepted] * len(self._marks)


def review_edit(
    tool: Tool, arguments: dict[str, Any], screen: Screen, always: Chooser | None = None
) -> Decision | None:
    """Ask about every hunk of a proposal. None when there are no hunks to review."""
    texts = tool.proposed_edit(arguments)
    found = hunks.split(*texts) if texts else []
    if not texts or not found:
        return None
    picked = pick_hunks(found, screen, always)
    if picked is None:
        return LEFT
    if len(picked.numbers) == len(found):
        return Approved(by=BY, shown=picked.shown, reason=picked.reason)
    note = hunks.applied_note(*texts, picked.numbers, picked.reason)
    if not picked.numbers:
        return Denied(note)
    taken = hunks.accepted(*texts, picked.numbers)
    return Modified(tool.with_edit(arguments, texts[0], taken), by=BY, note=note, shown=picked.shown)


class Picked(NamedTuple):
    """The accepted hunks, the text that was shown of them, and the reason against the others."""

    numbers: set[int]
    shown: str
    reason: str


def pick_hunks(found: Sequence[hunks.Hunk], screen: Screen, always: Chooser | None = None) -> Picked | None:
    """Ask about every hunk. None when the person leaves."""
    review = Review(found)
    if not _go_through(review, screen, always):
        return None
    chosen = review.accepted
    shown = "\n".join([screen.text, *(_shown_hunk(hunk) for hunk in found if hunk.number in review.seen)])
    is_all = len(chosen) == len(found)
    return Picked(
        chosen,
        shown,
        review.told if is_all else _read_reason(screen, "reason for the rejected ones: "),
    )


def _go_through(review: Review, screen: Screen, always: Chooser | None = None) -> bool:
    """Read keys until the person has finished. False when they leave."""
    click.echo(HELP if always is None else f"{HELP}\n{ALWAYS}", err=True)
    while True:
        if not _show_hunk(review, screen):
            return False
        typed = screen.read("[n p a r SPC A K v q ?] ")
        screen.rest()
        if typed is None:
            return False
        # A space is a key, so it must not be stripped away.
        key = typed.strip() or typed[:1]
        if key == "q" or _is_always(key, review, screen, always):
            return True
        if key == "A" and review.unseen():
            # A person must not accept hunks that were not shown.
            if not all(_show_unseen(review, screen, hunk) for hunk in review.unseen()):
                return False
            click.echo("These had not been shown yet. A once more accepts all.", err=True)
        elif key == "v":
            review.seen.discard(review.hunk()[0].number)
        elif not review.press(key):
            click.echo(HELP, err=True)


def _is_always(key: str, review: Review, screen: Screen, always: Chooser | None) -> bool:
    """Return whether every hunk is accepted and a rule was written for all such calls."""
    if key.lower() != "always" or always is None:
        return False
    if not review.is_whole():
        click.echo("accept all hunks first, with A: a rule allows whole calls", err=True)
        return False
    review.told = always(screen) or ""
    return bool(review.told)


def _show_hunk(review: Review, screen: Screen) -> bool:
    """Show the current hunk. A long hunk is shown once."""
    hunk, mark = review.hunk()
    click.secho(f"\n{review.header()}", err=True, bold=True)
    text = _shown_hunk(hunk)
    is_seen = hunk.number in review.seen and text.count("\n") > LONG_LINES
    if is_seen:
        screen.show(text.partition("\n")[0], is_kept=False)
    elif not _show_unseen(review, screen, hunk):
        return False
    click.echo(f"({mark}{', shown above' if is_seen else ''})", err=True)
    return True


def _show_unseen(review: Review, screen: Screen, hunk: hunks.Hunk) -> bool:
    """Show a hunk. Return whether the person has seen all of it."""
    if not screen.show(_shown_hunk(hunk), is_kept=False):
        return False
    review.seen.add(hunk.number)
    return True


def _shown_hunk(hunk: hunks.Hunk) -> str:
    return folded(revealed(str(hunk)))
