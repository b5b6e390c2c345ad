"""`gramercy eval` and the tools of an image from the shell."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("no_orphans")

SIX = {"sbcl": "(print :hello) (+ 1 2 3)", "python": "print('HELLO')\n1 + 2 + 3"}
FAIL = {"sbcl": '(error "it ~a" \'failed)', "python": "raise ValueError('it FAILED')"}
DEFINE = {"sbcl": "(defun f (x) x)", "python": "def f(x): return x"}
WRITE = {
    "sbcl": '(with-open-file (s "out.txt" :direction :output) (print 1 s))',
    "python": "open('out.txt', 'w').write('1')",
}
LOOP = {"sbcl": "(loop)", "python": "while True: pass"}
BEGIN = {
    "sbcl": '(with-open-file (s "begun" :direction :output) (print 1 s)) (loop)',
    "python": "open('begun', 'w').close()\nwhile True: pass",
}


def test_values_and_output_are_printed(gramercy, language):
    done = gramercy("eval", SIX[language], "--language", language)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == {"sbcl": "\n:HELLO \n6\n", "python": "HELLO\n6\n"}[language]


def test_code_can_come_from_standard_input(gramercy, language):
    done = gramercy("eval", "-", "--language", language, stdin=SIX[language])
    assert done.stdout.endswith("6\n")


def test_a_failed_evaluation_gives_exit_code_1(gramercy, language):
    done = gramercy("eval", FAIL[language], "--language", language)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("[ERROR] ")
    assert "it FAILED" in done.stderr


def test_a_preview_changes_nothing_and_tells_what_would_be(gramercy, language, tmp_path):
    """Images: which definitions would change, and what it tried to write."""
    done = gramercy("eval", DEFINE[language], "--preview", "--language", language)
    assert "nothing was changed" in done.stdout
    assert "[would change]" in done.stdout
    done = gramercy("eval", WRITE[language], "--preview", "--language", language)
    assert (done.returncode, (tmp_path / "out.txt").exists()) == (1, False)
    assert "[attempted effects]" in done.stdout


def test_an_evaluation_may_write_the_project(gramercy, language, tmp_path):
    done = gramercy("eval", WRITE[language], "--language", language)
    assert (done.returncode, (tmp_path / "out.txt").read_text().strip()) == (0, "1")


def test_json_has_the_whole_reply(gramercy, language):
    reply = json.loads(gramercy("eval", SIX[language], "--json", "--language", language).stdout)
    assert (reply["ok"], reply["forms"][-1]["values"], reply["stdout"].strip()[-5:]) == (True, ["6"], "HELLO")


def test_an_endless_evaluation_is_stopped_in_time(gramercy, language):
    done = gramercy("eval", LOOP[language], "--timeout", "0.3", "--language", language)
    assert done.returncode == 1
    assert "[ERROR]" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--project", "/"], 3, "cannot be the project"),
        (["--project", "/nowhere"], 2, "does not exist"),
        (["--language", "cobol"], 2, "cobol"),
        (["--timeout", "0"], 2, "timeout"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_message(gramercy, words, code, told):
    done = gramercy("eval", "1", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr


def test_an_image_that_is_not_installed_gives_exit_code_3(gramercy, tmp_path):
    done = gramercy("eval", "1", "--language", "sbcl", PATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (3, "")
    assert "sbcl" in done.stderr


def test_input_that_is_no_text_is_refused(gramercy):
    assert "not UTF-8" in gramercy("eval", "-", stdin=b"\xff\xfe").stderr


def test_ctrl_c_ends_everything(language, tmp_path, until):
    """Images: a test counts processes after every kind of ending; the fixture counts here."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gramercy", "eval", BEGIN[language], "--language", language],
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    until((tmp_path / "begun").exists)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130


