"""What run_tests calls passed, failed and unknown in Python, and what it says where there is no verdict."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gramercy.toolsets.factory import SingleImage, Workshop
from gramercy.toolsets.running_tests import running_test_tools
from tests.toolsets.conftest import write

BASE = getattr(sys, "_base_executable", sys.executable)
MARKED = """
    import pytest


    @pytest.mark.slow
    def test_slow_rose():
        assert False


    def test_rose():
        pass


    def test_tulip():
        pass
    """
MARKS = "[pytest]\nmarkers = slow\n"


@pytest.mark.contract("day.verdict.python.filters")
def test_filters_of_pytest_are_taken_and_what_they_leave_out_is_told(desk_on):
    """By words, by marks, by places, and by what the project itself has chosen."""
    desk = desk_on(
        "python", {"test_beds.py": MARKED, "pytest.ini": MARKS, "test_more.py": "def test_a(): pass\n"}
    )
    starts = {
        "-k rose and not slow": "1 passed in ",
        "-kslow": "1 failed in ",
        "-m slow": "1 failed in ",
        "test_beds.py::test_rose test_more.py": "2 passed in ",
        "test_beds.py test_more.py": "1 failed, 3 passed in ",
        "test_more.py::test_a": "1 passed in ",
    }
    for what, start in starts.items():
        assert desk.text("run_tests", what=what).startswith(start), what
    write(desk.workspace.root, {"pytest.ini": MARKS + "addopts = -m 'not slow'\n"})
    assert desk.text("run_tests").startswith("3 passed, 1 deselected in ")


@pytest.mark.contract("day.verdict.python.none")
@pytest.mark.parametrize(
    "arguments", [{"what": "-m slow"}, {"what": "-k nothing_like_it"}, {"what": "lilac"}, {}]
)
def test_a_run_without_tests_is_never_called_passed(desk_on, arguments):
    """Found and deselected, or not found at all: each is said."""
    files = {"test_beds.py": "def test_rose(): pass\n", "pytest.ini": MARKS}
    if not arguments:
        files = {"beds.py": "", "pytest.ini": MARKS}
    answer = desk_on("python", files).text("run_tests", **arguments)
    assert answer.startswith("No test has run in ")
    said = "Tests found: 1, selected: none" if arguments else "No tests were found."
    assert said in answer
    assert "passed" not in answer


@pytest.mark.contract("day.verdict.python.status")
@pytest.mark.parametrize(
    ("hook", "start"),
    [
        (
            "def pytest_sessionfinish(session):\n    session.exitstatus = 1\n",
            "Ended with status 1: 1 passed in ",
        ),
        ("def pytest_sessionfinish():\n    raise ValueError('no report')\n", "Ended early: 1 passed in "),
        ("def pytest_collection():\n    raise SystemExit(0)\n", "Ended with status "),
    ],
)
def test_a_status_that_no_test_explains_is_told_first(desk_on, hook, start):
    """A plug-in that wants more coverage fails a run in which every test has passed."""
    desk = desk_on("python", {"test_beds.py": "def test_rose(): pass\n", "conftest.py": hook})
    assert desk.text("run_tests").startswith(start)


@pytest.mark.contract("day.verdict.python.warnings")
def test_warnings_that_are_errors_do_not_keep_a_copy_of_the_image_from_its_tests(desk_on):
    """A module that the image has imported cannot be rewritten any more, of which pytest warns."""
    files = {
        "plug.py": "def test_value():\n    return 3\n",
        "conftest.py": "import pytest\n\npytest.register_assert_rewrite('plug')\n",
        "pytest.ini": "[pytest]\nfilterwarnings = error\n",
        "test_beds.py": "import plug\n\n\ndef test_rose():\n    assert plug.test_value() == 3\n",
    }
    desk = desk_on("python", files)
    desk.text("evaluate-python", code="import plug")
    assert desk.text("run_tests", what="test_beds.py", in_image=True).startswith("1 passed in ")


DOCTEST = {
    "beds/__init__.py": "",
    "beds/roses.py": '''
        def twice(n):
            """Double.

            >>> twice(2)
            4
            """
            return n * 2


        def thrice(n):
            """Triple.

            >>> thrice(2)
            7
            """
            return n * 3
        ''',
    "README.md": "Sums:\n\n>>> 1 + 1\n2\n",
}


@pytest.mark.contract("day.verdict.python.doctest")
def test_examples_in_documentation_are_tests(desk_on):
    """Those of modules by default, those of other files by their name; a broken module is an error."""
    desk = desk_on("python", DOCTEST, paths=())
    answer = desk.text("run_tests", framework="doctest")
    assert answer.startswith("1 failed, 1 passed in ")
    assert "FAILED beds.roses.thrice" in answer
    assert "Expected:\n    7\nGot:\n    6" in answer
    assert desk.text("run_tests", framework="doctest", what="README.md").startswith("1 passed in ")
    assert desk.text("run_tests", framework="doctest", what="beds/__init__.py").startswith("No test has run")
    assert "no file nowhere.md" in desk.failure("run_tests", framework="doctest", what="nowhere.md")
    write(desk.workspace.root, {"beds/broken.py": "'''\n>>> 1\n1\n'''\nimport nowhere\n"})
    assert desk.text("run_tests", framework="doctest").startswith("1 failed, 1 error, 1 passed in ")


UNITTEST = {
    "passing": ("self.assertEqual(1, 1)", "1 passed in "),
    "failing": ("self.assertEqual(1, 2)", "1 failed in "),
    "erring": ("raise ValueError", "1 error in "),
    "skipping": ("self.skipTest('later')", "1 skipped in "),
    "quitting": ("raise SystemExit(0)", ""),
}


@pytest.mark.contract("day.verdict.python.unittest")
def test_what_unittest_reports_is_the_verdict(desk_on, project):
    """Each way in which a test can end; a quit of the process is a pass of nothing."""
    case = "import unittest\n\n\nclass Beds(unittest.TestCase):\n    def test_rose(self):\n        {0}\n"
    desk = desk_on("python", {"test_beds.py": case.format("pass")}, paths=())
    for kind, (body, start) in UNITTEST.items():
        (project / "test_beds.py").write_text(case.format(body))
        said = desk.call("run_tests").content
        assert said.startswith(start), (kind, said)
        assert ("passed" in said) == (kind == "passing"), (kind, said)
    (project / "test_beds.py").write_text("")
    assert desk.text("run_tests").startswith("No test has run in ")


UNRULY = """
    import os
    import threading


    def test_forks():
        if os.fork() == 0:
            return
        os.wait()


    def test_leaves_a_thread():
        threading.Thread(target=threading.Event().wait, name="gardener").start()


    def test_prints():
        for number in range(1_000_000):
            print("line", number)
        assert False
    """


@pytest.mark.contract("day.verdict.python.unruly")
@pytest.mark.slow
def test_a_suite_that_forks_prints_and_leaves_threads_is_told_in_few_words(desk_on):
    """A child that goes on as the test runner reports nothing; the end of the output is shown."""
    desk = desk_on("python", {"test_unruly.py": UNRULY})
    answer = desk.text("run_tests")
    assert answer.startswith("1 failed, 2 passed in ")
    assert "line 999999" in answer
    assert "the tests left threads running, for which Python would wait at its end: gardener" in answer
    assert len(answer) < 3_000
    assert desk.text("evaluate-python", code="1 + 2").startswith("=> 3")


LOOPING = """
    def test_fine():
        pass


    def test_loops():
        while True:
            pass
    """


@pytest.mark.contract("day.verdict.python.early")
@pytest.mark.parametrize("ending", ["while True:\n            pass", "import os\n        os._exit(0)"])
@pytest.mark.slow
def test_a_run_that_did_not_end_is_not_called_passed_in_its_first_words(desk_on, ending):
    """A loop is stopped at its limit, and a test may end the process: what had run is told behind that."""
    desk = desk_on("python", {"test_loop.py": LOOPING.replace("while True:\n            pass", ending)})
    tool = running_test_tools(Workshop(SingleImage(desk.image), 600.0), desk.workspace)[0]
    answer = tool.handler({"timeout": 8.0})
    assert answer.startswith("Ended early: 1 passed in ")
    assert "It ended in test_loop.py::test_loops. 1 of 2 tests have no result." in answer


@pytest.mark.contract("day.verdict.python.missing")
def test_pytest_that_is_missing_is_told_with_the_command_and_the_place(desk_on, project):
    """The person's own words for it: of pip, and that environments of tox have it."""
    subprocess.run([BASE, "-m", "venv", "--without-pip", project / ".venv"], check=True, timeout=120)
    package = project / ".venv" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages" / "pip"
    package.mkdir(parents=True)
    (package / "__main__.py").touch()
    desk = desk_on(
        "python", {"test_beds.py": "import pytest\n", "tox.ini": "[tox]\nenv_list = py\n"}, paths=()
    )
    said = desk.failure("run_tests")
    assert said == (
        "pytest is not installed in the environment of this image. Install it there with install_packages "
        f"pytest (into {project / '.venv'}), or say framework unittest.\n"
        "tox.ini would make environments, outside of the image."
    )
    made = project / ".tox" / "py" / "bin" / "pytest"
    made.parent.mkdir(parents=True)
    made.touch()
    answer = running_test_tools(Workshop(SingleImage(desk.image), beside=()), desk.workspace)[0].handler({})
    assert f"`{project}/.venv/bin/python -m pip install pytest`" in answer.error
    assert (
        "Environments with pytest: .tox/py. A person can give one to the image with --python." in answer.error
    )


