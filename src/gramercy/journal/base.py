"""The journal as everybody sees it: the life of a call, what is told about each move, and the interface.

A call has one record, which says how it stands, and one entry for each of its moves, which are never changed.
A move is a compare-and-set: it names the states that it may come from, and either it and its entry are
recorded together, or MovedError tells who was first.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from gramercy.errors import MovedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from gramercy.journal.bells import Bell

# How a setting names a journal that is not a file: one in memory, which ends with its process, or a database.
MEMORY = "memory"
SERVERS = ("postgresql://", "postgres://")


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


# A call that needs no approval goes straight to executing. One that was interrupted while it ran is ready
# again only where its tool is idempotent; else it is in doubt until a person or the tool's probe resolves it.
MOVES: dict[State | None, frozenset[State]] = {
    None: frozenset({State.REQUESTED, State.EXECUTING}),
    State.REQUESTED: frozenset({State.AWAITING, State.READY, State.DENIED, State.EXECUTING, State.FAILED}),
    State.AWAITING: frozenset({State.AWAITING, State.READY, State.DENIED, State.FAILED}),
    State.READY: frozenset({State.EXECUTING, State.AWAITING, State.DENIED, State.FAILED}),
    State.EXECUTING: frozenset({State.DONE, State.FAILED, State.IN_DOUBT, State.READY}),
    State.IN_DOUBT: frozenset({State.DONE, State.FAILED}),
}
# Nothing more happens to these by itself.
FINAL = frozenset({State.DENIED, State.DONE, State.FAILED, State.IN_DOUBT})
# These wait for a person or for somebody to run them, and outlive the process that asked.
OPEN = frozenset({State.REQUESTED, State.AWAITING, State.READY})


class NewCall(msgspec.Struct, frozen=True, gc=False):
    """What is known of a call when it comes.

    `call_id` is the caller's and may repeat. `arguments` belong to the journal: nobody changes them.
    `session` names the conversation or the serving process that it came through, `identity` is by what a
    caller who comes back after a restart is given this call instead of a second one; empty for one who never
    does. One that `is_unique` is not begun where there is another of its identity: they are the same, and
    MovedError tells how it stands. That is not recorded.
    """

    call_id: str
    tool: str
    level: str
    arguments: Mapping[str, Any]
    principal: str = "local"
    client: str = ""
    session: str = ""
    project: str = ""
    identity: str = ""
    is_unique: bool = False


class Question(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person decides on, whole: it can be shown and answered in another process.

    `text` is all of it as a person reads it; `seal` is the digest that a decision must name, `parts` the
    digests it is made of, by which the caller who comes back can tell what has changed. `effect` is that of
    `tools.effects` as plain data, `schema` that of the arguments, for a person who edits them.
    """

    text: str
    seal: str
    parts: dict[str, str]
    explanation: str
    effect: dict[str, Any] = {}
    changes: tuple[str, ...] = ()
    schema: dict[str, Any] = {}


