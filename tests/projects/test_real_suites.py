"""run_tests against the suites of real libraries: the counts are those of the frameworks' own commands."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from gramercy.images.opening import open_image
from gramercy.images.suites import WantedTests
from tests.support import fetch

BASE = getattr(sys, "_base_executable", sys.executable)
SANDBOX = shutil.which("bwrap") is not None
SOURCES = Path("/usr/share/common-lisp/source")
# Libraries of Debian with the framework of their tests. Their test-ops start it each in its own way.
LISP = {"fiveam": "fiveam", "split-sequence": "fiveam", "alexandria": "rt"}
# A package whose source distribution has its tests, and what these need. pluggy, iniconfig, markupsafe and
# sqlparse give the same counts too; each takes half a minute to install.
PYTHON = {"itsdangerous==2.2.0": ("freezegun",)}
INSTALLING = 300


def by_sbcl(system):
    """Return how many checks the test-op of a system counts in a plain SBCL."""
    words = ["sbcl", "--noinform", "--non-interactive", "--no-userinit", "--eval", "(require :asdf)"]
    done = subprocess.run(
        [*words, "--eval", f"(asdf:test-system {system!r})".replace("'", '"')],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return sum(map(int, re.findall(r"(?:Did|Doing) (\d+) (?:checks|pending)", done.stdout)))


@pytest.mark.slow
@pytest.mark.parametrize(("system", "framework"), LISP.items())
@pytest.mark.contract("day.runs.real")
def test_the_suites_of_lisp_libraries_count_as_by_hand(project, system, framework):
    """Every check of the framework's own verdict is in ours, and nothing else."""
    if shutil.which("sbcl") is None or not (SOURCES / system.replace("split", "cl-split")).is_dir():
        pytest.skip(f"{system} is not installed")
    image = open_image("sbcl", project=project, sandbox=SANDBOX)
    try:
        run = image.run_tests(WantedTests((system,)), timeout=300)
    finally:
        image.close()
    assert run.fault is None
    assert run.framework == framework
    assert run.bad == 0
    assert run.checks == by_sbcl(system) > 0


@pytest.mark.slow
@pytest.mark.parametrize(("package", "needs"), PYTHON.items())
@pytest.mark.contract("day.runs.real")
def test_the_suites_of_python_packages_count_as_by_hand(project, tmp_path, package, needs):
    """The last line of pytest and our counts are the same."""
    subprocess.run([BASE, "-m", "venv", tmp_path / "tools"], check=True, timeout=INSTALLING)
    pip = [tmp_path / "tools/bin/python", "-m", "pip", "-q"]
    sources = ["download", "--no-deps", "--no-binary", ":all:", "-d", tmp_path, package]
    fetch(*pip, *sources)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        # Debian's Python 3.11.2 has no filters yet.
        safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(tmp_path / "source", **safely)
    (home,) = (tmp_path / "source").iterdir()
    shutil.copytree(home, project, dirs_exist_ok=True)
    subprocess.run([BASE, "-m", "venv", project / ".venv"], check=True, timeout=INSTALLING)
    python = project / ".venv/bin/python"
    fetch(python, "-m", "pip", "-q", "install", "pytest", *needs, package)
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project,
        capture_output=True,
        text=True,
        check=True,
        timeout=INSTALLING,
    )
    image = open_image("python", project=project, sandbox=SANDBOX)
    try:
        run = image.run_tests(WantedTests(), timeout=300)
    finally:
        image.close()
    by_hand = re.findall(
        r"(\d+) (passed|failed|skipped|xfailed|xpassed|errors?)", done.stdout.splitlines()[-1]
    )
    assert by_hand
    assert run.counts == {word.removesuffix("s") if word == "errors" else word: int(n) for n, word in by_hand}
