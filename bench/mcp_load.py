"""A raw HTTP client, the same for every server: connections kept alive, one request on each at a time.

It is an epoll loop that sends the same bytes again and again, so that the servers are the bottleneck.
"""

from __future__ import annotations

import os
import re
import select
import socket
import statistics
import subprocess
from contextlib import ExitStack, contextmanager
from time import monotonic, perf_counter, sleep
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.mcp_wire import ABOUT, VERSION, end, frame

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

BOUND = 60.0
MODERN = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
META = {
    f"{PREFIX}protocolVersion": MODERN,
    f"{PREFIX}clientCapabilities": {},
    f"{PREFIX}clientInfo": ABOUT["clientInfo"],
}
ECHO: dict[str, Any] = {"name": "echo", "arguments": {"text": "hello"}}


class Pace(NamedTuple):
    """Seconds of the whole for each request, and the median of what a request waited."""

    each: float
    p50: float


def post(port: int, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Write a request to the endpoint."""
    shown = {
        "Host": f"127.0.0.1:{port}",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in shown.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body


def stateless_call(port: int) -> bytes:
    """Write a call of echo as the newest revision wants it: without a session."""
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "echo"}
    return post(port, frame("tools/call", {**ECHO, "_meta": META}).rstrip(), headers)


def session_call(port: int, session: str) -> bytes:
    """Write a call of echo within a session."""
    return post(port, frame("tools/call", ECHO).rstrip(), _session_headers(session))


def _session_headers(session: str) -> dict[str, str]:
    return {"MCP-Protocol-Version": VERSION, "Mcp-Session-Id": session}


class Connection:
    """One connection that is kept alive."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.socket = socket.create_connection(("127.0.0.1", port), BOUND)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> bytes:
        """Send a request and return the whole response."""
        self.socket.sendall(request)
        return self.receive()

    def receive(self) -> bytes:
        """Return the next response; almost always it is there at once and in one piece."""
        response = self.socket.recv(1 << 16)
        while not _is_whole(response):
            more = self.socket.recv(1 << 16)
            if not more:
                raise RuntimeError(f"the server hung up after {response[:300]!r}")
            response += more
        return response

    def open_session(self) -> str:
        """Shake hands and return the name of the session."""
        response = self.ask(post(self._port, frame("initialize", ABOUT).rstrip(), {}))
        found = re.search(rb"\r\nmcp-session-id: *([^\r]+)\r\n", response, re.IGNORECASE)
        assert found is not None, response[:500]
        session = found[1].decode()
        notice = frame("notifications/initialized", number=None).rstrip()
        told = self.ask(post(self._port, notice, _session_headers(session)))
        assert told.startswith(b"HTTP/1.1 202"), told[:300]
        return session

    def close(self) -> None:
        """Hang up."""
        self.socket.close()


def _is_whole(response: bytes) -> bool:
    head, end_of_head, body = response.partition(b"\r\n\r\n")
    if not end_of_head:
        return False
    place = head.lower().find(b"content-length:")
    if place < 0:
        return body.endswith(b"0\r\n\r\n")
    return len(body) >= int(head[place + 15 :].split(b"\r\n", 1)[0])


def drive(connections: Sequence[Connection], requests: Sequence[bytes], seconds: float) -> Pace:
    """Keep one request under way on every connection for so long; each connection has its own request."""
    with select.epoll() as poll:
        by_number = {connection.socket.fileno(): place for place, connection in enumerate(connections)}
        since = [0.0] * len(connections)
        for number, place in by_number.items():
            poll.register(number, select.EPOLLIN)
            connections[place].socket.sendall(requests[place])
            since[place] = perf_counter()
        waits: list[float] = []
        started = perf_counter()
        under_way = len(connections)
        while under_way:
            for number, _ in poll.poll(BOUND) or _nothing():
                place = by_number[number]
                response = connections[place].receive()
                now = perf_counter()
                assert b'"hello"' in response, response[:500]
                waits.append(now - since[place])
                if now - started < seconds:
                    since[place] = now
                    connections[place].socket.sendall(requests[place])
                else:
                    under_way -= 1
        return Pace((perf_counter() - started) / len(waits), statistics.median(waits))


def _nothing() -> list[tuple[int, int]]:
    raise RuntimeError(f"no answer within {BOUND:g} s")


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def listening(command: Sequence[str], port: int, core: int) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server on one core and wait until it listens."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            os.sched_setaffinity(process.pid, {core})
            _await_port(process, port)
            yield process
        finally:
            process.terminate()
            end(process)


def _await_port(process: subprocess.Popen[bytes], port: int) -> None:
    last = monotonic() + BOUND
    while process.poll() is None and monotonic() < last:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except ConnectionRefusedError:
            sleep(0.02)
        else:
            return
    raise RuntimeError(f"{process.args!r} does not listen")


@contextmanager
def connected(port: int, count: int) -> Iterator[list[Connection]]:
    """Open so many connections."""
    with ExitStack() as stack:
        connections = [Connection(port) for _ in range(count)]
        for connection in connections:
            stack.callback(connection.close)
        yield connections
