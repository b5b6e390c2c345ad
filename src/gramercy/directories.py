"""The user's directories, as the XDG base directory specification finds them.

A relative value of a variable is ignored, as the specification says: it would mean another directory in every
project. The environment and the home can be given, for programs that have others than this process.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def _home(
    variable: str, default: str, environ: Mapping[str, str] | None = None, home: Path | None = None
) -> Path:
    environ = os.environ if environ is None else environ
    # Path.home() raises RuntimeError where neither HOME nor the list of users has one.
    return _absolute(environ.get(variable, "")) or Path(
        home or _absolute(environ.get("HOME", "")) or Path.home(), default
    )


def _search(variable: str, default: str, environ: Mapping[str, str] | None = None) -> list[Path]:
    words = ((os.environ if environ is None else environ).get(variable) or default).split(":")
    return [path for path in map(_absolute, words) if path is not None]


def _absolute(word: str) -> Path | None:
    return Path(word) if word.startswith("/") else None


# What the user has set; what programs remember, such as journals; what can be made again; what is of value.
config_home = partial(_home, "XDG_CONFIG_HOME", ".config")
state_home = partial(_home, "XDG_STATE_HOME", ".local/state")
cache_home = partial(_home, "XDG_CACHE_HOME", ".cache")
data_home = partial(_home, "XDG_DATA_HOME", ".local/share")
# Those of the machine, in their order of preference.
config_directories = partial(_search, "XDG_CONFIG_DIRS", "/etc/xdg")
data_directories = partial(_search, "XDG_DATA_DIRS", "/usr/local/share:/usr/share")


def runtime_directory(environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the directory of the user's session; it has no default, so None where it is not set."""
    return _absolute((os.environ if environ is None else environ).get("XDG_RUNTIME_DIR", ""))
