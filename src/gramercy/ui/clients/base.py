"""The model of a client: settings in known places, in a format that can be changed without loss.

It also holds the command that starts this gramercy. It knows no client, format or command line.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from gramercy.directories import config_home
from gramercy.errors import ClientSettingsError
from gramercy.images.programs import find_program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeGuard

# Keys for the address of a server over HTTP, in the words of the different clients.
ADDRESSES = ("url", "httpUrl", "serverUrl", "uri")
# Directories where uv keeps the environments of `uvx`. It may remove them at any time.
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
        return config_home(self.environ, self.home)


class Format(Protocol):
    """A format of settings. Every change keeps all other text unchanged."""

    def snippet(self, name: str, entry: dict[str, Any]) -> str:
        """Write a file that has this server and nothing else."""
        ...

    def servers(self, text: str) -> dict[str, Any]:
        """Return the entries of all servers by their names."""
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


class Words(NamedTuple):
    """The words in which a client's settings say how a server is reached.

    `stdio` and `http` are keys beside the command and beside the address; without `http` the settings cannot
    name an address. `reference` is how a header names a variable of the environment, `{}` being its name;
    without it the token itself must be in the file. Some have a key for the variable of a token, or for the
    variables that headers may name.
    """

    stdio: Mapping[str, Any] = MappingProxyType({})
    http: Mapping[str, Any] | None = MappingProxyType({})
    command: str = "command"
    arguments: str | None = "args"
    address: str = "url"
    reference: str | None = "${{{}}}"
    token_key: str | None = None
    variables_key: str | None = None


COMMON = Words()


class Token(NamedTuple):
    """The token of a server over HTTP: the variable that holds it, and its value where that is read."""

    variable: str
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Client:
    """One client.

    `workspace` is the name that its settings have for the open project: empty where servers are started in
    it, None where there is no such name. With `also_jsonc` the same file may exist with that suffix.
    `is_mute` means that it was seen not to show the questions of servers. `own_question` describes its own
    question about calls.
    """

    name: str
    title: str
    format: Format
    user_file: Callable[[Machine], Path] | None
    advice: str
    project_file: str | None = None
    workspace: str | None = ""
    words: Words = COMMON
    also_jsonc: bool = False
    is_mute: bool = False
    own_question: str = ""

    def about_questions(self, mode: str | None) -> str:
        """Describe who approves edits, where the person cannot see it in the client. Empty otherwise."""
        if mode == "edits":
            own = f"; {self.own_question}" if self.own_question else ""
            return (
                "Edits of files run without a question of gramercy's, and undo_last takes them back: what "
                f"{self.title} asks before a call is your approval{own}. Control files and other dangerous "
                "calls still ask."
            )
        if not self.is_mute or mode is not None:
            return ""
        return (
            f"{self.title} cannot show gramercy's questions: edits wait until you type `gramercy approvals "
            "approve`. With --mode edits those run that undo_last takes back."
        )

    def place(self, machine: Machine, project: Path | None = None) -> Path | None:
        """Return the settings file for a person, or that of a project. None where the client has none."""
        if project is None:
            path = self.user_file(machine) if self.user_file else None
        else:
            path = project / self.project_file if self.project_file else None
        if path is None or not self.also_jsonc or path.exists():
            return path
        other = path.with_suffix(".jsonc")
        return other if other.exists() else path

    def entry(self, command: list[str]) -> dict[str, Any]:
        """Return the entry that starts the server, in the client's words."""
        words = self.words
        if words.arguments is None:
            return {**words.stdio, words.command: command}
        return {**words.stdio, words.command: command[0], words.arguments: command[1:]}

    def remote_entry(self, url: str, token: Token | None) -> dict[str, Any]:
        """Return the entry with the server's address, in the client's words."""
        words = self.words
        entry = {**(words.http or {}), words.address: url}
        if token is None:
            return entry
        if words.token_key is not None:
            return {**entry, words.token_key: token.variable}
        secret = token.value or "" if words.reference is None else words.reference.format(token.variable)
        allowed = {words.variables_key: [token.variable]} if words.variables_key else {}
        return {**entry, **allowed, "headers": {"Authorization": f"Bearer {secret}"}}

    def command_of(self, entry: Mapping[str, Any]) -> list[str]:
        """Return the command of an entry. Raise an error where it is malformed."""
        words, command = self.words, entry.get(self.words.command)
        if words.arguments is None:
            if not _are_words(command) or not command:
                raise ClientSettingsError(f"{words.command} must be a list of words, the program first")
            return list(command)
        arguments = entry.get(words.arguments, [])
        if not isinstance(command, str) or not command:
            raise ClientSettingsError(f"{words.command} must be the path of a program")
        if not _are_words(arguments):
            raise ClientSettingsError(f"{words.arguments} must be a list of words")
        return [command, *arguments]


def _are_words(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def address_of(entry: Mapping[str, Any]) -> str | None:
    """Return the address of a server, under any of the known keys. None where it is started by a command."""
    return next((str(entry[key]) for key in ADDRESSES if key in entry), None)


def check_entry(name: str, entry: object, wanted: Mapping[str, Any]) -> None:
    """Refuse to change an entry between command and address: it would then have two ways to reach it."""
    if entry is None:
        return
    if not isinstance(entry, dict):
        raise ClientSettingsError(f"{name} is there already, but is not a server: take it out by hand")
    taken = [key for key in ADDRESSES if key in entry]
    if bool(taken) != bool(address_of(wanted)) and (taken or entry.keys() & {"command", "cmd"}):
        way = f"is reached by its {taken[0]}" if taken else "is started by a command"
        raise ClientSettingsError(
            f"{name} is there already, as a server that {way}: "
            "take it out with --remove, or choose another --name"
        )


def merged(there: Mapping[str, Any] | None, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry with new keys. Other keys of the person, also in its headers, stay."""
    found = dict(there or {})
    for key, value in entry.items():
        old = found.get(key)
        found[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return found


def own_command() -> list[str]:
    """Return the command that starts this gramercy, with absolute paths."""
    script = Path(sys.argv[0])
    if script.stem == "gramercy" and script.is_file() and os.access(script, os.X_OK):
        return [str(script.absolute())]
    # -P: otherwise a directory named gramercy in the working directory would be run instead.
    return [sys.executable, "-P", "-m", "gramercy"]


def uvx_command(*, is_shared: bool) -> list[str]:
    """Return the command that lets uv fetch gramercy: the bare name in a shared file, else the path."""
    return ["uvx" if is_shared else find_program("uvx") or "uvx", "gramercy"]


def is_fleeting() -> bool:
    """Return whether this installation may be removed soon."""
    return any(part.startswith(_FLEETING) for part in Path(sys.prefix).parts)
