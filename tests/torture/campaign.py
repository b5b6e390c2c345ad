"""Kill servers, people who decide and workers at random, start them again, and count what went wrong.

In every round some orders go to a server, somebody decides, a worker looks after what is left. Processes are
killed with SIGKILL, at moments of chance or at a named point, and started again until every order has an
answer. Afterwards the ledger, the answers and the journal are held against each other.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import traceback
from collections import Counter
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from gramercy.journal.base import State
from gramercy.journal.opening import open_journal
from tests.support import reap
from tests.torture import shop
from tests.torture.doom import POINTS, Doom
from tests.torture.shop import Place, lines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gramercy.journal.base import CallRecord, Journal

ORDERS = 3
# A round takes a tenth of a second; on a busy machine some seconds.
ROUND_SECONDS = 60.0
ROLES = ("server", "approver", "worker")
# What must never be found.
BAD = ("lost", "duplicated", "without approval", "incomplete", "unrecorded", "untrue")
WHOLE = [State.REQUESTED, State.AWAITING, State.READY, State.EXECUTING, State.DONE]


class Actor:
    """A process that is started again whenever it has been killed."""

    def __init__(self, role: str, run: Callable[[Doom], None]) -> None:
        self.role = role
        self._run = run
        self.pid = 0
        self.killed_at = 0.0

    def start(self, doom: Doom) -> None:
        """Fork it; nothing of this process but its imports is used there."""
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid:
            return
        code = 1
        try:
            self._run(doom)
            code = 0
        except BaseException:  # noqa: BLE001 - told by the exit code, and on the standard error
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def kill(self) -> bool:
        """Kill it, if it is there."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
        return bool(self.pid)

    def look(self) -> int | None:
        """Return how it ended, None while it lives or when it is not there."""
        if not self.pid:
            return None
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return None
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def end(self) -> None:
        """Kill it and wait."""
        if self.kill():
            reap(self.pid)
            self.pid = 0


class Round:
    """One round: its orders, its processes, its kills."""

    def __init__(self, place: Place, orders: dict[str, int]) -> None:
        self.place = place
        self.orders = orders
        until = monotonic() + ROUND_SECONDS
        self.until = until
        self.actors = {
            "server": Actor("server", lambda doom: shop.serve(place, doom, self.orders)),
            "approver": Actor("approver", lambda doom: shop.approve(place, doom, until=until)),
            "worker": Actor("worker", lambda doom: shop.work(place, doom, until=until)),
        }
        self.kills: Counter[str] = Counter()
        self.is_answered = False

    def run(self, dooms: dict[str, Doom], strikes: list[tuple[float, str]]) -> None:
        """Start all, kill some at their seconds, until every order has its answer."""
        for role, actor in self.actors.items():
            actor.start(dooms.get(role, Doom()))
        try:
            begun = monotonic()
            while monotonic() < self.until and not self.is_answered:
                while strikes and monotonic() - begun > strikes[0][0]:
                    self.actors[strikes.pop(0)[1]].kill()
                self._supervise()
                sleep(0.001)
        finally:
            for actor in self.actors.values():
                actor.end()

    def _supervise(self) -> None:
        for actor in self.actors.values():
            code = actor.look()
            if code is None:
                continue
            if code == -signal.SIGKILL:
                self.kills[actor.role] += 1
                actor.start(Doom())
            elif code:
                raise AssertionError(f"the {actor.role} ended with exit code {code}")
            elif actor.role == "server":
                self.is_answered = True


def check(place: Place, journal: Journal, orders: dict[str, int]) -> Counter[str]:
    """Hold the ledger, the answers and the journal of a round against each other."""
    found: Counter[str] = Counter()
    paid = Counter(line["order"] for line in lines(place.ledger))
    amounts = {line["order"]: line["amount"] for line in lines(place.ledger)}
    answers = {line["order"]: line for line in lines(place.answers)}
    by_order: dict[str, list[CallRecord]] = {order: [] for order in orders}
    for record in journal.records(most=10_000):
        if record.call.identity in by_order or record.call.call_id in by_order:
            by_order[record.call.call_id].append(record)
    for order in orders:
        records = by_order[order]
        states = {record.state for record in records}
        found["duplicated"] += paid[order] > 1
        found["lost"] += order not in answers or not states & {
            State.DONE,
            State.FAILED,
            State.DENIED,
            State.IN_DOUBT,
        }
        found["in doubt"] += State.IN_DOUBT in states
        found["paid"] += paid[order]
        found["untrue"] += order in answers and not _is_true(answers[order], paid[order], states)
        for record in records:
            found += check_call(journal, record, paid[order], amounts.get(order))
        if paid[order] and not states & {State.DONE, State.FAILED, State.IN_DOUBT}:
            found["unrecorded"] += 1
    return +found


def _is_true(answer: dict[str, Any], paid: int, states: set[State]) -> bool:
    """Tell whether a client was told what has happened; of what is in doubt it must be told just that."""
    if answer["success"]:
        return bool(paid) and State.DONE in states
    if State.IN_DOUBT in states:
        return "nobody knows whether" in answer["content"]
    return not paid or State.FAILED in states


