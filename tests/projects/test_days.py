"""A day's work in each language, over MCP, as the page docs/reference/days.md counts it."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from bench import days

BASE = getattr(sys, "_base_executable", sys.executable)
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
PACKAGES = ("pytest", "matplotlib")
INSTALLING = 300


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Return an environment with what the Python day needs."""
    directory = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([BASE, "-m", "venv", directory], check=True, timeout=120)
    pip = [directory / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--constraint", REQUIREMENTS, *PACKAGES], check=True, timeout=INSTALLING)
    return directory


def walked(way, steps):
    try:
        return days.walk(way, steps)
    finally:
        way.client.close()


def shorter(ours, theirs):
    """Tell whether the parts that both ways have took fewer characters than with a shell."""
    parts = {done.step.part for done in ours} & {done.step.part for done in theirs}
    counts = [sum(done.characters for done in way if done.step.part in parts) for way in (ours, theirs)]
    return counts[0] < counts[1]


@pytest.mark.skipif(
    not days.ALEXANDRIA.is_dir() or not shutil.which("sbcl"), reason="needs SBCL and alexandria"
)
@pytest.mark.slow
def test_a_day_in_lisp(tmp_path):
    """Failing test, frames, restart, repair, preview, test, undo, table, saved state."""
    project = tmp_path / "project"
    days.lisp_project(project)
    done = walked(days.Image("sbcl", project), days.LISP_DAY)
    assert all(len(each.answer) < 1_500 for each in done)
    assert days.LISP_MISTAKE[0] in (project / days.LISP_FILE).read_text()
    assert [file.name for file in (tmp_path / "states").rglob("day.*")] == ["day.core"]
    days.lisp_project(tmp_path / "shell")
    assert shorter(done, days.walk(days.Desk(tmp_path / "shell"), days.LISP_SHELL))


@pytest.mark.slow
def test_a_day_in_python(tmp_path, environment):
    """The same with a frame to look into in place of a restart, and a figure in place of a table."""
    project = tmp_path / "project"
    days.python_project(project, environment)
    done = walked(days.Image("python", project, "--python", str(environment)), days.PYTHON_DAY)
    assert all(len(each.answer) < 1_500 for each in done)
    (picture,) = [picture for each in done for picture in each.pictures]
    assert picture.startswith(b"\x89PNG\r\n")
    assert struct.unpack(">II", picture[16:24]) == (640, 480)
    assert [file.name for file in (tmp_path / "states").rglob("day.*")] == ["day.json"]
    days.python_project(tmp_path / "shell", environment)
    assert shorter(done, days.walk(days.Desk(tmp_path / "shell"), days.PYTHON_SHELL))
