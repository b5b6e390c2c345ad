"""A shop whose payments can be counted, and who works on it: a server, somebody who decides, a worker.

A payment is one line in a ledger, written at once, so that what has happened is known whatever dies. It is
not idempotent: paid twice is two lines. Every process has a journal of its own, opened on the same database.
"""

from __future__ import annotations

import json
import os
import threading
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple

from gramercy import Executor, Registry, define_tool
from gramercy.errors import GramercyError, MovedError
from gramercy.execution.approval import Approved, Denied, Modified, decide
from gramercy.journal.base import State
from gramercy.journal.opening import open_journal
from gramercy.tools.context import Call, enter_call
from tests.torture.doom import EFFECT, Doom, DoomedJournal

if TYPE_CHECKING:
    from pathlib import Path

    from gramercy.execution.approval import Decision
    from gramercy.journal.base import CallRecord, Journal

AMOUNT = [
    {"name": "order", "type": "string"},
    {"name": "amount", "type": "integer"},
]
# Long enough for a busy machine, short enough that a round which hangs is seen.
PATIENCE = 60.0


class Place(NamedTuple):
    """Where a round happens."""

    folder: Path
    journal: str

    @property
    def ledger(self) -> Path:
        """What was paid."""
        return self.folder / "ledger"

    @property
    def answers(self) -> Path:
        """What the client was answered."""
        return self.folder / "answers"


class Ordered(Call):
    """A call of a client that comes back after a restart."""

    __slots__ = ("_order",)

    def __init__(self, order: str) -> None:
        self._order = order

    @property
    def identity(self) -> str:
        return self._order


def append(path: Path, **line: Any) -> None:
    """Write one line in one go; what was written outlives the process."""
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        os.write(fd, json.dumps(line).encode() + b"\n")
    finally:
        os.close(fd)


def lines(path: Path) -> list[dict[str, Any]]:
    """Read what was written, line by line."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def open_shop(place: Place, doom: Doom) -> Executor:
    """Return an executor that can pay, on a journal of its own."""

    def pay(arguments: dict[str, Any]) -> str:
        doom.reach(f"before {EFFECT}")
        append(place.ledger, order=arguments["order"], amount=arguments["amount"], pid=os.getpid())
        doom.reach(f"after {EFFECT}")
        if arguments["amount"] % 5 == 4:
            raise OSError("the bank has answered nonsense")
        return f"paid {arguments['amount']}"

    tool = define_tool(
        "pay", "Pay.", AMOUNT, required=["order", "amount"], safety_level="dangerous", handler=pay
    )
    return Executor(
        Registry([tool]), journal=DoomedJournal(open_journal(place.journal), doom), approval_wait=PATIENCE
    )


def serve(place: Place, doom: Doom, orders: dict[str, int]) -> None:
    """Take the orders that have no answer yet, side by side, and answer each."""
    executor = open_shop(place, doom)
    executor.recover()
    answered = {line["order"] for line in lines(place.answers)}
    clients = [
        threading.Thread(target=_order, args=(executor, place, order, amount))
        for order, amount in orders.items()
        if order not in answered
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()


def _order(executor: Executor, place: Place, order: str, amount: int) -> None:
    enter_call(Ordered(order))
    result = executor.execute({"id": order, "name": "pay", "arguments": {"order": order, "amount": amount}})
    append(place.answers, order=order, success=result.success, content=result.content)
    key = result.metadata.get("journal_key")
    if key:
        executor.journal.deliver(key)


def ruling(order: str, amount: int) -> Decision:
    """Decide by the order: most are approved, some denied, some changed."""
    chance = sum(order.encode()) % 5
    if chance == 0:
        return Denied("too dear")
    if chance == 1:
        return Modified({"order": order, "amount": amount + 1_000}, by="ada")
    return Approved("ada")


def approve(place: Place, doom: Doom, *, until: float) -> None:
    """Decide whatever is open, again and again."""
    journal = DoomedJournal(open_journal(place.journal), doom)
    while monotonic() < until:
        for record in journal.records([State.AWAITING]):
            _decide(journal, record)
        _rest()


def _decide(journal: Journal, record: CallRecord) -> None:
    question = record.facts.question
    if question is None:
        return
    given = record.facts.arguments or record.call.arguments
    decision = ruling(given["order"], given["amount"]) if given["amount"] < 1_000 else Approved("ada")
    try:
        decide(journal, record.key, question.seal, decision)
    except MovedError:
        return


def work(place: Place, doom: Doom, *, until: float) -> None:
    """Look after what was interrupted, and run what is ready and has nobody who waits for it."""
    executor = open_shop(place, doom)
    while monotonic() < until:
        executor.recover()
        for record in executor.journal.records([State.READY]):
            try:
                executor.resume(record.key)
            except GramercyError:
                continue
        _rest()


def _rest() -> None:
    """Let others have the machine; nothing depends on how long it is."""
    sleep(0.002)
