"""A journal that fails at any moment of a call: the caller gets a result, and nothing unrecorded runs."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from time import time

import pytest

from gramercy import Approved, Denied, Executor, Policy, Registry, define_tool
from gramercy.errors import JournalError
from gramercy.execution.calls import ToolResult
from gramercy.journal.base import State
from gramercy.journal.sqlite import SqliteJournal
from gramercy.tools.context import Call, enter_call, leave_call

METHODS = ("begin", "move", "claim", "note", "deliver", "recover", "record", "find", "entries", "bell")
CALL = {"id": "call_1", "name": "pay", "arguments": {"amount": 1}}


class FailingJournal:
    """A journal whose methods fail from a chosen use on, for a number of uses."""

    def __init__(self, path, problem):
        self._real = SqliteJournal(path)
        self._problem = problem
        self.first, self.last, self.method = 0, 0, ""
        self.uses = 0

    def fail(self, method, first, last):
        self.method, self.first, self.last, self.uses = method, first, last, 0

    def __getattr__(self, name):
        found = getattr(self._real, name)
        if name not in METHODS:
            return found

        def called(*arguments, **options):
            if self.method in {name, "any"}:
                self.uses += 1
                if self.first <= self.uses <= self.last:
                    raise self._problem
            return found(*arguments, **options)

        return called


class Returning(Call):
    """A caller who comes back."""

    @property
    def identity(self):
        return f"alice pays, {self.number}"

    number = 0


@contextmanager
def returning(number):
    call = Returning()
    call.number = number
    token = enter_call(call)
    try:
        yield
    finally:
        leave_call(token)


class Till:
    """Counts what was paid, and whether that is recorded."""

    def __init__(self, path, problem, answer, policy):
        self.journal = FailingJournal(path, problem)
        self.paid = 0
        pay = define_tool(
            "pay",
            "Pay.",
            [{"name": "amount", "type": "integer"}],
            safety_level="dangerous",
            handler=self.pay,
            target_state=lambda _: "open",
            effect=lambda _: "pays",
        )
        self.executor = Executor(
            Registry([pay]),
            lambda *_: answer(),
            journal=self.journal,
            policy=policy,
            approval_wait=0.0,
        )

    def pay(self, _arguments):
        running = self.journal._real.records([State.EXECUTING])
        assert running, "it runs unrecorded"
        self.paid += 1
        return "paid"


ANSWERS = {
    "approved": lambda: Approved("ada"),
    "denied": lambda: Denied("no"),
    "undecided": lambda: Denied("nobody is there", "nobody"),
    "broken": lambda: 1 / 0,
}
PROBLEMS = {"its own": JournalError("the disk is full"), "another": RuntimeError()}


@pytest.mark.contract("journal.faults.result")
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("answer", [*ANSWERS, "denied by rule"])
def test_a_journal_that_fails_at_any_moment_leaves_a_result(tmp_path, problem, answer, is_async):
    """Every method at each of its uses, once and from then on: `execute` never raises into its caller."""
    policy = Policy([{"action": "deny", "tools": ["pay"]}]) if answer == "denied by rule" else None
    till = Till(tmp_path / "journal.db", PROBLEMS[problem], ANSWERS.get(answer), policy)
    number = 0
    try:
        for method in (*METHODS, "any"):
            for first in range(1, 40):
                for last in (first, 10_000):
                    number += 1
                    till.journal.fail(method, first, last)
                    before = till.paid
                    with returning(number):
                        if is_async:
                            result = asyncio.run(till.executor.aexecute(CALL))
                        else:
                            result = till.executor.execute(CALL)
                    assert type(result) is ToolResult
                    assert till.paid == before + result.success
                    assert result.success or (result.error or "").strip(" :")
                    assert not (result.error or "").endswith(": ")
                if till.journal.uses < first:
                    break
    finally:
        till.journal._real.close()


@pytest.mark.contract("journal.faults.reason")
def test_a_question_whose_time_was_over_in_another_process_is_refused_with_a_reason(tmp_path):
    """The other process denies it when it looks after old calls; its caller learns why."""
    other = SqliteJournal(tmp_path / "journal.db")
    seen: list[State] = []

    def meanwhile(_tool, _arguments, request):
        ends = request.expires_at
        while time() <= ends:
            pass
        other.recover(lambda _: False)
        seen.extend(record.state for record in other.records())
        return Approved("ada")

    pay = define_tool(
        "pay",
        "Pay.",
        [{"name": "amount", "type": "integer"}],
        handler=lambda _: "paid",
        safety_level="dangerous",
    )
    journal = SqliteJournal(tmp_path / "journal.db")
    executor = Executor(Registry([pay]), meanwhile, journal=journal, approval_expiry=0.2)
    result = executor.execute(CALL)
    assert seen == [State.DENIED]
    assert result.error == "pay was not run: nobody decided in time"
    journal.close()
    other.close()
