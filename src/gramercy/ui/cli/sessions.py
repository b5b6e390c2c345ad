"""`gramercy sessions`: conversations with agents, listed, found again, forked, exported and counted."""

from __future__ import annotations

from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

import click
import msgspec

from gramercy.agents.exporting import call_names, export_json, export_markdown, plain_without_secrets, speaker
from gramercy.agents.talks import all_messages, calls_of, fork_session, found_session
from gramercy.agents.totals import GROUPINGS, totals
from gramercy.errors import JournalError, UnreadableFileError
from gramercy.images.files.whole import write_whole
from gramercy.journal.sessions import sessions_of
from gramercy.journal.texts import masked
from gramercy.text import reason_of, reveal_line, table
from gramercy.ui.cli.asking import confirm
from gramercy.ui.cli.inbox import age, journal_option, moment
from gramercy.ui.cli.options import MOMENT, json_option, of_project_option
from gramercy.ui.cli.terminal import json_text, show, tell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gramercy.agents.totals import Grouping, Total, Totals
    from gramercy.journal.base import Journal
    from gramercy.journal.sessions import Found, Message, SessionRecord, Sessions

COLUMNS = ("session", "age", "messages", "agent", "title")
# A conversation of a day has hundreds of messages. --after shows the rest of a longer one.
MOST_MESSAGES = 1_000

project_option = of_project_option("conversations")


@click.group()
def group() -> None:
    """List, show, search, fork, export and count conversations with agents.

    A conversation is named by its id, the beginning of that, or its title; the latest one counts.
    """


@group.command("list")
@journal_option
@project_option
@click.option("--most", type=click.IntRange(min=1), default=50, show_default=True, help="How many.")
@json_option("Print them as a list of objects.")
def list_sessions(journal: Journal, project: str, most: int, *, as_json: bool) -> None:
    """List conversations, the one with the latest message first."""
    found = sessions_of(journal).sessions(project=project, most=most)
    if as_json:
        click.echo(json_text([msgspec.structs.asdict(each) for each in found]))
    elif not found:
        tell(f"there are no conversations in {project}" if project else "there are no conversations yet")
    else:
        now = time()
        show(table([COLUMNS, *(_row(each, now) for each in found)]))


def _row(session: SessionRecord, now: float) -> tuple[str, ...]:
    count = str(session.messages)
    return session.id, age(now - session.changed_at), count, session.agent, session.title


@group.command("show")
@journal_option
@click.argument("session", required=False)
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only messages after this number.")
@json_option("Print the conversation with its messages as one object.")
def show_session(journal: Journal, session: str | None, after: int, *, as_json: bool) -> None:
    """Show what was said in a conversation, by default the latest, and whether calls were made in it."""
    sessions = sessions_of(journal)
    found = _latest(sessions) if session is None else found_session(sessions, session)
    session = found.id
    said = sessions.messages(session, after=after, most=MOST_MESSAGES)
    if as_json:
        messages = [msgspec.structs.asdict(message) for message in said]
        whole = {**msgspec.structs.asdict(found), "said": messages}
        click.echo(json_text(plain_without_secrets(whole)))
        return
    for line in _conversation(found, said):
        show(line)
    last = said[-1].number if said else found.messages
    if last < found.messages:
        tell(f"{found.messages - last:,} more: gramercy sessions show {session} --after {last}")
    if journal.records(session=session, most=1):
        tell(f"calls were made in it: gramercy audit show --session {session}")


def _latest(sessions: Sessions) -> SessionRecord:
    """Return the conversation with the latest message."""
    latest = sessions.sessions(most=1)
    if not latest:
        raise JournalError("there are no conversations yet: gramercy chat begins one")
    tell(f"{latest[0].id} is the latest; gramercy sessions list has all")
    return latest[0]


