"""run_tests with real suites in real images: counts, failures, names to give back, early ends."""

from __future__ import annotations

import asyncio
import contextlib
import shutil

import pytest

from gramercy.images.opening import open_image
from gramercy.images.requests import Suite
from gramercy.images.suites import WantedTests
from gramercy.toolsets.factory import SingleImage, Workshop
from gramercy.toolsets.running_tests import running_test_tools
from gramercy.toolsets.workspace import Workspace
from tests.support import files_of_processes, until
from tests.toolsets.conftest import SANDBOX, Desk, write

SUMS = {
    "sums.py": """
        def add(a, b):
            return a + b


        def divide(a, b):
            return a / b
        """,
    "tests/test_sums.py": """
        import pytest

        from sums import add, divide


        def test_adds():
            assert add(1, 2) == 3


        def test_adds_wrongly():
            print("about to add")
            assert add(1, 2) == 4


        @pytest.mark.parametrize("n", [1, 0])
        def test_divides(n):
            assert divide(2, n) == 2


        @pytest.mark.skip(reason="later")
        def test_later():
            pass


        @pytest.mark.xfail
        def test_expected():
            assert add(1, 1) == 3


        @pytest.fixture
        def broken():
            raise ValueError("no fixture")


        def test_with_fixture(broken):
            pass
        """,
}
LISP = {
    "sums.asd": """
        (defsystem "sums" :components ((:file "sums")) :in-order-to ((test-op (test-op "sums/tests"))))
        (defsystem "sums/tests" :depends-on ("sums" "fiveam") :components ((:file "tests"))
          :perform (test-op (o c) (symbol-call :fiveam :run! (find-symbol* :sums :sums/tests))))
        """,
    "sums.lisp": """
        (defpackage #:sums (:use #:cl) (:export #:add #:divide))
        (in-package #:sums)
        (defun add (a b) (+ a b))
        (defun divide (a b) (let ((c (/ a b))) (print c) c))
        """,
    "tests.lisp": """
        (defpackage #:sums/tests (:use #:cl #:fiveam #:sums))
        (in-package #:sums/tests)
        (def-suite sums)
        (in-suite sums)
        (test adds (is (= 3 (add 1 2))) (is (= 0 (add 0 0))))
        (test adds-wrongly
          (format t "about to add~%")
          (is (= 4 (add 1 2))))
        (test by-zero (is (= 1 (divide 1 0))))
        (test (depends :depends-on adds-wrongly) (is (= 1 1)))
        (test skips (skip "later"))
        """,
}


@pytest.fixture(scope="module")
def lisp_image(tmp_path_factory):
    """Open one image on the Lisp project: fiveam is compiled once for it."""
    if shutil.which("sbcl") is None:
        pytest.skip("sbcl is not installed")
    place = tmp_path_factory.mktemp("sums")
    write(place, LISP)
    image = open_image("sbcl", project=place, sandbox=SANDBOX)
    yield image, Workspace(place)
    image.close()


@pytest.fixture
def lisp_sums(lisp_image):
    """Return a desk on the Lisp project, with the image as after a reset."""
    image, workspace = lisp_image
    image.reset()
    return Desk(image, workspace, "sbcl")


@pytest.mark.contract("day.runs.pytest")
def test_pytest_counts_and_failures_with_values_place_and_output(desk_on):
    """The verdict comes first, then each failure by the name that runs it again."""
    desk = desk_on("python", SUMS)
    lines = desk.text("run_tests").splitlines()
    assert lines[0].startswith("2 failed, 1 error, 2 passed, 1 skipped, 1 xfailed in ")
    assert lines[0].endswith(f"(pytest {pytest.__version__}, a fresh process)")
    answer = "\n".join(lines)
    assert (
        "FAILED tests/test_sums.py::test_adds_wrongly\ntests/test_sums.py:12: in test_adds_wrongly" in answer
    )
    assert "E   assert 3 == 4" in answer
    assert "[printed]\nabout to add" in answer
    assert "FAILED tests/test_sums.py::test_divides[0]" in answer
    assert "sums.py:6: in divide" in answer
    assert "ERROR tests/test_sums.py::test_with_fixture" in answer
    assert "test_later" not in answer


