"""Write a message at the prompt: lines, blocks, pastes and the editor; Tab completes commands, models, files.

Entries are kept for the next run and searched with Ctrl-R, as in the other prompts.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from gramercy.errors import InvalidMessageError, SourceError
from gramercy.ui.cli.reading import before_cursor, files_from, input_waits, typed_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gramercy.ui.cli.keys import Ahead

# The limit of a command for standard input. The context window of a model is far smaller.
LONGEST_MESSAGE = 4_000_000
# Begins and ends a message of several lines.
BLOCK = '"""'
CONTINUED = "  "


class Composer:
    """Messages and commands, one after the other. EOFError marks the end of the input.

    A line that ends in a backslash continues on the next one. A paste is one message too, even where the
    terminal does not bracket it: then its lines are waiting already.
    """

    def __init__(self, line: Callable[[str], str] = typed_line) -> None:
        self._line = line

    def read(self, prompt: str) -> str:
        """Return the next message or command."""
        try:
            return self._read(prompt)
        except InvalidMessageError:
            # The remaining lines of a paste are not messages of their own.
            while _is_pasted():
                self._line("")
            raise

    def _read(self, prompt: str) -> str:
        first = self._line(prompt)
        if first.strip() == BLOCK or (first.startswith(BLOCK) and BLOCK not in first[len(BLOCK) :]):
            return self._block(first[len(BLOCK) :])
        lines, size = [first], len(first)
        is_command = first.startswith("/")
        while lines[-1].endswith("\\") or (not is_command and _is_pasted()):
            lines[-1] = lines[-1].removesuffix("\\")
            lines.append(self._line(CONTINUED))
            size += len(lines[-1])
            _check(size)
        return _checked("\n".join(lines))

    def _block(self, first: str) -> str:
        lines, size = [first] if first else [], len(first)
        while True:
            text = self._line(CONTINUED)
            before, mark, _ = text.partition(BLOCK)
            lines.append(before)
            size += len(before)
            _check(size)
            if mark:
                return "\n".join(lines).strip("\n")


def line_ahead(ahead: Ahead, read: Callable[[str], str]) -> Callable[[str], str]:
    """Return a function that reads lines at a prompt: lines that were typed ahead come first."""

    def line(prompt: str) -> str:
        readline = sys.modules.get("readline")
        if readline is None:
            return read(prompt)
        entered = ahead.line()
        if entered is not None:
            print(f"{prompt}{entered}")
            readline.add_history(entered)
            return entered
        if rest := ahead.rest():
            readline.set_pre_input_hook(lambda: (readline.insert_text(rest), readline.redisplay()))
        try:
            return read(prompt)
        finally:
            readline.set_pre_input_hook(None)

    return line


def _is_pasted() -> bool:
    """Return whether more lines of a paste wait. A terminal that brackets pastes delivers them as one."""
    has_brackets = "readline" in sys.modules and os.environ.get("TERM", "dumb") != "dumb"
    return not has_brackets and input_waits()


def _checked(text: str) -> str:
    _check(len(text))
    return text


def _check(size: int) -> None:
    if size > LONGEST_MESSAGE:
        raise InvalidMessageError(
            f"the message is longer than {LONGEST_MESSAGE:,} characters: save it as a file and mention it "
            "with @FILE"
        )


def read_standard_input() -> str:
    """Read a message from a pipe or file."""
    try:
        return _checked(sys.stdin.read(LONGEST_MESSAGE + 1))
    except UnicodeDecodeError as error:
        raise InvalidMessageError(f"standard input is not UTF-8: {error.reason} at {error.start}") from None


def edited(text: str) -> str | None:
    """Let the person write a message in their editor. None when they saved nothing."""
    try:
        made = click.edit(text, extension=".md")
    except click.ClickException as error:
        raise SourceError(f"the editor failed: {error.message} (VISUAL or EDITOR names another)") from None
    return made.rstrip("\n") if made is not None and made.strip() else None


class MessageCompleter:
    """The completer for readline: commands at the beginning, their words after it, files after an @."""

    def __init__(
        self,
        project: Path,
        commands: Sequence[str],
        words: Callable[[str], Sequence[str]],
        mentions: Callable[[str], Sequence[str]] = lambda _: (),
    ) -> None:
        self._project = project
        self._commands = commands
        # The words that may follow a command, and the mentions other than files.
        self._words = words
        self._mentions = mentions
        self._found: list[str] = []

    def __call__(self, text: str, state: int) -> str | None:
        """Return one way to complete a text, until there is none."""
        if state == 0:
            self._found = sorted(set(self._ways(before_cursor() or text, text)))
        return self._found[state] if state < len(self._found) else None

    def _ways(self, line: str, text: str) -> list[str]:
        if text.startswith("@"):
            mark = "@file:" if text.startswith("@file:") else "@"
            files = files_from(self._project, text.removeprefix(mark))
            return [*self._mentions(text), *(f"{mark}{name}" for name in files)]
        command, space, _ = line.partition(" ")
        if not command.startswith("/"):
            return []
        if not space:
            return [name for name in self._commands if name.startswith(command)]
        words = [word for word in self._words(command) if word.casefold().startswith(text.casefold())]
        return words or files_from(self._project, text)
