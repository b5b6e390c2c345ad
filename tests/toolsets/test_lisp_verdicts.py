"""What run_tests calls passed, failed and unknown in Lisp: every way in which a test-op can end."""

from __future__ import annotations

import pytest

from gramercy.toolsets.factory import SingleImage, Workshop
from gramercy.toolsets.running_tests import running_test_tools


def with_test_op(form: str, name: str = "suite") -> dict[str, str]:
    """Return a project of one system with this test-op."""
    return {f"{name}.asd": f'(defsystem "{name}" :perform (test-op (o c) {form}))\n'}


@pytest.mark.contract("day.verdict.lisp.silent")
@pytest.mark.parametrize("returned", ["nil", "t", "0"])
def test_a_suite_that_only_prints_has_no_verdict(desk_on, returned):
    """cl-ppcre prints that some tests failed, and returns NIL: whatever is returned, nothing is known."""
    desk = desk_on("sbcl", with_test_op(f'(progn (format t "Some tests failed.~%") {returned})'))
    answer = desk.text("run_tests")
    assert answer.startswith("Ran, verdict unknown in ")
    assert "[printed]\nSome tests failed." in answer
    assert "passed" not in answer
    again = desk.text("run_tests", last_failed=True)
    assert again == "Nothing failed in the last run, but suite has no verdict."


@pytest.mark.contract("day.verdict.lisp.silent")
def test_of_a_million_lines_the_end_is_told(desk_on):
    """The summary of a suite is in its last lines."""
    loop = '(progn (dotimes (i 1000000) (write-line "another line")) (write-line "2 of 7 failed"))'
    answer = desk_on("sbcl", with_test_op(loop)).text("run_tests")
    assert answer.startswith("Ran, verdict unknown in ")
    assert answer.rstrip().endswith("another line\n2 of 7 failed")
    assert len(answer) < 2_000


@pytest.mark.contract("day.verdict.lisp.status")
@pytest.mark.parametrize(
    ("ending", "verdict", "said"),
    [
        (
            "(uiop:quit 0)",
            "1 without a verdict, 1 passed in ",
            "PASSED suite\nIt ended with exit status 0; no known framework",
        ),
        ("(uiop:quit 1)", "1 failed, 1 without a verdict in ", "FAILED suite\nIt ended with exit status 1."),
        (
            "(sb-ext:exit :code 3 :abort t)",
            "1 failed, 1 without a verdict in ",
            "FAILED suite\nIt ended with exit status 3.",
        ),
        ('(error "ouch")', "1 failed, 1 without a verdict in ", "FAILED suite\nSIMPLE-ERROR: ouch"),
    ],
)
def test_a_suite_that_ends_the_process_has_the_verdict_of_its_status(desk_on, ending, verdict, said):
    """It is no death: what it printed is told, the next system is tested, and no state is lost."""
    form = f'(progn (format t "to the end~%") {ending})'
    desk = desk_on(
        "sbcl", {**with_test_op(form), **with_test_op('(format t "the other~%")', "tests-of-others")}
    )
    desk.text("evaluate-lisp", code="(defvar *kept* 5)")
    answer = desk.text("run_tests")
    assert answer.startswith(verdict)
    assert said in answer
    assert "[printed]\nto the end" in answer
    assert "UNKNOWN tests-of-others" in answer
    assert "aborted" not in answer
    assert "IMAGE-DIED" not in answer
    assert desk.text("evaluate-lisp", code="*kept*").startswith("=> 5")


@pytest.mark.contract("day.verdict.lisp.once")
@pytest.mark.parametrize("name", ["beds", "zebra"])
def test_a_suite_that_two_systems_lead_to_runs_once(desk_on, name):
    """As in lparallel: a method of its own performs the test-op of another system of the project."""
    method = '(defmethod asdf:perform ((o asdf:test-op) (c (eql (asdf:find-system "{0}")))) {1})'
    files = {
        f"{name}.asd": f'(defsystem "{name}")\n' + method.format(name, '(asdf:test-system "it-test")'),
        "it-test.asd": '(defsystem "it-test")\n' + method.format("it-test", '(format t "the suite runs~%")'),
    }
    answer = desk_on("sbcl", files).text("run_tests")
    assert answer.count("the suite runs") == 1
    assert answer.count("UNKNOWN") == 1


