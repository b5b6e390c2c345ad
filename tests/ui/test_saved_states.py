"""States that a person saves and goes on with: at the prompt, and from the shell."""

import pytest

pytestmark = pytest.mark.usefixtures("no_orphans")

SET = {"sbcl": "(defvar *x* 41)", "python": "x = 41"}
CHANGE = {"sbcl": "(setf *x* 0)", "python": "x = 0"}
LOOK = {"sbcl": "*x*", "python": "x"}
FAIL = {"sbcl": "(car 1)", "python": "1/0"}
PROMPT = {"sbcl": "CL-USER> ", "python": ">>> "}


def test_a_state_is_saved_and_restored_at_the_prompt(gramercy, language, tmp_path):
    """Images: save, and a saved state starts with all it had."""
    typed = "\n".join(
        [SET[language], ":save my state", CHANGE[language], ":restore my state", LOOK[language]]
    )
    done = gramercy("repl", "--language", language, stdin=f"{typed}\n")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "=> 41")
    assert "saved to my state" in done.stdout
    assert f"restored from {tmp_path / 'my state'}" in done.stdout


def test_what_one_evaluation_saved_the_next_begins_with(gramercy, language):
    saved = gramercy("eval", SET[language], "--save", "state", "--language", language)
    assert (saved.returncode, "saved to state" in saved.stderr) == (0, True)
    done = gramercy("eval", LOOK[language], "--restore", "state", "--language", language)
    assert (done.returncode, done.stdout) == (0, "41\n")
    assert done.stderr.startswith("restored from ")
    done = gramercy("repl", "--restore", "state", "--language", language, stdin=f"{LOOK[language]}\n")
    assert (done.returncode, done.stdout) == (0, "=> 41\n")


def test_a_failed_evaluation_saves_nothing_and_says_so(gramercy, language, tmp_path):
    (tmp_path / "state").write_text("earlier")
    done = gramercy("eval", FAIL[language], "--save", "state", "--language", language)
    assert (done.returncode, done.stdout, done.stderr.startswith("[ERROR]")) == (1, "", True)
    assert done.stderr.endswith("\nnothing was saved to state: the evaluation failed\n")
    assert (tmp_path / "state").read_text() == "earlier"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--restore", "nowhere"], 2, "'nowhere' does not exist"),
        (["--restore", "."], 2, "is a directory"),
        (["--restore", "text"], 3, "is not a saved image"),
        (["--save", "nowhere/state"], 2, "there is no directory nowhere"),
        (["--save", "."], 2, "is a directory"),
        (["--save", "state", "--preview"], 2, "a preview changes nothing"),
    ],
)
def test_a_state_that_cannot_be_had_is_told_before_anything_runs(gramercy, tmp_path, words, code, told):
    (tmp_path / "text").write_text("not a state")
    done = gramercy("eval", "open('ran', 'w').close()", *words, "--language", "python")
    assert (done.returncode, done.stdout, (tmp_path / "ran").exists()) == (code, "", False)
    assert told in done.stderr


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (":save", ":save needs a file"),
        (":save nowhere/state", "cannot be written"),
        (":restore", ":restore needs a file"),
        (":restore nowhere", "cannot be read"),
        (":restore text", "is not a saved image"),
    ],
)
@pytest.mark.slow
def test_wrong_files_are_explained_and_the_state_stays(gramercy, language, tmp_path, typed, told):
    (tmp_path / "text").write_text("not a state")
    lines = f"{SET[language]}\n{typed}\n{LOOK[language]}\n"
    done = gramercy("repl", "--language", language, stdin=lines)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "=> 41")
    assert told in done.stderr


def test_steps_that_go_otherwise_are_told_to_the_person(gramercy, tmp_path):
    """Of Python the steps are run again, and what they depend on may have changed."""
    (tmp_path / "note.txt").write_text("here")
    gramercy("eval", "text = open('note.txt').read()", "--save", "state", "--language", "python")
    (tmp_path / "note.txt").unlink()
    done = gramercy("eval", "1 + 1", "--restore", "state", "--language", "python")
    assert (done.returncode, done.stdout) == (0, "2\n")
    assert "FileNotFoundError" in done.stderr


@pytest.mark.slow
def test_the_prompt_names_the_package_of_the_state(terminal, language, tmp_path):
    if language != "sbcl":
        pytest.skip("the prompt of Python names nothing")
    screen = terminal("repl", "--language", language, XDG_STATE_HOME=str(tmp_path / "state"))
    for shown, typed in [
        ("CL-USER> ", "(progn (defpackage :garden (:use :cl)) (in-package :garden))\n"),
        ("GARDEN> ", ":save garden.core\n"),
        ("GARDEN> ", ":undo\n"),
        ("CL-USER> ", ":restore garden.core\n"),
        ("GARDEN> ", ":quit\n"),
    ]:
        screen.expect(f"\n{shown}")
        screen.settle()
        screen.send(typed)
    assert screen.end() == 0
    again = terminal("repl", "--restore", "garden.core", "--language", language)
    again.expect("GARDEN> ")


def test_ctrl_c_stops_a_restore_and_the_prompt_goes_on(terminal, tmp_path, until):
    """Of Python the steps are run again: one of them may take much longer this time."""
    step = 'exec(\'import os\\nwhile os.path.exists("slow"): open("begun", "w").close()\')\n'
    screen = terminal("repl", "--language", "python", XDG_STATE_HOME=str(tmp_path / "kept"))
    for typed in [step, ":save state\n"]:
        screen.expect(PROMPT["python"])
        screen.send(typed)
    screen.expect("saved to state")
    screen.expect(PROMPT["python"])
    (tmp_path / "slow").touch()
    screen.send(":restore state\n")
    until((tmp_path / "begun").exists)
    screen.send("\x03")
    screen.expect("fails now: KeyboardInterrupt")
    screen.expect(PROMPT["python"])
    screen.send("40 + 2\n")
    screen.expect("=> 42")
