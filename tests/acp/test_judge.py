"""The official client library of the protocol judges `gramercy acp`, its schema every frame that we send."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from jsonschema_rs import Draft202012Validator, ValidationError

from gramercy import Agent, create_tool
from gramercy.acp.engine import AcpEngine
from gramercy.providers.base import Usage
from gramercy.providers.scripted import ScriptedProvider
from gramercy.tools.content import ImageBlock, ToolOutput
from gramercy.toolsets.workspace import Workspace
from tests.acp.editors import Editor, Host, call, choose, tool

# The client library is installed from a registry.
pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
PICTURE = ImageBlock(b"png", "image/png")
LINES = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n"
TOOLS = '''
from gramercy import Registry, tool
from gramercy.toolsets.editing import edit_tools
from gramercy.toolsets.factory import SingleImage, Workshop
from gramercy.toolsets.workspace import Workspace
from gramercy.testing.image import MemoryImage

files = Registry(edit_tools(Workshop(SingleImage(MemoryImage())), Workspace(".")))

@tool(safety_level="dangerous")
def erase(text: str) -> str:
    """erase a text"""
    return f"erased {text}"
'''


@pytest.fixture(scope="module")
def seen(judge, tmp_path_factory):
    """Have the whole conversation once, and return what the client saw."""
    project, away = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("away")
    (project / "text").write_text(LINES)
    loud = LINES.replace("one", "ONE").replace("nine", "NINE")
    answers = [
        ["Two hunks. ", call("edit_file", path="text", old=LINES, new=loud)],
        "Edited.",
        call("erase", text="all"),
        "Erased.",
        call("erase", text="more"),
        call("erase", text="everything"),
        "Planned.",
    ]
    (away / "script").write_text("".join(f"{json.dumps(each)}\n" for each in answers))
    edits = next(each for each in Host.edit_tools(Workspace(project)) if each.name == "edit_file")
    tools = [edits, tool("erase", "dangerous")]
    agent = Agent("tester", "Work.", f"Scripted/{away / 'script'}", tools)
    (away / "tester.gram").write_text(agent.to_gram())
    (away / "tester.py").write_text(TOOLS)
    command = [
        sys.executable,
        "-m",
        "gramercy",
        "acp",
        away / "tester.gram",
        "--tools",
        away / "tester.py",
        "--journal",
        away / "journal.db",
    ]
    program = (HERE / "conversation.mjs").read_text("utf-8")
    done = judge("bin/node", "--input-type=module", "-", project, *command, stdin=program)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback (" not in done.stderr
    return {**json.loads(done.stdout), "text": (project / "text").read_text()}


@pytest.mark.contract("agents.acp.judge")
def test_every_answer_is_what_the_official_client_expects(seen):
    """Issue: judged by the official TypeScript client library from npm."""
    answers = seen["answers"]
    assert answers["initialize"]["protocolVersion"] == 1
    reasons = [answers[name]["stopReason"] for name in ("hunks", "edited", "cancelled", "planned")]
    assert reasons == ["end_turn", "end_turn", "cancelled", "end_turn"]
    assert answers["second"]["code"] == -32600
    assert answers["unknown"]["code"] == -32002
    assert [each["title"] for each in answers["list"]["sessions"]] == [
        answers["list"]["sessions"][0]["title"]
    ]
    assert answers["gone"]["sessions"] == []
    assert answers["exit"] == 0


def test_an_edit_was_taken_hunk_by_hunk_and_arguments_were_edited(seen):
    """Issue: diffs by hunk where the client can; edited arguments by elicitation."""
    assert seen["text"] == LINES.replace("one", "ONE")
    ids = [params["toolCall"]["toolCallId"] for params in seen["permissions"]]
    assert ids[:2] == ["call-1.1", "call-1.2"]
    assert [params["toolCall"]["content"][0]["type"] for params in seen["permissions"][:2]] == ["diff"] * 2
    [form] = seen["forms"]
    assert form["requestedSchema"]["properties"]["text"]["default"] == "all"
    results = [json.dumps(each) for each in seen["updates"] if each["sessionUpdate"] == "tool_call_update"]
    assert any("erased a little" in text for text in results)
    assert any("above the ceiling safe" in text for text in results)
    assert not any("erased all" in text or "erased more" in text for text in results)


def test_a_loaded_session_shows_what_was_said(seen):
    replayed = seen["updates"][seen["live"] : seen["loaded"]]
    assert replayed[0]["sessionUpdate"] == "user_message_chunk"
    assert "unsaved" in replayed[0]["content"]["text"]
    said = "".join(
        each["content"]["text"] for each in replayed if each["sessionUpdate"] == "agent_message_chunk"
    )
    assert said.startswith("Two hunks. Edited.Erased.")


def test_every_frame_fits_the_schema_of_the_protocol(seen, judges):
    """Protocol, schema/v1: what the client library lets pass is looked at too."""
    schema = protocol_schema(judges)
    kinds = {
        definition["x-method"]: name
        for name, definition in schema["$defs"].items()
        if definition.get("x-side") == "client" and not name.endswith("Response")
    }
    answered = Draft202012Validator({**schema, "anyOf": [{"$ref": "#/$defs/AgentResponse"}]})
    for frame in seen["frames"]:
        if "method" not in frame:
            answered.validate(frame)
        elif frame["method"] != "$/cancel_request":
            kind = {**schema, "anyOf": [{"$ref": f"#/$defs/{kinds[frame['method']]}"}]}
            Draft202012Validator(kind).validate(frame["params"])
    assert len(seen["frames"]) > 30


def protocol_schema(judges):
    """Return the schema that the client library comes with."""
    home = judges / "node_modules" / "@agentclientprotocol" / "sdk" / "schema" / "v1" / "schema.json"
    return json.loads(home.read_text())


def test_what_that_conversation_did_not_have_fits_the_schema_too(judges, tmp_path, monkeypatch):
    """Plans, usage with its cost, notices, pictures, and the question about the tools of a server."""
    monkeypatch.setenv("GRAMERCY_CONTEXT_WINDOW", "1000")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    draw = create_tool("draw", "Draw.", {"type": "object"}, lambda _: ToolOutput("", blocks=(PICTURE,)))
    answers = [call("update_plan", steps=["one", "two"], done=1), call("draw"), "Done."]
    host = Host(ScriptedProvider(*answers, usage=Usage(90, 10)), [draw])
    host.remarks = ["warning: something"]
    notes = Path(__file__).parents[2] / "examples" / "notes.py"
    words = ["-m", "gramercy", "serve", "--from", str(notes)]
    server = {"name": "notes", "command": sys.executable, "args": words, "env": []}

    async def talk():
        editor = Editor(AcpEngine(host), choose("reject"))
        await editor.begin(tmp_path, {"session": {"notices": {}}})
        made = await editor.request("session/new", cwd=str(tmp_path), mcpServers=[server])
        await editor.say(made["sessionId"], "go")
        await editor.request("session/close", sessionId=made["sessionId"])
        return editor

    editor = asyncio.run(talk())
    kinds = {"plan", "usage_update", "notice", "tool_call", "tool_call_update", "session_info_update"}
    assert kinds <= set(editor.kinds())
    assert '"image/png"' in json.dumps(editor.updates)
    schema = protocol_schema(judges)
    told = Draft202012Validator({**schema, "anyOf": [{"$ref": "#/$defs/SessionUpdate"}]})
    for update in editor.updates:
        told.validate(update)
    asked = Draft202012Validator({**schema, "anyOf": [{"$ref": "#/$defs/RequestPermissionRequest"}]})
    [(_, params)] = editor.asked
    asked.validate(params)
    with pytest.raises(ValidationError):
        told.validate({"sessionUpdate": "plan", "entries": [{"content": "no status"}]})
