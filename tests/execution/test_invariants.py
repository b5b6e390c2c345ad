"""The five invariants of the execution contract, whatever handlers, hooks, transforms and approvers do."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gramercy import Approved, Denied, Executor, Modified, Policy, Registry, ToolOutput, define_tool
from gramercy.journal.base import FINAL

# A handler that hangs waits for this; it is set when a case is over, so that nothing is left behind.
TINY = 0.01
PARAMETERS: list[Any] = [
    {"name": "path", "type": "string"},
    {"name": "lines", "type": "array", "items": {"type": "string"}},
    {"name": "n", "type": "integer", "default": 1},
]


class Odd(BaseException):
    """Not an Exception."""


class Mute:
    def __repr__(self):
        raise Odd


ERRORS = st.sampled_from([
    ValueError("bad"), Odd("odd"), SystemExit(1), asyncio.CancelledError(), StopIteration(), RecursionError(),
    ExceptionGroup("group", [OSError()]), TimeoutError("own"), MemoryError(), AssertionError(),
])  # fmt: skip
ARGUMENTS: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"path": st.sampled_from(["a", "b/c", "/etc/passwd", "é", ""])},
    optional={
        "lines": st.lists(st.text(max_size=3), max_size=2),
        "n": st.integers(0, 3),
        "extra": st.just(1),
    },
) | st.sampled_from([{}, {"path": 5}, None, [], "{", '{"path": "json"}', {"path": "\ud800"}, {1: 2}])
VALUES = st.sampled_from([
    "text", "", None, [1, "a"], {"a": 1}, 3.5, Mute(), [Mute()], ToolOutput("v", "e"), ToolOutput(None, ""),
    "x" * 500, "\ud800", object(), iter(()),
])  # fmt: skip
ANSWERS = st.sampled_from(
    ["approved", "denied", "nonsense", None, Approved("Ann"), Denied("no"), Mute(), True]
)
EDITS = ARGUMENTS.map(Modified) | ARGUMENTS.map(lambda arguments: ("modified", arguments))

# What a piece of code does when it is called: give a value, raise, hang, or vandalise what it was given.
DEEDS = st.one_of(
    VALUES.map(lambda value: ("return", value)),
    ERRORS.map(lambda error: ("raise", error)),
    st.just(("hang", None)),
    st.just(("vandalise", None)),
)


class Case:
    """One generated situation: an executor made of code that misbehaves, and what is known of its runs."""

    def __init__(self, deed, answers, transforms, hooks, *, level, policy):  # noqa: PLR0913 - as drawn
        self.release = threading.Event()
        self.approved, self.ran = [], []
        self.answers = list(answers)
        tool = define_tool(
            "it",
            "It.",
            PARAMETERS,
            required=["path"],
            safety_level=level,
            handler=self.handler(deed),
            deadline=TINY,
        )
        self.executor = Executor(
            Registry([tool]),
            self.approve,
            [self.code(hook) for hook in hooks],
            transforms=[self.code(transform) for transform in transforms],
            policy=policy,
            approval_deadline=30,
            hook_deadline=TINY,
            max_output=200,
        )

    def code(self, deed):
        kind, detail = deed

        def act(*given):
            if kind == "raise":
                raise detail
            if kind == "hang":
                self.release.wait(30)
            if kind == "vandalise":
                for thing in given:
                    if isinstance(thing, dict):
                        thing.clear()
                        thing["path"] = "vandalised"
            return detail

        return act

    def handler(self, deed):
        *_, asynchronous = deed
        act = self.code(deed[:2])

        def handle(arguments):
            self.ran.append(repr(arguments))
            return act(arguments)

        async def handle_async(arguments):
            self.ran.append(repr(arguments))
            if deed[0] == "hang":
                await asyncio.sleep(30)
            return act(arguments)

        return handle_async if asynchronous else handle

    def approve(self, tool, arguments):
        answer = self.answers.pop(0) if self.answers else "denied"
        if isinstance(answer, BaseException):
            raise answer
        shown = repr(arguments)
        arguments.clear()
        if answer in ("approved", Approved("Ann")):
            self.approved.append(shown)
        elif isinstance(answer, Modified | tuple):
            given = answer.arguments if isinstance(answer, Modified) else answer[1]
            with suppress(Exception):  # an edit that does not fit must not run at all
                self.approved.append(repr(tool.checker.check(given)))
        return answer


CASES = st.builds(
    Case,
    st.tuples(DEEDS, st.booleans()).map(lambda pair: (*pair[0], pair[1])),
    st.lists(ANSWERS | EDITS | ERRORS, max_size=3),
    st.lists(DEEDS | ARGUMENTS.map(lambda arguments: ("return", arguments)), max_size=2),
    st.lists(DEEDS, max_size=2),
    level=st.sampled_from(["safe", "cautious", "dangerous"]),
    policy=st.sampled_from(
        [
            Policy(),
            Policy([{"action": "ask"}]),
            Policy([{"action": "deny", "arguments": {"path": "/etc/**"}}]),
        ]
    ),
)
CALLS = st.lists(
    ARGUMENTS.map(lambda arguments: {"id": "same", "name": "it", "arguments": arguments})
    | st.sampled_from([None, {}, {"id": 7, "name": "it"}, {"id": "u", "name": "unknown", "arguments": {}}]),
    min_size=1,
    max_size=3,
)


def id_in(call):
    found = call.get("id", "") if isinstance(call, dict) else ""
    return str(found)


def check(case, calls, results):
    assert len(results) == len(calls)
    for call, result in zip(calls, results, strict=True):
        assert result.id == id_in(call), "1. Result ID Match"
        assert result.success is (result.error is None), "2. Success XOR Error"
        assert result.error is None or (type(result.error) is str and result.error), "2. Success XOR Error"
        assert type(result.content) is str, "3. Content Format"
        result.content.encode()
        assert len(result.content) < 20_000
        assert all(type(name) is str for name in result.metadata)
    tool = case.executor.tools()[0]
    if case.executor.policy.may_ask(tool):
        # What ran is, call by call, something that was approved exactly so.
        assert not Counter(case.ran) - Counter(case.approved), "4. Approval Blocking"
    assert not any("vandalised" in arguments for arguments in case.ran), (
        "no observer or approver changes a call"
    )
    last = {entry.key: entry.state for entry in case.executor.journal.entries()}
    assert set(last.values()) <= FINAL, "every recorded call comes to an end"
    figures = case.executor.metrics().get("it")
    # A call of another shape is refused before its tool is known.
    known = sum(isinstance(call, dict) and call.get("id") == "same" for call in calls)
    assert (figures.calls if figures else 0) == known


@given(CASES, CALLS)
def test_the_five_invariants_hold_in_plain_code(case, calls):
    """Seed 002, Invariants; 5: anything raised here would fail the test."""
    try:
        check(case, calls, case.executor.execute_tool_calls(calls))
    finally:
        case.release.set()


@given(CASES, CALLS)
def test_the_five_invariants_hold_in_async_code(case, calls):
    """Seed 002, Invariants; 5: anything raised here would fail the test."""
    try:
        check(case, calls, asyncio.run(case.executor.aexecute_tool_calls(calls)))
    finally:
        case.release.set()
