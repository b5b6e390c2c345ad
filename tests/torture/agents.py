"""Kill programs in the middle of a conversation with an agent, go on with it, and look what was done twice.

An agent pays bills, two in a turn, beside a call that only looks. The program that runs it is killed at a
moment of chance and started again, with a twin beside it that goes on with the same conversation, until one
of them comes to the answer. Afterwards ledger, conversation and journal are held against each other.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from gramercy import Agent, Executor, Limits, Policy, Registry, define_tool
from gramercy.agents.talks import SessionTalk
from gramercy.errors import JournalError
from gramercy.journal.base import State
from gramercy.journal.opening import open_journal
from gramercy.journal.sessions import sessions_of
from gramercy.providers.base import CallPart, ModelCall, StopPart, TextPart
from tests.torture.campaign import Actor
from tests.torture.doom import Doom

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from gramercy.providers.base import Part, Request

BILLS = 6
SESSION = "bills"
ANSWER = "All bills are paid."
# What must never be found.
BAD = ("paid twice", "lost", "without result", "audit not whole")
# An undisturbed run takes some 50 ms; one that is killed by then has got to any of its points.
LONGEST_LIFE = 0.08
# So often is a pair of programs killed before it is left alone.
KILLS = 8
ROUND_SECONDS = 60.0


class Clerk:
    """A model that pays what the conversation says is not paid; it remembers nothing by itself."""

    name = "clerk"

    async def chat(self, request: Request) -> AsyncIterator[Part]:
        """Ask for the next two payments, or say that all is done."""
        calls = [call for message in request.messages for call in message.calls]
        paid = sum(call.name == "pay" for call in calls)
        if paid >= BILLS:
            yield TextPart(ANSWER)
            yield StopPart("end")
            return
        yield CallPart(ModelCall(f"c{len(calls)}", "look", '{"bill": 0}'))
        for bill in (paid, paid + 1):
            yield CallPart(ModelCall(f"p{bill}", "pay", json.dumps({"bill": bill})))
        yield StopPart("calls")

    async def aclose(self) -> None:
        """Do nothing."""


def pay_bills(place: Path, journal_place: str, doom: Doom) -> None:
    """Begin the conversation, or go on with it, and run to the answer."""
    del doom
    journal = open_journal(journal_place)
    sessions = sessions_of(journal)

    def pay(arguments: dict[str, Any]) -> str:
        descriptor = os.open(place / "ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, f"{arguments['bill']}\n".encode())
        os.close(descriptor)
        sleep(0.002)
        return f"bill {arguments['bill']} is paid"

    bill = [{"name": "bill", "type": "integer", "description": "Which one"}]
    tools = [
        define_tool("pay", "Pay a bill.", bill, handler=pay, safety_level="dangerous"),
        define_tool("look", "Look at a bill.", bill, handler=lambda _: "unpaid", safety_level="safe"),
    ]
    rules = Policy([{"action": "allow", "tools": ["*"]}])
    executor = Executor(Registry(), policy=rules, journal=journal)
    is_known = sessions.session(SESSION) is not None
    if is_known:
        talk = SessionTalk.resume(sessions, SESSION)
    else:
        talk = SessionTalk.begin(sessions, "Bills", agent="clerk", name=SESSION)
    agent = Agent("clerk", "Pay all bills.", "clerk/clerk", tools)
    said = talk.conversation
    message = None if said else "Pay all bills."
    options: dict[str, Any] = {"provider": Clerk(), "executor": executor, "talk": talk}
    response = agent.run(message, conversation=said, limits=Limits(turns=30), **options)
    assert response.content == ANSWER
    (place / "answered").touch()
    journal.close()


def pay_or_yield(place: Path, journal_place: str, doom: Doom) -> None:
    """Do that, and give way to the twin where it was quicker."""
    try:
        pay_bills(place, journal_place, doom)
    except JournalError as error:
        if "another program has gone on" not in str(error) and "already" not in str(error):
            raise


class AgentCampaign:
    """Rounds of killing on one kind of journal."""

    def __init__(self, place_of: Callable[[Path], str], verify: Callable[[str], str]) -> None:
        self._place_of, self._verify = place_of, verify
        self.found: Counter[str] = Counter()

    def run(self, rounds: int, seed: int) -> dict[str, int]:
        """Run so many rounds; AssertionError says what was broken, and where it can be looked at."""
        chance = random.Random(seed)
        for _ in range(rounds):
            place = Path(mkdtemp(prefix="gramercy-agents-"))
            journal_place = self._place_of(place)
            self._round(place, journal_place, chance)
            self._judge(place, journal_place)
            self.found["rounds"] += 1
            shutil.rmtree(place)
        return dict(self.found)

    def _round(self, place: Path, journal_place: str, chance: random.Random) -> None:
        until = monotonic() + ROUND_SECONDS
        kills = chance.randint(1, KILLS)
        while not (place / "answered").exists():
            assert monotonic() < until, f"no answer came: {place}"
            pair = [Actor("clerk", lambda doom: pay_or_yield(place, journal_place, doom)) for _ in range(2)]
            for actor in pair:
                actor.start(Doom())
            self._let_live(pair, chance.random() * LONGEST_LIFE if kills else ROUND_SECONDS)
            kills = max(0, kills - 1)

    def _let_live(self, pair: list[Actor], seconds: float) -> None:
        """Wait until both have ended, and kill them after a while."""
        until = monotonic() + seconds
        left = set(pair)
        while left and monotonic() < until:
            for actor in list(left):
                code = actor.look()
                if not actor.pid:
                    assert code == 0, f"a program ended with exit code {code}"
                    left.discard(actor)
            sleep(0.001)
        for actor in left:
            actor.end()
            self.found["kills"] += 1

    def _judge(self, place: Path, journal_place: str) -> None:
        ledger = (place / "ledger").read_text().split()
        journal = open_journal(journal_place)
        doubtful = len(journal.records([State.IN_DOUBT]))
        open_calls: list[str] = []
        without = 0
        for message in sessions_of(journal).messages(SESSION):
            if message.role == "tool":
                without += not open_calls or message.data["call_id"] != open_calls.pop(0)
            else:
                without += len(open_calls)
                open_calls = [call["id"] for call in message.data.get("calls", [])]
        journal.close()
        self.found["payments"] += len(ledger)
        self.found["in doubt"] += doubtful
        self.found["paid twice"] += len(ledger) - len(set(ledger))
        # One that is in doubt may have been paid or not; nobody may say that it was not tried.
        self.found["lost"] += max(0, BILLS - len(set(ledger)) - doubtful)
        self.found["without result"] += without
        self.found["audit not whole"] += bool(self._verify(journal_place))
        assert not any(self.found[name] for name in BAD), f"{dict(self.found)}: {place}"
