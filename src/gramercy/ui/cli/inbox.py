"""Calls that wait for a person: find them in the journal, and format them as a line, in full, or as JSON."""

from __future__ import annotations

from contextlib import closing
from functools import wraps
from time import localtime, strftime, time
from typing import TYPE_CHECKING, Any

import click

from gramercy.errors import ForgedRecordError
from gramercy.execution.approval import standing
from gramercy.execution.shown import folded, revealed, written
from gramercy.journal.base import State
from gramercy.journal.owners import is_alive
from gramercy.journal.texts import canonical_text, without_secrets
from gramercy.text import reveal_line, table
from gramercy.ui.cli.options import journal_place, place_of_journal_option

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gramercy.journal.base import CallRecord, Journal

# The states in which a person must act.
WAITING = (State.AWAITING, State.IN_DOUBT)
# Characters of a call's subject, so that it fits on a line with the rest.
LONGEST_LABEL = 60
# Too many digits to hit by chance. The code only proves that the person has seen the end of the text.
CODE_DIGITS = 8
# Calls that are read in one query.
PAGE = 1_000
COLUMNS = ("key", "age", "state", "asked by", "tool", "what")
WORDS = {State.AWAITING: "waits", State.IN_DOUBT: "in doubt", State.READY: "approved"}
ENDINGS = {
    State.READY: "; it runs when its caller goes on, or comes back",
    State.EXECUTING: " and runs",
    State.DONE: " and has run",
    State.FAILED: " and has failed",
}
UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


def waiting_calls(journal: Journal, project: str = "") -> list[CallRecord]:
    """Return the calls that wait for a person, oldest first. Calls of an ended process are included."""
    found: list[CallRecord] = []
    states, below = (*WAITING, State.EXECUTING), 0
    while page := journal.records(states, project=project, below=below, most=PAGE):
        found += [record for record in page if record.state in WAITING or is_interrupted(record)]
        below = page[-1].key
    return found[::-1]


def is_interrupted(record: CallRecord) -> bool:
    """Return whether the process that ran a call is gone and no other process has recovered the call."""
    return record.state is State.EXECUTING and is_alive(record.facts.owner) is False


def arguments_of(record: CallRecord) -> dict[str, Any]:
    """Return the arguments in question: the edited ones, if a person has edited them."""
    return dict(record.call.arguments if record.facts.arguments is None else record.facts.arguments)


def seal_of(record: CallRecord) -> str:
    """Return the seal that a decision about a call must name."""
    return record.facts.question.seal if record.facts.question else ""


def code_of(seal: str) -> str:
    """Return the code that is shown below a question and passed to `--seal`."""
    code = seal[:CODE_DIGITS].upper()
    return f"{code[:4]}-{code[4:]}"


def is_code(given: str, seal: str) -> bool:
    """Return whether this is the code of a seal, or the seal itself."""
    plain = "".join(given.split()).replace("-", "").lower()
    return bool(seal) and plain in {seal[:CODE_DIGITS].lower(), seal.lower()}


def label(arguments: Mapping[str, Any]) -> str:
    """Describe the subject of a call by its first text argument: usually the code or the path."""
    texts = [value for value in arguments.values() if isinstance(value, str) and value.strip()]
    text = texts[0].strip() if texts else canonical_text(arguments)
    first, _, more = text.partition("\n")
    shown = without_secrets(revealed(first), LONGEST_LABEL)
    return f"{shown}…" if more and not shown.endswith("…") else shown


def age(seconds: float) -> str:
    """Format an age in one unit."""
    for size, unit in UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return "now"


def moment(at: float) -> str:
    """Format a time."""
    return strftime("%Y-%m-%d %H:%M:%S", localtime(at))


def waiting_table(records: list[CallRecord]) -> str:
    """Format calls as a table, one call per line."""
    now = time()
    return table([COLUMNS, *(_row(record, now) for record in records)])


def _row(record: CallRecord, now: float) -> tuple[str, ...]:
    since = now - (record.asked_at or record.changed_at)
    call = record.call
    what = label(arguments_of(record))
    # Pad to the largest width, so that the table does not change with the minutes.
    return (
        str(record.key),
        f"{age(since):<6}",
        _word(record),
        asker(record),
        call.tool,
        what,
    )


def is_expired(record: CallRecord) -> bool:
    """Return whether the time for a decision is over. The call's process may not have noticed yet."""
    return record.state is State.AWAITING and 0 < record.facts.expires_at < time()


def _word(record: CallRecord) -> str:
    if is_expired(record):
        return "expired"
    if is_interrupted(record):
        return WORDS[State.IN_DOUBT]
    return WORDS.get(record.state, record.state.value)


def asker(record: CallRecord) -> str:
    """Name the process or person that asked for a call."""
    call = record.call
    return call.client or call.principal


def line(record: CallRecord) -> str:
    """Format one call on a line, for a reader that follows the list."""
    return reveal_line(f"call {record.key} {_word(record)}: {record.call.tool} {label(arguments_of(record))}")


