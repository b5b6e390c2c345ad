"""The known clients: the place of their settings, their words, and the next step after a change.

Each is taken from the documentation of that product, or from its source where that says more. Its keys are
listed beside it. Where a product can name a variable, a token is never copied.
"""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from gramercy.directories import config_home
from gramercy.errors import ClientSettingsError
from gramercy.ui.clients.base import Client, Machine, Words
from gramercy.ui.clients.json_settings import JsonSettings
from gramercy.ui.clients.toml_settings import TomlSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_LOOSE: frozenset[Literal["comments", "commas"]] = frozenset({"comments", "commas"})
_OPEN_FOLDER = "${workspaceFolder}"
_COLON = "${{env:{}}}"
# The timeout of a call in Goose, which then ends the extension. A first Lisp evaluation builds a core.
_GOOSE_SECONDS = 300


def _in_home(*parts: str) -> Callable[[Machine], Path]:
    return lambda machine: machine.home.joinpath(*parts)


def _below(variable: str, *parts: str, home: tuple[str, ...] = ()) -> Callable[[Machine], Path]:
    """Return a function that finds a file in a variable's directory, else below the home directory."""
    return lambda machine: machine.directory(variable, machine.home.joinpath(*home)).joinpath(*parts)


def _in_settings(*parts: str) -> Callable[[Machine], Path]:
    return lambda machine: machine.settings().joinpath(*parts)


def _zed(machine: Machine) -> Path:
    if machine.platform == "darwin":
        return machine.home / ".config" / "zed" / "settings.json"
    return machine.settings() / ("Zed" if machine.platform == "win32" else "zed") / "settings.json"


def _cline(machine: Machine) -> Path:
    data = machine.directory("CLINE_DIR", machine.home / ".cline") / "data"
    file = machine.directory("CLINE_DATA_DIR", data) / "settings" / "cline_mcp_settings.json"
    return machine.directory("CLINE_MCP_SETTINGS_PATH", file)


def _goose(machine: Machine) -> Path:
    if machine.platform == "win32":
        return machine.settings() / "Block" / "goose" / "config" / "config.yaml"
    return config_home(machine.environ, machine.home) / "goose" / "config.yaml"


@dataclass(frozen=True, slots=True)
class OpencodeSettings(JsonSettings):
    """Servers of opencode 1. A file of opencode 2, with one more level and other keys, is only read."""

    def servers(self, text: str) -> dict[str, Any]:
        """Return the entries of all servers, for either version of opencode."""
        found = JsonSettings.servers(self, text)
        return found["servers"] if _is_deeper(found) else found

    def put(self, text: str, name: str, entry: dict[str, Any]) -> str:
        """Add a server, or set the keys of the entry in the one that is there."""
        if _is_deeper(JsonSettings.servers(self, text)):
            raise ClientSettingsError(
                "it is for opencode 2, which reads mcp.servers: paste the entry there, without enabled"
            )
        return JsonSettings.put(self, text, name, entry)


def _is_deeper(servers: dict[str, Any]) -> bool:
    """Distinguish a group of servers from a server with the same name: every server has a type."""
    group = servers.get("servers")
    return isinstance(group, dict) and "type" not in group


