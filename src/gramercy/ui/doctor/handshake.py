"""Be a client of a server on stdio: greet it, list its tools, call one.

It knows bytes and JSON only, so that it hides no fault of the server.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
from time import monotonic
from typing import Any

from gramercy.errors import HandshakeError

CLIENT = {"name": "gramercy-doctor", "version": "1"}
LEGACY, MODERN = "2025-11-25", "2026-07-28"
ERAS = (LEGACY, MODERN)
INTRODUCTION = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT}
PREFIX = "io.modelcontextprotocol/"
# The size of a pipe.
CHUNK = 1 << 16
# A listing has some ten kilobytes; more than this in one line is not an answer.
LONGEST_LINE = 1 << 22
# A healthy server ends within a second of EOF on its input.
LEAVING_SECONDS = 2.0
# The end of what a server wrote to its standard error: enough for the line that says why it ended.
LAST_WORDS = 4096


def hello() -> bytes:
    """Write the first message of a client, for a transport that takes one at a time."""
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INTRODUCTION}).encode()


class Conversation:
    """A server process and both ends of its wire; every wait ends at the deadline."""

    def __init__(self, command: list[str], cwd: str, seconds: float) -> None:
        self._latest = monotonic() + seconds
        # A file, not a pipe: no process reads it while the server runs, and a full pipe would block it.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the conversation
        self._process = subprocess.Popen(  # noqa: S603 - a command of gramercy
            command, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )
        self._buffer = b""
        self._last_id = 0

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request and return its result. Messages before the answer are skipped."""
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

    def close(self) -> str:
        """Close the input, which ends a healthy server, and kill any other. Return the end of its stderr."""
        try:
            self._process.communicate(timeout=LEAVING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        with self._errors as errors:
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - LAST_WORDS))
            lines = errors.read().decode("utf-8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def converse(conversation: Conversation, era: str, call: tuple[str, dict[str, Any]], answer: str) -> int:
    """Introduce ourselves, list the tools and call one. Return the number of tools."""
    tools, meta = list_tools(conversation, era)
    name, arguments = call
    if name not in tools:
        raise HandshakeError(f"{name} is not among the {len(tools)} tools")
    result = conversation.ask("tools/call", name=name, arguments=arguments, **meta)
    text = result["content"][0]["text"]
    if text != answer:
        raise HandshakeError(f"{name} said {text[:200]!r}")
    return len(tools)


def list_tools(conversation: Conversation, era: str) -> tuple[list[str], dict[str, Any]]:
    """Introduce ourselves. Return the names of the tools, and the fields that further requests must carry."""
    if era == MODERN:
        meta = {"_meta": {f"{PREFIX}protocolVersion": era, f"{PREFIX}clientCapabilities": {}}}
        known = conversation.ask("server/discover", **meta)["supportedVersions"]
    else:
        meta = {}
        known = [conversation.ask("initialize", **INTRODUCTION)["protocolVersion"]]
        conversation.send({"method": "notifications/initialized"})
    if era not in known:
        raise HandshakeError(f"the server speaks {', '.join(known)} only")
    return [tool["name"] for tool in conversation.ask("tools/list", **meta)["tools"]], meta
