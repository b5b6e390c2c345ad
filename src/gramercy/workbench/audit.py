"""The journal of a server as its callers may read it: what was called, how it ended, what was decided.

What a call was about is shown to its own caller only, cut short and without what looks like a secret.
"""

from __future__ import annotations

from collections import OrderedDict
from time import localtime, strftime
from typing import TYPE_CHECKING

from gramercy.execution.journal import MemoryJournal, State, without_secrets
from gramercy.tools.context import current_call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gramercy.execution.journal import Entry

# What a model reads in one go: about as many lines as fit, each cut to a line or two.
MOST_CALLS = 100
LONGEST_DETAIL = 200
WORDS = {"awaiting": "awaiting approval", "ready": "approved", "in_doubt": "in doubt"}


class AuditJournal(MemoryJournal):
    """A journal in memory that also knows whose calls it holds, and in which sandbox their code ran."""

    def __init__(self, limit: int = 10_000, *, sandbox: Callable[[], str] | None = None) -> None:
        super().__init__(limit)
        self._limit = limit
        # Asked when somebody reads: to look for a sandbox takes longer than a server has for its start.
        self._sandbox = sandbox
        self._owners: OrderedDict[str, str] = OrderedDict()

    def move(self, key: int, state: State, *, call_id: str, tool: str, detail: str = "") -> None:
        """Record a move, and whose call it is."""
        if call_id not in self._owners:
            self._own(call_id)
        super().move(key, state, call_id=call_id, tool=tool, detail=detail)

    def note(self, state: State, call_id: str, tool: str, detail: str = "") -> None:
        """Record a whole call at once; whose it was matters only when there is more to say about it."""
        if detail and call_id not in self._owners:
            self._own(call_id)
        super().note(state, call_id, tool, detail)

    def _own(self, call_id: str) -> None:
        # Both are atomic, so this needs no lock.
        self._owners[call_id] = current_call().principal
        if len(self._owners) > self._limit:
            self._owners.popitem(last=False)

    def text(self, principal: str) -> str:
        """Write the latest calls, oldest first, one on a line, as this principal may see them."""
        calls: dict[int, list[Entry]] = {}
        for entry in self.entries():
            calls.setdefault(entry.key, []).append(entry)
        latest = list(calls.values())[-MOST_CALLS:]
        where = f"; {self._sandbox()}" if self._sandbox is not None and latest else ""
        lines = [_line(moves, where, is_own=self._is_own(moves, principal)) for moves in latest]
        return "\n".join(lines) or "No tool has been called yet."

    def _is_own(self, moves: list[Entry], principal: str) -> bool:
        return self._owners.get(moves[0].call_id) == principal


def _line(moves: list[Entry], where: str, *, is_own: bool) -> str:
    first, last = moves[0], moves[-1]
    at = strftime("%Y-%m-%d %H:%M:%S", localtime(first.at))
    states = " → ".join(WORDS.get(move.state, move.state.value) for move in moves)
    parts = [f"{at} {first.tool}: {states}{where}"]
    if is_own:
        given = [move.detail for move in moves if move.state in {State.REQUESTED, State.EXECUTING}]
        ending = last.detail if last.state in {State.DENIED, State.FAILED, State.IN_DOUBT} else ""
        # After the digest of the seal stands what the person said who approved.
        said = [move.detail.partition(" ")[2] for move in moves if move.state is State.READY]
        # What ran is what was approved last, which a person may have changed.
        parts += _shown([*given[-1:], *(f"approved with the words: {text}" for text in said if text), ending])
    return "; ".join(parts)


def _shown(details: Iterable[str]) -> list[str]:
    return [without_secrets(text, LONGEST_DETAIL) for text in details if text.strip()]
