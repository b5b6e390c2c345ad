"""The four tools that evaluate and remember, on real images and through the real executor."""

from __future__ import annotations

import pytest

from gramercy.images.base import Form, ImageFault, Notice, Reply
from gramercy.toolsets.rendering import evaluation_text
from tests.support import saying


@pytest.mark.contract("000.purpose.in-the-image")
def test_values_come_back_and_state_is_kept(desk):
    """Seed 000, eval_form."""
    desk.evaluate("(defvar *x* 41)", "x = 41")
    assert desk.evaluate("(1+ *x*)", "x + 1") == "=> 42"


@pytest.mark.contract("decision.09.errors")
def test_an_error_is_a_failure_with_type_message_and_backtrace(desk):
    """Decision 9, errors."""
    text = desk.failure("eval_form", form=desk.either("(/ 1 0)", "1/0"))
    kind, message = text.split("\n")[:2]
    assert kind == desk.either("[ERROR] DIVISION-BY-ZERO", "[ERROR] ZeroDivisionError")
    assert message == desk.either("arithmetic error DIVISION-BY-ZERO signalled", "division by zero")
    frames = text.partition("\n\n[Backtrace]\n")[2].partition("\n\n")[0].splitlines()
    numbers = [line.partition(":")[0] for line in frames if line[:1].isdecimal()]
    assert numbers == [str(number) for number in range(len(numbers))] != []


def test_output_before_an_error_is_kept_after_it(desk):
    """A reply: partial output is never lost."""
    text = desk.failure("eval_form", form=desk.either('(princ "so far") (/ 1 0)', "print('so far')\n1/0"))
    assert text.index("[ERROR]") == 0
    assert "[stdout]\nso far" in text


@pytest.mark.contract("002.cautious.examples")
def test_an_evaluation_leaves_an_audit_line(desk, caplog):
    """Seed 002, Cautious Tools: logged execution."""
    with caplog.at_level("INFO", "gramercy.audit"):
        desk.evaluate("(+ 1 1)", "1 + 1")
    told = [record.getMessage() for record in caplog.records if record.name == "gramercy.audit"]
    form = desk.either("(+ 1 1)", "1 + 1")
    assert told == [f'cautious tool eval_form runs as call \'call_1\' with {{"form":"{form}"}}']


def test_an_object_is_announced_with_the_id_that_inspects_it(desk):
    """What users ask for: look at values without running code."""
    text = desk.evaluate("(list 1 (list 2))", "[1, [2]]")
    number = int(text.split("[object ")[1].split("]")[0])
    inspected = desk.text("inspect_object", object=number)
    assert desk.either("is object ", "  #") in inspected
    assert "2" in inspected


def test_a_package_can_be_named_for_one_evaluation(desk):
    """Decision 2, eval_form(form, package)."""
    if desk.language == "sbcl":
        desk.text("eval_form", form="(defpackage room (:use :cl)) (defun room::door () 7)")
        assert desk.text("eval_form", form="(door)", package="room") == "=> 7"
    else:
        desk.text("eval_form", form="import math")
        assert desk.text("eval_form", form="tau > 6", package="math") == "=> True"


def test_an_unknown_package_is_a_clear_failure(desk):
    """Bad input: unknown packages."""
    assert "no-such-package" in desk.failure("eval_form", form="1", package="no-such-package")
    assert desk.evaluate("(+ 1 1)", "1 + 1") == "=> 2"


def test_warnings_of_the_compiler_have_their_lines(desk):
    """Decision 2, compile_form; A reply: warnings with position."""
    code = desk.either("(defun bad (x)\n  (no-such-thing x))", "def bad(x):\n    return no_such_thing(x)")
    text = desk.text("compile_form", form=code)
    verdict, rest = text.split("\n\n", 1)
    assert verdict in {"Compiled with 1 style warning.", "Compiled with 1 warning."}
    assert rest.startswith("[warnings]\n")
    assert "(line 2)" in text
    assert "such" in text.lower()


def test_code_without_faults_is_compiled_without_warnings_and_takes_effect(desk):
    """Decision 2, compile_form."""
    code = desk.either("(defun good (x) (* 2 x))", "def good(x):\n    return 2 * x")
    assert desk.text("compile_form", form=code) == "Compiled without warnings."
    assert desk.evaluate("(good 4)", "good(4)") == "=> 8"


def test_code_that_cannot_be_read_is_not_compiled(desk):
    """Bad input: unbalanced forms."""
    assert desk.failure("compile_form", form=desk.either("(defun broken (", "def broken(:")).startswith(
        "[ERROR]"
    )


def test_the_last_error_can_be_seen_again(desk):
    """Seed 001: get_last_error."""
    desk.call("eval_form", form=desk.either("(/ 5 0)", "5/0"))
    desk.evaluate("(+ 1 1)", "1 + 1")
    text = desk.text("get_last_error")
    assert text.startswith(desk.either("(/ 5 0)", "5/0"))
    assert "[ERROR]" in text
    assert "[Backtrace]" in text


