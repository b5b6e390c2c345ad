"""A model of the journal in a few lines, and a machine that holds a real journal against it.

Two workers share one journal. Calls are submitted, decided, changed, asked about again, claimed, finished
with right and stale fences, resolved and delivered, in any order; workers crash and are recovered; questions
have expired long ago or expire in a year, whatever the clocks say. After every step the journal says what the
model says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import time
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gramercy.errors import MovedError
from gramercy.journal.base import MOVES, Facts, NewCall, Question, Ruling, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.journal.base import Journal

YEAR = 365 * 86_400.0
WORKERS = st.integers(0, 1)
# Which call, and whether one that is where the move comes from: else most moves would be refused.
PLACES = st.tuples(st.integers(0, 30), st.integers(0, 5))
# Seldom.
RARELY = st.integers(0, 5).map(lambda number: number == 5)
ENDS = st.sampled_from([State.DONE, State.FAILED, State.IN_DOUBT])


@dataclass
class Modelled:
    """A call as the model knows it."""

    key: int
    identity: str
    is_idempotent: bool
    is_expired: bool
    seal: str
    path: list[State]
    fence: int = 0
    owner: int = -1
    delivered: bool = False
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def state(self) -> State:
        return self.path[-1]


class JournalMachine(RuleBasedStateMachine):
    """Holds a journal against the model; `open_one` opens the same journal once more."""

    open_one: Callable[[], Journal]
    # Holds the whole journal against itself, at the end of an example.
    verify: Callable[[Journal], None]

    @initialize()
    def begin(self) -> None:
        self.journals = [self.open_one(), self.open_one()]
        # Each time a worker starts it is somebody else.
        self.lives = [0, 1]
        self.calls: list[Modelled] = []
        # What runs under a worker that has died.
        self.count = 2
        self.existing = {record.key for record in self.journals[0].records(most=100_000)}

    def teardown(self) -> None:
        if not hasattr(self, "journals"):
            return
        try:
            type(self).verify(self.journals[0])
        finally:
            for journal in self.journals:
                journal.close()

    def call(self, place: tuple[int, int], *states: State) -> Modelled | None:
        number, aim = place
        fitting = [call for call in self.calls if call.state in states] if aim else []
        found = fitting or self.calls
        return found[number % len(found)] if found else None

    def expect(self, allowed: bool, act: Callable[[], object]) -> bool:  # noqa: FBT001 - the point of it
        try:
            act()
        except MovedError:
            assert not allowed, "refused what the model allows"
            return False
        assert allowed, "allowed what the model refuses"
        return True

    @rule(worker=WORKERS, idempotent=st.booleans(), expired=RARELY, returns=st.booleans())
    def submit(self, worker: int, idempotent: bool, expired: bool, returns: bool) -> None:  # noqa: FBT001
        number = len(self.calls)
        seal = f"seal {number}"
        identity = f"identity {id(self)} {number}" if returns else ""
        arguments = {"amount": number}
        new = NewCall(f"c{number}", "put" if idempotent else "pay", "dangerous", arguments, identity=identity)
        expires_at = time() + (-YEAR if expired else YEAR)
        facts = Facts(question=_question(seal), expires_at=expires_at)
        key = self.journals[worker].begin(new, State.AWAITING, facts)
        path = [State.REQUESTED, State.AWAITING]
        self.calls.append(
            Modelled(key, identity, idempotent, expired, seal, path, arguments=arguments),
        )

    @rule(
        worker=WORKERS,
        place=PLACES,
        says_yes=st.integers(0, 3).map(bool),
        is_stale=RARELY,
        edits=st.booleans(),
    )
    def decide(
        self,
        worker: int,
        place: tuple[int, int],
        says_yes: bool,  # noqa: FBT001 - given by name
        is_stale: bool,  # noqa: FBT001
        edits: bool,  # noqa: FBT001
    ) -> None:
        call = self.call(place, State.AWAITING)
        if call is None:
            return
        seal = "another seal" if is_stale else call.seal
        edited = {"amount": 1_000 + call.key} if edits and says_yes else None
        state = State.READY if says_yes else State.DENIED
        ruling = Ruling(approved=says_yes, by=f"worker {worker}", seal=seal, arguments=edited)
        may = call.state is State.AWAITING and not is_stale and not (says_yes and call.is_expired)
        if self.expect(
            may,
            lambda: self.journals[worker].move(
                call.key, state, Facts(ruling=ruling, arguments=edited), expected=[State.AWAITING]
            ),
        ):
            call.path.append(state)
            call.arguments = edited or call.arguments

    @rule(worker=WORKERS, place=PLACES)
    def ask_again(self, worker: int, place: tuple[int, int]) -> None:
        call = self.call(place, State.READY, State.AWAITING)
        if call is None:
            return
        seal = f"{call.seal}+"
        facts = Facts(question=_question(seal), expires_at=time() + YEAR)
        may = State.AWAITING in MOVES.get(call.state, ())
        if self.expect(may, lambda: self.journals[worker].move(call.key, State.AWAITING, facts)):
            call.path.append(State.AWAITING)
            call.seal, call.is_expired = seal, False

    @rule(worker=WORKERS, place=PLACES)
    def claim(self, worker: int, place: tuple[int, int]) -> None:
        call = self.call(place, State.READY)
        if call is None:
            return
        given: list[int] = []
        may = call.state is State.READY
        if self.expect(may, lambda: given.append(self.journals[worker].claim(call.key))):
            assert given[0] > call.fence
            call.path.append(State.EXECUTING)
            call.fence, call.owner = given[0], self.lives[worker]

    @rule(worker=WORKERS, place=PLACES, end=ENDS, is_stale=RARELY)
    def finish(self, worker: int, place: tuple[int, int], end: State, is_stale: bool) -> None:  # noqa: FBT001
        call = self.call(place, State.EXECUTING)
        if call is None or call.state in {State.IN_DOUBT, State.AWAITING, State.READY}:
            return
        fence = call.fence + 1 if is_stale else call.fence
        may = call.state is State.EXECUTING and not is_stale
        if self.expect(may, lambda: self.journals[worker].move(call.key, end, Facts(fence=fence))):
            call.path.append(end)

    @rule(worker=WORKERS, place=PLACES, end=ENDS)
    def go_on(self, worker: int, place: tuple[int, int], end: State) -> None:
        """Take the next step that a call usually takes, so that long lives are not rare."""
        call = self.call(place, State.AWAITING, State.READY, State.EXECUTING)
        if call is None:
            return
        exactly = (self.calls.index(call), 0)
        if call.state is State.AWAITING:
            self.decide(worker, exactly, says_yes=True, is_stale=False, edits=False)
        elif call.state is State.READY:
            self.claim(worker, exactly)
        elif call.state is State.EXECUTING:
            self.finish(worker, exactly, end, is_stale=False)

    @rule(worker=WORKERS, place=PLACES, happened=st.booleans())
    def resolve(self, worker: int, place: tuple[int, int], happened: bool) -> None:  # noqa: FBT001
        call = self.call(place, State.IN_DOUBT)
        if call is None:
            return
        end = State.DONE if happened else State.FAILED
        ruling = Ruling(approved=happened, by="person")
        act = lambda: self.journals[worker].move(  # noqa: E731
            call.key, end, Facts(ruling=ruling), expected=[State.IN_DOUBT]
        )
        if self.expect(call.state is State.IN_DOUBT, act):
            call.path.append(end)

    @rule(worker=WORKERS, place=PLACES)
    def deliver(self, worker: int, place: tuple[int, int]) -> None:
        call = self.call(place, State.DONE, State.FAILED, State.DENIED)
        if call is not None and call.state in {State.DONE, State.FAILED, State.DENIED}:
            self.journals[worker].deliver(call.key)
            call.delivered = True

    @rule(worker=WORKERS)
    def crash(self, worker: int) -> None:
        self.journals[worker].close()
        self.journals[worker] = self.open_one()
        self.lives[worker] = self.count
        self.count += 1

    @rule(worker=WORKERS)
    def recover(self, worker: int) -> None:
        moved = {
            record.key: record.state
            for record in self.journals[worker].recover(lambda tool: tool == "put")
            if record.key not in self.existing
        }
        expected: dict[int, State] = {}
        for call in self.calls:
            if call.state is State.EXECUTING and call.owner not in self.lives:
                expected[call.key] = State.READY if call.is_idempotent else State.IN_DOUBT
            elif call.state is State.AWAITING and call.is_expired:
                expected[call.key] = State.DENIED
        assert moved == expected
        for call in self.calls:
            if call.key in expected:
                call.path.append(expected[call.key])

    @rule(worker=WORKERS, place=PLACES)
    def come_back(self, worker: int, place: tuple[int, int]) -> None:
        call = self.call(place, *State)
        if call is None or not call.identity:
            return
        found = self.journals[worker].find(call.identity)
        assert (found is None) == call.delivered
        assert found is None or found.key == call.key

    @invariant()
    def the_journal_says_what_the_model_says(self) -> None:
        if not hasattr(self, "journals"):
            return
        for worker, call in enumerate(self.calls[-3:]):
            record = self.journals[worker % 2].record(call.key)
            assert record is not None
            assert (record.state, record.step) == (call.state, len(call.path))
            assert record.delivered == call.delivered

    def check_all(self) -> None:
        """Hold every call and all of its entries against the model."""
        for call in self.calls:
            entries = self.journals[0].entries(call.key)
            assert [entry.state for entry in entries] == call.path
            assert [entry.step for entry in entries] == list(range(1, len(call.path) + 1))

    @rule()
    def look_at_all(self) -> None:
        self.check_all()


def _question(seal: str) -> Question:
    return Question("Pay?", seal, {"arguments": seal}, "because")