FIVEAM = {
    "passing": "(test one (is (= 1 1)))",
    "failing": "(test one (is (= 1 1))) (test two (is (= 1 2)))",
    "erring": '(test one (is (= 1 1))) (test two (is (error "ouch")))',
    "empty": "",
}
RT = {
    "passing": "(deftest one (+ 1 1) 2)",
    "failing": "(deftest one (+ 1 1) 2) (deftest two (+ 1 1) 3)",
    "erring": '(deftest one (+ 1 1) 2) (deftest two (error "ouch") 3)',
    "empty": "",
}
VERDICTS = {
    "passing": "1 passed",
    "failing": "1 failed, 1 passed",
    "erring": "1 failed, 1 passed",
    "empty": "Ran, verdict unknown",
}
RUNS = {"fiveam": "(run! :beds)", "rt": "(do-tests)"}
SUITES = {"fiveam": FIVEAM, "rt": RT}


def suite_of(framework: str, body: str, ending: str = "") -> dict[str, str]:
    """Return a project whose test-op runs these tests and then does something else."""
    head = f"(defpackage #:beds (:use #:cl #:{framework}))\n(in-package #:beds)\n"
    suite = "(def-suite* :beds)\n" if framework == "fiveam" else ""
    run = f"(defun run-all () {RUNS[framework]} {ending})\n"
    perform = "(test-op (o c) (symbol-call :beds :run-all))"
    return {
        "beds.asd": f'(defsystem "beds" :depends-on ("{framework}") :components ((:file "beds"))\n'
        f"  :perform {perform})\n",
        "beds.lisp": f"{head}{suite}{body}\n{run}",
    }


@pytest.mark.contract("day.verdict.lisp.frameworks")
@pytest.mark.parametrize("framework", SUITES)
def test_what_a_framework_tells_is_the_verdict(desk_on, project, framework):
    """Passing, failing, erring and empty suites, also with a test-op that quits behind them."""
    desk = desk_on("sbcl", suite_of(framework, SUITES[framework]["passing"]))
    for kind, body in SUITES[framework].items():
        for ending in ("", "(uiop:quit 0)", "(uiop:quit 1)"):
            for name, text in suite_of(framework, body, ending).items():
                (project / name).write_text(text, encoding="utf-8")
            answer = desk.text("run_tests", framework=framework, in_image=False)
            wanted = VERDICTS[kind]
            if ending and kind == "empty":
                wanted = "1 failed" if "1" in ending else "1 passed"
            elif kind == "passing" and "1" in ending:
                wanted = "1 failed, 1 passed"
            assert answer.startswith(wanted), (kind, ending, answer)
            assert f"({framework}, " in answer or kind == "empty"


def two_suites(tail: str) -> dict[str, str]:
    """Return a project with tests of the same names in two packages, in systems that end with this."""
    body = "(defpackage #:{0} (:use #:cl #:fiveam))\n(in-package #:{0})\n{1}(test sum (is (= {2} (+ 1 1))))\n"
    files = {
        "early.lisp": body.format("early", "(test more (is (= 1 2)))\n\n", 2),
        "late.lisp": body.format("late", "(def-suite late)\n(in-suite late)\n\n", 3),
    }
    return {**files, "beds.asd": tail}


WITH_TESTS = """
(defsystem "beds" :in-order-to ((test-op (test-op "beds/tests"))))
(defsystem "beds/tests" :depends-on ("fiveam") :components ((:file "early") (:file "late"))
  :perform (test-op (o c) (symbol-call :fiveam :run! (find-symbol* :late :late))))
"""
LOADED_LATE = """
(defsystem "beds" :perform (test-op (o c)
  (asdf:load-system "beds/tests") (symbol-call :fiveam :run! (find-symbol* :late :late))))
(defsystem "beds/tests" :depends-on ("fiveam") :components ((:file "early") (:file "late")))
"""


