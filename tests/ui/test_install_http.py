"""`gramercy install --http`, clients that are only shown what to add, and entries that would not start."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gramercy import __version__
from gramercy.ui.clients.known import CLIENTS

URL = "http://127.0.0.1:8000/mcp"
VARIABLE = "GRAMERCY_TOKEN"
SECRET = "s3cret-t0ken-that-is-long"

# What the documentation of each product says: where, and the entry without the address.
SHAPES: dict[str, tuple[str, str, str, dict[str, Any], str]] = {
    "claude-code": (".claude.json", "mcpServers", "url", {"type": "http"}, "${GRAMERCY_TOKEN}"),
    "cursor": (".cursor/mcp.json", "mcpServers", "url", {}, "${env:GRAMERCY_TOKEN}"),
    "vscode": (".config/Code/User/mcp.json", "servers", "url", {"type": "http"}, "${env:GRAMERCY_TOKEN}"),
    "gemini": (".gemini/settings.json", "mcpServers", "httpUrl", {}, "${GRAMERCY_TOKEN}"),
    "opencode": (
        ".config/opencode/opencode.json",
        "mcp",
        "url",
        {"type": "remote", "enabled": True},
        "{env:GRAMERCY_TOKEN}",
    ),
    "windsurf": (
        ".codeium/windsurf/mcp_config.json",
        "mcpServers",
        "serverUrl",
        {},
        "${env:GRAMERCY_TOKEN}",
    ),
    "kiro": (".kiro/settings/mcp.json", "mcpServers", "url", {}, "${GRAMERCY_TOKEN}"),
    "qwen": (".qwen/settings.json", "mcpServers", "httpUrl", {}, "${GRAMERCY_TOKEN}"),
    "amp": (".config/amp/settings.json", "amp.mcpServers", "url", {}, "${GRAMERCY_TOKEN}"),
    "droid": (".factory/mcp.json", "mcpServers", "url", {"type": "http"}, "${GRAMERCY_TOKEN}"),
}
# These have no way to name a variable in a header.
SECRETIVE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "zed": (".config/zed/settings.json", "context_servers", {}),
    "copilot": (".copilot/mcp-config.json", "mcpServers", {"type": "http", "tools": ["*"]}),
    "cline": (
        ".cline/data/settings/cline_mcp_settings.json",
        "mcpServers",
        {"type": "streamableHttp"},
    ),
}


def install(inside, client, *options, status=0):
    done = inside("install", "--client", client, *options)
    assert done.returncode == status, done.stderr
    assert SECRET not in done.stdout + done.stderr
    return done


def untried(inside, client, *options, status=0):
    return install(inside, client, *options, "--no-check", status=status)


@pytest.mark.parametrize("client", SHAPES)
@pytest.mark.contract("clients.http")
def test_a_server_over_http_is_named_in_the_words_of_the_client(inside, home, client, monkeypatch):
    """Clients: HTTP with token; the token stays in its variable where the client can read one."""
    monkeypatch.setenv(VARIABLE, SECRET)
    file, section, address, others, reference = SHAPES[client]
    for _ in range(2):
        done = untried(inside, client, "--http", URL, "--write")
    assert "nothing was changed" in done.stdout
    assert f"variable {VARIABLE}" in done.stderr
    entry = json.loads((home / file).read_text())[section]["gramercy"]
    assert entry == {**others, address: URL, "headers": {"Authorization": f"Bearer {reference}"}}
    untried(inside, client, "--remove", "--write")
    assert json.loads((home / file).read_text()) == {section: {}}


def test_codex_is_told_the_variable_by_a_key_of_its_own(inside, home):
    """Codex: bearer_token_env_var; a key `headers` would be ignored."""
    for port in (8000, 9000):
        address = f"http://127.0.0.1:{port}"
        untried(inside, "codex", "--http", address, "--token-variable", "MINE", "--write")
    entry = tomllib.loads((home / ".codex/config.toml").read_text())["mcp_servers"]["gramercy"]
    assert entry == {"url": "http://127.0.0.1:9000/mcp", "bearer_token_env_var": "MINE"}


@pytest.mark.parametrize("client", SECRETIVE)
@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.contract("clients.secret")
def test_a_token_that_must_be_in_the_file_is_kept_from_others(inside, home, client, is_there, monkeypatch):
    """Clients: otherwise the file has mode 600, with a warning; the token is never shown."""
    file, section, others = SECRETIVE[client]
    path = home / file
    if is_there:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"theme": "dark"}')
        path.chmod(0o664)
    shown = untried(inside, client, "--http", URL)
    assert "Bearer <the token>" in shown.stdout
    assert "--token-file FILE" in untried(inside, client, "--http", URL, "--write", status=2).stderr
    monkeypatch.setenv(VARIABLE, SECRET)
    done = untried(inside, client, "--http", URL, "--write")
    assert "warning: the token is in this file" in done.stderr
    entry = json.loads(path.read_text())[section]["gramercy"]
    assert entry == {**others, "url": URL, "headers": {"Authorization": f"Bearer {SECRET}"}}
    for written in path.parent.glob(f"{path.name}*"):
        assert oct(written.stat().st_mode & 0o777) == "0o600", written
    # Somebody opens it up again: it is closed even when nothing else is to be done.
    path.chmod(0o644)
    untried(inside, client, "--http", URL, "--write")
    assert oct(path.stat().st_mode & 0o777) == "0o600"


@pytest.mark.contract("clients.secret")
def test_a_token_comes_from_a_file_and_never_goes_into_a_project(inside, home, tmp_path):
    """A project's file is for everybody who has the project."""
    (tmp_path / "token").write_text(f"{SECRET}\n")
    words = ("--http", URL, "--token-file", "token", "--write")
    assert "use --scope user" in untried(inside, "zed", *words, "--scope", "project", status=2).stderr
    untried(inside, "zed", *words)
    assert SECRET in (home / ".config/zed/settings.json").read_text()
    (tmp_path / "token").write_text("two\nlines")
    assert "no header can hold" in untried(inside, "zed", *words, status=2).stderr
    untried(inside, "cursor", "--http", URL, "--scope", "project", "--write")
    assert "${env:GRAMERCY_TOKEN}" in (tmp_path / ".cursor/mcp.json").read_text()


