"""The small model itself, fetched once for all tests of this checkout."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gramercy.errors import ModelUnavailableError
from gramercy.providers.fetching import fetch_model
from gramercy.providers.model_files import SMALL

if TYPE_CHECKING:
    from collections.abc import Iterator

# Beside what scripts/setup installs, and thrown away with it.
DATA = Path(sys.prefix) / "share" / "gramercy-tests"


def have_model() -> Path:
    """Return the file of the small model; the test is skipped with the reason where it cannot be had."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed: scripts/setup dev")
    DATA.mkdir(parents=True, exist_ok=True)
    # Several workers come here at once: the first one fetches, the others wait.
    with (DATA / "lock").open("w") as lock, _data_home(DATA):
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return fetch_model(SMALL)
        except ModelUnavailableError as error:
            pytest.skip(f"the small model cannot be had here: {error}")


@contextmanager
def _data_home(directory: Path) -> Iterator[None]:
    before = os.environ.get("XDG_DATA_HOME")
    os.environ["XDG_DATA_HOME"] = str(directory)
    try:
        yield
    finally:
        if before is None:
            del os.environ["XDG_DATA_HOME"]
        else:
            os.environ["XDG_DATA_HOME"] = before


@pytest.fixture(scope="session")
def real_model() -> Path:
    """Return the file of the small model."""
    return have_model()
