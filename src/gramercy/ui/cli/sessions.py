"""`gramercy sessions`: conversations with agents, listed, shown and found again by their words."""

from __future__ import annotations

import sys
from time import time
from typing import TYPE_CHECKING, Any

import click
import msgspec

from gramercy.errors import JournalError
from gramercy.journal.sessions import sessions_of
from gramercy.journal.texts import masked
from gramercy.ui.cli.inbox import age, aligned, journal_option, moment
from gramercy.ui.cli.options import json_option
from gramercy.ui.cli.terminal import json_text, show, tell

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gramercy.journal.base import Journal
    from gramercy.journal.sessions import Found, Message, SessionRecord

COLUMNS = ("session", "age", "messages", "agent", "title")
# A conversation of a day has hundreds of messages; of a longer one the rest is asked for with --after.
MOST_MESSAGES = 1_000

project_option = click.option(
    "--project", default="", metavar="DIRECTORY", help="Only conversations of this project."
)


@click.group()
def group() -> None:
    """List, show and search conversations with agents."""


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
        tell("there are no conversations yet")
    else:
        now = time()
        show(aligned([COLUMNS, *(_row(each, now) for each in found)]))


def _row(session: SessionRecord, now: float) -> tuple[str, ...]:
    count = str(session.messages)
    return session.id, age(now - session.changed_at), count, session.agent, session.title


@group.command("show")
@journal_option
@click.argument("session")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only messages after this number.")
@json_option("Print the conversation with its messages as one object.")
def show_session(journal: Journal, session: str, after: int, *, as_json: bool) -> None:
    """Show what was said in a conversation, and how many calls were made in it."""
    sessions = sessions_of(journal)
    found = sessions.session(session)
    if found is None:
        raise JournalError(f"there is no session {session}: gramercy sessions list tells which are")
    said = sessions.messages(session, after=after, most=MOST_MESSAGES)
    if as_json:
        messages = [msgspec.structs.asdict(message) for message in said]
        click.echo(json_text({**msgspec.structs.asdict(found), "said": messages}))
        return
    for line in _conversation(found, said):
        show(line)
    last = said[-1].number if said else found.messages
    if last < found.messages:
        tell(f"{found.messages - last:,} more: gramercy sessions show {session} --after {last}")
    if journal.records(session=session, most=1):
        tell(f"calls were made in it: gramercy audit show --session {session}")


def _conversation(found: SessionRecord, said: Sequence[Message]) -> Iterator[str]:
    with_whom = " ".join(filter(None, [found.agent, f"({found.model})" if found.model else ""]))
    parts = [found.title or "without a title", *([f"with {with_whom}"] if with_whom else [])]
    parts += [f"in {found.project}"] if found.project else []
    yield f"{', '.join(parts)}, since {moment(found.at)}"
    for message in said:
        call = f", call {message.call}" if message.call else ""
        yield f"\n{message.number}  {message.role}, {moment(message.at)}{call}"
        # What agents say and tools return may hold secrets, which a screen is no place for.
        yield masked(message.text)


@group.command("search")
@journal_option
@click.argument("words", nargs=-1, required=True)
@project_option
@click.option("--most", type=click.IntRange(min=1), default=20, show_default=True, help="How many messages.")
@json_option("Print the messages with their conversations as a list of objects.")
def search(journal: Journal, words: tuple[str, ...], project: str, most: int, *, as_json: bool) -> int:
    """Find the messages that have all these words, the latest first.

    Words in quotes follow each other; a star at the end of a word stands for any ending.
    """
    # The shell has taken the quotes of a word with spaces in it: it was meant as a phrase.
    question = " ".join(f'"{word}"' if " " in word and '"' not in word else word for word in words)
    found = sessions_of(journal).search(question, project=project, most=most)
    if as_json:
        click.echo(json_text([_match(each) for each in found]))
        return 0
    before = ""
    for each in found:
        if each.session.id != before:
            show(f"{each.session.id}  {each.session.title}", bold=True)
        before = each.session.id
        show(f"  {each.message.number:>4}  {each.message.role}: {masked(each.excerpt)}")
    if not found:
        tell("nothing was found")
    return 0


def _match(found: Found) -> dict[str, Any]:
    return {
        "session": msgspec.structs.asdict(found.session),
        "message": msgspec.structs.asdict(found.message),
        "excerpt": found.excerpt,
    }


@group.command("remove")
@journal_option
@click.argument("session")
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(journal: Journal, session: str, *, yes: bool) -> None:
    """Remove a conversation and all that was said in it; the calls stay in the audit."""
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("nobody can be asked here: say --yes")
        click.confirm(f"remove {session} and all that was said in it?", abort=True, err=True)
    if not sessions_of(journal).remove(session):
        raise JournalError(f"there is no session {session}")
