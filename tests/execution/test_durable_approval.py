"""A person can be asked now, in this process, and answer later, in another."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import time
from typing import Any

import pytest

from gramercy import Approved, Denied, Executor, Modified, Policy, Registry, define_tool
from gramercy.errors import ExecutionError, JournalError, MovedError
from gramercy.execution.approval import decide, resolve
from gramercy.execution.results import Refuser
from gramercy.journal.base import Facts, NewCall, State
from gramercy.journal.sqlite import SqliteJournal
from gramercy.tools.context import Call, enter_call, leave_call
from tests.support import until

CALL = {"id": "call_1", "name": "pay", "arguments": {"amount": 1}}
PARAMETERS = [{"name": "amount", "type": "integer"}]
TARGET = "what the call acts on has changed"


class Returning(Call):
    """A caller who comes back."""

    @property
    def identity(self):
        return "alice pays 1"

    @property
    def client(self):
        return "a client"


@contextmanager
def returning():
    token = enter_call(Returning())
    try:
        yield
    finally:
        leave_call(token)


class Shop:
    """Pays at most once, as far as the guard is concerned; each process has an executor of its own."""

    def __init__(self, path):
        self.path = path
        self.paid = []
        self.state = "till open"
        self.opened = []

    def pay(self, arguments):
        self.paid.append(arguments["amount"])
        return f"paid {arguments['amount']}"

    def process(self, person=None, *, wait=30.0, policy=None, expiry=3600.0, **options):
        """Return the executor of a new process."""
        options = {"target_state": lambda _: self.state, "handler": self.pay, **options}
        tool = define_tool("pay", "Pay.", PARAMETERS, safety_level="dangerous", **options)
        journal = SqliteJournal(self.path)
        self.opened.append(journal)
        return Executor(
            Registry([tool]),
            person,
            journal=journal,
            policy=policy,
            approval_wait=wait,
            approval_expiry=expiry,
        )

    def end(self, executor):
        """End a process, as a kill does: nothing is tidied up but by the kernel."""
        executor.journal.close()
        self.opened.remove(executor.journal)


@pytest.fixture
def shop(tmp_path):
    made = Shop(tmp_path / "journal.db")
    yield made
    for journal in made.opened:
        journal.close()


def pending(journal):
    """Wait for a question, and return its record."""
    until(lambda: journal.records([State.AWAITING]))
    return journal.records([State.AWAITING])[0]


@contextmanager
def deciding(shop, *decisions):
    """Answer questions in another process, one after the other."""
    journal, problems = SqliteJournal(shop.path), []

    def answer():
        seen = set()
        try:
            for decision in decisions:
                until(lambda: pending(journal).facts.question.seal not in seen)
                record = pending(journal)
                seen.add(record.facts.question.seal)
                decide(journal, record.key, record.facts.question.seal, decision)
        except Exception as error:  # noqa: BLE001 - told below
            problems.append(error)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield journal
    finally:
        thread.join(60)
        journal.close()
        assert problems == []


def states(executor, key=0):
    return [entry.state.value for entry in executor.journal.entries(key)]


@pytest.mark.contract("journal.guard.elsewhere")
def test_another_process_approves_and_the_waiting_call_runs(run, shop):
    """Issue: the waiting caller gets the answer at once when alive."""
    executor = shop.process()
    with deciding(shop, Approved("person at the desk", "fine")):
        result = run(executor, CALL)
    assert (result.success, shop.paid) == (True, [1])
    assert result.content == "[The person who approved it says: fine]\npaid 1"
    assert result.metadata["approved_by"] == "person at the desk"
    assert states(executor) == ["requested", "awaiting", "ready", "executing", "done"]


@pytest.mark.contract("journal.guard.elsewhere")
def test_another_process_denies(run, shop):
    """Issue: decided elsewhere, told as if it had been decided here."""
    executor = shop.process()
    with deciding(shop, Denied("not today")):
        result = run(executor, CALL)
    assert result.error == "User denied tool execution: not today"
    assert (shop.paid, result.metadata["denied_by"]) == ([], "person")
    assert states(executor) == ["requested", "awaiting", "denied"]


@pytest.mark.contract("journal.guard.open")
def test_a_question_that_nobody_answers_stays_open_and_the_call_says_so(run, shop):
    """Issue: a person can be asked now and answer tomorrow."""
    executor = shop.process(wait=0.05)
    result = run(executor, CALL)
    (record,) = executor.journal.records([State.AWAITING])
    assert result.error.startswith(
        f"pay was not run yet: it waits for a person's approval as call {record.key},"
    )
    assert f"`gramercy approvals approve {record.key}`" in result.content
    assert f"Executor.resume({record.key}) runs it" in result.content
    assert (result.metadata["awaiting"], result.metadata["journal_key"]) == (True, record.key)
    assert shop.paid == []
    decide(executor.journal, record.key, record.facts.question.seal, Approved())
    assert executor.resume(record.key).content == "paid 1"
    assert shop.paid == [1]


@pytest.mark.contract("journal.guard.whole")
def test_a_question_is_whole_in_the_journal(shop):
    """Issue: what a person decides on is shown whole, also in another process."""
    asked = []

    def person(_tool, _arguments, request):
        asked.append(request)
        return "denied"

    with returning():
        executor = shop.process(person, effect=lambda arguments: f"would pay {arguments['amount']}")
        executor.execute(CALL)
    record, request = executor.journal.record(asked[0].key), asked[0]
    question = record.facts.question
    assert question.text == request.text()
    assert "amount: 1" in question.text
    assert "| would pay 1" in question.text
    assert question.effect == {"note": "would pay 1"}
    assert question.seal == request.seal.digest
    assert question.schema["properties"]["amount"]["type"] == "integer"
    assert (request.call_id, request.principal, request.client) == ("call_1", "local", "a client")
    assert request.asked_at == record.asked_at
    assert request.expires_at == record.facts.expires_at > time() + 3000


@pytest.mark.contract("journal.guard.open")
def test_a_channel_without_a_person_leaves_the_question_open(run, shop):
    """Guard design, channels: the caller's own, then the console or CLI in another process."""
    executor = shop.process(lambda *_: Denied("nobody there", Refuser.NOBODY))
    with deciding(shop, Approved()):
        assert run(executor, CALL).content == "paid 1"


