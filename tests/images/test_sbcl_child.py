# ruff: noqa: E501 - a form of Lisp is easier to read on one line
"""The SBCL child by itself: every operation of the protocol, and every way to misuse it.

The child is started directly, without a sandbox, and spoken to over a socket by the small client below.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
from pathlib import Path

import pytest

from tests.images.children import completed

LISP = Path(__file__).parents[2] / "src" / "gramercy" / "images" / "lisp"
SBCL = shutil.which("sbcl") or ""
PATIENCE = 20.0

pytestmark = pytest.mark.skipif(not SBCL, reason="sbcl is not installed")


class GoneError(Exception):
    """The process has hung up."""


def datum(value):
    if value is None or value is False:
        return "NIL"
    if value is True:
        return "T"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return f"({' '.join(map(datum, value))})"
    return str(value)


class Process:
    """One process of the family, by its connection."""

    def __init__(self, channel):
        self.channel = channel
        self.count = 0
        self.pid = struct.unpack("3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        self.hello = self.receive()

    def exactly(self, size):
        parts = []
        while size:
            try:
                part = self.channel.recv(min(size, 1 << 20))
            except ConnectionError:
                raise GoneError from None
            if not part:
                raise GoneError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def receive(self, seconds=PATIENCE):
        self.channel.settimeout(seconds)
        (size,) = struct.unpack(">I", self.exactly(4))
        self.channel.settimeout(PATIENCE)
        return completed(json.loads(self.exactly(size).decode("utf-8")))

    def send_text(self, text):
        payload = text.encode() if isinstance(text, str) else text
        self.channel.settimeout(PATIENCE)
        self.channel.sendall(struct.pack(">I", len(payload)) + payload)

    def send(self, op, **details):
        self.count += 1
        body = " ".join(f":{key.replace('_', '-')} {datum(value)}" for key, value in details.items())
        self.send_text(f"(:op :{op} :id {self.count} {body})")

    def ask(self, op, seconds=PATIENCE, **details):
        self.send(op, **details)
        reply = self.receive(seconds)
        assert reply["id"] == self.count
        return reply

    def eval(self, code, **details):
        return self.ask("eval", code=code, **details)

    def value(self, code, **details):
        reply = self.eval(code, **details)
        assert reply["error"] is None, reply
        return reply["forms"][-1]["values"][0]

    def eval_interrupted(self, code, patience=0.15):
        """Evaluate; where no reply comes, interrupt twice; return the reply."""
        self.send("eval", code=code)
        for _ in range(2):
            try:
                return self.receive(patience)
            except TimeoutError:
                os.kill(self.pid, signal.SIGINT)
                patience = 0.5
        return self.receive(2.0)

    def ended(self, seconds=PATIENCE):
        """Wait for the end of the connection; tell whether it came."""
        self.channel.settimeout(seconds)
        try:
            return self.channel.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.channel.close()


class Family:
    """A zygote and what was forked from it."""

    def __init__(self, directory, command):
        self.listener = socket.socket(socket.AF_UNIX)
        self.path = str(directory / "s")
        self.listener.bind(self.path)
        self.listener.listen(16)
        self.listener.settimeout(PATIENCE)
        self.log_path = directory / "log"
        self.members = []
        self.tags = 0
        with self.log_path.open("wb") as log:
            self.program = subprocess.Popen(
                [*command, self.path, "secret"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.zygote = self.accept()

    def accept(self):
        process = Process(self.listener.accept()[0])
        self.members.append(process)
        return process

    def fork(self, source=None, role="live"):
        self.tags += 1
        reply = (source or self.zygote).ask("fork", role=role, tag=f"t{self.tags}")
        assert reply["ok"], reply
        child = self.accept()
        assert child.hello["tag"] == f"t{self.tags}"
        return child

    def preview(self, source):
        child = self.fork(source, "preview")
        reply = child.ask("confine")
        if not reply["confined"]:
            pytest.skip(f"no confinement here: {reply['reason']}")
        return child

    def close(self):
        for member in self.members:
            member.channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.program.pid, signal.SIGKILL)
        self.program.wait(PATIENCE)
        self.listener.close()


def core_command(core, size="512MB"):
    return [
        SBCL, "--core", str(core), "--noinform", "--disable-ldb", "--dynamic-space-size", size, "--end-runtime-options"
    ]  # fmt: skip


@pytest.fixture(scope="session")
def core(tmp_path_factory):
    path = tmp_path_factory.mktemp("core") / "child.core"
    build = subprocess.run(
        [
            SBCL, "--noinform", "--no-sysinit", "--no-userinit", "--disable-debugger",
            "--load", str(LISP / "build.lisp"), "--eval", f'(gramercy.image:build-core "{path}")',
        ],
        capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert build.returncode == 0, build.stdout + build.stderr
    assert "WARNING" not in build.stdout + build.stderr
    return path


@pytest.fixture(scope="module")
def family(core, tmp_path_factory):
    family = Family(tmp_path_factory.mktemp("family"), core_command(core))
    yield family
    family.close()


@pytest.fixture
def own_family(core, tmp_path):
    family = Family(tmp_path, core_command(core))
    yield family
    family.close()


@pytest.fixture
def live(family):
    process = family.fork()
    yield process
    process.kill()


def changes(reply):
    return {(change["kind"], change["name"]): change["change"] for change in reply["changed"]}


# ---- processes


def test_the_zygote_says_hello_first(family):
    hello = family.zygote.hello
    assert hello["hello"] == 1
    assert (hello["role"], hello["language"], hello["token"], hello["tag"]) == (
        "zygote",
        "sbcl",
        "secret",
        "",
    )
    assert {"fork", "preview", "save", "compile", "xref", "macroexpand"} <= set(hello["capabilities"])


def test_a_fork_says_hello_with_its_role_and_tag(live):
    assert live.hello["role"] == "live"
    assert live.hello["pid"] == live.pid
    assert live.hello["tag"].startswith("t")


def test_a_checkpoint_survives_the_death_of_the_process_it_was_made_from(family, live):
    live.eval("(defvar *k* 41) (incf *k*)")
    checkpoint = family.fork(live, "checkpoint")
    live.eval("(setf *k* 0)")
    live.kill()
    restored = family.fork(checkpoint)
    assert restored.value("*k*") == "42"
    restored.eval("(setf *k* 1)")
    assert family.fork(checkpoint).value("*k*") == "42"


def test_then_fork_leaves_a_checkpoint_after_the_reply(family, live):
    reply = live.eval("(defparameter *s* 1)", then_fork="mine")
    assert reply["ok"]
    checkpoint = family.accept()
    assert (checkpoint.hello["role"], checkpoint.hello["tag"]) == ("checkpoint", "mine")
    live.eval("(setf *s* 2)")
    assert checkpoint.value("*s*") == "1"
    assert "unkept" not in reply


def test_threads_prevent_a_fork_and_are_named(family, live):
    live.eval("(defvar *go* nil) (defun tick () (loop until *go* do (sleep 0.01)))")
    live.eval('(defvar *ticker* (sb-thread:make-thread #\'tick :name "ticker"))')
    reply = live.ask("fork", role="checkpoint", tag="x")
    assert reply["error"]["type"] == "CANNOT-FORK"
    assert "1 user thread is running: ticker" in reply["error"]["message"]
    unkept = live.eval("(setf *go* nil)", then_fork="y")
    assert unkept["state"]["threads"] == 2
    assert "ticker" in unkept["unkept"]
    assert "unkept" not in live.eval("1", then_fork="y")
    assert "unkept" not in live.eval("(setf *go* t) (sb-thread:join-thread *ticker*)", then_fork="y")
    family.accept()
    assert live.ask("fork", role="nothing", tag="z")["error"]["type"] == "MALFORMED-REQUEST"


def test_a_process_ends_when_its_connection_closes(own_family):
    live = own_family.fork()
    live.channel.close()
    # The zygote reaps it: its number disappears from the process table.
    for _ in range(200):
        own_family.zygote.ask("ping")
        if not Path(f"/proc/{live.pid}").exists():
            break
    else:
        pytest.fail("the process is still there")


@pytest.mark.parametrize(
    "code", ["(loop)", "(sleep 1000)", "(sb-thread:wait-on-semaphore (sb-thread:make-semaphore))"]
)
def test_a_process_that_is_evaluating_ends_with_its_connection_too(own_family, code):
    live = own_family.fork()
    live.send("eval", code=code)
    with pytest.raises(TimeoutError):
        live.receive(0.1)
    live.channel.close()
    for _ in range(5000):
        own_family.zygote.ask("ping")
        if not Path(f"/proc/{live.pid}").exists():
            break
    else:
        pytest.fail("the process is still there")


def test_the_zygote_reaps_the_forks_of_a_dead_process(own_family):
    live = own_family.fork()
    checkpoint = own_family.fork(live, "checkpoint")
    live.kill()
    checkpoint.kill()
    for _ in range(2000):
        own_family.zygote.ask("ping")
        if not Path(f"/proc/{live.pid}").exists() and not Path(f"/proc/{checkpoint.pid}").exists():
            break
    else:
        pytest.fail("zombies are left")


def test_a_live_process_reaps_its_dropped_checkpoints(family, live):
    checkpoint = family.fork(live, "checkpoint")
    checkpoint.kill()
    for _ in range(2000):
        live.ask("ping")
        if not Path(f"/proc/{checkpoint.pid}").exists():
            break
    else:
        pytest.fail("a zombie is left")


def test_reaping_leaves_the_users_own_programs_alone(family, live):
    family.fork(live, "checkpoint").kill()
    live.eval('(defvar *p* (sb-ext:run-program "/bin/sh" (list "-c" "exit 7") :wait nil))')
    live.ask("ping")
    assert live.value("(progn (sb-ext:process-wait *p*) (sb-ext:process-exit-code *p*))") == "7"


def test_exit_ends_the_process_at_once(family):
    process = family.fork()
    process.send("exit")
    assert process.ended()


def test_the_zygote_ignores_interrupts(family):
    os.kill(family.zygote.pid, signal.SIGINT)
    assert family.zygote.ask("ping")["ok"]


def test_a_missing_token_is_answered_with_the_usage(core, tmp_path):
    run = subprocess.run(
        [*core_command(core), str(tmp_path / "s")],
        capture_output=True, text=True, timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert run.returncode == 64
    assert "SOCKET TOKEN" in run.stderr


def test_the_child_also_runs_from_source(tmp_path):
    command = [
        SBCL, "--noinform", "--end-runtime-options", "--no-sysinit", "--no-userinit", "--disable-debugger",
        "--load", str(LISP / "build.lisp"), "--eval", "(gramercy.image:main)", "--end-toplevel-options",
    ]  # fmt: skip
    family = Family(tmp_path, command)
    try:
        assert family.fork().value("(+ 1 2 3)") == "6"
    finally:
        family.close()


# ---- evaluation


def test_every_value_of_every_form_is_told(live):
    reply = live.eval('(+ 1 2 3) (values) (values 1 :two "three")')
    assert reply["ok"]
    assert [form["values"] for form in reply["forms"]] == [["6"], [], ["1", ":TWO", '"three"']]
    assert reply["error"] is None
    assert reply["package"] == "CL-USER"
    assert reply["state"]["pid"] == live.pid
    assert reply["elapsed_ms"] >= 0


def test_no_code_at_all_is_no_forms(live):
    assert live.eval(" ; nothing\n #| at all |# ")["forms"] == []


def test_a_form_may_need_the_package_that_the_form_before_it_makes(live):
    reply = live.eval("(defpackage :fresh (:use :cl)) (in-package :fresh) (defun f () :x) (fresh::f)")
    assert reply["forms"][-1]["values"] == [":X"]
    assert reply["package"] == "FRESH"
    assert live.value("(f)") == ":X"
    assert live.value("(list 'a)", package="cl-user") == "(A)"
    assert live.value("(package-name *package*)") == '"FRESH"'


def test_a_deleted_current_package_gives_way_to_the_users(live):
    live.eval("(defpackage :gone (:use :cl)) (in-package :gone)")
    live.eval("(delete-package *package*)")
    assert live.value("(package-name *package*)") == '"COMMON-LISP-USER"'


def test_an_unknown_package_is_answered_with_near_ones(live):
    error = live.eval("1", package="sb-pposix")["error"]
    assert error["type"] == "PACKAGE-NOT-FOUND"
    assert "SB-POSIX" in error["suggestions"]
    assert "SB-POSIX" in live.eval("(sb-pposix:getpid)")["error"]["suggestions"]


def test_output_is_kept_apart(live):
    reply = live.eval(
        '(format t "out~%") (format *error-output* "err") (print (read-line *standard-input* nil :end))'
    )
    assert reply["stdout"] == "out\n\n:END "
    assert reply["stderr"] == "err"


def test_the_history_of_a_session_is_kept(live):
    live.eval("(+ 40 2)")
    assert live.value("(list * +)") == "(42 (+ 40 2))"


def test_an_error_tells_type_message_restarts_and_frames(live):
    live.eval('(defun inner (x) (error "bad ~a" x)) (defun outer (x) (list (inner x)))')
    error = live.eval("1 (outer 5)")["error"]
    assert (error["type"], error["message"]) == ("SIMPLE-ERROR", "bad 5")
    assert "ABORT" in error["restarts"]
    assert error["backtrace"] == ["0: (INNER 5)", "1: (OUTER 5)", "2: (EVAL (OUTER 5))"]
    assert error["form_index"] == 1
    assert error["interrupted"] is False


def test_an_undefined_function_is_told_as_the_contract_has_it(live):
    error = live.eval("(nonexistent-function)")["error"]
    assert error["type"] == "UNDEFINED-FUNCTION"
    assert error["message"] == "The function NONEXISTENT-FUNCTION is undefined."
    assert error["backtrace"] == ["0: (NONEXISTENT-FUNCTION)", "1: (EVAL (NONEXISTENT-FUNCTION))"]
    assert "PRINT" in live.eval("(prinnt 1)")["error"]["suggestions"]


def test_values_before_an_error_are_kept(live):
    reply = live.eval("(print 1) 2 (car 3) 4")
    assert [form["values"] for form in reply["forms"]] == [["1"], ["2"]]
    assert reply["error"]["form_index"] == 2
    assert reply["stdout"] == "\n1 "


def test_the_users_handlers_come_before_ours(live):
    assert live.value('(handler-case (error "x") (error () :caught))') == ":CAUGHT"
    assert live.value("(list (signal 'error))") == "(NIL)"
    assert live.value("(handler-case (car 1) (type-error () :typed))") == ":TYPED"
    hook = '(let ((*debugger-hook* (lambda (c h) c h (invoke-restart \'use-value 9)))) (restart-case (error "q") (use-value (x) x)))'
    assert live.value(hook) == "9"


def test_a_warning_of_the_user_is_told_and_does_not_reach_the_error_output(live):
    reply = live.eval('(progn\n (warn "careful ~a" 1))')
    assert [(w["kind"], w["message"]) for w in reply["warnings"]] == [("warning", "careful 1")]
    assert reply["stderr"] == ""


def test_warnings_have_the_line_of_the_form_they_are_about(live):
    reply = live.eval(
        '\n(defun w (x)\n  (let ((unused 1))\n    (list x)\n    #| + |#\n    (+ "a"\n       1)))'
    )
    assert [(w["kind"], w["line"], w["form"]) for w in reply["warnings"]] == [
        ("style-warning", 3, "(UNUSED 1)"),
        ("warning", 6, '(+ "a" 1)'),
    ]


def test_a_function_that_a_later_form_defines_is_not_warned_about(live):
    reply = live.eval("(defun a () (b)) (defun b () (c))")
    assert [w["message"] for w in reply["warnings"]] == ["undefined function: C"]


def test_a_redefinition_is_a_change_and_not_a_warning(live):
    live.eval("(defun f () 1)")
    reply = live.eval("(defun f () 2)")
    assert reply["warnings"] == []
    assert changes(reply) == {("function", "CL-USER::F"): "redefined"}


def test_unicode_goes_both_ways(live):
    text = "naïve ∀x. \U0001d518 \U0001f600 \u200b\ufeff"
    assert live.value(f'(identity "{text}")') == f'"{text}"'
    assert live.eval(f'(write-string "{text}")')["stdout"] == text
    assert live.value(f'(length "{text}")') == str(len(text))


def test_control_characters_and_lone_surrogates_become_valid_json(live):
    reply = live.eval(
        "(loop for k in (list 0 1 8 9 10 13 27 31 127 133 #xd800 #xdfff #x2028 #x10ffff) do (write-char (code-char k)))"
    )
    assert reply["stdout"] == "\x00\x01\x08\t\n\r\x1b\x1f\x7f\x85\ufffd\ufffd\u2028\U0010ffff"


def test_the_users_printer_settings_do_not_change_the_protocol(live):
    live.eval("(setf *print-base* 2 *print-radix* t *print-case* :downcase *read-base* 16 *print-length* 3)")
    reply = live.eval("(list 11 2 3 4 'abc)")
    assert reply["forms"][0]["values"] == ["(#b10001 #b10 #b11 ...)"]
    assert reply["id"] == 2
    assert live.value("10") == "#b10000"


def test_a_huge_value_is_cut_and_marked(live):
    reply = live.eval("(make-list 1000000 :initial-element 7)")
    assert len(reply["forms"][0]["values"][0]) == 20000
    assert reply["truncated"]["values"] == 20000
    assert len(live.eval("(make-string 100)", value_limit=10)["forms"][0]["values"][0]) == 10


def test_a_circular_value_is_shown_with_labels(live):
    assert live.value("(let ((x (list 1 2))) (setf (cddr x) x) x)") == "#1=(1 2 . #1#)"


def test_output_is_cut_at_the_stream(live):
    reply = live.eval('(dotimes (i 100) (write-string "0123456789"))', limit=25)
    assert reply["stdout"] == "0123456789012345678901234"
    assert reply["truncated"] == {"stdout": 1000}


def test_fifty_megabytes_of_output_cost_little_memory(family):
    process = family.fork()
    before = peak_memory(process.pid)
    code = "(let ((line (make-string 99 :initial-element #\\x))) (dotimes (i 500000) (write-line line)))"
    reply = process.eval(code)
    assert reply["truncated"] == {"stdout": 50_000_000}
    assert len(reply["stdout"]) == 100_000
    assert reply["elapsed_ms"] < 10_000
    assert peak_memory(process.pid) - before < 100_000
    process.kill()


def peak_memory(pid):
    """Return the most memory the process has had, in kB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def test_a_huge_form_is_evaluated(live):
    assert live.value(f"(length '({'a ' * 200_000}))") == "200000"
    assert live.value(f'(length "{"x" * 5_000_000}")') == "5000000"