def test_the_history_is_oldest_first_and_limited(desk):
    """Decision 2, get_repl_history."""
    for number in range(12):
        desk.evaluate(f"(+ {number} 100)", f"{number} + 100")
    assert desk.text("get_repl_history").count("=> ") == 10
    two = desk.text("get_repl_history", limit=2)
    assert two.index("=> 110") < two.index("=> 111")
    assert two.count("=> ") == 2


@pytest.mark.parametrize("limit", [0, 51, 2.5, "ten", True])
def test_a_limit_that_makes_no_sense_is_refused(paper_desk, limit):
    """Decision 2: at most 50; decision 11: nothing is coerced."""
    assert "limit" in paper_desk.failure("get_repl_history", limit=limit)


def test_without_a_past_both_tools_say_so(paper_desk):
    """Every answer is a text that a model understands."""
    assert paper_desk.text("get_last_error") == "No evaluation in this image has failed."
    assert paper_desk.text("get_repl_history") == "Nothing has been evaluated in this image."


def test_the_history_says_what_is_not_in_the_present_state(desk):
    desk.evaluate("(defvar *x* 1)", "x = 1")
    desk.evaluate("(setf *x* 2)", "x = 2")
    desk.text("undo_last")
    first, second = desk.text("get_repl_history").split("\n\n")
    assert "not in the present state" not in first
    assert second.splitlines()[1] == "[not in the present state: taken back or lost]"


def test_a_long_history_stays_below_the_limit_of_results(paper_desk, paper):
    """A result that is cut in the middle would lose the latest evaluations."""
    long = Reply(ok=True, forms=[Form(["v" * 20_000])], stdout="o" * 100_000)
    paper.replies = saying(long)
    for _ in range(50):
        paper.evaluate("c" * 5000)
    text = paper_desk.text("get_repl_history", limit=50)
    assert len(text) <= 8_000
    assert text.count("\n> ") == 49


@pytest.mark.contract("decision.09.values")
def test_values_survive_however_much_was_printed(paper_desk, paper):
    """Decision 9: values are never suppressed."""
    paper.replies = saying(
        Reply(
            ok=True,
            forms=[Form(["42"])],
            stdout="x" * 100_000,
            stderr="y" * 100_000,
            truncated={"stdout": 5_000_000},
        )
    )
    text = paper_desk.text("eval_form", form="1")
    assert text.endswith("=> 42")
    assert "of 5,000,000 characters shown; read_output with stream stdout and offset " in text
    assert "of 100,000 characters shown; read_output with stream stderr and offset " in text
    assert len(text) <= 8_000


def test_output_that_fits_is_not_said_to_be_cut(paper_desk, paper):
    """What is announced must be true."""
    paper.replies = saying(Reply(ok=True, forms=[Form(["1"])], stdout="all\n"))
    assert paper_desk.text("eval_form", form="1") == "[stdout]\nall\n\n=> 1"


def test_endless_values_and_warnings_are_bounded_and_announced():
    """Never unbounded memory, and what is cut is said."""
    notices = [Notice("warning", "W", "m" * 20_000)] * 80
    text = evaluation_text(Reply(ok=True, forms=[Form(["v" * 20_000] * 9)], warnings=notices))
    assert "of 20,000 characters shown; print less of it at a time]\n… [7 more values" in text
    assert "[warnings cut: 30,000 of 1,600,319 characters shown" in text


def test_a_backtrace_is_bounded(paper_desk, paper):
    """Decision 9: bounded frames."""
    frames = [f"{n}: (F)" for n in range(200)]
    paper.replies = saying(Reply(ok=False, error=ImageFault("E", "m" * 50_000, backtrace=frames)))
    text = paper_desk.failure("eval_form", form="1")
    assert "19: (F)\n… 180 more frames" in text
    assert len(text) <= 8_000


def test_what_the_keeper_has_to_say_is_shown(paper_desk, paper):
    """After a death the caller is told what was lost."""
    paper.replies = saying(Reply(ok=True, forms=[Form(["1"])], notes=["The state before this call is back."]))
    assert paper_desk.text("eval_form", form="1").endswith("=> 1\n\nThe state before this call is back.")
    assert "without warnings.\n\nThe state" in paper_desk.text("compile_form", form="1")


def test_an_image_that_ends_itself_is_back_for_the_next_call(desk):
    """Timeouts and deaths: nothing is lost but the failed call."""
    desk.evaluate("(defvar *kept* 5)", "kept = 5")
    text = desk.failure("eval_form", form=desk.either("(sb-ext:exit :abort t)", "import os; os._exit(3)"))
    assert text.startswith("[ERROR]")
    assert desk.evaluate("*kept*", "kept") == "=> 5"


def test_a_handler_can_be_called_by_hand(desk):
    """Seed 000, Testing Contract: invoke the handler with the arguments alone."""
    registry = desk.executor.settings.registry
    assert registry.get("eval_form").handler({"form": "1"}) == "=> 1"
    assert registry.get("get_repl_history").handler({}).endswith("> 1\n=> 1")
