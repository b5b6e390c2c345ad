"""`gramercy audit`: show the recorded calls, prove that they are unchanged, and delete contents."""

from __future__ import annotations

import re
import sys
from contextlib import closing
from getpass import getuser
from pathlib import Path
from time import perf_counter, time
from typing import TYPE_CHECKING, Any

import click

from gramercy.errors import JournalError
from gramercy.images.files.whole import whole_file
from gramercy.journal.audit import (
    open_kept,
    own_events,
    prune,
    redact_calls,
    redact_matches,
    story,
    verify_journal,
)
from gramercy.journal.base import State
from gramercy.text import counted, reason_of
from gramercy.ui.cli.asking import confirm
from gramercy.ui.cli.main import FAILED
from gramercy.ui.cli.options import (
    MOMENT,
    json_option,
    kept_journal_option,
    of_project_option,
    place_of_journal_option,
    seen_journal_option,
)
from gramercy.ui.cli.stories import (
    call_facts,
    call_table,
    own_facts,
    own_line,
    steps_facts,
    story_text,
    when,
)
from gramercy.ui.cli.terminal import json_text, show, tell

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gramercy.journal.chain import Head
    from gramercy.journal.sql import SqlJournal
    from gramercy.journal.verify import Report

STATES = click.Choice([state.value for state in State])
HASH = re.compile("[0-9a-f]{64}")
# Data in the same database that no event covers.
NOT_COVERED = ("conversations", "leases", "whole answers that a caller has not fetched yet", "deliveries")
# About a screenful. --most asks for more.
USUAL = 30


@click.group()
def group() -> None:
    """Look at what was recorded of calls, prove that nobody has changed it, delete contents."""


@group.command("show")
@click.argument("keys", nargs=-1, type=click.IntRange(min=1), metavar="[KEY]...")
@seen_journal_option
@click.option("--tool", default="", help="Only calls of this tool.")
@click.option("--state", "states", multiple=True, type=STATES, help="Only calls that stand so.")
@click.option("--principal", default="", help="Only calls that this one has made.")
@click.option("--session", default="", help="Only calls of this session.")
@of_project_option("calls")
@click.option("--since", type=MOMENT, metavar="TIME", help="Only later ones: 12h, 7d, 2026-05-01.")
@click.option("--most", default=USUAL, type=click.IntRange(min=1), show_default=True, help="How many.")
@click.option("--contents", is_flag=True, help="With arguments, questions, words and results.")
@click.option("--changes", is_flag=True, help="What was done to the journal itself: redactions, prunings.")
@json_option("Print a list of calls, or all that is kept of the named ones.")
def show_calls(  # noqa: PLR0913 - one parameter per option
    journal: SqlJournal,
    keys: Sequence[int],
    *,
    states: Sequence[str],
    since: float | None,
    contents: bool,
    changes: bool,
    as_json: bool,
    **filters: Any,
) -> None:
    """List the latest calls, or show the whole story of the calls that are named.

    Who asked, what was shown, who decided, what ran and what came back; contents only by choice.
    """
    if changes:
        _show_changes(journal, as_json=as_json)
        return
    if keys:
        _show_stories(journal, keys, contents=contents, as_json=as_json)
        return
    wanted = [State(word) for word in states]
    found = journal.records(wanted, since=since or 0.0, **filters)
    if as_json:
        click.echo(json_text([call_facts(record, with_contents=contents) for record in found]))
    elif found:
        show(call_table(found[::-1]))
        tell("gramercy audit show KEY tells the whole story of a call")
    else:
        tell("no such call was recorded")


def _show_stories(journal: SqlJournal, keys: Sequence[int], *, contents: bool, as_json: bool) -> None:
    stories = [story(journal, key) for key in keys]
    if as_json:
        click.echo(json_text([steps_facts(steps, with_contents=contents) for steps in stories]))
    else:
        show("\n\n".join(story_text(steps, with_contents=contents) for steps in stories))