def test_a_reply_beyond_the_largest_frame_is_an_error_reply(live):
    # Each of these characters takes six octets in JSON.
    code = "(let ((s (make-string 8000000 :initial-element (code-char 1)))) (write-string s) (write-string s *error-output*) 1)"
    reply = live.eval(code, limit=8_000_000)
    assert (reply["ok"], reply["error"]["type"]) == (False, "FRAME-TOO-LARGE")
    assert live.value("1") == "1"


def test_a_request_beyond_the_largest_frame_ends_the_process(family):
    process = family.fork()
    process.channel.sendall(struct.pack(">I", 65 * 1024 * 1024))
    assert process.ended()


# ---- definitions

DEFINITIONS = [
    ("(defun f (x) x)", ("function", "CL-USER::F")),
    ("(progn (progn (defun f (x) x)))", ("function", "CL-USER::F")),
    ("(let ((n 0)) (defun f () (incf n)))", ("function", "CL-USER::F")),
    ("(macrolet ((d (n) `(defun ,n () 1))) (d f))", ("function", "CL-USER::F")),
    ("(defmacro def (n) `(defun ,n () 1)) (def f)", ("function", "CL-USER::F")),
    ("(eval '(defun f () 1))", ("function", "CL-USER::F")),
    ("(funcall (compile nil '(lambda () (defun f () 1))))", ("function", "CL-USER::F")),
    ("(compile 'f '(lambda () 1))", ("function", "CL-USER::F")),
    ("(setf (symbol-function 'f) #'car)", ("function", "CL-USER::F")),
    ("(setf (fdefinition 'f) #'car)", ("function", "CL-USER::F")),
    ("(setf (fdefinition '(setf f)) #'cons)", ("function", "(SETF CL-USER::F)")),
    ("(defun (setf f) (v x) v x)", ("function", "(SETF CL-USER::F)")),
    ("(defmacro m (x) x)", ("macro", "CL-USER::M")),
    ("(setf (macro-function 'm) (lambda (a b) a b nil))", ("macro", "CL-USER::M")),
    ("(define-modify-macro m (x) list)", ("macro", "CL-USER::M")),
    ("(define-compiler-macro f (x) x)", ("compiler-macro", "CL-USER::F")),
    ("(define-symbol-macro sm 3)", ("symbol-macro", "CL-USER::SM")),
    ("(defvar *v* 1)", ("variable", "CL-USER::*V*")),
    ("(defvar *v*)", ("variable", "CL-USER::*V*")),
    ("(defparameter *v* 1)", ("variable", "CL-USER::*V*")),
    ("(sb-ext:defglobal *v* 1)", ("variable", "CL-USER::*V*")),
    ("(setq v 1)", ("variable", "CL-USER::V")),
    ("(defconstant +c+ 1)", ("constant", "CL-USER::+C+")),
    ("(defstruct s a)", ("structure", "CL-USER::S")),
    ("(defstruct s a)", ("function", "CL-USER::MAKE-S")),
    ("(defclass c () ())", ("class", "CL-USER::C")),
    ("(sb-mop:ensure-class 'c)", ("class", "CL-USER::C")),
    ("(defclass c () ((a :accessor c-a)))", ("generic-function", "CL-USER::C-A")),
    ("(define-condition c (error) ())", ("condition", "CL-USER::C")),
    ("(deftype ty () 'integer)", ("type", "CL-USER::TY")),
    ("(deftype ty (x) `(integer 0 ,x))", ("type", "CL-USER::TY")),
    ("(defgeneric g (x))", ("generic-function", "CL-USER::G")),
    ("(defmethod g ((x integer)) x)", ("generic-function", "CL-USER::G")),
    ("(defmethod g ((x integer)) x)", ("method", "(CL-USER::G (INTEGER))")),
    ("(defmethod g :around ((x (eql 3))) x)", ("method", "(CL-USER::G :AROUND ((EQL 3)))")),
    ("(defclass c () ()) (defmethod print-object ((c c) s) s)", ("method", "(PRINT-OBJECT (CL-USER::C T))")),
    ("(defpackage :p)", ("package", "P")),
    ("(make-package :p)", ("package", "P")),
    ("(defsetf acc upd)", ("setf-expander", "CL-USER::ACC")),
    ("(define-method-combination mc)", ("method-combination", "CL-USER::MC")),
]


