"""`gramercy install` as people use it: what is shown, what is written, and what is left alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gramercy import __version__
from gramercy.errors import ClientSettingsError
from gramercy.testing.clients import StdioClient
from gramercy.ui.cli.files import write_settings
from gramercy.ui.cli.serve import serve
from gramercy.ui.clients.base import Machine, is_fleeting
from gramercy.ui.clients.known import CLIENTS

FILES = {
    "claude-code": (".claude.json", ".mcp.json"),
    "claude-desktop": (".config/Claude/claude_desktop_config.json", None),
    "cursor": (".cursor/mcp.json", ".cursor/mcp.json"),
    "vscode": (".config/Code/User/mcp.json", ".vscode/mcp.json"),
    "codex": (".codex/config.toml", ".codex/config.toml"),
    "gemini": (".gemini/settings.json", ".gemini/settings.json"),
    "zed": (".config/zed/settings.json", ".zed/settings.json"),
    "opencode": (".config/opencode/opencode.json", "opencode.json"),
    "copilot": (".copilot/mcp-config.json", ".github/mcp.json"),
    "windsurf": (".codeium/windsurf/mcp_config.json", None),
    "kiro": (".kiro/settings/mcp.json", ".kiro/settings/mcp.json"),
    "cline": (".cline/data/settings/cline_mcp_settings.json", None),
    "qwen": (".qwen/settings.json", ".qwen/settings.json"),
    "amp": (".config/amp/settings.json", ".amp/settings.json"),
    "droid": (".factory/mcp.json", ".factory/mcp.json"),
}
SECTIONS = {
    "vscode": "servers",
    "codex": "mcp_servers",
    "zed": "context_servers",
    "opencode": "mcp",
    "amp": "amp.mcpServers",
}
TYPES = {
    **dict.fromkeys(("claude-code", "cursor", "vscode", "droid"), "stdio"),
    **dict.fromkeys(("opencode", "copilot"), "local"),
}
# These cannot tell which project is open.
BLIND = ("claude-desktop", "windsurf")
COMMENTED = ("vscode", "zed", "gemini", "cursor", "opencode", "qwen", "amp")


@pytest.fixture(params=FILES)
def client(request):
    """Return the name of a client whose settings can be changed."""
    return request.param


def servers_in(client, text):
    """Read the servers out of a file of a client."""
    data = tomllib.loads(text) if client == "codex" else json.loads(text)
    return data[SECTIONS.get(client, "mcpServers")]


def words_in(client, text, name="gramercy"):
    """Read the command of a server, with its arguments."""
    return CLIENTS[client].command_of(servers_in(client, text)[name])


def install(inside, client, *options, status=0, tried=False):
    """Run the command; what it writes is tried only in the tests that are about that."""
    done = inside("install", "--client", client, *options, *([] if tried else ["--no-check"]))
    assert done.returncode == status, done.stderr
    return done


def test_by_default_it_is_only_shown(inside, home, client):
    """MCP checklist 13: writes or prints the config."""
    done = install(inside, client, "--project", "garden")
    assert words_in(client, done.stdout)[-2:] == ["--project", str(home.parent / "garden")]
    assert str(home / FILES[client][0]) in done.stderr
    assert list(home.iterdir()) == []


@pytest.mark.contract("clients.written")
def test_it_is_written_where_the_client_looks(inside, home, client):
    """MCP checklist 13."""
    done = install(inside, client, "--write", "--project", "garden", "--image", "python")
    path = home / FILES[client][0]
    assert done.stdout == f"{path} is written\n"
    garden = str(home.parent / "garden")
    assert words_in(client, path.read_text())[-5:] == ["serve", "--image", "python", "--project", garden]
    assert servers_in(client, path.read_text())["gramercy"].get("type") == TYPES.get(client)
    assert [file.name for file in path.parent.iterdir() if file.is_file()] == [path.name]


@pytest.mark.parametrize("client", ["codex", "opencode"])
def test_what_is_written_starts_a_server_that_answers(inside, home, client, tmp_path):
    """MCP checklist 13: the command must work on the user's machine."""
    install(inside, client, "--write", "--project", "garden", "--image", "python", tried=True)
    words = words_in(client, (home / FILES[client][0]).read_text())
    # Clients start it elsewhere, and programs with windows have another PATH.
    server = StdioClient(*words, cwd="/", env={"PATH": "/usr/bin:/bin"})
    try:
        assert server.initialize()["serverInfo"]["name"] == "gramercy"
        assert server.call("evaluate-python", code="open('seen', 'w').write('x')")["content"]
    finally:
        server.close()
    assert (tmp_path / "garden" / "seen").exists()


@pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")
@pytest.mark.slow
def test_what_is_written_is_made_ready(inside, home, tmp_path, monkeypatch):
    """The core is built by install, so that no client waits for it; for another version it cannot be."""
    assert home.is_dir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for words in (("--uvx",), ("--image", "python")):
        install(inside, "zed", "--write", *words)
    assert not (tmp_path / "cache").exists()
    done = install(inside, "zed", "--write", "--image", "lisp=sbcl")
    assert "building the SBCL core, once" in done.stderr
    assert [path.suffix for path in (tmp_path / "cache" / "gramercy").glob("*.core")] == [".core"]
    assert "building" not in install(inside, "codex", "--write", "--image", "sbcl").stderr


def test_a_directory_that_is_gone_is_no_project(home):
    """Bad input gets one clear line."""
    (lost := home / "lost").mkdir()
    words = [sys.executable, "-m", "gramercy", "install", "--client", "zed", "--scope", "project"]
    script = 'cd "$0" && rmdir "$0" && exec "$@"'
    done = subprocess.run(
        ["/bin/sh", "-c", script, lost, *words], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert (
        done.stderr == "gramercy: the project . is gone: the directory that this was started in was removed\n"
    )


def test_a_project_has_settings_of_its_own(inside, home, client):
    """MCP checklist 13: user and project scope where the client has both."""
    place = FILES[client][1]
    words = ("--scope", "project", "--project", "garden", "--write")
    done = install(inside, client, *words, status=0 if place else 2)
    if place is None:
        assert "use --scope user" in done.stderr
        return
    garden = home.parent / "garden"
    assert words_in(client, (garden / place).read_text())[-3:] == ["serve", "--project", str(garden)]
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("client", [name for name, (_, place) in FILES.items() if place])
def test_a_file_that_is_shared_names_nothing_of_this_machine(inside, home, client):
    """A project's file is for everybody who has the project."""
    install(inside, client, "--scope", "project", "--uvx", "--write")
    text = (home.parent / (FILES[client][1] or "")).read_text()
    assert str(home.parent) not in text
    assert words_in(client, text)[:3] == ["uvx", "gramercy", "serve"]


def test_for_a_user_the_open_project_is_left_to_the_client(inside, home, client):
    """A server for all projects works in the one that is open."""
    assert home.is_dir()
    if client in BLIND:
        done = install(inside, client, status=2)
        assert "--project DIR" in done.stderr
        return
    arguments = words_in(client, install(inside, client).stdout)
    expected = ["serve", "--project", "${workspaceFolder}"] if client in ("cursor", "vscode") else ["serve"]
    assert arguments[-len(expected) :] == expected


@pytest.mark.contract("clients.written")
def test_written_twice_changes_nothing_the_second_time(inside, home, client):
    """MCP checklist 13: idempotent, a backup only if the file changed."""
    install(inside, client, "--write", "--project", "garden")
    path = home / FILES[client][0]
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    done = install(inside, client, "--write", "--project", "garden")
    assert "nothing was changed" in done.stdout
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert not path.with_name(path.name + ".gramercy.bak").exists()


OTHERS = {
    "json": '{\n    "theme": "dark",\n    "KEY": {\n        "other": {"a": "x"}\n    },\n    "z": 1.50\n}\n',
    "toml": 'model = "o" # mine\n\n[mcp_servers.other]\ncommand = "x"\n\n# the end\n[tui]\ntheme = "dark"\n',
}


def others_for(client):
    """Return settings of somebody who has much else."""
    if client == "codex":
        return OTHERS["toml"]
    text = OTHERS["json"].replace("KEY", SECTIONS.get(client, "mcpServers"))
    return text.replace("{\n", "{ // mine\n", 1) if client in COMMENTED else text


@pytest.mark.contract("clients.kept")
def test_removing_gives_back_the_very_file(inside, home, client):
    """MCP checklist 13: --remove takes only our entry out again, order and comments stay."""
    path = home / FILES[client][0]
    path.parent.mkdir(parents=True, exist_ok=True)
    original = others_for(client)
    path.write_text(original)
    path.chmod(0o600)
    done = install(inside, client, "--write", "--project", "garden")
    backup = path.with_name(path.name + ".gramercy.bak")
    assert f"{backup} is what it was before" in done.stdout
    assert backup.read_text() == original
    assert [oct(file.stat().st_mode & 0o777) for file in (path, backup)] == ["0o600", "0o600"]
    assert path.read_text() != original
    assert "--write takes it out" in install(inside, client, "--remove").stdout
    install(inside, client, "--remove", "--write")
    assert path.read_text() == original
    assert "has no server gramercy" in install(inside, client, "--remove", "--write").stdout


def test_settings_of_our_entry_that_a_person_added_are_kept(inside, home):
    """MCP checklist 13: unknown keys stay."""
    path = home / ".gemini" / "settings.json"
    path.parent.mkdir()
    path.write_text('{"mcpServers": {"gramercy": {"trust": true, "command": "old", "timeout": 9000}}}')
    install(inside, "gemini", "--write", "--max-safety", "safe")
    entry = json.loads(path.read_text())["mcpServers"]["gramercy"]
    assert list(entry) == ["trust", "command", "timeout", "args"]
    assert (entry["timeout"], entry["args"][-2:]) == (9000, ["--max-safety", "safe"])


def test_a_link_is_followed_and_stays_a_link(inside, home):
    """People keep their settings in a repository and link to them."""
    real = home / "dotfiles.json"
    real.write_text("{}")
    (home / ".claude.json").symlink_to(real)
    install(inside, "claude-code", "--write")
    assert (home / ".claude.json").is_symlink()
    assert "gramercy" in real.read_text()


BROKEN = {
    "claude-code": ('{\n  "a": 1,\n  // mine\n}', "line 3, column 3: comments are not allowed here"),
    "claude-desktop": ('{"mcpServers": {}', "line 1, column 18: expecting ',' delimiter"),
    "cursor": ('{\n  "mcpServers": []\n}', "line 2, column 17: expected an object"),
    "vscode": (
        '{"servers": {"gramercy": {}, "gramercy": {}}}',
        "column 30: gramercy is there twice: remove one",
    ),
    "codex": ("a = 1\n[mcp_servers.x]\ncommand = 3 3\n", "(at line 3, column 13)"),
    "gemini": ('["mcpServers"]', "line 1, column 1: expected an object"),
    "zed": ('{"context_servers": {"gramercy": "x"}}', "gramercy is there already, but is not a server"),
    "opencode": ('{"mcp": {"gramercy": 1, }}', "gramercy is there already, but is not a server"),
    "copilot": ('{"mcpServers": {"a": {},}}', "line 1, column 25"),
    "windsurf": ('{"mcpServers": {"gramercy": {"serverUrl": "http://x"}}}', "is reached by its serverUrl"),
    "kiro": ("not JSON", "line 1, column 1: expecting value"),
    "cline": ('{"mcpServers": "none"}', "line 1, column 16: expected an object"),
    "qwen": ('{"mcpServers": {"gramercy": {"httpUrl": "http://x"}}}', "is reached by its httpUrl"),
    "amp": ('{"amp.mcpServers": [] // mine\n}', "line 1, column 20: expected an object"),
    "droid": ('{"mcpServers": {"gramercy": [], "gramercy": []}}', "gramercy is there twice: remove one"),
}


@pytest.mark.contract("clients.broken-file")
def test_a_broken_file_is_told_with_its_place_and_left_alone(inside, home, client):
    """Brief: line and column, and nothing written."""
    text, words = BROKEN[client]
    path = home / FILES[client][0]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    done = install(inside, client, "--write", "--project", "garden", status=3)
    assert words in done.stderr
    assert str(path) in done.stderr
    assert "Nothing was written." in done.stderr
    assert (done.stdout, path.read_text()) == ("", text)
    assert [file.name for file in path.parent.iterdir() if file.is_file()] == [path.name]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xff\xfe{}", "not UTF-8 text (byte 0)"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a": NaN}', "line 1, column 7: NaN is not JSON"),
        (b'{"mcpServers": {"gramercy": {"url": "http://x"}}}', "reached by its url"),
    ],
)
def test_a_file_that_cannot_be_used_is_explained(inside, home, data, words):
    """Brief: bad input never ends in a traceback."""
    (home / ".claude.json").write_bytes(data)
    assert words in install(inside, "claude-code", "--write", status=3).stderr
    assert (home / ".claude.json").read_bytes() == data