def test_pytest_runs_one_test_a_file_a_name_and_the_last_failed(desk_on, project):
    """What an answer names can be given back."""
    desk = desk_on("python", SUMS)
    assert desk.text("run_tests", what="tests/test_sums.py::test_adds").startswith("1 passed in ")
    assert desk.text("run_tests", what="test_divides").startswith("1 failed, 1 passed in ")
    assert desk.text("run_tests", last_failed=True).startswith("1 failed in ")
    assert desk.text("run_tests", what="tests/test_sums.py").startswith("2 failed, 1 error, 2 passed")
    fixed = SUMS["tests/test_sums.py"].replace("== 4", "== 3").replace("divide(2, n) == 2", "n in (0, 1)")
    write(project, {"tests/test_sums.py": fixed})
    assert desk.text("run_tests", last_failed=True).splitlines()[0].startswith("1 error, 2 passed in ")


@pytest.mark.contract("day.runs.untouched")
def test_the_image_is_as_before_and_its_definitions_are_tested_on_request(desk_on):
    """A fresh process has what the files say; a copy has what the image has."""
    desk = desk_on("python", SUMS)
    desk.text("evaluate-python", code="import sums; sums.add = lambda a, b: 4")
    assert "E   assert 3 == 4" in desk.text("run_tests", what="test_adds_wrongly")
    assert desk.text("run_tests", what="test_adds_wrongly", in_image=True).startswith("1 passed in ")
    assert "False" in desk.text("evaluate-python", code="import sys; 'pytest' in sys.modules")


@pytest.mark.contract("day.runs.fiveam")
def test_fiveam_counts_and_failures_with_place_and_output(lisp_sums):
    """The test-op of the project is performed in a copy, and each test of fiveam is told."""
    desk = lisp_sums
    before = desk.text("list-definitions")
    answer = desk.text("run_tests")
    assert answer.startswith("2 failed, 1 passed, 2 skipped (4 checks) in ")
    assert "(fiveam, a copy of the image)" in answer
    assert "FAILED sums/tests::adds-wrongly\ntests.lisp:6\n(= 4 (sums:add 1 2))" in answer
    assert "(ADD 1 2) evaluated to 3 which is not = to 4" in answer
    assert "[printed]\nabout to add" in answer
    assert "DIVISION-BY-ZERO" in answer
    assert "(DIVIDE 1 0) in sums.lisp:4" in answer
    assert "FIVEAM" not in answer
    assert desk.text("list-definitions") == before


def test_fiveam_tests_what_the_image_defines(lisp_sums):
    """A definition made in the image is tested before it is in any file; the image stays without fiveam."""
    desk = lisp_sums
    desk.text("load-system", system="sums")
    assert desk.text("run_tests", what="adds-wrongly").startswith("1 failed (1 check) in ")
    desk.text("evaluate-lisp", code="(defun sums:add (a b) (declare (ignore a b)) 4)")
    assert desk.text("run_tests", last_failed=True).startswith("1 passed (1 check) in ")
    assert desk.text("run_tests", what="adds-wrongly", in_image=False).startswith("1 failed (1 check) in ")
    assert "NIL" in desk.text("evaluate-lisp", code='(find-package "FIVEAM")')


# ---- early ends


HANGING = {
    "python": {
        "tests/test_long.py": """
            import os
            import time


            def test_fine():
                assert True


            def test_wrong():
                print("a" * 50_000_000)
                assert False


            def test_hangs():
                while not os.path.exists("go-on"):
                    time.sleep(0.05)
                os._exit(7)


            def test_after():
                assert True
            """
    },
    "sbcl": {
        "long.asd": """
            (defsystem "long" :depends-on ("fiveam") :components ((:file "tests"))
              :perform (test-op (o c) (symbol-call :fiveam :run! :long)))
            """,
        "tests.lisp": """
            (defpackage #:long (:use #:cl #:fiveam))
            (in-package #:long)
            (def-suite* :long)
            (test test-fine (is (= 1 1)))
            (test test-wrong
              (let ((line (make-string 100000 :initial-element #\\a)))
                (dotimes (i 500) (write-string line)))
              (is (= 1 2)))
            (test test-hangs
              (loop until (probe-file "go-on") do (sleep 0.05))
              (sb-ext:exit :code 7 :abort t))
            (test test-after (is (= 1 1)))
            """,
    },
}


