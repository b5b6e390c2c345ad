"""The least that evaluating over MCP can cost with two processes: a raw server in front of a raw loop.

Usage: raw_evaluator.py LANGUAGE. No sandbox, no deadline, no bound on output, no way back.
"""

from __future__ import annotations

import asyncio
import sys

from bench.mcp_servers.raw_stdio import answer as plain_answer
from bench.mcp_servers.raw_stdio import decode, encode, serve
from bench.raw_loops import RawLoop


def main(language: str) -> None:
    with RawLoop(language) as loop:

        def answer(frame: bytes) -> bytes:
            request = decode(frame)
            if request.method != "tools/call":
                return plain_answer(frame)
            value = loop.evaluate(request.params["arguments"]["code"])
            result = {"content": [{"type": "text", "text": f"=> {value}"}], "isError": False}
            return encode({"jsonrpc": "2.0", "id": request.id, "result": result}) + b"\n"

        serve(asyncio.new_event_loop(), answer)


if __name__ == "__main__":
    main(sys.argv[1])