@pytest.mark.contract("day.verdict.python.unreadable")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def test_rose(:\n", "E   SyntaxError: "),
        ("import no_such_garden\n", "test_beds.py:1: in <module>\n"),
        ("import shed\n", "shed.py:1: in <module>\n"),
    ],
)
def test_a_test_file_that_cannot_be_imported_is_told_without_the_importers(desk_on, text, told):
    """Where pytest and Python came from says nothing about the fault, and was most of the reply."""
    desk = desk_on("python", {"test_beds.py": text, "shed.py": "import no_such_garden\n"})
    said = desk.text("run_tests", what="test_beds.py")
    assert said.startswith("1 error in ")
    assert told in said
    assert "test_beds.py" in said.split("ERROR test_beds.py", 1)[1]
    assert not any(word in said for word in ("_pytest", "importlib", "ast.py"))


@pytest.mark.contract("day.verdict.python.second")
@pytest.mark.parametrize("more", [{}, {"in_image": True}, {"framework": "unittest"}], ids=str)
def test_an_edit_of_the_same_size_within_a_second_is_what_is_tested(desk_on, project, more):
    """Compiled files are compared by seconds, so that the tests passed by the code before."""
    case = "import unittest, shed\nclass T(unittest.TestCase):\n    def test_a(self): assert {} == shed.A\n"
    desk = desk_on("python", {"test_beds.py": case.format(1), "shed.py": "A = 1\n"})
    second = 1_700_000_000_000_000_000
    words = []
    for place, (wanted, value) in enumerate([(1, 1), (2, 1), (2, 2), (2, 3)]):
        for name, text in (("test_beds.py", case.format(wanted)), ("shed.py", f"A = {value}\n")):
            (project / name).write_text(text)
            os.utime(project / name, ns=(second, second + place * 1000))
        words.append(desk.text("run_tests", **more).split(" in ")[0])
        for compiled in project.rglob("*.pyc"):
            os.utime(compiled, ns=(second, second + place * 1000 + 500))
    assert words == ["1 passed", "1 failed", "1 passed", "1 failed"]