@pytest.mark.parametrize(("code", "expected"), DEFINITIONS)
def test_a_definition_is_seen_however_it_is_made(live, code, expected):
    assert changes(live.eval(code))[expected] == "defined"


REMOVALS = [
    ("(defun f () 1)", "(fmakunbound 'f)", ("function", "CL-USER::F")),
    ("(defvar *v* 1)", "(makunbound '*v*)", ("variable", "CL-USER::*V*")),
    ("(defun f () 1)", "(unintern 'f)", ("function", "CL-USER::F")),
    ("(defmacro m () 1)", "(fmakunbound 'm)", ("macro", "CL-USER::M")),
    ("(defclass c () ())", "(setf (find-class 'c) nil)", ("class", "CL-USER::C")),
    ("(defpackage :p)", "(delete-package :p)", ("package", "P")),
    ("(defpackage :p) (defun p::f () 1)", "(delete-package :p)", ("function", "P::F")),
    (
        "(defmethod g ((x integer)) x)",
        "(remove-method #'g (find-method #'g nil (list (find-class 'integer))))",
        ("method", "(CL-USER::G (INTEGER))"),
    ),
]


@pytest.mark.parametrize(("definition", "removal", "expected"), REMOVALS)
def test_a_removal_is_seen(live, definition, removal, expected):
    assert changes(live.eval(definition))[expected] == "defined"
    assert changes(live.eval(removal))[expected] == "removed"
    listed = live.ask("definitions")["data"]
    del listed["package"]
    assert expected[1] not in {entry["name"] for entries in listed.values() for entry in entries}