@pytest.mark.contract("journal.guard.open")
@pytest.mark.parametrize("refuser", [Refuser.CLIENT, Refuser.TIMEOUT])
def test_who_was_asked_and_gave_no_answer_is_not_waited_for_again(run, shop, refuser):
    """A client that declines by itself gets its answer at once; the question stays open for others."""
    executor = shop.process(lambda *_: Denied("not now", refuser))
    result = run(executor, CALL)
    assert result.metadata["awaiting"]
    assert "Nobody has decided: not now" in result.content
    (record,) = executor.journal.records([State.AWAITING])
    assert record.key == result.metadata["journal_key"]


@pytest.mark.contract("journal.guard.race")
def test_a_decision_elsewhere_withdraws_the_question_here(shop):
    """Issue: several approvers racing, exactly one wins."""
    seen = []

    async def person(*_):
        try:
            await asyncio.sleep(60)
        finally:
            seen.append("withdrawn")

    executor = shop.process(person)
    with deciding(shop, Approved()):
        result = asyncio.run(executor.aexecute(CALL))
    assert (result.content, seen) == ("paid 1", ["withdrawn"])


@pytest.mark.contract("journal.guard.race")
def test_who_decides_second_is_told_who_was_first(run, shop):
    """Issue: exactly one wins, the other is told."""
    errors = []
    other = SqliteJournal(shop.path)
    shop.opened.append(other)

    def person(_tool, _arguments, request):
        decide(other, request.key, request.seal.digest, Denied("too much", by="person at the desk"))
        assert not request.is_open()
        return Approved("person at the terminal")

    executor = shop.process(person)
    assert run(executor, CALL).error == "User denied tool execution: too much"
    key = executor.journal.records()[0].key
    with pytest.raises(MovedError, match=r"was denied by person at the desk at .*: too much") as caught:
        decide(other, key, "any", Approved())
    errors.append(caught.value.record.state)
    assert (shop.paid, errors) == ([], [State.DENIED])


@pytest.mark.contract("journal.guard.return")
def test_a_caller_who_comes_back_waits_for_the_same_question(run, shop):
    """Issue: the waiting caller gets the answer on retry when it was restarted."""
    with returning():
        first = shop.process(wait=0.02)
        run(first, CALL)
        before = pending(first.journal)
        shop.end(first)
        second = shop.process(wait=0.02)
        again = run(second, CALL)
        assert "waits for a person's approval" in again.error
        assert again.content.endswith("it is the same call, and runs at most once.")
        after = pending(second.journal)
        assert (after.key, after.step, after.facts.question) == (
            before.key,
            before.step,
            before.facts.question,
        )
        decide(second.journal, after.key, after.facts.question.seal, Approved())
        shop.end(second)
        third = shop.process(wait=0.02)
        result = run(third, CALL)
        assert (result.content, shop.paid) == ("paid 1", [1])
        assert states(third, after.key) == ["requested", "awaiting", "ready", "executing", "done"]


