# ruff: noqa: E501 - a form of Lisp is easier to read on one line
"""What only the SBCL image program does, driven over its socket without a sandbox around it.

What it must do as the Python program does is in `test_children`.
"""

import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.images import children

LISP = Path(__file__).parents[2] / "src" / "gramercy" / "images" / "lisp"
SBCL = children.SBCL
family, live = children.lisp_family, children.live

pytestmark = pytest.mark.skipif(not SBCL, reason="sbcl is not installed")


def changes(reply):
    return {(change["kind"], change["name"]): change["change"] for change in reply["changed"]}


@pytest.mark.slow
def test_a_core_is_built_without_a_warning(tmp_path):
    """The image program compiles clean."""
    command = [
        SBCL, "--noinform", "--no-sysinit", "--no-userinit", "--disable-debugger",
        "--load", str(LISP / "build.lisp"), "--eval", f'(gramercy.image:build-core "{tmp_path}/child.core")',
    ]  # fmt: skip
    built = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert "WARNING" not in built.stdout + built.stderr
    assert (tmp_path / "child.core").exists()


@pytest.mark.parametrize(
    "code", ["(loop)", "(sleep 1000)", "(sb-thread:wait-on-semaphore (sb-thread:make-semaphore))"]
)
def test_a_process_that_is_evaluating_ends_with_its_connection_too(live, code):
    live.send("eval", code=code)
    with pytest.raises(TimeoutError):
        live.receive(0.1)
    live.plug.close()
    assert live.is_ended()


def test_an_image_can_save_its_state(family):
    assert {"save", "definitions", "undo_definitions"} <= set(family.zygote.hello["capabilities"])


def test_octets_that_are_not_utf_8_are_read_as_marks(live):
    live.send_bytes(b'(:op :eval :code "(quote |\xff\xfe|)" :id 1)')
    assert live.receive()["forms"] == [{"values": ["\ufffd\ufffd"]}]
    assert live.value("(+ 1 2)") == "3"


@pytest.mark.slow
def test_the_child_also_runs_from_source(tmp_path):
    command = [
        SBCL, "--noinform", "--end-runtime-options", "--no-sysinit", "--no-userinit", "--disable-debugger",
        "--load", str(LISP / "build.lisp"), "--eval", "(gramercy.image:main)", "--end-toplevel-options",
    ]  # fmt: skip
    with closing(children.Family(tmp_path, "sbcl", command=command)) as family:
        assert family.live().value("(+ 1 2 3)") == "6"


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


def test_an_undefined_function_is_told_as_the_contract_has_it(live):
    error = live.eval("(nonexistent-function)")["error"]
    assert error["type"] == "UNDEFINED-FUNCTION"
    assert error["message"] == "The function NONEXISTENT-FUNCTION is undefined."
    assert error["backtrace"] == ["0: (NONEXISTENT-FUNCTION)", "1: (EVAL (NONEXISTENT-FUNCTION))"]
    assert "PRINT" in live.eval("(prinnt 1)")["error"]["suggestions"]
    assert "SB-POSIX" in live.eval("(sb-pposix:getpid)")["error"]["suggestions"]
    assert "ABORT" in error["restarts"]


def test_the_users_handlers_come_before_ours(live):
    assert live.value('(handler-case (error "x") (error () :caught))') == ":CAUGHT"
    assert live.value("(list (signal 'error))") == "(NIL)"
    assert live.value("(handler-case (car 1) (type-error () :typed))") == ":TYPED"
    hook = '(let ((*debugger-hook* (lambda (c h) c h (invoke-restart \'use-value 9)))) (restart-case (error "q") (use-value (x) x)))'
    assert live.value(hook) == "9"


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


def test_the_users_printer_settings_do_not_change_the_protocol(live):
    live.eval("(setf *print-base* 2 *print-radix* t *print-case* :downcase *read-base* 16 *print-length* 3)")
    reply = live.eval("(list 11 2 3 4 'abc)")
    assert reply["forms"][0]["values"] == ["(#b10001 #b10 #b11 ...)"]
    assert reply["id"] == 2
    assert live.value("10") == "#b10000"


