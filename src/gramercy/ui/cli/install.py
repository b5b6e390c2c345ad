"""`gramercy install`: add this server to an MCP client, by showing the entry or by writing it.

An entry is tested before it is written: its command is started as the client would, and lists its tools.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import click

from gramercy.errors import ClientSettingsError
from gramercy.ui.cli.asking import is_confirmed, why_nobody
from gramercy.ui.cli.files import make_private, read_settings, write_settings
from gramercy.ui.cli.main import CONFIGURATION
from gramercy.ui.cli.options import (
    LEVELS,
    add_environment_options,
    approval_options,
    given_words,
    json_option,
    mode_option,
    timeout_limit_option,
    timeout_option,
)
from gramercy.ui.cli.terminal import json_text, tell, visible
from gramercy.ui.clients.base import Client, Machine, Token, is_fleeting, own_command, uvx_command
from gramercy.ui.clients.known import CLIENTS, GENERIC

if TYPE_CHECKING:
    from collections.abc import Callable

# All clients accept this, and it is short enough to become part of their tool names.
NAME = re.compile(r"[A-Za-z0-9_-]{1,32}\Z")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# Characters that a header may hold. The server makes tokens of letters, digits, - and _.
TOKEN = re.compile(r"[!-~]+\Z")
# Both spellings of the option that lets evaluated code only read.
_READING = (("--files", "read"), ("--files", "read-only"))
# Stands for the hidden token.
HIDDEN = "<the token>"


@dataclass(frozen=True, slots=True)
class Remote:
    """A running server: its address, and the token for it."""

    url: str
    token: Token | None

    def has_secret(self, client: Client) -> bool:
        """Tell whether the token itself must be in the client's file."""
        words = client.words
        return self.token is not None and words.reference is None and words.token_key is None


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person asked for."""

    client: Client
    scope: str
    name: str
    images: tuple[str, ...]
    project: str | None
    max_safety: str | None
    policy: str | None
    mode: str | None
    uvx: bool
    further: list[str]
    remote: Remote | None
    checks: bool

    @property
    def is_shared(self) -> bool:
        """Tell whether the file is meant to be the same on every machine."""
        return self.uvx and self.scope == "project"

    @property
    def is_secret(self) -> bool:
        """Tell whether the file will hold a token."""
        return self.remote is not None and self.remote.has_secret(self.client)

    def file(self, machine: Machine) -> Path | None:
        """Find the file of the client."""
        if self.scope == "user":
            return self.client.place(machine)
        if self.client.project_file is None:
            raise click.UsageError(f"{self.client.title} has no settings for one project: use --scope user")
        if self.is_secret:
            raise click.UsageError(
                f"{self.client.title} cannot take a token from a variable, and the file of a project is "
                "for everybody who has it: use --scope user"
            )
        from gramercy.images.project import project_directory

        return self.client.place(machine, project_directory(self.project or "."))

    def entry(self) -> dict[str, Any]:
        """Return the settings that start the server, or its address."""
        if self.remote is not None:
            return self.client.remote_entry(self.remote.url, self.remote.token)
        return self.client.entry(self.command())

    def command(self) -> list[str]:
        """Return the words that start the server."""
        command = uvx_command(is_shared=self.is_shared) if self.uvx else own_command()
        place = self._place()
        words = [*command, "serve"]
        words += [word for image in self.images for word in ("--image", image)]
        words += ["--project", place] if place else []
        words += ["--max-safety", self.max_safety] if self.max_safety else []
        words += ["--policy", self._rules(self.policy)] if self.policy else []
        words += ["--mode", self.mode] if self.mode else []
        return words + self.further

    def _rules(self, policy: str) -> str:
        """Return the absolute path of the policy file: a client starts servers in any directory."""
        file = Path(policy).resolve()
        if not self.is_shared:
            return str(file)
        project = Path(self.project or ".").resolve()
        if not file.is_relative_to(project):
            raise click.UsageError(
                "the settings of a project are for everybody who has it: keep the policy in it too, or use "
                "--scope user"
            )
        return str(Path(self.client.workspace or ".", file.relative_to(project)))

    def _place(self) -> str:
        """Return the project as the client should name it. Empty where the client starts servers in it."""
        workspace = self.client.workspace
        if self.is_shared and workspace is not None:
            return workspace
        if self.project is not None or self.scope == "project":
            return _checked(self.project or ".")
        if workspace is None:
            raise click.UsageError(
                f"{self.client.title} does not tell which project is open: "
                "say where the server works with --project DIR"
            )
        return workspace


def _name(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not NAME.match(value):
        raise click.BadParameter("expected 1 to 32 letters, digits, - and _", context, parameter)
    return value


def _variable(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not VARIABLE.match(value):
        raise click.BadParameter("expected the name of an environment variable", context, parameter)
    return value


def _address(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Read the address of a server; `gramercy serve --http` tells one."""
    if value is None:
        return None
    wrong = click.BadParameter("expected something like http://127.0.0.1:8000/mcp", context, parameter)
    try:
        parts = urlsplit(value)
        is_whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        raise wrong from None
    if not is_whole or not TOKEN.match(value):
        raise wrong
    if parts.username is not None:
        raise click.BadParameter("no name or password in it: see --token-file", context, parameter)
    return value if parts.path.strip("/") else f"{value.rstrip('/')}/mcp"


