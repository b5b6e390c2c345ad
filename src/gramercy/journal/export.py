"""A journal as lines of JSON that can be verified without a database.

The first line says what it is and names the heads of all chains; then comes one line for each event, with its
contents if they were requested; the last line says that nothing is missing after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import JournalError
from gramercy.journal.audit import event_rows, found_pruning
from gramercy.journal.chain import Head, KeySet
from gramercy.journal.verify import Flaw, Pruning, Report, Verifier

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gramercy.journal.sql import SqlJournal

FORMAT = "gramercy audit 1"


class Opening(msgspec.Struct, frozen=True):
    """The first line of an export; with `heads` alone it is an anchor."""

    format: str
    heads: list[Head]
    exported_at: float = 0.0
    with_contents: bool = False
    pruned_before: float = 0.0
    pruned: str = ""

    def pruning(self) -> Pruning:
        """Return what prunings have deleted."""
        try:
            return Pruning(self.pruned_before, KeySet(self.pruned))
        except ValueError:
            raise JournalError("the first line of the export names calls that cannot be read") from None


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event, its columns by name, and its contents."""

    chain: int
    number: int
    key: int
    step: int
    state: str
    at: float
    facts: str
    contents: str
    previous: str
    hash: str
    salt: str = ""
    text: str = ""


class Ending(msgspec.Struct, frozen=True):
    """The last line."""

    events: int


_encode = msgspec.json.Encoder().encode
_line = msgspec.json.Decoder(Line).decode


def export_lines(journal: SqlJournal, exported_at: float, *, with_contents: bool = False) -> Iterator[bytes]:
    """Return the lines of an export."""
    with journal.looking() as ask:
        heads = [Head(*row) for row in ask("SELECT chain, number, hash FROM chains ORDER BY chain", ())]
        before, keys = found_pruning(ask)
        yield _encode(Opening(FORMAT, heads, exported_at, with_contents, before, str(keys)))
        events = 0
        for row in event_rows(ask):
            yield _written(row if with_contents and row[10] is not None else row[:10])
            events += 1
        yield _encode(Ending(events))


def _written(row: Sequence[Any]) -> bytes:
    try:
        return _encode(Line(*row))
    except (TypeError, UnicodeError) as error:
        place = f"event {row[0]}.{row[1]}"
        raise JournalError(f"{place} cannot be exported, since it was changed: {error}") from None


def verify_lines(lines: Iterable[bytes], anchors: Iterable[Head] = ()) -> Report:
    """Check the lines of an export."""
    coming = iter(lines)
    opening = read_opening(next(coming, b""))
    verifier = Verifier(opening.pruning, anchors)
    seen, ended = 0, False
    for number, line in enumerate(coming, 2):
        if ended:
            verifier.flaw(Flaw(f"line {number} comes after the end"))
        elif b'"events":' in line[:10]:
            ended = True
            if _count(line) != seen:
                verifier.flaw(Flaw(f"line {number} speaks of {_count(line)} events, but there are {seen}"))
        else:
            seen += 1
            _look(verifier, line, number, with_contents=opening.with_contents)
    if not ended:
        verifier.flaw(Flaw("the file has no end: lines are missing"))
    return verifier.finish(opening.heads)


def _look(verifier: Verifier, line: bytes, number: int, *, with_contents: bool) -> None:
    try:
        found = _line(line)
    except (msgspec.MsgspecError, UnicodeError) as error:
        verifier.flaw(Flaw(f"line {number} is not an event: {error}"))
        return
    *row, salt, text = msgspec.structs.astuple(found)
    verifier.add((*row, salt or None, text), with_contents=with_contents)


def _count(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line, type=Ending).events
    except msgspec.MsgspecError:
        return "unknown"


def read_opening(line: bytes) -> Opening:
    """Parse the first line of an export, or an anchor; raise JournalError if it is neither."""
    try:
        opening = msgspec.json.decode(line, type=Opening)
    except (msgspec.MsgspecError, UnicodeError):
        opening = None
    if opening is None or opening.format != FORMAT:
        raise JournalError("this is neither an export of `gramercy audit export` nor an anchor") from None
    return opening


def anchor_text(report: Report) -> str:
    """Write the heads of all chains, to be kept in a place that the journal's writers cannot change."""
    return _encode(Opening(FORMAT, list(report.heads))).decode()
