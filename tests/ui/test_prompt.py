"""What the prompt and `eval` look like: on terminals with and without colours, and in pipes."""

import json
import shutil

import pytest

from gramercy.ui.cli.reading import files_from, string_start

pytestmark = pytest.mark.usefixtures("no_orphans")

PROMPT = {"sbcl": "CL-USER> ", "python": ">>> "}
PRINT = {"sbcl": '(format t "grown~%")', "python": "print('grown')"}
LEAVE = {
    "sbcl": ["(exit)", "(quit)", "(sb-ext:exit)", "(EXIT )"],
    "python": ["exit()", "quit()", "exit", "quit( )"],
}
FAIL = {"sbcl": "(car 1)", "python": "1 / 0"}
COLORED = {"TERM": "xterm-256color", "NO_COLOR": ""}
# Shows what is typed as it is, and brackets nothing.
PLAIN = {"TERM": "dumb", "NO_COLOR": ""}


@pytest.fixture
def sbcl():
    """Skip where there is no SBCL."""
    if shutil.which("sbcl") is None:
        pytest.skip("sbcl is not installed: apt-get install sbcl")


@pytest.fixture
def prompt(terminal, language, tmp_path):
    """Start a prompt on a terminal of some kind and wait until it can be typed at."""

    def start(**environment):
        screen = terminal(
            "repl", "--language", language, XDG_STATE_HOME=str(tmp_path / "state"), **environment
        )
        screen.expect(PROMPT[language])
        screen.settle()
        return screen

    return start


@pytest.mark.contract("day.prompt.pipe")
def test_a_pipe_gets_what_was_printed_and_nothing_else(gramercy, language):
    done = gramercy("eval", PRINT[language], "--language", language)
    assert done.stdout == {"sbcl": "grown\nNIL\n", "python": "grown\n"}[language]
    assert done.stderr == ""


@pytest.mark.contract("day.prompt.pipe")
def test_output_without_a_line_end_has_none_in_a_pipe(gramercy):
    code = "import sys\nsys.stderr.write('careful')\nprint('grown', end='')"
    done = gramercy("eval", code, "--language", "python")
    assert (done.stdout, done.stderr) == ("grown", "careful")


def test_a_pipe_gets_long_output_whole(gramercy):
    done = gramercy("eval", "print('x' * 90_000)", "--language", "python")
    assert (len(done.stdout), done.stderr) == (90_001, "")


