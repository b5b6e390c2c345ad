"""check_syntax: what is wrong with a text, and where, without evaluating any of it."""

from __future__ import annotations

import pytest

from tests.toolsets.conftest import Desk


@pytest.fixture
def check(paper_desk, project):
    """Return a function that checks a text as a file of that name."""

    def checked(text, name="f.lisp"):
        (project / name).write_text(text)
        return paper_desk.text("check_syntax", path=name)

    return checked


@pytest.mark.contract("day.forms.check")
def test_a_text_that_is_right_is_counted(check, paper_desk):
    """check_syntax: ok with the number of top-level forms."""
    assert (
        check('(a) #+x (b) #-x (c) ; (d\n#| (e #| |# |# \'f #\\( "(" |(|') == "f.lisp: ok, 7 top-level forms."
    )
    assert check("x = 1\n\n\ndef f(): pass\n", "f.py") == "f.py: ok, 2 top-level statements."
    assert check("") == "f.lisp: ok, 0 top-level forms."
    assert paper_desk.text("check_syntax", code="(a)") == "code: ok, 1 top-level form."


@pytest.mark.contract("day.forms.check-faults")
def test_all_faults_are_told_with_place_line_and_caret(check):
    """check_syntax: reading goes on after a form that is not closed."""
    text = check("(defun f (x)\n  (g x)\n\n(defun h ()\n  1)\n\n(defun i ()\n  (j\n\n(k))\n")
    assert text == (
        "f.lisp: 3 faults.\n"
        "f.lisp:1:1: the form that begins here is not closed: a ) is missing\n"
        "    (defun f (x)\n"
        "    ^\n"
        "  a ) may be missing at the end of line 2\n"
        "f.lisp:7:1: the form that begins here is not closed: 2 ) are missing\n"
        "    (defun i ()\n"
        "    ^\n"
        "  2 ) may be missing at the end of line 8\n"
        "f.lisp:10:4: this ) closes nothing\n"
        "    (k))\n"
        "       ^\n"
        "  the form that begins on line 10 has ended before it, on line 10"
    )


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            "(let ((x 1)\n      (y 2)\n  (list x y))",
            "line 3, the list that begins on line 1 (() should end on line 2",
        ),
        ("(f)\n  (g))", "the form that begins on line 1 ends already on line 1, and line 2 is indented"),
        ('(f "a)\n\n(g "b")\n', "the string from line 1 on goes over the start of a form"),
        ("(f |a)", "code:1:4: the symbol that begins here is not closed by |"),
        ("(f #| a)", "code:1:4: the comment that begins here with #| is not closed by |#"),
        ("(f #<a>)", "code:1:4: #< cannot be read"),
        ("#+sbcl", "code:1:1: nothing follows what begins here"),
        ("(f \\", "code:1:4: \\ has nothing to escape"),
        ('"\n(f)\n', "code:1:1: the string that begins here is not closed"),
        ("(" * 5000, "5000 ) are missing"),
        (")" * 5000, "… 4990 more"),
    ],
)
def test_the_likely_place_of_a_fault_in_lisp_is_named(paper_desk, code, expected):
    """check_syntax: unbalanced text, wrong strings."""
    assert expected in paper_desk.text("check_syntax", code=code)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def f(:\n", "code:1:7: invalid syntax\n    def f(:\n          ^"),
        ("def f():\n\tif x:\n        y\n", "TabError: inconsistent use of tabs"),
        ("return 1\n", "'return' outside function"),
        ("x = '\n", "code:1:5: unterminated string literal"),
        ("x = (\n", "'(' was never closed"),
        ("x\0y", "cannot contain null bytes"),
        ("(" * 5000, "too many nested parentheses"),
    ],
)
def test_a_fault_in_python_has_line_and_caret(paper, workspace, code, expected):
    """check_syntax: the SyntaxError of Python, with its place."""
    desk = Desk(paper, workspace)
    (workspace.root / "f.py").write_text("")
    paper.language = "python"
    assert expected in desk.text("check_syntax", code=code)


@pytest.mark.contract("day.forms.unchecked")
def test_what_is_not_checked_is_said_and_nothing_is_run(check):
    """check_syntax: reader macros of libraries, #. and readtables."""
    text = check('(in-readtable :interpol)\n(f #?"a" #.(error "run"))\n')
    assert text.splitlines() == [
        "f.lisp: ok, 2 top-level forms.",
        "line 2: #? is no standard reader macro; what it reads is unchecked",
        "line 2: #. is not run",
        "(in-readtable :interpol): the text is read without the reader macros of that readtable",
    ]
    assert "so that a fault may be none" in check("(f #~m/(/)")


def test_two_faults_that_cancel_out_are_suspected(check):
    """check_syntax: a parenthesis is missing in one form and surplus in the next."""
    text = check('(defun f (x)\n  "\n(def"\n  (g x)\n\n(defun h ()\n  1))\n')
    suspicion = (
        "line 6: begins in the first column, but inside of the form from line 1 on, which may lack a ) "
    )
    assert text == f"f.lisp: ok, 1 top-level form.\n{suspicion}before it"


def test_calls_that_make_no_sense_are_refused(paper_desk, project):
    """Bad input: neither, both, other kinds, binary, huge."""
    (project / "f.txt").write_text("x")
    (project / "f.lisp").write_bytes(b"\0")
    (project / "g.lisp").write_text("(a)\n" * 600_000)
    assert "give either path or code" in paper_desk.failure("check_syntax")
    assert "give either path or code" in paper_desk.failure("check_syntax", path="f.lisp", code="")
    assert "neither Lisp nor Python" in paper_desk.failure("check_syntax", path="f.txt")
    assert "not a text file" in paper_desk.failure("check_syntax", path="f.lisp")
    assert "2,000,000 are the most" in paper_desk.failure("check_syntax", path="g.lisp")


SHOWN = {
    "a\u202eb": "a\\u{202e}b",
    "a\nb: ok, 1 top-level form.": "a\\u{a}b: ok, 1 top-level form.",
    "a\x1b[2Jb": "a\\u{1b}[2Jb",
}


@pytest.mark.contract("day.forms.check-names")
@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize(
    ("ending", "text"),
    [
        (".lisp", "(a)"),
        (".lisp", "(a"),
        (".py", "x = = 1"),
        (".txt", ""),
        (".lisp", None),
        (".py", b"\0\xff"),
    ],
)
def test_a_name_hides_nothing_in_what_is_told(paper_desk, project, name, ending, text):
    """A character that turns the text around, or a line break, would change what a person reads."""
    if text is not None:
        (project / f"{name}{ending}").write_bytes(text if isinstance(text, bytes) else text.encode())
    told = paper_desk.call("check_syntax", path=f"{name}{ending}").content
    assert name not in told
    assert told.removeprefix("Tool error: ").startswith(f"{SHOWN[name]}{ending}")
