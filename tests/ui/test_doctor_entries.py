"""The doctor reads back what clients were told, tries it, and says which entry would not start and why."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from gramercy.images.environment import Status
from gramercy.ui.clients.base import Machine
from gramercy.ui.clients.known import CLIENTS
from gramercy.ui.doctor.checks import line
from gramercy.ui.doctor.entries import examine_entries

GOOD = [sys.executable, "-m", "gramercy", "serve", "--image", "python"]
# A port that is reserved for nothing.
NOWHERE = "http://127.0.0.1:1/mcp"


@pytest.fixture
def consult(home, tmp_path):
    """Return a function that writes files and gives what the doctor finds in them."""

    def run(**files):
        for client, content in files.items():
            path = CLIENTS[client.replace("_", "-")].place(Machine(sys.platform, home, {}))
            assert path is not None
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        machine = Machine(sys.platform, home, os.environ)
        return list(examine_entries(machine, tmp_path / "garden"))

    return run


def entry(words, **others):
    return {"mcpServers": {"gramercy": {"command": words[0], "args": words[1:], **others}}}


def test_an_entry_that_works_is_started_once_for_all_clients(consult, tmp_path):
    """Clients: doctor reads back every entry it finds."""
    count = tmp_path / "count"
    script = tmp_path / "gramercy"
    script.write_text(f'#!/bin/sh\necho started >> {count}\nexec {sys.executable} -m gramercy "$@"\n')
    script.chmod(0o755)
    words = [str(script), "serve", "--image", "python"]
    found = consult(
        cursor=entry(words),
        opencode={"mcp": {"lisp": {"type": "local", "command": words}}},
        codex=f"[mcp_servers.g]\ncommand = {json.dumps(words[0])}\nargs = {json.dumps(words[1:])}\n",
    )
    assert [finding.name for finding in found] == ["Cursor: gramercy", "Codex: g", "opencode: lisp"]
    assert {finding.status for finding in found} == {Status.OK}
    assert all("starts, with " in finding.detail for finding in found)
    assert count.read_text() == "started\n"


@pytest.mark.contract("clients.read-back")
def test_what_install_writes_the_doctor_finds_well(inside, consult):
    """The two agree on the words of every client whose settings can be changed."""
    names = [name for name in CLIENTS if name != "goose"]
    for name in names:
        assert (
            inside("install", "--client", name, "--project", "garden", "--write", "--no-check").returncode
            == 0
        )
    found = consult()
    assert [finding.name for finding in found] == [f"{CLIENTS[name].title}: gramercy" for name in names]
    assert {finding.status for finding in found} == {Status.OK}, found


def test_what_claude_code_keeps_for_one_directory_is_read_too(consult):
    """Claude Code: `claude mcp add` writes below projects, by directory."""
    (finding,) = consult(claude_code={"projects": {"/srv/x": entry(["/gone/gramercy", "serve"]), "/y": {}}})
    assert finding.name == "Claude Code: gramercy in /srv/x"
    assert finding.status is Status.FAILED


def test_no_secret_of_an_address_is_shown(consult):
    """What people put into addresses may be secret."""
    url = NOWHERE.replace("//", "//me:hunter2@") + "?key=hunter2"
    (finding,) = consult(kiro={"mcpServers": {"gramercy": {"url": url}}})
    assert "nothing answers at 127.0.0.1:1/mcp" in finding.detail
    assert "hunter2" not in line(finding)


def test_what_is_not_ours_is_passed_over(consult):
    """Nothing is wrong without clients; a broken file that does not name us is its owner's business."""
    assert consult(cursor={"mcpServers": {"other": {"command": "x"}}}, zed="{ // broken, but not ours") == []


@pytest.mark.parametrize(
    ("client", "content", "words"),
    [
        ("cursor", entry(["/gone/bin/gramercy", "serve"]), "/gone/bin/gramercy is gone"),
        ("kiro", entry(["gramercy-of-nobody", "serve"]), "no gramercy-of-nobody on the PATH"),
        ("droid", entry(["/etc", "serve"]), "/etc is no program"),
        ("amp", {"amp.mcpServers": {"gramercy": {"cmd": "x"}}}, "command must be the path of a program"),
        ("qwen", {"mcpServers": {"gramercy": {"command": "sh", "args": "serve"}}}, "args must be a list"),
        ("opencode", {"mcp": {"gramercy": {"command": "gramercy"}}}, "command must be a list of words"),
        ("opencode", {"mcp": {"servers": {"gramercy": {"command": ["/gone"]}}}}, "/gone is gone"),
        ("windsurf", {"mcpServers": {"gramercy": "x"}}, "it is not a server"),
        ("vscode", entry(GOOD), "it is under mcpServers, but VS Code reads servers"),
        (
            "zed",
            {"servers": {"mine": {"command": GOOD[0], "args": GOOD[1:]}}},
            "but Zed reads context_servers",
        ),
        ("claude_code", '{"mcpServers": {"gramercy": }', "line 1, column 29: expecting value"),
        ("codex", "[mcp_servers.gramercy]\ncommand = 3 3", "at line 2"),
        ("copilot", entry([*GOOD, "--colour", "red"]), "No such option"),
        ("cline", entry([*GOOD[:4], "--image", "pyhton"]), "did you mean 'python'?"),
        ("qwen", {"mcpServers": {"gramercy": {"httpUrl": NOWHERE}}}, "nothing answers at"),
        ("gemini", {"mcpServers": {"gramercy": {"url": NOWHERE}}}, "its address must be called httpUrl"),
        ("claude_desktop", {"mcpServers": {"gramercy": {"url": NOWHERE}}}, "but this has an address"),
    ],
)
@pytest.mark.contract("clients.read-back")
def test_an_entry_that_would_not_start_is_told_with_the_reason(consult, client, content, words):
    """Clients: missing command, moved environment, unreadable file, wrong key, unreachable, old arguments."""
    (finding,) = consult(**{client: content})
    assert finding.status is Status.FAILED
    assert words in finding.detail
    assert finding.advice
    assert "Traceback" not in line(finding)


