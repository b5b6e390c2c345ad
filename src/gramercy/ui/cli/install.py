"""`gramercy install`: tell an MCP client of this server, by showing what to add or by adding it.

First the clients that are known: where their settings are, in what words, and what to do after a change.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gramercy.errors import ClientSettingsError
from gramercy.ui.cli.files import read_settings, write_settings
from gramercy.ui.cli.main import CONFIGURATION
from gramercy.ui.cli.options import LEVELS, add_environment_options, given_words, timeout_option
from gramercy.ui.cli.terminal import tell, visible
from gramercy.ui.clients.base import Client, Machine, is_fleeting, own_command, uvx_command
from gramercy.ui.clients.json_settings import JsonSettings
from gramercy.ui.clients.toml_settings import TomlSettings

if TYPE_CHECKING:
    from collections.abc import Callable

_STDIO = (("type", "stdio"),)
_OPEN_FOLDER = "${workspaceFolder}"


def _claude_code(machine: Machine) -> Path:
    return machine.directory("CLAUDE_CONFIG_DIR", machine.home) / ".claude.json"


def _claude_desktop(machine: Machine) -> Path:
    return machine.settings() / "Claude" / "claude_desktop_config.json"


def _cursor(machine: Machine) -> Path:
    return machine.home / ".cursor" / "mcp.json"


def _vscode(machine: Machine) -> Path:
    return machine.settings() / "Code" / "User" / "mcp.json"


def _codex(machine: Machine) -> Path:
    return machine.directory("CODEX_HOME", machine.home / ".codex") / "config.toml"


def _gemini(machine: Machine) -> Path:
    return machine.directory("GEMINI_CLI_HOME", machine.home) / ".gemini" / "settings.json"


def _zed(machine: Machine) -> Path:
    if machine.platform == "darwin":
        return machine.home / ".config" / "zed" / "settings.json"
    return machine.settings() / ("Zed" if machine.platform == "win32" else "zed") / "settings.json"


_ALL = (
    Client(
        "claude-code",
        "Claude Code",
        JsonSettings("mcpServers"),
        _claude_code,
        "Start claude anew and look with /mcp; a server of a project is asked about once.",
        project_file=".mcp.json",
        extra=_STDIO,
    ),
    Client(
        "claude-desktop",
        "Claude Desktop",
        JsonSettings("mcpServers"),
        _claude_desktop,
        "Quit Claude Desktop, not just its window, and start it again.",
        workspace=None,
    ),
    Client(
        "cursor",
        "Cursor",
        # Its parser is said to be strict, but a comment that is there must not be lost for that.
        JsonSettings("mcpServers", frozenset({"comments", "commas"})),
        _cursor,
        "Restart Cursor and turn the server on in its settings, under MCP.",
        project_file=".cursor/mcp.json",
        workspace=_OPEN_FOLDER,
        extra=_STDIO,
    ),
    Client(
        "vscode",
        "VS Code",
        JsonSettings("servers", frozenset({"comments", "commas"})),
        _vscode,
        "Run the command 'MCP: List Servers' and start the server; agent mode uses it.",
        project_file=".vscode/mcp.json",
        workspace=_OPEN_FOLDER,
        extra=_STDIO,
    ),
    Client(
        "codex",
        "Codex",
        TomlSettings("mcp_servers"),
        _codex,
        "Start codex anew and look with /mcp; the file of a project counts only where it is trusted.",
        project_file=".codex/config.toml",
    ),
    Client(
        "gemini",
        "Gemini CLI",
        JsonSettings("mcpServers", frozenset({"comments"})),
        _gemini,
        "Start gemini anew and look with /mcp; servers run only in folders that you trust.",
        project_file=".gemini/settings.json",
    ),
    Client(
        "zed",
        "Zed",
        JsonSettings("context_servers", frozenset({"comments", "commas"})),
        _zed,
        "Zed starts it at once; a green dot in the settings of the agent panel shows that it runs.",
        project_file=".zed/settings.json",
    ),
)

CLIENTS = {client.name: client for client in _ALL}


# What all clients take, and short enough for them to make names of tools with it.
NAME = re.compile(r"[A-Za-z0-9_-]{1,32}\Z")


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person asked for."""

    client: Client
    scope: str
    name: str
    images: tuple[str, ...]
    project: str | None
    max_safety: str | None
    uvx: bool
    further: list[str]

    @property
    def is_shared(self) -> bool:
        """Tell whether the file is meant to be the same on every machine."""
        return self.uvx and self.scope == "project"

    def file(self, machine: Machine) -> Path:
        """Find the file of the client."""
        if self.scope == "user":
            return self.client.user_file(machine)
        if self.client.project_file is None:
            raise click.UsageError(f"{self.client.title} has no settings for one project: use --scope user")
        from gramercy.images.project import project_directory

        return project_directory(self.project or ".") / self.client.project_file

    def entry(self) -> dict[str, Any]:
        """Say how the server is started."""
        command = uvx_command(is_shared=self.is_shared) if self.uvx else own_command()
        place = self._place()
        words = [*command, "serve"]
        words += [word for image in self.images for word in ("--image", image)]
        words += ["--project", place] if place else []
        words += ["--max-safety", self.max_safety] if self.max_safety else []
        words += self.further
        return self.client.entry(words)

    def _place(self) -> str:
        """Return the project as the client should name it; nothing where it starts servers in it."""
        workspace = self.client.workspace
        if self.is_shared and workspace is not None:
            return workspace
        if self.project is not None or self.scope == "project":
            return _checked(self.project or ".")
        if workspace is None:
            raise click.UsageError(
                f"{self.client.title} does not open projects: say where the server works with --project DIR"
            )
        return workspace


