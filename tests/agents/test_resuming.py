"""Kill -9 in the middle of a run: the conversation goes on, and no dangerous call is made twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from gramercy.agents.base import unanswered
from gramercy.agents.talks import SessionTalk
from gramercy.execution.approval import Approved, decide
from gramercy.journal.audit import verify_journal
from gramercy.journal.base import State
from gramercy.journal.opening import open_journal
from gramercy.journal.sessions import sessions_of
from gramercy.journal.sqlite import SqliteJournal

PROGRAM = Path(__file__).with_name("killing.py")
POINTS = [
    ("before user is kept", 1, "paid 1"),
    ("after user is kept", 1, "paid 1"),
    ("before calls is kept", 1, "paid 1"),
    ("after calls is kept", 1, "paid 1"),
    ("while a person is asked", 1, "paid 1"),
    ("before the effect", 0, "nobody knows whether it has taken effect"),
    ("after the effect", 1, "nobody knows whether it has taken effect"),
    ("before tool is kept", 1, "it was not run again"),
    ("after tool is kept", 1, "paid 1"),
    ("in the middle of an answer", 1, "paid 1"),
    ("before assistant is kept", 1, "paid 1"),
    ("after assistant is kept", 1, "paid 1"),
]


# More than are made before the first kill.
CALLS = 150


class Bank:
    """A journal and a ledger, and the program that uses both."""

    def __init__(self, directory, program):
        self.place, self.ledger = str(directory / "journal.db"), directory / "ledger"
        self._program = program

    def start(self, point="", calls=1, kind="plain"):
        """Have the program run the agent; return its process."""
        words = [self.place, str(self.ledger), point, calls, kind]
        self._program.stdin.write(json.dumps(words) + "\n")
        self._program.stdin.flush()
        return int(self._program.stdout.readline())

    def ended(self):
        """Wait for its end; return how it ended and what it said."""
        code, said = json.loads(self._program.stdout.readline())
        assert code in {0, -signal.SIGKILL}
        return code, said

    def run(self, point="", calls=1, kind="plain"):
        """Run the agent to the end."""
        self.start(point, calls, kind)
        return self.ended()

    @property
    def payments(self):
        """What was paid."""
        return self.ledger.read_text().split() if self.ledger.exists() else []

    def conversation(self, name="pay"):
        """Return what was said."""
        journal = open_journal(self.place)
        try:
            return SessionTalk.resume(sessions_of(journal), name).conversation
        finally:
            journal.close()


@pytest.fixture(name="program", scope="module")
def program_fixture():
    """Return the program; each run is a process that it forks, so that Python starts once."""
    command = [sys.executable, str(PROGRAM)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        # A run takes a fraction of a second: what hangs is ended, and read as EOF.
        alarm = threading.Timer(240, program.kill)
        alarm.start()
        yield program
        alarm.cancel()
        if program.stdin is not None:
            program.stdin.close()


@pytest.fixture(name="bank")
def bank_fixture(tmp_path, program):
    """Return a bank without payments."""
    return Bank(tmp_path, program)


@pytest.mark.contract("agents.memory.kill")
@pytest.mark.parametrize(("point", "payments", "told"), POINTS)
def test_a_run_that_was_killed_goes_on_without_paying_twice(bank, point, payments, told):
    """Agents, proof: kill -9 in the middle of a run, at every point where something is kept or happens."""
    assert bank.run(point) == (-signal.SIGKILL, "")
    code, said = bank.run()
    assert (code, said.startswith("I have paid: ")) == (0, True)
    assert told in said
    assert len(bank.payments) == payments
    conversation = bank.conversation()
    assert [message.role for message in conversation] == ["user", "assistant", "tool", "assistant"]
    assert unanswered(conversation) == ()
    # And once more, when nothing is left to do.
    assert bank.run() == (0, said)
    assert len(bank.payments) == payments


@pytest.mark.contract("agents.memory.kill")
@pytest.mark.parametrize(
    "point",
    [
        "while a person is asked",
        "after the effect",
        "before tool is kept",
        "before tool of the outer agent is kept",
    ],
)
def test_a_nested_agent_goes_on_where_it_was_killed(bank, point):
    """The call of the outer agent is made again, those of the inner one are not."""
    assert bank.run(point, 2, "nested")[0] == -signal.SIGKILL
    code, said = bank.run("", 2, "nested")
    assert (code, said.count("I have paid: ")) == (0, 2)
    assert bank.payments == ["1", "2"]


@pytest.mark.contract("agents.memory.kill")
@pytest.mark.parametrize(
    ("point", "payments", "told"),
    [
        ("after calls is kept", 1, "paid 1"),
        ("before the effect", 0, "an earlier run of this conversation has begun it and not ended it"),
        ("after the effect", 1, "It may have taken effect: look before"),
        (
            "before tool is kept",
            1,
            "an earlier run of this conversation has run it, and the answer was not kept",
        ),
        ("after tool is kept", 1, "paid 1"),
    ],
)
def test_a_cautious_call_that_had_begun_is_not_repeated(bank, point, payments, told):
    """Nobody is asked about it, neither before nor after: the model is told, and may look."""
    assert bank.run(point, 1, "cautious")[0] == -signal.SIGKILL
    code, said = bank.run("", 1, "cautious")
    assert (code, told in said) == (0, True)
    assert len(bank.payments) == payments
    # The next one of the same kind is a call of its own.
    assert bank.run("", 2, "cautious")[0] == 0


def test_a_cautious_call_that_may_be_repeated_is(bank):
    assert bank.run("after the effect", 1, "idempotent")[0] == -signal.SIGKILL
    assert bank.run("", 1, "idempotent") == (0, "I have paid: paid 1")
    assert bank.payments == ["1", "1"]


@pytest.mark.contract("agents.memory.identity")
def test_a_model_that_tries_again_does_not_repeat_what_is_in_doubt(bank):
    assert bank.run("after the effect", 3, "stubborn")[0] == -signal.SIGKILL
    code, said = bank.run("", 3, "stubborn")
    assert (code, said.count("nobody knows whether it has taken effect")) == (0, 3)
    assert bank.payments == ["1"]


@pytest.mark.contract("agents.memory.identity")
def test_a_model_that_tries_again_goes_on_with_the_question_that_is_open(bank):
    """An agent that has nobody to ask leaves the question open; gramercy approvals decides it."""
    for _ in range(2):
        assert bank.run("", 2, "unattended")[0] == 0
    journal = SqliteJournal(bank.place)
    (record,) = journal.records([State.AWAITING])
    assert record.facts.question is not None
    decide(journal, record.key, record.facts.question.seal, Approved())
    journal.close()
    assert bank.run("", 0, "unattended")[0] == 0
    assert bank.payments == ["1"]


@pytest.mark.slow
@pytest.mark.contract("agents.memory.kill")
def test_killed_again_and_again_it_pays_each_once(bank):
    """From outside, at moments that nobody has chosen; the audit of it holds."""
    chance, kills = random.Random(14), 0
    for _ in range(15):
        alarm = threading.Timer(chance.uniform(0.05, 0.3), _kill, (bank.start("", CALLS),))
        alarm.start()
        code, said = bank.ended()
        alarm.cancel()
        alarm.join()
        kills += bool(code)
        if not code:
            break
    code, said = bank.run("", CALLS)
    assert said.startswith("I have paid: ")
    assert kills
    assert len(bank.payments) == len(set(bank.payments))
    in_doubt = said.count("nobody knows")
    assert CALLS - in_doubt <= len(bank.payments) <= CALLS
    journal = SqliteJournal(bank.place)
    assert verify_journal(journal).is_intact
    journal.close()


def _kill(process):
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
