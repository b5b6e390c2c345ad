"""A server with the fixtures for the judges to judge."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from time import monotonic

import pytest

from tests.judging import judge, judges
from tests.support import free_port

__all__ = ["judge", "judges"]
# Clients pass no environment on, and nobody decides elsewhere.
WAIT = ["--approval-wait", "0.2"]
SERVE = [sys.executable, "-m", "gramercy", "serve", "--conformance-fixtures", *WAIT]
STARTING = 20


@pytest.fixture(scope="session")
def server_url(tmp_path_factory):
    """Serve the fixtures over HTTP from a process of their own and return the address."""
    port = free_port()
    command = [*SERVE, "--http", f"127.0.0.1:{port}", "--no-auth"]
    said = tmp_path_factory.mktemp("server") / "stderr"
    with (
        said.open("wb") as stderr,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=stderr, cwd=said.parent) as process,
    ):
        try:
            _await_port(process, port, said)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.terminate()
            process.wait(STARTING)
    assert b"Traceback (" not in said.read_bytes()


@pytest.fixture(params=["stdio", "http"])
def target(request):
    """Return what a client is given to reach the server: a command, or an address."""
    return SERVE if request.param == "stdio" else [request.getfixturevalue("server_url")]


@pytest.fixture(params=["legacy", "modern"])
def era(request):
    """Return the era of the protocol: with a handshake, or without a session."""
    return request.param


def _await_port(process, port, said):
    end = monotonic() + STARTING
    while True:
        assert process.poll() is None, f"the server has gone: {said.read_text()}"
        assert monotonic() < end, f"the server never listened: {said.read_text()}"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except ConnectionRefusedError:
            threading.Event().wait(0.01)
        else:
            return
