"""Talk to a server on its pipes as a client would, in either era of the protocol, for a bounded time.

Knows bytes and JSON only, so that nothing wrong is smoothed over.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
from time import monotonic
from typing import Any

from gramercy.errors import HandshakeError

CLIENT = {"name": "gramercy-doctor", "version": "1"}
LEGACY, MODERN = "2025-11-25", "2026-07-28"
ERAS = (LEGACY, MODERN)
PREFIX = "io.modelcontextprotocol/"
# The size of a pipe.
CHUNK = 1 << 16
# A listing has some ten kilobytes; more than this in one line is not an answer.
LONGEST_LINE = 1 << 22
# A healthy server ends within a second of EOF on its input.
LEAVING_SECONDS = 2.0


class Conversation:
    """A server process and both ends of its wire; every wait ends at the deadline."""

    def __init__(self, command: list[str], cwd: str, seconds: float) -> None:
        self._latest = monotonic() + seconds
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            command, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._buffer = b""
        self._last_id = 0

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request and return its result; what comes before the answer is passed over."""
        self._last_id += 1
        self.send({"id": self._last_id, "method": method, "params": params})
        while True:
            message = self._message(method)
            if message.get("id") != self._last_id:
                continue
            if "error" in message:
                raise HandshakeError(f"{method} was answered with {message['error'].get('message')}")
            result: dict[str, Any] = message["result"]
            return result

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        stdin = self._process.stdin
        try:
            if stdin is not None:
                stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
                stdin.flush()
        except BrokenPipeError:
            raise HandshakeError(f"the server ended at {message['method']}") from None

    def _message(self, awaited: str) -> dict[str, Any]:
        line = self._line(awaited)
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise HandshakeError(f"this is no message: {line[:60]!r}")
        return message

    def _line(self, awaited: str) -> bytes:
        stdout = self._process.stdout
        while b"\n" not in self._buffer and stdout is not None:
            if not select.select([stdout], [], [], max(0.0, self._latest - monotonic()))[0]:
                raise HandshakeError(f"{awaited} was not answered in time")
            chunk = os.read(stdout.fileno(), CHUNK)
            self._buffer += chunk
            if not chunk or len(self._buffer) > LONGEST_LINE:
                raise HandshakeError(f"{awaited} was not answered: the server ended or sent no line")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def close(self) -> None:
        """Hang up, which ends a server that is well, and end one that is not."""
        try:
            self._process.communicate(timeout=LEAVING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def converse(conversation: Conversation, era: str, call: tuple[str, dict[str, Any]], answer: str) -> int:
    """Introduce ourselves, list the tools and call one; return how many tools there are."""
    if era == MODERN:
        meta = {"_meta": {f"{PREFIX}protocolVersion": era, f"{PREFIX}clientCapabilities": {}}}
        known = conversation.ask("server/discover", **meta)["supportedVersions"]
    else:
        meta = {}
        hello = {"protocolVersion": era, "capabilities": {}, "clientInfo": CLIENT}
        known = [conversation.ask("initialize", **hello)["protocolVersion"]]
        conversation.send({"method": "notifications/initialized"})
    if era not in known:
        raise HandshakeError(f"the server speaks {', '.join(known)} only")
    tools = [tool["name"] for tool in conversation.ask("tools/list", **meta)["tools"]]
    name, arguments = call
    if name not in tools:
        raise HandshakeError(f"{name} is not among the {len(tools)} tools")
    result = conversation.ask("tools/call", name=name, arguments=arguments, **meta)
    text = result["content"][0]["text"]
    if text != answer:
        raise HandshakeError(f"{name} said {text[:200]!r}")
    return len(tools)
