"""How long an answer may be, and how everything that it leaves out is read on."""

from __future__ import annotations

import re

import pytest

from gramercy.images.base import (
    Answer,
    Cause,
    Change,
    Effect,
    Form,
    ImageFault,
    Notice,
    Reply,
)
from gramercy.toolsets.rendering import LONGEST_ANSWER, ROOM, SHARES, allowances
from tests.support import saying

LONG = {"sbcl": "(make-list 30000 :initial-element 7)", "python": "[7] * 30000"}


def flood(**more):
    """Return a reply with more of everything than any answer can hold."""
    many = {
        "stdout": "o" * 50_000,
        "stderr": "e" * 50_000,
        "log": "l" * 50_000,
        "warnings": [Notice("warning", "W", "w" * 900, line=n) for n in range(90)],
        "notes": ["n" * 3_000] * 3,
        "changed": [Change("function", "f" * 90)] * 90,
        "effects": [Effect("write", "p" * 90)] * 90,
    }
    return Reply(**{"ok": True, **many, **more})


def failure(frames=90):
    causes = [Cause("C", "c" * 9_000, [f"{n}: (G)" for n in range(frames)])] * 5
    backtrace = [f"{n}: (F {'x' * 900})" for n in range(frames)]
    return ImageFault("E", "m" * 9_000, ["CONTINUE"] * 20, backtrace, causes=causes)


VALUES = {"forms": [Form(["v" * 20_000] * 20)], "objects": list(range(1, 21))}


@pytest.mark.contract("answers.bound")
@pytest.mark.parametrize("kind", ["values", "error"])
@pytest.mark.parametrize(
    "tool", ["eval_form", "evaluate-lisp", "compile_form", "preview_form", "load-system"]
)
def test_no_answer_is_longer_than_eight_thousand_characters(paper_desk, paper, monkeypatch, tool, kind):
    """Answers: no answer over 8,000 characters by default, whatever an image replies."""
    reply = flood(**VALUES) if kind == "values" else flood(ok=False, error=failure())
    paper.replies = saying(reply)
    monkeypatch.setattr(paper, "preview", lambda *_, **__: reply)
    name = {"load-system": "system", "evaluate-lisp": "code", "preview_form": "code"}.get(tool, "form")
    content = paper_desk.call(tool, **{name: "x"}).content
    assert len(content) <= 8_000
    assert content.count("characters shown") + content.count(" more") >= 4


def test_shares_add_up_to_the_room():
    """Each section is sure of its share; an error and values never come together."""
    assert sum(SHARES.values()) - SHARES["values"] == ROOM
    assert allowances({"stdout": 9_999, "notes": 10}, ROOM) == {"stdout": ROOM - 10, "notes": 10}


@pytest.mark.contract("answers.read-on")
@pytest.mark.parametrize("stream", ["stdout", "stderr", "values", "error", "warnings", "log"])
def test_every_part_of_an_answer_can_be_read_to_its_end(paper_desk, paper, stream):
    """Answers: everything above the limit is continued by read_output."""
    reply = flood(ok=False, error=failure()) if stream == "error" else flood(**VALUES)
    paper.replies = saying(reply)
    paper_desk.call("eval_form", form="1")
    parts, offset = [], 0
    while True:
        part = paper_desk.text("read_output", stream=stream, offset=offset)
        assert len(part) <= LONGEST_ANSWER
        shown, _, note = part.rpartition("\n… [characters ")
        parts.append(shown or part)
        if not shown:
            break
        offset = int(note.partition("go on with offset ")[2].rstrip("]"))
    text = "".join(parts)
    ends = {
        "stdout": "oo",
        "stderr": "ee",
        "values": "vv",
        "error": "(G)",
        "warnings": "ww",
        "log": "ll",
    }
    assert text.endswith(ends[stream])
    assert len(text) >= 50_000
    assert "has no more" in paper_desk.text("read_output", stream=stream, offset=len(text))


@pytest.mark.contract("answers.cut-value")
def test_a_value_that_an_image_has_cut_says_how_much_and_is_read_on_by_its_number(paper_desk, paper):
    """Answers: a cut value says so, with how much of how much, and how to read on."""
    reply = Reply(
        ok=True, forms=[Form(["1", "v" * 19_999 + "…"])], objects=[None, 7], lengths=[None, 123_456]
    )
    paper.replies = saying(reply)
    text = paper_desk.text("eval_form", form="1")
    assert text.startswith("=> 1\n=> vvv")
    said = r"value cut: ([\d,]+) of 123,456 characters shown; read_output with object (\d+) and offset (\d+)"
    ((count, known, offset),) = re.findall(said, text)
    assert (int(count.replace(",", "")), known) == (int(offset), "7")
    paper.answers = {"print_value": Answer(ok=True, text="w" * 7_850, data={"total": 123_456})}
    more = paper_desk.text("read_output", object=7, offset=int(offset))
    assert more.endswith(f"to {int(offset) + 7_850:,} of 123,456; go on with offset {int(offset) + 7_850}]")
    paper.answers = {"print_value": Answer(ok=True, text="the end", data={"total": int(offset) + 7})}
    assert paper_desk.text("read_output", object=7, offset=int(offset)) == "the end"