def _name(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not NAME.match(value):
        raise click.BadParameter("expected 1 to 32 letters, digits, - and _", context, parameter)
    return value


def _server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how the server is started."""
    for option in (
        click.option(
            "--uvx", is_flag=True, help="Start the published gramercy with uvx, not the one that runs now."
        ),
        click.option("--max-safety", type=LEVELS, help="Only tools at or below this level."),
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


@click.command()
@click.option("--client", required=True, type=click.Choice(list(CLIENTS)), help="Which client.")
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
    "--name", default="gramercy", show_default=True, callback=_name, help="What the client calls the server."
)
@_server_options
@add_environment_options
@timeout_option
def install(*, client: str, write: bool, remove: bool, **options: Any) -> None:
    """Show what an MCP client needs to use this server, or write it into the client's settings."""
    if is_fleeting():
        options["uvx"] = True
    wish = Wish(CLIENTS[client], further=given_words(options), **options)
    _check_images(wish.images)
    path = wish.file(Machine(sys.platform, Path.home(), os.environ))
    try:
        if remove:
            _remove(wish, path, write=write)
        elif write:
            _write(wish, path)
        else:
            _show(wish, path)
    except ClientSettingsError as error:
        tell(f"Error: {path}: {error}\nNothing was written.")
        click.get_current_context().exit(CONFIGURATION)


def _show(wish: Wish, path: Path) -> None:
    snippet = wish.client.format.snippet(wish.name, wish.entry())
    tell(f"Add this to {path}, or run this again with --write:")
    click.echo(visible(snippet), nl=False)
    tell(wish.client.advice)


def _write(wish: Wish, path: Path) -> None:
    _check_text(entry := wish.entry())
    old = read_settings(path)
    new = wish.client.format.put(old or "", wish.name, entry)
    if new == old:
        click.echo(visible(f"{path} has it already; nothing was changed"))
    else:
        _replace(path, old, new)
        tell(wish.client.advice)
    _make_ready(wish)


def _remove(wish: Wish, path: Path, *, write: bool) -> None:
    old = read_settings(path)
    there = None if old is None else wish.client.format.get(old, wish.name)
    if old is None or there is None:
        click.echo(visible(f"{path} has no server {wish.name}; nothing was changed"))
    elif write:
        _replace(path, old, wish.client.format.drop(old, wish.name))
    else:
        click.echo(visible(f"{path} has the server {wish.name}; --write takes it out"))


def _replace(path: Path, old: str | None, new: str) -> None:
    backup = write_settings(path, old, new)
    click.echo(visible(f"{path} is written"))
    if backup is not None:
        click.echo(visible(f"{backup} is what it was before"))


def _make_ready(wish: Wish) -> None:
    """Build now what the first call of an SBCL image would wait for; a lack of it is told then."""
    from gramercy.images.project import default_language
    from gramercy.workbench.settings import read_image_names

    languages = (
        read_image_names(wish.images).values() if wish.images else [default_language(wish.project or ".")]
    )
    # What uvx fetches may be another version, with a core of its own.
    if wish.uvx or "sbcl" not in languages:
        return
    from gramercy.errors import ImageError
    from gramercy.images.sbcl import shared_core

    try:
        shared_core()
    except ImageError as error:
        tell(f"the server is installed, but an SBCL image will not start: {error}")


def _checked(project: str) -> str:
    """Refuse now what the server would refuse whenever the client starts it."""
    from gramercy.images.project import check_project

    return str(check_project(project))


def _check_images(images: tuple[str, ...]) -> None:
    if images:
        from gramercy.workbench.settings import read_image_names

        read_image_names(images)


def _check_text(entry: dict[str, Any]) -> None:
    for word in (entry["command"], *entry["args"]):
        if any("\ud800" <= sign <= "\udfff" for sign in word):
            raise ClientSettingsError(
                f"{word!a} is not UTF-8, so no settings can name it: choose another path"
            )
