"""The least that an echo over stdio can cost in Python: a reader on the event loop, msgspec, a write.

It knows the one tool, checks nothing and can do nothing else. `uvloop` as an argument takes that loop.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

TOOL = {
    "name": "echo",
    "description": "Return the text.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}
TOOLS = [{**TOOL, "name": f"echo_{number}"} for number in range(int(os.environ.get("TOOLS", "1")))]
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "raw", "version": "1"},
}
LISTED = msgspec.Raw(msgspec.json.encode({"tools": TOOLS}))


class Request(msgspec.Struct):
    method: str
    id: int | None = None
    params: dict[str, Any] = {}


decode, encode = msgspec.json.Decoder(Request).decode, msgspec.json.Encoder().encode


def answer(frame: bytes) -> bytes:
    request = decode(frame)
    if request.id is None:
        return b""
    if request.method == "tools/call":
        text = request.params["arguments"]["text"]
        result: Any = {"content": [{"type": "text", "text": text}], "isError": False}
    else:
        result = HELLO if request.method == "initialize" else LISTED
    return encode({"jsonrpc": "2.0", "id": request.id, "result": result}) + b"\n"


def write_all(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def serve(loop: asyncio.AbstractEventLoop, answer: Callable[[bytes], bytes] = answer) -> None:
    rest = b""

    def read() -> None:
        nonlocal rest
        chunk = os.read(0, 1 << 16)
        if not chunk:
            loop.stop()
        *frames, rest = (rest + chunk).split(b"\n")
        for frame in frames:
            write_all(answer(frame))

    loop.add_reader(0, read)
    loop.run_forever()


if __name__ == "__main__":
    if "uvloop" in sys.argv:
        import uvloop

        serve(uvloop.new_event_loop())
    else:
        serve(asyncio.new_event_loop())
