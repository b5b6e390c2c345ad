"""The raw clients send and read what a test wants, wait for a bounded time, and leave nothing behind."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading

import pytest

from gramercy import Executor, Registry, define_tool
from gramercy.mcp.engine import Engine
from gramercy.mcp.http import HttpServer, HttpSettings, TokenGate
from gramercy.testing.clients import HttpClient, StdioClient

TOOLS = """
from gramercy import tool

@tool
def double(number: int) -> int:
    "Double a number."
    return 2 * number
"""
TOKEN = "a token of sixteen and more characters".replace(" ", "-")


@pytest.fixture
def served(tmp_path):
    (tmp_path / "tools.py").write_text(TOOLS)
    with StdioClient.serve("--from", "tools.py", cwd=tmp_path) as client:
        yield client


def test_a_server_on_pipes_is_asked_in_plain_words(served):
    assert served.initialize()["serverInfo"]["name"]
    assert served.call("double", number=21)["content"] == [{"type": "text", "text": "42"}]
    seconds, code = served.hang_up()
    assert (seconds < 10, code, served.rest(), served.errors()) == (True, 0, [], "")


def test_bytes_are_sent_as_they_are(served):
    served.send(b"nonsense\n")
    assert served.message()["error"]["code"] == -32700
    served.initialize()
    served.send(b" " * 100_000, b"\n")
    assert "result" in served.ask("ping")


def program(code, seconds=20.0):
    return StdioClient(sys.executable, "-c", code, seconds=seconds)


def test_a_server_that_says_nothing_is_not_waited_for_long():
    code = "import sys; print('grumble', file=sys.stderr, flush=True); sys.stdin.read()"
    with (
        program(code, seconds=0.3) as client,
        pytest.raises(TimeoutError, match=r"no line came within 0\.3 s"),
    ):
        client.message()
    assert client.process.returncode is not None


def test_a_server_that_ends_is_told_with_its_last_words():
    with program("import sys; sys.exit('no such file')") as client:
        with pytest.raises(EOFError, match="no such file"):
            client.message()
        assert client.line() is None


def test_half_a_line_at_the_end_is_not_taken_for_a_message():
    with program("print('{\"half\":', end='')") as client, pytest.raises(EOFError, match="within a line"):
        client.line()


@pytest.fixture
def url():
    """Serve a tool over HTTP in this process."""
    double = define_tool(
        "double", "Double.", [{"name": "n", "type": "integer"}], handler=lambda found: 2 * found["n"]
    )
    engine = Engine(Executor(Registry([double])), name="test", version="1")
    server = HttpServer(engine, settings=HttpSettings(gate=TokenGate.of(TOKEN)))
    thread = threading.Thread(target=server.run)
    thread.start()
    yield server.url
    server.stop()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
def test_a_server_over_http_is_asked_in_plain_words(url, version):
    async def main():
        async with HttpClient(url, token=TOKEN, version=version) as client:
            if version != "2026-07-28":
                assert (await client.initialize())["protocolVersion"] == version
                assert "mcp-session-id" in client.headers
            results = [await client.call("double", n=number) for number in (1, 2, 3)]
            return [result["content"][0]["text"] for result in results]

    assert asyncio.run(main()) == ["2", "4", "6"]


def test_heads_and_bodies_are_sent_as_they_are(url):
    async def main():
        async with HttpClient(url) as client:
            response = await client.post({"jsonrpc": "2.0", "id": 1, "method": "ping"})
            assert (response.status, response.headers["www-authenticate"][:6]) == (401, "Bearer")
            assert [message["error"]["code"] async for message in response.messages()] == [-32000]
            response = await client.post(b"{", authorization=f"Bearer {TOKEN}", content_type=None)
            assert response.status == 415
            await response.body()
            response = await client.send(b"GET /elsewhere HTTP/1.1\r\nhost: localhost\r\n\r\n")
            return response.status

    assert asyncio.run(main()) == 404


def test_a_server_over_http_that_says_nothing_is_not_waited_for_long():
    async def main():
        async with HttpClient(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", seconds=0.2) as client:
            with pytest.raises(TimeoutError):
                await client.ask("ping")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        asyncio.run(main())


def test_nothing_was_sent_so_nothing_is_read():
    with pytest.raises(ConnectionError, match="send a request first"):
        asyncio.run(HttpClient("http://127.0.0.1:1/mcp").read())


def test_the_doubles_are_not_loaded_with_the_package():
    """House, testing: not imported by `import gramercy`."""
    code = "import sys, gramercy; gramercy.Executor; print([n for n in sys.modules if 'testing' in n])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"


def test_reading_the_errors_of_a_server_moves_none_of_its_lines():
    """A line that a server writes while another was read took the place of its first one."""
    code = "import sys\nfor n in range(3000): print(n, file=sys.stderr, flush=True)"
    client = StdioClient(sys.executable, "-c", code)
    try:
        while client.process.poll() is None:
            client.errors()
        assert client.errors().split() == [str(number) for number in range(3000)]
    finally:
        client.close()