def test_a_killed_command_leaves_no_process(language, tmp_path, until):
    """Images: nothing of an image outlives whoever started it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gramercy", "eval", BEGIN[language], "--language", language],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    until((tmp_path / "begun").exists)
    process.kill()
    assert process.wait(60) == -signal.SIGKILL


def test_the_tools_of_an_image_are_listed_and_shown(gramercy, language):
    names = [line.split()[0] for line in gramercy("tools", "list", "--image", language).stdout.splitlines()]
    assert {"eval_form", "write_file", "undo_last", "reset-session"} < set(names)
    assert "form: string, required" in gramercy("tools", "show", "eval_form", "--image", language).stdout


def test_the_tools_of_an_image_are_called(gramercy, language):
    done = gramercy("tools", "call", "eval_form", f"form={SIX[language]}", "--image", language)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "=> 6")


def test_a_call_past_its_deadline_ends_with_what_the_image_says(gramercy, language):
    words = ["eval_form", f"form={LOOP[language]}", "--deadline", "0.3", "--image", language]
    done = gramercy("tools", "call", *words)
    assert done.returncode == 1
    assert "[ERROR]" in done.stderr


def test_files_and_an_image_go_together_but_not_under_one_name(gramercy, tmp_path):
    source = tmp_path / "mine.py"
    source.write_text(
        'from gramercy import tool\n@tool\ndef twice(n: int) -> int:\n    """Double."""\n    return 2 * n\n'
    )
    both = ["--from", "mine.py", "--image", "python"]
    listed = gramercy("tools", "list", *both).stdout
    assert "twice" in listed
    assert "eval_form" in listed
    source.write_text(source.read_text().replace("twice", "eval_form"))
    done = gramercy("tools", "list", *both)
    assert (done.returncode, "rename it" in done.stderr) == (3, True)


ORIGINAL = "".join(f"line {n}\n" for n in range(1, 10))
MODIFIED = ORIGINAL.replace("line 2", "LINE 2").replace("line 5", "LINE 5").replace("line 8", "LINE 8")


@pytest.fixture
def proposal(tmp_path):
    (tmp_path / "text.txt").write_text(ORIGINAL)
    arguments = {"path": "text.txt", "original": ORIGINAL, "modified": MODIFIED, "description": "Shout"}
    return ["tools", "call", "propose_file_edit", json.dumps(arguments), "--image", "python"]


@pytest.mark.contract("000.related.diff-approval", "002.approval.diff")
def test_a_person_accepts_an_edit_hunk_by_hunk(proposal, terminal, tmp_path):
    """People: keys n, p, a, r, SPC and q; the header counts."""
    screen = terminal(*proposal)
    screen.expect("Progress: 0/3 accepted, 0 rejected, 3 pending")
    for keys, header in [
        ("a", "Progress: 1/3 accepted, 0 rejected, 2 pending"),
        ("r", "Progress: 1/3 accepted, 1 rejected, 1 pending"),
        (" ", "Progress: 2/3 accepted, 1 rejected, 0 pending"),
        ("p", "Progress: 2/3 accepted, 1 rejected, 0 pending"),
    ]:
        screen.expect("SPC A K v q ?] ")
        screen.send(f"{keys}\n")
        screen.expect(header)
    screen.expect("+LINE 5")
    screen.expect("SPC A K v q ?] ")
    screen.send("q\n")
    screen.expect("reason")
    screen.send("five is quiet\n")
    screen.expect("A person accepted hunks 1 and 3 of 3 and rejected hunk 2 (five is quiet)")
    assert screen.end() == 0
    expected = MODIFIED.replace("LINE 5", "line 5")
    assert (tmp_path / "text.txt").read_text() == expected


ANSWERS = {
    # A hunk that was not shown cannot be accepted.
    "all": (["n", "n", "A", "q"], 0, MODIFIED),
    "none": (["A", "K", "q", "no"], 4, ORIGINAL),
    "open ones": (["q", ""], 4, ORIGINAL),
    "going away": (["a", "\x04"], 4, ORIGINAL),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_all_none_and_leaving(proposal, terminal, tmp_path, name):
    """People: A all, K none; open hunks are not applied, and going away is no consent."""
    keys, code, text = ANSWERS[name]
    screen = terminal(*proposal)
    for key in keys:
        screen.expect("reason" if key in {"no", ""} else "[n p a r SPC A K v q ?]")
        screen.send(key if key == "\x04" else f"{key}\n")
    assert (screen.end(), (tmp_path / "text.txt").read_text()) == (code, text)


def test_an_unknown_key_shows_the_help(proposal, terminal):
    screen = terminal(*proposal)
    screen.expect("SPC A K v q ?]")
    screen.send("zebra\n")
    screen.expect("A accept all   K reject all")
    for key in ("K", "q"):
        screen.expect("SPC A K v q ?] ")
        screen.send(f"{key}\n")
    screen.expect("reason for the rejected ones: ")
    screen.send("\n")
    assert screen.end() == 4


def test_an_edit_is_refused_where_nobody_can_type(proposal, gramercy, tmp_path):
    done = gramercy(*proposal)
    assert (done.returncode, (tmp_path / "text.txt").read_text()) == (4, ORIGINAL)
    assert Path(tmp_path / ".git").exists() is False