REDEFINITIONS = [
    ("(defun f () 1)", "(defun f () 2)", ("function", "CL-USER::F")),
    ("(defun f () 1)", "(defmacro f () 2)", ("macro", "CL-USER::F")),
    ("(defparameter *v* 1)", "(defparameter *v* 2)", ("variable", "CL-USER::*V*")),
    ("(defclass c () ())", "(defclass c () (a))", ("class", "CL-USER::C")),
    ("(defmethod g ((x t)) 1)", "(defmethod g ((x t)) 2)", ("method", "(CL-USER::G (T))")),
]


@pytest.mark.parametrize(("first", "second", "expected"), REDEFINITIONS)
def test_a_redefinition_is_seen(live, first, second, expected):
    live.eval(first)
    assert changes(live.eval(second))[expected] == "redefined"


def test_what_changes_nothing_is_not_told(live):
    live.eval("(defvar *v* 1)")
    assert live.eval("(defvar *v* 2)")["changed"] == []
    assert (
        live.eval("(setf *v* 3) (+ 1 2) (let ((f (lambda () 1))) (funcall f)) (make-hash-table)")["changed"]
        == []
    )
    assert live.eval("(defun f () 1) (fmakunbound 'f)")["changed"] == []


def test_definitions_lists_what_exists_sorted_by_name(live):
    live.eval("(defun my-function (a b &optional c) (list a b c)) (defun helper (x) x) (defvar *my-var* 42)")
    live.eval('(defconstant +my-constant+ "hello") (defmacro with-timing (form) form)')
    data = live.ask("definitions")["data"]
    assert [(f["symbol"], f["arglist"]) for f in data["functions"]] == [
        ("HELPER", "(X)"),
        ("MY-FUNCTION", "(A B &OPTIONAL C)"),
    ]
    assert data["variables"] == [{"name": "CL-USER::*MY-VAR*", "symbol": "*MY-VAR*", "value": "42"}]
    assert data["constants"][0]["value"] == '"hello"'
    assert data["macros"][0]["arglist"] == "(FORM)"
    assert set(live.ask("definitions", kind="macros")["data"]) == {"package", "macros"}
    assert live.ask("definitions", kind="bogus")["error"]["type"] == "KIND-NOT-FOUND"


def test_definitions_are_undone_with_the_process(family, live):
    checkpoint = family.fork(live, "checkpoint")
    live.eval("(defun later () 1)")
    assert family.fork(checkpoint).ask("definitions")["data"]["functions"] == []


# ---- interrupts


@pytest.mark.parametrize(
    "code",
    [
        "(loop)",
        "(sleep 100)",
        "(defun spin () (loop)) (spin)",
        "(handler-case (loop) (error () :swallowed))",
        "(ignore-errors (loop))",
        "(loop (handler-case (loop) (serious-condition () nil)))",
        "(unwind-protect (loop) (loop))",
        "(sb-thread:with-mutex ((sb-thread:make-mutex)) (sb-thread:wait-on-semaphore (sb-thread:make-semaphore)))",
        "(let ((m (sb-thread:make-mutex))) (sb-thread:join-thread (sb-thread:make-thread (lambda () (sb-thread:grab-mutex m) (sleep 100)))))",
        '(sb-ext:run-program "/bin/sleep" (list "100"))',
        "(read-char (sb-sys:make-fd-stream (sb-posix:pipe)))",
        "(defclass slow () ()) (defmethod print-object ((x slow) s) (loop)) (make-instance 'slow)",
        "(define-condition slow (error) () (:report (lambda (c s) (loop)))) (error 'slow)",
        "(macrolet ((m () (loop))) (m))",
        "#.(loop)",
        "#1=(a . #1#)",
        "(defclass b () ()) (defmethod print-object ((x b) s) (print-object x s)) (make-instance 'b)",
        "(sb-ext:gc :full t) (loop (make-list 1000))",
        "(sb-sys:enable-interrupt sb-unix:sigint :ignore) (sleep 0) (print 1)",
    ],
)
def test_an_interrupt_stops_the_evaluation_and_nothing_else(live, code):
    live.eval("(defvar *state* :kept)")
    reply = live.eval_interrupted(code)
    if reply["error"] is not None:
        assert reply["error"]["interrupted"], reply["error"]
    assert live.value("*state*") == ":KEPT"
    assert live.eval_interrupted("(loop)")["error"]["type"] == "INTERRUPTED"


