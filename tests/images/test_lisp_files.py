# ruff: noqa: E501 - a form of Lisp is easier to read on one line
"""Ordinary work with files of Lisp in the SBCL child: compile, load, run programs, and be told what is wrong and where."""

from __future__ import annotations

import shutil
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.images import children

family, live = children.lisp_family, children.live

SBCL = shutil.which("sbcl") or ""

pytestmark = pytest.mark.skipif(not SBCL, reason="sbcl is not installed")


@pytest.fixture
def write(tmp_path):
    """Write a file of Lisp; return the form that names it."""

    def write(name, text):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return f'"{path}"'

    return write


def places(reply):
    return [(w["kind"], w["file"] and Path(w["file"]).name, w["line"]) for w in reply["warnings"]]


def messages(reply):
    return [warning["message"] for warning in reply["warnings"]]


# ---- compiling and loading


DEFINERS = (
    "(defstruct point x y)\n(define-condition oops (error) ())\n(defclass shape () ((a :accessor shape-a)))\n"
)


def test_a_compiled_file_with_structures_and_conditions_is_loaded(live, write):
    reply = live.eval(f"(load (compile-file {write('types.lisp', DEFINERS)}))")
    assert reply["ok"], reply["error"]
    kinds = {change["name"]: (change["kind"], change["change"]) for change in reply["changed"]}
    assert kinds["CL-USER::POINT"] == ("structure", "defined")
    assert kinds["CL-USER::OOPS"] == ("condition", "defined")
    assert live.value("(point-x (make-point :x 3))") == "3"
    assert live.value("(handler-case (error 'oops) (oops () :handled))") == ":HANDLED"


def test_what_was_only_compiled_can_be_described(live, write):
    live.eval(f"(compile-file {write('types.lisp', DEFINERS)})")
    for name in ("point", "oops", "shape"):
        assert live.ask("describe", symbol=name)["ok"]
    assert live.ask("class_slots", **{"class": "point"})["ok"]
    assert live.value("(+ 1 2)") == "3"
    assert live.eval("1")["changed"] == []


def test_a_question_about_a_class_is_no_change(live, write):
    live.eval(f"(compile-file {write('types.lisp', DEFINERS)})")
    live.ask("describe", symbol="point")
    live.ask("apropos", pattern="POINT")
    assert live.eval("(list 1)")["changed"] == []


FAULTY = '(defun fine (x)\n  (list x))\n\n(defun bad (x)\n  (let ((unused 1))\n    (car x)\n    (+ "a" 1)))\n(defun open-end () (nowhere 1))\n'


