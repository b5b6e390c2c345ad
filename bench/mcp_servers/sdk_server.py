"""The official Python SDK, its low-level server: `stdio`, or `http PORT [sessions]`.

What it is given is as cheap as it can be: the list is made once and nothing is validated.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
COUNT = int(os.environ.get("TOOLS", "1"))
NAMES = ["echo", *(f"echo_{number}" for number in range(1, COUNT))]
TOOLS = [types.Tool(name=name, description="Return the text.", input_schema=SCHEMA) for name in NAMES]


async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=TOOLS)


async def call_tool(_context: Any, params: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=params.arguments["text"])])


SERVER: Server[Any] = Server("sdk", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


async def serve_stdio() -> None:
    async with stdio_server() as (reader, writer):
        await SERVER.run(reader, writer, SERVER.create_initialization_options())


def serve_http(port: int, *, sessions: bool) -> None:
    import uvicorn

    app = SERVER.streamable_http_app(json_response=True, stateless_http=not sessions)
    uvicorn.run(app, host="127.0.0.1", port=port, access_log=False, log_level="critical")


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        anyio.run(serve_stdio)
    else:
        serve_http(int(sys.argv[2]), sessions="sessions" in sys.argv)
