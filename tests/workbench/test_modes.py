"""Modes: how much is asked. None of them allows what a rule asks about or denies."""

from __future__ import annotations

from typing import Any

import pytest

from gramercy import Policy, create_tool
from gramercy.execution.approval import Approved, Denied
from gramercy.execution.executor import Executor
from gramercy.tools.registry import Registry
from gramercy.workbench.modes import Mode, approver_in, policy_in

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"before": {"type": "string"}, "after": {"type": "string"}},
    "required": ["before", "after"],
}
ARGUMENTS = {"before": "a\n", "after": "b\n"}


def tool(level, **options):
    return create_tool(
        "change", "Change something.", SCHEMA, lambda _: "changed", safety_level=level, **options
    )


@pytest.mark.parametrize(
    ("mode", "actions"),
    [
        (Mode.ASK, ["allow", "allow", "ask"]),
        (Mode.CAREFUL, ["allow", "ask", "ask"]),
        (Mode.EDITS, ["allow", "allow", "ask"]),
        (Mode.PLAN, ["allow", "deny", "deny"]),
    ],
)
def test_a_mode_says_what_is_asked_by_default(mode, actions):
    policy = policy_in(mode, Policy())
    found = [policy.why(tool(level), ARGUMENTS).action.value for level in ("safe", "cautious", "dangerous")]
    assert found == actions


@pytest.mark.contract("agents.chat.modes")
@pytest.mark.parametrize("mode", list(Mode))
def test_no_mode_allows_what_a_rule_denies(mode):
    rules = Policy([{"action": "deny", "tools": ["change"]}])
    executor = Executor(
        Registry([tool("dangerous", edits=("before", "after"))]),
        approver_in(mode, lambda *_: Approved()),
        policy=policy_in(mode, rules),
    )
    assert not executor.execute({"id": "1", "name": "change", "arguments": ARGUMENTS}).success


def made(mode, rules, *, edits):
    """Make a dangerous call in a mode; tell whether it ran, and how often the person was asked."""
    asked = []

    def person(_tool, arguments, _request):
        asked.append(arguments)
        return Denied("not now")

    executor = Executor(
        Registry([tool("dangerous", **({"edits": ("before", "after")} if edits else {}))]),
        approver_in(mode, person),
        policy=policy_in(mode, Policy(rules)),
    )
    result = executor.execute({"id": "1", "name": "change", "arguments": ARGUMENTS})
    return result.success, len(asked)


@pytest.mark.contract("agents.chat.modes")
def test_edits_answers_only_the_question_that_nobody_has_written_a_rule_for():
    assert made(Mode.EDITS, [], edits=True) == (True, 0)
    assert made(Mode.EDITS, [], edits=False) == (False, 1)
    assert made(Mode.EDITS, [{"action": "ask", "tools": ["change"]}], edits=True) == (False, 1)
    assert made(Mode.ASK, [], edits=True) == (False, 1)


@pytest.mark.contract("clients.mode.edits")
def test_edits_does_not_answer_for_a_tool_that_undo_does_not_take_back():
    """A tool of a file may declare edits; what it wrote stays."""
    tools = Registry([tool("dangerous", edits=("before", "after"))])
    for undoable, is_made in ((frozenset({"change"}), True), (frozenset({"other"}), False)):
        executor = Executor(tools, approver_in(Mode.EDITS, lambda *_: Denied(), undoable))
        result = executor.execute({"id": "1", "name": "change", "arguments": ARGUMENTS})
        assert result.success is is_made


def test_a_rule_that_allows_does_not_silence_careful():
    assert made(Mode.CAREFUL, [{"action": "allow", "tools": ["*"]}], edits=True) == (False, 1)
