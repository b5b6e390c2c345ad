"""Values of SBCL that are too long to be told as a whole, the compiler's verdict, and what errors offer."""

import msgspec
import pytest

from gramercy.images.base import ImageFault
from gramercy.toolsets.rendering import fault_text
from tests.images import children

family, live = children.lisp_family, children.live

pytestmark = pytest.mark.skipif(not children.SBCL, reason="sbcl is not installed")


def read_on(live, number, **where):
    """Return the text and the data of an answer to print_value."""
    reply = live.ask("print_value", object=number, **where)
    assert reply["ok"], reply
    return reply["text"], reply["data"]


@pytest.mark.contract("answers.lisp.cut")
def test_a_value_that_was_cut_tells_its_length_and_can_be_read_on(live):
    """Answers: a value that was cut says so and can be read on.

    Of so many characters all are kept, however slow the machine is.
    """
    reply = live.eval("(values 1 (loop for i below 5900 collect i) :end)")
    _one, shown, _end = reply["forms"][-1]["values"]
    total = len(live.value("(prin1-to-string (loop for i below 5900 collect i))", value_limit=500_000)) - 2
    assert reply["lengths"] == [None, total, None]
    number = reply["objects"][1]
    rest, data = read_on(live, number, offset=len(shown), limit=200_000)
    assert data == {"total": total, "kept": total}
    while len(shown) + len(rest) < total:
        more, _data = read_on(live, number, offset=len(shown) + len(rest), limit=200_000)
        assert more
        rest += more
    assert (shown + rest).split()[-1] == "5899)"
    assert read_on(live, number, offset=total)[0] == ""


def test_a_long_string_is_read_on_too(live):
    """Answers: also what has no parts to look into."""
    reply = live.eval("(make-string 30000 :initial-element #\\x)")
    assert reply["lengths"] == [30_002]
    assert read_on(live, reply["objects"][0], offset=20_000)[0] == "x" * 10_001 + '"'


def test_an_endless_value_is_kept_so_far(live):
    """Bad input: the length is not known, and the answer says so."""
    reply = live.eval("(make-list 10000000)")
    assert reply["lengths"] == [0]
    text, data = read_on(live, reply["objects"][0], offset=20_000, limit=10)
    assert len(text) == 10
    assert data["total"] is None
    assert data["kept"] > 20_000


def test_reading_on_prints_nothing_again(live):
    """Answers: a safe tool runs no code of the user's."""
    live.eval(
        "(defvar *printed* 0) (defclass loud () ())"
        '(defmethod print-object ((o loud) s) (incf *printed*) (format s "~30000,,,\'yA" 1))'
    )
    reply = live.eval("(make-instance 'loud)")
    assert read_on(live, reply["objects"][0], offset=29_000)[0].endswith("y")
    assert live.value("*printed*") == "1"


@pytest.mark.parametrize("form", ["(list 1 2)", "17"])
def test_a_value_that_was_told_as_a_whole_has_nothing_to_read_on(live, form):
    """Bad input: a clear refusal."""
    number = live.eval(form)["objects"][0] or 1000
    error = live.ask("print_value", object=number)["error"]
    assert error["type"] == "OBJECT-NOT-FOUND"


def test_old_texts_are_forgotten_and_whole_values_have_none(live):
    """Bad input: what is kept is bounded."""
    numbers = [live.eval("(make-string 21000)")["objects"][0] for _ in range(10)]
    assert not live.ask("print_value", object=numbers[0])["ok"]
    assert live.ask("print_value", object=numbers[-1])["ok"]


def test_a_very_deep_value_is_marked(live):
    """Answers: a value that was cut says so, in the data as well."""
    reply = live.eval("(let (x) (dotimes (i 100 x) (setf x (list x))))")
    assert reply["truncated"] == {"depth": 60}
    assert "deeper than 60 levels" in reply["notes"][0]


@pytest.mark.contract("answers.lisp.verdict")
def test_compilation_with_an_error_fails_and_counts_what_was_found(live):
    """Answers: broken code is no success."""
    reply = live.ask("compile", code="(defun a (x)\n  (nosuch x)\n  unknown)\n(defun b ()\n  (if))")
    assert not reply["ok"]
    assert reply["error"]["type"] == "COMPILATION-FAILED"
    assert "1 error, 1 warning, 1 style warning" in reply["error"]["message"]
    assert reply["error"]["line"] == 5
    assert [w["line"] for w in reply["warnings"] if w["kind"] == "error"] == [5]
    # As the message says: the definition is there and signals.
    assert live.eval("(b)")["error"]["type"] == "SB-INT:COMPILED-PROGRAM-ERROR"


def test_compilation_with_warnings_is_no_failure(live):
    """Answers: the toolset makes the line of the verdict from the warnings, in any language."""
    reply = live.ask("compile", code="(defun a (x) (car x x))")
    assert reply["ok"]
    assert [warning["kind"] for warning in reply["warnings"]] == ["warning"]
    assert "notes" not in reply


def test_an_evaluation_of_broken_code_says_that_it_was_not_compiled(live, tmp_path):
    """Answers: also where the code was only defined, or loaded from a file."""
    reply = live.eval("(defun b () (if))")
    assert reply["ok"]
    assert reply["notes"][0].startswith("Compilation failed: 1 error.")
    file = tmp_path / "broken.lisp"
    file.write_text("(defun c ()\n\n  (let ((1 2)) 3))\n")
    reply = live.eval(f'(load "{file}")')
    assert reply["notes"][0].startswith("Compilation failed: 1 error.")
    assert [(w["file"], w["line"]) for w in reply["warnings"]] == [(str(file), 3)]
    assert "notes" not in live.eval('(warn "only my own")')


@pytest.mark.contract("answers.lisp.backtrace")
@pytest.mark.parametrize(
    "code",
    [
        '(error "x")',
        "(car 3)",
        "(defun f (x) (car x)) (handler-bind ((error (lambda (c) (f c)))) (f 3))",
        '(restart-case (error "x") (mine () 1))',
        "(funcall (lambda () (mapcar #'car '(1))))",
        '(with-open-file (s "/nowhere/at/all") s)',
        "(sort (list 1 :a) #'<)",
    ],
)
def test_a_backtrace_ends_with_the_form_and_has_no_machinery(live, code):
    """Answers: backtraces do not end in our own frames."""
    frames = live.eval(code)["error"]["backtrace"]
    assert "(EVAL (" in frames[-1]
    for frame in frames:
        assert "GRAMERCY" not in frame
        assert "foreign function" not in frame
        assert "INTERNAL-ERROR" not in frame


def test_an_error_tells_the_restarts_that_it_offers(live):
    """Answers: restarts are shown, short; ABORT is what has happened."""
    error = live.eval("(list undefined-variable)")["error"]
    text = fault_text(msgspec.convert(error, ImageFault))
    assert text.splitlines()[-4:] == [
        "[Restarts]",
        "[0] CONTINUE: Retry using UNDEFINED-VARIABLE.",
        "[1] USE-VALUE (VALUE): Use specified value.",
        "[2] STORE-VALUE (VALUE): Set specified value and use it.",
    ]
    assert "[Restarts]" not in fault_text(msgspec.convert(live.eval("(car 1)")["error"], ImageFault))
