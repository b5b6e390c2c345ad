"""The official clients of Python and TypeScript talk to the server, over both transports and in both eras."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

HERE = Path(__file__).parent
VERSIONS = {"legacy": "2025-11-25", "modern": "2026-07-28"}


@pytest.fixture(scope="session")
def conversations():
    """Keep what was said: a conversation is had once and looked at by several tests."""
    return {}


@pytest.fixture(params=["python", "typescript"])
def client(request):
    """Return the language of the client."""
    return request.param


@pytest.fixture
def said(client, judge, era, target, conversations):
    """Return what the server said in one conversation with an official client."""
    named = (client, era, *target)
    if named not in conversations:
        conversations[named] = (
            _python(judge, era, target) if client == "python" else _node(judge, era, target)
        )
    done = conversations[named]
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback (" not in done.stderr
    return json.loads(done.stdout)


def _python(judge, era, target):
    return judge("bin/python", HERE / "conversation.py", era, *target)


def _node(judge, era, target):
    source = (HERE / "conversation.mjs").read_text("utf-8")
    return judge("bin/node", "--input-type=module", "-", era, *target, stdin=source)


def test_an_official_client_speaks_the_version_it_wants_and_sees_all_tools(said, era):
    """MCP server, checklist 1 and 6: both eras, both transports, deterministic listing."""
    assert said["version"] == VERSIONS[era]
    assert said["tools"] == sorted(said["tools"])
    assert {"greet", "test_simple_text"} <= set(said["tools"])


def test_an_official_client_gets_every_kind_of_content(said):
    """MCP server, checklist 5: text, pictures, resources."""
    assert said["text"] == "This is a simple text response for testing."
    assert said["picture"] == "image/png"
    assert said["mixed"] == ["text", "image", "resource"]


def test_an_official_client_tells_failures_of_tools_from_those_of_the_protocol(said):
    """MCP server, checklist 2: errors and invalid arguments are results, an unknown tool is an error."""
    assert said["failed"]
    assert said["invalid"]
    assert said["unknown"]["code"] == -32602
    assert "Unknown tool: no_such_tool" in said["unknown"]["message"]


def test_an_official_client_is_asked_while_a_tool_runs(said):
    """MCP server, checklist 4: a form, a completion, the roots, and two questions one after the other."""
    assert said["greeting"] == "Hello, Alice!"
    assert "Paris" in said["capital"]
    assert "file:///home" in said["roots"]
    assert said["rounds"].count("Alice") == 2


def test_an_official_client_hears_of_progress(said, client):
    """MCP server, checklist 9: progress on long evaluations."""
    assert said["worked"] == "Progress was reported three times."
    # The client of TypeScript drops a notification that it reads together with the answer after it.
    assert said["progress"] == [0, 50, 100] or (client == "typescript" and said["progress"] == [0, 50])


def test_an_official_client_reads_resources_and_prompts(said, client, era):
    """MCP server, checklist 12: resources, templates, prompts, completions."""
    assert said["resource"] == "This is the content of the static text resource."
    assert json.loads(said["template"])["id"] == "7"
    # The client of TypeScript shows the code of the newer era in both.
    assert said["missing"]["code"] == (-32002 if (client, era) == ("python", "legacy") else -32602)
    assert said["prompt"] == "Prompt with arguments: arg1='a', arg2='b'"
    assert said["completion"] == ["paris", "park", "party"]


def test_a_dangerous_tool_runs_only_when_the_person_at_the_client_agrees(said):
    """MCP server, checklist 4: accept, deny, decline, cancel, and nobody to be asked."""
    assert said["approved"] == [False, "the moon is gone"]
    assert said["denied"][1].splitlines()[0] == "User denied tool execution: it is full"
    assert "Nobody has decided: the client declined after" in said["declined"][1]
    assert "Nobody has decided: the client dismissed the question after" in said["dismissed"][1]
    assert [said[one][0] for one in ("denied", "declined", "dismissed")] == [True, True, True]
    failed, reason = said["unasked"]
    assert failed
    assert "elicitation" in reason


def test_an_official_client_hears_that_the_tools_have_changed(said):
    """MCP server, checklist 12: list_changed in both eras."""
    assert said["noticed"]
