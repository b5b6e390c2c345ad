"""The user's directories: the XDG base directory specification, 0.8."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gramercy import directories
from gramercy.agents.prices import read_prices, user_prices
from gramercy.images import groups, interpreters, project
from gramercy.images.asdf import user_registry
from gramercy.images.caches import cache_directory
from gramercy.images.files.store import files_directory
from gramercy.images.trust import trust_directory
from gramercy.journal.opening import default_place
from gramercy.mcp.foreign.pins import default_pins
from gramercy.mcp.question_files import question_directory
from gramercy.mcp.signing import FILE, kept_key
from gramercy.providers import indexes
from gramercy.providers.model_files import models_directory
from gramercy.toolsets.saved_states import States
from gramercy.ui.cli import reading
from gramercy.ui.clients.base import Machine
from gramercy.ui.clients.known import CLIENTS
from gramercy.workbench.configuration import user_file

HOMES = {
    "XDG_CACHE_HOME": (directories.cache_home, ".cache"),
    "XDG_CONFIG_HOME": (directories.config_home, ".config"),
    "XDG_DATA_HOME": (directories.data_home, ".local/share"),
    "XDG_STATE_HOME": (directories.state_home, ".local/state"),
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Set every variable to a directory relative to the current one, and give the home."""
    made = tmp_path / "home"
    made.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(made))
    for variable in (*HOMES, "XDG_RUNTIME_DIR", "XDG_CONFIG_DIRS", "XDG_DATA_DIRS"):
        monkeypatch.setenv(variable, "relative")
    return made


@pytest.mark.parametrize("variable", HOMES)
def test_an_absolute_value_is_the_directory_and_any_other_is_ignored(variable, home, monkeypatch):
    find, default = HOMES[variable]
    for value in ("relative", "./relative", "~/relative", ""):
        monkeypatch.setenv(variable, value)
        assert find() == home / default
    monkeypatch.delenv(variable)
    assert find() == home / default
    monkeypatch.setenv(variable, "/absolute")
    assert find() == Path("/absolute")


@pytest.mark.parametrize("variable", HOMES)
def test_an_environment_and_a_home_can_be_given(variable, home):
    find, default = HOMES[variable]
    assert find({variable: "/x"}, Path("/y")) == Path("/x")
    assert find({variable: "x"}, Path("/y")) == Path("/y", default)
    assert find({"HOME": "/z"}) == Path("/z", default)
    assert find({}) == home / default


def test_directories_that_are_searched_are_absolute(monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_DIRS", "/a:relative::/b")
    assert directories.config_directories() == [Path("/a"), Path("/b")]
    assert directories.config_directories({}) == [Path("/etc/xdg")]
    assert directories.data_directories({"XDG_DATA_DIRS": ""}) == [
        Path("/usr/local/share"),
        Path("/usr/share"),
    ]


def test_a_session_without_a_directory_has_none(monkeypatch):
    assert directories.runtime_directory({"XDG_RUNTIME_DIR": "/run/user/1"}) == Path("/run/user/1")
    assert directories.runtime_directory({}) is None
    monkeypatch.setenv("XDG_RUNTIME_DIR", "relative")
    assert directories.runtime_directory() is None


READERS = {
    "settings": (user_file, ".config/gramercy/gramercy.toml"),
    "foreign tools": (default_pins, ".config/gramercy/foreign.json"),
    "journal": (default_place, ".local/state/gramercy/journal.db"),
    "trust": (trust_directory, ".local/state/gramercy/trust"),
    "cores": (cache_directory, ".cache/gramercy"),
    "models": (models_directory, ".local/share/gramercy/models"),
    "history": (lambda: reading._history_file("lisp"), ".local/state/gramercy/lisp-history"),
    "questions": (
        lambda: question_directory(Path("/project"), os.environ),
        ".local/state/gramercy/questions",
    ),
    "contents": (lambda: files_directory(Path("/project")).parent, ".local/state/gramercy/files"),
    "states": (
        lambda: States(cast("Any", SimpleNamespace(root=Path("/project")))).directory.parent,
        ".local/state/gramercy/states",
    ),
    "interpreters of uv": (lambda: [*interpreters._homes()][-1], ".local/share/uv/python"),
    "settings of git": (lambda: Path(project._configs(Path("/project"))[-1]), ".config/git/config"),
    "vscode": (lambda: client_file("vscode"), ".config/Code/User/mcp.json"),
    "goose": (lambda: client_file("goose"), ".config/goose/config.yaml"),
    "opencode": (lambda: client_file("opencode"), ".config/opencode/opencode.json"),
}


def client_file(name):
    return CLIENTS[name].place(Machine("linux", Path.home(), os.environ))


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_takes_a_relative_value(reader, home, monkeypatch):
    """A file of the user's must not be found below the project in which a command happens to run."""
    monkeypatch.delenv("UV_PYTHON_INSTALL_DIR", raising=False)
    project._configs.cache_clear()
    find, expected = READERS[reader]
    assert find() == home / expected
    project._configs.cache_clear()


@pytest.mark.usefixtures("home")
def test_prices_are_not_read_from_below_the_current_directory(monkeypatch):
    monkeypatch.delenv("GRAMERCY_PRICES", raising=False)
    planted = Path("relative/gramercy/prices.toml")
    planted.parent.mkdir(parents=True)
    planted.write_text("not = [toml", encoding="utf-8")
    with pytest.raises(Exception, match="cannot be used"):
        read_prices(planted)
    assert user_prices()


def test_the_key_is_kept_in_the_home(home):
    assert kept_key(os.environ)
    assert (home / ".local/state/gramercy" / FILE).is_file()


def test_pip_settings_are_read_from_absolute_directories(home):
    found = list(indexes._files(os.environ))
    assert all(path.is_absolute() for path in found)
    assert home / ".config/pip/pip.conf" in found


def test_lisp_systems_are_not_looked_for_below_the_current_directory(home):
    for place in ("relative/common-lisp/source", "home/.local/share/common-lisp/source"):
        Path(place).mkdir(parents=True)
    places = user_registry({**os.environ, "CL_SOURCE_REGISTRY": ""}, home).places
    assert [place.path for place in places] == [home / ".local/share/common-lisp/source"]


def test_a_session_of_systemd_is_not_found_below_the_current_directory(home, monkeypatch):
    """With a user who is not root, and a machine on which all else is there."""
    Path("relative/systemd").mkdir(parents=True)
    (home / "cgroup.controllers").write_text("memory")
    monkeypatch.setattr(groups, "ROOT", home)
    monkeypatch.setattr(groups, "RUNNING", home)
    monkeypatch.setattr(groups, "_refused", [])
    monkeypatch.setattr(shutil, "which", lambda *_, **__: "/usr/bin/systemd-run")
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    assert groups.why_none() == "systemd has no session for this user"
