"""Input that no one should send: a clear error each time, and nothing is lost."""

from __future__ import annotations

import pytest


@pytest.fixture
def lived_in(desk):
    desk.evaluate("(defvar *kept* 5)", "kept = 5")
    yield desk
    assert desk.evaluate("*kept*", "kept") == "=> 5"


UNREADABLE = [
    ("(list 1 2", "f(1, 2"),
    (")", ")"),
    ('"no end', '"no end'),
    ("#<unreadable>", "x = = 1"),
    ("nopackage::symbol", "  bad indent\nx"),
    ("(1 . 2 3)", "def"),
    ("#.(1+", "\x00"),
    ("|never closed", "'''never closed"),
]


@pytest.mark.parametrize(("lisp", "python"), UNREADABLE)
@pytest.mark.parametrize("tool", ["eval_form", "compile_form", "macroexpand_form"])
def test_code_that_cannot_be_read_is_a_clear_error(lived_in, tool, lisp, python):
    """Bad input: unbalanced forms, unknown packages."""
    text = lived_in.failure(tool, form=lived_in.either(lisp, python))
    assert text.startswith("[ERROR] ")
    assert len(text.split("\n")[1]) > 5
    assert "Traceback (most recent call last)" not in text


def test_forms_before_the_unreadable_one_have_their_effect_and_it_is_told(lisp_desk):
    """A reply: forms are read one after the other."""
    text = lisp_desk.failure("eval_form", form='(defvar *first* 1) (princ "ran") (list')
    assert "ran" in text
    assert lisp_desk.text("eval_form", form="*first*") == "=> 1"


def test_there_is_nothing_to_read_from_standard_input(lived_in):
    """Bad input: forms that read from stdin do not hang."""
    text = lived_in.failure("eval_form", form=lived_in.either("(read-line)", "input()"))
    assert "END-OF-FILE" in text or "EOFError" in text


def test_binary_output_is_shown_as_text(lived_in):
    """Bad input: forms that print what is no text."""
    code = lived_in.either(
        "(loop for n below 300 do (write-char (code-char n)))",
        "import sys\nsys.stdout.write(''.join(map(chr, range(300))))\nNone",
    )
    text = lived_in.text("eval_form", form=code)
    assert "[stdout]" in text
    text.encode("utf-8")


def test_bytes_that_are_not_utf8_are_shown_as_text(python_desk):
    """Bad input: non-UTF-8 bytes."""
    text = python_desk.text("eval_form", form="import sys\nsys.stdout.buffer.write(b'\\xff\\xfe\\x00')\nNone")
    text.encode("utf-8")


def test_lone_surrogates_do_no_harm(lived_in):
    """Bad input: text that no wire can carry."""
    result = lived_in.call("eval_form", form=lived_in.either('"\ud800"', "'\ud800'"))
    result.content.encode("utf-8")


def test_characters_of_every_plane_come_back(lived_in):
    """Bad input: the whole of Unicode passes."""
    word = "ä→漢😀"
    assert word in lived_in.text("eval_form", form=f'"{word}"')


def test_a_huge_form_is_evaluated(lived_in):
    """Bad input: huge forms."""
    text = "x" * 2_000_000
    assert lived_in.evaluate(f'(length "{text}")', f'len("{text}")') == "=> 2000000"


def test_a_form_larger_than_a_message_may_be_is_refused(lived_in):
    """Bad input: huge forms."""
    text = "x" * (65 * 1024 * 1024)
    result = lived_in.call("eval_form", form=lived_in.either(f'(length "{text}")', f'len("{text}")'))
    assert not result.success
    assert len(result.content) < 10_000


def test_deep_nesting_is_survived(lived_in):
    """Bad input: hostile nesting."""
    depth = 50_000
    result = lived_in.call("eval_form", form="(" * depth + lived_in.either("list", "1") + ")" * depth)
    assert len(result.content) < 50_000


def test_a_flood_of_output_is_cut_and_the_value_kept(lived_in):
    """Cap output at the stream, and say what was cut."""
    code = lived_in.either(
        "(progn (dotimes (n 200000) (princ 1234567890)) 7)",
        "for _ in range(200000): print(end='1234567890')\n7",
    )
    text = lived_in.text("eval_form", form=code)
    assert text.endswith("=> 7")
    assert "of 2,000,000 characters shown; read_output with stream stdout and offset " in text
    assert len(text) <= 8_000


def test_a_circular_value_is_printed_within_bounds(lived_in):
    """A reply: printing is guarded."""
    code = lived_in.either("(let ((l (list 1 2))) (setf (cddr l) l) l)", "l = [1]\nl.append(l)\nl")
    assert len(lived_in.text("eval_form", form=code)) < 50_000


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a/../../outside", "", "a\0b", ".git/config"])
def test_paths_out_of_the_project_are_refused(paper_desk, project, path):
    """Bad input: paths outside the root."""
    (project.parent / "outside").write_text("secret")
    assert "secret" not in paper_desk.failure("read_file", path=path)
    assert "not run" in paper_desk.failure("write_file", path=path, content="x")
    assert (project.parent / "outside").read_text() == "secret"


@pytest.mark.parametrize(
    "arguments", [{}, {"form": 1}, {"form": None}, {"code": "1"}, {"form": "1", "extra": 2}]
)
def test_arguments_that_do_not_fit_are_refused_with_a_correction(paper_desk, arguments):
    """Decision 8: every fault with path, expected, received and an example."""
    text = paper_desk.failure("eval_form", **arguments)
    assert text.startswith("Invalid arguments for eval_form")
    assert "Corrected example" in text
