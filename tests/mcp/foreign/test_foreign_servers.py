"""The tools of real servers, ours and the official one, over both transports and in both eras."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic

import pytest

from gramercy import Executor, Registry, tool
from gramercy.mcp.foreign import ForeignError, connect_server, register_foreign
from tests.support import install

ROOT = Path(__file__).parents[3]
STRANGER = str(Path(__file__).with_name("stranger.py"))
JUDGES = ROOT / ".venv-judges" / "bin" / "python"
VERSIONS = {"auto": "2026-07-28", "modern": "2026-07-28", "legacy": "2025-11-25"}


@pytest.mark.parametrize("era", VERSIONS)
def test_accepted_tools_of_another_server_are_called_like_our_own(place, era, pins):
    """MCP server, checklist 14: both transports, both eras."""
    with connect_server(**place, name="notes", era=era) as server:
        pins.accept("notes", server.tools())
        registry = Registry()
        done = register_foreign(registry, server, pins=pins, rules={"read_note": "safe"})
        assert server.version == VERSIONS[era]
        assert done.registered == ("notes__read_note", "notes__save_notes", "notes__write_note")
        assert done.lines() == []
        call = {"id": "1", "name": "notes__read_note", "arguments": {"title": "welcome"}}
        assert Executor(registry).execute(call).content == "Read me first."
        assert asyncio.run(Executor(registry).aexecute(call)).content == "Read me first."


def test_a_failure_of_a_remote_tool_is_a_failed_result(place, pins):
    """MCP server, checklist 14: isError is an error here too."""
    with connect_server(**place, name="notes") as server:
        pins.accept("notes", server.tools())
        registry = Registry()
        register_foreign(registry, server, pins=pins, level="safe")
        result = Executor(registry).execute(
            {"id": "1", "name": "notes__read_note", "arguments": {"title": "nothing"}}
        )
        assert not result.success
        assert "no note titled 'nothing'" in (result.error or "")


def test_arguments_are_checked_here_before_anything_is_sent(stranger, pins, traces):
    """Contracts, decision 8: every fault is told, whoever wrote the tool."""
    server = stranger("hang")
    pins.accept("odd", server.tools())
    registry = Registry()
    register_foreign(registry, server, pins=pins, level="safe")
    result = Executor(registry).execute({"id": "1", "name": "odd__echo", "arguments": {"text": 7}})
    assert "text: expected" in (result.error or "")
    assert "called" not in traces.lines()


def test_a_remote_tool_is_dangerous_whatever_its_server_says(stranger, pins):
    """MCP server, checklist 14: dangerous unless a rule says otherwise; readOnlyHint decides nothing."""
    server = stranger("good")
    assert server.tools()[0].parts["annotations"]["readOnlyHint"] is True
    pins.accept("odd", server.tools())
    registry = Registry()
    register_foreign(registry, server, pins=pins)
    result = Executor(registry).execute({"id": "1", "name": "odd__echo", "arguments": {"text": "hi"}})
    assert registry.resolve("odd__echo").safety_level == "dangerous"
    assert not result.success
    assert result.metadata["denied"] is True


def test_a_rule_for_a_tool_that_is_not_there_is_told(stranger, pins):
    """MCP server, checklist 14: rules name tools exactly, and a misspelt one is no silence."""
    server = stranger("good")
    pins.accept("odd", server.tools())
    done = register_foreign(Registry(), server, pins=pins, rules={"ecko": "safe"})
    assert done.notices == ("odd: the rule for ecko has no effect: there is no such tool",)


def test_a_name_that_is_taken_is_not_replaced(stranger, pins):
    """MCP server, checklist 14: collisions are told."""

    @tool
    def odd__echo(text: str) -> str:
        """Be there first."""
        return text

    server = stranger("good")
    pins.accept("odd", server.tools())
    registry = Registry([odd__echo])
    done = register_foreign(registry, server, pins=pins)
    assert done.registered == ()
    assert done.notices == ("odd: echo is refused: odd__echo is registered already, by another",)
    assert registry.get("odd__echo") is odd__echo


def test_registering_again_replaces_the_tools_of_the_same_server(stranger, pins):
    """Contracts, decision 10: registration is idempotent."""
    server = stranger("good")
    pins.accept("odd", server.tools())
    registry = Registry()
    first = register_foreign(registry, server, pins=pins)
    assert register_foreign(registry, server, pins=pins, level="cautious").registered == first.registered
    assert registry.resolve("odd__echo").safety_level == "cautious"


def test_a_program_sees_nothing_of_our_environment_but_what_it_needs(echo, monkeypatch):
    """Guard: keys of this process are none of a stranger's business."""
    monkeypatch.setenv("SECRET_KEY", "hush")
    seen = echo("environment", env={"GIVEN": "yes"})().content.split()
    assert "SECRET_KEY" not in seen
    assert {"GIVEN", "PATH"} <= set(seen)