def test_a_file_that_is_read_only_is_respected(inside, home):
    """Settings that another program manages are often links to files without the right to write."""
    path = home / ".claude.json"
    path.write_text("{}")
    path.chmod(0o444)
    assert "it is read-only" in install(inside, "claude-code", "--write", status=3).stderr
    assert [file.name for file in home.iterdir()] == [".claude.json"]


def test_a_place_that_cannot_be_is_explained(inside, home):
    """Brief: directories are made, but not out of files."""
    (home / ".cursor").write_text("a file")
    assert "cannot be read: not a directory" in install(inside, "cursor", "--write", status=3).stderr
    (home / ".claude.json").mkdir()
    assert "not a regular file" in install(inside, "claude-code", "--write", status=3).stderr


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["--name", "my server"], 2, "letters, digits"),
        (["--name", ""], 2, "letters, digits"),
        (["--image", "sblc"], 3, "did you mean 'sbcl'?"),
        (["--project", "missing"], 2, "does not exist"),
        (["--project", "/"], 3, "choose a directory below it"),
        (["--max-safety", "harmless"], 2, "is not one of"),
    ],
)
def test_what_the_server_would_refuse_is_refused_at_once(inside, home, options, status, words):
    """A mistake is told to the person, not to the client later."""
    for write in ([], ["--write"]):
        done = install(inside, "claude-code", *options, *write, status=status)
        assert words in done.stderr
        assert (done.stdout, list(home.iterdir())) == ("", [])


