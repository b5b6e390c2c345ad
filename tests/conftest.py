"""Tells at the end of every run how much of the contracts is proven by tests."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from hypothesis import settings

MANIFEST = Path(__file__).parent / "contracts" / "manifest"

# Chosen by scripts/test with --hypothesis-profile: a try in passing, and the search of scripts/test --all.
settings.register_profile("quick", max_examples=25)
settings.register_profile("thorough", max_examples=300)


def read_requirements() -> list[dict[str, str]]:
    """Return the entries of all manifest files, in the order of the seeds."""
    texts = (file.read_text("utf-8") for file in sorted(MANIFEST.glob("*.toml")))
    return [entry for text in texts for entry in tomllib.loads(text)["requirement"]]


@pytest.fixture(scope="session")
def requirements() -> list[dict[str, str]]:
    """Return what the contracts require, entry by entry."""
    return read_requirements()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the two figures also when output is captured or only a part of the tests is run."""
    entries = read_requirements()
    pending = sum("pending" in entry for entry in entries)
    terminalreporter.write_line(f"contracts: {len(entries)} requirements, {pending} of them pending")


def pytest_configure() -> None:
    """Keep what the person at this machine has set up for images out of every test."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_VERSION"):
        os.environ.pop(variable, None)
    os.environ["XDG_CONFIG_HOME"] = "/nonexistent"
