"""Name a folder with the official Python client and print what the first two replies of a server say.

Usage: python folders.py legacy|modern URI DIRECTORY COMMAND ARGUMENT…; the server starts in the directory.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import mcp_types as types
from mcp import Client, StdioServerParameters

WHERE = {"code": "import os; os.getcwd()"}


async def main(era: str, uri: str, directory: str, command: str, *arguments: str) -> None:
    async def roots(_context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=uri)])

    server = StdioServerParameters(command=command, args=list(arguments), cwd=directory)
    mode = "2026-07-28" if era == "modern" else "legacy"
    async with Client(server, mode=mode, list_roots_callback=roots) as client:
        results = [await client.call_tool("evaluate-python", WHERE) for _ in range(2)]
        said = [[block.text for block in result.content] for result in results]
    print(json.dumps(said))  # noqa: T201 - this is what the test reads


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