@pytest.fixture(params=["python", "sbcl"])
def hanging(request, desk_on):
    """Return a desk on a project one of whose tests prints 50 MB, and one hangs or ends the process."""
    return desk_on(request.param, HANGING[request.param])


def tool_of(desk):
    """Return the tool as a server has it whose callers may choose a timeout."""
    return running_test_tools(Workshop(SingleImage(desk.image), 600.0), desk.workspace)[0]


@pytest.mark.slow
@pytest.mark.contract("day.runs.early-end")
def test_a_test_that_hangs_is_named_and_what_came_before_is_told(hanging):
    """The timeout interrupts as in an evaluation; 50 MB of printing are bounded."""
    # Time to load fiveam, and to find the tests.
    answer = tool_of(hanging).handler({"timeout": 8.0})
    assert answer.startswith("1 failed, 1 passed")
    assert "[TIMEOUT] The tests did not finish within 8 s" in answer
    assert "test" in answer.split("It ended in ")[1].split(".")[0]
    assert "hangs" in answer.split("It ended in ")[1].splitlines()[0]
    assert "2 of 4 tests have no result" in answer
    assert len(answer) < 8_000
    assert "characters before this" in answer or answer.count("a") < 5_000
    assert hanging.evaluate("(+ 1 2)", "1 + 2").startswith("=> 3")


@pytest.mark.contract("day.runs.early-end")
def test_a_test_that_ends_the_process_is_named_with_its_status(hanging, project):
    """The events before the death have come; the live image does not notice."""
    hanging.evaluate("(defvar *kept* 5)", "kept = 5")
    (project / "go-on").touch()
    answer = hanging.text("run_tests")
    assert answer.startswith("1 failed, 1 passed")
    assert "[TESTS-ENDED] The process of the tests ended: its code ended it with status 7." in answer
    assert "hangs" in answer.split("It ended in ")[1].splitlines()[0]
    assert hanging.evaluate("*kept*", "kept").startswith("=> 5")