class Ruling(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was decided, by whom, in answer to which seal."""

    approved: bool
    by: str
    seal: str = ""
    reason: str = ""
    refuser: str = ""
    shown: str = ""
    note: str = ""
    arguments: dict[str, Any] | None = None


class Facts(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What is told about one move; what is empty is not known, or does not belong to the state.

    `detail` is in words, for people. For `awaiting`: question, asked_at, expires_at. For `ready` and
    `denied`: ruling. For `executing`: owner, fence, image, epoch, sandbox, before. For the ends: elapsed_ms,
    size, digest, content, failure, image, before, after, files.
    """

    detail: str = ""
    arguments: Mapping[str, Any] | None = None
    question: Question | None = None
    expires_at: float = 0.0
    ruling: Ruling | None = None
    owner: str = ""
    fence: int = 0
    image: str = ""
    epoch: str = ""
    sandbox: str = ""
    before: str = ""
    after: str = ""
    files: tuple[str, ...] = ()
    elapsed_ms: float = 0.0
    size: int = 0
    digest: str = ""
    content: str = ""
    failure: str = ""


NOTHING = Facts()


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One move of one call. `key` names the call within the journal, `step` counts its moves from 1."""

    key: int
    call_id: str
    tool: str
    state: State
    at: float
    detail: str = ""
    step: int = 0
    facts: Facts = NOTHING


class CallRecord(msgspec.Struct, frozen=True):
    """How a call stands: what it is, and what the latest moves have told about it."""

    key: int
    call: NewCall
    state: State
    step: int
    at: float
    changed_at: float
    facts: Facts = NOTHING
    asked_at: float = 0.0
    delivered: bool = False


class Journal(Protocol):
    """Who remembers calls. What cannot be recorded raises: then the call does not run.

    Every method may be called from any thread. `begin`, `move`, `claim` and `note` return after the record is
    as durable as its state needs: `awaiting`, `ready` and `executing` of a dangerous call outlive a power
    cut, the rest the death of the process.
    """

    def begin(self, call: NewCall, state: State = State.REQUESTED, facts: Facts = NOTHING) -> int:
        """Record a new call; return its key. To a state further on it goes through `requested`, in one go."""

    def move(self, key: int, state: State, facts: Facts = NOTHING, *, expected: Sequence[State] = ()) -> None:
        """Record that a call has come to a state; MovedError if it is not in one that leads there.

        With `expected`, only from those states. An end of a call that runs names the `fence` in its facts.
        A decision names the seal in its ruling, which must be that of the question that is open.
        """

    def claim(self, key: int, facts: Facts = NOTHING) -> int:
        """Take a call that is ready to run it: executing, owned by this process. Return the fence."""

    def note(self, call: NewCall, state: State, facts: Facts = NOTHING) -> None:
        """Record a whole call at once, after it is over; enough for safe ones, which may be repeated."""

    def deliver(self, key: int) -> None:
        """Record that the caller has got the answer, so that nobody who comes back is given it again."""

    def recover(self, is_idempotent: Callable[[str], bool]) -> list[CallRecord]:
        """Look after calls whose process is gone: in doubt, or ready again where the tool is idempotent.

        Those whose time to be decided is over are denied. Return the records that were moved.
        """

    def record(self, key: int) -> CallRecord | None:
        """Return how a call stands."""

    def find(self, identity: str, *, delivered: bool = False) -> CallRecord | None:
        """Return the latest call of this identity that is open, runs, is in doubt, or was not delivered.

        With `delivered`, the latest one at all.
        """

    def records(  # noqa: PLR0913 - each is a filter of its own
        self,
        states: Sequence[State] = (),
        *,
        tool: str = "",
        principal: str = "",
        session: str = "",
        project: str = "",
        since: float = 0.0,
        below: int = 0,
        most: int = 1_000,
    ) -> list[CallRecord]:
        """Return how calls stand, latest first; `below` is the key from which to go on."""

    def entries(self, key: int = 0, *, after: int = 0, most: int = 10_000) -> list[Entry]:
        """Return the moves of all calls or of one, oldest first."""

    def bell(self) -> Bell:
        """Return what rings after each move from now on, of any process; take it before you look."""

    @property
    def run_directory(self) -> Path | None:
        """Where processes that use this journal have their sockets; None where there is only one process."""

    def close(self) -> None:
        """Let go of what is held; calls that run are left to `recover`."""


def check_move(key: int, before: State | None, after: State, record: CallRecord | None = None) -> None:
    """Raise MovedError unless the life of a call has this move."""
    if before is not None and before not in MOVES:
        raise MovedError(f"call {key} is finished ({before.value}): it cannot be {after.value}", record)
    if after not in MOVES[before]:
        raise MovedError(
            f"call {key} cannot go from {before.value if before else 'nothing'} to {after.value}", record
        )