def test_programs_need_no_further_package_and_addresses_say_which_they_need():
    """Style: optional packages are imported where they are used, and a missing one is named."""
    code = (
        "import sys; sys.modules['httpx'] = None\n"
        "from gramercy.mcp.foreign import connect_server\n"
        f"with connect_server([sys.executable, {STRANGER!r}, 'good'], name='a') as server:\n"
        "    print([tool.name for tool in server.tools()])\n"
        "try:\n"
        "    connect_server(url='http://127.0.0.1:9/', name='b')\n"
        "except Exception as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    names, said = done.stdout.splitlines()
    assert names == "['echo']"
    assert said.startswith("the server b cannot be used: servers over HTTP need httpx")
    assert said.endswith("pip install 'gramercy[client]'")


SDK_SERVER = """
import sys

from mcp.server import MCPServer

server = MCPServer("official")

@server.tool()
def add(a: int, b: int) -> int:
    \"\"\"Add two numbers.\"\"\"
    return a + b

if sys.argv[1:]:
    server.run("streamable-http", port=int(sys.argv[1]))
else:
    server.run("stdio")
"""


@pytest.fixture(params=["stdio", "http"])
def official(request, tmp_path):
    """Return how to reach a server that is made with the official SDK."""
    install("judges")
    program = tmp_path / "official.py"
    program.write_text(SDK_SERVER, encoding="utf-8")
    if request.param == "stdio":
        yield {"command": [str(JUDGES), str(program)]}
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    quiet = subprocess.DEVNULL
    with subprocess.Popen([str(JUDGES), str(program), str(port)], stdout=quiet, stderr=quiet) as process:
        try:
            _await_port(port)
            yield {"url": f"http://127.0.0.1:{port}/mcp"}
        finally:
            process.terminate()
            process.wait(20)


def _await_port(port):
    end = monotonic() + 20
    while monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except ConnectionRefusedError:
            threading.Event().wait(0.02)
        else:
            return
    pytest.fail("the official server never listened")


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_server_made_with_the_official_sdk_is_understood(era, pins, official):
    """MCP server, checklist 14: an independent implementation of the other side."""
    with connect_server(**official, name="official", era=era) as server:
        pins.accept("official", server.tools())
        registry = Registry()
        register_foreign(registry, server, pins=pins, level="safe")
        call = {"id": "1", "name": "official__add", "arguments": {"a": 2, "b": 3}}
        result = Executor(registry).execute(call)
        assert server.version == VERSIONS[era]
        assert result.success, result
        assert (result.content, result.metadata["structured"]) == ("5", {"result": 5})


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"command": ["true"], "url": "http://localhost"}, "either command"),
        ({}, "either command"),
        ({"command": "python server.py"}, "list of words"),
        ({"command": []}, "list of words"),
        ({"url": "ftp://localhost"}, "is no address"),
        ({"command": ["true"], "name": "Bad__name"}, "cannot name a server"),
        ({"command": ["true"], "name": "a__b"}, "cannot name a server"),
        ({"command": ["true"], "era": "bronze"}, "there is no era"),
        ({"command": ["/nowhere/server"]}, "cannot be started"),
        ({"url": "http://127.0.0.1:9/mcp"}, "there is no connection"),
    ],
)
def test_what_cannot_be_a_server_is_refused_with_a_reason(options, complaint):
    """Style: messages say what, which, expected."""
    with pytest.raises(ForeignError, match=complaint):
        connect_server(**{"name": "odd", **options})