@pytest.mark.contract("day.prompt.words")
@pytest.mark.parametrize("code", ["x = 1", "pass", "print(end='')", "# nothing"])
def test_python_says_nothing_where_there_is_no_value(gramercy, code):
    done = gramercy("eval", code, "--language", "python")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = gramercy("repl", "--language", "python", stdin=f"{code}\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


OTHER = {
    "sbcl": ["1+1", "print(1)", "import os", "x = [1, 2]", "def f(x):\n    return x"],
    "python": ["(+ 1 2)", "(defun f (x) x)", '(format t "x")', "(list 1 2)"],
}
OWN = {
    "sbcl": ["(car 1)", "nosuch", "(f)", "'(1 . ", "(print nosuch)"],
    "python": ["(f)", "nosuch", "1 +", "(1, 2", "x = (1 2)"],
}


@pytest.mark.contract("day.prompt.other-language")
def test_code_of_the_other_language_explains_itself(gramercy, language):
    """The prompt: `eval "1+1"` sent to Lisp explains itself."""
    other = {"sbcl": "python", "python": "sbcl"}[language]
    for code in OTHER[language]:
        done = gramercy("eval", code, "--language", language)
        assert (done.returncode, f"say --language {other}" in done.stderr) == (1, True), code
    done = gramercy("repl", "--language", language, stdin=OTHER[language][0])
    assert f"say --language {other}" in done.stderr


def test_code_of_its_own_language_is_not_taken_for_the_other(gramercy, language):
    for code in OWN[language]:
        done = gramercy("eval", code, "--language", language)
        assert (done.returncode, "this looks like" in done.stderr) == (1, False), code


@pytest.mark.contract("day.prompt.leaving")
@pytest.mark.slow
def test_what_people_type_to_leave_leaves_the_prompt(gramercy, language):
    for word in LEAVE[language]:
        done = gramercy("repl", "--language", language, stdin=f"42\n{word}\n{FAIL[language]}\n")
        assert (done.returncode, done.stdout, done.stderr) == (0, "=> 42\n", ""), word


def test_a_person_leaves_with_the_words_of_the_language(prompt, language):
    screen = prompt()
    screen.send(f"{LEAVE[language][0]}\n")
    assert screen.end() == 0


@pytest.mark.contract("day.prompt.colors")
def test_a_terminal_with_colours_gets_them(prompt, language):
    screen = prompt(**COLORED)
    screen.send("42\n")
    screen.expect("\x1b[2m=> \x1b[0m\x1b[1m42\x1b[0m")
    screen.expect(PROMPT[language])
    screen.settle()
    screen.send(f"{FAIL[language]}\n")
    screen.expect("\x1b[31m\x1b[1m[ERROR]")
    screen.expect(PROMPT[language])


@pytest.mark.contract("day.prompt.colors")
@pytest.mark.parametrize("kind", [PLAIN, {**COLORED, "NO_COLOR": "1"}], ids=["dumb", "no-color"])
@pytest.mark.slow
def test_a_terminal_without_colours_gets_none(prompt, language, kind):
    screen = prompt(**kind)
    screen.send(f"{FAIL[language]}\n")
    screen.expect("[ERROR]")
    screen.expect(PROMPT[language])
    assert "\x1b[3" not in screen.screen
    assert "\x1b[1m" not in screen.screen


def test_the_caret_below_a_wrong_line_is_in_colour(terminal, tmp_path):
    screen = terminal("repl", "--language", "python", XDG_STATE_HOME=str(tmp_path), **COLORED)
    screen.expect(">>> ")
    screen.settle()
    screen.send("f(]\n")
    screen.expect("    f(]\n\x1b[31m\x1b[1m      ^\x1b[0m\n")


@pytest.mark.contract("day.prompt.history")
def test_what_was_typed_before_is_found_again_in_the_next_session(prompt, language):
    """The prompt: history search."""
    screen = prompt(**COLORED)
    screen.send({"sbcl": "(list :marigold 41)\n", "python": "['marigold', 41]\n"}[language])
    screen.expect("=> ")
    screen.expect(PROMPT[language])
    screen.settle()
    screen.send("1\n")
    screen.expect(PROMPT[language])
    screen.settle()
    screen.send("\x04")
    assert screen.end() == 0
    screen = prompt(**COLORED)
    screen.send("\x12marig")
    screen.expect("reverse-i-search")
    screen.settle()
    screen.send("\r")
    screen.expect({"sbcl": "\x1b[1m(:MARIGOLD 41)", "python": "\x1b[1m['marigold', 41]"}[language])


def test_a_pipe_gets_no_colours(gramercy, language):
    done = gramercy("eval", FAIL[language], "--language", language, **COLORED)
    assert "\x1b" not in done.stdout + done.stderr


PASTE = {
    "sbcl": "(defun f (x)\n\n  (* x\n\n 2))\n(f 1)\n(f 21)",
    "python": "def f(x):\n    y = x\n\n    return y * 2\n\n\nf(1)\nf(21)",
}


@pytest.mark.contract("day.prompt.paste")
def test_pasted_code_may_have_empty_lines(prompt, language):
    """Each of its forms is evaluated and shown, as if they had been typed."""
    screen = prompt(**COLORED)
    screen.send(f"\x1b[200~{PASTE[language]}\x1b[201~\n")
    screen.expect("\x1b[1m2\x1b[0m")
    screen.expect("\x1b[1m42\x1b[0m")
    screen.expect(PROMPT[language])


@pytest.mark.contract("day.prompt.paste")
def test_code_pasted_into_a_terminal_that_does_not_say_so_may_have_empty_lines_too(prompt, language):
    screen = prompt(**PLAIN)
    screen.send(f"{PASTE[language]}\n")
    screen.expect("=> 2\n")
    screen.expect("=> 42\n")
    screen.expect(PROMPT[language])


def test_a_pasted_block_needs_no_empty_line_at_its_end(prompt, language):
    screen = prompt(**COLORED)
    code = {"sbcl": "(progn\n\n 42)", "python": "for n in [42]:\n\n    print(n)"}[language]
    screen.send(f"\x1b[200~{code}\x1b[201~\n")
    screen.expect("42")
    screen.expect(PROMPT[language])


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (":und\n", "did you mean :undo?"),
        (":che\n", "did you mean :checkpoints or :checkpoint?"),
        (":qiut\n", "did you mean :quit?"),
        (":\n", ":help lists them"),
        (":xyzzy\n", ":help lists them"),
    ],
)
@pytest.mark.slow
def test_a_command_that_is_begun_or_mistyped_is_suggested(gramercy, typed, told):
    done = gramercy("repl", "--language", "python", stdin=typed)
    assert (done.returncode, done.stdout) == (1, "")
    assert told in done.stderr


