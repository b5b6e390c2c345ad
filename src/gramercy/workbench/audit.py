"""The journal of a server as its callers may read it: the calls, their ends and the decisions.

The arguments of a call are shown to its own caller only, shortened and with secrets masked.
"""

from __future__ import annotations

from time import localtime, strftime
from typing import TYPE_CHECKING

from gramercy.journal.base import State
from gramercy.journal.memory import MemoryJournal
from gramercy.journal.texts import canonical_text, without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gramercy.journal.base import CallRecord, Entry, Journal

# What a model reads in one piece: about as many lines as fit, each cut to a line or two.
MOST_CALLS = 100
LONGEST_DETAIL = 200
WORDS = {"awaiting": "awaiting approval", "ready": "approved", "in_doubt": "in doubt"}


class Audit:
    """A journal as callers may read it: the calls of one serving process, and their sandbox."""

    def __init__(
        self, journal: Journal, session: str = "", *, sandbox: Callable[[], str] | None = None
    ) -> None:
        self._journal = journal
        self._session = session
        # Called when a client reads: detecting the sandbox takes longer than a server has for its start.
        self._sandbox = sandbox

    def text(self, principal: str) -> str:
        """Format the latest calls, oldest first, one per line, as this principal may see them."""
        records = self._journal.records(session=self._session, most=MOST_CALLS)
        moves = self._moves(records)
        latest = [record for record in records if record.key in moves][::-1]
        where = f"; {self._sandbox()}" if self._sandbox is not None and latest else ""
        lines = [
            _line(record, moves[record.key], where, is_own=record.call.principal == principal)
            for record in latest
        ]
        return "\n".join(lines) or "No tool has been called yet."

    def _moves(self, records: Iterable[CallRecord]) -> dict[int, list[Entry]]:
        found: dict[int, list[Entry]] = {}
        if isinstance(self._journal, MemoryJournal):  # without an index one query is cheaper
            for entry in self._journal.entries():
                found.setdefault(entry.key, []).append(entry)
            return found
        return {record.key: self._journal.entries(record.key) for record in records}


def _line(record: CallRecord, moves: list[Entry], where: str, *, is_own: bool) -> str:
    at = strftime("%Y-%m-%d %H:%M:%S", localtime(record.at))
    states = " → ".join(WORDS.get(move.state, move.state.value) for move in moves)
    parts = [f"{at} {record.call.tool}: {states}{where}"]
    if is_own:
        # The executed arguments are those approved last, which a person may have changed.
        given = record.facts.arguments or record.call.arguments
        ending = record.facts.detail if record.state in {State.DENIED, State.FAILED, State.IN_DOUBT} else ""
        rulings = [move.facts.ruling for move in moves if move.facts.ruling is not None]
        said = [ruling.reason for ruling in rulings if ruling.approved]
        parts += _shown(
            [canonical_text(given), *(f"approved with the words: {text}" for text in said if text), ending]
        )
    return "; ".join(parts)


def _shown(details: Iterable[str]) -> list[str]:
    return [without_secrets(text, LONGEST_DETAIL) for text in details if text.strip()]
