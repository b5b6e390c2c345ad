"""The prompt on a live image: at a terminal, and through a pipe."""

import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gramercy.images.opening import open_image
from gramercy.ui.cli.forms import LispForm, PythonForm

pytestmark = pytest.mark.usefixtures("no_orphans")

DEFINE = {"sbcl": "(defun f (x)\n  (* x 2))\n", "python": "def f(x):\n    return x * 2\n\n"}
USE = {"sbcl": "(f 21)\n", "python": "f(21)\n"}
SET = {"sbcl": "(defvar *x* 41)\n", "python": "x = 41\n"}
CHANGE = {"sbcl": "(setf *x* 0)\n", "python": "x = 0\n"}
LOOK = {"sbcl": "*x*\n", "python": "x\n"}
PROMPT = {"sbcl": "CL-USER> ", "python": ">>> "}
BEGIN = {
    "sbcl": '(progn (with-open-file (s "begun" :direction :output) (print 1 s)) (loop))\n',
    "python": "while not open('begun', 'w').close(): pass\n\n",
}


def test_forms_are_evaluated_one_after_the_other_without_prompts(gramercy, language):
    done = gramercy("repl", "--language", language, stdin=DEFINE[language] + USE[language])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "=> 42"
    assert "> " not in done.stdout.replace("=> ", "")


def test_a_failure_is_shown_and_the_rest_goes_on(gramercy, language):
    done = gramercy("repl", "--language", language, stdin=USE[language] + DEFINE[language] + USE[language])
    assert done.returncode == 1
    assert "[ERROR]" in done.stderr
    assert done.stdout.endswith("=> 42\n")


def test_undo_takes_the_last_evaluation_back(gramercy, language):
    typed = SET[language] + CHANGE[language] + ":undo\n" + LOOK[language]
    done = gramercy("repl", "--language", language, stdin=typed)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "=> 41")


def test_preview_changes_nothing(gramercy, language):
    typed = SET[language] + ":preview " + CHANGE[language] + LOOK[language]
    done = gramercy("repl", "--language", language, stdin=typed)
    assert "nothing was changed" in done.stdout
    assert done.stdout.endswith("=> 41\n")


def test_a_named_state_can_be_gone_back_to(gramercy, language):
    typed = SET[language] + ":checkpoint before\n" + CHANGE[language] + ":checkpoints\n:rollback c2\n"
    done = gramercy("repl", "--language", language, stdin=typed + LOOK[language])
    assert "c2 from c1" in done.stdout
    assert "before" in done.stdout
    assert done.stdout.endswith("=> 41\n")


def test_states_are_compared(gramercy, language):
    typed = SET[language] + CHANGE[language] + ":compare c2\n:compare c2 c2\n"
    done = gramercy("repl", "--language", language, stdin=typed)
    told = done.stdout.partition("From c2 to now\n\n[definitions]\n")[2]
    assert "41 → 0" in told.splitlines()[0]
    assert f"[calls that led to now and not to c2]\n- {CHANGE[language].strip()}" in told
    assert told.endswith("No difference between c2 and c2 was found.\n")


def test_why_names_the_rule_and_runs_nothing(gramercy, tmp_path):
    """Guard: what would happen to a call, and which rule decides."""
    typed = ':why write_file {"path": "x", "content": "y"}\n:why eval_form {"form": "1"}\n'
    done = gramercy("repl", "--language", "python", stdin=typed)
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["ask", "allow"]
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (":unod\n", "did you mean :undo?"),
        (":rollback c99\n", "there is no checkpoint 'c99'"),
        (":rollback\n", ":rollback needs a state"),
        (":preview\n", "needs code"),
        (":why\n", "needs a tool"),
        (":why evalform {}\n", "eval_form"),
        (':why eval_form {"from": "1"}\n', "did you mean form?"),
        (":why eval_form {\n", "expected a JSON object"),
        (":undo\n", "nothing to undo"),
    ],
)
def test_wrong_commands_are_explained_on_standard_error(gramercy, typed, told):
    done = gramercy("repl", "--language", "python", stdin=typed)
    assert (done.returncode, done.stdout) == (1, "")
    assert told in done.stderr


def test_help_and_tools_list_what_there_is(gramercy):
    done = gramercy("repl", "--language", "python", stdin=":help\n:tools\n:quit\n1/0\n")
    assert done.returncode == 0
    assert ":rollback ID" in done.stdout
    assert "propose_file_edit" in done.stdout


def test_code_that_never_ends_its_form_is_an_error_not_a_hang(gramercy, language):
    done = gramercy("repl", "--language", language, stdin="(f 1")
    assert (done.returncode, "[ERROR]" in done.stderr) == (1, True)


def test_a_crash_of_the_image_loses_only_the_crashing_call(gramercy, language):
    crash = {"sbcl": "(sb-ext:exit :abort t)\n", "python": "import os; os._exit(3)\n"}
    done = gramercy("repl", "--language", language, stdin=SET[language] + crash[language] + LOOK[language])
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "=> 41")


