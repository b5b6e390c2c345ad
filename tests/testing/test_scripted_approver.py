"""An approver with a script answers in order, records the questions, and fails when the script is wrong."""

from __future__ import annotations

import pytest

from gramercy import Approved, Denied, Executor, Modified, Registry, define_tool
from gramercy.testing.approver import ScriptedApprover


@pytest.fixture
def call():
    """Return what calls a dangerous tool with an approver."""
    tool = define_tool(
        "shout",
        "Say it loudly.",
        [{"name": "text", "type": "string"}],
        safety_level="dangerous",
        handler=lambda arguments: arguments["text"].upper(),
    )

    def calling(approver, text):
        executor = Executor(Registry([tool]), approver)
        return executor.execute({"id": "1", "name": "shout", "arguments": {"text": text}})

    return calling


def test_answers_come_in_order_and_questions_are_recorded(call):
    with ScriptedApprover(Approved(), Denied("too loud"), Modified({"text": "c"})) as approver:
        assert call(approver, "a").content == "A"
        assert call(approver, "b").error == "User denied tool execution: too loud"
        assert "C" in call(approver, "x").content
    assert approver.calls == [("shout", {"text": "a"}), ("shout", {"text": "b"}), ("shout", {"text": "x"})]
    assert approver.requests[0].verdict.action == "ask"


def test_an_answer_may_depend_on_the_question(call):
    approver = ScriptedApprover(lambda request: Denied(f"not {request.arguments['text']}"))
    assert "not this" in call(approver, "this").error


def test_a_question_beyond_the_script_is_denied_and_fails_at_the_end(call):
    with pytest.raises(AssertionError, match="the script has 0 answers, but 1 were asked for: shout"):  # noqa: SIM117
        with ScriptedApprover() as approver:
            assert "the script has 0 answers, but question 1 came: shout" in call(approver, "a").error


def test_a_script_that_is_not_used_up_fails_at_the_end():
    with pytest.raises(AssertionError, match="the script has 2 answers, but 0 were asked for: none"):
        ScriptedApprover("approved", "denied").check()


def test_the_first_failure_of_a_test_is_the_one_that_is_told():
    with pytest.raises(ZeroDivisionError), ScriptedApprover("approved"):
        raise ZeroDivisionError