def test_partial_output_and_frames_of_an_interrupted_evaluation_are_kept(live):
    reply = live.eval_interrupted("(defun spin () (loop)) (print :begun) (spin)")
    assert reply["stdout"] == "\n:BEGUN "
    assert reply["error"]["interrupted"]
    assert any("SPIN" in frame for frame in reply["error"]["backtrace"])


def test_an_interrupt_between_evaluations_does_nothing(live):
    for _ in range(50):
        os.kill(live.pid, signal.SIGINT)
        assert live.value("(+ 1 1)") == "2"


def test_interrupts_at_any_moment_never_break_the_process(live):
    """Frames of code stopped between two instructions once led the collector astray."""
    codes = [
        "(+ 1 2)",
        "(loop repeat 50000 do (list 1))",
        "(gc)",
        "(defun f (x) (+ x 1))",
        "(defclass c () (a))",
        '(error "x")',
    ]
    chance = random.Random(5)
    for turn in range(600):
        live.send("eval", code=codes[turn % len(codes)])
        for _ in range(chance.randrange(4)):
            os.kill(live.pid, signal.SIGINT)
        reply = live.receive()
        assert reply["ok"] or reply["error"]["interrupted"] or reply["error"]["message"] == "x", reply
    assert live.value("(+ 1 2)") == "3"


def test_a_loop_without_interrupts_needs_a_kill(family):
    process = family.fork()
    process.send("eval", code="(sb-sys:without-interrupts (loop))")
    with pytest.raises(TimeoutError):
        process.receive(0.2)
    os.kill(process.pid, signal.SIGINT)
    with pytest.raises(TimeoutError):
        process.receive(0.2)
    process.kill()


# ---- hostile forms

ANSWERS = [
    '(error "x")',
    "(error 'no-such-condition)",
    "(/ 1 0)",
    "(car 1)",
    "(aref #(1 2) 5)",
    "(funcall 'undefined-thing)",
    "undefined-variable",
    "(",
    ")",
    "(list 1",
    '"never closed',
    "#| never closed",
    "|never closed",
    "#<unreadable>",
    '#.(error "while reading")',
    "#.(car 1)",
    "(no-such-package:symbol)",
    "(cl:no-such-external)",
    "(cl::no-such-internal)",
    "#\\no-such-character",
    "(quote #1=(#1# . #1#))",
    "(let ((x (make-array 1))) (setf (aref x 0) x) x)",
    "(break)",
    '(break "stop ~a" 1)',
    "(invoke-debugger (make-condition 'simple-error :format-control \"x\"))",
    "(abort)",
    "(invoke-restart 'abort)",
    "(throw 'no-such-tag 1)",
    "(throw 'sb-impl::toplevel-catcher 1)",
    "(return-from nowhere)",
    "(go nowhere)",
    "(defun inf (x) (1+ (inf x))) (inf 1)",
    "(labels ((deep (n) (list (deep (1+ n))))) (deep 0))",
    "(let ((x nil)) (dotimes (i 1000000) (setf x (list x))) x)",
    "(make-array (expt 10 10))",
    "(make-string (expt 10 9))",
    "(expt 7 100000)",
    "(sb-sys:int-sap 0)",
    "(sb-sys:sap-ref-8 (sb-sys:int-sap 0) 0)",
    '(sb-kernel:%primitive print "x")',
    "(defclass b () ()) (defmethod print-object ((x b) s) (error \"no\")) (make-instance 'b)",
    "(defclass b () ()) (defmethod print-object ((x b) s) (list (print-object x s))) (make-instance 'b)",
    '(sb-ext:save-lisp-and-die "/nowhere/x.core")',
    "(defclass b () ()) (defmethod print-object ((x b) s) (loop repeat 1000000 do (write-string \"xxxxxxxxxx\" s))) (make-instance 'b)",
    "(defclass b () ()) (defmethod print-object ((x b) s) (throw 'nothing 1)) (make-instance 'b)",
    "(define-condition b (error) () (:report (lambda (c s) (error \"no\")))) (error 'b)",
    "(define-condition b (error) () (:report (lambda (c s) (car 1)))) (error 'b)",
    "(close *standard-output*) (print 1)",
    "(close *standard-input*) (read-line)",
    "(setf *standard-output* 5) (print 1)",
    '(setf *standard-output* nil *error-output* nil *terminal-io* nil) (error "x")',
    "(setf *package* 5)",
    "(setf *readtable* nil)",
    "(setf *print-pprint-dispatch* (copy-pprint-dispatch)) (set-pprint-dispatch 'integer (lambda (s x) (error \"no ~a ~a\" s x))) (list 1)",
    "(setf *print-readably* t) (list (make-hash-table) #'car)",
    "(setf *print-length* 0 *print-level* 0) (list 1 2)",
    '(setf *invoke-debugger-hook* nil *debugger-hook* nil) (error "x")',
    '(setf sb-ext:*invoke-debugger-hook* nil *debugger-hook* nil) (error "x")',
    '(setf sb-ext:*invoke-debugger-hook* (lambda (c h) (error "again"))) (error "x")',
    '(setf *debugger-hook* (lambda (c h) (error "again"))) (error "x")',
    '(sb-ext:disable-debugger) (error "x")',
    "(delete-package :gramercy.image)",
    "(defun gramercy.image:main () 1)",
    "(fmakunbound 'gramercy.image::serve)",
    "(setf (symbol-function 'gramercy.image::reply) #'car)",
    "(unlock-package :nothing)",
    "(delete-package :cl)",
    "(defun car (x) x)",
    "(setf (symbol-value 'nil) 1)",
    "(defconstant pi 3)",
    "(rename-package :cl-user :mine) (rename-package :mine :common-lisp-user '(:cl-user))",
    "(in-package :nowhere)",
    '(loop repeat 200 do (warn "again and again"))',
    '(sb-thread:join-thread (sb-thread:make-thread (lambda () (error "in a thread"))))',
    '(sb-thread:make-thread (lambda () (error "in a thread")))',
    "(sb-thread:make-thread (lambda () (loop repeat 1000 do (print 1)))) (print 2)",
    "(sb-posix:close 0)",
    "(sb-posix:close 1) (sb-posix:close 2) (print 1 sb-sys:*stdout*)",
    '(write-string "raw" sb-sys:*stdout*) (finish-output sb-sys:*stdout*)',
    '(sb-ext:run-program "/bin/echo" (list "hello") :output t)',
    '(sb-ext:run-program "/no/such/program" nil)',
    "(sb-posix:setrlimit 1 2 3)",
    "(sb-posix:kill (sb-posix:getpid) sb-posix:sigchld)",
    "(sb-ext:with-timeout 0.05 (loop))",
    '(sb-ext:schedule-timer (sb-ext:make-timer (lambda () (error "timer"))) 0.01) (sleep 0.05)',
    '(push (lambda () (error "after gc")) sb-ext:*after-gc-hooks*) (gc)',
    '(handler-bind ((error (lambda (c) (error "nested ~a" c)))) (error "x"))',
    '(handler-bind ((condition (lambda (c) (print c)))) (warn "x"))',
    "(signal 'sb-sys:interactive-interrupt)",
    "(error 'sb-sys:interactive-interrupt)",
    "(error 'gramercy.image:interrupted)",
    "(error 'storage-condition)",
    "(setf (sb-ext:bytes-consed-between-gcs) 1000) (dotimes (i 10000) (list i))",
    "(trace car) (untrace)",
    "(coerce (loop for k from 0 below 1000 collect (code-char k)) 'string)",
    "(list #\\Nul (code-char #xd800) (string (code-char #xdfff)))",
    "(list sb-ext:double-float-positive-infinity sb-ext:single-float-negative-infinity)",
    "(sb-int:with-float-traps-masked (:invalid :divide-by-zero) (/ 0d0 0d0))",
    '(make-symbol "odd name|\\\\")',
    '(intern "lower")',
    "(defstruct (s (:print-function (lambda (o s d) (car 1)))) a) (make-s)",
    "(let ((h (make-hash-table))) (setf (gethash h h) h) h)",
    "(setf - 5 + 6 * 7 / 8)",
    "(makunbound '*package*)",
    "(makunbound '*standard-output*)",
    "(makunbound '*print-base*)",
]  # fmt: skip