def test_a_project_whose_name_is_no_text_is_refused(inside, home):
    """No settings could name it."""
    odd = home.parent / "\udcff"
    odd.mkdir()
    done = install(inside, "codex", "--project", str(odd), "--write", status=3)
    assert "is not UTF-8" in done.stderr
    assert list(home.iterdir()) == []


def test_several_servers_live_side_by_side(inside, home):
    """One for each language or project."""
    install(inside, "zed", "--write", "--name", "lisp", "--image", "sbcl")
    install(inside, "zed", "--write", "--name", "snake", "--image", "python")
    install(inside, "zed", "--write", "--name", "lisp", "--remove")
    assert list(servers_in("zed", (home / ".config/zed/settings.json").read_text())) == ["snake"]


@pytest.mark.parametrize(
    ("name", "platform", "environ", "expected"),
    [
        ("claude-desktop", "darwin", {}, "Library/Application Support/Claude/claude_desktop_config.json"),
        ("claude-desktop", "win32", {}, "AppData/Roaming/Claude/claude_desktop_config.json"),
        ("claude-desktop", "win32", {"APPDATA": "/r"}, "/r/Claude/claude_desktop_config.json"),
        ("vscode", "darwin", {}, "Library/Application Support/Code/User/mcp.json"),
        ("vscode", "linux", {"XDG_CONFIG_HOME": "/x"}, "/x/Code/User/mcp.json"),
        ("zed", "darwin", {"XDG_CONFIG_HOME": "/x"}, ".config/zed/settings.json"),
        ("zed", "linux", {"XDG_CONFIG_HOME": "/x"}, "/x/zed/settings.json"),
        ("zed", "win32", {}, "AppData/Roaming/Zed/settings.json"),
        ("claude-code", "linux", {"CLAUDE_CONFIG_DIR": "/c"}, "/c/.claude.json"),
        ("codex", "darwin", {"CODEX_HOME": "/c"}, "/c/config.toml"),
        ("gemini", "win32", {"GEMINI_CLI_HOME": "/g"}, "/g/.gemini/settings.json"),
        ("cursor", "win32", {}, ".cursor/mcp.json"),
        ("opencode", "darwin", {"XDG_CONFIG_HOME": "/x"}, "/x/opencode/opencode.json"),
        ("copilot", "linux", {"COPILOT_HOME": "/c"}, "/c/mcp-config.json"),
        ("windsurf", "win32", {}, ".codeium/windsurf/mcp_config.json"),
        ("kiro", "darwin", {}, ".kiro/settings/mcp.json"),
        ("cline", "linux", {"CLINE_DIR": "/c"}, "/c/data/settings/cline_mcp_settings.json"),
        ("cline", "linux", {"CLINE_DATA_DIR": "/d"}, "/d/settings/cline_mcp_settings.json"),
        ("cline", "linux", {"CLINE_MCP_SETTINGS_PATH": "/c.json"}, "/c.json"),
        ("qwen", "linux", {"QWEN_HOME": "/q"}, "/q/settings.json"),
        ("amp", "win32", {"XDG_CONFIG_HOME": "/x"}, ".config/amp/settings.json"),
        ("droid", "darwin", {}, ".factory/mcp.json"),
        ("goose", "linux", {}, ".config/goose/config.yaml"),
        ("goose", "win32", {"APPDATA": "/r"}, "/r/Block/goose/config/config.yaml"),
    ],
)
def test_every_system_has_its_places(name, platform, environ, expected):
    """MCP checklist 13: Linux, macOS and Windows."""
    home = Path("/home/me")
    assert CLIENTS[name].place(Machine(platform, home, environ)) == home / expected


