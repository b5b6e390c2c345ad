"""What tests change in files is a call of its own: told, taken back, done again."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

from gramercy.images.files.doubts import Doubt, settled
from gramercy.images.live import LiveImage
from gramercy.images.opening import ImageSettings
from gramercy.images.suites import WantedTests

# Longer than anything takes on a busy machine.
WAIT = 60.0
WRITING = """
import os
import sqlite3
import unittest


class Case(unittest.TestCase):
    def test_it(self):
        with sqlite3.connect("beds.db") as beds:
            beds.execute("delete from roses")
        with open("made.txt", "w") as file:
            file.write("x")
        os.makedirs("htmlcov", exist_ok=True)
        for name in (".coverage", "htmlcov/index.html"):
            with open(name, "w") as file:
                file.write("x")
"""
ROSES = """
import sqlite3
beds = sqlite3.connect("beds.db")
_ = beds.execute("create table if not exists roses (name text)")
_ = beds.execute("insert into roses values ('Peace')")
beds.commit()
"""


@pytest.fixture
def project(tmp_path):
    """Return an empty project directory."""
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


@pytest.fixture
def image(project):
    """Return an image of a project whose tests empty a database and write files."""
    (project / "test_unit.py").write_text(WRITING)
    image = LiveImage("python", ImageSettings("python", project).program, language="python")
    yield image
    image.close()


def roses(project):
    """Return how many rows the database has."""
    with contextlib.closing(sqlite3.connect(project / "beds.db")) as beds:
        return beds.execute("select count(*) from roses").fetchone()[0]


def value_of(image, code):
    """Evaluate an expression and return what it prints as."""
    reply = image.evaluate(code, timeout=WAIT)
    assert reply.ok, reply.error
    return reply.forms[-1].values[0]


def run_tests(image, **wanted):
    """Run the tests of the project, which pass."""
    done = image.run_tests(WantedTests(("test_unit",), "unittest", **wanted), timeout=WAIT)
    assert done.counts == {"passed": 1}, done
    return done


@pytest.mark.contract("day.verdict.undo.files")
@pytest.mark.parametrize("in_image", [False, True])
def test_what_tests_changed_is_taken_back_and_nothing_else(image, project, in_image):
    """The database that tests emptied is full again; the evaluation before it stays."""
    image.evaluate(ROSES, timeout=WAIT)
    image.evaluate("kept = 5", timeout=WAIT)
    done = run_tests(image, in_image=in_image)
    kept = ".coverage (stays), htmlcov (stays, a directory), htmlcov/index.html (stays)"
    assert done.notes == [f"[files] changed beds.db; created {kept}, made.txt"]
    assert roses(project) == 0
    told = {each.path: each.outcome for each in image.undo().files}
    assert told["beds.db"] == "back"
    assert told["made.txt"] == "gone"
    assert not (project / "made.txt").exists()
    assert roses(project) == 1
    assert value_of(image, "kept") == "5"


@pytest.mark.contract("day.verdict.undo.by-products")
def test_what_test_runners_keep_for_themselves_stays(image, project):
    """A report of coverage is what the person wanted; one alone is no call to be undone."""
    (project / "test_unit.py").write_text(
        WRITING.replace("delete from roses", "select 1").replace("made", ".coverage.made")
    )
    image.evaluate("kept = 5", timeout=WAIT)
    (project / "beds.db").touch()
    run_tests(image)
    image.undo()
    assert (project / ".coverage").exists()
    assert (project / "htmlcov/index.html").exists()
    reply = image.evaluate("kept", timeout=WAIT)
    assert not reply.ok


@pytest.mark.contract("day.verdict.undo.files")
def test_beside_a_thread_the_files_of_tests_go_back_alone(image, project):
    """No state can be kept then, and none is needed: tests change nothing in the image."""
    image.evaluate(ROSES, timeout=WAIT)
    image.evaluate("import threading; stop = threading.Event()", timeout=WAIT)
    image.evaluate("threading.Thread(target=stop.wait, daemon=True).start()", timeout=WAIT)
    run_tests(image)
    info = image.undo()
    assert {each.path: each.outcome for each in info.files}["beds.db"] == "back"
    assert not (project / "made.txt").exists()
    assert value_of(image, "threading.active_count() > 1") == "True"
    assert roses(project) == 1


@pytest.mark.contract("day.verdict.undo.files")
def test_tests_that_were_taken_back_can_be_done_again_and_survive_a_death(image, project):
    """Their files belong to the state after them, like those of an evaluation."""
    image.evaluate(ROSES, timeout=WAIT)
    run_tests(image)
    after = image.checkpoints()[-1]
    assert after.label.startswith("run_tests test_unit")
    image.evaluate("import os; os._exit(3)", timeout=WAIT)
    assert (project / "made.txt").exists()
    image.undo()
    assert not (project / "made.txt").exists()
    image.rollback(after.id)
    assert (project / "made.txt").exists()
    assert roses(project) == 0


@pytest.mark.contract("day.verdict.undo.files")
def test_tests_that_change_nothing_are_no_call_to_be_undone(image, project):
    """An undo after them takes back the evaluation before them."""
    (project / "test_unit.py").write_text(
        "import unittest\nclass T(unittest.TestCase):\n  def test(self): pass\n"
    )
    image.evaluate("kept = 5", timeout=WAIT)
    run_tests(image)
    image.undo()
    assert not image.evaluate("kept", timeout=WAIT).ok


def test_compiled_python_does_not_make_a_change_of_the_directory_beside(project):
    """A look through the project after threads names files that changed, not the directory of a new cache."""
    (project / "tests").mkdir()
    (project / "tests/test_it.py").touch()
    since = (project / "tests").stat().st_ctime_ns
    (project / "tests/test_it.py").chmod(0o600)
    (project / "tests/__pycache__").mkdir()
    (project / "more").mkdir()
    (project / "more/__pycache__").mkdir()

    doubt = Doubt(since, reason="", loses_names=False)

    def look():
        return settled(doubt, project, lambda path, _: path == "tests/test_it.py").paths

    assert look() == ()
    (project / "other").mkdir()
    assert look() == ("other",)
