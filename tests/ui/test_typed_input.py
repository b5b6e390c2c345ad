"""Code at the prompt that reads its standard input: a person types it, or it is the next line of a pipe."""

import shutil

import pytest

pytestmark = pytest.mark.usefixtures("no_orphans")

PROMPT = {"sbcl": "CL-USER> ", "python": ">>> "}
SET = {"sbcl": "(defvar *x* 41)\n", "python": "x = 41\n"}
LOOK = {"sbcl": "*x*\n", "python": "x\n"}
ASK = {
    "sbcl": '(progn (format t "Name? ") (read-line))\n',
    "python": "input('Name? ')\n",
}
ASK_TWICE = {
    "sbcl": '(flet ((ask (what) (format t "~a? " what) (read-line))) (list (ask "First") (ask "Second")))\n',
    "python": "[input('First? '), input('Second? ')]\n",
}
TWO = {"sbcl": '=> ("Ada" "Lovelace")', "python": "=> ['Ada', 'Lovelace']"}
# Reads to the end of the input.
READ_ALL = {
    "sbcl": '(progn (format t "Lines? ") (loop for line = (read-line nil nil) while line collect line))\n',
    "python": "import sys; print('Lines?', end=' '); [line.strip() for line in sys.stdin]\n",
}
ENDED = {"sbcl": "The standard input has ended.", "python": "EOF when reading a line\n"}
NO_INPUT = {
    "sbcl": "Evaluated code has no standard input: put the value in the code.",
    "python": "evaluated code has no standard input: put the value in the code",
}
QUOTED = {"sbcl": '=> "{}"', "python": "=> '{}'"}


@pytest.fixture
def sbcl():
    """Skip where there is no SBCL."""
    if shutil.which("sbcl") is None:
        pytest.skip("sbcl is not installed: apt-get install sbcl")


@pytest.fixture
def start(terminal, language, tmp_path):
    """Start a prompt and wait until it can be typed at."""

    def run(*options, **environment):
        state = str(tmp_path / "state")
        screen = terminal("repl", "--language", language, *options, XDG_STATE_HOME=state, **environment)
        screen.expect(PROMPT[language])
        screen.settle()
        return screen

    return run


def leave(screen):
    screen.settle()
    screen.send(":quit\n")
    assert screen.end() == 0


@pytest.mark.contract("day.prompt.input")
def test_code_gets_the_line_that_a_person_types(start, language):
    screen = start()
    screen.send(ASK[language])
    screen.expect("\nName? ")
    screen.send("Ada\n")
    # What was typed ends its own line on the screen.
    assert screen.expect(QUOTED[language].format("Ada")) == "Ada\n"
    screen.expect(PROMPT[language])
    leave(screen)


@pytest.mark.contract("day.prompt.input")
def test_one_call_asks_as_often_as_it_likes(start, language):
    screen = start()
    screen.send(ASK_TWICE[language])
    screen.expect("\nFirst? ")
    screen.send("Ada\n")
    assert screen.expect("Second? ") == "Ada\n"
    screen.send("Lovelace\n")
    assert screen.expect(TWO[language]) == "Lovelace\n"
    screen.expect(PROMPT[language])
    leave(screen)


@pytest.mark.contract("day.prompt.input")
def test_ctrl_c_stops_code_that_waits_for_a_line(start, language):
    """People: Ctrl-C interrupts the running evaluation and keeps the state."""
    screen = start()
    screen.send(SET[language])
    screen.expect(PROMPT[language])
    screen.send(ASK[language])
    screen.expect("\nName? ")
    screen.send("Ad")
    screen.expect("Ad")
    screen.send("\x03")
    screen.expect("interrupted")
    screen.expect(PROMPT[language])
    screen.settle()
    screen.send(LOOK[language])
    screen.expect("=> 41")
    screen.expect(PROMPT[language])
    screen.settle()
    screen.send(ASK[language])
    screen.expect("\nName? ")
    screen.send("Ada\n")
    screen.expect(QUOTED[language].format("Ada"))
    screen.expect(PROMPT[language])
    leave(screen)


@pytest.mark.contract("day.prompt.input")
def test_ctrl_d_is_the_end_of_the_input_and_not_of_the_prompt(start, language):
    screen = start()
    screen.send(ASK[language])
    screen.expect("\nName? ")
    screen.send("\x04")
    # The error stands on a line of its own, and gives no advice about a missing input.
    assert screen.expect("[ERROR]") == "\n"
    screen.expect(ENDED[language])
    assert NO_INPUT[language] not in screen.expect(PROMPT[language])
    screen.settle()
    screen.send(READ_ALL[language])
    screen.expect("\nLines? ")
    screen.send("Ada\n")
    screen.expect("Ada\n")
    screen.send("Lovelace\n")
    screen.expect("Lovelace\n")
    screen.send("\x04")
    screen.expect(TWO[language])
    screen.expect(PROMPT[language])
    leave(screen)


