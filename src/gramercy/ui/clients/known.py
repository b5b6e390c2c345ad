"""The clients that are known: where their settings are, in what words, and what to do after a change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gramercy.ui.clients.base import Client
from gramercy.ui.clients.json_settings import JsonSettings
from gramercy.ui.clients.toml_settings import TomlSettings

if TYPE_CHECKING:
    from pathlib import Path

    from gramercy.ui.clients.base import Machine

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
