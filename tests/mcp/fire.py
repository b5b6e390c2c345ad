"""A server over HTTP with one small tool, and ways to shoot at it."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager

from gramercy.testing.clients import request_head
from tests.mcp.conversations import LEGACY, MODERN, HttpConversation
from tests.support import BOUND, memory, start_server, wire_to

# Of a server that has read 10 MB several times over; at rest it has about 40.
MOST_MEGABYTES = 120
TOOLS = '''
from gramercy import tool

@tool(inline=True)
def echo(text: str) -> str:
    """Give a text back."""
    return text[:100]
'''


@contextmanager
def served(folder, *options):
    """Start a server with one tool; it must not have ended by itself, taken much memory or complained."""
    (folder / "tools.py").write_text(TOOLS)
    server = start_server("--from", "tools.py", *options, cwd=folder)
    try:
        yield server
        assert server.process.poll() is None, server.errors()
        assert memory(server.process.pid) < MOST_MEGABYTES
        assert "Traceback" not in server.errors()
    finally:
        server.close()


class Fire:
    """A server over HTTP, and ways to shoot at it."""

    def __init__(self, port):
        self.port = port
        self.wire = wire_to(port)
        self.session = {}

    async def begin(self):
        """Begin a session of the older era."""
        client = HttpConversation(self.port, LEGACY)
        await client.greet()
        self.session = dict(client.headers({"method": "ping"}))
        client.close()

    async def post(self, body, **headers):
        """Post a body on a connection that is kept as long as the server keeps it."""
        try:
            response = await self.wire.send(request_head(body, **headers) + body)
            content = await response.body()
        except (OSError, asyncio.IncompleteReadError):
            # A refusal before the body was sent may be lost with the connection; not a second time.
            self.wire.close()
            return 0, b""
        if response.headers.get("connection") == "close":
            self.wire.close()
        return response.status, content

    async def raw(self, data, *, half=False):
        """Send bytes on a connection of their own and return all that comes back."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            if half:
                writer.write_eof()
            async with asyncio.timeout(BOUND):
                return await reader.read()
        except OSError:
            return b""
        finally:
            writer.transport.abort()

    async def check_alive(self):
        """Check that an honest client is answered, on a connection of its own."""
        client = HttpConversation(self.port, MODERN)
        result = await client.call("echo", text="still here")
        client.close()
        assert result["content"][0]["text"] == "still here"


def run_under_fire(port, shoot):
    """Run a coroutine function with something to shoot with; afterwards an honest client must be served."""

    async def main():
        fire = Fire(port)
        await fire.begin()
        try:
            await shoot(fire)
            await fire.check_alive()
        finally:
            fire.wire.close()
            await asyncio.sleep(0.001)

    asyncio.run(main())