def test_an_evaluation_that_fails_can_open_the_prompt(terminal, language, tmp_path):
    code = {"sbcl": "(defvar *x* 41) (car 1)", "python": "x = 41\n1 / 0"}[language]
    words = ("eval", code, "--debug", "--language", language)
    screen = terminal(*words, XDG_STATE_HOME=str(tmp_path / "state"))
    screen.expect("[ERROR]")
    screen.expect(PROMPT[language])
    screen.settle()
    screen.send({"sbcl": "*x*\n", "python": "x\n"}[language])
    screen.expect("=> 41")
    screen.expect(PROMPT[language])
    screen.settle()
    screen.send("\x04")
    assert screen.end() == 1


def test_a_person_learns_of_the_prompt_and_a_pipe_does_not(terminal, gramercy):
    words = ("eval", "1/0", "--language", "python")
    screen = terminal(*words)
    screen.expect("with --debug the prompt opens where it failed")
    assert screen.end() == 1
    assert "--debug" not in gramercy(*words).stderr


@pytest.mark.parametrize("words", [[], ["--json"], ["--preview"]])
def test_there_is_no_prompt_where_nobody_types(gramercy, words):
    done = gramercy("eval", "1/0", "--debug", "--language", "python", *words)
    assert (done.returncode, "needs a terminal" in done.stdout + done.stderr) == (2, True)


COMPLETED = {
    "sbcl": [
        ("(defpackage :bed (:use :cl)) (in-package :bed) (defvar *rose-tree* 5)", "(1+ *rose-t\t)", "=> 6"),
        ("(defstruct plant height)", "(plant-hei\t (make-plant :hei\t 7))", "=> 7"),
        ("1", '(probe-file "gar\t")', 'garden/beds.txt"'),
        ("1", "(list 1\n *rose-t\t)", "=> (1 5)"),
        ("1", "'*rose-t\t", "=> *ROSE-TREE*"),
    ],
    "python": [
        ("Plant = type('Plant', (), {'height': 7})", "Plant.hei\t + 1", "=> 8"),
        ("plant = Plant()", "plant.hei\t * 2", "=> 14"),
        ("beds = {'a': 'rose'}", "beds.ge\t('a')", "=> 'rose'"),
        ("import os", "os.path.exists('gar\t')", "=> True"),
        ("1", "[1,\nplant.hei\t]", "=> [1, 7]"),
    ],
}


