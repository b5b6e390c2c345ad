"""An approval is good for what the person saw, and for nothing else."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import pytest

from gramercy import Executor, Policy, Registry, define_tool
from gramercy.execution.gate import MOST_QUESTIONS
from gramercy.execution.seal import Seal, fingerprint, seal_call

PATH: list[dict[str, Any]] = [{"name": "path", "type": "string"}]
TARGET = "what the call acts on has changed"


def write(arguments):
    return f"wrote {arguments['path']}"


def make(handler=write, **options):
    return define_tool("write_file", "Write.", PATH, safety_level="dangerous", handler=handler, **options)


CALL = {"id": "call_1", "name": "write_file", "arguments": {"path": "a.txt"}}


class Approver:
    """Says yes every time, notes why it was asked, and lets something happen before each answer."""

    def __init__(self, *happenings):
        self.happenings = list(happenings)
        self.changes = []
        self.requests = []

    def __call__(self, _tool, _arguments, request):
        self.changes.append(request.changes)
        self.requests.append(request)
        if self.happenings:
            self.happenings.pop(0)()
        return "approved"


def test_a_target_that_changes_while_the_person_looks_is_shown_again(run):
    """Guard design, Approval: any drift at dispatch is asked again, showing what changed."""
    state = {"a.txt": "old"}
    approver = Approver(lambda: state.update({"a.txt": "new"}))
    executor = Executor(Registry([make(target_state=lambda arguments: state[arguments["path"]])]), approver)
    result = run(executor, CALL)
    assert (result.success, approver.changes) == (True, [(), (TARGET,)])
    assert [entry.state.value for entry in executor.journal.entries()] == [
        "requested",
        "awaiting",
        "ready",
        "awaiting",
        "ready",
        "executing",
        "done",
    ]
    assert executor.journal.entries()[3].detail == TARGET
    figures = executor.metrics()["write_file"]
    assert figures.mean_approval_wait_ms * 2 == pytest.approx(result.metadata["approval_wait_ms"])


def test_a_target_that_never_rests_is_refused_after_a_bounded_number_of_questions(run):
    """Guard design: never an endless loop of questions."""
    counter = iter(range(1_000))
    ran: list[Any] = []
    approver = Approver()
    executor = Executor(Registry([make(ran.append, target_state=lambda _: next(counter))]), approver)
    result = run(executor, CALL)
    assert result.error == f"write_file was not run: {TARGET} while it was being approved"
    assert (ran, len(approver.changes)) == ([], MOST_QUESTIONS)
    assert result.metadata["approved"] is False


def test_a_tool_that_is_registered_again_is_shown_again_and_the_new_one_runs(run):
    """Guard design: the seal covers the implementation."""
    registry = Registry([make()])
    approver = Approver(lambda: registry.register(make(lambda _: "new code")))
    result = run(Executor(registry, approver), CALL)
    assert result.content == "new code"
    assert approver.changes == [(), ("the tool's implementation has changed",)]
    assert approver.requests[1].tool is registry.get("write_file")


def test_a_tool_that_changes_its_schema_checks_the_arguments_again(run):
    """Guard design: what runs fits the schema of what runs."""
    parameters = [*PATH, {"name": "mode", "type": "string", "default": "append"}]
    ran: list[Any] = []
    changed = define_tool("write_file", "W.", parameters, safety_level="dangerous", handler=ran.append)
    registry = Registry([make()])
    approver = Approver(lambda: registry.register(changed))
    assert run(Executor(registry, approver), CALL).success
    assert ran == [{"path": "a.txt", "mode": "append"}]
    assert approver.requests[1].arguments == {"path": "a.txt", "mode": "append"}
    numbers = define_tool("write_file", "W.", [{"name": "path", "type": "integer"}], handler=ran.append)
    registry = Registry([make()])
    result = run(Executor(registry, Approver(lambda: registry.register(numbers))), CALL)
    assert result.error.startswith("the tool changed while it was being approved. Invalid arguments")
    assert len(ran) == 1


def test_code_that_is_swapped_inside_the_handler_is_noticed(run):
    """Guard design: implementation fingerprint, not only identity."""

    def handler(arguments):
        return f"harmless {arguments['path']}"

    def swap():
        handler.__code__ = (lambda _: "harmful").__code__

    approver = Approver(swap)
    result = run(Executor(Registry([make(handler)]), approver), CALL)
    assert approver.changes == [(), ("the tool's implementation has changed",)]
    assert result.content == "harmful"


def test_a_policy_that_changes_is_asked_again_or_obeyed(run):
    """Guard design: the seal covers the policy version; deny always wins."""
    executor = Executor(Registry([make()]))
    approver = Approver(lambda: setattr(executor, "policy", Policy([{"action": "ask", "reason": "new"}])))
    assert run(executor.with_approver(approver), CALL).success
    assert approver.changes == [(), ("the policy has changed",)]
    assert "new" in approver.requests[1].verdict.explanation
    denying = Approver(lambda: setattr(executor, "policy", Policy([{"action": "deny"}])))
    result = run(executor.with_approver(denying), CALL)
    assert result.error.startswith("write_file was not run: the policy now denies it: rule 1 says deny")


def test_several_changes_are_told_together(run):
    """Guard design: showing what changed."""
    state = [1]
    registry = Registry()
    registry.register(make(target_state=lambda _: state[0]))
    executor = Executor(registry)

    def everything():
        state[0] = 2
        executor.policy = Policy([{"action": "ask"}])
        registry.register(make(lambda _: "other", target_state=lambda _: state[0]))

    approver = Approver(everything)
    assert run(executor.with_approver(approver), CALL).content == "other"
    assert approver.changes[1] == ("the tool's implementation has changed", "the policy has changed", TARGET)


@pytest.mark.parametrize("error", [OSError("gone"), SystemExit(), GeneratorExit(), asyncio.CancelledError()])
def test_a_target_whose_state_cannot_be_told_is_not_touched(run, error):
    """Guard design: no approval without knowing what is approved."""
    ran: list[Any] = []

    def look(_):
        raise error

    executor = Executor(Registry([make(ran.append, target_state=look)]), lambda *_: "approved")
    result = run(executor, CALL)
    assert "write_file was not run: the state of its target cannot be told" in result.error
    assert ran == []


@pytest.mark.usefixtures("no_workers_left")
def test_the_look_at_a_target_may_be_async_and_has_the_tools_deadline(run):
    """Style: never a hang."""
    states = iter(["old", "old"])

    async def look(_):
        await asyncio.sleep(0)
        return next(states)

    assert run(Executor(Registry([make(target_state=look)]), lambda *_: "approved"), CALL).success
    release = threading.Event()
    slow = make(target_state=lambda _: release.wait(30), deadline=0.05)
    result = run(Executor(Registry([slow]), lambda *_: "approved"), CALL)
    assert "the look at its target did not finish within 0.05 s" in result.error
    release.set()


def test_who_looks_at_a_target_cannot_change_the_call(run):
    """Guard design: only transforms change arguments."""
    seen: list[Any] = []

    def look(arguments):
        arguments["path"] = "changed"

    executor = Executor(Registry([make(seen.append, target_state=look)]), lambda *_: "approved")
    run(executor, CALL)
    assert seen == [{"path": "a.txt"}]


def test_every_part_of_a_seal_matters():
    """Guard design: digest over tool, implementation, arguments, policy and target."""
    tool = make()
    first = seal_call(tool, {"path": "a"}, "v1", state="s")
    assert first.drift(seal_call(tool, {"path": "a"}, "v1", state="s")) == []
    others = [
        seal_call(make(write, deadline=1).with_safety("safe"), {"path": "a"}, "v1", state="s"),
        seal_call(make(lambda a: a), {"path": "a"}, "v1", state="s"),
        seal_call(tool, {"path": "b"}, "v1", state="s"),
        seal_call(tool, {"path": "a"}, "v2", state="s"),
        seal_call(tool, {"path": "a"}, "v1", state="t"),
        seal_call(tool, {"path": "a"}, "v1", state=None),
    ]
    assert [len(first.drift(other)) for other in others] == [1] * 6
    assert len({seal.digest for seal in [first, *others]}) == 7


def test_an_expired_seal_has_drifted():
    """Guard design: expiry."""
    tool = make()
    expired = seal_call(tool, {}, "v", lifetime=-1)
    assert expired.drift(seal_call(tool, {}, "v")) == ["the approval came after it had expired"]


def test_implementations_are_told_apart_by_what_they_would_do():
    """Guard design: implementation fingerprint."""

    def one(arguments, *, mode="a"):
        return arguments, mode

    class Tool:
        def __call__(self, _arguments):
            return 1

        def method(self, _arguments):
            return 2

    made = Tool()
    method = made.method
    partial = functools.partial(one, mode="b")
    everything = [one, made, method, partial, len, Tool]
    before = [fingerprint(function) for function in everything]
    assert before == [fingerprint(function) for function in everything]
    assert len(set(before)) == len(everything)
    one.__kwdefaults__ = {"mode": "z"}
    Tool.__call__ = Tool.method  # type: ignore[method-assign]  # on purpose
    changed = [fingerprint(function) for function in everything]
    assert [a != b for a, b in zip(before, changed, strict=True)] == [True, True, False, True, False, False]


PROGRAM = """
import functools
from gramercy import define_tool
from gramercy.execution.seal import seal_call

