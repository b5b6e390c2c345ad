"""Servers and commands for the tests of whole projects."""

from __future__ import annotations

import shutil
import sys

import pytest

from gramercy.images.caches import find_core
from gramercy.images.sbcl import find_sbcl, sbcl_version
from tests.projects import walking


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
    core = find_core(find_sbcl(), sbcl_version(find_sbcl()))
    assert core is not None
    kept = tmp_path / "cache" / "gramercy"
    kept.mkdir(parents=True)
    shutil.copy2(core, kept / core.name)
    for name in ("CL_SOURCE_REGISTRY", "XDG_DATA_HOME", "XDG_DATA_DIRS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path):
    """Return an empty project."""
    (tmp_path / "project").mkdir()
    return tmp_path / "project"
