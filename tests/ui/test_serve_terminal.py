"""A person at the terminal of an HTTP server answers for clients that cannot show a question."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import sys
import threading
import urllib.request
from time import monotonic

import pytest

from tests.support import reap

BOUND = 60
TOOLS = '''
from gramercy import tool


@tool(safety_level="dangerous")
def launch(target: str) -> str:
    """Do what cannot be undone."""
    return f"launched at {target}"
'''


class Terminal:
    """A server on a pseudo-terminal, and what it has written there."""

    def __init__(self, *words):
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.execve(
                sys.executable, [sys.executable, "-m", "gramercy", *words], {**os.environ, "NO_COLOR": "1"}
            )
        self._screen = ""
        self._changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        while True:
            try:
                chunk = os.read(self._fd, 4096)
            except OSError:  # the other end is closed
                return
            with self._changed:
                self._screen += chunk.decode("utf-8", "replace")
                self._changed.notify_all()

    def wait_for(self, pattern):
        until = monotonic() + BOUND
        with self._changed:
            while (found := re.search(pattern, self._screen)) is None:
                assert self._changed.wait(max(0.0, until - monotonic())), self._screen
            return found

    def type(self, text):
        os.write(self._fd, text.encode())

    def close(self):
        os.kill(self.pid, signal.SIGTERM)
        try:
            return reap(self.pid)
        finally:
            os.close(self._fd)


@pytest.fixture(name="terminal")
def terminal_fixture(tmp_path):
    file = tmp_path / "tools.py"
    file.write_text(TOOLS)
    made = Terminal("serve", "--http", "127.0.0.1:0", "--no-auth", "--from", str(file))
    yield made
    assert made.close() == 0


def call(url, target):
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": "launch",
            "arguments": {"target": target},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
            },
        },
    }
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "launch",
    }
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=BOUND) as answer:
        text = answer.read().decode()
    lines = [line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:")]
    messages = [json.loads(line) for line in lines if line] or [json.loads(text)]
    return messages[-1]["result"]


def in_the_background(url, target):
    found = []
    thread = threading.Thread(target=lambda: found.append(call(url, target)), daemon=True)
    thread.start()
    return thread, found


@pytest.mark.parametrize(
    ("typed", "fails"), [("a\n", False), ("d\nnot today\n", True)], ids=["approve", "deny"]
)
def test_a_person_at_the_server_decides_where_the_client_cannot_ask(terminal, typed, fails):
    """MCP, Approval: fallback to a person at another terminal, then denial."""
    url = terminal.wait_for(r"http://\S+/mcp")[0]
    thread, found = in_the_background(url, "dawn")
    terminal.wait_for(r"launch \(dangerous\)(.|\n)*dawn(.|\n)*approve, deny or edit")
    terminal.type(typed)
    thread.join(BOUND)
    assert found[0]["isError"] is fails
    assert ("not today" if fails else "launched at dawn") in found[0]["content"][0]["text"]


def test_the_end_of_input_at_the_server_is_no_approval_and_ends_nothing(terminal):
    """Answers, refusals: nobody decided; the next question is asked as before."""
    url = terminal.wait_for(r"http://\S+/mcp")[0]
    thread, found = in_the_background(url, "dusk")
    terminal.wait_for("approve, deny or edit")
    terminal.type("\x04")
    thread.join(BOUND)
    said = found[0]["content"][0]["text"]
    assert said.startswith("launch was not run yet: it waits for a person's approval")
    assert "\nNobody has decided: the question was left without an answer\n" in said
    thread, found = in_the_background(url, "dawn")
    terminal.wait_for(r"dawn(.|\n)*approve, deny or edit")
    terminal.type("a\n")
    thread.join(BOUND)
    assert found[0]["content"][0]["text"] == "launched at dawn"


def test_questions_come_one_after_the_other(terminal):
    url = terminal.wait_for(r"http://\S+/mcp")[0]
    waiting = [in_the_background(url, target) for target in ("one", "two")]
    terminal.wait_for("approve, deny or edit")
    terminal.type("a\n")
    terminal.wait_for("approve, deny or edit(.|\n)*approve, deny or edit")
    terminal.type("a\n")
    for thread, _ in waiting:
        thread.join(BOUND)
    assert sorted(found[0]["content"][0]["text"] for _, found in waiting) == [
        "launched at one",
        "launched at two",
    ]
