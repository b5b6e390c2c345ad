"""Which program on PATH is started: never one that evaluated code could have put there."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gramercy.images.programs import find_program, none_on_path, passed_over
from gramercy.images.project import PROJECTS, check_project


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a project that is in use, with the working directory elsewhere."""
    made = (tmp_path / "project").resolve()
    made.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    yield check_project(made)
    PROJECTS.discard(made)


def program(place, name="bwrap", text="#!/bin/sh\nexit 7\n"):
    """Make a program."""
    place.mkdir(parents=True, exist_ok=True)
    place.chmod(0o755)
    (place / name).write_text(text)
    (place / name).chmod(0o755)
    return place


@pytest.mark.contract("trust.later.programs")
def test_a_program_in_the_project_is_passed_over(project, tmp_path, monkeypatch):
    """Trust: bwrap and sbcl were taken from an entry of PATH inside of the project."""
    inside, outside = program(project / "bin"), program(tmp_path / "outside")
    monkeypatch.setenv("PATH", f"{inside}:{outside}")
    assert find_program("bwrap") == f"{outside}/bwrap"
    assert passed_over("bwrap") == [
        f"{inside}/bwrap is passed over: it lies in the project, where evaluated code could have put it"
    ]
    monkeypatch.setenv("PATH", str(inside))
    assert find_program("bwrap") is None
    assert none_on_path("bwrap").startswith("there is no bwrap on PATH; ")


@pytest.mark.contract("trust.later.programs")
def test_links_into_the_project_are_passed_over(project, tmp_path, monkeypatch):
    """The entry may be a link, or the program."""
    inside = program(project / "bin")
    (tmp_path / "linked").symlink_to(inside)
    other = tmp_path / "other"
    other.mkdir()
    (other / "bwrap").symlink_to(inside / "bwrap")
    monkeypatch.setenv("PATH", f"{tmp_path / 'linked'}:{other}")
    assert find_program("bwrap") is None
    assert len(passed_over("bwrap")) == 2


@pytest.mark.contract("trust.later.programs")
@pytest.mark.parametrize("entry", ["", ".", "bin"])
def test_relative_and_empty_entries_are_passed_over(project, monkeypatch, entry):
    """They mean another directory wherever a person stands."""
    monkeypatch.chdir(project.parent)
    program(project.parent / entry)
    monkeypatch.setenv("PATH", f"{entry}:/nowhere")
    assert find_program("bwrap") is None
    assert "without a slash" in passed_over("bwrap")[0]


@pytest.mark.contract("trust.later.programs")
def test_what_every_user_can_write_is_passed_over(tmp_path, monkeypatch):
    """Another user of the machine could have put it there."""
    shared = program(tmp_path / "shared")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("PATH", str(shared))
    assert find_program("bwrap") == f"{shared}/bwrap"
    shared.chmod(0o1777)
    assert find_program("bwrap") is None
    assert "every user" in passed_over("bwrap")[0]


@pytest.mark.contract("trust.later.programs")
def test_the_working_directory_counts_as_a_project_unless_it_is_the_home(tmp_path, monkeypatch):
    """Before an image is opened no project is known, and the sandbox is looked for first."""
    inside = program(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(inside))
    monkeypatch.chdir(tmp_path)
    assert find_program("bwrap") is None
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_program("bwrap") == f"{inside}/bwrap"


@pytest.mark.contract("trust.later.programs")
def test_no_program_of_the_project_runs_when_an_image_starts(tmp_path):
    """Trust: end to end, with traps under every name that is started."""
    project, ran = tmp_path / "project", tmp_path / "RAN"
    for name in ("bwrap", "sbcl", "git", "uv", "uvx", "python3", "pip", "sh"):
        program(project / "bin", name, f"#!/bin/sh\necho {name} >> {ran}\nexit 1\n")
    environment = {**os.environ, "PATH": f"{project / 'bin'}:{os.environ['PATH']}"}
    code = (
        "from gramercy.images.opening import open_image\nprint(open_image(project='.').evaluate('1').values)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=project, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout == "['1']\n", done.stderr
    assert not ran.exists(), ran.read_text()


@pytest.mark.contract("trust.later.programs")
def test_the_doctor_says_which_programs_are_passed_over(project, monkeypatch):
    """A person must know why another sbcl runs than their shell finds."""
    from gramercy.images.programs import path_findings

    inside = program(project / "bin", "sbcl")
    monkeypatch.setenv("PATH", f"{inside}:{os.environ['PATH']}")
    assert [f"{inside}/sbcl is passed over" in each.detail for each in path_findings()].count(True) == 1
