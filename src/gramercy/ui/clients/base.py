"""What a client is to us: settings in certain places, in a format that changes without losing anything.

Also by which command it starts this gramercy. Knows no client, no format and no command line.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gramercy.errors import ClientSettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Keys of servers that are reached over HTTP, in the words of one client or another.
ADDRESSES = ("url", "httpUrl", "serverUrl")
# Where uv keeps the environments of `uvx`, which it may remove at any time.
_FLEETING = ("archive-v", "environments-v")


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a person's files are."""

    platform: str
    home: Path
    environ: Mapping[str, str]

    def directory(self, variable: str, default: Path) -> Path:
        """Return the directory that a variable of the environment names, or the default."""
        named = self.environ.get(variable)
        return Path(named) if named else default

    def settings(self) -> Path:
        """Return the directory in which programs with windows keep their settings."""
        if self.platform == "win32":
            return self.directory("APPDATA", self.home / "AppData" / "Roaming")
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        return self.directory("XDG_CONFIG_HOME", self.home / ".config")


class Format(Protocol):
    """A way to write settings. Every change keeps what it is not about, to the letter."""

    def snippet(self, name: str, entry: dict[str, Any]) -> str:
        """Write a file that has this server and nothing else."""
        ...

    def get(self, text: str, name: str) -> Any:
        """Return the entry of a server, or None."""
        ...

    def put(self, text: str, name: str, entry: dict[str, Any]) -> str:
        """Add a server, or set the keys of the entry in the one that is there."""
        ...

    def drop(self, text: str, name: str) -> str:
        """Take a server out."""
        ...


@dataclass(frozen=True, slots=True)
class Client:
    """One client.

    `workspace` is what its settings call the project that is open: empty where servers are started in it,
    None where there is none. `extra` are keys which the client wants beside command and arguments.
    """

    name: str
    title: str
    format: Format
    user_file: Callable[[Machine], Path]
    advice: str
    project_file: str | None = None
    workspace: str | None = ""
    extra: tuple[tuple[str, str], ...] = ()

    def entry(self, command: list[str]) -> dict[str, Any]:
        """Say in the client's words how the server is started."""
        return {**dict(self.extra), "command": command[0], "args": command[1:]}


def check_entry(name: str, entry: object) -> None:
    """Leave alone what is no server on stdio: it would become one with two ways to reach it."""
    if entry is not None and not isinstance(entry, dict):
        raise ClientSettingsError(f"{name} is there already, but is not a server: take it out by hand")
    taken = [key for key in ADDRESSES if entry is not None and key in entry]
    if taken:
        raise ClientSettingsError(
            f"{name} is there already, as a server that is reached by its {taken[0]}: "
            "take it out with --remove, or choose another --name"
        )


def own_command() -> list[str]:
    """Return the command that starts this gramercy, with absolute paths."""
    script = Path(sys.argv[0])
    if script.stem == "gramercy" and script.is_file() and os.access(script, os.X_OK):
        return [str(script.absolute())]
    return [sys.executable, "-m", "gramercy"]


def uvx_command(*, is_shared: bool) -> list[str]:
    """Return the command that lets uv fetch gramercy; in a file for others the name alone, else the path."""
    return ["uvx" if is_shared else shutil.which("uvx") or "uvx", "gramercy"]


def is_fleeting() -> bool:
    """Tell whether this gramercy may be gone tomorrow."""
    return any(part.startswith(_FLEETING) for part in Path(sys.prefix).parts)
