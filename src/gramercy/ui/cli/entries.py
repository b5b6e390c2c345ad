"""Read what a person enters at the prompt, or what comes through a pipe: commands, and code form by form."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gramercy.errors import SourceError
from gramercy.ui.cli.forms import new_form

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONGEST_ENTRY = 4_000_000
MOST_HISTORY = 1_000
# The one command whose argument may go on over several lines.
PREVIEW = ":preview"


class Entries:
    """Entries one after the other. EOFError says that there are no more."""

    def __init__(self, language: str, line: Callable[[str], str], *, interactive: bool) -> None:
        self._language = language
        self._line = line
        self._interactive = interactive
        self._held: str | None = None

    def read(self, prompt: str = "") -> str:
        """Return the next command or whole form."""
        first = self._next(prompt)
        if not first.strip() or (first.startswith(":") and not first.startswith(f"{PREVIEW} ")):
            return first
        return "\n".join(self._whole(first, " " * (len(prompt) - 1)))

    def _whole(self, first: str, prompt: str) -> list[str]:
        form = new_form(self._language, interactive=self._interactive)
        form.feed(first.removeprefix(f"{PREVIEW} "))
        lines, size = [first], len(first)
        while not form.is_complete:
            try:
                line = self._next(f"{prompt} ")
            except EOFError:
                if self._interactive:
                    raise
                break
            if form.ends_before(line):
                self._held = line
                break
            form.feed(line)
            lines.append(line)
            size += len(line)
            _check(size)
        return lines

    def _next(self, prompt: str) -> str:
        held, self._held = self._held, None
        return self._line(prompt) if held is None else held


def _check(size: int) -> None:
    if size > LONGEST_ENTRY:
        raise SourceError(f"the input is longer than {LONGEST_ENTRY:,} characters: load it from a file")


def typed_line(prompt: str) -> str:
    """Read a line at the terminal, with line editing where it is available."""
    if sys.stdout.isatty():
        return input(prompt)
    click.echo(prompt, nl=False, err=True)
    return input()


def piped_line(prompt: str) -> str:
    """Read a line of a pipe or file."""
    del prompt
    try:
        line = sys.stdin.readline(LONGEST_ENTRY + 1)
    except UnicodeDecodeError as error:
        raise SourceError(f"standard input is not UTF-8: {error.reason}") from None
    if not line:
        raise EOFError
    _check(len(line))
    return line.removesuffix("\n").removesuffix("\r")


@contextlib.contextmanager
def remembered(language: str) -> Iterator[None]:
    """Keep what is typed for the next time; that this is impossible is no reason to complain."""
    try:
        import readline
    except ImportError:
        yield
        return
    path = _history_file(language)
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(MOST_HISTORY)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            readline.write_history_file(path)
            path.chmod(0o600)


def _history_file(language: str) -> Path:
    state = os.environ.get("XDG_STATE_HOME", "")
    home = Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state"
    return home / "gramercy" / f"{language}-history"
