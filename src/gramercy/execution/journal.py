"""The journal of calls: an interface, and an implementation that lives as long as the process.

What is shown of a call outside of the journal goes through `without_secrets`.
"""

from __future__ import annotations

import json
import re
from collections import deque
from enum import StrEnum
from itertools import count
from threading import Lock
from time import time
from typing import Any, Protocol

import msgspec

from gramercy.errors import ExecutionError

# What is looked at of a text that is shown without its secrets, so that megabytes of code cost nothing.
LONGEST_SEARCHED = 4_000
_SECRET = r"(?:passw|passphrase|secret|token|credential|(?:api|private)[-_ ]?key|authori[sz]ation)"  # noqa: S105 - words
# Compiled when first used. The value of a JSON member, or of an assignment in code, whose name sounds like a
# secret; tokens that are known by their form; what follows Bearer; the password in an address.
_SECRETS = (
    rf'("[^"]{{0,60}}{_SECRET}[^"]{{0,60}}"\s*:\s*)("(?:[^"\\]|\\.)*"?|[^\s",{{}}\[\]]+)',
    rf"({_SECRET}[\w-]{{0,40}}\W{{0,2}}\s*(?:[:=]{{1,2}}\s*|\s)\\?[\"'])([^\"'\\]+)",
    r"()(\b(?:sk-[\w-]{16,}|gh[a-z]_\w{20,}|AKIA[0-9A-Z]{16}|xox[a-z]-[\w-]{10,}|eyJ[\w-]{8,}\.[\w.-]{8,}))",
    r"(bearer\s+)([\w.~+/-]{8,}=*)",
    r"(://[^/\s:@\"']{0,80}:)([^/\s@\"']{1,200}(?=@))",
)


def without_secrets(text: str, longest: int) -> str:
    """Return the beginning of a text, with dots for what looks like a secret, on one line."""
    shown = text[:LONGEST_SEARCHED]
    for pattern in _SECRETS:
        shown = re.sub(pattern, _dotted, shown, flags=re.IGNORECASE)
    shown = " ".join(shown.split())
    return shown if len(shown) <= longest and len(text) <= LONGEST_SEARCHED else f"{shown[:longest]}…"


def _dotted(found: re.Match[str]) -> str:
    return f'{found[1]}"…"' if found[2].startswith('"') else f"{found[1]}…"


class State(StrEnum):
    """Where a call is in its life."""

    REQUESTED = "requested"
    AWAITING = "awaiting"
    READY = "ready"
    DENIED = "denied"
    EXECUTING = "executing"
    DONE = "done"
    FAILED = "failed"
    IN_DOUBT = "in_doubt"

    # That of the word, in C; an enum hashes its name in Python, and every move looks up three.
    __hash__ = str.__hash__


# A call that needs no approval goes straight to executing.
MOVES: dict[State | None, frozenset[State]] = {
    None: frozenset({State.REQUESTED, State.EXECUTING}),
    State.REQUESTED: frozenset({State.AWAITING, State.READY, State.DENIED, State.EXECUTING, State.FAILED}),
    State.AWAITING: frozenset({State.AWAITING, State.READY, State.DENIED, State.FAILED}),
    State.READY: frozenset({State.EXECUTING, State.AWAITING, State.DENIED}),
    State.EXECUTING: frozenset({State.DONE, State.FAILED, State.IN_DOUBT}),
}
# Ten thousand details of ten megabytes would fill any machine; a durable journal keeps them whole.
LONGEST_DETAIL = 2_000
FINAL = frozenset({State.DENIED, State.DONE, State.FAILED, State.IN_DOUBT})


class Entry(msgspec.Struct, frozen=True):
    """One move of one call. `key` is unique within the journal; `call_id` is the caller's and may repeat."""

    key: int
    call_id: str
    tool: str
    state: State
    at: float
    detail: str = ""


class Journal(Protocol):
    """Who remembers calls. A move that cannot be recorded must raise: then the call does not run."""

    def open(self) -> int:
        """Return a key for a new call."""

    def move(self, key: int, state: State, *, call_id: str, tool: str, detail: str = "") -> None:
        """Record that a call has come to a state."""

    def note(self, state: State, call_id: str, tool: str, detail: str = "") -> None:
        """Record a whole call at once, after it is over; enough for safe ones, which may be repeated."""

    def entries(self) -> list[Entry]:
        """Return what is remembered, oldest first."""


_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def canonical_text(value: Any) -> str:
    """Write JSON values so that equal values have equal texts."""
    try:
        return _encode_sorted(value).decode()
    except (OverflowError, UnicodeError):
        # It cannot write an integer of more than 64 bits, nor half of a surrogate pair.
        return json.dumps(value, sort_keys=True, separators=(",", ":"))


class MemoryJournal:
    """A bounded journal in memory; the oldest entries are forgotten first, long details are cut."""

    def __init__(self, limit: int = 10_000) -> None:
        self._lock = Lock()
        # Entries as plain tuples: most are never looked at, and every call makes one.
        self._rows: deque[tuple[int, str, str, State, float, str]] = deque(maxlen=limit)
        self._open: dict[int, State | None] = {}
        self._keys = count(1)

    def open(self) -> int:
        """Return a key for a new call."""
        key = next(self._keys)
        self._open[key] = None
        return key

    def move(self, key: int, state: State, *, call_id: str, tool: str, detail: str = "") -> None:
        """Record a move; one that the life of a call does not have is refused."""
        with self._lock:
            if key not in self._open:
                raise ExecutionError(
                    f"call {key} is finished or was never opened: it cannot be {state.value}"
                )
            before = self._open[key]
            if state not in MOVES[before]:
                raise ExecutionError(f"call {key} cannot go from {before or 'nothing'} to {state.value}")
            if state in FINAL:
                del self._open[key]
            else:
                self._open[key] = state
            self._rows.append((key, call_id, tool, state, time(), detail[:LONGEST_DETAIL]))

    def note(self, state: State, call_id: str, tool: str, detail: str = "") -> None:
        """Record a whole call at once."""
        # Appending to a deque is atomic, so this needs no lock.
        self._rows.append(
            (next(self._keys), call_id, tool, state, time(), detail and detail[:LONGEST_DETAIL])
        )

    def entries(self) -> list[Entry]:
        """Return what is remembered, oldest first."""
        return [Entry(*row) for row in self._rows.copy()]