def test_headers_that_a_person_added_stay(inside, home):
    """Only what is about the token changes."""
    path = home / ".factory/mcp.json"
    path.parent.mkdir()
    entry = {"url": "http://old", "headers": {"X-Mine": "1", "Authorization": "Bearer x"}, "disabled": False}
    path.write_text(json.dumps({"mcpServers": {"gramercy": entry}}))
    untried(inside, "droid", "--http", URL, "--write")
    found = json.loads(path.read_text())["mcpServers"]["gramercy"]
    assert found["headers"] == {"X-Mine": "1", "Authorization": "Bearer ${GRAMERCY_TOKEN}"}
    assert (found["url"], found["disabled"], found["type"]) == (URL, False, "http")


def test_one_way_to_reach_a_server_does_not_become_two(inside, home):
    """A client that finds a command and an address uses either, or neither."""
    untried(inside, "kiro", "--write", "--image", "python")
    before = (home / ".kiro/settings/mcp.json").read_text()
    done = untried(inside, "kiro", "--http", URL, "--write", status=3)
    assert "as a server that is started by a command: take it out with --remove" in done.stderr
    assert (home / ".kiro/settings/mcp.json").read_text() == before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--http", "127.0.0.1:8000"], "something like http://127.0.0.1:8000/mcp"),
        (["--http", "http://a b/mcp"], "something like"),
        (["--http", "http://[::1/mcp"], "something like"),
        (["--http", "http://me:word@host/mcp"], "see --token-file"),
        (["--http", URL, "--image", "python"], "--image is about starting a server"),
        (["--http", URL, "--uvx"], "--uvx is about starting a server"),
        (["--http", URL, "--token-variable", "A-B"], "the name of an environment variable"),
        (["--no-auth"], "add --http URL"),
    ],
)
def test_what_makes_no_sense_over_http_is_refused(inside, home, words, told):
    """Bad input gets one clear line."""
    assert told in untried(inside, "cursor", *words, "--write", status=2).stderr
    assert list(home.iterdir()) == []


