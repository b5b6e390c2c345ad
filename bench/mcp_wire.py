"""A raw blocking client on two pipes, the same for every server. It knows frames and nothing of answers."""

from __future__ import annotations

import os
import select
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

VERSION = "2025-11-25"
ABOUT = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
# No answer may take longer: a server that hangs must not hang the benchmark.
BOUND = 60.0


def frame(method: str, params: Mapping[str, Any] | None = None, number: int | None = 1) -> bytes:
    """Write one message; without a number it is a notification."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if number is not None:
        message["id"] = number
    if params is not None:
        message["params"] = params
    return msgspec.json.encode(message) + b"\n"


def call_frame(tool: str, **arguments: Any) -> bytes:
    """Write a call of a tool."""
    return frame("tools/call", {"name": tool, "arguments": arguments})


INITIALIZE = frame("initialize", ABOUT, 0)
INITIALIZED = frame("notifications/initialized", number=None)
LIST = frame("tools/list", {})


class Wire:
    """A server in a process of its own and both ends of its wire."""

    def __init__(self, command: Sequence[str], **environment: str) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={**os.environ, **environment},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._writer, self._reader = self.process.stdin.fileno(), self.process.stdout.fileno()

    def ask(self, request: bytes) -> bytes:
        """Send one frame and return the line that answers it."""
        os.write(self._writer, request)
        answer = os.read(self._reader, 1 << 20)
        while not answer.endswith(b"\n"):
            more = os.read(self._reader, 1 << 20)
            if not more:
                raise RuntimeError(f"no answer from {self.process.args!r}")
            answer += more
        return answer

    def shake_hands(self) -> None:
        """Begin a session; the wait is bounded, for a server that does not start may never say so."""
        os.write(self._writer, INITIALIZE)
        if not select.select([self._reader], [], [], BOUND)[0]:
            raise RuntimeError(f"no answer from {self.process.args!r} within {BOUND:g} s")
        assert b'"result"' in self.ask(b"")
        os.write(self._writer, INITIALIZED)

    @property
    def cpu_seconds(self) -> float:
        """The CPU time of the server so far, of all its threads."""
        return cpu_seconds(self.process.pid)

    def hang_up(self) -> float:
        """Close the server's input and return the seconds until its process has ended."""
        assert self.process.stdin is not None
        started = time.perf_counter()
        self.process.stdin.close()
        end(self.process)
        return time.perf_counter() - started

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.process.stdout is not None
        self.hang_up()
        self.process.stdout.close()


def end(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that has been told to end, and end it if it does not."""
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of another process, to the nanosecond, from its clock."""
    return time.clock_gettime((~pid << 3) | 2)


def resident_bytes(pid: int) -> int:
    """Return the memory that a process has in use."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) * 1024
