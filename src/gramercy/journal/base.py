"""The interface of a journal: the states of a call, the facts of each move, and the methods.

A call has one record, which says how it stands, and one entry for each of its moves, which are never changed.
A move is a compare-and-set: it names the states that it may come from, and either the move and its entry are
recorded together, or MovedError names the move that came first.
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

# Settings name a journal that is not a file like this: in memory, which ends with its process, or a database.
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

    # Use the hash of the string, which is computed in C. An enum hashes its name in Python, and every move
    # looks up three states.
    __hash__ = str.__hash__


# A call that needs no approval goes straight to executing. A call that was interrupted while it ran is ready
# again only if its tool is idempotent; else it is in doubt until a person or the tool's probe resolves it.
MOVES: dict[State | None, frozenset[State]] = {
    None: frozenset({State.REQUESTED, State.EXECUTING}),
    State.REQUESTED: frozenset({State.AWAITING, State.READY, State.DENIED, State.EXECUTING, State.FAILED}),
    State.AWAITING: frozenset({State.AWAITING, State.READY, State.DENIED, State.FAILED}),
    State.READY: frozenset({State.EXECUTING, State.AWAITING, State.DENIED, State.FAILED}),
    State.EXECUTING: frozenset({State.DONE, State.FAILED, State.IN_DOUBT, State.READY}),
    State.IN_DOUBT: frozenset({State.DONE, State.FAILED}),
}
# These states do not change by themselves any more.
FINAL = frozenset({State.DENIED, State.DONE, State.FAILED, State.IN_DOUBT})
# These calls wait for a person's decision or for a process to run them, and outlive the process that asked.
OPEN = frozenset({State.REQUESTED, State.AWAITING, State.READY})


class NewCall(msgspec.Struct, frozen=True, gc=False):
    """The facts of a call that are known when it arrives.

    `call_id` is the caller's and may repeat. `arguments` belong to the journal: no code may change them.
    `session` names the conversation or the serving process that the call came through. `identity` lets a
    caller that returns after a restart find this call instead of making a second one; it is empty for a
    caller that never returns. A call that `is_unique` is not begun if the journal has another call of its
    identity: they count as the same call. MovedError then says how that call stands, and nothing is recorded.
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
    """The whole question that a person decides on, so that another process can show and answer it.

    `text` is the complete question as a person reads it. `seal` is the digest that a decision must name.
    `parts` are the digests that the seal is made of: a caller that returns can tell from them what has
    changed. `effect` is an effect of `tools.effects` as plain data. `schema` is the schema of the arguments,
    for a person who edits them.
    """

    text: str
    seal: str
    parts: dict[str, str]
    explanation: str
    effect: dict[str, Any] = {}
    changes: tuple[str, ...] = ()
    schema: dict[str, Any] = {}


class Ruling(msgspec.Struct, frozen=True, omit_defaults=True):
    """A decision: its outcome, who made it, and the seal of the question that it answers."""

    approved: bool
    by: str
    seal: str = ""
    reason: str = ""
    refuser: str = ""
    shown: str = ""
    note: str = ""
    arguments: dict[str, Any] | None = None


class Facts(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The facts of one move. An empty fact is unknown or does not belong to the state.

    `detail` is a text for people. For `awaiting`: question, asked_at, expires_at. For `ready` and `denied`:
    ruling. For `executing`: owner, fence, image, epoch, sandbox, before. For the ends: elapsed_ms, size,
    digest, content, failure, image, before, after, files.
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
    """How a call stands: the call, and the facts that its latest moves have told."""

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
    """A store that records calls. If a call cannot be recorded, the method raises and the call does not run.

    Every method may be called from any thread. `begin`, `move`, `claim` and `note` return after the record is
    as durable as its state needs: `awaiting`, `ready` and `executing` of a dangerous call outlive a power
    cut, the rest the death of the process.
    """

    def begin(self, call: NewCall, state: State = State.REQUESTED, facts: Facts = NOTHING) -> int:
        """Record a new call; return its key. A later state is reached through `requested` at once."""

    def move(self, key: int, state: State, facts: Facts = NOTHING, *, expected: Sequence[State] = ()) -> None:
        """Record that a call has reached a state; MovedError if its present state does not lead there.

        With `expected`, the move is made only from those states. The end of a running call names the `fence`
        in its facts. A decision names the seal in its ruling, which must be the seal of the open question.
        """

    def claim(self, key: int, facts: Facts = NOTHING) -> int:
        """Take a ready call in order to run it: it is executing, owned by this process. Return the fence."""

    def note(self, call: NewCall, state: State, facts: Facts = NOTHING) -> None:
        """Record a whole call at once after it is over. Enough for safe calls, which may be repeated."""

    def deliver(self, key: int) -> None:
        """Record that the caller has received the answer, so that it is not given out a second time."""

    def recover(self, is_idempotent: Callable[[str], bool]) -> list[CallRecord]:
        """Recover calls whose process has ended: to in doubt, or to ready again if the tool is idempotent.

        Deny calls whose time to be decided is over. Return the records that were moved.
        """

    def record(self, key: int) -> CallRecord | None:
        """Return how a call stands."""

    def find(self, identity: str, *, delivered: bool = False) -> CallRecord | None:
        """Return the latest call of this identity that is open, runs, is in doubt, or was not delivered.

        With `delivered`, return the latest call of the identity in any state.
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
        """Return how calls stand, latest first; with `below`, only calls with smaller keys."""

    def entries(self, key: int = 0, *, after: int = 0, most: int = 10_000) -> list[Entry]:
        """Return the moves of all calls or of one, oldest first."""

    def bell(self) -> Bell:
        """Return a bell that rings after each later move of any process; take it before you look."""

    @property
    def run_directory(self) -> Path | None:
        """The directory for the sockets of processes that use this journal; None if only one process can."""

    def close(self) -> None:
        """Release the resources. Calls that still run are left to `recover`."""


def check_move(key: int, before: State | None, after: State, record: CallRecord | None = None) -> None:
    """Raise MovedError unless a call may make this move."""
    if before is not None and before not in MOVES:
        raise MovedError(f"call {key} is finished ({before.value}): it cannot be {after.value}", record)
    if after not in MOVES[before]:
        raise MovedError(
            f"call {key} cannot go from {before.value if before else 'nothing'} to {after.value}", record
        )
