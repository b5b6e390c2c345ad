"""Observers watch and change nothing; transforms may rewrite, before the policy sees the call."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from gramercy import Executor, Registry, define_tool

PARAMETERS: list[dict[str, Any]] = [
    {"name": "text", "type": "string"},
    {"name": "list", "type": "array", "default": []},
]
CALL = {"id": "call_1", "name": "it", "arguments": {"text": "hi"}}


def executor_with(handler=lambda arguments: arguments["text"], level="safe", **settings):
    return Executor(
        Registry(
            [define_tool("it", "It.", PARAMETERS, required=["text"], safety_level=level, handler=handler)]
        ),
        **settings,
    )


@pytest.mark.parametrize(
    ("handler", "phases"), [(lambda _: "fine", ["before", "after"]), (lambda _: 1 / 0, ["before", "error"])]
)
def test_hooks_see_before_and_after_or_error(run, handler, phases):
    """Seed 002, Observability Hooks."""
    seen: list[Any] = []
    executor = executor_with(handler, hooks=[lambda *given: seen.append(given)])
    result = run(executor, CALL)
    assert [phase for phase, *_ in seen] == phases
    assert all(
        tool.name == "it" and arguments == {"text": "hi", "list": []} for _, tool, arguments, _ in seen
    )
    assert seen[0][3] is None
    assert seen[1][3] == result


def test_hooks_are_not_called_for_calls_that_never_run(run):
    """Seed 002: before means before the handler is invoked."""
    seen: list[Any] = []
    executor = executor_with(level="dangerous", hooks=[lambda *given: seen.append(given)])
    run(executor, CALL)
    run(executor, CALL | {"arguments": {}})
    run(executor, CALL | {"name": "other"})
    assert seen == []


def test_hooks_can_be_added_later_and_are_called_in_order(run):
    """Seed 002: push onto the list of hooks."""
    order: list[Any] = []
    executor = executor_with(hooks=[lambda phase, *_: order.append(("first", phase))])
    executor.hooks.append(lambda phase, *_: order.append(("second", phase)))
    run(executor, CALL)
    assert order == [("first", "before"), ("second", "before"), ("first", "after"), ("second", "after")]


def test_an_observer_can_change_nothing(run):
    """Guard design: observers never change anything."""

    def vandal(_phase, _tool, arguments, result):
        arguments["text"] = "vandalised"
        arguments["list"].append("vandalised")
        arguments.pop("text")
        if result is not None:
            result.metadata.clear()
            with pytest.raises(AttributeError):
                result.content = "vandalised"
        return {"text": "vandalised"}

    later: list[Any] = []
    executor = executor_with(repr, hooks=[vandal, lambda *given: later.append(given[2:])])
    for _ in range(2):
        result = run(executor, CALL)
        assert result.content == "{'text': 'hi', 'list': []}"
        assert result.metadata["safety_level"] == "safe"
    assert all(arguments == {"text": "hi", "list": []} for arguments, _ in later)
    assert later[-1][1].metadata["safety_level"] == "safe"


class Odd(BaseException):
    """Not an Exception."""


@pytest.mark.parametrize(
    "error", [ValueError("broken"), Odd("odd"), SystemExit(2), asyncio.CancelledError(), GeneratorExit()]
)
@pytest.mark.parametrize("level", ["safe", "cautious"])
def test_a_failing_observer_never_fails_a_call(run, error, level, caplog):
    """Guard design: a failing observer never fails a call."""

    def hook(*_):
        raise error

    others: list[Any] = []
    executor = executor_with(level=level, hooks=[hook, lambda phase, *_: others.append(phase)])
    for _ in range(2):
        assert run(executor, CALL).content == "hi"
    assert others == ["before", "after"] * 2
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 4
    assert "failed in phase before" in warnings[0]
    assert type(error).__name__ in warnings[0]


@pytest.mark.usefixtures("no_workers_left")
def test_a_hanging_observer_never_holds_a_call(run):
    """Guard design: a hook has its own deadline."""
    release = threading.Event()
    executor = executor_with(hooks=[lambda *_: release.wait(30)], hook_deadline=0.02)
    assert run(executor, CALL).content == "hi"
    release.set()


def test_an_observer_that_turns_out_to_be_async_is_reported(run, caplog):
    """A hook appended later is not checked until it is called."""

    async def hook(*_):
        raise AssertionError("never run")

    executor = executor_with()
    executor.hooks.append(hook)
    for _ in range(2):
        assert run(executor, CALL).content == "hi"
    assert "is async and was not run" in caplog.text


def test_a_keyboard_interrupt_in_an_observer_passes_and_is_recorded():
    """Style: the person at the keyboard is always heard."""

    def hook(*_):
        raise KeyboardInterrupt

    for warm in (False, True):
        executor = executor_with()
        if warm:
            executor.execute(CALL)
        executor.hooks.append(hook)
        with pytest.raises(KeyboardInterrupt):
            executor.execute(CALL)
        assert executor.journal.entries()[-1].detail == "cancelled by the caller"


def test_transforms_rewrite_arguments_in_order_and_are_checked(run):
    """Guard design: transforms are the only hooks that may change arguments; validate again."""
    executor = executor_with(
        transforms=[
            lambda _tool, arguments: arguments | {"text": arguments["text"] + "!"},
            lambda _tool, _arguments: None,
            lambda tool, arguments: {"text": f"{tool.name} {arguments['text']}"},
        ]
    )
    assert run(executor, CALL).content == "it hi!"


def test_a_transform_that_changes_its_copy_and_returns_nothing_changes_nothing(run):
    """None means: leave them."""

    def transform(_tool, arguments):
        arguments["text"] = "changed"
        arguments["list"].append(1)

    executor = executor_with(lambda a: f"{a['text']}{a['list']}", transforms=[transform])
    assert run(executor, CALL).content == "hi[]"


def test_what_a_transform_keeps_is_not_what_runs(run):
    """Guard design: the arguments of a call belong to the call."""
    kept: dict[str, Any] = {"text": "kept", "list": [1]}

    def hook(*_):
        kept["list"].append(2)
        kept["text"] = "changed"

    executor = executor_with(lambda a: f"{a['text']}{a['list']}", transforms=[lambda *_: kept], hooks=[hook])
    assert run(executor, CALL).content == "kept[1]"


@pytest.mark.parametrize(
    ("transform", "text"),
    [
        (
            lambda *_: {"text": 5},
            "gave arguments that do not fit; the tool was not run. Invalid arguments for it",
        ),
        (lambda *_: {}, "gave arguments that do not fit"),
        (lambda *_: [1], "gave arguments that do not fit"),
        (lambda *_: "text", "gave arguments that do not fit"),
        (lambda *_: {"text": "a", "list": [object()]}, "gave arguments that do not fit"),
        (lambda *_: 1 / 0, "failed: division by zero (ZeroDivisionError); the tool was not run"),
        (dict, "failed: "),
    ],
)
def test_a_failing_transform_fails_the_call_before_anything_runs(run, transform, text):
    """Guard design: transforms come before policy and approval."""
    ran: list[Any] = []
    executor = executor_with(
        ran.append, "dangerous", approval_handler=lambda *_: ran.append(1), transforms=[transform]
    )
    result = run(executor, CALL)
    assert result.success is False
    assert text in result.error
    assert ran == []
    assert executor.metrics()["it"].failed == 1


@pytest.mark.parametrize("error", [SystemExit(), Odd(), GeneratorExit(), asyncio.CancelledError()])
def test_whatever_a_transform_raises_stays_inside(run, error):
    """Seed 002, Invariant 5."""

    def transform(*_):
        raise error

    assert "the tool was not run" in run(executor_with(transforms=[transform]), CALL).error


@pytest.mark.usefixtures("no_workers_left")
def test_a_hanging_transform_fails_the_call_in_time(run):
    """Style: never a hang."""
    release = threading.Event()
    executor = executor_with(transforms=[lambda *_: release.wait(30)], hook_deadline=0.02)
    result = run(executor, CALL)
    assert "did not finish within 0.02 s; the tool was not run" in result.error
    release.set()
