"""Editable installs: those of the project work, others are named and wait for the user's word."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gramercy.images.cpython import python_findings, python_program
from gramercy.images.environment import Environment, Status
from gramercy.images.opening import open_image
from gramercy.images.sandbox import Confinement
from tests.support import fetch

FINDER = """
import sys
from pathlib import Path
from importlib.util import spec_from_file_location
MAPPING: dict[str, str] = {mapping!r}
class _EditableFinder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        file = MAPPING.get(fullname, "") + "/__init__.py"
        if Path(file).exists():
            return spec_from_file_location(fullname, file, submodule_search_locations=[MAPPING[fullname]])
        return None
def install():
    sys.meta_path.append(_EditableFinder)
"""


def make_package(place, name, text="rows = 3\n"):
    """Make a package in the src directory of a project."""
    (place / "src" / name).mkdir(parents=True)
    (place / "src" / name / "__init__.py").write_text(text)
    return place.resolve()


def make_environment(project):
    """Make a virtual environment without pip and return where its packages go."""
    python = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([python, "-m", "venv", "--without-pip", project / ".venv"], check=True, timeout=60)
    return next((project / ".venv").glob("lib/python3*/site-packages"))


def link(packages, name, source):
    """Write what setuptools writes for an editable install of a src layout, and of a mapping."""
    (packages / f"__editable__.{name}-1.0.pth").write_text(f"{source}\n")


def link_by_finder(packages, name, source):
    """Write what setuptools writes where one directory on the path is not enough."""
    finder = f"__editable___{name}_1_0_finder"
    (packages / f"{finder}.py").write_text(FINDER.format(mapping={name: str(source / name)}))
    (packages / f"__editable__.{name}-1.0.pth").write_text(f"import {finder}; {finder}.install()\n")


@pytest.mark.parametrize("install", [link, link_by_finder])
def test_an_editable_install_of_the_project_itself_works(tmp_path, install):
    """The layout that `pip install -e .` makes."""
    project = make_package(tmp_path / "garden", "beds")
    install(make_environment(project), "beds", project / "src")
    image = open_image("python", project=project)
    assert image.evaluate("import beds; beds.rows").values == ["3"]
    image.close()


@pytest.mark.parametrize("install", [link, link_by_finder])
def test_a_neighbour_in_the_same_work_tree_is_readable_and_no_more(tmp_path, install):
    """A repository of several projects, of which one is open."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    project = make_package(tmp_path / "garden", "beds")
    neighbour = make_package(tmp_path / "common parts", "soil", "kind = 'loam'\n")
    install(make_environment(project), "soil", neighbour / "src")
    image = open_image("python", project=project)
    assert image.evaluate("import soil; soil.kind").values == ["'loam'"]
    assert not image.evaluate(f"open({str(neighbour / 'src' / 'soil' / 'x')!r}, 'w')").ok
    image.close()


@pytest.mark.parametrize("install", [link, link_by_finder])
def test_what_leads_outside_is_named_and_waits_for_the_word_of_the_user(tmp_path, install):
    """Environments, 1: it is named by files of the project, so only the user can grant it."""
    project = make_package(tmp_path / "garden", "beds")
    other = make_package(tmp_path / "other", "soil", "kind = 'loam'\n")
    install(make_environment(project), "soil", other / "src")
    named = other / "src" if install is link else other / "src" / "soil"
    image = open_image("python", project=project)
    for reply in (image.load_system("soil"), image.evaluate("import soil")):
        assert reply.error is not None
        # The weaker sandbox shows that a file is there, and does not let it be read.
        assert reply.error.type in {"ModuleNotFoundError", "PermissionError"}
        assert f"open the image with --path {named}" in reply.error.message
    image.close()
    findings = python_findings(project, Environment())
    assert [f.advice for f in findings if f.status is Status.WARNING] == [f"to import it, say --path {named}"]
    granted = Environment(paths=(other / "src",))
    image = open_image("python", project=project, environment=granted)
    assert image.load_system("soil").ok
    image.close()
    notes = python_program(project, granted, confinement=Confinement.NONE).notes
    assert not any("editable" in note for note in notes)


def test_a_work_tree_that_is_the_home_of_the_user_grants_nothing(tmp_path, monkeypatch):
    """Some keep their settings in git, with their home as its work tree."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    project = make_package(tmp_path / "garden", "beds")
    other = make_package(tmp_path / "other", "soil")
    link(make_environment(project), "soil", other / "src")
    program = python_program(project, Environment(), confinement=Confinement.NONE)
    assert other / "src" not in program.grants.readable
    assert any(str(other / "src") in note for note in program.notes)


@pytest.mark.slow
def test_pip_installs_a_project_and_pytest_runs_in_its_image(tmp_path):
    """Proof: a src-layout project with its own .venv, an editable install, pytest run inside."""
    project = make_package(tmp_path / "garden", "beds", "def rows():\n    return 3\n")
    (project / "pyproject.toml").write_text(
        "[build-system]\nrequires = ['setuptools']\nbuild-backend = 'setuptools.build_meta'\n"
        "[project]\nname = 'beds'\nversion = '1.0'\n"
    )
    (project / "tests").mkdir()
    (project / "tests" / "test_beds.py").write_text(
        "from beds import rows\n\ndef test_rows():\n    assert rows() == 3\n\n"
        "def test_more():\n    assert rows() == 4\n"
    )
    python = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([python, "-m", "venv", project / ".venv"], check=True, timeout=120)
    pip = [project / ".venv" / "bin" / "python", "-m", "pip", "install", "--quiet"]
    fetch(*pip, "-e", project, "pytest")
    image = open_image("python", project=project)
    reply = image.evaluate("import pytest; int(pytest.main(['-q', '-p', 'no:cacheprovider', 'tests']))")
    assert (reply.values[-1:], reply.error) == (["1"], None)
    assert "1 failed, 1 passed" in reply.stdout
    loaded = image.load_system("beds")
    assert loaded.ok
    refused = image.evaluate(
        "import subprocess as s, sys\n"
        "pip = [sys.executable, '-m', 'pip', 'uninstall', '-y', 'pytest']\n"
        "s.run(pip, capture_output=True).returncode != 0"
    )
    assert refused.values[-1:] == ["True"]
    assert (project / ".venv" / "bin" / "pytest").exists()
    image.close()
    assert Path(project / "src" / "beds" / "__init__.py").exists()