def _server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how the server is started."""
    for option in (
        click.option(
            "--uvx", is_flag=True, help="Start the published gramercy with uvx, not the one that runs now."
        ),
        click.option("--max-safety", type=LEVELS, help="Only tools at or below this level."),
        click.option(
            "--policy",
            type=click.Path(exists=True, dir_okay=False),
            metavar="FILE",
            help="Rules that say which calls run unasked, are asked about, or never run.",
        ),
        click.option(
            "--project",
            type=click.Path(exists=True, file_okay=False),
            metavar="DIR",
            help="The directory images work in; by default the project that is open in the client.",
        ),
        click.option(
            "--image",
            "images",
            multiple=True,
            metavar="LANGUAGE|NAME=LANGUAGE",
            help="A live image of sbcl or python; may be given several times.",
        ),
    ):
        command = option(command)
    return command


def _remote_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the address of a running server."""
    for option in (
        click.option("--no-auth", is_flag=True, help="Over HTTP: the server asks for no token."),
        click.option(
            "--token-file",
            type=click.Path(exists=True, dir_okay=False),
            help="Over HTTP: the file with the token, for clients that must have it in their settings.",
        ),
        click.option(
            "--token-variable",
            default="GRAMERCY_TOKEN",
            show_default=True,
            callback=_variable,
            help="Over HTTP: the variable of the environment in which the client finds the token.",
        ),
        click.option(
            "--http",
            callback=_address,
            metavar="URL",
            help="Reach a server that runs, such as one started with `gramercy serve --http`.",
        ),
    ):
        command = option(command)
    return command


@click.command()
@click.option("--client", required=True, type=click.Choice([*CLIENTS, GENERIC.name]), help="Which client.")
@click.option(
    "--scope",
    type=click.Choice(["user", "project"]),
    default="user",
    show_default=True,
    help="The client's settings for you, or those in the project directory.",
)
@click.option("--write", is_flag=True, help="Change the file, and keep it as it was in FILE.gramercy.bak.")
@click.option("--remove", is_flag=True, help="Take the server out again.")
@click.option(
    "--no-check",
    "checks",
    flag_value=False,
    default=True,
    type=bool,
    help="Write it untried: do not start the command, ask the address or the package index.",
)
@click.option(
    "--name", default="gramercy", show_default=True, callback=_name, help="What the client calls the server."
)
@_server_options
@mode_option
@_remote_options
@add_environment_options
@approval_options
@timeout_option
@timeout_limit_option
@json_option("Print what was found or done as JSON.")
def install(*, client: str, write: bool, remove: bool, as_json: bool, **options: Any) -> None:
    """Show what an MCP client needs to use this server, or write it into the client's settings."""
    known = {**CLIENTS, GENERIC.name: GENERIC}[client]
    remote = _remote(known, options, reads_token=write and not remove)
    if is_fleeting() and remote is None:
        options["uvx"] = True
    if write and not remove and remote is None and options["mode"] is None:
        options["mode"] = _offered_mode(known)
    wish = Wish(known, further=given_words(options), remote=remote, **options)
    _check_images(wish.images)
    path = wish.file(Machine(sys.platform, Path.home(), os.environ))
    try:
        if remove:
            outcome = _remove(wish, _existing(wish, path), write=write)
        elif write:
            outcome = _write(wish, _existing(wish, path))
        else:
            outcome = _shown(wish, path)
    except ClientSettingsError as error:
        if as_json:
            raise ClientSettingsError(f"{path}: {error}; nothing was written") from None
        tell(f"Error: {path}: {error}\nNothing was written.")
        click.get_current_context().exit(CONFIGURATION)
    if as_json:
        click.echo(json_text(_report(wish, path, outcome)))
    else:
        click.echo(visible(outcome.said), nl=False)
    for line in outcome.told:
        tell(line)
    if outcome.is_written:
        _make_ready(wish)


