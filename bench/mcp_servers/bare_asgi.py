"""The least that HTTP can cost with uvicorn: read, decode, answer. Usage: bare_asgi.py http PORT."""

from __future__ import annotations

import sys
from typing import Any

import uvicorn

from bench.mcp_servers.raw_stdio import answer

HEADERS = [(b"content-type", b"application/json")]


async def app(_scope: Any, receive: Any, send: Any) -> None:
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    said = answer(body)
    length = (b"content-length", b"%d" % len(said))
    await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS, length]})
    await send({"type": "http.response.body", "body": said})


if __name__ == "__main__":
    port = int(sys.argv[2])
    uvicorn.run(app, host="127.0.0.1", port=port, access_log=False, log_level="critical", lifespan="off")
