"""Shadows: a second implementation of safe tools runs beside the live one; what is not safe never does."""

from __future__ import annotations

import threading

import pytest

from gramercy import Agent, Executor, Policy, Registry, ToolCall, define_tool
from gramercy.agents.shadow import MOST_KEPT, Shadow
from gramercy.journal.memory import MemoryJournal
from gramercy.providers.scripted import ScriptedProvider

BOUND = 60


def tool(name, handler, **options):
    return define_tool(name, "Do it.", [{"name": "x", "type": "integer"}], handler=handler, **options)


def double(arguments):
    return str(arguments["x"] * 2)


def sides(live, *others, **options):
    executor = Executor(Registry([live]), lambda *_: "approved", **options)
    shadow = Shadow(Registry(others).library(), executor)
    executor.hooks.append(shadow)
    return executor, shadow


def call(executor, *numbers, name="double"):
    return [executor.execute(ToolCall(str(x), name, {"x": x})) for x in numbers]


@pytest.mark.contract("agents.compare.shadow")
def test_a_safe_tool_is_shadowed_and_the_caller_gets_the_live_result():
    executor, shadow = sides(
        tool("double", double), tool("double", lambda given: "6" if given["x"] == 3 else "?")
    )
    assert [result.content for result in call(executor, 2, 3)] == ["4", "6"]
    report = shadow.close(BOUND)
    assert (report.compared, report.differing, report.skipped) == (2, 1, {})
    (found,) = report.differences
    assert (found.tool, found.arguments, found.live, found.shadow) == ("double", {"x": 2}, "4", "?")
    assert report.time
    told = "\n".join(report.lines())
    assert "shadow: 1 of 2 calls alike" in told
    assert 'shadow: double {"x":2}\n  - 4\n  + ?' in told


@pytest.mark.contract("agents.compare.shadow-safe-only")
@pytest.mark.parametrize("level", ["cautious", "dangerous"])
def test_what_is_not_safe_on_either_side_is_never_run_twice(level):
    ran = []

    def note(given):
        ran.append(given)
        return "noted"

    executor, shadow = sides(tool("double", double, safety_level=level), tool("double", note))
    call(executor, 1)
    assert shadow.close(BOUND).skipped == {f"double is {level}": 1}
    executor, shadow = sides(tool("double", double), tool("double", note, safety_level=level))
    call(executor, 1)
    assert shadow.close(BOUND).skipped == {f"the second double is {level}": 1}
    assert ran == []


@pytest.mark.contract("agents.compare.shadow-safe-only")
def test_what_a_rule_asks_about_has_no_shadow_since_one_run_was_approved():
    ran = []
    policy = Policy([{"action": "ask", "tools": ["double"], "arguments": {"x": "7"}}])
    executor, shadow = sides(tool("double", double), tool("double", lambda _: ran.append(1)), policy=policy)
    assert call(executor, 7)[0].content == "14"
    assert shadow.close(BOUND).skipped == {"the rules ask about double": 1}
    assert ran == []


def test_a_tool_without_a_second_implementation_and_a_refused_call_have_no_shadow():
    executor, shadow = sides(tool("double", double))
    call(executor, 1)
    assert not executor.execute(ToolCall("1", "double", {"x": "no"})).success
    assert shadow.close(BOUND).skipped == {"double has no second implementation": 1}


def test_a_shadow_that_fails_or_takes_other_arguments_is_a_difference():
    def fail(_):
        raise ValueError("not today")

    executor, shadow = sides(tool("double", double), tool("double", fail))
    assert call(executor, 1)[0].success
    assert "failed: Tool error: not today" in shadow.close(BOUND).differences[0].shadow
    other = define_tool("double", "Do it.", [{"name": "y", "type": "integer"}], handler=double)
    executor, shadow = sides(tool("double", double), other)
    call(executor, 1)
    assert "Invalid arguments for double" in shadow.close(BOUND).differences[0].shadow


@pytest.mark.contract("agents.compare.shadow")
def test_a_live_call_does_not_wait_for_its_shadow():
    release = threading.Event()
    executor, shadow = sides(tool("double", double), tool("double", lambda _: release.wait(BOUND) and "4"))
    assert call(executor, 2)[0].content == "4"
    assert shadow.report().compared == 0
    report = shadow.close(0.01)
    assert report.skipped == {"their shadow was not waited for": 1}
    release.set()


@pytest.mark.contract("agents.compare.shadow-journal")
def test_the_journal_knows_shadows_from_live_calls():
    journal = MemoryJournal()
    executor, shadow = sides(tool("double", double), tool("double", double), journal=journal)
    call(executor, 1)
    shadow.close(BOUND)
    assert sorted(record.call.client for record in journal.records()) == ["", "shadow"]


def test_differences_beyond_those_that_are_kept_are_counted():
    executor, shadow = sides(tool("double", double), tool("double", lambda _: "?"))
    call(executor, *range(MOST_KEPT + 5))
    report = shadow.close(BOUND)
    assert (report.differing, len(report.differences)) == (MOST_KEPT + 5, MOST_KEPT)
    assert "shadow: and 5 more differences" in list(report.lines())


def test_the_calls_of_an_agent_have_shadows():
    agent = Agent("a", "Help.", "x/y", [tool("double", double)])
    executor = Executor(Registry())
    shadow = Shadow(Registry([tool("double", lambda _: "?")]).library(), executor)
    executor.hooks.append(shadow)
    model = ScriptedProvider({"name": "double", "arguments": {"x": 4}}, "8")
    assert agent.run("4 times 2?", provider=model, executor=executor).content == "8"
    report = shadow.close(BOUND)
    assert (report.compared, report.differing) == (1, 1)