def test_claude_desktop_takes_no_address_from_its_file(inside, home):
    """Claude Desktop: addresses are added in its window."""
    assert home.is_dir()
    done = untried(inside, "claude-desktop", "--http", URL, status=2)
    assert "name no addresses" in done.stderr


@pytest.mark.contract("clients.shown")
def test_goose_is_shown_what_to_paste(inside, home):
    """Goose: config.yaml, which is shown and never changed; every JSON value is one of YAML."""
    done = untried(inside, "goose", "--image", "python", "--project", "garden")
    assert "--write" not in done.stderr
    lines = dict(line.strip().split(": ", 1) for line in done.stdout.splitlines()[2:])
    assert done.stdout.startswith("extensions:\n  gramercy:\n    name: ")
    assert (json.loads(lines["type"]), json.loads(lines["enabled"])) == ("stdio", True)
    assert json.loads(lines["args"])[-4:] == ["--image", "python", "--project", str(home.parent / "garden")]
    remote = untried(inside, "goose", "--http", URL)
    assert f'env_keys: ["{VARIABLE}"]' in remote.stdout
    assert 'headers: {"Authorization": "Bearer ${GRAMERCY_TOKEN}"}' in remote.stdout
    for words in ([], ["--remove"]):
        done = untried(inside, "goose", "--write", *words, status=0 if words else 3)
    path = home / ".config/goose/config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("extensions: {} # mine\n")
    for words in (["--write"], ["--remove", "--write"]):
        assert "which is not changed here" in untried(inside, "goose", *words, status=3).stderr
    assert path.read_text() == "extensions: {} # mine\n"


@pytest.mark.contract("clients.shown")
def test_any_other_client_gets_the_common_form(inside, home):
    """Clients: a generic printer, for a command or for an address."""
    done = untried(inside, "generic", "--image", "python")
    entry = json.loads(done.stdout)["mcpServers"]["gramercy"]
    assert [*entry][:2] == ["command", "args"]
    remote = json.loads(untried(inside, "generic", "--http", URL).stdout)["mcpServers"]["gramercy"]
    assert (remote["type"], remote["url"]) == ("http", URL)
    assert remote["headers"] == {"Authorization": "Bearer ${GRAMERCY_TOKEN}"}
    assert "headers" not in untried(inside, "generic", "--http", URL, "--no-auth").stdout
    assert "run this without --write" in untried(inside, "generic", "--write", status=2).stderr
    assert list(home.iterdir()) == []


def test_a_file_for_the_next_opencode_is_left_alone(inside, home):
    """With opencode 2 it is mcp.servers; what opencode 1 reads would not start there."""
    path = home / ".config/opencode/opencode.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"mcp": {"servers": {"x": {"type": "local", "command": ["x"]}}}}')
    assert "paste the entry there" in untried(inside, "opencode", "--write", status=3).stderr
    path.write_text('{"mcp": {"servers": {"type": "local", "command": ["x"]}}}')
    untried(inside, "opencode", "--write")
    assert list(json.loads(path.read_text())["mcp"]) == ["servers", "gramercy"]


@pytest.mark.parametrize(("client", "file"), [("opencode", "opencode/opencode"), ("amp", "amp/settings")])
def test_a_file_with_the_other_suffix_is_used_where_it_is_there(inside, home, client, file):
    """Both opencode and Amp read .json and .jsonc."""
    path = home / f".config/{file}.jsonc"
    path.parent.mkdir(parents=True)
    path.write_text("{\n  // mine\n}\n")
    untried(inside, client, "--write")
    assert "// mine" in path.read_text()
    assert "gramercy" in path.read_text()
    assert not path.with_suffix(".json").exists()


@pytest.mark.contract("clients.startable")
def test_a_command_that_does_not_start_is_not_written(inside, home, monkeypatch):
    """Clients: no entry that cannot start."""
    broken = home / "gramercy"
    broken.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('the library is gone')\n")
    broken.chmod(0o755)
    monkeypatch.setattr("gramercy.ui.cli.install.own_command", lambda: [str(broken)])
    done = install(inside, "codex", "--write", status=3)
    assert "it would not work" in done.stderr
    assert "the library is gone" in done.stderr
    broken.write_text("#!/nowhere/python\n")
    assert "needs /nowhere/python, which is gone" in install(inside, "codex", "--write", status=3).stderr
    assert [path.name for path in home.iterdir()] == ["gramercy"]
    untried(inside, "codex", "--write")
    assert (home / ".codex/config.toml").exists()


