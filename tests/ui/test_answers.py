"""What a person sees of a run: calls side by side say whose result it is, thoughts stand apart."""

from __future__ import annotations

import sys

import pytest

from gramercy.agents.base import CallBegun, CallEnded, Finished, Response, TurnEnded, Warned
from gramercy.execution.calls import ToolResult
from gramercy.providers.base import ModelCall, TextPart, ThoughtPart, Usage
from gramercy.ui.cli.answers import Answers, figures_line, result_line


@pytest.fixture
def shown(capsys, monkeypatch):
    """Show events as a terminal does; return what was written to standard output and standard error."""

    def show(*events, terminal=True):
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
        answers = Answers()
        for event in events:
            answers.take(event)
        return capsys.readouterr()

    return show


def result(text, *, success=True):
    return ToolResult("1", success, text, None if success else text, {})


def test_calls_side_by_side_say_whose_result_it_is(shown):
    first, second = ModelCall("1", "look", "{}"), ModelCall("2", "find", "{}")
    told = shown(
        CallBegun(first), CallBegun(second), CallEnded(second, result("b")), CallEnded(first, result("a"))
    )
    assert told.err == "→ look {}\n→ find {}\n← find: b\n← a\n"


def test_calls_of_nested_agents_are_indented(shown):
    call = ModelCall("1", "look", "{}")
    assert (
        shown(CallBegun(call, "inner", 1), CallEnded(call, result("a"), "inner", 1)).err
        == "  → look {}\n  ← a\n"
    )


def test_thoughts_stand_apart_from_the_answer(shown):
    told = shown(
        ThoughtPart("hm, "), ThoughtPart("yes"), TextPart("The "), TextPart("answer."), TurnEnded(1, Usage())
    )
    assert (told.out, told.err) == ("The answer.\n", "hm, yes\n")


def test_a_pipe_gets_the_final_text_alone(shown):
    events = (TextPart("Let me see."), TurnEnded(1, Usage()), ThoughtPart("hm"), TextPart("42"))
    told = shown(*events, Finished(Response("42")), terminal=False)
    assert (told.out, told.err) == ("42\n", "")


def test_a_warning_is_told_in_the_middle_of_an_answer(shown):
    told = shown(TextPart("half"), Warned("80 % of the window is used"))
    assert (told.out, told.err) == ("half\n", "warning: 80 % of the window is used\n")


def test_lines_are_short_and_say_what_they_leave_out():
    assert result_line(result("one\ntwo\nthree")) == "one (+ 2 lines)"
    assert result_line(result("")) == "(nothing)"
    assert len(result_line(result("x" * 1_000 + "\ny"))) == 200


def test_figures_say_what_is_not_known():
    known = Response("", usage=Usage(1_000, 20), cost=0.0123, elapsed=1.25)
    assert figures_line(known, "A/b") == "(A/b, 1,000 tokens in, 20 out, $0.0123, 1.2 s)"
    assert figures_line(Response(""), "A/b") == "(A/b, tokens unknown, cost N/A, 0.0 s)"