DIES = [
    "(exit)",
    "(sb-ext:exit :code 3 :abort t)",
    "(sb-ext:exit :code 3)",
    "(sb-posix:kill (sb-posix:getpid) sb-posix:sigkill)",
    "(let ((x nil)) (loop (push (make-list 1000) x)))",
    "(loop for k from 3 below 1000 do (ignore-errors (sb-posix:close k)))",
    '(sb-alien:alien-funcall (sb-alien:extern-alien "_exit" (function sb-alien:void sb-alien:int)) 9)',
    '(sb-alien:alien-funcall (sb-alien:extern-alien "abort" (function sb-alien:void)))',
]  # fmt: skip


@pytest.mark.parametrize("code", ANSWERS)
def test_a_hostile_form_is_answered_and_the_process_goes_on(live, code):
    live.eval("(defvar *state* 42)")
    reply = live.ask("eval", code=code)
    assert set(reply) >= {
        "ok",
        "forms",
        "stdout",
        "stderr",
        "warnings",
        "error",
        "package",
        "changed",
        "state",
    }
    assert live.value("*state*", package="CL-USER").strip("#b.") in ("42", "#", "101010")
    assert live.ask("ping")["ok"]


@pytest.mark.parametrize("code", DIES)
def test_a_deadly_form_ends_the_process_cleanly_and_its_checkpoint_is_there(family, live, code):
    live.eval("(defvar *state* 42)")
    checkpoint = family.fork(live, "checkpoint")
    live.send("eval", code=code)
    assert live.ended()
    restored = family.fork(checkpoint)
    assert restored.value("*state*") == "42"
    restored.kill()
    checkpoint.kill()


# ---- malformed requests


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "x", "(", "()", "(1 2)", "(:op)", "(:op 5)", "(:op :eval", '(:op :eval :code "', "(:op :eval)",
        "(:op :eval :code 5)", '(:op :eval :code "1" :limit "x")', "(:op :eval :code #.(exit))", "(:op . :eval)",
        "(:op nil)", "'(:op :ping)", "(:op (:eval))", "(" * 1000, "(:op :no-such-op :id 5)",
        '(:op :eval :package 5 :code "1")', "(:op :inspect)", "(:op :fork)", '(:op :fork :role "king")',
        "(:op :describe)", "(:op :confine)", "(:op |eval|)", b'(:op :eval :code "\xff\xfe" :id 1)', b"\x00\x01",
        "(:op :inspect :object 1 :path 5)", "(:op :inspect :object -1)", "(:op :save)", "(:op :load-system)",
    ],
)  # fmt: skip
def test_a_malformed_request_is_an_error_reply(live, text):
    live.send_text(text)
    reply = live.receive()
    assert reply["ok"] is False or b"\xff" in (text if isinstance(text, bytes) else b"")
    assert live.value("(+ 1 2)") == "3"


def test_an_unknown_operation_says_so(live):
    assert live.ask("dance")["error"]["type"] == "UNKNOWN-OP"


def test_requests_intern_nothing(live):
    live.send_text("(:op :ping :id 1 :never-seen-key-xyz 5 :other never)")
    live.receive()
    assert live.value('(find-symbol "NEVER-SEEN-KEY-XYZ" :keyword)') == "NIL"
    live.ask("describe", symbol="never-seen-symbol-xyz")
    assert live.value('(find-symbol "NEVER-SEEN-SYMBOL-XYZ")') == "NIL"


# ---- compilation


def test_compile_tells_warnings_with_lines_and_no_values(live):
    reply = live.ask("compile", code="(defun w (x)\n  (declare (ignore x))\n  (car 1 2 3))\n(defun v () (w))")
    assert reply["forms"] == []
    assert ("warning", 3) in [(w["kind"], w["line"]) for w in reply["warnings"]]
    assert any("called with zero arguments" in w["message"] and w["line"] == 4 for w in reply["warnings"])
    assert changes(reply)["function", "CL-USER::W"] == "defined"


def test_compile_tells_the_notes_of_the_compiler_and_eval_does_not(live):
    code = "(defun speedy (x)\n  (declare (optimize speed))\n  (if (zerop x) 0 (speedy (+ x 1))))"
    reply = live.ask("compile", code=code)
    assert {w["kind"] for w in reply["warnings"]} == {"note"}
    assert {w["line"] for w in reply["warnings"]} <= {1, 3}
    assert live.eval(code)["warnings"] == []


def test_an_error_of_the_compiler_is_told_once_with_its_line(live):
    reply = live.eval("(defun bad ()\n  (let ((a))\n    (if)\n    a))\n(list 1)")
    assert reply["error"] is None
    assert [(w["kind"], w["form"], w["line"]) for w in reply["warnings"]] == [("error", "(IF)", 3)]
    assert reply["stderr"] == ""


def test_compile_checks_plain_calls_too(live):
    reply = live.ask("compile", code="(progn)\n(list (car 1 2))")
    assert any("CAR" in w["message"] and w["line"] == 2 for w in reply["warnings"])
    assert reply["error"] is not None


# ---- introspection


def test_describe_tells_function_variable_and_class(live):
    live.eval('(defun both (x) "Doc of it." x) (defvar both 5) (defclass both () ())')
    text = live.ask("describe", symbol="both")["text"]
    assert "Lambda-list: (X)" in text
    assert "Doc of it." in text
    assert "Value: 5" in text
    assert "names a class" in text


@pytest.mark.parametrize(
    "name", ["car", "CAR", "cl:car", "common-lisp::car", "#'car", "'car", " car ", "Cl:Car"]
)
def test_one_resolver_understands_every_spelling(live, name):
    assert live.ask("describe", symbol=name)["data"]["name"] == "CAR"


