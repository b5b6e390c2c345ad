"""How `gramercy serve` ends: soon, whatever goes on, and with nothing left behind."""

from __future__ import annotations

import json
import signal
import urllib.request
from pathlib import Path
from time import monotonic

import pytest

from gramercy.mcp import stdio
from gramercy.testing.clients import StdioClient, frame
from gramercy.ui.cli import serve as serving
from tests.support import children_of, until

TOOL = {"sbcl": "evaluate-lisp", "python": "evaluate-python"}
SIX = {"sbcl": "(+ 1 2 3)", "python": "1 + 2 + 3"}
LOOP = {"sbcl": "(loop)", "python": "while True: pass"}
STUBBORN = {
    "sbcl": "(sb-sys:without-interrupts (loop))",
    "python": "import signal as s\ns.pthread_sigmask(s.SIG_BLOCK, [s.SIGINT])\nwhile True: pass",
}
STUCK = '''
import threading
from gramercy import tool

@tool
def hang() -> str:
    """Never come back, on a thread that nobody can stop."""
    thread = threading.Thread(target=threading.Event().wait)
    thread.start()
    thread.join()
'''


# What goes on in these tests never ends by itself. `scripts/bench mcp-stdio` measures the promised second:
# a busy machine takes longer.
SOON = 15.0


def test_the_waits_at_an_end_stay_together_below_a_second():
    """MCP checklist 10: clean exit on EOF in under 1 s."""
    transport = stdio.LINGER_SECONDS + stdio.CANCEL_SECONDS + stdio.DRAIN_SECONDS
    assert transport + serving.CLOSING_SECONDS + serving.LEAVING_SECONDS < 1


@pytest.fixture(name="serve")
def serve_fixture(tmp_path):
    """Start a server in an empty project; what a test leaves running is ended."""
    clients = []

    def start(*options, hands=True):
        client = StdioClient.serve(*options, cwd=tmp_path)
        clients.append(client)
        if hands:
            client.initialize()
        return client

    yield start
    for client in clients:
        client.close()


def evaluate(client, language, code):
    client.call(TOOL[language], code=code)


def test_the_end_of_the_input_ends_the_server_and_its_images(serve, language):
    """MCP checklist 10: clean exit on EOF with children reaped."""
    client = serve("--image", language)
    evaluate(client, language, SIX[language])
    children = children_of(client.process.pid)
    assert children
    seconds, code = client.hang_up()
    assert (seconds < SOON, code) == (True, 0)
    until(lambda: not any(_is_alive(child) for child in children))
    # One line, on how images are confined.
    assert [line for line in client.errors().splitlines() if "sandbox" not in line] == []


@pytest.mark.parametrize("code", [LOOP, STUBBORN])
def test_an_evaluation_under_way_does_not_keep_the_server(serve, language, code):
    """MCP checklist 10: clean exit on EOF with children reaped."""
    client = serve("--image", language)
    evaluate(client, language, SIX[language])
    client.begin("tools/call", name=TOOL[language], arguments={"code": code[language]})
    client.ask("ping")
    children = children_of(client.process.pid)
    seconds, status = client.hang_up()
    assert (seconds < SOON, status) == (True, 0)
    until(lambda: not any(_is_alive(child) for child in children))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_and_its_images(serve, number):
    """MCP, lifecycle: a client may terminate the server."""
    client = serve("--image", "python")
    client.begin("tools/call", name="evaluate-python", arguments={"code": LOOP["python"]})
    client.ask("ping")
    children = children_of(client.process.pid)
    begun = monotonic()
    client.process.send_signal(number)
    assert client.process.wait(20) == 0
    assert monotonic() - begun < SOON
    until(lambda: not any(_is_alive(child) for child in children))


def test_a_server_that_is_killed_leaves_nothing_behind(serve, language):
    """Images: nothing of them outlives the process that started them."""
    client = serve("--image", language)
    evaluate(client, language, SIX[language])
    children = children_of(client.process.pid)
    client.process.kill()
    until(lambda: not any(_is_alive(child) for child in children))


def _is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(") ")[2][0]
    except OSError:
        return False
    return state not in "ZX"


def test_a_tool_that_never_comes_back_does_not_keep_the_server(serve, tmp_path):
    """MCP checklist 10: clean exit on EOF."""
    (tmp_path / "stuck.py").write_text(STUCK)
    client = serve("--from", "stuck.py")
    client.begin("tools/call", name="hang", arguments={})
    client.ask("ping")
    seconds, code = client.hang_up()
    assert (seconds < SOON, code) == (True, 0)


def test_a_server_over_http_answers_and_ends_with_its_images(serve):
    """MCP checklist 1: both transports from one command."""
    client = serve("--http", "127.0.0.1:0", "--no-auth", "--image", "python", hands=False)
    until(lambda: "serves MCP at " in client.errors())
    url = client.errors().partition("serves MCP at ")[2].split()[0]
    call = {"name": "evaluate-python", "arguments": {"code": SIX["python"]}}
    assert _post(url, call)["result"]["content"][0]["text"] == "=> 6"
    children = children_of(client.process.pid)
    assert children
    client.process.send_signal(signal.SIGTERM)
    assert client.process.wait(20) == 0
    until(lambda: not any(_is_alive(child) for child in children))
    assert client.line() is None


def _post(url, call):
    version = "2026-07-28"
    about = {
        "protocolVersion": version,
        "clientCapabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    }
    meta = {f"io.modelcontextprotocol/{key}": value for key, value in about.items()}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": version,
        "Mcp-Method": "tools/call",
        "Mcp-Name": call["name"],
    }
    body = frame({"id": 1, "method": "tools/call", "params": {**call, "_meta": meta}})
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=20) as answer:
        return json.loads(answer.read())


def test_a_person_at_a_terminal_is_told_what_is_awaited_and_can_leave(terminal):
    """A server that is started by hand must not look as if it hung."""
    screen = terminal("serve", "--image", "python")
    screen.expect("waiting for an MCP client on standard input")
    screen.settle()
    screen.send(frame({"id": 1, "method": "ping"}).decode())
    screen.expect('"result":{}')
    screen.send("\x03")
    assert screen.end() == 0
