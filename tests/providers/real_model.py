"""The small model itself, fetched once for all tests of this checkout."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import sys
from pathlib import Path

import pytest

from gramercy.errors import ModelUnavailableError
from gramercy.providers.fetching import fetch_model
from gramercy.providers.model_files import SMALL

# Beside what scripts/setup installs, and thrown away with it.
DATA = Path(sys.prefix) / "share" / "gramercy-tests"


@pytest.fixture(scope="session")
def real_model() -> Path:
    """Return the file of the small model; tests are skipped with the reason where it cannot be had."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed: scripts/setup dev")
    before = os.environ.get("XDG_DATA_HOME")
    os.environ["XDG_DATA_HOME"] = str(DATA)
    DATA.mkdir(parents=True, exist_ok=True)
    # Several workers come here at once: the first one fetches, the others wait.
    with (DATA / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            path = fetch_model(SMALL)
        except ModelUnavailableError as error:
            pytest.skip(f"the small model cannot be had here: {error}")
        finally:
            if before is None:
                del os.environ["XDG_DATA_HOME"]
            else:
                os.environ["XDG_DATA_HOME"] = before
    return path
