"""The MCP Inspector looks at the server from its command line, over both transports and in both eras."""

from __future__ import annotations

import json
import sys

import pytest

LONGEST_NAME = 40
LONGEST_DESCRIPTION = 2_000


@pytest.fixture(scope="session")
def inspector(judge):
    """Return a function that has the Inspector do one thing to a server."""

    def run(target, era, *options):
        program = "node_modules/.bin/mcp-inspector"
        done = judge(program, "--cli", *target, "--protocol-era", era, "--quiet", *options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture
def inspect(inspector, target, era):
    """Return a function that has the Inspector do one thing to the server with the fixtures."""
    return lambda *options: inspector(target, era, *options)


def test_the_inspector_finds_no_fault_in_the_schemas(inspect):
    """MCP server, checklist 6: schemas that every client can read."""
    listed = inspect("--method", "tools/list", "--strict")
    assert {"test_simple_text", "greet"} <= {tool["name"] for tool in listed["tools"]}


def test_the_inspector_finds_no_fault_in_the_tools_that_are_served_by_default(inspector, era):
    """MCP server, checklist 3 and 6: short names and descriptions, every property told, all annotations."""
    server = [sys.executable, "-m", "gramercy", "serve", "--image", "python"]
    tools = inspector(server, era, "--method", "tools/list", "--strict")["tools"]
    assert len(tools) >= 18
    for tool in tools:
        schema = tool["inputSchema"]
        assert len(tool["name"]) <= LONGEST_NAME
        assert len(tool["description"]) < LONGEST_DESCRIPTION
        assert schema["additionalProperties"] is False
        assert all(field.get("description") for field in schema["properties"].values()), tool["name"]
        hints = {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
        assert hints <= set(tool["annotations"])


def test_the_inspector_calls_a_tool(inspect):
    """MCP server, checklist 1: both eras, both transports."""
    result = inspect("--method", "tools/call", "--tool-name", "greet", "--tool-arg", "name=Ada")
    assert result["content"] == [{"type": "text", "text": "Hello, Ada!"}]


def test_the_inspector_lists_what_there_is_beside_tools(inspect):
    """MCP server, checklist 12: resources and prompts."""
    resources = inspect("--method", "resources/list")["resources"]
    prompts = inspect("--method", "prompts/list")["prompts"]
    assert "test://static-text" in {resource["uri"] for resource in resources}
    assert "test_simple_prompt" in {prompt["name"] for prompt in prompts}


def test_the_inspector_calls_a_tool_many_times_at_once(inspect):
    """MCP server, checklist 11: concurrent calls are all answered."""
    many = ("--load", "--load-requests", "300", "--load-concurrency", "30")
    summary = inspect("--method", "tools/call", "--tool-name", "test_simple_text", *many)
    assert summary["ok"] == 300, summary


def test_the_inspector_finds_out_the_newer_era_by_itself(inspector, target):
    """MCP server, checklist 1: a client that speaks both eras chooses the newer one."""
    result = inspector(target, "auto", "--method", "tools/call", "--tool-name", "test_simple_text")
    assert result["resultType"] == "complete"