def _show_changes(journal: SqlJournal, *, as_json: bool) -> None:
    found = own_events(journal)
    if as_json:
        click.echo(json_text([own_facts(event, told) for event, told in found]))
    elif found:
        show("\n".join(own_line(event, told) for event, told in found))
    else:
        tell("nothing was redacted or pruned")


@group.command("verify")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@place_of_journal_option
@click.option(
    "--expect",
    metavar="DIGEST|FILE",
    help="What an earlier `verify` has printed or written with --anchor: all of that must still be there.",
)
@click.option(
    "--anchor",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the ends of all chains there; keep it where the writers of the journal cannot change it.",
)
@json_option("Print what was found as one object.")
def verify(
    file: Path | None, journal: str | None, *, expect: str | None, anchor: Path | None, as_json: bool
) -> int:
    """Prove that nothing that was recorded has been edited, removed, inserted or put elsewhere.

    Of the journal, or of a FILE that `gramercy audit export` has written. The first bad record is named, and
    the exit code is 1.
    """
    anchors = _anchors(expect)
    began = perf_counter()
    report = _verified(file, journal, anchors)
    seconds = perf_counter() - began
    unexpected = _unexpected(expect, report)
    is_fine = report.is_intact and not unexpected and report.events > 0
    if anchor is not None and is_fine:
        from gramercy.journal.export import anchor_text

        _write_new(anchor, [anchor_text(report).encode()])
    if as_json:
        click.echo(json_text(_report_facts(report, unexpected, seconds)))
    else:
        _tell_report(report, unexpected, seconds)
    return 0 if is_fine else FAILED


def _anchors(expect: str | None) -> list[Head]:
    if expect is None or HASH.fullmatch(expect):
        return []
    from gramercy.journal.export import read_opening

    try:
        with Path(expect).open("rb") as lines:
            return read_opening(lines.readline()).heads
    except OSError as error:
        raise click.UsageError(
            f"--expect: {expect!r} is no digest, and no file: {reason_of(error)}"
        ) from None


def _verified(file: Path | None, place: str | None, anchors: list[Head]) -> Report:
    if file is not None:
        from gramercy.journal.export import verify_lines

        with file.open("rb") as lines:
            return verify_lines((line.removesuffix(b"\n") for line in lines), anchors)
    with closing(open_kept(place, is_look=True)) as journal:
        return verify_journal(journal, anchors)


def _unexpected(expect: str | None, report: Report) -> str:
    """Return the message about a digest that differs from that of the current chain ends."""
    if expect is None or not HASH.fullmatch(expect) or expect == report.digest:
        return ""
    return (
        "the ends of the chains are not those of the expected digest: something was recorded since, or "
        "changed. Only a file of --anchor can tell which"
    )


def _report_facts(report: Report, unexpected: str, seconds: float) -> dict[str, Any]:
    return {
        "intact": report.is_intact and not unexpected and report.events > 0,
        "flaws": [*map(str, report.flaws), *([unexpected] if unexpected else [])],
        "events": report.events,
        "calls": report.calls,
        "chains": len(report.heads),
        "masked": report.replaced,
        "deleted": report.deleted,
        "unproven": report.unproven,
        "remarks": list(report.remarks),
        "not_covered": list(NOT_COVERED),
        "digest": report.digest,
        "seconds": round(seconds, 3),
    }


def _tell_report(report: Report, unexpected: str, seconds: float) -> None:
    size = f"{counted(report.events, 'event')} of {counted(report.calls, 'call')}"
    chains = counted(len(report.heads), "chain")
    if not report.is_intact:
        first, *others = report.flaws
        show(f"BROKEN: {first}", fg="red", bold=True)
        for flaw in others:
            show(f"also: {flaw}")
    elif unexpected:
        show(f"NOT AS EXPECTED: {unexpected}", fg="red", bold=True)
    elif not report.events:
        show("EMPTY: nothing is recorded here, so there is nothing to prove", fg="red", bold=True)
    else:
        show(f"intact: {size} in {chains}", fg="green")
    for remark in report.remarks:
        show(f"noted: {remark}")
    gone = {"masked": report.replaced, "deleted": report.deleted}
    if any(gone.values()):
        told = ", ".join(f"{number:,} {word}" for word, number in gone.items() if number)
        show(f"contents: {told}, as events say")
    if report.unproven:
        show(
            f"contents: {report.unproven:,} gone that an old pruning may have deleted; it has not recorded "
            "which, so that it cannot be told whether somebody else has deleted them"
        )
    show(f"digest: {report.digest}")
    tell(f"not covered: {', '.join(NOT_COVERED)}")
    tell(f"{size} in {seconds:.2f} s")


