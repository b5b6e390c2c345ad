"""The judges that scripts/judges installs from PyPI and npm, as fixtures of the rooms that are judged."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.support import ROOT, install

HOME = ROOT / ".venv-judges"
JUDGING = 120


@pytest.fixture(scope="session")
def judges():
    """Install the judges, which costs nothing when they are there, and return their home."""
    install("judges")
    return HOME


@pytest.fixture(scope="session")
def judge(judges, tmp_path_factory):
    """Return a function that runs a program from the judges' home and returns what it did."""
    away = tmp_path_factory.mktemp("judge")
    # Judges write caches and configurations into the home of whoever runs them.
    environment = {**os.environ, "PATH": f"{judges / 'bin'}:{os.environ['PATH']}", "HOME": str(away)}

    def run(program, *arguments, stdin=None, bound=JUDGING):
        # JavaScript from standard input finds its packages from the working directory.
        return subprocess.run(
            [judges / program, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=bound,
            check=False,
            cwd=judges,
            env=environment,
        )

    return run