@pytest.mark.contract("journal.guard.return")
def test_an_answer_that_was_not_delivered_is_given_to_who_comes_back(run, shop):
    """Issue: a client that comes back after a restart of the server gets its answer."""
    with returning():
        first = shop.process(lambda *_: "approved")
        lost = run(first, CALL)
        shop.end(first)
        second = shop.process(lambda *_: "approved")
        again = run(second, CALL)
        assert lost.content == "paid 1"
        assert again.success
        assert again.content.startswith("[This call was made before and has run at ")
        assert again.content.endswith("it was not run again. This is its answer.]\npaid 1")
        assert shop.paid == [1]
        second.delivered(again)
        assert run(second, CALL).content == "paid 1"
        assert shop.paid == [1, 1]


@pytest.mark.contract("journal.guard.apart")
def test_a_second_call_of_a_caller_who_has_its_answer_is_a_second_call(run, shop):
    """Issue: nobody is given an old answer for a new call."""
    with returning():
        executor = shop.process(lambda *_: "approved")
        first = run(executor, CALL)
        # Also before the answer is recorded as delivered: the caller had it first.
        second = run(executor, CALL)
        executor.delivered(first)
        executor.delivered(second)
        assert shop.paid == [1, 1]
        executor.undelivered(run(executor, CALL))
        assert "it was not run again" in run(executor, CALL).content
        assert shop.paid == [1, 1, 1]


@pytest.mark.contract("journal.guard.apart")
def test_calls_that_are_made_side_by_side_are_two(shop):
    """Issue: a call that still has its caller is not up for another."""
    with returning():
        executor = shop.process()

        async def main():
            both = asyncio.gather(executor.aexecute(CALL), executor.aexecute(CALL))
            while len(executor.journal.records([State.AWAITING])) < 2:  # noqa: ASYNC110 - in the database
                await asyncio.sleep(0.01)
            for record in executor.journal.records([State.AWAITING]):
                decide(executor.journal, record.key, record.facts.question.seal, Approved())
            return await both

        asyncio.run(main())
    assert shop.paid == [1, 1]


@pytest.mark.contract("journal.guard.apart")
def test_a_call_of_another_process_that_lives_is_not_taken_over(run, shop, monkeypatch):
    """Issue: two programs that ask for the same are asked about apart."""
    with returning():
        first, second = shop.process(wait=0.02), shop.process(wait=0.02)
        run(first, CALL)
        monkeypatch.setattr("gramercy.journal.owners.is_alive", lambda _: True)
        run(second, CALL)
        assert len(second.journal.records([State.AWAITING])) == 2


@pytest.mark.contract("journal.guard.return")
def test_a_denial_that_was_not_delivered_is_told_again(run, shop):
    """Issue: who comes back hears what was decided, and nobody is asked twice."""
    with returning():
        first = shop.process(wait=0.02)
        run(first, CALL)
        record = pending(first.journal)
        shop.end(first)
        other = shop.process()
        decide(other.journal, record.key, record.facts.question.seal, Denied("no"))
        result = run(other, CALL)
        assert result.error == "User denied tool execution: no"
        assert (result.metadata["denied"], result.metadata["stored"], shop.paid) == (True, True, [])


@pytest.mark.contract("journal.guard.stale")
@pytest.mark.parametrize("what", ["target", "policy", "code"])
def test_an_approval_that_no_longer_fits_is_asked_again_with_what_changed(run, shop, what):
    """Issue: stale approvals are asked again with what changed, after a restart too."""
    with returning():
        first = shop.process(wait=0.02)
        run(first, CALL)
        record = pending(first.journal)
        decide(first.journal, record.key, record.facts.question.seal, Approved())
        shop.end(first)
        options: dict[str, Any] = {}
        if what == "target":
            shop.state = "till closed"
        elif what == "policy":
            options["policy"] = Policy([{"action": "ask", "reason": "new"}])
        else:
            options["handler"] = lambda _: "something else"
        second = shop.process(wait=0.02, **options)
        result = run(second, CALL)
        assert "waits for a person's approval" in result.error
        again = second.journal.record(record.key)
        told = {"target": TARGET, "policy": "the policy has changed"}
        assert again.facts.question.changes == (told.get(what, "the tool's implementation has changed"),)
        assert again.facts.question.seal != record.facts.question.seal
        with pytest.raises(MovedError, match="asked about anew"):
            decide(second.journal, record.key, record.facts.question.seal, Approved())
        assert shop.paid == []