def program(directory, name, text):
    """Put a program of that name at the front of the path."""
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(f"#!/bin/sh\n{text}\n")
    (directory / name).chmod(0o755)


@pytest.mark.contract("clients.uvx")
def test_uvx_is_refused_before_the_package_is_there(inside, home, tmp_path, monkeypatch):
    """Clients: `--uvx` before the package is on the index; uv is asked, and nothing is run."""
    bin_ = tmp_path / "bin"
    monkeypatch.setenv("PATH", str(bin_))
    for words in ([], ["--write"]):
        assert "uv is not installed here" in install(inside, "zed", "--uvx", *words, status=3).stderr
    program(bin_, "uvx", "exit 9")
    program(bin_, "uv", 'read line; echo "$line was not found" >&2; exit 1')
    for words in ([], ["--write"]):
        done = install(inside, "zed", "--uvx", *words, status=3)
        assert f"no gramercy {__version__} or later is on the package index" in done.stderr
        assert f"gramercy>={__version__} was not found" in done.stderr
        assert done.stdout == ""
    assert list(home.iterdir()) == []
    program(bin_, "uv", "exit 0")
    assert "uvx" in install(inside, "zed", "--uvx").stdout
    assert "it would not work" in install(inside, "zed", "--uvx", "--write", status=3).stderr
    # What uvx starts here is this gramercy.
    program(bin_, "uvx", f'shift; exec "{sys.executable}" -m gramercy "$@"')
    install(inside, "zed", "--uvx", "--write")
    assert "uvx" in (home / ".config/zed/settings.json").read_text()


@pytest.fixture
def http_server(tmp_path):
    """Start a server over HTTP with a token; give its address."""
    (tmp_path / "served").mkdir()
    words = ["serve", "--image", "python", "--project", str(tmp_path / "served"), "--http", "127.0.0.1:0"]
    server = subprocess.Popen(
        [sys.executable, "-m", "gramercy", *words],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, VARIABLE: SECRET},
    )
    try:
        assert server.stderr is not None
        # The first line tells how images are confined.
        first = server.stderr.readline() + server.stderr.readline()
        match = re.search(r"http://\S+", first)
        assert match, first
        yield match.group()
    finally:
        server.terminate()
        server.communicate(timeout=20)


@pytest.mark.contract("clients.startable")
def test_an_address_is_asked_before_it_is_written(inside, home, http_server, monkeypatch):
    """Clients: no entry that cannot start, and the token is tried where it is known."""
    path = home / ".factory/mcp.json"
    words = ("--http", http_server, "--write")
    monkeypatch.setenv(VARIABLE, "wrong")
    assert "refuses this token (HTTP 401)" in install(inside, "droid", *words, status=3).stderr
    assert "without a token" in install(inside, "droid", *words, "--no-auth", status=3).stderr
    elsewhere = ("--http", http_server.replace("/mcp", "/other"), "--write")
    monkeypatch.setenv(VARIABLE, SECRET)
    assert "HTTP 404" in install(inside, "droid", *elsewhere, status=3).stderr
    assert not path.exists()
    install(inside, "droid", *words)
    path.unlink()
    # Where the variable is set only for the client, that it asks for a token is all that can be seen.
    monkeypatch.delenv(VARIABLE)
    install(inside, "droid", *words)
    assert path.exists()


def test_an_address_where_nothing_is_is_refused(inside, home):
    """Bad input: nothing listens on the port that is reserved for nothing."""
    done = install(inside, "kiro", "--http", "http://127.0.0.1:1/mcp", "--write", status=3)
    assert "nothing answers at http://127.0.0.1:1/mcp" in done.stderr
    assert list(home.iterdir()) == []


def test_every_client_has_its_section_in_the_manual():
    """Each of them is told where its file is and what to do."""
    page = Path(__file__).parents[2] / "docs" / "how-to" / "use-gramercy-in-your-client.md"
    missing = [name for name in CLIENTS if f"--client {name}" not in page.read_text()]
    assert missing == []