def _offered_mode(client: Client) -> str | None:
    """Ask the person at this terminal who approves edits, where the client cannot show our questions."""
    if not client.is_mute or why_nobody():
        return None
    tell(f"{client.title} cannot show gramercy's questions, only its own before it calls a tool.")
    return "edits" if is_confirmed("let edits that undo_last takes back run after that alone?") else "ask"


class Outcome(NamedTuple):
    """The messages and the effects of a command. `told` is shown beside the result."""

    said: str
    told: tuple[str, ...] = ()
    is_changed: bool = False
    backup: Path | None = None
    is_written: bool = False


def _report(wish: Wish, path: Path | None, outcome: Outcome) -> dict[str, Any]:
    """Return the stable shape of --json, without a token."""
    return {
        "client": wish.client.name,
        "scope": wish.scope,
        "name": wish.name,
        "file": None if path is None else str(path),
        "entry": None if wish.is_secret and outcome.is_written else wish.entry(),
        "changed": outcome.is_changed,
        "backup": None if outcome.backup is None else str(outcome.backup),
        "text": outcome.said,
    }


def _existing(wish: Wish, path: Path | None) -> Path:
    if path is None:
        raise click.UsageError(f"the file of {wish.client.title} is not known: run this without --write")
    return path


# Options that say how a server is started. They have no meaning for a running server.
_OF_A_COMMAND = ("images", "project", "max_safety", "policy", "mode", "uvx")


def _remote(client: Client, options: dict[str, Any], *, reads_token: bool) -> Remote | None:
    """Take the options about HTTP out of the options."""
    url, variable = options.pop("http"), options.pop("token_variable")
    file, no_auth = options.pop("token_file"), options.pop("no_auth")
    if url is None:
        if file or no_auth:
            raise click.UsageError("--token-file and --no-auth are about HTTP: add --http URL")
        return None
    scoped = {"project"} if options["scope"] == "project" else set()
    given = [name for name in _OF_A_COMMAND if options[name] and name not in scoped]
    if given:
        option = {"images": "image"}.get(given[0], given[0]).replace("_", "-")
        raise click.UsageError(f"--{option} is about starting a server: give it to `gramercy serve --http`")
    if client.words.http is None:
        raise click.UsageError(
            f"the settings of {client.title} name no addresses: leave --http out, or add it in its window"
        )
    remote = Remote(url, None if no_auth else Token(variable))
    if not remote.has_secret(client):
        return remote
    return Remote(url, Token(variable, _secret(client, file, variable) if reads_token else HIDDEN))


def _secret(client: Client, file: str | None, variable: str) -> str:
    """Read the token that has to be in the client's file."""
    try:
        token = Path(file).read_text("utf-8").strip() if file else os.environ.get(variable, "")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{file} cannot be read: {error}") from None
    if not token:
        raise click.UsageError(
            f"{client.title} cannot take a token from a variable, so it must be in the file: give it with "
            f"--token-file FILE or in {variable}, or say --no-auth"
        )
    if not TOKEN.match(token):
        raise click.UsageError("the token has characters that no header can hold")
    return token


def _shown(wish: Wish, path: Path | None) -> Outcome:
    snippet = wish.client.format.snippet(wish.name, wish.entry())
    _check_published(wish)
    can_write = path is not None and path.suffix != ".yaml"
    place = path or f"the settings of {wish.client.title}"
    tell(f"Add this to {place}{', or run this again with --write' if can_write else ''}:")
    return Outcome(snippet, (*_about_token(wish), *_about_mode(wish), wish.client.advice))