@pytest.mark.contract("day.verdict.lisp.place")
def test_of_tests_that_share_a_name_each_has_its_own_place(desk_on):
    """Frameworks do not know where a test is: it is the definition in the test's own package."""
    desk = desk_on("sbcl", two_suites(WITH_TESTS))
    answer = desk.text("run_tests")
    assert answer.startswith("1 failed (1 check) in ")
    assert "FAILED late::sum\nlate.lisp:6\n" in answer
    assert "early.lisp" not in answer
    assert desk.text("run_tests", what="early.lisp").startswith("1 failed, 1 passed (2 checks) in ")


@pytest.mark.contract("day.verdict.lisp.named")
@pytest.mark.parametrize("tail", [WITH_TESTS, LOADED_LATE])
@pytest.mark.parametrize("in_image", [True, False])
@pytest.mark.slow
def test_a_test_is_found_that_only_the_test_op_loads(desk_on, tail, in_image):
    """A test-op may load the system of its tests itself: what failed in it runs again by its name."""
    desk = desk_on("sbcl", two_suites(tail))
    assert desk.text("run_tests", in_image=in_image).startswith("1 failed (1 check) in ")
    again = desk.text("run_tests", last_failed=True, in_image=in_image)
    assert again.startswith("1 failed (1 check) in ")
    assert "FAILED late::sum" in again
    file = desk.text("run_tests", what="late.lisp", in_image=in_image)
    assert file.startswith("1 failed (1 check) in ")


@pytest.mark.contract("day.verdict.lisp.named")
def test_several_tests_are_named_with_blanks_between_them(desk_on):
    """As for Python; one that does not exist is named."""
    desk = desk_on("sbcl", two_suites(WITH_TESTS))
    assert desk.text("run_tests", what="late::sum  early::more").startswith("2 failed (2 checks) in ")
    said = desk.call("run_tests", what="late::sum early::none").content
    assert "There is no ASDF system, file, suite or test early::none." in said


UNRULY = """
(test forks (is (integerp (sb-posix:fork))))
(test stays (sleep 0.2) (is (= 1 1)))
(test threads (sb-thread:make-thread (lambda () (sleep 1000)) :name "gardener") (is (= 1 1)))
"""


@pytest.mark.contract("day.verdict.lisp.unruly")
def test_a_suite_that_forks_and_leaves_threads_is_counted_once(desk_on):
    """A child that goes on as the suite tells nothing; a thread that is left is named."""
    answer = desk_on("sbcl", suite_of("fiveam", UNRULY)).text("run_tests")
    assert answer.startswith("3 passed (3 checks) in ")
    assert "the tests left threads running: gardener" in answer


@pytest.mark.contract("day.verdict.lisp.ended")
@pytest.mark.parametrize(
    ("ending", "cause"),
    [
        ("(sb-posix:kill (sb-posix:getpid) 9)", "it was killed"),
        (
            "(sb-thread:make-thread (lambda () (sb-ext:exit :code 4 :abort t)))",
            "its code ended it with status 4",
        ),
    ],
)
def test_a_suite_whose_process_is_ended_shows_what_it_had_printed(desk_on, ending, cause):
    """The image itself has not ended, and the answer does not say so."""
    form = f'(progn (format t "so far~%") {ending} (sleep 60))'
    desk = desk_on("sbcl", with_test_op(form))
    desk.text("evaluate-lisp", code="(defvar *kept* 5)")
    said = desk.call("run_tests").content
    assert said.startswith("No test has run in ")
    assert f"[TESTS-ENDED] The process of the tests ended: {cause}" in said
    assert "so far" in said
    assert "IMAGE-DIED" not in said
    assert desk.text("evaluate-lisp", code="*kept*").startswith("=> 5")


@pytest.mark.contract("day.verdict.lisp.loop")
def test_a_suite_that_loops_is_stopped_with_what_it_printed(desk_on):
    """The limit of the call holds for a suite of no known framework too."""
    desk = desk_on("sbcl", with_test_op('(progn (format t "before the loop~%") (loop))'))
    tool = running_test_tools(Workshop(SingleImage(desk.image), 600.0), desk.workspace)[0]
    answer = tool.handler({"timeout": 3.0})
    said = answer if isinstance(answer, str) else answer.error
    assert "[TIMEOUT]" in said
    assert "It had printed:\nbefore the loop" in said
    assert desk.text("evaluate-lisp", code="(+ 1 2)").startswith("=> 3")
