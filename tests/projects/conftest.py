"""Servers and commands for the tests of whole projects."""

from __future__ import annotations

import sys

import pytest

from tests.projects import walking
from tests.support import empty_home


@pytest.fixture
def gramercy():
    """Return what runs the command line."""
    return walking.command


@pytest.fixture
def walk():
    """Start servers for a project; what a test leaves running is ended."""
    walks = []

    def start(language, project, *options, started=None):
        words = (sys.executable, "-m", "gramercy", "serve", "--image", language, *options)
        walks.append(started or walking.Walk(language, project, *words))
        return walks[-1]

    yield start
    said = [each.client.errors() for each in walks]
    for each in walks:
        each.client.close()
    assert "Traceback (" not in "".join(said)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Return an empty home with a cache that has nothing but the core."""
    return empty_home(tmp_path, monkeypatch)


@pytest.fixture
def project(tmp_path):
    """Return an empty project."""
    (tmp_path / "project").mkdir()
    return tmp_path / "project"
