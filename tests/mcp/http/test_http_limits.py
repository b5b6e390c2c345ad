"""Nobody gets more than their share: requests, connections, time, memory."""

import asyncio
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import httpx
import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

from gramercy.errors import HttpError
from gramercy.mcp.http import Caller, HttpApp, HttpSettings, TokenGate
from gramercy.mcp.http.connections import Strangers, bounded_by
from gramercy.mcp.http.settings import REMEMBERED_CALLERS, Load, Rate

ALICE, BOB = "alice" * 5, "bob" * 8
HEAD = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
GATE = TokenGate({ALICE: Caller("alice"), BOB: Caller("bob")})


def test_requests_beyond_the_rate_are_told_to_wait():
    """A bucket that refills, one for each principal."""
    now = [0.0]
    rate = Rate(2.0, 3, lambda: now[0])
    for _ in range(3):
        rate.take("alice")
    with pytest.raises(HttpError) as refusal:
        rate.take("alice")
    assert (refusal.value.status, refusal.value.headers) == (429, ((b"retry-after", b"1"),))
    rate.take("bob")
    now[0] = 0.5
    rate.take("alice")
    with pytest.raises(HttpError):
        rate.take("alice")


def test_principals_that_come_once_do_not_fill_the_memory():
    """Buckets are bounded too."""
    rate = Rate(1.0, 1, lambda: 0.0)
    for number in range(REMEMBERED_CALLERS + 100):
        rate.take(str(number))
    assert len(rate._buckets) == REMEMBERED_CALLERS


def test_the_rate_holds_over_http_for_each_caller(start):
    """Retry-After says how long."""
    site = start(gate=GATE, rate=0.01, burst=3)
    site.headers["authorization"] = f"Bearer {ALICE}"
    assert [site.post_modern("echo").status_code for _ in range(4)] == [200, 200, 200, 429]
    assert int(site.post_modern("echo").headers["retry-after"]) > 10
    site.headers["authorization"] = f"Bearer {BOB}"
    assert site.post_modern("echo").status_code == 200


def test_load_is_counted_by_principal_and_in_all():
    """What ends makes room."""
    load = Load(2, 3)
    load.enter("alice")
    load.enter("alice")
    with pytest.raises(HttpError) as mine:
        load.enter("alice")
    load.enter("bob")
    with pytest.raises(HttpError) as all_of_us:
        load.enter("carol")
    assert (mine.value.status, all_of_us.value.status) == (429, 503)
    load.leave("alice")
    load.enter("carol")
    for name in ("alice", "bob", "carol"):
        load.leave(name)
    assert (load.count, load._running) == (0, {})


def test_requests_at_a_time_are_limited_over_http(start, tools):
    """One caller cannot take all places; a place is free again when a request ends, however it ends."""
    site = start(gate=GATE, concurrency=1)
    site.headers["authorization"] = f"Bearer {ALICE}"
    with site.connect() as connection:
        request = site.raw(
            tools.modern_message("wait"), authorization=f"Bearer {ALICE}", **tools.modern_headers("wait")
        )
        connection.sendall(request)
        assert site.toy.started.wait(10)
        assert site.post_modern("echo").status_code == 429
        other = site.post(
            tools.modern_message("echo"), authorization=f"Bearer {BOB}", **tools.modern_headers("echo")
        )
        assert other.status_code == 200
    assert site.toy.cancelled.wait(10)
    site.until(lambda: site.post_modern("echo").status_code == 200)


@pytest.mark.parametrize(
    "sent",
    [b"", HEAD[:30], HEAD + b"content-length: 50\r\n\r\n{"],
    ids=["nothing", "half a head", "half a body"],
)
def test_a_client_that_does_not_finish_its_request_is_sent_away(start, sent):
    """Slow senders hold a connection for a bounded time."""
    site = start(request_seconds=0.2)
    with site.connect() as connection:
        connection.sendall(sent)
        assert connection.recv(100) == b""
    assert site.toy.taken == []


def test_an_idle_connection_between_requests_is_kept(start):
    """Waiting for the next request is not waiting for a request that began."""
    site = start(request_seconds=0.1)
    site.post_modern("echo")
    kept = set(site.server._server.server_state.connections)
    with site.connect() as silent:
        assert silent.recv(1) == b""
    site.post_modern("echo")
    assert set(site.server._server.server_state.connections) == kept