@pytest.mark.contract("day.prompt.completion")
def test_tab_completes_attributes_and_files(prompt, language, tmp_path):
    """The prompt: attribute and path completion."""
    (tmp_path / "garden").mkdir()
    (tmp_path / "garden" / "beds.txt").touch()
    screen = prompt()
    for before, typed, shown in COMPLETED[language]:
        for line in (before, typed):
            screen.send(f"{line}\n")
            if line == typed:
                screen.expect(shown)
            screen.expect("> ")
            screen.settle()


@pytest.mark.contract("day.prompt.completion")
def test_tab_completes_commands_and_their_files(prompt, language, tmp_path):
    (tmp_path / "my garden.state").touch()
    screen = prompt()
    screen.send(":checkpoints\n")
    screen.expect(PROMPT[language])
    screen.settle()
    screen.send(":hel\t\n")
    screen.expect("take back the last change")
    screen.expect(PROMPT[language])
    screen.settle()
    screen.send(":restore my\t\n")
    screen.expect("my garden.state")
    screen.expect(PROMPT[language])


@pytest.mark.parametrize(
    ("code", "language", "start"),
    [
        ("open('a", "python", 6),
        ("open('a'", "python", None),
        ("f('it\\'s", "python", 3),
        ("x # it's", "python", None),
        ("x # it's\n'b", "python", 10),
        ("don't", "python", 4),
        ('(f "a', "sbcl", 4),
        ('(f "a")', "sbcl", None),
        ("(f 'a", "sbcl", None),
        ('(f #\\" ', "sbcl", None),
        ('; "', "sbcl", None),
        ("", "python", None),
        ("\\", "python", None),
    ],
)
def test_the_beginning_of_an_open_string_is_found(code, language, start):
    assert string_start(code, language) == start


def test_files_go_on_from_what_was_typed(tmp_path):
    """A directory that is the only way to go on is gone into; hidden files are not shown unasked."""
    (tmp_path / "my-beds").mkdir()
    (tmp_path / "my-beds" / "rose.txt").touch()
    (tmp_path / ".hidden").touch()
    (tmp_path / "bell\a").touch()
    (tmp_path / "my-empty").mkdir()
    assert files_from(tmp_path, "my-b") == ["my-beds/rose.txt"]
    assert files_from(tmp_path, "my-beds/") == ["my-beds/rose.txt"]
    assert files_from(tmp_path, f"{tmp_path}/my-beds/ro") == [f"{tmp_path}/my-beds/rose.txt"]
    assert sorted(files_from(tmp_path, "")) == ["my-beds/", "my-empty/"]
    assert files_from(tmp_path, "my-e") == ["my-empty/"]
    assert files_from(tmp_path, ".h") == [".hidden"]
    assert files_from(tmp_path, "nowhere/x") == []
    assert files_from(tmp_path, "\0/") == []


NESTED = "def grow(plant):\n    height = len(plant) * 2\n    return height / 0\n\ngrow('rose')\n"


@pytest.mark.contract("day.prompt.moment")
def test_the_stack_of_an_error_is_looked_at(gramercy):
    typed = f"{NESTED}:frames\n:locals\n:locals 1\n:in 0 height + 1\n:in 0 nosuch\n"
    done = gramercy("repl", "--language", "python", stdin=typed)
    for told in ("0: grow(plant='rose')", "return height / 0", "height = 8", "=> 9\n"):
        assert told in done.stdout
    assert "NameError" in done.stderr


def test_python_says_that_it_has_no_restarts(gramercy):
    done = gramercy("repl", "--language", "python", stdin=f"{NESTED}:restart\n")
    assert "Python has no restarts" in done.stdout
    done = gramercy("repl", "--language", "python", stdin=f"{NESTED}:restart 1\n")
    assert "Python has no restarts" in done.stderr


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (":frames\n", "No moment of an error is kept"),
        (":locals x\n", "needs the number of a frame"),
        (":in 0\n", "needs the number of a frame and code"),
        (":in\n", "needs a frame and code"),
        (":edit\n", "needs a terminal"),
        (":load\n", "needs a file"),
    ],
)
def test_commands_that_cannot_be_done_say_why(gramercy, typed, told):
    done = gramercy("repl", "--language", "python", stdin=typed)
    assert (done.returncode, done.stdout) == (1, "")
    assert told in done.stderr


