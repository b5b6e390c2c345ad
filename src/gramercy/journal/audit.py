"""Verify, redact and prune a journal that is kept in a database.

Reads pages of rows from one state of the database, so that a million events need little memory and no writer
has to wait.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import JournalError
from gramercy.journal.base import MEMORY, OPEN, SERVERS, State
from gramercy.journal.chain import (
    OPENED,
    PRUNED,
    REDACTED,
    CallFacts,
    Event,
    Kept,
    KeySet,
    Told,
    content_digest,
    read_kept,
    read_told,
    salted,
)
from gramercy.journal.opening import default_place, open_journal
from gramercy.journal.sql import SqlJournal
from gramercy.journal.tables import COLUMNS, MOST_PARAMETERS, CallRow, marks
from gramercy.journal.verify import Flaw, Pruning, Report, Verifier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gramercy.journal.chain import Head

    Ask = Callable[[str, Sequence[Any]], list[Sequence[Any]]]

# A page of this many rows is one or two megabytes.
PAGE = 2_000
_EVENTS = (
    "SELECT e.chain, e.number, e.key, e.step, e.state, e.at, e.facts, e.contents, e.previous, e.hash, "
    "c.salt, c.text FROM events e LEFT JOIN contents c ON e.key > 0 AND c.key = e.key AND c.step = e.step "
    "WHERE (e.chain, e.number) >= (?, ?) ORDER BY e.chain, e.number LIMIT ?"
)
_STRAY = (
    "SELECT c.key, c.step FROM contents c LEFT JOIN events e ON e.key = c.key AND e.step = c.step "
    "AND e.contents <> '' WHERE e.key IS NULL ORDER BY c.key LIMIT 1"
)
# The index covers the keys above 0, so the statement must say `key > 0` for it to be used. That bound comes
# last, since SQLite starts at the first bound that it reads.
_MOVES = (
    "SELECT key, step, state, at, facts, chain FROM events "
    "WHERE key > ? AND key <= ? AND key > 0 ORDER BY key, step"
)
_CALLS = f"SELECT {COLUMNS} FROM calls WHERE key > ? ORDER BY key LIMIT ?"  # noqa: S608 - our own columns
_LAST_KEY = 1 << 62
_OWNER = CallRow._fields.index("owner")
_AWAITING, _EXECUTING = State.AWAITING.value, State.EXECUTING.value
# No caller waits for these calls any more. They need neither be run nor resolved.
_CLOSED = frozenset({State.DONE.value, State.FAILED.value, State.DENIED.value})
_PRUNABLE = (
    "SELECT DISTINCT c.key FROM contents c JOIN calls k ON k.key = c.key WHERE c.key > ? "
    "AND k.changed_at < ? AND k.state IN ('done', 'failed', 'denied') ORDER BY c.key LIMIT ?"
)


class _Recorded(msgspec.Struct, frozen=True, gc=False):
    """The facts of an event that are also in the record of its call. Decoding all would double the time."""

    call: CallFacts | None = None
    seal: str = ""
    expires_at: float | None = None
    owner: str = ""
    fence: int = 0


_decode_recorded = msgspec.json.Decoder(_Recorded).decode
_NO_CALL = CallFacts("", "", "")
_KEY = itemgetter(0)


def open_kept(where: str | Path | None = None, *, is_look: bool = False) -> SqlJournal:
    """Open a journal that exists already. A damaged journal is refused and left as it is.

    With `is_look`, nothing is created or changed, neither in the file nor beside it.
    """
    if where == MEMORY:
        raise JournalError("a journal in memory ends with its process: there is nothing to look at")
    if str(where or "").startswith(SERVERS):
        opened = open_journal(where)
        assert isinstance(opened, SqlJournal)  # noqa: S101 - a server has tables; this tells mypy
        return opened
    path = default_place() if where is None else Path(where).expanduser().absolute()
    if "://" in str(where or ""):
        open_journal(where)
    if not path.exists():
        raise JournalError(f"there is no journal {where or path} yet: no call was recorded there")
    if is_look:
        from gramercy.journal.looking import SqliteLook

        return SqliteLook(path)
    from gramercy.journal.sqlite import SqliteJournal

    return SqliteJournal(path, sets_aside=False)


def verify_journal(journal: SqlJournal, anchors: Iterable[Head] = ()) -> Report:
    """Check all tables of a journal against each other; `anchors` are heads that were noted earlier."""
    with journal.looking() as ask:
        try:
            strangers = [
                f"there is a {each}, which gramercy does not make" for each in journal.strangers(ask)
            ]
            return _verify(ask, anchors, strangers)
        except JournalError as error:
            raise JournalError(f"{error}; so the journal cannot be verified") from error


def _verify(ask: Ask, anchors: Iterable[Head], strangers: Iterable[str]) -> Report:
    verifier = Verifier(partial(found_pruning, ask), anchors)
    owners: dict[int, str] = {}
    contents = 0
    for row in event_rows(ask):
        if row[4] == OPENED:
            with suppress(msgspec.MsgspecError, UnicodeError, TypeError):
                owners[row[0]] = read_told(row[6]).owner
        # Only contents that are still there (they have a salt) and that the event refers to.
        if row[10] is not None and row[7]:
            contents += 1
        verifier.add(row)
    if ask("SELECT COUNT(*) FROM contents", ())[0][0] != contents:
        for key, step in ask(_STRAY, ()):
            verifier.flaw(Flaw(f"there are contents of step {step}, of which no event knows", key=key))
    heads = ask("SELECT chain, number, hash FROM chains ORDER BY chain", ())
    for stranger in strangers:
        verifier.flaw(Flaw(stranger))
    for flaw in _record_flaws(ask, owners):
        verifier.flaw(flaw)
    return verifier.finish(heads)


def event_rows(ask: Ask) -> Iterator[Sequence[Any]]:
    """Return all events by chain and number, with salt and text of their contents (None if deleted)."""
    rows = ask(_EVENTS, (0, 0, PAGE))
    while rows:
        yield from rows
        last = rows[-1]
        # Read the last row again, so that no second row with the same number can hide behind it.
        rows = ask(_EVENTS, (last[0], last[1], PAGE))
        rows = rows[1:] if rows and rows[0] == last else rows


def found_pruning(ask: Ask) -> Pruning:
    """Return what the pruning events say that they have deleted."""
    found: list[Told] = []
    for (facts,) in ask("SELECT facts FROM events WHERE state = ? AND key = 0", (PRUNED,)):
        with suppress(msgspec.MsgspecError, TypeError, ValueError):
            told = read_told(facts)
            # A pruning event that cannot be decoded is left out here: the check of the chains reports it.
            KeySet(told.pruned)
            found.append(told)
    return Pruning.read(found)


def _record_flaws(ask: Ask, owners: Mapping[int, str]) -> Iterator[Flaw]:
    """Compare the record of each call with its events."""
    last = 0
    while True:
        rows = ask(_CALLS, (last, PAGE))
        upto = rows[-1][0] if len(rows) == PAGE else _LAST_KEY
        # Both results are ordered by key.
        stories = {key: list(story) for key, story in groupby(ask(_MOVES, (last, upto)), _KEY)}
        for row in rows:
            story = stories.pop(row[0], None)
            if story is None:
                yield Flaw("there is a record of it, but no event", key=row[0])
            elif wrong := _wrong_columns(row, story, owners):
                yield Flaw(f"its record was changed: {', '.join(wrong)}", key=row[0])
        for key in stories:
            yield Flaw("there are events of it, but no record", key=key)
        if len(rows) < PAGE:
            return
        last = upto


def _wrong_columns(row: Sequence[Any], story: list[Sequence[Any]], owners: Mapping[int, str]) -> list[str]:
    """Return the columns of a record that its events contradict. No event tells `delivered`."""
    try:
        said = _said(row, story, owners)
        if said == row:
            return []
    except (msgspec.MsgspecError, UnicodeError, TypeError):
        # The check of the chains reports an event that cannot be decoded.
        return []
    return [name for name, is_, should in zip(CallRow._fields, row, said, strict=True) if is_ != should]


def _said(row: Sequence[Any], story: list[Sequence[Any]], owners: Mapping[int, str]) -> tuple[Any, ...]:
    """Return the record as the events of a call tell it. It runs for every call, so it is kept simple."""
    began, facts, chain = story[0][3:]
    first = told = _decode_recorded(facts)
    call = first.call or _NO_CALL
    owner = owners.get(chain) or row[_OWNER]
    asked, expires, seal, fence = 0.0, 0.0, "", 0
    for _, step, state, at, facts, _ in story:
        if step > 1:
            told = _decode_recorded(facts)
        if state == _AWAITING:
            asked, expires, seal = at, told.expires_at or 0.0, told.seal
        elif state == _EXECUTING:
            owner = told.owner
        fence = told.fence or fence
    return (
        *(row[0], call.call_id, call.tool, call.level, call.principal),
        *(call.client, call.session, call.project, call.identity),
        *(state, step, began, at, asked, expires, seal, owner, fence, row[-1]),
    )


def redact_calls(journal: SqlJournal, keys: Sequence[int], by: str, reason: str = "") -> int:
    """Delete all contents of calls that are over; return how many. The chains say that it was done."""
    _refuse_open(journal, keys)
    with journal.looking() as ask:
        places = [
            (key, step) for key in keys for (step,) in ask("SELECT step FROM contents WHERE key = ?", (key,))
        ]
    return rewrite(journal, dict.fromkeys(places), by, reason)


def _refuse_open(journal: SqlJournal, keys: Sequence[int]) -> None:
    for key in keys:
        record = journal.record(key)
        if record is None:
            raise JournalError(f"there is no call {key} in {journal.where}")
        if record.state in OPEN or record.state in {State.EXECUTING, State.IN_DOUBT}:
            raise JournalError(
                f"call {key} is {record.state.value}: its contents are needed until it is over; "
                "decide on it or resolve it first"
            )


def redact_matches(
    journal: SqlJournal, changed: Callable[[str], str], by: str, reason: str = ""
) -> tuple[int, list[int]]:
    """Rewrite contents of finished calls; return the count, and the calls that are still needed unmasked."""
    changes: dict[tuple[int, int], str | None] = {}
    needed: set[int] = set()
    statement = (
        "SELECT c.key, c.step, c.text, k.state FROM contents c JOIN calls k ON k.key = c.key "
        "WHERE (c.key, c.step) > (?, ?) ORDER BY c.key, c.step LIMIT ?"
    )
    last: tuple[Any, Any] = (0, 0)
    with journal.looking() as ask:
        while rows := ask(statement, (*last, PAGE)):
            for key, step, text, state in rows:
                after = changed(text)
                if after != text and state in _CLOSED:
                    changes[key, step] = after
                elif after != text:
                    needed.add(key)
            last = rows[-1][0], rows[-1][1]
    return rewrite(journal, changes, by, reason), sorted(needed)


def rewrite(
    journal: SqlJournal, changes: Mapping[tuple[int, int], str | None], by: str, reason: str = ""
) -> int:
    """Replace contents by other texts, or delete them if the text is None; record events that say so."""
    places = list(changes)
    for first in range(0, len(places), PAGE):
        part = {place: changes[place] for place in places[first : first + PAGE]}
        journal.amend(REDACTED, partial(_rewritten, part=part, by=by, reason=reason))
    return len(changes)


def _rewritten(
    change: Callable[..., int], *, part: Mapping[tuple[int, int], str | None], by: str, reason: str
) -> Told:
    masked = {}
    for key in {key for key, _ in part}:
        change("DELETE FROM answers WHERE key = ?", (key,))
    for (key, step), text in part.items():
        if text is None:
            change("DELETE FROM contents WHERE key = ? AND step = ?", (key, step))
            masked[f"{key}.{step}"] = ""
        else:
            content = salted(text)
            statement = "UPDATE contents SET salt = ?, text = ? WHERE key = ? AND step = ?"
            change(statement, (*content, key, step))
            masked[f"{key}.{step}"] = content.digest
    return Told(masked=masked, by=by, reason=reason)


def prune(journal: SqlJournal, before: float, by: str) -> int:
    """Delete the contents of calls that were over before a time; return how many. Events stay.

    It works page by page, so that no writer waits for long. Each page is recorded with an event that names
    its calls.
    """
    last, deleted = 0, 0
    while True:
        with journal.looking() as ask:
            keys = [key for (key,) in ask(_PRUNABLE, (last, before, MOST_PARAMETERS))]
        if not keys:
            return deleted
        counted: list[int] = []
        told = Told(before_at=before, by=by, pruned=str(KeySet.of(keys)))
        journal.amend(PRUNED, partial(_pruned, keys=keys, told=told, counted=counted))
        deleted += counted[-1]
        last = keys[-1]


def _pruned(change: Callable[..., int], *, keys: Sequence[int], told: Told, counted: list[int]) -> Told:
    change(f"DELETE FROM answers WHERE key IN ({marks(keys)})", keys)  # noqa: S608 - values are parameters
    counted.append(change(f"DELETE FROM contents WHERE key IN ({marks(keys)})", keys))  # noqa: S608 - as above
    return told


class Step(msgspec.Struct, frozen=True):
    """One move of a call with all that is kept of it.

    `fate` is the state of its contents: whole, masked, deleted, or empty if there were none.
    """

    event: Event
    told: Told
    kept: Kept
    fate: str
    size: int


_STEPS = (
    "SELECT e.chain, e.number, e.key, e.step, e.state, e.at, e.facts, e.contents, e.previous, e.hash, "
    "c.salt, c.text FROM events e LEFT JOIN contents c ON c.key = e.key AND c.step = e.step "
    "WHERE e.key = ? AND e.key > 0 ORDER BY e.step"
)


def story(journal: SqlJournal, key: int) -> list[Step]:
    """Return all moves of a call, oldest first."""
    with journal.looking() as ask:
        rows = ask(_STEPS, (key,))
    if not rows:
        raise JournalError(f"there is no call {key} in {journal.where}")
    return [_step(Event._make(row[:10]), *row[10:]) for row in rows]


_OWN = (
    "SELECT chain, number, key, step, state, at, facts, contents, previous, hash FROM events "
    "WHERE key = 0 AND state <> ? ORDER BY at, chain, number"
)


def own_events(journal: SqlJournal) -> list[tuple[Event, Told]]:
    """Return what was done to the journal itself: redactions, prunings, ends that came too late."""
    with journal.looking() as ask:
        rows = ask(_OWN, (OPENED,))
    return [(event, read_told(event.facts)) for event in map(Event._make, rows)]


def _step(event: Event, salt: str | None, text: str | None) -> Step:
    if not event.contents or text is None or salt is None:
        fate = "deleted" if event.contents else ""
        return Step(event, read_told(event.facts), read_kept(""), fate, 0)
    fate = "whole" if content_digest(salt, text) == event.contents else "masked"
    return Step(event, read_told(event.facts), read_kept(text), fate, len(text))