def test_a_value_of_unknown_length_says_that_it_was_cut(paper_desk, paper):
    """Printing that is stopped does not know how much was to come."""
    paper.replies = saying(Reply(ok=True, forms=[Form(["vv…"])], objects=[7], lengths=[0]))
    text = paper_desk.text("eval_form", form="1")
    assert (
        "=> vv\n… [value cut: 2 of more than 2 characters shown; read_output with object 7 and offset 2"
        in text
    )


def test_an_object_of_unknown_length_is_read_page_by_page(paper_desk, paper):
    """A full page is taken to go on, and no length is made up."""
    paper.answers = {"print_value": Answer(ok=True, text="v" * 7_850, data={"total": None})}
    part = paper_desk.text("read_output", object=7, offset=100)
    assert part.endswith("\n… [characters 100 to 7,950; go on with offset 7950]")
    paper.answers = {"print_value": Answer(ok=True, text="the end", data={"total": None})}
    assert paper_desk.text("read_output", object=7, offset=7_950) == "the end"


def test_an_image_that_only_counts_its_cuts_is_believed(paper_desk, paper):
    """No cut without a word, even where it is not known which value it was."""
    paper.replies = saying(Reply(ok=True, forms=[Form(["vv"])], truncated={"values": 2}))
    assert paper_desk.text("eval_form", form="1") == "=> vv\n… [a value was cut by the image]"
    paper.replies = saying(Reply(ok=True, forms=[Form(["v" * 20_000 + "…"])], truncated={"values": 1}))
    assert "of more than 20,001 characters shown; read_output" in paper_desk.text("eval_form", form="1")


def test_a_long_value_of_a_real_image_is_announced(desk):
    """Own program: values above 20,000 characters were cut without a mark."""
    text = desk.text("eval_form", form=LONG[desk.language])
    assert len(text) <= LONGEST_ANSWER
    assert "value cut: " in text


@pytest.mark.contract("answers.restarts")
def test_restarts_are_named_after_the_backtrace(lisp_desk, paper_desk, paper):
    """Answers: restarts are shown in short; that of every error is not."""
    text = lisp_desk.failure("eval_form", form='(cerror "Go on." "No ~a." 1)')
    assert "[Restarts]\n[0] CONTINUE: Go on." in text
    paper.replies = saying(Reply(ok=False, error=ImageFault("E", "m", ["ABORT"])))
    assert paper_desk.failure("eval_form", form="1") == "[ERROR] E\nm"


@pytest.mark.contract("answers.verdict")
def test_compiling_ends_in_a_verdict(desk):
    """Answers: compile errors do not count as success; warnings are counted."""
    fine = desk.either("(defun f (x) x)", "def f(x): return x")
    assert desk.text("compile_form", form=fine) == "Compiled without warnings."
    assert desk.failure("compile_form", form=desk.either("(defun", "def f(")).startswith("[ERROR] ")
    doubtful = desk.either("(defun g () (gone) (car 1))", "def g(): return gone() + lost")
    first = desk.text("compile_form", form=doubtful).partition("\n")[0]
    assert first == desk.either(
        "Compiled with 1 warning, 1 style warning, 1 note.", "Compiled with 2 warnings."
    )


def test_code_that_the_compiler_refuses_is_a_failure(lisp_desk):
    """Answers: compile errors do not count as success."""
    assert lisp_desk.failure("compile_form", form="(defun g () (if))").startswith(
        "[ERROR] COMPILATION-FAILED\n"
    )


def test_the_last_error_fits_into_an_answer(paper_desk, paper):
    """get_last_error shows as much of it as an answer holds, and where the rest is."""
    paper.replies = saying(Reply(ok=False, error=failure()))
    paper.evaluate("c" * 5_000)
    paper.replies = saying(Reply(ok=True))
    paper.evaluate("1")
    text = paper_desk.text("get_last_error")
    assert len(text) <= LONGEST_ANSWER
    assert text.endswith("read_output with stream error and evaluation 2 shows all]")
    assert paper_desk.text("read_output", stream="error", evaluation=2).startswith("[ERROR] E\nmmm")


def test_many_definitions_are_counted_and_the_way_to_them_told(paper_desk, paper):
    """list-definitions: the fixed format, as far as an answer goes."""
    entries = [{"name": f"FUNCTION-WITH-A-LONG-NAME-{n:04}", "arglist": "(X)"} for n in range(900)]
    data = {"functions": entries, "variables": [{"name": "*X*", "value": "1"}]}
    paper.answers = {"definitions": Answer(ok=True, data=data)}
    text = paper_desk.text("list-definitions")
    assert len(text) <= LONGEST_ANSWER
    assert re.search(r"… \d{3} more: give type functions\n\n\[Variables\]\n- \*X\* = 1$", text)


def test_an_answer_to_a_question_that_is_too_long_is_cut_with_a_word(paper_desk, paper):
    """Images bound their answers; the tools make sure."""
    parts = [{"label": "l" * 90, "id": number} for number in range(1, 300)]
    paper.answers = {
        "describe": "d" * 50_000,
        "inspect": Answer(ok=True, text="i" * 50_000, data={"parts": parts}),
    }
    inspected = paper_desk.text("inspect_object", object=1)
    assert len(inspected) <= LONGEST_ANSWER
    assert inspected.endswith(", …")
    text = paper_desk.text("describe_symbol", symbol="x")
    assert len(text) <= LONGEST_ANSWER
    assert text.endswith("of 50,000 characters shown; ask for less]")
