"""The client programs: how each is set up in an empty home, and started with and without a person.

The server is entered by `gramercy install`, as a person would. Everything else here is what a run needs that
has no account and no network: a model on loopback, a key that opens nothing, no telemetry, no updates.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

MACHINE = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), "")
PROMPT = "Do it."
# Nobody listens on the port of "discard": what is not for this machine goes nowhere.
NOWHERE = "http://127.0.0.1:9"
QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "GEMINI_TELEMETRY_ENABLED": "false",
    "HTTPS_PROXY": NOWHERE,
    "HTTP_PROXY": NOWHERE,
    "LANG": "C.UTF-8",
    "NO_PROXY": "127.0.0.1,localhost",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "TERM": "xterm-256color",
}
KEY = "no-key-is-needed-on-loopback"


@dataclass(frozen=True)
class Place:
    """Where a program runs: a home and a project of its own, and the address of its model."""

    home: Path
    project: Path
    model: str


def _enter(client: str, place: Place, environment: dict[str, str]) -> None:
    """Enter the server into a client's settings as a person does."""
    subprocess.run(
        [
            *(sys.executable, "-m", "gramercy", "install", "--client", client, "--write"),
            *("--image", "python", "--project", str(place.project)),
        ],
        env=environment,
        cwd=place.project,
        capture_output=True,
        timeout=60,
        check=True,
    )


def _change(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change settings that are JSON, or make them."""
    file.parent.mkdir(parents=True, exist_ok=True)
    settings = json.loads(file.read_text("utf-8")) if file.exists() else {}
    change(settings)
    file.write_text(json.dumps(settings, indent=2), "utf-8")


class Program:
    """What the four have in common. `packages` is where scripts/programs has put them."""

    name = ""
    # What a run without a person has besides, so that its first turn waits for the server.
    alone: Mapping[str, str] = MappingProxyType({})

    def __init__(self, packages: Path, node: Path) -> None:
        self.packages = packages / "node_modules"
        self.node = node

    def environment(self, place: Place) -> dict[str, str]:
        """Return the whole environment of the program: nothing of the person at this machine."""
        path = f"{self.node.parent}:/usr/local/bin:/usr/bin:/bin"
        return {**QUIET, "HOME": str(place.home), "PATH": path, "TMPDIR": str(place.home)}

    def set_up(self, place: Place, *options: str) -> None:
        """Write the settings; `options` are more options of `gramercy serve`."""
        raise NotImplementedError

    def command(self) -> list[object]:
        raise NotImplementedError

    def headless(self, *, trusted: bool = True) -> list[object]:
        """Return the command of a run without a person; where `trusted`, the client itself asks nothing."""
        raise NotImplementedError

    def at_terminal(self) -> list[object]:
        """Return the command of a run with a person; those that show our forms do not ask by themselves."""
        raise NotImplementedError


class ClaudeCode(Program):
    name = "claude-code"
    alone = MappingProxyType({"MCP_CONNECTION_NONBLOCKING": "0", "MCP_CONNECT_TIMEOUT_MS": "60000"})

    def command(self) -> list[object]:
        return [self.packages / "@anthropic-ai" / f"claude-code-linux-{MACHINE}" / "claude"]

    def environment(self, place: Place) -> dict[str, str]:
        model = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": place.model}
        return {**super().environment(place), **model}

    def set_up(self, place: Place, *options: str) -> None:
        _enter("claude-code", place, self.environment(place))

        def finish(settings: dict[str, Any]) -> None:
            entry = settings["mcpServers"]["gramercy"]
            entry["args"] += options
            # Without this its model sees the names alone, and has to search for a tool before it calls it.
            entry["alwaysLoad"] = True
            # What it asks at its first start.
            settings["hasCompletedOnboarding"] = True
            settings["customApiKeyResponses"] = {"approved": [KEY[-20:]], "rejected": []}
            settings["projects"] = {str(place.project): {"hasTrustDialogAccepted": True}}

        _change(place.home / ".claude.json", finish)

    def headless(self, *, trusted: bool = True) -> list[object]:
        return [*self.command(), "-p", PROMPT, *(["--allowedTools", "mcp__gramercy"] if trusted else [])]

    def at_terminal(self) -> list[object]:
        return [*self.command(), PROMPT, "--allowedTools", "mcp__gramercy"]


class Codex(Program):
    name = "codex"

    def command(self) -> list[object]:
        (program,) = (self.packages / f"codex-linux-{MACHINE}" / "vendor").glob("*/bin/codex")
        return [program]

    def environment(self, place: Place) -> dict[str, str]:
        return {**super().environment(place), "STAND_IN_KEY": KEY}

    def set_up(self, place: Place, *options: str) -> None:
        file = place.home / ".codex" / "config.toml"
        file.parent.mkdir()
        file.write_text(CODEX.format(model=place.model, project=place.project), "utf-8")
        _enter("codex", place, self.environment(place))
        written = file.read_text("utf-8")
        more = "".join(f", {json.dumps(option)}" for option in options)
        file.write_text(re.sub(r"^(args = \[.*)\]$", rf"\1{more}]", written, flags=re.MULTILINE), "utf-8")

    def headless(self, *, trusted: bool = True) -> list[object]:
        trusts = CODEX_TRUSTS if trusted else []
        return [*self.command(), "exec", "--skip-git-repo-check", *CODEX_WAITS, *trusts, PROMPT]

    def at_terminal(self) -> list[object]:
        # Without: a background server that stays when the terminal is closed, with our server below it.
        return [*self.command(), "--no-daemon", *CODEX_TRUSTS, PROMPT]


CODEX_WAITS = ["-c", "mcp_servers.gramercy.required=true"]
CODEX_TRUSTS = ["-c", 'mcp_servers.gramercy.default_tools_approval_mode="approve"']
CODEX = """\
model = "stand-in"
model_provider = "stand_in"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.stand_in]
name = "stand-in"
base_url = "{model}/v1"
env_key = "STAND_IN_KEY"
wire_api = "responses"