def test_a_head_without_end_is_refused(start):
    """Headers are bounded."""
    site = start()
    with site.connect() as connection:
        connection.sendall(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\n" + b"x-filler: " + b"y" * 70_000)
        assert connection.recv(12) == b"HTTP/1.1 400"


def test_a_client_that_does_not_read_its_answer_is_sent_away(start, tools):
    """Slow readers: megabytes do not wait for ever in our memory."""
    site = start(write_seconds=0.2)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(10)
        connection.connect(("127.0.0.1", site.server.port))
        body = tools.modern_message("echo", text="x" * 9_000_000)
        connection.sendall(site.raw(body, **tools.modern_headers("echo")))
        state = site.server._server.server_state
        site.until(lambda: len(site.toy.taken) == 1)
        site.until(lambda: not state.connections)


def test_a_reader_that_is_slow_but_reads_is_waited_for(tools):
    """Progress is what counts, not how long it takes in all."""

    class Pipe(asyncio.Transport):
        unread, is_aborted = 1000, False

        def get_write_buffer_size(self):
            return self.unread

        def abort(self):
            self.is_aborted = True

    async def read_slowly():
        settings = HttpSettings(write_seconds=5.0)
        config = uvicorn.Config(HttpApp(tools.Toy(), settings), ws="none", log_config=None)
        config.load()
        connection = bounded_by(settings)(config, ServerState(), {})
        connection.transport = pipe = Pipe()
        connection.flow = FlowControl(pipe)
        connection._awaited_since = None
        connection.pause_writing()
        now = connection.loop.time()
        for _ in range(10):
            now, pipe.unread = now + 4, pipe.unread - 10
            connection.check(now)
        assert not pipe.is_aborted
        connection.check(now + 6)
        return pipe.is_aborted

    assert asyncio.run(read_slowly())


@contextmanager
def admitted(site, tools):
    """Open a connection on which a caller was let in."""
    with site.connect() as connection:
        connection.sendall(site.raw(tools.modern_message("echo"), **tools.modern_headers("echo")))
        assert connection.recv(12) == b"HTTP/1.1 200"
        yield connection


def test_connections_are_limited(start, tools):
    """A server has so many doors and no more."""
    site = start(connections=2)
    state = site.server._server.server_state
    with admitted(site, tools), admitted(site, tools):
        assert len(state.connections) == 2
        with site.connect() as third, suppress(ConnectionResetError):
            assert third.recv(10) == b""
        site.until(lambda: len(state.connections) == 2)


@pytest.mark.contract("trust.approval.connections")
def test_of_those_who_were_not_admitted_the_oldest_makes_room(start, tools):
    """Trust, 10: half of the doors are for callers, and strangers push out each other."""
    site = start(connections=6)
    state = site.server._server.server_state
    with admitted(site, tools) as caller, site.connect() as first:
        site.until(lambda: len(state.connections) == 2)
        with site.connect(), site.connect(), site.connect(), suppress(ConnectionResetError):
            assert first.recv(10) == b""
        caller.sendall(site.raw(tools.modern_message("echo"), **tools.modern_headers("echo")))
        assert caller.recv(12)


class Far:
    """A connection from elsewhere, as far as it matters."""

    def __init__(self, address):
        self.client = (address, 1)
        self.transport = self
        self.is_aborted = False

    def abort(self):
        self.is_aborted = True


@pytest.mark.contract("trust.approval.connections")
def test_one_address_elsewhere_cannot_take_the_doors_of_all_strangers():
    """Trust, 10: programs on this machine share one address, so there it says nothing."""
    strangers = Strangers(400)
    far: list[Any] = [Far("192.0.2.1") for _ in range(60)]
    near: list[Any] = [Far("127.0.0.1") for _ in range(60)]
    other: Any = Far("192.0.2.2")
    for connection in (other, *far, *near):
        strangers.add(connection)
    assert [connection.is_aborted for connection in far] == [True] * 10 + [False] * 50
    assert not any(connection.is_aborted for connection in (other, *near))
    assert len(strangers) == 111
    for connection in (*far, *near, other, other):
        strangers.remove(connection)
    assert len(strangers) == 0


@pytest.mark.contract("trust.approval.connections")
def test_a_slow_head_is_waited_for_less_long_than_a_body(start):
    """Trust, 10: a head is sent at once."""
    site = start(head_seconds=0.2, request_seconds=600.0)
    with site.connect() as connection:
        connection.sendall(HEAD[:30])
        assert connection.recv(100) == b""


CROWDED = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from gramercy.mcp.http import serve_http, HttpSettings, TokenGate

class Receiver:
    def take(self, peer, received, channel=None):
        for _ in range(100):
            os.open("/dev/null", os.O_RDONLY)
        return b'{"jsonrpc":"2.0","id":1,"result":{}}'

    def close(self, peer):
        pass

serve_http(Receiver(), "127.0.0.1", 0, settings=HttpSettings(gate=TokenGate.of("a" * 20)))
"""


@pytest.mark.contract("trust.approval.connections")
def test_connections_without_a_token_do_not_take_every_descriptor(tools):
    """Trust, 10: on the old code a server with the usual limit could open nothing any more."""
    with ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen([sys.executable, "-c", CROWDED], stderr=subprocess.PIPE, text=True)
        )
        stack.callback(process.kill)
        assert process.stderr is not None
        port = int(process.stderr.readline().split(":")[-1].removesuffix("/mcp\n"))
        for _ in range(300):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        headers = {**tools.modern_headers("x"), "accept": "application/json, text/event-stream"}
        answer = httpx.post(
            f"http://127.0.0.1:{port}/mcp",
            json=tools.modern_message("x"),
            headers={**headers, "authorization": "Bearer " + "a" * 20},
            timeout=10,
        )
        assert (answer.status_code, answer.json()["result"]) == (200, {})


def test_many_requests_leave_nothing_behind(start):
    """Counts and sets are empty when all is done."""
    site = start()
    for number in range(200):
        site.post_modern("echo", count=number % 3)
    app = site.server.app
    site.until(lambda: app._load.count == 0)
    assert (app._load._running, app._parts.posts.deliveries) == ({}, set())
