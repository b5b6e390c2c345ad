"""One call through the executor: order, texts, metadata, and whatever a handler may do."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest

from gramercy import Executor, Policy, Registry, Safety, ToolOutput, define_tool
from gramercy.errors import ExecutionError, InvalidPolicyError, UnknownToolError
from gramercy.journal.base import NOTHING, State
from gramercy.journal.memory import MemoryJournal

TEXT: list[dict[str, Any]] = [{"name": "text", "type": "string"}]


def make(handler, name="it", level="safe", parameters=TEXT, **options):
    return define_tool(name, "It.", parameters, safety_level=level, handler=handler, **options)


def call(name="it", **arguments):
    return {"id": "call_1", "name": name, "arguments": arguments}


def answer_to(run, handler, level="safe", **settings):
    return run(Executor(Registry([make(handler, level=level)]), **settings), call(text="hi"))


def test_a_successful_call_has_content_and_no_error(run):
    """Seed 002, Tool Result Structure; decision 5."""
    result = answer_to(run, lambda arguments: f"got {arguments['text']}")
    assert (result.id, result.success, result.content, result.error) == ("call_1", True, "got hi", None)
    assert set(result.metadata) == {"execution_time_ms", "safety_level"}
    assert result.metadata["safety_level"] == "safe"
    assert isinstance(result.metadata["execution_time_ms"], float)


def test_an_exception_becomes_the_text_of_the_contract(run):
    """Seed 002, Handler Errors: Tool error: ~A."""

    def handle(_):
        raise ValueError("Symbol XYZ not found")

    result = answer_to(run, handle)
    assert (result.success, result.error) == (False, "Tool error: Symbol XYZ not found")
    assert result.content == result.error
    assert "execution_time_ms" in result.metadata


class Odd(BaseException):
    """An exception that `except Exception` does not catch."""


class MuteError(Exception):
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Odd("strange"), "Tool error: strange"),
        (SystemExit(3), "Tool error: 3 (SystemExit)"),
        (asyncio.CancelledError("by itself"), "Tool error: by itself"),
        (KeyError("name"), "Tool error: 'name' (KeyError)"),
        (StopIteration(4), "StopIteration"),
        (StopAsyncIteration(), "StopAsyncIteration"),
        (MuteError(), "Tool error: MuteError"),
        (ExceptionGroup("several", [ValueError("a")]), "Tool error: several (1 sub-exception)"),
        (RecursionError("too deep"), "Tool error: too deep"),
        (MemoryError(), "Tool error: MemoryError"),
        (ValueError("x" * 100_000), "x…"),
        (ValueError("half \ud800"), "Tool error: half \ufffd"),
        (UnknownToolError("inner"), "Tool error: Unknown tool: inner"),
        (TimeoutError("its own"), "Tool error: its own"),
    ],
)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_whatever_a_handler_raises_becomes_a_failed_result(run, error, text, asynchronous):
    """Seed 002, Invariant 5: errors never propagate beyond the executor."""

    def handle(_):
        raise error

    async def handle_async(_):
        raise error

    result = answer_to(run, handle_async if asynchronous else handle)
    assert result.success is False
    assert text in result.content
    assert result.error == result.content
    assert len(result.content) < 5_000
    result.content.encode()


def test_a_plain_handler_that_raises_generator_exit_has_failed(run):
    """Seed 002, Invariant 5. (Of a coroutine it cannot be told from its being closed.)"""

    def handle(_):
        raise GeneratorExit

    for settings in ({}, {"deadline": 10}):
        assert "GeneratorExit" in answer_to(run, handle, **settings).error


def test_a_keyboard_interrupt_on_the_main_thread_passes():
    """Style: cancellation always passes; only the person at the keyboard ends the program."""

    def handle(_):
        raise KeyboardInterrupt

    executor = Executor(Registry([make(handle, level="cautious")]))
    with pytest.raises(KeyboardInterrupt):
        executor.execute(call(text="hi"))
    assert [entry.state for entry in executor.journal.entries()] == [State.EXECUTING, State.IN_DOUBT]


def test_a_keyboard_interrupt_raised_on_another_thread_is_the_handlers_own():
    """Ctrl-C reaches the main thread only."""

    def handle(_):
        raise KeyboardInterrupt

    executor = Executor(Registry([make(handle)]), deadline=10)
    assert "the code raised KeyboardInterrupt" in executor.execute(call(text="hi")).content
    results = Executor(Registry([make(handle)])).execute_tool_calls([call(text="a"), call(text="b")])
    assert [result.success for result in results] == [False, False]


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", "text"),
        (None, "nil"),
        ([1, "a"], '(1 "a")'),
        ({"a": 1}, '{"a": 1}'),
        (42, "42"),
        (ToolOutput("fine"), "fine"),
        (ToolOutput([1]), "(1)"),
        (ToolOutput("fine", error=""), "fine"),
    ],
)
def test_values_are_formatted(run, value, content):
    """Seed 002, Result Formatting; decision 7."""
    result = answer_to(run, lambda _: value)
    assert (result.success, result.content, result.error) == (True, content, None)


@pytest.mark.parametrize(
    ("output", "content", "error"),
    [
        (ToolOutput(None, error="no luck"), "no luck", "no luck"),
        (ToolOutput("half done", error="no luck"), "half done\nno luck", "no luck"),
        (ToolOutput(1, error=cast("Any", ValueError("bad"))), "1\nbad (ValueError)", "bad (ValueError)"),
        (ToolOutput("x", error=cast("Any", ["a"])), 'x\n("a")', '("a")'),
    ],
)
def test_a_value_may_come_with_an_error(run, output, content, error):
    """Seed 000, Handler Function Contract: (values result error-msg)."""
    result = answer_to(run, lambda _: output)
    assert (result.success, result.content, result.error) == (False, content, error)


def test_a_plain_function_may_return_a_coroutine(run):
    """A lambda around an async function is still an async tool."""

    async def work():
        await asyncio.sleep(0)
        return "awaited"

    for settings in ({}, {"deadline": 10}):
        assert answer_to(run, lambda _: work(), **settings).content == "awaited"
    inline = make(lambda _: work(), inline=True)
    assert run(Executor(Registry([inline])), call(text="hi")).content == "awaited"


def test_an_inline_tool_that_returns_a_coroutine_is_awaited_on_the_callers_own_loop():
    """Aexecute must not block the loop on which the coroutine wants to run."""

    async def main():
        loop = asyncio.get_running_loop()

        async def work():
            return str(asyncio.get_running_loop() is loop)

        executor = Executor(Registry([make(lambda _: work(), inline=True)]))
        return await asyncio.wait_for(executor.aexecute(call(text="hi")), 10)

    assert asyncio.run(main()).content == "True"


def test_generators_and_other_objects_are_shown_not_run(run):
    """Decision 7: other objects as their printed form."""

    def handle(_):
        return (1 / 0 for _ in range(3))

    assert answer_to(run, handle).content.startswith("<generator object")


class Deadly:
    """Its printer tries to end the program."""

    def __repr__(self):
        raise SystemExit


class DeadlyTuple(tuple[Any, ...]):
    __slots__ = ()

    def __iter__(self):
        raise GeneratorExit


@pytest.mark.parametrize(
    "value", [Deadly(), [Deadly()], {"a": Deadly()}, DeadlyTuple(), ToolOutput(Deadly(), "e")]
)
def test_a_result_that_fights_back_becomes_a_failed_result(run, value):
    """Seed 002, Invariant 5."""
    result = answer_to(run, lambda _: value)
    assert result.success is False
    assert "the result cannot be shown" in result.content


def test_long_output_is_cut_and_the_cut_is_announced(run):
    """Guard design: format, cap."""
    result = answer_to(run, lambda _: "x" * 5_000, max_output=100)
    assert result.content == "x" * 100 + "\n… [output cut: 100 of 5,000 characters shown]"
    assert answer_to(run, lambda _: "x" * 100, max_output=100).content == "x" * 100
    assert len(answer_to(run, lambda _: list(range(100_000))).content) < 101_000


def test_lone_surrogates_in_a_result_are_replaced(run):
    """No wire can carry them; pairs of them are one character."""
    assert answer_to(run, lambda _: "a\ud83d\ude00 \ud800").content == "a😀 \ufffd"


def test_the_handler_gets_arguments_that_are_its_own(run):
    """Guard design: the arguments of a call are shared with no one."""
    given = {"list": [1, {"a": 2}], "text": "hi"}
    seen: list[Any] = []

    def handle(arguments):
        seen.append(repr(arguments))
        arguments["list"][1]["a"] = 99
        arguments.clear()
        return "done"

    parameters = [*TEXT, {"name": "list", "type": "array"}, {"name": "extra", "type": "array", "default": []}]
    phases = []
    executor = Executor(
        Registry([make(handle, parameters=parameters)]),
        hooks=[lambda phase, _tool, arguments, _result: phases.append((phase, repr(arguments)))],
    )
    for _ in range(2):
        run(executor, {"id": "1", "name": "it", "arguments": given})
    assert given == {"list": [1, {"a": 2}], "text": "hi"}
    assert len(set(seen)) == 1
    assert {text for _, text in phases} == set(seen)


def test_an_unknown_tool_is_answered(run):
    """Seed 002, Unknown Tool."""
    executor = Executor(Registry([make(str, "describe_symbol"), make(str, "write_file", "dangerous")]))
    result = run(executor, call("describe_simbol"))
    assert result.error == "Unknown tool: describe_simbol"
    assert result.content == "Unknown tool: describe_simbol\nDid you mean describe_symbol?"
    assert (result.success, result.metadata) == (False, {})


def test_either_spelling_of_a_name_is_understood(run):
    """Decision 4: a call may use either spelling."""
    assert run(Executor(Registry([make(lambda _: "read", "read_file")])), call("read-file")).content == "read"


def test_wrong_arguments_never_reach_the_handler(run):
    """Guard design: validate before anything else."""
    ran: list[Any] = []
    result = answer_to(run, ran.append)
    assert result.success
    executor = Executor(Registry([make(ran.append)]), lambda *_: ran.append("asked"))
    result = run(executor, call(text=5))
    assert result.content.startswith("Invalid arguments for it (1 fault):\n- text: expected string")
    assert len(ran) == 1
    assert result.metadata == {"safety_level": "safe"}


def test_the_order_of_one_call_is_the_designs(run):
    """Guard design, Order of one call."""
    order: list[Any] = []

    class Journal(MemoryJournal):
        def begin(self, call, state=State.REQUESTED, facts=NOTHING):
            order.extend(["journal requested", f"journal {state.value}"])
            return super().begin(call, state, facts)

        def move(self, key, state, *facts, **expected):
            order.append(f"journal {state.value}")
            super().move(key, state, *facts, **expected)

        def claim(self, *facts):
            order.append("journal executing")
            return super().claim(*facts)

    def look(_):
        order.append("look at target")

    def handle(_):
        order.append("handler")
        return "done"

    def transform(_tool, arguments):
        order.append(f"transform {arguments['text']}")
        return {"text": "changed"}

    def approve(_tool, arguments):
        order.append(f"approve {arguments['text']}")
        return "approved"

    executor = Executor(
        Registry([make(handle, level="dangerous", target_state=look)]),
        approve,
        [lambda phase, *_: order.append(f"hook {phase}")],
        transforms=[transform],
        journal=Journal(),
    )
    assert run(executor, call(text="hi")).content == "done"
    assert order == [
        "transform hi",
        "look at target",
        "journal requested",
        "journal awaiting",
        "approve changed",
        "journal ready",
        "look at target",
        "journal executing",
        "hook before",
        "handler",
        "journal done",
        "hook after",
    ]


@pytest.mark.contract("decision.17.arguments", "decision.17.masked")
def test_cautious_tools_run_and_are_logged_with_their_arguments(run, caplog):
    """Decision 17, as log-tool-execution says; those of dangerous tools were shown to a person."""
    caplog.set_level(logging.DEBUG)
    result = answer_to(run, lambda arguments: arguments["text"], level="cautious")
    assert result.content == "hi"
    messages = [record.getMessage() for record in caplog.records if record.name == "gramercy.audit"]
    assert messages == ["""cautious tool it runs as call 'call_1' with {"text":"hi"}"""]
    caplog.clear()
    secret = call(text="password = 'hunter2'; " + "x" * 5_000)
    run(Executor(Registry([make(lambda _: "", level="cautious")])), secret)
    assert "password = '…'; xxx" in caplog.text
    assert "hunter2" not in caplog.text
    assert len(caplog.text) < 700
    caplog.clear()
    executor = Executor(Registry([make(lambda _: 1 / 0, level="dangerous")]), lambda *_: "approved")
    run(executor, {"id": "forged\nline", "name": "it", "arguments": {"text": "SECRET"}})
    assert "SECRET" not in caplog.text
    assert r"runs as call 'forged\nline'" in caplog.text


def test_safe_tools_are_not_logged(run, caplog):
    """Seed 002: safe executes immediately."""
    caplog.set_level(logging.DEBUG)
    answer_to(run, lambda _: "x")
    assert [record for record in caplog.records if record.name.startswith("gramercy")] == []


def test_a_denied_call_names_the_rule(run):
    """Guard design, Policy: why."""
    policy = Policy([{"action": "deny", "tools": ["it"], "reason": "not today"}])
    ran: list[Any] = []
    executor = Executor(Registry([make(ran.append)]), policy=policy)
    result = run(executor, call(text="hi"))
    assert result.error.startswith("The policy denies it: rule 1 says deny (not today)")
    assert (ran, result.metadata) == ([], {"safety_level": "safe", "denied": True, "denied_by": "rule"})
    assert executor.why("it", {"text": "hi"}).rule is policy.rules[0]
    assert [entry.state for entry in executor.journal.entries()] == [State.REQUESTED, State.DENIED]


def test_why_reads_arguments_like_a_call_does():
    """Guard design: why(tool, arguments)."""
    executor = Executor(Registry([make(str, "write_file", "dangerous")]))
    assert executor.why("write-file", '{"text": "a"}').action == "ask"
    with pytest.raises(UnknownToolError):
        executor.why("nothing", {})


def test_a_ceiling_hides_and_refuses_and_no_policy_lifts_it(run):
    """Guard design, Policy: max_safety_level."""
    registry = Registry([make(str, "a"), make(str, "b", "cautious"), make(str, "c", "dangerous")])
    executor = Executor(registry, lambda *_: "approved", max_safety_level="cautious")
    assert [tool.name for tool in executor.tools()] == ["a", "b"]
    assert "above the ceiling cautious" in run(executor, call("c", text="x")).content
    executor.policy = Policy([{"action": "allow"}])
    assert executor.policy.max_safety_level is Safety.CAUTIOUS
    assert "above the ceiling cautious" in run(executor, call("c", text="x")).content
    executor.policy = Policy([], "safe")
    assert [tool.name for tool in executor.tools()] == ["a"]
    with pytest.raises(InvalidPolicyError, match="a policy must be a Policy, not list"):
        executor.policy = cast("Any", [{"action": "allow"}])


@pytest.mark.parametrize(
    "settings",
    [
        {"deadline": 0},
        {"deadline": -1},
        {"deadline": "1"},
        {"deadline": float("inf")},
        {"deadline": float("nan")},
        {"approval_deadline": True},
        {"hook_deadline": 0},
        {"max_output": 0},
        {"max_output": 1.5},
        {"max_output": None},
        {"approval_handler": "yes"},
        {"hooks": ["not callable"]},
        {"transforms": [None]},
    ],
)
def test_settings_that_would_fail_in_the_middle_of_a_call_are_refused_at_once(settings):
    """Errors say what to try, when they can still be repaired."""
    with pytest.raises(ExecutionError, match=r"expected|must be"):
        Executor(Registry(), **settings)


def test_async_hooks_and_transforms_are_refused():
    """Observers and transforms are plain functions."""

    async def wait(*_):
        return None

    hook: Any = wait

    with pytest.raises(ExecutionError, match=r"a hook must be a plain function, not .*wait"):
        Executor(Registry(), hooks=[hook])
    with pytest.raises(ExecutionError, match="a transform must be a plain function"):
        Executor(Registry(), transforms=[hook])
