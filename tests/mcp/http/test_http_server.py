"""Starting, announcing, and ending within bounded time."""

import os
import signal
import socket
import subprocess
import sys

import httpx
import pytest

from gramercy.mcp.http import HttpServer, HttpSettings, OpenGate, ServingError, TokenGate
from gramercy.mcp.http.settings import PUBLIC_RATE, is_loopback

PROGRAM = """
import asyncio, sys
from gramercy.mcp.http import serve_http

class Receiver:
    def take(self, peer, received, channel=None):
        return self.wait(channel)

    async def wait(self, channel):
        channel.send(b'{"jsonrpc":"2.0","method":"begun"}')
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("cancelled", file=sys.stderr, flush=True)
            raise

    def close(self, peer):
        pass

print("polluted by a tool?", file=sys.stderr)
serve_http(Receiver(), "127.0.0.1", 0)
print("ended", file=sys.stderr, flush=True)
"""


@pytest.fixture
def child():
    """Run a server in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate(timeout=10)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_everything_at_once_and_orderly(child, tools, number):
    """An open stream and a running call do not hold the server; stdout stays clean."""
    assert child.stderr.readline() == "polluted by a tool?\n"
    port = int(child.stderr.readline().split(":")[-1].removesuffix("/mcp\n"))
    token = child.stderr.readline().removeprefix("token: ").strip()
    body = b'{"jsonrpc":"2.0","id":1,"method":"x","params":{}}'
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        head = {
            "host": "localhost",
            "authorization": f"Bearer {token}",
            "content-type": "application/json",
            **tools.modern_headers("x"),
            "content-length": str(len(body)),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        connection.sendall(f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body)
        assert b"200 OK" in connection.recv(4096)
        os.kill(child.pid, number)
        # The call that is under way takes a minute.
        out, rest = child.communicate(timeout=30)
    assert child.returncode == 0
    assert out == ""
    assert rest == "cancelled\nended\n"


@pytest.mark.contract("trust.approval.faults")
def test_a_call_that_waits_when_the_server_ends_is_told_so(start, tools):
    """Trust, 10: on the old code its client got a 500."""
    site = start(commit_seconds=60.0)
    with site.connect() as connection:
        connection.sendall(site.raw(tools.modern_message("wait"), **tools.modern_headers("wait")))
        assert site.toy.started.wait(10)
        site.server.stop()
        answer = b""
        while chunk := connection.recv(4096):
            answer += chunk
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"the server is being stopped" in answer


FAULTY = """
from gramercy.mcp.http import serve_http, HttpSettings, OpenGate

class Receiver:
    def take(self, peer, received, channel=None):
        raise KeyError("secret")

    def close(self, peer):
        pass

serve_http(Receiver(), "127.0.0.1", 0, settings=HttpSettings(gate=OpenGate()))
"""


@pytest.mark.contract("trust.approval.faults")
def test_a_fault_is_one_line_of_the_log_of_a_real_server(tools):
    """Trust, 10: with a number to find it by, and without what it was about."""
    with subprocess.Popen([sys.executable, "-c", FAULTY], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            url = process.stderr.readline().split()[-1]
            process.stderr.readline()
            headers = {**tools.modern_headers("x"), "accept": "application/json, text/event-stream"}
            answer = httpx.post(url, json=tools.modern_message("x"), headers=headers, timeout=10)
            line = process.stderr.readline()
        finally:
            process.kill()
    reference = answer.json()["error"]["message"].split()[-1]
    assert (answer.status_code, len(reference)) == (500, 8)
    assert f"failed, reference {reference}: KeyError at " in line
    assert "secret" not in line


def test_the_url_tells_the_port_that_was_taken(start):
    """Port 0 takes a free one."""
    site = start()
    assert site.server.port > 0
    assert site.url == f"http://127.0.0.1:{site.server.port}/mcp"


def test_the_server_listens_on_ipv6_as_well(tools):
    """The URL has brackets then."""
    try:
        server = HttpServer(tools.Toy(), "::1", settings=HttpSettings(gate=OpenGate()))
    except ServingError:
        pytest.skip("no IPv6 here")
    assert server.url.startswith("http://[::1]:")
    server._socket.close()


def test_a_port_that_is_taken_is_told(start, tools):
    """What, which, and what to try."""
    site = start()
    with pytest.raises(ServingError, match=rf"127.0.0.1:{site.server.port}.*another port"):
        HttpServer(tools.Toy(), port=site.server.port)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com"])
def test_other_addresses_need_a_token_and_an_allow_list(tools, host):
    """Nothing is open to the network by accident."""
    with pytest.raises(ServingError, match="without a token"):
        HttpServer(tools.Toy(), host, settings=HttpSettings(gate=OpenGate(), hosts=("tools.example.com",)))
    with pytest.raises(ServingError, match="allow-list of hosts"):
        HttpServer(tools.Toy(), host, settings=HttpSettings())
    settings = HttpSettings(gate=TokenGate.generate(), hosts=("tools.example.com",)).for_address(host)
    assert settings.rate == PUBLIC_RATE


def test_no_rate_is_asked_for_on_this_machine():
    """A person's own programs are not slowed down."""
    assert HttpSettings().for_address("127.0.0.1").rate == 0


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("localhost.example.com", False),
        ("", False),
    ],
)
def test_loopback_addresses_are_known(host, is_local):
    """The empty address means all of them."""
    assert is_loopback(host) is is_local


@pytest.mark.parametrize("changed", [{"path": "mcp"}, {"path": "/"}, {"body_limit": 0}, {"sessions": -1}])
def test_settings_that_cannot_be_are_refused(changed):
    """With a message that names the setting."""
    with pytest.raises(ServingError, match=r"path|body_limit|sessions"):
        HttpSettings(**changed)


def test_the_application_runs_without_our_server(tools):
    """Any ASGI server will do: lifespan, and nothing but HTTP."""
    import asyncio

    from gramercy.mcp.http import HttpApp

    async def live():
        app = HttpApp(tools.Toy(), HttpSettings(gate=OpenGate()))
        coming = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
        said = []

        async def receive():
            return coming.pop(0)

        async def send(message):
            said.append(message["type"])

        await app({"type": "lifespan"}, receive, send)
        await app({"type": "websocket"}, receive, send)
        return said

    assert asyncio.run(live()) == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
        "websocket.close",
    ]


def test_importing_the_settings_does_not_import_the_server():
    """The command line pays for uvicorn and PyJWT only when it serves."""
    code = "import sys, gramercy.mcp.http; print({'uvicorn', 'jwt', 'cryptography'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "set()\n"