def test_the_resolver_understands_bars_and_setf(live):
    live.eval("(defun |Mixed Case| (x) x) (defun (setf thing) (v) v)")
    assert live.ask("arglist", function="|Mixed Case|")["data"]["arglist"] == "(X)"
    assert live.ask("arglist", function="cl-user::|Mixed Case|")["data"]["name"] == "CL-USER::|Mixed Case|"
    assert live.ask("arglist", function="(setf thing)")["data"]["arglist"] == "(V)"


def test_an_unknown_name_is_answered_with_near_ones(live):
    error = live.ask("describe", symbol="mapcarr")["error"]
    assert error["type"] == "SYMBOL-NOT-FOUND"
    assert "MAPCAR" in error["suggestions"]
    assert live.ask("class_slots", **{"class": "standard-objekt"})["ok"] is False
    assert live.ask("arglist", function="(setf)")["ok"] is False
    assert live.ask("describe", symbol="sb-possix:x")["error"]["type"] == "PACKAGE-NOT-FOUND"


def test_apropos_is_bounded_and_sorted(live):
    live.eval("(defun zebra-one () 1) (defvar zebra-two 2)")
    answer = live.ask("apropos", pattern="zebra-")
    assert [s["name"] for s in answer["data"]["symbols"]] == ["CL-USER::ZEBRA-ONE", "CL-USER::ZEBRA-TWO"]
    answer = live.ask("apropos", pattern="a", limit=3)
    assert len(answer["data"]["symbols"]) == 3
    assert answer["data"]["total"] > 1000


def test_who_calls_and_who_references_see_evaluated_definitions(live):
    live.eval(
        "(defvar *x* 1) (defun callee () *x*) (defun caller () (callee)) (defun setter () (setf *x* 2))"
    )
    assert live.ask("who_calls", function="callee")["data"]["references"] == ["CL-USER::CALLER"]
    names = live.ask("who_references", variable="*x*")["data"]["references"]
    assert names == ["CL-USER::CALLEE", "CL-USER::SETTER"]


def test_package_symbols_tells_external_or_all_own_symbols(live):
    live.eval(
        "(defpackage :shop (:use :cl) (:export #:buy)) (in-package :shop) (defun buy () 1) (defun stock () 2)"
    )
    assert live.ask("package_symbols", package="shop")["data"]["symbols"] == ["BUY"]
    assert live.ask("package_symbols", package="SHOP", include_internal=True)["data"]["symbols"] == [
        "BUY",
        "STOCK",
    ]


def test_class_slots_shows_initial_forms_without_running_them(live):
    live.eval('(defclass base () ((a :initarg :a :accessor base-a :type integer :initform (error "ran"))))')
    live.eval("(defclass derived (base) ((b :initform 2)))")
    slots = live.ask("class_slots", **{"class": "derived"})["data"]["slots"]
    assert [s["name"] for s in slots] == ["CL-USER::A", "CL-USER::B"]
    assert slots[0]["initform"] == '(ERROR "ran")'
    assert slots[0]["type"] == "INTEGER"
    assert slots[0]["initargs"] == [":A"]
    assert "CL-USER::BASE-A" in slots[0]["accessors"]


def test_class_hierarchy_goes_both_ways(live):
    live.eval("(defclass base () ()) (defclass derived (base) ())")
    data = live.ask("class_hierarchy", **{"class": "base"})["data"]
    assert data["superclasses"] == ["STANDARD-OBJECT"]
    assert data["subclasses"] == ["CL-USER::DERIVED"]
    assert data["precedence"][0] == "CL-USER::BASE"


def test_a_class_whose_superclass_is_missing_can_be_asked_about(live):
    live.eval("(defclass orphan (not-yet) ((a)))")
    assert live.ask("class_slots", **{"class": "orphan"})["data"]["slots"][0]["name"] == "CL-USER::A"
    assert live.ask("class_hierarchy", **{"class": "orphan"})["ok"]


def test_macroexpand_goes_one_step_or_all_the_way(live):
    assert live.ask("macroexpand", form="(when a (unless b c))")["text"] == "(IF A\n    (UNLESS B C))"
    assert "UNLESS" not in live.ask("macroexpand", form="(when a (unless b c))", full=True)["text"]
    assert live.ask("macroexpand", form="(list 1)")["data"]["expanded"] is False
    live.eval('(defmacro bad () (error "in the macro"))')
    assert live.ask("macroexpand", form="(bad)")["error"]["message"] == "in the macro"
    assert live.ask("macroexpand", form="(when")["error"]["type"] == "END-OF-FILE"


def test_introspection_runs_no_user_code(live):
    live.eval(
        "(defclass trap () ((a :initform 1))) (defmethod print-object ((x trap) s) (setf *ran* t) (write 1 :stream s))"
    )
    live.eval("(defvar *ran* nil) (defvar *trap* (make-instance 'trap))")
    assert "#<CL-USER::TRAP>" in live.ask("describe", symbol="*trap*")["text"]
    live.ask("definitions")
    assert live.value("*ran*") == "NIL"


def test_inspect_follows_numbers_and_paths(live):
    reply = live.eval('(defstruct point x y) (list (make-point :x 1 :y (list 2 3)) "text" 5)')
    (number,) = reply["objects"]
    data = live.ask("inspect", object=number)["data"]
    assert [part["value"] for part in data["parts"]] == ["#<CL-USER::POINT>", '"text"', "5"]
    assert data["parts"][1]["id"] is None
    point = live.ask("inspect", object=data["parts"][0]["id"])["data"]
    assert [(p["label"], p["value"]) for p in point["parts"]] == [("X", "1"), ("Y", "(2 3)")]
    assert live.ask("inspect", object=number, path=[0, 1, 0])["text"].startswith("2")
    assert live.ask("inspect", object=number, path=[9])["ok"] is False
    assert live.ask("inspect", object=9999)["error"]["type"] == "OBJECT-NOT-FOUND"


def test_inspect_shows_hash_tables_arrays_instances_and_circles(live):
    live.eval("(defclass thing () ((a :initform 1) b))")
    reply = live.eval(
        "(values (let ((h (make-hash-table))) (setf (gethash :k h) :v) h) #2A((1 2) (3 4)) (make-instance 'thing)"
        " (let ((x (list 1))) (setf (cdr x) x)) #'car 5)"
    )
    table, array, thing, circle, function, nothing = reply["objects"]
    assert nothing is None
    parts = {
        n: live.ask("inspect", object=n)["data"]["parts"] for n in (table, array, thing, circle, function)
    }
    assert (parts[table][0]["label"], parts[table][0]["value"]) == (":K", ":V")
    assert [p["value"] for p in parts[array]] == ["1", "2", "3", "4"]
    assert [p["value"] for p in parts[thing]] == ["1", "|unbound|"]
    assert len(parts[circle]) == 200


def test_only_the_last_thousand_objects_are_remembered(live):
    (first,) = live.eval("(list 1)")["objects"]
    assert live.ask("inspect", object=first)["ok"]
    reply = live.eval("(values-list (loop repeat 1001 collect (list 1)))")
    assert live.ask("inspect", object=first)["ok"] is False
    assert live.ask("inspect", object=reply["objects"][-1])["ok"]


# ---- systems and saving


def installed(system):
    return Path("/usr/share/common-lisp/source", system).is_dir()


