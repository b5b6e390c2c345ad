"""run_tests on a project that django-admin has made: Django's runner, and a database of the tests' own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gramercy.images.environment import Environment
from gramercy.images.opening import open_image
from gramercy.images.suites import WantedTests
from tests.support import fetch

DJANGO = "django==4.2.16"
BASE = getattr(sys, "_base_executable", sys.executable)
SANDBOX = shutil.which("bwrap") is not None
SECONDS = 300
MODELS = """
from django.db import models


class Rose(models.Model):
    name = models.CharField(max_length=20)
"""
TESTS = """
from django.test import TestCase, TransactionTestCase

from beds.models import Rose


class RoseTest(TestCase):
    def test_one(self):
        Rose.objects.create(name="Peace")
        self.assertEqual(Rose.objects.count(), 1)

    def test_wrong(self):
        print("looking")
        self.assertEqual(Rose.objects.count(), 1)


class Emptying(TransactionTestCase):
    def test_all(self):
        self.assertFalse(Rose.objects.exists())
"""
ROSE = "from beds.models import Rose; Rose.objects.create(name='Peace')"
SET_UP = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "garden.settings"
import django
django.setup()
from beds.models import Rose
Rose.objects.count()
"""


@pytest.fixture(scope="module")
def garden(tmp_path_factory):
    """Make a project with an app, a migrated database of one row, and tests."""
    home = tmp_path_factory.mktemp("garden")
    subprocess.run([BASE, "-m", "venv", home / ".venv"], check=True, timeout=SECONDS)
    python = home / ".venv/bin/python"
    fetch(python, "-m", "pip", "-q", "install", DJANGO)

    def manage(*words):
        subprocess.run([python, *words], cwd=home, check=True, timeout=SECONDS)

    manage("-m", "django", "startproject", "garden", ".")
    manage("manage.py", "startapp", "beds")
    settings = home / "garden/settings.py"
    settings.write_text(settings.read_text().replace("INSTALLED_APPS = [", "INSTALLED_APPS = ['beds',"))
    (home / "beds/models.py").write_text(MODELS)
    (home / "beds/tests.py").write_text(TESTS)
    manage("manage.py", "makemigrations", "-v0")
    manage("manage.py", "migrate", "-v0")
    manage("manage.py", "shell", "-c", ROSE)
    return home


@pytest.fixture
def image(garden):
    """Open an image on the project."""
    image = open_image("python", project=garden, sandbox=SANDBOX)
    yield image
    image.close()


@pytest.mark.slow
@pytest.mark.contract("day.verdict.python.django")
@pytest.mark.parametrize("in_image", [False, True])
def test_the_tests_of_django_run_beside_the_database_of_the_developer(garden, image, in_image):
    """Plain and after django.setup() in the image, which once emptied the database."""
    before = (garden / "db.sqlite3").read_bytes()
    if in_image:
        assert image.evaluate(SET_UP, timeout=SECONDS).forms[-1].values == ["1"]
    for framework in (None, "unittest", "django"):
        run = image.run_tests(WantedTests((), framework, in_image), timeout=SECONDS)
        assert run.fault is None, run.fault
        assert run.framework.startswith("django 4.2")
        assert run.counts == {"passed": 2, "failed": 1}
        (failure,) = run.failures
        assert failure.name == "beds.tests.RoseTest.test_wrong"
        assert "0 != 1" in failure.text
        assert failure.output.strip() == "looking"
    assert (garden / "db.sqlite3").read_bytes() == before


@pytest.mark.slow
@pytest.mark.contract("day.verdict.python.django")
@pytest.mark.parametrize(
    ("what", "counts"),
    [
        ("beds", {"passed": 2, "failed": 1}),
        ("beds/tests.py", {"passed": 2, "failed": 1}),
        ("beds/tests.py::RoseTest::test_one", {"passed": 1}),
        ("beds.tests.Emptying", {"passed": 1}),
        ("test_wrong", {"failed": 1}),
        ("lilac", {}),
    ],
)
def test_the_tests_of_django_are_chosen_by_files_names_and_words(image, what, counts):
    """As pytest and unittest name them; a word that no test has runs nothing."""
    run = image.run_tests(WantedTests((what,)), timeout=SECONDS)
    assert run.counts == counts
    assert (run.trouble == "nothing") == (not counts)


@pytest.mark.slow
@pytest.mark.contract("day.verdict.python.django")
def test_a_runner_of_the_settings_has_the_verdict_that_it_returns(garden, image):
    """By Django's contract the number of failed tests; what is no number is no verdict."""
    settings = garden / "garden/settings.py"
    text = settings.read_text()
    runner = garden / "garden/runner.py"
    try:
        settings.write_text(f"{text}\nTEST_RUNNER = 'garden.runner.Runner'\n")
        for returned, counts in (("0", {"passed": 1}), ("2", {"failed": 1}), ("None", {"unknown": 1})):
            runner.write_text(
                "class Runner:\n    def __init__(self, **options): pass\n"
                f"    def run_tests(self, labels): return {returned}\n"
            )
            assert image.run_tests(WantedTests(), timeout=SECONDS).counts == counts
    finally:
        settings.write_text(text)


@pytest.mark.slow
@pytest.mark.contract("day.verdict.python.undjango")
def test_pytest_without_its_plug_in_for_django_says_which_database_it_used(garden):
    """By default the runner of Django is taken all the same; pytest runs where it is asked for by name."""
    (garden / "test_plain.py").write_text("def test_plain(): pass\n")
    variables = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment = Environment(paths=(Path(pytest.__file__).parents[1],), variables=variables)
    image = open_image("python", project=garden, sandbox=SANDBOX, environment=environment)
    try:
        assert image.run_tests(WantedTests(("beds",)), timeout=SECONDS).framework.startswith("django")
        run = image.run_tests(WantedTests(("test_plain.py",), "pytest"), timeout=SECONDS)
    finally:
        image.close()
        (garden / "test_plain.py").unlink()
    assert run.counts == {"passed": 1}
    assert any("pytest-django is not installed, so tests use the database" in note for note in run.notes)
