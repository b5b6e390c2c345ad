"""A client that knows nothing but bytes on pipes, so that nothing wrong is smoothed over."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
import threading
from pathlib import Path
from time import monotonic

BOUND = 20


class RawClient:
    """A server process and both ends of its wire. Every wait is bounded."""

    def __init__(self, *command, cwd=None, **environment):
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the client
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=cwd,
            env={**os.environ, **environment},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self._reader = self.stdout.fileno()
        self._buffer = b""
        self._last = 0

    def send(self, *frames):
        """Write frames as they are, on a thread since the other side may not read."""
        data = b"".join(frames)
        if len(data) < 4096:
            self.stdin.write(data)
            self.stdin.flush()
            return
        writer = threading.Thread(target=lambda: os.write(self.stdin.fileno(), data), daemon=True)
        writer.start()

    def line(self):
        """Return the next line, without its newline; None when there are no more."""
        end = monotonic() + BOUND
        parts, chunk = [], self._buffer
        while b"\n" not in chunk:
            parts.append(chunk)
            assert select.select([self._reader], [], [], max(0, end - monotonic()))[0], "no answer came"
            chunk = os.read(self._reader, 1 << 20)
            if not chunk:
                assert not any(parts), f"half a frame: {b''.join(parts)[:200]!r}"
                return None
        line, _, self._buffer = chunk.partition(b"\n")
        return b"".join([*parts, line])

    def message(self):
        """Return the next message."""
        line = self.line()
        assert line is not None, f"the server has left: {self.errors()}"
        return json.loads(line)

    def tell(self, method, **params):
        """Send a notification."""
        self.send(frame({"method": method, "params": params}))

    def begin(self, method, **params):
        """Send a request and return its id."""
        self._last += 1
        self.send(frame({"id": self._last, "method": method, "params": params}))
        return self._last

    def ask(self, method, **params):
        """Send a request and return its answer; what comes before it is passed over."""
        number = self.begin(method, **params)
        while (message := self.message()).get("id") != number:
            pass
        return message

    def shake_hands(self, version="2025-11-25", **capabilities):
        """Begin a session of the older era."""
        about = {"name": "raw", "version": "1"}
        answer = self.ask("initialize", protocolVersion=version, capabilities=capabilities, clientInfo=about)
        self.tell("notifications/initialized")
        return answer["result"]

    def call(self, tool, **arguments):
        """Call a tool and return its result."""
        return self.ask("tools/call", name=tool, arguments=arguments)["result"]

    def hang_up(self):
        """Close the server's input and return how long it takes to end, and its exit code."""
        begun = monotonic()
        self.stdin.close()
        code = self.process.wait(BOUND)
        return monotonic() - begun, code

    def rest(self):
        """Return all messages that are still to come."""
        found = []
        while (line := self.line()) is not None:
            found.append(json.loads(line))
        return found

    def errors(self):
        """Return what the server has written to standard error so far."""
        self._errors.seek(0)
        return self._errors.read().decode()

    def close(self):
        """End the process if it has not ended, and let go of the pipes."""
        self.process.kill()
        self.process.wait(BOUND)
        for file in (self.stdin, self.stdout, self._errors):
            try:
                file.close()
            except BrokenPipeError:  # what was never sent
                continue


def frame(message):
    """Write a message as one line."""
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def children_of(pid):
    """List the living processes below a process."""
    parents = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
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


def until(condition):
    """Wait for something that happens in another process."""
    end = monotonic() + BOUND
    while not condition():
        assert monotonic() < end, "it never happened"
        threading.Event().wait(0.005)