@dataclass(frozen=True, slots=True)
class YamlSettings:
    """Servers in a file of YAML, which is shown and read but never changed.

    The standard library has no YAML, and no small library keeps comments, anchors and quoting unchanged. An
    entry is pasted in a moment.
    """

    section: str

    def snippet(self, name: str, entry: dict[str, Any]) -> str:
        """Format a file with only this server. Every JSON value is also YAML."""
        lines = [f"    {key}: {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()]
        return "\n".join([f"{self.section}:", f"  {name}:", f"    name: {json.dumps(name)}", *lines]) + "\n"

    def servers(self, text: str) -> dict[str, Any]:
        """Return the entries of all servers, if a YAML library happens to be installed."""
        try:
            yaml: Any = importlib.import_module("yaml")
        except ImportError:
            raise ClientSettingsError("it is YAML, which is not read here: pip install pyyaml") from None
        try:
            document = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            raise ClientSettingsError(f"it is no YAML: {' '.join(str(error).split())}") from None
        section = document.get(self.section, {}) if isinstance(document, dict) else {}
        return section if isinstance(section, dict) else {}

    def get(self, text: str, name: str) -> NoReturn:  # noqa: ARG002 - the same for every text
        """Refuse: a caller that reads one entry wants to change it."""
        raise ClientSettingsError("it is YAML, which is not changed here: do it by hand")

    def put(self, text: str, name: str, entry: dict[str, Any]) -> NoReturn:  # noqa: ARG002 - as above
        """Refuse."""
        raise ClientSettingsError("it is YAML, which is not changed here: run this without --write and paste")

    drop = get


_ALL = (
    # Claude Code: mcpServers, type stdio|http, ${NAME} in headers; `claude mcp add` writes below projects.
    Client(
        "claude-code",
        "Claude Code",
        JsonSettings("mcpServers", directories="projects"),
        _below("CLAUDE_CONFIG_DIR", ".claude.json"),
        "Start claude anew and look with /mcp; a server of a project is asked about once.",
        project_file=".mcp.json",
        words=Words(stdio={"type": "stdio"}, http={"type": "http"}),
    ),
    # Claude Desktop: mcpServers; an address is added in its window, under Connectors.
    Client(
        "claude-desktop",
        "Claude Desktop",
        JsonSettings("mcpServers"),
        _in_settings("Claude", "claude_desktop_config.json"),
        "Quit Claude Desktop, not just its window, and start it again.",
        workspace=None,
        words=Words(http=None),
    ),
    # Cursor: mcpServers, ${env:NAME}, ${workspaceFolder}.
    Client(
        "cursor",
        "Cursor",
        # Its parser is said to be strict, but an existing comment must not be lost for that.
        JsonSettings("mcpServers", _LOOSE),
        _in_home(".cursor", "mcp.json"),
        "Restart Cursor and turn the server on in its settings, under MCP.",
        project_file=".cursor/mcp.json",
        workspace=_OPEN_FOLDER,
        words=Words(stdio={"type": "stdio"}, reference=_COLON),
    ),
    # VS Code: servers, type stdio|http, ${env:NAME}, ${workspaceFolder}.
    Client(
        "vscode",
        "VS Code",
        JsonSettings("servers", _LOOSE),
        _in_settings("Code", "User", "mcp.json"),
        "Run the command 'MCP: List Servers' and start the server; agent mode uses it.",
        project_file=".vscode/mcp.json",
        workspace=_OPEN_FOLDER,
        words=Words(stdio={"type": "stdio"}, http={"type": "http"}, reference=_COLON),
    ),
    # Codex: mcp_servers, url, bearer_token_env_var.
    Client(
        "codex",
        "Codex",
        TomlSettings("mcp_servers"),
        _below("CODEX_HOME", "config.toml", home=(".codex",)),
        "Start codex anew and look with /mcp; the file of a project counts only where it is trusted.",
        project_file=".codex/config.toml",
        words=Words(token_key="bearer_token_env_var"),  # noqa: S106 - the name of a key
    ),
    # Gemini CLI: mcpServers, httpUrl, ${NAME} in any string.
    Client(
        "gemini",
        "Gemini CLI",
        JsonSettings("mcpServers", frozenset({"comments"})),
        _below("GEMINI_CLI_HOME", ".gemini", "settings.json"),
        "Start gemini anew and look with /mcp; servers run only in folders that you trust.",
        project_file=".gemini/settings.json",
        words=Words(address="httpUrl"),
        is_mute=True,
        own_question='with "trust": true in the entry it asks nothing',
    ),
    # Zed: context_servers, url, headers; nothing stands for a variable.
    Client(
        "zed",
        "Zed",
        JsonSettings("context_servers", _LOOSE),
        _zed,
        "Zed starts it at once; a green dot in the settings of the agent panel shows that it runs.",
        project_file=".zed/settings.json",
        words=Words(reference=None),
    ),
    # opencode: mcp, type local|remote, command as one list, {env:NAME}.
    Client(
        "opencode",
        "opencode",
        OpencodeSettings("mcp", _LOOSE),
        lambda machine: config_home(machine.environ, machine.home) / "opencode" / "opencode.json",
        "Start opencode anew and look with `opencode mcp list`.",
        project_file="opencode.json",
        words=Words(
            stdio={"type": "local", "enabled": True},
            http={"type": "remote", "enabled": True},
            arguments=None,
            reference="{{env:{}}}",
        ),
        also_jsonc=True,
        is_mute=True,
        own_question="it asks only where its `permission` says so",
    ),
    # Copilot CLI: mcpServers, type local|http, tools; variables only in env.
    Client(
        "copilot",
        "GitHub Copilot CLI",
        JsonSettings("mcpServers"),
        _below("COPILOT_HOME", "mcp-config.json", home=(".copilot",)),
        "Start copilot anew and look with /mcp show; the file of a project counts only where it is trusted.",
        project_file=".github/mcp.json",
        words=Words(
            stdio={"type": "local", "tools": ["*"]}, http={"type": "http", "tools": ["*"]}, reference=None
        ),
    ),
    # Windsurf: mcpServers, serverUrl, ${env:NAME}; it names no open folder and has no file for a project.
    Client(
        "windsurf",
        "Windsurf",
        JsonSettings("mcpServers"),
        _in_home(".codeium", "windsurf", "mcp_config.json"),
        "Press the refresh button of the MCP panel in Cascade.",
        workspace=None,
        words=Words(address="serverUrl", reference=_COLON),
    ),
    # Kiro, the editor and the command: mcpServers, url, headers, ${NAME}.
    Client(
        "kiro",
        "Kiro",
        JsonSettings("mcpServers"),
        _in_home(".kiro", "settings", "mcp.json"),
        "Kiro connects when the file is saved; it asks before a variable is used.",
        project_file=".kiro/settings/mcp.json",
    ),
    # Cline: mcpServers, type streamableHttp; the extension knows ${env:NAME}, the command does not.
    Client(
        "cline",
        "Cline",
        JsonSettings("mcpServers"),
        _cline,
        "Cline connects when the file is saved; its MCP Servers page shows the state.",
        words=Words(http={"type": "streamableHttp"}, reference=None),
        is_mute=True,
        own_question="tools that are auto-approved there ask nothing",
    ),
    # Qwen Code: mcpServers, httpUrl, ${NAME} in any string.
    Client(
        "qwen",
        "Qwen Code",
        JsonSettings("mcpServers", frozenset({"comments"})),
        _below("QWEN_HOME", "settings.json", home=(".qwen",)),
        "Start qwen anew and look with /mcp; servers run only in folders that you trust.",
        project_file=".qwen/settings.json",
        words=Words(address="httpUrl"),
        is_mute=True,
        own_question='with "trust": true in the entry it asks nothing',
    ),
    # Amp: amp.mcpServers, one key with a dot in it; url, headers, ${NAME}.
    Client(
        "amp",
        "Amp",
        JsonSettings("amp.mcpServers", _LOOSE),
        _in_home(".config", "amp", "settings.json"),
        "Look with `amp mcp doctor`; a server of a project is asked about once: `amp mcp approve`.",
        project_file=".amp/settings.json",
        also_jsonc=True,
    ),
    # Goose: extensions, type stdio|streamable_http, cmd, uri, env_keys name what headers may refer to.
    Client(
        "goose",
        "Goose",
        YamlSettings("extensions"),
        _goose,
        "Start goose anew; `goose configure` lists the extensions.",
        words=Words(
            stdio={"type": "stdio", "enabled": True, "timeout": _GOOSE_SECONDS},
            http={"type": "streamable_http", "enabled": True, "timeout": _GOOSE_SECONDS},
            command="cmd",
            address="uri",
            variables_key="env_keys",
        ),
    ),
    # Droid: mcpServers, type stdio|http, ${NAME} in any value.
    Client(
        "droid",
        "Droid",
        JsonSettings("mcpServers"),
        _in_home(".factory", "mcp.json"),
        "Droid reloads the file; look with /mcp.",
        project_file=".factory/mcp.json",
        words=Words(stdio={"type": "stdio"}, http={"type": "http"}),
    ),
)
# The format that most other clients read. The file and the way to name a variable differ.
GENERIC = Client(
    "generic",
    "your client",
    JsonSettings("mcpServers"),
    None,
    "Look in the manual of your client for the file and for how it names a variable.",
    words=Words(http={"type": "http"}),
)
CLIENTS = {client.name: client for client in _ALL}
# The section names of all clients, to recognize an entry in the wrong place.
SECTIONS = ("mcpServers", "servers", "context_servers", "mcp", "mcp_servers", "amp.mcpServers", "extensions")
