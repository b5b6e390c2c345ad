"""The review of a call at a terminal, in another process than the one that made the call."""

from __future__ import annotations

import os
from pwd import getpwuid
from socket import gethostname
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import ControlError, GramercyError, JournalError, MovedError
from gramercy.execution.approval import Approved, Denied, Modified, decide
from gramercy.journal.base import State
from gramercy.tools.arguments import validate_tool_args
from gramercy.toolsets.hunks import Hunk
from gramercy.ui.cli.always import always_of
from gramercy.ui.cli.approval import BY, LEFT, Screen, edited_by_hand, pick_hunks, read_answer
from gramercy.ui.cli.inbox import arguments_of, heading, question_text, seal_of
from gramercy.ui.cli.terminal import tell
from gramercy.workbench.control import Serving, asked_at_once, serving_processes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gramercy.execution.approval import Decision
    from gramercy.journal.base import CallRecord, Journal

# How long the call is followed after a decision: a waiting caller resumes within milliseconds.
FOLLOWED_SECONDS = 1.5
# An edited call is asked about again with a new preview, which may take 20 s.
ASKED_AGAIN_SECONDS = 25.0


class Review:
    """One call that waits, and the process that could run it, if there is one."""

    def __init__(self, journal: Journal, record: CallRecord) -> None:
        self._journal = journal
        self._record = record
        self._serving: Serving | None = None

    def ask(self) -> CallRecord:
        """Show all of the call and let the person decide. Return its state after that.

        A call that changed meanwhile, or was edited, is asked about again.
        """
        while True:
            decision = self._answer()
            if decision is LEFT:
                return self._journal.record(self._record.key) or self._record
            record = self._decide(decision)
            if record.state is not State.AWAITING:
                return record
            self._record = record

    def edit(self) -> CallRecord:
        """Begin with the editor."""
        decision = self._edited(arguments_of(self._record), Screen())
        if decision is None:
            return self._record
        record = self._decide(decision)
        if record.state is not State.AWAITING:
            return record
        self._record = record
        return self.ask()

    def checked(self, arguments: Any) -> dict[str, Any]:
        """Return edited arguments as the tool takes them, with a preview where a process can give one.

        Without a process that serves the tool they are validated against its schema.
        """
        try:
            found: dict[str, Any] = self._ask("check", arguments=arguments)
        except ControlError as error:
            if self._serving is not None:
                raise JournalError(f"the edited arguments cannot be used: {error}") from None
            question = self._record.facts.question
            schema = question.schema if question is not None else {}
            return {"arguments": validate_tool_args(schema, arguments) if schema else dict(arguments)}
        return found

    def hunks(self) -> list[Hunk]:
        """Return the hunks of the proposed edit."""
        return [_hunk(each) for each in self._listed()["hunks"]]

    def _listed(self) -> dict[str, Any]:
        listed: dict[str, Any] = self._ask("hunks")
        if not listed["hunks"]:
            raise JournalError(
                f"call {self._record.key} cannot be taken in part: {self._record.call.tool} offers no hunks"
            )
        return listed

    def with_hunks(self, numbers: Sequence[int], reason: str) -> Decision:
        """Return the approval of some hunks."""
        listed = self._listed()
        return self._chosen(listed, set(numbers), reason, question_text(self._record))

    def _answer(self) -> Decision:
        screen = Screen(self._is_open)
        tell(heading(self._record))
        if not screen.show(question_text(self._record)):
            return LEFT
        listed = self._hunks()
        arguments = arguments_of(self._record)
        while True:
            decision = read_answer(arguments, screen, by_hunks=bool(listed), always=self._always)
            if decision is None:
                return self._picked(listed, screen)
            if not isinstance(decision, Modified):
                return decision
            try:
                self.checked(decision.arguments)
            except GramercyError as error:
                tell(str(error))
                arguments = dict(decision.arguments)
                continue
            return decision

    def _always(self, screen: Screen) -> str | None:
        """Let the person choose a rule that allows such calls from now on."""
        return always_of(self._journal, self._record).choose(screen)

    def _edited(self, arguments: dict[str, Any], screen: Screen) -> Decision | None:
        while (edited := edited_by_hand(arguments)) is not None:
            try:
                return Modified(self.checked(edited)["arguments"], shown=question_text(self._record))
            except GramercyError as error:
                tell(str(error))
                if (screen.read("Enter: edit it again, q: leave it ") or "q").strip() == "q":
                    return None
                arguments = edited
        return None

    def _is_open(self) -> bool:
        now = self._journal.record(self._record.key)
        return now is not None and now.step == self._record.step

    def _decide(self, decision: Decision) -> CallRecord:
        """Record the decision. Return the call after it: asked again, or decided by another process."""
        try:
            record = decide_as_person(self._journal, self._record, decision)
        except MovedError as error:
            tell(str(error))
            return error.record or self._record
        is_edit = isinstance(decision, Modified) and not decision.note
        return follow(self._journal, record, ASKED_AGAIN_SECONDS if is_edit else FOLLOWED_SECONDS)

    def _hunks(self) -> dict[str, Any]:
        """Return the hunks of a proposed edit from its process. Empty where there are none."""
        question = self._record.facts.question
        if question is None or "difference" not in question.effect:
            return {}
        try:
            listed: dict[str, Any] = self._ask("hunks")
        except ControlError as error:
            tell(f"its hunks cannot be picked here: {error}")
            return {}
        return listed if listed["hunks"] else {}

    def _picked(self, listed: dict[str, Any], screen: Screen) -> Decision:
        found = [_hunk(each) for each in listed["hunks"]]
        picked = pick_hunks(found, screen)
        if picked is None:
            return LEFT
        if len(picked.numbers) == len(found):
            return Approved(shown=picked.shown)
        return self._chosen(listed, picked.numbers, picked.reason, picked.shown)

    def _chosen(self, listed: dict[str, Any], numbers: set[int], reason: str, shown: str) -> Decision:
        chosen = self._ask("choose", seal=listed["seal"], numbers=sorted(numbers), reason=reason)
        if not numbers:
            return Denied(chosen["note"])
        return Modified(chosen["arguments"], note=chosen["note"], shown=shown)

    def _ask(self, request: str, **details: Any) -> Any:
        """Send a request to the process that owns the call."""
        if self._serving is None:
            self._serving = server_of(self._journal, self._record)
        return self._serving.ask(request, key=self._record.key, **details)


