"""Days of work in real projects, over MCP, as the page docs/reference/days.md counts them."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from bench import days, ways
from bench.day_projects import PROJECTS, fetch_sources
from tests.support import fetch

BASE = getattr(sys, "_base_executable", sys.executable)
REQUIREMENTS = Path(__file__).parents[2] / "bench/day-requirements.txt"


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Return an environment with what the Python days need."""
    directory = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([BASE, "-m", "venv", directory], check=True, timeout=120)
    pip = [directory / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    fetch(*pip, "--requirement", REQUIREMENTS)
    return directory


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Return the sources of the Python projects."""
    directory = tmp_path_factory.mktemp("sources")
    fetch_sources(directory, fetch)
    return directory


def walked(way, steps):
    try:
        return ways.walk(way, steps)
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
    done = walked(ways.Image("sbcl", project), days.LISP_DAY)
    assert all(len(each.answer) < 1_500 for each in done)
    assert days.LISP_MISTAKE[0] in (project / days.LISP_FILE).read_text()
    assert [file.name for file in (tmp_path / "states").rglob("day.*")] == ["day.core"]
    days.lisp_project(tmp_path / "shell")
    assert shorter(done, ways.walk(ways.Desk(tmp_path / "shell"), days.LISP_SHELL))


@pytest.mark.slow
def test_a_day_in_python(tmp_path, environment):
    """The same with a frame to look into in place of a restart, and a figure in place of a table."""
    project = tmp_path / "project"
    days.python_project(project, environment)
    done = walked(ways.Image("python", project, "--python", str(environment)), days.PYTHON_DAY)
    assert all(len(each.answer) < 1_500 for each in done)
    (picture,) = [picture for each in done for picture in each.pictures]
    assert picture.startswith(b"\x89PNG\r\n")
    assert struct.unpack(">II", picture[16:24]) == (640, 480)
    assert [file.name for file in (tmp_path / "states").rglob("day.*")] == ["day.json"]
    days.python_project(tmp_path / "shell", environment)
    assert shorter(done, ways.walk(ways.Desk(tmp_path / "shell"), days.PYTHON_SHELL))


@pytest.mark.slow
@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)
@pytest.mark.contract("day.projects.true")
def test_no_step_of_a_day_is_stale_or_falsely_green(project, sources, environment):
    """Break, test, look, fix, call what was held, undo, redo: each answer and the disk are right."""
    if project.language == "sbcl" and not (shutil.which("sbcl") and Path(project.source).is_dir()):
        pytest.skip(f"needs SBCL and {project.source}")
    day = days.project_day(project, sources, environment)
    assert project.limit or shorter(day.ours, day.theirs)
