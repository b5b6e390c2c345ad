"""run_tests with the Lisp frameworks that Debian does not have: the verdicts are those of the frameworks.

Nothing stands in for a framework: each test runs the real one where ASDF finds it, as by
CL_SOURCE_REGISTRY, and is skipped elsewhere. The expected counts are what the framework itself prints for
the same files: rove 0.10, parachute 1.5, prove 1.0 and lisp-unit2 0.2. Where ours differ, the comment beside
the test says why.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass

import pytest

from gramercy.images.opening import open_image
from gramercy.images.suites import WantedTests

SANDBOX = shutil.which("bwrap") is not None
pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Suite:
    """A suite in one file: how it is run, its tests, and what is told of it."""

    run: str
    tests: str
    failed: dict[str, str]
    passed: int
    skipped: int
    checks: int


SUITES = {
    "rove": Suite(
        run="(symbol-call :rove :run c)",
        tests="""
(deftest right (ok (= 4 (two 2))) (ng (= 5 (two 2))))
(deftest wrong (format t "from the test~%") (testing "inside" (ok (= 5 (two 2)) "five")))
(deftest errs-in-check (ok (ouch 5)))
(deftest errs-outside (ouch 5) (ok t))
(deftest left-out (skip "not today"))
(deftest partly (ok t) (skip "half of it"))
(deftest planned (plan 2) (ok t))
(deftest nothing-at-all)
(deftest subject (let ((rove/core/stats:*stats* (make-instance 'rove/core/stats:stats))) (ok (= 1 2))) (ok t))
;; Rove prints this failure, and forgets it in its summary.
(deftest threaded (sb-thread:join-thread (sb-thread:make-thread (lambda () (ok (= 1 2))))))
""",
        failed={
            "twos::wrong": "(two 2) = 4",
            "twos::errs-in-check": "(OUCH 5) in two.lisp:3",
            "twos::errs-outside": "(OUCH 5) in two.lisp:3",
            "twos::planned": "as many checks as it had planned",
            "twos::threaded": "Expect (= 1 2) to be true.",
        },
        passed=4,
        skipped=1,
        checks=9,
    ),
    "parachute": Suite(
        run="(symbol-call :parachute :test :twos)",
        tests="""
(define-test numbers)
(define-test right :parent numbers (is = 4 (two 2)) (true t))
(define-test wrong :parent numbers (format t "from the test~%") (is = 5 (two 2) "five"))
(define-test errs-in-check (is = 1 (ouch 5)))
(define-test errs-outside (ouch 5) (true t))
;; Parachute 1.5 counts what SKIP skips as passed.
(define-test left-out (skip "not today" (is = 1 2)))
(define-test partly (true t) (skip "half" (is = 1 2)))
(define-test grouped (group (some "things") (true t) (false t)))
(define-test slow :time-limit 0.0001 (sleep 0.01) (true t))
(define-test depending :depends-on (wrong) (true t))
(define-test parent-of (true t) (define-test child (is = 1 2)))
(define-test skipping :skip (not-now) (true t))
(define-test not-now :parent skipping (is = 1 2))
(define-test nothing-at-all)
""",
        failed={
            "twos::wrong": "evaluated to    4",
            "twos::errs-in-check": "(OUCH 5) in two.lisp:3",
            "twos::errs-outside": "(OUCH 5) in two.lisp:3",
            "twos::grouped": "The test form   t",
            "twos::slow": "The limit of",
            "twos::child": "The test form   2",
            "twos::parent-of": "A test below it failed.",
        },
        passed=4,
        skipped=3,
        checks=11,
    ),
    "lisp-unit2": Suite(
        run="(symbol-call :lisp-unit2 :run-tests :package :twos)",
        tests="""
(define-test right (:tags '(easy)) (assert-eql 4 (two 2)) (assert-true t))
(define-test wrong () (format t "from the test~%") (assert-eql 5 (two 2) "five"))
(define-test errs-in-check () (assert-eql 1 (ouch 5)))
(define-test errs-outside () (ouch 5) (assert-true t))
(define-test warns () (warn "careful") (assert-true t))
(define-test signals () (assert-error 'type-error (ouch 5)))
(define-test calls () (right) (assert-true t))
(define-test nothing-at-all ())
""",
        failed={
            "twos::wrong": "expected 5, but saw 4",
            "twos::errs-in-check": "(OUCH 5) in two.lisp:3",
            "twos::errs-outside": "(OUCH 5) in two.lisp:3",
            "twos::warns": "SIMPLE-WARNING: careful",
        },
        passed=4,
        skipped=0,
        checks=8,
    ),
    "prove": Suite(
        run="(symbol-call :prove :run-test-package :twos)",
        tests="""
(plan nil)
(deftest right (is (two 2) 4))
(deftest wrong (format t "from the test~%") (subtest "inside" (is (two 2) 5 "five")))
(deftest errs-in-check (ok (ouch 5) "an error"))
(deftest errs-outside (ouch 5) (ok t))
(deftest left-out (skip 2 "not today"))
(deftest partly (ok t) (skip 1 "half of it"))
(deftest subject (let ((*suite* (make-instance 'suite))) (is 1 2)) (ok t))
""",
        failed={
            "twos::wrong": "inside: five\n4 is expected to be 5",
            "twos::errs-in-check": "TYPE-ERROR",
            "twos::errs-outside": "(OUCH 5) in two.lisp:3",
        },
        passed=3,
        skipped=1,
        checks=6,
    ),
}
HEAD = "(defpackage #:twos (:use #:cl #:{0} #:two))\n(in-package #:twos)\n"
TWO = """(defpackage #:two (:use #:cl) (:export #:two #:ouch))
(in-package #:two) (defun two (x) (* 2 x))
(defun ouch (x) (car x))
"""


@pytest.fixture
def opened(project):
    """Open an image of a project with these files, or skip where a framework is missing."""
    images = []

    def image(framework, files):
        if shutil.which("sbcl") is None:
            pytest.skip("sbcl is not installed")
        for name, text in files.items():
            (project / name).write_text(text, encoding="utf-8")
        images.append(open_image("sbcl", project=project, sandbox=SANDBOX))
        if not images[-1].load_system(framework).ok:
            pytest.skip(f"{framework} is not found by ASDF: Debian has no package of it")
        return images[-1]

    yield image
    for each in images:
        each.close()


def files_of(framework):
    """Return the project of a framework's suite."""
    suite = SUITES[framework]
    perform = f":perform (test-op (o c) {suite.run})"
    return {
        "two.asd": '(defsystem "two" :components ((:file "two"))\n'
        '  :in-order-to ((test-op (test-op "two/tests"))))\n'
        f'(defsystem "two/tests" :depends-on ("two" "{framework}") :components ((:file "twos"))\n'
        f"  {perform})\n",
        "two.lisp": TWO,
        "twos.lisp": HEAD.format(framework) + suite.tests.lstrip("\n"),
    }


@pytest.mark.contract("day.runs.elsewhere")
@pytest.mark.parametrize("framework", SUITES)
def test_the_verdicts_are_those_of_the_framework(opened, framework):
    """In a copy of the image, in a fresh process, by the file, and again by the names of what failed."""
    suite, image = SUITES[framework], opened(framework, files_of(framework))
    wanted = {"failed": len(suite.failed), "passed": suite.passed, "skipped": suite.skipped}
    wanted = {outcome: count for outcome, count in wanted.items() if count}
    for names, in_image in (((), True), ((), False), (("twos.lisp",), True)):
        run = image.run_tests(WantedTests(names, in_image=in_image), timeout=300)
        assert run.fault is None
        assert run.framework == framework
        assert run.counts == wanted
        assert run.checks == suite.checks
        assert sorted(run.failed) == sorted(suite.failed)
        for failure in run.failures:
            assert failure.text.startswith("twos.lisp:"), failure
            # The package of the run decides whether symbols are printed with theirs.
            text = failure.text.replace("two:", "").replace("TWO:", "")
            assert suite.failed[failure.name] in text
            assert failure.output == "from the test\n" or failure.name != "twos::wrong"
    again = image.run_tests(WantedTests(tuple(suite.failed)), timeout=300)
    assert again.counts == {"failed": len(suite.failed)}


@pytest.mark.contract("day.runs.elsewhere")
@pytest.mark.parametrize("framework", SUITES)
def test_an_edit_is_tested_at_once(opened, project, framework):
    """One test by its name, before and after the function that it tests has changed."""
    image = opened(framework, files_of(framework))
    before = image.run_tests(WantedTests(("twos::wrong",)), timeout=300)
    text = TWO.replace("(* 2 x)", "(1+ (* 2 x))")
    (project / "two.lisp").write_text(text, encoding="utf-8")
    after = image.run_tests(WantedTests(("twos::wrong",)), timeout=300)
    assert before.counts == {"failed": 1}
    assert after.counts == {"passed": 1}


PROVE = {
    "two.asd": """
(defsystem "two" :components ((:file "two")) :in-order-to ((test-op (test-op "two-test"))))
""",
    "two-test.asd": """
(defsystem "two-test" :depends-on ("two" "prove") :defsystem-depends-on ("prove-asdf")
  :components ((:test-file "right") (:test-file "wrong") (:test-file "unfinished") (:test-file "errs"))
  :perform (test-op :after (op c) (funcall (intern #.(string :run) :prove) c)))
""",
    "two.lisp": TWO,
    "right.lisp": "(plan 1) (is (two 2) 4) (finalize)",
    "wrong.lisp": '(plan nil) (subtest "inside" (ok t) (is (two 2) 5)) (skip 1 "why") (finalize)',
    "unfinished.lisp": "(plan 1) (ok t)",
    "errs.lisp": "(plan 1) (ok t) (ouch 5) (finalize)",
}


@pytest.mark.contract("day.runs.elsewhere")
def test_for_prove_a_file_is_a_test(opened):
    """As its README has it: files, which fail by their checks, without FINALIZE, and by errors outside."""
    head = "(defpackage #:twos.{0} (:use #:cl #:prove #:two))\n(in-package #:twos.{0})\n"
    files = {
        name: (head.format(name[:-5]) if name[0] in "rwue" else "") + text for name, text in PROVE.items()
    }
    image = opened("prove", files)
    for in_image in (True, False):
        run = image.run_tests(WantedTests(in_image=in_image), timeout=300)
        assert run.fault is None
        assert run.counts == {"passed": 1, "failed": 3}
        assert run.checks == 5
        texts = {failure.name: failure.text for failure in run.failures}
        assert list(texts) == ["wrong.lisp", "unfinished.lisp", "errs.lisp"]
        assert "inside: 4 is expected to be 5" in texts["wrong.lisp"]
        assert "FINALIZE" in texts["unfinished.lisp"]
        assert "(OUCH 5) in two.lisp:3" in texts["errs.lisp"]
    again = image.run_tests(WantedTests(("wrong.lisp", "errs.lisp")), timeout=300)
    assert again.failed == ["wrong.lisp", "errs.lisp"]
