"""Other servers to use: our own over both transports, and strangers who misbehave."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic

import pytest

from gramercy import Executor, Registry
from gramercy.mcp.foreign import PinFile, connect_server, register_foreign

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PATIENCE = 60.0
NOTES = [sys.executable, "-m", "gramercy", "serve", "--from", str(ROOT / "examples" / "notes.py")]


@pytest.fixture
def pins(tmp_path):
    """Return a file with pins that is not there yet."""
    return PinFile(tmp_path / "config" / "pins.json")


@pytest.fixture
def traces(tmp_path):
    """Return where a stranger leaves traces, and a function that waits for one."""
    return Traces(tmp_path / "traces")


class Traces:
    """What a stranger has noted down."""

    def __init__(self, path):
        self.path = path

    def lines(self):
        return self.path.read_text("utf-8").splitlines() if self.path.exists() else []

    def wait_for(self, beginning):
        """Wait until a line begins so."""
        end = monotonic() + PATIENCE
        pause = threading.Event()
        while monotonic() < end:
            if any(line.startswith(beginning) for line in self.lines()):
                return
            pause.wait(0.01)
        pytest.fail(f"{beginning!r} was never noted: {self.lines()}")


@pytest.fixture
def stranger(traces):
    """Return a function that connects to a stranger with a vice."""
    servers = []

    def connect(mode, **options):
        command = [sys.executable, str(HERE / "stranger.py"), mode, str(traces.path)]
        server = connect_server(command, name=options.pop("name", "odd"), **options)
        servers.append(server)
        return server

    yield connect
    for server in servers:
        server.close()


@pytest.fixture
def echo(stranger, pins):
    """Return a function that calls the tool of a stranger through the guard, once it was accepted."""

    def make(mode, **options):
        server = stranger(mode, **options)
        pins.accept("odd", server.tools())
        registry = Registry()
        assert register_foreign(registry, server, pins=pins, level="safe").registered == ("odd__echo",)
        executor = Executor(registry)

        def call(text="hello"):
            return executor.execute({"id": "1", "name": "odd__echo", "arguments": {"text": text}})

        return call

    return make


@pytest.fixture(scope="session")
def notes_url(tmp_path_factory):
    """Serve the notes over HTTP from a process of their own and return the address."""
    folder = tmp_path_factory.mktemp("notes")
    command = [*NOTES, "--http", "127.0.0.1:0", "--no-auth"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=folder, text=True
    ) as process:
        try:
            yield _address(process)
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _address(process):
    for line in process.stderr:
        words = [word for word in line.split() if word.startswith("http://")]
        if words:
            return words[0].rstrip(".,;")
    return pytest.fail("the server never told where it listens")


@pytest.fixture(params=["stdio", "http"])
def place(request):
    """Return how to reach the notes: by a command, or by an address."""
    if request.param == "stdio":
        return {"command": NOTES}
    return {"url": request.getfixturevalue("notes_url")}