@pytest.mark.parametrize("system", ["alexandria", "cl-ppcre", "fiveam"])
def test_a_system_is_loaded_and_is_not_the_users_definition(live, system):
    if not installed(system):
        pytest.skip(f"{system} is not installed")
    reply = live.ask("load_system", seconds=120, system=system)
    assert reply["ok"], reply
    assert reply["name"] == system
    assert live.ask("definitions")["data"]["functions"] == []
    assert live.eval("1")["changed"] == []


def test_loading_through_asdf_by_hand_is_not_the_users_definition_either(live):
    if not installed("alexandria"):
        pytest.skip("alexandria is not installed")
    reply = live.ask("eval", seconds=120, code='(asdf:load-system "alexandria")')
    assert reply["error"] is None
    assert len(reply["changed"]) == 0
    assert live.value("(alexandria:flatten '(1 (2)))") == "(1 2)"


def test_a_missing_system_is_told_by_name(live):
    reply = live.ask("load_system", seconds=60, system="no-such-system")
    assert reply["ok"] is False
    assert reply["error"]["type"].endswith(("MISSING-COMPONENT", "SYSTEM-NOT-FOUND"))
    assert reply["error"]["message"] == 'System "no-such-system" not found.'


def test_a_saved_core_starts_with_its_state_and_the_original_goes_on(live, tmp_path):
    live.eval("(defvar *kept* 1) (defun kept () *kept*)")
    path = tmp_path / "saved.core"
    reply = live.ask("save", seconds=60, path=str(path))
    assert reply["bytes"] == path.stat().st_size > 10_000_000
    assert live.value("(incf *kept*)") == "2"
    (tmp_path / "again").mkdir()
    again = Family(tmp_path / "again", core_command(path))
    try:
        restored = again.fork()
        assert restored.value("(kept)") == "1"
        assert [f["symbol"] for f in restored.ask("definitions")["data"]["functions"]] == ["KEPT"]
    finally:
        again.close()


def test_a_core_that_cannot_be_written_is_an_error(live):
    reply = live.ask("save", seconds=60, path="/nowhere/at/all.core")
    assert reply["error"]["type"] == "CANNOT-SAVE"
    assert live.value("1") == "1"


# ---- previews


def test_a_preview_tells_what_would_happen_and_the_live_process_is_untouched(family, live):
    live.eval("(defvar *k* 1)")
    preview = family.preview(live)
    reply = preview.eval("(defun new () 1) (setf *k* 2)")
    assert reply["forms"][-1]["values"] == ["2"]
    assert changes(reply) == {("function", "CL-USER::NEW"): "defined"}
    assert reply["effects"] == []
    assert live.value("*k*") == "1"
    preview.kill()


def test_only_a_preview_can_be_confined(live):
    assert live.ask("confine")["ok"] is False


def attempts(target):
    """Return forms that try to change TARGET, a directory with a file in it."""
    return [
        (f'(with-open-file (s "{target}/new" :direction :output) (print 1 s))', "write", f"{target}/new"),
        (f'(with-open-file (s "{target}/file" :direction :io :if-exists :append) (print 1 s))', "write", f"{target}/file"),
        (f'(with-open-file (s "{target}/file" :direction :output :if-exists :supersede) (print 1 s))', "write", f"{target}/file"),
        (f'(delete-file "{target}/file")', "write", f"{target}/file"),
        (f'(rename-file "{target}/file" "{target}/other")', "write", f"{target}/file"),
        (f'(ensure-directories-exist "{target}/sub/")', "write", f"{target}/sub/"),
        (f'(sb-posix:mkdir "{target}/sub" #o700)', "write", f"{target}/sub"),
        (f'(sb-posix:unlink "{target}/file")', "write", f"{target}/file"),
        (f'(sb-posix:chmod "{target}/file" #o000)', "write", f"{target}/file"),
        (f'(sb-posix:truncate "{target}/file" 0)', "write", f"{target}/file"),
        (f'(sb-posix:symlink "{target}/file" "{target}/link")', "write", f"{target}/file"),
        (f'(sb-posix:open "{target}/file" sb-posix:o-wronly)', "write", f"{target}/file"),
        (f'(sb-ext:run-program "/bin/sh" (list "-c" "echo x > {target}/file"))', "process", None),
        ("(sb-bsd-sockets:socket-connect (make-instance 'sb-bsd-sockets:inet-socket :type :stream) #(127 0 0 1) 9)",
         "connect", "127.0.0.1:9"),
    ]  # fmt: skip


def test_a_preview_cannot_change_files_or_reach_others_and_tells_what_it_tried(family, live, tmp_path):
    (tmp_path / "file").write_text("before")
    preview = family.preview(live)
    for code, kind, target in attempts(tmp_path):
        reply = preview.eval(code)
        assert reply["error"] is not None, code
        told = [(e["kind"], e["target"], e["outcome"]) for e in reply["effects"]]
        assert any(k == kind and o == "refused" and target in (None, t) for k, t, o in told), (code, told)
    assert preview.value(f'(with-open-file (s "{tmp_path}/file") (read-line s))') == '"before"'
    preview.kill()
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "before"
    assert (tmp_path / "file").stat().st_mode & 0o777 != 0


def test_an_attempt_that_the_code_handles_is_told_all_the_same(family, live, tmp_path):
    preview = family.preview(live)
    reply = preview.eval(f'(ignore-errors (open "{tmp_path}/x" :direction :output))')
    assert reply["error"] is None
    assert reply["effects"] == [{"kind": "write", "target": f"{tmp_path}/x", "outcome": "refused"}]
    preview.kill()


def test_a_preview_cannot_write_through_descriptors_that_were_open(family, live, tmp_path):
    live.eval(f'(defvar *f* (open "{tmp_path}/log" :direction :output :if-does-not-exist :create))')
    live.eval('(write-line "live" *f*) (finish-output *f*)')
    preview = family.preview(live)
    preview.eval('(write-line "preview" *f*) (finish-output *f*)')
    preview.kill()
    live.eval('(write-line "again" *f*) (finish-output *f*)')
    assert (tmp_path / "log").read_text() == "live\nagain\n"


def test_a_preview_cannot_signal_other_processes(family, live):
    preview = family.preview(live)
    reply = preview.eval(f"(sb-posix:kill {live.pid} sb-posix:sigkill)")
    assert reply["error"] is not None
    assert live.value("1") == "1"
    preview.kill()


def test_threads_and_finalizers_of_a_preview_are_confined_too(family, live, tmp_path):
    preview = family.preview(live)
    write = f'(with-open-file (s "{tmp_path}/%s" :direction :output) (print 1 s))'
    preview.eval(
        f"(sb-thread:join-thread (sb-thread:make-thread (lambda () (ignore-errors {write % 'thread'}))))"
    )
    preview.eval(
        f"(defun leak () (sb-ext:finalize (list 1) (lambda () (ignore-errors {write % 'finalizer'})))) (leak)"
    )
    preview.eval("(dotimes (i 3) (gc :full t) (sleep 0.05))")
    preview.kill()
    assert list(tmp_path.iterdir()) == []


def test_a_preview_can_be_interrupted(family, live):
    preview = family.preview(live)
    assert preview.eval_interrupted("(loop)")["error"]["interrupted"]
    preview.kill()
