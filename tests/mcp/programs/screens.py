"""A program on a terminal that is really drawn: tmux is the terminal, the test is its only person."""

from __future__ import annotations

import subprocess
import threading
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

# The programs are big, and two cores may have other work: a first turn of opencode was seen to take a minute.
BOUND = 180.0
# What comes sooner after a question does not count: with Claude Code no key, lest one approves what was not
# read, and with gramercy no refusal, since programs that run unattended give one at once.
READING = 1.5
COLUMNS, LINES = 120, 50


class Screen:
    """A terminal of 120 columns and 50 lines with a program, as a context manager."""

    def __init__(self, command: Sequence[object], cwd: Path, environment: Mapping[str, str]) -> None:
        # Short, since the path of a socket has room for a hundred characters; and tmux leaves it behind.
        self._directory = TemporaryDirectory(prefix="screen-")
        self._environment = {**environment, "TERM": "xterm-256color"}
        # What is left on the screen by a program that has ended tells why it has.
        self._tmux(
            *("-f", "/dev/null", "start-server", ";", "set-option", "-g", "remain-on-exit", "on", ";"),
            *("new-session", "-d", "-x", str(COLUMNS), "-y", str(LINES), "-c", str(cwd)),
            *map(str, command),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server")
        self._directory.cleanup()

    def text(self) -> str:
        """Return what can be seen now."""
        return self._tmux("capture-pane", "-p")

    def press(self, *keys: str) -> None:
        """Press keys by their names, such as Enter, Escape, Right, as slowly as a person who reads."""
        for key in keys:
            threading.Event().wait(READING)
            self._tmux("send-keys", key)

    def type(self, text: str) -> None:
        """Type a text, and Enter some time after it is on the screen: at once it would count as pasted."""
        self._tmux("send-keys", "-l", text)
        self.expect(text)
        self.press("Enter")

    def expect(self, *texts: str) -> str:
        """Wait until one of some texts can be seen; return the whole screen."""
        return self.until(lambda seen: any(text in seen for text in texts), f"none of {texts} came")

    def until(self, condition: Callable[[str], object], lack: str) -> str:
        """Wait for something, of which the screen tells why it does not happen; return the whole screen."""
        end = monotonic() + BOUND
        while not condition(seen := self.text()):
            assert monotonic() < end, f"{lack}:\n{seen}"
            threading.Event().wait(0.05)
        return seen

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", f"{self._directory.name}/socket", *words],
            capture_output=True,
            text=True,
            timeout=BOUND,
            check=True,
            env=self._environment,
        )
        return done.stdout
