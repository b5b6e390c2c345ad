"""The keyboard during an answer: Esc stops it, and text typed meanwhile goes to the next prompt.

Ctrl-C stays a signal. This module does not know what Esc stops.
"""

from __future__ import annotations

import codecs
import os
import re
import select
import sys
import termios
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ESC = b"\x1b"
# Terminals send a key as one sequence. Over a slow connection its bytes arrive within this time.
SEQUENCE_SECONDS = 0.05
# More than a person types between two reads.
READ_BYTES = 4096
# The size of a terminal's own buffer for typed-ahead text.
MOST_AHEAD = 4096
# The rest of a key that begins with Esc: an arrow, F1, Alt with a letter.
_KEY = re.compile(rb"\[[0-?]*[ -/]*[@-~]|O.|[^\x1b]", re.DOTALL)
_LAST_WORD = re.compile(r"[^\s]*[^\S\n]*\Z")


def can_watch() -> bool:
    """Return whether keys can be watched, and typed-ahead text can be put into the next prompt."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return is_terminal and "readline" in sys.modules and os.environ.get("TERM", "dumb") != "dumb"


class Ahead:
    """Text typed ahead, edited with the few keys that a terminal itself edits lines with."""

    def __init__(self) -> None:
        self._text = ""
        self.forget()

    def forget(self) -> None:
        """Drop the text, as a terminal does at Ctrl-C."""
        self._text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, data: bytes) -> None:
        """Add bytes from the keyboard."""
        for key in self._decoder.decode(data):
            line = self._text.rpartition("\n")[2]
            if key in "\x7f\b":
                self._text = self._text[:-1] if line else self._text
            elif key == "\x15":
                self._text = self._text[: len(self._text) - len(line)]
            elif key == "\x17":
                self._text = _LAST_WORD.sub("", self._text) if line.strip() else self._text
            elif key in "\r\n":
                self._text += "\n"
            elif (key.isprintable() or key == "\t") and len(self._text) < MOST_AHEAD:
                self._text += key

    def line(self) -> str | None:
        """Return the next complete line, if there is one."""
        line, end, rest = self._text.partition("\n")
        if not end:
            return None
        self._text = rest
        return line

    def rest(self) -> str:
        """Return the unfinished last line."""
        rest, self._text = self._text, ""
        return rest


class Keys:
    """Watches the keyboard on a thread while a block runs. Esc calls `stop` on that thread."""

    def __init__(self, stop: Callable[[], object], ahead: Ahead) -> None:
        self._stop = stop
        self._ahead = ahead
        self._keyboard = sys.stdin.fileno()
        # The block and the threads that ask a question meanwhile begin and end the watch.
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._is_over = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_over = True
        self._end()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Release the keyboard for a question. Text typed before is not an answer to it."""
        with self._asking:
            self._end()
            try:
                yield
            finally:
                self._begin()

    def _begin(self) -> None:
        with self._lock:
            if self._is_over or self._thread is not None:
                return
            self._before = termios.tcgetattr(self._keyboard)
            quiet = list(self._before)
            # Read single keys without echo: an echo would appear in the middle of the answer.
            quiet[3] &= ~(termios.ICANON | termios.ECHO)
            termios.tcsetattr(self._keyboard, termios.TCSANOW, quiet)
            self._is_woken, self._wakes = os.pipe()
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()

    def _end(self) -> None:
        with self._lock:
            if self._thread is None:
                return
            os.write(self._wakes, b"!")
            self._thread.join()
            self._thread = None
            os.close(self._wakes)
            os.close(self._is_woken)
            termios.tcsetattr(self._keyboard, termios.TCSANOW, self._before)

    def _watch(self) -> None:
        while data := self._next(None):
            while ESC in data:
                typed, _, after = data.partition(ESC)
                self._ahead.add(typed)
                after = after or self._next(SEQUENCE_SECONDS)
                key = _KEY.match(after)
                if key is None:
                    self._ahead.forget()
                    self._stop()
                data = after[key.end() :] if key else after
            self._ahead.add(data)

    def _next(self, seconds: float | None) -> bytes:
        """Return bytes from the keyboard. Empty at the timeout, at the end of the watch or of the input."""
        ready, _, _ = select.select([self._keyboard, self._is_woken], [], [], seconds)
        if self._keyboard not in ready or self._is_woken in ready:
            return b""
        try:
            return os.read(self._keyboard, READ_BYTES)
        except OSError:
            return b""
