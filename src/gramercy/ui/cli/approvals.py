"""`gramercy approvals`: decide about calls that wait in other processes, or whose process has ended.

A decision is one transition in the journal. It names the question that was shown, so when several people
decide, one wins and the others are told. Requests that need the tool itself go to the process that serves it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from time import sleep
from typing import TYPE_CHECKING

import click

from gramercy.errors import JournalError
from gramercy.execution.approval import Approved, Denied, Modified, resolve, standing
from gramercy.execution.calls import parse_arguments
from gramercy.journal.base import State
from gramercy.journal.watchers import watching
from gramercy.text import reveal_line
from gramercy.ui.cli.always import always_of
from gramercy.ui.cli.asking import why_nobody
from gramercy.ui.cli.inbox import (
    aftermath,
    code_of,
    details,
    doubt_about,
    heading,
    is_code,
    is_expired,
    is_interrupted,
    journal_option,
    line,
    looking_option,
    moment,
    question_text,
    seal_of,
    story,
    summary,
    waiting_calls,
    waiting_table,
)
from gramercy.ui.cli.main import DENIED, FAILED
from gramercy.ui.cli.options import json_option, of_project_option
from gramercy.ui.cli.review import Review, decide_as_person, follow, person
from gramercy.ui.cli.terminal import json_text, show, tell

if TYPE_CHECKING:
    from gramercy.execution.approval import Decision
    from gramercy.journal.base import CallRecord, Journal


# Every safe call of every process notifies too. Notifications within this time are handled together.
TOGETHER_SECONDS = 0.02
key_argument = click.argument("key", type=click.IntRange(min=1))
seal_option = click.option(
    "--seal", metavar="CODE", help="The code below the question, as `show` tells it; then nobody is asked."
)
reason_option = click.option("--reason", default="", metavar="TEXT", help="Why; the model is told.")


@click.group(invoke_without_command=True)
@click.pass_context
def group(context: click.Context) -> None:
    """Decide about calls that wait for a person, in whatever process they were made."""
    if context.invoked_subcommand is None:
        context.invoke(list_calls)


@group.command("list")
@looking_option
@of_project_option("calls")
@json_option("Print them as a list of objects.")
def list_calls(journal: Journal, project: str, *, as_json: bool) -> None:
    """List the calls that wait for a decision, and those of which nobody knows whether they ran."""
    found = waiting_calls(journal, project)
    if as_json:
        click.echo(json_text([summary(record) for record in found]))
    elif not found:
        tell("nothing waits for a decision")
    else:
        show(waiting_table(found))
        _hint("gramercy approvals show KEY tells all of a call; approve, deny and edit decide")


@group.command("show")
@looking_option
@key_argument
@click.option("--hunks", is_flag=True, help="The hunks of a proposed edit by their numbers instead.")
@json_option("Print all of it as one object.")
def show_call(journal: Journal, key: int, *, hunks: bool, as_json: bool) -> None:
    """Show all that a person decides on, and the code that approves exactly this."""
    record = found_record(journal, key)
    if hunks:
        found = Review(journal, open_record(journal, key)).hunks()
        show("\n".join(map(str, found)) if not as_json else json_text([asdict(hunk) for hunk in found]))
    elif doubt := doubt_about(journal, record):
        if as_json:
            click.echo(json_text({**summary(record), "code": "", "doubt": doubt}))
        raise JournalError(doubt)
    elif as_json:
        click.echo(json_text(details(record)))
    elif record.state is State.AWAITING:
        show(f"{heading(record)}\n{question_text(record)}")
        show(f"That is all of it. To approve exactly this: --seal {code_of(seal_of(record))}")
        _hint(f"gramercy approvals approve {key}, or deny {key} --reason TEXT, or edit {key}")
    else:
        show("\n".join([heading(record), question_text(record), *story(record)]))


def _hint(text: str) -> None:
    """Tell a person the next step. A program needs no hint."""
    if sys.stdout.isatty():
        tell(text)


@group.command("approve")
@journal_option
@key_argument
@seal_option
@reason_option
@click.option(
    "--hunks", metavar="1,3", help="Of a proposed edit only these hunks, as `show --hunks` numbers them."
)
@click.option(
    "--always",
    type=click.Choice(["path", "directory", "arguments", "tool"]),
    help="With --seal: also write a rule that allows calls of this tool from now on, in this project, with "
    "the same path, below its directory, with the same arguments, or all of them.",
)
@json_option("Print how the call stands then.")
def approve(  # noqa: PLR0913 - one parameter per option
    journal: Journal,
    key: int,
    *,
    seal: str | None,
    reason: str,
    hunks: str | None,
    always: str | None,
    as_json: bool,
) -> int:
    """Approve a call after all of it was shown here; without a terminal, with the code that `show` tells."""
    record = open_record(journal, key)
    if always is not None:
        if seal is None or hunks is not None:
            raise click.UsageError(
                "--always goes with --seal CODE and a whole call; at a terminal, type always"
            )
        return allowed(journal, record, seal, reason, always, as_json=as_json)
    if seal is None:
        return reviewed(journal, record, as_json=as_json)
    check_code(record, seal)
    decision: Decision = Approved(reason=reason, shown=question_text(record))
    if hunks is not None:
        decision = Review(journal, record).with_hunks(_numbers(hunks), reason)
    return decided(journal, record, decision, as_json=as_json)


@group.command("deny")
@journal_option
@key_argument
@reason_option
@json_option("Print how the call stands then.")
def deny(journal: Journal, key: int, *, reason: str, as_json: bool) -> int:
    """Deny a call; the reason is what the model reads."""
    decided(journal, open_record(journal, key, is_trusted=False), Denied(reason), as_json=as_json)
    return 0


@group.command("edit")
@journal_option
@key_argument
@click.option("--arguments", metavar="JSON|-", help="The new arguments; - is standard input.")
@seal_option
@reason_option
@json_option("Print how the call stands then.")
def edit(  # noqa: PLR0913 - one parameter per option
    journal: Journal, key: int, *, arguments: str | None, seal: str | None, reason: str, as_json: bool
) -> int:
    """Change the arguments of a call in your editor, see what it would do now, and decide.

    With --arguments and --seal nobody is asked here: where the tool can tell what it would do, the call
    waits again, with that.
    """
    record = open_record(journal, key)
    review = Review(journal, record)
    if arguments is None:
        if why_nobody():
            raise click.UsageError(
                "there is no terminal for an editor: give --arguments JSON and --seal CODE"
            )
        return outcome(review.edit(), as_json=as_json)
    if seal is None:
        raise click.UsageError("--arguments needs --seal CODE, which `show` tells below the question")
    check_code(record, seal)
    given = parse_arguments(sys.stdin.read() if arguments == "-" else arguments)
    checked = review.checked(given)["arguments"]
    decision = Modified(checked, reason=reason, shown=question_text(record))
    return decided(journal, record, decision, as_json=as_json)


@group.command("resolve")
@journal_option
@key_argument
@click.argument("outcome", type=click.Choice(["done", "failed"]), metavar="done|failed")
@click.option("--reason", required=True, metavar="TEXT", help="How you know; it is recorded, and told.")
@json_option("Print how the call stands then.")
def resolve_call(journal: Journal, key: int, outcome: str, *, reason: str, as_json: bool) -> None:
    """Say what became of a call that is in doubt: it was cut off while it ran, so look before you say."""
    if is_interrupted(found_record(journal, key)):
        # No process has recovered this call yet. Idempotent tools are not known here, so the person decides.
        journal.recover(lambda _: False)
    record = resolve(journal, key, happened=outcome == "done", by=person(), reason=reason)
    if as_json:
        report(record, as_json=True)
    else:
        show(f"call {key} is {record.state.value}: {reveal_line(record.facts.detail)}")


@group.command("watch")
@journal_option
@of_project_option("calls")
@json_option("Print an object with all that waits, on a line, after each change.")
def watch(journal: Journal, project: str, *, as_json: bool) -> None:
    """Wait for questions and ask them here one after the other, until Ctrl-C; in a pipe, list them."""
    is_asking = not as_json and not why_nobody()
    if is_asking:
        tell("waiting for questions; Ctrl-C ends")
    seen: dict[int, int] | None = None
    with watching(journal.run_directory, project), journal.bell() as bell:
        while True:
            found = waiting_calls(journal, project)
            now = {record.key: record.step for record in found}
            if as_json and now != seen:
                # Print the whole list each time: a reader that missed one line has lost nothing.
                click.echo(json.dumps({"pending": [summary(record) for record in found]}))
            elif not as_json:
                _tell_news(journal, seen or {}, found, is_asking=is_asking)
            seen = now
            bell.wait()
            sleep(TOGETHER_SECONDS)


def _tell_news(journal: Journal, seen: dict[int, int], found: list[CallRecord], *, is_asking: bool) -> None:
    for key in seen.keys() - {record.key for record in found}:
        _tell_gone(journal, key)
    for record in found:
        if seen.get(record.key) != record.step:
            _tell_new(journal, record, is_asking=is_asking)


def _tell_gone(journal: Journal, key: int) -> None:
    record = journal.record(key)
    if record is not None:
        show(reveal_line(standing(record)))


def _tell_new(journal: Journal, record: CallRecord, *, is_asking: bool) -> None:
    if not is_asking or record.state is not State.AWAITING:
        show(line(record))
        return
    current = journal.record(record.key)
    if doubt := doubt_about(journal, record):
        show(f"{line(record)}\n{doubt}")
    elif current is not None and current.step == record.step:
        tell(aftermath(Review(journal, record).ask()))


def allowed(  # noqa: PLR0913 - the words of the command
    journal: Journal, record: CallRecord, seal: str, reason: str, always: str, *, as_json: bool
) -> int:
    """Approve a call, and write a rule for similar calls."""
    check_code(record, seal)
    rules = always_of(journal, record)
    offer = rules.named(always)
    decision = Approved(reason=reason, shown=question_text(record))
    code = decided(journal, record, decision, as_json=as_json)
    return code or (0 if rules.write(offer) is not None else FAILED)


def found_record(journal: Journal, key: int) -> CallRecord:
    """Return a call. JournalError when the journal has no such call."""
    record = journal.record(key)
    if record is None:
        raise JournalError(f"there is no call {key} in this journal: gramercy approvals list tells which are")
    return record


def open_record(journal: Journal, key: int, *, is_trusted: bool = True) -> CallRecord:
    """Return a call that waits for a decision. JournalError tells the state of any other call.

    A trusted call must be exactly as it was recorded. To deny a call, that is not needed.
    """
    record = found_record(journal, key)
    if is_trusted and (doubt := doubt_about(journal, record)):
        raise JournalError(doubt)
    if record.state is not State.AWAITING:
        raise JournalError(f"nothing is to be decided any more: {standing(record)}")
    if is_expired(record):
        raise JournalError(
            f"call {key} could be decided until {moment(record.facts.expires_at)}: "
            "its caller has to ask again"
        )
    return record


def check_code(record: CallRecord, code: str) -> None:
    """Refuse a code that does not belong to the current question."""
    if not is_code(code, seal_of(record)):
        raise JournalError(
            f"{code:.40} is not the code of call {record.key} as it is asked about now: look at it again "
            f"with gramercy approvals show {record.key}"
        )


def _numbers(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isascii() and word.isdigit() for word in words):
        raise click.BadParameter(f"{text!r:.40} is not a list of numbers such as 1,3", param_hint="--hunks")
    return [int(word) for word in words]


def reviewed(journal: Journal, record: CallRecord, *, as_json: bool) -> int:
    """Let the person at this terminal decide."""
    if why := why_nobody():
        raise click.UsageError(
            f"nobody can be asked here, since {why}: look with gramercy approvals show {record.key}, "
            "then give --seal CODE"
        )
    return outcome(Review(journal, record).ask(), as_json=as_json)


def decided(journal: Journal, record: CallRecord, decision: Decision, *, as_json: bool) -> int:
    """Record a decision and report the state of the call after it."""
    made = decide_as_person(journal, record, decision)
    return outcome(follow(journal, made), as_json=as_json)


def outcome(record: CallRecord, *, as_json: bool) -> int:
    """Report the state of a call after a decision. Return the exit code."""
    report(record, as_json=as_json)
    return DENIED if record.state is State.DENIED else 0


def report(record: CallRecord, *, as_json: bool) -> None:
    """Report the state of a call."""
    if as_json:
        click.echo(json_text({**summary(record), "detail": record.facts.detail}))
    else:
        show(aftermath(record))
