"""What can change nothing is evaluated on a short way; whatever user code did before or meanwhile still counts."""

# ruff: noqa: E501 - the forms are data, and read best on one line

import json
import select
import signal
import struct
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from gramercy.images.connection import as_plist
from tests.images import children

TRIVIAL = {"sbcl": "(+ 1 2 3)", "python": "1 + 2 + 3"}
LOOP = {"sbcl": "(loop)", "python": "while True: pass"}
CHANGE = {"sbcl": "(defvar *x* 1)", "python": "x = 1"}


@pytest.fixture(scope="module")
def families(tmp_path_factory):
    """Return one family for each language."""
    languages = ["sbcl", "python"] if children.SBCL else ["python"]
    with ExitStack() as stack:
        yield {
            language: stack.enter_context(
                closing(children.Family(tmp_path_factory.mktemp(language), language))
            )
            for language in languages
        }


@pytest.fixture(params=["sbcl", "python"])
def language(request):
    """Name the language of a test that concerns both."""
    return request.param


@pytest.fixture
def live(families, language):
    """Return a process that has gone the short way already."""
    if language not in families:
        pytest.skip("sbcl is not installed: apt-get install sbcl")
    live = families[language].live()
    for _time in range(3):
        assert live.value(TRIVIAL[language]) == "6"
    return live


def children_of(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("sbcl", "(+ 1 2)"),
        ("sbcl", '"text"'),
        ("sbcl", "(list 1 2)"),
        ("python", "1 + 2"),
        ("python", "'text' * 3"),
        ("python", "1 if 2 > 1 else 0"),
        ("python", "1\n2"),
        ("python", "[1]"),
        ("python", "'a'.upper()"),
    ],
)
def test_what_can_change_nothing_is_told_to_have_changed_nothing(live, language, code):  # noqa: ARG001 - chooses the process
    """Child protocol, unchanged."""
    assert live.eval(code)["unchanged"]


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("sbcl", "#.(defvar *read* 1)"),
        ("sbcl", "#.(progn (setf cl-user::y 1) 2)"),
        ("python", "lambda: 1"),
        ("python", "(lambda: print)()"),
        ("python", "[print for _ in (1,)]"),
        ("python", "f'{print}'"),
        ("python", "(y := 1)"),
        ("python", "await asyncio.sleep(0)"),
        ("python", "1\nx = 2\n3"),
        ("python", "1 / 0"),
    ],
)
def test_what_may_change_something_is_never_told_to_have_changed_nothing(live, language, code):  # noqa: ARG001 - chooses the process
    """Child protocol, unchanged: a checkpoint would be missing."""
    assert "unchanged" not in live.eval(code)


@pytest.mark.parametrize("language", ["sbcl"])
def test_a_character_of_the_users_makes_reading_a_change(live):
    """The reader calls the user's function, whatever form comes of it."""
    live.eval("(defvar *n* 0)")
    live.eval("(set-macro-character #\\! (lambda (s c) (declare (ignore s c)) (incf *n*) 1))")
    assert "unchanged" not in live.eval("!")
    assert live.value("*n*") == "1"


@pytest.mark.parametrize("language", ["sbcl"])
def test_a_readtable_of_the_users_makes_reading_a_change(live):
    """Child protocol, unchanged: reading may run code too."""
    live.eval("(setf *readtable* (copy-readtable))")
    assert "unchanged" not in live.eval("(+ 1 2)")
    live.eval("(setf *readtable* (copy-readtable nil))")
    assert "unchanged" not in live.eval("(+ 1 2)")


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("sbcl", "(sb-sys:enable-interrupt sb-unix:sigint :ignore)"),
        ("python", "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"),
        ("python", "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])"),
        ("python", "import signal; signal.signal(signal.SIGUSR1, lambda *_: None)"),
    ],
)
def test_a_loop_can_be_interrupted_whatever_user_code_did_to_signals(live, language, code):
    """Child protocol: SIGINT during an evaluation."""
    live.eval(code)
    for _time in range(2):
        assert live.value(TRIVIAL[language]) == "6"
        live.send("eval", code=LOOP[language])
        deadline = time.monotonic() + children.PATIENCE
        while not select.select([live.plug], [], [], 0.05)[0] and time.monotonic() < deadline:
            live.kill(signal.SIGINT)
        assert live.receive()["error"]["interrupted"]


@pytest.mark.parametrize("language", ["sbcl"])
@pytest.mark.parametrize(
    "code",
    [
        "(+ 1 2 3)",
        "(sb-posix:fcntl gramercy.image::*connection* sb-posix:f-setfl 0)",
        "(sb-posix:fcntl gramercy.image::*connection* sb-posix:f-setfl sb-posix:o-nonblock)",
    ],
)
def test_a_loop_ends_with_the_connection_whatever_user_code_did_to_that(live, code):
    """Child protocol: a process ends with its connection."""
    live.eval(code)
    live.value(TRIVIAL["sbcl"])
    live.send("eval", code="(progn (print 1) (loop))")
    assert not select.select([live.plug], [], [], 0.2)[0]
    live.plug.close()
    assert live.is_ended()


