"""FastMCP: `stdio`, or `http PORT [sessions]`; its tools are async functions, so that no thread is needed."""

from __future__ import annotations

import os
import sys

from fastmcp import FastMCP

SERVER: FastMCP = FastMCP("fastmcp")


async def echo(text: str) -> str:
    """Return the text."""
    return text


for number in range(int(os.environ.get("TOOLS", "1"))):
    SERVER.tool(echo, name=f"echo_{number}" if number else "echo")

if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        SERVER.run(transport="stdio", show_banner=False, log_level="CRITICAL")
    else:
        import uvicorn

        app = SERVER.http_app(json_response=True, stateless_http="sessions" not in sys.argv)
        uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), access_log=False, log_level="critical")