class Shelf:
    def __call__(self, arguments):
        return arguments["path"] in {"a", "b", "c", "d"}

def write(arguments, *, mode="a", marks=frozenset({"x", "y", "z"}), key=object()):
    return [one for one in arguments if one in {"a", "b", "c", "d"}]

for handler in (write, Shelf(), functools.partial(write, mode="b"), len):
    tool = define_tool("write_file", "W.", [{"name": "path", "type": "string"}],
                       safety_level="dangerous", handler=handler)
    print(seal_call(tool, {"path": "a"}, "v1", state={"mode": {"r", "w", "x"}, "at": (1, None)}).digest)
"""


def test_a_seal_is_the_same_in_another_process():
    """Issue: what was approved before a restart is told from what was not by the same seal."""
    found = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        told = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        found.append(told.stdout.split())
    assert found[0] == found[1]
    assert len(set(found[0])) == 4


def test_a_seal_is_read_from_its_parts():
    """Issue: the caller who comes back can tell what has changed."""
    tool = make()
    sealed = replace(
        seal_call(tool, {"path": "a"}, "v1", state="s").with_shown("text"), question="q", expiry="9"
    )
    read = Seal.read(sealed.parts)
    assert (read.digest, read.drift(sealed)) == (sealed.digest, [])
    assert read.drift(seal_call(tool, {"path": "a"}, "v1", state="t")) == [TARGET]
    for part in sealed.parts:
        assert Seal.read({**sealed.parts, part: "forged"}).digest != sealed.digest


def test_a_function_that_is_made_again_is_another_one_in_this_process():
    """Guard design: the code stops at the function; the object that does the work is known by itself."""

    def factory(text):
        return lambda _: text

    tools = [make(factory(text)) for text in ("harmless", "harmful")]
    first, second = (seal_call(tool, {}, "v") for tool in tools)
    assert first.drift(second) == ["the tool's implementation has changed"]
    assert Seal.read(first.parts).drift(second) == []