def _conversation(found: SessionRecord, said: Sequence[Message]) -> Iterator[str]:
    with_whom = " ".join(filter(None, [found.agent, f"({found.model})" if found.model else ""]))
    parts = [found.title or "without a title", *([f"with {with_whom}"] if with_whom else [])]
    parts += [f"in {found.project}"] if found.project else []
    yield reveal_line(f"{', '.join(parts)}, since {moment(found.at)}")
    names = call_names(said)
    for message in said:
        call = f", call {message.call}" if message.call else ""
        who = reveal_line(speaker(message, names))
        yield f"\n{message.number}  {who}, {moment(message.at)}{call}"
        if message.fault:
            yield f"(damaged: {message.fault})"
        # Texts of agents and results of tools may hold secrets, which must not appear on a screen.
        if message.text:
            yield masked(message.text)
        for each in calls_of(message):
            yield reveal_line(f"-> {each.name} {masked(each.arguments)}")


@group.command("search")
@journal_option
@click.argument("words", nargs=-1, required=True)
@project_option
@click.option("--most", type=click.IntRange(min=1), default=20, show_default=True, help="How many messages.")
@json_option("Print the messages with their conversations as a list of objects.")
def search(journal: Journal, words: tuple[str, ...], project: str, most: int, *, as_json: bool) -> int:
    """Find the conversations with all these words in their title, then the messages, the latest first.

    Words in quotes follow each other; a star at the end of a word stands for any ending.
    """
    # The shell has removed the quotes of a word with spaces. It was meant as a phrase.
    question = " ".join(f'"{word}"' if " " in word and '"' not in word else word for word in words)
    sessions = sessions_of(journal)
    found = sessions.search(question, project=project, most=most)
    if as_json:
        click.echo(json_text(plain_without_secrets([_match(each) for each in found])))
        return 0
    before = ""
    titled = sessions.titled(question, project=project, most=most)
    # Most titles are the first message, and that is found anyway.
    told = {each.session.id for each in found}
    for record in titled:
        if record.id not in told:
            show(f"{record.id}  {reveal_line(record.title)}", bold=True)
    for each in found:
        if each.session.id != before:
            show(f"{each.session.id}  {reveal_line(each.session.title)}", bold=True)
        before = each.session.id
        show(f"  {each.message.number:>4}  {each.message.role}: {reveal_line(masked(each.excerpt))}")
    damaged = {each.session.id for each in found if each.message.fault}
    _tell_damaged(damaged)
    if not found and not titled:
        tell("nothing was found")
    return 0


def _tell_damaged(names: Iterable[str]) -> None:
    for name in sorted(names):
        tell(f"warning: session {name} has messages that cannot be read: gramercy sessions show {name}")


def _match(found: Found) -> dict[str, Any]:
    return {
        "session": msgspec.structs.asdict(found.session),
        "message": msgspec.structs.asdict(found.message),
        "excerpt": found.excerpt,
    }


@group.command("rename")
@journal_option
@click.argument("session")
@click.argument("title")
def rename(journal: Journal, session: str, title: str) -> None:
    """Give a conversation another title."""
    sessions = sessions_of(journal)
    sessions.rename(found_session(sessions, session).id, title)


@group.command("fork")
@journal_option
@click.argument("session")
@click.option("--at", type=click.IntRange(min=1), help="The last message that is taken over; all without it.")
@click.option("--title", default="", help="The title of the new conversation.")
def fork(journal: Journal, session: str, at: int | None, title: str) -> None:
    """Begin a conversation that goes on from a message of another one; print its id.

    Go on with it by gramercy chat --session or gramercy run --session. Images are not part of it: those of a
    chat go back with /undo there.
    """
    sessions = sessions_of(journal)
    click.echo(fork_session(sessions, found_session(sessions, session).id, at, title))