@pytest.mark.contract("day.runs.progress")
def test_progress_is_told_and_a_cancelled_run_ends(hanging):
    """Each report says how far the run is; to cancel is to interrupt, and the image goes on at once."""

    async def run():
        seen = []
        hangs = asyncio.Event()
        loop = asyncio.get_running_loop()

        def watch(now):
            seen.append((now.done, now.total, now.bad))
            if "hangs" in now.current:
                loop.call_soon_threadsafe(hangs.set)

        task = asyncio.create_task(hanging.image.arun(Suite(WantedTests()), watch=watch))
        await asyncio.wait_for(hangs.wait(), 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return seen

    seen = asyncio.run(run())
    assert seen[-1] == (2, 4, 1)
    assert hanging.evaluate("(+ 1 2)", "1 + 2").startswith("=> 3")


# ---- unittest, and frameworks that are not there


UNITTEST = {
    "sums.py": SUMS["sums.py"],
    "tests/__init__.py": "",
    "tests/test_sums.py": """
        import unittest

        from sums import add


        class SumTest(unittest.TestCase):
            def test_adds(self):
                self.assertEqual(add(1, 2), 3)

            def test_adds_wrongly(self):
                print("about to add")
                self.assertEqual(add(1, 2), 4)

            def test_raises(self):
                raise LookupError("nothing there")

            @unittest.skip("later")
            def test_later(self):
                pass

            def test_parts(self):
                for number in (1, 2):
                    with self.subTest(number=number):
                        self.assertEqual(number, 1)
        """,
}


@pytest.mark.contract("day.runs.unittest")
def test_unittest_where_there_is_no_pytest_and_none_is_wanted(desk_on):
    """Found out by itself; names are those of unittest and can be given back."""
    desk = desk_on("python", UNITTEST, paths=())
    answer = desk.text("run_tests")
    assert answer.startswith("2 failed, 1 error, 1 passed, 1 skipped in ")
    assert "(unittest, a fresh process)" in answer
    assert "FAILED tests.test_sums.SumTest.test_adds_wrongly\n" in answer
    assert "AssertionError: 3 != 4" in answer
    assert "[printed]\nabout to add" in answer
    assert "ERROR tests.test_sums.SumTest.test_raises\n" in answer
    assert desk.text("run_tests", what="tests.test_sums.SumTest.test_adds").startswith("1 passed in ")
    assert desk.text("run_tests", what="test_raises").startswith("1 error in ")
    assert desk.text("run_tests", what="tests/test_sums.py").startswith("2 failed, 1 error, 1 passed")


def test_unittest_in_a_directory_that_is_no_package(desk_on):
    """The usual layout: tests/ without __init__.py; names and files can be given back."""
    code = """
        import unittest


        class BedTest(unittest.TestCase):
            def test_rose(self):
                self.assertEqual(1, 2)
        """
    desk = desk_on("python", {"tests/test_beds.py": code}, paths=())
    assert desk.text("run_tests").startswith("1 failed")
    for what in ("test_beds.BedTest.test_rose", "tests/test_beds.py", "tests", "test_rose"):
        assert desk.text("run_tests", what=what).startswith("1 failed"), what


def test_the_names_of_unittest_can_be_given_to_pytest(desk_on):
    """The tests of it are run by pytest too, under names of its own."""
    desk = desk_on("python", UNITTEST)
    assert desk.text("run_tests", what="tests.test_sums.SumTest.test_adds").startswith("1 passed in ")
    assert "(unittest, a fresh process)" in desk.text("run_tests", framework="unittest")


@pytest.mark.contract("day.runs.missing")
def test_pytest_that_is_missing_is_told_with_what_to_try(desk_on):
    """It must be that of the project's environment, and the tests say that they want it."""
    desk = desk_on("python", SUMS, paths=())
    answer = desk.failure("run_tests")
    assert answer.startswith("pytest is not installed in the environment of this image, and the project has ")
    assert "python3 -m venv" in answer


# ---- bad input


BAD = (
    *({"what": "tests/nowhere.py"}, {"what": "tests/nowhere.py::test_x"}, {"what": "test_nothing_like_it"}),
    *({"what": "--version"}, {"what": "-x"}, {"what": "a" * 5_000}, {"what": "tests/test_sums.py::test_no"}),
    *({"what": "(not"}, {"framework": "fiveam"}, {"framework": "nose"}, {"what": "a\0b"}, {"what": 3}),
)


@pytest.mark.contract("day.runs.bad-input")
def test_what_cannot_be_run_is_answered_briefly_and_the_next_run_works(desk_on):
    """No option of pytest can be smuggled in, and no answer is a traceback of ours."""
    desk = desk_on("python", {**SUMS, "tests/test_sums.py": "def test_fine():\n    pass\n"})
    for arguments in BAD:
        said = desk.call("run_tests", **arguments).content
        assert "1 passed" not in said, arguments
        assert len(said) < 2_000, arguments
        assert not {"_gramercy", "Traceback"} & set(said.replace(".", " ").split()), arguments
    assert desk.text("run_tests").startswith("1 passed in ")


UNKNOWN = {
    "nowhere": "There is no ASDF system, file, suite or test nowhere.",
    "sums/nowhere": "There is no ASDF system, file, suite or test sums/nowhere.",
    "addz": "Did you mean adds",
    '")(quit)': "There is no ASDF system, file, suite or test",
    "a" * 5_000: "There is no ASDF system, file, suite or test",
}


@pytest.mark.contract("day.runs.bad-input")
def test_what_lisp_does_not_know_is_answered_with_what_is_near(lisp_sums):
    """And nothing is run."""
    for what, said in UNKNOWN.items():
        answer = lisp_sums.failure("run_tests", what=what)
        assert said in answer
        assert len(answer) < 6_000


def test_a_system_that_cannot_be_compiled_is_told_with_its_place(desk_on):
    """As load-system tells it."""
    desk = desk_on("sbcl", {**LISP, "sums.lisp": "(defun broken (x)\n  (list x)\n"})
    answer = desk.failure("run_tests")
    assert "sums.lisp" in answer
    assert desk.failure("run_tests", framework="pytest").count("\n") < 12


def test_a_syntax_error_in_a_test_file_is_an_error_with_its_place(desk_on):
    """The other files are run as pytest does it: not at all, and that is told."""
    desk = desk_on("python", {"tests/test_a.py": "def test_a(:\n", "tests/test_b.py": "def test_b(): pass\n"})
    answer = desk.text("run_tests")
    assert answer.startswith("1 error in ")
    assert "tests/test_a.py" in answer
    assert "SyntaxError" in answer


def test_no_tests_at_all_is_said(desk_on):
    """With what would be found."""
    assert "No tests were found." in desk_on("python", {}).text("run_tests")


def test_no_tests_at_all_is_said_in_lisp(desk_on):
    """With what would be found."""
    assert "No tests were found." in desk_on("sbcl", {}).text("run_tests")


def test_where_threads_forbid_a_copy_a_fresh_process_runs_the_tests(lisp_sums):
    """And the answer says what was not tested."""
    desk = lisp_sums
    desk.text("evaluate-lisp", code='(sb-thread:make-thread (lambda () (sleep 600)) :name "sleeper")')
    answer = desk.text("run_tests", what="adds")
    assert answer.startswith("1 passed (2 checks) in ")
    assert "(fiveam, a fresh process)" in answer
    assert 'The image cannot be copied (the image says "1 user thread is running: sleeper")' in answer


def test_last_failed_says_when_there_is_nothing_to_run_again(desk_on):
    """Before the first run, and after one without failures."""
    desk = desk_on("python", {"test_a.py": "def test_a(): pass\n"})
    assert "No tests have run" in desk.text("run_tests", last_failed=True)
    desk.text("run_tests")
    assert desk.text("run_tests", last_failed=True) == "Nothing failed in the last run."


@pytest.mark.contract("day.runs.early-end")
def test_a_run_that_stops_itself_says_where_and_what_is_left(desk_on):
    """A test that interrupts its own process, and an option of the project, end a run early."""
    stopping = """
        import os
        import signal
        import subprocess


        def test_fine():
            subprocess.Popen(["sleep", "61.7"])


        def test_stops():
            os.kill(os.getpid(), signal.SIGINT)


        def test_never():
            assert False
        """
    desk = desk_on("python", {"test_stop.py": stopping})
    answer = desk.text("run_tests")
    assert answer.startswith("Ended early: 1 passed in ")
    assert "The run ended early. It ended in test_stop.py::test_stops. 2 of 3 tests have no result." in answer
    assert "test_stop.py:11: in test_stops" in answer
    assert "_pytest" not in answer
    # What tests have left running ends with their process.
    until(lambda: not running("61.7"))
    two = "def test_a():\n  assert 0\n\ndef test_b():\n  pass\n"
    write(desk.workspace.root, {"pytest.ini": "[pytest]\naddopts = -x\n", "test_stop.py": two})
    assert "The run ended early. 1 of 2 tests have no result." in desk.text("run_tests")


def running(word):
    """Tell whether a process runs that has the word in its command."""
    found = []
    for file in files_of_processes("cmdline"):
        with contextlib.suppress(OSError):
            found.append(word.encode() in file.read_bytes())
    return any(found)


@pytest.mark.contract("day.tests.once")
def test_frames_that_several_failures_share_are_shown_once(desk_on):
    """Twenty tests that fail for one reason have one reason to read."""
    deep = """
        def outer(value):
            return middle(value)


        def middle(value):
            return inner(value)


        def inner(value):
            return {}["seed"]
        """
    tests = """
        from deep import outer


        def test_one():
            outer(1)


        def test_two():
            outer(2)
        """
    desk = desk_on("python", {"deep.py": deep, "test_deep.py": tests})
    told = desk.text("run_tests")
    assert told.count('return {}["seed"]') == 1
    assert told.count("E   KeyError: 'seed'") == 2
    first, second = told.split("FAILED ")[1:]
    assert "test_deep.py:5: in test_one" in first
    assert "deep.py:10: in inner" in first
    assert "test_deep.py:9: in test_two" in second
    assert "lines as in test_one\nE   KeyError: 'seed'" in second