@pytest.fixture
def editor(tmp_path):
    """Write an editor that replaces a word; return what names it."""
    program = tmp_path / "editor"
    program.write_text('#!/bin/sh\nsed -i "s/rose/fern/" "$1"\n')
    program.chmod(0o755)
    return {"EDITOR": str(program), "VISUAL": str(program)}


@pytest.mark.contract("day.prompt.edit")
def test_the_last_entry_is_changed_in_the_editor_and_evaluated(prompt, language, editor):
    screen = prompt(**editor)
    screen.send({"sbcl": '(list "a rose")\n', "python": "['a rose']\n"}[language])
    screen.expect("=> ")
    screen.expect(PROMPT[language])
    screen.settle()
    screen.send(":edit\n")
    screen.expect({"sbcl": '=> ("a fern")', "python": "=> ['a fern']"}[language])
    screen.expect(PROMPT[language])


@pytest.mark.parametrize(
    ("editor", "told"), [("true", "nothing was saved"), ("/no/such", "the editor failed")]
)
@pytest.mark.slow
def test_an_editor_that_saves_nothing_changes_nothing(prompt, language, editor, told):
    screen = prompt(VISUAL=editor, EDITOR=editor)
    screen.send("42\n")
    screen.expect("=> 42")
    screen.expect(PROMPT[language])
    screen.settle()
    screen.send(":edit\n")
    screen.expect(told)
    screen.expect(PROMPT[language])


DANGEROUS = (
    "from gramercy import tool\n\n\n"
    '@tool(safety_level="dangerous")\ndef dig(depth: int) -> str:\n'
    '    """Dig a hole."""\n    open("hole", "w").close()\n    return "dug"\n'
)
CHANGE = {"path": "beds.txt", "original": "rose\n", "modified": "fern\n", "description": "Plant"}
# The words of a command, and what is shown and typed before the question at which Ctrl-C comes.
QUESTIONS = {
    "approval": (["tools", "call", "dig", "depth=1", "--from", "dig.py"], [("[a/d/e]: ", "")]),
    "reason": (
        ["tools", "call", "dig", "depth=1", "--from", "dig.py"],
        [("[a/d/e]: ", "d\n"), ("reason: ", "")],
    ),
    "hunks": (
        ["tools", "call", "propose_file_edit", json.dumps(CHANGE), "--image", "python"],
        [("[n p a r SPC A K v q ?] ", "a\n"), ("[n p a r SPC A K v q ?] ", "")],
    ),
}


@pytest.mark.contract("day.prompt.interrupt")
@pytest.mark.parametrize("name", QUESTIONS)
def test_ctrl_c_at_a_question_leaves_and_does_nothing(terminal, tmp_path, name):
    """The command line: Ctrl-C at every prompt leaves cleanly."""
    words, steps = QUESTIONS[name]
    (tmp_path / "dig.py").write_text(DANGEROUS)
    (tmp_path / "beds.txt").write_text("rose\n")
    screen = terminal(*words)
    for question, answer in steps:
        screen.expect(question)
        screen.settle()
        screen.send(answer)
    screen.send("\x03")
    assert screen.end() == 130
    assert "Traceback" not in screen.screen
    assert not (tmp_path / "hole").exists()
    assert (tmp_path / "beds.txt").read_text() == "rose\n"


@pytest.mark.contract("day.prompt.interrupt")
def test_ctrl_c_leaves_the_tour(terminal):
    screen = terminal("tour", "--language", "python")
    screen.expect("\n")
    screen.send("\x03")
    assert screen.end() == 130
    assert "Traceback" not in screen.screen