def test_the_program_that_was_called_is_the_one_that_is_named(home):
    """MCP checklist 13: the absolute path of the entry point."""
    script = Path(sys.executable).parent / "gramercy"
    done = subprocess.run(
        [os.path.relpath(script, home), "install", "--client", "codex"],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    command = Path(servers_in("codex", done.stdout)["gramercy"]["command"])
    assert command.is_absolute()
    assert command.resolve() == script.resolve()


def test_a_program_that_may_be_gone_tomorrow_is_not_named(monkeypatch):
    """The cache of uv is fleeting: it removes the environments of uvx when it likes."""
    assert not is_fleeting()
    monkeypatch.setattr(sys, "prefix", "/home/me/.cache/uv/archive-v0/x1y2")
    assert is_fleeting()


def test_settings_that_change_meanwhile_are_not_overwritten(tmp_path):
    """A running client writes its settings too."""
    path = tmp_path / "settings.json"
    path.write_text('{"new": true}')
    with pytest.raises(ClientSettingsError, match="another program has just changed it"):
        write_settings(path, "{}", '{"mcpServers": {}}')
    assert path.read_text() == '{"new": true}'
    assert list(tmp_path.iterdir()) == [path]


def test_the_entry_for_the_registry_is_that_of_this_version():
    """MCP checklist 13: server.json and the mcp-name marker."""
    root = Path(__file__).parents[2]
    entry = json.loads((root / "server.json").read_text())
    (package,) = entry["packages"]
    assert f"mcp-name: {entry['name']} " in (root / "README.md").read_text()
    assert (entry["version"], package["version"]) == (__version__, __version__)
    assert len(entry["description"]) <= 100
    known = {name for option in serve.params for name in option.opts}
    named = {argument["name"] for argument in package["packageArguments"] if argument["type"] == "named"}
    assert named <= known


@pytest.mark.contract("trust.approval.installed")
def test_a_policy_is_put_into_the_entry_with_its_whole_path(inside, home, client):
    """Trust, 10: a client starts the server anywhere."""
    rules = home.parent / "rules.toml"
    rules.write_text('[[rules]]\naction = "allow"\ntools = ["write_file"]\n')
    words = words_in(client, install(inside, client, "--project", "garden", "--policy", "rules.toml").stdout)
    assert words[-2:] == ["--policy", str(rules)]


@pytest.mark.contract("trust.approval.installed")
def test_a_policy_that_is_shared_is_in_the_project(inside, home):
    """A project's file names nothing of this machine."""
    assert home.is_dir()
    garden = home.parent / "garden"
    (garden / "rules.toml").write_text("")
    (home.parent / "rules.toml").write_text("")
    shared = ("--scope", "project", "--uvx", "--project", "garden", "--policy")
    done = install(inside, "cursor", *shared, "garden/rules.toml")
    assert words_in("cursor", done.stdout)[-2:] == ["--policy", "${workspaceFolder}/rules.toml"]
    assert "keep the policy in it too" in install(inside, "cursor", *shared, "rules.toml", status=2).stderr


@pytest.mark.contract("trust.approval.installed")
def test_a_policy_that_cannot_be_used_is_not_written(inside, home):
    """What is written has been tried."""
    (home.parent / "rules.toml").write_text("[[rules]]\naction = 7\n")
    words = ("--write", "--project", "garden", "--image", "python", "--policy", "rules.toml")
    done = install(inside, "codex", *words, tried=True, status=3)
    assert "Nothing was written" in done.stderr
    assert not list(home.parent.rglob(".codex/config.toml"))
    assert (
        "--policy"
        in install(inside, "codex", "--http", "http://127.0.0.1:1/mcp", *words[-2:], status=2).stderr
    )