def test_bytes_that_are_no_text_end_with_a_message(gramercy):
    done = gramercy(
        "repl", "--language", "python", stdin=b"x = 1\n\xff\xfe\n", PYTHONUTF8="0", LC_ALL="C.UTF-8"
    )
    assert done.returncode in {1, 3}


def test_a_person_types_over_several_lines_and_leaves_with_ctrl_d(terminal, language, tmp_path):
    screen = terminal("repl", "--language", language, XDG_STATE_HOME=str(tmp_path / "state"))
    screen.expect(PROMPT[language])
    screen.send(DEFINE[language])
    screen.expect(PROMPT[language])
    screen.send(USE[language])
    screen.expect("=> 42")
    screen.expect(PROMPT[language])
    screen.settle()
    screen.send("\x04")
    assert screen.end() == 0
    history = tmp_path / "state" / "gramercy" / f"{language}-history"
    assert USE[language].strip() in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_ctrl_c_stops_an_evaluation_and_keeps_the_state(terminal, language, tmp_path, until):
    """People: Ctrl-C interrupts the running evaluation and keeps the state."""
    screen = terminal("repl", "--language", language, XDG_STATE_HOME=str(tmp_path / "state"))
    screen.expect(PROMPT[language])
    screen.send(SET[language])
    screen.expect(PROMPT[language])
    screen.send(BEGIN[language])
    until((tmp_path / "begun").exists)
    screen.send("\x03")
    screen.expect("[ERROR]")
    screen.expect(PROMPT[language])
    screen.send(LOOK[language])
    screen.expect("=> 41")
    screen.expect(PROMPT[language])
    screen.send(":quit\n")
    assert screen.end() == 0


def test_ctrl_c_at_the_prompt_gives_up_what_was_typed(terminal, language, tmp_path):
    screen = terminal("repl", "--language", language, XDG_STATE_HOME=str(tmp_path / "state"))
    screen.expect(PROMPT[language])
    screen.send("(1 +\n")
    screen.expect("(1 +")
    screen.expect(" " * (len(PROMPT[language]) - 1))
    screen.settle()
    screen.send("\x03")
    screen.expect(PROMPT[language])
    screen.send("42\n")
    screen.expect("=> 42")
    screen.expect(PROMPT[language])
    screen.settle()
    screen.send("\x04")
    assert screen.end() == 0


def lisp(text):
    form = LispForm()
    for line in text.split("\n"):
        form.feed(line)
    return form.is_complete


@pytest.mark.parametrize(
    "text",
    [
        "(f)",
        "42",
        "(f #\\( )",
        '(f "(")',
        "(f) ; (",
        "#| ( #| |# |# 1",
        "(a |(| b)",
        ")",
        '"\\""',
        "a\\(",
        "'a",
        "#'f",
    ],
)
def test_whole_lisp_is_recognised(text):
    assert lisp(text)


@pytest.mark.parametrize(
    "text", ["(f", '"a', "(f #\\)", "#| |", "|a", "(f ; )", '(f ")"', "'", "#| #| |#", "`", "(a\n(b)", "#'"]
)
def test_open_lisp_is_recognised(text):
    assert not lisp(text)


ORACLE = """
(handler-case (with-input-from-string (s (format nil "~a~%" {text}))
                (loop until (eq s (read s nil s))) :whole)
  (end-of-file () :open)
  (error () :wrong))"""


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """Give the verdict of SBCL's own reader on a text."""
    if shutil.which("sbcl") is None:
        pytest.skip("sbcl is not installed: apt-get install sbcl")
    image = open_image("sbcl", project=tmp_path_factory.mktemp("reader"))
    quoted = str.maketrans({"\\": "\\\\", '"': '\\"'})
    yield lambda text: image.evaluate(ORACLE.format(text=f'"{text.translate(quoted)}"')).values
    image.close()


@settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(text=st.text(alphabet="()\"|#;\\' \nz", max_size=14))
def test_lisp_ends_where_the_reader_of_lisp_says(reader, text):
    """The reader is the judge; what is wrong for it may be sent or not."""
    verdict = reader(text)
    assert verdict == [":WRONG"] or verdict == [":WHOLE" if lisp(text) else ":OPEN"]


@pytest.mark.parametrize(
    ("is_typed", "lines", "following", "ends"),
    [
        (False, ["x = 1"], "y = 2", True),
        (False, ["if x:", "    pass"], "else:", False),
        (False, ["def f():", "    pass", ""], "    more", False),
        (False, ["x = ["], "1", False),
        (False, ["'''"], ":undo", False),
        (False, ["x = 1"], ":undo", True),
        (False, ["1 +* 2"], "x", True),
        (True, ["def f():", "    pass"], None, False),
        (True, ["def f():", "    pass", ""], None, True),
        (True, ["1 +* 2"], None, True),
        (True, ["x"], None, True),
        (True, ["(" * 500], None, True),
    ],
)
def test_python_ends_where_it_should(is_typed, lines, following, ends):
    form = PythonForm()
    for line in lines:
        form.feed(line)
    assert (form.is_entered if is_typed else form.ends_before(following)) is ends