def interrupted(shop):
    """Leave a call behind that runs in a process which is gone."""
    journal = SqliteJournal(shop.path)
    call = NewCall("call_0", "pay", "dangerous", {"amount": 1}, identity="alice pays 1")
    key = journal.begin(call, State.EXECUTING)
    journal.close()
    return key


@pytest.mark.contract("journal.guard.doubt")
def test_a_call_that_was_interrupted_is_told_and_not_run_again(run, shop):
    """Guard design: a crash between effect and record leaves in_doubt; it is never re-run silently."""
    key = interrupted(shop)
    with returning():
        executor = shop.process(lambda *_: "approved")
        result = run(executor, CALL)
        assert f"it ran before as call {key} and was interrupted" in result.error
        assert f"gramercy approvals resolve {key} done" in result.content
        assert run(executor, CALL).error == result.error
        resolve(executor.journal, key, happened=True, by="person", reason="the money is there")
        told = run(executor, CALL)
        assert told.success
        assert told.content.endswith("person says that it happened: the money is there")
        executor.delivered(told)
        assert shop.paid == []
        assert run(executor, CALL).content == "paid 1"


@pytest.mark.contract("journal.guard.doubt")
@pytest.mark.parametrize(("found", "paid"), [(True, []), (False, [1]), (None, [])])
def test_the_probe_of_a_tool_can_tell_whether_a_call_has_happened(run, shop, found, paid):
    """Issue: in_doubt is resolved by a person or by a tool's own probe."""
    key = interrupted(shop)
    with returning():
        executor = shop.process(lambda *_: "approved", probe=lambda arguments: found if arguments else None)
        result = run(executor, CALL)
    assert shop.paid == paid
    states = {True: State.DONE, False: State.FAILED, None: State.IN_DOUBT}
    assert executor.journal.record(key).state is states[found]
    assert result.success is (found is not None)


@pytest.mark.contract("journal.guard.idempotent")
def test_an_idempotent_call_that_was_interrupted_runs_again(run, shop):
    """Guard design: retry only for tools declared idempotent."""
    key = interrupted(shop)
    with returning():
        executor = shop.process(policy=Policy([{"action": "allow"}]), idempotent=True)
        assert run(executor, CALL).content == "paid 1"
    assert (shop.paid, states(executor, key)) == ([1], ["executing", "ready", "executing", "done"])


@pytest.mark.contract("journal.guard.doubt")
def test_recovery_tells_what_became_of_the_calls_of_processes_that_are_gone(shop):
    """Issue: recover at start, with the tool's probe."""
    first, second = interrupted(shop), interrupted(shop)
    answers = iter([True, None])
    executor = shop.process(probe=lambda _: next(answers))
    found = {record.key: record.state for record in executor.recover()}
    assert sorted(found.values()) == ["done", "in_doubt"]
    assert set(found) == {first, second}
    assert executor.recover() == []