@pytest.mark.contract("day.prompt.input")
@pytest.mark.usefixtures("sbcl")
def test_lisp_asks_yes_or_no_and_reads_objects(terminal, tmp_path):
    screen = terminal("repl", "--language", "sbcl", XDG_STATE_HOME=str(tmp_path / "state"))
    screen.expect(PROMPT["sbcl"])
    screen.settle()
    screen.send('(list (y-or-n-p "Sure?") (yes-or-no-p "Really?") (progn (format t "Bed? ") (read)))\n')
    screen.expect("\nSure? (y or n) ")
    screen.send("y\n")
    # No empty line: the person has begun a new one.
    assert screen.expect("Really? (yes or no) ") == "y\n"
    screen.send("no\n")
    assert screen.expect("Bed? ") == "no\n"
    screen.send("(rose\n")
    screen.expect("(rose\n")
    screen.send("fern)\n")
    screen.expect("=> (T NIL (ROSE FERN))")
    screen.expect(PROMPT["sbcl"])
    leave(screen)


@pytest.mark.contract("day.prompt.input")
def test_a_question_behind_much_output_is_shown(start, language):
    """More is printed than is shown of an evaluation, twice."""
    screen = start()
    code = {
        "sbcl": '(loop repeat 2 do (loop repeat 500 do (format t "~70,,,\'xa~%" 1))'
        ' (format t "Go on? ") (read-line))\n',
        "python": "for _ in 1, 2: print(('x' * 70 + '\\n') * 500, end=''); input('Go on? ')\n\n",
    }
    screen.send(code[language])
    for _ in range(2):
        screen.expect("\n… [stdout cut: ")
        screen.expect(" characters are not shown]\nGo on? ")
        screen.send("yes\n")
        screen.expect("yes\n")
    screen.expect(PROMPT[language])
    leave(screen)


@pytest.mark.contract("day.prompt.input-secret")
def test_a_password_is_not_shown_and_nothing_typed_is_kept(terminal, tmp_path, tmp_path_factory):
    journal = tmp_path_factory.mktemp("journal") / "journal.db"
    state = str(tmp_path / "state")
    screen = terminal("repl", "--language", "python", "--journal", str(journal), XDG_STATE_HOME=state)
    screen.expect(PROMPT["python"])
    screen.settle()
    screen.send("import getpass; word = getpass.getpass('Word? '); name = input('Name? ')\n")
    screen.expect("\nWord? ")
    screen.send("thistle\n")
    assert screen.expect("Name? ") == "\n"
    screen.send("bramble\n")
    # The terminal shows again what is typed.
    screen.expect("bramble\n")
    screen.expect(PROMPT["python"])
    screen.settle()
    screen.send("len(word) * len(name)\n")
    screen.expect("=> 49")
    screen.expect(PROMPT["python"])
    leave(screen)
    assert "thistle" not in screen.screen
    places = (tmp_path, journal.parent)
    kept = [file for place in places for file in place.rglob("*") if file.is_file()]
    # Both have the code that asked.
    asking = {file.name for file in kept if b"getpass.getpass" in file.read_bytes()}
    assert asking >= {"python-history", "journal.db"}
    assert not [file for file in kept if b"thistle" in file.read_bytes() or b"bramble" in file.read_bytes()]


@pytest.mark.contract("day.prompt.input-pipe")
def test_in_a_pipe_code_reads_the_next_line(gramercy, language):
    typed = ASK_TWICE[language] + "Ada\nLovelace\n" + SET[language] + LOOK[language]
    done = gramercy("repl", "--language", language, stdin=typed)
    assert (done.returncode, done.stderr) == (0, "")
    assert TWO[language] in done.stdout
    assert done.stdout.endswith("=> 41\n")


@pytest.mark.contract("day.prompt.input-pipe")
def test_the_end_of_a_pipe_is_the_end_of_the_input(gramercy, language):
    done = gramercy("repl", "--language", language, stdin=ASK[language])
    assert done.returncode == 1
    assert ENDED[language].strip() in done.stderr
    assert NO_INPUT[language] not in done.stderr


@pytest.mark.contract("day.prompt.input-elsewhere")
def test_a_preview_asks_nobody(gramercy, language):
    done = gramercy("repl", "--language", language, stdin=f":preview {ASK[language]}Ada\n")
    assert NO_INPUT[language] in done.stdout
    # The line that follows is an entry of its own.
    assert "ADA" in done.stderr.upper()


@pytest.mark.contract("day.prompt.input-elsewhere")
def test_other_commands_say_what_to_do_instead(gramercy, language):
    done = gramercy("eval", ASK[language], "--language", language, stdin="Ada\n")
    assert (done.returncode, NO_INPUT[language] in done.stderr) == (1, True)