@group.command("export")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@seen_journal_option
@click.option("--contents", is_flag=True, help="With arguments, questions, words and results.")
def export(journal: SqlJournal, file: Path, *, contents: bool) -> None:
    """Write the whole journal as JSON lines that can be verified anywhere, into a new FILE; - is stdout.

    Without --contents it has who, when, which tool and how it went, and digests of the rest.
    """
    from gramercy.journal.export import export_lines

    lines = export_lines(journal, time(), with_contents=contents)
    if str(file) == "-":
        for line in lines:
            sys.stdout.buffer.write(line + b"\n")
        sys.stdout.flush()
        return
    _write_new(file, lines)
    tell(f"written to {file}; gramercy audit verify {file} proves it")


def _write_new(path: Path, lines: Iterator[bytes] | Sequence[bytes]) -> None:
    """Write a file that does not exist yet, readable by its owner alone."""
    try:
        with whole_file(path, mode=0o600, is_new=True) as file:
            file.writelines(line + b"\n" for line in lines)
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {reason_of(error)}") from None


@group.command("redact")
@click.argument("keys", nargs=-1, type=click.IntRange(min=1), metavar="[KEY]...")
@kept_journal_option
@click.option("--text", "texts", multiple=True, help="Put dots for this text, in all calls that are over.")
@click.option(
    "--reason", default="", metavar="TEXT", help="Why; it stays in the journal, so leave out what goes."
)
@click.option("--yes", is_flag=True, help="Without asking.")
def redact(journal: SqlJournal, keys: Sequence[int], *, texts: Sequence[str], reason: str, yes: bool) -> int:
    """Delete the contents of calls, or put dots for a text, for good; the chains stay provable.

    What happened, when, and who decided remains; that it was redacted, by whom and why is recorded.
    """
    if bool(keys) == bool(texts):
        raise click.UsageError("say what: KEY for all contents of a call, or --text for a text in all calls")
    if any(not text.strip() for text in texts):
        raise click.UsageError("--text: an empty text is everywhere")
    about = f"all contents of {counted(len(keys), 'call')}" if keys else "the text in all calls that are over"
    confirm(f"delete {about} in {journal.where}, for good?", yes=yes)
    if keys:
        changed = redact_calls(journal, keys, _person(), reason)
    else:
        changed, needed = redact_matches(journal, lambda kept: _dotted(kept, texts), _person(), reason)
        if needed:
            listed = ", ".join(map(str, needed))
            tell(f"still needed whole, and left as they are, until these calls are over: {listed}")
    tell(f"{counted(changed, 'content')} redacted")
    return 0


def _dotted(kept: str, texts: Sequence[str]) -> str:
    from gramercy.journal.masking import without

    return without(kept, texts)


def _person() -> str:
    try:
        return f"{getuser()} at the terminal"
    except (KeyError, OSError):
        return "person at the terminal"


@group.command("prune")
@kept_journal_option
@click.option("--before", type=MOMENT, required=True, metavar="TIME", help="How old: 90d, 12w, 2026-01-01.")
@click.option("--yes", is_flag=True, help="Without asking.")
def prune_contents(journal: SqlJournal, *, before: float, yes: bool) -> int:
    """Delete the contents of calls that were over before a time; what happened and who decided remains.

    Calls that wait, run or are in doubt keep theirs, however old they are.
    """
    if before > time():
        raise JournalError("that time is yet to come")
    confirm(f"delete contents from before {when(before)} in {journal.where}, for good?", yes=yes)
    tell(f"{counted(prune(journal, before, _person()), 'content')} deleted")
    return 0