def person() -> str:
    """Name the person who decides here. Several people may share a journal, and the audit names them."""
    try:
        name = getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())
    return f"{BY} ({name}@{gethostname()})"


def decide_as_person(journal: Journal, record: CallRecord, decision: Decision) -> CallRecord:
    """Answer the question of a call as it was shown here. MovedError names an earlier decision."""
    named = msgspec.structs.replace(decision, by=person())
    return decide(journal, record.key, seal_of(record), named)


def _hunk(told: dict[str, Any]) -> Hunk:
    return Hunk(told["number"], told["start"], tuple(told["removed"]), tuple(told["added"]))


def server_of(journal: Journal, record: CallRecord) -> Serving:
    """Return the process that owns the call, or else one that serves its tool in its project."""
    call, found = record.call, None
    for serving, told in asked_at_once(serving_processes(journal.run_directory), "about"):
        if isinstance(told, ControlError):
            continue
        about = told["about"]
        if call.session and call.session == about["session"]:
            return serving
        if call.tool in about["tools"] and call.project in {"", about["project"]}:
            found = serving
    if found is None:
        raise ControlError("no process that serves it is running")
    return found


def follow(journal: Journal, record: CallRecord, seconds: float = FOLLOWED_SECONDS) -> CallRecord:
    """Return the state of a call once its caller has resumed, or after the timeout."""
    until = monotonic() + seconds
    with journal.bell() as bell:
        while True:
            record = journal.record(record.key) or record
            left = until - monotonic()
            if record.state not in {State.READY, State.EXECUTING} or left <= 0:
                return record
            bell.wait(left)
