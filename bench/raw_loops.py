"""The least that evaluating in another process can cost: a loop that reads a line, evaluates and prints.

No deadline, no bound on output, no way back: what an image costs is told against this.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

LISP = """
(loop for line = (read-line *standard-input* nil)
      while line
      do (prin1 (eval (read-from-string line)))
         (terpri)
         (finish-output))
"""
PYTHON = """
try:
    while True:
        print(repr(eval(input())), flush=True)
except EOFError:
    pass
"""


class RawLoop:
    """A process with such a loop, on two pipes."""

    def __init__(self, language: str) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="bench-")
        program = Path(self._directory.name) / "loop"
        program.write_text(LISP if language == "sbcl" else PYTHON, encoding="utf-8")
        command = ["sbcl", "--script"] if language == "sbcl" else [sys.executable, "-I", "-S"]
        self._process = subprocess.Popen(
            [*command, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def evaluate(self, line: str) -> str:
        """Send one line and return the line that answers it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        os.write(self._process.stdin.fileno(), f"{line}\n".encode())
        answer = b""
        while not answer.endswith(b"\n"):
            answer += os.read(self._process.stdout.fileno(), 1 << 16) or b"\n"
        return answer.decode().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=10)
        self._directory.cleanup()