@group.command("export")
@journal_option
@click.argument("session")
@click.option(
    "--format", "form", type=click.Choice(["markdown", "json"]), default="markdown", show_default=True
)
@click.option("--output", "-o", type=click.Path(dir_okay=False), help="The file to write; stdout without it.")
@click.option("--secrets", is_flag=True, help="Leave what looks like a secret as it is.")
def export(journal: Journal, session: str, form: str, output: str | None, *, secrets: bool) -> None:
    """Write a conversation as a document, with its calls and results."""
    sessions = sessions_of(journal)
    record = found_session(sessions, session)
    said = all_messages(sessions, record.id)
    if form == "json":
        text = json_text(export_json(record, said, is_masked=not secrets)) + "\n"
    else:
        text = export_markdown(record, said, is_masked=not secrets)
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        write_whole(Path(output), text)
    except OSError as error:
        raise UnreadableFileError(f"{output} cannot be written: {reason_of(error)}") from None
    tell(f"{len(said):,} messages in {output}")


@group.command("stats")
@journal_option
@click.argument("session", default="")
@click.option(
    "--by", type=click.Choice(GROUPINGS), default="day", show_default=True, help="What stands on a line."
)
@click.option("--since", type=MOMENT, metavar="TIME", help="Only later answers: 12h, 7d, 2026-05-01.")
@project_option
@json_option("Print the totals as one object.")
def stats(  # noqa: PLR0913 - one parameter per option
    journal: Journal, session: str, by: Grouping, since: float | None, project: str, *, as_json: bool
) -> None:
    """Count what conversations have used: answers, tokens, money, models and tools.

    Tokens are those that the models' services have counted. Costs are in US dollars, by the prices of the day
    of the answer; what is marked with + is without answers whose price is not known.
    """
    sessions = sessions_of(journal)
    wanted = found_session(sessions, session).id if session else ""
    found = totals(sessions, by, session=wanted, project=project, since=since or 0.0)
    if as_json:
        groups = {name: _total_facts(total) for name, total in found.groups.items()}
        everything = _total_facts(found.all)
        click.echo(json_text({"by": by, "groups": groups, "all": everything, "damaged": found.damaged}))
        return
    if not found.all.answers:
        tell("no agent has answered yet")
    else:
        show(table(_total_rows(found, by)))
        for what, counts in (("model", found.all.models), ("tool", found.all.tools)):
            told = ", ".join(f"{name or 'unknown'} {count:,}" for name, count in counts.most_common())
            if told and by != what:
                show(f"\n{what}s: {told}")
    _tell_damaged(found.damaged)


def _total_rows(found: Totals, by: str) -> list[tuple[str, ...]]:
    if by == "tool":
        return [("tool", "calls"), *((name, f"{count:,}") for name, count in found.all.tools.most_common())]
    heading = (by, "sessions", "answers", "tokens in", "cached", "tokens out", "calls", "cost")
    groups = [_total_row(name or "unknown", total) for name, total in sorted(found.groups.items())]
    return [heading, *groups, _total_row("all", found.all)]


def _total_row(name: str, total: Total) -> tuple[str, ...]:
    counts = (len(total.sessions), total.answers, total.usage.input, total.usage.cached, total.usage.output)
    return (name, *(f"{count:,}" for count in counts), f"{total.tools.total():,}", _cost(total))


def _cost(total: Total) -> str:
    if total.unpriced == total.answers:
        return "N/A"
    return f"${total.cost:.4f}{'+' if total.unpriced else ''}"


def _total_facts(total: Total) -> dict[str, Any]:
    return {
        "sessions": len(total.sessions),
        "answers": total.answers,
        "usage": msgspec.structs.asdict(total.usage),
        "cost": None if total.unpriced == total.answers else total.cost,
        "unpriced": total.unpriced,
        "models": dict(total.models),
        "tools": dict(total.tools),
    }


@group.command("remove")
@journal_option
@click.argument("session")
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(journal: Journal, session: str, *, yes: bool) -> None:
    """Remove a conversation and all that was said in it; the calls stay in the audit."""
    confirm(f"remove {session} and all that was said in it?", yes=yes)
    # Only by its id: a similar title must not remove a conversation by mistake.
    if not sessions_of(journal).remove(session):
        raise JournalError(f"there is no session {session}")