def check_call(journal: Journal, record: CallRecord, paid: int, amount: int | None) -> Counter[str]:
    """Look whether what has run was approved as it ran, and whether its story is whole."""
    found: Counter[str] = Counter()
    entries = journal.entries(record.key)
    states = [entry.state for entry in entries]
    ready = [entry for entry in entries if entry.state is State.READY]
    if State.EXECUTING in states and State.READY not in states:
        found["without approval"] += 1
    if record.state in {State.DONE, State.FAILED, State.IN_DOUBT} and paid and ready:
        ruling = ready[-1].facts.ruling
        allowed = dict(record.call.arguments)
        for entry in ready:
            if entry.facts.ruling and entry.facts.ruling.arguments:
                allowed = entry.facts.ruling.arguments
        if ruling is None or not ruling.approved or allowed["amount"] != amount:
            found["without approval"] += 1
    if record.state is State.DONE and not _is_whole(states):
        found["incomplete"] += 1
    if [entry.step for entry in entries] != list(range(1, record.step + 1)):
        found["incomplete"] += 1
    return found


def _is_whole(states: list[State]) -> bool:
    wanted = iter(states)
    return all(state in wanted for state in WHOLE)


class Campaign:
    """Rounds on one journal, and what was found; `verify` returns what is wrong with a journal."""

    def __init__(self, where: Callable[[Path], str], verify: Callable[[str], str]) -> None:
        self.folder = Path(mkdtemp(prefix="gramercy-torture-"))
        self._where = where(self.folder)
        self._verify = verify
        self.found: Counter[str] = Counter()
        self.recovery: list[float] = []

    def try_round(self, orders: dict[str, int], dooms: dict[str, Doom], strikes: Any = ()) -> None:
        """Run one round and hold what is left against each other; AssertionError with where to look."""
        number = self.found["rounds"]
        place = Place(self.folder / str(number), self._where)
        place.folder.mkdir()
        this = Round(place, orders)
        this.run(dooms, list(strikes))
        self.found["rounds"] += 1
        self.found.update({f"{role} killed": count for role, count in this.kills.items()})
        found = self._look_after(place, orders)
        self.found.update(found)
        if any(found[word] for word in BAD):
            points = {role: doom.point for role, doom in dooms.items()}
            raise AssertionError(f"round {number}: {dict(found)} with {points} {strikes}, kept in {place}")

    def _look_after(self, place: Place, orders: dict[str, int]) -> Counter[str]:
        """Open the journal as the next process does, and time how long that takes with what is left."""
        begun = monotonic()
        journal = open_journal(place.journal)
        try:
            journal.recover(lambda _: False)
            self.recovery.append(monotonic() - begun)
            return check(place, journal, orders) + Counter(orders=len(orders))
        finally:
            journal.close()

    def close(self) -> None:
        """Verify the whole journal, and remove it where nothing was found."""
        wrong = self._verify(self._where)
        assert not wrong, f"the audit does not verify: {wrong}; kept in {self.folder}"
        shutil.rmtree(self.folder, ignore_errors=True)

    def figures(self) -> dict[str, Any]:
        """Return what is printed."""
        ordered = sorted(self.recovery)
        times = {"p50": ordered[len(ordered) // 2], "max": ordered[-1]} if ordered else {}
        wrong = {word: self.found[word] for word in BAD}
        return {**self.found, **wrong, "recovery ms": {name: round(s * 1000, 1) for name, s in times.items()}}


def at_random(campaign: Campaign, rounds: int, seed: int) -> None:
    """Kill at moments of chance, in half of the rounds also at points of chance."""
    chance = random.Random(seed)
    for number in range(rounds):
        orders = {f"order-{number}-{n}": chance.randrange(900) for n in range(ORDERS)}
        dooms = {}
        if chance.random() < 0.5:
            dooms = {role: Doom(chance.choice(POINTS), chance.randint(1, 2)) for role in ROLES}
        times = [(chance.random() * 0.12, chance.choice(ROLES)) for _ in range(chance.randint(1, 4))]
        campaign.try_round(orders, dooms, sorted(times))


def at_points(campaign: Campaign, points: Sequence[str] = POINTS) -> None:
    """Kill each role at each point, in each way in which a call can go."""
    for point in points:
        for role in ROLES:
            number = campaign.found["rounds"]
            campaign.try_round(orders_of_all_kinds(number), {role: Doom(point)})


def orders_of_all_kinds(number: int) -> dict[str, int]:
    """Return orders that are denied, changed, approved and done, approved and failed."""
    kinds: dict[object, tuple[str, int]] = {}
    for n in range(100):
        order, amount = f"way-{number}-{n}", 3 + n % 2
        kinds.setdefault((type(shop.ruling(order, amount)), amount), (order, amount))
    return dict(kinds.values())
