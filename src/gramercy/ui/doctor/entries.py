"""Check the entries of clients: first read them back, then try to start their servers.

Commands of a person's own files are started, as a client does it. The files of a project may come from
anybody, so nothing that they name is started, and no token is sent to their addresses. Entries of other
servers are left alone.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import click

from gramercy import __version__
from gramercy.errors import ClientSettingsError, HandshakeError
from gramercy.images.environment import Finding, Status
from gramercy.images.programs import find_program
from gramercy.text import reason_of
from gramercy.ui.cli.files import read_settings
from gramercy.ui.cli.main import cli
from gramercy.ui.clients.base import Client, Machine, address_of
from gramercy.ui.clients.json_settings import JsonText
from gramercy.ui.clients.known import CLIENTS, SECTIONS
from gramercy.ui.doctor.handshake import LEGACY, Conversation, hello, list_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

# To start a server and list its tools takes a third of a second; clients give it ten or more.
START_SECONDS = 15.0
# A server on this machine answers within milliseconds.
REACH_SECONDS = 5.0
# The package index is far away.
INDEX_SECONDS = 30.0
# The first line of a script: its interpreter.
_FIRST_LINE = 512
# Some clients replace this by the open folder.
OPEN_FOLDER = "${workspaceFolder}"
# No further command is started after this time, so that a doctor with many broken entries ends.
LATEST_SECONDS = 45.0
# A reference to a variable, in the words of the different clients.
_REFERENCE = re.compile(r"\$\{(?:env:)?(\w+)\}|\{env:(\w+)\}|\$(\w+)")


class Trial(NamedTuple):
    """The result of an attempt: an observation, and the problem."""

    seen: str
    fault: str | None = None


@dataclass(slots=True)
class Trials:
    """Attempts, each made once, however many clients name the same command or address."""

    latest: float
    _made: dict[tuple[str, ...], Trial] = field(default_factory=dict)

    def start(self, words: list[str]) -> Trial:
        """Start a server and list its tools."""
        return self._once(tuple(words), lambda: start(words))

    def reach(self, url: str, token: str | None) -> Trial:
        """Send a request to a running server."""
        return self._once((url, token or ""), lambda: reach(url, token))

    def _once(self, key: tuple[str, ...], attempt: Callable[[], Trial]) -> Trial:
        if key not in self._made:
            if monotonic() > self.latest:
                return Trial("not tried: the entries before took too long")
            self._made[key] = attempt()
        return self._made[key]


def examine_entries(machine: Machine, project: Path) -> Iterator[Finding]:
    """Check the entries in the settings of every client, for the person and for one project."""
    trials = Trials(monotonic() + LATEST_SECONDS)
    seen = set()
    for client in CLIENTS.values():
        for directory in (None, project):
            path = client.place(machine, directory)
            if path is None or path in seen:
                continue
            seen.add(path)
            yield from _file(client, path, trials, is_own=directory is None)


def _file(client: Client, path: Path, trials: Trials, *, is_own: bool) -> Iterator[Finding]:
    try:
        text = read_settings(path)
        # Most files do not mention gramercy, and some are large.
        if text is None or "gramercy" not in text.lower():
            return
        servers = client.format.servers(text)
    except ClientSettingsError as error:
        yield _unread(client, path, str(error).partition("\n")[0])
        return
    ours = {name: entry for name, entry in servers.items() if _is_ours(client, name, entry)}
    for name, entry in ours.items():
        visit = Visit(client, path, name, is_own=is_own)
        yield visit.examine(entry, trials)
    if not ours:
        yield from _misplaced(client, path, text)


def _unread(client: Client, path: Path, reason: str) -> Finding:
    if "not read here" in reason:
        return Finding(client.title, Status.WARNING, f"{path} names gramercy, but was not checked: {reason}")
    advice = f"mend it, or put {path.name}.gramercy.bak back if it is there"
    return Finding(client.title, Status.FAILED, f"{path}: {reason}; no server is started from it", advice)


def _misplaced(client: Client, path: Path, text: str) -> Iterator[Finding]:
    """Report an entry under a key that the client does not read. The clients differ most in that."""
    with suppress(ClientSettingsError):
        document = JsonText(text, frozenset({"comments", "commas"})).object()
        own = getattr(client.format, "section", "")
        for section in SECTIONS:
            servers = document.get(section)
            names = servers if section != own and isinstance(servers, dict) else {}
            for name in names:
                if _is_ours(client, name, names[name]):
                    yield Finding(
                        f"{client.title}: {name}",
                        Status.FAILED,
                        f"{path}: it is under {section}, but {client.title} reads {own}",
                        f"gramercy install --client {client.name} --write, and take the other out by hand",
                    )


def _is_ours(client: Client, name: str, entry: object) -> bool:
    if "gramercy" in name.lower():
        return True
    try:
        return isinstance(entry, dict) and _runs_gramercy(client.command_of(entry))
    except ClientSettingsError:
        return False


def _runs_gramercy(words: list[str]) -> bool:
    program = Path(words[0]).stem.lower()
    # Entries written now have -P, earlier ones do not.
    if program == "gramercy" or [word for word in words[1:4] if word != "-P"][:2] == ["-m", "gramercy"]:
        return True
    return program in ("uvx", "uv") and any(re.match(r"gramercy\b(?!/)", word) for word in words[1:])


@dataclass(frozen=True, slots=True)
class Visit:
    """One entry in one file."""

    client: Client
    path: Path
    name: str
    is_own: bool

    def examine(self, entry: object, trials: Trials) -> Finding:
        """Return whether the entry would work."""
        if not isinstance(entry, dict):
            return self._fault("it is not a server")
        if entry.get("disabled") is True or entry.get("enabled") is False:
            return self._finding(Status.OK, "it is turned off")
        url = address_of(entry)
        if url is not None:
            return self._reach(entry, url, trials)
        try:
            return self._start(self.client.command_of(entry), trials)
        except ClientSettingsError as error:
            return self._fault(str(error))

    def _start(self, words: list[str], trials: Trials) -> Finding:
        fault = why_no_program(words) or (None if self.is_own else _unknown_arguments(words))
        if fault is not None:
            return self._fault(fault)
        if not _runs_gramercy(words):
            return self._finding(Status.WARNING, f"not tried: {words[0]} may be another program")
        lost = _lost_project(words)
        if lost is not None:
            return self._finding(Status.WARNING, f"its project {lost} is gone: it works in an empty one")
        if not self.is_own:
            return self._finding(Status.OK, "its command is there; what a project names is not started here")
        return self._result(trials.start(words))

    def _reach(self, entry: Mapping[str, Any], url: str, trials: Trials) -> Finding:
        if self.client.words.http is None:
            return self._fault(f"{self.client.title} starts servers, but this has an address")
        key, token = self.client.words.address, _token(self.client, entry)
        if key not in entry:
            return self._fault(f"its address must be called {key}")
        result = trials.reach(url, token.value if self.is_own else None)
        if token.missing and result.fault is not None:
            return self._finding(Status.WARNING, f"{result.fault}; {token.missing} is not set in this shell")
        return self._result(result)

    def _result(self, trial: Trial) -> Finding:
        return self._fault(trial.fault) if trial.fault else self._finding(Status.OK, trial.seen)

    def _fault(self, fault: str) -> Finding:
        scope = "" if self.is_own else " --scope project"
        name = "" if self.name == "gramercy" else f" --name {self.name}"
        advice = f"gramercy install --client {self.client.name}{scope}{name} --write, or --remove --write"
        if " " in self.name:
            advice = "what the client has added for one directory it also takes out, or you by hand"
        return self._finding(Status.FAILED, fault, advice)

    def _finding(self, status: Status, detail: str, advice: str = "") -> Finding:
        return Finding(f"{self.client.title}: {self.name}", status, f"{self.path}: {detail}", advice)


class Secret(NamedTuple):
    """The token of an entry, and the variable that should hold it but does not."""

    value: str | None
    missing: str | None = None


def _token(client: Client, entry: Mapping[str, Any]) -> Secret:
    headers = entry.get("headers")
    header = headers.get("Authorization") if isinstance(headers, dict) else None
    variable = entry.get(client.words.token_key or "")
    if isinstance(header, str):
        header = header.removeprefix("Bearer ")
        match = _REFERENCE.fullmatch(header)
        variable = next(filter(None, match.groups())) if match else None
    if not isinstance(variable, str):
        return Secret(header if isinstance(header, str) else None)
    value = os.environ.get(variable)
    return Secret(value, None if value else variable)


def why_no_program(words: list[str]) -> str | None:
    """Return the problem with the program of a command, without starting it."""
    program = Path(words[0])
    if not program.is_absolute():
        # As a client does: it starts the program that it finds, also in the project.
        found = shutil.which(words[0])
        if found is None:
            return f"there is no {words[0]} on the PATH of this shell"
        program = Path(found)
    if not program.exists():
        return f"{program} is gone: its environment was moved or removed"
    if program.is_dir() or not os.access(program, os.X_OK):
        return f"{program} is no program"
    interpreter = _interpreter(program)
    if interpreter is not None and not interpreter.exists():
        return f"{program} needs {interpreter}, which is gone: its environment was moved or rebuilt"
    return None


def _interpreter(program: Path) -> Path | None:
    """Return the interpreter that a script names."""
    try:
        with program.open("rb") as stream:
            line = stream.read(_FIRST_LINE).partition(b"\n")[0]
    except OSError:
        return None
    words = line[2:].split() if line.startswith(b"#!") else []
    return Path(os.fsdecode(words[0])) if words else None


def _unknown_arguments(words: list[str]) -> str | None:
    """Return the arguments that this gramercy does not know. Its own parser is asked, and nothing is run."""
    serve = cli.get_command(click.Context(cli), "serve")
    if serve is None or not _runs_gramercy(words) or "serve" not in words:
        return None
    try:
        serve.make_parser(click.Context(serve)).parse_args(words[words.index("serve") + 1 :])
    except click.UsageError as error:
        return f"gramercy {__version__} does not take its arguments: {error.format_message()}"
    return None


def _lost_project(words: list[str]) -> str | None:
    for option, value in itertools.pairwise(words):
        if option == "--project" and value != OPEN_FOLDER and not Path(value).is_dir():
            return value
    return None


def start(words: list[str]) -> Trial:
    """Start a server in an empty directory, as a client would, and list its tools."""
    fault = why_no_program(words)
    if fault is not None:
        return Trial("", fault)
    with tempfile.TemporaryDirectory(prefix="gramercy-doctor-") as place:
        command = [place if word == OPEN_FOLDER else word for word in words]
        began = perf_counter()
        try:
            conversation = Conversation(command, place, START_SECONDS)
        except OSError as error:
            return Trial("", f"{words[0]} cannot be started: {reason_of(error)}")
        fault, count = None, 0
        try:
            count = len(list_tools(conversation, LEGACY)[0])
        except (HandshakeError, KeyError, TypeError) as error:
            fault = str(error)
        spent = (perf_counter() - began) * 1000
        said = conversation.close()
    if fault is not None:
        return Trial("", f"{fault}; it said: {said}" if said else fault)
    return Trial(f"starts, with {count} tools, within {spent:.0f} ms")


def reach(url: str, token: str | None) -> Trial:
    """Send the first message to a running server."""
    shown = urlsplit(url)._replace(query="", fragment="").geturl().rpartition("@")[2]
    try:
        status, said = _post(url, token)
    except (OSError, ValueError) as error:
        why = f"nothing answers at {shown} ({reason_of(error)})"
        return Trial("", f"{why}: is `gramercy serve --http` running?")
    if status == 200:  # noqa: PLR2004 - the one status of an answer
        return Trial(f"{shown} answers")
    if status in (401, 403):
        return Trial("", f"{shown} refuses {'this' if token else 'a call without a'} token (HTTP {status})")
    return Trial(
        "", f"{shown} is no MCP server (HTTP {status}{': ' + said if said else ''}); gramercy is at /mcp"
    )


def _post(url: str, token: str | None) -> tuple[int, str]:
    # Imported only here: the import takes as long as a whole command that shows an entry.
    import http.client

    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=REACH_SECONDS)
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("POST", target, body=hello(), headers=headers)
        response = connection.getresponse()
        status = response.status
        said = "" if status == 200 else response.read(200).decode("utf-8", "replace")  # noqa: PLR2004
    except http.client.HTTPException as error:
        raise ValueError(str(error) or type(error).__name__) from None
    finally:
        connection.close()
    return status, " ".join(said.split())


def why_unpublished() -> str | None:
    """Return why uvx could not fetch this version or a later one.

    uv is asked, with its configured indexes. Nothing is built or run: a package of this name on an index may
    not be ours.
    """
    uv = find_program("uv")
    if uv is None or find_program("uvx") is None:
        return "uv is not installed here, so nothing can be asked"
    question = ["pip", "compile", "--quiet", "--no-deps", "--no-build", "--no-header", "-"]
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            [uv, *question],
            input=f"gramercy>={__version__}\n",
            capture_output=True,
            text=True,
            timeout=INDEX_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the package index did not answer within {INDEX_SECONDS:.0f} s"
    except OSError as error:
        return f"{uv} cannot be started: {reason_of(error)}"
    if done.returncode == 0:
        return None
    said = " ".join(done.stderr.split())[-300:]
    return f"no gramercy {__version__} or later is on the package index ({said or 'uv did not say more'})"