def test_an_environment_that_was_moved_is_recognized(consult, home):
    """The script is there, but the interpreter that it names is not."""
    script = home / "gramercy"
    script.write_text("#!/home/me/old/.venv/bin/python\n")
    script.chmod(0o755)
    (finding,) = consult(kiro=entry([str(script), "serve"]))
    assert "needs /home/me/old/.venv/bin/python, which is gone" in finding.detail
    assert finding.advice.startswith("gramercy install --client kiro --write")


def test_what_is_turned_off_or_no_longer_has_its_project_is_no_failure(consult):
    """It would start, or is not meant to."""
    off = consult(cline=entry(["/gone"], disabled=True))
    assert [(finding.status, finding.detail.rpartition(": ")[2]) for finding in off] == [
        (Status.OK, "it is turned off")
    ]
    (lost,) = consult(cline=entry([*GOOD, "--project", "/gone/project"]))
    assert (lost.status, "its project /gone/project is gone" in lost.detail) == (Status.WARNING, True)


@pytest.mark.contract("clients.untrusted")
def test_nothing_that_a_project_names_is_started(consult, home, tmp_path):
    """The files of a project may come from anybody."""
    seen = tmp_path / "seen"
    script = tmp_path / "gramercy"
    script.write_text(f"#!/bin/sh\ntouch {seen}\n")
    script.chmod(0o755)
    folder = tmp_path / "garden" / ".cursor"
    folder.mkdir(parents=True)
    assert home.is_dir()
    for words, status in (["serve"], Status.OK), (["serve", "--colour"], Status.FAILED):
        (folder / "mcp.json").write_text(json.dumps(entry([str(script), *words])))
        (finding,) = consult()
        assert finding.status is status, finding
    assert "--scope project" in finding.advice
    # Nor what only looks like ours by its name, in a file of the person.
    (finding,) = consult(kiro=entry(["/bin/touch", str(seen)]))[-1:]
    assert "may be another program" in finding.detail or "--colour" in finding.detail
    assert not seen.exists()


@pytest.mark.contract("clients.untrusted")
def test_the_server_of_another_with_our_name_in_its_arguments_is_left_alone(consult):
    """A notebook server on a directory of that name is nobody's business here."""
    server = {"command": "/bin/false", "args": ["--root", "/home/me/gramercy"]}
    assert consult(kiro={"mcpServers": {"files": server}}) == []


def test_a_token_that_only_the_client_has_is_not_missed(consult):
    """What cannot be seen from here is a warning."""
    headers = {"Authorization": "Bearer ${env:NOBODY_HAS_SET_THIS}"}
    (finding,) = consult(windsurf={"mcpServers": {"gramercy": {"serverUrl": NOWHERE, "headers": headers}}})
    assert finding.status is Status.WARNING
    assert "NOBODY_HAS_SET_THIS is not set in this shell" in finding.detail


def test_goose_is_read_only_where_yaml_can_be(consult):
    """Goose: there is no YAML in the standard library."""
    (finding,) = consult(goose="extensions:\n  gramercy:\n    cmd: /gone/gramercy\n    args: [serve]\n")
    if "pip install pyyaml" in finding.detail:
        assert finding.status is Status.WARNING
    else:
        assert (finding.status, "is gone" in finding.detail) == (Status.FAILED, True)


def test_the_project_that_is_examined_is_where_its_files_are(tmp_path, home, inside):
    """`doctor --project` has these checks too, as JSON."""
    (tmp_path / "garden/.vscode").mkdir(parents=True)
    servers = {"servers": {"gramercy": {"command": "/gone/gramercy"}}}
    Path(tmp_path / "garden/.vscode/mcp.json").write_text(json.dumps(servers))
    assert home.is_dir()
    done = inside("doctor", "--project", "garden", "--json")
    report = json.loads(done.stdout)
    (check,) = [check for check in report["checks"] if check["name"] == "VS Code: gramercy"]
    assert (check["status"], report["ok"], done.returncode) == ("FAILED", False, 1)