def _write(wish: Wish, path: Path) -> Outcome:
    _check_text(entry := wish.entry())
    old = read_settings(path)
    new = wish.client.format.put(old or "", wish.name, entry)
    _check_works(wish)
    if new == old:
        if wish.is_secret:
            make_private(path)
        said = f"{path} has it already; nothing was changed\n"
        return Outcome(said, _about_token(wish), is_written=True)
    done = _replaced(path, old, new, is_private=wish.is_secret)
    told = (*_about_token(wish), *_about_mode(wish), wish.client.advice)
    return done._replace(told=told, is_written=True)


def _about_mode(wish: Wish) -> tuple[str, ...]:
    """Describe who approves what. The person should know it before a model uses the server."""
    if wish.remote is not None:
        return ()
    from gramercy.workbench.modes import about_evaluation

    reads_only = any(pair in pairwise(wish.further) for pair in _READING)
    evaluated = "" if wish.max_safety == "safe" else about_evaluation(wish.mode, reads_only=reads_only)
    return tuple(filter(None, (wish.client.about_questions(wish.mode), evaluated)))


def _about_token(wish: Wish) -> tuple[str, ...]:
    if wish.remote is None or wish.remote.token is None:
        return ()
    if wish.is_secret:
        return ("warning: the token is in this file, which only you may read; nobody else should get it",)
    return (f"The client takes the token from the variable {wish.remote.token.variable}: set it there.",)


def _remove(wish: Wish, path: Path, *, write: bool) -> Outcome:
    old = read_settings(path)
    there = None if old is None else wish.client.format.get(old, wish.name)
    if old is None or there is None:
        return Outcome(f"{path} has no server {wish.name}; nothing was changed\n")
    if write:
        return _replaced(path, old, wish.client.format.drop(old, wish.name))
    return Outcome(f"{path} has the server {wish.name}; --write takes it out\n")


def _replaced(path: Path, old: str | None, new: str, *, is_private: bool = False) -> Outcome:
    backup = write_settings(path, old, new, is_private=is_private)
    kept = f"{backup} is what it was before\n" if backup is not None else ""
    return Outcome(f"{path} is written\n{kept}", is_changed=True, backup=backup)


def _check_works(wish: Wish) -> None:
    """Refuse an entry that would not start. A client would only show that it failed."""
    if not wish.checks:
        return
    from gramercy.ui.doctor.entries import reach, start

    if wish.remote is None:
        _check_published(wish)
        fault = start(wish.command()).fault
    else:
        token = wish.remote.token
        secret = None if token is None else token.value or os.environ.get(token.variable)
        fault = reach(wish.remote.url, secret).fault
        if token is not None and secret is None and fault is not None and "without a token" in fault:
            return  # It runs, and wants a token that only the client will have.
    if fault is not None:
        raise ClientSettingsError(f"it would not work: {fault}; --no-check writes it all the same")


def _check_published(wish: Wish) -> None:
    if not (wish.checks and wish.uvx):
        return
    from gramercy.ui.doctor.entries import why_unpublished

    reason = why_unpublished()
    if reason is not None:
        raise ClientSettingsError(f"uvx could not start it: {reason}; --no-check skips this question")


def _make_ready(wish: Wish) -> None:
    """Build the core now, so that the first call of an SBCL image need not wait. It reports a failure."""
    from gramercy.images.project import default_language
    from gramercy.workbench.values import read_image_names

    # uvx may fetch another version, which has its own core.
    if wish.uvx or wish.remote is not None:
        return
    languages = (
        read_image_names(wish.images).values() if wish.images else [default_language(wish.project or ".")]
    )
    if "sbcl" not in languages:
        return
    from gramercy.errors import ImageError
    from gramercy.images.sbcl import shared_core

    try:
        shared_core()
    except ImageError as error:
        tell(f"the server is installed, but an SBCL image will not start: {error}")


def _checked(project: str) -> str:
    """Refuse a project now that the server would refuse at every start."""
    from gramercy.images.project import check_project

    return str(check_project(project))


def _check_images(images: tuple[str, ...]) -> None:
    if images:
        from gramercy.workbench.values import read_image_names

        read_image_names(images)


def _check_text(entry: dict[str, Any]) -> None:
    for word in _strings(entry):
        if any("\ud800" <= sign <= "\udfff" for sign in word):
            raise ClientSettingsError(
                f"{word!a} is not UTF-8, so no settings can name it: choose another path"
            )


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [word for each in inside for word in _strings(each)]