def test_compile_file_tells_its_caller_of_warnings_and_failures_as_plain_sbcl_does(live, write):
    name = write("faulty.lisp", FAULTY)
    assert live.value(f"(rest (multiple-value-list (compile-file {name})))") == "(T T)"
    name = write("style.lisp", "(defun f (x) 1)")
    assert live.value(f"(rest (multiple-value-list (compile-file {name})))") == "(T NIL)"
    name = write("good.lisp", "(defun f (x) x)")
    assert live.value(f"(rest (multiple-value-list (compile-file {name})))") == "(NIL NIL)"
    name = write("open.lisp", "(defun f (x) x")
    assert live.value(f"(multiple-value-list (compile-file {name}))") == "(NIL T T)"


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ("(lambda (x) (car 1) x)", "(T T)"),
        ("(lambda (x) 1)", "(T NIL)"),
        ("(lambda () (no-such-function))", "(T NIL)"),
        ("(lambda () no-such-variable)", "(T T)"),
        ("(lambda () (if))", "(T T)"),
        ("(lambda (x) x)", "(NIL NIL)"),
    ],
)
def test_compile_tells_its_caller_of_warnings_and_failures_as_plain_sbcl_does(live, form, told):
    code = f"(rest (multiple-value-list (compile nil '{form})))"
    assert live.value(code) == told
    plain = subprocess.run(
        [SBCL, "--noinform", "--no-sysinit", "--no-userinit", "--disable-debugger"],
        input=f'(let ((*error-output* (make-broadcast-stream))) (format t "told ~s~%" {code}))', capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert f"told {told}" in plain.stdout


def test_warnings_of_a_compiled_file_have_its_name_and_lines_and_are_told_once(live, write):
    reply = live.eval(f"(compile-file {write('faulty.lisp', FAULTY)})")
    assert places(reply) == [
        ("style-warning", "faulty.lisp", 5),
        ("warning", "faulty.lisp", 7),
        ("style-warning", "faulty.lisp", 8),
    ]
    assert reply["stderr"] == ""


def test_lines_are_counted_in_characters_of_every_length(live, write):
    text = ";; Grüße, 世界 😀\n" * 3 + '(defun bad ()\n  "∀∀∀"\n  (car 1))\n'
    assert places(live.eval(f"(compile-file {write('wide.lisp', text)})")) == [("warning", "wide.lisp", 6)]


def test_warnings_of_a_loaded_source_file_have_its_name_and_lines(live, write):
    name = write("faulty.lisp", FAULTY + '(warn "loading")')
    reply = live.eval(f"(list 1)\n(load {name})")
    assert places(reply) == [
        ("style-warning", "faulty.lisp", 5),
        ("warning", "faulty.lisp", 7),
        ("style-warning", "faulty.lisp", 8),
        ("warning", "faulty.lisp", 9),
    ]
    assert live.eval("\n(defun f (x) 1)")["warnings"][0]["line"] == 2


@pytest.mark.parametrize("load", ["(load {})", "(load (compile-file {}))"])
def test_a_file_that_ends_inside_of_a_form_tells_where_that_begins(live, write, load):
    name = write("open.lisp", "(defun a () 1)\n\n(defun b (x)\n  (list x)\n")
    reply = live.eval(load.format(name))
    fault = reply["error"]
    if "compile-file" in load:
        assert places(reply) == [("error", "open.lisp", 3)]
        assert "begins on line 3" in messages(reply)[0]
    else:
        assert (Path(fault["file"]).name, fault["line"], fault["column"]) == ("open.lisp", 3, 1)
        assert fault["text"] == "(defun b (x)"
        assert "open.lisp:3 cannot be read: the file ends inside of the form" in fault["message"]


def test_a_file_that_the_reader_refuses_tells_where(live, write):
    name = write("refused.lisp", "(list 1)\n\n(list\n  (nowhere:x))\n")
    fault = live.eval(f"(load {name})")["error"]
    assert (Path(fault["file"]).name, fault["line"]) == ("refused.lisp", 4)
    assert fault["text"] == "  (nowhere:x))"
    assert fault["message"].endswith("refused.lisp:4 cannot be read: Package NOWHERE does not exist.")


def test_an_error_while_a_file_is_loaded_tells_the_line_of_its_form(live, write):
    name = write("fails.lisp", "(list 1)\n\n(car 1)\n")
    fault = live.eval(f"(load {name})")["error"]
    assert (fault["type"], Path(fault["file"]).name, fault["line"]) == ("TYPE-ERROR", "fails.lisp", 3)


# ---- programs


def test_a_program_is_not_waited_for_when_it_has_ended(live):
    """Each run took ten seconds; how it compares with plain SBCL is for `scripts/bench`."""
    measure = (
        '(let ((start (get-internal-real-time))) (dotimes (i 6) (sb-ext:run-program "/bin/true" nil))'
        " (floor (- (get-internal-real-time) start) internal-time-units-per-second))"
    )
    # A tenth of a second where nothing else runs.
    assert int(live.value(measure)) < 30


def test_the_ends_of_programs_and_of_copies_are_both_seen(live):
    checkpoint = live.fork("checkpoint")
    assert live.value('(sb-ext:process-exit-code (sb-ext:run-program "/bin/sh" (list "-c" "exit 7")))') == "7"
    checkpoint.kill()
    assert checkpoint.is_ended()
    deadline = time.monotonic() + 60
    while live.fate(checkpoint.pid)["kind"] == "running" and time.monotonic() < deadline:
        pass
    assert live.fate(checkpoint.pid) == {"kind": "signaled", "signal": 9}
    assert live.value('(sb-ext:process-exit-code (sb-ext:run-program "/bin/false" nil))') == "1"


def test_a_copy_does_not_take_the_programs_of_its_parent_for_its_own(live):
    live.eval('(defvar *program* (sb-ext:run-program "/bin/sleep" (list "1000") :wait nil))')
    copy = live.fork("checkpoint")
    assert copy.value("sb-impl::*active-processes*") == "NIL"
    assert copy.value('(sb-ext:process-exit-code (sb-ext:run-program "/bin/false" nil))') == "1"
    assert (
        live.value(
            "(progn (sb-ext:process-kill *program* 15) (sb-ext:process-wait *program*) (sb-ext:process-status *program*))"
        )
        == ":SIGNALED"
    )


def test_what_programs_and_threads_print_is_in_the_log_before_the_reply(tmp_path):
    with closing(children.Family(tmp_path, "sbcl")) as family:
        live = family.live()
        live.eval('(sb-ext:run-program "/bin/echo" (list "from a program") :output t)')
        assert "from a program\n" in family.log.read_text()
        live.eval('(sb-thread:join-thread (sb-thread:make-thread (lambda () (format t "half a line"))))')
        assert family.log.read_text() == "from a program\nhalf a line"


# ---- the end of a file


def test_an_end_of_file_of_user_code_is_an_ordinary_error_with_its_frames(live):
    fault = live.eval('(defun next-word (s) (list (read-line s))) (next-word (make-string-input-stream ""))')[
        "error"
    ]
    assert fault["type"] == "END-OF-FILE"
    assert "end of file on #<" in fault["message"]
    assert any("NEXT-WORD" in frame for frame in fault["backtrace"])
    fault = live.eval('(list (read-from-string "(a b"))')["error"]
    assert "end of file on #<" in fault["message"]
    assert fault["backtrace"]


def test_a_reader_error_of_user_code_has_its_frames(live):
    fault = live.eval('(defun parse (text) (list (read-from-string text))) (parse ")")')["error"]
    assert any("PARSE" in frame for frame in fault["backtrace"])
    assert live.eval(")")["error"]["backtrace"] == []


@pytest.mark.parametrize(
    ("code", "line", "message"),
    [
        ("(list 1\n (list 2)", 1, "begins on line 1: the list that begins on line 1 is not closed."),
        ("1\n\n;; (\n(defun f ()\n  (list 1)\n", 4, "begins on line 4: the list that begins on line 4 is not closed."),
        ('(list 1\n  "abc)\n(foo)', 1, "begins on line 1: the string that begins on line 2 is not closed."),
        ("(list\n #| never\n ends)", 1, "begins on line 1: the comment that begins on line 2 is not closed."),
        ("(list #\\( 1\n  (a |b)", 1, "begins on line 1: the symbol that begins on line 2 is not closed."),
        ("2\n'", 2, "begins on line 2."),
    ],
)  # fmt: skip
def test_code_that_is_not_closed_tells_where_it_begins(live, code, line, message):
    fault = live.eval(code)["error"]
    assert (fault["type"], fault["line"]) == ("END-OF-FILE", line)
    assert fault["message"] == f"The code ends inside of the form that {message}"
    assert live.ask("macroexpand", form="(when\n x")["error"]["message"].startswith(
        "The code ends inside of the form"
    )


# ---- warnings, printing, names


def test_warn_prints_on_an_error_output_of_the_users_and_is_told_once(live):
    reply = live.eval('(with-output-to-string (*error-output*) (warn "careful ~a" 1))')
    assert reply["forms"][0]["values"] == ['"WARNING: careful 1\n"']
    assert messages(reply) == ["careful 1"]
    reply = live.eval('(warn "careful")')
    assert (messages(reply), reply["stderr"]) == (["careful"], "")


def test_the_compiler_prints_on_an_error_output_of_the_users(live):
    reply = live.eval("(with-output-to-string (*error-output*) (compile nil '(lambda (x) 1)))")
    assert "caught STYLE-WARNING" in reply["forms"][0]["values"][0]
    assert len(reply["warnings"]) == 1


def test_text_that_looks_like_a_package_is_left_as_it_is(live):
    fault = live.eval("(error 'type-error :datum \"COMMON-LISP-USER::x\" :expected-type 'list)")["error"]
    assert '"COMMON-LISP-USER::x"' in fault["message"]
    assert (
        live.eval("(no-such-function)")["error"]["message"] == "The function NO-SUCH-FUNCTION is undefined."
    )
    assert messages(live.eval('(defun f () (+ 1 "COMMON-LISP-USER::y"))'))[0].startswith(
        'Constant "COMMON-LISP-USER::y"'
    )
    assert live.value('(format nil "~/sb-ext:print-symbol-with-prefix/" \'foo)') == '"COMMON-LISP-USER::FOO"'


def test_values_nested_too_deep_say_that_they_are_cut(live):
    reply = live.eval("(let ((x nil)) (dotimes (i 61 x) (setf x (list x))))")
    assert "#" in reply["forms"][0]["values"][0]
    assert reply["notes"] == ["A value is nested deeper than 60 levels: # stands for what lies below them."]
    assert "notes" not in live.eval("(let ((x nil)) (dotimes (i 60 x) (setf x (list x))))")
    assert "notes" not in live.eval("(list #\\a #(1 2) (let ((*print-level* 1)) '((1))))")
    live.eval("(defstruct node next)")
    assert live.eval("(let ((x nil)) (dotimes (i 99 x) (setf x (make-node :next x))))")["notes"]
    # What is printed in a way of its own is not cut, however deep its slots are.
    for value in ("(find-package :cl-user)", '(list *package* #p"x")', "(make-hash-table)", "*readtable*"):
        assert "notes" not in live.eval(value)
    live.eval("(defstruct (leaf (:include node)))")
    live.eval('(defmethod print-object ((x leaf) stream) (format stream "#leaf"))')
    assert "notes" not in live.eval("(let ((x nil)) (dotimes (i 99 x) (setf x (make-leaf :next x))))")


def test_an_object_with_more_parts_than_are_shown_says_so(live):
    for form, told in [
        ("(loop for i below 250 collect i)", "... 50 more of 250 parts are not shown"),
        ("(make-array 201)", "... 1 more of 201 parts are not shown"),
        ("(let ((l (list 1 2))) (setf (cddr l) l))", "... further parts are not shown"),
    ]:
        number = live.eval(form)["objects"][0]
        assert live.ask("inspect", object=number)["text"].endswith(told)
    number = live.eval("(make-array 200)")["objects"][0]
    assert "not shown" not in live.ask("inspect", object=number)["text"]


def test_long_values_are_printed_without_noise(tmp_path):
    with closing(children.Family(tmp_path, "sbcl")) as family:
        live = family.live()
        assert live.eval("(loop for i below 20000 collect i)")["truncated"]["values"] > 20_000
        assert live.eval("(coerce (loop for i below 20000 collect i) 'vector)")["truncated"]
        circular = live.value("(let ((l (loop for i below 50 collect i))) (setf (cdr (last l)) l))")
        assert circular.startswith("#1=(0 1 2")
        circular = live.value("(let ((l (list 1 2))) (setf (first l) (vector l l)) l)")
        assert circular == "#1=(#(#1# #1#) 2)"
        assert family.log.read_text() == ""


def test_a_deleted_user_package_is_replaced_by_a_fresh_one(live):
    live.eval("(defun mine () 1)")
    reply = live.eval("(delete-package :cl-user)")
    assert reply["notes"] == [
        "The package CL-USER was deleted: there is a fresh one now, with no symbols of its own."
    ]
    assert reply["package"] == "CL-USER"
    assert live.value("(+ 1 2)") == "3"
    assert live.value("(defun mine () 2)") == "MINE"
    assert (
        live.value('(list (mine) (package-name *package*) (sb-ext:posix-getenv "none"))')
        == '(2 "COMMON-LISP-USER" NIL)'
    )
    assert live.ask("describe", symbol="mine")["text"].startswith("MINE: internal in CL-USER\n")
    assert live.fork("checkpoint").value("(mine)") == "2"
    assert (
        live.value('(sb-thread:join-thread (sb-thread:make-thread (lambda () (read-from-string "mine"))))')
        == "MINE"
    )


def test_what_is_defined_in_a_locked_package_of_the_users_is_told(live, write):
    """Libraries lock their packages too, alexandria for one."""
    text = "(in-package :safe)\n(sb-ext:without-package-locks (defun safe::lid () 1))"
    live.eval("(defpackage :safe (:use :cl) (:lock t))")
    changed = live.eval(f"(load {write('lid.lisp', text)})")["changed"]
    assert changed == [{"kind": "function", "name": "SAFE::LID", "change": "defined"}]
