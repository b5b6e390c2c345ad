"""A Lisp project as its developer works in it: load, edit, reload, test, undo, crash, save, serve."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from tests.projects import walking
from tests.support import free_port

edit, write = walking.edit, walking.write

DEBIAN = Path("/usr/share/common-lisp/source")
pytestmark = [
    pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed"),
    pytest.mark.usefixtures("home"),
]
GARDEN = {
    "garden.asd": """
(defsystem "garden" :class :package-inferred-system :depends-on ("garden/src/beds")
  :in-order-to ((test-op (test-op "garden/tests"))))
(defsystem "garden/tests" :class :package-inferred-system :depends-on ("garden/tests/beds")
  :perform (test-op (o c) (unless (uiop:symbol-call :fiveam :run! :garden) (error "a test failed"))))
""",
    "src/beds.lisp": """
(defpackage garden/src/beds (:use :cl) (:import-from :alexandria #:flatten) (:export #:area #:names))
(in-package garden/src/beds)

(defun area (rows columns)
  (* rows columns))

(defun names (list)
  (flatten list))
""",
    "tests/beds.lisp": """
(defpackage garden/tests/beds (:use :cl :fiveam :garden/src/beds))
(in-package garden/tests/beds)
(def-suite :garden)
(in-suite :garden)
(test area-is-a-product (is (= 6 (area 2 3))))
(test names-are-flat (is (equal '(1 2) (names '(1 (2))))))
""",
}
AREA = "(garden/src/beds:area 2 3)"
TESTS = '(asdf:test-system "garden")'


def needs(*systems):
    lacking = [system for system in systems if not (DEBIAN / system).is_dir()]
    return pytest.mark.skipif(bool(lacking), reason=f"the Debian package of {lacking} is not installed")


@needs("alexandria", "fiveam")
def test_a_day_in_a_project_over_an_installed_server(project, walk, gramercy):
    """Issue, Done means: install, evaluate, edit, reload, run the tests, undo, crash, restore."""
    write(project, GARDEN)
    day = walk("sbcl", project, started=walking.installed_walk(gramercy, "sbcl", project))
    assert day.load("garden").startswith("Loading system: garden\nLoaded: garden")
    assert day.eval(AREA) == "=> 6"
    assert "Pass: 2 (100%)" in day.eval(TESTS)

    edit(project / "src/beds.lisp", "(* rows columns)", "(+ rows columns)")
    assert day.load("garden").endswith("Reloaded: garden/src/beds (beds.lisp)")
    failed = day.error(TESTS)
    assert failed.startswith("[ERROR] SIMPLE-ERROR\na test failed\n")
    assert "AREA-IS-A-PRODUCT in GARDEN" in failed
    assert "Fail: 1 (50%)" in failed

    # First the run of the tests is taken back, then the loading; the file is not.
    assert "garden" in day.do("undo_last")
    assert day.eval(AREA) == "=> 5"
    for _ in ("the look", "the loading"):
        day.do("undo_last")
    assert day.eval(AREA) == "=> 6"
    assert "(+ rows columns)" in (project / "src/beds.lisp").read_text()
    assert "Reloaded: garden/src/beds" in day.load("garden")
    assert day.eval(AREA) == "=> 5"

    edit(project / "src/beds.lisp", "(+ rows columns)", "(* rows columns)")
    day.load("garden")
    day.eval(f"(defvar *kept* {AREA})")
    died = day.error("(sb-ext:exit :code 3 :abort t)")
    assert "its code ended it with status 3" in died
    assert "The state before is back" in died
    assert day.eval("*kept*") == "=> 6"
    assert "Pass: 2 (100%)" in day.eval(TESTS)


@needs("alexandria", "fiveam")
def test_what_is_wrong_in_a_file_is_told_with_its_line_and_the_old_code_stays(project, walk):
    """Issue: failures and warnings with file and line."""
    write(project, GARDEN)
    file = project / "src/beds.lisp"
    day = walk("sbcl", project)
    day.load("garden")
    edit(file, "(* rows columns)", "(* rows kolumns)")
    told = day.load("garden")
    assert "(src/beds.lisp:6): undefined variable: GARDEN/SRC/BEDS::KOLUMNS" in told
    assert "(src/beds.lisp:5): The variable COLUMNS is defined but never used." in told
    edit(file, "kolumns", "columns")
    day.load("garden")
    file.write_text(file.read_text() + "\n(defun open-bed (")
    told = day.fail("load-system", system="garden")
    assert "src/beds.lisp:11 cannot be read: the file ends inside of the form that begins on line 11." in told
    assert day.eval(AREA) == "=> 6"
    edit(file, "(defun open-bed (", "(defun open-bed () (let ((x)) (no-such-macro-form (1 2))))")
    told = day.fail("load-system", system="garden")
    assert "src/beds.lisp:11" in told
    assert day.eval(AREA) == "=> 6"


@needs("alexandria", "fiveam")
@pytest.mark.slow
def test_the_state_of_a_project_is_saved_and_restored_by_the_command_line(project, gramercy):
    """Issue, Done means: restore; in another process, with the system loaded and the tests at hand."""
    write(project, GARDEN)
    words = ("eval", "--language", "sbcl")
    code = f'(asdf:load-system "garden") (defvar *kept* {AREA})'
    # Lisp reads form by form, so the package is there when the second form is read.
    done = gramercy(*words, "--save", "state", code, cwd=project)
    assert (done.returncode, done.stdout.endswith("*KEPT*\n")) == (0, True)
    done = gramercy(*words, "--restore", "state", "(list *kept* (garden/src/beds:area 4 5))", cwd=project)
    assert (done.returncode, done.stdout.strip()) == (0, "(6 20)")
    done = gramercy(*words, "--restore", "state", TESTS, cwd=project)
    assert (done.returncode, "Pass: 2 (100%)" in done.stdout) == (0, True)


QUICKLISP = """
(defpackage quicklisp-client (:nicknames ql) (:use :cl) (:export #:quickload))
(in-package quicklisp-client)
(defun quickload (name &key silent)
  (declare (ignore silent))
  (asdf:load-system name)
  (list name))
"""


def test_quicklisp_in_the_home_of_the_user_is_found_by_every_door(project, home, gramercy, walk):
    """Issue, Proof: a stand-in for Quicklisp in a scratch HOME, found by the real look-up."""
    write(home / "quicklisp", {"setup.lisp": QUICKLISP})
    local = {
        "local.asd": '(defsystem "local" :components ((:file "code")))',
        "code.lisp": "(defun cl-user::here () :local)",
    }
    write(home / "quicklisp/local-projects/local", local)
    done = gramercy("eval", "--language", "sbcl", '(ql:quickload "local") (here)', cwd=project)
    assert (done.returncode, done.stdout.endswith(":LOCAL\n"), done.stderr) == (0, True, "")
    day = walk("sbcl", project)
    assert "Loaded: local" in day.load("local")
    assert day.eval("(here)") == "=> :LOCAL"
    found = gramercy("doctor", "--project", ".", cwd=project).stdout
    assert str(home / "quicklisp") in found


# ---- real libraries

DIGEST = """
(ironclad:byte-array-to-hex-string
  (ironclad:digest-sequence :sha1 (ironclad:ascii-string-to-byte-array "abc")))
"""
LIBRARIES = {
    "alexandria": ("(alexandria:flatten '(1 (2 (3))))", "=> (1 2 3)"),
    "cl-ppcre": ('(cl-ppcre:regex-replace-all "a" "banana" "o")', '=> "bonono"\n=> T'),
    "cffi": ('(cffi:foreign-funcall "abs" :int -3 :int)', "=> 3"),
    "ironclad": (
        DIGEST,
        '=> "a9993e364706816aba3e25717850c26c9cd0d89d"',
    ),
}


@pytest.mark.slow
@needs("alexandria", "cl-ppcre", "cl-cffi", "ironclad")
def test_real_libraries_are_loaded_by_the_server(project, walk):
    """Issue, Proof: load-system of the Debian packages."""
    # 512 MB are not enough to compile ironclad.
    day = walk("sbcl", project, "--memory", "1024", "--timeout", "400")
    day.client.seconds = 400
    for system, (code, value) in LIBRARIES.items():
        assert f"Loaded: {system}" in day.load(system)
        # Compiling leaves about 256 MB in use, where an image begins to keep fewer states and says so.
        assert f"{day.value(code)}\n\n".startswith(f"{value}\n\n")


SERVER = """
(defvar *server* (make-instance 'hunchentoot:easy-acceptor :port 8080 :address "127.0.0.1"
                                :access-log-destination nil))
(hunchentoot:define-easy-handler (hello :uri "/hello") () "first")
"""


@pytest.mark.slow
@needs("hunchentoot")
def test_a_web_server_is_developed_while_it_runs(project, walk):
    """Issue, Proof: a request over a published port; what cannot be kept is told, definitions go back."""
    port = free_port()
    sets = ("--toolset", "default", "--toolset", "time-travel")
    day = walk("sbcl", project, "--publish", f"{port}:8080", "--timeout", "200", *sets)
    day.client.seconds = 200
    day.load("hunchentoot")
    day.eval(SERVER)
    assert "stopped" in day.do("checkpoint_image", label="stopped")
    told = day.eval("(hunchentoot:start *server*)")
    assert (
        'No state was kept after this call: the image says "1 user thread is running: hunchentoot-listener'
        in told
    )
    assert walking.get(port, "/hello") == "first"

    refused = day.fail("checkpoint_image", label="running")
    assert "the present state cannot be kept" in refused
    assert "hunchentoot-listener" in refused
    assert "nothing was evaluated" in day.fail("preview_form", code="(+ 1 2)")
    assert "running" not in day.do("list_checkpoints")

    day.eval('(defun hello () "second")')
    assert walking.get(port, "/hello") == "second"
    assert "undo by definitions" in day.fail("undo_last")
    assert walking.get(port, "/hello") == "second"
    assert "function CL-USER::HELLO" in day.do("undo_last", by="definitions")
    assert walking.get(port, "/hello") == "first"

    day.eval("(hunchentoot:stop *server*)")
    # The workers of the last requests end by themselves.
    end = time.monotonic() + 60
    while day.ask("checkpoint_image", label="stopped again")[0]:
        assert time.monotonic() < end, "the state is never kept again"
    day.eval("(defvar *after* 1)")
    day.do("rollback_image", checkpoint="stopped again")
    assert "*AFTER* is unbound" in day.error("*after*")
    day.eval("(hunchentoot:start *server*)")
    assert walking.get(port, "/hello") == "first"
    # A crash takes the server and what came after the last kept state, and says so.
    day.eval("(defvar *late* 1)")
    died = day.error("(sb-ext:exit :code 3 :abort t)")
    assert "The state of" in died
    assert "Also lost are 2 calls after it" in died
    assert "*LATE* is unbound" in day.error("*late*")
    assert not walking.is_answered(port, "/hello")
    day.eval("(hunchentoot:start *server*)")
    assert walking.get(port, "/hello") == "first"
