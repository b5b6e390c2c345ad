"""What tests of several rooms need: servers to start, processes to look at, images to prepare."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import threading
import zlib
from collections import defaultdict
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from gramercy.images.caches import find_core
from gramercy.images.sbcl import find_sbcl, sbcl_version
from gramercy.testing.clients import HttpClient, StdioClient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gramercy.images.base import Reply

# Longer than anything takes on a busy machine.
BOUND = 60.0
# Two tries, each of which scripts/fetch bounds, and one of another worker before.
INSTALLING = 3600.0
# The status of scripts/fetch for a registry that does not answer.
UNANSWERED = 69
ROOT = Path(__file__).parents[1]
# Linux gives away those from 32768 on.
PORTS = range(20_000, 32_000)
_used = itertools.count()


def start_server(*options: str, cwd: Path, **environment: str) -> StdioClient:
    """Start `gramercy serve` without colours and return its client on pipes."""
    return StdioClient.serve(*options, cwd=cwd, env={"NO_COLOR": "1", **environment})


def said_besides(*servers: StdioClient) -> list[str]:
    """Return the lines that servers wrote to standard error, without the one on how images are confined."""
    lines = [line for server in servers for line in server.errors().splitlines()]
    return [
        line
        for line in lines
        if not re.match(r"gramercy: (sandbox: |WARNING, (the weaker|no) sandbox)", line)
    ]


def port_of(server: StdioClient) -> int:
    """Wait until a server listens on this machine and return its port."""
    until(lambda: server.process.poll() is not None or "serves MCP at " in server.errors())
    said = server.errors()
    assert "serves MCP at " in said, said
    return int(said.partition("127.0.0.1:")[2].partition("/")[0])


def wire_to(port: int) -> HttpClient:
    """Return a connection to the endpoint of a server of this machine, for bytes as they are."""
    return HttpClient(f"http://127.0.0.1:{port}/mcp")


def until(condition: Callable[[], object]) -> None:
    """Wait for something that happens in another process."""
    end = monotonic() + BOUND
    while not condition():
        assert monotonic() < end, "it never happened"
        threading.Event().wait(0.005)


def free_port() -> int:
    """Return a port of this machine that nobody listens on, and that no other test is given.

    Below those that the system gives away: what starts in another process meanwhile could be given it.
    """
    for _ in range(PORTS.stop - PORTS.start):
        port = PORTS[(os.getpid() * 97 + next(_used)) % len(PORTS)]
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


def reap(pid: int) -> int:
    """Wait for a child to end and return its exit code; one that outlives the bound is killed."""
    end = monotonic() + BOUND
    while not (found := os.waitpid(pid, os.WNOHANG))[0]:
        if monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError(f"process {pid} did not end within {BOUND:.0f} s")
        threading.Event().wait(0.005)
    return os.waitstatus_to_exitcode(found[1])


def install(script: str, *words: str) -> str:
    """Run one of scripts/, which costs nothing when all is there; skip where its registry does not answer."""
    return _installed([ROOT / "scripts" / script, *words])


def fetch(*command: str | Path) -> None:
    """Run pip within the bounds of our scripts; skip where its registry does not answer."""
    _installed([ROOT / "scripts" / "fetch", "", "what this test needs", *command])


def _installed(words: Sequence[str | Path]) -> str:
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, timeout=INSTALLING, check=False
    )
    said = done.stderr.decode("utf-8", "replace")
    if done.returncode == UNANSWERED:
        pytest.skip(said.strip().rpartition("\n")[2])
    assert done.returncode == 0, f"{words} failed: {said[-2000:]}"
    return done.stdout.decode().strip()


def is_running(pid: int) -> bool:
    """Tell whether a process lives; one that has ended may stay in the table where the first reaps none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return False
    return stat.rpartition(") ")[2][0] not in "ZX"


def files_of_processes(name: str) -> list[Path]:
    """Return a file of every process below /proc; `glob` would raise for a process that ends meanwhile."""
    return [entry / name for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def children_of(pid: int) -> set[int]:
    """List the living processes below a process."""
    parents = {}
    for file in files_of_processes("stat"):
        try:
            state, parent = file.read_text("utf-8", "replace").rpartition(") ")[2].split()[:2]
        except OSError:  # it ended meanwhile
            continue
        if state not in "ZX":
            parents[int(file.parent.name)] = int(parent)
    found: set[int] = set()
    new = {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return found


def memory(pid: int) -> float:
    """Return the megabytes that a process has resident."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def fill(directory: Path, count: int) -> None:
    """Put many files into a directory, two levels deep: links to one, which takes a tenth of the time."""
    original = directory / "original"
    original.touch()
    for number in range(count):
        place = f"{directory}/d{number % 50:02}/e{number % 2500:04}"
        if number < 2500:
            os.makedirs(place)  # noqa: PTH103 - objects of paths take longer than the links
        os.link(original, f"{place}/f{number}")


def saying(reply: Reply) -> Mapping[str, Reply]:
    """Return the replies of an image in memory that answers everything alike."""
    return defaultdict(lambda: reply)


def empty_home(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make an empty home the user's, with a cache that has nothing but the core of SBCL."""
    core = find_core(find_sbcl(), sbcl_version(find_sbcl()))
    assert core is not None
    cache = directory / "cache" / "gramercy"
    cache.mkdir(parents=True)
    shutil.copy2(core, cache / core.name)
    for name in ("CL_SOURCE_REGISTRY", "XDG_DATA_HOME", "XDG_DATA_DIRS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(directory / "cache"))
    home = directory / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


def png(width: int = 3, height: int = 2, *, pixels: bytes | None = None) -> bytes:
    """Write a grey PNG by hand."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    lines = b"".join(b"\0" + bytes(width) for _ in range(height)) if pixels is None else pixels
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(lines)), chunk(b"IEND", b""))
    )