def heading(record: CallRecord) -> str:
    """Describe who asks, where, since when and until when."""
    call = record.call
    parts = [f"call {record.key}, asked by {call.client or call.principal}"]
    parts += [f"for {call.principal}"] if call.client and call.principal != "local" else []
    parts.append(f"at {moment(record.asked_at or record.at)}")
    parts += [f"until {moment(record.facts.expires_at)}"] if record.facts.expires_at else []
    lines = [" ".join(parts), *([f"in {call.project}"] if call.project else [])]
    return "\n".join(folded(reveal_line(line)) for line in lines)


def aftermath(record: CallRecord) -> str:
    """Describe the state of a call after a decision."""
    name, ruling, facts = f"call {record.key}", record.facts.ruling, record.facts
    if record.state is State.AWAITING and facts.question is not None:
        changes = "; ".join(facts.question.changes) or "it has changed"
        return f"{name} waits again ({reveal_line(changes)}): gramercy approvals show {record.key}"
    if ruling is None or not ruling.approved or record.state not in ENDINGS:
        return reveal_line(standing(record))
    why = f": {reveal_line(facts.detail)}" if record.state is State.FAILED and facts.detail else ""
    return f"{name} is approved{ENDINGS[record.state]}{why}"


def story(record: CallRecord) -> list[str]:
    """Describe who decided about a call, and its state."""
    ruling, told = record.facts.ruling, []
    if ruling is not None and record.state not in {State.READY, State.DENIED}:
        word = "approved" if ruling.approved else "denied"
        told.append(f"{word} by {ruling.by or ruling.refuser}{f': {ruling.reason}' if ruling.reason else ''}")
    told.append(standing(record))
    told += [record.facts.detail] if record.facts.detail and record.facts.detail not in told[-1] else []
    return [folded(reveal_line(line)) for line in told]


def question_text(record: CallRecord) -> str:
    """Format everything that a person decides on."""
    question = record.facts.question
    if question is not None:
        return question.text
    # A call that started without a question has none, and a finished call keeps none.
    values = [written(name, value) for name, value in arguments_of(record).items()]
    return folded(revealed("\n".join([f"{record.call.tool} ({record.call.level})", *values])))


def summary(record: CallRecord) -> dict[str, Any]:
    """Return the facts about a call in a list, as JSON."""
    call, facts = record.call, record.facts
    return {
        "key": record.key,
        "state": record.state.value,
        "tool": call.tool,
        "level": call.level,
        "what": label(arguments_of(record)),
        "principal": call.principal,
        "client": call.client,
        "session": call.session,
        "project": call.project,
        "asked_at": record.asked_at,
        "expires_at": facts.expires_at,
        "changed_at": record.changed_at,
        "code": code_of(seal_of(record)) if record.state is State.AWAITING else "",
    }


def details(record: CallRecord) -> dict[str, Any]:
    """Return everything that a person decides on, as JSON."""
    question, ruling = record.facts.question, record.facts.ruling
    told: dict[str, Any] = {**summary(record), "arguments": arguments_of(record), "seal": seal_of(record)}
    told["text"] = question_text(record)
    if question is not None:
        told |= {
            "explanation": question.explanation,
            "effect": question.effect,
            "changes": list(question.changes),
            "schema": question.schema,
        }
    if ruling is not None:
        told["ruling"] = {"approved": ruling.approved, "by": ruling.by, "reason": ruling.reason}
    return {**told, "detail": record.facts.detail}


def doubt_about(journal: Journal, record: CallRecord) -> str:
    """Return why the record of a waiting call cannot be decided on. Empty where it is complete."""
    check = getattr(journal, "check", None)
    if check is None or record.state is not State.AWAITING:
        return ""
    try:
        check(record.key)
    except ForgedRecordError as error:
        return str(error)
    return ""


def looking_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the journal option to a read-only command: it creates and changes nothing, not even a journal."""

    @wraps(command)
    def wrapped(*, journal: str | None, **options: Any) -> Any:
        from gramercy.journal.audit import open_kept
        from gramercy.journal.base import MEMORY
        from gramercy.journal.opening import default_place, open_journal

        place = journal_place(journal)
        if place is None and not default_place().exists():
            # Nothing was ever recorded here, so an empty journal is enough.
            opened = open_journal(MEMORY)
        else:
            opened = open_kept(place, is_look=True)
        with closing(opened):
            return command(journal=opened, **options)

    return place_of_journal_option(wrapped)


def journal_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that names the journal; the command gets it opened, as `journal`.

    These commands read the records of other processes. A mistyped path is an error, and creates no journal.
    """

    @wraps(command)
    def wrapped(*, journal: str | None, **options: Any) -> Any:
        from gramercy.journal.audit import open_kept
        from gramercy.journal.opening import open_journal

        given = click.get_current_context().get_parameter_source("journal")
        is_typed = given in {click.core.ParameterSource.COMMANDLINE, click.core.ParameterSource.ENVIRONMENT}
        opening = open_kept if is_typed else open_journal
        with closing(opening(journal_place(journal))) as opened:
            return command(journal=opened, **options)

    return place_of_journal_option(wrapped)
