"""Tells at the end of every run how much of the contracts is proven, and gives each test its turn."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Generator

# The fixture of the tests that run programs of scripts/judges.
JUDGE = "judge"
MANIFEST = Path(__file__).parent / "contracts" / "manifest"

# Reproducible from the output alone, and never against a clock: a busy machine is no fault of the example.
settings.register_profile("calm", database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("calm")
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


TURNS = pytest.StashKey[Turns]()
STATES = pytest.StashKey[str]()


def heed_signals() -> None:
    """Give what tests start the usual signals, also under `nohup` or in a job of a shell that ignores some.

    What is ignored stays so in every program that is started, while a function is not handed on. Hence one
    that does nothing: this process outlives its terminal under `nohup` as before.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_configure(config: pytest.Config) -> None:
    """Keep what the person at this machine has set up for images out of every test."""
    heed_signals()
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_VERSION"):
        os.environ.pop(variable, None)
    os.environ["XDG_CONFIG_HOME"] = "/nonexistent"
    # Saved states are large, and belong to nobody after the run.
    config.stash[STATES] = tempfile.mkdtemp(prefix="gramercy-tests-")
    os.environ["XDG_STATE_HOME"] = config.stash[STATES]
    # Nobody decides elsewhere; what tests that has servers with a wait of their own.
    os.environ["GRAMERCY_APPROVAL_WAIT"] = "0.2"
    if hasattr(config, "workerinput"):
        config.stash[TURNS] = Turns(config.workerinput["testrunuid"])


def pytest_unconfigure(config: pytest.Config) -> None:
    """Tidy up after a worker, and remove what the tests have saved."""
    shutil.rmtree(config.stash.get(STATES, ""), ignore_errors=True)
    if TURNS in config.stash:
        config.stash[TURNS].close()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put undisturbed tests behind the others of their file, so that the workers stop once.

    They are slow, since every other worker waits for them, and so is what needs the judges, which are
    installed from registries. This must be known before pytest leaves out what is slow.
    """
    for item in items:
        if _is_undisturbed(item) or JUDGE in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
    files = {file: number for number, file in enumerate(dict.fromkeys(item.path for item in items))}
    items.sort(key=lambda item: (files[item.path], _is_undisturbed(item)))


def pytest_collection_finish() -> None:
    """Spare the garbage collector the thousands of tests, which stay to the end."""
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Run a test, with its fixtures, when it is its turn; two that nobody may disturb have one turn."""
    turns = item.config.stash.get(TURNS, None)
    if turns is None:
        return (yield)
    turns.begin(alone=_is_undisturbed(item))
    try:
        return (yield)
    finally:
        if nextitem is None or not (_is_undisturbed(item) and _is_undisturbed(nextitem)):
            turns.end()


def _is_undisturbed(item: pytest.Item) -> bool:
    return item.get_closest_marker("undisturbed") is not None
