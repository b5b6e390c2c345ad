"""Check that a journal is as it was written: every event, chain, call and deletion of contents.

Takes rows from any source (a database, an exported file) and reports what is wrong, in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gramercy.journal.base import FINAL, MOVES, State
from gramercy.journal.chain import (
    LATE,
    OPENED,
    PRUNED,
    REDACTED,
    Head,
    KeySet,
    content_digest,
    digest_of_heads,
    event_hash,
    read_told,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gramercy.journal.chain import Told

# One change can break many events; a person reads the first flaw and a few more.
MOST_FLAWS = 20
# No call moves more often. A forged number must not make the record of its moves gigabytes long.
MOST_STEPS = 1_000
_OWN = frozenset({OPENED, REDACTED, PRUNED, LATE})
_TYPES = (int, int, int, int, str, float, str, str, str, str)
_COLUMNS = len(_TYPES)
# Four bits hold the state of a call; 0 means no state.
_BITS = 4
_CODES = {state.value: number for number, state in enumerate(State, 1)}
_STATES = {number: State(word) for word, number in _CODES.items()}
# Half of a hash, 128 bits: no other event with the same half can be found.
_HALF = 32
_ASKING = frozenset({State.AWAITING.value, State.READY.value, State.DENIED.value})
# A call that is recorded at once after it is over begins with its end.
_FIRST = MOVES[None] | FINAL


class Flaw(NamedTuple):
    """One thing that is wrong, and where: an event, a call, or neither."""

    what: str
    chain: int = 0
    number: int = 0
    key: int = 0

    def __str__(self) -> str:
        if not self.number:
            return f"call {self.key}: {self.what}" if self.key else self.what
        about = f" (call {self.key})" if self.key else ""
        return f"event {self.chain}.{self.number}{about}: {self.what}"


class Report(msgspec.Struct, frozen=True):
    """What a verification found. `digest` stands for the ends of all chains, which are `heads`.

    `unproven` contents are gone; an old pruning, which did not record the calls that it deleted, may have
    deleted them. `remarks` are notes of processes about the state in which they found the journal.
    """

    events: int
    calls: int
    heads: tuple[Head, ...]
    digest: str
    flaws: tuple[Flaw, ...]
    replaced: int
    deleted: int
    unproven: int = 0
    remarks: tuple[str, ...] = ()

    @property
    def is_intact(self) -> bool:
        """Whether nothing is wrong."""
        return not self.flaws


class Pruning(NamedTuple):
    """What prunings have deleted: contents of the calls that they name; old prunings name only a time."""

    before: float = 0.0
    keys: KeySet = KeySet()

    @classmethod
    def read(cls, found: Iterable[Told]) -> Pruning:
        """Return what these events say together."""
        told = list(found)
        old = [each.before_at or 0.0 for each in told if not each.pruned]
        return cls(max(old, default=0.0), KeySet(",".join(each.pruned for each in told if each.pruned)))


class Verifier:
    """Takes the events of all chains, by chain and number, and reports at the end what is wrong.

    `pruning` returns what prunings have deleted, before their events are read; an event must confirm it.
    `anchors` are events that were noted elsewhere and must not have changed.
    """

    def __init__(self, pruning: Callable[[], Pruning] = Pruning, anchors: Iterable[Head] = ()) -> None:
        self._flaws: list[Flaw] = []
        self._elsewhere: list[Flaw] = []
        self._heads: list[Head] = []
        self._events = 0
        self._chain, self._number, self._hash, self._first_hash = 0, 0, "", ""
        # The states of each call, by step: for most calls one small number.
        self._moves: dict[int, int] = {}
        self._questions: dict[tuple[int, int], str] = {}
        self._rulings: dict[tuple[int, int], Told] = {}
        self._find_pruning = pruning
        self._prunings_seen: list[Told] = []
        self._pruning: Pruning | None = None
        # Contents that do not match their events, by "key.step": the digest that was found, and where.
        self._unlike: dict[str, tuple[str, Flaw]] = {}
        self._masked: set[tuple[str, str]] = set()
        self._deleted = self._unproven = 0
        self._remarks: list[str] = []
        self._anchors = {(head.chain, head.number): head.hash for head in anchors}
        # Half of the hash of every event, by chain, since openings name events of earlier chains.
        self._hashes: dict[int, bytearray] = {}
        self._halves = bytearray()
        # The ends of other chains that openings name: "chain.number" and hash, and the first such opening.
        self._vouched: dict[tuple[str, str], str] = {}

    def add(self, row: Sequence[Any], *, with_contents: bool = True) -> None:  # noqa: C901 - see below
        """Check the next event; after its columns come salt and text of its contents, None if deleted.

        It runs for a million events, so the common case is written out and calls only the hash functions.
        """
        chain, number, key, step, state, at, facts, contents, previous, made, salt, text = row
        if tuple(map(type, row))[:_COLUMNS] != _TYPES:
            self._flaw("a column holds what gramercy never writes", chain, number, key)
            return
        if chain != self._chain or number != self._number + 1 or previous != self._hash:
            self._look_at_place(chain, number, key, state, previous)
        if made != event_hash(chain, number, key, step, state, at, facts, contents, previous):
            self._flaw("it was changed: its hash is not that of what it says", chain, number, key)
        if self._anchors and self._anchors.pop((chain, number), made) != made:
            self._flaw("it is not the event that the anchor knows", chain, number, key)
        if number == 1:
            self._first_hash = made
        self._number, self._hash = number, made
        self._halves += made[:_HALF].encode("ascii", "replace")
        self._events += 1
        code = _CODES.get(state, 0) if key and 0 < step <= MOST_STEPS else 0
        if not code:
            self._look_at_state(chain, number, key, step, state)
        else:
            known = self._moves.get(key, 0)
            if known and known >> (_BITS * step) & 0xF:
                self._flaw(f"step {step} of the call is there twice", chain, number, key)
            self._moves[key] = known | code << (_BITS * step)
        if not key or (code and (state in _ASKING or '"masked":' in facts)):
            self._read_told(chain, number, key, step, facts)
        if contents and with_contents:
            # A row that was edited may hold values of any type.
            found = "" if salt is None else content_digest(str(salt), str(text))
            if found != contents:
                self._note_contents(chain, number, key, step, at, found)

    def _look_at_place(self, chain: int, number: int, key: int, state: str, previous: str) -> None:
        """Check an event that is not the next one of its chain."""
        if chain != self._chain:
            self._begin(chain, number, state, previous)
        elif number != self._number + 1:
            self._misplaced(chain, number)
        else:
            self._flaw("it does not follow from the event before it", chain, number, key)

    def _begin(self, chain: int, number: int, state: str, previous: str) -> None:
        """Begin a chain: it must be the next one, and name the first event of the one before it."""
        self._end()
        if chain <= self._chain:
            self._flaw(f"chain {chain} stands after chain {self._chain}")
        elif chain > self._chain + 1:
            self._flaw(_missing("chain", self._chain + 1, chain - 1))
        elif number == 1 and previous != self._first_hash:
            self._flaw("it does not name the first event of the chain before it", chain, number)
        self._chain, self._number = chain, 0
        self._halves = self._hashes[chain] = bytearray()
        if number != 1:
            self._misplaced(chain, number)
        elif state != OPENED:
            self._flaw("it is the first of its chain, but not its opening", chain, number)
        self._first_hash = ""

    def _misplaced(self, chain: int, number: int) -> None:
        if number > self._number + 1:
            self._flaw(_missing("event", self._number + 1, number - 1, f"{chain}."), chain, number)
        else:
            self._flaw(f"it stands after event {chain}.{self._number}", chain, number)

    def _end(self) -> None:
        if self._chain:
            self._heads.append(Head(self._chain, self._number, self._hash))

    def _flaw(self, what: str, chain: Any = 0, number: Any = 0, key: Any = 0) -> None:
        if len(self._flaws) < MOST_FLAWS:
            numbers = (part if isinstance(part, int) else 0 for part in (chain, number, key))
            self._flaws.append(Flaw(what, *numbers))

    def flaw(self, flaw: Flaw) -> None:
        """Add a flaw that was found elsewhere; it is reported after those of the chains."""
        if len(self._elsewhere) < MOST_FLAWS:
            self._elsewhere.append(flaw)

    def _look_at_state(self, chain: int, number: int, key: int, step: int, state: str) -> None:
        """Check an event that is not a step of a call: the journal writes some of its own."""
        if key:
            self._flaw(f"there is no step {step!r} to {state!r}", chain, number, key)
        elif state not in _OWN:
            self._flaw(f"no call has the state {state!r}", chain, number)

    def _read_told(self, chain: int, number: int, key: int, step: int, facts: str) -> None:
        try:
            told = read_told(facts)
        except (msgspec.MsgspecError, UnicodeError):
            self._flaw("what it says cannot be read", chain, number, key)
            return
        if told.seal:
            self._questions[key, step] = told.seal
        elif key:
            self._rulings[key, step] = told
        elif told.before_at is not None or told.pruned:
            self._prunings_seen.append(told)
        elif told.heads or told.reason:
            self._remark(chain, number, told)
        if told.masked:
            self._masked.update(told.masked.items())
        for end in told.heads.items():
            self._vouched.setdefault(end, f"{chain}.{number}")

    def _remark(self, chain: int, number: int, told: Told) -> None:
        if number == 1 and told.reason and len(self._remarks) < MOST_FLAWS:
            self._remarks.append(f"event {chain}.{number}: {told.reason}")

    def _note_contents(  # noqa: PLR0913, PLR0917 - columns of an event
        self, chain: int, number: int, key: int, step: int, at: float, found: str
    ) -> None:
        """Note contents that do not match their event; `found` is their digest, empty if they are gone."""
        if not found and self._was_pruned(key, at):
            return
        what = "its contents were changed" if found else "its contents are gone, and no event says so"
        self._unlike[f"{key}.{step}"] = found, Flaw(what, chain, number, key)

    def _was_pruned(self, key: int, at: float) -> bool:
        """Tell whether a pruning may have deleted contents; `pruning` is called at the first question."""
        if self._pruning is None:
            self._pruning = self._find_pruning()
        if key in self._pruning.keys:
            self._deleted += 1
        elif at < self._pruning.before:
            self._unproven += 1
        else:
            return False
        return True

    def finish(self, heads: Iterable[Sequence[Any]] | None = None) -> Report:
        """Return the report after the last event; `heads` are the stored ends of the chains."""
        self._end()
        if heads is not None:
            self._compare_heads([Head(*head) for head in heads])
        for (chain, number), _ in sorted(self._anchors.items()):
            self._flaw(f"event {chain}.{number}, which the anchor knows, is missing")
        if self._pruning is not None:
            self._check_pruning(self._pruning)
        self._check_ends()
        self._explain_contents()
        self._check_calls()
        return Report(
            self._events,
            len(self._moves),
            tuple(self._heads),
            digest_of_heads(self._heads),
            (*self._flaws, *self._elsewhere)[:MOST_FLAWS],
            sum(bool(digest) for _, digest in self._masked),
            self._deleted,
            self._unproven,
            tuple(self._remarks),
        )

    def _check_pruning(self, told: Pruning) -> None:
        """Compare what was said about prunings beforehand with what their events say."""
        try:
            seen = Pruning.read(self._prunings_seen)
        except ValueError:
            self._flaw("what a pruning says cannot be read")
            return
        if seen.before < told.before or str(seen.keys) != str(told.keys):
            self._flaw("contents are gone by a pruning that no event tells of")

    def _compare_heads(self, kept: list[Head]) -> None:
        found = {head.chain: head for head in self._heads}
        for head in kept:
            end = found.pop(head.chain, Head(head.chain, 0, ""))
            if end == head:
                continue
            if type(head.number) is int and end.number < head.number:
                self._flaw(_missing("event", end.number + 1, head.number, f"{head.chain}."))
            elif type(head.number) is int and end.number > head.number:
                beyond = head.number + 1
                self._flaw("it comes after the end of its chain, as that was kept", head.chain, beyond)
            else:
                self._flaw(f"chain {head.chain!r} ends otherwise than was kept beside it")
        for chain in found:
            self._flaw(f"chain {chain} is not among those that were opened")

    def _check_ends(self) -> None:
        """Check that the events exist that were the ends of chains when others were opened."""
        for (end, made), opening in self._vouched.items():
            chain, _, number = end.partition(".")
            if not (chain.isdecimal() and number.isdecimal()):
                self._flaw(f"event {opening} tells of an event {end!r:.40}, which cannot be")
                continue
            place = (int(number) - 1) * _HALF
            found = self._hashes.get(int(chain), b"")[place : place + _HALF]
            if not found:
                self._flaw(f"event {end}, of which event {opening} tells, is missing")
            elif found != made[:_HALF].encode("ascii", "replace"):
                self._flaw(f"event {end} is not the one of which event {opening} tells")

    def _explain_contents(self) -> None:
        """Compare contents that do not match their events with what was masked and redacted."""
        for name, (found, flaw) in self._unlike.items():
            if (name, found) not in self._masked:
                self._flaw(*flaw)
            elif not found:
                self._deleted += 1

    def _check_calls(self) -> None:
        """Compare the moves of each call with the allowed ones, and runs with their approvals."""
        faults: dict[int, str] = {}
        for key, moves in self._moves.items():
            fault = faults.get(moves)
            if fault is None:
                fault = faults[moves] = _fault_of(_unpacked(moves))
            if fault:
                self._flaw(fault, key=key)
        for (key, step), told in self._rulings.items():
            state = _STATES.get(self._moves[key] >> (_BITS * step) & 0xF)
            if told.approved is (state is State.DENIED):
                self._flaw(f"step {step} is {state}, and its ruling says otherwise", key=key)
            # With a fence it is ready again after its process died, and it was approved before.
            elif state is State.READY and not told.fence and (asked := self._asked(key, step)):
                if not told.approved:
                    self._flaw(f"step {step} makes it ready, but nobody has approved it", key=key)
                elif told.named != asked:
                    self._flaw(f"step {step} approves something else than was asked about", key=key)

    def _asked(self, key: int, step: int) -> str:
        """Return the seal of the question that was open at a step, if there was one."""
        for earlier in range(step - 1, 0, -1):
            if (key, earlier) in self._questions:
                return self._questions[key, earlier]
        return ""


def _missing(noun: str, first: int, last: int, prefix: str = "") -> str:
    if first == last:
        return f"{noun} {prefix}{first} is missing"
    return f"{noun}s {prefix}{first} to {prefix}{last} are missing"


def _unpacked(moves: int) -> list[State | None]:
    """Return the states of a call from step 1 on; None where a step is missing."""
    states = []
    while moves := moves >> _BITS:
        states.append(_STATES.get(moves & 0xF))
    return states


def _fault_of(states: list[State | None]) -> str:
    """Return what is wrong with the moves of a call; empty if nothing is."""
    before: State | None = None
    for step, state in enumerate(states, 1):
        if state is None:
            return f"step {step} is missing"
        allowed = MOVES.get(before, frozenset()) if before else _FIRST
        if state not in allowed:
            return f"step {step} goes from {before or 'nothing'} to {state}, which no call does"
        before = state
    return ""
