"""MCP servers that an editor hands over with a session."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from gramercy.acp.engine import AcpEngine
from gramercy.mcp.foreign import PinFile, connect_server
from tests.acp.editors import Editor, Host, Refused, call, choose, script
from tests.support import children_of, is_running, until

NOTES = Path(__file__).parents[2] / "examples" / "notes.py"
WORDS = ["-m", "gramercy", "serve", "--from", str(NOTES)]
SERVER = {
    "name": "My Notes",
    "command": sys.executable,
    "args": WORDS,
    "env": [{"name": "GRAMERCY_JOURNAL", "value": "memory"}],
}


@pytest.fixture(autouse=True)
def no_pins(tmp_path, monkeypatch):
    """Let nothing be accepted before, on whatever machine."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


async def opened(editor, cwd, *servers):
    """Open a session with servers and return its id."""
    await editor.request("initialize", protocolVersion=1)
    return (await editor.request("session/new", cwd=str(cwd), mcpServers=list(servers)))["sessionId"]


@pytest.mark.contract("agents.acp.servers")
def test_the_tools_of_a_server_are_looked_at_and_then_used(tmp_path):
    """Issue: MCP servers handed over; their calls ask, as those of every server that is not ours."""
    model = script(call("my-notes__read_note", title="welcome"), "Read.", "Still there.")

    async def talk():
        editor = Editor(AcpEngine(Host(model)), choose("once"))
        session = await opened(editor, tmp_path, SERVER)
        assert children_of_us() == set()
        await editor.say(session, "count")
        started = children_of_us()
        assert started
        await editor.say(session, "and now?")
        await editor.request("session/close", sessionId=session)
        until(lambda: not any(map(is_running, started)))
        return editor

    before = children_of(os.getpid())

    def children_of_us():
        return children_of(os.getpid()) - before

    editor = asyncio.run(talk())
    (_, looked), (_, asked) = editor.asked
    assert looked["toolCall"]["title"] == "Use the tools of the MCP server my-notes"
    assert "read_note: new" in looked["toolCall"]["content"][0]["content"]["text"]
    assert asked["toolCall"]["title"] == "my-notes__read_note welcome"
    assert model.requests[1].messages[-1].text == "Read me first."
    assert "my-notes__read_note" in {each.name for each in model.requests[2].tools}


def test_what_the_person_leaves_out_is_not_there(tmp_path):
    model = script(call("my-notes__read_note", title="welcome"), "Well.")

    async def talk():
        editor = Editor(AcpEngine(Host(model)), choose("reject"))
        session = await opened(editor, tmp_path, SERVER)
        await editor.say(session, "count")
        await editor.request("session/close", sessionId=session)
        return editor

    editor = asyncio.run(talk())
    assert "my-notes__read_note" not in {each.name for each in model.requests[0].tools}
    assert "Unknown tool" in model.requests[1].messages[-1].text
    assert "refused until you accept them" in editor.text()


def test_what_was_accepted_before_is_not_asked_about(tmp_path):
    with connect_server([sys.executable, *WORDS], name="my-notes") as server:
        PinFile().accept("my-notes", server.tools())
    model = script("Ready.")

    async def talk():
        editor = Editor(AcpEngine(Host(model)))
        session = await opened(editor, tmp_path, SERVER)
        await editor.say(session, "ready?")
        await editor.request("session/close", sessionId=session)
        return editor

    assert asyncio.run(talk()).asked == []
    assert "my-notes__read_note" in {each.name for each in model.requests[0].tools}


def test_a_server_that_does_not_start_is_told_and_the_agent_goes_on(tmp_path):
    model = script("Without it.")
    broken = {"name": "broken", "command": "/no/such/program", "args": [], "env": []}

    async def talk():
        editor = Editor(AcpEngine(Host(model)))
        session = await opened(editor, tmp_path, broken)
        assert await editor.say(session, "go") == "end_turn"
        return editor

    text = asyncio.run(talk()).text()
    assert "The MCP server broken cannot be used" in text
    assert text.endswith("Without it.")


@pytest.mark.parametrize(
    "server",
    [
        {"type": "sse", "name": "old", "url": "http://127.0.0.1:1/", "headers": []},
        {"type": "http", "name": "odd", "url": "ftp://nowhere", "headers": []},
        {"name": "empty", "command": 7},
    ],
)
def test_a_server_that_cannot_be_reached_at_all_is_refused(tmp_path, server):
    async def talk():
        editor = Editor(AcpEngine(Host(script())))
        with pytest.raises(Refused) as found:
            await opened(editor, tmp_path, server)
        assert found.value.code == -32602

    asyncio.run(talk())