[projects."{project}"]
trust_level = "trusted"
"""


# By default it asks one model which model to ask.
GEMINI_MODEL = ["--model", "gemini-2.5-flash"]


class Gemini(Program):
    name = "gemini"

    def command(self) -> list[object]:
        script = self.packages / "@google" / "gemini-cli" / "bundle" / "gemini.js"
        return [self.node, script]

    def environment(self, place: Place) -> dict[str, str]:
        model = {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": place.model}
        return {**super().environment(place), **model, "GEMINI_CLI_TRUST_WORKSPACE": "true"}

    def set_up(self, place: Place, *options: str) -> None:
        _enter("gemini", place, self.environment(place))

        def finish(settings: dict[str, Any]) -> None:
            settings["mcpServers"]["gramercy"]["args"] += options
            settings["security"] = {"auth": {"selectedType": "gemini-api-key"}}
            settings["privacy"] = {"usageStatisticsEnabled": False}
            settings["general"] = {"enableAutoUpdate": False}

        _change(place.home / ".gemini" / "settings.json", finish)

    def headless(self, *, trusted: bool = True) -> list[object]:
        return [*self.command(), *GEMINI_MODEL, "-p", PROMPT, *(["--yolo"] if trusted else [])]

    def at_terminal(self) -> list[object]:
        return [*self.command(), *GEMINI_MODEL, "--prompt-interactive", PROMPT]


class Opencode(Program):
    name = "opencode"

    def command(self) -> list[object]:
        return [self.packages / f"opencode-linux-{MACHINE}" / "bin" / "opencode"]

    def set_up(self, place: Place, *options: str) -> None:
        _enter("opencode", place, self.environment(place))

        def finish(settings: dict[str, Any]) -> None:
            settings["mcp"]["gramercy"]["command"] += options
            settings["provider"] = {"stand": _opencode_provider(place.model)}
            settings["model"] = settings["small_model"] = "stand/in"
            settings["permission"] = {"gramercy_edit_file": "ask"}

        _change(place.home / ".config" / "opencode" / "opencode.json", finish)

    def headless(self, *, trusted: bool = True) -> list[object]:
        return [*self.command(), "run", *(["--auto"] if trusted else []), PROMPT]

    def at_terminal(self) -> list[object]:
        return [*self.command(), "--prompt", PROMPT]


def _opencode_provider(model: str) -> dict[str, Any]:
    options = {"baseURL": f"{model}/v1", "apiKey": KEY}
    named = {"name": "in", "tool_call": True, "limit": {"context": 200_000, "output": 8_000}}
    # Without this it tells its model that it cannot see, instead of showing it a picture.
    named |= {"attachment": True, "modalities": {"input": ["text", "image"], "output": ["text"]}}
    return {"npm": "@ai-sdk/openai-compatible", "name": "stand", "options": options, "models": {"in": named}}


PROGRAMS = (ClaudeCode, Codex, Gemini, Opencode)