@pytest.mark.contract("journal.guard.once")
def test_a_ready_call_is_run_by_one_of_many(shop):
    """Issue: at most once, however many workers there are."""
    with returning():
        run_first = shop.process(wait=0.02)
        run_first.execute(CALL)
    record = pending(run_first.journal)
    decide(run_first.journal, record.key, record.facts.question.seal, Approved())
    workers = [shop.process() for _ in range(4)]
    barrier, results = threading.Barrier(4), []

    def work(executor):
        barrier.wait(30)
        try:
            results.append(executor.resume(record.key).content)
        except Exception as error:  # noqa: BLE001 - told below
            results.append(str(error))

    threads = [threading.Thread(target=work, args=[executor]) for executor in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert shop.paid == [1]
    assert sum(result == "paid 1" for result in results) == 1, results
    assert len(results) == 4
    assert states(run_first, record.key) == ["requested", "awaiting", "ready", "executing", "done"]


@pytest.mark.contract("journal.guard.expiry")
def test_nobody_can_decide_after_the_time_is_over(run, shop):
    """Issue: expiry."""
    executor = shop.process(expiry=0.05)
    result = run(executor, CALL)
    assert result.error.startswith("pay was not run: nobody decided until ")
    assert result.metadata["denied_by"] == "timeout"
    (record,) = executor.journal.records()
    assert (record.state, record.facts.ruling.refuser) == (State.DENIED, "timeout")


@pytest.mark.contract("journal.guard.expiry")
def test_an_approval_that_is_used_too_late_is_asked_again(run, shop):
    """Guard design: the seal has an expiry."""
    with returning():
        first = shop.process(wait=0.0, expiry=0.3)
        run(first, CALL)
        record = pending(first.journal)
        decide(first.journal, record.key, record.facts.question.seal, Approved())
        shop.end(first)
        until(lambda: time() > record.facts.expires_at)
        second = shop.process(wait=0.0)
        assert "waits for a person's approval" in run(second, CALL).error
        again = second.journal.record(record.key)
        assert again.facts.question.changes == ("the approval came after it had expired",)
        assert shop.paid == []


@pytest.mark.contract("journal.guard.edited")
def test_edited_arguments_are_asked_about_with_their_own_effect(run, shop):
    """Issue: edited arguments get a fresh effect."""
    asked = []

    def person(_tool, arguments, request):
        asked.append((arguments["amount"], request.effect, request.changes))
        if len(asked) == 1:
            return Modified({"amount": 2}, by="person", shown=request.text())
        return Approved(shown=request.text())

    executor = shop.process(person, effect=lambda arguments: f"would pay {arguments['amount']}")
    result = run(executor, CALL)
    assert asked == [(1, "would pay 1", ()), (2, "would pay 2", ("the arguments were edited",))]
    assert shop.paid == [2]
    assert "A person changed the arguments before approving" in result.content
    assert states(executor) == ["requested", "awaiting", "ready", "awaiting", "ready", "executing", "done"]


@pytest.mark.contract("journal.guard.edited")
def test_another_process_edits_and_approves_what_it_is_shown(run, shop):
    """Issue: another process edits; the edited call gets a fresh effect and a seal of its own."""
    executor = shop.process(effect=lambda arguments: f"would pay {arguments['amount']}")
    problems = []

    def desk():
        try:
            record = pending(executor.journal)
            first = record.facts.question.seal
            edited = executor.edit(record.key, first, {"amount": 3}, by="person at the desk")
            question = edited.facts.question
            assert "would pay 3" in question.text
            assert question.changes == ("the arguments were edited by person at the desk",)
            with pytest.raises(MovedError, match="asked about anew"):
                decide(executor.journal, record.key, first, Approved())
            decide(executor.journal, record.key, question.seal, Approved("person at the desk"))
        except BaseException as error:  # noqa: BLE001 - told below
            problems.append(error)

    thread = threading.Thread(target=desk)
    thread.start()
    result = run(executor, CALL)
    thread.join(60)
    assert problems == []
    assert shop.paid == [3]
    assert "A person changed the arguments before approving" in result.content


def test_a_rule_that_allows_meanwhile_ends_the_waiting(run, shop):
    """People, always allow: who comes back after the rule was written needs no answer any more."""
    with returning():
        first = shop.process(wait=0.02)
        run(first, CALL)
        record = pending(first.journal)
        shop.end(first)
        second = shop.process(policy=Policy([{"action": "allow", "reason": "always"}]))
        result = run(second, CALL)
        # The policy is another than at the question, so that it is put once more, and answered by the rule.
        assert (result.success, shop.paid) == (True, [1])
        assert second.journal.record(record.key).facts.ruling.by == "policy"


@pytest.mark.contract("journal.guard.return")
def test_a_caller_who_goes_away_leaves_its_question_open(shop):
    """Issue: pending approvals outlive the caller."""
    with returning():
        executor = shop.process()

        async def main():
            task = asyncio.create_task(executor.aexecute(CALL))
            while not executor.journal.records([State.AWAITING]):  # noqa: ASYNC110 - in the database
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        record = pending(executor.journal)
        decide(executor.journal, record.key, record.facts.question.seal, Approved())
        assert executor.execute(CALL).content == "paid 1"
    assert shop.paid == [1]


def test_a_caller_who_never_comes_back_withdraws_its_question(shop):
    """Executor: a cancelled call is not run."""
    executor = shop.process()

    async def main():
        task = asyncio.create_task(executor.aexecute(CALL))
        while not executor.journal.records([State.AWAITING]):  # noqa: ASYNC110 - in the database
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert states(executor) == ["requested", "awaiting", "failed"]


@pytest.mark.contract("journal.guard.facts")
def test_a_tool_that_reports_tells_the_journal_where_it_ran(shop):
    """Issue: entries that tell the story."""
    executor = shop.process(lambda *_: "approved", handler=lambda _: 1 / 0)
    executor.execute(CALL)
    (record,) = executor.journal.records()
    assert (record.state, record.facts.failure) == (State.FAILED, "ZeroDivisionError")
    assert record.facts.elapsed_ms > 0
    assert record.facts.size > 0
    assert isinstance(record.facts, Facts)


def test_a_journal_that_cannot_be_read_for_a_while_does_not_end_the_waiting(run, shop, monkeypatch):
    """Issue: PostgreSQL restarted in the middle, a locked database: nothing lost."""
    executor = shop.process()
    read, failures = executor.journal.record, iter([False, True, True])

    def record(key):
        if next(failures, False):
            raise JournalError("the database restarts")
        return read(key)

    monkeypatch.setattr(executor.journal, "record", record)
    with deciding(shop, Approved()):
        assert run(executor, CALL).content == "paid 1"


def test_who_decides_too_late_is_told_so(shop):
    """Issue: expiry; the desk may have looked before."""
    executor = shop.process(wait=0.0, expiry=0.2)
    executor.execute(CALL)
    record = pending(executor.journal)
    until(lambda: time() > record.facts.expires_at)
    with pytest.raises(MovedError, match="after its time was over"):
        decide(executor.journal, record.key, record.facts.question.seal, Approved())


@pytest.mark.parametrize("limits", [{"approval_wait": -1}, {"approval_wait": "soon"}, {"approval_expiry": 0}])
def test_limits_of_an_approval_are_checked(limits):
    """Style: errors say what to try next."""
    with pytest.raises(ExecutionError, match="expected seconds"):
        Executor(Registry(), **limits)


class Unique(Returning):
    """A caller whose call nobody else makes, such as an agent: a twin of it is itself."""

    @property
    def is_unique(self):
        return True


def paying(executor):
    token = enter_call(Unique())
    try:
        return executor.execute(CALL)
    finally:
        leave_call(token)


@pytest.mark.contract("agents.judge.once")
def test_a_unique_call_that_another_process_runs_is_waited_for_and_not_made_again(shop):
    is_paying, may_end = threading.Event(), threading.Event()

    def pay(arguments):
        is_paying.set()
        assert may_end.wait(30)
        return shop.pay(arguments)

    allow = Policy([{"action": "allow", "tools": ["pay"]}])
    one, other = (shop.process(policy=allow, handler=pay) for _ in range(2))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(paying, one)
        assert is_paying.wait(30)
        second = pool.submit(paying, other)
        # It is in the journal by now, or will be found there: nothing tells that it has begun to wait.
        may_end.set()
        assert (first.result(30).content, second.result(30).success) == ("paid 1", True)
    assert second.result().content.endswith("paid 1")
    assert shop.paid == [1]


@pytest.mark.contract("agents.judge.once")
def test_of_many_who_make_a_unique_call_at_once_one_runs_it(shop):
    allow = Policy([{"action": "allow", "tools": ["pay"]}])
    executors = [shop.process(policy=allow) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(paying, executors))
    assert [result.content.splitlines()[-1] for result in results] == ["paid 1"] * 6
    assert shop.paid == [1]


@pytest.mark.contract("agents.judge.once")
def test_of_many_who_ask_about_a_unique_call_none_runs_it_twice(shop):
    executors = [shop.process(lambda *_: "approved", wait=5.0) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(paying, executors))
    assert shop.paid == [1]
    assert any(result.content.splitlines()[-1] == "paid 1" for result in results)
    for result in results:
        assert result.content.endswith("paid 1") or "was not run" in result.content, result.content


@pytest.mark.contract("agents.judge.once")
def test_who_comes_late_to_a_unique_call_gets_its_answer_though_it_was_delivered(shop):
    allow = Policy([{"action": "allow", "tools": ["pay"]}])
    first = shop.process(policy=allow)
    first.delivered(paying(first))
    assert paying(shop.process(policy=allow)).content.endswith("paid 1")
    assert shop.paid == [1]


def test_a_unique_call_that_has_not_happened_after_all_runs(shop):
    def cut(_):
        raise KeyboardInterrupt

    allow = Policy([{"action": "allow", "tools": ["pay"]}])
    first = shop.process(policy=allow, handler=cut)
    with pytest.raises(KeyboardInterrupt):
        paying(first)
    assert first.journal.records()[0].state is State.IN_DOUBT
    assert paying(shop.process(policy=allow, probe=lambda _: False)).content == "paid 1"
    assert shop.paid == [1]
