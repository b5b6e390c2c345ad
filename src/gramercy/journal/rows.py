"""How calls and events stand in the tables, and how records and entries are read from them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gramercy.journal.base import NOTHING, CallRecord, Entry, Facts, NewCall, State
from gramercy.journal.chain import read_facts, read_kept, read_told
from gramercy.journal.memory import joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_AWAITING, _EXECUTING = State.AWAITING, State.EXECUTING
_TEXTS = ("call_id", "tool", "level", "principal", "client", "session", "project", "identity")
# PostgreSQL takes no NUL in a text, UTF-8 no half of a surrogate pair.
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")


class CallRow(NamedTuple):
    """A row of the table `calls`, its columns in this order."""

    key: int
    call_id: str
    tool: str
    level: str
    principal: str
    client: str
    session: str
    project: str
    identity: str
    state: str
    step: int
    at: float
    changed_at: float
    asked_at: float
    expires_at: float
    seal: str
    owner: str
    fence: int
    delivered: int

    def moved(self, state: State, facts: Facts, now: float) -> CallRow:
        """Return the row after a move."""
        row = self._replace(state=state.value, step=self.step + 1, changed_at=now)
        if state is _AWAITING:
            seal = facts.question.seal if facts.question else ""
            return row._replace(asked_at=now, expires_at=facts.expires_at, seal=seal)
        if state is _EXECUTING:
            return row._replace(owner=facts.owner, fence=facts.fence)
        return row


COLUMNS = ", ".join(CallRow._fields)


def new_row(call: NewCall, owner: str, now: float) -> CallRow:
    """Return the row of a call before its first move."""
    texts = (getattr(call, name) for name in _TEXTS)
    return CallRow._make((0, *texts, "", 0, now, now, 0.0, 0.0, "", owner, 0, 0))


def writable(call: NewCall) -> NewCall:
    """Return a call whose names every database can write; a client may have sent anything."""
    joint = f"{call.call_id}{call.principal}{call.client}{call.session}{call.project}"
    if joint.isascii() and "\0" not in joint:
        return call
    texts = {name: _UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", getattr(call, name)) for name in _TEXTS}
    return msgspec.structs.replace(call, **texts)


def read_record(row: CallRow, moves: Iterable[Sequence[Any]]) -> CallRecord:
    """Return how a call stands, from its row and its (facts, contents) in the order of its steps."""
    facts, arguments = NOTHING, {}
    for number, (told, kept) in enumerate(moves):
        contents = read_kept(kept or "")
        if not number:
            arguments = contents.arguments or {}
        told_now = read_facts(read_told(told), contents)
        facts = joined(facts, told_now) if number else told_now
    call = NewCall(
        row.call_id,
        row.tool,
        row.level,
        arguments,
        row.principal,
        row.client,
        row.session,
        row.project,
        row.identity,
    )
    return CallRecord(
        row.key,
        call,
        State(row.state),
        row.step,
        row.at,
        row.changed_at,
        facts,
        row.asked_at,
        bool(row.delivered),
    )


def read_entry(row: Sequence[Any]) -> Entry:
    """Return a move, from key, call_id, tool, state, at, step, facts and contents."""
    key, call_id, tool, state, at, step, told, kept = row
    facts = read_facts(read_told(told), read_kept(kept or ""))
    return Entry(key, call_id, tool, State(state), at, facts.detail, step, facts)