BEDS = {
    "sbcl": ("beds.lisp", '(in-package :cl-user)\n(defun plant () "a rose")\n', "(plant)\n", '=> "a fern"'),
    "python": ("beds.py", "def plant():\n    return 'a rose'\n", "beds.plant()\n", "=> 'a fern'"),
}


@pytest.mark.contract("day.prompt.edit")
@pytest.mark.parametrize("by", ["file", "name"])
def test_a_file_is_changed_in_the_editor_and_loaded(prompt, language, editor, tmp_path, by):
    name, text, use, shown = BEDS[language]
    (tmp_path / name).write_text(text)
    screen = prompt(**editor)
    what = name if by == "file" else {"sbcl": "plant", "python": "beds.plant"}[language]
    for line in (f":load {name}\n", *(["import beds\n"] if language == "python" else [])):
        screen.send(line)
        screen.expect(PROMPT[language])
        screen.settle()
    screen.send(f":edit {what}\n")
    screen.expect(f"Loaded {name}")
    screen.expect(PROMPT[language])
    screen.settle()
    screen.send(use)
    screen.expect(shown)
    assert "fern" in (tmp_path / name).read_text()


@pytest.mark.contract("day.prompt.project")
def test_files_and_tests_of_the_project_are_at_hand(gramercy, tmp_path):
    """The prompt: `:tests` and `:files`."""
    (tmp_path / "beds.py").write_text("def rows(n):\n    return n * 2\n")
    (tmp_path / "test_beds.py").write_text(
        "import unittest\nimport beds\n\n\nclass Beds(unittest.TestCase):\n"
        "    def test_good(self):\n        assert beds.rows(2) == 4\n\n"
        "    def test_bad(self):\n        assert beds.rows(2) == 5\n"
    )
    typed = ":files\n:files *.txt\n:search n * 2\n:load beds.py\nimport beds; beds.rows(4)\n"
    typed += ":tests\n:tests failed\n"
    done = gramercy("repl", "--language", "python", stdin=typed)
    for told in ("test_beds.py", "beds.py:2", "Loaded beds.py", "=> 8", "test_bad"):
        assert told in done.stdout
    assert done.stdout.count("test_bad") >= 2


STACK = (
    '(defun water (bed) (restart-case (error "no water for ~a" bed) (wait () :later) (use (what) what)))\n'
    "(defun tend (bed) (let ((day 3)) (list day (water bed))))\n(tend :east)\n"
)


@pytest.mark.contract("day.prompt.moment")
@pytest.mark.usefixtures("sbcl")
def test_a_restart_goes_on_in_a_copy_which_can_become_the_image(gramercy):
    typed = f"(defvar *log* nil)\n{STACK}:frames\n:locals 1\n:restart\n:restart wait\n"
    typed += ":restart USE (list 1 2)\n:restart 1\n:restart nosuch\n:rollback m1.a1\n"
    done = gramercy("repl", "--language", "sbcl", stdin=typed)
    assert "0: (WATER :EAST)" in done.stdout
    assert "DAY = 3" in done.stdout
    assert "=> (3 :LATER)" in done.stdout
    assert "=> (3 (1 2))" in done.stdout
    assert "m1.a1" in done.stderr
    assert "nosuch" in done.stderr.lower()


@pytest.mark.usefixtures("sbcl")
def test_a_person_is_told_once_that_the_stack_is_kept(terminal, tmp_path):
    screen = terminal("repl", "--language", "sbcl", XDG_STATE_HOME=str(tmp_path / "state"))
    for expected in (True, False):
        screen.expect("CL-USER> ")
        screen.settle()
        screen.send("(car 1)\n")
        assert (":frames" in screen.expect("[ERROR]") + screen.expect("CL-USER> ")) is expected
        screen.send("1\n")