def test_a_huge_value_is_cut_and_marked(live):
    reply = live.eval("(make-list 1000000 :initial-element 7)")
    assert len(reply["forms"][0]["values"][0]) == 20000
    assert reply["truncated"]["values"] >= 20000
    assert reply["lengths"] == [0]
    assert len(live.eval("(make-string 100)", value_limit=10)["forms"][0]["values"][0]) == 10


def test_definitions_lists_what_exists_in_its_order(live):
    live.eval("(defun my-function (a b &optional c) (list a b c)) (defun helper (x) x) (defvar *my-var* 42)")
    live.eval('(defconstant +my-constant+ "hello") (defmacro with-timing (form) form)')
    data = live.ask("definitions")["data"]
    assert [(f["symbol"], f["arglist"]) for f in data["functions"]] == [
        ("MY-FUNCTION", "(A B &OPTIONAL C)"),
        ("HELPER", "(X)"),
    ]
    assert data["variables"] == [
        {"name": "CL-USER::*MY-VAR*", "place": 2, "symbol": "*MY-VAR*", "value": "42"}
    ]
    assert data["constants"][0]["value"] == '"hello"'
    assert data["macros"][0]["arglist"] == "(FORM)"
    assert set(live.ask("definitions", kind="macros")["data"]) == {"package", "macros"}
    assert live.ask("definitions", kind="bogus")["error"]["type"] == "KIND-NOT-FOUND"


def test_requests_intern_nothing(live):
    live.send_bytes(b"(:op :ping :id 1 :never-seen-key-xyz 5 :other never)")
    live.receive()
    assert live.value('(find-symbol "NEVER-SEEN-KEY-XYZ" :keyword)') == "NIL"
    live.ask("describe", symbol="never-seen-symbol-xyz")
    assert live.value('(find-symbol "NEVER-SEEN-SYMBOL-XYZ")') == "NIL"


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


def test_the_resolver_understands_bars_and_setf(live):
    live.eval("(defun |Mixed Case| (x) x) (defun (setf thing) (v) v)")
    assert live.ask("arglist", function="|Mixed Case|")["data"]["arglist"] == "(X)"
    assert live.ask("arglist", function="cl-user::|Mixed Case|")["data"]["name"] == "CL-USER::|Mixed Case|"
    assert live.ask("arglist", function="(setf thing)")["data"]["arglist"] == "(V)"


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


def test_a_saved_core_starts_with_its_state_and_the_original_goes_on(live, tmp_path):
    live.eval("(defvar *kept* 1) (defun kept () *kept*)")
    path = tmp_path / "saved.core"
    reply = live.ask("save", seconds=60, path=str(path))
    assert reply["bytes"] == path.stat().st_size > 10_000_000
    assert live.value("(incf *kept*)") == "2"
    (tmp_path / "again").mkdir()
    command = children.core_program(path)
    with closing(children.Family(tmp_path / "again", "sbcl", command=command)) as again:
        restored = again.live()
        assert restored.value("(kept)") == "1"
        assert [f["symbol"] for f in restored.ask("definitions")["data"]["functions"]] == ["KEPT"]


def test_a_core_that_cannot_be_written_is_an_error(live):
    reply = live.ask("save", seconds=60, path="/nowhere/at/all.core")
    assert reply["error"]["type"] == "CANNOT-SAVE"
    assert live.value("1") == "1"


def test_threads_and_finalizers_of_a_preview_are_confined_too(live, tmp_path):
    preview = live.fork("preview")
    if not preview.confine()["confined"]:
        pytest.skip("no confinement here")
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


def test_every_function_that_the_image_program_calls_is_defined(live):
    """A helper that was removed while another file calls it fails only when that call comes, and may fail unseen."""
    form = (
        '(loop for symbol being the symbols of "GRAMERCY.IMAGE" '
        "when (and (sb-int:find-fdefn symbol) (not (fboundp symbol))) collect symbol)"
    )
    assert live.value(form) == "NIL"