def test_dropped_checkpoints_are_collected_though_short_evaluations_come_between(live, language):
    """Each process collects its own copies; a short evaluation need not look."""
    live.eval(CHANGE[language], then_fork="t")
    checkpoint = live.family.accept()
    checkpoint.kill()
    assert checkpoint.is_ended()
    live.value(TRIVIAL[language])
    live.eval(CHANGE[language])
    live.ask("ping")
    assert str(checkpoint.pid) not in children_of(live.pid)


def test_a_copy_that_user_code_forks_never_answers(live, language):
    """Child protocol: one reply for one request."""
    fork = {"sbcl": "#.(progn (sb-posix:fork) 1)", "python": "__import__('os').fork() and 1"}
    assert live.eval(fork[language])["ok"]
    live.value(TRIVIAL[language])
    assert live.ask("ping") == {"id": live.count, "ok": True}
    assert not select.select([live.plug], [], [], 0.1)[0]


@pytest.mark.parametrize("language", ["python"])
def test_what_a_thread_defines_is_told_by_a_later_reply(live):
    """Child protocol, changed: told once, be it late."""
    live.eval("import threading\ngo = threading.Event()")
    live.eval("t = threading.Thread(target=lambda: (go.wait(20), globals().update(made=1)))\nt.start()")
    assert live.eval("1 + 2")["state"]["threads"] == 2
    changed = [*live.eval("go.set()\nt.join(20)")["changed"], *live.eval("made")["changed"]]
    assert [row["name"] for row in changed] == ["__main__.made"]
    assert live.eval("1 + 2")["state"]["threads"] == 1


@pytest.mark.parametrize("language", ["python"])
def test_a_handler_of_the_users_runs_before_the_next_evaluation(live):
    """Also when that can change nothing: what the handler did is told and kept."""
    live.eval("import os, signal\nsignal.signal(signal.SIGUSR1, lambda *_: globals().update(seen=1))")
    live.kill(signal.SIGUSR1)
    assert "__main__.seen" in [row["name"] for row in live.eval("1 + 2")["changed"]]
    assert live.value("seen") == "1"


@pytest.mark.parametrize("language", ["python"])
@pytest.mark.parametrize("code", ["1 is 1", "(1 is 1); 2", "'\\d'", "print('\\d'); 1"])
def test_a_warning_of_the_compiler_is_told_once(live, code):
    """Child protocol, warnings: one attempt to compile may follow another."""
    live.eval("import warnings\nwarnings.simplefilter('always')")
    assert len(live.eval(code)["warnings"]) == 1


@pytest.mark.parametrize("language", ["sbcl"])
def test_streams_that_were_closed_are_there_again(live):
    """Child protocol, stdout: each evaluation has streams that work."""
    live.eval("(close *terminal-io*) (close *standard-input*)")
    assert live.eval('(format *terminal-io* "seen")')["stdout"] == "seen"
    assert live.value("(read-line *standard-input* nil :end)") == ":END"
    assert live.value("(read-char *query-io* nil :end)") == ":END"


def test_empty_members_are_left_out_of_a_reply(live, language):
    """Child protocol: a member that is not there is empty."""
    live.send("eval", code=TRIVIAL[language])
    body = live._exactly(struct.unpack(">I", live._exactly(4))[0])
    reply = json.loads(body)
    assert sorted(reply) == ["elapsed_ms", "forms", "id", "ok", "package", "state", "unchanged"]


@pytest.mark.parametrize("code", ["(+ 1 2)", 'a "quoted" \\ text', "ü", ""])
def test_a_request_is_written_the_same_on_both_ways(code):
    """Child protocol: requests are property lists."""
    short = as_plist({"op": "eval", "code": code, "then_fork": "t", "id": 7})
    long = as_plist({"op": "eval", "code": code, "then_fork": "t", "id": 7, "package": "P"})
    assert short[:-1] + b' :package "P")' == long


@pytest.mark.parametrize("language", ["sbcl"])
def test_words_of_a_request_mean_the_same_each_time(live):
    """The second time they are known again by their octets."""
    for _time in range(2):
        for op, number in ((":ping", 12), (":PING", 0), ('"ping"', 123456789012345678), ("ping", -4)):
            text = f"(:op {op} :id {number} :then_fork nil :unheard-of t)".encode()
            live.plug.sendall(struct.pack(">I", len(text)) + text)
            reply = live.receive()
            assert reply["ok"] == (op != "ping")
            assert op == "ping" or reply["id"] == number


def test_a_large_request_and_the_one_behind_it_arrive_whole(live, language):
    """Child protocol: frames, however they are cut on their way."""
    quoted = '(length "{}")' if language == "sbcl" else 'len("{}")'
    live.send("eval", code=quoted.format("x" * 300_000))
    live.send("eval", code=TRIVIAL[language])
    assert live.receive()["forms"][0]["values"] == ["300000"]
    assert live.receive()["forms"][0]["values"] == ["6"]
