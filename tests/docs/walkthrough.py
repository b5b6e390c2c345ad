"""Run the blocks of one page, in order, in a scratch directory, and say what differs from what the page says.

- `python`: all blocks share one namespace. What a block prints must stand in the `text` block after it.
- `console`: `$ ` starts a command, `> ` continues it, the lines after it are its output. A command that fails
  must be followed by `$ echo $?`. `answers="a|b"` runs the commands on a terminal and types the answers.
- `gram`: must have no errors, or exactly the findings that `finds="A105, …"` names.
- `json`, `toml`: must parse.
- `title="name"` also writes the block into that file. `needs="program"` leaves the page out without it,
  as `needs="python:module"` does, and `needs="model"` where the small model cannot be had; with
  `needs="service"` a service plays the models of all providers.
- `file="name"` only writes the block into that file, in any language: a part of a project for later blocks.

`…` stands for anything within a line, and alone in a line for any number of lines.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from gramercy.gram.lint.diagnostics import Severity
from gramercy.gram.lint.linter import lint
from gramercy.images.caches import cache_directory
from gramercy.ui.cli.terminal import SLOW_START

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.docs.pages import Block, Page

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = Path(__file__).with_name("notebook.py")
# Longer than anything takes on a busy machine.
SECONDS = 120
# Bold and colours, which a terminal shows and a page cannot.
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


class DifferenceError(AssertionError):
    """A page says something else than what happens."""


def matches(expected: str, actual: str) -> bool:
    """Tell whether an output is the expected one; `…` is a wildcard, blanks at line ends do not count."""
    parts = []
    for line in expected.strip("\n").split("\n"):
        if line.strip() == "…":
            parts.append(r"(?:[^\n]*\n)*")
        else:
            parts.append(r"[^\n]*".join(map(re.escape, line.rstrip().split("…"))) + r"[^\S\n]*\n")
    return re.fullmatch("".join(parts), actual.strip("\n") + "\n") is not None


class Walkthrough:
    """The scratch directory of one page, with the examples in it and the processes that run its blocks."""

    def __init__(self, page: Page, directory: Path, environment: Mapping[str, str] | None = None) -> None:
        self.page = page
        self._more = dict(environment or {})
        self.directory = directory
        self.executed = 0
        self.status = 0
        self.printed: str | None = None
        self.notebook: subprocess.Popen[str] | None = None
        shutil.copytree(ROOT / "examples", directory / "examples", dirs_exist_ok=True)

    def run(self) -> int:
        """Run every block; return how many there were."""
        try:
            for block in self.page.blocks:
                self._run_block(block)
            self._settle_output("the end of the page")
        finally:
            self._stop_notebook()
        return self.executed

    def _run_block(self, block: Block) -> None:
        runners: dict[str, Callable[[Block], None]] = {
            "python": self._python,
            "console": self._console,
            "text": self._text,
            "gram": self._gram,
            "json": lambda block: _parse(json.loads, block),
            "toml": lambda block: _parse(tomllib.loads, block),
        }
        if "file" in block.options:
            self._settle_output(f"line {block.line}")
            self._write(block.options["file"], block)
            self.executed += 1
            return
        if block.language not in runners:
            raise self._difference(block, f"unknown language {block.language!r}: use {', '.join(runners)}")
        if block.language != "text":
            self._settle_output(f"line {block.line}")
        if "title" in block.options:
            self._write(block.options["title"], block)
        try:
            runners[block.language](block)
        except ValueError as error:
            raise self._difference(block, f"not {block.language}: {error}") from None
        self.executed += 1

    def _write(self, name: str, block: Block) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")

    def _settle_output(self, before: str) -> None:
        if self.printed:
            where = f"{self.page.name}: before {before}"
            raise DifferenceError(f"{where}: the page does not show what was printed:\n{self.printed}")

    def _python(self, block: Block) -> None:
        self.notebook = self.notebook or self._start_notebook()
        assert self.notebook.stdin is not None
        assert self.notebook.stdout is not None
        request = {"code": block.text, "page": self.page.name, "line": block.line}
        self.notebook.stdin.write(json.dumps(request) + "\n")
        self.notebook.stdin.flush()
        answer = self.notebook.stdout.readline()
        report = json.loads(answer) if answer else {"printed": "", "error": "the block ended the process"}
        if report["error"]:
            raise self._difference(block, f"the block failed:\n{report['printed']}{report['error']}")
        self.printed = report["printed"]

    def _start_notebook(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "error", str(NOTEBOOK)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, cwd=self.directory, env=self._environment(), **pipes)

    def _stop_notebook(self) -> None:
        if self.notebook is not None:
            try:
                self.notebook.communicate(timeout=SECONDS)
            finally:
                self.notebook.kill()

    def _text(self, block: Block) -> None:
        if self.printed is None or not block.is_adjacent:
            raise self._difference(block, "a text block must directly follow the python block that prints it")
        printed, self.printed = self.printed, None
        if not matches(block.text, printed):
            raise self._difference(block, f"the page says\n{block.text}\nbut what was printed is\n{printed}")

    def _gram(self, block: Block) -> None:
        found = lint(block.text)
        if "finds" in block.options:
            expected = block.options["finds"].replace(",", " ").split()
            unexpected = sorted({item.code for item in found} ^ set(expected))
        else:
            unexpected = [f"{item.code}: {item.message}" for item in found if item.severity is Severity.ERROR]
        if unexpected:
            raise self._difference(block, f"the linter does not agree with the page: {'; '.join(unexpected)}")

    def _console(self, block: Block) -> None:
        self.status = 0
        answers = block.options["answers"].split("|") if "answers" in block.options else None
        for command, expected in _commands(block):
            if self.status and command != "echo $?":
                raise self._difference(block, f"before {command!r} a command failed: show it with $ echo $?")
            real = self._real_command(block, command)
            if real is None:
                continue
            previous, (output, self.status) = self.status, self._execute(real, answers)
            if command == "echo $?":
                output, self.status = f"{previous}\n", 0
            if not matches(expected, output):
                message = f"$ {command}\nthe page says\n{expected}\nbut the output is\n{output}"
                raise self._difference(block, message)
        if self.status:
            raise self._difference(
                block, f"the last command failed with {self.status}: show it with $ echo $?"
            )

    def _real_command(self, block: Block, command: str) -> str | None:
        """Return what is run for a command: the project's own scripts must exist but are not run again."""
        name, _, arguments = command.partition(" ")
        if not name.startswith("scripts/"):
            return command
        if not os.access(ROOT / name, os.X_OK):
            raise self._difference(block, f"{name} does not exist or cannot be executed")
        return f"gramercy {arguments or 'tour'}" if name == "scripts/run" else None

    def _execute(self, command: str, answers: list[str] | None) -> tuple[str, int]:
        if answers is not None:
            return self._execute_at_terminal(command, answers)
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.directory,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=SECONDS,
            check=False,
        )
        # On a busy machine a start may take long enough for that, which no page shows.
        return done.stdout.replace(f"{SLOW_START}\n", ""), done.returncode

    def _execute_at_terminal(self, command: str, answers: list[str]) -> tuple[str, int]:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.directory,
            env=self._environment(),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        try:
            screen = _converse(ours, list(answers))
            return _STYLE.sub("", screen.replace("\r\n", "\n")), process.wait(SECONDS)
        finally:
            os.close(ours)
            process.kill()

    def _environment(self) -> dict[str, str]:
        binaries = os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"])
        return {
            "PATH": binaries,
            "HOME": str(self.directory),
            # A core that is built once for all pages.
            "XDG_CACHE_HOME": str(cache_directory().parent),
            "LANG": "C.UTF-8",
            "COLUMNS": "80",
            "NO_COLOR": "1",
            "TERM": "dumb",
            **self._more,
        }

    def _difference(self, block: Block, text: str) -> DifferenceError:
        return DifferenceError(f"{self.page.name}:{block.line}: {text}")


def _parse(parse: Callable[[str], Any], block: Block) -> None:
    parse(block.text)


def _commands(block: Block) -> Iterator[tuple[str, str]]:
    """Split a console block into commands and their outputs."""
    if not block.text.startswith("$ "):
        raise ValueError("a console block starts with a command: $ …")
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        first, *rest = part.split("\n")
        command = [first]
        while rest and rest[0].startswith("> "):
            command.append(rest.pop(0).removeprefix("> "))
        yield "\n".join(command), "\n".join(rest)


def _converse(terminal: int, answers: list[str]) -> str:
    """Type an answer whenever the program prompts; return everything that was on the screen."""
    screen, deadline = b"", monotonic() + SECONDS
    while True:
        if not select.select([terminal], [], [], max(0, deadline - monotonic()))[0]:
            raise TimeoutError(f"nothing more came after:\n{screen.decode()}")
        try:
            chunk = os.read(terminal, 4096)
        except OSError:  # the program has gone and its end of the terminal is closed
            return screen.decode()
        if not chunk:
            return screen.decode()
        screen += chunk
        if answers and screen.endswith((b": ", b"> ")):
            os.write(terminal, answers.pop(0).encode() + b"\n")
