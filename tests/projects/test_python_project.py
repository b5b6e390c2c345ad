"""A Python project as its developer works in it: own environment, tests, numpy and pandas, a web server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.projects import walking
from tests.support import fetch, free_port, until

edit, write = walking.edit, walking.write

BASE = getattr(sys, "_base_executable", sys.executable)
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
INSTALLING = 300
GARDEN = {
    "pyproject.toml": """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "garden-beds"
version = "1.0"
[tool.setuptools.packages.find]
where = ["src"]
""",
    "src/beds/__init__.py": "from beds.area import area\n",
    "src/beds/area.py": """
def area(rows, columns):
    return rows * columns


def harvest(path):
    try:
        return open(path).read()
    except OSError as problem:
        raise LookupError("there is no harvest") from problem
""",
    "tests/test_area.py": """
from beds import area


def test_area():
    assert area(2, 3) == 6
""",
}
FLASK = """
from flask import Flask

from beds import area

app = Flask(__name__)


@app.get("/area/<int:rows>/<int:columns>")
def show(rows, columns):
    return str(area(rows, columns))
"""
NUMPY = """
import numpy


def area(rows, columns):
    return int(numpy.prod([rows, columns]))
"""
TESTS = "int(pytest.main(['-q', 'tests']))"


# ---- without an environment


def test_what_is_wrong_in_a_module_is_told_with_line_caret_and_causes(project, walk):
    """Own program, P4 and P6: reload, SyntaxError with its place, `raise … from`."""
    write(project, GARDEN)
    file = project / "src/beds/area.py"
    day = walk("python", project)
    assert day.load("beds") == "Loading system: beds\nLoaded: beds"
    day.eval("import beds")
    edit(file, "def area(rows, columns):", "def area(rows, columns:")
    told = day.fail("load-system", system="beds")
    assert told.startswith("[ERROR] SyntaxError\n'(' was never closed\n")
    assert f"{file}:2:\n    def area(rows, columns:\n            ^" in told
    why = "src/beds/area.py:2: SyntaxError: '(' was never closed; nothing was taken up"
    assert day.eval("beds.area(2, 3)") == f"=> 6\n\nThe module stays as it was: {why}"
    edit(file, "columns:\n    return rows * columns", "columns):\n    return rows + columns")
    assert "Reloaded: beds.area, beds" in day.load("beds")
    assert day.eval("beds.area(2, 3)") == "=> 5"
    told = day.error("from beds.area import harvest\nharvest('nowhere.txt')")
    first, cause = told.split("[Caused by] ")
    assert first.startswith("[ERROR] LookupError\nthere is no harvest\n")
    assert "harvest(path='nowhere.txt') at src/beds/area.py:" in first
    assert cause.startswith("FileNotFoundError\n")
    assert "nowhere.txt" in cause


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_every_interpreter_can_be_chosen(project, gramercy, walk, version):
    """Issue, Proof: interpreters chosen by --python, where they can be had."""
    write(project, GARDEN)
    code = "import sys, beds; ('%d.%d' % sys.version_info[:2], beds.area(2, 3))"
    done = gramercy("eval", "--language", "python", "--python", version, code, cwd=project)
    if f"there is no Python {version} on PATH" in done.stderr:
        pytest.skip(f"there is no Python {version}")
    assert (done.returncode, done.stdout) == (0, f"('{version}', 6)\n")
    day = walk("python", project, "--python", version)
    assert day.value(code) == f"=> ('{version}', 6)"
    day.eval("x = 1")
    day.eval("x = 2")
    day.do("undo_last")
    assert day.eval("x") == "=> 1"
    died = day.error("import os; os._exit(3)")
    assert "The state before is back" in died
    assert day.value("x, beds.area(4, 5)") == "=> (1, 20)"


# ---- with an environment


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Make a project and its environment as people do, once."""
    project = tmp_path_factory.mktemp("garden")
    write(project, GARDEN)
    subprocess.run([BASE, "-m", "venv", project / ".venv"], check=True, timeout=120)
    pip = [project / ".venv/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    fetch(*pip, "--requirement", REQUIREMENTS)
    own = ["--no-build-isolation", "--no-deps", "--editable", project]
    subprocess.run([*pip, *own], check=True, timeout=INSTALLING)
    return project


@pytest.fixture
def garden(place):
    """Return the project with its files as they were at first."""
    write(place, {**GARDEN, "src/beds/web.py": FLASK})
    return place


@pytest.mark.slow
def test_a_day_in_a_project_over_an_installed_server(garden, walk, gramercy):
    """Issue, Done means: install, evaluate, edit, reload, run the tests, undo, crash, restore; with numpy."""
    (garden / "src/beds/area.py").write_text(NUMPY)
    day = walk("python", garden, started=walking.installed_walk(gramercy, "python", garden))
    assert day.load("garden-beds").endswith(
        "Loaded: beds (version 1.0)\n\nThe image says: garden-beds is imported as beds."
    )
    assert day.eval("import sys, beds, pytest; sys.prefix") == f"=> '{garden}/.venv'"
    assert day.eval("beds.area(2, 3)") == "=> 6"
    assert "1 passed" in day.eval(TESTS)

    edit(garden / "src/beds/area.py", "numpy.prod", "numpy.sum")
    assert "Reloaded: beds.area, beds" in day.load("beds")
    failed = day.eval(TESTS)
    # As pytest tells it: each assertion is taken apart in the second run too.
    assert "assert 5 == 6" in failed
    assert "FAILED tests/test_area.py::test_area" in failed
    assert "\n=> 1\n\n[files] created .pytest_cache/" in failed
    edit(garden / "tests/test_area.py", "== 6", "== 2 + 3")
    assert "1 passed" in day.eval(TESTS)

    for _ in ("a run", "another", "the loading"):
        day.do("undo_last")
    # The image is as it was before the loading, and takes up what the person has edited.
    assert day.eval("beds.area(2, 3)") == "=> 5\n\ntook up src/beds/area.py: area"
    assert "numpy.sum" in (garden / "src/beds/area.py").read_text()

    day.eval("import numpy; kept = numpy.arange(6.0).reshape(2, 3)")
    died = day.error("import os; os._exit(3)")
    assert "its code ended it with status 3" in died
    assert "The state before is back" in died
    assert day.value("(kept @ kept.T).tolist(), beds.area(2, 3)") == "=> ([[5.0, 14.0], [14.0, 50.0]], 5)"
    assert "1 passed" in day.eval(TESTS)


@pytest.mark.slow
def test_the_tests_of_a_project_run_in_a_process_of_their_own(garden, walk):
    """Own program, P5: the output of a child process is shown; the environment is on PATH."""
    day = walk("python", garden)
    told = day.eval("import subprocess; subprocess.run(['pytest', '-q']).returncode")
    assert "[output of threads, C code and other processes]" in told
    assert "1 passed" in told
    assert "\n=> 0" in told


SOW = """
import numpy as np, pandas as pd
rows = np.arange(1000.0)
frame = pd.DataFrame({'bed': list('abca'), 'weight': [1, 2, 3, 4]})
"""
WEIGH = "float(rows.sum()), int(frame.weight.sum()), list(frame)"
SOWN = "=> (499500.0, 10, ['bed', 'weight'])"
GROWN = "=> (999000.0, 20, ['bed', 'weight', 'sold'])"
GROW = "rows *= 2; frame['weight'] *= 2; frame['sold'] = frame.weight > 3"


@pytest.mark.slow
def test_arrays_and_frames_are_taken_back(garden, walk, gramercy):
    """Issue, Proof: numpy and pandas used and undone; in place changes of buffers too."""
    day = walk("python", garden)
    day.eval(SOW)
    assert day.value(WEIGH) == SOWN
    day.do("checkpoint_image", label="sown")
    assert "No state was kept" not in day.eval(GROW)
    day.do("checkpoint_image", label="grown")
    assert day.value(WEIGH) == GROWN
    assert "cython" not in day.do("list-definitions")
    preview = day.do("preview_form", code=f"rows[:] = 0; frame.drop(columns='sold', inplace=True); {WEIGH}")
    assert "=> (0.0, 20, ['bed', 'weight'])" in preview
    assert day.value(WEIGH) == GROWN
    for _ in ("two looks with calls", "that count as changes", "the growth"):
        day.do("undo_last")
    assert day.value(WEIGH) == SOWN
    day.do("rollback_image", checkpoint="grown")
    assert day.value(WEIGH) == GROWN
    # The machinery of both still works in what is a copy of a copy.
    assert day.eval("float(np.linalg.norm(np.eye(400) @ np.eye(400)))") == "=> 20.0"
    assert day.value("frame.groupby('bed').weight.sum().to_dict()") == "=> {'a': 10, 'b': 4, 'c': 6}"
    died = day.error("import ctypes; rows[0] = -1; ctypes.string_at(0)")
    assert "The state before is back" in died
    assert day.value(WEIGH) == GROWN
    day.do("rollback_image", checkpoint="sown")
    assert day.value(WEIGH) == SOWN
    words = ("eval", "--language", "python")
    assert gramercy(*words, "--save", "state", SOW + GROW, cwd=garden).returncode == 0
    done = gramercy(*words, "--restore", "state", WEIGH, cwd=garden)
    assert (done.returncode, done.stdout) == (0, GROWN.removeprefix("=> ") + "\n")


SERVE = """
import threading
from werkzeug.serving import make_server
from beds.web import app
server = make_server('127.0.0.1', 8080, app)
thread = threading.Thread(target=server.serve_forever, daemon=True)
thread.start()
"""


@pytest.mark.slow
def test_a_web_application_is_developed_while_it_runs(garden, walk):
    """Issue, Proof: a small Flask project; served on a published port, changed, and stopped."""
    port = free_port()
    day = walk("python", garden, "--publish", f"{port}:8080")
    day.eval("import beds.web")
    told = day.eval(SERVE)
    assert 'No state was kept after this call: the image says "1 user thread is running: ' in told
    assert walking.get(port, "/area/4/5") == "20"
    refused = day.fail("checkpoint_image", label="running")
    assert "the present state cannot be kept" in refused
    edit(garden / "src/beds/area.py", "rows * columns", "rows + columns")
    told = day.load("beds.web")
    assert "Reloaded: beds.area, beds, beds.web" in told
    # Functions find what they use in their module, which is the same one with new contents.
    assert walking.get(port, "/area/4/5") == "9"
    day.eval("x = 1")
    day.eval("x = 2")
    assert "undo by definitions" in day.fail("undo_last")
    day.do("undo_last", by="definitions")
    assert day.eval("x").startswith("=> 1")
    day.eval("x = 2")
    assert "ran again: their effects outside came twice" in day.do("undo_last", by="replay")
    assert day.eval("x").startswith("=> 1")
    assert walking.get(port, "/area/4/5") == "9"
    day.eval("server.shutdown(); server.server_close(); thread.join(10)")
    assert "stopped" in day.do("checkpoint_image", label="stopped")
    day.eval("x = 3")
    day.do("undo_last")
    assert day.eval("x") == "=> 1"
    # A server that is made again has the new code.
    day.eval(SERVE)
    assert walking.get(port, "/area/4/5") == "9"


SHOP = {
    "shop/__init__.py": "",
    "shop/settings.py": """
DATABASES = {'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': 'shop.sqlite3'}}
DEFAULT_AUTO_FIELD = 'django.db.models.BigAutoField'
INSTALLED_APPS = ['goods']
ROOT_URLCONF = 'shop.urls'
SECRET_KEY = 'for tests'
ALLOWED_HOSTS = ['*']
""",
    "shop/urls.py": """
from django.http import HttpResponse
from django.urls import path
from goods.models import Plant
urlpatterns = [path('count', lambda request: HttpResponse(str(Plant.objects.count())))]
""",
    "goods/__init__.py": "",
    "goods/models.py": """
from django.db import models


class Plant(models.Model):
    name = models.CharField(max_length=50)
    height = models.IntegerField(default=0)
""",
    "goods/tests.py": """
from django.test import TestCase
from goods.models import Plant


class PlantTest(TestCase):
    def test_height(self):
        self.assertEqual(Plant.objects.create(name='oak').height, 0)
""",
}
RUNSERVER = """
import subprocess, sys
words = [sys.executable, '-m', 'django', 'runserver', '--noreload', '8000']
server = subprocess.Popen(words)
"""


@pytest.mark.slow
def test_a_django_project_is_used_tested_and_served(garden, project, walk):
    """Issue, Proof: its environment is elsewhere and chosen, its server a process of its own."""
    write(project, SHOP)
    port = free_port()
    options = ("--python", str(garden / ".venv"), "--env", "DJANGO_SETTINGS_MODULE=shop.settings")
    day = walk("python", project, *options, "--publish", f"{port}:8000")
    day.eval("import django; django.setup(); from django.core.management import call_command as manage")
    assert "Create model Plant" in day.eval("manage('makemigrations', 'goods')")
    day.eval(
        "manage('migrate', verbosity=0); from goods.models import Plant; oak = Plant(name='oak'); oak.save()"
    )
    day.eval("oak.height = 7")
    day.do("undo_last")
    assert day.value("oak.height, Plant.objects.count()") == "=> (0, 1)"
    told = day.error("Plant.objects.create(height='tall')")
    assert told.startswith("[ERROR] ValueError\nField 'height' expected a number but got 'tall'.\n")
    assert "[Caused by] ValueError\ninvalid literal for int() with base 10: 'tall'\n" in told
    tests = "import subprocess, sys; subprocess.run([sys.executable, '-m', 'django', 'test']).returncode"
    told = day.eval(tests)
    assert "Ran 1 test in" in told
    assert "\n=> 0" in told
    # Another process has no thread in the image: states are kept while it serves.
    assert "No state was kept" not in day.eval(RUNSERVER)
    until(lambda: walking.is_answered(port, "/count"))
    assert walking.get(port, "/count") == "1"
    day.eval("Plant.objects.create(name='elm').name")
    day.do("undo_last")
    # The file of the database goes back with the state; the process goes on, as nobody's child.
    assert walking.get(port, "/count") == "1"
    assert day.eval("server.poll()").endswith("=> 0")
    day.eval("import os, signal; os.kill(server.pid, signal.SIGTERM)")
    until(lambda: not walking.is_answered(port, "/count"))
